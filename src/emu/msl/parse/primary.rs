//! Literals, names, constructors, casts by keyword.

use super::{Candidate, Entry, Parser, names};
use crate::error::{Pos, Res, fail};
use crate::lex::Tok;
use crate::tree::{Expr, Kind, Lvalue};
use crate::types::{Scalar, Space, Tid, Ty, Types};
use std::rc::Rc;

impl Parser {
    pub(crate) fn primary(&mut self) -> Res<Expr> {
        let token = self.peek().clone();
        let at = token.at;
        match &token.tok {
            Tok::Num(text) => {
                self.p += 1;
                self.number(text, at)
            }
            Tok::Char(value) => {
                self.p += 1;
                self.value(Kind::Const(u64::from(*value)), Types::scalar_id(Scalar::Char), at)
            }
            Tok::Sign("(") => {
                self.p += 1;
                let inner = self.expression()?;
                self.require(")")?;
                Ok(inner)
            }
            Tok::Sign("::") => self.name(),
            Tok::Id(_) if self.is_type_at(0) => self.construct(),
            Tok::Id(_) => self.name(),
            Tok::Str(_) => fail(at, "strings are not supported"),
            _ => fail(at, format!("expected expression before '{}'", token.text())),
        }
    }

    pub(crate) fn constant(&self, scalar: Scalar, bits: u64, at: Pos) -> Res<Expr> {
        self.value(Kind::Const(bits), Types::scalar_id(scalar), at)
    }

    fn number(&mut self, text: &str, at: Pos) -> Res<Expr> {
        let Some((scalar, bits)) = names::literal(text) else {
            return fail(at, format!("invalid number '{text}'"));
        };
        if scalar == Scalar::BFloat && self.version < 31 {
            return fail(at, "bfloat needs Metal 3.1");
        }
        self.constant(scalar, bits, at)
    }

    /// `T(...)`, `T{...}`.
    fn construct(&mut self) -> Res<Expr> {
        let at = self.at();
        let spec = self.spec()?;
        if spec.auto {
            return fail(at, "'auto' is not allowed here");
        }
        if self.is("{") {
            return self.braced(spec.ty);
        }
        if !self.is("(") {
            return fail(self.at(), format!("expected '(' for the construction of '{}'", self.types.name(spec.ty)));
        }
        let args = self.arguments()?;
        self.construct_from(spec.ty, args, at)
    }

    pub(crate) fn construct_from(&mut self, ty: Tid, mut args: Vec<Expr>, at: Pos) -> Res<Expr> {
        match self.types.get(ty) {
            _ if args.is_empty() => self.value(Kind::Zero, ty, at),
            Ty::Vec(scalar, lanes) | Ty::Packed(scalar, lanes) if args.len() > 1 => {
                self.make_vector(ty, (scalar, lanes), args, at)
            }
            Ty::Simd(scalar) if args.len() == 1 => {
                let value = self.implicit(args.remove(0), Types::scalar_id(scalar), "a simdgroup matrix")?;
                self.value(Kind::Builtin("make_filled_simdgroup_matrix", vec![value]), ty, at)
            }
            _ if args.len() == 1 => self.explicit(args.remove(0), ty, at),
            Ty::Struct(_) => self.list_of(ty, args, at),
            _ => fail(at, format!("excess elements in the construction of '{}'", self.types.name(ty))),
        }
    }

    fn make_vector(&mut self, ty: Tid, (scalar, lanes): (Scalar, u8), args: Vec<Expr>, at: Pos) -> Res<Expr> {
        let (mut parts, mut count) = (Vec::new(), 0);
        for arg in args {
            let Some((from, n)) = self.types.arith(arg.ty) else {
                let name = self.types.name(arg.ty);
                return fail(arg.at, format!("no conversion from '{name}' to '{}'", scalar.name()));
            };
            if n > 1 && from != scalar {
                let (a, b) = (self.types.name(arg.ty), self.types.name(ty));
                return fail(arg.at, format!("no implicit conversion from '{a}' to a part of '{b}'"));
            }
            count += u32::from(n);
            let part =
                if n == 1 { self.implicit(arg, Types::scalar_id(scalar), "constructing a vector")? } else { arg };
            parts.push(part);
        }
        if count != u32::from(lanes) {
            let few = if count < u32::from(lanes) { "too few" } else { "excess" };
            return fail(at, format!("{few} elements in vector initialization (expected {lanes}, have {count})"));
        }
        self.value(Kind::Make(parts), ty, at)
    }

