//! Warpgroup matrix multiplication: `wgmma`.
//!
//! The instructions run asynchronously. `wgmma.fence` becomes WARPGROUP.ARRIVE; a multiply becomes HGMMA, QGMMA, IGMMA
//! or BGMMA; the last multiply before `commit_group` carries the end-of-group flag; `wait_group` becomes
//! WARPGROUP.DEPBAR. Accumulators are in consecutive registers from a multiple of eight, descriptors in four
//! consecutive uniform registers. [`flight`](crate::sass::compile::arrange::flight) ensures that the registers of a
//! multiply in flight are not reused.

use super::build::Build;
use crate::ptx::Type;
use crate::sass::compile::AsmError;
use crate::sass::compile::mir::{Mach, Pred, Val, Word, class_of};
use crate::sass::compile::read::flat::{Flat, Opd};
use crate::sass::{Form, Modifier, is_group_multiply, mods, op};

/// URZ.
const NO_UNIFORM: u64 = 63;

/// The uniform predicate that says whether to accumulate.
const ADDS: u64 = 1;

/// The shape and types in a multiply's mnemonic.
struct Shape {
    form: [&'static Form; 2],
    columns: u32,
    sh: Modifier,
    /// The accumulator consists of halves, two per register.
    packed: bool,
    a: Type,
    b: Type,
}

impl Shape {
    fn of(i: &Flat) -> Option<Shape> {
        let mut types = i.types();
        let (d, a, b) = (types.next()?, types.next()?, types.next()?);
        let (columns, depth) = i.words().find_map(|w| w.strip_prefix("m64n")?.split_once('k'))?;
        let (columns, depth): (u32, u32) = (columns.parse().ok()?, depth.parse().ok()?);
        let form = match (d, a, b, depth) {
            (Type::F16 | Type::F32, Type::F16, Type::F16, 16) => [op::HGMMA_SS, op::HGMMA_RS],
            (Type::F32, Type::Bf16, Type::Bf16, 16) | (Type::F32, Type::Tf32, Type::Tf32, 8) => {
                [op::HGMMA_SS, op::HGMMA_RS]
            }
            (Type::F16 | Type::F32, Type::E4m3 | Type::E5m2, Type::E4m3 | Type::E5m2, 32) => {
                [op::QGMMA_SS, op::QGMMA_RS]
            }
            (Type::S32, Type::S8 | Type::U8, Type::S8 | Type::U8, 32) => [op::IGMMA_SS, op::IGMMA_RS],
            (Type::S32, Type::B1, Type::B1, 256) => [op::BGMMA_SS, op::BGMMA_SS],
            _ => return None,
        };
        let known = matches!(columns, 8..=256) && u32::is_multiple_of(columns, 8);
        let text = format!(".64x{columns}x{depth}");
        let sh = mods::sh::VALUES.iter().copied().find(|m| m.text() == text)?;
        known.then_some(Shape { form, columns, sh, packed: d == Type::F16, a, b })
    }

    /// Registers of the accumulator.
    fn words(&self) -> u8 {
        (self.columns / if self.packed { 4 } else { 2 }) as u8
    }

    fn formats(&self, m: Mach) -> Mach {
        let m = m.m(self.sh);
        let sums = if self.packed { mods::dt::F16 } else { mods::dt::F32 };
        let at = match self.a {
            Type::E4m3 => mods::at::E4M3,
            Type::E5m2 => mods::at::E5M2,
            Type::S8 => mods::at::S8,
            _ => mods::at::U8,
        };
        let bt = match self.b {
            Type::E4m3 => mods::bt::E4M3,
            Type::E5m2 => mods::bt::E5M2,
            Type::S8 => mods::bt::S8,
            _ => mods::bt::U8,
        };
        match self.a {
            Type::F16 => m.m(sums).m(mods::st::NONE),
            Type::Bf16 => m.m(sums).m(mods::st::BF16),
            Type::Tf32 => m.m(sums).m(mods::st::TF32),
            Type::E4m3 | Type::E5m2 => m.m(sums).m(at).m(bt),
            Type::B1 => m.m(mods::op::AND_POPC),
            _ => m.m(at).m(bt),
        }
    }
}

/// The accumulator registers of a multiply.
struct Sums<'o> {
    at: Word,
    words: u8,
    /// Registers to copy the accumulator to, if the text's registers are not consecutive.
    copies: &'o [Opd<'o>],
}

