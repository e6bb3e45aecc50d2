//! Templates: a range of tokens, parsed again for each list of arguments; deduction of arguments from a call.

use super::{Candidate, Context, Entry, Parser};
use crate::error::{Pos, Res, fail};
use crate::lex::Tok;
use crate::tree::{Expr, FnId, Kind};
use crate::types::{Scalar, Space, Tid, Ty, Types};
use std::collections::HashMap;
use std::rc::Rc;

/// An argument of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Argument {
    Type(Tid),
    Value(Scalar, i64),
}

pub(crate) struct Parameter {
    pub name: Rc<str>,
    /// Type of an integer parameter; else it is a type.
    pub value: Option<Scalar>,
    /// Token at which its default starts.
    pub default: Option<usize>,
}

pub(crate) struct Template {
    pub name: Rc<str>,
    pub params: Vec<Parameter>,
    /// First token after `template <...>`.
    pub start: usize,
    /// Names around it: the arguments of a struct template, the members of a struct.
    pub around: HashMap<Rc<str>, Entry>,
    /// Struct of a member function.
    pub of: Option<u32>,
    pub instances: Vec<Instance>,
}

/// Arguments, space and constness of `this`, number of the function or struct.
type Instance = (Vec<Argument>, Option<(Space, bool)>, usize);

/// Most instances of all templates.
const MAX_INSTANCES: u32 = 4096;

/// State of the parser that a look elsewhere puts aside.
struct Aside {
    p: usize,
    nesting: u32,
    scopes: Vec<HashMap<Rc<str>, Entry>>,
    now: Context,
}

impl Parser {
    /// `template <typename T, int N = 4> ...`
    pub(crate) fn template_declaration(&mut self) -> Res<()> {
        let params = self.template_parameters()?;
        let start = self.p;
        if self.is_word("struct") || self.is_word("class") {
            self.p += 1;
            let (name, at) = self.word()?;
            if self.is("<") {
                return fail(at, "template specialization is not supported");
            }
            let index = self.add_template(name.clone(), params, start, None);
            self.declare(name, Entry::StructTemplate(index), at)?;
            return self.skip_declaration();
        }
        if self.is_word("using") {
            return fail(self.at(), "alias templates are not supported");
        }
        if params.is_empty() {
            return fail(self.at(), "template specialization is not supported");
        }
        let (name, at) = self.templated_name()?;
        self.p = start;
        self.skip_declaration()?;
        let index = self.add_template(name.clone(), params, start, None);
        let entry = self.scopes[0].entry(name.clone()).or_insert_with(|| Entry::Functions(Vec::new()));
        let Entry::Functions(list) = entry else {
            return fail(at, format!("redefinition of '{name}' as a different kind of symbol"));
        };
        list.push(Candidate::Template(index));
        Ok(())
    }

    pub(crate) fn add_template(
        &mut self,
        name: Rc<str>,
        params: Vec<Parameter>,
        start: usize,
        of: Option<u32>,
    ) -> usize {
        self.templates.push(Template { name, params, start, around: HashMap::new(), of, instances: Vec::new() });
        self.templates.len() - 1
    }

    pub(crate) fn template_parameters(&mut self) -> Res<Vec<Parameter>> {
        self.p += 1;
        self.require("<")?;
        let mut params = Vec::new();
        while !self.is(">") {
            let value = if self.eat_word("typename") || self.eat_word("class") {
                None
            } else {
                let at = self.at();
                let ty = self.type_name_before_name()?;
                match self.types.get(ty) {
                    Ty::Scalar(scalar) if scalar.is_int() => Some(scalar),
                    _ => return fail(at, "a template's parameter is a type or an integer"),
                }
            };
            let name = match &self.peek().tok {
                Tok::Id(word) => {
                    let word = word.clone();
                    self.p += 1;
                    word
                }
                _ => "".into(),
            };
            let default = if self.eat("=") {
                let start = self.p;
                self.skip_template_argument()?;
                Some(start)
            } else {
                None
            };
            params.push(Parameter { name, value, default });
            if !self.eat(",") {
                break;
            }
        }
        self.require(">")?;
        Ok(params)
    }

    fn type_name_before_name(&mut self) -> Res<Tid> {
        Ok(self.spec()?.ty)
    }

