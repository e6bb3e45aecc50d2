//! Joins a kernel and the functions that it may call into one piece of code.

use crate::ptx::Pos;
use crate::sass::compile::allocate::place::AllocatedCode;
use crate::sass::compile::lines::Line;
use crate::sass::compile::read::call::{FUNCTIONS, Signatures};
use crate::sass::compile::{AsmError, KernelCode};

/// A kernel's or function's code with physical registers, before it is lowered to the chip and scheduled.
pub(crate) struct Routine {
    /// Where the text declares it.
    pub pos: Pos,
    pub placed: AllocatedCode,
    /// Functions that it calls.
    pub calls: Vec<u32>,
    pub barriers: u32,
    pub source_instructions: u32,
    /// Registers that a thread must start with, if `setmaxnreg` is used.
    pub start: Option<u32>,
}

/// The functions of a module, by number.
pub(crate) struct Functions {
    all: Vec<Option<Routine>>,
}

/// Linked code, with its number of labels.
pub(crate) struct Linked {
    pub lines: Vec<Line>,
    pub labels: usize,
    /// Name, and the labels of its start and of the next one's.
    pub functions: Vec<(String, usize, Option<usize>)>,
}

impl Functions {
    pub(crate) fn new(count: usize) -> Functions {
        Functions { all: (0..count).map(|_| None).collect() }
    }

    pub(crate) fn add(&mut self, number: u32, routine: Routine) {
        if let Some(place) = self.all.get_mut(number as usize) {
            *place = Some(routine);
        }
    }

    fn get(&self, number: u32) -> Option<&Routine> {
        self.all.get(number as usize).and_then(Option::as_ref)
    }

    /// Puts the functions that a kernel may call after it; the kernel's resources include theirs.
    pub(crate) fn link(&self, own: Routine, names: &Signatures, k: &mut KernelCode) -> Result<Linked, AsmError> {
        let mut order: Vec<u32> = vec![];
        let mut work = own.calls.clone();
        while let Some(f) = work.pop() {
            if !order.contains(&f) {
                order.push(f);
                work.extend(self.get(f).iter().flat_map(|r| &r.calls));
            }
        }
        k.barriers = own.barriers;
        k.spills = own.placed.spills as u32;
        k.frame_bytes = own.placed.frame_bytes + self.deepest(&own.calls, names, &mut vec![None; self.all.len()]);
        k.unbounded_stack = order.iter().any(|f| names.list.get(*f as usize).is_some_and(|f| f.recursive));
        let (mut lines, mut labels) = (own.placed.lines, own.placed.labels);
        let mut starts: Vec<(u32, usize)> = vec![];
        for f in order {
            let Some(r) = self.get(f) else {
                return Err(AsmError::new(Pos::default(), format!("function {f} has no code")));
            };
            k.barriers = k.barriers.max(r.barriers);
            k.spills += r.placed.spills as u32;
            k.source_instructions += r.source_instructions;
            starts.push((f, labels));
            append(&mut lines, &r.placed, labels);
            labels += r.placed.labels;
        }
        let start = |f: usize| starts.iter().find(|s| s.0 as usize == f).map_or(0, |s| s.1);
        for l in &mut lines {
            if let Line::Inst(_, Some(to)) = l
                && *to >= FUNCTIONS
            {
                *to = start(*to - FUNCTIONS);
            }
        }
        let name = |f: u32| names.list.get(f as usize).map(|f| f.name.clone()).unwrap_or_default();
        let functions = starts.iter().enumerate().map(|(k, (f, at))| (name(*f), *at, starts.get(k + 1).map(|s| s.1)));
        let functions = functions.collect();
        Ok(Linked { lines, labels, functions })
    }

    /// Maximum stack bytes below these calls; a recursion counts once.
    fn deepest(&self, calls: &[u32], names: &Signatures, found: &mut Vec<Option<u32>>) -> u32 {
        let mut most = 0;
        for f in calls {
            let Some((r, place)) = self.get(*f).zip(found.get(*f as usize)) else { continue };
            let bytes = match place {
                Some(bytes) => *bytes,
                None => {
                    let recursive = names.list.get(*f as usize).is_some_and(|f| f.recursive);
                    let below = if recursive { 0 } else { self.deepest(&r.calls, names, found) };
                    r.placed.frame_bytes + below
                }
            };
            if let Some(place) = found.get_mut(*f as usize) {
                *place = Some(bytes);
            }
            most = most.max(bytes);
        }
        most
    }
}

fn append(lines: &mut Vec<Line>, of: &AllocatedCode, labels: usize) {
    lines.extend(of.lines.iter().map(|l| match l {
        Line::Label(n) => Line::Label(n + labels),
        Line::Inst(inst, to) => Line::Inst(*inst, to.map(|t| if t >= FUNCTIONS { t } else { t + labels })),
    }));
}

/// A function's name, first byte and length.
pub(crate) fn extent(name: &str, from: usize, to: Option<usize>, places: &[usize], end: usize) -> (String, u32, u32) {
    let at = |label: usize| places.get(label).copied().unwrap_or(end);
    let (from, to) = (at(from), to.map_or(end, at));
    (name.to_owned(), 16 * from as u32, 16 * to.saturating_sub(from) as u32)
}
