//! Tiles in workgroup memory for a matrix unit that reads them directly: rows of 128 bytes whose 16-byte pieces are
//! permuted (swizzled).
//!
//! A row is 128 bytes of reduction steps of one line. Or, where a buffer of halves is contiguous along lines, a row is
//! 64 lines of one step, and runs of 64 lines follow each other. The unit takes the address of a tile and derives
//! everything else from [`TileArg`]; the code that copies applies the swizzle.

use super::apply::Reason;
use super::pipe::{Iterations, Tile, extent};
use doorbell_uop::{Arg, Op, TileArg, UMap, UOp};
use std::sync::Arc;

/// Number of rows after which the permutation repeats.
const PATTERN: i64 = 8;

impl Tile {
    /// The tile with such rows.
    ///
    /// # Errors
    /// Its element type or its sizes do not allow such rows.
    pub(super) fn swizzled(mut self) -> Result<Tile, Reason> {
        let (lines, steps) = (extent(&self.lines), extent(&self.steps));
        let bytes = self.area.dtype().scalar.size_bytes();
        if !matches!(bytes, 1 | 2 | 4) || self.by_steps && bytes != 2 {
            return Err(
                "the unit's rows in workgroup memory are of elements of up to four bytes, or along lines of two".into(),
            );
        }
        let whole_row = self.row();
        let (row, rows) = if self.by_steps { (lines, steps) } else { (steps, lines) };
        let whole = if self.by_steps { row % whole_row == 0 } else { row == whole_row };
        if !whole || rows % PATTERN != 0 {
            return Err(format!("a row of {row} elements, where the unit reads rows of {whole_row}").into());
        }
        (self.pitch, self.len, self.swizzled) = (whole_row, lines * steps, true);
        self.area = UOp::local(self.number(), self.area.dtype(), self.len as usize);
        Ok(self)
    }

    /// Elements of a row.
    pub(super) fn row(&self) -> i64 {
        TileArg::row(self.area.dtype().scalar)
    }

    /// Elements from one run of lines to the next, if rows are steps.
    pub(super) fn panel(&self) -> i64 {
        extent(&self.steps) * self.row()
    }

    /// Position of an element without the swizzle.
    pub(super) fn linear_position(&self, line: &UOp, step: &UOp) -> UOp {
        let row = self.row();
        match self.by_steps {
            true => &(&(&(line / row) * self.panel()) + &(step * row)) + &(line % row),
            false => &(line * row) + step,
        }
    }

    /// Position of an element with the swizzle.
    pub(super) fn swizzled_position(&self, line: &UOp, step: &UOp) -> UOp {
        let (row, column) = if self.by_steps { (step, line) } else { (line, step) };
        let elements = TileArg::piece(self.area.dtype().scalar);
        let piece = &(column / elements) % (self.row() / elements);
        let swapped = &piece.simplify() ^ &(row % PATTERN).simplify();
        let start = self.linear_position(line, step);
        // The position without its piece, the permuted piece, and the offset within the piece.
        let rest = (&start - &(&piece * elements)).simplify();
        (&rest + &(&swapped * elements)).simplify()
    }

    /// The tile that the unit reads in one iteration.
    pub(super) fn whole(&self, area: &UOp, iterations: &Iterations) -> UOp {
        let o = &self.operand;
        let zero = UOp::int(0);
        let map: UMap<UOp> = [(o.line.clone(), zero.clone()), (o.step.clone(), zero)].into_iter().collect();
        let [line, step] = [&self.lines, &self.steps].map(|side| Tile::side(side, &map));
        let first = &self.linear_position(&line, &step).simplify() + &iterations.buffer(self.len);
        let tile = TileArg { spread: o.spread, by_steps: self.by_steps, panel: self.panel() as u32 };
        UOp::new(Op::LoadMatrix, o.value.dtype(), [area.index(&first), o.element.clone()], Arg::Tile(Arc::new(tile)))
    }
}
