//! Variables, and objects in memory: lists in braces, zeros, results of calls.

use super::{Loc, Lower};
use crate::code::{Inst, Row};
use crate::error::{Res, fail};
use crate::tree::{Expr, Kind, VarId};
use crate::types::{Space, Tid, Ty};

impl Lower<'_> {
    pub(crate) fn variable(&mut self, var: VarId, e: &Expr) -> Res<Loc> {
        let known = self.frames.last().and_then(|f| f.vars.get(var as usize)).cloned().flatten();
        match known {
            Some(loc) => Ok(loc),
            None => fail(e.at, "a variable is used where it does not exist"),
        }
    }

    /// Binds a variable of the innermost function.
    pub(crate) fn bind(&mut self, var: VarId, loc: Loc) {
        let vars = &mut self.frame().vars;
        if vars.len() <= var as usize {
            vars.resize(var as usize + 1, None);
        }
        vars[var as usize] = Some(loc);
    }

    /// A place that stays the same when the variables in its address change.
    pub(crate) fn pinned(&mut self, loc: Loc) -> Loc {
        match loc {
            Loc::Memory { pointer, off, space } => {
                let d = self.alloc(2);
                self.emit(Inst::Mov { d, a: pointer, n: 2 });
                Loc::Memory { pointer: d, off, space }
            }
            other => other,
        }
    }

    /// The place of a struct or an array.
    pub(crate) fn aggregate(&mut self, e: &Expr) -> Res<Loc> {
        match &e.kind {
            Kind::List(_) | Kind::Zero => {
                let at = self.alloc_memory(e.ty)?;
                let to = Loc::Thread { at };
                self.initialise(&to, e, e.ty)?;
                Ok(to)
            }
            Kind::Call(function, args) => {
                let at = self.alloc_memory(e.ty)?;
                let to = Loc::Thread { at };
                self.call_into(*function, args, e, Some((to.clone(), e.ty)))?;
                Ok(to)
            }
            Kind::Cast(a) if a.ty == e.ty => self.aggregate(a),
            Kind::Cond(..) => fail(e.at, "?: of these objects is not supported"),
            Kind::Deref(_) if e.lv.is_none() => {
                let place =
                    Expr { lv: Some(crate::tree::Lvalue { space: Space::Thread, constant: true }), ..e.clone() };
                self.place(&place)
            }
            Kind::Comma(a, b) => {
                self.discard(a)?;
                self.aggregate(b)
            }
            Kind::Assign(..) => self.assigned_place(e),
            Kind::Var(_) | Kind::Member(..) | Kind::Static(_) | Kind::Deref(_) => self.place(e),
            _ => fail(e.at, "this object is not supported here"),
        }
    }

    /// Gives an object its first value.
    pub(crate) fn initialise(&mut self, to: &Loc, e: &Expr, ty: Tid) -> Res<()> {
        match (&e.kind, self.types.get(ty)) {
            (Kind::Zero, Ty::Struct(_) | Ty::Array(..)) => self.clear(to, ty),
            (Kind::List(items), Ty::Array(of, count)) => {
                let size = self.types.size(of) as u32;
                if (items.len() as u32) < count {
                    self.clear(to, ty)?;
                }
                for (n, item) in items.iter().enumerate() {
                    self.at = item.at;
                    let part = self.shifted(to.clone(), n as u32 * size)?;
                    self.initialise(&part, item, of)?;
                }
                Ok(())
            }
            (Kind::List(items), Ty::Struct(index)) => {
                let fields = &self.types.structs[index as usize].fields;
                let places: Vec<(Tid, u32)> = fields.iter().map(|f| (f.ty, f.offset)).collect();
                if items.len() < places.len() {
                    self.clear(to, ty)?;
                }
                for (item, (ty, offset)) in items.iter().zip(places) {
                    self.at = item.at;
                    let part = self.shifted(to.clone(), offset)?;
                    self.initialise(&part, item, ty)?;
                }
                Ok(())
            }
            (_, Ty::Struct(_) | Ty::Array(..)) => {
                let from = self.aggregate(e)?;
                self.copy(to, &from, ty)
            }
            _ => {
                let top = self.top;
                let row = self.value(e)?;
                self.write(to, ty, row)?;
                self.top = top;
                Ok(())
            }
        }
    }

    fn clear(&mut self, to: &Loc, ty: Tid) -> Res<()> {
        let bytes = self.types.size(ty) as u32;
        match to {
            Loc::Thread { at } => {
                self.emit(Inst::ClearThread { at: *at, bytes, zero: true });
                Ok(())
            }
            _ => {
                // Through a zero in thread memory.
                let at = self.alloc_memory(ty)?;
                self.emit(Inst::ClearThread { at, bytes, zero: true });
                self.copy(to, &Loc::Thread { at }, ty)
            }
        }
    }

    /// A new variable; its value, if there is one, is computed before it exists.
    pub(crate) fn declare(&mut self, var: VarId, init: Option<&Expr>) -> Res<()> {
        let info = self.info(var);
        let (ty, name) = (info.ty, info.name.to_string());
        if info.reference {
            let Some(init) = init else { return fail(self.at, "a reference without a place") };
            let place = self.place(init)?;
            let place = self.pinned(place);
            self.bind(var, place);
            return Ok(());
        }
        if info.value.is_some() && !info.in_memory {
            return Ok(());
        }
        if info.in_memory || self.types.rows(ty) == 0 {
            let at = self.alloc_memory(ty)?;
            let to = Loc::Thread { at };
            match init {
                Some(init) => self.initialise(&to, init, ty)?,
                None => {
                    self.emit(Inst::ClearThread { at, bytes: self.types.size(ty) as u32, zero: false });
                }
            }
            self.bind(var, to);
            return Ok(());
        }
        let row = self.alloc_for(ty);
        let mut defined = None;
        match init {
            Some(init) => {
                let top = self.top;
                let made = self.value_to(init, Some(row))?;
                self.move_into(row, made, ty);
                self.top = top;
            }
            None => {
                let (_, n) = self.parts(ty);
                defined = Some(self.new_slots(n, &name));
            }
        }
        self.bind(var, Loc::Reg { row, defined });
        Ok(())
    }

    pub(crate) fn move_into(&mut self, d: Row, a: Row, ty: Tid) {
        if d != a {
            self.emit(Inst::Mov { d, a, n: self.types.rows(ty) });
        }
    }

    /// Marks that note which scalars of a variable have a value; none has yet.
    fn new_slots(&mut self, n: u32, name: &str) -> u32 {
        let slot = self.code.slots;
        self.code.slots += n;
        self.code.names.extend((0..n).map(|_| name.to_owned()));
        self.emit(Inst::Undefine { slot, n });
        slot
    }

    pub(crate) fn info(&self, var: VarId) -> crate::tree::Var {
        let frame = self.frames.last().map_or(usize::MAX, |f| f.function);
        match self.functions.get(frame) {
            Some(function) => function.vars[var as usize].clone(),
            None => self.outer[var as usize].clone(),
        }
    }
}
