//! Jobs as child processes: this test binary again, with the job's flags in the environment.
//!
//! A test that starts jobs calls [`play`] first: in the child it becomes the job and never returns.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use isochrone::Result;

use super::seed::Seeded;
use super::wait;

const FLAGS: &str = "ISOCHRONE_TEST_FLAGS";
/// Between the flags in the variable.
const SEPARATOR: &str = "\n";
/// Which processes of a supervised job die where; see [`crashes`].
const CRASHES: &str = "ISOCHRONE_TEST_CRASHES";
/// What a supervisor says to a child: which start of all this is, and its number.
const ATTEMPT: &str = "ISOCHRONE_ATTEMPT";
const PROCESS: &str = "ISOCHRONE_PROCESS";

/// A crash point takes effect in every process of a job. This one, a variable of the environment, is
/// for a supervised job that is to die in one process only: at a crash point for each start, counted
/// from 0, and process.
pub fn crashes(of: &[(u32, u32, &str)]) -> String {
    let entry =
        |(attempt, process, point): &(u32, u32, &str)| format!("{attempt}.{process}:{point}");
    format!("{CRASHES}={}", of.iter().map(entry).collect::<Vec<_>>().join(";"))
}

/// In a process that [`crashes`] is about: begins anew with the crash point that is its own, if any.
fn take_crash_point() {
    let said = [CRASHES, ATTEMPT, PROCESS].map(std::env::var);
    let [Ok(crashes), Ok(attempt), Ok(process)] = said else { return };
    let own = format!("{attempt}.{process}:");
    let point = crashes.split(';').find_map(|entry| entry.strip_prefix(&own));
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(std::env::args_os().skip(1)).env_remove(CRASHES);
    again.envs(point.map(|point| (isochrone::testing::crash::VARIABLE, point)));
    panic!("a program can begin anew: {}", again.exec());
}

/// In a child: runs the job with its flags and exits with the code of its error's kind.
pub fn play<T>(job: impl FnOnce(Vec<OsString>) -> Result<T>) {
    let Ok(flags) = std::env::var(FLAGS) else { return };
    take_crash_point();
    let program = OsString::from("job");
    let flags = flags.split(SEPARATOR).map(OsString::from);
    let code = match job(std::iter::once(program).chain(flags).collect()) {
        Ok(_) => 0,
        Err(error) => {
            eprintln!("{error:?}");
            error.kind().exit_code()
        }
    };
    std::process::exit(code.into());
}

/// A job in a process of its own; killed when it is dropped.
pub struct Job {
    child: Child,
    errors: PathBuf,
}

impl Job {
    /// Runs `test` of this binary as a job. What it writes to standard error goes to `errors`.
    pub fn start(test: &str, flags: &[String], errors: &Path) -> Job {
        Job::start_within(&[], test, flags, errors)
    }

    /// Like [`Job::start`], by a command that runs another, such as `ip netns exec NAME`.
    pub fn start_within(around: &[String], test: &str, flags: &[String], errors: &Path) -> Job {
        let program = std::env::current_exe().unwrap();
        let mut command = match around {
            [] => Command::new(program),
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
        };
        let child = command
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .env(FLAGS, flags.join(SEPARATOR))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(errors).unwrap())
            .spawn()
            .unwrap();
        Job { child, errors: errors.to_owned() }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for its end.
    pub fn end(&mut self) -> ExitStatus {
        let end = wait::until(wait::SOON, || self.ended());
        end.unwrap_or_else(|| panic!("the job does not end; it says: {}", self.errors()))
    }

    /// Kills it with SIGKILL, and answers whether that is what ended it.
    pub fn kill(&mut self) -> bool {
        self.child.kill().unwrap();
        self.child.wait().unwrap().signal() == Some(libc::SIGKILL)
    }

    /// Kills it and the processes that it has started with SIGKILL, all at once; answers how many it
    /// had started.
    pub fn kill_all(&mut self) -> usize {
        // So that it starts no more of them.
        self.signal("STOP");
        assert!(wait::soon(|| self.is_stopped()), "it does not stop: {}", self.errors());
        let children = self.children();
        let all = std::iter::once(self.id()).chain(children.iter().copied());
        let all: Vec<String> = all.map(|id| id.to_string()).collect();
        // One of them may have ended in between.
        Command::new("kill").args(["-s", "KILL"]).args(all).stderr(Stdio::null()).status().unwrap();
        assert_eq!(self.child.wait().unwrap().signal(), Some(libc::SIGKILL));
        let are_gone = || children.iter().all(|child| parent_of(*child).is_none());
        assert!(wait::soon(are_gone), "{children:?} live on");
        children.len()
    }

    /// Kills one of the processes that it has started, if there is one; answers whether.
    pub fn kill_a_child(&self, seeded: &mut Seeded) -> bool {
        let children = self.children();
        if children.is_empty() {
            return false;
        }
        let id = seeded.pick(&children).to_string();
        // It may have ended in between.
        Command::new("kill").args(["-s", "KILL", &id]).status().unwrap().success()
    }

    /// The processes that it has started and that still run.
    pub fn children(&self) -> Vec<u32> {
        let processes = fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        processes.filter(|process| parent_of(*process) == Some(self.id())).collect()
    }

    /// Sends a signal by name, such as `STOP`.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.id().to_string()]).status();
        assert!(status.unwrap().success(), "no signal {name} to process {}", self.id());
    }

    /// Whether it has been stopped by a signal.
    pub fn is_stopped(&self) -> bool {
        state_of(self.id()).is_some_and(|(state, _)| state == "T")
    }

    /// What it has written to standard error.
    pub fn errors(&self) -> String {
        fs::read_to_string(&self.errors).unwrap()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _may_have_ended = self.child.kill();
        let _may_have_been_waited_for = self.child.wait();
    }
}

/// The parent of a process, unless it is dead.
fn parent_of(process: u32) -> Option<u32> {
    state_of(process).filter(|(state, _)| state != "Z").map(|(_, parent)| parent)
}

/// A letter for what it does, and its parent.
fn state_of(process: u32) -> Option<(String, u32)> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The fields after the name, which may hold anything.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

/// Waits for its end and asserts that it is a good one.
pub fn assert_ends_well(job: &mut Job) {
    let end = job.end();
    assert!(end.success(), "the job ended with {end}: {}", job.errors());
}
