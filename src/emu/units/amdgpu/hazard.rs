//! Hazards: combinations that a chip does not interlock and that a compiler must separate, checked as a wave runs.
//!
//! Source: docs/amd-isa.md 5.7. Modelled: gfx1100's transcendental results, matrix operands, compare-to-EXEC before a
//! lane permutation, the wide multiply-add's overlap; gfx942's table of wait states; gfx1201's matrix operands. Left
//! out: the mask hazards of wave64 on gfx11. gfx1201's scalar registers are in `settle`.

use super::Chip;
use super::cross::Cross;
use super::fault::{FaultKind, R, fail};
use super::inst::{EXEC, Inst, M0, Operand, VCC};
use super::memory::{Kind, Space};
use super::rows::{Entry, Format};
use super::sem::Sem;
use super::wave::Wave;

/// The kind of unit that executes an instruction, as the rules distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Scalar,
    Valu,
    Trans,
    Dot,
    /// Cycles of four that the matrix unit is busy; `plain` is f32 and f64 arithmetic.
    Mfma {
        passes: u32,
        plain: bool,
        double: bool,
    },
    Wmma,
    Memory,
}

impl Class {
    pub(crate) fn of(entry: &Entry, format: Format) -> Self {
        let name = entry.name;
        match entry.sem {
            Sem::Memory(op) if matches!(op.space, Space::Scalar | Space::ScalarBuffer) => Self::Scalar,
            Sem::Memory(_) => Self::Memory,
            Sem::Matrix(m) if m.mfma => Self::Mfma {
                passes: passes(name),
                plain: name.contains("f64") || name.ends_with("_f32"),
                double: name.contains("f64"),
            },
            Sem::Matrix(_) => Self::Wmma,
            _ if matches!(format, Format::Sop1 | Format::Sop2 | Format::Sopc | Format::Sopk | Format::Sopp) => {
                Self::Scalar
            }
            _ if ["v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_"]
                .iter()
                .any(|p| name.starts_with(p)) =>
            {
                Self::Trans
            }
            _ if name.starts_with("v_dot") => Self::Dot,
            _ => Self::Valu,
        }
    }

    fn is_valu(self) -> bool {
        matches!(self, Self::Valu | Self::Trans | Self::Dot | Self::Wmma)
    }
}

/// Passes of gfx942's matrix instructions.
fn passes(name: &str) -> u32 {
    match name {
        _ if name.contains("f64_16x16x4") => 8,
        _ if name.contains("f64_4x4x4") => 4,
        _ if name.contains("_4x4x") => 2,
        _ if name.contains("32x32x2_f32") || name.contains("_2b_") => 16,
        _ if name.contains("_4b_") || name.contains("16x16x4_f32") || name.contains("32x32x") => 8,
        _ => 4,
    }
}

/// A vector register's past: clocks of its last write and of reads that must not be overtaken; 0 is never.
#[derive(Clone, Copy)]
struct Past {
    written: u32,
    by: Class,
    part: bool,
    /// Vector and transcendental instructions counted at the write.
    valu: u32,
    trans: u32,
    /// The write's matrix instruction started at this register and had so many.
    tuple: (u32, u32),
    read_as_c: u32,
    c_passes: u32,
    stored: u32,
}

const NEVER: Past = Past {
    written: 0,
    by: Class::Scalar,
    part: false,
    valu: 0,
    trans: 0,
    tuple: (0, 0),
    read_as_c: 0,
    c_passes: 0,
    stored: 0,
};

/// Shadow state of one wave.
pub(super) struct Hazards {
    /// Wait states passed, from 1.
    clock: u32,
    valu: u32,
    trans: u32,
    /// Vector instructions counted at the last transcendental one; 0 is none yet.
    last_trans: u32,
    /// Vector results written before this clock have arrived.
    settled: u32,
    vectors: Vec<Past>,
    /// Clocks at which a vector instruction wrote a scalar register.
    scalars: [u32; 128],
    m0: u32,
    /// The vector instruction before was a compare that wrote EXEC, or a matrix one with this result.
    compared: bool,
    wmma: (u32, u32),
    pub unsettled: super::settle::Unsettled,
}

impl Hazards {
    pub(crate) fn new(registers: usize) -> Self {
        Self {
            clock: 1,
            valu: 0,
            trans: 0,
            last_trans: 0,
            settled: 0,
            vectors: vec![NEVER; registers],
            scalars: [0; 128],
            m0: 0,
            compared: false,
            wmma: (0, 0),
            unsettled: Default::default(),
        }
    }
}

