//! Why bytes are no package.

use thiserror::Error;

/// What is wrong with a file, and where. Offsets count from the start of the file.
#[derive(Clone, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PackageError {
    /// Other bytes than a package's at the start.
    #[error("this is no package: it begins with {have}, a package with 89 44 42 50 0d 0a 1a 0a")]
    Foreign {
        /// The first bytes.
        have: String,
    },
    /// Written by another release of this crate.
    #[error("the package has version {have}, this loader reads version {}", crate::VERSION)]
    Version {
        /// The file's.
        have: u32,
    },
    /// The file ends early, or goes on.
    #[error("the package is {want} bytes long, the file has {have}")]
    Length {
        /// Bytes of the file.
        have: u64,
        /// What its header says.
        want: u64,
    },
    /// A checksum differs.
    #[error("{what} is damaged (bytes {from} to {to})")]
    Damaged {
        /// The part of the file.
        what: String,
        /// Its first byte.
        from: u64,
        /// The byte after its last one.
        to: u64,
    },
    /// The checksum is right and the contents make no sense.
    #[error("{what} at byte {at}: {why}")]
    Invalid {
        /// The part of the file.
        what: String,
        /// The byte where it went wrong.
        at: u64,
        /// What is wrong.
        why: String,
    },
    /// The parts do not fit together.
    #[error("{what}: {why}")]
    Inconsistent {
        /// The part of the program.
        what: String,
        /// What is wrong.
        why: String,
    },
    /// Not a number that the format has room for.
    #[error("{what} has {len} bytes or items, a package holds at most {max}")]
    TooLong {
        /// The part of the program.
        what: String,
        /// Its length.
        len: u64,
        /// The limit.
        max: u64,
    },
}

/// The text of `Display`: what `?` out of `main` prints.
impl std::fmt::Debug for PackageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
