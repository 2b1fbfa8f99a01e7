//! One caller, one object.

use super::Case;
use crate::Created;

const LARGE: usize = 8 << 20;

pub(super) fn gives_back_what_was_put(case: &Case) {
    let all_bytes: Vec<u8> = (0..=255).collect();
    case.put("a", &all_bytes);
    case.holds("a", Some(&all_bytes));
    case.assert(case.create("b", b"created") == Created::Yes, "a free name must be created");
    case.holds("b", Some(b"created"));
    case.holds("a", Some(&all_bytes));
}

pub(super) fn replaces_whole_objects(case: &Case) {
    for bytes in [&b"a long first version"[..], b"short", b"", b"longer again"] {
        case.put("a", bytes);
        case.holds("a", Some(bytes));
    }
    case.create("b", b"created");
    case.put("b", b"replaced");
    case.holds("b", Some(b"replaced"));
}

pub(super) fn says_that_absent_objects_are_absent(case: &Case) {
    case.put("folder/object", b"1");
    for name in ["absent", "folder", "folder/absent", "absent/absent", "folder/object/below"] {
        case.holds(name, None);
        case.assert(case.get_range(name, 0..1).is_none(), "an absent object must have no range");
        case.assert(case.get_range(name, 0..0).is_none(), "nor an empty one");
    }
    case.assert(case.list("absent").is_empty(), "nothing must be listed for an unused prefix");
}

pub(super) fn cuts_ranges_at_the_end(case: &Case) {
    case.put("a", b"0123456789");
    let table: &[(u64, u64, &[u8])] = &[
        (0, 10, b"0123456789"),
        (0, 1, b"0"),
        (3, 7, b"3456"),
        (9, 10, b"9"),
        (8, 99, b"89"),
        (0, u64::MAX, b"0123456789"),
        (10, 11, b""),
        (99, 100, b""),
        (u64::MAX - 1, u64::MAX, b""),
        (4, 4, b""),
        (7, 3, b""),
    ];
    for (start, end, expected) in table {
        let found = case.get_range("a", *start..*end);
        let what = format!("range {start}..{end} must give {expected:?}, gave {found:?}");
        case.assert(found.as_deref() == Some(*expected), &what);
    }
}

pub(super) fn keeps_empty_and_large_objects(case: &Case) {
    case.put("empty", b"");
    case.holds("empty", Some(b""));
    case.assert(case.get_range("empty", 0..9).as_deref() == Some(b""), "its range must be empty");
    case.assert(case.create("empty", b"x") == Created::Exists, "an empty object must exist");
    // Not periodic at any power of two, so that swapped or repeated blocks are found out.
    let large: Vec<u8> = (0..LARGE).map(|i| (i % 251) as u8 ^ (i >> 16) as u8).collect();
    case.put("large", &large);
    case.holds("large", Some(&large));
    let middle = LARGE / 2 - 5..LARGE / 2 + 5;
    let found = case.get_range("large", middle.start as u64..middle.end as u64);
    case.assert(found.as_deref() == Some(&large[middle]), "a range inside a large object is wrong");
    case.assert(case.create("large-created", &large) == Created::Yes, "it must be created");
    case.holds("large-created", Some(&large));
}

pub(super) fn deletes_and_deletes_again(case: &Case) {
    case.put("folder/a", b"1");
    case.put("folder/b", b"2");
    for _ in 0..2 {
        case.delete("folder/a");
        case.holds("folder/a", None);
        case.assert(case.list("") == ["folder/b"], "only the other object must be listed");
    }
    case.delete("never/was");
    // Deleting what is no object but the beginning of a name must not take what is below.
    case.delete("folder");
    case.holds("folder/b", Some(b"2"));
    case.assert(case.create("folder/a", b"3") == Created::Yes, "a deleted name must be free");
    case.holds("folder/a", Some(b"3"));
}

pub(super) fn deletes_many_objects(case: &Case) {
    for name in ["one/a", "one/b", "two/a", "three"] {
        case.put(name, b"1");
    }
    case.delete_all(&[]);
    case.delete_all(&["one/a", "never/was", "two/a", "one/a"]);
    for (name, left) in [("one/a", false), ("one/b", true), ("two/a", false), ("three", true)] {
        case.holds(name, left.then_some(b"1"));
    }
}

pub(super) fn leaves_what_exists_unchanged(case: &Case) {
    case.create("created", b"first");
    case.put("put", b"first");
    for name in ["created", "put"] {
        for bytes in [&b"other"[..], b"first", b"", b"a much longer one"] {
            let what = format!("creating {name:?} again must say Exists");
            case.assert(case.create(name, bytes) == Created::Exists, &what);
            case.holds(name, Some(b"first"));
        }
    }
}
