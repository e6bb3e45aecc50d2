//! Immediates with a notation of their own: wait counters, delays, hardware registers, messages, swizzles.
//!
//! Sources: the ISA manuals' chapters on s_waitcnt, s_delay_alu, s_getreg and s_sendmsg; names as LLVM 19 spells them.

use super::chip::Chip;
use std::fmt::Write;

/// A field of an immediate: name, lowest bit, width.
type Part = (&'static str, u8, u8);

fn part(value: u16, (_, lo, width): Part) -> u16 {
    value >> lo & ((1 << width) - 1)
}

fn put(value: u16, (_, lo, width): Part, new: u16) -> u16 {
    let mask = ((1u16 << width) - 1) << lo;
    value & !mask | new << lo & mask
}

/// Counters of s_waitcnt; on gfx942 vmcnt has two more bits at 14.
const fn counters(chip: Chip) -> [Part; 3] {
    match chip {
        Chip::Gfx942 => [("vmcnt", 0, 4), ("expcnt", 4, 3), ("lgkmcnt", 8, 4)],
        _ => [("vmcnt", 10, 6), ("expcnt", 0, 3), ("lgkmcnt", 4, 6)],
    }
}

const VMCNT_HIGH: Part = ("", 14, 2);

/// The values of vmcnt, expcnt and lgkmcnt in an s_waitcnt immediate.
#[must_use]
pub(crate) fn waitcnt_fields(chip: Chip, value: u16) -> [u16; 3] {
    let mut fields = counters(chip).map(|c| part(value, c));
    if chip.is_gfx9() {
        fields[0] |= part(value, VMCNT_HIGH) << 4;
    }
    fields
}

/// The s_waitcnt immediate that waits until at most so many accesses are outstanding; values beyond a counter's maximum
/// mean no wait.
#[must_use]
pub fn waitcnt(chip: Chip, vmcnt: u16, expcnt: u16, lgkmcnt: u16) -> u16 {
    let most = waitcnt_fields(chip, u16::MAX);
    let [vm, exp, lgkm] = [vmcnt.min(most[0]), expcnt.min(most[1]), lgkmcnt.min(most[2])];
    let [v, e, l] = counters(chip);
    let value = put(put(put(0, v, vm), e, exp), l, lgkm);
    if chip.is_gfx9() { put(value, VMCNT_HIGH, vm >> 4) } else { value }
}

pub(super) fn waitcnt_text(chip: Chip, value: u16) -> String {
    let (fields, most) = (waitcnt_fields(chip, value), waitcnt_fields(chip, u16::MAX));
    let all = fields == most;
    let mut text = String::new();
    for (i, (name, ..)) in counters(chip).into_iter().enumerate() {
        if all || fields[i] != most[i] {
            let gap = if text.is_empty() { "" } else { " " };
            let _ = write!(text, "{gap}{name}({})", fields[i]);
        }
    }
    text
}

/// Parses `vmcnt(0) & lgkmcnt(1)`; unnamed counters do not wait.
pub(super) fn parse_waitcnt(chip: Chip, parts: &[(String, u16)]) -> Option<u16> {
    let mut fields = waitcnt_fields(chip, u16::MAX);
    for (name, value) in parts {
        let (stem, clamps) = name.strip_suffix("_sat").map_or((name.as_str(), false), |s| (s, true));
        let at = counters(chip).iter().position(|c| c.0 == stem)?;
        let most = waitcnt_fields(chip, u16::MAX)[at];
        if *value > most && !clamps {
            return None;
        }
        fields[at] = (*value).min(most);
    }
    Some(waitcnt(chip, fields[0], fields[1], fields[2]))
}

/// Fields of s_waitcnt_depctr and s_wait_alu, in the order of the text.
const DEPCTR: [Part; 7] = [
    ("depctr_hold_cnt", 7, 1),
    ("depctr_sa_sdst", 0, 1),
    ("depctr_va_vdst", 12, 4),
    ("depctr_va_sdst", 9, 3),
    ("depctr_va_ssrc", 8, 1),
    ("depctr_va_vcc", 1, 1),
    ("depctr_vm_vsrc", 2, 3),
];
/// Bits that no field of it covers.
const DEPCTR_SPARE: u16 = 0x60;

pub(super) fn depctr_text(value: u16) -> String {
    if value & DEPCTR_SPARE != 0 {
        return format!("{value:#x}");
    }
    let most = |p: Part| part(u16::MAX, p);
    let all = DEPCTR.iter().all(|&p| part(value, p) == most(p));
    let shown = DEPCTR.iter().filter(|&&p| all || part(value, p) != most(p));
    shown.map(|&p| format!("{}({})", p.0, part(value, p))).collect::<Vec<_>>().join(" ")
}

pub(super) fn parse_depctr(parts: &[(String, u16)]) -> Option<u16> {
    let mut value = !DEPCTR_SPARE;
    for (name, number) in parts {
        let field = *DEPCTR.iter().find(|p| p.0 == name)?;
        if *number > part(u16::MAX, field) {
            return None;
        }
        value = put(value, field, *number);
    }
    Some(value)
}

const DELAY_IDS: [&str; 12] = [
    "NO_DEP",
    "VALU_DEP_1",
    "VALU_DEP_2",
    "VALU_DEP_3",
    "VALU_DEP_4",
    "TRANS32_DEP_1",
    "TRANS32_DEP_2",
    "TRANS32_DEP_3",
    "FMA_ACCUM_CYCLE_1",
    "SALU_CYCLE_1",
    "SALU_CYCLE_2",
    "SALU_CYCLE_3",
];
const DELAY_SKIPS: [&str; 6] = ["SAME", "NEXT", "SKIP_1", "SKIP_2", "SKIP_3", "SKIP_4"];
const DELAY: [Part; 3] = [("instid0", 0, 4), ("instskip", 4, 3), ("instid1", 7, 4)];

/// Text of an s_delay_alu immediate; a value without a name is shown in hexadecimal.
pub(super) fn delay_text(value: u16) -> String {
    let names = |i: usize| if i == 1 { &DELAY_SKIPS[..] } else { &DELAY_IDS[..] };
    let mut shown = Vec::new();
    for (i, &p) in DELAY.iter().enumerate() {
        match (part(value, p), names(i).get(usize::from(part(value, p)))) {
            (0, _) => {}
            (_, Some(name)) => shown.push(format!("{}({name})", p.0)),
            (_, None) => return format!("{value:#x}"),
        }
    }
    if shown.is_empty() { "0".to_owned() } else { shown.join(" | ") }
}

pub(super) fn parse_delay(parts: &[(String, String)]) -> Option<u16> {
    let mut value = 0;
    for (name, what) in parts {
        let field = *DELAY.iter().find(|p| p.0 == name)?;
        let names = if field.0 == "instskip" { &DELAY_SKIPS[..] } else { &DELAY_IDS[..] };
        let number = names.iter().position(|n| n == what)?;
        value = put(value, field, u16::try_from(number).ok()?);
    }
    Some(value)
}

type Names = &'static [(u16, &'static str)];

