//! A tree of what a type asks a deserializer for, grown by deserializing dummies.
//!
//! One run of `T::deserialize` sees one variant of each enum, so there are many runs. Each takes
//! the first branch that is not complete yet; where a branch is complete but gives no value, since
//! it is recursive or refuses dummies, the next run takes the short way round: `None`, an empty
//! list, another variant.

mod access;
mod tracer;

use std::fmt;

use serde::de::DeserializeOwned;

use self::tracer::Tracer;

const RUNS_MAX: usize = 10_000;
const NODES_MAX: usize = 10_000;
const DEPTH_MAX: usize = 100;
/// How often one type may be inside itself.
const NESTED_MAX: usize = 2;
/// Runs with the same outcome after which the branch that failed is given up: one for each dummy.
const IDLE_RUNS_MAX: usize = 3;

pub(super) fn text_of<T: DeserializeOwned>() -> String {
    let mut trace = Trace::default();
    let (mut before, mut idle) = ((0, 0), 0);
    while trace.runs < RUNS_MAX {
        trace.failed = None;
        // A run that ends in an error has left its mark in the tree all the same.
        let outcome = T::deserialize(Tracer { trace: &mut trace, node: ROOT });
        trace.close(ROOT, outcome.is_ok());
        trace.runs += 1;
        if trace.is_complete(ROOT) {
            break;
        }
        let now = (trace.nodes.len(), trace.nodes.iter().filter(|node| node.complete).count());
        idle = if now == before { idle + 1 } else { 0 };
        before = now;
        if idle == IDLE_RUNS_MAX {
            let Some(hopeless) = trace.failed else { break };
            trace.nodes[hopeless].complete = true;
            idle = 0;
        }
    }
    let mut text = String::new();
    trace.write(ROOT, &mut text).expect("a string takes any text");
    text
}

const ROOT: usize = 0;

struct Trace {
    nodes: Vec<Node>,
    /// Types that are being deserialized, outermost first: name and fields.
    open: Vec<(&'static str, &'static [&'static str])>,
    depth: usize,
    runs: usize,
    /// The innermost incomplete node that gave no value in this run.
    failed: Option<usize>,
}

impl Default for Trace {
    fn default() -> Self {
        Trace { nodes: vec![Node::default()], open: Vec::new(), depth: 0, runs: 0, failed: None }
    }
}

#[derive(Default)]
struct Node {
    kind: Kind,
    /// Of fields or variants; empty for other kinds.
    names: &'static [&'static str],
    children: Vec<Option<usize>>,
    /// Whether the last attempt gave a value.
    ok: bool,
    complete: bool,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Kind {
    #[default]
    Unseen,
    Leaf(&'static str),
    Option,
    Seq,
    Map,
    Tuple,
    Struct,
    Enum,
    /// A type inside itself: which of those around it, counted from the inside.
    Again(usize),
}

impl Trace {
    fn see(&mut self, node: usize, kind: Kind, names: &'static [&'static str], children: usize) {
        let node = &mut self.nodes[node];
        if node.kind == Kind::Unseen {
            (node.kind, node.names) = (kind, names);
            node.children = vec![None; children];
        }
    }

    fn child(&mut self, node: usize, place: usize) -> Result<usize, Stop> {
        if let Some(child) = self.nodes[node].children[place] {
            return Ok(child);
        }
        if self.nodes.len() == NODES_MAX {
            return Err(Stop);
        }
        self.nodes.push(Node::default());
        let child = self.nodes.len() - 1;
        self.nodes[node].children[place] = Some(child);
        Ok(child)
    }

    /// Notes whether a node gave a value.
    fn close(&mut self, node: usize, ok: bool) {
        if !ok && self.failed.is_none() && !self.is_complete(node) {
            self.failed = Some(node);
        }
        let node = &mut self.nodes[node];
        node.ok = ok;
        if ok && node.kind == Kind::Unseen {
            node.kind = Kind::Leaf("nothing");
        }
    }

    /// Enters a named type, unless it is inside itself too often.
    fn enter(&mut self, node: usize, name: &'static str, names: &'static [&'static str]) -> bool {
        let same = |open: &&(_, _)| **open == (name, names);
        let out = self.open.iter().rev().position(|open| same(&open));
        if self.open.iter().filter(same).count() >= NESTED_MAX || self.depth >= DEPTH_MAX {
            self.see(node, Kind::Again(out.unwrap_or(self.depth)), &[], 0);
            return false;
        }
        self.open.push((name, names));
        true
    }

    fn is_complete(&mut self, node: usize) -> bool {
        if !self.nodes[node].complete {
            let children = std::mem::take(&mut self.nodes[node].children);
            let mut complete = self.nodes[node].kind != Kind::Unseen;
            for child in &children {
                complete &= child.is_some_and(|child| self.is_complete(child));
            }
            self.nodes[node].children = children;
            self.nodes[node].complete = complete;
        }
        self.nodes[node].complete
    }

    /// Whether a run should go into this child rather than round it.
    fn is_worth_a_visit(&mut self, node: usize, place: usize) -> bool {
        match self.nodes[node].children[place] {
            Some(child) => self.nodes[child].ok || !self.is_complete(child),
            None => true,
        }
    }

    /// The variant to take: one not complete yet, or one that gives a value.
    fn variant(&mut self, node: usize) -> usize {
        let children = self.nodes[node].children.clone();
        let incomplete = children.iter().position(|child| match child {
            Some(child) => !self.is_complete(*child),
            None => true,
        });
        let gives = |child: &Option<usize>| child.is_some_and(|child| self.nodes[child].ok);
        incomplete.or_else(|| children.iter().position(gives)).unwrap_or(0)
    }

    fn write(&self, node: usize, text: &mut String) -> fmt::Result {
        use fmt::Write;
        let Node { kind, names, children, .. } = &self.nodes[node];
        let (open, close) = match kind {
            Kind::Unseen => return text.write_char('?'),
            Kind::Leaf(name) => return text.write_str(name),
            Kind::Again(out) => return write!(text, "^{out}"),
            Kind::Option => ("", "?"),
            Kind::Seq => ("[", "]"),
            Kind::Map => ("map(", ")"),
            Kind::Tuple => ("(", ")"),
            Kind::Struct => ("{", "}"),
            Kind::Enum => ("<", ">"),
        };
        text.push_str(open);
        for (place, child) in children.iter().enumerate() {
            if place > 0 {
                text.push(',');
            }
            if let Some(name) = names.get(place) {
                write!(text, "{name}:")?;
            }
            match child {
                Some(child) => self.write(*child, text)?,
                None => text.push('?'),
            }
        }
        text.write_str(close)
    }
}

/// Why a run ended early; the reason does not matter.
#[derive(Debug)]
struct Stop;

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a dummy was refused")
    }
}

impl std::error::Error for Stop {}

impl serde::de::Error for Stop {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Stop
    }
}
