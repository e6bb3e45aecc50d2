//! Statements.

use super::types::{Declared, Spec};
use super::{Entry, MAX_THREAD_BYTES, Parser};
use crate::error::{Pos, Res, fail};
use crate::lex::Tok;
use crate::tree::{Case, Expr, Kind, Stmt, Var};
use crate::types::{Space, Tid, Ty, Types};
use std::collections::HashMap;

impl Parser {
    /// `{ ... }`
    pub(crate) fn block(&mut self) -> Res<Vec<Stmt>> {
        self.require("{")?;
        self.scopes.push(HashMap::new());
        let body = self.statements()?;
        self.scopes.pop();
        Ok(body)
    }

    fn statements(&mut self) -> Res<Vec<Stmt>> {
        let mut body = Vec::new();
        while !self.eat("}") {
            if self.peek().tok == Tok::End {
                return fail(self.at(), "expected '}' at end of file");
            }
            self.statement(&mut body)?;
        }
        Ok(body)
    }

    fn statement(&mut self, out: &mut Vec<Stmt>) -> Res<()> {
        self.enter()?;
        let made = self.one_statement(out);
        self.leave();
        made
    }

    fn one_statement(&mut self, out: &mut Vec<Stmt>) -> Res<()> {
        let at = self.at();
        while self.is("[") && self.peek_at(1).is("[") {
            self.skip_balanced()?;
        }
        if self.is("{") {
            let body = self.block()?;
            out.push(Stmt::Block(body));
            return Ok(());
        }
        if self.eat(";") {
            return Ok(());
        }
        let word = match &self.peek().tok {
            Tok::Id(word) => word.clone(),
            _ => "".into(),
        };
        match &*word {
            "if" => self.if_statement(out),
            "for" => self.for_statement(out),
            "while" => self.while_statement(out),
            "do" => self.do_statement(out),
            "switch" => self.switch_statement(out),
            "return" => self.return_statement(out),
            "break" | "continue" => {
                self.p += 1;
                let allowed = if &*word == "break" { self.now.breakable } else { self.now.loops };
                if allowed == 0 {
                    return fail(at, format!("'{word}' statement not in a loop"));
                }
                out.push(if &*word == "break" { Stmt::Break } else { Stmt::Continue });
                self.require(";")
            }
            "goto" | "asm" | "try" | "throw" | "new" | "delete" => {
                fail(at, format!("'{word}' is not supported in Metal"))
            }
            "using" | "typedef" | "static_assert" => self.alias(),
            _ if self.is_declaration() => self.local(out),
            _ => {
                let value = self.expression()?;
                out.push(Stmt::Expr(value));
                self.require(";")
            }
        }
    }

    /// Whether a declaration starts here: a type that is not the start of `T(x)` or `T{x}`.
    fn is_declaration(&self) -> bool {
        if !self.is_type_at(0) {
            return false;
        }
        if matches!(self.peek_at(1).tok, Tok::Sign("(" | "{"))
            && !matches!(&self.peek().tok, Tok::Id(w) if &**w == "struct" || &**w == "enum")
        {
            // `T (&r)[4] = a`
            return self.peek_at(1).is("(") && self.peek_at(2).is("&");
        }
        true
    }

    /// A nested statement with a scope of its own.
    fn body(&mut self) -> Res<Vec<Stmt>> {
        let mut out = Vec::new();
        self.scopes.push(HashMap::new());
        self.statement(&mut out)?;
        self.scopes.pop();
        Ok(out)
    }

    fn if_statement(&mut self, out: &mut Vec<Stmt>) -> Res<()> {
        self.p += 1;
        let known = self.eat_word("constexpr");
        self.require("(")?;
        let at = self.at();
        let test = self.expression()?;
        let test = self.condition(test)?;
        self.require(")")?;
        if known {
            let holds = self.int_value(&test, at)? != 0;
            return self.constexpr_if(holds, out);
        }
        let yes = self.body()?;
        let no = if self.eat_word("else") { self.body()? } else { Vec::new() };
        out.push(Stmt::If(test, yes, no));
        Ok(())
    }

