//! One kernel → one linear program.
