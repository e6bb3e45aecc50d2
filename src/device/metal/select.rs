//! Which of Apple's GPUs a name means.

use std::fmt;

/// The choice of a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Selector {
    /// The n-th of the system's GPUs; the first is its default.
    Index(u32),
    /// The n-th software GPU of a family of Apple's chips: 7 for Apple7.
    Emulated { family: u32, index: u32 },
}

/// Families of software GPUs.
pub(crate) const SOFTWARE_FAMILIES: &[u32] = &[5, 7, 8, 9];
/// Software GPUs of a family.
const SOFTWARE_GPUS: u32 = 4;
/// The family of `METAL:emu`.
const COMMON_FAMILY: u32 = 7;

impl Selector {
    /// Parses the text after `METAL:`; `None` selects the first GPU.
    #[must_use]
    pub fn parse(rest: Option<&str>) -> Option<Self> {
        let Some(rest) = rest else { return Some(Self::Index(0)) };
        if let Ok(index) = rest.parse::<u32>() {
            return (index < 64).then_some(Self::Index(index));
        }
        let lower = rest.to_ascii_lowercase();
        let (index, which) = match lower.split_once(':') {
            Some((index, which)) => (index.parse().ok().filter(|n| (1..SOFTWARE_GPUS).contains(n))?, which),
            None => (0, &*lower),
        };
        match which.split_once('=') {
            None if which == "emu" => Some(Self::Emulated { family: COMMON_FAMILY, index }),
            Some(("emu", family)) => {
                let family = family.strip_prefix("apple")?.parse().ok()?;
                SOFTWARE_FAMILIES.contains(&family).then_some(Self::Emulated { family, index })
            }
            _ => None,
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(0) => f.write_str("METAL"),
            Self::Index(n) => write!(f, "METAL:{n}"),
            Self::Emulated { family, index } => {
                f.write_str("METAL:")?;
                if *index > 0 {
                    write!(f, "{index}:")?;
                }
                f.write_str("emu")?;
                if *family == COMMON_FAMILY { Ok(()) } else { write!(f, "=apple{family}") }
            }
        }
    }
}
