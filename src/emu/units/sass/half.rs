//! Packed 16-bit floats: two of f16 or of bf16 in a word.

use super::core::{Core, zip, zip3};
use super::fault::{R, not_modelled};
use super::float::extreme;
use super::integer::{Compared, holds, set_compared};
use super::lower::Run;
use super::operand::{Fields, In};
use super::soft::{self, BF16, F16, F32, Format, Round};

pub(super) fn lower(f: Fields) -> R<Option<Run>> {
    Ok(Some(match f.0.form().mnemonic {
        "HADD2" if f.has("f32") => widened_sum(f)?,
        "HADD2" => arithmetic(f, |a, _, c| soft::sum_to_odd(a, c))?,
        "HMUL2" => arithmetic(f, |a, b, _| a * b)?,
        "HFMA2" => arithmetic(f, |a, b, c| soft::sum_to_odd(a * b, c))?,
        "HMNMX2" | "VHMNMX" => minmax(f)?,
        "HSET2" => set(f)?,
        "HSETP2" => setp(f)?,
        _ => return Ok(None),
    }))
}

/// Both halves of a word as numbers.
type Two = [f64; 2];

/// The format and what happens to sources and results.
#[derive(Clone, Copy)]
struct Mode {
    format: Format,
    ftz: bool,
    fmz: bool,
    sat: bool,
    relu: bool,
}

impl Mode {
    fn of(f: Fields) -> R<Mode> {
        let zero = if f.text("hz").is_empty() { f.text("fz") } else { f.text("hz") };
        let always = f.psrc("pr").index == 7 || !f.has("relu");
        if zero == ".OOB" || !always {
            return not_modelled(format!("{}{zero} with a predicate", f.0.form().mnemonic));
        }
        Ok(Mode {
            format: if f.has("bf") { BF16 } else { F16 },
            ftz: f.has("ftz") || matches!(zero, ".FTZ" | ".FMZ"),
            fmz: zero == ".FMZ",
            sat: f.has("sat"),
            relu: f.has("relu"),
        })
    }

    fn source(self, bits: u32) -> f64 {
        let bits = u64::from(bits);
        soft::widen(
            if self.ftz && self.format.is_denormal(bits) { bits & self.format.sign() } else { bits },
            self.format,
        )
    }

    fn result(self, v: f64) -> u32 {
        let v = match (v.is_nan(), self.sat) {
            (true, true) => 0.0,
            (false, true) if v <= 0.0 => 0.0,
            (false, true) => v.min(1.0),
            _ if self.relu && v <= 0.0 => 0.0,
            _ => v,
        };
        let bits = soft::narrow(v, self.format, Round::Nearest);
        (if self.ftz && self.format.is_denormal(bits) { bits & self.format.sign() } else { bits }) as u32
    }
}

/// The halves that an operand selects, with its signs.
fn bits_of(c: &Core, i: &In, format: Format) -> R<[[u32; 2]; 32]> {
    let sign = format.sign() as u32;
    let keep = if i.abs { sign - 1 } else { 0xffff };
    let flip = if i.neg { sign } else { 0 };
    Ok(c.raw(i)?.map(|v| {
        let (low, high) = (v & 0xffff, v >> 16);
        let pair = match i.select {
            ".H0_H0" => [low, low],
            ".H1_H1" => [high, high],
            _ => [low, high],
        };
        // Of complex products: the high half with the other sign.
        let other = if i.select == ".H0_NH1" { sign } else { 0 };
        let [low, high] = pair.map(|h| h & keep ^ flip);
        [low, high ^ other]
    }))
}

fn values(c: &Core, i: &In, mode: Mode) -> R<[Two; 32]> {
    Ok(bits_of(c, i, mode.format)?.map(|pair| pair.map(|h| mode.source(h))))
}

fn join([low, high]: [u32; 2]) -> u32 {
    low | high << 16
}

/// An operation whose value is exact, or odd where it is not, before the one rounding.
fn arithmetic(f: Fields, op: fn(f64, f64, f64) -> f64) -> R<Run> {
    let (d, mode, a) = (f.dst()?, Mode::of(f)?, f.src("a")?);
    let (b, e) = (f.src_or_zero("b")?, f.src_or_zero("c")?);
    if f.has("f32") || [a, b, e].iter().any(|i| i.select == ".F32") {
        return not_modelled(format!("{} with single precision", f.0.form().mnemonic));
    }
    let multiplies = f.0.form().mnemonic != "HADD2";
    Ok(Box::new(move |c| {
        let r = zip3(&values(c, &a, mode)?, &values(c, &b, mode)?, &values(c, &e, mode)?, |a: Two, b: Two, e: Two| {
            join(std::array::from_fn(|k| {
                let zero = multiplies && mode.fmz && (a[k] == 0.0 || b[k] == 0.0);
                mode.result(if zero { e[k] + 0.0 } else { op(a[k], b[k], e[k]) })
            }))
        });
        c.write(d, &r);
        Ok(())
    }))
}

