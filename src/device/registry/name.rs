//! Device names: parsing and printing.
//!
//! Grammar: `KIND`, `KIND:index`, `DISK:path`, `AMD:gfx1100`, `AMD:bdf=0000:03:00.0`, `AMD:emu=gfx1100`,
//! `AMD:1:emu=gfx1100`, `NV:uuid=GPU-...`, `NV:emu=sm_90`, `NV:1:emu=sm_90`, `METAL:emu`, `METAL:emu=apple9`,
//! `NULL:sm_90a`; kinds in any case; `CPU` and `CPU:0` are the same device, `CUDA` is another word for `NV`.

use crate::DeviceError;
#[cfg(feature = "amd")]
use crate::amd;
#[cfg(feature = "metal")]
use crate::metal;
#[cfg(feature = "nv")]
use crate::nv;
use std::path::PathBuf;

/// Names that can be opened, for messages.
pub(crate) const VALID: &str = "CPU, CPU:n, NULL, NULL:arch, DISK:path, AMD, AMD:n, AMD:bdf=0000:03:00.0, AMD:gfx1100, AMD:emu=gfx1100, \
     NV, NV:n, NV:bdf=0000:03:00.0, NV:uuid=GPU-01234567, NV:emu=sm_90, \
     METAL, METAL:n, METAL:emu, METAL:emu=apple9";
/// Known names that this build does not support.
pub(super) const KNOWN_ABSENT: &[&str] = &[
    #[cfg(not(feature = "metal"))]
    "METAL",
    #[cfg(not(feature = "cpu"))]
    "CPU",
    #[cfg(not(feature = "amd"))]
    "AMD",
    #[cfg(not(feature = "nv"))]
    "NV",
];
/// First words of names that no device of a program's own may have.
const KINDS: [&str; 8] = ["CPU", "AMD", "NV", "CUDA", "METAL", "NULL", "DISK", "HOST"];

/// The kinds of devices that compute.
pub fn computing_kinds() -> impl Iterator<Item = &'static str> {
    KINDS.into_iter().filter(|kind| !["DISK", "HOST"].contains(kind))
}

/// Above any sensible number of CPU devices.
const MAX_INDEX: u32 = 63;

/// The number of a software GPU among those of its chip, and the rest of its name: `1:emu=sm_90`. `None`: no number.
#[cfg(any(feature = "amd", feature = "nv"))]
pub(crate) fn software_index(text: &str) -> Option<(u32, &str)> {
    match text.split_once(':') {
        Some((index, rest)) if rest.starts_with("emu=") => {
            index.parse().ok().filter(|n| *n < 64).map(|index| (index, rest))
        }
        _ => Some((0, text)),
    }
}

/// A parsed name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DeviceName {
    #[cfg(feature = "cpu")]
    Cpu(u32),
    /// With the nominal arch, if the name has one.
    Null(Option<String>),
    Disk(PathBuf),
    #[cfg(feature = "amd")]
    Amd(amd::Selector),
    #[cfg(feature = "nv")]
    Nv(nv::Selector),
    #[cfg(feature = "metal")]
    Metal(metal::Selector),
    /// A device of the program's own, under a name that [`super::Registry::insert`] was given: never parsed from text
    /// alone.
    Custom(String),
}

impl std::fmt::Display for DeviceName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            #[cfg(feature = "cpu")]
            Self::Cpu(0) => f.write_str("CPU"),
            #[cfg(feature = "cpu")]
            Self::Cpu(index) => write!(f, "CPU:{index}"),
            Self::Null(None) => f.write_str("NULL"),
            Self::Null(Some(arch)) => write!(f, "NULL:{arch}"),
            Self::Disk(path) => write!(f, "DISK:{}", path.display()),
            #[cfg(feature = "amd")]
            Self::Amd(selector) => write!(f, "{selector}"),
            #[cfg(feature = "nv")]
            Self::Nv(selector) => write!(f, "{selector}"),
            #[cfg(feature = "metal")]
            Self::Metal(selector) => write!(f, "{selector}"),
            Self::Custom(name) => f.write_str(name),
        }
    }
}

impl std::str::FromStr for DeviceName {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, DeviceError> {
        let unknown = || DeviceError::Unknown { asked: text.into(), valid: VALID.into() };
        let (kind, rest) = text.trim().split_once(':').map_or((text.trim(), None), |(kind, rest)| (kind, Some(rest)));
        let kind = kind.to_ascii_uppercase();
        let index = || match rest {
            None => Ok(0),
            Some(n) => n.parse::<u32>().ok().filter(|&n| n <= MAX_INDEX).ok_or_else(unknown),
        };
        match (kind.as_str(), rest) {
            #[cfg(feature = "cpu")]
            ("CPU", _) => Ok(Self::Cpu(index()?)),
            ("NULL", Some(arch)) if arch.starts_with(|c: char| c.is_ascii_alphabetic()) => {
                Ok(Self::Null(Some(arch.into())))
            }
            ("NULL", _) if index()? == 0 => Ok(Self::Null(None)),
            ("DISK", Some(path)) if !path.is_empty() => Ok(Self::Disk(path.into())),
            #[cfg(feature = "amd")]
            ("AMD", rest) => amd::Selector::parse(rest).map(Self::Amd).ok_or_else(unknown),
            #[cfg(feature = "nv")]
            ("NV" | "CUDA", rest) => nv::Selector::parse(rest).map(Self::Nv).ok_or_else(unknown),
            #[cfg(feature = "metal")]
            ("METAL", rest) => metal::Selector::parse(rest).map(Self::Metal).ok_or_else(unknown),
            (absent, _) if is_absent(absent) => {
                Err(DeviceError::NotInBuild { name: absent.into(), valid: VALID.into() })
            }
            _ => Err(unknown()),
        }
    }
}