    fn skip_template_argument(&mut self) -> Res<()> {
        let mut depth = 0_u32;
        loop {
            match self.peek().tok {
                Tok::End => return fail(self.at(), "expected '>'"),
                Tok::Sign("(" | "[" | "{") => {
                    self.skip_balanced()?;
                    continue;
                }
                Tok::Sign("<") => depth += 1,
                Tok::Sign("," | ">") if depth == 0 => return Ok(()),
                Tok::Sign(">") => depth -= 1,
                _ => {}
            }
            self.p += 1;
        }
    }

    /// The name of a function whose types may be unknown yet: the word before the first parenthesis.
    pub(crate) fn templated_name(&mut self) -> Res<(Rc<str>, Pos)> {
        let mut last = None;
        loop {
            let token = self.peek().clone();
            match &token.tok {
                Tok::End | Tok::Sign("{" | ";" | "=") => {
                    return fail(token.at, "expected a function behind 'template'");
                }
                Tok::Sign("[") => {
                    self.skip_balanced()?;
                    continue;
                }
                Tok::Id(word) if &**word == "operator" => {
                    let mut name = String::from("operator");
                    self.p += 1;
                    while !self.is("(") || (name == "operator" && self.peek_at(1).is(")")) {
                        let Tok::Sign(sign) = self.next().tok else { return fail(token.at, "invalid operator name") };
                        name.push_str(sign);
                    }
                    return Ok((name.into(), token.at));
                }
                Tok::Id(word) if &**word == "__attribute__" => {
                    self.p += 1;
                    self.skip_balanced()?;
                    continue;
                }
                Tok::Id(word) => last = Some((word.clone(), token.at)),
                Tok::Sign("(") => {
                    return last.map_or_else(|| fail(token.at, "expected a function's name"), Ok);
                }
                _ => {}
            }
            self.p += 1;
        }
    }

    /// Skips a body or a semicolon and all before it.
    pub(crate) fn skip_declaration(&mut self) -> Res<()> {
        loop {
            match self.peek().tok {
                Tok::End => return fail(self.at(), "expected ';' or a body at end of file"),
                Tok::Sign(";") => {
                    self.p += 1;
                    return Ok(());
                }
                Tok::Sign("{") => {
                    self.skip_balanced()?;
                    self.eat(";");
                    return Ok(());
                }
                Tok::Sign("(" | "[") => self.skip_balanced()?,
                _ => self.p += 1,
            }
        }
    }

    /// `<float, 4>`
    pub(crate) fn template_arguments(&mut self) -> Res<Vec<Argument>> {
        self.require("<")?;
        self.enter()?;
        let mut args = Vec::new();
        while !self.is(">") {
            args.push(self.template_argument()?);
            if !self.eat(",") {
                break;
            }
        }
        self.leave();
        self.require(">")?;
        Ok(args)
    }

    fn template_argument(&mut self) -> Res<Argument> {
        if self.is_type_at(0) {
            return Ok(Argument::Type(self.type_name()?));
        }
        Ok(Argument::Value(Scalar::Int, self.constant_int()?))
    }

    fn aside(&mut self, p: usize) -> Aside {
        let nesting = self.nesting;
        let scopes = self.scopes.split_off(1);
        Aside { p: std::mem::replace(&mut self.p, p), nesting, scopes, now: std::mem::take(&mut self.now) }
    }

    fn back(&mut self, aside: Aside) {
        self.p = aside.p;
        self.nesting = aside.nesting;
        self.scopes.truncate(1);
        self.scopes.extend(aside.scopes);
        self.now = aside.now;
    }

    /// Names of a template's arguments; those without one stand for themselves.
    pub(crate) fn bind(&self, template: usize, args: &[Option<Argument>]) -> HashMap<Rc<str>, Entry> {
        let mut scope = HashMap::new();
        for (n, param) in self.templates[template].params.iter().enumerate() {
            let entry = match args.get(n).copied().flatten() {
                Some(Argument::Type(ty)) => Entry::Type(ty),
                Some(Argument::Value(_, value)) => {
                    let scalar = param.value.unwrap_or(Scalar::Int);
                    let bits = super::convert::fit_int(value as u64, scalar);
                    let ty = Types::scalar_id(scalar);
                    Entry::Const(Expr { kind: Kind::Const(bits), ty, at: Pos::default(), lv: None, depth: 1 })
                }
                None if param.value.is_some() => Entry::ParamValue(n as u32),
                None => continue,
            };
            scope.insert(param.name.clone(), entry);
        }
        scope
    }

