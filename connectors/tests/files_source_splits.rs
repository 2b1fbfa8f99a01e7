//! The same records whatever the splits, the size of batches and the place of a restart.
#![expect(clippy::unwrap_used, reason = "a failure fails the test")]

mod common;

use std::io::Write;

use common::{read, write};
use isochrone_connectors::conformance::check_source;
use isochrone_connectors::files::Files;
use isochrone_connectors::generator::Generator;
use isochrone_connectors::scripted::{Script, Step};
use isochrone_engine::connector::{Batch, Poll, Source, Split};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Row {
    text: String,
    number: i64,
    maybe: Option<u8>,
}

fn row() -> impl Strategy<Value = Row> {
    let text = prop::collection::vec(prop::sample::select(TEXTS), 0..8).prop_map(|it| it.concat());
    (text, any::<i64>(), any::<Option<u8>>()).prop_map(|(text, number, maybe)| Row {
        text,
        number,
        maybe,
    })
}

const TEXTS: &[&str] = &["a", "ü", ",", "\"", "\n", "\r\n", "long enough to cross an edge", " "];

/// A writer of its own, quoting as it likes.
fn csv_of(rows: &[Row], line_end: &str, quote_all: bool, last_line_end: bool) -> String {
    let mut csv = format!("number,extra,text,maybe{line_end}");
    for row in rows {
        let plain = !quote_all && !row.text.contains(['"', ',', '\n', '\r']);
        let text =
            if plain { row.text.clone() } else { format!("\"{}\"", row.text.replace('"', "\"\"")) };
        let maybe = row.maybe.map(|maybe| maybe.to_string()).unwrap_or_default();
        csv.push_str(&format!("{},x,{text},{maybe}{line_end}", row.number));
    }
    if !last_line_end {
        csv.truncate(csv.len() - line_end.len());
    }
    csv
}

/// The obvious way: the whole text, byte after byte.
fn naive_rows(csv: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut field, mut quoted) = (vec![], vec![], String::new(), false);
    let mut chars = csv.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '"' if quoted && chars.peek() == Some(&'"') => field.extend(chars.next()),
            '"' if quoted => quoted = false,
            '"' if field.is_empty() => quoted = true,
            ',' if !quoted => row.push(std::mem::take(&mut field)),
            '\r' if !quoted && chars.peek() == Some(&'\n') => {}
            '\n' if !quoted => {
                row.push(std::mem::take(&mut field));
                rows.push(std::mem::take(&mut row));
            }
            other => field.push(other),
        }
    }
    if !row.is_empty() || !field.is_empty() {
        row.push(field);
        rows.push(row);
    }
    rows
}

fn naive_csv(csv: &str) -> Vec<Row> {
    let rows = naive_rows(csv);
    let column = |name: &str| rows[0].iter().position(|other| other == name).unwrap();
    let (number, text, maybe) = (column("number"), column("text"), column("maybe"));
    let rows = rows.iter().skip(1).map(|row| Row {
        text: row[text].clone(),
        number: row[number].parse().unwrap(),
        maybe: row[maybe].parse().ok(),
    });
    rows.collect()
}

/// Reads by splits, stopping and starting again after every so many polls.
fn read_with_stops<S: Source>(source: &S, max: usize, stop_after: usize) -> Vec<S::Item> {
    let mut items = Vec::new();
    for split in source.discover(&[]).unwrap().new {
        let mut position = split.position;
        'split: loop {
            let split = Split { id: split.id.clone(), position };
            let mut reader = source.open(split).unwrap();
            for _ in 0..stop_after {
                let mut batch = Batch::default();
                let poll = reader.poll(&mut batch, max).unwrap();
                assert_eq!(batch.malformed, []);
                items.extend(batch.items);
                if poll == Poll::Finished {
                    break 'split;
                }
            }
            let stored = serde_json::to_string(&reader.position()).unwrap();
            position = serde_json::from_str(&stored).unwrap();
        }
    }
    items
}

proptest! {
    #[test]
    fn csv_reads_alike_however_it_is_cut(
        rows in prop::collection::vec(row(), 1..30),
        crlf in any::<bool>(),
        quote_all in any::<bool>(),
        last_line_end in any::<bool>(),
        split_bytes in 1u64..400,
        max in 1usize..10,
        stop_after in 1usize..4,
    ) {
        let csv = csv_of(&rows, if crlf { "\r\n" } else { "\n" }, quote_all, last_line_end);
        prop_assert_eq!(&naive_csv(&csv), &rows);
        let folder = tempfile::tempdir().unwrap();
        let path = write(folder.path(), "a.csv", csv);
        let source = Files::at(path).split_bytes(split_bytes).csv::<Row>();
        prop_assert_eq!(read_with_stops(&source, max, stop_after), rows);
    }

    #[test]
    fn json_reads_alike_however_it_is_cut(
        rows in prop::collection::vec(row(), 0..30),
        split_bytes in 1u64..400,
        max in 1usize..10,
        stop_after in 1usize..4,
    ) {
        let lines: Vec<String> = rows.iter().map(|row| serde_json::to_string(row).unwrap()).collect();
        let folder = tempfile::tempdir().unwrap();
        let path = write(folder.path(), "a.jsonl", lines.join("\n"));
        let source = Files::at(path).split_bytes(split_bytes).json::<Row>();
        prop_assert_eq!(read_with_stops(&source, max, stop_after), rows);
    }

    /// Any bytes at all: what is read, well or malformed, does not depend on the splits.
    #[test]
    fn garbage_reads_alike_however_it_is_cut(
        bytes in prop::collection::vec(prop::sample::select(&b"a1,\"\n\r\xff"[..]), 0..200),
        split_bytes in 1u64..50,
        bytes_max in 5usize..60,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = write(folder.path(), "a.csv", [b"text,number\n".as_slice(), &bytes].concat());
        let files = Files::at(path).record_bytes_max(bytes_max.max(12));
        let whole = read(&files.clone().csv::<(String, i64)>()).unwrap();
        let cut = read(&files.split_bytes(split_bytes).csv::<(String, i64)>()).unwrap();
        prop_assert_eq!(whole, cut);
    }
}

