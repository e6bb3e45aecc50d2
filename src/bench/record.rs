//! Results as data: what JSON files hold, what `compare` reads.
//!
//! The schema has a number; a file of another one is refused.

use crate::case::{Unit, Value};
use crate::stats::Summary;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Number of this form of the file.
pub(crate) const SCHEMA: u32 = 1;

/// What stands in place of a case's name for a device that could not be opened.
pub(crate) const UNOPENED: &str = "open";

/// How a case ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Ok,
    /// The device has none of it.
    LeftOut,
    /// It computed something wrong.
    Wrong,
    Failed,
    /// The device did not end in time.
    Hung,
    /// The device ended its work, or a fault did.
    Lost,
}

impl Status {
    /// Its word in files.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::LeftOut => "left_out",
            Self::Wrong => "wrong",
            Self::Failed => "failed",
            Self::Hung => "hung",
            Self::Lost => "lost",
        }
    }

    /// Whether the device does no more work.
    #[must_use]
    pub(crate) const fn ends_device(self) -> bool {
        matches!(self, Self::Hung | Self::Lost)
    }

    /// Whether something is wrong with the device or the program.
    #[must_use]
    pub const fn is_bad(self) -> bool {
        !matches!(self, Self::Ok | Self::LeftOut)
    }
}

/// A whole run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    pub schema: u32,
    pub version: String,
    /// Seconds since 1970.
    pub unix_time: u64,
    pub host: Host,
    pub settings: BTreeMap<String, serde_json::Value>,
    pub devices: Vec<DeviceRecord>,
    pub results: Vec<CaseRecord>,
    pub seconds: f64,
}

/// The machine around the devices.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Host {
    pub name: String,
    pub kernel: String,
    pub cpu: String,
    /// Cores that the process may use.
    pub cores: usize,
    /// Which ones, as the system lists them (`0-3,8`). The threads of a CPU device are not pinned to single ones.
    #[serde(default)]
    pub allowed: String,
}

/// A device of the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeviceRecord {
    pub name: String,
    pub arch: String,
    pub units: u32,
    pub memory_bytes: u64,
    pub is_software: bool,
    /// What the driver says of it, before and after.
    pub state: serde_json::Value,
    pub state_after: serde_json::Value,
}

/// A case at one point of its axes on one device.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CaseRecord {
    pub device: String,
    /// `name[parameter=value,...]`.
    pub id: String,
    pub case: String,
    pub parameters: BTreeMap<String, Value>,
    pub status: Status,
    /// Why it is not `Ok`.
    pub reason: Option<String>,
    pub unit: Unit,
    /// The value at the median time; `null` without samples.
    pub value: Option<f64>,
    /// Work of one run: bytes, operations, or how many share the time.
    pub work: f64,
    /// Which clock: `device` or `host`.
    pub clock: String,
    /// Nanoseconds of one run.
    pub ns: Option<Summary>,
    /// Runs that one sample is the mean of.
    pub runs: u64,
    /// Samples in the order in which they were taken, a list for each pass; nanoseconds of one run.
    pub samples: Vec<Vec<f64>>,
    /// Numbers of samples (through all passes) that were taken while the clock was low.
    pub throttled: usize,
    /// Which ones: pass, first sample and the one after the last, from 0 on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub throttled_at: Vec<[usize; 3]>,
    /// MHz of a core, counted in kernels: lowest and highest during the case.
    pub clock_mhz: Option<[f64; 2]>,
    /// Nanoseconds that making, the first run and the check took.
    pub made_ns: u64,
    /// The other devices that ran it at the same time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub together: Vec<String>,
    /// How sampling ended: `precision`, `budget` or `samples`.
    pub ended: String,
    /// What the driver said of the device after the samples.
    pub telemetry: serde_json::Value,
}

impl CaseRecord {
    /// Whether it stands for a device that could not be opened.
    #[must_use]
    pub(crate) fn is_unopened(&self) -> bool {
        self.case == UNOPENED && self.status.is_bad()
    }

    /// Whether a sample was taken while the clock was low.
    #[must_use]
    pub(crate) fn is_throttled(&self, pass: usize, sample: usize) -> bool {
        self.throttled_at.iter().any(|[of, first, end]| *of == pass && (*first..*end).contains(&sample))
    }

    /// All samples.
    #[must_use]
    pub fn all_samples(&self) -> Vec<f64> {
        self.samples.concat()
    }
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("{path}: {source}")]
    File { path: String, source: std::io::Error },
    #[error("{path}: no record of a benchmark: {why}")]
    Malformed { path: String, why: String },
    #[error("{path}: schema {found}, this program reads {SCHEMA}")]
    Schema { path: String, found: u32 },
}

impl Record {
    /// Reads a file that `--out` or `--json` made; of several lines the last counts.
    ///
    /// # Errors
    /// The file, its JSON, its schema.
    pub fn read(path: &std::path::Path) -> Result<Self, RecordError> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| RecordError::File { path: name.clone(), source })?;
        Self::parse(&name, &text)
    }

    /// As `read`, from the text.
    ///
    /// # Errors
    /// As `read`.
    pub fn parse(name: &str, text: &str) -> Result<Self, RecordError> {
        #[derive(Deserialize)]
        struct Head {
            schema: u32,
        }
        let malformed = |e: serde_json::Error| RecordError::Malformed { path: name.into(), why: e.to_string() };
        let last = text.trim_end().lines().last().unwrap_or_default();
        let text = if serde_json::from_str::<Head>(last).is_ok() { last } else { text };
        let head: Head = serde_json::from_str(text).map_err(malformed)?;
        if head.schema != SCHEMA {
            return Err(RecordError::Schema { path: name.into(), found: head.schema });
        }
        serde_json::from_str(text).map_err(malformed)
    }
}
