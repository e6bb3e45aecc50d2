//! `wmma`: matrix multiplication of a warp with opaque fragments, whose layout is ours to choose.
//!
//! Fragments are those of the hardware's multiply, 16 rows by 8 columns at a time (doubles: 8 by 8): lane `4g + t`
//! holds row `g`, and `w` elements from column `w t` on. For A this reads (m, k), for B (n, k), for C (m, n). If the
//! text has more registers than elements, the others are unused. In shapes of 8 rows, A and B are exchanged and C is
//! transposed.

use super::build::{Build, Src, iadd3, imad_wide};
use crate::ptx::{Space, Type};
use crate::sass::compile::AsmError;
use crate::sass::compile::mir::{Mach, Val, Wide, Word};
use crate::sass::compile::read::flat::{Flat, Opd};
use crate::sass::{Form, Modifier, mods, op};
use smallvec::SmallVec;

/// The layout of a matrix in registers and in memory.
struct Fragment {
    /// First row and column of each register, for lane 0.
    at: SmallVec<[(u32, u32); 8]>,
    /// Elements of a register, and bytes of one.
    each: u32,
    bytes: u32,
    /// Columns between neighbouring lanes.
    step: u32,
    /// Neighbouring columns are contiguous in memory.
    along: bool,
}

/// Rows and columns of the product, and the depth.
fn shape(i: &Flat) -> Option<(u32, u32, u32)> {
    let word = i.words().find(|w| w.starts_with('m') && w.contains('n') && w.contains('k'))?;
    let (m, rest) = word.strip_prefix('m')?.split_once('n')?;
    let (n, k) = rest.split_once('k')?;
    Some((m.parse().ok()?, n.parse().ok()?, k.parse().ok()?))
}

fn halves(first: &[(u32, u32)], by: (u32, u32), times: u32) -> SmallVec<[(u32, u32); 8]> {
    (0..times).flat_map(|h| first.iter().map(move |(r, c)| (r + h * by.0, c + h * by.1))).collect()
}

/// The fragment of matrix `a`, `b` or `c` (also `d`).
fn fragment(which: char, ty: Type, (m, n, k): (u32, u32, u32), row: bool) -> Option<Fragment> {
    let turned = m == 8 && n == 32;
    let bytes = ty.bits() / 8;
    if ty == Type::F64 {
        let (at, along) = match which {
            'a' => (&[(0, 0)][..], row),
            'b' => (&[(0, 0)][..], !row),
            _ => (&[(0, 0), (0, 1)][..], row),
        };
        let step = if which == 'c' { 2 } else { 1 };
        return ((m, n, k) == (8, 8, 4)).then(|| Fragment { at: at.into(), each: 1, bytes, step, along });
    }
    let per = (4 / bytes).max(1);
    let half = 4 * per;
    match which {
        'a' | 'b' => {
            // The machine's A has 16 rows, its B 8.
            let (wide, count) = match (which, turned) {
                ('a', false) => (true, m / 16),
                ('a', true) => (false, 1),
                ('b', false) => (false, n / 8),
                _ => (true, n / 16),
            };
            let deep = k == 2 * half;
            let first: &[(u32, u32)] = match (wide, deep) {
                (true, true) => &[(0, 0), (8, 0), (0, half), (8, half)],
                (true, false) => &[(0, 0), (8, 0)],
                (false, true) => &[(0, 0), (0, half)],
                (false, false) => &[(0, 0)],
            };
            let by = if wide { 16 } else { 8 };
            let along = row == (which == 'a');
            Some(Fragment { at: halves(first, (by, 0), count), each: per, bytes, step: per, along })
        }
        _ => {
            let first: &[(u32, u32)] =
                if ty == Type::F16 { &[(0, 0), (8, 0)] } else { &[(0, 0), (0, 1), (8, 0), (8, 1)] };
            let each = if ty == Type::F16 { 2 } else { 1 };
            let by = if m == 16 { (0, 8) } else { (16, 0) };
            Some(Fragment { at: halves(first, by, 2), each, bytes, step: 2, along: row != turned })
        }
    }
}

/// The memory of a fragment: the address of a lane's first element, and the stride of rows (or columns).
struct Tile {
    base: Word,
    wide: bool,
    stride: Val,
    bytes: u32,
    /// Addresses of lines computed so far.
    lines: Vec<(u32, Word)>,
}

