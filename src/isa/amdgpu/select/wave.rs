//! Reductions over the threads of a wave: registers whose lanes are permuted, without memory.
//!
//! Step by step each lane combines with the lane whose number differs in one bit (docs/amd-isa.md 5.5). When the bits
//! below are done, lanes that differ in these alone hold the same, so a mirrored row serves for a flipped bit. Up to 16
//! lanes it is DPP, in the arithmetic instruction itself where it has that form; the two rows of 32 lanes are exchanged
//! by `v_permlanex16`, on gfx942 by `ds_swizzle`; a whole wave of 64 is collected in its last lane (`row_bcast`) and
//! read as a scalar.

use super::super::{Chip, Dpp, DppCtrl, Op as Mnemonic, op};
use super::mir::{Code, Opd, Part};
use super::{Res, Select, Src, Val};
use doorbell_uop::{Op, Scalar, UOp};

/// How lanes change places in one step.
#[derive(Clone, Copy)]
enum Step {
    Dpp(DppCtrl),
    /// Rows of 16 with their neighbours; all lanes of a row hold the same.
    Rows,
    /// As `Rows`, through the crossbar of LDS.
    Swizzle,
}

/// `ds_swizzle`: within 32 lanes, each reads the lane whose number differs in bit 4.
const SWAP_16: i32 = 0x401f;

impl Select<'_> {
    pub(super) fn wave_reduce(&mut self, u: &UOp) -> Res<Val> {
        let (Some(op), Some(n)) = (u.reduce_op(), u.wave_threads()) else {
            return Err(self.unsupported(u, "no operation, or no number of threads"));
        };
        let lanes = self.plain(&u.src()[0])?;
        lanes.into_iter().map(|x| self.reduce_lane(u, op, n, x)).collect()
    }

    fn reduce_lane(&mut self, u: &UOp, op: Op, n: u16, mut x: Src) -> Res<Src> {
        let (t, words) = (u.dtype().scalar, self.words(u.dtype().scalar));
        let whole = n == 64;
        for bit in 0..n.trailing_zeros() {
            let step = match (bit, self.chip()) {
                (0, _) => Step::Dpp(DppCtrl::QuadPerm([1, 0, 3, 2])),
                (1, _) => Step::Dpp(DppCtrl::QuadPerm([2, 3, 0, 1])),
                (2, _) => Step::Dpp(DppCtrl::RowHalfMirror),
                (3, _) => Step::Dpp(DppCtrl::RowMirror),
                (4, Chip::Gfx942) if whole => Step::Dpp(DppCtrl::RowBcast15),
                (4, Chip::Gfx942) => Step::Swizzle,
                (5, Chip::Gfx942) => Step::Dpp(DppCtrl::RowBcast31),
                (4, _) => Step::Rows,
                _ => return Err(self.unsupported(u, "more threads than a wave has")),
            };
            let from = self.in_vgpr(x, words)?;
            x = match (step, self.with_dpp(op, t)) {
                (Step::Dpp(ctrl), Some(code)) => {
                    let to = self.v_part(1);
                    self.run(permuted(code, &[to.into(), from.into(), from.into()], ctrl))?;
                    Src::Part(to)
                }
                _ => {
                    let other = self.moved(from, step)?;
                    self.alu_op(op, t, &[Src::Part(from), Src::Part(other)], u)?
                }
            };
        }
        if whole { self.last_lane(x, words) } else { Ok(x) }
    }

    /// The instruction that takes its first operand through DPP and needs no operation after it.
    fn with_dpp(&self, op: Op, t: Scalar) -> Option<Mnemonic> {
        let small = t.is_int() && t.size_bytes() <= 4;
        match op {
            Op::Add if t == Scalar::F32 => Some(op::V_ADD_F32),
            Op::Mul if t == Scalar::F32 => Some(op::V_MUL_F32),
            Op::Max if t == Scalar::F32 && self.program.fast_math => Some(op::V_MAX_F32),
            Op::Add if small && t.size_bytes() == 4 => Some(op::V_ADD_NC_U32),
            Op::Max if small && t.is_signed() => Some(op::V_MAX_I32),
            Op::Max if small => Some(op::V_MAX_U32),
            _ => None,
        }
    }

    /// The contents of the other lanes, word by word.
    fn moved(&mut self, from: Part, step: Step) -> Res<Part> {
        let to = self.v_part(from.words);
        for k in 0..from.words {
            let word = |p: Part| Opd::from(Part { sub: p.sub + k, words: 1, ..p });
            let code = match step {
                Step::Dpp(ctrl) => permuted(op::V_MOV_B32, &[word(to), word(from)], ctrl),
                Step::Rows => Code::new(op::V_PERMLANEX16_B32, &[word(to), word(from), 0.into(), 0.into()]),
                Step::Swizzle => Code::new(op::DS_SWIZZLE_B32, &[word(to), word(from)]).offset(SWAP_16),
            };
            self.run(code)?;
        }
        Ok(to)
    }

    fn last_lane(&mut self, x: Src, words: u8) -> Res<Src> {
        let from = self.in_vgpr(x, words)?;
        let to = self.s_part(words);
        for k in 0..words {
            let word = |p: Part| Opd::from(Part { sub: p.sub + k, words: 1, ..p });
            self.run(Code::new(op::V_READLANE_B32, &[word(to), word(from), 63.into()]))?;
        }
        Ok(Src::Part(to))
    }
}

/// An operation whose first source comes from other lanes; lanes without one read 0.
fn permuted(op: Mnemonic, opds: &[Opd], ctrl: DppCtrl) -> Code {
    let mut code = Code::new(op, opds);
    code.mods.dpp = Some(Dpp::Dpp16 { ctrl, row_mask: 15, bank_mask: 15, bound_ctrl: true, fetch_inactive: false });
    code
}
