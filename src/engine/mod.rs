//! Realize, program cache, JIT, counters, profile.
