//! Structs: members, layout, member functions, templates of structs.

use super::template::Argument;
use super::{Entry, Parser};
use crate::error::{Pos, Res, fail};
use crate::lex::Tok;
use crate::tree::Expr;
use crate::types::{Field, Space, StructInfo, Tid, Ty};
use std::collections::HashMap;
use std::rc::Rc;

/// Largest struct in bytes.
const MAX_STRUCT: u64 = 1 << 20;

impl Parser {
    /// `struct S { ... }` or the name of one, after `struct`.
    pub(crate) fn struct_type(&mut self) -> Res<Tid> {
        let at = self.at();
        let name = match &self.peek().tok {
            Tok::Id(word) => {
                let word = word.clone();
                self.p += 1;
                Some(word)
            }
            _ => None,
        };
        if self.is_word("alignas") {
            return fail(self.at(), "alignas is not supported");
        }
        if self.is("<") {
            let Some(Entry::StructTemplate(template)) = name.as_ref().and_then(|n| self.lookup(n)).cloned() else {
                return fail(at, "not a template");
            };
            return self.struct_of_template(template, at);
        }
        let known = name.as_ref().and_then(|n| self.lookup(n)).cloned();
        if !self.is("{") && !self.is(":") {
            return match (known, name) {
                (Some(Entry::Type(ty)), _) => Ok(ty),
                (_, Some(name)) => {
                    let ty = self.new_struct(name.clone());
                    self.declare(name, Entry::Type(ty), at)?;
                    Ok(ty)
                }
                _ => fail(at, "expected a struct"),
            };
        }
        let ty = match (known, &name) {
            (Some(Entry::Type(ty)), Some(_)) if self.is_open_struct(ty) => ty,
            (_, Some(name)) => {
                let ty = self.new_struct(name.clone());
                self.declare(name.clone(), Entry::Type(ty), at)?;
                ty
            }
            (_, None) => self.new_struct("(unnamed struct)".into()),
        };
        self.struct_body(ty, HashMap::new())?;
        Ok(ty)
    }

    fn is_open_struct(&self, ty: Tid) -> bool {
        matches!(self.types.get(ty), Ty::Struct(index) if !self.types.structs[index as usize].complete)
    }

    fn new_struct(&mut self, name: Rc<str>) -> Tid {
        self.types.structs.push(StructInfo { name, fields: Vec::new(), size: 0, align: 1, complete: false });
        self.types.id(Ty::Struct((self.types.structs.len() - 1) as u32))
    }

    /// The instance of a struct template whose arguments are next.
    pub(crate) fn struct_of_template(&mut self, template: usize, at: Pos) -> Res<Tid> {
        let given = if self.is("<") { self.template_arguments()? } else { Vec::new() };
        let Some(args) = self.deduce_struct(template, &given)? else {
            let name = self.templates[template].name.clone();
            return fail(at, format!("wrong number of template arguments for '{name}'"));
        };
        if let Some(known) = self.templates[template].instances.iter().find(|i| i.0 == args) {
            let index = known.2 as u32;
            return Ok(self.types.id(Ty::Struct(index)));
        }
        self.count_instance(at)?;
        let shown: Vec<String> = args
            .iter()
            .map(|a| match a {
                Argument::Type(ty) => self.types.name(*ty),
                Argument::Value(_, value) => value.to_string(),
            })
            .collect();
        let name = format!("{}<{}>", self.templates[template].name, shown.join(", "));
        let ty = self.new_struct(name.into());
        let index = (self.types.structs.len() - 1) as u32;
        self.templates[template].instances.push((args.clone(), None, index as usize));
        let mut scope = self.bind(template, &args.into_iter().map(Some).collect::<Vec<_>>());
        let own = self.templates[template].name.clone();
        scope.insert(own, Entry::Type(ty));
        // After `struct NAME`.
        let start = self.templates[template].start + 2;
        let (p, outer) = (std::mem::replace(&mut self.p, start), self.scopes.split_off(1));
        self.scopes.push(scope.clone());
        let made = self.struct_body(ty, scope);
        self.scopes.truncate(1);
        self.scopes.extend(outer);
        self.p = p;
        self.leave();
        made?;
        Ok(ty)
    }