    /// The branch that is not taken is not checked.
    fn constexpr_if(&mut self, holds: bool, out: &mut Vec<Stmt>) -> Res<()> {
        let yes = if holds {
            self.body()?
        } else {
            self.skip_statement()?;
            Vec::new()
        };
        let no = match self.eat_word("else") {
            true if holds => {
                self.skip_statement()?;
                Vec::new()
            }
            true => self.body()?,
            false => Vec::new(),
        };
        out.push(Stmt::Block(if holds { yes } else { no }));
        Ok(())
    }

    fn skip_statement(&mut self) -> Res<()> {
        if self.is("{") {
            return self.skip_balanced();
        }
        if self.is_word("if") {
            self.p += 1;
            self.eat_word("constexpr");
            self.skip_balanced()?;
            self.enter()?;
            self.skip_statement()?;
            if self.eat_word("else") {
                self.skip_statement()?;
            }
            self.leave();
            return Ok(());
        }
        while !self.eat(";") {
            match self.peek().tok {
                Tok::End => return fail(self.at(), "expected ';' at end of file"),
                Tok::Sign("(" | "[" | "{") => self.skip_balanced()?,
                _ => self.p += 1,
            }
        }
        Ok(())
    }

    fn loop_body(&mut self) -> Res<Vec<Stmt>> {
        self.now.loops += 1;
        self.now.breakable += 1;
        let body = self.body()?;
        self.now.loops -= 1;
        self.now.breakable -= 1;
        Ok(body)
    }

    fn for_statement(&mut self, out: &mut Vec<Stmt>) -> Res<()> {
        self.p += 1;
        self.require("(")?;
        self.scopes.push(HashMap::new());
        let mut parts = Vec::new();
        if !self.eat(";") {
            if self.is_declaration() {
                self.local(&mut parts)?;
            } else {
                parts.push(Stmt::Expr(self.expression()?));
                self.require(";")?;
            }
        }
        let test = if self.is(";") {
            None
        } else {
            let test = self.expression()?;
            Some(self.condition(test)?)
        };
        self.require(";")?;
        let step = if self.is(")") { None } else { Some(self.expression()?) };
        self.require(")")?;
        let body = self.loop_body()?;
        self.scopes.pop();
        parts.push(Stmt::Loop { test, step, body, test_last: false });
        out.push(Stmt::Block(parts));
        Ok(())
    }

    fn while_statement(&mut self, out: &mut Vec<Stmt>) -> Res<()> {
        self.p += 1;
        self.require("(")?;
        let test = self.expression()?;
        let test = self.condition(test)?;
        self.require(")")?;
        let body = self.loop_body()?;
        out.push(Stmt::Loop { test: Some(test), step: None, body, test_last: false });
        Ok(())
    }

    fn do_statement(&mut self, out: &mut Vec<Stmt>) -> Res<()> {
        self.p += 1;
        let body = self.loop_body()?;
        if !self.eat_word("while") {
            return fail(self.at(), "expected 'while' in do/while loop");
        }
        self.require("(")?;
        let test = self.expression()?;
        let test = self.condition(test)?;
        self.require(")")?;
        self.require(";")?;
        out.push(Stmt::Loop { test: Some(test), step: None, body, test_last: true });
        Ok(())
    }

    fn switch_statement(&mut self, out: &mut Vec<Stmt>) -> Res<()> {
        self.p += 1;
        self.require("(")?;
        let at = self.at();
        let value = self.expression()?;
        let calc = match self.types.arith(value.ty) {
            Some((scalar, 1)) if scalar.is_int() => Types::scalar_id(super::convert::promoted(scalar)),
            _ => return fail(at, "statement requires expression of integer type"),
        };
        let value = self.explicit(value, calc, at)?;
        self.require(")")?;
        self.require("{")?;
        self.scopes.push(HashMap::new());
        self.now.breakable += 1;
        let body = self.cases(calc)?;
        self.now.breakable -= 1;
        self.scopes.pop();
        out.push(Stmt::Switch { value, body });
        Ok(())
    }

