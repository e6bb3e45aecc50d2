//! Vector instructions without modifiers on whole dwords, which most are: their sources are registers as they are or
//! one scalar for all lanes, found and checked once for both halves of a wave64.
//!
//! Each does what `valu` and `cross` do with the same instruction; which ones are of this kind is found by decoding.

use super::cross::Cross;
use super::fault::R;
use super::inst::{Inst, Operand};
use super::lanes::{L, Mode, Ty, VFn};
use super::sem::Sem;
use super::sem_compare::{Compare, What, compare32};
use super::valu::move_unwritten;
use super::wave::{Wave, half_mask};

/// What is computed of the sources.
#[derive(Clone, Copy)]
enum Compute {
    Arithmetic(VFn),
    /// The second source where the mask has a bit, else the first.
    Select,
    Compare(Compare),
}

/// An instruction of this kind.
#[derive(Clone, Copy)]
pub(super) struct Direct {
    compute: Compute,
    /// It depends on how MODE treats singles.
    float: bool,
}

impl Direct {
    /// `None` where the instruction has modifiers, or works on other widths.
    pub(crate) fn of(i: &Inst) -> Option<Self> {
        let modified = i.abs | i.neg | i.omod != 0 || i.clamp || i.dpp.is_some() || i.sdwa.is_some();
        if modified || i.second.is_some() {
            return None;
        }
        let whole = |ty: Ty| !ty.is_16() && !ty.is_64();
        let (compute, float) = match i.entry.sem {
            Sem::Vector(sem, _) if whole(sem.dst) && sem.src.iter().all(|ty| whole(*ty)) => {
                let float = sem.dst.is_float() || sem.src.iter().any(|ty| ty.is_float());
                (Compute::Arithmetic(sem.f), float || sem.directed.is_some())
            }
            Sem::Cross(Cross::Select) => (Compute::Select, false),
            Sem::Compare(c) if whole(c.ty) && !matches!(c.what, What::Class) => (Compute::Compare(c), c.ty.is_float()),
            _ => return None,
        };
        match compute {
            Compute::Arithmetic(VFn::Lane(_)) => None,
            _ => Some(Self { compute, float }),
        }
    }

    /// Whether it needs no regard for MODE: singles are rounded to nearest and keep their denormals.
    #[inline]
    pub(crate) fn applies(&self, mode: Mode) -> bool {
        !self.float || mode.is_plain()
    }

    /// Runs it.
    pub(crate) fn execute(&self, w: &mut Wave, i: &Inst) -> R<()> {
        if w.strict.poison && i.is_copy && move_unwritten(w, i)? {
            return Ok(());
        }
        match self.compute {
            Compute::Arithmetic(f) => arithmetic(w, i, f),
            Compute::Select => select(w, i),
            Compute::Compare(c) => compare(w, i, c),
        }
    }
}

/// A source, checked for the active lanes.
#[derive(Clone, Copy)]
enum Source {
    /// A register's place in the file.
    Register(usize),
    /// The same in all lanes.
    Same(u32),
}

impl Source {
    #[inline]
    fn of(w: &Wave, operand: Operand, exec: u64) -> R<Self> {
        Ok(match operand {
            Operand::V(n) => Self::Register(w.readable(n.into(), exec)?),
            other => Self::Same(w.scalar_operand(other, 1)? as u32),
        })
    }

    #[inline]
    fn lanes<'a>(self, w: &'a Wave, h: usize, spread: &'a mut Option<L>) -> &'a L {
        match self {
            Self::Register(place) => w.half(place, h),
            Self::Same(v) => spread.insert([v; 32]),
        }
    }
}

fn arithmetic(w: &mut Wave, i: &Inst, f: VFn) -> R<()> {
    let exec = w.exec();
    if exec == 0 {
        return Ok(());
    }
    let count = match f {
        VFn::V1(_) => 1,
        VFn::V2(_) => 2,
        _ => 3,
    };
    let mut sources = [Source::Same(0); 3];
    for (source, operand) in sources.iter_mut().zip(i.src).take(count) {
        *source = Source::of(w, operand, exec)?;
    }
    let Operand::V(n) = i.dst else { return Ok(()) };
    let to = w.writable(n.into())?;
    let [a, b, c] = sources;
    for h in 0..w.halves {
        let mask = half_mask(exec, h);
        if mask == 0 {
            continue;
        }
        let mut out = [0; 32];
        let (mut x, mut y, mut z) = (None, None, None);
        match f {
            VFn::V1(f) => f(a.lanes(w, h, &mut x), &mut out),
            VFn::V2(f) => f(a.lanes(w, h, &mut x), b.lanes(w, h, &mut y), &mut out),
            VFn::V3(f) => f(a.lanes(w, h, &mut x), b.lanes(w, h, &mut y), c.lanes(w, h, &mut z), &mut out),
            VFn::Lane(_) => {}
        }
        w.put_half(to, h, &out, mask);
    }
    w.lane_operations += u64::from(exec.count_ones());
    Ok(())
}

fn select(w: &mut Wave, i: &Inst) -> R<()> {
    let exec = w.exec();
    if exec == 0 {
        return Ok(());
    }
    let chosen = w.scalar_operand(i.src[2], 255)?;
    let (a, b) = (Source::of(w, i.src[0], exec)?, Source::of(w, i.src[1], exec)?);
    let Operand::V(n) = i.dst else { return Ok(()) };
    let to = w.writable(n.into())?;
    for h in 0..w.halves {
        let (mask, chosen) = (half_mask(exec, h), half_mask(chosen, h));
        if mask == 0 {
            continue;
        }
        let (mut x, mut y) = (None, None);
        let mut out = *a.lanes(w, h, &mut x);
        super::lanes::replace(&mut out, b.lanes(w, h, &mut y), chosen);
        w.put_half(to, h, &out, mask);
    }
    w.lane_operations += u64::from(exec.count_ones());
    Ok(())
}

fn compare(w: &mut Wave, i: &Inst, c: Compare) -> R<()> {
    let exec = w.exec();
    let mut hits = 0;
    if exec != 0 {
        let (a, b) = (Source::of(w, i.src[0], exec)?, Source::of(w, i.src[1], exec)?);
        for h in 0..w.halves {
            if half_mask(exec, h) != 0 {
                let (mut x, mut y) = (None, None);
                let hit = compare32(c, a.lanes(w, h, &mut x), b.lanes(w, h, &mut y));
                hits |= u64::from(hit) << (32 * h);
            }
        }
    }
    hits &= exec;
    w.lane_operations += u64::from(exec.count_ones());
    if c.exec {
        w.set_exec(hits);
    }
    if i.sdst != Operand::None {
        w.write_mask(i.sdst, hits)?;
    }
    Ok(())
}
