//! `wgmma`, done as late as may be: a product reads shared memory and adds to its registers when its group is waited
//! for. So a buffer that is written to again too early changes the result, and a sum that is read too early is not
//! there. Written from the PTX ISA's text (asynchronous warpgroup-level matrix instructions: descriptors, canonical
//! layouts, fragments of D).

use super::ops::{float, round};
use super::{Block, Memory, Opd, Step};
use doorbell::isa::ptx::Type;
use std::collections::{HashMap, VecDeque};

type Res<T> = Result<T, String>;

/// Threads of a warpgroup, and rows of a product.
const GROUP: usize = 128;
const ROWS: usize = 64;

/// Bytes of an element, and the steps of a product of such.
const fn sizes(t: Type) -> (usize, usize) {
    match t {
        Type::S8 | Type::U8 => (1, 32),
        Type::Tf32 => (4, 8),
        _ => (2, 16),
    }
}

/// A sum from its bits, and back: of f32, or of s32, which wraps around.
fn sum_of(whole: bool, bits: u64) -> f64 {
    if whole { f64::from(bits as i32) } else { float(Type::F32, bits) }
}

fn sum_bits(whole: bool, sum: f64) -> u64 {
    if whole { u64::from((sum as i64 as i32).cast_unsigned()) } else { round(Type::F32, sum) }
}

struct Product {
    /// The warpgroup's first thread.
    first: usize,
    t: Type,
    /// Descriptors, and whether rows are steps.
    factors: [(u64, bool); 2],
    columns: usize,
    /// Sums are whole numbers.
    whole: bool,
    sums: Vec<usize>,
}

/// A block's warpgroup operations in flight.
#[derive(Default)]
pub struct Products {
    fenced: bool,
    open: Vec<Product>,
    groups: VecDeque<Vec<Product>>,
    /// Sums of such products, by thread and register, which are not there for the threads; and whether they are whole
    /// numbers.
    sums: HashMap<(usize, usize), (f64, bool)>,
}

impl Products {
    pub fn done(&self) -> bool {
        self.open.is_empty() && self.groups.is_empty()
    }
}

/// All of `wgmma`.
pub fn wgmma(b: &mut Block, s: &Step, mem: &mut Memory) -> Res<()> {
    if s.guard.is_some() || !b.threads.is_multiple_of(GROUP) {
        return Err("not known to this interpreter".into());
    }
    match () {
        () if s.inst.has("fence") => b.products.fenced = true,
        () if s.inst.has("commit_group") => {
            let open = std::mem::take(&mut b.products.open);
            b.products.groups.push_back(open);
            b.products.fenced = false;
        }
        () if s.inst.has("wait_group") => {
            let left = b.get(0, &s.operands[0])? as usize;
            while b.products.groups.len() > left {
                for p in b.products.groups.pop_front().unwrap_or_default() {
                    multiply(b, &p, mem)?;
                }
            }
            give_back(b)?;
        }
        () => issue(b, s)?,
    }
    Ok(())
}

fn issue(b: &mut Block, s: &Step) -> Res<()> {
    let (whole, t) = match s.types.as_slice() {
        [Type::F32, t @ (Type::F16 | Type::Bf16 | Type::Tf32), _] => (false, *t),
        [Type::S32, t @ (Type::S8 | Type::U8), _] => (true, *t),
        _ => return Err("types not known to this interpreter".into()),
    };
    let shape = [64, 128, 256].into_iter().find(|n| s.inst.has(&format!("m64n{n}k{}", sizes(t).1)));
    let Some(columns) = shape else { return Err("a shape not known to this interpreter".into()) };
    // Only floats have signs, only halves are turned.
    let (sums, a, w, ta, tb) = match s.operands.as_slice() {
        [Opd::Vector(sums), a, w, Opd::Value(1)] if whole => (sums, a, w, &0, &0),
        [Opd::Vector(sums), a, w, Opd::Value(1), Opd::Value(1), Opd::Value(1)] if t == Type::Tf32 => {
            (sums, a, w, &0, &0)
        }
        [Opd::Vector(sums), a, w, Opd::Value(1), Opd::Value(1), Opd::Value(1), Opd::Value(ta), Opd::Value(tb)]
            if matches!(t, Type::F16 | Type::Bf16) =>
        {
            (sums, a, w, ta, tb)
        }
        _ => return Err("other operands than known to this interpreter".into()),
    };
    if !b.products.fenced || sums.len() != columns / 2 {
        return Err("no fence before it, or another number of sums".into());
    }
    let registers = |o: &Opd| if let Opd::Reg(r) = o { Ok(*r) } else { Err(format!("a sum in {o:?}")) };
    let sums: Vec<usize> = sums.iter().map(registers).collect::<Res<_>>()?;
    for first in (0..b.threads).step_by(GROUP) {
        let factors = [(b.get(first, a)?, *ta == 1), (b.get(first, w)?, *tb == 1)];
        for t in first..first + GROUP {
            if [b.get(t, a)?, b.get(t, w)?] != factors.map(|f| f.0) {
                return Err(format!("thread {t} has other descriptors than thread {first}"));
            }
            for r in &sums {
                if !b.products.sums.contains_key(&(t, *r)) {
                    let value = sum_of(whole, b.reg(t, *r)?);
                    b.products.sums.insert((t, *r), (value, whole));
                    b.lose(t, *r);
                }
            }
        }
        b.products.open.push(Product { first, t, factors, columns, whole, sums: sums.clone() });
    }
    Ok(())
}