const HWREG_GFX11: Names = &[
    (1, "MODE"),
    (2, "STATUS"),
    (3, "TRAPSTS"),
    (5, "GPR_ALLOC"),
    (6, "LDS_ALLOC"),
    (7, "IB_STS"),
    (15, "SH_MEM_BASES"),
    (18, "PERF_SNAPSHOT_PC_LO"),
    (19, "PERF_SNAPSHOT_PC_HI"),
    (20, "FLAT_SCR_LO"),
    (21, "FLAT_SCR_HI"),
    (23, "HW_ID1"),
    (24, "HW_ID2"),
    (27, "PERF_SNAPSHOT_DATA"),
    (29, "SHADER_CYCLES"),
];
const HWREG_GFX942: Names = &[
    (1, "MODE"),
    (2, "STATUS"),
    (3, "TRAPSTS"),
    (4, "HW_ID"),
    (5, "GPR_ALLOC"),
    (6, "LDS_ALLOC"),
    (7, "IB_STS"),
    (15, "SH_MEM_BASES"),
    (16, "TBA_LO"),
    (17, "TBA_HI"),
    (18, "TMA_LO"),
    (19, "TMA_HI"),
    (20, "XCC_ID"),
    (21, "SQ_PERF_SNAPSHOT_DATA"),
    (22, "SQ_PERF_SNAPSHOT_DATA1"),
    (23, "SQ_PERF_SNAPSHOT_PC_LO"),
    (24, "SQ_PERF_SNAPSHOT_PC_HI"),
];
const HWREG_GFX12: Names = &[
    (1, "MODE"),
    (2, "STATUS"),
    (4, "STATE_PRIV"),
    (5, "GPR_ALLOC"),
    (6, "LDS_ALLOC"),
    (7, "IB_STS"),
    (10, "PERF_SNAPSHOT_DATA"),
    (11, "PERF_SNAPSHOT_PC_LO"),
    (12, "PERF_SNAPSHOT_PC_HI"),
    (15, "PERF_SNAPSHOT_DATA1"),
    (16, "PERF_SNAPSHOT_DATA2"),
    (17, "EXCP_FLAG_PRIV"),
    (18, "EXCP_FLAG_USER"),
    (19, "TRAP_CTRL"),
    (20, "SCRATCH_BASE_LO"),
    (21, "SCRATCH_BASE_HI"),
    (23, "HW_ID1"),
    (24, "HW_ID2"),
    (29, "SHADER_CYCLES_LO"),
    (30, "SHADER_CYCLES_HI"),
    (31, "DVGPR_ALLOC_LO"),
    (32, "DVGPR_ALLOC_HI"),
];

