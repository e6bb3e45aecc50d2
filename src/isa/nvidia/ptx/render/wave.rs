//! Reductions over the threads of a warp: `shfl.sync.bfly`, for one bit of the lane number after the other.

use super::code::{Code, Opd, R, Reg};
use super::{Render, Res, Src, Val, class_of};
use doorbell_uop::{Scalar, UOp};

/// Threads of a warp.
const WARP: u32 = 32;

impl Render<'_> {
    pub(super) fn wave_reduce(&mut self, u: &UOp) -> Res<Val> {
        let (Some(op), Some(n)) = (u.reduce_op(), u.wave_threads().filter(|n| u32::from(*n) <= WARP)) else {
            return Err(self.unsupported(u, "no operation, or more threads than a warp has"));
        };
        let (t, members) = (u.dtype().scalar, self.members());
        let mut lanes = self.val(&u.src()[0])?;
        for step in (0..n.trailing_zeros()).map(|bit| 1i64 << bit) {
            for x in &mut lanes {
                let own = self.held(t, *x);
                let other = self.exchanged(t, own, step, &members);
                *x = self.alu(u, op, t, &[Src::Reg(own), Src::Reg(other)])?;
            }
        }
        Ok(lanes)
    }

    /// Mask of the existing threads of the warp.
    fn members(&mut self) -> Opd {
        let threads: u32 = self.program.local.iter().product();
        match threads {
            _ if threads.is_multiple_of(WARP) => Opd::Int(-1),
            0..WARP => Opd::Int((1 << threads) - 1),
            // The last warp has fewer threads.
            _ => {
                let mask = self.reg(R);
                self.run("activemask.b32", &[mask], vec![]);
                mask.into()
            }
        }
    }

    /// The register's value in the thread whose lane number differs in this bit.
    fn exchanged(&mut self, t: Scalar, x: Reg, step: i64, members: &Opd) -> Reg {
        let to = self.reg(class_of(t));
        if t.size_bytes() < 8 {
            self.shuffle(to, x, step, members);
            return to;
        }
        let halves = [self.reg(R), self.reg(R)];
        let others = halves.map(|half| (half, self.reg(R)));
        let (outs, ins) = (halves.to_vec(), vec![x.into()]);
        self.code.push(Code { name: "mov.b64", guard: None, outs, tuple: true, ins });
        for (half, other) in others {
            self.shuffle(other, half, step, members);
        }
        self.run("mov.b64", &[to], vec![Opd::Vector(others.iter().map(|o| o.1.into()).collect())]);
        to
    }

    fn shuffle(&mut self, to: Reg, from: Reg, step: i64, members: &Opd) {
        self.run("shfl.sync.bfly.b32", &[to], vec![from.into(), Opd::Int(step), Opd::Int(31), members.clone()]);
    }
}
