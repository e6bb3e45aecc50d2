//! Attention on GPUs, apart from how products are made: what a thread holds, copies to workgroup memory, stores.

mod forward;
mod gradient;
mod threads;
mod waves;

use super::super::decomp;
use super::gradient::Gradient;
use super::list::{List, least, plus, sum, times};
use super::parts::{Operand, Parts};
use super::pieces;
use super::value::{Place, spread};
use crate::Target;
use doorbell_uop::{Arg, DType, Op, Scalar, Srcs, UOp};

/// Bytes of the longest copy.
const PIECE: i64 = 16;

/// The program of an attention.
pub(super) fn program(p: &Parts, target: &Target) -> Option<Vec<UOp>> {
    waves::program(p, target).or_else(|| threads::program(p, target))
}
/// The program of an attention's gradient.
pub(super) fn gradient_program(p: &Gradient, target: &Target) -> Option<Vec<UOp>> {
    waves::gradient_program(p, target).or_else(|| threads::gradient_program(p, target))
}

/// See [`attention_rows`](crate::attention_rows).
pub(super) fn rows(target: &Target) -> Vec<(Scalar, i64, [i64; 2])> {
    let most = [waves::COLUMNS, waves::GRADIENT_COLUMNS];
    let on_unit = |t: Scalar| waves::unit(target, t).map(|unit| (t, i64::from(unit.k), most));
    let plain =
        threads::most(target).map(|most| (Scalar::F32, threads::MULTIPLE, [most, threads::most_of_gradients(target)]));
    [Scalar::F16, Scalar::BF16].into_iter().filter_map(on_unit).chain(plain).collect()
}

/// What a thread holds: some tiles of queries, and of each tile vectors of scores and of sums.
struct Share {
    /// Threads and queries of a workgroup, keys of a block.
    threads: i64,
    rows: i64,
    keys: i64,
    /// The thread's first query in the workgroup, key in the block and column.
    row: UOp,
    key: UOp,
    column: UOp,
    /// Queries of a tile, from the thread's first one.
    tiles: Vec<Vec<i64>>,
    scores: Vec<Vector>,
    sums: Vec<Vector>,
    /// So many neighbouring threads have the same queries.
    neighbours: u16,
}

/// A vector of a tile.
struct Vector {
    /// Of each element, the number of its query in the tile.
    queries: Vec<u16>,
    /// Of each element, the key or column, from the thread's first one.
    along: Vec<i64>,
}

impl Vector {
    fn len(&self) -> u16 {
        self.along.len() as u16
    }
    /// One value for each query, from one for each element.
    fn folded(&self, x: &UOp, queries: usize, op: Op) -> UOp {
        let of = |q: u16| (0..self.len()).filter(move |e| self.queries[usize::from(*e)] == q);
        let one = |q: u16| of(q).map(|e| x.gep(&[e])).reduce(|a, b| a.binary(op, &b));
        joined((0..queries as u16).filter_map(one).collect())
    }
    /// A query's value in its elements.
    fn spread(&self, x: &UOp) -> UOp {
        if x.dtype().lanes == 1 { x.splat(self.len()) } else { x.gep(&self.queries) }
    }
}

/// Rows to be copied to workgroup memory.
struct Rows<'a> {
    from: &'a Operand,
    base: &'a UOp,
    /// The first row, how many, and how many there are in all.
    first: UOp,
    count: i64,
    all: i64,
    columns: i64,
    /// The area, the row in it that the first one goes to, and the elements between its rows.
    area: &'a UOp,
    at: UOp,
    pitch: i64,
}

/// An index.
fn int(n: i64) -> UOp {
    UOp::constant(DType::of(Scalar::I32), n)
}
fn quotient(x: &UOp, n: i64) -> UOp {
    if n == 1 { x.clone() } else { x.binary(Op::CDiv, &x.const_like(n)) }
}
fn remainder(x: &UOp, n: i64) -> UOp {
    if n == 1 { x.const_like(0) } else { x.binary(Op::CMod, &x.const_like(n)) }
}
fn wide(x: &UOp) -> UOp {
    x.cast(Scalar::I64)
}
/// Vectors, or scalars, one after the other.
fn joined(parts: Srcs) -> UOp {
    let t = parts[0].dtype();
    let op = if t.lanes == 1 { Op::Stack } else { Op::Cat };
    if let [one] = &parts[..] {
        one.clone()
    } else {
        UOp::new(op, t.vec(t.lanes * parts.len() as u16), parts, Arg::None)
    }
}
/// The number of the thread in its workgroup.
fn thread(threads: i64) -> UOp {
    UOp::new(Op::Special, DType::of(Scalar::I32), [int(threads)], Arg::Str("lidx0".into()))
}

