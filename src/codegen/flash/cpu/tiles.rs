//! What the kernels on a CPU have in common: tiles of some vectors of rows, one row a lane, in registers and in scratch
//! memory.

use super::super::list::{List, least, number, plus, sum, times};
use super::super::parts::Operand;
use super::super::pieces;
use super::super::value::{Place, spread, steps};
use doorbell_uop::{Arg, DType, Op, Scalar, UOp};

pub(super) const F32: DType = DType::of(Scalar::F32);

/// An operand as a tile reads it: memory, position of its first element, strides.
pub(super) struct Source {
    pub address: UOp,
    pub base: UOp,
    pub strides: [i64; 2],
    pub scratch: bool,
}

/// The rows of a tile.
pub(super) struct Rows {
    /// The first one.
    pub first: UOp,
    /// Their positions, a vector each.
    pub at: Vec<UOp>,
    /// How many rows there are in all.
    pub all: i64,
}

/// A tile, and what the loops around it are there.
pub(super) struct Tile {
    pub place: Place,
    pub rows: Rows,
}

/// Other rows that are taken together: the first one, and how many.
pub(super) struct Block {
    pub first: UOp,
    pub len: i64,
}

pub(super) struct Tiles {
    pub list: List,
    /// Elements of a vector.
    pub lanes: u16,
    /// Vectors of rows in a tile.
    pub vectors: usize,
}

/// Copies of a loop's body: a divisor of its length.
pub(super) fn copies(len: i64, most: i64) -> i64 {
    (1..=most).rev().find(|n| len % n == 0).unwrap_or(1)
}

/// The indices of the loops around a tile in this iteration of all of them together.
fn place(outer: &[(UOp, i64)], iteration: UOp) -> Place {
    let (mut place, mut rest) = (Place::default(), iteration);
    for (r, n) in outer.iter().rev() {
        place.scalars.insert(r.clone(), rest.binary(Op::CMod, &number(*n)));
        rest = rest.binary(Op::CDiv, &number(*n));
    }
    place
}

impl Tiles {
    pub(super) fn new(lanes: u16, vectors: usize) -> Tiles {
        Tiles { list: List::new(), lanes, vectors }
    }

    /// Opens the loop over the tiles that a chunk of the work has: the indices of the loops around them, and the rows.
    pub(super) fn start(&mut self, outer: &[(UOp, i64)], rows: i64, chunks: i64) -> (Place, Rows) {
        let tiles = pieces(rows, self.width());
        let number_of_tile = self.iteration(tiles * outer.iter().map(|r| r.1).product::<i64>(), chunks);
        let first = times(&number_of_tile.binary(Op::CMod, &number(tiles)), self.width());
        let place = place(outer, number_of_tile.binary(Op::CDiv, &number(tiles)));
        (place, self.rows(&first, rows))
    }
    /// Opens the loop over the iterations of the loops around tiles that a chunk of the work has.
    pub(super) fn start_whole(&mut self, outer: &[(UOp, i64)], chunks: i64) -> Place {
        let iteration = self.iteration(outer.iter().map(|r| r.1).product(), chunks);
        place(outer, iteration)
    }
    /// Opens the loop over all tiles of these rows.
    pub(super) fn all_rows(&mut self, rows: i64) -> Rows {
        let tile = self.list.open(&number(pieces(rows, self.width())));
        let first = times(&tile, self.width());
        self.rows(&first, rows)
    }
    /// Opens a loop over this chunk's share of `all` iterations; gives the number of the iteration among all.
    fn iteration(&mut self, all: i64, chunks: i64) -> UOp {
        let chunk = if chunks > 1 { self.list.special(chunks) } else { number(0) };
        let iteration = self.list.open(&number(all / chunks));
        sum(&times(&iteration, chunks), &chunk)
    }

    pub(super) fn lanes(&self) -> i64 {
        i64::from(self.lanes)
    }
    /// Rows of a tile.
    pub(super) fn width(&self) -> i64 {
        self.vectors as i64 * self.lanes()
    }
    pub(super) fn vector(&self, v: f64) -> UOp {
        UOp::constant(F32.vec(self.lanes), v)
    }
    /// Position of a vector in an area.
    pub(super) fn at(&self, row: &UOp, vector: usize) -> UOp {
        plus(&times(row, self.width()), vector as i64 * self.lanes())
    }

    /// The rows of a tile; lanes after the last row compute what it does.
    fn rows(&mut self, first: &UOp, all: i64) -> Rows {
        let (lanes, ragged) = (self.lanes, all % self.width() != 0);
        let one = |v: usize| {
            let x = sum(&spread(&plus(first, v as i64 * i64::from(lanes)), lanes), &steps(lanes, 1));
            if ragged { least(&x, &x.const_like(all - 1)) } else { x }
        };
        let at = (0..self.vectors).map(one).map(|u| self.list.listed(u)).collect();
        Rows { first: first.clone(), at, all }
    }

