//! Kernels and calls: parameters are bound, bodies are inlined.

use super::flow::{Construct, returns};
use super::{Frame, Loc, Lower, MAX_CALLS};
use crate::code::{Inst, Param, Row, TAG_BUFFER, TAG_THREADGROUP_SLOT, pointer};
use crate::error::{Res, fail};
use crate::tree::{Attribute, Expr, FnId, Stmt};
use crate::types::{Scalar, Space, Tid, Ty};

/// Whether lanes return elsewhere than at the end of the body.
fn returns_early(body: &[Stmt]) -> bool {
    match body {
        [] => false,
        [rest @ .., last] => {
            returns(rest) || (!matches!(last, Stmt::Return(..)) && returns(std::slice::from_ref(last)))
        }
    }
}

impl Lower<'_> {
    pub(crate) fn kernel(&mut self, id: FnId) -> Res<()> {
        let functions = self.functions;
        let function = &functions[id];
        self.frames.push(Frame {
            function: id,
            vars: vec![None; function.vars.len()],
            result: None,
            base: 0,
            framed: false,
        });
        for (var, attribute) in function.params.iter().zip(&function.attributes) {
            self.kernel_parameter(*var, *attribute)?;
        }
        let body = function.body.as_deref().unwrap_or(&[]);
        self.body(body)
    }

    fn kernel_parameter(&mut self, var: u32, attribute: Attribute) -> Res<()> {
        let info = self.info(var);
        if let Attribute::Position(position) = attribute {
            let (scalar, lanes) = self.parts(info.ty);
            let row = self.alloc_for(info.ty);
            self.code.positions.push((position, row, lanes, scalar == Scalar::UShort));
            if info.in_memory {
                let at = self.alloc_memory(info.ty)?;
                let to = Loc::Thread { at };
                self.write(&to, info.ty, row)?;
                self.bind(var, to);
            } else {
                self.bind(var, Loc::Reg { row, defined: None });
            }
            return Ok(());
        }
        let (space, to, constant) = match self.types.get(info.ty) {
            _ if info.reference => (info.space, info.ty, info.constant),
            Ty::Ptr { to, space, constant } => (space, to, constant),
            _ => return fail(self.at, "invalid parameter of a kernel"),
        };
        self.code.params.push(Param {
            name: info.name.to_string(),
            attribute,
            space,
            writable: !constant && space != Space::Constant,
            pointee_bytes: self.types.size(to),
            reference: info.reference,
            type_name: self.types.name(to),
        });
        let tag = match attribute {
            Attribute::Buffer(slot) => TAG_BUFFER + slot,
            Attribute::Threadgroup(slot) => TAG_THREADGROUP_SLOT + slot,
            _ => return fail(self.at, "a parameter without a slot"),
        };
        let row = self.constant64(pointer(tag, 0));
        let loc = if info.reference {
            Loc::Memory { pointer: row, off: 0, space }
        } else if info.in_memory {
            let at = self.alloc_memory(info.ty)?;
            let to = Loc::Thread { at };
            self.write(&to, info.ty, row)?;
            to
        } else {
            // The kernel may step its own pointer.
            let d = self.alloc(2);
            self.emit(Inst::Mov { d, a: row, n: 2 });
            Loc::Reg { row: d, defined: None }
        };
        self.bind(var, loc);
        Ok(())
    }

    /// A function's statements, in a frame that returns leave.
    fn body(&mut self, body: &[Stmt]) -> Res<()> {
        let framed = returns_early(body);
        let base = self.open.len();
        let frame = self.frame();
        (frame.framed, frame.base) = (framed, base);
        if framed {
            let begin = self.emit(Inst::FnBegin);
            self.push(Construct::Function, begin);
        }
        self.scope(body)?;
        if framed {
            let here = self.here();
            let skips = self.open.pop().map(|o| o.skips).unwrap_or_default();
            skips.into_iter().for_each(|skip| self.patch(skip, here));
            self.emit(Inst::FnEnd);
        }
        Ok(())
    }

    /// A call whose result is in registers, or that has none.
    pub(crate) fn call(&mut self, function: FnId, args: &[Expr], e: &Expr) -> Res<Row> {
        let rows = self.types.rows(e.ty);
        let d = self.alloc(rows);
        let result = (rows > 0).then_some((Loc::Reg { row: d, defined: None }, e.ty));
        self.call_into(function, args, e, result)?;
        Ok(d)
    }

    pub(crate) fn call_into(&mut self, id: FnId, args: &[Expr], e: &Expr, result: Option<(Loc, Tid)>) -> Res<()> {
        self.at = e.at;
        let functions = self.functions;
        let function = &functions[id];
        let Some(body) = &function.body else {
            return fail(e.at, format!("function '{}' is called but has no body", function.name));
        };
        if self.frames.iter().any(|f| f.function == id) {
            return fail(e.at, format!("recursion is not supported: '{}' calls itself", function.name));
        }
        if self.frames.len() >= MAX_CALLS {
            return fail(e.at, "calls are nested too deeply");
        }
        // The result lies below; everything of the call is free again after it, but for temporaries that it may use.
        let (top, memory) = (self.top, self.memory_top);
        let mut vars = vec![None; function.vars.len()];
        for (var, arg) in function.params.iter().zip(args) {
            let info = &function.vars[*var as usize];
            vars[*var as usize] = Some(self.argument(info, arg)?);
        }
        self.at = e.at;
        self.frames.push(Frame { function: id, vars, result, base: self.open.len(), framed: false });
        let made = self.body(body);
        self.frames.pop();
        (self.top, self.memory_top) = (top, memory);
        self.at = e.at;
        made
    }

    fn argument(&mut self, info: &crate::tree::Var, arg: &Expr) -> Res<Loc> {
        if info.reference && arg.lv.is_some() {
            let place = self.place(arg)?;
            return Ok(self.pinned(place));
        }
        if info.in_memory || self.types.is_aggregate(info.ty) {
            let at = self.alloc_memory(info.ty)?;
            let to = Loc::Thread { at };
            self.initialise(&to, arg, info.ty)?;
            return Ok(to);
        }
        let row = self.alloc_for(info.ty);
        let top = self.top;
        let made = self.value_to(arg, Some(row))?;
        self.move_into(row, made, info.ty);
        self.top = top;
        Ok(Loc::Reg { row, defined: None })
    }
}