/// Operands with their dwords.
pub(super) type Ranges = [(Operand, u32); 6];

/// Operands read, with their dwords.
pub(super) fn reads(i: &Inst) -> Ranges {
    let w = i.entry.widths;
    let dwords = |slot: usize| match w[slot + 1] {
        0 | 255 => 1,
        n => u32::from(n),
    };
    let m = &i.mem;
    let address = match i.entry.sem {
        Sem::Memory(op) if matches!(op.space, Space::Global | Space::Flat) && m.base == Operand::None => 2,
        _ => 1,
    };
    let base = if m.base == Operand::None { 0 } else { 2 };
    let data = u32::from(w[1]).max(1);
    match i.entry.sem {
        Sem::Memory(_) => {
            [(m.addr, address), (m.data, data), (m.data1, data), (m.base, base), (m.soffset, 1), (Operand::None, 0)]
        }
        _ => [
            (i.src[0], dwords(0)),
            (i.src[1], dwords(1)),
            (i.src[2], dwords(2)),
            (Operand::None, 0),
            (Operand::None, 0),
            (Operand::None, 0),
        ],
    }
}

fn vectors(o: Operand, dwords: u32) -> std::ops::Range<u32> {
    match o {
        Operand::V(n) => u32::from(n)..u32::from(n) + dwords,
        _ => 0..0,
    }
}

fn overlap(a: &std::ops::Range<u32>, b: &std::ops::Range<u32>) -> bool {
    a.start < b.end && b.start < a.end
}

fn written(i: &Inst) -> std::ops::Range<u32> {
    vectors(i.dst, u32::from(i.entry.widths[0]).max(1))
}

/// Finds a rule that the next instruction breaks.
pub(super) fn check(w: &Wave, i: &Inst) -> R<()> {
    match w.chip {
        Chip::Gfx942 => check_cdna(w, i),
        chip => {
            if chip == Chip::Gfx1201 && w.strict.scalar_reads {
                super::settle::check(w, i)?;
            }
            for part in std::iter::once(i).chain(i.second.as_deref()) {
                check_rdna(w, part, chip == Chip::Gfx1100)?;
            }
            Ok(())
        }
    }
}

fn hazard(rule: &'static str, need: u32, have: u32) -> R<()> {
    fail(FaultKind::Hazard { rule, need, have })
}

fn check_rdna(w: &Wave, i: &Inst, gfx1100: bool) -> R<()> {
    let h = &w.hazards;
    if !i.class.is_valu() {
        return Ok(());
    }
    if i.class == Class::Wmma && h.wmma.1 != 0 {
        let d = h.wmma.0..h.wmma.1;
        let hit = i.reads.iter().take(2).any(|(o, n)| overlap(&vectors(*o, *n), &d));
        if hit {
            return hazard("a matrix instruction reads the result of the one before as A or B", 1, 0);
        }
    }
    if !gfx1100 {
        return Ok(());
    }
    if h.compared && matches!(i.entry.sem, Sem::Cross(Cross::Permlane16 { .. } | Cross::Permlane64)) {
        return hazard("v_cmpx before v_permlane", 1, 0);
    }
    if let Sem::Cross(Cross::MadWide { .. }) = i.entry.sem {
        let d = vectors(i.dst, 2);
        // Of the addend's upper half compilers may leave any register.
        let own = [(i.src[0], 1), (i.src[1], 1), (i.src[2], 1)];
        if own.iter().any(|(o, n)| overlap(&vectors(*o, *n), &d)) {
            return hazard("a wide multiply-add writes one of its sources", 1, 0);
        }
    }
    if h.last_trans == 0 || h.valu - h.last_trans > 5 {
        return Ok(());
    }
    for (o, n) in i.reads {
        for r in vectors(o, n) {
            let p = &h.vectors[w.register_index(r)?];
            if p.by != Class::Trans || p.written <= h.settled {
                continue;
            }
            let (valu, trans) = (h.valu - p.valu, h.trans - p.trans);
            if valu <= 5 && trans <= 1 {
                return hazard("a vector instruction reads a transcendental result", 6, valu);
            }
        }
    }
    Ok(())
}

/// Wait states since a clock.
fn since(h: &Hazards, clock: u32) -> u32 {
    if clock == 0 { u32::MAX } else { h.clock - clock }
}

