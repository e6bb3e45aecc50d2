//! The requirements of each node of the list, before any code is made: nesting, and which nodes wait for their
//! consumer.

use super::super::IselError;
use super::Res;
use doorbell_codegen::Program;
use doorbell_uop::{Memo, Op, UOp};

/// Facts by position in the list.
pub(in super::super) struct Plan {
    /// Open loops and conditions around each node.
    pub depth: Vec<u32>,
    /// Nodes whose value depends on a mutable register.
    pub mutable: Vec<bool>,
    /// Nodes whose code is made when a consumer uses it.
    wait: Vec<bool>,
}

impl Plan {
    pub(crate) fn new(program: &Program, pos: &Memo<u32>) -> Res<Plan> {
        let n = program.uops.len();
        let mut p = Plan { depth: vec![0; n], mutable: vec![false; n], wait: vec![false; n] };
        let mut depth = 0u32;
        for (i, u) in program.uops.iter().enumerate() {
            if matches!(u.op(), Op::End | Op::EndIf) {
                let opens = depth.checked_sub(1);
                depth = opens.ok_or_else(|| IselError::Malformed(format!("{u:?} closes nothing")))?;
            }
            p.depth[i] = depth;
            if matches!(u.op(), Op::Range | Op::If) {
                depth += 1;
            }
            for s in u.src() {
                match pos.get(s).map(|s| *s as usize) {
                    Some(s) => p.mutable[i] |= p.mutable[s] && u.op() != Op::End,
                    None if s.op() == Op::Const => {} // need not be in the list
                    None => {
                        return Err(IselError::Malformed(format!(
                            "{u:?} uses {s:?}, which does not stand in the list"
                        )));
                    }
                }
            }
            p.mutable[i] |= u.op() == Op::Acc;
            p.wait[i] = !p.mutable[i] && (is_index_arithmetic(u) || is_integer_test(u));
        }
        Ok(p)
    }

    /// Whether the node's code is made when it is used.
    pub(crate) fn waits(&self, p: usize) -> bool {
        self.wait[p]
    }
}

/// Integer arithmetic that addresses are made of.
fn is_index_arithmetic(u: &UOp) -> bool {
    let t = u.dtype();
    t.lanes == 1 && t.space.is_none() && t.is_int() && matches!(u.op(), Op::Add | Op::Sub | Op::Mul | Op::Shl | Op::Neg)
}

/// A comparison of scalar integers: its reader may need the flags only.
fn is_integer_test(u: &UOp) -> bool {
    u.op().is_comparison() && u.dtype().lanes == 1 && !u.src()[0].dtype().is_float()
}
