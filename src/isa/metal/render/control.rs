//! Loops, variables, hardware indices, and what the threads of a simdgroup do together.

use super::{Lane, Render, Res, Val};
use doorbell_uop::{Arg, Scalar, UOp};
use smallvec::smallvec;

/// Threads of a simdgroup.
const SIMDGROUP: u16 = 32;

impl Render<'_> {
    pub(super) fn open_loop(&mut self, u: &UOp) -> Res<Val> {
        let end = self.val(&u.src()[0])?.remove(0);
        let (t, n) = (self.type_name(u.dtype().scalar), self.made);
        self.made += 1;
        self.line(&format!("for ({t} r{n} = 0; r{n} < {end}; r{n}++) {{"));
        self.open.push(u.clone());
        // Within an iteration the counter does not change.
        Ok(smallvec![Lane::Text(format!("r{n}"))])
    }

    pub(super) fn close_loop(&mut self, u: &UOp) -> Res<()> {
        if self.open.pop().is_none_or(|open| open != u.src()[0]) {
            return Err(self.malformed("an End closes what is not innermost"));
        }
        self.line("}");
        Ok(())
    }

    pub(super) fn acc(&mut self, u: &UOp) -> Res<Val> {
        let t = u.dtype().scalar;
        self.has_type(u, t)?;
        let init = self.val(&u.src()[0])?;
        let mut out = Val::new();
        for k in 0..usize::from(u.dtype().lanes) {
            let n = self.made;
            self.made += 1;
            let text = format!("{} r{n} = {};", self.type_name(t), init[k.min(init.len() - 1)]);
            self.line(&text);
            out.push(Lane::Variable(n));
        }
        Ok(out)
    }

    pub(super) fn set_acc(&mut self, u: &UOp) -> Res<()> {
        let t = u.src()[1].dtype().scalar;
        let to = self.val(&u.src()[0])?;
        let from = self.val(&u.src()[1])?;
        // Variables that are assigned together may be each other's sources.
        let from = if from == to { from } else { self.settle(t, from) };
        for (k, lane) in to.iter().enumerate() {
            let source = &from[k.min(from.len() - 1)];
            if !matches!(lane, Lane::Variable(_)) {
                return Err(self.malformed("a value is assigned to a constant"));
            }
            if source != lane {
                self.line(&format!("{lane} = {source};"));
            }
        }
        Ok(())
    }

    pub(super) fn special(&mut self, u: &UOp) -> Res<Val> {
        let Arg::Str(name) = u.arg() else { return Err(self.unsupported(u)) };
        let index = match &**name {
            "gidx0" => "gid.x",
            "gidx1" => "gid.y",
            "gidx2" => "gid.z",
            "lidx0" => "lid.x",
            "lidx1" => "lid.y",
            "lidx2" => "lid.z",
            _ => return Err(self.unsupported(u)),
        };
        let t = u.dtype().scalar;
        Ok(smallvec![self.named(t, &format!("{}({index})", self.type_name(t)))])
    }

    pub(super) fn variable(&mut self, u: &UOp) -> Res<Val> {
        let index = self.program.vars.iter().position(|v| v == u || v.arg() == u.arg());
        let Some(index) = index else { return Err(self.malformed("a variable is not among the arguments")) };
        Ok(smallvec![Lane::Text(format!("n{index}"))])
    }

    /// A reduction over neighbouring threads, for one bit of the lane number after the other.
    pub(super) fn wave_reduce(&mut self, u: &UOp) -> Res<Val> {
        let (Some(op), Some(n)) = (u.reduce_op(), u.wave_threads().filter(|n| *n <= SIMDGROUP)) else {
            return Err(self.unsupported(u));
        };
        let t = u.dtype().scalar;
        let source = self.val(&u.src()[0])?;
        let mut lanes = self.settle(t, source);
        for step in (0..n.trailing_zeros()).map(|bit| 1u16 << bit) {
            for x in &mut lanes {
                let other = self.exchanged(t, x, step);
                *x = self.alu(u, op, &[x.clone(), other])?;
            }
        }
        Ok(lanes)
    }

    /// The value of the thread whose lane number differs in this bit. The functions know no 64-bit type and no bfloat.
    fn exchanged(&mut self, t: Scalar, x: &Lane, step: u16) -> Lane {
        let name = self.type_name(t);
        let text = match t {
            t if t.size_bytes() == 8 => format!("as_type<{name}>(simd_shuffle_xor(as_type<uint2>({x}), {step}))"),
            Scalar::BF16 => format!("as_type<{name}>(simd_shuffle_xor(as_type<ushort>({x}), {step}))"),
            _ => format!("simd_shuffle_xor({x}, {step})"),
        };
        self.named(t, &text)
    }

    /// A product of two 8 x 8 matrices that the threads of a simdgroup hold together.
    pub(super) fn product(&mut self, u: &UOp) -> Res<Val> {
        let Arg::Wmma(unit) = u.arg() else { return Err(self.unsupported(u)) };
        if !unit.name.starts_with("simdgroup_") {
            return Err(self.unsupported(u));
        }
        let sum = if unit.acc == Scalar::F16 { "simdgroup_half8x8" } else { "simdgroup_float8x8" };
        let n = self.made;
        self.made += 1;
        for ((name, kind), source) in [("a", unit.name), ("b", unit.name), ("c", sum)].iter().zip(u.src()) {
            let lanes = self.val(source)?;
            self.line(&format!("{kind} {name}{n};"));
            for (k, lane) in lanes.iter().enumerate() {
                self.line(&format!("{name}{n}.thread_elements()[{k}] = {lane};"));
            }
        }
        self.line(&format!("simdgroup_multiply_accumulate(c{n}, a{n}, b{n}, c{n});"));
        let elements = 0..usize::from(u.dtype().lanes);
        Ok(elements.map(|k| self.named(unit.acc, &format!("c{n}.thread_elements()[{k}]"))).collect())
    }
}
