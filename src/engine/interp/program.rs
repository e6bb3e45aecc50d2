//! Linear programs: the list is executed node by node; loops are jumps.

use super::kernel::{Access, Memory, var};
use super::{InterpError, Lanes, Vars, value_op, wmma, workgroup};
use crate::codegen::Program;
use crate::uop::{ConstVal, Op, UMap, UOp};
use smallvec::smallvec;

/// Runs every chunk of a program, or every workgroup of its grid, one after another, on byte buffers (one per slot).
pub fn run_program(p: &Program, bufs: &mut [Vec<u8>], vars: &Vars) -> Result<(), InterpError> {
    let (close, skip) = matching(&p.uops)?;
    let mut mem = Memory { bufs, local: UMap::default() };
    if workgroup::is_grid(p) {
        return workgroup::run(p, &mut mem, vars, (&close, &skip));
    }
    for tid in 0..p.threads.max(1) {
        run_chunk(p, &mut mem, vars, tid as i64, (&close, &skip))?;
    }
    Ok(())
}

pub(super) type Jumps = UMap<usize>;

pub(super) fn malformed(why: String) -> InterpError {
    InterpError::Malformed(why)
}

/// Positions of each Range's End and each If's EndIf.
fn matching(uops: &[UOp]) -> Result<(Jumps, Jumps), InterpError> {
    let (mut close, mut skip, mut open) = (Jumps::default(), Jumps::default(), Vec::new());
    for (pc, u) in uops.iter().enumerate() {
        match u.op() {
            Op::Range | Op::If => open.push(u.clone()),
            Op::End | Op::EndIf => {
                let o = open.pop().filter(|o| *o == u.src()[0]);
                let o =
                    o.ok_or_else(|| InterpError::Malformed(format!("{u:?} at {pc} closes what is not innermost")))?;
                if u.op() == Op::End { &mut close } else { &mut skip }.insert(o, pc);
            }
            _ => {}
        }
    }
    match open.pop() {
        Some(u) => Err(InterpError::Malformed(format!("{u:?} is never closed"))),
        None => Ok((close, skip)),
    }
}

fn run_chunk(
    p: &Program,
    mem: &mut Memory,
    vars: &Vars,
    tid: i64,
    (close, skip): (&Jumps, &Jumps),
) -> Result<(), InterpError> {
    let mut vals: UMap<Lanes> = UMap::default();
    let mut starts: UMap<usize> = UMap::default();
    let mut pc = 0;
    while let Some(u) = p.uops.get(pc) {
        let get = |k: usize| -> Result<&Lanes, InterpError> {
            let s = u.src().get(k).ok_or_else(|| InterpError::Malformed(format!("{u:?} lacks source {k}")))?;
            vals.get(s).ok_or_else(|| InterpError::Malformed(format!("{u:?} uses {s:?} before it stands in the list")))
        };
        match u.op() {
            Op::Range => {
                let end = get(0)?[0].as_int().unwrap_or(0);
                starts.insert(u.clone(), pc);
                vals.insert(u.clone(), smallvec![ConstVal::Int(0)]);
                if end <= 0 {
                    pc = close[u];
                }
            }
            Op::End => {
                let r = &u.src()[0];
                let end = vals[&r.src()[0]][0].as_int().unwrap_or(0);
                let next = vals[r][0].as_int().unwrap_or(0) + 1;
                if next < end {
                    vals.insert(r.clone(), smallvec![ConstVal::Int(next)]);
                    pc = starts[r];
                }
            }
            Op::If => {
                if get(0)?[0].is_zero() {
                    pc = skip[u];
                }
            }
            Op::SetAcc => {
                let v = get(1)?.clone();
                vals.insert(u.src()[0].clone(), v);
            }
            Op::EndIf | Op::Barrier | Op::Sink | Op::Param | Op::Local => {}
            Op::Index => {
                get(1)?;
            }
            Op::Store => {
                let v = get(1)?.clone();
                mem.store(&access(u, &vals)?, &v)?;
            }
            _ => {
                let v = value(u, &vals, mem, vars, tid)?;
                vals.insert(u.clone(), v);
            }
        }
        pc += 1;
    }
    Ok(())
}

fn access<'a>(u: &'a UOp, vals: &'a UMap<Lanes>) -> Result<Access<'a>, InterpError> {
    let i = &u.src()[0];
    let lanes = |k: usize| i.src().get(k).and_then(|s| vals.get(s));
    let index = lanes(1).ok_or_else(|| InterpError::Malformed(format!("{u:?} has no evaluated index")))?;
    Ok(Access { address: &i.src()[0], index, gate: lanes(2) })
}

fn value(u: &UOp, vals: &UMap<Lanes>, mem: &mut Memory, vars: &Vars, tid: i64) -> Result<Lanes, InterpError> {
    let get = |s: &UOp| {
        vals.get(s).ok_or_else(|| InterpError::Malformed(format!("{u:?} uses {s:?} before it stands in the list")))
    };
    Ok(match u.op() {
        Op::Var => smallvec![ConstVal::from(var(u, vars)?)],
        Op::Special => smallvec![ConstVal::from(tid)],
        Op::Acc => get(&u.src()[0])?.clone(),
        // An alias for the register's current value.
        Op::After => get(&u.src()[0])?.clone(),
        Op::Wmma => {
            let src: Vec<Vec<Lanes>> = u.src().iter().map(|s| Ok(vec![get(s)?.clone()])).collect::<Result<_, _>>()?;
            wmma::product(u, &src, 1)?.swap_remove(0)
        }
        Op::Load => mem.load(u, &access(u, vals)?, u.src().get(1).map(get).transpose()?)?,
        _ => {
            let refs: Vec<&Lanes> = u.src().iter().map(get).collect::<Result<_, _>>()?;
            value_op(u, &refs)?.ok_or(InterpError::Unexpected { op: u.op(), stage: "linear program" })?
        }
    })
}
