//! Memory instructions by name: what is loaded, stored or combined atomically, in which space and how wide.
//! Global, flat, scratch and buffer accesses are executed here; LDS in `lds`, scalar loads in `smem`.
//!
//! Source: AMD's ISA documents; docs/amd-isa.md 5.1 to 5.3, 5.9.

use super::Chip;
use super::atomic::Rmw;
use super::flush::Act;
use super::rows::Format;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    Global,
    Flat,
    Scratch,
    Buffer,
    Lds,
    Scalar,
    ScalarBuffer,
}

/// The data of a memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Load(Width),
    Store(Width),
    Atomic {
        op: Rmw,
        wide: bool,
    },
    /// Two LDS locations, `stride` bytes a unit of offset.
    Load2 {
        bytes: u32,
        stride: u32,
    },
    Store2 {
        bytes: u32,
        stride: u32,
    },
    Exchange2 {
        bytes: u32,
        stride: u32,
    },
    Swizzle,
    Permute {
        backward: bool,
        fetch_inactive: bool,
    },
    Append {
        consume: bool,
    },
    /// Cache instructions: no effect except on the shadow state.
    Cache(Act),
    Clock,
    /// Global memory straight into LDS.
    LoadToLds(Width),
    /// gfx12's transposing loads.
    Transpose {
        bytes: u32,
    },
}

/// Bytes in memory, and how a narrow value sits in the register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Width {
    pub bytes: u32,
    pub signed: bool,
    /// 16-bit half of the register: loads keep the other, stores take this one.
    pub half: Option<bool>,
    /// The address comes from the lane's number.
    pub by_lane: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct MemOp {
    pub space: Space,
    pub kind: Kind,
    /// Dwords that come back, dwords that go out.
    pub ret: u8,
    pub data: u8,
    /// An LDS atomic that returns the old value.
    pub returns: bool,
}

const fn width(bytes: u32, signed: bool, half: Option<bool>) -> Width {
    Width { bytes, signed, half, by_lane: false }
}

fn plain(bytes: u32) -> Option<Width> {
    Some(width(bytes, false, None))
}

/// The size part of a load's or store's name.
fn size(name: &str) -> Option<Width> {
    let sizes: &[(&str, u32)] = &[
        ("b8", 1),
        ("byte", 1),
        ("b16", 2),
        ("short", 2),
        ("b32", 4),
        ("dword", 4),
        ("b64", 8),
        ("dwordx2", 8),
        ("b96", 12),
        ("dwordx3", 12),
        ("b128", 16),
        ("dwordx4", 16),
        ("b256", 32),
        ("dwordx8", 32),
        ("b512", 64),
        ("dwordx16", 64),
    ];
    if let Some((_, bytes)) = sizes.iter().find(|(n, _)| *n == name) {
        return plain(*bytes);
    }
    let low = Some(false);
    let high = Some(true);
    Some(match name {
        "u8" | "ubyte" => width(1, false, None),
        "i8" | "sbyte" => width(1, true, None),
        "u16" | "ushort" => width(2, false, None),
        "i16" | "sshort" => width(2, true, None),
        "d16_u8" | "u8_d16" | "ubyte_d16" => width(1, false, low),
        "d16_i8" | "i8_d16" | "sbyte_d16" => width(1, true, low),
        "d16_b16" | "u16_d16" | "short_d16" => width(2, false, low),
        "d16_hi_u8" | "u8_d16_hi" | "ubyte_d16_hi" => width(1, false, high),
        "d16_hi_i8" | "i8_d16_hi" | "sbyte_d16_hi" => width(1, true, high),
        "d16_hi_b16" | "u16_d16_hi" | "short_d16_hi" | "b16_d16_hi" => width(2, false, high),
        "d16_hi_b8" | "b8_d16_hi" | "byte_d16_hi" => width(1, false, high),
        "addtid_b32" => Width { by_lane: true, ..width(4, false, None) },
        _ => return None,
    })
}

impl MemOp {
    pub(crate) fn find(_chip: Chip, format: Format, name: &str, widths: [u8; 4]) -> Option<Self> {
        let made = |space, kind| Self { space, kind, ret: widths[0], data: widths[1], returns: false };
        match format {
            Format::Ds => lds(name).map(|(kind, returns)| Self { returns, ..made(Space::Lds, kind) }),
            Format::Smem => scalar(name).map(|(space, kind)| made(space, kind)),
            _ => {
                let space = match format {
                    Format::Flat => Space::Flat,
                    Format::Scratch => Space::Scratch,
                    Format::Mubuf => Space::Buffer,
                    _ => Space::Global,
                };
                vector(name).map(|kind| made(space, kind))
            }
        }
    }
}

