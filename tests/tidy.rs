//! What must hold about the text of this repository: who may know whom, sizes, and that documents
//! name what there is. Comments do not count as knowing.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;

/// A row of the may-know table.
struct Rule {
    /// Folders or files, below the root.
    within: &'static [&'static str],
    /// Words that must not occur there.
    words: &'static [&'static str],
    /// Folders or files where they may.
    except: &'static [&'static str],
    why: &'static str,
}

const SOURCES: &[&str] = &["src", "engine/src", "connectors/src", "persistence/src"];
const PURE: &[&str] = &[
    "engine/src/protocol",
    "engine/src/keyed",
    "engine/src/state",
    "engine/src/record.rs",
    "engine/src/watermark.rs",
    "persistence/src/restore/decide.rs",
    "persistence/src/restore/fit.rs",
    "persistence/src/lineage/attempt.rs",
    "persistence/src/lineage/retention.rs",
];

const MAY_KNOW: &[Rule] = &[
    Rule {
        within: SOURCES,
        words: &["timely"],
        except: &["engine/src/dataflow"],
        why: "one folder names timely, so that one folder changes with it",
    },
    Rule {
        within: SOURCES,
        words: &["std::fs", "fs::File", "File::open", "File::create"],
        except: &[
            "persistence/src/store",
            "connectors/src/files",
            // The file of a password.
            "connectors/src/kafka/secret.rs",
            // The file of hosts, the file of the secret, the summary of a supervised process.
            "engine/src/args.rs",
            "engine/src/cluster/secret.rs",
            "engine/src/runtime/launch.rs",
        ],
        why: "files are opened in stores and in connectors for files",
    },
    Rule {
        within: SOURCES,
        words: &["SystemTime::now", "Instant::now", "thread::sleep"],
        except: &["engine/src/time.rs"],
        why: "time is handed in, so that a test can move it",
    },
    Rule {
        within: &["engine/src"],
        words: &["thread::Builder", "thread::spawn"],
        except: &[
            "engine/src/threads.rs",
            // Kills the process.
            "engine/src/testing/crash.rs",
        ],
        why: "a thread that panics must tell somebody, so all are started in one place",
    },
    Rule {
        within: PURE,
        words: &[
            "timely",
            "thread",
            "Instant",
            "SystemTime",
            "crossbeam_channel",
            "Store",
            "SharedStore",
            "crate::dataflow",
            "crate::runtime",
            "crate::cluster",
        ],
        except: &[],
        why: "decisions and state know neither threads nor clocks nor stores",
    },
    Rule {
        within: &["connectors/src"],
        words: &["timely", "isochrone_persistence"],
        except: &[],
        why: "a connector knows the traits of isochrone_engine::connector and its own medium",
    },
    Rule {
        within: &["persistence/src"],
        words: &["isochrone_engine", "isochrone_connectors"],
        except: &[],
        why: "persistence knows bytes",
    },
    Rule {
        within: &["engine/src"],
        words: &["isochrone_connectors"],
        except: &[],
        why: "the engine knows connectors by their traits",
    },
    Rule {
        within: &["engine/src/stream.rs", "engine/src/keyed_stream.rs", "engine/src/flow.rs"],
        words: &["capability", "Capability", "frontier", "notificator", "Epoch"],
        except: &[],
        why: "what users call describes; progress is the dataflow's business",
    },
    Rule {
        within: &["engine/src/cluster"],
        words: &["crate::dataflow", "crate::keyed", "crate::state", "crate::runtime", "Lineage"],
        except: &[],
        why: "the cluster knows sockets, processes and secrets",
    },
    Rule {
        within: SOURCES,
        words: &["rdkafka"],
        except: &["connectors/src/kafka"],
        why: "one folder names librdkafka, so that one folder changes with it",
    },
    Rule {
        within: SOURCES,
        words: &["clap"],
        except: &["engine/src/args.rs"],
        why: "flags are a plain struct; one file makes them known to clap",
    },
    Rule {
        within: SOURCES,
        words: &["bincode"],
        except: &[
            "engine/src/state/codec.rs",
            // Keys, which are encoded without memory for them.
            "engine/src/record.rs",
            "engine/src/record",
            // What processes of one run say to each other, never stored.
            "engine/src/dataflow/packet.rs",
            "engine/src/cluster/claim.rs",
        ],
        why: "the codec may have to be replaced: few files name it",
    },
    Rule {
        within: &["connectors/src"],
        words: &["crate::files"],
        except: &["connectors/src/stdout.rs"],
        why: "a connector knows no other; standard output writes the lines that files have",
    },
    Rule {
        within: &["connectors/src"],
        words: &["crate::kafka"],
        except: &["connectors/src/kafka"],
        why: "a connector knows no other",
    },
    Rule {
        within: &["connectors/src"],
        words: &["crate::generator", "crate::callback", "crate::collected", "crate::scripted"],
        except: &[],
        why: "a connector knows no other",
    },
    Rule {
        within: &["persistence/src/lineage"],
        words: &["KeyGroup", "Rows", "crate::segment", "OperatorId"],
        except: &["persistence/src/lineage/tests.rs"],
        why: "claiming, publishing and collecting know manifests and names, not what operators keep",
    },
    Rule {
        within: &["engine/src/job.rs", "engine/src/runtime"],
        words: &["crate::keyed"],
        except: &[],
        why: "a run knows operators by their ids and parts",
    },
    Rule {
        within: SOURCES,
        words: &["unsafe"],
        except: &["connectors/src/kafka/batch"],
        why: "what the compiler does not check is in one folder that people check",
    },
    Rule {
        within: SOURCES,
        words: &["rocksdb", "object_store", "tokio"],
        except: &[],
        why: "heavy dependencies get a feature and a folder of their own first",
    },
    Rule {
        within: SOURCES,
        words: &["for_each_stamp"],
        except: &[],
        why: "only `for_each` keeps the order of each sender",
    },
    Rule {
        within: &["src/lib.rs"],
        words: &["fn", "impl", "struct", "enum", "trait"],
        except: &[],
        why: "the facade has names only",
    },
    Rule {
        within: &["tests"],
        words: &["isochrone_engine", "isochrone_connectors", "isochrone_persistence", "timely"],
        except: &["tests/tidy.rs"],
        why: "tests at the root see what users see",
    },
];

