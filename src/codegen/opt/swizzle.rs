//! Tiles in workgroup memory for a matrix unit that reads them by itself: rows of 128 bytes whose pieces of 16 bytes change places.
//!
//! Rows are lines of 128 bytes of steps, or (where a buffer of halves is contiguous along lines) steps of 64 lines, one run of 64 lines behind the other. The unit
//! is told where a tile begins and finds everything else by [`TileArg`]; who copies swaps the pieces.

use super::apply::Why;
use super::pipe::{Rounds, Tile, extent};
use doorbell_uop::{Arg, Op, TileArg, UMap, UOp};
use std::sync::Arc;

/// Rows after which the order of pieces begins again.
const PATTERN: i64 = 8;

impl Tile {
    /// The tile with such rows.
    ///
    /// # Errors
    /// Its elements or its sizes do not make them.
    pub(super) fn swizzled(mut self) -> Result<Tile, Why> {
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

    /// Elements from one run of a row's lines to the next, where rows are steps.
    pub(super) fn panel(&self) -> i64 {
        extent(&self.steps) * self.row()
    }

    /// Where an element would stand if no pieces changed places.
    pub(super) fn plain_place(&self, line: &UOp, step: &UOp) -> UOp {
        let row = self.row();
        match self.by_steps {
            true => &(&(&(line / row) * self.panel()) + &(step * row)) + &(line % row),
            false => &(line * row) + step,
        }
    }

    /// Where an element stands.
    pub(super) fn swizzled_place(&self, line: &UOp, step: &UOp) -> UOp {
        let (row, column) = if self.by_steps { (step, line) } else { (line, step) };
        let elements = TileArg::piece(self.area.dtype().scalar);
        let piece = &(column / elements) % (self.row() / elements);
        let swapped = &piece.simplify() ^ &(row % PATTERN).simplify();
        let start = self.plain_place(line, step);
        // The place less its piece, the piece where it has gone, and what is within it.
        let rest = (&start - &(&piece * elements)).simplify();
        (&rest + &(&swapped * elements)).simplify()
    }

    /// The tile that the unit reads in a round.
    pub(super) fn whole(&self, area: &UOp, rounds: &Rounds) -> UOp {
        let o = &self.operand;
        let zero = UOp::int(0);
        let map: UMap<UOp> = [(o.line.clone(), zero.clone()), (o.step.clone(), zero)].into_iter().collect();
        let [line, step] = [&self.lines, &self.steps].map(|side| Tile::side(side, &map));
        let first = &self.plain_place(&line, &step).simplify() + &rounds.buffer(self.len);
        let tile = TileArg { spread: o.spread, by_steps: self.by_steps, panel: self.panel() as u32 };
        UOp::new(Op::LoadMatrix, o.value.dtype(), [area.index(&first), o.element.clone()], Arg::Tile(Arc::new(tile)))
    }
}