/// The workgroup: the indices of the loops around it, and its number among the `tiles` of each iteration of them.
fn group(outer: &[(UOp, i64)], tiles: i64) -> (Place, UOp) {
    let all = tiles * outer.iter().map(|r| r.1).product::<i64>();
    let group = UOp::new(Op::Special, DType::of(Scalar::I32), [int(all)], Arg::Str("gidx0".into()));
    let mut rest = quotient(&group, tiles);
    let mut place = Place::default();
    for (r, n) in outer.iter().rev() {
        place.scalars.insert(r.clone(), wide(&remainder(&rest, *n)));
        rest = quotient(&rest, *n);
    }
    (place, remainder(&group, tiles))
}

/// The positions of a vector's elements: each so far from the first one.
fn positions(first: &UOp, vector: &Vector, apart: impl Fn(usize) -> i64) -> UOp {
    let lanes = vector.len();
    let src: Srcs = (0..usize::from(lanes)).map(|e| int(apart(e))).collect();
    sum(&spread(first, lanes), &UOp::new(Op::Stack, DType::of(Scalar::I32).vec(lanes), src, Arg::None))
}

/// 2^x of what is not above 0.
fn power(x: &UOp, has_exp2: bool) -> Option<UOp> {
    if has_exp2 { Some(UOp::alu(Op::Exp2, Srcs::from_iter([x.clone()]))) } else { decomp::power_of_negative(x) }
}

/// Stores a vector of a tile, from the position of the thread's first row and column on.
fn store(
    list: &mut List,
    (out, first): (&Operand, &UOp),
    (share, tile, vector): (&Share, &[i64], &Vector),
    x: &UOp,
    (first_row, rows): (&UOp, i64),
) {
    let (queries, along) = (&vector.queries, &vector.along);
    let x = x.cast(x.dtype().with_scalar(out.scalar()));
    // Elements beside each other are stored at once.
    let beside = (1..along.len()).find(|e| along[*e] != along[0] + *e as i64 || queries[*e] != queries[0]);
    let run = beside.unwrap_or(along.len()).min(out.piece(PIECE / out.scalar().size_bytes() as i64) as usize);
    for e in (0..along.len()).step_by(run) {
        let row = tile[usize::from(queries[e])];
        let at = plus(first, row * out.strides[0] + along[e]);
        let gate = (rows % share.rows != 0).then(|| plus(first_row, row).lt(&int(rows)));
        let part: Vec<u16> = (e as u16..(e + run) as u16).collect();
        list.store_where(&out.address, &at, &x.gep(&part), gate.as_ref());
    }
}

/// Copies rows to workgroup memory where the gate holds. Beyond the last row there are copies of it.
fn copy(list: &mut List, thread: &UOp, threads: i64, r: &Rows, there: Option<&UOp>) {
    let n = r.from.piece(PIECE / r.from.scalar().size_bytes() as i64);
    let (row_pieces, [across, along]) = (r.columns / n, r.from.strides);
    let all = r.count * row_pieces;
    let start = sum(r.base, &times(&wide(&r.first), across));
    let into = times(&r.at, r.pitch);
    for iteration in 0..pieces(all, threads) {
        let number = plus(thread, iteration * threads);
        // Where whole rows are copied at a time, a thread stays at its column, and its rows are a constant apart.
        let (number_of_row, more) = match threads % row_pieces {
            0 => (thread, iteration * (threads / row_pieces)),
            _ => (&number, 0),
        };
        let (row, piece) = (quotient(number_of_row, row_pieces), remainder(number_of_row, row_pieces));
        let inside = ((iteration + 1) * threads > all).then(|| number.lt(&int(all)));
        let gate = match (there, inside) {
            (Some(a), Some(b)) => Some(a.and(&b)),
            (a, b) => a.cloned().or(b),
        };
        let to = plus(&sum(&into, &sum(&times(&row, r.pitch), &times(&piece, n))), more * r.pitch);
        let column = times(&wide(&times(&piece, n)), along);
        let from = if r.all % r.count == 0 {
            plus(&sum(&start, &sum(&times(&wide(&row), across), &column)), more * across)
        } else {
            let row = least(&sum(&r.first, &plus(&row, more)), &int(r.all - 1));
            sum(r.base, &sum(&times(&wide(&row), across), &column))
        };
        list.copy((r.area, &to), (&r.from.address, &from), n as u16, gate.as_ref());
    }
}
