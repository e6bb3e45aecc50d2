//! Tokens → typed tree. Types are checked while parsing, so that a name is known to be a type, a template or a value;
//! a template is a range of tokens that is parsed again for each list of arguments.
//!
//! Left out: classes (constructors, inheritance, access), lambdas, textures and samplers, argument buffers, function
//! pointers, partial specialisation. A template that is never used is only checked for balanced brackets.

mod builtin;
mod builtin_sync;
mod call;
mod convert;
mod declare;
mod expr;
mod function;
mod init;
mod names;
mod operators;
mod primary;
mod stmt;
mod structs;
mod template;
mod types;

use crate::error::{Pos, Res, fail};
use crate::lex::{Tok, Token};
use crate::tree::{Expr, FnId, Function, Kind, Lvalue, Var, VarId};
use crate::types::{Space, Tid, Types};
use std::collections::HashMap;
use std::rc::Rc;
use template::Template;

/// Deepest nesting of brackets and statements, clang's limit too.
const MAX_NESTING: u32 = 256;
/// Longest chain of operators.
const MAX_DEPTH: u32 = 10_000;
/// Most bytes of program-scope constants.
const MAX_CONSTANTS: u64 = 1 << 20;
/// Most bytes of one thread's variables in memory.
pub(crate) const MAX_THREAD_BYTES: u64 = 256 << 10;

/// What a name means.
#[derive(Clone)]
pub(crate) enum Entry {
    Var(VarId),
    Type(Tid),
    Const(Expr),
    /// Type, offset and space of a static object.
    Static(Tid, u32, Space),
    Functions(Vec<Candidate>),
    StructTemplate(usize),
    /// A template's integer parameter, while arguments are deduced.
    ParamValue(u32),
    Namespace,
    /// A member of the object that a member function is called on: type and offset.
    Member(Tid, u32),
    /// A member function of the same struct.
    Method(u32),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Candidate {
    Function(FnId),
    Template(usize),
}

/// Of the function that is being parsed.
#[derive(Default)]
pub(crate) struct Context {
    pub vars: Vec<Var>,
    pub ret: Option<Tid>,
    pub kernel: bool,
    pub loops: u32,
    pub breakable: u32,
    pub threadgroup_bytes: u32,
    pub calls: Vec<(FnId, Pos)>,
    pub returns: bool,
}

pub(crate) struct Parser {
    pub tokens: Rc<[Token]>,
    pub p: usize,
    pub types: Types,
    pub scopes: Vec<HashMap<Rc<str>, Entry>>,
    pub functions: Vec<Function>,
    pub templates: Vec<Template>,
    /// Member functions by struct and name.
    pub methods: HashMap<(u32, Rc<str>), Vec<usize>>,
    /// Bytes of program-scope constants.
    pub constants: Vec<u8>,
    pub now: Context,
    pub nesting: u32,
    pub instances: u32,
    /// The object of the member function that is about to be parsed: struct, space, whether constant.
    pub this: Option<(u32, Space, bool)>,
    /// Static members: struct, name, value.
    pub statics: Vec<(u32, Rc<str>, Expr)>,
    /// `using namespace metal` has been read.
    pub metal_visible: bool,
    /// Language version: 31 for 3.1.
    pub version: u32,
}

impl Parser {
    pub(crate) fn new(tokens: Vec<Token>, version: u32) -> Self {
        Self {
            tokens: tokens.into(),
            p: 0,
            types: Types::new(),
            scopes: vec![HashMap::new()],
            functions: Vec::new(),
            templates: Vec::new(),
            methods: HashMap::new(),
            constants: Vec::new(),
            now: Context::default(),
            nesting: 0,
            instances: 0,
            this: None,
            statics: Vec::new(),
            metal_visible: false,
            version,
        }
    }

    pub(crate) fn peek(&self) -> &Token {
        &self.tokens[self.p]
    }

    pub(crate) fn peek_at(&self, ahead: usize) -> &Token {
        &self.tokens[(self.p + ahead).min(self.tokens.len() - 1)]
    }

    pub(crate) fn at(&self) -> Pos {
        self.peek().at
    }

    pub(crate) fn next(&mut self) -> Token {
        let token = self.peek().clone();
        if token.tok != Tok::End {
            self.p += 1;
        }
        token
    }

    pub(crate) fn is(&self, sign: &str) -> bool {
        self.peek().is(sign)
    }

    pub(crate) fn is_word(&self, word: &str) -> bool {
        self.peek().is_word(word)
    }

    pub(crate) fn eat(&mut self, sign: &str) -> bool {
        let found = self.is(sign);
        self.p += usize::from(found);
        found
    }

    pub(crate) fn eat_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        self.p += usize::from(found);
        found
    }

