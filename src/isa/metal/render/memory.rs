//! Threadgroup memory, loads and stores: an element each, which MSL's compiler joins where alignment allows.

use super::{Lane, Render, Res, Val};
use doorbell_uop::{Arg, Op, Scalar, UOp};

/// The elements of an access.
struct Access {
    /// One expression an element.
    elements: Vec<String>,
    /// None, one for all elements, or one each.
    gates: Val,
}

impl Access {
    fn gate(&self, k: usize) -> Option<&Lane> {
        let lane = self.gates.get(k.min(self.gates.len().max(1) - 1));
        lane.filter(|lane| !matches!(lane, Lane::Text(text) if text == "true"))
    }
}

impl Render<'_> {
    pub(super) fn local(&mut self, u: &UOp) -> Res<()> {
        let Arg::Local(number, len) = u.arg() else { return Err(self.unsupported(u)) };
        self.has_type(u, u.dtype().scalar)?;
        let t = self.memory_type(u.dtype().scalar);
        self.line(&format!("threadgroup {t} local{number}[{}];", (*len).max(1)));
        Ok(())
    }

    /// The name of an address: an argument or an area.
    fn base(&self, u: &UOp) -> Res<String> {
        match (u.op(), u.arg()) {
            (Op::After, _) => self.base(&u.src()[0]),
            (Op::Local, Arg::Local(number, _)) => Ok(format!("local{number}")),
            (Op::Param, Arg::Param(slot, _)) => {
                let at = self.program.params.iter().position(|p| p.slot == *slot);
                at.map(|k| format!("data{k}")).ok_or_else(|| self.malformed("a buffer is not among the arguments"))
            }
            _ => Err(self.malformed("an address is no buffer and no area")),
        }
    }

    fn access(&mut self, index: &UOp, lanes: usize) -> Res<Access> {
        if index.op() != Op::Index {
            return Err(self.malformed("an access without an index"));
        }
        let base = self.base(&index.src()[0])?;
        let at = self.val(&index.src()[1])?;
        let gates = index.src().get(2).map_or(Ok(Val::new()), |gate| self.val(gate))?;
        let elements = (0..lanes).map(|k| match (at.len(), k) {
            (1, 0) => format!("{base}[{}]", at[0]),
            (1, k) => format!("{base}[{} + {k}]", at[0]),
            (_, k) => format!("{base}[{}]", at[k.min(at.len() - 1)]),
        });
        Ok(Access { elements: elements.collect(), gates })
    }

    pub(super) fn load(&mut self, u: &UOp) -> Res<Val> {
        let t = u.dtype().scalar;
        self.has_type(u, t)?;
        let access = self.access(&u.src()[0], usize::from(u.dtype().lanes))?;
        let others = u.src().get(1).map_or(Ok(Val::new()), |alt| self.val(alt))?;
        let mut out = Val::new();
        for (k, element) in access.elements.iter().enumerate() {
            let value = if t == Scalar::Bool { format!("{element} != 0") } else { element.clone() };
            let text = match access.gate(k) {
                None => value,
                Some(gate) => match others.get(k.min(others.len().max(1) - 1)) {
                    Some(other) => format!("{gate} ? {value} : {other}"),
                    None => return Err(self.malformed("a gated load without an alternative")),
                },
            };
            out.push(self.named(t, &text));
        }
        Ok(out)
    }

    pub(super) fn store(&mut self, u: &UOp) -> Res<()> {
        let value = &u.src()[1];
        let t = value.dtype().scalar;
        self.has_type(value, t)?;
        let lanes = self.val(value)?;
        let access = self.access(&u.src()[0], usize::from(value.dtype().lanes))?;
        for (k, element) in access.elements.iter().enumerate() {
            let lane = &lanes[k.min(lanes.len() - 1)];
            let stored = if t == Scalar::Bool { format!("uchar({lane})") } else { lane.to_string() };
            match access.gate(k) {
                None => self.line(&format!("{element} = {stored};")),
                Some(gate) => self.line(&format!("if ({gate}) {element} = {stored};")),
            }
        }
        Ok(())
    }
}
