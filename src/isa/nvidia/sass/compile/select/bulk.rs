//! Bulk copies, which run asynchronously in the TMA unit: `cp.async.bulk`, of byte rows and of tensor tiles.
//!
//! Their operands are in uniform registers, and a warp issues one copy for all its threads, while in PTX each thread
//! issues its own. So the active threads are served one after the other in a loop: one of the remaining threads is
//! elected, its values are moved to uniform registers, the copy is issued. Nearly always only one thread copies, and
//! the back edge is not taken.

use super::build::{Build, Src, lea};
use super::cluster::reduction;
use crate::ptx::{Space, Type};
use crate::sass::compile::AsmError;
use crate::sass::compile::mir::{Mach, Pred, Term, Val, Wide};
use crate::sass::compile::read::flat::{Flat, Opd, Symbol};
use crate::sass::{Modifier, mods, op};

/// The scoreboard that counts groups of bulk copies; it has no other use in code with bulk copies.
pub(crate) const GROUPS: u64 = 1;

/// A bulk copy's operands in uniform registers.
#[derive(Default)]
pub(super) struct Uniforms {
    /// Destination and what goes with it, source, size.
    pub a: Vec<Val>,
    pub b: Vec<Val>,
    pub c: Option<Val>,
    pub policy: Option<Wide>,
    /// The first register of `a` is aligned to this.
    pub align: u64,
}

