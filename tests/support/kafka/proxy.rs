//! A proxy between a broker and its clients that does with requests to end a transaction what
//! networks may do: loses them, loses their answers, delivers them late.
//!
//! The broker tells its clients the address of the proxy; whoever goes on from there meets it. All
//! other requests and answers pass as they are.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{self, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use super::frame::{self, Asked, Frame};
use super::{Broker, Options};

/// What becomes of a request to end a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// It passes.
    None,
    /// The broker carries it out; its answer is lost with the client's connection.
    AnswerLost,
    /// The broker carries it out; its answer is lost, and the connection stays.
    Unanswered,
    /// It is lost with the client's connection.
    Lost,
    /// It is lost, and the connection stays: nobody tells the client.
    Swallowed,
    /// The client's connection is lost, and the request arrives when records of the same
    /// transactional id's next transaction have been acknowledged and more are to come.
    Late,
}

/// What has taken place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// By fault; those without one as well.
    pub faults: BTreeMap<Fault, u32>,
    /// Error codes of the answers to requests that arrived late; 0 says that it was carried out.
    pub late: Vec<i16>,
    /// The same of those whose answer was lost while the connection stays.
    pub unanswered: Vec<i16>,
}

impl Seen {
    pub fn count(&self, fault: Fault) -> u32 {
        self.faults.get(&fault).copied().unwrap_or(0)
    }
}

/// The proxy of one broker.
pub struct Proxy {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    broker: OnceLock<String>,
    plan: Mutex<Plan>,
}

#[derive(Default)]
struct Plan {
    /// How the transactional ids begin that it is about.
    ids: String,
    next: VecDeque<Fault>,
    seen: Seen,
    held: HashMap<String, Vec<Frame>>,
}

/// What is to be done when an answer comes.
enum Due {
    /// Requests to end a transaction of this id that wait for their time are delivered before.
    Late(String),
    /// The connection is cut instead.
    Cut,
    /// It goes no further.
    Lost,
}

/// Requests of a connection whose answers matter.
type Awaited = Arc<Mutex<HashMap<i32, Due>>>;

impl Proxy {
    /// Starts a broker behind a proxy.
    pub fn before(options: Options) -> (Proxy, Broker) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let advertised = format!("CLIENT://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared::default());
        let accepting = shared.clone();
        // It ends with the process, as the broker does.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // Who cannot be served sees its connection end, and tries again: so does the broker
                // itself while it starts.
                let _may_fail = serve(&accepting, client);
            }
        });
        let broker = options.set("advertised.listeners", &advertised).start();
        shared.broker.set(broker.address().to_owned()).expect("it is set once");
        (Proxy { shared }, broker)
    }

    /// From now on, requests to end a transaction whose ids begin so meet these, in their order; what
    /// has been seen is forgotten. Repeated requests count as well. After the last, all pass.
    pub fn plan(&self, ids: &str, faults: impl IntoIterator<Item = Fault>) {
        let next = faults.into_iter().collect();
        *self.shared.plan() = Plan { ids: ids.to_owned(), next, ..Plan::default() };
    }

    /// Whether all that was planned has taken place.
    pub fn is_through(&self) -> bool {
        let plan = self.shared.plan();
        plan.next.is_empty() && plan.held.values().all(Vec::is_empty)
    }

    pub fn seen(&self) -> Seen {
        self.shared.plan().seen.clone()
    }
}

impl Shared {
    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap()
    }
}

/// Passes on what a client and the broker say to each other, on two threads, until either ends.
fn serve(shared: &Arc<Shared>, client: TcpStream) -> io::Result<()> {
    let broker = shared.broker.get().ok_or_else(|| io::Error::other("no broker yet"))?;
    let broker = TcpStream::connect(broker)?;
    for stream in [&client, &broker] {
        stream.set_nodelay(true)?;
    }
    let awaited = Awaited::default();
    let (from, to) = (client.try_clone()?, broker.try_clone()?);
    let (there, waiting) = (shared.clone(), awaited.clone());
    std::thread::spawn(move || until_cut(from, to, |frame, to| there.request(frame, to, &waiting)));
    let back = shared.clone();
    std::thread::spawn(move || {
        until_cut(broker, client, |frame, to| back.answer(frame, to, &awaited))
    });
    Ok(())
}

/// Passes frames on until a stream ends, or `pass` says that the connection is cut.
fn until_cut(
    mut from: TcpStream,
    mut to: TcpStream,
    mut pass: impl FnMut(Frame, &mut TcpStream) -> io::Result<bool>,
) {
    while let Ok(Some(frame)) = frame::read(&mut from) {
        if !matches!(pass(frame, &mut to), Ok(true)) {
            break;
        }
    }
    for stream in [from, to] {
        // The other thread may have done it.
        let _may_be_closed = stream.shutdown(Shutdown::Both);
    }
}

impl Shared {
    fn request(&self, frame: Frame, to: &mut TcpStream, awaited: &Awaited) -> io::Result<bool> {
        let correlation = frame::correlation_of_request(&frame);
        let mut plan = self.plan();
        match frame::asked(&frame) {
            Asked::Produce { id } if plan.held.contains_key(&id) => {
                awaited.lock().unwrap().insert(correlation, Due::Late(id));
            }
            Asked::EndTxn { id } if !plan.ids.is_empty() && id.starts_with(&plan.ids) => {
                let fault = plan.next.pop_front().unwrap_or(Fault::None);
                *plan.seen.faults.entry(fault).or_default() += 1;
                match fault {
                    Fault::None => {}
                    Fault::AnswerLost => {
                        awaited.lock().unwrap().insert(correlation, Due::Cut);
                    }
                    Fault::Unanswered => {
                        awaited.lock().unwrap().insert(correlation, Due::Lost);
                    }
                    Fault::Lost => return Ok(false),
                    Fault::Swallowed => return Ok(true),
                    Fault::Late => {
                        plan.held.entry(id).or_default().push(frame);
                        return Ok(false);
                    }
                }
            }
            _ => {}
        }
        drop(plan);
        to.write_all(&frame).map(|()| true)
    }

    fn answer(&self, frame: Frame, to: &mut TcpStream, awaited: &Awaited) -> io::Result<bool> {
        let due = awaited.lock().unwrap().remove(&frame::correlation_of_answer(&frame));
        match due {
            Some(Due::Cut) => return Ok(false),
            Some(Due::Lost) => {
                self.plan().seen.unanswered.push(frame::error_of_end(&frame));
                return Ok(true);
            }
            Some(Due::Late(id)) => self.deliver_late(&id)?,
            None => {}
        }
        to.write_all(&frame).map(|()| true)
    }

    /// Delivers what was held back, and waits for the answers, which nobody gets.
    fn deliver_late(&self, id: &str) -> io::Result<()> {
        let held = self.plan().held.remove(id).unwrap_or_default();
        for frame in held {
            let broker = self.broker.get().expect("there is one: it has answered");
            let mut broker = TcpStream::connect(broker)?;
            broker.write_all(&frame)?;
            let answer = frame::read(&mut broker)?;
            let answer = answer.ok_or_else(|| io::Error::other("the broker does not answer"))?;
            self.plan().seen.late.push(frame::error_of_end(&answer));
        }
        Ok(())
    }
}
