//! A failing program made small: other sizes, fewer outputs, nodes replaced by inputs or by what they were made of.

use super::generate::{bounds, program};
use super::program::{Program, Step};
use super::run::{STEPS, fault};

/// Attempts before what is left counts as small.
const ATTEMPTS: usize = 300;

/// A small program that fails too, and how.
pub fn shrunk(seed: u64, p: Program, why: String) -> (Program, String) {
    let mut best = (p, why);
    for (sizes, steps) in [(&[1usize, 2][..], 3), (&[1, 2, 3], 4), (&[2, 3, 5], STEPS), (&[1, 2, 3, 5, 8], STEPS)] {
        let smaller = (0..6).map(|k| program(seed.wrapping_add(k << 40), sizes, steps));
        if let Some(found) = smaller.filter_map(|p| fault(&p).map(|why| (p, why))).next() {
            best = found;
            break;
        }
    }
    let mut left = ATTEMPTS;
    while let Some(next) = candidates(&best.0).into_iter().take(left).find_map(|p| {
        left -= 1;
        fault(&p).map(|why| (p, why))
    }) {
        best = next;
    }
    best
}

fn candidates(p: &Program) -> Vec<Program> {
    let mut out = Vec::new();
    for k in 0..p.outputs.len() {
        if p.outputs.len() > 1 {
            let mut q = p.clone();
            q.outputs.remove(k);
            out.push(q.pruned());
        }
    }
    for k in (0..p.nodes.len()).rev() {
        let n = &p.nodes[k];
        let input = |seed| {
            let (low, high, step) = bounds(n.dtype);
            Step::Input { seed, low, high, step, shape: n.shape.clone(), dtype: n.dtype }
        };
        for s in n.src.iter().filter(|s| p.nodes[**s].shape == n.shape && p.nodes[**s].dtype == n.dtype) {
            let mut q = p.clone();
            for later in &mut q.nodes[k + 1..] {
                later.src.iter_mut().filter(|x| **x == k).for_each(|x| *x = *s);
            }
            q.outputs.iter_mut().filter(|x| **x == k).for_each(|x| *x = *s);
            q.outputs.dedup();
            out.push(q.pruned());
        }
        // An output's own source as the output.
        if p.outputs.contains(&k) {
            for s in &n.src {
                let mut q = p.clone();
                q.outputs.iter_mut().filter(|x| **x == k).for_each(|x| *x = *s);
                q.outputs.dedup();
                out.push(q.pruned());
            }
        }
        let assigned =
            matches!(n.step, Step::Assign) || p.nodes.iter().any(|m| matches!(m.step, Step::Assign) && m.src[0] == k);
        if !n.src.is_empty() && !assigned && !p.outputs.contains(&k) {
            let mut q = p.clone();
            q.nodes[k].step = input(k as u64);
            q.nodes[k].src.clear();
            out.push(q.pruned());
        }
    }
    out
}