const fn hwregs(chip: Chip) -> Names {
    match chip {
        Chip::Gfx1100 => HWREG_GFX11,
        Chip::Gfx942 => HWREG_GFX942,
        Chip::Gfx1201 => HWREG_GFX12,
    }
}

/// The immediate of s_getreg and s_setreg: register, first bit, number of bits.
#[must_use]
pub const fn hwreg(id: u16, first_bit: u16, bits: u16) -> u16 {
    id & 63 | (first_bit & 31) << 6 | (bits.wrapping_sub(1) & 31) << 11
}

pub(super) fn hwreg_text(chip: Chip, value: u16) -> String {
    let (id, first, bits) = (value & 63, value >> 6 & 31, (value >> 11) + 1);
    let name = hwregs(chip).iter().find(|n| n.0 == id).map_or_else(|| id.to_string(), |n| format!("HW_REG_{}", n.1));
    if (first, bits) == (0, 32) { format!("hwreg({name})") } else { format!("hwreg({name}, {first}, {bits})") }
}

/// Number of the hardware register of that name.
pub(super) fn hwreg_id(chip: Chip, name: &str) -> Option<u16> {
    let name = name.strip_prefix("HW_REG_")?;
    hwregs(chip).iter().find(|n| n.1 == name).map(|n| n.0)
}

