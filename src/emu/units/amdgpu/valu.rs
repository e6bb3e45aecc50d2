//! Plain arithmetic of the vector unit: fetch sources with modifiers, compute 32 lanes at a time, write the
//! lanes that EXEC (and a lane shuffle) allows.

use super::Chip;
use super::bus::ones;
use super::dpp;
use super::fault::{FaultKind, R, fail};
use super::inst::{Inst, Operand};
use super::lanes::{L, Lane, Mode, Ty, VFn, VSem};
use super::sem::Sem;
use super::sem_compare::{Compare, What, compare32, compare64};
use super::wave::{Wave, half_mask};

/// The first source after a lane shuffle: low and high dwords of both halves.
pub(super) type Shuffled = [[L; 2]; 2];

/// One half's result: low dwords and, for 64-bit types, high ones.
pub(super) struct Result32 {
    pub lo: L,
    pub hi: L,
}

impl Result32 {
    fn zero() -> Self {
        Self { lo: [0; 32], hi: [0; 32] }
    }
}

/// Plain arithmetic of one instruction.
pub(super) fn execute(w: &mut Wave, i: &Inst, sem: &'static VSem) -> R<()> {
    if w.strict.poison && i.is_copy && move_unwritten(w, i)? {
        return Ok(());
    }
    let (shuffled, write) = prepare(w, i, sem.src[0].is_64())?;
    for h in 0..w.halves {
        let mask = half_mask(write, h);
        if mask == 0 {
            continue;
        }
        let mut out = Result32::zero();
        compute(w, i, sem, h, shuffled.as_deref(), &mut out)?;
        commit(w, i, sem.dst, h, &out, mask)?;
    }
    w.lane_operations += u64::from(write.count_ones());
    Ok(())
}

/// A copy of unwritten lanes makes the destination's unwritten; false when there is none or the instruction is more
/// than a copy.
pub(super) fn move_unwritten(w: &mut Wave, i: &Inst) -> R<bool> {
    let (Operand::V(to), None, None) = (i.dst, i.dpp, i.sdwa) else { return Ok(false) };
    let exec = w.exec();
    let (values, missing) = match i.src[0] {
        Operand::V(from) => {
            let at = w.readable(from.into(), 0)?;
            ([*w.half(at, 0), *w.half(at, w.halves - 1)], exec & !w.known_lanes(at))
        }
        Operand::S(n) if !w.is_scalar_known(n) => ([[w.read_mask_unwritten(n, 1)? as u32; 32]; 2], exec),
        _ => return Ok(false),
    };
    if missing == 0 {
        return Ok(false);
    }
    let to = w.writable(to.into())?;
    for (h, value) in values.iter().enumerate().take(w.halves) {
        w.put_half(to, h, value, half_mask(exec, h));
    }
    w.set_unknown(to, missing);
    Ok(true)
}

/// The lanes to write, and the first source when it is shuffled.
pub(super) fn prepare(w: &Wave, i: &Inst, wide: bool) -> R<(Option<Box<Shuffled>>, u64)> {
    match i.dpp {
        None => Ok((None, w.exec())),
        Some(shuffle) => {
            let Operand::V(n) = i.src[0] else {
                return fail(FaultKind::BadOperand { what: "DPP of a scalar".into() });
            };
            let (lo, write) = dpp::gather(w, n.into(), &shuffle)?;
            let hi = if wide { dpp::gather(w, u32::from(n) + 1, &shuffle)?.0 } else { [[0; 32]; 2] };
            Ok((Some(Box::new([[lo[0], hi[0]], [lo[1], hi[1]]])), write))
        }
    }
}

/// Which rounding and clamping a result needs decides which form of the arithmetic runs.
fn chosen(w: &Wave, i: &Inst, sem: &VSem) -> R<VFn> {
    if i.clamp && !sem.dst.is_float() {
        return match sem.clamped {
            Some(f) => Ok(VFn::Lane(f)),
            None => fail(FaultKind::NotModelled { name: format!("clamp of {}", i.entry.name) }),
        };
    }
    match sem.directed {
        Some(f) if w.mode.bits & 3 != 0 => Ok(VFn::Lane(f)),
        _ => Ok(sem.f),
    }
}

