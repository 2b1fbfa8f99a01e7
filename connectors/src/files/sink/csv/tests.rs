use serde::Serialize;

use super::*;

fn part<T: Serialize>(items: &[T]) -> Result<String> {
    let (mut csv, mut out) = (Csv::default(), Vec::new());
    csv.begin(&items[0], &mut out)?;
    assert_eq!(csv.encode(items, &mut out)?, items.len());
    Ok(String::from_utf8(out).unwrap())
}

#[derive(Serialize)]
enum Side {
    Buy,
    #[serde(rename = "sold, short")]
    Short,
}

#[derive(Serialize)]
struct Cents(i64);

#[derive(Serialize)]
struct Trade {
    side: Side,
    cents: Cents,
    #[serde(rename = "price \"per\" unit")]
    price: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<char>,
    #[serde(skip)]
    _hidden: (),
    firm: bool,
}

#[test]
fn scalars_of_all_kinds_fit_and_skipped_fields_keep_their_column() {
    let trade =
        |side, price, note| Trade { side, cents: Cents(-5), price, note, _hidden: (), firm: true };
    let trades = [trade(Side::Buy, 0.1, None), trade(Side::Short, f64::INFINITY, Some('"'))];
    assert_eq!(
        part(&trades).unwrap(),
        "side,cents,\"price \"\"per\"\" unit\",note,firm\n\
         Buy,-5,0.1,,true\n\
         \"sold, short\",-5,inf,\"\"\"\",true\n"
    );
}

#[test]
fn a_lone_empty_field_is_not_an_empty_line() {
    #[derive(Serialize)]
    struct Name(#[serde(skip)] (), &'static str);
    #[derive(Serialize)]
    struct One {
        name: &'static str,
    }
    assert_eq!(part(&[One { name: "" }, One { name: "b" }]).unwrap(), "name\n\"\"\nb\n");
    part(&[Name((), "no name for a column")]).unwrap_err();
}

#[test]
fn a_record_with_other_fields_than_the_header_is_refused() {
    struct Varying(usize);
    impl Serialize for Varying {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut record = serializer.serialize_struct("Varying", self.0)?;
            for name in &["a", "b", "c"][..self.0] {
                record.serialize_field(name, &1)?;
            }
            record.end()
        }
    }
    let error = part(&[Varying(2), Varying(2), Varying(3)]).unwrap_err();
    assert!(error.to_string().contains("has 3 fields where the header"), "{error}");
}

#[test]
fn what_is_not_a_plain_struct_is_refused() {
    #[derive(Serialize)]
    struct Sequence {
        items: Vec<u8>,
    }
    let refused = |error: Error| error.report();
    let report = refused(part(&[Sequence { items: vec![1] }]).unwrap_err());
    assert!(report.contains("a sequence does not fit in one field"), "{report}");
    let report = refused(part(&[5]).unwrap_err());
    assert!(report.contains("a bare number has no named fields"), "{report}");
    let report = refused(part(&["text"]).unwrap_err());
    assert!(report.contains("bare text has no named fields"), "{report}");
}
