//! Linear nodes → PTX, node by node in list order.
//!
//! A value is a list of lanes, each a constant or a register. Integers of up to 32 bits are in `.b32` registers, those
//! below 32 bits extended; f16 and bf16 in `.b16`, f32 in `.f32`, 64-bit types in `.b64` and `.f64`, bools in `.pred`.
//! All arithmetic has explicit rounding, so that an assembler does not contract operations.
//!
//! **The kernel's ABI.** Every argument is 64 bits: buffers first, then variables (`.s64`; an I32 variable is the low
//! word), as on all devices. After them come the tensor maps of TMA copies (`Program::tensors`), 128 bytes each,
//! 64-byte aligned. Grid and block are the program's `global` and `local` (`.reqntid`). Up to 48 KiB of shared memory
//! is declared statically; more is `.extern`, and the launch passes `local_bytes`.
//!
//! **Alignment.** PTX faults on a vector access that is not aligned to its size, and a buffer argument may be part of
//! another buffer. So a kernel with vector accesses to buffers has two bodies: one for buffers aligned to 16 bytes, and
//! one with single accesses. It checks its arguments and branches to one of them (the same in all threads).
//! [`Buffers::Aligned`] omits the second body.

mod alu;
mod cast;
mod clean;
mod code;
mod control;
mod finish;
mod matrix;
mod memory;
mod tile;
mod tma;
mod warpgroup;
mod wave;

use super::Chip;
use super::module::Module;
use code::{Code, Opd, Reg, class_of};
use doorbell_codegen::Program;
use doorbell_uop::{Arg, Op, Scalar, UMap, UOp, USet, cast_const, eval_alu, from_bits, to_bits};
pub use finish::launch_shared_bytes;
use smallvec::SmallVec;
use std::collections::HashMap;

/// What a caller guarantees about the buffers that it passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Buffers {
    /// Only that they are aligned to their elements.
    #[default]
    Anywhere,
    /// All are aligned to 16 bytes.
    Aligned,
}

/// Why a program cannot be rendered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RenderError {
    #[error("{kernel}: no PTX for {op:?} on {dtype} on {chip}: {why}")]
    Unsupported { kernel: String, chip: &'static str, op: Op, dtype: doorbell_uop::DType, why: &'static str },
    #[error("{kernel}: malformed program: {why}")]
    Malformed { kernel: String, why: String },
    #[error("{kernel}: {bytes} bytes of shared memory, a block on {chip} has {limit}")]
    SharedMemory { kernel: String, chip: &'static str, bytes: usize, limit: usize },
}

pub(super) type Res<T> = Result<T, RenderError>;

/// One lane of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Src {
    Reg(Reg),
    /// Constant bits; integers are sign- or zero-extended to 64 bits according to their type.
    Bits(u64),
}

type Val = SmallVec<[Src; 4]>;

/// Renders the program as a module with one kernel.
///
/// # Errors
/// A node that is not allowed in a linear program for a GPU, or too much shared memory.
pub fn render(program: &Program, chip: &'static Chip, buffers: Buffers) -> Result<Module, RenderError> {
    let mut r = Render::new(program, chip)?;
    r.body(matches!(buffers, Buffers::Aligned))?;
    Ok(finish::module(r))
}

