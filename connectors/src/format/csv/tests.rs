use std::collections::BTreeMap;

use isochrone_engine::record::Record;
use serde::{Deserialize, Serialize};

use super::Csv;
use crate::format::{Decoder, Format};

/// What one row below a header becomes.
fn row<T: Record>(header: &str, row: &str) -> Result<T, String> {
    let mut decoder =
        Csv::<T>::default().decoder(Some(header)).map_err(|error| error.to_string())?;
    decoder.decode(row.as_bytes()).map(|item| item.expect("the row is not empty"))
}

fn refused<T: Record>(header: &str) -> String {
    Csv::<T>::default().decoder(Some(header)).err().map_or(String::new(), |error| error.to_string())
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Side {
    Buy,
    #[serde(rename = "sell!")]
    Sell,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Account(u32);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    account: Account,
    side: Side,
    price: f64,
    open: bool,
    note: Option<String>,
    limit: Option<i8>,
    flag: char,
}

const ORDER: &str = "account,side,price,open,note,limit,flag";

#[test]
fn fields_of_all_kinds_are_read() {
    let order = Order {
        account: Account(7),
        side: Side::Sell,
        price: -0.5,
        open: true,
        note: None,
        limit: Some(-128),
        flag: 'ü',
    };
    assert_eq!(row(ORDER, "7,sell!,-0.5,true,,-128,ü"), Ok(order));
}

#[test]
fn what_does_not_fit_names_column_and_value() {
    for (bad, reason) in [
        ("-7,Buy,1,true,,,x", "column `account`: `-7` does not fit into u32 (0 to 4294967295)"),
        ("7,Hold,1,true,,,x", "column `side`: unknown variant `Hold`"),
        ("7,Buy,cheap,true,,,x", "column `price`: `cheap` is no number"),
        ("7,Buy,1,yes,,,x", "column `open`: `yes` is neither `true` nor `false`"),
        ("7,Buy,1,true,,-129,x", "column `limit`: `-129` does not fit into i8 (-128 to 127)"),
        ("7,Buy,1,true,, 1,x", "column `limit`: ` 1` is no whole number (i8)"),
        ("7,Buy,1,true,,,xy", "column `flag`: "),
        (",Buy,1,true,,,x", "column `account`: `` is no whole number (u32)"),
    ] {
        let found = row::<Order>(ORDER, bad).expect_err(bad);
        assert!(found.starts_with(reason), "{bad}: {found}");
    }
}

#[test]
fn integers_of_every_width_have_their_bounds() {
    assert_eq!(row("a,b", "-9223372036854775808,+7"), Ok((i64::MIN, 7i64)));
    assert_eq!(row("a,b", "18446744073709551615,0"), Ok((u64::MAX, 0u64)));
    let most = format!("{},{}", u128::MAX, u128::MIN);
    assert_eq!(row("a,b", &most), Ok((u128::MAX, u128::MIN)));
    for bad in ["9223372036854775808,1", "999999999999999999999999999,1", "-,1", "1.0,1", "0x1,1"] {
        assert!(row::<(i64, i64)>("a,b", bad).is_err(), "{bad}");
    }
    for bad in ["18446744073709551616,1", "-1,1", "-99999999999999999999,1"] {
        let reason = row::<(u64, u64)>("a,b", bad).expect_err(bad);
        assert!(reason.contains("does not fit into u64"), "{reason}");
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Lenient {
    first: u8,
    #[serde(default)]
    second: u8,
    third: Option<u8>,
    #[serde(skip)]
    never: u8,
    last: u8,
}

#[test]
fn columns_of_options_and_defaults_may_be_missing() {
    let lenient = |second, third| Lenient { first: 1, second, third, never: 0, last: 4 };
    assert_eq!(row("last,third,second,first", "4,3,2,1"), Ok(lenient(2, Some(3))));
    assert_eq!(row("first,last", "1,4"), Ok(lenient(0, None)));
    assert_eq!(row("third,last,first", "3,4,1"), Ok(lenient(0, Some(3))));
    assert_eq!(refused::<Lenient>("first,second"), "no column `last`; found `first`, `second`");
    assert_eq!(refused::<Lenient>("last"), "no column `first`; found `last`");
}

/// A date: no sample value passes, so that only a row can tell what is missing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct Day(u8);

impl TryFrom<String> for Day {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let day = text.strip_prefix("day ").ok_or("no day")?;
        day.parse().map(Day).map_err(|_| "no day".to_owned())
    }
}

impl From<Day> for String {
    fn from(day: Day) -> String {
        format!("day {}", day.0)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Dated {
    day: Day,
    note: Option<u8>,
    count: u8,
}

#[test]
fn types_that_check_their_text_are_read() {
    assert_eq!(row("count,day", "3,day 2"), Ok(Dated { day: Day(2), note: None, count: 3 }));
    assert_eq!(row::<Dated>("count,day", "3,x"), Err("column `day`: no day".to_owned()));
    assert_eq!(row::<Dated>("day", "day 2"), Err("no column `count`".to_owned()));
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Aliased {
    #[serde(alias = "zip", alias = "Postcode")]
    code: u32,
    #[serde(rename = "City")]
    city: String,
}

#[test]
fn aliases_and_renames_name_columns_too() {
    let jena = || Ok(Aliased { code: 7743, city: "Jena".to_owned() });
    assert_eq!(row("City,x,code", "Jena,,7743"), jena());
    assert_eq!(row("Postcode,City", "7743,Jena"), jena());
    assert_eq!(row("zip,City", "7743,Jena"), jena());
    assert_eq!(row::<Aliased>("City,x", "Jena,1"), Err("no column `code`".to_owned()));
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Strict {
    a: u8,
    b: u8,
}

#[test]
fn other_columns_are_passed_over() {
    assert_eq!(row("x,b,y,a,z", "p,2,q,1,r"), Ok(Strict { a: 1, b: 2 }));
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Wrapper(Strict);

#[test]
fn newtypes_around_a_row_are_seen_through() {
    assert_eq!(row("b,a", "2,1"), Ok(Wrapper(Strict { a: 1, b: 2 })));
}

#[test]
fn tuples_take_the_first_columns_and_maps_all() {
    assert_eq!(row("a,b,c", "1,x,2"), Ok((1u8, "x".to_owned())));
    assert_eq!(row("a,b", "1,x"), Ok(vec!["1".to_owned(), "x".to_owned()]));
    let map = BTreeMap::from([("a".to_owned(), 1u8), ("b".to_owned(), 2)]);
    assert_eq!(row("b,a", "2,1"), Ok(map));
    assert_eq!(refused::<(u8, u8)>("a"), "2 columns are needed, found `a`");
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Outer {
    id: String,
    #[serde(flatten)]
    inner: Inner,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Inner {
    count: i32,
    share: f64,
}

#[test]
fn flattened_structs_are_read() {
    let inner = Inner { count: -1, share: 0.5 };
    assert_eq!(row("share,id,count", "0.5,007,-1"), Ok(Outer { id: "007".to_owned(), inner }));
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Nested {
    inner: Inner,
}

#[test]
fn what_a_row_cannot_be_is_refused() {
    assert_eq!(refused::<u8>("a"), "a csv row makes a struct, a tuple or a map only");
    let reason = row::<Nested>("inner", "1");
    assert_eq!(reason, Err("column `inner`: a struct does not fit into one column".to_owned()));
}

#[test]
fn quoted_rows_of_any_length_are_unquoted() {
    let long = "\"\"".repeat(10_000);
    let mut decoder = Csv::<(String, u8)>::default().decoder(Some("\"a,\",b")).expect("fits");
    let pair = |text: &str, number| Ok(Some((text.to_owned(), number)));
    assert_eq!(decoder.decode(format!("\"{long}\",1").as_bytes()), pair(&"\"".repeat(10_000), 1));
    assert_eq!(decoder.decode(b"\"x,\",2"), pair("x,", 2));
    assert_eq!(decoder.decode(b"y,3"), pair("y", 3));
    assert_eq!(decoder.decode(b"\"\",\"4\""), pair("", 4));
    assert_eq!(decoder.decode(b"\"x\"y,5"), pair("xy", 5));
    assert!(decoder.decode(b"\"x,6").is_err());
    assert_eq!(decoder.decode(b"z,7"), pair("z", 7));
}
