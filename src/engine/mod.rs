//! Realize, program cache, JIT, counters, profile; and the reference interpreter.

pub mod interp;