struct Render<'a> {
    program: &'a Program,
    chip: &'static Chip,
    code: Vec<Code>,
    /// Number of registers allocated so far, by class.
    made: [u32; code::CLASSES],
    labels: u32,
    /// Values by position in the list.
    vals: Vec<Option<Val>>,
    pos: UMap<u32>,
    /// Registers that are assigned to more than once.
    mutable: std::collections::HashSet<Reg>,
    loops: Vec<control::Loop>,
    /// Addresses computed so far, with the loop depth at which each was computed.
    addresses: HashMap<(u64, u64, u64), (Reg, usize)>,
    /// Integer registers that are another one plus a constant: indices, which do not wrap around.
    sums: HashMap<Reg, (Reg, i64)>,
    /// Words known to hold these two halves (with the loop depth from which on), or these four bytes.
    pairs: HashMap<(Reg, Reg), (Reg, usize)>,
    /// Halves that are rounded f32: the type and the register.
    rounded: HashMap<Reg, (Scalar, Reg)>,
    quads: HashMap<[Reg; 4], Reg>,
    /// Loads that are used only by copies to shared memory, and whether any such copy was asynchronous so far.
    copied: USet,
    in_flight: bool,
    /// State of wgmma products; shared addresses in the descriptors' encoding, with the loop depth at which each was
    /// computed; the descriptors' upper half.
    products: warpgroup::Products,
    units: HashMap<Reg, (Reg, usize)>,
    upper_half: Option<Reg>,
    /// State of TMA copies; addresses of the tensor maps among the parameters.
    tma: tma::Tma,
    maps: HashMap<usize, Reg>,
    /// Byte offset of each scratch area, and their total size.
    areas: UMap<u32>,
    shared_bytes: usize,
    /// Length of the code before the two bodies.
    start: usize,
    /// Buffer addresses by parameter, and the address of shared memory; computed at the start.
    params: HashMap<usize, Reg>,
    shared: Option<Reg>,
    /// Whether buffers are aligned to 16 bytes.
    aligned: bool,
    /// Buffers with vector accesses.
    wide: Vec<usize>,
}

