//! Names: which are taken, which refused, and how they are listed.

use super::{Case, side_by_side};
use crate::Created;
use crate::store::name::{COMPONENT_BYTES_MAX, NAME_BYTES_MAX};

pub(super) fn takes_odd_but_legal_names(case: &Case) {
    let long_part = "x".repeat(COMPONENT_BYTES_MAX);
    let room = NAME_BYTES_MAX - case.prefix.len();
    let long_name = "y/".repeat(room / 2) + &"z".repeat(room % 2);
    let names = [
        "0",
        "-",
        "_",
        "--help",
        "-rf",
        "a.",
        "a..b",
        "a..",
        "0.0",
        "a-b",
        "a.b",
        "a_b",
        "con",
        "nul.txt",
        "x.json",
        "deep/er/and/deep/er",
        "00000000000000000001",
        "probe-a",
        "tmp",
        "a.tmp",
        &long_part,
        long_name.trim_end_matches('/'),
    ];
    for (number, name) in names.iter().enumerate() {
        let created = case.create(name, &number.to_le_bytes());
        case.assert(created == Created::Yes, &format!("{name:?} must be created"));
    }
    for (number, name) in names.iter().enumerate() {
        case.holds(name, Some(&number.to_le_bytes()));
    }
    let mut sorted: Vec<&str> = names.to_vec();
    sorted.sort_unstable();
    let listed = case.list("");
    case.assert(listed == sorted, &format!("all must be listed, got {listed:?}"));
}

pub(super) fn refuses_illegal_names(case: &Case) {
    let long_part = "x".repeat(COMPONENT_BYTES_MAX + 1);
    let long_name = "y/".repeat(NAME_BYTES_MAX / 2) + "z";
    let names = [
        "",
        "/",
        "/a",
        "a/",
        "a//b",
        ".",
        "..",
        "../a",
        "a/..",
        "a/../b",
        "a/../../b",
        "./a",
        "a/./b",
        ".a",
        "a/.b",
        ".tmp-a",
        "A",
        "a b",
        " a",
        "a\\b",
        "a\0b",
        "a\nb",
        "a:b",
        "a%2e",
        "a*",
        "~",
        "\u{e4}",
        "a\u{2215}b",
        &long_part,
        &long_name,
    ];
    let store = &case.store;
    for name in names {
        case.refused(&format!("get {name:?}"), store.get(name));
        case.refused(&format!("get_range {name:?}"), store.get_range(name, 0..1));
        case.refused(&format!("put {name:?}"), store.put(name, b"1"));
        case.refused(&format!("put_if_absent {name:?}"), store.put_if_absent(name, b"1"));
        case.refused(&format!("delete {name:?}"), store.delete(name));
    }
    for prefix in ["/", "../", "a/../", "a//", ".", "A", "a b", "a/.", long_name.as_str()] {
        case.refused(&format!("list {prefix:?}"), store.list(prefix));
    }
}

pub(super) fn lists_by_prefix_sorted(case: &Case) {
    // In the order of bytes `-` and `.` come before `/`, and digits after: not a folder's order.
    let sorted =
        ["a-b", "a.b", "a/b", "a/b-c/d", "a/b.c", "a/bc", "a0", "ab/c", "b", "b-", "c/d/e/f"];
    for name in sorted.iter().rev() {
        case.put(name, name.as_bytes());
    }
    let table: &[(&str, &[&str])] = &[
        ("", &sorted),
        ("a", &sorted[..8]),
        ("a/", &["a/b", "a/b-c/d", "a/b.c", "a/bc"]),
        ("a/b", &["a/b", "a/b-c/d", "a/b.c", "a/bc"]),
        ("a/b-", &["a/b-c/d"]),
        ("a/b-c/", &["a/b-c/d"]),
        ("a/b/", &[]),
        ("ab", &["ab/c"]),
        ("b", &["b", "b-"]),
        ("c/d", &["c/d/e/f"]),
        ("c/d/e/f", &["c/d/e/f"]),
        ("c/d/e/f/", &[]),
        ("d", &[]),
    ];
    for (prefix, expected) in table {
        let found = case.list(prefix);
        let what = format!("list {prefix:?} must give {expected:?}, gave {found:?}");
        case.assert(found == *expected, &what);
    }
}

/// More than one page of any object store.
pub(super) fn lists_many_objects(case: &Case) {
    const OBJECTS: usize = 1_050;
    const WRITERS: usize = 8;
    let name = |number: usize| format!("many/{number:06}");
    let write = |writer: usize| -> Box<dyn FnOnce() + Send> {
        let numbers = (writer..OBJECTS).step_by(WRITERS);
        Box::new(move || numbers.for_each(|number| case.put(&name(number), b"")))
    };
    side_by_side((0..WRITERS).map(write).collect());
    let expected: Vec<String> = (0..OBJECTS).map(name).collect();
    let found = case.list("many/");
    case.assert(found == expected, &format!("{OBJECTS} must be listed, got {}", found.len()));
    let delete = |writer: usize| -> Box<dyn FnOnce() + Send> {
        let numbers = (writer..OBJECTS).step_by(WRITERS);
        Box::new(move || numbers.for_each(|number| case.delete(&name(number))))
    };
    side_by_side((0..WRITERS).map(delete).collect());
    case.assert(case.list("").is_empty(), "nothing must be listed after all were deleted");
}
