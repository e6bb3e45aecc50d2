//! x86-64 machine code against the interpreter, on both feature levels of this machine.

mod kernels;
mod machine;
mod ops;
