#![expect(dead_code, reason = "the types are only looked at")]

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;

use isochrone_persistence::ids::OperatorId;
use serde::Deserialize;

use super::Shape;

macro_rules! fields {
    ($($fields:tt)*) => {{
        #[derive(Deserialize)]
        struct X { $($fields)* }
        Shape::of::<X>().text
    }};
}

macro_rules! variants {
    ($($variants:tt)*) => {{
        #[derive(Deserialize)]
        enum X { $($variants)* }
        Shape::of::<X>().text
    }};
}

fn assert_all_differ(shapes: &[String]) {
    for (place, one) in shapes.iter().enumerate() {
        assert!(shapes[..place].iter().all(|other| other != one), "{one} twice");
    }
}

#[test]
fn any_change_of_fields_changes_the_shape() {
    let first = fields!(a: u64, b: i64);
    assert_eq!(first, "{a:u64,b:i64}");
    assert_all_differ(&[
        first,
        fields!(a: u64),
        fields!(a: u64, b: i64, c: i64),
        fields!(b: i64, a: u64),
        fields!(a: u64, b: u64),
        fields!(a: u64, renamed: i64),
        fields!(a: u64, b: Option<i64>),
        fields!(a: u64, b: Vec<i64>),
        fields!(a: u64, b: (i64, i64)),
        fields!(a: u64, b: BTreeMap<u8, i64>),
        fields!(a: u64, b: BTreeMap<u16, i64>),
        fields!(a: u64, b: String),
    ]);
}

#[test]
fn any_change_of_variants_changes_the_shape() {
    let first = variants!(A, B(u64), C { x: u8, y: u8 });
    assert_eq!(first, "<A:unit,B:u64,C:{x:u8,y:u8}>");
    assert_all_differ(&[
        first,
        variants!(B(u64), A, C { x: u8, y: u8 }),
        variants!(A, B(u64)),
        variants!(A, B(u32), C { x: u8, y: u8 }),
        variants!(A, B(u64, u64), C { x: u8, y: u8 }),
        variants!(A, B(u64), C { x: u8, y: u16 }),
        variants!(A, B(u64), D { x: u8, y: u8 }),
    ]);
}

#[test]
fn names_of_types_and_transparent_wrappers_do_not_matter() {
    #[derive(Deserialize)]
    struct One {
        a: u64,
    }
    #[derive(Deserialize)]
    struct Cents(u64);
    #[derive(Deserialize)]
    struct Other {
        a: Cents,
    }
    assert_eq!(Shape::of::<One>(), Shape::of::<Other>());
    assert_eq!(Shape::of::<HashMap<u8, One>>(), Shape::of::<BTreeMap<u8, Other>>());
}

#[test]
fn every_variant_is_seen_deep_inside() {
    #[derive(Deserialize)]
    enum Inner {
        A(u8),
        B { text: String },
    }
    #[derive(Deserialize)]
    enum Outer {
        Many(Vec<Inner>, [Option<Inner>; 2]),
        Unit,
        Keyed(BTreeMap<u8, Inner>),
    }
    let inner = "<A:u8,B:{text:str}>";
    let outer = format!("<Many:([{inner}],({inner}?,{inner}?)),Unit:unit,Keyed:map(u8,{inner})>");
    assert_eq!(Shape::of::<Outer>().text, outer);
}

#[test]
fn recursive_types_end_and_what_follows_the_recursion_is_seen() {
    #[derive(Deserialize)]
    struct Node {
        next: Option<Box<Node>>,
        value: u16,
    }
    assert_eq!(Shape::of::<Node>().text, "{next:{next:^0?,value:u16}?,value:u16}");

    #[derive(Deserialize)]
    enum Term {
        Sum(Box<Term>, Box<Term>),
        Number(i32),
    }
    let level = "<Sum:(^0,?),Number:i32>";
    assert_eq!(Shape::of::<Term>().text, format!("<Sum:({level},{level}),Number:i32>"));
}

#[test]
fn types_that_refuse_some_dummies_are_seen_and_those_that_refuse_all_count_as_their_request() {
    #[derive(Deserialize)]
    struct Picky {
        number: NonZeroU32,
        name: OperatorId,
        last: u8,
    }
    assert_eq!(Shape::of::<Picky>().text, "{number:u32,name:str,last:u8}");

    #[derive(Deserialize)]
    struct Never {
        address: Option<Address>,
        last: u8,
    }
    #[derive(Deserialize)]
    #[serde(try_from = "String")]
    struct Address(String);
    impl TryFrom<String> for Address {
        type Error = &'static str;
        fn try_from(_: String) -> Result<Self, Self::Error> {
            Err("no dummy is an address")
        }
    }
    assert_eq!(Shape::of::<Never>().text, "{address:str?,last:u8}");
}

#[test]
fn digest_stands_for_the_text_and_does_not_change() {
    let shape = Shape::of::<(u64, i64)>();
    assert_eq!(shape.text, "(u64,i64)");
    assert_eq!(shape.digest, blake3::hash(b"(u64,i64)").to_hex()[..16]);
}