    fn deduce_struct(&mut self, template: usize, given: &[Argument]) -> Res<Option<Vec<Argument>>> {
        let params = &self.templates[template].params;
        let enough = given.len() <= params.len() && params[given.len()..].iter().all(|p| p.default.is_some());
        if !enough {
            return Ok(None);
        }
        let mut found: Vec<Option<Argument>> = given.iter().copied().map(Some).collect();
        found.resize(self.templates[template].params.len(), None);
        self.defaults_of(template, found)
    }

    fn struct_body(&mut self, ty: Tid, around: HashMap<Rc<str>, Entry>) -> Res<()> {
        let Ty::Struct(index) = self.types.get(ty) else { return fail(self.at(), "not a struct") };
        if self.is(":") {
            return fail(self.at(), "inheritance is not supported");
        }
        self.require("{")?;
        self.enter()?;
        let first_template = self.templates.len();
        let (mut fields, mut size, mut align) = (Vec::<Field>::new(), 0_u64, 1_u64);
        let name = self.types.structs[index as usize].name.clone();
        while !self.eat("}") {
            let at = self.at();
            if self.peek().tok == Tok::End {
                return fail(at, "expected '}' at end of file");
            }
            if (self.eat_word("public") || self.eat_word("private")) && self.eat(":") {
                continue;
            }
            if self.is_word("using") || self.is_word("typedef") || self.is_word("static_assert") {
                self.alias()?;
                continue;
            }
            if self.is_member_function(&name) {
                self.member_function(index, &name)?;
                continue;
            }
            let spec = self.spec()?;
            if self.eat(";") {
                continue;
            }
            loop {
                let declared = self.declarator(&spec)?;
                let Some(field) = declared.name.clone() else { return fail(declared.at, "expected a member's name") };
                if spec.is_static {
                    self.static_member(index, &declared, &field)?;
                } else {
                    if declared.reference || self.is("=") {
                        return fail(declared.at, "references and default values of members are not supported");
                    }
                    self.variable_type(declared.ty, &field, declared.at)?;
                    if fields.iter().any(|f| f.name == field) {
                        return fail(declared.at, format!("duplicate member '{field}'"));
                    }
                    while self.is("[") && self.peek_at(1).is("[") {
                        self.skip_balanced()?;
                    }
                    let (bytes, own) = self.types.size_align(declared.ty);
                    let offset = size.next_multiple_of(own);
                    (size, align) = (offset + bytes, align.max(own));
                    if size > MAX_STRUCT {
                        return fail(at, "struct is too large");
                    }
                    fields.push(Field { name: field, ty: declared.ty, offset: offset as u32 });
                }
                if !self.eat(",") {
                    break;
                }
            }
            self.require(";")?;
        }
        self.leave();
        let info = &mut self.types.structs[index as usize];
        info.size = size.next_multiple_of(align).max(1) as u32;
        (info.align, info.complete, info.fields) = (align as u32, true, fields);
        self.show_members(index, around, first_template);
        Ok(())
    }

    /// Lets member functions see members, other member functions and the struct's surroundings.
    fn show_members(&mut self, index: u32, mut around: HashMap<Rc<str>, Entry>, first: usize) {
        for field in &self.types.structs[index as usize].fields {
            around.insert(field.name.clone(), Entry::Member(field.ty, field.offset));
        }
        for (_, name, value) in self.statics.iter().filter(|(of, ..)| *of == index) {
            around.insert(name.clone(), Entry::Const(value.clone()));
        }
        for (of, name) in self.methods.keys() {
            if *of == index {
                around.insert(name.clone(), Entry::Method(index));
            }
        }
        for template in &mut self.templates[first..] {
            if template.of == Some(index) {
                template.around.clone_from(&around);
            }
        }
    }