    pub(crate) fn require(&mut self, sign: &str) -> Res<()> {
        if self.eat(sign) {
            return Ok(());
        }
        let found = self.peek().text();
        fail(self.at(), format!("expected '{sign}' before '{found}'"))
    }

    pub(crate) fn word(&mut self) -> Res<(Rc<str>, Pos)> {
        let token = self.next();
        match token.tok {
            Tok::Id(word) => Ok((word, token.at)),
            _ => fail(token.at, format!("expected identifier before '{}'", token.text())),
        }
    }

    pub(crate) fn enter(&mut self) -> Res<()> {
        self.nesting += 1;
        if self.nesting > MAX_NESTING {
            return fail(self.at(), format!("bracket nesting level exceeded maximum of {MAX_NESTING}"));
        }
        Ok(())
    }

    pub(crate) fn leave(&mut self) {
        self.nesting -= 1;
    }

    /// Skips a bracketed range whose opening sign is next.
    pub(crate) fn skip_balanced(&mut self) -> Res<()> {
        let at = self.at();
        let mut depth = 0_u32;
        loop {
            let token = self.next();
            match &token.tok {
                Tok::Sign("(" | "{" | "[") => depth += 1,
                Tok::Sign(")" | "}" | "]") if depth > 0 => depth -= 1,
                Tok::End => return fail(at, "unbalanced brackets"),
                _ => {}
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    pub(crate) fn node(&self, kind: Kind, ty: Tid, at: Pos, lv: Option<Lvalue>) -> Res<Expr> {
        let depth = 1 + below(&kind);
        if depth > MAX_DEPTH {
            return fail(at, "expression is too deep");
        }
        Ok(Expr { kind, ty, at, lv, depth })
    }

    pub(crate) fn value(&self, kind: Kind, ty: Tid, at: Pos) -> Res<Expr> {
        self.node(kind, ty, at, None)
    }

    pub(crate) fn lookup(&self, name: &str) -> Option<&Entry> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name))
    }

    pub(crate) fn declare(&mut self, name: Rc<str>, entry: Entry, at: Pos) -> Res<()> {
        // PANIC: the program's scope is never closed.
        let scope = self.scopes.last_mut().expect("a scope is open");
        if scope.contains_key(&name) && !matches!(scope[&name], Entry::Namespace) {
            return fail(at, format!("redefinition of '{name}'"));
        }
        scope.insert(name, entry);
        Ok(())
    }

    pub(crate) fn new_var(&mut self, var: Var) -> VarId {
        self.now.vars.push(var);
        (self.now.vars.len() - 1) as VarId
    }

    /// Kernels that a host may launch, in the order of the source.
    pub(crate) fn kernels(&self) -> Vec<FnId> {
        (0..self.functions.len()).filter(|f| self.functions[*f].kernel && self.functions[*f].body.is_some()).collect()
    }

    /// Parses everything.
    pub(crate) fn program(&mut self) -> Res<()> {
        while self.peek().tok != Tok::End {
            self.top_level()?;
        }
        self.check_recursion()
    }
}

/// An integer cut to a type and extended again to 64 bits.
pub(crate) fn fit(bits: u64, to: crate::types::Scalar) -> u64 {
    convert::fit_int(bits, to)
}

/// Whether a function of the library is more than a function of its arguments' values.
pub(crate) fn has_effect(name: &str) -> bool {
    builtin_sync::has_effect(name)
}

fn below(kind: &Kind) -> u32 {
    let list = |items: &[Expr]| items.iter().map(|e| e.depth).max().unwrap_or(0);
    match kind {
        Kind::Const(_) | Kind::Var(_) | Kind::Static(_) | Kind::Zero => 0,
        Kind::Unary(_, e)
        | Kind::Cast(e)
        | Kind::Bits(e)
        | Kind::Swizzle(e, ..)
        | Kind::Member(e, _)
        | Kind::Deref(e)
        | Kind::AddressOf(e)
        | Kind::ThreadElements(e)
        | Kind::Step { place: e, .. } => e.depth,
        Kind::Binary(_, a, b)
        | Kind::PtrAdd(a, b, _)
        | Kind::PtrMove(a, b, _)
        | Kind::PtrDiff(a, b)
        | Kind::Logic(_, a, b)
        | Kind::Assign(a, b)
        | Kind::Compound(a, _, b, _)
        | Kind::Element(a, b)
        | Kind::Comma(a, b) => a.depth.max(b.depth),
        Kind::Cond(a, b, c) => a.depth.max(b.depth).max(c.depth),
        Kind::Call(_, items) | Kind::Builtin(_, items) | Kind::Make(items) | Kind::List(items) => list(items),
    }
}
