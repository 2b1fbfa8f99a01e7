//! How records of Kafka become items.

use std::fmt;
use std::rc::Rc;

use isochrone_engine::record::Record;
use isochrone_engine::{Error, Result};

use super::settings::Tombstones;
use crate::format::{Decoder, Format};
use crate::kafka::record::{KafkaRecord, KafkaRecordRef};

/// A description of how records become items.
pub trait Decode: Clone + 'static {
    /// What a record becomes.
    type Item: Record;
    /// What decodes one record after the other.
    type Decoder: DecodeRecord<Item = Self::Item>;

    /// A decoder for one partition.
    fn decoder(&self) -> Result<Self::Decoder>;
}

/// Decodes records, reusing its buffers from one to the next.
pub trait DecodeRecord: 'static {
    /// What a record becomes.
    type Item;

    /// Decodes a record. `None` says that it is nothing to this source; an error says what is wrong,
    /// for people.
    fn decode(&mut self, record: &KafkaRecordRef<'_>) -> Result<Option<Self::Item>, String>;
}

/// Values alone, in a format; made by [`super::KafkaTopic::format`].
#[derive(Clone, Debug)]
pub struct Values<F> {
    pub(super) format: F,
    pub(super) tombstones: Tombstones,
}

/// Decodes values; made by [`Values`].
#[derive(Debug)]
pub struct ValuesDecoder<D> {
    decoder: D,
    tombstones: Tombstones,
}

impl<F: Format> Decode for Values<F> {
    type Item = F::Item;
    type Decoder = ValuesDecoder<F::Decoder>;

    fn decoder(&self) -> Result<Self::Decoder> {
        if self.format.has_header() {
            return Err(Error::invalid(
                "this format has a header above its records, and a record of Kafka has nothing \
                 above it; use one without, such as JSON",
            ));
        }
        Ok(ValuesDecoder { decoder: self.format.decoder(None)?, tombstones: self.tombstones })
    }
}

impl<D: Decoder> DecodeRecord for ValuesDecoder<D> {
    type Item = D::Item;

    #[inline]
    fn decode(&mut self, record: &KafkaRecordRef<'_>) -> Result<Option<D::Item>, String> {
        match (record.value(), self.tombstones) {
            // What is no record in a file, such as an empty line, was meant to be one here.
            (Some(value), _) => match self.decoder.decode(value)? {
                None => Err("a value without anything in it".to_owned()),
                item => Ok(item),
            },
            (None, Tombstones::Skip) => Ok(None),
            (None, Tombstones::Malformed) => Err(
                "a tombstone: it has no value; skip tombstones, or take keys and values into account"
                    .to_owned(),
            ),
        }
    }
}

/// Records as they are; made by [`super::KafkaTopic::records`].
#[derive(Clone, Copy, Debug)]
pub struct Records;

impl Decode for Records {
    type Item = KafkaRecord;
    type Decoder = Records;

    fn decoder(&self) -> Result<Records> {
        Ok(Records)
    }
}

impl DecodeRecord for Records {
    type Item = KafkaRecord;

    fn decode(&mut self, record: &KafkaRecordRef<'_>) -> Result<Option<KafkaRecord>, String> {
        Ok(Some(record.to_record()))
    }
}

/// What a function makes of each record; made by [`super::KafkaTopic::decode_record`].
pub struct ByRecord<F>(pub(super) Rc<F>);

impl<F> Clone for ByRecord<F> {
    fn clone(&self) -> Self {
        ByRecord(Rc::clone(&self.0))
    }
}

impl<F> fmt::Debug for ByRecord<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ByRecord")
    }
}

impl<T, F> Decode for ByRecord<F>
where
    T: Record,
    F: Fn(&KafkaRecordRef<'_>) -> Result<Option<T>, String> + 'static,
{
    type Item = T;
    type Decoder = ByRecord<F>;

    fn decoder(&self) -> Result<ByRecord<F>> {
        Ok(self.clone())
    }
}

impl<T, F> DecodeRecord for ByRecord<F>
where
    F: Fn(&KafkaRecordRef<'_>) -> Result<Option<T>, String> + 'static,
{
    type Item = T;

    #[inline]
    fn decode(&mut self, record: &KafkaRecordRef<'_>) -> Result<Option<T>, String> {
        (self.0)(record)
    }
}
