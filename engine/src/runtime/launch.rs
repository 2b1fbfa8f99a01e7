//! From flags to a run: alone, as a supervisor of children, or as one process of several.

use std::io::IsTerminal;
use std::net::ToSocketAddrs;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;
use isochrone_persistence::store::probe;
use isochrone_persistence::{Error, ErrorKind, Result};

use super::company::{Company, unless_stopped};
use super::conductor::{Call, failed_to};
use super::pace::Free;
use super::ready::Ready;
use crate::args::{Placement, RunArgs};
use crate::cluster::orders::{self, Order};
use crate::cluster::signals::{Signal, Signals};
use crate::cluster::{
    Assignment, Hub, Member, RestartPolicy, Secret, SupervisorEvent, leave, mesh, supervise,
};
use crate::flow::Flow;
use crate::job::Job;
use crate::summary::{Outcome, Summary};
use crate::threads;

/// How long a second signal waits to hear what the job is waiting for.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);
/// Where the code of connections between processes lies.
const CONNECTIONS: &str = "/allocator/zero_copy/";

/// Where a supervised process 0 leaves its summary for the supervisor.
const SUMMARY: &str = "ISOCHRONE_SUMMARY";

/// Runs a job as its flags, or its supervisor, say.
pub(crate) fn launch<F>(job: Job, args: RunArgs, build: Arc<F>) -> Result<Summary>
where
    F: Fn(&Flow<'_>) -> Result<()> + Send + Sync + 'static,
{
    if let Some(assignment) = Assignment::from_env()? {
        let run = || run_child(&job, &args, &assignment, build);
        end_child(threads::guard("this process", run).and_then(|end| end), &assignment)
    }
    threads::guard("this process", || run_here(&job, &args, build)).and_then(|end| end)
}

fn run_here<F>(job: &Job, args: &RunArgs, build: Arc<F>) -> Result<Summary>
where
    F: Fn(&Flow<'_>) -> Result<()> + Send + Sync + 'static,
{
    match args.placement()? {
        Placement::Alone => {
            let ready = Ready::new(job, args, &*build)?;
            let hear = || hear_signals(ready.calls.0.clone(), 0, args.quiet);
            let _signals = args.signals.then(hear).transpose()?;
            ready.check_drops()?;
            if let Some(summary) = begin(&ready)? {
                return Ok(summary);
            }
            ready.run_alone(args.workers, Arc::new(Free), build)
        }
        Placement::Supervisor { processes } => supervise_children(job, args, processes, &*build),
        Placement::Hosted { process, hosts, secret } => {
            let ready = Ready::new(job, args, &*build)?;
            let hear = || hear_signals(ready.calls.0.clone(), process, args.quiet);
            let _signals = args.signals.then(hear).transpose()?;
            if process == 0 {
                ready.check_drops()?;
            }
            hush();
            let seat = Seat {
                process,
                hub: hosts[0].clone(),
                own: hosts[process as usize].clone(),
                hosted: true,
            };
            let processes = u32::try_from(hosts.len()).expect("as many hosts as lines of a file");
            let me = member(&ready, args, process, processes, secret);
            run_seat(ready, &seat, me, build)
        }
    }
}

/// Whether there is anything to do at all, and then whether the store keeps its word. In this order:
/// a start that fails because there is no input leaves nothing behind.
fn begin(ready: &Ready) -> Result<Option<Summary>> {
    if let Some(summary) = ready.nothing_to_do(0)? {
        return Ok(Some(summary));
    }
    probe::probe(&*ready.store, &format!("{}/", ready.name)).map(|()| None)
}

/// Where a process of several sits.
struct Seat {
    process: u32,
    /// Where process 0 takes control connections.
    hub: String,
    /// Where this process takes data connections; any free port if it says 0.
    own: String,
    /// Whether the others come when they come. Those of a supervisor are there in a moment.
    hosted: bool,
}

/// Runs one process of several. Only that of process 0 has more than an outcome.
fn run_seat<F>(ready: Ready, seat: &Seat, me: Member, build: Arc<F>) -> Result<Summary>
where
    F: Fn(&Flow<'_>) -> Result<()> + Send + Sync + 'static,
{
    if seat.process > 0 {
        let share_done = || Summary { outcome: Outcome::ShareDone, ..Summary::default() };
        if ready.nothing_to_do(seat.process)?.is_some() {
            return Ok(share_done());
        }
        let address = resolve(&seat.own)?;
        let listener = mesh::listen(address.ip(), address.port())?;
        let outcome = ready.follow(&me, &seat.hub, seat.hosted, listener, build)?;
        return Ok(Summary { outcome, ..share_done() });
    }
    if let Some(summary) = begin(&ready)? {
        // The others look for themselves and find the same.
        return Ok(summary);
    }
    let hub = Hub::bind(&*seat.hub)?;
    let workers = me.workers;
    let gather = move || Company::gather(me, hub);
    let awaited = "the other processes to join";
    let let_go = |company: Company| company.dismiss();
    let company = match seat.hosted {
        true => unless_stopped(&ready.calls, awaited, gather, let_go)?,
        false => Some(gather()?),
    };
    match company {
        Some(company) => ready.lead(workers, Some(company), Arc::new(Free), build),
        None => {
            ready.check_nothing_owed()?;
            Ok(Summary { outcome: Outcome::Stopped, ..Summary::default() })
        }
    }
}

fn resolve(host: &str) -> Result<std::net::SocketAddr> {
    let found = host.to_socket_addrs().map_err(|error| {
        Error::invalid(format!("`{host}` is not an address of this machine")).with_source(error)
    })?;
    found.into_iter().next().ok_or_else(|| Error::invalid(format!("`{host}` has no address")))
}

fn member(ready: &Ready, args: &RunArgs, process: u32, processes: u32, secret: Secret) -> Member {
    Member {
        job: ready.name.clone(),
        fingerprint: ready.fingerprint(),
        process,
        processes,
        workers: args.workers,
        secret,
        heartbeat_timeout: args.heartbeat_timeout,
    }
}

fn run_child<F>(
    job: &Job,
    args: &RunArgs,
    assignment: &Assignment,
    build: Arc<F>,
) -> Result<Option<Summary>>
where
    F: Fn(&Flow<'_>) -> Result<()> + Send + Sync + 'static,
{
    let Assignment { process, processes, hub, secret, .. } = assignment.clone();
    let ready = Ready::new(job, args, &*build)?;
    // The supervisor hears the signals that a terminal sends to all of its processes.
    let _ignored = Signals::install()?;
    hear_supervisor(ready.calls.0.clone(), process, args.quiet)?;
    hush();
    let own = "127.0.0.1:0".to_owned();
    let seat = Seat { process, hub: hub.to_string(), own, hosted: false };
    let me = member(&ready, args, process, processes, secret);
    // Process 0 has the summary of the run.
    run_seat(ready, &seat, me, build).map(|summary| (process == 0).then_some(summary))
}

/// A supervised process ends here: its supervisor reads the exit code, and the summary if there is
/// one. The program goes on in the supervisor.
fn end_child(end: Result<Option<Summary>>, assignment: &Assignment) -> ! {
    let code = match end {
        Ok(summary) => {
            if let (Some(summary), Some(path)) = (summary, std::env::var_os(SUMMARY)) {
                let text = serde_json::to_vec(&summary).expect("a summary is plain data");
                if let Err(error) = std::fs::write(&path, text) {
                    tracing::warn!(%error, "the summary could not be left for the supervisor");
                }
            }
            0
        }
        Err(error) => {
            // Each process ends with the same error: the supervisor tells it once.
            tracing::debug!(process = assignment.process, "{}", error.report());
            leave(&error.report());
            i32::from(error.kind().exit_code())
        }
    };
    std::process::exit(code)
}

fn supervise_children(
    job: &Job,
    args: &RunArgs,
    processes: u32,
    build: &dyn Fn(&Flow<'_>) -> Result<()>,
) -> Result<Summary> {
    let ready = Ready::new(job, args, &build)?;
    ready.check_drops()?;
    if let Some(summary) = begin(&ready)? {
        return Ok(summary);
    }
    let name = ready.name.clone();
    // It may look for new input in the background, which is for the children to do.
    drop(ready);
    let program = std::env::current_exe().map_err(|error| {
        Error::unavailable("the program cannot find its own file to start it again")
            .with_source(error)
    })?;
    let own_id = std::process::id();
    let file = std::env::temp_dir().join(format!("isochrone-{name}-{own_id}.json"));
    let command = |_process, _attempt| {
        let mut command = Command::new(&program);
        command.args(std::env::args_os().skip(1)).env(SUMMARY, &file);
        command
    };
    let policy = RestartPolicy { limit: args.restarts, ..RestartPolicy::default() };
    let signals = Signals::install()?;
    let quiet = args.quiet;
    let ended = supervise(processes, command, policy, &*job.clock, signals.receiver(), |event| {
        tell(event, quiet);
    });
    let text = std::fs::read(&file);
    // It may never have been written.
    let _ = std::fs::remove_file(&file);
    ended?;
    let summary = text.ok().and_then(|text| serde_json::from_slice(&text).ok());
    Ok(summary.unwrap_or_default())
}

fn tell(event: &SupervisorEvent, quiet: bool) {
    match event {
        SupervisorEvent::Started { .. } | SupervisorEvent::Stopping => {}
        SupervisorEvent::Exited(exit) if exit.is_success() || quiet => {}
        SupervisorEvent::Exited(exit) => eprintln!("{exit}"),
        SupervisorEvent::Restarting { attempt, after_ms, because_of } => {
            let report = because_of.report.iter().map(|report| format!(": {report}"));
            let why = format!("{because_of}{}", report.collect::<String>());
            if quiet {
                tracing::warn!(attempt, "all processes start again: {why}");
                return;
            }
            eprintln!(
                "all processes start again from the newest checkpoint in {after_ms} ms (attempt \
                 {attempt}); {why}"
            );
        }
    }
}

/// SIGTERM drains; a second one ends the process at once, saying what it was waiting for; SIGUSR1
/// takes a checkpoint.
fn hear_signals(calls: Sender<Call>, process: u32, quiet: bool) -> Result<()> {
    let signals = Signals::install()?;
    threads::spawn("isochrone-hearing", failed_to(calls.clone()), move || {
        for signal in signals.receiver() {
            match signal {
                Signal::Stop => {
                    drop(calls.send(Call::Stop));
                    if process > 0 {
                        say("process 0 ends the run when it is asked to; a second signal ends this process at once");
                    }
                }
                Signal::Checkpoint => ask_for_checkpoint(&calls, quiet),
                Signal::Kill => {
                    let awaited = match process {
                        0 => awaited(&calls),
                        _ => "process 0, which says when the run is over".to_owned(),
                    };
                    eprintln!(
                        "ended at once on request while waiting for {awaited}; the next run starts \
                         from the last checkpoint"
                    );
                    std::process::exit(ErrorKind::Unavailable.exit_code().into())
                }
            }
        }
    })
    .map(drop)
}

/// What the job is waiting for, if its coordinator says so at once.
fn awaited(calls: &Sender<Call>) -> String {
    let (answer, answered) = crossbeam_channel::bounded(1);
    // Whoever does not take the call does not answer either.
    let _ = calls.send(Call::Awaited { answer });
    answered.recv_timeout(ANSWER_WITHIN).unwrap_or_else(|_| {
        "its start, or an answer of the store or of what it reads and writes: its coordinator does \
         not say"
            .to_owned()
    })
}

/// When a process dies, the threads that hold connections with it panic in each of the others. The
/// engine says itself who was lost; the panics, by thread, are for nobody.
fn hush() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let place = panic.location().map_or("", std::panic::Location::file);
            match place.contains(CONNECTIONS) {
                true => tracing::debug!("{panic}"),
                false => before(panic),
            }
        }));
    });
}