/// Sums that no product in flight adds to are readable again.
fn give_back(b: &mut Block) -> Res<()> {
    let busy = |t: usize, r: usize| {
        let mut all = b.products.groups.iter().flatten().chain(&b.products.open);
        all.any(|p| (p.first..p.first + GROUP).contains(&t) && p.sums.contains(&r))
    };
    let free: Vec<(usize, usize)> = b.products.sums.keys().copied().filter(|(t, r)| !busy(*t, *r)).collect();
    for (t, r) in free {
        let (value, whole) = b.products.sums.remove(&(t, r)).unwrap_or_default();
        b.set(t, &Opd::Reg(r), sum_bits(whole, value))?;
    }
    Ok(())
}

/// A matrix in shared memory with rows of 128 bytes: eight rows of pieces of 16 bytes, the pieces of row r at `piece ^
/// r % 8`.
struct Matrix {
    start: u64,
    /// From a run of 128 bytes to the next, and from eight rows to the next eight.
    leading: u64,
    stride: u64,
    by_steps: bool,
}

impl Matrix {
    fn of((bits, by_steps): (u64, bool)) -> Res<Matrix> {
        if bits >> 62 != 1 || bits >> 49 & 7 != 0 {
            return Err(format!("a swizzle that this interpreter does not know in {bits:#x}"));
        }
        let field = |at: u32| (bits >> at & 0x3fff) << 4;
        Ok(Matrix { start: field(0), leading: field(16), stride: field(32), by_steps })
    }

    /// Position of the 16 bytes that begin with an element: of one line along the steps, or of one step along the
    /// lines.
    fn piece(&self, size: usize, line: usize, step: usize) -> u64 {
        let (row, column) = if self.by_steps { (step as u64, line as u64) } else { (line as u64, step as u64) };
        let byte = column * size as u64;
        let at = self.start + row % 8 * 128 + row / 8 * self.stride + byte / 128 * self.leading + byte % 128;
        at ^ (at >> 7 & 7) << 4
    }

    /// Elements by line, then step.
    fn read(&self, t: Type, lines: usize, mem: &mut Memory) -> Res<Vec<f64>> {
        let (size, steps) = sizes(t);
        let piece = 16 / size;
        let mut all = vec![0.0; lines * steps];
        let (outer, inner) = if self.by_steps { (lines / piece, steps / 8) } else { (steps / piece, lines / 8) };
        // Eight rows of one piece each at a time, as the unit reads them.
        for (n, (o, i)) in (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))).enumerate() {
            for r in 0..8 {
                let (line, step) = if self.by_steps { (piece * o, 8 * i + r) } else { (8 * i + r, piece * o) };
                let at = self.piece(size, line, step);
                mem.touched.push((8 * n + r, at, 16));
                let bytes = mem.read_beside(at, 16)?;
                for (k, bytes) in bytes.chunks_exact(size).enumerate() {
                    let (line, step) = if self.by_steps { (line + k, step) } else { (line, step + k) };
                    all[line * steps + step] = match (t, bytes) {
                        (Type::S8, [b]) => f64::from(b.cast_signed()),
                        (_, [b]) => f64::from(*b),
                        (t, b) => float(t, b.iter().rev().fold(0, |bits, b| bits << 8 | u64::from(*b))),
                    };
                }
            }
        }
        Ok(all)
    }
}

fn multiply(b: &mut Block, p: &Product, mem: &mut Memory) -> Res<()> {
    let [a, w] = p.factors.map(Matrix::of);
    let (a, w) = (a?.read(p.t, ROWS, mem)?, w?.read(p.t, p.columns, mem)?);
    mem.counts.mma += 1;
    for lane in 0..GROUP {
        for (k, r) in p.sums.iter().enumerate() {
            let row = lane / 32 * 16 + lane % 32 / 4 + k / 2 % 2 * 8;
            let column = k / 4 * 8 + lane % 4 * 2 + k % 2;
            let steps = sizes(p.t).1;
            let (x, y) = (&a[row * steps..][..steps], &w[column * steps..][..steps]);
            let sum: f64 = x.iter().zip(y).map(|(x, y)| x * y).sum();
            if let Some((value, _)) = b.products.sums.get_mut(&(p.first + lane, *r)) {
                *value = sum_of(p.whole, sum_bits(p.whole, *value + sum));
            }
        }
    }
    Ok(())
}
