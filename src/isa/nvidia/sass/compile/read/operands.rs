//! The operands of an instruction, possibly fewer than it needs.
//!
//! Selection accesses operands by index, but an input text may lack some. Accessing a missing operand gives
//! [`Opd::Nothing`] and is recorded, so that the instruction is rejected in the end, whatever was made of it.

use super::flat::Opd;
use std::cell::Cell;
use std::ops::{Deref, DerefMut, Index, RangeFrom, RangeTo};
use std::slice::SliceIndex;

/// Number of operands stored inline; longer lists are stored separately.
const FEW: usize = 4;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Operands<'a> {
    few: [Opd<'a>; FEW],
    /// Number of inline operands, or a larger value if all are in `many`.
    count: u8,
    lacked: Cell<bool>,
    /// All operands, if they do not fit inline.
    many: Vec<Opd<'a>>,
}

impl Default for Operands<'_> {
    #[inline]
    fn default() -> Self {
        Self { few: [Opd::Nothing; FEW], count: 0, lacked: Cell::new(false), many: vec![] }
    }
}

impl<'a> Operands<'a> {
    /// The operand at an index, or a substitute if there is none.
    #[inline]
    fn part<'s, I: SliceIndex<[Opd<'a>]>>(&'s self, at: I, instead: &'s I::Output) -> &'s I::Output {
        self.get(at).unwrap_or_else(|| {
            self.lacked.set(true);
            instead
        })
    }

    #[inline]
    pub(crate) fn push(&mut self, operand: Opd<'a>) {
        match self.few.get_mut(usize::from(self.count)) {
            Some(place) => {
                *place = operand;
                self.count += 1;
            }
            None => self.push_to_many(operand),
        }
    }

    #[cold]
    fn push_to_many(&mut self, operand: Opd<'a>) {
        if self.many.is_empty() {
            self.many.extend(self.few);
            self.count = u8::MAX;
        }
        self.many.push(operand);
    }

    /// Whether a missing operand was accessed.
    pub(crate) fn lacked(&self) -> bool {
        self.lacked.get()
    }
}

impl<'a> FromIterator<Opd<'a>> for Operands<'a> {
    fn from_iter<I: IntoIterator<Item = Opd<'a>>>(all: I) -> Self {
        let mut operands = Operands::default();
        all.into_iter().for_each(|o| operands.push(o));
        operands
    }
}

impl<'a> Deref for Operands<'a> {
    type Target = [Opd<'a>];

    #[inline]
    fn deref(&self) -> &[Opd<'a>] {
        self.few.get(..usize::from(self.count)).unwrap_or(&self.many)
    }
}

impl<'a> DerefMut for Operands<'a> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Opd<'a>] {
        self.few.get_mut(..usize::from(self.count)).unwrap_or(&mut self.many)
    }
}

impl<'a> Index<usize> for Operands<'a> {
    type Output = Opd<'a>;

    #[inline]
    fn index(&self, at: usize) -> &Opd<'a> {
        self.part(at, &Opd::Nothing)
    }
}

impl<'a> Index<RangeFrom<usize>> for Operands<'a> {
    type Output = [Opd<'a>];

    #[inline]
    fn index(&self, range: RangeFrom<usize>) -> &[Opd<'a>] {
        self.part(range, &[])
    }
}

impl<'a> Index<RangeTo<usize>> for Operands<'a> {
    type Output = [Opd<'a>];

    #[inline]
    fn index(&self, range: RangeTo<usize>) -> &[Opd<'a>] {
        self.part(range, &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_of_any_number_stay_in_their_order() {
        for n in 0..9 {
            let mut all: Operands = (0..n).map(Opd::Reg).collect();
            assert_eq!(all.to_vec(), (0..n).map(Opd::Reg).collect::<Vec<_>>());
            all.iter_mut().for_each(|o| *o = Opd::Not(n));
            assert_eq!(all.clone().to_vec(), vec![Opd::Not(n); n as usize]);
        }
    }

    #[test]
    fn what_is_not_there_is_nothing_and_is_remembered() {
        let all: Operands = (0..5).map(Opd::Reg).collect();
        assert_eq!((&all[4], &all[2..], all.lacked()), (&Opd::Reg(4), &[2, 3, 4].map(Opd::Reg)[..], false));
        assert_eq!((&all[5], all.lacked()), (&Opd::Nothing, true));
    }
}