fn hear_supervisor(calls: Sender<Call>, process: u32, quiet: bool) -> Result<()> {
    let end = || std::process::exit(ErrorKind::Unavailable.exit_code().into());
    orders::watch_stdin(move |order| match order {
        Order::Stop => drop(calls.send(Call::Stop)),
        Order::Checkpoint => ask_for_checkpoint(&calls, quiet || process > 0),
        Order::Kill if process == 0 => {
            leave(&awaited(&calls));
            end()
        }
        // It goes with process 0, which may be about to say what the job waits for.
        Order::Kill => {}
        Order::Orphaned => end(),
    })
}

/// Asks for a checkpoint, and says what became of it. Does not wait.
fn ask_for_checkpoint(calls: &Sender<Call>, quiet: bool) {
    let (answer, answered) = crossbeam_channel::bounded(1);
    drop(calls.send(Call::Checkpoint { savepoint: None, answer }));
    let tell = move || match answered.recv() {
        Ok(Ok(epoch)) => say(&format!("checkpoint {epoch} exists, as asked for by SIGUSR1")),
        Ok(Err(why)) => say(&format!("the checkpoint asked for by SIGUSR1 was dropped: {why}")),
        // The job has ended.
        Err(_) => {}
    };
    if quiet {
        return;
    }
    if let Err(error) = threads::spawn("isochrone-answer", threads::note, tell) {
        tracing::debug!(%error, "nobody waits for the checkpoint that was asked for");
    }
}

/// A line for people, in the place of the progress line if that is drawn.
fn say(line: &str) {
    let clear = if std::io::stderr().is_terminal() { "\r\x1b[K" } else { "" };
    eprintln!("{clear}{line}");
}