    /// Copies a tile's rows to scratch memory, a row a lane.
    pub(super) fn take(&mut self, from: &Operand, base: &UOp, rows: &Rows, (area, columns): (&UOp, i64)) {
        let e = self.list.open(&number(columns));
        for (v, rows) in rows.at.iter().enumerate() {
            let at = sum(&times(rows, from.strides[0]), &spread(&sum(base, &times(&e, from.strides[1])), self.lanes));
            let x = from.address.index(&at).load();
            let x = x.cast(F32.vec(self.lanes));
            let at = self.at(&e, v);
            self.list.store(area, &at, &x);
        }
        self.list.close();
    }

    /// Copies a tile's rows to scratch memory as they are, times a factor.
    pub(super) fn take_plain(
        &mut self,
        from: &Operand,
        base: &UOp,
        rows: &Rows,
        (area, columns): (&UOp, i64),
        factor: f64,
    ) {
        let first = sum(base, &times(&rows.first, from.strides[0]));
        let there = self.count(rows);
        let r = self.list.open(&there);
        let (row, to) = (sum(&first, &times(&r, from.strides[0])), times(&r, columns));
        self.copy_row(from, &row, (area, &to), columns);
        let c = self.list.open(&number(columns / self.lanes()));
        let at = sum(&to, &times(&c, self.lanes()));
        let x = self.list.load(area, &at, self.lanes);
        self.list.store(area, &at, &x.binary(Op::Mul, &x.const_like(factor)));
        self.list.close();
        self.list.close();
    }

    /// Fills an area of so many rows.
    pub(super) fn fill(&mut self, area: &UOp, rows: i64, value: f64) {
        let value = self.vector(value);
        let c = if rows == 1 { number(0) } else { self.list.open(&number(rows)) };
        for v in 0..self.vectors {
            let at = self.at(&c, v);
            self.list.store(area, &at, &value);
        }
        if rows != 1 {
            self.list.close();
        }
    }

    /// Where these rows of an operand are read: in scratch memory, if there is an area for them.
    pub(super) fn source(
        &mut self,
        operand: &Operand,
        base: &UOp,
        (first, rows): (&UOp, i64),
        (area, columns): (Option<&UOp>, i64),
    ) -> Source {
        let base = sum(base, &times(first, operand.strides[0]));
        let Some(area) = area else {
            return Source { address: operand.address.clone(), base, strides: operand.strides, scratch: false };
        };
        let r = self.list.open(&number(rows));
        self.copy_row(operand, &sum(&base, &times(&r, operand.strides[0])), (area, &times(&r, columns)), columns);
        self.list.close();
        Source { address: area.clone(), base: number(0), strides: [columns, 1], scratch: true }
    }

    /// Copies a row to scratch memory, dense and as f32.
    pub(super) fn copy_row(&mut self, from: &Operand, row: &UOp, (area, to): (&UOp, &UOp), columns: i64) {
        let mut done = 0;
        for lanes in std::iter::successors(Some(self.lanes), |n| (*n > 1).then_some(n / 2)) {
            let n = i64::from(lanes);
            if lanes > 1 && from.strides[1] != 1 {
                continue;
            }
            let turns = (columns - done) / n;
            if turns > 0 {
                let c = self.list.open(&number(turns));
                let column = plus(&times(&c, n), done);
                let at = from.address.index(&sum(row, &times(&column, from.strides[1])));
                let x = UOp::new(Op::Load, DType::of(from.scalar()).vec(lanes), [at], Arg::None);
                self.list.store(area, &sum(to, &column), &x.cast(F32.vec(lanes)));
                self.list.close();
            }
            done += turns * n;
        }
    }

    /// An element for all lanes.
    pub(super) fn element(&mut self, from: &Source, row: &UOp, column: &UOp) -> UOp {
        let at = sum(&sum(&from.base, &times(row, from.strides[0])), &times(column, from.strides[1]));
        let x = if from.scratch { self.list.load(&from.address, &at, 1) } else { from.address.index(&at).load() };
        x.splat(self.lanes)
    }

    /// A tile of registers with these first values.
    pub(super) fn registers(
        &mut self,
        high: i64,
        mut first: impl FnMut(&mut Self, i64, usize) -> UOp,
    ) -> Vec<Vec<UOp>> {
        let mut all = Vec::new();
        for i in 0..high {
            let mut row = Vec::new();
            for v in 0..self.vectors {
                let value = first(self, i, v);
                row.push(self.list.register(&value));
            }
            all.push(row);
        }
        all
    }

    /// Adds to a tile of registers the products of what `operands` gives for each step: a value a row, and a vector a
    /// column.
    pub(super) fn products(
        &mut self,
        registers: &[Vec<UOp>],
        len: i64,
        operands: impl FnMut(&mut Self, &UOp) -> (Vec<UOp>, Vec<UOp>),
    ) {
        let many = copies(len, 4);
        self.add_products(registers, (&number(len / many), many), operands);
    }

