//! Integers of 64 bits in general registers, which sm_120 has: sums, compares, minima, moves, selections.
//!
//! An immediate of 32 bits is extended with its sign. The predicates written by a minimum are not known: an instruction
//! with one is a fault.

use super::core::{Core, mask, zip};
use super::fault::{R, not_modelled};
use super::integer::{Compared, held, set_compared};
use super::lower::{Run, name};
use super::operand::{Fields, In, Src};

pub(super) fn lower(f: Fields) -> R<Option<Run>> {
    let form = f.0.form();
    Ok(Some(match name(f) {
        "IADD" => add(f)?,
        "MOV" if f.has("w") || form.name == "I64" => {
            let (d, b) = (f.dst()?, f.src("b")?);
            Box::new(move |c| {
                let values = c.raw_pairs(&b)?;
                c.write_pairs(d, &values);
                Ok(())
            })
        }
        "SEL" if form.name.ends_with("64") => select(f)?,
        "ISETP" if f.text("sg").ends_with("64") => compare(f)?,
        "IMNMX" if form.name.ends_with("64") => minmax(f)?,
        _ => return Ok(None),
    }))
}

/// A source of 64 bits, no modifier applied; a short immediate is signed.
fn pairs(c: &Core, i: &In, short: bool) -> R<[u64; 32]> {
    match i.src {
        Src::Imm(low, _) if short => Ok([i64::from(low.cast_signed()).cast_unsigned(); 32]),
        _ => c.raw_pairs(i),
    }
}

/// Whether the second source has 32 bits for an immediate.
fn is_short(f: Fields) -> bool {
    f.0.form().name == "I"
}

/// IADD: a sum of two with a carry out, and with .X one in, of 32 or of 64 bits. Negation is complement plus one, with
/// .X the complement alone.
fn add(f: Fields) -> R<Run> {
    let (d, pu, a, b) = (f.dst()?, f.pdst("pu"), f.src("a")?, f.src("b")?);
    let (x, pp, wide, short) = (f.has("x"), f.psrc("pp"), f.has("w"), is_short(f));
    let bits = if wide { 64 } else { 32 };
    Ok(Box::new(move |c| {
        let carry = if x { c.pred(pp) } else { 0 };
        let (av, bv) = match wide {
            true => (pairs(c, &a, false)?, pairs(c, &b, short)?),
            false => (c.raw(&a)?.map(u64::from), c.raw(&b)?.map(u64::from)),
        };
        let all = u64::MAX >> (64 - bits);
        let term = |v: u64, neg: bool| u128::from(if neg { !v & all } else { v }) + u128::from(neg && !x);
        let sums: [u128; 32] =
            std::array::from_fn(|lane| term(av[lane], a.neg) + term(bv[lane], b.neg) + u128::from(carry >> lane & 1));
        match wide {
            true => c.write_pairs(d, &sums.map(|sum| sum as u64)),
            false => c.write(d, &sums.map(|sum| sum as u32)),
        }
        c.set_pred(pu, mask(|lane| sums[lane] >> bits != 0));
        Ok(())
    }))
}

fn select(f: Fields) -> R<Run> {
    let (d, a, b, pp) = (f.dst()?, f.src("a")?, f.src("b")?, f.psrc("pp"));
    Ok(Box::new(move |c| {
        let (p, av, bv) = (c.pred(pp), c.raw_pairs(&a)?, c.raw_pairs(&b)?);
        let r: [u64; 32] = std::array::from_fn(|lane| if p >> lane & 1 == 1 { av[lane] } else { bv[lane] });
        c.write_pairs(d, &r);
        Ok(())
    }))
}

fn compare(f: Fields) -> R<Run> {
    let (a, b, to, code) = (f.src("a")?, f.src("b")?, Compared::of(f), f.bits("cmp"));
    let (signed, short) = (f.text("sg") == ".S64", is_short(f));
    if f.has("x") {
        return not_modelled(format!("{} of 64 bits with .EX", f.0.form().mnemonic));
    }
    Ok(Box::new(move |c| {
        let (av, bv) = (pairs(c, &a, false)?, pairs(c, &b, short)?);
        let less = mask(|lane| match signed {
            true => av[lane].cast_signed() < bv[lane].cast_signed(),
            false => av[lane] < bv[lane],
        });
        let equal = mask(|lane| av[lane] == bv[lane]);
        set_compared(c, &to, held(code, less, equal, !(less | equal)));
        Ok(())
    }))
}

/// Minimum where the predicate is true, maximum where it is false.
fn minmax(f: Fields) -> R<Run> {
    let (d, a, b, pp) = (f.dst()?, f.src("a")?, f.src("b")?, f.psrc("pp"));
    if f.pdst("pu").index != 7 || f.pdst("pv").index != 7 {
        return not_modelled(format!("{}{} that writes predicates", f.0.form().mnemonic, f.text("ty")));
    }
    let signed = f.text("ty") == ".S64";
    Ok(Box::new(move |c| {
        let (p, av, bv) = (c.pred(pp), c.raw_pairs(&a)?, pairs(c, &b, true)?);
        let less = zip(&av, &bv, |a, b| if signed { a.cast_signed() < b.cast_signed() } else { a < b });
        let r: [u64; 32] = std::array::from_fn(|lane| {
            let min = p >> lane & 1 == 1;
            if less[lane] == min { av[lane] } else { bv[lane] }
        });
        c.write_pairs(d, &r);
        Ok(())
    }))
}
