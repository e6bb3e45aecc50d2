//! The requirements of each node of the list, before any code is made.

use super::{CompileError, Res};
use doorbell_codegen::Program;
use doorbell_uop::{Op, UMap, UOp};

/// Facts by position in the list.
pub(super) struct Plan {
    /// Vectors that are stored as they are (or go to the matrix unit): needed in consecutive registers.
    pub tuple: Vec<bool>,
    /// And in one tuple, however long; of a load only this is set.
    pub whole: Vec<bool>,
    /// Values that are computed directly into the register that they are assigned to, at the assignment.
    pub into: Vec<bool>,
    /// The index of the last assignment to each Acc.
    pub last_set: UMap<usize>,
}

impl Plan {
    pub(crate) fn new(program: &Program, pos: &UMap<u32>) -> Res<Plan> {
        let uops = &program.uops;
        let n = uops.len();
        let mut plan =
            Plan { tuple: vec![false; n], whole: vec![false; n], into: vec![false; n], last_set: UMap::default() };
        let mut uses = vec![0u32; n];
        let mut borders = vec![0u32; n]; // loop borders so far
        let mut seen = 0;
        for (i, u) in uops.iter().enumerate() {
            for s in u.src() {
                match pos.get(s) {
                    Some(p) => uses[*p as usize] += 1,
                    None if s.op() == Op::Const => {}
                    None => {
                        let why = format!("{u:?} uses {s:?}, which does not stand in the list");
                        return Err(CompileError::Malformed(why));
                    }
                }
            }
            seen += u32::from(matches!(u.op(), Op::Range | Op::End));
            borders[i] = seen;
            if u.op() == Op::SetAcc {
                plan.last_set.insert(register(&u.src()[0]), i);
            }
        }
        for u in uops {
            match u.op() {
                Op::Store if stores_words(u) => plan.want(&u.src()[1], pos, false),
                Op::Wmma => {
                    u.src()[2..].iter().chain([u]).for_each(|s| plan.want(s, pos, true));
                    for p in u.src()[..2].iter().filter(|s| s.op() == Op::Load).filter_map(|s| pos.get(s)) {
                        plan.whole[*p as usize] = true;
                    }
                }
                _ => {}
            }
        }
        for (i, u) in uops.iter().enumerate().filter(|(_, u)| u.op() == Op::SetAcc) {
            let value = &u.src()[1];
            let Some(p) = pos.get(value).map(|p| *p as usize) else { continue };
            let alone = uses[p] == 1 && borders[p] == borders[i] && p < i;
            let made = value.op() == Op::Wmma || value.op().is_alu() && !matches!(value.op(), Op::Cast | Op::Bitcast);
            let others_rest = value.src().iter().map(register).all(|r| {
                r == register(&u.src()[0])
                    || r.op() != Op::Acc
                    || !uops[p..i].iter().any(|s| s.op() == Op::SetAcc && register(&s.src()[0]) == r)
            });
            plan.into[p] = alone && made && others_rest;
            // Products added one after the other are all in the register.
            let mut sum = value;
            while plan.into[p] && sum.op() == Op::Wmma && sum.src()[2].op() == Op::Wmma {
                sum = &sum.src()[2];
                let Some(q) = pos.get(sum).map(|q| *q as usize) else { break };
                let rest = sum.src()[..2].iter().all(|s| register(s).op() != Op::Acc);
                if uses[q] != 1 || borders[q] != borders[i] || !rest {
                    break;
                }
                plan.into[q] = true;
            }
        }
        Ok(plan)
    }

    fn want(&mut self, u: &UOp, pos: &UMap<u32>, whole: bool) {
        let mut u = u.clone();
        loop {
            if let Some(p) = pos.get(&u) {
                self.tuple[*p as usize] = true;
                self.whole[*p as usize] |= whole;
            }
            match u.op() {
                Op::After => u = u.src()[0].clone(),
                _ => return,
            }
        }
    }
}

/// The Acc of a value, or the value.
pub(super) fn register(u: &UOp) -> UOp {
    let mut u = u;
    while u.op() == Op::After {
        u = &u.src()[0];
    }
    u.clone()
}

/// A store of several lanes of 32 or 64 bits side by side.
fn stores_words(u: &UOp) -> bool {
    let (index, value) = (&u.src()[0], u.src()[1].dtype());
    value.lanes > 1 && value.scalar.size_bytes() >= 4 && index.src()[1].dtype().lanes == 1
}
