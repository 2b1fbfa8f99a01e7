//! What librdkafka hands over to be destroyed by us.

#![allow(unsafe_code, reason = "the bindings have raw pointers")]

/// Something of librdkafka's that is destroyed once.
pub(super) struct Owned<T> {
    ptr: *mut T,
    destroy: unsafe extern "C" fn(*mut T),
}

impl<T> Owned<T> {
    /// # Safety
    ///
    /// The pointer is null, or nobody else destroys what it points to, and `destroy` is how.
    pub(super) unsafe fn new(
        ptr: *mut T,
        destroy: unsafe extern "C" fn(*mut T),
    ) -> Option<Owned<T>> {
        (!ptr.is_null()).then_some(Owned { ptr, destroy })
    }

    pub(super) fn ptr(&self) -> *mut T {
        self.ptr
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: `new` was promised that this is how it is destroyed, and by us alone.
        unsafe { (self.destroy)(self.ptr) }
    }
}