fn need(h: &Hazards, rule: &'static str, states: u32, clock: u32) -> R<()> {
    let have = since(h, clock);
    if have < states { hazard(rule, states, have) } else { Ok(()) }
}

fn check_cdna(w: &Wave, i: &Inst) -> R<()> {
    let h = &w.hazards;
    let lane_read = matches!(i.entry.sem, Sem::Cross(Cross::ReadLane | Cross::ReadFirstLane));
    let lane_access = lane_read || matches!(i.entry.sem, Sem::Cross(Cross::WriteLane));
    if let Sem::Memory(op) = i.entry.sem
        && (i.mem.to_lds || matches!(op.kind, Kind::LoadToLds(_)))
    {
        need(h, "M0 for a load to LDS", 1, h.m0)?;
    }
    scalars(w, i, lane_access)?;
    let exec = h.scalars[usize::from(EXEC)];
    if i.dpp.is_some() {
        need(h, "a vector instruction wrote EXEC before DPP", 5, exec)?;
    }
    if lane_access || matches!(i.class, Class::Mfma { .. }) {
        need(h, "a vector instruction wrote EXEC", 4, exec)?;
    }
    for (slot, (o, n)) in i.reads.into_iter().enumerate() {
        for r in vectors(o, n) {
            read_vector(h, i, slot, o, n, &h.vectors[w.register_index(r)?], lane_read)?;
        }
    }
    for r in written(i) {
        write_vector(h, i, &h.vectors[w.register_index(r)?])?;
    }
    Ok(())
}

/// Scalar registers that a vector instruction wrote, read by memory or vector instructions.
fn scalars(w: &Wave, i: &Inst, lane_access: bool) -> R<()> {
    let h = &w.hazards;
    let valu = i.class.is_valu();
    for (slot, (o, n)) in i.reads.into_iter().enumerate() {
        let Operand::S(first) = o else { continue };
        let is_mask = slot == 2 && matches!(i.entry.sem, Sem::Cross(Cross::Select | Cross::Carry { .. }));
        let dwords = if is_mask { w.halves as u32 } else { n.max(1) };
        for k in 0..dwords.min(4) {
            let at = h.scalars[(usize::from(first) + k as usize) & 127];
            match i.class {
                Class::Memory => need(h, "a vector instruction wrote the scalar that a memory access reads", 5, at)?,
                _ if lane_access && slot == 1 => need(h, "a vector instruction wrote the lane select", 4, at)?,
                _ if valu => need(h, "a vector instruction wrote the scalar that a vector one reads", 2, at)?,
                _ => {}
            }
        }
    }
    if let Sem::Cross(Cross::DivFmas { .. }) = i.entry.sem {
        need(h, "a vector instruction wrote VCC before v_div_fmas", 4, h.scalars[usize::from(VCC)])?;
    }
    Ok(())
}

fn read_vector(h: &Hazards, i: &Inst, slot: usize, o: Operand, n: u32, p: &Past, lane_read: bool) -> R<()> {
    if let Class::Mfma { passes, plain, double } = p.by {
        let as_c = slot == 2 && matches!(i.class, Class::Mfma { .. });
        let same = matches!(o, Operand::V(first) if p.tuple == (u32::from(first), n));
        let states = match (i.class, as_c) {
            (Class::Mfma { .. }, true) if same => {
                if passes == 2 {
                    2
                } else if double && passes == 4 {
                    4
                } else {
                    0
                }
            }
            (Class::Mfma { .. }, true) => {
                if double {
                    passes + 1
                } else {
                    passes + u32::from(!plain)
                }
            }
            (Class::Memory, _) if double => {
                if passes == 8 {
                    18
                } else {
                    9
                }
            }
            _ if double => {
                if passes == 8 {
                    11
                } else {
                    6
                }
            }
            _ => passes + 2 + u32::from(!plain),
        };
        return need(h, "a matrix result is read", states, p.written);
    }
    if !p.by.is_valu() {
        return Ok(());
    }
    let valu = i.class.is_valu();
    if lane_read && slot == 0 {
        need(h, "a vector result is read by a lane read", 1, p.written)?;
    }
    if i.dpp.is_some() && slot == 0 {
        need(h, "a vector result is read through DPP", 2, p.written)?;
    }
    if matches!(i.class, Class::Mfma { .. }) {
        need(h, "a vector result is read by a matrix instruction", 2, p.written)?;
    }
    if p.by == Class::Trans && valu && i.class != Class::Trans {
        need(h, "a transcendental result is read", 1, p.written)?;
    }
    if p.part && valu {
        need(h, "a register written in part is read", 1, p.written)?;
    }
    if p.by == Class::Dot && valu && i.class != Class::Dot {
        need(h, "a dot product's result is read by another unit", 3, p.written)?;
    }
    Ok(())
}