    /// All arguments: what is given, what follows from the call, defaults.
    pub(crate) fn deduce(
        &mut self,
        template: usize,
        explicit: &[Argument],
        args: &[Expr],
    ) -> Res<Option<Vec<Argument>>> {
        let count = self.templates[template].params.len();
        if explicit.len() > count {
            return Ok(None);
        }
        let mut found: Vec<Option<Argument>> = explicit.iter().copied().map(Some).collect();
        found.resize(count, None);
        if found.iter().any(Option::is_none) {
            let Some(patterns) = self.patterns(template, &found)? else { return Ok(None) };
            if patterns.len() != args.len() {
                return Ok(None);
            }
            for ((pattern, reference), arg) in patterns.iter().zip(args) {
                let mut actual = arg.ty;
                if !reference && let (Ty::Array(of, _), Some(lv)) = (self.types.get(actual), arg.lv) {
                    actual = self.types.ptr(of, lv.space, lv.constant);
                }
                if !self.unify(*pattern, actual, &mut found) {
                    return Ok(None);
                }
            }
        }
        self.defaults_of(template, found)
    }

    pub(crate) fn defaults_of(
        &mut self,
        template: usize,
        mut found: Vec<Option<Argument>>,
    ) -> Res<Option<Vec<Argument>>> {
        for n in 0..found.len() {
            if found[n].is_some() {
                continue;
            }
            let Some(start) = self.templates[template].params[n].default else { return Ok(None) };
            let scope = self.bind(template, &found);
            let aside = self.aside(start);
            self.scopes.push(self.templates[template].around.clone());
            self.scopes.push(scope);
            let made = self.template_argument();
            self.back(aside);
            found[n] = Some(made?);
        }
        Ok(found.into_iter().collect())
    }

    /// The types of the parameters with unknown arguments as themselves, and which are references.
    fn patterns(&mut self, template: usize, found: &[Option<Argument>]) -> Res<Option<Vec<(Tid, bool)>>> {
        self.instances += 1;
        if self.instances > 16 * MAX_INSTANCES {
            return fail(self.at(), "too many template instantiations");
        }
        let mut scope = self.bind(template, found);
        let unknown: Vec<(usize, Rc<str>)> = self.templates[template]
            .params
            .iter()
            .enumerate()
            .filter(|(n, p)| found[*n].is_none() && p.value.is_none())
            .map(|(n, p)| (n, p.name.clone()))
            .collect();
        for (n, name) in unknown {
            let ty = self.types.id(Ty::Param(n as u32));
            scope.insert(name, Entry::Type(ty));
        }
        let aside = self.aside(self.templates[template].start);
        self.scopes.push(self.templates[template].around.clone());
        self.scopes.push(scope);
        let made = self.pattern_parameters();
        self.back(aside);
        Ok(made.ok())
    }

    fn pattern_parameters(&mut self) -> Res<Vec<(Tid, bool)>> {
        self.templated_name()?;
        let (params, _) = self.parameters()?;
        Ok(params.iter().map(|v| &self.now.vars[*v as usize]).map(|v| (v.ty, v.reference)).collect())
    }

    fn unify(&self, pattern: Tid, actual: Tid, found: &mut [Option<Argument>]) -> bool {
        let mut set = |n: u32, arg: Argument| {
            let Some(place) = found.get_mut(n as usize) else { return false };
            match (*place, arg) {
                (None, _) => {
                    *place = Some(arg);
                    true
                }
                (Some(Argument::Value(_, a)), Argument::Value(_, b)) => a == b,
                (Some(old), _) => old == arg,
            }
        };
        match (self.types.get(pattern), self.types.get(actual)) {
            (Ty::Param(n), _) => set(n, Argument::Type(actual)),
            (Ty::VecParam(t, n), Ty::Vec(scalar, lanes)) => {
                let lanes_ok =
                    if n < 8 { n == u32::from(lanes) } else { set(n - 8, Argument::Value(Scalar::Int, lanes.into())) };
                lanes_ok && set(t, Argument::Type(Types::scalar_id(scalar)))
            }
            (Ty::ArrayParam(a, n), Ty::Array(b, count)) => {
                set(n, Argument::Value(Scalar::Int, count.into())) && self.unify(a, b, found)
            }
            (Ty::Ptr { to: a, space: s, constant: c }, Ty::Ptr { to: b, space: t, constant: d }) => {
                s == t && (c || !d) && self.unify(a, b, found)
            }
            (Ty::Array(a, n), Ty::Array(b, m)) => n == m && self.unify(a, b, found),
            (Ty::Struct(a), Ty::Struct(b)) if a != b => self.unify_structs(a, b, found),
            // What does not depend on the arguments may still convert.
            _ => !self.types.is_template(pattern),
        }
    }