impl<'a> Render<'a> {
    fn new(program: &'a Program, chip: &'static Chip) -> Res<Render<'a>> {
        let pos = program.uops.iter().enumerate().map(|(i, u)| (u.clone(), i as u32)).collect();
        let mut r = Render {
            program,
            chip,
            code: Vec::with_capacity(4 * program.uops.len()),
            made: [0; code::CLASSES],
            labels: 0,
            vals: vec![],
            pos,
            mutable: Default::default(),
            loops: vec![],
            addresses: HashMap::new(),
            sums: HashMap::new(),
            pairs: HashMap::new(),
            rounded: HashMap::new(),
            quads: HashMap::new(),
            copied: tile::only_copied(program),
            in_flight: false,
            products: warpgroup::Products::of(program),
            units: HashMap::new(),
            upper_half: None,
            tma: tma::Tma::of(program),
            maps: HashMap::new(),
            areas: UMap::default(),
            shared_bytes: 0,
            start: 0,
            params: HashMap::new(),
            shared: None,
            aligned: true,
            wide: vec![],
        };
        r.place_areas();
        if r.shared_bytes > chip.shared_bytes {
            let (bytes, limit) = (r.shared_bytes, chip.shared_bytes);
            return Err(RenderError::SharedMemory { kernel: program.name.clone(), chip: chip.name, bytes, limit });
        }
        Ok(r)
    }

    /// Lays out the scratch areas one after the other. Those that wgmma reads come first: their sizes are multiples of
    /// their alignment.
    fn place_areas(&mut self) {
        let first = warpgroup::areas(self.program);
        let all: Vec<&UOp> = self.program.uops.iter().filter(|u| u.op() == Op::Local).collect();
        let (read, others): (Vec<&UOp>, Vec<&UOp>) = all.into_iter().partition(|u| first.contains(*u));
        for u in read.into_iter().chain(others) {
            let Arg::Local(_, len) = u.arg() else { continue };
            self.areas.insert(u.clone(), u32::try_from(self.shared_bytes).unwrap_or(u32::MAX));
            let bytes = len.saturating_mul(u.dtype().scalar.size_bytes());
            self.shared_bytes = self.shared_bytes.saturating_add(bytes.saturating_add(63) / 64 * 64);
        }
    }

    /// The kernel's code: one body, or a branch to one of two.
    fn body(&mut self, promised: bool) -> Res<()> {
        self.nodes()?;
        self.run("ret", &[], vec![]);
        let wide = std::mem::take(&mut self.wide);
        if promised || wide.is_empty() {
            return clean::clean(self);
        }
        let (first, start) = (std::mem::take(&mut self.code), self.start);
        let other = self.label();
        let mut any: Option<Reg> = None;
        for k in wide {
            let at = self.argument(k)?;
            any = Some(match any {
                None => at,
                Some(sum) => {
                    let both = self.reg(code::RD);
                    self.run("or.b64", &[both], vec![sum.into(), at.into()]);
                    both
                }
            });
        }
        if let Some(any) = any {
            let (low, off) = (self.reg(code::RD), self.reg(code::P));
            self.run("and.b64", &[low], vec![any.into(), Opd::Int(15)]);
            self.run("setp.ne.s64", &[off], vec![low.into(), Opd::Int(0)]);
            self.branch(Some((false, off)), other);
        }
        let choice = std::mem::replace(&mut self.code, first);
        self.code.splice(start..start, choice);
        self.code.push(Code::label(other));
        self.aligned = false;
        self.addresses.clear();
        self.units.clear();
        self.pairs.clear();
        self.rounded.clear();
        self.quads.clear();
        self.in_flight = false;
        self.tma = tma::Tma::none();
        self.nodes()?;
        self.run("ret", &[], vec![]);
        clean::clean(self)
    }

    fn nodes(&mut self) -> Res<()> {
        self.vals = vec![None; self.program.uops.len()];
        for p in 0..self.program.uops.len() {
            self.node(p)?;
        }
        if self.loops.is_empty() { Ok(()) } else { Err(self.malformed("a loop is not closed")) }
    }

    fn node(&mut self, p: usize) -> Res<()> {
        let u = self.program.uops[p].clone();
        let v = match u.op() {
            Op::Sink | Op::Const | Op::Index | Op::Param | Op::Local => return Ok(()),
            // An address: its users look through it.
            Op::After if u.dtype().space.is_some() => return Ok(()),
            Op::Load if self.copied.contains(&u) => return Ok(()),
            Op::Store if self.tma.replace(&u) => return Ok(()),
            Op::CopyTile => return self.tma_copy(&u),
            Op::AwaitTile => return self.tma_wait(&u),
            Op::Store if matches!(u.arg(), Arg::Stage(_)) => return self.copy_tile(&u),
            Op::Store => return self.store(&u),
            Op::SetAcc => return self.set_acc(&u),
            Op::End => return self.close_loop(&u),
            Op::Commit => return self.commit(&u),
            // Handled by the product that reads it.
            Op::LoadMatrix if matches!(u.arg(), Arg::Tile(_)) => return Ok(()),
            Op::Barrier => {
                self.await_copies(&u)?;
                self.run("bar.sync", &[], vec![Opd::Int(0)]);
                return Ok(());
            }
            Op::Range => self.open_loop(&u)?,
            Op::Acc => self.acc(&u)?,
            Op::After => self.val(&u.src()[0])?,
            Op::Wmma if let Some(unit) = warpgroup::unit_of(&u) => self.group_product(&u, unit)?,
            _ => {
                let v = self.compute(&u)?;
                self.settle(u.dtype().scalar, v)
            }
        };
        self.vals[p] = Some(v);
        Ok(())
    }

    /// Copies lanes that are in registers which change later.
    fn settle(&mut self, t: Scalar, v: Val) -> Val {
        v.into_iter()
            .map(|s| match s {
                Src::Reg(r) if self.mutable.contains(&r) => Src::Reg(self.copy(t, s)),
                s => s,
            })
            .collect()
    }

    fn compute(&mut self, u: &UOp) -> Res<Val> {
        match u.op() {
            Op::Load => self.load(u),
            Op::LoadMatrix => self.load_matrix(u),
            Op::Special => self.special(u),
            Op::Var => self.variable(u),
            Op::Splat => {
                let x = self.val(&u.src()[0])?;
                Ok(std::iter::repeat_n(x[0], usize::from(u.dtype().lanes)).collect())
            }
            Op::Stack | Op::Cat => {
                let mut out = Val::new();
                for s in u.src() {
                    out.extend(self.val(s)?);
                }
                Ok(out)
            }
            Op::Gep => {
                let v = self.val(&u.src()[0])?;
                let Arg::Axes(lanes) = u.arg() else { return Err(self.unsupported(u, "no lanes")) };
                let lane = |k: &_| v.get(usize::from(*k)).or(v.first().filter(|_| v.len() == 1)).copied();
                lanes.iter().map(lane).collect::<Option<Val>>().ok_or_else(|| self.malformed("a lane is not there"))
            }
            Op::VReduce => {
                let Arg::Reduce(op, _) = u.arg() else { return Err(self.unsupported(u, "no operation")) };
                let v = self.val(&u.src()[0])?;
                let mut sum = v[0];
                for x in &v[1..] {
                    sum = self.alu(u, *op, u.dtype().scalar, &[sum, *x])?;
                }
                Ok(smallvec::smallvec![sum])
            }
            Op::WaveReduce => self.wave_reduce(u),
            Op::Wmma => self.wmma(u),
            op if op.is_elementwise() => self.lanewise(u),
            _ => Err(self.unsupported(u, "not part of a GPU's linear program")),
        }
    }

    /// Computes each lane separately; equal lanes are computed once.
    fn lanewise(&mut self, u: &UOp) -> Res<Val> {
        let sources: SmallVec<[Val; 3]> = u.src().iter().map(|s| self.val(s)).collect::<Res<_>>()?;
        let mut out = Val::new();
        let mut done: Vec<(SmallVec<[Src; 3]>, Src)> = Vec::new();
        for k in 0..usize::from(u.dtype().lanes) {
            let a: SmallVec<[Src; 3]> = sources.iter().map(|v| v[k.min(v.len() - 1)]).collect();
            let known = done.iter().find(|d| d.0 == a).map(|d| d.1).or_else(|| folded(u, &a));
            let from = u.src()[0].dtype().scalar;
            let to = u.dtype().scalar;
            let r = match (known, u.op()) {
                (Some(r), _) => r,
                (_, Op::Cast) => self.cast(u, from, to, a[0])?,
                (_, Op::Bitcast) => self.bitcast(u, from, to, a[0])?,
                (_, Op::Where) => self.choose(to, a[0], a[1], a[2]),
                (_, op) if op.is_comparison() => self.compare(op, from, a[0], a[1]),
                (_, op) => self.alu(u, op, to, &a)?,
            };
            done.push((a, r));
            out.push(r);
        }
        Ok(out)
    }

    /// A node's value.
    fn val(&mut self, u: &UOp) -> Res<Val> {
        if let Some(c) = u.as_const().filter(|_| u.op() == Op::Const) {
            let t = u.dtype().scalar;
            let bits = extend(to_bits(c, t), t);
            return Ok(std::iter::repeat_n(Src::Bits(bits), usize::from(u.dtype().lanes)).collect());
        }
        let known = self.pos.get(u).and_then(|p| self.vals[*p as usize].clone());
        known.ok_or_else(|| self.malformed(&format!("{u:?} is used before it stands in the list")))
    }

    fn unsupported(&self, u: &UOp, why: &'static str) -> RenderError {
        let dtype = if u.op().is_comparison() { u.src()[0].dtype() } else { u.dtype() };
        RenderError::Unsupported { kernel: self.program.name.clone(), chip: self.chip.name, op: u.op(), dtype, why }
    }

    fn malformed(&self, why: &str) -> RenderError {
        RenderError::Malformed { kernel: self.program.name.clone(), why: why.to_owned() }
    }
}