#[test]
fn large_files_are_cut_at_record_boundaries_and_the_cut_has_stable_names() {
    let folder = tempfile::tempdir().unwrap();
    let csv = format!("text,number,maybe\n{}", "\"a\nb\",1,\n".repeat(100));
    let path = write(folder.path(), "a.csv", &csv);
    let source = Files::at(&path).split_bytes(250).csv::<Row>();
    let splits = source.discover(&[]).unwrap().new;
    let starts: Vec<u64> = splits.iter().map(|split| split.position.offset).collect();
    assert_eq!(starts, [0, 252, 504, 756]);
    assert_eq!(splits[1].id, format!("{}[252..504]", path.display()));
    assert_eq!(splits[3].id, format!("{}[756..]", path.display()));
    assert_eq!(splits[1].position.line, Some(2 + 2 * 26));
    let rows = vec![Row { text: "a\nb".to_owned(), number: 1, maybe: None }; 100];
    check_source(|| Files::at(&path).split_bytes(250).csv::<Row>(), &rows);
}

#[test]
fn a_record_that_starts_where_a_cut_is_wanted_starts_the_split() {
    let folder = tempfile::tempdir().unwrap();
    for (name, header) in [("a.txt", ""), ("a.csv", "a\n")] {
        let path = write(folder.path(), name, format!("{header}{}", "123456789\n".repeat(9)));
        let bytes = 30 + header.len() as u64;
        let files = Files::at(path).split_bytes(bytes);
        let start = if header.is_empty() {
            files.text().discover(&[]).unwrap().new[1].position.offset
        } else {
            files.csv::<(u64,)>().discover(&[]).unwrap().new[1].position.offset
        };
        assert_eq!(start, bytes);
    }
}

#[test]
fn files_keep_the_contract_of_sources() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "a.txt", "\u{feff}one\r\n\ntwo\n");
    write(folder.path(), "b.txt", "three\nfour");
    write(folder.path(), "c.txt", "");
    let expected = ["one", "", "two", "three", "four"].map(str::to_owned);
    let files = Files::at(folder.path());
    check_source(|| files.clone().text(), &expected);
    check_source(|| files.clone().split_bytes(3).text(), &expected);
    check_source(|| files.clone().follow(true).text(), &expected[..4]);
}

#[test]
fn malformed_pieces_keep_their_place_whatever_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "a.jsonl", "1\nx\n222222222222222222\n3\n\n[\n4");
    let source = || Files::at(&path).record_bytes_max(10).json::<u8>();
    check_source(source, &[1, 3, 4]);
    check_source(|| Files::at(&path).record_bytes_max(10).split_bytes(5).json::<u8>(), &[1, 3, 4]);
    assert_eq!(read(&source()).unwrap().malformed.len(), 3);
}

/// What was shown of a long piece depended once on where a block of the file ended.
#[test]
fn long_pieces_look_alike_whatever_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let line = |words: u32| (0..words).map(|word| format!("{word:05}")).collect::<String>();
    let lines: Vec<String> = (1000..1150).map(line).collect();
    let path = write(folder.path(), "a.txt", lines.join("\n"));
    check_source(|| Files::at(&path).record_bytes_max(100).text(), &[]);
}

#[test]
fn generated_records_keep_the_contract_of_sources() {
    let expected: Vec<u64> = (0..1_000).map(|number| number * 3).collect();
    check_source(|| Generator::counting(1_000, |number| number * 3).splits(7), &expected);
    check_source(|| Generator::counting(0, |number| number), &[]);
}

#[test]
fn scripts_keep_the_contract_of_sources() {
    let script = Script::new([Step::Item(1), Step::Pause, Step::Malformed("no".to_owned())])
        .and([Step::Item(2)]);
    check_source(|| script.clone(), &[1, 2]);
}

#[test]
fn a_line_of_100_mib_is_malformed_without_being_held() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.jsonl");
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(b"1\n").unwrap();
    for _ in 0..100 {
        file.write_all(&vec![b'7'; 1024 * 1024]).unwrap();
    }
    file.write_all(b"\n2\n").unwrap();
    let source = Files::at(&path).split_bytes(u64::MAX).json::<u64>();
    let split = source.discover(&[]).unwrap().new.remove(0);
    let mut reader = source.open(split).unwrap();
    let mut batch = Batch::default();
    let before = peak_kib();
    while reader.poll(&mut batch, 10).unwrap() == Poll::Ready {
        if batch.malformed.is_empty() {
            assert!(reader.position().offset <= 2, "the line counts as unread until its end");
        }
    }
    assert!(peak_kib() - before < 16 * 1024, "from {before} to {} KiB", peak_kib());
    assert_eq!(batch.items, [1, 2]);
    assert_eq!(batch.malformed.len(), 1);
    assert_eq!(batch.malformed[0].raw.len(), 4096);
    assert!(batch.malformed[0].place.ends_with("a.jsonl, line 2, byte 2"));
    assert!(batch.malformed[0].reason.contains("1048576 bytes"));
    let cut = Files::at(&path).split_bytes(1024 * 1024).json::<u64>();
    assert_eq!(cut.discover(&[]).unwrap().new.len(), 2);
    assert_eq!(read(&cut).unwrap().items, [1, 2]);
}

/// Most memory that this process has had so far; 0 where that cannot be asked.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or(0, |line| line.trim().trim_end_matches(" kB").parse().unwrap())
}
