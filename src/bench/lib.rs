//! Benchmarks of devices: what `doorbell bench` runs. Speed is measured and data is checked by the same kernels, on
//! every device that the library opens, without a vendor's library.
//!
//! Structure: `case` and `cases` (the table: one file a family, one entry a case) → `machine` (an open device and its
//! hand-written kernels) → `measure` (warm-up, samples, when to stop), `together` (of several devices at the same time)
//! → `stats` → `record` (the results as data) → `report` (text, JSON, CSV, JUnit, SVG) and `compare`; `paired` (two
//! programs in turns); `burn` (load that is checked on the device); `verdict` (what all of it says of a device).
//! Layer: above the library; the command line is the only user. Left out: power of NVIDIA's cards, whose commands are
//! not public.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

pub mod burn;
mod case;
pub mod cases;
pub mod compare;
mod error;
mod hand;
pub mod machine;
pub mod measure;
pub mod paired;
pub mod record;
pub mod report;
pub mod run;
pub mod stats;
mod telemetry;
mod together;
pub mod verdict;

pub use case::{Case, Point, Subject, Unit};
pub use error::BenchError;
pub use machine::Machine;
pub use measure::Settings;

#[cfg(doctest)]
#[doc = include_str!("README.md")]
struct Readme;
