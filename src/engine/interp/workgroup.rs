//! Linear programs of GPU targets: one workgroup after another, with all threads of a workgroup at the same node.
//!
//! Running in lockstep hides races of real threads, so these are checked: threads that diverge at a loop, a condition
//! or a barrier; workgroup memory that one thread accesses and another writes without a barrier in between; reads of
//! memory that was never written; two threads that store to the same element of a buffer.

use super::kernel::{Access, Memory, var};
use super::program::{Jumps, malformed};
use super::{InterpError, Lanes, Vars, value_op, wmma};
use crate::codegen::Program;
use crate::uop::{AddrSpace, Arg, ConstVal, Op, TileArg, TileBit, UMap, UOp, eval_alu};
use smallvec::smallvec;
use std::collections::HashMap;

/// Whether the program is launched as workgroups of threads. A program with chunks (`tid`) is for a CPU, which has no
/// barriers.
pub(super) fn is_grid(p: &Program) -> bool {
    let is_special = |u: &UOp, tid: bool| match u.arg() {
        Arg::Str(name) => u.op() == Op::Special && (name.as_ref() == "tid") == tid,
        _ => false,
    };
    !p.uops.iter().any(|u| is_special(u, true)) && p.uops.iter().any(|u| u.op() == Op::Barrier || is_special(u, false))
}

pub(super) fn run(p: &Program, mem: &mut Memory, vars: &Vars, jumps: (&Jumps, &Jumps)) -> Result<(), InterpError> {
    let [x, y, z] = p.global;
    let mut stored = HashMap::new();
    for number in 0..x as usize * y as usize * z as usize {
        mem.local.clear();
        let group = [number % x as usize, number / x as usize % y as usize, number / (x as usize * y as usize)];
        let threads = p.local.iter().map(|n| *n as usize).product();
        let vals = UMap::default();
        let mut g = Group { p, vars, group, number, threads, vals, epoch: 1, shadow: HashMap::new(), stored };
        g.run(mem, jumps)?;
        stored = g.stored;
    }
    Ok(())
}

/// The last accesses to an element of workgroup memory: the number of barriers passed before, and the thread.
#[derive(Default)]
struct LastAccess {
    written: Option<(usize, usize)>,
    /// `usize::MAX`: more than one thread.
    read: Option<(usize, usize)>,
}

struct Group<'a> {
    p: &'a Program,
    vars: &'a Vars,
    group: [usize; 3],
    number: usize,
    threads: usize,
    /// One value per thread, or one for all.
    vals: UMap<Vec<Lanes>>,
    /// Number of barriers passed.
    epoch: usize,
    shadow: HashMap<(u64, i128), LastAccess>,
    /// The thread (numbered over the whole launch) that stored to an element of a buffer.
    stored: HashMap<(u64, i128), usize>,
}

