//! Names are ascending like their numbers, come back as they went in, and nothing else does.

use proptest::prelude::*;

use super::*;

fn job() -> JobName {
    JobName::new("risk-1").unwrap()
}

#[test]
fn names_ascend_with_their_numbers() {
    let numbers = [0, 1, 9, 10, 99, 1 << 40, u64::MAX];
    for pair in numbers.windows(2) {
        assert!(manifest(&job(), Sequence(pair[0])) < manifest(&job(), Sequence(pair[1])));
        assert!(boundary(&job(), Sequence(pair[0])) < boundary(&job(), Sequence(pair[1])));
    }
}

#[test]
fn foreign_names_are_no_objects() {
    for name in [
        "",
        "risk",
        "risk/m/7.json",
        "risk/m/00000000000000000007.json~",
        "risk/m/+0000000000000000007.json",
        "risk/m/99999999999999999999.json",
        "risk/b/00000000000000000007.json",
        "risk/x/00000000000000000007",
        "RISK/latest.json",
        "risk/d/00000000000000000007/a-0-1-xyz.seg",
        "risk/d/00000000000000000007/a-00-1-0123456789abcdef.seg",
        "risk/d/00000000000000000007/-0-1-0123456789abcdef.seg",
        "risk/d/00000000000000000007/a-0-1-0123456789ABCDEF.seg",
    ] {
        assert_eq!(parse(name), None, "{name}");
    }
}

#[test]
fn fresh_data_names_differ() {
    let operator = OperatorId::new("count").unwrap();
    let name = || {
        DataName::fresh(Epoch(1), &operator, Worker(0), Generation(1), DataKind::Segment).unwrap()
    };
    assert_ne!(name(), name());
}

proptest! {
    #[test]
    fn every_name_comes_back(
        job in "[a-z0-9_-]{1,64}",
        operator in "[a-z0-9_-]{1,64}",
        (number, generation, worker) in any::<(u64, u64, u32)>(),
        random in "[0-9a-f]{16}",
        is_output in any::<bool>(),
    ) {
        let job = JobName::new(&job).unwrap();
        let data = DataName {
            epoch: Epoch(number),
            operator: OperatorId::new(&operator).unwrap(),
            worker: Worker(worker),
            generation: Generation(generation),
            random,
            kind: if is_output { DataKind::Output } else { DataKind::Segment },
        };
        let objects = [
            Object::Manifest(Sequence(number)),
            Object::Boundary(Sequence(number)),
            Object::Latest,
            Object::Data(data),
        ];
        for object in objects {
            prop_assert_eq!(parse(&format_object(&job, &object)), Some((job.clone(), object)));
        }
    }

    #[test]
    fn no_text_panics(name in any::<String>()) {
        parse(&name);
    }
}
