//! Kernels compiled and run, against references in Rust and against clang.

mod basics;
mod clang;
mod corpus;
mod corpus_groups;
mod corpus_language;
mod corpus_math;
mod errors;
mod faults;
mod fuzz;
mod random;
