//! Releases of NVIDIA's driver, and which form of a struct each has.
//!
//! Source: the headers of 580.142 and 595.45 compiled (`tests/nv_layout.tsv`); for 535 to 570 the tables that gVisor's
//! nvproxy has for each release, and for 610 to 620, which moved the fields of channels. UNMAP_MEMORY_DMA, MIGRATE and
//! ALLOC_SEMAPHORE_POOL of releases before 550 are not described: nothing here makes those calls. Fields that a release
//! appended to a struct are a length here; a struct whose fields moved is a struct of its own.

use std::fmt;

/// A release, as `580.159.04`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

/// Releases whose structs are known: by major number, each as it is in the public headers or in nvproxy's tables.
pub(crate) const KNOWN_MAJORS: &[std::ops::RangeInclusive<u32>] = &[535..=595, 610..=610, 615..=615, 620..=620];
/// The release that moved the fields of NV_CHANNEL_ALLOC_PARAMS.
pub const CHANNELS_MOVED: u32 = 610;

/// Why a release is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReleaseError {
    #[error("driver release {0:?} is not of the form 580.159.04")]
    Malformed(String),
    #[error("driver release {0} is unknown; known are 535 to 595, 610, 615 and 620")]
    Untested(Release),
}

impl Release {
    /// Parses a release's name, as `CHECK_VERSION_STR` returns it.
    ///
    /// # Errors
    /// A name of another form.
    pub fn parse(name: &str) -> Result<Self, ReleaseError> {
        let malformed = || ReleaseError::Malformed(name.chars().take(40).collect());
        let mut parts = name.trim_end_matches(['\0', '\n']).split('.');
        let mut number = || parts.next().and_then(|p| p.parse::<u32>().ok());
        let (major, minor) = (number().ok_or_else(malformed)?, number().ok_or_else(malformed)?);
        // Some branches have two parts only.
        let patch = number().unwrap_or(0);
        Ok(Self { major, minor, patch })
    }

    /// The same if its structs are known.
    ///
    /// # Errors
    /// `Untested` for a major number whose structs are not known.
    pub fn known(self) -> Result<Self, ReleaseError> {
        let is_known = KNOWN_MAJORS.iter().any(|range| range.contains(&self.major));
        if is_known { Ok(self) } else { Err(ReleaseError::Untested(self)) }
    }

    /// Bytes of a struct of which this release has only the beginning: `name` is C's, `len_bytes` what release 580 has.
    #[must_use]
    pub fn len_bytes(self, name: &str, len_bytes: u32) -> u32 {
        let grown = GROWN.iter().filter(|(grown, since, _)| *grown == name && self.major < *since);
        grown.map(|(_, _, before)| *before).min().unwrap_or(len_bytes)
    }
}

/// Structs that grew at their end: name, the major that brought the longer form, bytes before.
pub(crate) const GROWN: &[(&str, u32, u32)] = &[
    ("NV_MEMORY_ALLOCATION_PARAMS", 545, 120),
    ("NV_CHANNEL_ALLOC_PARAMS", 570, 360),
    ("NV_VASPACE_ALLOCATION_PARAMETERS", 580, 48),
];

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.major, self.minor)?;
        if self.patch != 0 { write!(f, ".{:02}", self.patch) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_releases_are_read_and_compared() {
        let release = Release::parse("580.159.04\0\0").unwrap();
        assert_eq!((release.major, release.minor, release.patch), (580, 159, 4));
        assert_eq!(release.to_string(), "580.159.04");
        assert!(Release::parse("595.45.04").unwrap() > release);
        assert_eq!(Release::parse("580.142").unwrap().to_string(), "580.142");
        for bad in ["", "580", "580.x.1", "next-580.1"] {
            assert!(matches!(Release::parse(bad), Err(ReleaseError::Malformed(_))), "{bad}");
        }
    }

    #[test]
    fn unknown_releases_are_those_between_and_beyond_the_known_ones() {
        let known = |major| Release { major, minor: 1, patch: 1 }.known().is_ok();
        assert!([535, 550, 570, 580, 595, 610, 615, 620].into_iter().all(known));
        assert!(![534, 596, 600, 611, 619, 621, 700].into_iter().any(known));
        let error = Release::parse("630.10.02").unwrap().known().unwrap_err();
        assert_eq!(error.to_string(), "driver release 630.10.02 is unknown; known are 535 to 595, 610, 615 and 620");
    }

    #[test]
    fn older_releases_have_the_beginning_of_some_structs() {
        let at = |major, name, len| Release { major, minor: 0, patch: 0 }.len_bytes(name, len);
        let channel = "NV_CHANNEL_ALLOC_PARAMS";
        assert_eq!([535, 550, 570, 580, 595].map(|m| at(m, channel, 368)), [360, 360, 368, 368, 368]);
        assert_eq!([570, 580].map(|m| at(m, "NV_VASPACE_ALLOCATION_PARAMETERS", 56)), [48, 56]);
        assert_eq!([535, 545].map(|m| at(m, "NV_MEMORY_ALLOCATION_PARAMS", 128)), [120, 128]);
        assert_eq!(at(535, "NVOS54_PARAMETERS", 32), 32);
    }
}