impl Build<'_> {
    pub(super) fn wmma(&mut self, i: &Flat) -> Result<(), AsmError> {
        if self.guard.is_some() {
            return self.no(i, "a guard is not assembled here");
        }
        match () {
            () if i.has("load") => self.load_fragment(i),
            () if i.has("store") => self.store_fragment(i),
            () => self.multiply_fragments(i),
        }
    }

    fn fragment_of(&self, i: &Flat) -> Result<Fragment, AsmError> {
        let which = match () {
            () if i.has("a") => 'a',
            () if i.has("b") => 'b',
            () => 'c',
        };
        let known = matches!(
            i.ty(),
            Type::F16 | Type::Bf16 | Type::Tf32 | Type::F32 | Type::F64 | Type::S8 | Type::U8 | Type::S32
        );
        match shape(i).filter(|_| known).and_then(|s| fragment(which, i.ty(), s, i.has("row"))) {
            Some(f) => Ok(f),
            None => self.no(i, "matrices of this shape and type are not assembled"),
        }
    }

    /// A fragment in memory: the number of the operand with its address, and the operand with its stride.
    fn tile(&mut self, i: &Flat, f: &Fragment, address: usize, stride: Option<&Opd>) -> Result<Tile, AsmError> {
        let wide = !matches!(i.space(), Some(Space::Shared | Space::SharedCta));
        let place = self.place(i, &i.opds[address], wide, 1 << 23)?;
        let stride = match stride {
            Some(o) => self.src(i, o, Type::U32)?,
            None => return self.no(i, "a matrix without a stride is not assembled"),
        };
        let (lane, g, t) = (self.one(), self.one(), self.one());
        self.push(Mach::new(op::S2R_S).w("d", lane).m(mods::s::SR_LANEID));
        self.shift(g, [Src::ZERO, 2.into(), lane.into()], mods::dir::R, mods::ty::U32, true);
        self.lop(t, [lane.into(), 3.into(), Src::ZERO], 0xc0);
        // Offsets in elements: one of the two strides is 1.
        let (lines, others, by) = if f.along { (g, t, f.step) } else { (t, g, 1) };
        let (scaled, sum) = (self.one(), self.one());
        let line_step = if f.along { 1 } else { f.step };
        self.multiply(scaled, lines.into(), line_step.into(), Src::ZERO);
        let other = self.one();
        self.multiply(other, others.into(), by.into(), Src::ZERO);
        let stride_word = self.in_word(stride);
        self.multiply(sum, scaled.into(), stride_word.into(), other.into());
        let base = if wide { self.two() } else { self.one() };
        let start = match place.base {
            Some((w, _)) => w,
            None => self.in_word(Val::Imm(0)),
        };
        if wide {
            let at = self.two();
            let by = Wide::Imm(place.offset.cast_unsigned());
            self.add64(at, Wide::Pair(start), by);
            self.wide_multiply(base, Val::Word(sum), Val::Imm(f.bytes), Wide::Pair(at), false);
        } else {
            let at = self.one();
            self.alu(iadd3(), at, [start.into(), (place.offset as u32).into(), Src::ZERO], |m| m);
            self.multiply(base, sum.into(), f.bytes.into(), at.into());
        }
        Ok(Tile { base, wide, stride: Val::Word(stride_word), bytes: f.bytes, lines: vec![(0, base)] })
    }

    /// The address of the lane's element some lines further on.
    fn line(&mut self, tile: &mut Tile, lines: u32) -> Word {
        if let Some((_, w)) = tile.lines.iter().find(|l| l.0 == lines) {
            return *w;
        }
        let by = lines * tile.bytes;
        let d = if tile.wide { self.two() } else { self.one() };
        match tile.wide {
            true => {
                let stride = self.in_word(tile.stride);
                let by = self.in_word(Val::Imm(by));
                let m = self.arith(imad_wide(), [stride.into(), by.into(), tile.base.into()]).words("c", 2);
                let m = m.wn("d", d, 2).m(mods::sg::U32);
                self.push(m);
            }
            false => self.multiply(d, tile.stride.into(), by.into(), tile.base.into()),
        }
        tile.lines.push((lines, d));
        d
    }

    /// Line and column of a register's element in memory order.
    fn spot(f: &Fragment, at: (u32, u32), element: u32) -> (u32, u32) {
        let (row, column) = (at.0, at.1 + element);
        if f.along { (row, column) } else { (column, row) }
    }

    fn access(&mut self, i: &Flat, tile: &Tile, load: bool) -> (Mach, u8) {
        let (form, global): (&'static Form, bool) = match (i.space(), load) {
            (Some(Space::Global), true) => (op::LDG_R, true),
            (Some(Space::Global), false) => (op::STG_R, true),
            (Some(Space::Shared | Space::SharedCta), true) => (op::LDS_R, false),
            (Some(Space::Shared | Space::SharedCta), false) => (op::STS_R, false),
            (_, true) => (op::LD_R, true),
            (_, false) => (op::ST_R, true),
        };
        let m = Mach::new(form);
        let m = if Self::has_slot(form, "ev") { m.m(mods::ev::NONE) } else { m };
        (if global { m.m(mods::e::E).m(mods::sem::NONE) } else { m }, if tile.wide { 2 } else { 1 })
    }

    fn load_fragment(&mut self, i: &Flat) -> Result<(), AsmError> {
        let f = self.fragment_of(i)?;
        let Opd::Vector(regs) = &i.opds[0] else { return self.no(i, "a fragment is expected") };
        let mut tile = self.tile(i, &f, 1, i.opds.get(2))?;
        for (k, o) in regs.iter().enumerate() {
            let d = self.dest(i, o)?;
            let Some(at) = f.at.get(k) else {
                self.mov(d, Val::Imm(0));
                continue;
            };
            let parts = if f.along { 1 } else { f.each };
            let bytes = f.bytes * f.each / parts;
            let size = [
                mods::sz::NONE,
                mods::sz::U8,
                mods::sz::U16,
                mods::sz::NONE,
                mods::sz::NONE,
                mods::sz::NONE,
                mods::sz::NONE,
                mods::sz::NONE,
                mods::sz::_64,
            ][bytes as usize];
            let mut words: SmallVec<[Word; 4]> = SmallVec::new();
            for e in 0..parts {
                let (line, column) = Self::spot(&f, *at, e);
                let base = self.line(&mut tile, line);
                let (m, n) = self.access(i, &tile, true);
                let to = match (parts, bytes) {
                    (1, _) => d,
                    _ => self.one(),
                };
                let m = m.m(size).wn("d", to, bytes.div_ceil(4) as u8);
                self.push(m.at(Some(base), n, i64::from(column * f.bytes)));
                words.push(to);
            }
            match words.as_slice() {
                [x, y] => self.permute(d, (*x).into(), 0x5410, (*y).into()),
                [x, y, z, w] => {
                    let (low, high) = (self.one(), self.one());
                    self.permute(low, (*x).into(), 0x0040, (*y).into());
                    self.permute(high, (*z).into(), 0x0040, (*w).into());
                    self.permute(d, low.into(), 0x5410, high.into());
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn store_fragment(&mut self, i: &Flat) -> Result<(), AsmError> {
        let f = self.fragment_of(i)?;
        let Opd::Vector(regs) = &i.opds[1] else { return self.no(i, "a fragment is expected") };
        let mut tile = self.tile(i, &f, 0, i.opds.get(2))?;
        for (o, at) in regs.iter().zip(&f.at) {
            let value = match f.bytes {
                8 => {
                    let v = self.wide(i, o, Type::F64)?;
                    self.in_pair(v)
                }
                _ => {
                    let v = self.src(i, o, Type::B32)?;
                    self.in_word(v)
                }
            };
            let parts = if f.along { 1 } else { f.each };
            let bytes = f.bytes * f.each / parts;
            for e in 0..parts {
                let (line, column) = Self::spot(&f, *at, e);
                let base = self.line(&mut tile, line);
                let part = match e {
                    0 => value,
                    _ => {
                        let t = self.one();
                        self.shift(t, [Src::ZERO, 16.into(), value.into()], mods::dir::R, mods::ty::U32, true);
                        t
                    }
                };
                let (m, n) = self.access(i, &tile, false);
                let m = m.m([
                    mods::sz::NONE,
                    mods::sz::U8,
                    mods::sz::U16,
                    mods::sz::NONE,
                    mods::sz::NONE,
                    mods::sz::NONE,
                    mods::sz::NONE,
                    mods::sz::NONE,
                    mods::sz::_64,
                ][bytes as usize]);
                let m = m.rn("b", part, bytes.div_ceil(4) as u8);
                self.push(m.at(Some(base), n, i64::from(column * f.bytes)).effect());
            }
        }
        Ok(())
    }

    fn multiply_fragments(&mut self, i: &Flat) -> Result<(), AsmError> {
        let Some((m, n, k)) = shape(i) else { return self.no(i, "no shape") };
        let types: SmallVec<[Type; 4]> = i.types().collect();
        // For halves only the accumulator types are named.
        let (d_ty, a_ty) = match types.as_slice() {
            [d, _] => (*d, Type::F16),
            [d, a, _, _] => (*d, *a),
            _ => return self.no(i, "two or four types are expected"),
        };
        let [d, a, b, c] = &*i.opds else { return self.no(i, "four fragments are expected") };
        let [Opd::Vector(d), Opd::Vector(a), Opd::Vector(b), Opd::Vector(c)] = [d, a, b, c] else {
            return self.no(i, "fragments are expected");
        };
        if a_ty == Type::F64 {
            return self.multiply_doubles(i, d, [&a[0], &b[0]], c);
        }
        let (a, b) = if m == 8 { (b, a) } else { (a, b) };
        let per = (32 / a_ty.bits()).max(1);
        let deep = if k == 8 * per { 2 } else { 1 };
        let (a_words, b_words) = (2 * deep as usize, deep as usize);
        let sh = match (a_ty, k) {
            (Type::Tf32, 8) => mods::sh::_1688,
            (Type::F16 | Type::Bf16 | Type::S8 | Type::U8, 16) => mods::sh::_16816,
            _ => return self.no(i, "matrices of this shape and type are not assembled"),
        };
        let out = if d_ty == Type::F16 { 2 } else { 4 };
        let halves = if (m, n) == (16, 16) { [(0, 0), (0, 1)] } else { [(0, 0), (1, 0)] };
        for (k, (x, y)) in halves.into_iter().enumerate() {
            let parts = (cut(a, x, a_words), cut(b, y, b_words), cut(c, k, out), cut(d, k, out));
            let (Some(a), Some(b), Some(c), Some(d)) = parts else { return self.no(i, "too few registers") };
            self.multiply_part(i, sh, [a_ty, d_ty], [a, b, c, d])?;
        }
        Ok(())
    }

    /// One hardware multiply.
    pub(super) fn multiply_part(
        &mut self,
        i: &Flat,
        sh: Modifier,
        [a_ty, d_ty]: [Type; 2],
        [a, b, c, d]: [&[Opd]; 4],
    ) -> Result<(), AsmError> {
        let (aw, bw, out) = (a.len() as u8, b.len() as u8, d.len() as u8);
        let zero = c.iter().all(|o| self.constant_of(o) == Some(0));
        let a = self.stored(i, &Opd::Vector(a), Type::B32, aw)?;
        let b = self.stored(i, &Opd::Vector(b), Type::B32, bw)?;
        let c = if zero { None } else { self.stored(i, &Opd::Vector(c), Type::B32, out)? };
        let d = Opd::Vector(d);
        let (to, copies) = self.fragment_dest(i, &d, out)?;
        let integers = matches!(a_ty, Type::S8 | Type::U8);
        let mut m = Mach::new(if integers { op::IMMA_D } else { op::HMMA_D }).m(sh).wn("d", to, out);
        if integers {
            let signed = a_ty.is_signed();
            m = m.m(if signed { mods::at::S8 } else { mods::at::U8 });
            m = m.m(if signed { mods::bt::S8 } else { mods::bt::U8 });
            m = if i.has("satfinite") { m.m(mods::sat::SAT) } else { m };
        } else {
            let st = match a_ty {
                Type::Bf16 => mods::st::BF16,
                Type::Tf32 => mods::st::TF32,
                _ => mods::st::NONE,
            };
            m = m.m(if d_ty == Type::F16 { mods::dt::F16 } else { mods::dt::F32 }).m(st);
        }
        for (slot, w, n) in [("a", a, aw), ("b", b, bw), ("c", c, out)] {
            if let Some(w) = w {
                m = m.rn(slot, w, n);
            }
        }
        self.push(m.effect());
        self.copy_out(i, copies, to)
    }

    /// `d = a b + c` of doubles, 8 by 8 by 4.
    pub(super) fn multiply_doubles(&mut self, i: &Flat, d: &[Opd], ab: [&Opd; 2], c: &[Opd]) -> Result<(), AsmError> {
        let [a, b] = [self.wide(i, ab[0], Type::F64)?, self.wide(i, ab[1], Type::F64)?].map(|v| self.in_pair(v));
        let c = self.stored(i, &Opd::Vector(c), Type::F64, 4)?;
        let to = self.four();
        let mut m = Mach::new(op::DMMA_D).m(mods::sh::_8X8X4).wn("d", to, 4).rn("a", a, 2).rn("b", b, 2);
        if let Some(c) = c {
            m = m.rn("c", c, 4);
        }
        self.push(m.effect());
        for (k, o) in d.iter().enumerate() {
            let d = self.dest(i, o)?;
            self.mov64(d, Wide::Pair(to.plus(2 * k as u8)));
        }
        Ok(())
    }
}

/// Part `at` of registers that are `n` each.
fn cut<'o, 'a>(v: &'o [Opd<'a>], at: usize, n: usize) -> Option<&'o [Opd<'a>]> {
    v.get(at * n..(at + 1) * n)
}
