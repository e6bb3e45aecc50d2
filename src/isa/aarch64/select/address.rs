//! Addresses: an index as a sum of terms, each added to a pointer where it is known.
//!
//! Terms of outer levels are added before the loop; the constant goes into the instruction. Equal sums are made once a
//! level.

use super::super::IselError;
use super::super::mir::{Base, Inst, Mem, What};
use super::super::rows;
use super::{Res, Select, Val, unsupported};
use doorbell_codegen::regalloc::{Kind, VReg};
use doorbell_uop::{Op, UOp};
use smallvec::SmallVec;

/// Terms `(position in the list, factor in bytes)`, sorted.
pub(super) type Terms = SmallVec<[(u32, i64); 4]>;

/// The sum in a register: an address (position of its node) and terms.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct Sum {
    base: u32,
    terms: Terms,
}

impl Select<'_> {
    /// The memory operand of an Index node's first element.
    pub(super) fn address(&mut self, index: &UOp) -> Res<Mem> {
        let sum = self.linear(&index.src()[1], None, element_bytes(index))?;
        let sum = sum.ok_or_else(|| unsupported(index, "an index of many lanes"))?;
        self.place(strip(&index.src()[0]), sum)
    }

    /// The element address of one lane of a vector index.
    pub(super) fn lane_address(&mut self, index: &UOp, k: u16) -> Res<Mem> {
        let (i, bytes) = (&index.src()[1], element_bytes(index));
        if let Some(sum) = self.linear(i, Some(k), bytes)? {
            return self.place(strip(&index.src()[0]), sum);
        }
        let parts = self.parts(i)?;
        let lane = self.lane_int(&parts, i.dtype(), k);
        let lane = self.extend(lane, i.dtype().scalar, true);
        let start = self.pointer(strip(&index.src()[0]))?;
        let start = self.in_register(start);
        let at = self.plus(start, lane, bytes);
        Ok(Mem { base: Base::Reg(at), disp: 0 })
    }

    /// A base and a sum of terms as a memory operand.
    fn place(&mut self, base: &UOp, (mut terms, konst): (Terms, i64)) -> Res<Mem> {
        terms.retain(|t| t.1 != 0);
        terms.sort_unstable();
        let start = self.pointer(base)?;
        if terms.is_empty() {
            return Ok(start.plus(konst));
        }
        let at = self.pos.get(base).copied().ok_or(IselError::Internal("a base that does not stand in the list"))?;
        let start = self.in_register(start);
        let sum = self.sum(at, start, &terms)?;
        Ok(Mem { base: Base::Reg(sum), disp: konst })
    }

    /// An index, or one lane of a vector index, as terms and a constant, all times `factor`. `None`: a lane of a vector
    /// that is no sum of scalars.
    fn linear(&mut self, i: &UOp, lane: Option<u16>, factor: i64) -> Res<Option<(Terms, i64)>> {
        let (mut terms, mut konst) = (Terms::new(), 0i64);
        let mut todo: SmallVec<[(UOp, Option<u16>, i64); 8]> = SmallVec::from_elem((i.clone(), lane, factor), 1);
        while let Some((u, lane, f)) = todo.pop() {
            let by = |k: usize| u.src().get(k)?.as_int();
            let src = |k: usize| u.src()[k].clone();
            match (u.op(), lane) {
                (Op::Const, _) => konst = konst.wrapping_add(u.as_int().unwrap_or(0).wrapping_mul(f)),
                (Op::Add, _) => todo.extend(u.src().iter().map(|s| (s.clone(), lane, f))),
                (Op::Sub, _) => todo.extend([(src(0), lane, f), (src(1), lane, f.wrapping_neg())]),
                (Op::Mul, _) if by(1).is_some() => todo.push((src(0), lane, f.wrapping_mul(by(1).unwrap_or(0)))),
                (Op::Mul, _) if by(0).is_some() => todo.push((src(1), lane, f.wrapping_mul(by(0).unwrap_or(0)))),
                (Op::Shl, _) if by(1).is_some_and(|c| (0..63).contains(&c)) => {
                    todo.push((src(0), lane, f.wrapping_mul(1 << by(1).unwrap_or(0))));
                }
                (Op::Splat, Some(_)) => todo.push((src(0), None, f)),
                (Op::Stack, Some(k)) => todo.push((src(k as usize), None, f)),
                (Op::Gep, Some(k)) => todo.push((src(0), Some(u.axes()[k as usize]), f)),
                (_, Some(_)) => return Ok(None),
                (_, None) => {
                    let p = self.pos.get(&u).copied();
                    let p = p.ok_or_else(|| IselError::Malformed(format!("{u:?} does not stand in the list")))?;
                    match terms.iter_mut().find(|t| t.0 == p) {
                        Some(t) => t.1 = t.1.wrapping_add(f),
                        None => terms.push((p, f)),
                    }
                }
            }
        }
        Ok(Some((terms, konst)))
    }

    /// The level in which a term is known.
    fn term_level(&mut self, p: u32) -> Res<u32> {
        if self.plan.mutable[p as usize] {
            return Ok(self.cur as u32);
        }
        let u = self.uops[p as usize].clone();
        if u.op() != Op::Range {
            self.val(&u)?;
        }
        Ok(self.made_in[p as usize].min(self.cur as u32))
    }

    /// The address of element 0.
    fn pointer(&mut self, base: &UOp) -> Res<Mem> {
        let base = match self.locals.get(base) {
            Some(at) => Base::Local(*at),
            None => match self.val(base)? {
                Val::G(r) => Base::Reg(r),
                _ => return Err(unsupported(base, "not an address")),
            },
        };
        Ok(Mem { base, disp: 0 })
    }

    fn in_register(&mut self, start: Mem) -> VReg {
        match start.base {
            Base::Reg(r) => r,
            Base::Local(at) => {
                let dst = self.gpr();
                self.put_in_body(Inst::new(What::LocalAddress(at), &[dst], &[]).kind(Kind::Remat));
                dst
            }
        }
    }

    /// A base and terms added up, level by level from the outside; made once a level.
    fn sum(&mut self, base: u32, start: VReg, terms: &Terms) -> Res<VReg> {
        let mut by_level: SmallVec<[(u32, (u32, i64)); 4]> = SmallVec::new();
        for t in terms {
            by_level.push((self.term_level(t.0)?, *t));
        }
        doorbell_sort::by_key(&mut by_level, |l| *l);
        let back = self.cur;
        let mut so_far = start;
        let mut key = Sum { base, terms: Terms::new() };
        let mut lasting = true;
        for (level, (p, factor)) in by_level {
            key.terms.push((p, factor));
            lasting &= !self.plan.mutable[p as usize];
            self.cur = level as usize;
            let known = self.levels[self.cur].sums.get(&key).copied().filter(|_| lasting);
            so_far = match known {
                Some(r) => r,
                None => {
                    let u = self.uops[p as usize].clone();
                    let r = self.index_reg(&u)?;
                    let r = self.plus(so_far, r, factor);
                    if lasting {
                        self.levels[self.cur].sums.insert(key.clone(), r);
                    }
                    r
                }
            };
        }
        self.cur = back;
        Ok(so_far)
    }

    /// `a + b · factor`.
    fn plus(&mut self, a: VReg, b: VReg, factor: i64) -> VReg {
        if factor > 0 && factor.count_ones() == 1 {
            return self.g(&rows::ADD[1], &[a, b], &[i64::from(factor.trailing_zeros())]);
        }
        let by = self.const_gpr(factor);
        self.g(&rows::MADD[1], &[b, by, a], &[])
    }
}

fn element_bytes(index: &UOp) -> i64 {
    index.src()[0].dtype().scalar.size_bytes() as i64
}

/// The buffer or scratch below ordering edges.
pub(super) fn strip(u: &UOp) -> &UOp {
    let mut u = u;
    while u.op() == Op::After {
        u = &u.src()[0];
    }
    u
}
