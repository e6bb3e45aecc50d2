//! Single precision.

use super::core::{How, mask, zip, zip3};
use super::fault::R;
use super::integer::{Compared, held, holds, set_compared};
use super::lower::{Run, name};
use super::operand::{Dst, Fields, In};
use super::soft::{self, F32, Round};
use super::warp::{Lanes, ones};

pub(super) fn lower(f: Fields) -> R<Option<Run>> {
    Ok(Some(match name(f) {
        "FADD" => add(f)?,
        "FMUL" => multiply(f)?,
        "FFMA" => fused(f)?,
        "FSETP" => setp(f)?,
        "FSET" => set(f)?,
        "FMNMX" => minmax(f)?,
        "FSEL" => select(f)?,
        "FCHK" => check(f)?,
        _ => return Ok(None),
    }))
}

/// What happens to sources and results besides the operation.
#[derive(Clone, Copy)]
pub(super) struct Mode {
    pub round: Round,
    /// Denormals count as zero.
    pub ftz: bool,
    /// Zero times anything is zero.
    pub fmz: bool,
    /// Clamped to 0..1.
    pub sat: bool,
}

impl Mode {
    pub(crate) fn of(f: Fields) -> Mode {
        let zero = f.text("fz");
        Mode {
            round: Round::of(f.text("rnd")),
            ftz: f.has("ftz") || matches!(zero, ".FTZ" | ".FMZ"),
            fmz: zero == ".FMZ",
            sat: f.has("sat"),
        }
    }

    pub(crate) fn source(self, v: f32) -> f32 {
        if self.ftz { flush(v) } else { v }
    }

    pub(crate) fn result(self, v: f32) -> f32 {
        let v = if self.ftz { flush(v) } else { v };
        match (self.sat, v.is_nan()) {
            (true, true) => 0.0,
            // Not clamp: -0 becomes +0.
            (true, false) if v <= 0.0 => 0.0,
            (true, false) => v.min(1.0),
            (false, true) => f32::from_bits(0x7fff_ffff),
            (false, false) => v,
        }
    }
}

pub(super) fn flush(v: f32) -> f32 {
    if v.is_subnormal() { f32::from_bits(v.to_bits() & 1 << 31) } else { v }
}

/// `a * b + c`, rounded once.
fn fma(a: f32, b: f32, c: f32, round: Round) -> f32 {
    if round == Round::Nearest {
        return a.mul_add(b, c);
    }
    let (product, addend) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = soft::sum_to_odd(product, addend);
    if sum == 0.0 && round == Round::Down && product.is_sign_negative() != addend.is_sign_negative() {
        return -0.0;
    }
    f32::from_bits(soft::narrow(sum, F32, round) as u32)
}

/// What "not a number" is as a result.
#[inline(always)]
fn canonical(v: f32) -> u32 {
    if v.is_nan() { 0x7fff_ffff } else { v.to_bits() }
}

/// A value, or a zero of its sign where denormals are none.
#[inline(always)]
fn clean<const FTZ: bool>(v: f32) -> f32 {
    let bits = v.to_bits();
    if FTZ && bits & 0x7f80_0000 == 0 { f32::from_bits(bits & 1 << 31) } else { v }
}

#[inline(always)]
fn single<const FTZ: bool>(bits: u32) -> f32 {
    clean::<FTZ>(f32::from_bits(bits))
}

/// Neither clamped nor rounded in another direction, and zero is not special.
fn is_usual(mode: Mode) -> bool {
    mode.round == Round::Nearest && !mode.sat && !mode.fmz
}

fn add(f: Fields) -> R<Run> {
    let (d, a, b, mode) = (f.dst()?, f.src("a")?, f.src("c")?, Mode::of(f));
    if is_usual(mode) {
        return Ok(if mode.ftz { add_usual::<true>(d, a, b) } else { add_usual::<false>(d, a, b) });
    }
    Ok(Box::new(move |c| {
        let r = zip(&c.floats(&a)?, &c.floats(&b)?, |a, b| {
            let (a, b) = (mode.source(a), mode.source(b));
            let sum = if mode.round == Round::Nearest { a + b } else { fma(a, 1.0, b, mode.round) };
            mode.result(sum).to_bits()
        });
        c.write(d, &r);
        Ok(())
    }))
}

fn add_usual<const FTZ: bool>(d: Dst, a: In, b: In) -> Run {
    Box::new(move |c| {
        let [a, b] = c.sources(How::Float, [&a, &b])?;
        let r = zip(a, b, |a, b| canonical(clean::<FTZ>(single::<FTZ>(a) + single::<FTZ>(b))));
        c.write(d, &r);
        Ok(())
    })
}