const MSG_GFX11: Names = &[
    (1, "INTERRUPT"),
    (2, "HS_TESSFACTOR"),
    (3, "DEALLOC_VGPRS"),
    (5, "STALL_WAVE_GEN"),
    (6, "HALT_WAVES"),
    (9, "GS_ALLOC_REQ"),
    (128, "RTN_GET_DOORBELL"),
    (129, "RTN_GET_DDID"),
    (130, "RTN_GET_TMA"),
    (131, "RTN_GET_REALTIME"),
    (132, "RTN_SAVE_WAVE"),
    (133, "RTN_GET_TBA"),
    (134, "RTN_GET_TBA_TO_PC"),
];
const MSG_GFX12: Names = &[
    (1, "INTERRUPT"),
    (2, "HS_TESSFACTOR"),
    (3, "DEALLOC_VGPRS"),
    (9, "GS_ALLOC_REQ"),
    (128, "RTN_GET_DOORBELL"),
    (129, "RTN_GET_DDID"),
    (130, "RTN_GET_TMA"),
    (131, "RTN_GET_REALTIME"),
    (132, "RTN_SAVE_WAVE"),
    (133, "RTN_GET_TBA"),
    (134, "RTN_GET_TBA_TO_PC"),
    (135, "RTN_GET_SE_AID_ID"),
];
const MSG_GFX942: Names = &[
    (1, "INTERRUPT"),
    (4, "SAVEWAVE"),
    (5, "STALL_WAVE_GEN"),
    (6, "HALT_WAVES"),
    (7, "ORDERED_PS_DONE"),
    (8, "EARLY_PRIM_DEALLOC"),
    (9, "GS_ALLOC_REQ"),
    (10, "GET_DOORBELL"),
];
/// Messages of gfx942 with an operation, and those that also name a stream.
const MSG_OPS: [(u16, &str); 9] = [
    (0x03, "MSG_GS_DONE, GS_OP_NOP"),
    (0x12, "MSG_GS, GS_OP_CUT"),
    (0x13, "MSG_GS_DONE, GS_OP_CUT"),
    (0x22, "MSG_GS, GS_OP_EMIT"),
    (0x23, "MSG_GS_DONE, GS_OP_EMIT"),
    (0x32, "MSG_GS, GS_OP_EMIT_CUT"),
    (0x33, "MSG_GS_DONE, GS_OP_EMIT_CUT"),
    (0x1f, "MSG_SYSMSG, SYSMSG_OP_ECC_ERR_INTERRUPT"),
    (0x2f, "MSG_SYSMSG, SYSMSG_OP_REG_RD"),
];

const fn messages(chip: Chip) -> Names {
    match chip {
        Chip::Gfx1100 => MSG_GFX11,
        Chip::Gfx942 => MSG_GFX942,
        Chip::Gfx1201 => MSG_GFX12,
    }
}

pub(super) fn message_text(chip: Chip, value: u16) -> String {
    if let Some((_, name)) = messages(chip).iter().find(|n| n.0 == value) {
        return format!("sendmsg(MSG_{name})");
    }
    if !chip.is_gfx9() {
        return if value < 256 { format!("sendmsg({value}, 0, 0)") } else { value.to_string() };
    }
    let (id, op, stream) = (value & 15, value >> 4 & 7, value >> 8 & 3);
    match MSG_OPS.iter().find(|n| n.0 == value & 0x7f) {
        _ if value & 0xfc80 != 0 => value.to_string(),
        Some((_, name)) if id == 15 || op == 0 => format!("sendmsg({name})"),
        Some((_, name)) => format!("sendmsg({name}, {stream})"),
        None if value == 0x4f => "sendmsg(MSG_SYSMSG, SYSMSG_OP_TTRACE_PC)".to_owned(),
        None => format!("sendmsg({id}, {op}, {stream})"),
    }
}

/// Number of a message by the parts of its text: `MSG_INTERRUPT`, or id, operation and stream.
pub(super) fn parse_message(chip: Chip, parts: &[String]) -> Option<u16> {
    let number = |text: &String| super::parse::number(text).and_then(|n| u16::try_from(n).ok());
    if let [name] = parts
        && let Some(found) = name.strip_prefix("MSG_").and_then(|n| messages(chip).iter().find(|m| m.1 == n))
    {
        return Some(found.0);
    }
    if chip.is_gfx9() && parts.len() >= 2 && parts[0].starts_with("MSG_") {
        let name = format!("{}, {}", parts[0], parts[1]);
        let base = MSG_OPS.iter().find(|n| n.1 == name).map(|n| n.0);
        let base = base.or((name == "MSG_SYSMSG, SYSMSG_OP_TTRACE_PC").then_some(0x4f))?;
        return Some(base | parts.get(2).and_then(number).unwrap_or(0) << 8);
    }
    let at = |i: usize| parts.get(i).map_or(Some(0), number);
    let (id, op, stream) = (at(0)?, at(1)?, at(2)?);
    Some(if chip.is_gfx9() { id & 15 | (op & 7) << 4 | (stream & 3) << 8 } else { id & 255 })
}

