//! PTX text → [`Module`]: module-level items and declarations. `body` parses function bodies.
//!
//! The parser accepts the ISA's grammar as nvcc, Triton and our renderer write it. It does not check whether an
//! instruction allows its modifiers and operands; that is up to the readers of the module.

use super::bodies::{Bodies, Tree};
use super::lex::{Kind, Lexer, Token};
use super::module::{Function, Imm, Init, Item, Linkage, Module, Operand, Pointer, Pos, Tuning, Variable};
use super::name::Name;
use super::names::{Counted, Numbered, Space, Type};
use super::stems::Stems;
use hashbrown::HashMap;

/// A syntax error and its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    #[error("{}:{}: expected {expected}, found {found}", pos.line, pos.column)]
    Expected { pos: Pos, expected: String, found: String },
    #[error("{}:{}: {what} nested deeper than {}", pos.line, pos.column, MAX_DEPTH)]
    TooDeep { pos: Pos, what: &'static str },
}

impl ParseError {
    pub(super) fn expected(pos: Pos, expected: &str, found: &str) -> ParseError {
        // The offending text may be a line of any length, so it is cut.
        let found = match found.char_indices().nth(60) {
            Some((n, _)) => format!("{}...", found.get(..n).unwrap_or_default()),
            None => found.to_owned(),
        };
        ParseError::Expected { pos, expected: expected.to_owned(), found }
    }

    /// The error without its position.
    #[must_use]
    pub fn what(&self) -> String {
        let (whole, Pos { line, column }) = (self.to_string(), self.pos());
        whole.strip_prefix(&format!("{line}:{column}: ")).map_or_else(|| whole.clone(), str::to_owned)
    }

    /// The position: line and column, from 1.
    #[must_use]
    pub const fn pos(&self) -> Pos {
        match self {
            ParseError::Expected { pos, .. } | ParseError::TooDeep { pos, .. } => *pos,
        }
    }
}

/// Maximum nesting depth: blocks, initialisers, operands.
pub(super) const MAX_DEPTH: u32 = 64;

type Res<T> = Result<T, ParseError>;

/// Parses a module.
///
/// # Errors
/// The first syntax error.
pub fn parse(text: &str) -> Result<Module, ParseError> {
    parse_with(text, &mut Tree::default())
}

/// [`parse`] with another representation of bodies.
///
/// # Errors
/// As [`parse`].
pub(crate) fn parse_with<'a, B: Bodies<'a>>(text: &'a str, bodies: &mut B) -> Result<Module<B::Body>, ParseError> {
    let mut p = Parser::new(text)?;
    let mut m = Module { address_bits: 64, ..Module::default() };
    while p.tok.kind != Kind::End {
        p.top(&mut m, bodies)?;
    }
    Ok(m)
}

/// The registers declared in one block.
#[derive(Default)]
pub(super) struct Scope<'a> {
    /// Single registers, with their numbers.
    pub names: HashMap<&'a str, u32>,
    /// Ranges of registers, with the number of the first.
    pub ranges: Vec<(Counted<'a>, u32)>,
    /// Vectors: a name, or with a count the names of a range; the number of the first lane, and the lanes of each.
    vectors: Vec<(Counted<'a>, Option<&'a str>, u32, u8)>,
    /// Some of the names do not begin with `%`.
    pub bare: bool,
}

impl<'a> Scope<'a> {
    /// Declares a register, or with a count a range of registers, with so many lanes each. `first` is the number of the
    /// first.
    pub(crate) fn declare(&mut self, name: &'a str, count: Option<u32>, first: u32, lanes: u8) {
        self.bare |= !name.starts_with('%');
        if lanes > 1 {
            let one = if count.is_none() { Some(name) } else { None };
            self.vectors.push((Counted::new(name, count.unwrap_or(0)), one, first, lanes));
            return;
        }
        match count {
            Some(n) => self.ranges.push((Counted::new(name, n), first)),
            None => {
                self.names.insert(name, first);
            }
        }
    }

    /// The number of a register.
    #[inline]
    pub(crate) fn number(&self, word: &str, taken_apart: &Numbered) -> Option<u32> {
        if !self.names.is_empty()
            && let Some(number) = self.names.get(word)
        {
            return Some(*number);
        }
        self.ranges.iter().find_map(|(range, first)| range.number(taken_apart).map(|k| first.saturating_add(k)))
    }

