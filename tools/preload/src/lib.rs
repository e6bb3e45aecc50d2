//! A library for LD_PRELOAD that traces a foreign program's calls to GPU drivers, with the decoder of
//! `doorbell_ioctl::trace`.
//!
//! It overrides libc's open, openat (plain, 64 and fortified), close, dup, dup2, dup3, fcntl, ioctl, mmap and munmap,
//! passes every call on unchanged, errno included, and records those on traced files. Traced are `/dev/kfd`,
//! `/dev/nvidia*`, the files in `/dev/dri/`, and the paths in `DOORBELL_TRACE_PATHS=a:b` (one that ends in `/` means
//! all below it). Lines go to standard error or to the file `DOORBELL_TRACE_TEXT` (empty: no lines);
//! `DOORBELL_TRACE=FILE` enables the binary trace as well. In both names `%p` is the process's number.
//!
//! Files are made at a process's first traced call and truncated then. A fork's child, and a process that finds the
//! file in use by another, writes its own, with its number after the name. Records are written whole and at once, so a
//! killed program's trace is whole too.
//!
//! Place in the arrows: outside the library, on `doorbell_ioctl` only. `exports` (libc's names) → `record` (calls →
//! events, mapped ranges) → `outputs` (the files); `own` and `arena` keep our own work separate from the program's,
//! `fds` and `config` define what is traced, `real` finds libc. Source: open(2), ioctl(2), mmap(2), fork(2), vfork(2),
//! dlsym(3), pthread_atfork(3), environ(7) of Linux and glibc.
//!
//! Left out:
//! - calls that bypass these functions: syscall(2), statically linked programs, set-user-ID programs, calls inside libc
//!   (fopen, opendir);
//! - stores to doorbells and other mapped memory, poll, sysfs; files that a driver returns (dma-buf) or that come over
//!   a socket;
//! - lines for dup: the new number is traced like the old one. close_range and closefrom: their numbers stay traced
//!   until opened again;
//! - mremap, and the end of a mapping by another that is put over it: the range is forgotten without a line;
//! - the child of vfork or of a bare clone until it calls exec: it shares this memory, its calls are passed on only;
//! - calls of a signal handler in the middle of a fork, or in the middle of our own start: passed on only;
//! - open flags beyond the four that a trace knows, and numbers of files from 2^20 on;
//! - a program that replaces our file by one of its own with dup2: the trace ends there. Closing ours is EBADF, as if
//!   it were not open.
#![cfg(target_os = "linux")]
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

mod arena;
mod config;
mod exports;
mod fds;
mod outputs;
mod own;
mod ranges;
mod real;
mod record;
