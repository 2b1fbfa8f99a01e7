//! The id of something durable, as the user gives it.

/// An id, with the one that it had in older checkpoints. A text is one by itself.
///
/// ```
/// use isochrone_engine::Id;
/// let orders = Id::new("orders").renamed_from("input");
/// assert_ne!(orders, Id::from("orders"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Id {
    pub(crate) id: String,
    pub(crate) renamed_from: Option<String>,
}

impl Id {
    /// This id: `[a-z0-9_-]{1,64}`.
    pub fn new(id: impl Into<String>) -> Id {
        Id { id: id.into(), renamed_from: None }
    }

    /// The id in older checkpoints. Keep it until none of them is needed.
    #[must_use]
    pub fn renamed_from(mut self, id: impl Into<String>) -> Id {
        self.renamed_from = Some(id.into());
        self
    }
}

impl From<&str> for Id {
    fn from(id: &str) -> Id {
        Id::new(id)
    }
}

impl From<&String> for Id {
    fn from(id: &String) -> Id {
        Id::new(id)
    }
}

impl From<String> for Id {
    fn from(id: String) -> Id {
        Id::new(id)
    }
}