impl Group<'_> {
    fn run(&mut self, mem: &mut Memory, (close, skip): (&Jumps, &Jumps)) -> Result<(), InterpError> {
        let p = self.p;
        let mut starts: Jumps = Jumps::default();
        let mut pc = 0;
        while let Some(u) = p.uops.get(pc) {
            match u.op() {
                Op::Range => {
                    let end = self.agreed(&u.src()[0], "the end of a loop")?;
                    starts.insert(u.clone(), pc);
                    self.vals.insert(u.clone(), vec![smallvec![ConstVal::Int(0)]]);
                    if end <= 0 {
                        pc = close[u];
                    }
                }
                Op::End => {
                    let r = &u.src()[0];
                    let next = self.agreed(r, "a loop")? + 1;
                    if next < self.agreed(&r.src()[0], "the end of a loop")? {
                        self.vals.insert(r.clone(), vec![smallvec![ConstVal::Int(next)]]);
                        pc = starts[r];
                    }
                }
                Op::If => {
                    if self.agreed(&u.src()[0], "a condition")? == 0 {
                        pc = skip[u];
                    }
                }
                Op::Barrier => self.epoch += 1,
                Op::SetAcc => {
                    let v = self.get(&u.src()[1])?.clone();
                    self.vals.insert(u.src()[0].clone(), v);
                }
                Op::EndIf
                | Op::Sink
                | Op::Param
                | Op::Local
                | Op::Index
                | Op::Commit
                | Op::CopyTile
                | Op::AwaitTile => {}
                Op::Store => self.store(u, mem)?,
                _ => {
                    let v = self.value(u, mem)?;
                    self.vals.insert(u.clone(), v);
                }
            }
            pc += 1;
        }
        Ok(())
    }

    fn get(&self, u: &UOp) -> Result<&Vec<Lanes>, InterpError> {
        self.vals.get(u).ok_or_else(|| malformed(format!("{u:?} is used before it stands in the list")))
    }

    /// An integer that must be the same for all threads.
    fn agreed(&self, u: &UOp, what: &str) -> Result<i128, InterpError> {
        let all = self.get(u)?;
        if all.iter().any(|v| v != &all[0]) {
            return Err(InterpError::Diverged(format!("{what}: {u:?}")));
        }
        Ok(all[0][0].as_int().unwrap_or(0))
    }

    fn value(&mut self, u: &UOp, mem: &mut Memory) -> Result<Vec<Lanes>, InterpError> {
        match (u.op(), u.arg()) {
            (Op::Var, _) => Ok(vec![smallvec![ConstVal::from(var(u, self.vars)?)]]),
            (Op::Special, Arg::Str(name)) => self.special(name),
            (Op::Acc | Op::After, _) => self.get(&u.src()[0]).cloned(),
            (Op::Load, _) => self.load(u, mem),
            (Op::LoadMatrix, Arg::Tile(tile)) => self.load_tile(u, tile, mem),
            (Op::LoadMatrix, _) => self.load_matrix(u, mem),
            (Op::WaveReduce, _) => self.across_wave(u),
            (Op::Wmma, _) => {
                let src: Vec<Vec<Lanes>> = u.src().iter().map(|s| self.get(s).cloned()).collect::<Result<_, _>>()?;
                wmma::product(u, &src, self.threads)
            }
            _ => self.each(u.src(), |_, src| {
                value_op(u, src)?.ok_or(InterpError::Unexpected { op: u.op(), stage: "linear program" })
            }),
        }
    }

    /// Computes a value from its sources: only once if no source differs between threads.
    fn each(
        &self,
        src: &[UOp],
        f: impl Fn(usize, &[&Lanes]) -> Result<Lanes, InterpError>,
    ) -> Result<Vec<Lanes>, InterpError> {
        let src: Vec<&Vec<Lanes>> = src.iter().map(|s| self.get(s)).collect::<Result<_, _>>()?;
        let n = src.iter().map(|s| s.len()).max().unwrap_or(1);
        let one = |t: usize| f(t, &src.iter().map(|s| &s[t.min(s.len() - 1)]).collect::<Vec<_>>());
        (0..n).map(one).collect()
    }

    /// Butterfly reduction: combines each thread's value with that of the thread whose number differs in one bit, for
    /// each bit of the group.
    fn across_wave(&self, u: &UOp) -> Result<Vec<Lanes>, InterpError> {
        let bad = || malformed(format!("{u:?} in a workgroup of {} threads", self.threads));
        let (op, n) = (u.reduce_op().ok_or_else(bad)?, usize::from(u.wave_threads().ok_or_else(bad)?));
        let (t, x) = (u.dtype().scalar, self.get(&u.src()[0])?);
        if !self.threads.is_multiple_of(n) {
            return Err(bad());
        }
        // A value that is the same for all threads stays a single value.
        let mut all = x.clone();
        for step in (0..n.trailing_zeros()).map(|k| 1usize << k) {
            let of = |k: usize| &all[k.min(all.len() - 1)];
            let both = |k: usize| {
                let lanes = of(k).iter().zip(of(k ^ step));
                lanes.map(|(a, b)| eval_alu(op, t, &[*a, *b]).ok_or_else(bad)).collect::<Result<Lanes, _>>()
            };
            all = (0..all.len()).map(both).collect::<Result<_, _>>()?;
        }
        Ok(all)
    }

    fn special(&self, name: &str) -> Result<Vec<Lanes>, InterpError> {
        let bad = || malformed(format!("no hardware index is called {name}"));
        let axis = name.strip_prefix("gidx").or(name.strip_prefix("lidx")).and_then(|d| d.parse::<usize>().ok());
        let axis = axis.filter(|d| *d < 3).ok_or_else(bad)?;
        let lane = |i: usize| -> Lanes { smallvec![ConstVal::Int(i as i128)] };
        if name.starts_with('g') {
            return Ok(vec![lane(self.group[axis])]);
        }
        let before: usize = self.p.local[..axis].iter().map(|n| *n as usize).product();
        Ok((0..self.threads).map(|t| lane(t / before % self.p.local[axis] as usize)).collect())
    }

    fn load(&mut self, u: &UOp, mem: &mut Memory) -> Result<Vec<Lanes>, InterpError> {
        let index = &u.src()[0];
        let sources: Vec<&UOp> = index.src()[1..].iter().chain(u.src().get(1)).collect();
        let n = sources.iter().map(|s| self.get(s).map_or(1, Vec::len)).max().unwrap_or(1);
        let mut out = Vec::with_capacity(n);
        for t in 0..n {
            let v: Vec<Lanes> = sources.iter().map(|s| self.of(s, t)).collect::<Result<_, _>>()?;
            let gated = index.src().len() > 2;
            let access = Access { address: &index.src()[0], index: &v[0], gate: gated.then(|| &v[1]) };
            let thread = if n == 1 && self.threads > 1 { usize::MAX } else { t };
            for k in 0..u.dtype().lanes as usize {
                if access.open(k) {
                    self.reads(access.address, access.element(k), thread)?;
                }
            }
            out.push(mem.load(u, &access, if u.src().len() > 1 { v.last() } else { None })?);
        }
        Ok(out)
    }

    /// Loads words of rows whose addresses are in other lanes.
    fn load_matrix(&mut self, u: &UOp, mem: &mut Memory) -> Result<Vec<Lanes>, InterpError> {
        const WAVE: usize = 32;
        let threads = self.threads;
        let bad = || malformed(format!("{u:?} in a workgroup of {threads} threads"));
        let (index, transposed) = (&u.src()[0], matches!(u.arg(), Arg::Transposed(true)));
        let word = 4 / u.dtype().scalar.size_bytes().max(1);
        if !self.threads.is_multiple_of(WAVE) || word == 0 || transposed && word != 2 {
            return Err(bad());
        }
        let rows = self.get(&index.src()[1])?.clone();
        let mut out = Vec::with_capacity(self.threads);
        for t in 0..self.threads {
            let (first, lane) = (t - t % WAVE, t % WAVE);
            let element = |e: usize| {
                let (matrix, i) = (e / word, e % word);
                let (row, at) =
                    if transposed { (word * (lane % 4) + i, lane / 4) } else { (lane / 4, word * (lane % 4) + i) };
                let start = &rows[(first + 8 * matrix + row).min(rows.len() - 1)];
                start[0].as_int().map(|start| ConstVal::Int(start + at as i128)).ok_or_else(bad)
            };
            let elements = (0..usize::from(u.dtype().lanes)).map(element).collect::<Result<Lanes, _>>()?;
            let access = Access { address: &index.src()[0], index: &elements, gate: None };
            for k in 0..elements.len() {
                self.reads(access.address, access.element(k), t)?;
            }
            out.push(mem.load(u, &access, None)?);
        }
        Ok(out)
    }

    /// The part of a tile that each thread would hold, for a tile that a matrix unit reads itself.
    fn load_tile(&mut self, u: &UOp, tile: &TileArg, mem: &mut Memory) -> Result<Vec<Lanes>, InterpError> {
        let bad = || malformed(format!("{u:?}: not the same tile for all lanes, or of elements of another size"));
        let index = &u.src()[0];
        let bits = tile.spread.row.iter().chain(tile.spread.col);
        let lanes = 1 << bits.filter(|b| matches!(b, TileBit::L(_))).count();
        let starts = self.get(&index.src()[1])?.clone();
        let scalar = u.dtype().scalar;
        if !matches!(scalar.size_bytes(), 1 | 2 | 4) || !self.threads.is_multiple_of(lanes) {
            return Err(bad());
        }
        let mut out = Vec::with_capacity(self.threads);
        for t in 0..self.threads {
            let at = |t: usize| starts[t.min(starts.len() - 1)][0].as_int();
            let start =
                at(t).filter(|_| at(t) == at(t - t % lanes)).and_then(|s| i64::try_from(s).ok()).ok_or_else(bad)?;
            let element = |e: usize| {
                let (line, step) = tile.spread.place(t % lanes, e);
                let place = start + tile.place(scalar, line as i64, step as i64);
                ConstVal::Int(TileArg::swizzled(scalar, place).into())
            };
            let elements: Lanes = (0..usize::from(u.dtype().lanes)).map(element).collect();
            let access = Access { address: &index.src()[0], index: &elements, gate: None };
            for k in 0..elements.len() {
                self.reads(access.address, access.element(k), t)?;
            }
            out.push(mem.load(u, &access, None)?);
        }
        Ok(out)
    }

    fn of(&self, u: &UOp, t: usize) -> Result<Lanes, InterpError> {
        let all = self.get(u)?;
        Ok(all[t.min(all.len() - 1)].clone())
    }

    fn store(&mut self, u: &UOp, mem: &mut Memory) -> Result<(), InterpError> {
        let (index, value) = (&u.src()[0], &u.src()[1]);
        for t in 0..self.threads {
            let (i, v) = (self.of(&index.src()[1], t)?, self.of(value, t)?);
            let gate = index.src().get(2).map(|g| self.of(g, t)).transpose()?;
            let access = Access { address: &index.src()[0], index: &i, gate: gate.as_ref() };
            for k in (0..v.len()).filter(|k| access.open(*k)) {
                self.writes(access.address, access.element(k), t)?;
            }
            mem.store(&access, &v)?;
        }
        Ok(())
    }

    fn reads(&mut self, address: &UOp, element: i128, thread: usize) -> Result<(), InterpError> {
        if address.dtype().space != Some(AddrSpace::Local) {
            return Ok(());
        }
        let now = self.epoch;
        let at = self.shadow.entry((address.id(), element)).or_default();
        let race =
            |why: &str| Err(InterpError::Race(format!("thread {thread} reads element {element} of {address:?} {why}")));
        match at.written {
            None => return race("that was never written"),
            Some((epoch, by)) if epoch == now && by != thread => {
                return race(&format!("that thread {by} has written without a barrier since"));
            }
            _ => {}
        }
        let several = matches!(at.read, Some((epoch, by)) if epoch == now && by != thread);
        at.read = Some((now, if several { usize::MAX } else { thread }));
        Ok(())
    }

    fn writes(&mut self, address: &UOp, element: i128, thread: usize) -> Result<(), InterpError> {
        let race = |why: String| {
            Err(InterpError::Race(format!("thread {thread} writes element {element} of {address:?} {why}")))
        };
        if address.dtype().space != Some(AddrSpace::Local) {
            let me = self.number * self.threads + thread;
            let first = *self.stored.entry((address.id(), element)).or_insert(me);
            return if first == me { Ok(()) } else { race(format!("as thread {first} of the launch also does")) };
        }
        let now = self.epoch;
        let at = self.shadow.entry((address.id(), element)).or_default();
        let other = |touch: Option<(usize, usize)>| touch.filter(|(epoch, by)| *epoch == now && *by != thread);
        if let Some((_, by)) = other(at.written).or(other(at.read)) {
            return race(format!("that thread {by} has accessed without a barrier since"));
        }
        at.written = Some((now, thread));
        Ok(())
    }
}
