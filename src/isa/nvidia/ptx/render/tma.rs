//! TMA copies: `cp.async.bulk.tensor`, issued by one thread and counted by one mbarrier for each buffer of a pipelined
//! loop.
//!
//! The first thread initialises the mbarriers before it issues the first copies. The other threads see them after the
//! pipelined loop's first `bar.sync`, which comes before any wait. A phase of an mbarrier completes when that one
//! thread has arrived, announcing the expected bytes, and these bytes have been written. `wgmma.wait_group` and
//! `bar.sync` guarantee that TMA may overwrite a buffer: only the matrix unit has read it, so no proxy fence is needed.
//!
//! The tensor maps are kernel parameters after buffers and variables, 128 bytes each, 64-byte aligned, in the format of
//! `cuTensorMapEncodeTiled` (`sass::tensor_map`). The body for buffers that are not aligned to 16 bytes uses copies by
//! the threads instead. Sources: PTX ISA 8.8: asynchronous copies (bulk, tensor), tensor maps, mbarrier, proxies.

use super::code::{Code, Opd, P, R, RD, Reg};
use super::{Render, Res, Src};
use doorbell_codegen::{Program, TensorInfo};
use doorbell_uop::{Arg, Op, Scalar, TmaArg, UOp};

/// Bytes and alignment of a tensor map among the parameters.
pub(super) const MAP_BYTES: u64 = 128;
pub(super) const MAP_ALIGN: u32 = 64;
/// Bytes of an mbarrier.
const BARRIER: i64 = 8;

/// State of a body's TMA copies.
#[derive(Clone, Debug, Default)]
pub(super) struct Tma {
    /// TMA does the copies for which there is a CopyTile.
    on: bool,
    /// TMA does all copies of tiles; threads do none.
    all: bool,
    /// Predicate of the thread that issues the copies; set together with initialising the mbarriers.
    leader: Option<Reg>,
    /// The instructions of that thread for the open group, and the condition on which it runs them.
    group: Vec<Code>,
    asks: Option<Reg>,
}

impl Tma {
    /// Phases are counted by the iterations of one loop, so if the pipelined loop is inside another loop, the threads
    /// do the copies.
    pub(crate) fn of(program: &Program) -> Tma {
        let (mut depth, mut on) = (0, !program.tensors.is_empty());
        for u in &program.uops {
            match u.op() {
                Op::Range => depth += 1,
                Op::End => depth -= 1,
                Op::AwaitTile => on &= depth == 1,
                _ => {}
            }
        }
        let by_threads = |u: &UOp| u.op() == Op::Store && matches!(u.arg(), Arg::Stage(0));
        Tma { on, all: on && !program.uops.iter().any(by_threads), ..Tma::none() }
    }

    /// For a body in which the threads do all copies.
    pub(crate) fn none() -> Tma {
        Tma::default()
    }

    /// Whether TMA does the copy of this store.
    pub(crate) fn replace(&self, store: &UOp) -> bool {
        self.on && matches!(store.arg(), Arg::Stage(1))
    }

    /// Whether threads write data that a matrix unit reads directly from shared memory.
    pub(super) fn leave_copies(&self) -> bool {
        !self.all
    }
}

fn code(name: &'static str, ins: Vec<Opd>) -> Code {
    Code { name, guard: None, outs: vec![], tuple: false, ins }
}