    /// A name, perhaps with `<...>` and arguments.
    fn name(&mut self) -> Res<Expr> {
        let precise = self.is_word("precise") || self.is_word("fast");
        let start = self.p;
        self.skip_namespaces();
        let qualified = self.p > start && (!precise || self.metal_visible);
        let (word, at) = self.word()?;
        if self.is("::") && matches!(self.lookup(&word), Some(Entry::Type(_))) {
            return self.scoped_enumerator(&word, at);
        }
        if matches!(&*word, "mem_flags" | "memory_order" | "thread_scope") && self.eat("::") {
            if !self.metal_visible && !qualified {
                return fail(at, format!("use of undeclared identifier '{word}'; did you mean 'metal::{word}'?"));
            }
            let (name, at) = self.word()?;
            return self.flag(&name, at);
        }
        let entry = if precise { None } else { self.lookup(&word).cloned() };
        match entry {
            Some(Entry::Var(var)) => self.variable(var, at),
            Some(Entry::Const(mut value)) => {
                value.at = at;
                Ok(value)
            }
            Some(Entry::Static(ty, offset, space)) => {
                let lv = Lvalue { space, constant: space == Space::Constant };
                self.node(Kind::Static(offset), ty, at, Some(lv))
            }
            Some(Entry::Functions(candidates)) => {
                let explicit = self.explicit_arguments(&candidates)?;
                let args = self.arguments()?;
                self.call(&word, &candidates, explicit, args, at)
            }
            Some(Entry::Type(_) | Entry::StructTemplate(_) | Entry::Namespace) => {
                fail(at, format!("unexpected type name '{word}': expected expression"))
            }
            Some(Entry::Member(ty, offset)) => {
                let object = self.this_object(at)?;
                let lv = object.lv;
                self.node(Kind::Member(Box::new(object), offset), ty, at, lv)
            }
            Some(Entry::Method(index)) => {
                let object = self.this_object(at)?;
                self.call_method(index, object, &word, at)
            }
            Some(Entry::ParamValue(_)) => fail(at, "a template's parameter cannot be used in a deduced type"),
            None => {
                let hidden = !self.metal_visible && !qualified && super::builtin::is_builtin(&word);
                if hidden {
                    return fail(at, format!("use of undeclared identifier '{word}'; did you mean 'metal::{word}'?"));
                }
                self.library_name(&word, at)
            }
        }
    }

    fn variable(&mut self, var: u32, at: Pos) -> Res<Expr> {
        let info = &self.now.vars[var as usize];
        let lv = Lvalue { space: info.space, constant: info.constant };
        let ty = info.ty;
        self.node(Kind::Var(var), ty, at, Some(lv))
    }

    fn library_name(&mut self, word: &Rc<str>, at: Pos) -> Res<Expr> {
        match &**word {
            "double" => return fail(at, "'double' is not supported in Metal"),
            "true" => return self.constant(Scalar::Bool, 1, at),
            "false" => return self.constant(Scalar::Bool, 0, at),
            "this" => {
                let object = self.this_object(at)?;
                return self.address_of(object);
            }
            "nullptr" => return self.value(Kind::Zero, Types::VOID, at),
            "as_type" => {
                let to = self.angle_type()?;
                let args = self.arguments()?;
                return self.bit_cast(to, args, at);
            }
            "static_cast" | "reinterpret_cast" => {
                let to = self.angle_type()?;
                let mut args = self.arguments()?;
                if args.len() != 1 {
                    return fail(at, "a cast takes one expression");
                }
                return self.explicit(args.remove(0), to, at);
            }
            "const_cast" => return fail(at, "const_cast is not supported"),
            "sizeof" | "alignof" => return self.size_of(word, at),
            "make_filled_simdgroup_matrix" if self.is("<") => return self.filled_matrix(at),
            "__builtin_expect" if self.is("(") => {
                let mut args = self.arguments()?;
                return if args.is_empty() { fail(at, "too few arguments") } else { Ok(args.remove(0)) };
            }
            _ => {}
        }
        if let Some((scalar, bits)) = names::constant(word) {
            return self.constant(scalar, bits, at);
        }
        if word.starts_with("mem_") || word.starts_with("memory_order_") {
            return self.flag(word, at);
        }
        if self.is("(") && super::builtin::is_builtin(word) {
            let args = self.arguments()?;
            return self.builtin(word, args, at);
        }
        fail(at, format!("use of undeclared identifier '{word}'"))
    }

