//! The flags of a run: right values in, wrong ones refused with flag, value and the right form.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;
use std::time::Duration;

use isochrone_engine::ErrorKind;
use isochrone_engine::args::{Placement, RunArgs};

fn hosted(folder: &Path, process: u32, hosts: &str) -> RunArgs {
    let path = folder.join("hosts");
    std::fs::write(&path, hosts).unwrap();
    RunArgs { process: Some(process), hosts: Some(path), ..RunArgs::default() }
}

fn refusal(args: &RunArgs) -> String {
    let error = args.validate().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    error.to_string()
}

#[test]
fn the_default_is_one_process_alone() {
    assert_eq!(RunArgs::default().placement().unwrap(), Placement::Alone);
    let one = RunArgs { processes: Some(1), ..RunArgs::default() };
    assert_eq!(one.placement().unwrap(), Placement::Alone);
    let three = RunArgs { processes: Some(3), ..RunArgs::default() };
    assert_eq!(three.placement().unwrap(), Placement::Supervisor { processes: 3 });
}

#[test]
fn a_hosts_file_gives_each_process_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let text = "# the cluster\nlocalhost:7000\n\n127.0.0.1:7001\n[::1]:7002\n";
    let Placement::Hosted { process, hosts, .. } =
        hosted(folder.path(), 2, text).placement().unwrap()
    else {
        panic!()
    };
    assert_eq!((process, hosts.len(), hosts[2].as_str()), (2, 3, "[::1]:7002"));
}

#[test]
fn combinations_that_contradict_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let good = hosted(folder.path(), 0, "localhost:7000\nlocalhost:7001\n");
    let both = RunArgs { processes: Some(2), ..good.clone() };
    assert!(refusal(&both).contains("`--processes`"));
    let no_hosts = RunArgs { hosts: None, ..good.clone() };
    assert!(refusal(&no_hosts).contains("`--process` needs `--hosts FILE`"));
    let no_process = RunArgs { process: None, ..good.clone() };
    assert!(refusal(&no_process).contains("`--hosts` needs `--process I`"));
    let beyond = RunArgs { process: Some(2), ..good.clone() };
    assert!(refusal(&beyond).contains("`--process` is 2 but"), "{}", refusal(&beyond));
    let absent = RunArgs { hosts: Some(folder.path().join("none")), ..good };
    assert!(refusal(&absent).contains("cannot read"));
}

#[test]
fn more_workers_than_anybody_means_are_refused() {
    let many = RunArgs { workers: 300, processes: Some(4), ..RunArgs::default() };
    assert!(refusal(&many).contains("1200 workers; give 1024"));
    assert!(RunArgs { workers: 256, ..many }.validate().is_ok());
}

#[test]
fn zeros_are_refused() {
    let zero = RunArgs::default();
    assert!(refusal(&RunArgs { workers: 0, ..zero.clone() }).contains("`--workers` is 0"));
    assert!(
        refusal(&RunArgs { processes: Some(0), ..zero.clone() }).contains("`--processes` is 0")
    );
    let every = RunArgs { checkpoint_every: Some(Duration::ZERO), ..zero.clone() };
    assert!(refusal(&every).contains("`--checkpoint-every` is 0"));
    let records = RunArgs { checkpoint_records: Some(0), ..zero.clone() };
    assert!(refusal(&records).contains("`--checkpoint-records` is 0"));
    let silence = RunArgs { heartbeat_timeout: Duration::ZERO, ..zero };
    assert!(refusal(&silence).contains("`--heartbeat-timeout` is 0"));
}

#[test]
fn a_wrong_line_of_the_hosts_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for (text, named) in [
        ("localhost:7000\nlocalhost\n", "`localhost` is not `host:port`, in line 2"),
        ("localhost:70000\n", "`localhost:70000` is not `host:port`, in line 1"),
        (":7000\n", "`:7000` is not `host:port`"),
        ("a:0\n", "`a:0` is not `host:port`"),
        ("a:1\na:1\n", "`a:1` comes twice, the second time in line 2"),
        ("# nothing\n", "no `host:port` in any line"),
    ] {
        let found = refusal(&hosted(folder.path(), 0, text));
        assert!(found.contains(named), "{found}");
    }
}