fn multiply_usual<const FTZ: bool>(d: Dst, a: In, b: In) -> Run {
    Box::new(move |c| {
        let [a, b] = c.sources(How::Float, [&a, &b])?;
        let r = zip(a, b, |a, b| canonical(clean::<FTZ>(single::<FTZ>(a) * single::<FTZ>(b))));
        c.write(d, &r);
        Ok(())
    })
}

/// The product is exact in a double; the sum is rounded to a double and then to a single, which is wrong at most where
/// the double lies halfway between two singles or the single is denormal: those lanes are recomputed.
fn fused_usual<const FTZ: bool>(d: Dst, [a, b, e]: [In; 3]) -> Run {
    Box::new(move |c| {
        let [a, b, e] = c.sources(How::Float, [&a, &b, &e])?;
        let of = |v: u32| single::<FTZ>(v);
        let exact = zip3(a, b, e, |a, b, e| f64::from(of(a)) * f64::from(of(b)) + f64::from(of(e)));
        let mut r = exact.map(|v| canonical(clean::<FTZ>(v as f32)));
        let again = mask(|lane| {
            let bits = exact[lane].to_bits();
            let magnitude = bits & !(1 << 63);
            (bits & 0x1fff_ffff == 0x1000_0000) | (magnitude != 0) & (magnitude < 0x3810_0000_0000_0000)
        });
        for lane in ones(again) {
            r[lane] = canonical(clean::<FTZ>(of(a[lane]).mul_add(of(b[lane]), of(e[lane]))));
        }
        c.write(d, &r);
        Ok(())
    })
}

fn multiply(f: Fields) -> R<Run> {
    let (d, a, b, mode) = (f.dst()?, f.src("a")?, f.src("b")?, Mode::of(f));
    let scale = match f.text("scale") {
        ".D8" => 0.125,
        ".D4" => 0.25,
        ".D2" => 0.5,
        ".M2" => 2.0,
        ".M4" => 4.0,
        ".M8" => 8.0,
        _ => 1.0f64,
    };
    if is_usual(mode) && scale == 1.0 {
        return Ok(if mode.ftz { multiply_usual::<true>(d, a, b) } else { multiply_usual::<false>(d, a, b) });
    }
    Ok(Box::new(move |c| {
        let r = zip(&c.floats(&a)?, &c.floats(&b)?, |a, b| {
            let (a, b) = (mode.source(a), mode.source(b));
            if mode.fmz && (a == 0.0 || b == 0.0) {
                return 0;
            }
            // The product of two singles is exact in a double.
            let product = f64::from(a) * f64::from(b) * scale;
            mode.result(f32::from_bits(soft_narrow(product, mode.round))).to_bits()
        });
        c.write(d, &r);
        Ok(())
    }))
}

fn soft_narrow(v: f64, round: Round) -> u32 {
    match round {
        Round::Nearest => (v as f32).to_bits(),
        _ => soft::narrow(v, F32, round) as u32,
    }
}

fn fused(f: Fields) -> R<Run> {
    let (d, a, b, e, mode) = (f.dst()?, f.src("a")?, f.src("b")?, f.src("c")?, Mode::of(f));
    if is_usual(mode) {
        let sources = [a, b, e];
        return Ok(if mode.ftz { fused_usual::<true>(d, sources) } else { fused_usual::<false>(d, sources) });
    }
    Ok(Box::new(move |c| {
        let r = zip3(&c.floats(&a)?, &c.floats(&b)?, &c.floats(&e)?, |a, b, c| {
            let (a, b, c) = (mode.source(a), mode.source(b), mode.source(c));
            if mode.fmz && (a == 0.0 || b == 0.0) {
                return mode.result(c + 0.0).to_bits();
            }
            mode.result(fma(a, b, c, mode.round)).to_bits()
        });
        c.write(d, &r);
        Ok(())
    }))
}

fn setp(f: Fields) -> R<Run> {
    let (a, b, to, code, mode) = (f.src("a")?, f.src("b")?, Compared::of(f), f.bits("cmp"), Mode::of(f));
    Ok(Box::new(move |c| {
        let [a, b] = c.sources(How::Float, [&a, &b])?;
        let value = |v: &Lanes| v.map(|v| mode.source(f32::from_bits(v)));
        let (a, b) = (value(a), value(b));
        let (less, equal) = (mask(|lane| a[lane] < b[lane]), mask(|lane| a[lane] == b[lane]));
        let result = held(code, less, equal, mask(|lane| a[lane] > b[lane]));
        set_compared(c, &to, result);
        Ok(())
    }))
}

