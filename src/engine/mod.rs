//! Realize, program cache, JIT, counters, profile; and the reference interpreter.

pub mod counters;
pub mod interp;
pub mod options;
pub mod profile;

pub use counters::{Counters, Totals};
pub use options::{OptionError, Options};
