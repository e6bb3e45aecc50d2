//! The requirements of each node of the list, before any code is made: nesting, uses, and which nodes wait for their
//! consumer.

use super::super::form::Width;
use super::super::{Arch, IselError};
use super::{Res, Shape};
use doorbell_codegen::Program;
use doorbell_uop::{Memo, Op, Scalar, UOp};

/// Facts by position in the list.
pub(in super::super) struct Plan {
    /// Open loops and conditions around each node.
    pub depth: Vec<u32>,
    /// How often each node is a source.
    pub uses: Vec<u32>,
    /// Nodes whose value depends on a mutable register.
    pub mutable: Vec<bool>,
    /// Nodes whose code is made when a consumer uses it.
    wait: Vec<bool>,
    /// Loads, and splats of loads, that become a memory operand of their only consumer.
    pub folded: Vec<bool>,
}

impl Plan {
    pub(crate) fn new(program: &Program, pos: &Memo<u32>, arch: Arch) -> Res<Plan> {
        let uops = &program.uops;
        let n = uops.len();
        let mut p = Plan {
            depth: vec![0; n],
            uses: vec![0; n],
            mutable: vec![false; n],
            wait: vec![false; n],
            folded: vec![false; n],
        };
        let mut events = vec![0u32; n]; // stores and borders of blocks so far
        let mut user = vec![None; n];
        let (mut depth, mut seen) = (0u32, 0u32);
        for (i, u) in uops.iter().enumerate() {
            if matches!(u.op(), Op::End | Op::EndIf) {
                let opens = depth.checked_sub(1);
                depth = opens.ok_or_else(|| IselError::Malformed(format!("{u:?} closes nothing")))?;
            }
            p.depth[i] = depth;
            if matches!(u.op(), Op::Range | Op::If) {
                depth += 1;
            }
            if matches!(u.op(), Op::Range | Op::If | Op::End | Op::EndIf | Op::Store | Op::Barrier) {
                seen += 1;
            }
            events[i] = seen;
            for s in u.src() {
                let Some(s) = pos.get(s).map(|s| *s as usize) else {
                    // Constants need not be in the list.
                    if s.op() == Op::Const {
                        continue;
                    }
                    return Err(IselError::Malformed(format!("{u:?} uses {s:?}, which does not stand in the list")));
                };
                p.uses[s] += 1;
                user[s] = Some(i);
                p.mutable[i] |= p.mutable[s] && !matches!(u.op(), Op::End);
            }
            p.mutable[i] |= u.op() == Op::Acc;
            p.wait[i] = !p.mutable[i] && (is_index_arithmetic(u) || is_integer_test(u)) || u.op() == Op::Wmma;
        }
        for u in uops.iter().filter(|u| u.op() == Op::Cat && super::tile::is_tile(u.dtype())) {
            // Rows that the tile loads itself.
            for s in u.src().iter().filter(|s| super::tile::is_row(s)) {
                let Some(s) = pos.get(s).map(|s| *s as usize) else { continue };
                p.wait[s] |= p.uses[s] == 1;
            }
        }
        let mut taken = vec![false; n]; // consumers that have a memory operand already
        for i in 0..n {
            if p.uses[i] == 1 && !p.mutable[i] && uops[i].op() == Op::Load && uops[i].src().len() == 1 {
                let Some(c) = user[i].filter(|c| events[*c] == events[i] && !p.wait[*c]) else { continue };
                p.fold(uops, (i, c), &user, (&events, &mut taken), arch);
            }
        }
        Ok(p)
    }

    /// Whether the node's code is made when it is used.
    pub(crate) fn waits(&self, p: usize) -> bool {
        self.wait[p]
    }

    /// Decides for a load with one consumer whether it becomes its memory operand.
    fn fold(
        &mut self,
        uops: &[UOp],
        (i, c): (usize, usize),
        user: &[Option<usize>],
        (events, taken): (&[u32], &mut [bool]),
        arch: Arch,
    ) {
        let (load, consumer) = (&uops[i], &uops[c]);
        let i_src = &load.src()[0];
        if i_src.src().len() != 2 || i_src.src()[1].dtype().lanes != 1 {
            return; // gated, or a gather
        }
        if consumer.op() == Op::Splat && load.dtype().scalar != Scalar::Bool {
            (self.folded[i], self.wait[i]) = (true, true);
            let bytes = load.dtype().scalar.size_bytes();
            let next = user[c].filter(|q| self.uses[c] == 1 && events[*q] == events[i] && !taken[*q] && !self.wait[*q]);
            // The bitwise rows spread 32-bit elements.
            let elements = |q: usize| match uops[q].op() {
                Op::And | Op::Or | Op::Xor => bytes == 4,
                _ => bytes >= 4,
            };
            if let Some(q) = next.filter(|q| arch == Arch::Avx512 && elements(*q) && takes_memory(&uops[*q], consumer))
            {
                (self.folded[c], self.wait[c], taken[q]) = (true, true, true);
            }
            return;
        }
        let dt = load.dtype();
        let shape = Shape::of(dt.scalar.size_bytes() as u16, dt.lanes, arch);
        let whole = shape.part_bytes() == shape.width.bytes() && shape.width >= Width::X;
        let one = dt.lanes == 1 && matches!(dt.scalar, Scalar::F32 | Scalar::F64);
        if (one || (dt.lanes > 1 && whole)) && !taken[c] && takes_memory(consumer, load) {
            (self.folded[i], self.wait[i], taken[c]) = (true, true, true);
        }
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

/// Whether a vector or float operation can read this source from memory.
fn takes_memory(u: &UOp, src: &UOp) -> bool {
    let t = u.dtype();
    if t.lanes == 1 && !matches!(t.scalar, Scalar::F32 | Scalar::F64) {
        return false;
    }
    let last = u.src().last() == Some(src);
    match (u.op(), t.scalar) {
        (_, Scalar::Bool | Scalar::F16 | Scalar::BF16) => false,
        (Op::Add, _) | (Op::MulAcc, Scalar::F32 | Scalar::F64) => true,
        (Op::Mul, Scalar::F32 | Scalar::F64 | Scalar::I32 | Scalar::U32) => true,
        (Op::And | Op::Or | Op::Xor, t) => t.is_int(),
        (Op::Sub, _) | (Op::FDiv, Scalar::F32 | Scalar::F64) => last && u.src()[0] != *src,
        _ => false,
    }
}