    fn static_member(&mut self, index: u32, declared: &super::types::Declared, field: &Rc<str>) -> Res<()> {
        let name = self.types.structs[index as usize].name.clone();
        if !self.eat("=") {
            return fail(declared.at, format!("static member '{field}' needs a value"));
        }
        let init = self.initializer(declared.ty)?;
        let Some(bits) = self.known(&init) else {
            return fail(declared.at, format!("initializer of '{field}' is not a constant expression"));
        };
        let value = self.value(crate::tree::Kind::Const(bits), declared.ty, declared.at)?;
        self.scopes[0].insert(format!("{name}::{field}").into(), Entry::Const(value.clone()));
        // For the rest of the struct and its member functions.
        self.statics.push((index, field.clone(), value));
        Ok(())
    }

    /// Whether the member that starts here has parameters.
    fn is_member_function(&self, _name: &str) -> bool {
        if self.is_word("template") {
            return true;
        }
        let mut ahead = 0;
        let mut depth = 0_u32;
        loop {
            let token = self.peek_at(ahead);
            match &token.tok {
                Tok::End => return false,
                Tok::Sign(";" | "=" | "{" | "}") if depth == 0 => return false,
                Tok::Sign("[") => depth += 1,
                Tok::Sign("]") if depth > 0 => depth -= 1,
                Tok::Sign("(") if depth == 0 => return true,
                _ => {}
            }
            ahead += 1;
        }
    }

    fn member_function(&mut self, index: u32, name: &str) -> Res<()> {
        let params = if self.is_word("template") { self.template_parameters()? } else { Vec::new() };
        let start = self.p;
        let (own, at) = self.templated_name()?;
        if name.split('<').next() == Some(&*own) {
            return fail(at, "constructors are not supported: initialise with braces");
        }
        self.p = start;
        self.skip_declaration()?;
        let template = self.add_template(own.clone(), params, start, Some(index));
        self.methods.entry((index, own)).or_default().push(template);
        Ok(())
    }

    /// `object.name(args)`; the parenthesis is next.
    pub(crate) fn call_method(&mut self, index: u32, object: Expr, name: &Rc<str>, at: Pos) -> Res<Expr> {
        let args = self.arguments()?;
        self.call_member(index, object, name, args, at)
    }

    pub(crate) fn call_member(
        &mut self,
        index: u32,
        object: Expr,
        name: &Rc<str>,
        args: Vec<Expr>,
        at: Pos,
    ) -> Res<Expr> {
        let candidates = self.methods.get(&(index, name.clone())).cloned().unwrap_or_default();
        let lv = object.lv.unwrap_or(Self::temporary_lvalue());
        let this = Some((lv.space, lv.constant));
        let mut fitting = Vec::new();
        for template in candidates {
            if let Some(found) = self.deduce(template, &[], &args)? {
                let function = self.instance(template, &found, this, at)?;
                fitting.push(function);
            }
        }
        let mut all = vec![object];
        all.extend(args);
        self.call_best(name, &fitting, all, at)
    }

    /// `object(args)`
    pub(crate) fn call_object(&mut self, object: Expr, at: Pos) -> Res<Expr> {
        let name: Rc<str> = "operator()".into();
        match self.types.get(object.ty) {
            Ty::Struct(index) if self.methods.contains_key(&(index, name.clone())) => {
                self.call_method(index, object, &name, at)
            }
            _ => {
                let ty = self.types.name(object.ty);
                fail(at, format!("called object type '{ty}' is not a function"))
            }
        }
    }

    /// The variable behind `this`.
    pub(crate) fn this_object(&mut self, at: Pos) -> Res<Expr> {
        let Some(var) = self.now.vars.first().filter(|v| &*v.name == "this") else {
            return fail(at, "invalid use of 'this' outside of a member function");
        };
        let lv = crate::tree::Lvalue { space: var.space, constant: var.constant };
        let ty = var.ty;
        self.node(crate::tree::Kind::Var(0), ty, at, Some(lv))
    }

    /// The first parameter of a member function.
    pub(crate) fn this_parameter(&mut self, (of, space, constant): (u32, Space, bool)) -> u32 {
        let ty = self.types.id(Ty::Struct(of));
        self.new_var(crate::tree::Var {
            name: "this".into(),
            ty,
            reference: true,
            space,
            constant,
            in_memory: false,
            value: None,
        })
    }
}