    fn flag(&mut self, name: &str, at: Pos) -> Res<Expr> {
        let (kind, value) = match name {
            "mem_none" => (0, 0),
            "mem_device" => (0, 1),
            "mem_threadgroup" => (0, 2),
            "mem_texture" => (0, 4),
            "memory_order_relaxed" => (1, 0),
            "memory_order_seq_cst" | "memory_order_acquire" | "memory_order_release" | "memory_order_acq_rel" => (1, 1),
            "thread_scope_thread" | "thread_scope_simdgroup" | "thread_scope_threadgroup" | "thread_scope_device" => {
                (2, 0)
            }
            _ => return fail(at, format!("use of undeclared identifier '{name}'")),
        };
        let ty = self.types.id(Ty::Enum(kind));
        self.value(Kind::Const(value), ty, at)
    }

    fn angle_type(&mut self) -> Res<Tid> {
        self.require("<")?;
        let ty = self.type_name()?;
        self.require(">")?;
        Ok(ty)
    }

    fn bit_cast(&mut self, to: Tid, mut args: Vec<Expr>, at: Pos) -> Res<Expr> {
        if args.len() != 1 {
            return fail(at, "as_type takes one expression");
        }
        let from = args.remove(0);
        let known = [from.ty, to].iter().all(|t| matches!(self.types.get(*t), Ty::Scalar(_) | Ty::Vec(..)));
        if !known || self.types.size(from.ty) != self.types.size(to) {
            let (a, b) = (self.types.name(from.ty), self.types.name(to));
            return fail(at, format!("invalid as_type from '{a}' to '{b}': sizes differ or not plain types"));
        }
        self.value(Kind::Bits(Box::new(from)), to, at)
    }

    fn size_of(&mut self, word: &str, at: Pos) -> Res<Expr> {
        let wrapped = self.is("(");
        let ty = if wrapped && self.is_type_at(1) {
            self.p += 1;
            let ty = self.type_name()?;
            self.require(")")?;
            ty
        } else {
            self.require("(")?;
            let ty = self.expression()?.ty;
            self.require(")")?;
            ty
        };
        let (size, align) = self.types.size_align(ty);
        self.constant(Scalar::ULong, if word == "sizeof" { size } else { align }, at)
    }

    fn filled_matrix(&mut self, at: Pos) -> Res<Expr> {
        self.require("<")?;
        let of = self.type_name()?;
        for _ in 0..2 {
            if self.eat(",") && self.constant_int()? != 8 {
                return fail(at, "a simdgroup matrix is 8 x 8");
            }
        }
        self.require(">")?;
        let args = self.arguments()?;
        match self.types.get(of) {
            Ty::Scalar(scalar) if scalar.is_float() && args.len() == 1 => {
                let ty = self.types.id(Ty::Simd(scalar));
                self.construct_from(ty, args, at)
            }
            _ => fail(at, "make_filled_simdgroup_matrix<T, 8, 8> takes one value"),
        }
    }

    fn scoped_enumerator(&mut self, word: &str, at: Pos) -> Res<Expr> {
        self.require("::")?;
        let (name, name_at) = self.word()?;
        let key = format!("{word}::{name}");
        match self.lookup(&key).cloned() {
            Some(Entry::Const(mut value)) => {
                value.at = at;
                Ok(value)
            }
            _ => fail(name_at, format!("no member named '{name}' in '{word}'")),
        }
    }

    /// `(a, b, c)`.
    pub(crate) fn arguments(&mut self) -> Res<Vec<Expr>> {
        self.require("(")?;
        let mut args = Vec::new();
        while !self.is(")") {
            args.push(self.assignment()?);
            if !self.eat(",") {
                break;
            }
        }
        self.require(")")?;
        Ok(args)
    }

    fn explicit_arguments(&mut self, candidates: &[Candidate]) -> Res<Vec<super::template::Argument>> {
        let template = candidates.iter().any(|c| matches!(c, Candidate::Template(_)));
        if template && self.is("<") { self.template_arguments() } else { Ok(Vec::new()) }
    }
}
