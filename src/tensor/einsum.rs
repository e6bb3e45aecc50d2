//! Sums of products named by letters, as in numpy's `einsum`.
//!
//! Every operand is expanded over all letters (missing ones have size 1), the product is taken, and the letters that
//! the result does not have are summed. `...` stands for leading axes that broadcast.

use super::elementwise::Elementwise;
use super::error::Problem;
use super::graph;
use super::movement::Movement;
use super::reduction::sum;
use super::value::{Expr, Value};
use crate::uop::Dim;

/// Names for the axes of `...`, from the last one backward; no letter has them.
fn dots(n: usize) -> Vec<char> {
    (0..n).rev().filter_map(|k| char::from_u32(0xe000 + k as u32)).collect()
}

/// One operand's letters, one an axis.
fn letters(term: &str, rank: usize) -> Result<Vec<char>, Problem> {
    let bad = |c: char| Problem::argument(format!("'{c}' in '{term}' is not a letter"));
    let (front, back) = match term.split_once("...") {
        Some((front, back)) => (front, Some(back)),
        None => (term, None),
    };
    let named = |text: &str| {
        text.chars()
            .filter(|c| !c.is_whitespace())
            .map(|c| if c.is_ascii_alphabetic() { Ok(c) } else { Err(bad(c)) })
            .collect::<Result<Vec<char>, Problem>>()
    };
    let (mut all, tail) = (named(front)?, named(back.unwrap_or(""))?);
    let hidden = match back {
        Some(_) => rank.checked_sub(all.len() + tail.len()),
        None => (all.len() == rank).then_some(0),
    };
    let Some(hidden) = hidden else {
        return Err(Problem::argument(format!("'{term}' does not name the axes of rank {rank}")));
    };
    all.extend(dots(hidden));
    all.extend(tail);
    Ok(all)
}

/// A letter that occurs twice in an operand selects its diagonal.
fn without_doubles(mut x: Expr, mut names: Vec<char>) -> Result<(Expr, Vec<char>), Problem> {
    while let Some((a, b)) =
        (0..names.len()).find_map(|a| (a + 1..names.len()).find(|b| names[*b] == names[a]).map(|b| (a, b)))
    {
        let letter = names[a];
        if !graph::same(&x.dim(a), &x.dim(b)) {
            return Err(Problem::shape(format!(
                "'{letter}' stands for the sizes {} and {} at once",
                x.dim(a),
                x.dim(b)
            )));
        }
        x = x.diagonal(0, a as i64, b as i64);
        names.remove(b);
        names.remove(a);
        names.push(letter);
    }
    Ok((x, names))
}

pub(crate) fn einsum(formula: &str, xs: Vec<Expr>) -> Result<Expr, Problem> {
    let (inputs, output) = match formula.split_once("->") {
        Some((inputs, output)) => (inputs, Some(output)),
        None => (formula, None),
    };
    let terms: Vec<&str> = inputs.split(',').collect();
    if terms.len() != xs.len() {
        return Err(Problem::argument(format!("'{formula}' has {} operands, not {}", terms.len(), xs.len())));
    }
    let t = graph::promoted(&xs.iter().map(Expr::uop).collect::<Vec<_>>());
    // Floats are multiplied in the type they are summed in, so that half types round once, at the end.
    let wide = if t.is_float() { t.accumulator() } else { t };
    let mut operands = Vec::with_capacity(xs.len());
    let mut known = Vec::new();
    for (x, term) in xs.into_iter().zip(&terms) {
        let names = letters(term, x.rank())?;
        known.extend_from_slice(&names);
        operands.push(without_doubles(x.cast(wide), names)?);
    }
    let out = output_letters(&known, output)?;
    // All letters: those of the result, then those that are summed.
    let mut all = out.clone();
    for c in operands.iter().flat_map(|o| &o.1) {
        if !all.contains(c) {
            all.push(*c);
        }
    }
    let mut product: Option<Expr> = None;
    for (x, names) in operands {
        let order: Vec<i64> = all.iter().filter_map(|c| names.iter().position(|n| n == c)).map(|k| k as i64).collect();
        let shape: Vec<Dim> =
            all.iter().map(|c| names.iter().position(|n| n == c).map_or(Dim::Int(1), |k| x.dim(k))).collect();
        let x = x.permute(order).reshape(shape);
        product = Some(product.map_or_else(|| x.clone(), |p| p.mul(&x)));
    }
    let Some(product) = product else { return Err(Problem::argument("no operands")) };
    product.node().map_err(|fault| fault.problem.clone())?;
    let gone: Vec<usize> = (out.len()..all.len()).collect();
    let total = sum(&product, &gone)?;
    Ok(Expr::from(graph::reshape(total.uop(), &product.shape()[..out.len()])).cast(t))
}

/// Letters of the result: as written, or all that occur once, in alphabetical order after the axes of `...`.
fn output_letters(known: &[char], written: Option<&str>) -> Result<Vec<char>, Problem> {
    let hidden = known.iter().filter(|c| !c.is_ascii()).max().map_or(0, |c| (*c as u32 - 0xe000) as usize + 1);
    let Some(text) = written else {
        let mut once: Vec<char> =
            known.iter().copied().filter(|c| c.is_ascii() && known.iter().filter(|k| *k == c).count() == 1).collect();
        crate::sort::by_key(&mut once, |c| *c);
        return Ok([dots(hidden), once].concat());
    };
    let count = text.chars().filter(char::is_ascii_alphabetic).count();
    let names = letters(text, if text.contains("...") { hidden + count } else { count })?;
    match names.iter().enumerate().find(|(k, c)| !known.contains(c) || names[..*k].contains(c)) {
        Some((_, c)) => {
            Err(Problem::argument(format!("'{c}' of the result is not an axis of one operand, or stands twice")))
        }
        None => Ok(names),
    }
}
