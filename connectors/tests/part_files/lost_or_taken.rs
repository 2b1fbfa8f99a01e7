//! A part that is not there: taken by a reader, or lost before it was ever published.

use super::*;

/// A run that has written one part and goes no further than preparing it.
fn prepared(folder: &Path) -> (PartCommitter, PartWriter<String>, PreparedPart) {
    let sink = text(folder);
    let committer = recovered(&sink, 1, Vec::new());
    let mut writer = sink.writer(&context(1, 0)).unwrap();
    write(&mut writer, 1, &["mine"]);
    let part = prepare(&mut writer, 1);
    (committer, writer, part)
}

fn restart(folder: &Path, generation: u64, pending: &PreparedPart) -> Result<Vec<String>, Error> {
    let mut committer = text(folder).committer(&context(generation, 0)).unwrap();
    let pending = vec![pending.clone()];
    committer.recover(Recovery {
        pending,
        from: Some(Epoch(1_000)),
        renamed_from: None,
        is_new: false,
        history: None,
    })
}

fn proofs(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".done")).collect();
    names.sort();
    names
}

fn proof(epoch: u64, generation: u64) -> String {
    format!(".part-{epoch:010}-0000.txt.job.out.{generation}.done")
}

#[test]
fn a_part_that_is_cut_short_never_becomes_visible() {
    let folder = TempDir::new().unwrap();
    let (mut committer, _, part) = prepared(folder.path());
    fs::write(folder.path().join(&part.open), "mi").unwrap();
    let short = committer.commit(std::slice::from_ref(&part)).unwrap_err();
    assert_eq!(short.kind(), ErrorKind::Corrupt);
    assert!(lines(folder.path(), "*.txt").is_empty());
}

/// The next run took a part that somebody had removed before its commit for one that a reader had
/// taken, and went on with a gap.
#[test]
fn a_part_that_was_never_published_is_missed_at_every_restart_until_somebody_decides() {
    let folder = TempDir::new().unwrap();
    let (mut committer, _, part) = prepared(folder.path());
    let open = folder.path().join(&part.open);
    let content = fs::read(&open).unwrap();
    fs::remove_file(&open).unwrap();
    let lost = committer.commit(std::slice::from_ref(&part)).unwrap_err();
    let proof = folder.path().join(proof(1, 1));
    for error in [lost, restart(folder.path(), 2, &part).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        let finished = folder.path().join(&part.finished);
        for name in [&finished, &open, &proof] {
            assert!(error.to_string().contains(name.to_str().unwrap()), "{error}");
        }
    }
    assert_eq!(restart(folder.path(), 3, &part).unwrap_err().kind(), ErrorKind::Corrupt);

    // One decision: it is put back.
    fs::write(&open, &content).unwrap();
    assert!(restart(folder.path(), 4, &part).unwrap().is_empty());
    assert_eq!(lines(folder.path(), "*.txt"), ["mine"]);

    // The other: a reader has it.
    fs::remove_file(folder.path().join(&part.finished)).unwrap();
    fs::remove_file(&proof).unwrap();
    assert_eq!(restart(folder.path(), 5, &part).unwrap_err().kind(), ErrorKind::Corrupt);
    fs::write(&proof, "").unwrap();
    assert_eq!(restart(folder.path(), 6, &part).unwrap().len(), 1);
}

#[test]
fn a_part_that_a_reader_has_taken_does_not_stop_a_restart() {
    let folder = TempDir::new().unwrap();
    let (mut committer, _, part) = prepared(folder.path());
    committer.commit(std::slice::from_ref(&part)).unwrap();
    fs::remove_file(folder.path().join(&part.finished)).unwrap();
    for generation in 2..5 {
        let notes = restart(folder.path(), generation, &part).unwrap();
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].contains("a reader has taken it"), "{notes:?}");
    }
    assert!(all(folder.path()).is_empty());
    committer.commit(std::slice::from_ref(&part)).unwrap();

    // In a folder that is not the same one, such as an empty mount point, nothing is proved.
    fs::remove_file(folder.path().join(proof(1, 1))).unwrap();
    fs::remove_file(folder.path().join(".isochrone-owner")).unwrap();
    assert_eq!(restart(folder.path(), 5, &part).unwrap_err().kind(), ErrorKind::Corrupt);
}

