//! The operands of an instruction, of which there may be fewer than it takes.
//!
//! Selection asks for operands by place; text from outside may lack some. What is asked for and is not there is [`Opd::Nothing`], and is remembered:
//! the instruction is refused in the end, whatever was made of it.

use super::flat::Opd;
use smallvec::SmallVec;
use std::cell::Cell;
use std::ops::{Deref, DerefMut, Index, RangeFrom, RangeTo};
use std::slice::SliceIndex;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Operands {
    all: SmallVec<[Opd; 4]>,
    lacked: Cell<bool>,
}

impl Operands {
    /// What stands in a place, or in its stead if nothing does.
    fn part<I: SliceIndex<[Opd]>>(&self, at: I, instead: &'static I::Output) -> &I::Output {
        self.all.get(at).unwrap_or_else(|| {
            self.lacked.set(true);
            instead
        })
    }

    #[inline]
    pub fn push(&mut self, operand: Opd) {
        self.all.push(operand);
    }

    /// Whether one was asked for that is not there.
    pub fn lacked(&self) -> bool {
        self.lacked.get()
    }
}

impl From<SmallVec<[Opd; 4]>> for Operands {
    fn from(all: SmallVec<[Opd; 4]>) -> Self {
        Self { all, lacked: Cell::new(false) }
    }
}

impl FromIterator<Opd> for Operands {
    fn from_iter<I: IntoIterator<Item = Opd>>(all: I) -> Self {
        SmallVec::from_iter(all).into()
    }
}

impl Deref for Operands {
    type Target = [Opd];

    fn deref(&self) -> &[Opd] {
        &self.all
    }
}

impl DerefMut for Operands {
    fn deref_mut(&mut self) -> &mut [Opd] {
        &mut self.all
    }
}

impl Index<usize> for Operands {
    type Output = Opd;

    fn index(&self, at: usize) -> &Opd {
        self.part(at, &Opd::Nothing)
    }
}

impl Index<RangeFrom<usize>> for Operands {
    type Output = [Opd];

    fn index(&self, range: RangeFrom<usize>) -> &[Opd] {
        self.part(range, &[])
    }
}

impl Index<RangeTo<usize>> for Operands {
    type Output = [Opd];

    fn index(&self, range: RangeTo<usize>) -> &[Opd] {
        self.part(range, &[])
    }
}