/// 1.0 where the compare is true, combined with the predicate.
fn set(f: Fields) -> R<Run> {
    let (d, a, b, code, mode) = (f.dst()?, f.src("a")?, f.src("b")?, f.bits("cmp"), Mode::of(f));
    let (pp, bop) = (f.psrc("pp"), f.bits("bop"));
    Ok(Box::new(move |c| {
        let with = c.pred(pp);
        let hold = zip(&c.floats(&a)?, &c.floats(&b)?, |a, b| holds(code, mode.source(a).partial_cmp(&mode.source(b))));
        let r = std::array::from_fn(|lane| {
            let w = with >> lane & 1 == 1;
            let r = match bop {
                0 => hold[lane] & w,
                1 => hold[lane] | w,
                _ => hold[lane] ^ w,
            };
            if r { 1f32.to_bits() } else { 0 }
        });
        c.write(d, &r);
        Ok(())
    }))
}

/// The smaller or larger of two values; -0 is smaller than +0; a number beats "not a number" unless `nan`.
pub(super) fn extreme<T: PartialOrd + Copy>(
    min: bool,
    nan: bool,
    (a, a_nan): (T, bool),
    (b, b_nan): (T, bool),
) -> Option<T> {
    match (a_nan, b_nan) {
        (true, true) => None,
        (true, _) | (_, true) if nan => None,
        (true, false) => Some(b),
        (false, true) => Some(a),
        _ => Some(if (a < b) == min { a } else { b }),
    }
}

fn minmax(f: Fields) -> R<Run> {
    let (d, mut a, mut b, pp, mode) = (f.dst()?, f.src("a")?, f.src("b")?, f.psrc("pp"), Mode::of(f));
    let (nan, xor) = (f.has("nan"), f.has("xor"));
    // The sign is computed from the operands before their absolute values: PTX's `xorsign.abs` is this with both
    // absolute.
    (a.abs, b.abs) = (a.abs && !xor, b.abs && !xor);
    // Order of the bits as numbers, so that -0 comes before +0.
    let key = |v: f32| {
        let bits = v.to_bits().cast_signed();
        if bits < 0 { bits ^ i32::MAX } else { bits }
    };
    if !nan && !xor {
        return Ok(Box::new(move |c| {
            let p = c.pred(pp);
            let [a, b] = c.sources(How::Float, [&a, &b])?;
            let r: Lanes = std::array::from_fn(|lane| {
                let (x, y) = (mode.source(f32::from_bits(a[lane])), mode.source(f32::from_bits(b[lane])));
                let first = ((key(x) < key(y)) == (p & 1 << lane != 0) && !x.is_nan()) | y.is_nan();
                canonical(if first { x } else { y })
            });
            c.write(d, &r);
            Ok(())
        }));
    }
    Ok(Box::new(move |c| {
        let p = c.pred(pp);
        let (av, bv) = (c.floats(&a)?, c.floats(&b)?);
        let r = std::array::from_fn(|lane| {
            let (x, y) = (mode.source(av[lane]), mode.source(bv[lane]));
            let sign = (x.to_bits() ^ y.to_bits()) & 1 << 31;
            let (x, y) = if xor { (x.abs(), y.abs()) } else { (x, y) };
            let min = p >> lane & 1 == 1;
            let picked = extreme(min, nan, ((key(x), x), x.is_nan()), ((key(y), y), y.is_nan()));
            match picked {
                None => 0x7fff_ffff,
                Some((_, v)) => v.to_bits() | if xor { sign } else { 0 },
            }
        });
        c.write(d, &r);
        Ok(())
    }))
}

fn select(f: Fields) -> R<Run> {
    let (d, a, b, pp, ftz) = (f.dst()?, f.src("a")?, f.src("b")?, f.psrc("pp"), f.has("ftz"));
    Ok(Box::new(move |c| {
        let p = c.pred(pp);
        let [a, b] = c.sources(How::Float, [&a, &b])?;
        let r: Lanes = std::array::from_fn(|lane| {
            let v = f32::from_bits(if p & 1 << lane != 0 { a[lane] } else { b[lane] });
            (if ftz { flush(v) } else { v }).to_bits()
        });
        c.write(d, &r);
        Ok(())
    }))
}

/// Whether a division needs its slow path: true for more operands than on hardware, whose limits are not published;
/// both paths give the same quotient.
fn check(f: Fields) -> R<Run> {
    let (pu, a, b) = (f.pdst("pu"), f.src("a")?, f.src("b")?);
    Ok(Box::new(move |c| {
        let exponent = |v: f32| (v.to_bits() >> 23 & 0xff).cast_signed();
        let slow = zip(&c.floats(&a)?, &c.floats(&b)?, |a, b| {
            let (ea, eb) = (exponent(a), exponent(b));
            !(30..=250).contains(&ea) || !(4..=250).contains(&eb) || !(-120..=120).contains(&(ea - eb))
        });
        let mask = (0..32).fold(0, |all, lane| all | u32::from(slow[lane]) << lane);
        c.set_pred(pu, mask);
        Ok(())
    }))
}
