//! The scheduler from outside: values against the reference interpreter, kernel counts against tinygrad's.

mod attention;
mod counts;
mod first_use;
mod graphs;
mod programs;
mod random;
mod tensors;
mod values;