    fn unify_structs(&self, a: u32, b: u32, found: &mut [Option<Argument>]) -> bool {
        let origin = |s: u32| {
            self.templates.iter().enumerate().find_map(|(t, template)| {
                let instance = template.of.is_none().then(|| {
                    template.instances.iter().find(|i| i.1.is_none() && i.2 == s as usize && self.is_struct_template(t))
                });
                instance.flatten().map(|i| (t, i.0.clone()))
            })
        };
        let (Some((s, left)), Some((t, right))) = (origin(a), origin(b)) else { return false };
        s == t
            && left.iter().zip(&right).all(|(l, r)| match (l, r) {
                (Argument::Type(l), Argument::Type(r)) => self.unify(*l, *r, found),
                _ => l == r,
            })
    }

    fn is_struct_template(&self, template: usize) -> bool {
        let token = &self.tokens[self.templates[template].start];
        token.is_word("struct") || token.is_word("class")
    }

    /// Remembers one more instance, within the limit.
    pub(crate) fn count_instance(&mut self, at: Pos) -> Res<()> {
        self.instances += 1;
        if self.instances > 16 * MAX_INSTANCES || self.functions.len() > MAX_INSTANCES as usize {
            return fail(at, "too many template instantiations");
        }
        self.enter()
    }

    pub(crate) fn instance(
        &mut self,
        template: usize,
        args: &[Argument],
        this: Option<(Space, bool)>,
        at: Pos,
    ) -> Res<FnId> {
        let known = self.templates[template].instances.iter().find(|i| i.0 == args && i.1 == this);
        if let Some(known) = known {
            return Ok(known.2);
        }
        self.make_instance(template, args, this, at, &super::function::Traits::default())
    }

    fn make_instance(
        &mut self,
        template: usize,
        args: &[Argument],
        this: Option<(Space, bool)>,
        at: Pos,
        traits: &super::function::Traits,
    ) -> Res<FnId> {
        self.count_instance(at)?;
        let scope = self.bind(template, &args.iter().copied().map(Some).collect::<Vec<_>>());
        let aside = self.aside(self.templates[template].start);
        self.scopes.push(self.templates[template].around.clone());
        self.scopes.push(scope);
        self.this = self.templates[template].of.zip(this).map(|(of, (space, constant))| (of, space, constant));
        let first = self.functions.len();
        let made = self.function(Some(traits));
        self.back(aside);
        self.leave();
        let made = made?;
        self.templates[template].instances.push((args.to_vec(), this, made));
        debug_assert!(made >= first);
        Ok(made)
    }

    /// `template [[host_name("x")]] kernel void f<float>(device float*);`
    pub(crate) fn explicit_instantiation(&mut self) -> Res<()> {
        let at = self.next().at;
        let traits = self.function_attributes()?;
        let spec = self.spec()?;
        let late = self.function_attributes()?;
        let traits = super::function::Traits {
            host_name: traits.host_name.or(late.host_name),
            max_threads: traits.max_threads.or(late.max_threads),
            kernel: traits.kernel || late.kernel,
        };
        let _ = spec;
        let (name, name_at) = self.word()?;
        let Some(Entry::Functions(list)) = self.lookup(&name).cloned() else {
            return fail(name_at, format!("explicit instantiation of '{name}' does not refer to a function template"));
        };
        let explicit = if self.is("<") { self.template_arguments()? } else { Vec::new() };
        let params = self.signature()?;
        self.require(";")?;
        for candidate in list {
            let Candidate::Template(template) = candidate else { continue };
            if let Some(args) = self.deduce(template, &explicit, &params)? {
                self.make_instance(template, &args, None, at, &traits)?;
                return Ok(());
            }
        }
        fail(name_at, format!("explicit instantiation of '{name}' does not refer to a function template"))
    }

    /// The types in a parameter list, as expressions without a value.
    fn signature(&mut self) -> Res<Vec<Expr>> {
        let outer = std::mem::take(&mut self.now);
        self.scopes.push(HashMap::new());
        let made = self.parameters();
        self.scopes.pop();
        let now = std::mem::replace(&mut self.now, outer);
        let (params, _) = made?;
        let vars = params.iter().map(|v| &now.vars[*v as usize]);
        vars.map(|v| self.value(Kind::Zero, v.ty, Pos::default())).collect()
    }
}