    fn cases(&mut self, calc: Tid) -> Res<Vec<Case>> {
        let (mut body, mut seen, mut default) = (Vec::new(), std::collections::HashSet::new(), false);
        while !self.eat("}") {
            let at = self.at();
            if self.eat_word("case") {
                let expr = self.assignment()?;
                let expr = self.explicit(expr, calc, at)?;
                let value = self.int_value(&expr, at)? as u64;
                if !seen.insert(value) {
                    return fail(at, "duplicate case value");
                }
                body.push(Case::Value(value));
                self.require(":")?;
            } else if self.is_word("default") && self.peek_at(1).is(":") {
                self.p += 2;
                if std::mem::replace(&mut default, true) {
                    return fail(at, "multiple default labels in one switch");
                }
                body.push(Case::Default);
            } else {
                if self.peek().tok == Tok::End {
                    return fail(at, "expected '}' at end of file");
                }
                let mut parts = Vec::new();
                self.statement(&mut parts)?;
                body.extend(parts.into_iter().map(Case::Stmt));
            }
        }
        Ok(body)
    }

    fn return_statement(&mut self, out: &mut Vec<Stmt>) -> Res<()> {
        let at = self.next().at;
        self.now.returns = true;
        if self.eat(";") {
            if self.now.ret.is_some_and(|t| t != Types::VOID) {
                return fail(at, "non-void function should return a value");
            }
            self.now.ret = Some(Types::VOID);
            out.push(Stmt::Return(None, at));
            return Ok(());
        }
        let value = match self.now.ret {
            Some(ret) if ret == Types::VOID => {
                let value = self.expression()?;
                if value.ty != Types::VOID {
                    return fail(at, "void function should not return a value");
                }
                out.push(Stmt::Expr(value));
                out.push(Stmt::Return(None, at));
                return self.require(";");
            }
            Some(ret) => self.initializer(ret)?,
            None => {
                let value = self.expression()?;
                let mut value = self.decay(value)?;
                value.lv = None;
                self.now.ret = Some(value.ty);
                value
            }
        };
        out.push(Stmt::Return(Some(value), at));
        self.require(";")
    }

    /// A declaration of variables in a function.
    fn local(&mut self, out: &mut Vec<Stmt>) -> Res<()> {
        let spec = self.spec()?;
        if self.eat(";") {
            return Ok(());
        }
        loop {
            let declared = self.declarator(&spec)?;
            self.local_name(&spec, declared, out)?;
            if !self.eat(",") {
                break;
            }
        }
        self.require(";")
    }

    fn local_name(&mut self, spec: &Spec, declared: Declared, out: &mut Vec<Stmt>) -> Res<()> {
        let at = declared.at;
        let Some(name) = declared.name.clone() else {
            return fail(at, format!("expected a name before '{}'", self.peek().text()));
        };
        if self.is("(") && self.is_type_at(1) {
            return fail(at, "a function is declared inside a function");
        }
        if declared.reference {
            return self.local_reference(spec, declared, name, out);
        }
        match declared.space {
            Some(Space::Threadgroup) => return self.threadgroup_variable(declared, name),
            Some(Space::Device) => return fail(at, format!("variable '{name}' in address space 'device'")),
            Some(Space::Constant) => return self.constant_variable(&declared, name),
            _ if spec.is_static && !declared.constant => {
                return fail(at, format!("static variable '{name}' must be in the constant address space"));
            }
            _ => {}
        }
        let init = self.local_init(spec, &declared)?;
        let ty = match &init {
            Some(init) if spec.auto || matches!(self.types.get(declared.ty), Ty::Array(_, 0)) => init.ty,
            _ => declared.ty,
        };
        self.variable_type(ty, &name, at)?;
        if init.is_none() && declared.constant {
            return fail(at, format!("default initialization of an object of const type '{name}'"));
        }
        let value = init.as_ref().filter(|_| declared.constant).and_then(|e| self.known(e));
        if spec.constexpr && value.is_none() && self.types.arith(ty).is_some_and(|(_, n)| n == 1) {
            return fail(at, format!("constexpr variable '{name}' must be initialized by a constant expression"));
        }
        let in_memory = self.types.is_aggregate(ty);
        let var = Var {
            name: name.clone(),
            ty,
            reference: false,
            space: Space::Thread,
            constant: declared.constant,
            in_memory,
            value,
        };
        let var = self.new_var(var);
        self.declare(name, Entry::Var(var), at)?;
        out.push(Stmt::Let { var, init, at });
        Ok(())
    }

