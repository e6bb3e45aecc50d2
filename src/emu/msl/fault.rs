//! What goes wrong while a kernel runs.

use crate::error::Pos;
use std::fmt;

/// The kind of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// An access outside of a buffer, of threadgroup memory or of a thread's own variables.
    OutOfBounds {
        /// `buffer 2 'out'`, `threadgroup memory` and so on.
        memory: Box<str>,
        /// First byte of the access, from the start of the binding.
        offset: i64,
        /// Bytes of the access.
        bytes: u32,
        /// Bytes of the memory.
        len: u64,
        /// A store.
        write: bool,
    },
    /// An address that is not a multiple of the type's alignment.
    Misaligned {
        /// As for `OutOfBounds`.
        memory: Box<str>,
        /// First byte of the access.
        offset: i64,
        /// Alignment of the type.
        align: u32,
    },
    /// A store to memory that may only be read.
    ReadOnly {
        /// As for `OutOfBounds`.
        memory: Box<str>,
    },
    /// A null pointer, or one that was not made from a parameter or a variable.
    Pointer,
    /// A value that nothing has written: of a variable or of threadgroup memory.
    Uninitialised {
        /// Which.
        what: Box<str>,
    },
    /// Two simdgroups use the same byte of threadgroup memory without a barrier between, one of them for a store of
    /// another value.
    Race {
        /// Offset in the variables of the threadgroup, or in the argument.
        offset: u64,
        /// The access that was found second is a store.
        write: bool,
    },
    /// A barrier that some threads of the group do not reach.
    DivergentBarrier,
    /// An operation on simdgroup matrices that not all 32 lanes reach.
    PartialSimdgroup,
    /// More steps than the launch allows.
    Steps,
    /// The launch's flag to stop was set.
    Stopped,
    /// The launch does not fit the kernel.
    Launch(Box<str>),
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfBounds { memory, offset, bytes, len, write } => {
                let what = if *write { "store" } else { "load" };
                write!(f, "{what} of {bytes} bytes at offset {offset} of {memory}, which has {len} bytes")
            }
            Self::Misaligned { memory, offset, align } => {
                write!(f, "access at offset {offset} of {memory} is not aligned to {align} bytes")
            }
            Self::ReadOnly { memory } => write!(f, "store to {memory}, which is read-only"),
            Self::Pointer => f.write_str("access through a null or invalid pointer"),
            Self::Uninitialised { what } => write!(f, "read of {what}, which has no value yet"),
            Self::Race { offset, write } => {
                let what = if *write { "store" } else { "load" };
                write!(
                    f,
                    "{what} at offset {offset} of threadgroup memory races with another simdgroup: no barrier between"
                )
            }
            Self::DivergentBarrier => f.write_str("a barrier that not all threads of the threadgroup reach"),
            Self::PartialSimdgroup => f.write_str("a simdgroup matrix operation that not all 32 lanes reach"),
            Self::Steps => f.write_str("more steps than the launch allows"),
            Self::Stopped => f.write_str("stopped by the host"),
            Self::Launch(text) => f.write_str(text),
        }
    }
}

/// A fault, with the place in the source and the thread.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub struct Fault {
    /// The kernel.
    pub kernel: Box<str>,
    /// What went wrong.
    pub kind: FaultKind,
    /// Line and column of the source; none for a launch that did not start.
    pub at: Option<Pos>,
    /// That line.
    pub source_line: Box<str>,
    /// Position of the thread in the grid.
    pub thread: Option<[u32; 3]>,
    /// Position of its threadgroup.
    pub group: Option<[u32; 3]>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel '{}'", self.kernel)?;
        if let Some(at) = self.at {
            write!(f, " program_source:{}:{}", at.line, at.column)?;
        }
        if let Some([x, y, z]) = self.thread {
            write!(f, " thread ({x}, {y}, {z})")?;
        }
        if let Some([x, y, z]) = self.group {
            write!(f, " of threadgroup ({x}, {y}, {z})")?;
        }
        write!(f, ": {}", self.kind)?;
        if !self.source_line.is_empty() {
            write!(f, "\n{}", self.source_line)?;
        }
        Ok(())
    }
}

/// The text of `Display`: what `?` out of `main` prints.
impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A fault inside a simdgroup, before it is known which.
pub(crate) struct Trouble {
    pub kind: FaultKind,
    pub lane: Option<u32>,
}

pub(crate) type Run<T> = Result<T, Trouble>;

pub(crate) fn trouble<T>(kind: FaultKind, lane: usize) -> Run<T> {
    Err(Trouble { kind, lane: Some(lane as u32) })
}
