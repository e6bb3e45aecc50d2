//! The cards of a machine, as the driver lists them, and the selection of one by a user's string.
//!
//! Layer: queries a [`Driver`]; `mod.rs` opens the selected card. Source: docs/nv.md 1.3 (`nv_ioctl_card_info_t`), 2
//! (steps 4 to 6).

use super::driver::{Driver, RmError};
use crate::registry::software_index;
use doorbell_elf::cubin::is_arch;
use doorbell_ioctl::abi::nvrm;

/// GPU_GET_UUID_FROM_GPU_ID flag: return the 16 bytes, not their text.
const UUID_BINARY: u32 = 2;

/// One card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    pub gpu_id: u32,
    /// Minor number of its device file.
    pub minor: u32,
    /// Domain, bus, device, function: `0000:03:00.0`.
    pub bdf: String,
    pub device_id: u16,
    /// Bytes of the host's window to VRAM (BAR1).
    pub bar1_bytes: u64,
}

impl Card {
    /// Path of its device file.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/dev/nvidia{}", self.minor)
    }
}

/// Which GPU a user wants.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Selector {
    /// The n-th card, from 0.
    Index(u32),
    /// `bdf=0000:03:00.0`
    Bdf(String),
    /// `uuid=GPU-...`: the leading hexadecimal digits, as many as identify the card.
    Uuid(String),
    /// `emu=sm_90`, `1:emu=sm_90`: the n-th software GPU of that chip, from 0.
    Emulated { chip: String, index: u32 },
}

impl Selector {
    /// Parses the text after `NV:`; `None` selects the first GPU.
    #[must_use]
    pub fn parse(rest: Option<&str>) -> Option<Self> {
        let Some(rest) = rest else { return Some(Self::Index(0)) };
        if let Ok(index) = rest.parse::<u32>() {
            return (index < 64).then_some(Self::Index(index));
        }
        let lower = rest.to_ascii_lowercase();
        let (index, lower) = software_index(&lower)?;
        match lower.split_once('=')? {
            ("bdf", bdf) if bdf.len() >= 7 => Some(Self::Bdf(bdf.into())),
            ("uuid", uuid) => {
                let digits: String = uuid.trim_start_matches("gpu-").chars().filter(|c| *c != '-').collect();
                let is_hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
                ((4..=32).contains(&digits.len()) && is_hex).then_some(Self::Uuid(digits))
            }
            ("emu", chip) if is_arch(chip) => Some(Self::Emulated { chip: chip.into(), index }),
            _ => None,
        }
    }

    /// The selected card. Selecting by UUID queries the driver for each card.
    ///
    /// # Errors
    /// The driver's, for a UUID.
    pub fn pick<'a>(&self, cards: &'a [Card], driver: &Driver) -> Result<Option<&'a Card>, RmError> {
        Ok(match self {
            Self::Index(index) => cards.get(*index as usize),
            Self::Emulated { index, .. } => cards.get(*index as usize),
            Self::Bdf(bdf) => cards.iter().find(|c| c.bdf.ends_with(bdf.as_str())),
            Self::Uuid(digits) => {
                for card in cards {
                    if hex(&uuid_of(driver, card.gpu_id)?).starts_with(digits.as_str()) {
                        return Ok(Some(card));
                    }
                }
                None
            }
        })
    }
}

impl std::fmt::Display for Selector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Index(0) => f.write_str("NV"),
            Self::Index(index) => write!(f, "NV:{index}"),
            Self::Bdf(bdf) => write!(f, "NV:bdf={bdf}"),
            Self::Uuid(digits) => write!(f, "NV:uuid={digits}"),
            Self::Emulated { chip, index: 0 } => write!(f, "NV:emu={chip}"),
            Self::Emulated { chip, index } => write!(f, "NV:{index}:emu={chip}"),
        }
    }
}

/// A UUID's digits without dashes.
fn hex(uuid: &[u8; 16]) -> String {
    uuid.iter().map(|b| format!("{b:02x}")).collect()
}

/// `GPU-01234567-89ab-...`
#[must_use]
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let h = hex(uuid);
    format!("GPU-{}-{}-{}-{}-{}", &h[..8], &h[8..12], &h[12..16], &h[16..20], &h[20..])
}

fn uuid_of(driver: &Driver, gpu_id: u32) -> Result<[u8; 16], RmError> {
    let mut args = nvrm::UuidFromGpuId { gpu_id, flags: UUID_BINARY, ..Default::default() };
    driver.control(driver.client(), &nvrm::GPU_GET_UUID_FROM_GPU_ID, &mut args)?;
    Ok(std::array::from_fn(|n| args.gpu_uuid[n]))
}

/// All cards, in the driver's order.
///
/// # Errors
/// The driver's.
pub fn cards(driver: &Driver) -> Result<Vec<Card>, RmError> {
    let mut infos = nvrm::CardInfos::default();
    driver.call(driver.ctl(), &nvrm::CARD_INFO, &mut infos, "", |_| 0)?;
    let valid = infos.cards.iter().filter(|c| c.valid != 0);
    Ok(valid
        .map(|c| Card {
            gpu_id: c.gpu_id,
            minor: c.minor_number,
            bdf: format!("{:04x}:{:02x}:{:02x}.{}", c.domain, c.bus, c.slot, c.function),
            device_id: c.device_id,
            bar1_bytes: c.fb_size,
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_read_as_written_and_printed_back() {
        let parse = |t| Selector::parse(Some(t));
        assert_eq!(Selector::parse(None), Some(Selector::Index(0)));
        assert_eq!(parse("1").unwrap().to_string(), "NV:1");
        assert_eq!(parse("bdf=0000:03:00.0").unwrap().to_string(), "NV:bdf=0000:03:00.0");
        assert_eq!(parse("UUID=GPU-01AB-23cd"), Some(Selector::Uuid("01ab23cd".into())));
        assert_eq!(parse("emu=sm_90").unwrap().to_string(), "NV:emu=sm_90");
        assert_eq!(parse("2:emu=sm_90").unwrap().to_string(), "NV:2:emu=sm_90");
        for wrong in ["1:uuid=0123", "x:emu=sm_90", "", "64", "x", "uuid=xyz", "uuid=1", "emu=gfx1100", "bdf=3"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn uuid_is_printed_in_groups() {
        let uuid = std::array::from_fn(|n| n as u8);
        assert_eq!(uuid_text(&uuid), "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f");
    }
}
