//! Declarations at program scope: aliases, enumerations, constants, namespaces; and the values of constants.

use super::types::Declared;
use super::{Entry, MAX_CONSTANTS, Parser};
use crate::error::{Pos, Res, fail};
use crate::lex::Tok;
use crate::tree::{Expr, Kind};
use crate::types::{EnumInfo, Scalar, Space, Tid, Ty};
use std::rc::Rc;

impl Parser {
    pub(crate) fn top_level(&mut self) -> Res<()> {
        let at = self.at();
        if self.eat(";") {
            return Ok(());
        }
        let word = match &self.peek().tok {
            Tok::Id(word) => word.clone(),
            Tok::Sign("[") => "".into(),
            _ => return fail(at, format!("expected a declaration before '{}'", self.peek().text())),
        };
        match &*word {
            "using" | "typedef" | "static_assert" => self.alias(),
            "namespace" => self.namespace(),
            "extern" if matches!(self.peek_at(1).tok, Tok::Str(_)) => {
                fail(at, "linkage specifications are not supported")
            }
            "template" if self.peek_at(1).is("<") => self.template_declaration(),
            "template" => self.explicit_instantiation(),
            _ => self.function_or_constant(),
        }
    }

    fn namespace(&mut self) -> Res<()> {
        self.p += 1;
        if !self.is("{") {
            let (name, at) = self.word()?;
            self.declare(name, Entry::Namespace, at)?;
            while self.eat("::") {
                let (name, at) = self.word()?;
                self.declare(name, Entry::Namespace, at)?;
            }
        }
        self.require("{")?;
        self.enter()?;
        while !self.eat("}") {
            if self.peek().tok == Tok::End {
                return fail(self.at(), "expected '}' at end of file");
            }
            self.top_level()?;
        }
        self.leave();
        Ok(())
    }

    /// `using`, `typedef`, `static_assert`.
    pub(crate) fn alias(&mut self) -> Res<()> {
        let (word, at) = self.word()?;
        match &*word {
            "static_assert" => self.static_assert(at)?,
            "typedef" => {
                let spec = self.spec()?;
                let declared = self.declarator(&spec)?;
                let Some(name) = declared.name else { return fail(declared.at, "typedef without a name") };
                self.declare(name, Entry::Type(declared.ty), declared.at)?;
            }
            _ if self.eat_word("namespace") => {
                let (name, at) = self.word()?;
                if !self.is_namespace(&name) {
                    return fail(at, format!("expected namespace name before '{name}'"));
                }
                while self.eat("::") {
                    self.word()?;
                }
                self.metal_visible |= &*name == "metal";
            }
            _ if self.peek_at(1).is("=") => {
                let (name, at) = self.word()?;
                self.p += 1;
                let ty = self.type_name()?;
                self.declare(name, Entry::Type(ty), at)?;
            }
            // `using metal::min;`
            _ => {
                self.skip_namespaces();
                self.word()?;
            }
        }
        self.require(";")
    }

    fn static_assert(&mut self, at: Pos) -> Res<()> {
        self.require("(")?;
        let test_at = self.at();
        let test = self.assignment()?;
        let test = self.condition(test)?;
        let holds = self.int_value(&test, test_at)? != 0;
        let mut text = String::new();
        while self.eat(",") || matches!(self.peek().tok, Tok::Str(_)) {
            if let Tok::Str(part) = &self.peek().tok {
                text.push_str(part);
                self.p += 1;
            }
        }
        self.require(")")?;
        if holds { Ok(()) } else { fail(at, format!("static assertion failed: {text}")) }
    }