/// All that a crash or a power cut between the steps of a commit may leave, then a reader or not.
#[test]
fn what_a_crash_leaves_between_rename_proof_and_sync_is_told_apart() {
    // Open name, final name, proof; then what the next start makes of it.
    let states = [
        ("not renamed", [true, false, false], Some(1)),
        ("only the proof was durable", [true, false, true], Some(1)),
        ("renamed", [false, true, false], Some(1)),
        ("renamed and proved", [false, true, true], Some(1)),
        (
            "the final name was durable, and the open one is still there",
            [true, true, true],
            Some(1),
        ),
        ("renamed, proved and taken", [false, false, true], Some(0)),
        ("renamed and taken without a proof, or lost", [false, false, false], None),
    ];
    for (what, [open, finished, proved], outcome) in states {
        let folder = TempDir::new().unwrap();
        let (_, _, part) = prepared(folder.path());
        let content = fs::read(folder.path().join(&part.open)).unwrap();
        fs::remove_file(folder.path().join(&part.open)).unwrap();
        let names = [(open, &part.open), (finished, &part.finished), (proved, &proof(1, 1))];
        for (_, name) in names.iter().filter(|(there, _)| *there) {
            let content = if name.ends_with(".done") { &b""[..] } else { &content };
            fs::write(folder.path().join(name), content).unwrap();
        }
        // A crash right after recovery changes nothing.
        for generation in 2..4 {
            match (restart(folder.path(), generation, &part), outcome) {
                (Ok(_), Some(visible)) => {
                    assert_eq!(lines(folder.path(), "*.txt").len(), visible, "{what}");
                    assert_eq!(all(folder.path()).len(), visible, "{what}");
                    assert_eq!(proofs(folder.path()), [proof(1, 1)], "{what}");
                }
                (Err(error), None) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}"),
                (end, _) => panic!("{what}: {end:?}"),
            }
        }
    }
}

#[test]
fn proofs_are_kept_for_the_last_three_commits_and_across_a_restart() {
    let folder = TempDir::new().unwrap();
    let (mut committer, mut writer, first) = prepared(folder.path());
    committer.commit(std::slice::from_ref(&first)).unwrap();
    let mut last = first;
    for epoch in 2..6 {
        write(&mut writer, epoch, &["more"]);
        last = prepare(&mut writer, epoch);
        committer.commit(std::slice::from_ref(&last)).unwrap();
        committer.commit(std::slice::from_ref(&last)).unwrap();
        let kept: Vec<_> = (epoch.saturating_sub(2).max(1)..=epoch).map(|e| proof(e, 1)).collect();
        assert_eq!(proofs(folder.path()), kept);
    }
    assert_eq!(seen(folder.path(), "*.txt").len(), 5, "no pattern matches them");

    let sink = text(folder.path());
    let mut committer = recovered(&sink, 2, vec![last]);
    assert_eq!(proofs(folder.path()), [proof(3, 1), proof(4, 1), proof(5, 1)]);
    let mut writer = sink.writer(&context(2, 0)).unwrap();
    for epoch in 6..8 {
        write(&mut writer, epoch, &["more"]);
        committer.commit(&[prepare(&mut writer, epoch)]).unwrap();
    }
    assert_eq!(proofs(folder.path()), [proof(5, 1), proof(6, 2), proof(7, 2)]);
}

#[test]
fn a_fresh_start_believes_no_proof_of_another_history() {
    let folder = TempDir::new().unwrap();
    let (mut committer, _, part) = prepared(folder.path());
    committer.commit(std::slice::from_ref(&part)).unwrap();
    fs::remove_file(folder.path().join(&part.finished)).unwrap();
    let (mut committer, _, part) = prepared(folder.path());
    assert!(proofs(folder.path()).is_empty());
    fs::remove_file(folder.path().join(&part.open)).unwrap();
    let error = committer.commit(std::slice::from_ref(&part)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}

/// When a store is emptied by hand, generations begin at 1 again and meet what dead runs left.
#[test]
fn unfinished_parts_of_runs_whose_checkpoints_are_gone_are_named_as_such() {
    let folder = TempDir::new().unwrap();
    let (_, _, part) = prepared(folder.path());
    let refused = |generation, from| {
        let mut committer = text(folder.path()).committer(&context(generation, 0)).unwrap();
        committer.recover(Recovery {
            pending: Vec::new(),
            from,
            renamed_from: None,
            is_new: false,
            history: None,
        })
    };
    // All checkpoints are gone, or only the newest.
    for from in [None, Some(Epoch(1))] {
        let error = refused(1, from).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert_eq!(
            error.to_string(),
            format!(
                "folder {} holds 1 unfinished part files (first: {}) of runs of this job whose \
                 checkpoints are gone; to begin again remove what is in the folder too, or give \
                 the store that holds the checkpoints",
                folder.path().display(),
                part.open
            )
        );
        assert_eq!(all(folder.path()), std::slice::from_ref(&part.open));
    }
    assert!(refused(2, None).is_ok(), "a run that has a run before it removes what that one left");
}
