//! Initialisers in braces: arrays, structs, vectors.

use super::Parser;
use crate::error::{Pos, Res, fail};
use crate::tree::{Expr, Kind};
use crate::types::{Tid, Ty, Types};

impl Parser {
    /// `{...}` for a value of a type; the opening brace is next.
    pub(crate) fn braced(&mut self, ty: Tid) -> Res<Expr> {
        self.enter()?;
        let at = self.at();
        self.require("{")?;
        let made = match self.types.get(ty) {
            Ty::Array(of, count) => self.braced_array(of, count, at)?,
            Ty::Struct(index) => self.braced_struct(ty, index, at)?,
            _ => {
                let mut args = Vec::new();
                while !self.is("}") {
                    args.push(self.assignment()?);
                    if !self.eat(",") {
                        break;
                    }
                }
                self.require("}")?;
                self.braced_scalar(ty, args, at)?
            }
        };
        self.leave();
        Ok(made)
    }

    fn braced_scalar(&mut self, ty: Tid, mut args: Vec<Expr>, at: Pos) -> Res<Expr> {
        match (self.types.get(ty), args.len()) {
            (Ty::Vec(..) | Ty::Packed(..), 2..) => self.construct_from(ty, args, at),
            (_, 0) => self.value(Kind::Zero, ty, at),
            (_, 1) => self.implicit(args.remove(0), ty, "initializing"),
            _ => fail(at, "excess elements in scalar initializer"),
        }
    }

    fn braced_array(&mut self, of: Tid, count: u32, at: Pos) -> Res<Expr> {
        let mut items = Vec::new();
        while !self.is("}") {
            items.push(self.initializer(of)?);
            if !self.eat(",") {
                break;
            }
        }
        self.require("}")?;
        let have = items.len() as u32;
        if count > 0 && have > count {
            return fail(at, "excess elements in array initializer");
        }
        if count == 0 && have == 0 {
            return fail(at, "an array without a length needs elements");
        }
        let count = if count == 0 { have } else { count };
        let ty = self.types.id(Ty::Array(of, count));
        self.value(Kind::List(items), ty, at)
    }

    fn braced_struct(&mut self, ty: Tid, index: u32, at: Pos) -> Res<Expr> {
        let mut items = Vec::new();
        while !self.is("}") {
            let field = self.types.structs[index as usize].fields.get(items.len()).map(|f| f.ty);
            let Some(field) = field else { return fail(self.at(), "excess elements in struct initializer") };
            if self.is(".") && self.peek_at(2).is("=") {
                self.p += 1;
                let (name, name_at) = self.word()?;
                if self.types.structs[index as usize].fields[items.len()].name != name {
                    return fail(name_at, "designated initializers must follow the order of the members");
                }
                self.require("=")?;
            }
            items.push(self.initializer(field)?);
            if !self.eat(",") {
                break;
            }
        }
        self.require("}")?;
        if items.len() == 1 && items[0].ty == ty {
            return Ok(items.remove(0));
        }
        self.value(Kind::List(items), ty, at)
    }

    /// One initialiser: in braces, or an expression.
    pub(crate) fn initializer(&mut self, ty: Tid) -> Res<Expr> {
        if self.is("{") {
            return self.braced(ty);
        }
        let value = self.assignment()?;
        if ty == Types::VOID {
            return Ok(value);
        }
        let value = if matches!(self.types.get(ty), Ty::Ptr { .. }) { self.decay(value)? } else { value };
        self.implicit(value, ty, "initializing")
    }

    /// A struct from arguments in parentheses.
    pub(crate) fn list_of(&mut self, ty: Tid, args: Vec<Expr>, at: Pos) -> Res<Expr> {
        let Ty::Struct(index) = self.types.get(ty) else { return fail(at, "not a struct") };
        let fields: Vec<Tid> = self.types.structs[index as usize].fields.iter().map(|f| f.ty).collect();
        if args.len() > fields.len() {
            return fail(at, "excess elements in struct initializer");
        }
        let mut items = Vec::new();
        for (arg, field) in args.into_iter().zip(fields) {
            items.push(self.implicit(arg, field, "initializing")?);
        }
        self.value(Kind::List(items), ty, at)
    }
}