    /// `enum class E : uint { A = 1, B }`, after `enum`.
    pub(crate) fn enum_type(&mut self, at: Pos) -> Res<Tid> {
        let scoped = self.eat_word("class") || self.eat_word("struct");
        let name = if let Tok::Id(word) = &self.peek().tok {
            let word = word.clone();
            self.p += 1;
            Some(word)
        } else {
            None
        };
        let mut under = Scalar::Int;
        if self.eat(":") {
            let ty = self.type_name()?;
            match self.types.get(ty) {
                Ty::Scalar(scalar) if scalar.is_int() => under = scalar,
                _ => return fail(at, "an enumeration's underlying type is an integer"),
            }
        }
        if !self.is("{") {
            return fail(self.at(), "expected '{' of an enumeration");
        }
        self.p += 1;
        let text = name.clone().unwrap_or_else(|| "(unnamed enum)".into());
        self.types.enums.push(EnumInfo { name: text, under, scoped });
        let ty = self.types.id(Ty::Enum((self.types.enums.len() - 1) as u32));
        if let Some(name) = &name {
            self.declare(name.clone(), Entry::Type(ty), at)?;
        }
        let mut next = 0_i64;
        while !self.is("}") {
            let (label, label_at) = self.word()?;
            if self.eat("=") {
                next = self.constant_int()?;
            }
            let value = super::convert::fit_int(next as u64, under);
            let value = self.value(Kind::Const(value), ty, label_at)?;
            if let Some(name) = &name {
                self.declare(format!("{name}::{label}").into(), Entry::Const(value.clone()), label_at)?;
            }
            if !scoped {
                self.declare(label, Entry::Const(value), label_at)?;
            }
            next = next.wrapping_add(1);
            if !self.eat(",") {
                break;
            }
        }
        self.require("}")?;
        Ok(ty)
    }

    /// `constant float table[4] = {...};`
    pub(crate) fn constant_variable(&mut self, declared: &Declared, name: Rc<str>) -> Res<()> {
        let at = declared.at;
        let init = if self.eat("=") || self.is("{") {
            self.initializer(declared.ty)?
        } else if self.is("(") {
            let args = self.arguments()?;
            self.construct_from(declared.ty, args, at)?
        } else {
            return fail(at, format!("variable '{name}' in the constant address space must be initialized"));
        };
        let ty = if matches!(self.types.get(declared.ty), Ty::Array(_, 0)) { init.ty } else { declared.ty };
        let unknown = format!("initializer of '{name}' is not a constant expression");
        if matches!(self.types.get(ty), Ty::Scalar(_) | Ty::Enum(_)) {
            let Some(bits) = self.known(&init) else { return fail(at, unknown) };
            let value = self.value(Kind::Const(bits), ty, at)?;
            // Kept in memory as well, for those that take its address.
            return self.declare(name, Entry::Const(value), at);
        }
        let (size, align) = self.types.size_align(ty);
        let offset = (self.constants.len() as u64).next_multiple_of(align.max(16));
        if offset + size > MAX_CONSTANTS {
            return fail(at, "too many bytes of program-scope constants");
        }
        let mut bytes = vec![0; size as usize];
        if !self.fill(&init, ty, &mut bytes) {
            return fail(at, unknown);
        }
        self.constants.resize(offset as usize, 0);
        self.constants.extend(bytes);
        self.declare(name, Entry::Static(ty, offset as u32, Space::Constant), at)
    }

    /// Writes the value of an initialiser as memory has it; `false`: it is not constant.
    fn fill(&mut self, init: &Expr, ty: Tid, into: &mut [u8]) -> bool {
        match (&init.kind, self.types.get(ty)) {
            (Kind::Zero, _) => true,
            (Kind::List(items), Ty::Array(of, _)) => {
                let size = self.types.size(of) as usize;
                items.iter().zip(into.chunks_mut(size)).all(|(item, part)| self.fill(item, of, part))
            }
            (Kind::List(items), Ty::Struct(index)) => {
                let fields = &self.types.structs[index as usize].fields;
                let places: Vec<(Tid, usize)> = fields.iter().map(|f| (f.ty, f.offset as usize)).collect();
                items.iter().zip(places).all(|(item, (ty, offset))| {
                    let size = self.types.size(ty) as usize;
                    self.fill(item, ty, &mut into[offset..offset + size])
                })
            }
            _ => {
                let Some((scalar, _)) = self.types.arith(ty) else { return false };
                let Some(parts) = self.evaluate(init) else { return false };
                let size = scalar.bytes() as usize;
                for (part, out) in parts.iter().zip(into.chunks_mut(size)) {
                    let bits = match scalar {
                        Scalar::Half => u64::from(crate::exec::half::half_bits(*part as u32)),
                        Scalar::BFloat => *part >> 16,
                        _ => *part,
                    };
                    out.copy_from_slice(&bits.to_le_bytes()[..size]);
                }
                true
            }
        }
    }

