//! The record of a run ([`Record`]), the one HTML page that shows it ([`page::html`]), and the same answers as text
//! ([`report`], [`diff`]).
//!
//! The engine fills a record, the command line adds calls of drivers and their packets. A record is a head, which is
//! JSON, and parts that are decoded when they are looked at ([`Part`]): the graph of each realize, the rewrites and
//! code of each kernel, the events over time. The page holds both, compressed, so the file of a run is a page for
//! people and is read back by [`read::record`] for a report or a comparison.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod diff;
mod graph;
mod model;
pub mod page;
pub mod read;
pub mod report;
#[cfg(test)]
mod tests;

pub use graph::{Graph, NodeSource, Nodes};
pub use model::{
    Buffer, Calls, Candidate, Code, Events, Item, ItemKind, Kernel, Label, LabelKind, Limit, Line, Plan, PlanGraph,
    Realize, Record, RuleLine, Run, Steps, VERSION,
};

use std::io::{Read, Write};

/// A part of a record that is decoded when it is looked at: JSON, compressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its name in the file: `kernel:3`.
    pub name: String,
    /// The compressed JSON (zlib).
    pub bytes: Vec<u8>,
}

/// Why a file is not a record, or a part of one cannot be decoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExplorerError {
    /// The file has no head.
    #[error("this is no page of `doorbell viz`: it has no part named head")]
    NoHead,
    /// Written by another release.
    #[error("the record has version {have}, this program reads version {want}")]
    Version {
        /// Of the file.
        have: u32,
        /// Of this program.
        want: u32,
    },
    /// Damaged.
    #[error("part {part}: {why}")]
    Part {
        /// Its name.
        part: String,
        /// What is wrong with it.
        why: String,
    },
}

/// Most bytes that a part may have when it is decompressed: a damaged or hostile file must not fill the memory.
const LARGEST_PART: u64 = 1 << 30;

impl Part {
    /// Compresses a value.
    pub fn of<T: serde::Serialize>(name: &str, value: &T) -> Part {
        let json = serde_json::to_vec(value).unwrap_or_default();
        let mut to = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        // Writing to a Vec cannot fail.
        let bytes = to.write_all(&json).and_then(|()| to.finish()).unwrap_or_default();
        Part { name: name.into(), bytes }
    }

    /// Decompresses it and reads its JSON.
    ///
    /// # Errors
    /// `Part` for damaged bytes, JSON of another form, or more than 1 GiB.
    pub fn decode<T: serde::de::DeserializeOwned>(&self) -> Result<T, ExplorerError> {
        let fault = |why: String| ExplorerError::Part { part: self.name.clone(), why };
        let mut json = Vec::new();
        let mut from = flate2::read::ZlibDecoder::new(self.bytes.as_slice()).take(LARGEST_PART);
        from.read_to_end(&mut json).map_err(|e| fault(e.to_string()))?;
        if json.len() as u64 >= LARGEST_PART {
            return Err(fault("it has more than 1 GiB".into()));
        }
        serde_json::from_slice(&json).map_err(|e| fault(e.to_string()))
    }
}

#[cfg(doctest)]
#[doc = include_str!("README.md")]
struct Readme;