/// The result of an operation on integer constants.
fn folded(u: &UOp, a: &[Src]) -> Option<Src> {
    let t = u.src()[0].dtype().scalar;
    let int = |t: Scalar| t.is_int() || t == Scalar::Bool;
    if !int(t) || !int(u.dtype().scalar) || u.op() == Op::Bitcast {
        return None;
    }
    let value = |(k, s): (usize, &Src)| match s {
        Src::Bits(b) => Some(from_bits(*b, u.src()[k].dtype().scalar)),
        Src::Reg(_) => None,
    };
    let values = a.iter().enumerate().map(value).collect::<Option<SmallVec<[_; 3]>>>()?;
    let to = u.dtype().scalar;
    let v = match u.op() {
        Op::Cast => cast_const(values[0], to),
        op => eval_alu(op, if op.is_comparison() { t } else { to }, &values)?,
    };
    Some(Src::Bits(extend(to_bits(v, to), to)))
}

/// Bits of a type as constants hold them: integers extended to 64 bits.
fn extend(bits: u64, t: Scalar) -> u64 {
    match t {
        Scalar::I8 => i64::from(bits as i8).cast_unsigned(),
        Scalar::I16 => i64::from(bits as i16).cast_unsigned(),
        Scalar::I32 => i64::from(bits as i32).cast_unsigned(),
        _ => bits,
    }
}
