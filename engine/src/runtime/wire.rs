//! What processes of a run say to one another over their control links, as JSON.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use isochrone_persistence::ids::Epoch;
use isochrone_persistence::lineage::Hold;
use isochrone_persistence::manifest::Manifest;
use isochrone_persistence::{Error, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::message::{Order, Report};
use crate::cluster::mesh::RunToken;

/// To process 0.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Upward {
    /// Where the sender takes data connections.
    Listening {
        address: SocketAddr,
    },
    /// It has its share of the checkpoint.
    Loaded,
    Report(Report),
}

/// From process 0.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Downward {
    Start(Box<Start>),
    /// All have their share: they connect with one another.
    Connect,
    /// There will be no run: process 0 was asked to stop.
    Leave,
    Order(Order),
}

/// Where a run begins.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) token: RunToken,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) hold: Hold,
    /// Of the job.
    pub(crate) origin: String,
    pub(crate) epoch: Epoch,
    /// What each sink goes on with, by operator; see `Committer::history`.
    pub(crate) histories: BTreeMap<usize, String>,
    /// The manifest to restore from.
    pub(crate) from: Option<Manifest>,
}

impl Upward {
    pub(crate) fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Upward> {
        decode(bytes)
    }
}

impl Downward {
    pub(crate) fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Downward> {
        decode(bytes)
    }
}

fn encode(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("messages are plain data with string keys")
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|error| {
        Error::internal("a process of this run sent a message that does not decode")
            .with_source(error)
    })
}
