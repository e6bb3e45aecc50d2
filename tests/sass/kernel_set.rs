//! The kernels of tensors, as the renderer makes them of the cases of `tests/ops_numpy` and their gradients, each plain
//! and optimised: every op, type and width. Our code and that of ptxas -O3 for the same text leave the same bytes in
//! strict mode; and what both cost.

#[path = "../ops_numpy/kernels.rs"]
mod graphs;
#[allow(dead_code)]
#[path = "../ops_numpy/reader.rs"]
mod reader;
#[path = "../ops_numpy/tensors.rs"]
mod tensors;

use crate::assemble::{SM90, compiled, text};
use crate::codegen_agree::{buffers, vars};
use crate::figures::{Figures, Ratios};
use crate::machine::{Case, launch};
use crate::nvidia::ptxas;
use doorbell::codegen::{OptChoice, Program};
use doorbell::elf::cubin::Cubin;
use doorbell::isa::sass::compile::assemble;
use doorbell::uop::{Arg, Scalar, UOp, from_bits};
pub use graphs::GROUPS;
use graphs::graphs;
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Kernels that ptxas assembles at once.
const TOGETHER: usize = 64;
pub struct Kernel {
    pub case: String,
    ast: UOp,
    pub program: Program,
    ptx: String,
}

/// Kernels of a group's cases, plain and optimised, each text once.
pub fn kernels(group: &str, seen: &mut HashSet<String>) -> Vec<Kernel> {
    let mut all = vec![];
    for (case, ast) in graphs(group) {
        for choice in [OptChoice::None, OptChoice::Heuristic] {
            let program = compiled(&ast, &choice);
            let ptx = text(&program);
            if seen.insert(ptx.replace(&*program.name, "k")) {
                all.push(Kernel { case: case.clone(), ast: ast.clone(), program, ptx });
            }
        }
    }
    all
}

/// One module of several kernels, which are k0, k1 ...
fn joined(kernels: &[Kernel]) -> String {
    let (mut heads, mut all, mut bodies) = (HashSet::new(), String::new(), String::new());
    for (n, k) in kernels.iter().enumerate() {
        let (head, body) = k.ptx.split_at(k.ptx.find(".visible .entry").expect("a kernel"));
        for line in head.lines().filter(|line| heads.insert(*line)) {
            all += line;
            all += "\n";
        }
        bodies += &body.replacen(&*k.program.name, &format!("k{n}"), 1);
        bodies += "\n";
    }
    all + &bodies
}

/// Whether the elements have the same bits, or are both no numbers.
fn identical(t: Scalar, a: &[u8], b: &[u8]) -> bool {
    let read = |c: &[u8]| from_bits(c.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)), t).as_f64();
    let n = t.size_bytes();
    a.chunks(n).zip(b.chunks(n)).all(|(a, b)| a == b || t.is_float() && read(a).is_nan() && read(b).is_nan())
}

impl Kernel {
    /// Runs both codes; what both cost, or what is wrong.
    fn compare(&self, (theirs, name): (&[u8], &str)) -> Result<(Figures, Figures), String> {
        let p = &self.program;
        let (named, memory) = (vars(&self.ast, 5), buffers(&self.ast, 1));
        let given: Vec<(u64, Vec<u8>)> = (7u64..).map(|k| k << 32).zip(memory).collect();
        let mut params: Vec<u8> = given.iter().take(p.params.len()).flat_map(|b| b.0.to_le_bytes()).collect();
        for v in &p.vars {
            let Arg::Var(n, ..) = v.arg() else { panic!("a variable has a name") };
            params.extend(named[&**n].to_le_bytes());
        }
        let dynamic_bytes = if self.ptx.contains(".extern .shared") { p.local_bytes as u32 } else { 0 };
        let case = Case { grid: p.global, block: p.local, params, buffers: &given, dynamic_bytes };
        let ours = assemble(&self.ptx, SM90).map_err(|e| e.to_string())?;
        let (left, cost) = launch(&ours, &p.name, &case, true).map_err(|e| format!("ours: {e}"))?;
        let (other, their_cost) = launch(theirs, name, &case, true).map_err(|e| format!("ptxas: {e}"))?;
        let frame = |cubin: &[u8], name: &str| {
            Cubin::parse(cubin).ok().and_then(|c| c.kernel(name).map(|k| k.stack_bytes)).expect("the kernel")
        };
        if frame(theirs, name) == Some(0) && frame(&ours, &p.name) != Some(0) {
            return Err("ours has a frame, which that of ptxas has not".into());
        }
        let same = |k: usize| identical(p.params[k].dtype.scalar, &left[k], &other[k]);
        match (0..p.params.len()).find(|k| !same(*k)) {
            Some(k) => Err(format!("buffer {k} differs")),
            None => Ok((Figures::of(&ours, &p.name, &cost), Figures::of(theirs, name, &their_cost))),
        }
    }
}

#[test]
fn every_kernel_leaves_what_the_code_of_ptxas_leaves_and_costs_no_more() {
    let mut seen = HashSet::new();
    let all: Vec<(&str, Vec<Kernel>)> = GROUPS.iter().map(|g| (*g, kernels(g, &mut seen))).collect();
    let parts: Vec<(&str, &[Kernel])> = all.iter().flat_map(|(g, k)| k.chunks(TOGETHER).map(|k| (*g, k))).collect();
    let (next, faults, ratios) = (AtomicUsize::new(0), Mutex::new(vec![]), Mutex::new(Ratios::default()));
    let work = || {
        while let Some((group, kernels)) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
            let theirs = ptxas(&joined(kernels), "-O3");
            for (n, k) in kernels.iter().enumerate() {
                match k.compare((&theirs, &format!("k{n}"))) {
                    Ok(both) => ratios.lock().unwrap().add(group, &k.program.name, both),
                    Err(what) => faults.lock().unwrap().push(format!("{} {}: {what}", k.case, k.program.name)),
                }
            }
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|s| (0..cores).for_each(|_| drop(s.spawn(work))));
    let (faults, ratios) = (faults.into_inner().unwrap(), ratios.into_inner().unwrap());
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
    println!("{ratios}");
    assert!(ratios.count() > 3000, "{} kernels", ratios.count());
    ratios.hold([0.95, 1.1, 0.85, 0.95]);
}
