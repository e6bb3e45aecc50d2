//! Double precision.

use super::core::zip;
use super::fault::R;
use super::integer::{Compared, holds, set_compared};
use super::lower::Run;
use super::operand::{Fields, In, Src};
use super::soft::{self, F64, Round};

pub(super) fn lower(f: Fields) -> R<Option<Run>> {
    let one = In { src: Src::Imm(0, 0x3ff0_0000), neg: false, abs: false, not: false, select: "" };
    Ok(Some(match f.0.form().mnemonic {
        "DADD" => fused(f, [f.src("a")?, one, f.src("c")?], "DADD")?,
        "DMUL" => fused(f, [f.src("a")?, f.src("b")?, one], "DMUL")?,
        "DFMA" => fused(f, [f.src("a")?, f.src("b")?, f.src("c")?], "DFMA")?,
        "DSETP" if matches!(f.text("cmp"), ".MIN" | ".MAX") => minmax(f)?,
        "DSETP" => setp(f)?,
        _ => return Ok(None),
    }))
}

/// Sum, product or both, rounded once.
fn fused(f: Fields, [a, b, e]: [In; 3], what: &'static str) -> R<Run> {
    let (d, round) = (f.dst()?, Round::of(f.text("rnd")));
    Ok(Box::new(move |c| {
        let (av, bv, ev) = (c.doubles(&a)?, c.doubles(&b)?, c.doubles(&e)?);
        let r = std::array::from_fn(|lane| {
            let (a, b, e) = (av[lane], bv[lane], ev[lane]);
            if round == Round::Nearest {
                let v = match what {
                    "DADD" => a + e,
                    "DMUL" => a * b,
                    _ => a.mul_add(b, e),
                };
                return v.to_bits();
            }
            // Adding a zero of the product's sign changes nothing.
            let e = if what == "DMUL" { (0f64).copysign(a * b) } else { e };
            soft::fma(a, b, e, F64, round)
        });
        c.write_pairs(d, &r);
        Ok(())
    }))
}

fn setp(f: Fields) -> R<Run> {
    let (a, b, to, code) = (f.src("a")?, f.src("b")?, Compared::of(f), f.bits("cmp"));
    Ok(Box::new(move |c| {
        let hold = zip(&c.doubles(&a)?, &c.doubles(&b)?, |a, b| holds(code, a.partial_cmp(&b)));
        let result = (0..32).fold(0, |all, lane| all | u32::from(hold[lane]) << lane);
        set_compared(c, &to, result);
        Ok(())
    }))
}

/// The first predicate: the first source is the result; the second: neither is a number.
fn minmax(f: Fields) -> R<Run> {
    let (a, b, pu, pv) = (f.src("a")?, f.src("b")?, f.pdst("pu"), f.pdst("pv"));
    let min = f.text("cmp") == ".MIN";
    Ok(Box::new(move |c| {
        let (av, bv) = (c.doubles(&a)?, c.doubles(&b)?);
        let (mut first, mut neither) = (0, 0);
        for lane in 0..32 {
            let (a, b) = (av[lane], bv[lane]);
            let before = a.total_cmp(&b).is_lt() == min;
            let picks = !a.is_nan() && (b.is_nan() || before);
            first |= u32::from(picks) << lane;
            neither |= u32::from(a.is_nan() && b.is_nan()) << lane;
        }
        c.set_pred(pu, first);
        c.set_pred(pv, neither);
        Ok(())
    }))
}