fn scalar(name: &str) -> Option<(Space, Kind)> {
    if let Some(rest) = name.strip_prefix("s_load_") {
        return Some((Space::Scalar, Kind::Load(size(rest)?)));
    }
    if let Some(rest) = name.strip_prefix("s_store_") {
        return Some((Space::Scalar, Kind::Store(size(rest)?)));
    }
    if let Some(rest) = name.strip_prefix("s_buffer_load_") {
        return Some((Space::ScalarBuffer, Kind::Load(size(rest)?)));
    }
    if let Some(act) = Act::scalar(name) {
        return Some((Space::Scalar, Kind::Cache(act)));
    }
    matches!(name, "s_memtime" | "s_memrealtime").then_some((Space::Scalar, Kind::Clock))
}

fn vector(name: &str) -> Option<Kind> {
    let rest = ["global_", "flat_", "scratch_", "buffer_"].iter().find_map(|p| name.strip_prefix(p))?;
    if let Some(act) = Act::vector(rest) {
        return Some(Kind::Cache(act));
    }
    if let Some(bytes) = rest.strip_prefix("load_tr_b") {
        return Some(Kind::Transpose { bytes: bytes.parse::<u32>().ok()? / 8 });
    }
    if let Some(rest) = rest.strip_prefix("load_lds_") {
        return Some(Kind::LoadToLds(size(rest)?));
    }
    if let Some(rest) = rest.strip_prefix("load_") {
        return Some(Kind::Load(size(rest)?));
    }
    if let Some(rest) = rest.strip_prefix("store_") {
        return Some(Kind::Store(size(rest)?));
    }
    let rest = rest.strip_prefix("atomic_")?;
    let (op, wide) = Rmw::find(rest)?;
    Some(Kind::Atomic { op, wide })
}

/// LDS: the kind and whether an atomic returns the old value.
fn lds(name: &str) -> Option<(Kind, bool)> {
    let rest = name.strip_prefix("ds_")?;
    let rest = &rest.replace("read2st64", "load_2addr_stride64").replace("write2st64", "store_2addr_stride64");
    let rest = &rest.replace("read2_", "load_2addr_").replace("write2_", "store_2addr_");
    let rest = &rest.replace("wrxchg2st64", "storexchg_2addr_stride64").replace("wrxchg2_", "storexchg_2addr_");
    let fixed = match rest.as_str() {
        "swizzle_b32" => Some(Kind::Swizzle),
        "permute_b32" => Some(Kind::Permute { backward: false, fetch_inactive: false }),
        "bpermute_b32" => Some(Kind::Permute { backward: true, fetch_inactive: false }),
        "bpermute_fi_b32" => Some(Kind::Permute { backward: true, fetch_inactive: true }),
        "append" => Some(Kind::Append { consume: false }),
        "consume" => Some(Kind::Append { consume: true }),
        "nop" => Some(Kind::Cache(Act::Nothing)),
        _ => None,
    };
    if let Some(kind) = fixed {
        return Some((kind, false));
    }
    if let Some((head, tail)) = rest.split_once("_2addr_") {
        let (factor, bits) = match tail.strip_prefix("stride64_") {
            Some(bits) => (64, bits),
            None => (1, tail),
        };
        let bytes = size(bits.strip_prefix("rtn_").unwrap_or(bits))?.bytes;
        let stride = bytes * factor;
        return match head {
            "load" => Some((Kind::Load2 { bytes, stride }, false)),
            "store" => Some((Kind::Store2 { bytes, stride }, false)),
            "storexchg" => Some((Kind::Exchange2 { bytes, stride }, true)),
            _ => None,
        };
    }
    if let Some(rest) = rest.strip_prefix("load_").or_else(|| rest.strip_prefix("read_")) {
        return Some((Kind::Load(size(rest)?), false));
    }
    if let Some(rest) = rest.strip_prefix("store_").or_else(|| rest.strip_prefix("write_")) {
        return Some((Kind::Store(size(rest)?), false));
    }
    let returns = rest.contains("rtn_");
    let (op, wide) = Rmw::find(&rest.replace("rtn_", ""))?;
    Some((Kind::Atomic { op, wide }, returns))
}
