//! The references of `tests/ops_numpy` on a device. A program of its own: equal graphs are one graph in a process, so a
//! value that a device has realized would be a buffer in the interpreter's tests too.

#[path = "../ops_numpy/compare.rs"]
mod compare;
mod device;
#[path = "../ops_numpy/reader.rs"]
mod reader;
#[path = "../ops_numpy/runs.rs"]
mod runs;
#[path = "../ops_numpy/tensors.rs"]
mod tensors;
