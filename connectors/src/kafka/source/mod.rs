//! Topics of Kafka as a source: a split is a partition, a position is an offset.
//!
//! Partitions are assigned by the engine, never by a consumer group, and read from explicit offsets;
//! what happens where an offset is not there is decided here, never by the client's own policy.

mod background;
mod consumer;
mod decode;
mod discover;
mod identity;
mod lag;
mod loss;
mod position;
mod reader;
mod retention;
mod seen;
mod settings;

use std::cell::RefCell;
use std::fmt;
use std::rc::{Rc, Weak};

use isochrone_engine::Result;
use isochrone_engine::connector::{Discovery, Observer, Reader, Source, Split};

pub use decode::{ByRecord, Decode, DecodeRecord, Records, Values, ValuesDecoder};
pub use position::KafkaPosition;
pub use settings::{KafkaTopic, Start, Tombstones};

use super::topics::partition_of;
use consumer::Shared;
use discover::Discoverer;
use reader::KafkaReader;
use settings::Settings;

/// A source of the records of a topic; made by [`KafkaTopic`].
pub struct KafkaSource<D> {
    settings: Settings,
    decode: D,
    /// Lives while the readers of this worker do.
    consumer: RefCell<Weak<Shared>>,
    discoverer: RefCell<Discoverer>,
}

impl<D: Decode> KafkaSource<D> {
    fn new(settings: Settings, decode: D) -> Self {
        KafkaSource {
            settings,
            decode,
            consumer: RefCell::default(),
            discoverer: RefCell::default(),
        }
    }

    fn consumer(&self) -> Result<Rc<Shared>> {
        if let Some(consumer) = self.consumer.borrow().upgrade() {
            return Ok(consumer);
        }
        let consumer = Rc::new(Shared::connect(&self.settings)?);
        *self.consumer.borrow_mut() = Rc::downgrade(&consumer);
        Ok(consumer)
    }
}

impl<D: Decode> Source for KafkaSource<D> {
    type Item = D::Item;
    type Position = KafkaPosition;

    fn discover(&self, known: &[String]) -> Result<Discovery<KafkaPosition>> {
        self.discoverer.borrow_mut().discover(&self.settings, known)
    }

    fn has_more(&self, split: &Split<KafkaPosition>) -> Result<bool> {
        discover::has_more(&self.settings, split)
    }

    fn open(&self, split: Split<KafkaPosition>) -> Result<Box<dyn Reader<D::Item, KafkaPosition>>> {
        let partition = partition_of(&split.id, &self.settings.topic)?;
        let decoder = self.decode.decoder()?;
        let consumer = self.consumer()?;
        Ok(Box::new(KafkaReader::new(consumer, partition, split.position, decoder)))
    }

    fn show(&self, position: &KafkaPosition) -> String {
        position.to_string()
    }

    fn observer(&self) -> Option<Observer<KafkaPosition>> {
        lag::observer(&self.settings)
    }
}

impl<D> fmt::Debug for KafkaSource<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSource").field("settings", &self.settings).finish_non_exhaustive()
    }
}