/// HADD2.F32: the sum of two halves in single precision.
fn widened_sum(f: Fields) -> R<Run> {
    let (d, mode, a, e) = (f.dst()?, Mode::of(f)?, f.src("a")?, f.src("c")?);
    Ok(Box::new(move |c| {
        let r = zip(&values(c, &a, mode)?, &values(c, &e, mode)?, |a: Two, e: Two| {
            soft::narrow(a[0] + e[0], F32, Round::Nearest) as u32
        });
        c.write(d, &r);
        Ok(())
    }))
}

fn minmax(f: Fields) -> R<Run> {
    let (d, mode, mut a, mut b, pp) = (f.dst()?, Mode::of(f)?, f.src("a")?, f.src("b")?, f.psrc("pp"));
    let third = if f.0.form().mnemonic == "VHMNMX" { Some(f.src("c")?) } else { None };
    let (nan, xor, format) = (f.has("nan"), f.has("xor"), mode.format);
    // As of FMNMX.
    (a.abs, b.abs) = (a.abs && !xor, b.abs && !xor);
    let sign = format.sign() as u32;
    let pick = move |min: bool, x: u32, y: u32| {
        let flips = (x ^ y) & sign;
        let (x, y) = if xor { (x & !sign, y & !sign) } else { (x, y) };
        let clean = |v: u32| if mode.ftz && format.is_denormal(v.into()) { v & sign } else { v };
        let (x, y) = (clean(x), clean(y));
        let is_nan = |v: u32| u64::from(v & !sign) > format.infinity();
        // Order of the bits as numbers, so that -0 comes before +0.
        let key = |v: u32| if v & sign == 0 { v.cast_signed() } else { -(v & !sign).cast_signed() - 1 };
        match extreme(min, nan, ((key(x), x), is_nan(x)), ((key(y), y), is_nan(y))) {
            None => format.nan() as u32,
            Some((_, v)) => v | if xor { flips } else { 0 },
        }
    };
    Ok(Box::new(move |c| {
        let p = c.pred(pp);
        let (av, bv) = (bits_of(c, &a, format)?, bits_of(c, &b, format)?);
        let ev = match &third {
            Some(e) => Some(bits_of(c, e, format)?),
            None => None,
        };
        let r = std::array::from_fn(|lane| {
            let min = p >> lane & 1 == 1;
            join(std::array::from_fn(|k| {
                let r = pick(min, av[lane][k], bv[lane][k]);
                ev.as_ref().map_or(r, |ev| pick(min, r, ev[lane][k]))
            }))
        });
        c.write(d, &r);
        Ok(())
    }))
}

/// Where each half's compare is true.
fn compared(c: &Core, (a, b): (&In, &In), mode: Mode, code: u64) -> R<[u32; 2]> {
    let (av, bv) = (values(c, a, mode)?, values(c, b, mode)?);
    Ok(std::array::from_fn(|k| {
        (0..32).fold(0, |all, lane| all | u32::from(holds(code, av[lane][k].partial_cmp(&bv[lane][k]))) << lane)
    }))
}

/// One, or all ones, in the halves whose compare is true.
fn set(f: Fields) -> R<Run> {
    let (d, mode, a, b, code) = (f.dst()?, Mode::of(f)?, f.src("a")?, f.src("b")?, f.bits("cmp"));
    let (pp, bop) = (f.psrc("pp"), f.bits("bop"));
    let one = match f.has("fb") {
        false => 0xffff,
        true => soft::narrow(1.0, mode.format, Round::Nearest) as u32,
    };
    Ok(Box::new(move |c| {
        let with = c.pred(pp);
        let hold = compared(c, (&a, &b), mode, code)?.map(|r| match bop {
            0 => r & with,
            1 => r | with,
            _ => r ^ with,
        });
        let r = std::array::from_fn(|lane| join(hold.map(|h| if h >> lane & 1 == 1 { one } else { 0 })));
        c.write(d, &r);
        Ok(())
    }))
}

/// The first predicate from the low half, the second from the high one; with H_AND from both together.
fn setp(f: Fields) -> R<Run> {
    let (mode, a, b, code) = (Mode::of(f)?, f.src("a")?, f.src("b")?, f.bits("cmp"));
    let (to, both) = (Compared::of(f), f.has("hand"));
    Ok(Box::new(move |c| {
        let [low, high] = compared(c, (&a, &b), mode, code)?;
        if both {
            set_compared(c, &to, low & high);
            return Ok(());
        }
        let none = super::operand::PDst { uniform: false, index: 7 };
        set_compared(c, &Compared { pv: none, ..to }, low);
        set_compared(c, &Compared { pu: to.pv, pv: none, ..to }, high);
        Ok(())
    }))
}
