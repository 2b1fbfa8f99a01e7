//! What each kind of content of a file becomes.
#![expect(clippy::unwrap_used, reason = "a failure fails the test")]

mod common;

use common::{Reading, read, write};
use isochrone_connectors::files::Files;
use isochrone_engine::ErrorKind;
use isochrone_engine::connector::Source;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Sale {
    item: String,
    cents: u16,
}

fn sale(item: &str, cents: u16) -> Sale {
    Sale { item: item.to_owned(), cents }
}

/// Reads one CSV file of sales.
fn sales(content: &str) -> Reading<Sale> {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "a.csv", content);
    read(&Files::at(path).csv::<Sale>()).unwrap()
}

fn sales_error(content: &str) -> isochrone_engine::Error {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "a.csv", content);
    read(&Files::at(path).csv::<Sale>()).unwrap_err()
}

fn lines(content: impl AsRef<[u8]>) -> Reading<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "a.txt", content);
    read(&Files::at(path).text()).unwrap()
}

fn numbers(content: impl AsRef<[u8]>) -> Reading<i32> {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "a.jsonl", content);
    read(&Files::at(path).json::<i32>()).unwrap()
}

#[test]
fn every_line_is_a_text() {
    assert_eq!(lines("a\nb b\n").items, ["a", "b b"]);
}

#[test]
fn every_line_is_a_json_value() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(
        folder.path(),
        "a.jsonl",
        "{\"item\":\"tea\",\"cents\":250}\n{\"cents\":3,\"item\":\"\"}\n",
    );
    let reading = read(&Files::at(path).json::<Sale>()).unwrap();
    assert_eq!(reading.items, [sale("tea", 250), sale("", 3)]);
}

#[test]
fn every_row_below_the_header_is_a_struct() {
    assert_eq!(sales("item,cents\ntea,250\nrye,3\n").items, [sale("tea", 250), sale("rye", 3)]);
}

#[test]
fn an_empty_file_has_no_records() {
    assert_eq!(lines("").items.len(), 0);
    assert_eq!(numbers("").items.len(), 0);
    assert_eq!(sales("").items.len(), 0);
    assert_eq!(sales("item,cents\n").items.len(), 0);
    assert_eq!(sales("item,cents").items.len(), 0);
}

#[test]
fn an_empty_line_is_a_text_but_no_row_and_no_json() {
    assert_eq!(lines("a\n\nb\n").items, ["a", "", "b"]);
    assert_eq!(numbers("1\n\n  \n2\n").items, [1, 2]);
    assert_eq!(sales("\n\nitem,cents\n\ntea,1\n\n").items, [sale("tea", 1)]);
}

#[test]
fn the_last_record_needs_no_line_feed() {
    assert_eq!(lines("a\nb").items, ["a", "b"]);
    assert_eq!(numbers("1\n2").items, [1, 2]);
    assert_eq!(sales("item,cents\ntea,1\nrye,2").items, [sale("tea", 1), sale("rye", 2)]);
}

#[test]
fn carriage_returns_belong_to_line_ends() {
    assert_eq!(lines("a\r\n\r\nb\r\n").items, ["a", "", "b"]);
    assert_eq!(numbers("1\r\n\r\n2\r\n").items, [1, 2]);
    let reading = sales("item,cents\r\n\"tea\",1\r\n\r\nrye,2\r\n");
    assert_eq!(reading.items, [sale("tea", 1), sale("rye", 2)]);
}

#[test]
fn a_byte_order_mark_is_passed_over() {
    assert_eq!(lines("\u{feff}a\n").items, ["a"]);
    assert_eq!(lines("\u{feff}").items.len(), 0);
    assert_eq!(numbers("\u{feff}1\n").items, [1]);
    assert_eq!(sales("\u{feff}\"item\",cents\ntea,1\n").items, [sale("tea", 1)]);
}

#[test]
fn quotes_hide_commas_line_breaks_and_quotes() {
    let reading = sales("item,cents\n\"a,b\nc \"\"d\"\"\",1\n\"\",2\nx\"y\",3\n");
    assert_eq!(reading.items, [sale("a,b\nc \"d\"", 1), sale("", 2), sale("x\"y\"", 3)]);
}

#[test]
fn columns_are_found_by_name_whatever_their_order() {
    let reading = sales("shop,cents,note,item\nJena,1,,tea\nUlm,2,n,rye\n");
    assert_eq!(reading.items, [sale("tea", 1), sale("rye", 2)]);
}

#[test]
fn a_missing_column_is_reported_before_anything_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "a.csv", "item,price\n");
    let source = Files::at(path).csv::<Sale>();
    let split = source.discover(&[]).unwrap().new.remove(0);
    let error = source.open(split).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(
        error.to_string().ends_with("a.csv`: no column `cents`; found `item`, `price`"),
        "{error}"
    );
}

#[test]
fn a_column_that_is_there_twice_is_refused() {
    let error = sales_error("item,cents,item\n");
    assert!(error.to_string().contains("column `item` is there twice"), "{error}");
}

#[test]
fn each_file_has_its_own_header() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "a.csv", "item,cents\ntea,1\n");
    write(folder.path(), "b.csv", "cents,item\n2,rye\n");
    let reading = read(&Files::at(folder.path()).csv::<Sale>()).unwrap();
    assert_eq!(reading.items, [sale("tea", 1), sale("rye", 2)]);
}

