//! The operands of an instruction, of which there may be fewer than it takes.
//!
//! Selection asks for operands by place; text from outside may lack some. What is asked for and is not there is
//! [`Opd::Nothing`], and is remembered: the instruction is refused in the end, whatever was made of it.

use super::flat::Opd;
use std::cell::Cell;
use std::ops::{Deref, DerefMut, Index, RangeFrom, RangeTo};
use std::slice::SliceIndex;

/// Operands of most instructions; what has more keeps all of them apart.
const FEW: usize = 4;

#[derive(Clone, Debug, PartialEq)]
pub struct Operands<'a> {
    few: [Opd<'a>; FEW],
    /// How many of them, or more than there are places: all are among the many.
    count: u8,
    lacked: Cell<bool>,
    /// All of them, if there are more than few.
    many: Vec<Opd<'a>>,
}

impl Default for Operands<'_> {
    #[inline]
    fn default() -> Self {
        Self { few: [Opd::Nothing; FEW], count: 0, lacked: Cell::new(false), many: vec![] }
    }
}

impl<'a> Operands<'a> {
    /// What stands in a place, or in its stead if nothing does.
    #[inline]
    fn part<'s, I: SliceIndex<[Opd<'a>]>>(&'s self, at: I, instead: &'s I::Output) -> &'s I::Output {
        self.get(at).unwrap_or_else(|| {
            self.lacked.set(true);
            instead
        })
    }

    #[inline]
    pub fn push(&mut self, operand: Opd<'a>) {
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

    /// Whether one was asked for that is not there.
    pub fn lacked(&self) -> bool {
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
