//! Operations between lanes: votes, matches, shuffles, reductions, moves to the uniform file.

use super::core::Core;
use super::fault::{R, not_modelled};
use super::lower::Run;
use super::operand::{Dst, Fields};
use super::warp::{Lanes, ones};

pub(super) fn lower(f: Fields) -> R<Option<Run>> {
    Ok(Some(match f.0.form().mnemonic {
        "VOTE" | "VOTEU" => vote(f)?,
        "MATCH" => matches(f)?,
        "SHFL" => shuffle(f)?,
        "REDUX" => reduce(f)?,
        "R2UR" => to_uniform(f)?,
        "ELECT" => elect(f)?,
        _ => return Ok(None),
    }))
}

fn all_if(holds: bool) -> u32 {
    if holds { u32::MAX } else { 0 }
}

/// The lanes whose predicate is true, and whether all, any, or all equally are.
fn vote(f: Fields) -> R<Run> {
    let d = if f.0.form().name == "D" { f.dst()? } else { Dst::R(255) };
    let (pu, pp, mode) = (f.pdst("pu"), f.psrc("pp"), f.text("md"));
    Ok(Box::new(move |c| {
        let ballot = c.pred(pp) & c.lanes;
        let holds = match mode {
            ".ALL" => ballot == c.lanes,
            ".ANY" => ballot != 0,
            _ => ballot == 0 || ballot == c.lanes,
        };
        c.write(d, &[ballot; 32]);
        c.set_pred(pu, all_if(holds));
        Ok(())
    }))
}

/// Which lanes hold the same value.
fn matches(f: Fields) -> R<Run> {
    let (d, pu, a) = (f.dst()?, f.pdst("pu"), f.src("a")?);
    let (wide, all) = (f.has("w"), f.0.form().name == "ALL");
    Ok(Box::new(move |c| {
        let values = if wide { c.raw_pairs(&a)? } else { c.raw(&a)?.map(u64::from) };
        let lanes = c.lanes;
        let same = |lane: usize| ones(lanes).filter(|l| values[*l] == values[lane]).fold(0, |m, l| m | 1 << l);
        if all {
            let first = lanes.trailing_zeros() as usize & 31;
            let alike = same(first) == lanes;
            c.write(d, &[if alike { lanes } else { 0 }; 32]);
            c.set_pred(pu, all_if(alike));
        } else {
            let r: Lanes = std::array::from_fn(same);
            c.write(d, &r);
        }
        Ok(())
    }))
}

/// The value of another lane, within segments.
fn shuffle(f: Fields) -> R<Run> {
    let (d, pu, a, b, e) = (f.dst()?, f.pdst("pu"), f.src("a")?, f.src("b")?, f.src("c")?);
    let mode = f.text("md");
    Ok(Box::new(move |c| {
        let (values, which, bounds) = (c.raw(&a)?, c.raw(&b)?, c.raw(&e)?);
        let (mut r, mut inside) = ([0; 32], 0);
        for lane in 0..32u32 {
            let (n, bound) = (which[lane as usize] & 31, bounds[lane as usize]);
            let (clamp, segment) = (bound & 31, bound >> 8 & 31);
            let highest = lane & segment | clamp & !segment;
            let (from, holds) = match mode {
                ".IDX" => {
                    let from = lane & segment | n & !segment;
                    (from, from <= highest)
                }
                ".UP" => (lane.wrapping_sub(n), lane.cast_signed() - n.cast_signed() >= highest.cast_signed()),
                ".DOWN" => (lane + n, lane + n <= highest),
                _ => (lane ^ n, lane ^ n <= highest),
            };
            r[lane as usize] = values[if holds { from & 31 } else { lane } as usize];
            inside |= u32::from(holds) << lane;
        }
        c.write(d, &r);
        c.set_pred(pu, inside);
        Ok(())
    }))
}

/// One value of all lanes.
fn reduce(f: Fields) -> R<Run> {
    let (d, a, op, signed) = (f.dst()?, f.src("a")?, f.text("op"), f.has("sg"));
    Ok(Box::new(move |c| {
        let values = c.raw(&a)?;
        let combine = |x: u32, y: u32| match (op, signed) {
            ("", _) => x & y,
            (".OR", _) => x | y,
            (".XOR", _) => x ^ y,
            (".SUM", _) => x.wrapping_add(y),
            (".MIN", true) => x.cast_signed().min(y.cast_signed()).cast_unsigned(),
            (".MIN", false) => x.min(y),
            (_, true) => x.cast_signed().max(y.cast_signed()).cast_unsigned(),
            (_, false) => x.max(y),
        };
        let r = ones(c.lanes).map(|lane| values[lane]).reduce(combine).unwrap_or(0);
        c.write(d, &[r; 32]);
        Ok(())
    }))
}

fn first(c: &Core) -> usize {
    c.lanes.trailing_zeros() as usize & 31
}

/// The first lane's value. The predicate is false: on hardware it was in all published experiments, with equal sources
/// and different ones, all lanes and some (cicuvc/nvidia-sass-document, R2UR); ptxas lets it skip the branch for
/// missing lanes.
fn to_uniform(f: Fields) -> R<Run> {
    if f.has("or") || !f.text("md").is_empty() {
        return not_modelled(format!("R2UR{}{}", f.text("or"), f.text("md")));
    }
    let (d, pu, a) = (f.dst()?, f.pdst("pu"), f.src("a")?);
    Ok(Box::new(move |c| {
        let value = c.raw(&a)?[first(c)];
        c.write(d, &[value; 32]);
        c.set_pred(pu, 0);
        Ok(())
    }))
}

/// One lane of those whose predicate is true: the first; its number and position.
fn elect(f: Fields) -> R<Run> {
    let (d, pu, pp) = (f.dst()?, f.pdst("pu"), f.psrc("pp"));
    Ok(Box::new(move |c| {
        let lanes = c.lanes & c.pred(pp);
        let leader = if lanes == 0 { 0 } else { lanes.trailing_zeros() };
        c.write(d, &[leader; 32]);
        c.set_pred(pu, if lanes == 0 { 0 } else { 1 << leader });
        Ok(())
    }))
}