/// Computes one half; `out` gets all 32 lanes, meaningful where EXEC is set.
pub(super) fn compute(
    w: &Wave,
    i: &Inst,
    sem: &VSem,
    h: usize,
    shuffled: Option<&Shuffled>,
    out: &mut Result32,
) -> R<()> {
    let fetch = Fetch { w, i, sem_flushes: sem.flushes, h, shuffled };
    let (mut a, mut b, mut c) = ([0; 32], [0; 32], [0; 32]);
    match chosen(w, i, sem)? {
        VFn::V1(f) => f(fetch.narrow(0, sem.src[0], &mut a)?, &mut out.lo),
        VFn::V2(f) => {
            f(fetch.narrow(0, sem.src[0], &mut a)?, fetch.narrow(1, sem.src[1], &mut b)?, &mut out.lo);
        }
        VFn::V3(f) => {
            let a = fetch.narrow(0, sem.src[0], &mut a)?;
            let b = fetch.narrow(1, sem.src[1], &mut b)?;
            f(a, b, fetch.narrow(2, sem.src[2], &mut c)?, &mut out.lo);
        }
        VFn::Lane(f) => {
            let mut sources = [[0; 32]; 3];
            for (slot, source) in sources.iter_mut().enumerate().filter(|(slot, _)| i.src[*slot] != Operand::None) {
                fetch.wide(slot, sem.src[slot], source)?;
            }
            let [a, b, c] = &sources;
            let mode = w.mode;
            for n in ones(half_mask(w.exec(), h).into()) {
                let n = n & 31;
                let v = f(&Lane { a: a[n], b: b[n], c: c[n], mode });
                (out.lo[n], out.hi[n]) = (v as u32, (v >> 32) as u32);
            }
        }
    }
    finish(w.mode, i, sem, out);
    Ok(())
}

/// Output modifiers and the flush of denormal results.
fn finish(mode: Mode, i: &Inst, sem: &VSem, out: &mut Result32) {
    let ty = sem.dst;
    if !ty.is_float() || (i.omod == 0 && !i.clamp && !(sem.flushes && mode.flush_out(ty))) {
        return;
    }
    for n in 0..32 {
        let bits = u64::from(out.lo[n]) | u64::from(out.hi[n]) << 32;
        let mut bits = if i.omod != 0 { scaled(ty, bits, i.omod) } else { bits };
        if sem.flushes && mode.flush_out(ty) {
            bits = flushed(ty, bits);
        }
        if i.clamp {
            bits = clamped(ty, bits, mode);
        }
        (out.lo[n], out.hi[n]) = (bits as u32, (bits >> 32) as u32);
    }
}

fn widened(ty: Ty, bits: u64) -> f64 {
    match ty {
        Ty::F16 => super::float::half_to_f32(bits as u32 & 0xffff).into(),
        Ty::F64 => f64::from_bits(bits),
        _ => f32::from_bits(bits as u32).into(),
    }
}

fn narrowed(ty: Ty, v: f64) -> u64 {
    match ty {
        Ty::F16 => super::float::to_half(v, super::lanes::Round::Nearest).into(),
        Ty::F64 => v.to_bits(),
        _ => (v as f32).to_bits().into(),
    }
}

fn scaled(ty: Ty, bits: u64, omod: u8) -> u64 {
    narrowed(ty, widened(ty, bits) * [1.0, 2.0, 4.0, 0.5][usize::from(omod & 3)])
}

fn clamped(ty: Ty, bits: u64, mode: Mode) -> u64 {
    let v = widened(ty, bits);
    if v.is_nan() {
        return if mode.dx10_clamp() { 0 } else { bits };
    }
    narrowed(ty, if v > 0.0 { v.min(1.0) } else { 0.0 })
}

