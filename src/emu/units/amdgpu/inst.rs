//! A decoded instruction: operands resolved as far as they can be before the wave runs, and its text for reports.

use super::direct::Direct;
use super::hazard::{Class, Ranges};
use super::lanes::Ty;
use super::rows::{Entry, Format};
use super::sem::Sem;
use std::fmt;

/// Where a value is read from or written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum Operand {
    #[default]
    None,
    /// Scalar register by number: 106 VCC, 108.. trap temporaries, 125 M0 on every chip, 126 EXEC.
    S(u8),
    /// Vector register; 256 and above are accumulation registers.
    V(u16),
    /// Inline constant or literal in the operand's own type.
    K(u64),
    Null,
    /// Apertures: first and last byte of the flat ranges of LDS and scratch.
    Aperture(u64),
    Vccz,
    Execz,
    Scc,
}

/// Number of M0 in `Operand::S`, whatever the chip's encoding.
pub(super) const M0: u8 = 125;
pub(super) const VCC: u8 = 106;
pub(super) const EXEC: u8 = 126;

/// Lane shuffle of the first source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dpp {
    pub kind: DppKind,
    pub fetch_inactive: bool,
    pub bound_ctrl: bool,
    pub bank_mask: u8,
    pub row_mask: u8,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum DppKind {
    Ctrl(u16),
    Eight([u8; 8]),
}

/// Sub-dword selection of gfx9: which part of each source, and of the result.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sdwa {
    pub src: [(u8, bool); 2],
    pub dst: u8,
    /// What happens to the rest of the destination: 0 zero, 1 sign, 2 keep.
    pub rest: u8,
}

/// The parts of a memory instruction other than data and address registers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MemFields {
    pub addr: Operand,
    pub data: Operand,
    pub data1: Operand,
    /// Scalar base (global, scratch), resource (buffer) or base pair (SMEM).
    pub base: Operand,
    pub soffset: Operand,
    pub offset: i32,
    pub offset1: u32,
    /// The atomic returns the old value.
    pub returns: bool,
    pub scope: Scope,
    pub offen: bool,
    pub idxen: bool,
    /// A buffer load of gfx942 whose value goes to LDS.
    pub to_lds: bool,
}

/// How far a memory access reaches past caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Scope {
    #[default]
    Cu,
    Group,
    Agent,
    System,
}

impl Scope {
    /// By number, as gfx942 (sc0 + 2 sc1) and gfx12 encode it.
    pub(crate) fn of(bits: u32) -> Self {
        [Self::Cu, Self::Group, Self::Agent, Self::System][bits as usize & 3]
    }

    /// gfx11's glc.
    pub(crate) fn of_glc(glc: bool) -> Self {
        if glc { Self::Agent } else { Self::Cu }
    }
}

/// A decoded instruction.
#[derive(Clone)]
pub(super) struct Inst {
    pub entry: &'static Entry,
    pub format: Format,
    pub words: [u32; 4],
    pub len_dwords: u8,
    pub class: Class,
    /// A plain copy of a register: it may copy an unwritten value.
    pub is_copy: bool,
    /// Waits for vector results, where its immediate selects that.
    pub is_alu_wait: bool,
    pub is_nop: bool,
    pub dst: Operand,
    pub sdst: Operand,
    pub src: [Operand; 3],
    pub ty: [Ty; 3],
    pub abs: u8,
    /// Negation; of the low halves for packed instructions.
    pub neg: u8,
    pub neg_hi: u8,
    /// Halves picked: bits 0..2 sources, bit 3 destination.
    pub opsel: u8,
    pub opsel_hi: u8,
    pub omod: u8,
    pub clamp: bool,
    pub dpp: Option<Dpp>,
    pub sdwa: Option<Sdwa>,
    pub imm: i32,
    pub mem: MemFields,
    /// The other half of a dual instruction.
    pub second: Option<Box<Inst>>,
    /// How it runs without regard for modifiers, if it has none.
    pub direct: Option<Direct>,
    /// Operands read, with their dwords.
    pub reads: Ranges,
}

impl Inst {
    pub(crate) fn new(entry: &'static Entry, format: Format, words: [u32; 4], len_dwords: u8) -> Self {
        Self {
            entry,
            format,
            words,
            len_dwords,
            class: Class::of(entry, format),
            is_copy: match entry.sem {
                Sem::Vector(sem, _) => sem.name == "v_mov_b32",
                _ => matches!(entry.name, "s_mov_b32" | "s_mov_b64"),
            },
            is_alu_wait: matches!(entry.name, "s_waitcnt_depctr" | "s_wait_alu"),
            is_nop: entry.name == "s_nop",
            dst: Operand::None,
            sdst: Operand::None,
            src: [Operand::None; 3],
            ty: [Ty::None; 3],
            abs: 0,
            neg: 0,
            neg_hi: 0,
            opsel: 0,
            opsel_hi: 0,
            omod: 0,
            clamp: false,
            dpp: None,
            sdwa: None,
            imm: 0,
            mem: MemFields::default(),
            second: None,
            direct: None,
            reads: [(Operand::None, 0); 6],
        }
    }

    /// Notes what follows from the fields, once they are all known.
    pub(crate) fn complete(&mut self) {
        self.direct = Direct::of(self);
        self.reads = super::hazard::reads(self);
        if let Some(second) = &mut self.second {
            second.reads = super::hazard::reads(second);
        }
    }

    pub(crate) fn len_bytes(&self) -> u64 {
        u64::from(self.len_dwords) * 4
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::None => write!(out, "off"),
            Self::S(106) => write!(out, "vcc"),
            Self::S(M0) => write!(out, "m0"),
            Self::S(EXEC) => write!(out, "exec"),
            Self::S(n @ 108..=123) => write!(out, "ttmp{}", n - 108),
            Self::S(n) => write!(out, "s{n}"),
            Self::V(n @ 256..) => write!(out, "a{}", n - 256),
            Self::V(n) => write!(out, "v{n}"),
            Self::K(v) => write!(out, "{v:#x}"),
            Self::Null => write!(out, "null"),
            Self::Aperture(v) => write!(out, "aperture:{v:#x}"),
            Self::Vccz => write!(out, "vccz"),
            Self::Execz => write!(out, "execz"),
            Self::Scc => write!(out, "scc"),
        }
    }
}

impl fmt::Display for Inst {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.entry.name)?;
        let m = &self.mem;
        let all = [self.dst, self.sdst, self.src[0], self.src[1], self.src[2], m.addr, m.data, m.data1, m.base];
        let mut lead = " ";
        for operand in all.iter().filter(|o| **o != Operand::None) {
            write!(out, "{lead}{operand}")?;
            lead = ", ";
        }
        if matches!(self.format, Format::Sopp | Format::Sopk) {
            write!(out, "{lead}{:#x}", self.imm as u16)?;
        }
        if m.offset != 0 {
            write!(out, " offset:{}", m.offset)?;
        }
        if self.dpp.is_some() {
            write!(out, " dpp")?;
        }
        if let Some(second) = &self.second {
            write!(out, " :: {second}")?;
        }
        write!(out, " //")?;
        self.words.iter().take(self.len_dwords.into()).try_for_each(|w| write!(out, " {w:08x}"))
    }
}