#[test]
fn hosts_that_others_can_reach_need_a_secret_that_others_cannot_read() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let args = hosted(folder.path(), 0, "127.0.0.1:7000\nworker.example:7000\n");
    let found = refusal(&args);
    assert!(found.contains("worker.example:7000") && found.contains("--secret-file"), "{found}");

    let path = folder.path().join("secret");
    std::fs::write(&path, "0123456789abcdef0123\n").unwrap();
    let mode =
        |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    let args = RunArgs { secret_file: Some(path.clone()), ..args };
    mode(0o640);
    assert!(refusal(&args).contains("mode 0640"), "{}", refusal(&args));
    mode(0o600);
    let placement = args.placement().unwrap();
    assert!(!format!("{placement:?}").contains("0123456789"), "{placement:?}");
    std::fs::write(&path, "short\n").unwrap();
    assert!(refusal(&args).contains("has 5 bytes"), "{}", refusal(&args));
    // Who gives one without hosts believes that something is protected.
    let alone = RunArgs { process: None, hosts: None, ..args };
    assert!(refusal(&alone).contains("is for the processes of `--hosts`"), "{}", refusal(&alone));
}

#[cfg(feature = "cli")]
mod cli {
    use clap::Parser;
    use isochrone_engine::args::{OnDamage, Restore};

    use super::*;

    #[derive(Debug, Parser)]
    struct Job {
        #[command(flatten)]
        run: RunArgs,
        #[arg(long)]
        input: Option<String>,
    }

    fn parse(flags: &str) -> Result<RunArgs, String> {
        let words = std::iter::once("job").chain(flags.split_whitespace());
        Job::try_parse_from(words).map(|job| job.run).map_err(|error| error.to_string())
    }

    #[test]
    fn no_flags_are_the_default() {
        let expected = RunArgs { signals: true, ..RunArgs::default() };
        assert_eq!(parse("").unwrap(), expected);
        assert_eq!(parse("--input x").unwrap(), expected);
    }

    #[test]
    fn every_flag_reaches_its_field() {
        let flags = "--workers 4 --processes 2 --process 1 --hosts h --store s --checkpoint-every 500ms \
            --checkpoint-records 1000 --restore required --on-damage previous --drop a --drop b-2 \
            --secret-file k --heartbeat-timeout 2s --restarts 0 --quiet";
        let id = |name| isochrone_persistence::ids::OperatorId::new(name).unwrap();
        let expected = RunArgs {
            signals: true,
            workers: 4,
            processes: Some(2),
            process: Some(1),
            hosts: Some("h".into()),
            store: Some("s".into()),
            checkpoint_every: Some(Duration::from_millis(500)),
            checkpoint_records: Some(1000),
            restore: Restore::Required,
            on_damage: OnDamage::Previous,
            drop: vec![id("a"), id("b-2")],
            secret_file: Some("k".into()),
            heartbeat_timeout: Duration::from_secs(2),
            restarts: 0,
            quiet: true,
        };
        assert_eq!(parse(flags).unwrap(), expected);
    }

    #[test]
    fn a_wrong_value_is_named_with_its_flag_and_the_right_form() {
        for (flags, parts) in [
            ("--workers 0", ["'0'", "--workers", "whole number from 1"]),
            ("--workers many", ["'many'", "--workers", "whole number from 1"]),
            ("--process -1", ["-1", "--process", ""]),
            ("--processes 0", ["'0'", "--processes", "whole number from 1"]),
            ("--checkpoint-every 5", ["'5'", "--checkpoint-every", "such as 500ms or 5s"]),
            ("--checkpoint-every 0s", ["'0s'", "--checkpoint-every", "such as 500ms or 5s"]),
            ("--heartbeat-timeout 5d", ["'5d'", "--heartbeat-timeout", "such as 500ms or 5s"]),
            ("--checkpoint-records x", ["'x'", "--checkpoint-records", "whole number from 1"]),
            ("--restore fresh", ["'fresh'", "--restore", "required"]),
            ("--on-damage ignore", ["'ignore'", "--on-damage", "previous"]),
            ("--drop Upper", ["'Upper'", "--drop", "a-z"]),
            ("--worker 2", ["'--worker'", "--workers", ""]),
        ] {
            let text = parse(flags).unwrap_err();
            assert!(parts.iter().all(|part| text.contains(part)), "{flags}: {text}");
        }
    }

    #[test]
    fn help_explains_each_flag_in_one_line() {
        use clap::CommandFactory;
        let help = Job::command().term_width(120).render_long_help().to_string();
        let short = Job::command().term_width(200).render_help().to_string();
        for flag in [
            "workers",
            "processes",
            "process",
            "hosts",
            "store",
            "checkpoint-every",
            "checkpoint-records",
            "restore",
            "on-damage",
            "drop",
            "secret-file",
            "heartbeat-timeout",
            "restarts",
            "quiet",
        ] {
            let line = short.lines().find(|line| {
                line.contains(&format!("--{flag} ")) || line.trim_start() == format!("--{flag}")
            });
            assert!(
                line.is_some_and(|line| line.trim().contains("  ")),
                "no line for {flag}: {short}"
            );
        }
        assert!(help.contains("Running:"), "{help}");
    }
}