fn write_vector(h: &Hazards, i: &Inst, p: &Past) -> R<()> {
    if !i.class.is_valu() {
        return Ok(());
    }
    if let Class::Mfma { passes, plain, double } = p.by {
        let states = if double { if passes == 8 { 11 } else { 6 } } else { passes + 2 + u32::from(!plain) };
        need(h, "a matrix result is overwritten", states, p.written)?;
    }
    if p.by == Class::Dot && i.class != Class::Dot {
        need(h, "a dot product's result is overwritten by another unit", 3, p.written)?;
    }
    if p.c_passes != 0 {
        need(h, "a matrix addend is overwritten", p.c_passes - 1, p.read_as_c)?;
    }
    need(h, "the data of a wide store is overwritten", 2, p.stored)
}

/// Remembers what the instruction did.
pub(super) fn note(w: &mut Wave, i: &Inst) {
    if w.chip == Chip::Gfx1201 && w.strict.scalar_reads {
        super::settle::note(w, i);
    }
    let states = if i.is_nop { (i.imm as u32 & 0xff) + 1 } else { 1 };
    w.hazards.clock += states;
    let settles = i.class == Class::Memory || (i.is_alu_wait && i.imm as u32 >> 12 & 15 == 0);
    let now = w.hazards.clock;
    if settles {
        w.hazards.settled = now;
    }
    if i.dst == Operand::S(M0) {
        w.hazards.m0 = now;
    }
    if i.class == Class::Scalar {
        return;
    }
    for part in std::iter::once(i).chain(i.second.as_deref()) {
        note_vector(w, part, now);
    }
    if !i.class.is_valu() && !matches!(i.class, Class::Mfma { .. }) {
        return;
    }
    let h = &mut w.hazards;
    h.compared = matches!(i.entry.sem, Sem::Compare(c) if c.exec);
    h.wmma = if i.class == Class::Wmma { (written(i).start, written(i).end) } else { (0, 0) };
    h.valu += 1;
    if i.class == Class::Trans {
        h.trans += 1;
        h.last_trans = h.valu;
    }
    let one = matches!(i.entry.sem, Sem::Cross(Cross::ReadLane | Cross::ReadFirstLane));
    let wide = if one { 1 } else { w.halves };
    let h = &mut w.hazards;
    if let Operand::S(n) = i.sdst {
        for k in 0..wide {
            h.scalars[(usize::from(n) + k) & 127] = now;
        }
    }
    if h.compared {
        h.scalars[usize::from(EXEC)] = now;
    }
}

fn note_vector(w: &mut Wave, i: &Inst, now: u32) {
    let range = written(i);
    if w.chip != Chip::Gfx942 && i.class != Class::Trans {
        // Of these chips' registers only transcendental results matter: this one is none any more.
        for r in range {
            if let Ok(at) = w.register_index(r) {
                w.hazards.vectors[at].by = i.class;
            }
        }
        return;
    }
    let past = Past {
        written: now,
        by: i.class,
        part: i.opsel & 8 != 0 || i.sdwa.is_some_and(|s| s.dst != 6),
        valu: w.hazards.valu + 1,
        trans: w.hazards.trans + u32::from(i.class == Class::Trans),
        tuple: (range.start, range.end - range.start),
        ..NEVER
    };
    for r in range {
        if let Ok(at) = w.register_index(r) {
            w.hazards.vectors[at] = past;
        }
    }
    match i.class {
        Class::Mfma { passes, .. } => {
            for r in vectors(i.src[2], u32::from(i.entry.widths[3])) {
                if let Ok(at) = w.register_index(r) {
                    let p = &mut w.hazards.vectors[at];
                    (p.read_as_c, p.c_passes) = (now, passes);
                }
            }
        }
        Class::Memory if i.entry.widths[1] > 2 && w.chip == Chip::Gfx942 && i.format != Format::Ds => {
            for r in vectors(i.mem.data, i.entry.widths[1].into()) {
                if let Ok(at) = w.register_index(r) {
                    w.hazards.vectors[at].stored = now;
                }
            }
        }
        _ => {}
    }
}