    /// The value of a constant scalar.
    pub(crate) fn known(&mut self, expr: &Expr) -> Option<u64> {
        let (scalar, lanes) = self.types.arith(expr.ty)?;
        if lanes != 1 {
            return None;
        }
        let bits = *self.evaluate(expr)?.first()?;
        Some(if scalar.is_float() { bits } else { super::convert::fit_int(bits, scalar) })
    }

    /// Computes an expression without memory and parameters: a value for each scalar in it.
    pub(crate) fn evaluate(&mut self, expr: &Expr) -> Option<Vec<u64>> {
        if let Kind::Const(bits) = expr.kind {
            return Some(vec![bits]);
        }
        if !self.is_constant(expr) {
            return None;
        }
        crate::lower::evaluate(self, expr)
    }

    fn is_constant(&self, expr: &Expr) -> bool {
        match &expr.kind {
            Kind::Const(_) | Kind::Zero => true,
            Kind::Var(var) => self.now.vars.get(*var as usize).is_some_and(|v| v.value.is_some()),
            Kind::Static(_) => expr.lv.is_some_and(|lv| lv.space == Space::Constant),
            Kind::Unary(_, e)
            | Kind::Cast(e)
            | Kind::Bits(e)
            | Kind::Swizzle(e, ..)
            | Kind::Deref(e)
            | Kind::Member(e, _)
            | Kind::AddressOf(e) => self.is_constant(e),
            Kind::Binary(_, a, b) | Kind::Logic(_, a, b) | Kind::Comma(a, b) | Kind::PtrAdd(a, b, _) => {
                self.is_constant(a) && self.is_constant(b)
            }
            Kind::Element(a, b) => self.is_constant(a) && self.is_constant(b),
            Kind::Cond(a, b, c) => self.is_constant(a) && self.is_constant(b) && self.is_constant(c),
            Kind::Make(items) => items.iter().all(|e| self.is_constant(e)),
            Kind::Builtin(name, items) => {
                !super::builtin_sync::has_effect(name) && items.iter().all(|e| self.is_constant(e))
            }
            Kind::Call(function, items) => {
                self.functions[*function].body.is_some() && items.iter().all(|e| self.is_constant(e))
            }
            _ => false,
        }
    }

    fn function_or_constant(&mut self) -> Res<()> {
        let start = self.p;
        let traits = self.function_attributes()?;
        if self.peek().tok == Tok::End {
            return fail(self.at(), "expected a declaration");
        }
        let at = self.at();
        let spec = self.spec()?;
        if self.eat(";") {
            return Ok(());
        }
        if traits.kernel || self.declares_function() {
            self.p = start;
            self.function(None).map(|_| ())?;
            return Ok(());
        }
        loop {
            let declared = self.declarator(&spec)?;
            let Some(name) = declared.name.clone() else {
                return fail(declared.at, format!("expected a name before '{}'", self.peek().text()));
            };
            if declared.space != Some(Space::Constant) {
                return fail(at, format!("program scope variable '{name}' must reside in constant address space"));
            }
            if spec.auto {
                return fail(at, "'auto' is not allowed for a program scope variable");
            }
            self.constant_variable(&declared, name)?;
            if !self.eat(",") {
                break;
            }
        }
        self.require(";")
    }

    /// Whether a function's name and its parameters follow; the type has been read.
    fn declares_function(&self) -> bool {
        let mut ahead = 0;
        loop {
            let token = self.peek_at(ahead);
            match &token.tok {
                Tok::Sign("*" | "&") => ahead += 1,
                Tok::Id(word) if &**word == "operator" => return true,
                Tok::Id(word) if matches!(&**word, "const" | "device" | "constant" | "thread" | "threadgroup") => {
                    ahead += 1;
                }
                Tok::Id(_) => {
                    if !self.peek_at(ahead + 1).is("(") {
                        return false;
                    }
                    let inner = self.peek_at(ahead + 2);
                    return inner.is(")")
                        || self.is_type_at(ahead + 2)
                        || matches!(&inner.tok, Tok::Id(w) if self.lookup(w).is_none());
                }
                _ => return false,
            }
        }
    }
}