#[test]
fn a_number_out_of_range_names_column_value_and_place() {
    let reading = sales("item,cents\ntea,1\n\"r\nye\",65536\noat,-1\nold,x\ntea,2\n");
    assert_eq!(reading.items, [sale("tea", 1), sale("tea", 2)]);
    let reasons: Vec<&str> = reading.malformed.iter().map(|piece| piece.reason.as_str()).collect();
    assert_eq!(
        reasons,
        [
            "column `cents`: `65536` does not fit into u16 (0 to 65535)",
            "column `cents`: `-1` does not fit into u16 (0 to 65535)",
            "column `cents`: `x` is no whole number (u16)",
        ]
    );
    assert!(reading.malformed[0].place.ends_with("a.csv, line 3, byte 17"), "{reading:?}");
    assert!(reading.malformed[1].place.ends_with("a.csv, line 5, byte 30"), "{reading:?}");
    assert_eq!(reading.malformed[1].raw, b"oat,-1");
}

#[test]
fn a_row_with_another_number_of_fields_is_malformed() {
    let reading = sales("item,cents\ntea\ntea,1,2\n\"open,1\n");
    assert_eq!(reading.items.len(), 0);
    let reasons: Vec<&str> = reading.malformed.iter().map(|piece| piece.reason.as_str()).collect();
    assert_eq!(
        reasons,
        [
            "1 fields, but the header has 2",
            "3 fields, but the header has 2",
            "a quoted field without its closing quote",
        ]
    );
}

#[test]
fn what_is_not_utf_8_is_malformed() {
    let reading = lines(b"a\nb\xff\nc\n");
    assert_eq!(reading.items, ["a", "c"]);
    assert_eq!(reading.malformed[0].raw, b"b\xff");
    assert!(reading.malformed[0].place.ends_with("a.txt, line 2, byte 2"), "{reading:?}");

    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "a.csv", b"item,cents\n\xff,1\ntea,2\n");
    let reading = read(&Files::at(path).csv::<Sale>()).unwrap();
    assert_eq!(reading.items, [sale("tea", 2)]);
    assert_eq!(reading.malformed[0].reason, "column `item`: `\u{fffd}` is not UTF-8");
    assert_eq!(reading.malformed[0].raw, b"\xff,1");
}

#[test]
fn json_that_is_not_what_is_wanted_says_where() {
    let reading = numbers("1\n2147483648\n{]\n3\n");
    assert_eq!(reading.items, [1, 3]);
    assert_eq!(reading.malformed.len(), 2);
    let reason = &reading.malformed[0].reason;
    assert!(reason.contains("2147483648") && reason.ends_with("at column 10"), "{reason}");
    assert!(!reason.contains("line"), "{reason}");
}

/// A quote that is not closed swallows the rows behind it; the message led to the first of them only.
#[test]
fn a_quote_that_is_not_closed_is_named_with_its_line() {
    let reading = sales("item,cents\ntea,1\n\"a\nb\",2\n\"x\ny\",\"3\nmilk,4\nbread,5\n");
    assert_eq!(reading.items, [sale("tea", 1), sale("a\nb", 2)]);
    let [malformed] = &reading.malformed[..] else { panic!("{reading:?}") };
    assert!(malformed.place.contains("line 5"), "{malformed:?}");
    let reason = "a quoted field without its closing quote; it begins in line 6";
    assert_eq!(malformed.reason, reason);

    // Behind the longest record, whether the quote is closed by another one far below or not.
    let rows = "milk,4\n".repeat(100);
    for end in ["", "x\",1\nlast,7\n"] {
        let folder = tempfile::tempdir().unwrap();
        let content = format!("item,cents\ntea,1\nab,\"2\n{rows}{end}");
        let path = write(folder.path(), "a.csv", content);
        for split_bytes in [16, 1 << 20] {
            let files = Files::at(&path).record_bytes_max(100).split_bytes(split_bytes);
            let reading = read(&files.csv::<Sale>()).unwrap();
            let [malformed, ..] = &reading.malformed[..] else { panic!("{reading:?}") };
            let reason = "longer than 100 bytes, the most that a record may have here; its quoted \
                          field that begins in line 3 may lack the closing quote";
            assert_eq!(malformed.reason, reason, "{end}");
        }
    }
    // A long record without quotes is only long.
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "a.txt", "x".repeat(200));
    let long = read(&Files::at(path).record_bytes_max(100).text()).unwrap();
    assert_eq!(
        long.malformed[0].reason,
        "longer than 100 bytes, the most that a record may have here"
    );
}

#[test]
fn positions_are_shown_as_people_read_them_and_a_missing_input_is_said_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "a.csv", "item,cents\ntea,1\n");
    let source = Files::at(&path).csv::<Sale>();
    let split = source.discover(&[]).unwrap().new.remove(0);
    assert_eq!(source.show(&split.position), "byte 0, line 1");
    let end = common::read_split(&source, split, &mut Default::default()).unwrap();
    assert_eq!(source.show(&end), "byte 17, line 3");

    let error = Files::at("none.csv").csv::<Sale>().discover(&[]).unwrap_err();
    let path = std::env::current_dir().unwrap().join("none.csv");
    let path = path.display();
    let text = format!("input `{path}` does not exist; name an existing file or directory");
    assert_eq!(error.report(), text);
}