impl Build<'_> {
    pub(super) fn wgmma(&mut self, i: &Flat) -> Result<(), AsmError> {
        self.aside(|b| match () {
            () if i.has("fence") => {
                b.push(Mach::new(op::WARPGROUP_ARV).effect());
                Ok(())
            }
            () if i.has("commit_group") => {
                b.end_group();
                Ok(())
            }
            () if i.has("wait_group") => match i.opds.first().and_then(|o| b.constant_of(o)) {
                Some(n) if n < 8 => {
                    b.push(Mach::new(op::WARPGROUP_DEPBAR).n("n", n).effect());
                    Ok(())
                }
                _ => b.no(i, "a number of groups that is no constant below 8 is not assembled"),
            },
            () if i.has("mma_async") => b.multiply_async(i),
            () => b.no(i, "not assembled"),
        })
    }

    /// The last multiply gets the end-of-group flag. If there is none in this block since the last group, one without
    /// effect is added.
    fn end_group(&mut self) {
        let ops = &mut self.code.blocks[self.block].ops;
        if let Some(m) = ops.iter_mut().rev().find(|m| is_group_multiply(&m.inst))
            && m.inst.modifier("gsb").is_empty()
        {
            *m = m.clone().m(mods::gsb::GSB0);
            return;
        }
        let m = Mach::new(op::HGMMA_SS).m(mods::sh::_64X8X16).m(mods::dt::F16).m(mods::st::NONE).n("u", NO_UNIFORM);
        self.push(m.p("pp", Pred::TRUE.not()).m(mods::gsb::GSB0).effect());
    }

    fn multiply_async(&mut self, i: &Flat) -> Result<(), AsmError> {
        if i.has("sp") {
            return self.no(i, "sparse matrices are not assembled");
        }
        let Some(shape) = Shape::of(i) else { return self.no(i, "matrices of this shape and type are not assembled") };
        let [d, a, b, rest @ ..] = &*i.opds else { return self.no(i, "sums and two factors are expected") };
        let fragment = matches!(a, Opd::Vector(_));
        let form = shape.form[usize::from(fragment)];
        if fragment && std::ptr::eq(shape.form[0], shape.form[1]) {
            return self.no(i, "a factor in registers is not assembled here");
        }
        let u = self.uniform_registers(4, 4);
        if !fragment {
            self.descriptor(i, a, u)?;
        }
        self.descriptor(i, b, u + 2)?;
        let mut m = shape.formats(Mach::new(form)).n("u", u).m(mods::gsb::NONE);
        let sums = self.sums(i, d, shape.words())?;
        if fragment {
            let count = |b: &Self| b.code.blocks[b.block].ops.len();
            let before = count(self);
            let factor = self.stored(i, a, Type::B32, 4)?;
            if count(self) != before {
                // The copies come after the text's fence, so they need another one.
                self.push(Mach::new(op::WARPGROUP_ARV).effect());
            }
            m = match factor {
                Some(w) => m.rn("a", w, 4),
                None => m,
            };
        }
        m = self.scaled_by(i, m, rest, fragment)?;
        m = if i.has("satfinite") { m.m(mods::sat::SAT) } else { m };
        let overwrites = i.opds.get(3).is_some_and(|o| self.constant_of(o) == Some(0));
        m = m.wn("d", sums.at, sums.words);
        m = match overwrites {
            true => m.p("pp", Pred::TRUE.not()),
            false => m.rn("c", sums.at, sums.words),
        };
        self.issue(i, m.effect(), &sums)
    }

    /// Registers for the accumulator: the text's if they are consecutive.
    fn sums<'o>(&mut self, i: &Flat, o: &Opd<'o>, words: u8) -> Result<Sums<'o>, AsmError> {
        let Opd::Vector(v) = o else { return self.no(i, "a vector of sums is expected") };
        if v.len() != usize::from(words) {
            return self.no(i, "this number of sums is not assembled");
        }
        if let Some(at) = self.neighbours(v, Type::B32, words) {
            return Ok(Sums { at, words, copies: &[] });
        }
        let at = self.code.vreg(class_of(words.max(8)));
        Ok(Sums { at, words, copies: v })
    }

    /// Issues the multiply. If its accumulator is copied, waits for it.
    fn issue(&mut self, i: &Flat, m: Mach, sums: &Sums) -> Result<(), AsmError> {
        if sums.copies.is_empty() {
            self.push(m);
            return Ok(());
        }
        for (k, o) in sums.copies.iter().enumerate() {
            let v = self.src(i, o, Type::B32)?;
            self.mov(sums.at.plus(k as u8), v);
        }
        self.push(Mach::new(op::WARPGROUP_ARV).effect());
        self.push(m.m(mods::gsb::GSB0));
        self.push(Mach::new(op::WARPGROUP_DEPBAR).n("n", 0).effect());
        for (k, o) in sums.copies.iter().enumerate() {
            let d = self.dest(i, o)?;
            self.mov(d, Val::Word(sums.at.plus(k as u8)));
        }
        Ok(())
    }

    /// A descriptor in a pair of uniform registers.
    fn descriptor(&mut self, i: &Flat, o: &Opd, register: u64) -> Result<(), AsmError> {
        let v = self.wide(i, o, Type::B64)?;
        self.put_uniform(v.low(), register);
        self.put_uniform(v.high(), register + 1);
        Ok(())
    }

    /// The remaining operands: whether to accumulate, signs of the factors, transposition.
    fn scaled_by(&mut self, i: &Flat, m: Mach, rest: &[Opd], fragment: bool) -> Result<Mach, AsmError> {
        let mut m = m;
        match rest.first() {
            None => {}
            Some(o) if self.constant_of(o).is_some() => {}
            Some(o) => {
                let p = self.pred_src(i, o)?;
                self.push(Mach::new(op::VOTEU_U).m(mods::md::ANY).n("pu", ADDS).p("pp", p).effect());
                m = m.n("pp", 7 - ADDS);
            }
        }
        // Signs of A and B; then, for types that can be transposed, the order of A unless it is in registers, and that
        // of B.
        let transposed = if fragment { &[mods::tb::TNSPB][..] } else { &[mods::ta::TNSPA, mods::tb::TNSPB][..] };
        for (k, o) in rest.iter().skip(1).enumerate() {
            let Some(n) = self.constant_of(o) else { return self.no(i, "a scale or order that is no constant") };
            m = match (k, n as i64) {
                (0 | 1, 1) | (2 | 3, 0) => m,
                (0, -1) if fragment => m.neg("a", true),
                (0, -1) => m.m(mods::na::NEGA),
                (1, -1) => m.m(mods::nb::NEGB),
                (2 | 3, 1) if k - 2 < transposed.len() => m.m(transposed[k - 2]),
                _ => return self.no(i, "this scale or order is not assembled"),
            };
        }
        Ok(m)
    }
}