impl DeviceName {
    /// Whether it is a software GPU: its times say nothing of a card.
    #[must_use]
    pub fn is_software(&self) -> bool {
        match self {
            #[cfg(feature = "amd")]
            Self::Amd(selector) => matches!(selector, amd::Selector::Emulated { .. }),
            #[cfg(feature = "nv")]
            Self::Nv(selector) => matches!(selector, nv::Selector::Emulated { .. }),
            #[cfg(feature = "metal")]
            Self::Metal(selector) => matches!(selector, metal::Selector::Emulated { .. }),
            _ => false,
        }
    }

    /// A name that no device of this crate has: a kind of letters and digits, perhaps with a number or a word after a
    /// colon; the kind in any case, `TOY` and `TOY:0` are the same device.
    ///
    /// # Errors
    /// `Unknown` for a name of another form, or of a kind that the crate knows but lacks.
    pub fn custom(text: &str) -> Result<Self, DeviceError> {
        let text = text.trim();
        let (kind, rest) = text.split_once(':').map_or((text, None), |(kind, rest)| (kind, Some(rest)));
        let is_word = |w: &str| !w.is_empty() && w.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let kind_is_ours = KINDS.iter().any(|ours| ours.eq_ignore_ascii_case(kind));
        let starts = kind.starts_with(|c: char| c.is_ascii_alphabetic());
        if !is_word(kind) || !starts || kind_is_ours || !rest.is_none_or(is_word) {
            let valid = format!("{VALID}, or a word of letters and digits for a device of your own");
            return Err(DeviceError::Unknown { asked: text.into(), valid });
        }
        let kind = kind.to_ascii_uppercase();
        Ok(Self::Custom(rest.filter(|rest| *rest != "0").map_or(kind.clone(), |rest| format!("{kind}:{rest}"))))
    }
}

/// Whether devices of that kind exist, but not in this build.
fn is_absent(kind: &str) -> bool {
    let kind = if kind == "CUDA" { "NV" } else { kind };
    KNOWN_ABSENT.contains(&kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_one_device_are_one_name() {
        let parse = |t: &str| t.parse::<DeviceName>().unwrap();
        assert_eq!(parse("cpu"), parse("CPU:0"));
        assert_eq!(parse("CPU:1").to_string(), "CPU:1");
        assert_eq!(parse("DISK:a:b"), DeviceName::Disk("a:b".into()));
        assert_eq!(parse("null"), DeviceName::Null(None));
        assert_eq!(parse("null:sm_90a").to_string(), "NULL:sm_90a");
        assert_eq!(parse("amd:0"), parse("AMD"));
        assert_eq!(parse("AMD:EMU=GFX1100").to_string(), "AMD:emu=gfx1100");
        assert_eq!((parse("cuda:1"), parse("CUDA").to_string()), (parse("NV:1"), "NV".into()));
        assert_eq!(parse("nv:emu=SM_90").to_string(), "NV:emu=sm_90");
        #[cfg(feature = "metal")]
        assert_eq!(
            (parse("metal:0").to_string(), parse("Metal:EMU=apple7").to_string()),
            ("METAL".into(), "METAL:emu".into())
        );
    }

    #[test]
    fn a_name_of_one_s_own_is_a_word_that_no_device_here_has() {
        let custom = |t: &str| DeviceName::custom(t).map(|n| n.to_string());
        assert_eq!(custom("toy").unwrap(), "TOY");
        assert_eq!(custom("Toy:0").unwrap(), custom("TOY").unwrap());
        assert_eq!(custom("toy:east").unwrap(), "TOY:east");
        for text in ["", "CPU:99", "cuda", "metal", "1TOY", "TOY:", "TO Y", "TOY:a b"] {
            assert!(custom(text).unwrap_err().to_string().starts_with("unknown device"), "{text}");
        }
    }

    #[test]
    fn wrong_names_name_the_valid_ones() {
        let error = |t: &str| t.parse::<DeviceName>().unwrap_err().to_string();
        assert!(error("GPU").starts_with("unknown device \"GPU\", valid: CPU, CPU:n, NULL, NULL:arch, DISK:path, AMD"));
        #[cfg(not(feature = "metal"))]
        assert!(error("METAL").starts_with("device METAL is not in this build, valid: CPU, "));
        for text in
            ["", "CPU:x", "CPU:-1", "CPU:64", "DISK", "DISK:", "NULL:1", "AMD:", "AMD:emu=", "AMD:x y", "NV:gfx1100"]
        {
            assert!(error(text).starts_with("unknown device"), "{text}");
        }
    }
}
