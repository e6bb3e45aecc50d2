//! Addresses: an index as a sum of terms, each added where it is known.
//!
//! Terms of outer levels go into a pointer that is computed before the loop; terms of the current level stay an index
//! register; the constant goes into the instruction. Equal sums are made once a level.

use super::super::IselError;
use super::super::gpr;
use super::super::mir::{Base, Inst, Mem, Opd};
use super::{Res, Select, Val, unsupported};
use doorbell_codegen::regalloc::VReg;
use doorbell_uop::{Op, UOp};
use iced_x86::Code;
use smallvec::SmallVec;

/// Terms `(position in the list, factor in bytes)`, sorted.
pub(super) type Terms = SmallVec<[(u32, i64); 4]>;

/// The sum in a register: an address (position of its node) or nothing, and terms.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct Sum {
    base: Option<u32>,
    terms: Terms,
}

impl Select<'_> {
    /// The memory operand of an Index node's first element.
    pub(super) fn address(&mut self, index: &UOp) -> Res<Mem> {
        let sum = self.linear(&index.src()[1], None, index.src()[0].dtype().scalar.size_bytes() as i64)?;
        let sum = sum.ok_or_else(|| unsupported(index, "an index of many lanes"))?;
        self.place(strip(&index.src()[0]), sum)
    }

    /// The terms and the constant of an Index node's address beyond its memory, in bytes.
    pub(super) fn sum_of(&mut self, index: &UOp) -> Res<Option<(Terms, i64)>> {
        self.linear(&index.src()[1], None, index.src()[0].dtype().scalar.size_bytes() as i64)
    }

    /// Whether an index is a multiple of so many bytes wherever it points.
    pub(super) fn aligned(&mut self, index: &UOp, bytes: i64) -> Res<bool> {
        let sum = self.linear(&index.src()[1], None, index.src()[0].dtype().scalar.size_bytes() as i64)?;
        Ok(sum.is_some_and(|(terms, konst)| konst % bytes == 0 && terms.iter().all(|t| t.1 % bytes == 0)))
    }

    /// The memory operand of one lane of a vector index, if that lane is a sum of scalars.
    pub(super) fn lane_address(&mut self, index: &UOp, k: u16) -> Res<Option<Mem>> {
        match self.linear(&index.src()[1], Some(k), index.src()[0].dtype().scalar.size_bytes() as i64)? {
            Some(sum) => self.place(strip(&index.src()[0]), sum).map(Some),
            None => Ok(None),
        }
    }

    /// A base and a sum of terms as a memory operand.
    fn place(&mut self, base: &UOp, (mut terms, konst): (Terms, i64)) -> Res<Mem> {
        let (disp, mut far) = match i32::try_from(konst) {
            // Parts of a vector and tiles of lanes are added to this.
            Ok(d) if d.abs() < i32::MAX - (1 << 20) => (d, None),
            _ => (0, Some(konst)),
        };
        terms.retain(|t| t.1 != 0);
        terms.sort_unstable();
        let mut levels: SmallVec<[u32; 4]> = SmallVec::new();
        for (p, _) in &terms {
            levels.push(self.term_level(*p)?);
        }
        let deepest = levels.iter().copied().max().unwrap_or(0);
        let stays = |k: usize| levels[k] == deepest && deepest as usize == self.cur && deepest > 0;
        let outer: Terms = (0..terms.len()).filter(|k| !stays(*k)).map(|k| terms[k]).collect();
        let inner: Terms = (0..terms.len()).filter(|k| stays(*k)).map(|k| terms[k]).collect();
        let mut mem = self.pointer(base, &outer)?;
        if !inner.is_empty() {
            let (r, scale) = match inner[..] {
                [(p, factor)] => self.scaled(p, factor)?,
                _ => (self.sum(None, &inner)?, 1),
            };
            (mem.index, mem.scale) = (Some((r, b'q')), scale);
        }
        if let Some(v) = far.take() {
            let c = self.const_gpr(v);
            let t = self.lea(Mem { index: mem.index, scale: mem.scale, ..mem });
            mem = Mem { index: Some((c, b'q')), ..Mem::base(t) };
        }
        Ok(Mem { disp: mem.disp + disp, ..mem })
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

    /// A term's register times its factor, as register and scale.
    fn scaled(&mut self, p: u32, factor: i64) -> Res<(VReg, u8)> {
        let u = self.uops[p as usize].clone();
        let level = self.made_in[p as usize] as usize;
        if u.op() == Op::Range && level < self.levels.len() {
            return self.induction(level, factor);
        }
        let r = self.index_reg(&u)?;
        match factor {
            1 | 2 | 4 | 8 => Ok((r, factor as u8)),
            _ => Ok((self.times(r, factor)?, 1)),
        }
    }

    /// A pointer: the base plus terms, level by level from the outside.
    pub(super) fn pointer(&mut self, base: &UOp, terms: &Terms) -> Res<Mem> {
        let start = match self.locals.get(base) {
            Some(at) => Mem { base: Base::Local(*at), index: None, scale: 1, disp: 0, broadcast: false },
            None => match self.val(base)? {
                Val::G(r) => Mem::base(r),
                _ => return Err(unsupported(base, "not an address")),
            },
        };
        if terms.is_empty() {
            return Ok(start);
        }
        let at = self.pos.get(base).copied().ok_or(IselError::Internal("a base that does not stand in the list"))?;
        Ok(Mem::base(self.sum(Some((at, start)), terms)?))
    }

    /// A register with a base and terms added up; made once a level.
    fn sum(&mut self, base: Option<(u32, Mem)>, terms: &Terms) -> Res<VReg> {
        let mut by_level: SmallVec<[(u32, (u32, i64)); 4]> = SmallVec::new();
        for t in terms {
            by_level.push((self.term_level(t.0)?, *t));
        }
        doorbell_sort::by_key(&mut by_level, |l| *l);
        let back = self.cur;
        let mut so_far: Option<Mem> = base.map(|b| b.1);
        let mut key = Sum { base: base.map(|b| b.0), terms: Terms::new() };
        let mut result = None;
        let mut k = 0;
        while k < by_level.len() {
            let level = by_level[k].0 as usize;
            let here: SmallVec<[(u32, i64); 4]> =
                by_level[k..].iter().take_while(|t| t.0 as usize == level).map(|t| t.1).collect();
            k += here.len();
            key.terms.extend(here.iter().copied());
            let lasting = here.iter().all(|t| !self.plan.mutable[t.0 as usize]);
            let known = self.levels[level].sums.get(&key).copied().filter(|_| lasting);
            self.cur = level;
            let r = match known {
                Some(r) => r,
                None => {
                    let r = self.add_terms(so_far, &here)?;
                    if lasting {
                        self.levels[level].sums.insert(key.clone(), r);
                    }
                    r
                }
            };
            so_far = Some(Mem::base(r));
            result = Some(r);
        }
        self.cur = back;
        result.ok_or(IselError::Internal("a sum of nothing"))
    }

    fn add_terms(&mut self, from: Option<Mem>, terms: &[(u32, i64)]) -> Res<VReg> {
        let mut acc = from;
        for (p, factor) in terms {
            let (r, scale) = self.scaled(*p, *factor)?;
            acc = Some(match acc {
                None if scale == 1 => Mem::base(r),
                None => {
                    let zero = self.const_gpr(0);
                    let t = self.lea(Mem { index: Some((r, b'q')), scale, ..Mem::base(zero) });
                    Mem::base(t)
                }
                Some(m) => {
                    let t = self.lea(Mem { index: Some((r, b'q')), scale, ..m });
                    Mem::base(t)
                }
            });
        }
        match acc {
            Some(Mem { base: Base::Reg(r), index: None, disp: 0, .. }) => Ok(r),
            Some(m) => Ok(self.lea(m)),
            None => Err(IselError::Internal("a sum of nothing")),
        }
    }

    /// An address in a register.
    pub(super) fn lea(&mut self, mem: Mem) -> VReg {
        let dst = self.gpr();
        let form = gpr::pair(gpr::LEA, true, [b"dm", b"qm"], 1);
        self.put(Inst::new((form, Code::INVALID), &[Opd::Reg(dst, b'q'), Opd::Mem(mem)]));
        dst
    }
}

/// The buffer or scratch below ordering edges.
pub(super) fn strip(u: &UOp) -> &UOp {
    let mut u = u;
    while u.op() == Op::After {
        u = &u.src()[0];
    }
    u
}