    fn local_init(&mut self, spec: &Spec, declared: &Declared) -> Res<Option<Expr>> {
        let at = declared.at;
        if self.eat("=") || self.is("{") {
            if spec.auto {
                let value = self.assignment()?;
                let mut value = self.decay(value)?;
                value.lv = None;
                return Ok(Some(value));
            }
            return self.initializer(declared.ty).map(Some);
        }
        if self.is("(") {
            let args = self.arguments()?;
            let mut made = self.construct_from(declared.ty, args, at)?;
            made.lv = None;
            return Ok(Some(made));
        }
        if spec.auto {
            return fail(at, "declaration of variable with deduced type 'auto' requires an initializer");
        }
        Ok(None)
    }

    pub(crate) fn variable_type(&self, ty: Tid, name: &str, at: Pos) -> Res<()> {
        let complete = match self.types.get(ty) {
            Ty::Struct(index) => self.types.structs[index as usize].complete,
            Ty::Array(_, count) => count > 0,
            Ty::Void => false,
            _ => true,
        };
        if !complete {
            return fail(at, format!("variable '{name}' has incomplete type '{}'", self.types.name(ty)));
        }
        if self.types.size(ty) > MAX_THREAD_BYTES {
            return fail(at, format!("variable '{name}' is too large for a thread"));
        }
        Ok(())
    }

    fn local_reference(
        &mut self,
        spec: &Spec,
        declared: Declared,
        name: std::rc::Rc<str>,
        out: &mut Vec<Stmt>,
    ) -> Res<()> {
        let at = declared.at;
        if !self.eat("=") && !self.is("(") {
            return fail(at, format!("declaration of reference variable '{name}' requires an initializer"));
        }
        let init = self.assignment()?;
        let ty = if spec.auto { init.ty } else { declared.ty };
        let Some(lv) = init.lv else {
            return fail(at, format!("reference '{name}' cannot bind to a temporary"));
        };
        let space = declared.space.unwrap_or(if spec.auto { lv.space } else { Space::Thread });
        self.check_reference(&init, ty, space, declared.constant, at)?;
        let var = Var {
            name: name.clone(),
            ty,
            reference: true,
            space,
            constant: declared.constant || lv.constant,
            in_memory: false,
            value: None,
        };
        let var = self.new_var(var);
        self.declare(name, Entry::Var(var), at)?;
        out.push(Stmt::Let { var, init: Some(init), at });
        Ok(())
    }

    /// Whether a reference may bind to a place.
    pub(crate) fn check_reference(&self, place: &Expr, ty: Tid, space: Space, constant: bool, at: Pos) -> Res<()> {
        let Some(lv) = place.lv else { return fail(at, "reference cannot bind to a temporary") };
        if matches!(place.kind, Kind::Swizzle(..) | Kind::Element(..)) {
            return fail(at, "reference cannot bind to a vector element");
        }
        if place.ty != ty {
            let (a, b) = (self.types.name(ty), self.types.name(place.ty));
            return fail(at, format!("reference to type '{a}' cannot bind to a value of type '{b}'"));
        }
        if lv.space != space {
            let (a, b) = (space.name(), lv.space.name());
            return fail(at, format!("reference in address space '{a}' cannot bind to an object in '{b}'"));
        }
        if lv.constant && !constant {
            return fail(at, "binding a reference drops 'const' qualifier");
        }
        Ok(())
    }

    fn threadgroup_variable(&mut self, declared: Declared, name: std::rc::Rc<str>) -> Res<()> {
        let at = declared.at;
        if !self.now.kernel {
            return fail(at, format!("threadgroup variable '{name}' outside of a kernel"));
        }
        if self.is("=") || self.is("{") {
            return fail(at, format!("threadgroup variable '{name}' cannot be initialized"));
        }
        let (size, align) = self.types.size_align(declared.ty);
        let offset = u64::from(self.now.threadgroup_bytes).next_multiple_of(align.max(16));
        if matches!(self.types.get(declared.ty), Ty::Array(_, 0) | Ty::Void) || offset + size > crate::MAX_THREADGROUP {
            return fail(
                at,
                format!("threadgroup variable '{name}' does not fit into {} bytes", crate::MAX_THREADGROUP),
            );
        }
        self.now.threadgroup_bytes = (offset + size) as u32;
        self.declare(name, Entry::Static(declared.ty, offset as u32, Space::Threadgroup), at)
    }
}