/// The offset of ds_swizzle as text; empty when 0.
pub(super) fn swizzle_text(value: u16) -> String {
    let [and, or, xor] = [value & 31, value >> 5 & 31, value >> 10 & 31];
    let group = 32 - and;
    match value {
        0 => String::new(),
        0x8000..=0x80ff => {
            let lane = |i: u16| value >> (2 * i) & 3;
            format!("swizzle(QUAD_PERM,{},{},{},{})", lane(0), lane(1), lane(2), lane(3))
        }
        0x8100.. => value.to_string(),
        _ if and == 31 && or == 0 && xor.count_ones() == 1 => format!("swizzle(SWAP,{xor})"),
        _ if and == 31 && or == 0 && xor > 0 && (xor + 1).is_power_of_two() => format!("swizzle(REVERSE,{})", xor + 1),
        _ if group > 1 && group.is_power_of_two() && or < group && xor == 0 => {
            format!("swizzle(BROADCAST,{group},{or})")
        }
        _ => {
            let letter = |bit: u16| {
                let (zero, one) = ((or ^ xor) & bit, (bit & and | or) & bit ^ xor & bit);
                match (zero == one, zero == 0) {
                    (true, true) => '0',
                    (true, false) => '1',
                    (false, true) => 'p',
                    (false, false) => 'i',
                }
            };
            format!("swizzle(BITMASK_PERM,\"{}\")", [16, 8, 4, 2, 1].map(letter).iter().collect::<String>())
        }
    }
}

/// The ds_swizzle offset for the parts of `swizzle(...)`.
pub(super) fn parse_swizzle(parts: &[String]) -> Option<u16> {
    let number = |i: usize| parts.get(i).and_then(|t| super::parse::number(t)).and_then(|n| u16::try_from(n).ok());
    match parts.first()?.as_str() {
        "QUAD_PERM" => {
            let lanes = [number(1)?, number(2)?, number(3)?, number(4)?];
            let fits = lanes.iter().all(|&l| l < 4);
            fits.then_some(0x8000 | lanes[0] | lanes[1] << 2 | lanes[2] << 4 | lanes[3] << 6)
        }
        "SWAP" => number(1).filter(|n| n.is_power_of_two() && *n < 32).map(|n| 31 | n << 10),
        "REVERSE" => number(1).filter(|n| n.is_power_of_two() && (2..=32).contains(n)).map(|n| 31 | (n - 1) << 10),
        "BROADCAST" => {
            let (group, lane) = (number(1)?, number(2)?);
            let fits = group.is_power_of_two() && (2..=32).contains(&group) && lane < group;
            fits.then_some((32 - group) | (lane << 5))
        }
        "BITMASK_PERM" => {
            let text = parts.get(1)?.trim_matches('"');
            let mut value = (text.len() == 5).then_some(0)?;
            for (letter, bit) in text.chars().zip([16, 8, 4, 2, 1]) {
                value |= match letter {
                    '0' => 0,
                    '1' => bit << 5,
                    'p' => bit,
                    'i' => bit | bit << 10,
                    _ => return None,
                };
            }
            Some(value)
        }
        _ => None,
    }
}
/// Which operands an index register moves, by bit.
const GPR_IDX: [&str; 4] = ["SRC0", "SRC1", "SRC2", "DST"];

pub(super) fn gpr_idx_text(bits: u16) -> String {
    if bits > 15 {
        return bits.to_string();
    }
    let named: Vec<&str> = (0..).zip(GPR_IDX).filter(|(i, _)| bits >> i & 1 == 1).map(|(_, name)| name).collect();
    format!("gpr_idx({})", named.join(","))
}

/// The bits of such a list.
pub(super) fn parse_gpr_idx(names: &[String]) -> Option<u16> {
    let bit = |name: &String| Some(1 << GPR_IDX.iter().position(|n| n == name)?);
    names.iter().filter(|n| !n.is_empty()).map(bit).try_fold(0, |all, bit: Option<u16>| Some(all | bit?))
}