impl Build<'_> {
    /// `cp.async.bulk` and `cp.reduce.async.bulk`.
    pub(super) fn bulk(&mut self, i: &Flat) -> Result<(), AsmError> {
        match () {
            () if i.has("commit_group") => self.aside(|b| {
                b.push(Mach::new(op::UTMACMDFLUSH_N).effect());
                Ok(())
            }),
            () if i.has("wait_group") => match i.opds.first().and_then(|o| self.constant_of(o)) {
                Some(n) if n < 64 => {
                    self.push(Mach::new(op::DEPBAR_LE).n("s", GROUPS).n("n", n).effect());
                    if !i.has("read") {
                        self.push(Mach::new(op::CCTL_ALL).effect());
                    }
                    Ok(())
                }
                _ => self.no(i, "a number of groups that is no constant below 64 is not assembled"),
            },
            () if i.has("tensor") => self.copy_tile(i),
            () if i.has("prefetch") => self.prefetch_bulk(i),
            () => self.copy_bulk(i),
        }
    }

    /// State spaces of destination and source, in the order of the text.
    fn spaces(&self, i: &Flat) -> (Option<Space>, Option<Space>) {
        let mut all = i.mods.iter().filter_map(|m| match m {
            crate::ptx::Modifier::Space(s) => Some(*s),
            _ => None,
        });
        (all.next(), all.next())
    }

    fn copy_bulk(&mut self, i: &Flat) -> Result<(), AsmError> {
        let (to, from) = self.spaces(i);
        let to_shared = to != Some(Space::Global);
        let from_shared = from != Some(Space::Global);
        if to.is_none() || from.is_none() || !to_shared && !from_shared {
            return self.no(i, "between these spaces there is no copy");
        }
        let mut rest = i.opds.iter().skip(3);
        let mut u = Uniforms { align: 2, ..Uniforms::default() };
        u.b = self.address_words(i, &i.opds[1], !from_shared)?;
        u.a = self.address_words(i, &i.opds[0], !to_shared)?;
        if to_shared {
            let Some(bar) = rest.next() else { return self.no(i, "an mbarrier is expected") };
            u.a.push(self.address_value(i, bar)?);
        }
        let mask = if i.has("multicast::cluster") { rest.next() } else { None };
        u.c = Some(self.units(i, &i.opds[2], mask)?);
        u.policy = self.policy(i, rest.next())?;
        let to = if to_shared { mods::dd::S } else { mods::dd::G };
        let from = if from_shared { mods::ss::S } else { mods::ss::G };
        let m = match i.has("reduce") {
            false => {
                let m = Mach::new(op::UBLKCP_U).m(to).m(from);
                m.m(if mask.is_some() { mods::mc::MULTICAST } else { mods::mc::NONE })
            }
            true => {
                let Some(operation) = reduction(i) else { return self.no(i, "this operation is not assembled") };
                let Some(element) = element(i.ty(), operation) else {
                    return self.no(i, "elements of this type are not assembled");
                };
                Mach::new(op::UBLKRED_U).m(to).m(operation).m(element)
            }
        };
        self.for_each_thread(m, u)
    }

    fn prefetch_bulk(&mut self, i: &Flat) -> Result<(), AsmError> {
        let b = self.address_words(i, &i.opds[0], true)?;
        let c = Some(self.units(i, &i.opds[1], None)?);
        let policy = self.policy(i, i.opds.get(2))?;
        self.for_each_thread(Mach::new(op::UBLKPF_U), Uniforms { b, c, policy, align: 2, ..Uniforms::default() })
    }

    /// `cp.async.bulk.tensor`, and its reducing and prefetching variants.
    fn copy_tile(&mut self, i: &Flat) -> Result<(), AsmError> {
        if i.words().any(|w| w.starts_with("im2col::") || w.starts_with("tile::")) {
            return self.no(i, "only plain tiles and im2col are assembled");
        }
        let columns = i.has("im2col") || i.has("im2col_no_offs");
        let dimensions = ["1d", "2d", "3d", "4d", "5d"].iter().position(|d| i.has(d));
        let Some(dimensions) = dimensions else { return self.no(i, "the number of dimensions is missing") };
        let dim = [mods::dim::_1D, mods::dim::_2D, mods::dim::_3D, mods::dim::_4D, mods::dim::_5D][dimensions];
        let (prefetches, reduces) = (i.has("prefetch"), i.has("reduce"));
        let loads = !prefetches && self.spaces(i).0 != Some(Space::Global);
        if columns && (prefetches || dimensions < 2 || loads != i.has("im2col")) {
            return self.no(i, "copies of 3 to 5 dimensions are, loads by im2col and others by im2col_no_offs");
        }
        let (map, shared) = if loads { (&i.opds[1], i.opds.first()) } else { (&i.opds[0], i.opds.get(1)) };
        let Opd::Pair(base, list) = map else { return self.no(i, "a tensor map and coordinates are expected") };
        let Opd::Vector(list) = &**list else { return self.no(i, "coordinates are expected") };
        let coordinates = match *list {
            [Opd::Vector(v)] => v,
            v => v,
        };
        if coordinates.len() != dimensions + 1 {
            return self.no(i, "as many coordinates as dimensions are expected");
        }
        let mut rest = i.opds.iter().skip(if prefetches { 1 } else { 2 });
        let mut u = Uniforms { align: 8, ..Uniforms::default() };
        u.b = self.address_words(i, base, true)?;
        if let (false, Some(shared)) = (prefetches, shared) {
            u.a.push(self.address_value(i, shared)?);
        }
        if loads {
            let Some(bar) = rest.next() else { return self.no(i, "an mbarrier is expected") };
            u.a.push(self.address_value(i, bar)?);
        }
        for o in coordinates {
            u.a.push(self.src(i, o, Type::S32)?);
        }
        let offsets = if columns && loads { rest.next() } else { None };
        let mask = if i.has("multicast::cluster") { rest.next() } else { None };
        if let Some(mask) = mask {
            u.c = Some(self.cast_mask(i, mask)?);
        }
        if let Some(offsets) = offsets {
            u.c = Some(self.column_offsets(i, offsets, dimensions - 1, u.c.unwrap_or(Val::Imm(0)))?);
        }
        u.policy = self.policy(i, rest.next())?;
        let m = match (loads, prefetches, reduces) {
            (true, ..) if u.c.is_some() => {
                Mach::new(op::UTMALDG_M).m(if mask.is_some() { mods::mc::MULTICAST } else { mods::mc::NONE })
            }
            (true, ..) => Mach::new(op::UTMALDG_T),
            (_, true, _) => Mach::new(op::UTMAPF_T),
            (_, _, false) => Mach::new(op::UTMASTG_T),
            _ => match reduction(i) {
                Some(operation) => Mach::new(op::UTMAREDG_T).m(operation),
                None => return self.no(i, "this operation is not assembled"),
            },
        };
        let m = if columns { m.m(mods::im::IM2COL) } else { m };
        self.for_each_thread(m.m(dim), u)
    }

    /// im2col offsets of a copy, placed below the mask of blocks: one of 16 bits, two of 8, or three of 5 (ptxas 13.5).
    fn column_offsets(&mut self, i: &Flat, o: &Opd, count: usize, mask: Val) -> Result<Val, AsmError> {
        let Opd::Vector(list) = o else { return self.no(i, "offsets are expected") };
        if list.len() != count {
            return self.no(i, "two offsets fewer than dimensions are expected");
        }
        let bits = [16u32, 8, 5][count - 1];
        let mut all = mask;
        for (o, k) in list.iter().zip(0..) {
            let by = bits * k;
            all = match (self.src(i, o, Type::U16)?, all) {
                (Val::Imm(n), Val::Imm(m)) => Val::Imm((n & 0xffff) << by | m),
                (v, sum) => {
                    let d = self.one();
                    let (v, sum) = (self.in_word(v), self.in_word(sum));
                    self.unguarded(|b| b.alu(lea(), d, [v.into(), sum.into(), Src::ZERO], |m| m.n("sh", by.into())));
                    Val::Word(d)
                }
            };
        }
        Ok(all)
    }

    /// `prefetch.tensormap`.
    pub(super) fn prefetch_map(&mut self, i: &Flat) -> Result<(), AsmError> {
        let a = self.address_words(i, &i.opds[0], true)?;
        self.for_each_thread(Mach::new(op::UTMACCTL_U).m(mods::op::PF), Uniforms { a, align: 2, ..Uniforms::default() })
    }

    /// Invalidates the TMA unit's cached copy of a tensor map. All active threads name the same map.
    pub(super) fn forget_map(&mut self, i: &Flat) -> Result<(), AsmError> {
        let a = self.address_words(i, &i.opds[0], true)?;
        self.aside(|b| {
            let first = b.uniform_registers(2, 2);
            (first..).zip(a).for_each(|(register, v)| b.put_uniform(v, register));
            b.push(Mach::new(op::UTMACCTL_U).m(mods::op::IV).n("a", first).effect());
            b.push(Mach::new(op::UTMACMDFLUSH_N).effect());
            Ok(())
        })
    }

    /// An address as words: two for global memory, one for shared memory.
    pub(super) fn address_words(&mut self, i: &Flat, o: &Opd, wide: bool) -> Result<Vec<Val>, AsmError> {
        if !wide {
            return Ok(vec![self.address_value(i, o)?]);
        }
        if let Opd::Address(base, offset) = o
            && let Opd::Symbol(Symbol::Param(at, _), more) = **base
        {
            let d = self.two();
            let at = i64::from(self.param_base() + at) + more + offset;
            self.unguarded(|b| b.parameter_address(d, Wide::Imm(at.cast_unsigned())));
            return Ok(vec![Val::Word(d), Val::Word(d.plus(1))]);
        }
        let place = self.place(i, o, true, 1)?;
        let Some((w, _)) = place.base else { return self.no(i, "a 64-bit address is expected") };
        let at = match place.offset {
            0 => w,
            by => {
                let d = self.two();
                self.unguarded(|b| b.add64(d, Wide::Pair(w), Wide::Imm(by.cast_unsigned())));
                d
            }
        };
        Ok(vec![Val::Word(at), Val::Word(at.plus(1))])
    }

    /// A number of bytes in units of 16; the upper part is the mask of the blocks that receive a multicast.
    fn units(&mut self, i: &Flat, o: &Opd, mask: Option<&Opd>) -> Result<Val, AsmError> {
        let bytes = self.src(i, o, Type::U32)?;
        let units = match bytes {
            Val::Imm(n) if !n.is_multiple_of(16) || n >= 1 << 20 => {
                return self.no(i, "a multiple of 16 bytes, below a mebibyte, is expected");
            }
            Val::Imm(n) => Val::Imm(n >> 4),
            v => {
                let d = self.one();
                self.unguarded(|b| b.shift(d, [Src::ZERO, 4.into(), v.into()], mods::dir::R, mods::ty::U32, true));
                Val::Word(d)
            }
        };
        let Some(mask) = mask else { return Ok(units) };
        let mask = self.cast_mask(i, mask)?;
        Ok(match (units, mask) {
            (Val::Imm(a), Val::Imm(b)) => Val::Imm(a | b),
            (a, b) => {
                let d = self.one();
                self.unguarded(|s| s.lop(d, [a.into(), b.into(), Src::ZERO], 0xfc));
                Val::Word(d)
            }
        })
    }

    /// The mask of the blocks that receive a multicast, in the upper half of a word.
    fn cast_mask(&mut self, i: &Flat, o: &Opd) -> Result<Val, AsmError> {
        Ok(match self.src(i, o, Type::U16)? {
            Val::Imm(n) => Val::Imm(n << 16),
            v => {
                let d = self.one();
                self.unguarded(|b| b.shift(d, [v.into(), 16.into(), Src::ZERO], mods::dir::L, mods::ty::U32, false));
                Val::Word(d)
            }
        })
    }

    fn policy(&mut self, i: &Flat, o: Option<&Opd>) -> Result<Option<Wide>, AsmError> {
        match (i.has("L2::cache_hint"), o) {
            (true, Some(o)) => Ok(Some(self.wide(i, o, Type::B64)?)),
            (false, None) => Ok(None),
            (true, None) => self.no(i, "a cache policy is expected"),
            (false, Some(_)) => self.no(i, "an operand too many"),
        }
    }

    /// Issues an instruction once for each active thread.
    pub(super) fn for_each_thread(&mut self, m: Mach, u: Uniforms) -> Result<(), AsmError> {
        self.aside(|b| {
            let (again, done) = (b.fresh(), b.fresh());
            b.code.blocks[b.block].term = Term::Jump(again);
            b.start(again);
            let mine = b.pred();
            b.push(Mach::new(op::ELECT_R).n("d", 63).w("pu", mine).p("pp", Pred::TRUE).effect());
            let mut m = m;
            for (slot, values, align) in [("a", &u.a, u.align), ("b", &u.b, 2)] {
                if !values.is_empty() {
                    m = m.n(slot, b.elected(values, align, mine));
                }
            }
            if let Some(c) = u.c {
                m = m.n("c", b.elected(&[c], 1, mine));
            }
            if let Some(policy) = u.policy {
                m = m.n("dc", 1).n("ud", b.elected(&[policy.low(), policy.high()], 2, mine));
            }
            b.push(m.effect());
            b.code.blocks[b.block].term = Term::Branch(Pred::of(mine), done, again, false);
            b.start(done);
            Ok(())
        })
    }

    /// Moves the values of the elected thread to consecutive uniform registers.
    fn elected(&mut self, values: &[Val], align: u64, mine: crate::sass::compile::mir::Word) -> u64 {
        let first = self.uniform_registers(values.len() as u64, align);
        for (register, v) in (first..).zip(values) {
            match *v {
                Val::Imm(n) => self.push(Mach::new(op::UMOV_I).n("d", register).n("b", n.into()).effect()),
                v => {
                    let w = self.in_word(v);
                    let m = Mach::new(op::R2UR_R).n("d", register).r("a", w).effect();
                    self.always(m.guarded(Some(Pred::of(mine))));
                }
            }
        }
        first
    }
}

/// The element type of a bulk reduction, as the table names it.
fn element(ty: Type, operation: Modifier) -> Option<Modifier> {
    Some(match ty {
        Type::U32 | Type::B32 => mods::ty::NONE,
        Type::S32 => {
            if matches!(operation, mods::op::MIN | mods::op::MAX) {
                mods::ty::S32
            } else {
                mods::ty::NONE
            }
        }
        Type::U64 | Type::B64 => mods::ty::U64,
        Type::S64 => {
            if matches!(operation, mods::op::MIN | mods::op::MAX) {
                mods::ty::S64
            } else {
                mods::ty::U64
            }
        }
        Type::F16 => mods::ty::F16_RN,
        Type::Bf16 => mods::ty::BF16_RN,
        Type::F32 => mods::ty::F32_RN,
        Type::F64 => mods::ty::F64_RN,
        _ => return None,
    })
}