#[test]
fn each_module_knows_only_what_it_may() {
    let mut found = Vec::new();
    for rule in MAY_KNOW {
        for within in rule.within {
            assert!(root().join(within).exists(), "the table names `{within}`, which is not there");
        }
        for path in rust_files().filter(|path| is_in(path, rule.within)) {
            if is_in(&path, rule.except) {
                continue;
            }
            for (number, line) in code_of(&path) {
                for word in rule.words.iter().filter(|word| names(&line, word)) {
                    found.push(format!("{path}:{number} names `{word}`: {}", rule.why));
                }
            }
        }
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn exceptions_of_the_table_are_needed() {
    for rule in MAY_KNOW {
        for except in rule.except {
            let needed = rust_files().filter(|path| is_in(path, &[except])).any(|path| {
                code_of(&path).any(|(_, line)| rule.words.iter().any(|word| names(&line, word)))
            });
            assert!(needed, "the exception for `{except}` is not needed any more: {}", rule.why);
        }
    }
}

/// The lints of the package that has unsafe code are those of the workspace but for that one.
#[test]
fn one_package_has_its_own_lints_and_they_are_no_weaker() {
    let table = |manifest: &str, heading: &str| -> Vec<String> {
        let text = read(manifest);
        let lines = text.lines().skip_while(|line| *line != heading).skip(1);
        let lints = lines.take_while(|line| !line.starts_with('[')).map(str::trim);
        lints.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
    };
    for tool in ["rust", "clippy"] {
        let own = table("connectors/Cargo.toml", &format!("[lints.{tool}]"));
        let common = table("Cargo.toml", &format!("[workspace.lints.{tool}]"));
        assert!(common.len() > 3, "{common:?}");
        for lint in common {
            let lint = lint.replace("unsafe_code = \"forbid\"", "unsafe_code = \"deny\"");
            assert!(own.contains(&lint), "connectors/Cargo.toml lacks `{lint}`");
        }
    }
}

#[test]
fn crates_depend_on_one_another_in_one_direction() {
    let dependencies = |manifest: &str| {
        let text = read(manifest);
        let start = text.find("[dependencies]").unwrap();
        let rest = &text[start + 1..];
        rest[..rest.find("\n[").unwrap_or(rest.len())].to_owned()
    };
    let persistence = dependencies("persistence/Cargo.toml");
    assert!(!persistence.contains("isochrone") && !persistence.contains("timely"));
    assert!(!dependencies("engine/Cargo.toml").contains("isochrone-connectors"));
    let connectors = dependencies("connectors/Cargo.toml");
    assert!(!connectors.contains("isochrone-persistence") && !connectors.contains("timely"));
    assert!(read("Cargo.toml").contains("timely = \"=0.32\""), "timely's version is exact");
}

#[test]
fn files_are_short_and_say_what_they_are_for() {
    let mut found = Vec::new();
    for path in rust_files() {
        let text = read(&path);
        let lines = text.lines().count();
        if lines > 500 {
            found.push(format!("{path} has {lines} lines; split it at 500"));
        }
        // Tests beside a module belong to it and need no words of their own.
        if !text.starts_with("//!") && !path.ends_with("/tests.rs") {
            found.push(format!("{path} does not open with `//!`"));
        }
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
    assert!(read("ARCHITECTURE.md").lines().count() < 300);
    assert!(read("src/lib.rs").lines().count() < 80);
}

#[test]
fn nothing_is_left_for_later_and_no_test_is_switched_off() {
    // In pieces, or this file would find itself.
    let words = [concat!("to", "do!("), concat!("unimpl", "emented!("), concat!("#[ign", "ore")];
    for path in rust_files() {
        for (number, line) in code_of(&path) {
            for word in words {
                assert!(!line.contains(word), "{path}:{number} has `{word}`");
            }
        }
    }
}

/// The promise of the API: the model job fits in so many lines, its state's type included.
const JOB_LINES_MAX: usize = 40;

#[test]
fn the_account_risk_job_fits_in_forty_lines() {
    let text = read("examples/account_risk.rs");
    let item = |start: &str| {
        let at = text.find(start).unwrap_or_else(|| panic!("`{start}` is not in the example"));
        let end = text[at..].find("\n}\n").expect("an item ends with a brace of its own");
        text[at..at + end + 2].lines().filter(|line| !line.trim().is_empty()).count()
    };
    let job = item("fn account_risk(");
    let state = item("#[derive(Default, PartialEq, Serialize, Deserialize)]\nstruct Spent {");
    let version = item("impl State for Spent {");
    let lines = job + state + version;
    assert!(job > 10 && state > 3, "{job} and {state}: not what was meant");
    assert!(lines <= JOB_LINES_MAX, "the job takes {job} + {state} + {version} lines");
}

/// `matches!(..);` by itself checks nothing.
#[test]
fn no_test_states_a_match_without_asserting_it() {
    for path in rust_files() {
        let text: String = code_of(&path).map(|(_, line)| line + "\n").collect();
        for (at, _) in text.match_indices("matches!(") {
            let before = text[..at].trim_end();
            let after = behind_parenthesis(&text[at + "matches!".len()..]);
            let stands_alone = before.ends_with([';', '{', '}']) && after.starts_with(';');
            let line = text[..at].lines().count();
            assert!(!stands_alone, "{path}, code line {line}: a bare `matches!` checks nothing");
        }
    }
}

#[test]
fn documents_name_files_and_tests_that_exist() {
    let mut found = Vec::new();
    for document in documents() {
        let text = read(&document);
        let folder = root().join(&document).parent().unwrap().to_owned();
        for quoted in text.split('`').skip(1).step_by(2).filter(|quoted| is_path(quoted)) {
            let (path, test) = quoted.split_once("::").unwrap_or((quoted, ""));
            if !root().join(path).exists() {
                found.push(format!("{document}: `{path}` is not there"));
            } else if !test.is_empty() && !read(path).contains(&format!("fn {test}(")) {
                found.push(format!("{document}: `{path}` has no test `{test}`"));
            }
        }
        for link in links_of(&text) {
            if !folder.join(link).exists() {
                found.push(format!("{document}: link to `{link}` leads nowhere"));
            }
        }
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn code_comments_name_documents_that_exist() {
    for path in rust_files() {
        for word in read(&path).split([' ', '`', '(', ')', '"', ',', '\n']) {
            let is_document = word.starts_with("docs/") && word.ends_with(".md");
            assert!(!is_document || root().join(word).exists(), "{path}: `{word}` is not there");
        }
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All Rust files, as paths below the root.
fn rust_files() -> impl Iterator<Item = String> {
    let folders = ["src", "engine", "connectors", "persistence", "examples", "tests", "benches"];
    let mut files: Vec<String> = folders.iter().flat_map(|folder| below(folder, "rs")).collect();
    files.sort();
    assert!(files.len() > 100, "only {} files were found", files.len());
    files.into_iter()
}

/// The documents that people read, as paths below the root.
fn documents() -> Vec<String> {
    let top = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "examples/data/README.md"];
    let mut documents = below("docs", "md");
    documents.extend(top.map(str::to_owned));
    documents
}

fn below(folder: &str, extension: &str) -> Vec<String> {
    let mut files = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(folder) else { continue };
        for path in entries.map(|entry| entry.unwrap().path()) {
            if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                files.push(relative(&path));
            }
        }
    }
    files
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().to_str().unwrap().replace('\\', "/")
}

fn is_in(path: &str, places: &[&str]) -> bool {
    let is_below = |place: &&str| {
        path.strip_prefix(*place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    places.iter().any(is_below)
}

/// Lines that are not comments, with their numbers.
fn code_of(path: &str) -> impl Iterator<Item = (usize, String)> {
    let text = read(path);
    let lines: Vec<_> = (1..).zip(text.lines().map(str::to_owned)).collect();
    lines.into_iter().filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// Whether a line has the word, not as a part of a longer one.
fn names(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(is_part) && !line[at + word.len()..].starts_with(is_part)
    })
}

/// What stands behind the parenthesis that closes the first one.
fn behind_parenthesis(text: &str) -> &str {
    let mut depth = 0;
    for (at, character) in text.char_indices() {
        depth += i32::from(character == '(') - i32::from(character == ')');
        if depth == 0 {
            return text[at + 1..].trim_start();
        }
    }
    ""
}

/// A path below one of our folders, perhaps with a test behind `::`.
fn is_path(quoted: &str) -> bool {
    let ours = ["src/", "engine/", "connectors/", "persistence/", "examples/", "tests/", "docs/"];
    let is_plain = |c: char| c.is_alphanumeric() || "_-./:".contains(c);
    ours.iter().any(|folder| quoted.starts_with(folder)) && quoted.chars().all(is_plain)
}

/// Targets of links to files.
fn links_of(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets
        .map(|(target, _)| target.split('#').next().unwrap_or_default())
        .filter(|target| !target.is_empty() && !target.contains("://"))
}

#[test]
fn the_checks_find_what_they_look_for() {
    assert!(names("use timely::dataflow;", "timely") && !names("untimely", "timely"));
    assert!(is_in("engine/src/dataflow/mod.rs", &["engine/src/dataflow"]));
    assert!(!is_in("engine/src/dataflows.rs", &["engine/src/dataflow"]));
    assert!(behind_parenthesis("(a, B(_)) ;\n x").starts_with(';'));
    assert!(is_path("tests/tidy.rs::names") && !is_path("<job>/m/1") && !is_path("part-*.jsonl"));
    assert_eq!(links_of("[a](b.md#c) [d](https://e)").collect::<Vec<_>>(), ["b.md"]);
}
