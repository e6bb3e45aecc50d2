//! Loops (all threads run the same number of iterations), mutable registers, and values computed at the kernel's start.

use super::code::{Code, Opd, P, R, RD, Reg};
use super::{Render, Res, Src, Val, class_of};
use doorbell_uop::{Arg, Scalar, UOp};
use smallvec::smallvec;

/// An open loop.
pub(super) struct Loop {
    range: UOp,
    counter: Reg,
    end: Src,
    top: u32,
    exit: Option<u32>,
}

impl Render<'_> {
    pub(super) fn open_loop(&mut self, u: &UOp) -> Res<Val> {
        let t = u.dtype().scalar;
        let end = self.val(&u.src()[0])?[0];
        let counter = self.reg(class_of(t));
        self.mov(t, counter, Src::Bits(0));
        let mut exit = None;
        if u.src()[0].vmin() < 1 {
            let label = self.label();
            let none = self.reg(P);
            let name = if counter.class == RD { "setp.le.s64" } else { "setp.le.s32" };
            let end = self.opd(t, end);
            self.run(name, &[none], vec![end, Opd::Int(0)]);
            self.branch(Some((false, none)), label);
            exit = Some(label);
        }
        let top = self.label();
        self.code.push(Code::label(top));
        self.mutable.insert(counter);
        self.loops.push(Loop { range: u.clone(), counter, end, top, exit });
        Ok(smallvec![Src::Reg(counter)])
    }

    pub(super) fn close_loop(&mut self, u: &UOp) -> Res<()> {
        let Some(l) = self.loops.pop().filter(|l| l.range == u.src()[0]) else {
            return Err(self.malformed("an End closes what is not innermost"));
        };
        self.commit_products();
        let t = l.range.dtype().scalar;
        let (add, less) = if l.counter.class == RD { ("add.s64", "setp.lt.s64") } else { ("add.s32", "setp.lt.s32") };
        self.run(add, &[l.counter], vec![l.counter.into(), Opd::Int(1)]);
        if l.range.src()[0].vmax() > 1 {
            let more = self.reg(P);
            let end = self.opd(t, l.end);
            self.run(less, &[more], vec![l.counter.into(), end]);
            self.branch(Some((false, more)), l.top);
        }
        if let Some(exit) = l.exit {
            self.code.push(Code::label(exit));
        }
        self.finish_products();
        let depth = self.loops.len();
        self.addresses.retain(|_, (_, made)| *made <= depth);
        self.units.retain(|_, (_, made)| *made <= depth);
        self.pairs.retain(|_, (_, made)| *made <= depth);
        Ok(())
    }

    /// Whether a register is the counter of an open loop, which changes only between iterations.
    pub(super) fn is_counter(&self, r: Reg) -> bool {
        self.loops.iter().any(|l| l.counter == r)
    }

    pub(super) fn acc(&mut self, u: &UOp) -> Res<Val> {
        let t = u.dtype().scalar;
        let init = self.val(&u.src()[0])?;
        let mut out = Val::new();
        for k in 0..usize::from(u.dtype().lanes) {
            let to = self.copy(t, init[k.min(init.len() - 1)]);
            self.mutable.insert(to);
            out.push(Src::Reg(to));
        }
        Ok(out)
    }

    pub(super) fn set_acc(&mut self, u: &UOp) -> Res<()> {
        let t = u.src()[1].dtype().scalar;
        let to = self.val(&u.src()[0])?;
        let from = self.val(&u.src()[1])?;
        // Registers that are assigned together may be each other's sources.
        let from = if from == to { from } else { self.settle(t, from) };
        for (k, lane) in to.iter().enumerate() {
            let (Src::Reg(to), s) = (*lane, from[k.min(from.len() - 1)]) else {
                return Err(self.malformed("a value is assigned to a constant"));
            };
            if s != Src::Reg(to) {
                self.mov(t, to, s);
            }
        }
        Ok(())
    }

    pub(super) fn special(&mut self, u: &UOp) -> Res<Val> {
        let Arg::Str(name) = u.arg() else { return Err(self.unsupported(u, "no name")) };
        let register = match &**name {
            "gidx0" => "%ctaid.x",
            "gidx1" => "%ctaid.y",
            "gidx2" => "%ctaid.z",
            "lidx0" => "%tid.x",
            "lidx1" => "%tid.y",
            "lidx2" => "%tid.z",
            _ => return Err(self.unsupported(u, "no such hardware index")),
        };
        let low = self.op("mov.u32", R, vec![Opd::Special(register)]);
        if class_of(u.dtype().scalar) == RD {
            let low = self.opd(Scalar::U32, low);
            return Ok(smallvec![self.op("cvt.u64.u32", RD, vec![low])]);
        }
        Ok(smallvec![low])
    }

    pub(super) fn variable(&mut self, u: &UOp) -> Res<Val> {
        let index = self.program.vars.iter().position(|v| v == u || v.arg() == u.arg());
        let Some(index) = index else { return Err(self.malformed("a variable is not among the arguments")) };
        let index = self.program.params.len() + index;
        let (name, class) = match u.dtype().scalar.size_bytes() {
            8 => ("ld.param.b64", RD),
            _ => ("ld.param.b32", R),
        };
        Ok(smallvec![self.op(name, class, vec![Opd::Param(index)])])
    }

    /// The address in the `index`-th argument, as a global address.
    pub(super) fn argument(&mut self, index: usize) -> Res<Reg> {
        if let Some(r) = self.params.get(&index) {
            return Ok(*r);
        }
        if index >= self.program.params.len() {
            return Err(self.malformed("a buffer is not among the arguments"));
        }
        let (raw, at) = (self.reg(RD), self.reg(RD));
        self.at_start("ld.param.u64", raw, Opd::Param(index));
        self.at_start("cvta.to.global.u64", at, raw.into());
        self.params.insert(index, at);
        Ok(at)
    }

    /// The address of the block's shared memory.
    pub(super) fn shared(&mut self) -> Reg {
        if let Some(r) = self.shared {
            return r;
        }
        let at = self.reg(R);
        self.at_start("mov.u32", at, Opd::Shared);
        self.shared = Some(at);
        at
    }

    /// Emits at the kernel's start, so that the result is available in all loops.
    pub(super) fn at_start(&mut self, name: &'static str, to: Reg, from: Opd) {
        let code = Code { name, guard: None, outs: vec![to], tuple: false, ins: vec![from] };
        self.code.insert(self.start, code);
        self.start += 1;
    }
}