    /// As `products`, for a number of iterations (a node) of `many` steps each.
    pub(super) fn add_products(
        &mut self,
        registers: &[Vec<UOp>],
        (turns, many): (&UOp, i64),
        mut operands: impl FnMut(&mut Self, &UOp) -> (Vec<UOp>, Vec<UOp>),
    ) {
        let step = self.list.open(turns);
        let mut now: Vec<Vec<UOp>> = registers.to_vec();
        for u in 0..many {
            let (rows, columns) = operands(self, &plus(&times(&step, many), u));
            for (row, now) in rows.iter().zip(&mut now) {
                for (column, now) in columns.iter().zip(now) {
                    *now = self.list.now(Op::MulAcc, [row.clone(), column.clone(), now.clone()]);
                }
            }
        }
        for (register, value) in registers.iter().flatten().zip(now.iter().flatten()) {
            self.list.set(register, value);
        }
        self.list.close();
    }

    /// The products of a tile's rows in an area with so many rows of an operand, from the given one on.
    pub(super) fn tile_products(
        &mut self,
        (area, len): (&UOp, i64),
        from: &Source,
        (first, high): (&UOp, i64),
    ) -> Vec<Vec<UOp>> {
        let zero = self.vector(0.0);
        let registers = self.registers(high, |_, _, _| zero.clone());
        self.products(&registers, len, |t, e| {
            let rows: Vec<UOp> = (0..t.vectors).map(|v| t.list.load(area, &t.at(e, v), t.lanes)).collect();
            let others = (0..high).map(|i| t.element(from, &plus(first, i), e)).collect();
            (others, rows)
        });
        registers
    }

    /// Adds to so many columns of the sums in an area, from the given one on, the weighted rows of an operand. `scale`
    /// gives what the sums of a vector are multiplied by before that.
    pub(super) fn add_weighted(
        &mut self,
        [sums, weights]: [&UOp; 2],
        (from, len): (&Source, i64),
        (first, high): (&UOp, i64),
        scale: Option<&[UOp]>,
    ) {
        let registers = self.registers(high, |t, i, v| {
            let at = t.at(&plus(first, i), v);
            let sofar = t.list.load(sums, &at, t.lanes);
            scale.map_or(sofar.clone(), |s| sofar.binary(Op::Mul, &s[v]))
        });
        self.products(&registers, len, |t, row| {
            let weights = (0..t.vectors).map(|v| t.list.load(weights, &t.at(row, v), t.lanes)).collect();
            ((0..high).map(|i| t.element(from, row, &plus(first, i))).collect(), weights)
        });
        for (i, row) in (0..high).zip(registers) {
            for (v, register) in row.iter().enumerate() {
                let at = self.at(&plus(first, i), v);
                self.list.store(sums, &at, register);
            }
        }
    }

    /// Does something for all rows or columns, so many at a time: with the first one and their number.
    pub(super) fn in_tiles(
        &mut self,
        len: i64,
        high: i64,
        mut each: impl FnMut(&mut Self, (&UOp, i64)) -> Option<()>,
    ) -> Option<()> {
        let (full, rest) = (len / high, len % high);
        if full > 0 {
            let j = self.list.open(&number(full));
            each(self, (&times(&j, high), high))?;
            self.list.close();
        }
        if rest > 0 {
            each(self, (&number(full * high), rest))?;
        }
        Some(())
    }

    /// Stores the columns of an area as rows of the result, each multiplied by its vector's factor if there are any.
    pub(super) fn finish(
        &mut self,
        (area, columns): (&UOp, i64),
        factors: &[UOp],
        rows: &Rows,
        (out, base): (&Operand, &UOp),
    ) {
        let (lanes, width) = (self.lanes, self.width());
        if !factors.is_empty() {
            let c = self.list.open(&number(columns));
            for (v, factor) in factors.iter().enumerate() {
                let at = self.at(&c, v);
                let x = self.list.load(area, &at, lanes);
                self.list.store(area, &at, &x.binary(Op::Mul, factor));
            }
            self.list.close();
        }
        self.store_rows(rows, |t, r| {
            let to = sum(&sum(base, &times(&rows.first, out.strides[0])), &times(r, out.strides[0]));
            let mut done = 0;
            for n in std::iter::successors(Some(lanes), |n| (*n > 1).then_some(n / 2)) {
                let turns = (columns - done) / i64::from(n);
                for k in 0..turns {
                    let column = done + k * i64::from(n);
                    let x = if n > 1 {
                        let from = sum(&steps(n, width), &spread(&plus(r, column * width), n));
                        t.list.load(area, &from, n)
                    } else {
                        t.list.load(area, &plus(r, column * width), 1)
                    };
                    let x = x.cast(DType::of(out.scalar()).vec(n));
                    t.list.store(&out.address, &plus(&to, column), &x);
                }
                done += turns * i64::from(n);
            }
        });
    }

    /// How many rows of a tile there are.
    pub(super) fn count(&self, rows: &Rows) -> UOp {
        least(&number(self.width()), &sum(&number(rows.all), &times(&rows.first, -1)))
    }
    /// Does something for each row of a tile that is there.
    pub(super) fn store_rows(&mut self, rows: &Rows, each: impl FnOnce(&mut Self, &UOp)) {
        let there = self.count(rows);
        let r = self.list.open(&there);
        each(self, &r);
        self.list.close();
    }
}