/// A denormal as the zero of its sign.
pub(super) fn flushed(ty: Ty, bits: u64) -> u64 {
    let (exponent, all) = match ty {
        Ty::F16 => (0x7c00, 0x7fff),
        Ty::F64 => (0x7ff << 52, u64::MAX >> 1),
        _ => (0x7f80_0000, 0x7fff_ffff),
    };
    if bits & exponent == 0 && bits & all != 0 { bits & ty.sign() } else { bits }
}

/// Reads sources of one half.
#[derive(Clone, Copy)]
pub(super) struct Fetch<'a> {
    pub w: &'a Wave,
    pub i: &'a Inst,
    pub sem_flushes: bool,
    pub h: usize,
    pub shuffled: Option<&'a Shuffled>,
}

impl<'a> Fetch<'a> {
    fn active(&self) -> u64 {
        self.w.exec()
    }

    /// A register's half as it is, or a scalar broadcast to the lanes.
    pub(crate) fn raw(&self, operand: Operand, buf: &'a mut L) -> R<&'a L> {
        match operand {
            Operand::V(n) => {
                let at = self.w.readable(n.into(), self.active())?;
                Ok(self.w.half(at, self.h))
            }
            other => {
                *buf = [self.w.scalar_operand(other, 1)? as u32; 32];
                Ok(buf)
            }
        }
    }

    fn is_changed(&self, slot: usize, ty: Ty) -> bool {
        let i = self.i;
        let flush = self.sem_flushes && ty.is_float() && self.w.mode.flush_in(ty);
        (i.abs | i.neg) >> slot & 1 == 1 || (ty.is_16() && i.opsel >> slot & 1 == 1) || i.sdwa.is_some() || flush
    }

    /// A source of at most 32 bits with its modifiers.
    pub(crate) fn narrow(&self, slot: usize, ty: Ty, buf: &'a mut L) -> R<&'a L> {
        let changed = self.is_changed(slot, ty);
        if let Some(s) = self.shuffled.filter(|_| slot == 0) {
            *buf = s[self.h][0];
        } else if changed {
            *buf = self.copy(self.i.src[slot])?;
        } else {
            return self.raw(self.i.src[slot], buf);
        }
        if changed {
            self.modify(slot, ty, buf);
        }
        Ok(buf)
    }

    fn copy(&self, operand: Operand) -> R<L> {
        Ok(match operand {
            Operand::V(n) => *self.w.half(self.w.readable(n.into(), self.active())?, self.h),
            other => [self.w.scalar_operand(other, 1)? as u32; 32],
        })
    }

    fn modify(&self, slot: usize, ty: Ty, buf: &mut L) {
        let i = self.i;
        if let Some(s) = i.sdwa.filter(|_| slot < 2) {
            let (select, signed) = s.src[slot];
            buf.iter_mut().for_each(|v| *v = part(*v, select, signed));
        }
        if ty.is_16() && i.opsel >> slot & 1 == 1 && !matches!(i.src[slot], Operand::K(_)) {
            buf.iter_mut().for_each(|v| *v >>= 16);
        }
        let sign = ty.sign() as u32;
        if i.abs >> slot & 1 == 1 {
            buf.iter_mut().for_each(|v| *v &= !sign);
        }
        if i.neg >> slot & 1 == 1 {
            buf.iter_mut().for_each(|v| *v ^= sign);
        }
        if self.sem_flushes && ty.is_float() && self.w.mode.flush_in(ty) {
            let keep = if ty.is_16() { 0xffff } else { u32::MAX };
            buf.iter_mut().for_each(|v| *v = flushed(ty, (*v & keep).into()) as u32);
        }
    }

    /// A source of any width as 64-bit lanes.
    pub(crate) fn wide(&self, slot: usize, ty: Ty, out: &mut [u64; 32]) -> R<()> {
        if !ty.is_64() {
            let mut buf = [0; 32];
            let lo = self.narrow(slot, ty, &mut buf)?;
            out.iter_mut().zip(lo).for_each(|(out, lo)| *out = u64::from(*lo));
            return Ok(());
        }
        let join = |out: &mut [u64; 32], lo: &L, hi: &L| {
            for k in 0..32 {
                out[k] = u64::from(lo[k]) | u64::from(hi[k]) << 32;
            }
        };
        match self.i.src[slot] {
            Operand::V(n) => {
                self.check_even(n)?;
                let hi_at = self.w.readable(u32::from(n) + 1, self.active())?;
                let lo_at = self.w.readable(n.into(), self.active())?;
                join(out, self.w.half(lo_at, self.h), self.w.half(hi_at, self.h));
            }
            other => *out = [self.w.scalar_operand(other, 2)?; 32],
        }
        if let Some(s) = self.shuffled.filter(|_| slot == 0) {
            join(out, &s[self.h][0], &s[self.h][1]);
        }
        let (abs, neg) = (self.i.abs >> slot & 1 == 1, self.i.neg >> slot & 1 == 1);
        let flush = self.sem_flushes && ty.is_float() && self.w.mode.flush_in(ty);
        if abs || neg || flush {
            for v in out {
                *v = if abs { *v & !ty.sign() } else { *v };
                *v = if neg { *v ^ ty.sign() } else { *v };
                *v = if flush { flushed(ty, *v) } else { *v };
            }
        }
        Ok(())
    }

    /// A 64-bit source whose upper half may be unwritten.
    pub(crate) fn wide_low(&self, slot: usize, out: &mut [u64; 32]) -> R<()> {
        match self.i.src[slot] {
            Operand::V(n) => {
                let (lo, hi) = (self.copy(Operand::V(n))?, self.w.readable(u32::from(n) + 1, 0)?);
                let hi = self.w.half(hi, self.h);
                *out = std::array::from_fn(|k| u64::from(lo[k]) | u64::from(hi[k]) << 32);
            }
            Operand::S(n) => {
                let lo = self.w.read_scalars(n, 1)?;
                *out = [lo | u64::from(self.w.scalar_unchecked(n + 1)) << 32; 32];
            }
            _ => self.wide(slot, Ty::U64, out)?,
        }
        Ok(())
    }

    fn check_even(&self, n: u16) -> R<()> {
        check_even(self.w, n, 2)
    }
}

/// Vector tuples of gfx942 start at an even register.
pub(super) fn check_even(w: &Wave, n: u16, words: u32) -> R<()> {
    if w.chip == Chip::Gfx942 && w.strict.registers && words > 1 && n % 2 == 1 {
        return fail(FaultKind::MisalignedTuple { class: 'v', first: n.into(), words, align: 2 });
    }
    Ok(())
}

/// A byte, half or dword of a register, as sub-dword addressing picks it.
fn part(v: u32, select: u8, signed: bool) -> u32 {
    let (shift, bits) = match select {
        0..=3 => (8 * u32::from(select), 8),
        4 | 5 => (16 * u32::from(select - 4), 16),
        _ => (0, 32),
    };
    let field = v >> shift << (32 - bits);
    if signed { ((field as i32) >> (32 - bits)) as u32 } else { field >> (32 - bits) }
}

/// Writes one half's result where `mask` allows, into the half of the register that 16-bit results go to.
pub(super) fn commit(w: &mut Wave, i: &Inst, ty: Ty, h: usize, out: &Result32, mask: u32) -> R<()> {
    let Operand::V(n) = i.dst else { return Ok(()) };
    let at = w.writable(n.into())?;
    if ty.is_64() {
        check_even(w, n, 2)?;
        let hi_at = w.writable(u32::from(n) + 1)?;
        w.put_half(at, h, &out.lo, mask);
        w.put_half(hi_at, h, &out.hi, mask);
        return Ok(());
    }
    if let Some(s) = i.sdwa.filter(|s| s.dst != 6 || ty.is_16()) {
        let old = *w.half(at, h);
        let merged = std::array::from_fn(|k| merge(old[k], out.lo[k], s.dst, s.rest));
        w.put_half(at, h, &merged, mask);
        return Ok(());
    }
    if !ty.is_16() {
        w.put_half(at, h, &out.lo, mask);
        return Ok(());
    }
    let old = *w.half(at, h);
    let keeps = w.chip != Chip::Gfx942 || i.opsel & 8 != 0 || i.entry.name.contains("8_f32");
    let merged = std::array::from_fn(|k| match (i.opsel & 8 != 0, keeps) {
        (true, _) => old[k] & 0xffff | out.lo[k] << 16,
        (false, true) => old[k] & 0xffff_0000 | out.lo[k] & 0xffff,
        (false, false) => out.lo[k] & 0xffff,
    });
    w.put_half(at, h, &merged, mask);
    Ok(())
}

fn merge(old: u32, new: u32, select: u8, rest: u8) -> u32 {
    let (shift, bits) = match select {
        0..=3 => (8 * u32::from(select), 8),
        4 | 5 => (16 * u32::from(select - 4), 16),
        _ => (0, 32),
    };
    let field = u32::MAX >> (32 - bits) << shift;
    let placed = new << shift & field;
    match rest {
        2 => old & !field | placed,
        1 => ((((new << (32 - bits)) as i32) >> (32 - bits)) as u32) << shift,
        _ => placed,
    }
}

/// A compare: the mask of lanes is written to a scalar pair or to EXEC.
pub(super) fn compare(w: &mut Wave, i: &Inst, c: Compare) -> R<()> {
    let wide = c.ty.is_64();
    let (shuffled, write) = prepare(w, i, wide)?;
    let mut mask = 0;
    for h in 0..w.halves {
        if half_mask(write, h) == 0 {
            continue;
        }
        let fetch = Fetch { w, i, sem_flushes: !matches!(c.what, What::Class), h, shuffled: shuffled.as_deref() };
        let b_ty = if matches!(c.what, What::Class) { c.class_bits() } else { c.ty };
        let hit = if wide {
            let (mut a, mut b) = ([0; 32], [0; 32]);
            fetch.wide(0, c.ty, &mut a)?;
            fetch.wide(1, b_ty, &mut b)?;
            compare64(c, &a, &b)
        } else {
            let (mut a, mut b) = ([0; 32], [0; 32]);
            compare32(c, fetch.narrow(0, c.ty, &mut a)?, fetch.narrow(1, b_ty, &mut b)?)
        };
        mask |= u64::from(hit) << (32 * h);
    }
    mask &= write;
    w.lane_operations += u64::from(write.count_ones());
    if c.exec {
        w.set_exec(mask);
    }
    if i.sdst != Operand::None {
        w.write_mask(i.sdst, mask)?;
    }
    Ok(())
}

/// A dual instruction: both halves read before either writes.
pub(super) fn dual(w: &mut Wave, x: &Inst, y: &Inst) -> R<()> {
    let mask = half_mask(w.exec(), 0);
    let mut outs = [Result32::zero(), Result32::zero()];
    for (i, out) in [x, y].into_iter().zip(&mut outs) {
        match i.entry.sem {
            Sem::Vector(sem, _) => compute(w, i, sem, 0, None, out)?,
            Sem::Packed(p) => super::packed::compute(w, i, p, 0, out)?,
            Sem::Cross(_) => select(w, i, out)?,
            _ => return fail(FaultKind::NotModelled { name: i.entry.name.into() }),
        }
    }
    commit(w, x, Ty::B32, 0, &outs[0], mask)?;
    commit(w, y, Ty::B32, 0, &outs[1], mask)?;
    w.lane_operations += 2 * u64::from(mask.count_ones());
    Ok(())
}

/// v_dual_cndmask_b32.
fn select(w: &Wave, i: &Inst, out: &mut Result32) -> R<()> {
    let vcc = w.scalar_operand(i.src[2], 255)? as u32;
    let fetch = Fetch { w, i, sem_flushes: false, h: 0, shuffled: None };
    let (mut a, mut b) = ([0; 32], [0; 32]);
    let (a, b) = (fetch.raw(i.src[0], &mut a)?, fetch.raw(i.src[1], &mut b)?);
    out.lo = std::array::from_fn(|k| if vcc >> k & 1 == 1 { b[k] } else { a[k] });
    Ok(())
}