    /// The number of a vector's first lane, and its number of lanes.
    pub(crate) fn vector(&self, word: &str) -> Option<(u32, u8)> {
        if self.vectors.is_empty() {
            return None;
        }
        let taken_apart = Numbered::of(word.as_bytes());
        self.vectors.iter().find_map(|(range, name, first, lanes)| {
            let k = match name {
                Some(name) => (*name == word).then_some(0),
                None => range.number(&taken_apart),
            };
            k.map(|k| (first.saturating_add(k.saturating_mul((*lanes).into())), *lanes))
        })
    }
}

pub(super) struct Parser<'a> {
    pub lexer: Lexer<'a>,
    pub tok: Token<'a>,
    pub scopes: Vec<Scope<'a>>,
    pub stems: Stems,
    /// Number of registers that the body has declared so far.
    pub registers: u32,
    /// The register parameters of the last function header.
    passed: Vec<&'a str>,
    pub depth: u32,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Res<Parser<'a>> {
        let (mut lexer, mut tok) = (Lexer::new(text), Token { kind: Kind::End, pos: Pos::default() });
        lexer.next(&mut tok)?;
        let (scopes, stems) = (vec![Scope::default()], Stems::default());
        Ok(Parser { lexer, tok, scopes, stems, registers: 0, passed: vec![], depth: 0 })
    }

    // --- scopes ---

    /// Declares a register or a range of registers, with so many lanes each.
    pub(crate) fn declare(&mut self, name: &'a str, count: Option<u32>, lanes: u8) {
        let first = self.registers;
        self.registers = first.saturating_add(count.unwrap_or(1).saturating_mul(lanes.into()));
        let Some(scope) = self.scopes.last_mut() else { return };
        scope.declare(name, count, first, lanes);
        match count {
            Some(n) if lanes <= 1 => self.stems.range(name, first, n),
            _ => self.stems.name(name),
        }
    }

    /// The number of a vector's first lane, and its number of lanes.
    pub(super) fn vector_register(&self, word: &str) -> Option<(u32, u8)> {
        self.scopes.iter().rev().find_map(|scope| scope.vector(word))
    }

    /// Leaves the innermost scope.
    pub(crate) fn leave(&mut self) {
        self.scopes.pop();
        self.stems = Stems::default();
        for scope in &self.scopes {
            scope.ranges.iter().for_each(|(range, first)| self.stems.range(range.stem(), *first, range.count));
            scope.names.keys().for_each(|name| self.stems.name(name));
            scope.vectors.iter().for_each(|v| self.stems.name(v.1.unwrap_or(v.0.stem())));
        }
    }

    // --- tokens ---

    #[inline]
    pub(super) fn advance(&mut self) -> Res<()> {
        self.lexer.next(&mut self.tok)
    }

    /// An error at this token.
    pub(crate) fn wanted<T>(&self, expected: &str) -> Res<T> {
        let found = match self.tok.kind {
            Kind::Word(w) | Kind::Number(w) => format!("`{w}`"),
            Kind::Text(t) => format!("\"{t}\""),
            Kind::Sign(c) => format!("`{}`", char::from(c)),
            Kind::End => "the end of the text".to_owned(),
        };
        Err(ParseError::expected(self.tok.pos, expected, &found))
    }

    pub(super) fn is_sign(&self, c: u8) -> bool {
        self.tok.kind == Kind::Sign(c)
    }

    /// Takes the punctuation character if it is the current token.
    pub(crate) fn sign(&mut self, c: u8) -> Res<bool> {
        let here = self.is_sign(c);
        if here {
            self.advance()?;
        }
        Ok(here)
    }

    pub(crate) fn need(&mut self, c: u8, after: &str) -> Res<()> {
        if self.sign(c)? {
            return Ok(());
        }
        self.wanted(&format!("`{}` {after}", char::from(c)))
    }

    pub(crate) fn is_word(&self, word: &str) -> bool {
        self.tok.kind == Kind::Word(word)
    }

    /// Takes the word if it is the current token.
    pub(crate) fn word(&mut self, word: &str) -> Res<bool> {
        let here = self.is_word(word);
        if here {
            self.advance()?;
        }
        Ok(here)
    }

    /// A directive, without its dot; if several are joined (`.reg.u64`), the first.
    pub(crate) fn directive(&mut self) -> Option<&'a str> {
        let Kind::Word(w) = self.tok.kind else { return None };
        let rest = w.strip_prefix('.')?;
        let Some((first, rest)) = rest.split_once('.') else { return Some(rest) };
        self.lexer.at -= rest.len() + 1;
        self.tok.kind = Kind::Word(w.get(..=first.len()).unwrap_or(w));
        Some(first)
    }

    /// A name that is not a directive.
    pub(crate) fn name(&mut self, what: &str) -> Res<Name> {
        match self.tok.kind {
            Kind::Word(w) if !w.starts_with('.') => {
                self.advance()?;
                Ok(Name::from(w))
            }
            _ => self.wanted(what),
        }
    }

    pub(crate) fn text(&mut self, what: &str) -> Res<&'a str> {
        match self.tok.kind {
            Kind::Text(t) => {
                self.advance()?;
                Ok(t)
            }
            _ => self.wanted(what),
        }
    }

    /// An unsigned number.
    pub(crate) fn count(&mut self, what: &str) -> Res<u64> {
        match self.tok.kind {
            Kind::Number(n) => match super::number::integer(n) {
                Some(v) => {
                    self.advance()?;
                    Ok(v)
                }
                None => self.wanted(what),
            },
            _ => self.wanted(what),
        }
    }

    /// An unsigned number, or a constant expression.
    fn size(&mut self, what: &str) -> Res<u64> {
        let at = self.tok;
        match self.constant()? {
            Imm::Int(n) => u64::try_from(n).map_err(|_| ParseError::expected(at.pos, what, &n.to_string())),
            _ => Err(ParseError::expected(at.pos, what, "a floating-point constant")),
        }
    }

    pub(super) fn count32(&mut self, what: &str) -> Res<u32> {
        let at = self.tok;
        let n = self.count(what)?;
        u32::try_from(n).map_err(|_| ParseError::expected(at.pos, &format!("{what} below 2^32"), &n.to_string()))
    }

    /// Runs `f` one nesting level deeper.
    pub(crate) fn deeper<T>(&mut self, what: &'static str, f: impl FnOnce(&mut Self) -> Res<T>) -> Res<T> {
        if self.depth >= MAX_DEPTH {
            return Err(ParseError::TooDeep { pos: self.tok.pos, what });
        }
        self.depth += 1;
        let r = f(self);
        self.depth -= 1;
        r
    }

    /// `item, item, ...` up to and including the closing character.
    pub(crate) fn list<T>(&mut self, close: u8, mut item: impl FnMut(&mut Self) -> Res<T>) -> Res<Vec<T>> {
        if self.sign(close)? {
            return Ok(Vec::new());
        }
        let mut out = Vec::with_capacity(4);
        loop {
            out.push(item(self)?);
            if self.sign(close)? {
                return Ok(out);
            }
            if !self.sign(b',')? {
                return self.wanted(&format!("`,` or `{}`", char::from(close)));
            }
        }
    }

    // --- outside functions ---

    fn top<B: Bodies<'a>>(&mut self, m: &mut Module<B::Body>, bodies: &mut B) -> Res<()> {
        let Some(word) = self.directive() else {
            return self.wanted("a directive, such as .visible, .entry or .global");
        };
        let pos = self.tok.pos;
        match word {
            "version" => {
                self.advance()?;
                m.version = self.version()?;
            }
            "target" => {
                self.advance()?;
                m.target = vec![self.name("a target, such as sm_90a")?];
                while self.sign(b',')? {
                    let option = self.name("an option of .target")?;
                    m.target.push(option);
                }
            }
            "address_size" => {
                self.advance()?;
                m.address_bits = self.count32("32 or 64")?;
            }
            "file" => m.items.push(self.file()?),
            "pragma" => m.items.push(Item::Pragma(self.pragma()?)),
            "section" => m.items.push(self.section()?),
            "alias" => {
                self.advance()?;
                let name = self.name("the new name")?;
                self.need(b',', "after the new name")?;
                let of = self.name("a function")?;
                self.need(b';', "after .alias")?;
                m.items.push(Item::Alias { name, of });
            }
            _ => {
                let linkage = self.linkage()?;
                match self.directive() {
                    Some(kind @ ("entry" | "func")) => {
                        self.advance()?;
                        let f = self.function(pos, linkage, kind == "entry", bodies)?;
                        m.items.push(Item::Function(Box::new(f)));
                    }
                    _ => m.items.push(Item::Variable(self.variable(pos, linkage)?)),
                }
            }
        }
        Ok(())
    }

    fn version(&mut self) -> Res<(u32, u32)> {
        let parts = match self.tok.kind {
            Kind::Number(n) => n.split_once('.').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?))),
            _ => None,
        };
        match parts {
            Some(v) => {
                self.advance()?;
                Ok(v)
            }
            None => self.wanted("a version, such as 8.8"),
        }
    }

    fn linkage(&mut self) -> Res<Linkage> {
        let l = match self.directive() {
            Some("visible") => Linkage::Visible,
            Some("extern") => Linkage::Extern,
            Some("weak") => Linkage::Weak,
            Some("common") => Linkage::Common,
            _ => return Ok(Linkage::Module),
        };
        self.advance()?;
        Ok(l)
    }

    fn file<B>(&mut self) -> Res<Item<B>> {
        self.advance()?;
        let number = self.count("a file's number")?;
        let path = self.text("a path in quotes")?.to_owned();
        let mut facts = Vec::new();
        while self.sign(b',')? {
            facts.push(self.count("a number")?);
        }
        Ok(Item::File { number, path, facts })
    }

    pub(super) fn pragma(&mut self) -> Res<Vec<String>> {
        self.advance()?;
        let mut words = vec![self.text("a string")?.to_owned()];
        while self.sign(b',')? {
            words.push(self.text("a string")?.to_owned());
        }
        self.need(b';', "after .pragma")?;
        Ok(words)
    }

    /// Debug information: all words up to the closing brace.
    fn section<B>(&mut self) -> Res<Item<B>> {
        self.advance()?;
        let name = match self.tok.kind {
            Kind::Word(w) => Name::from(w),
            _ => return self.wanted("a section's name"),
        };
        self.advance()?;
        self.need(b'{', "after a section's name")?;
        let mut words = Vec::new();
        loop {
            match self.tok.kind {
                Kind::Sign(b'}') => break,
                Kind::Word(w) | Kind::Number(w) => words.push(w.to_owned()),
                Kind::Sign(c @ (b',' | b':' | b'+' | b'-')) => words.push(char::from(c).to_string()),
                _ => return self.wanted("data or `}`"),
            }
            self.advance()?;
        }
        self.advance()?;
        Ok(Item::Section { name, words })
    }

    // --- functions ---

    fn function<B: Bodies<'a>>(
        &mut self,
        pos: Pos,
        linkage: Linkage,
        entry: bool,
        bodies: &mut B,
    ) -> Res<Function<B::Body>> {
        let mut tuning = self.tuning()?;
        self.passed.clear();
        let returns = if self.is_sign(b'(') { self.params()? } else { vec![] };
        let name = self.name("a function's name")?;
        let params = if self.is_sign(b'(') { self.params()? } else { vec![] };
        tuning.append(&mut self.tuning()?);
        let body = if self.sign(b';')? {
            None
        } else if self.is_sign(b'{') {
            self.registers = 0;
            Some(self.body(entry, &returns, &params, bodies)?)
        } else {
            return self.wanted("`{`, `;` or a directive such as .maxntid");
        };
        Ok(Function { pos, linkage, entry, name, returns, params, tuning, body })
    }

    /// A function's body. Results and parameters that are registers are declared in an enclosing scope.
    fn body<B: Bodies<'a>>(
        &mut self,
        entry: bool,
        returns: &[Variable],
        params: &[Variable],
        bodies: &mut B,
    ) -> Res<B::Body> {
        let names = std::mem::take(&mut self.passed);
        let passed: Vec<&Variable> = returns.iter().chain(params).filter(|v| v.space == Space::Reg).collect();
        if let Some(v) = passed.first()
            && (entry || passed.iter().any(|v| v.vector > 1 || !v.dims.is_empty()))
        {
            return Err(ParseError::expected(v.pos, "a parameter in .param, or a scalar register of a .func", &v.name));
        }
        if passed.is_empty() {
            self.scope(bodies)?;
            return Ok(bodies.body());
        }
        self.scopes.push(Scope::default());
        for name in names {
            self.declare(name, None, 1);
        }
        bodies.passed(&passed, returns.iter().filter(|v| v.space == Space::Reg).count());
        let done = self.scope(bodies);
        self.leave();
        done.map(|()| bodies.body())
    }

    pub(crate) fn params(&mut self) -> Res<Vec<Variable>> {
        self.need(b'(', "before parameters")?;
        self.list(b')', |p| {
            let pos = p.tok.pos;
            p.declaration(pos, Linkage::Module)
        })
    }

    pub(crate) fn tuning(&mut self) -> Res<Vec<Tuning>> {
        let mut out = Vec::new();
        while let Some(word) = self.directive() {
            if word == "pragma" {
                out.push(Tuning::Pragma(self.pragma()?));
                continue;
            }
            let most = match word {
                "maxntid" | "reqntid" | "reqnctapercluster" => 3,
                "minnctapersm"
                | "maxnctapersm"
                | "maxnreg"
                | "maxclusterrank"
                | "abi_preserve"
                | "abi_preserve_control" => 1,
                "noreturn" | "explicitcluster" | "blocksareclusters" => 0,
                _ => return self.wanted("a body or a directive such as .maxntid"),
            };
            let name = Name::from(word);
            self.advance()?;
            let mut numbers = Vec::new();
            while numbers.len() < most && matches!(self.tok.kind, Kind::Number(_)) {
                numbers.push(self.count("a number")?);
                if !(numbers.len() < most && self.sign(b',')?) {
                    break;
                }
            }
            if numbers.is_empty() && most > 0 {
                return self.wanted("a number");
            }
            out.push(Tuning::Numbers(name, numbers));
        }
        Ok(out)
    }

    // --- variables ---

    /// A declaration up to its semicolon.
    pub(crate) fn variable(&mut self, pos: Pos, linkage: Linkage) -> Res<Variable> {
        let mut v = self.declaration(pos, linkage)?;
        if self.sign(b'=')? {
            v.init = Some(self.init()?);
        }
        self.need(b';', "after a declaration")?;
        Ok(v)
    }

    /// Space, alignment, type and name of a variable or parameter.
    fn declaration(&mut self, pos: Pos, linkage: Linkage) -> Res<Variable> {
        let space = match self.directive() {
            Some(w) => match Space::parse(w) {
                Some(s) => s,
                None => return self.wanted("a directive or a state space, such as .global"),
            },
            None => return self.wanted("a state space, such as .global"),
        };
        self.advance()?;
        let mut v = Variable {
            pos,
            linkage,
            space,
            align: None,
            vector: 1,
            ty: Type::B8,
            name: "".into(),
            dims: vec![],
            ptr: None,
            attributes: vec![],
            init: None,
        };
        let mut typed = false;
        while let Some(word) = self.directive() {
            self.advance()?;
            match word {
                "align" => {
                    let align = Some(self.count32("an alignment in bytes")?);
                    match &mut v.ptr {
                        Some(p) => p.align = align,
                        None => v.align = align,
                    }
                }
                "v2" => v.vector = 2,
                "v4" => v.vector = 4,
                "ptr" => v.ptr = Some(Pointer { space: None, align: None }),
                "attribute" => {
                    self.need(b'(', "after .attribute")?;
                    v.attributes = self.list(b')', Self::attribute)?;
                }
                w => match (Type::parse(w), Space::parse(w), &mut v.ptr) {
                    (Some(t), ..) if !typed => (v.ty, typed) = (t, true),
                    (_, Some(s), Some(p)) => p.space = Some(s),
                    _ => return Err(ParseError::expected(pos, "a type, .align or a name in this declaration", w)),
                },
            }
        }
        if !typed {
            return self.wanted("a type, such as .b32");
        }
        if let (Space::Reg, Kind::Word(name)) = (space, self.tok.kind) {
            self.passed.push(name);
        }
        v.name = self.name("a variable's name")?;
        while self.sign(b'[')? {
            let len = if self.is_sign(b']') { None } else { Some(self.size("a number of elements")?) };
            self.need(b']', "after an array's length")?;
            v.dims.push(len);
        }
        Ok(v)
    }

    fn attribute(&mut self) -> Res<Name> {
        let Kind::Word(w) = self.tok.kind else { return self.wanted("an attribute") };
        self.advance()?;
        let mut text = w.to_owned();
        if self.sign(b'(')? {
            let args = self.list(b')', |p| p.count("a number"))?;
            let args: Vec<String> = args.iter().map(u64::to_string).collect();
            text = format!("{w}({})", args.join(","));
        }
        Ok(text.into())
    }

    fn init(&mut self) -> Res<Init> {
        if self.sign(b'{')? {
            let list = self.deeper("initialisers", |p| p.list(b'}', Self::init))?;
            return Ok(Init::List(list));
        }
        if self.word("generic")? {
            self.need(b'(', "after generic")?;
            let name = self.name("a variable's name")?;
            self.need(b')', "after the name")?;
            let offset = self.offset()?;
            return Ok(Init::Generic(name, offset));
        }
        let value = self.operand(&mut Tree::default())?;
        match value {
            Operand::Imm(Imm::Int(mask)) if self.is_sign(b'(') => {
                self.advance()?;
                let of = self.deeper("initialisers", Self::init)?;
                self.need(b')', "after a masked address")?;
                Ok(Init::Masked(mask, Box::new(of)))
            }
            Operand::Imm(_) | Operand::Symbol(..) => Ok(Init::Value(value)),
            _ => self.wanted("a constant or a name before this"),
        }
    }
}