impl Render<'_> {
    /// A TMA copy, issued by the first thread.
    pub(super) fn tma_copy(&mut self, u: &UOp) -> Res<()> {
        let ([to, bar, from, column, row], Arg::Tma(arg)) = (u.src(), u.arg()) else {
            return Err(self.unsupported(u, "no box"));
        };
        if !self.tma.on {
            return Ok(());
        }
        if !self.chip.has_warpgroups() {
            return Err(self.unsupported(u, "the chip has no such copies"));
        }
        let map = self.map_of(u, from, arg)?;
        let leader = self.leader(bar)?;
        let gate = match to.src().get(2) {
            Some(gate) => Some(self.val(gate)?[0]),
            None => None,
        };
        let bar = self.barrier_address(bar)?;
        let base = self.memory(&to.src()[0])?;
        let to = self.address(&base, &to.src()[1], from.dtype().scalar.size_bytes())?;
        let mut at = vec![];
        for u in [column, row] {
            let place = self.val(u)?[0];
            at.push(self.opd(u.dtype().scalar, place));
            if u.dtype().scalar.size_bytes() != 4 {
                return Err(self.unsupported(u, "a coordinate of more than 32 bits"));
            }
        }
        if self.tma.asks.is_none() {
            self.tma.asks = Some(self.both(leader, gate));
        }
        if arg.expects > 0 {
            let ins = vec![Opd::Nothing, bar.clone(), Opd::Int(arg.expects.into())];
            self.tma.group.push(code("mbarrier.arrive.expect_tx.shared::cta.b64", ins));
        }
        let name = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes";
        self.tma.group.push(code(name, vec![Opd::Address(to.base, to.offset), Opd::Tensor(map, at), bar]));
        Ok(())
    }

    /// A predicate that is set in the first thread if a condition holds.
    fn both(&mut self, leader: Reg, gate: Option<Src>) -> Reg {
        let Some(gate) = gate else { return leader };
        let gate = self.held(Scalar::Bool, gate);
        let both = self.reg(P);
        self.run("and.pred", &[both], vec![leader.into(), gate.into()]);
        both
    }

    /// At a group's end the first thread issues its copies; the others branch around them. Everything that the copies
    /// need has been computed by all threads.
    pub(super) fn issue_tma_copies(&mut self) {
        let Some(asks) = self.tma.asks.take() else { return };
        let past = self.label();
        self.code.push(Code { guard: Some((true, asks)), ..code("bra", vec![Opd::Label(past)]) });
        let group = std::mem::take(&mut self.tma.group);
        self.code.extend(group);
        self.code.push(Code::label(past));
    }

    /// Waits for the TMA tiles of an iteration.
    pub(super) fn tma_wait(&mut self, u: &UOp) -> Res<()> {
        if !self.tma.on {
            return Ok(());
        }
        let bar = self.barrier_address(&u.src()[0])?;
        let parity = self.val(&u.src()[1])?[0];
        let parity = self.opd(Scalar::U32, parity);
        let (again, done) = (self.label(), self.reg(P));
        self.code.push(Code::label(again));
        self.run("mbarrier.try_wait.parity.shared::cta.b64", &[done], vec![bar, parity]);
        self.code.push(Code { guard: Some((true, done)), ..code("bra", vec![Opd::Label(again)]) });
        Ok(())
    }

    /// The generic address of the tensor map for tiles of this shape.
    fn map_of(&mut self, u: &UOp, from: &UOp, arg: &TmaArg) -> Res<Reg> {
        let param = self.parameter(from)?;
        // The body is chosen by its address, even if no thread loads from it.
        self.argument(param)?;
        if !self.wide.contains(&param) {
            self.wide.push(param);
        }
        let wanted = TensorInfo { param, tensor: arg.tensor };
        let Some(number) = self.program.tensors.iter().position(|t| *t == wanted) else {
            return Err(self.unsupported(u, "its matrix is not among the arguments"));
        };
        if let Some(r) = self.maps.get(&number) {
            return Ok(*r);
        }
        let (place, at) = (self.reg(RD), self.reg(RD));
        let argument = self.program.params.len() + self.program.vars.len() + number;
        self.at_start("mov.b64", place, Opd::ParamAddress(argument));
        self.at_start("cvta.param.u64", at, place.into());
        self.maps.insert(number, at);
        Ok(at)
    }

    fn barrier_address(&mut self, bar: &UOp) -> Res<Opd> {
        let base = self.memory(&bar.src()[0])?;
        let at = self.address(&base, &bar.src()[1], BARRIER as usize)?;
        Ok(Opd::Address(at.base, at.offset))
    }

    /// The predicate of the thread that issues the copies; on first use it initialises the mbarriers.
    fn leader(&mut self, bar: &UOp) -> Res<Reg> {
        if let Some(p) = self.tma.leader {
            return Ok(p);
        }
        let mut number: Option<Reg> = None;
        for (axis, name) in ["%tid.x", "%tid.y", "%tid.z"].into_iter().enumerate() {
            if self.program.local[axis] == 1 {
                continue;
            }
            let own = self.reg(R);
            self.run("mov.u32", &[own], vec![Opd::Special(name)]);
            number = Some(match number {
                None => own,
                Some(sum) => {
                    let both = self.reg(R);
                    self.run("or.b32", &[both], vec![sum.into(), own.into()]);
                    both
                }
            });
        }
        let number = number.unwrap_or_else(|| self.copy(Scalar::U32, Src::Bits(0)));
        let leader = self.reg(P);
        self.run("setp.eq.s32", &[leader], vec![number.into(), Opd::Int(0)]);
        self.tma.leader = Some(leader);
        let area = self.memory(&bar.src()[0])?;
        let Arg::Local(_, count) = *area.arg() else { return Err(self.unsupported(bar, "no area of barriers")) };
        let first = self.address(&area, &UOp::int(0), BARRIER as usize)?;
        for n in 0..count as i64 {
            let ins = vec![Opd::Address(first.base, first.offset + n * BARRIER), Opd::Int(1)];
            self.tma.group.push(code("mbarrier.init.shared::cta.b64", ins));
        }
        // Makes the initialised mbarriers visible to TMA (the async proxy).
        self.tma.group.push(code("fence.proxy.async.shared::cta", vec![]));
        Ok(leader)
    }
}
