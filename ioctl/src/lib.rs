//! Kernel interfaces as data (`abi`) and the only place that makes system calls (`port`).
