//! Parses function bodies: statements, instructions, operands.

use super::bodies::{Bodies, Head, Operands, Predicate};
use super::lex::{Kind, is_name};
use super::module::{Imm, Inlined, Linkage, Loc, Modifier, Pos, Registers, Statement};
use super::name::Name;
use super::names::{self, Numbered, Opcode, Space, Type, is_special};
use super::parse::{ParseError, Parser, Scope};

type Res<T> = Result<T, ParseError>;

/// The operation that a mnemonic names, and its modifiers; `None`: there is no such instruction.
pub(crate) fn mnemonic(word: &str) -> Option<(Opcode, impl Iterator<Item = Modifier>)> {
    let mut parts = names::parts(word);
    let op = Opcode::parse(parts.next()?)?;
    Some((op, parts.map(|w| Modifier::of(w, Name::from))))
}

impl<'a> Parser<'a> {
    /// `{ statements }` with a name scope of its own.
    pub(super) fn scope<B: Bodies<'a>>(&mut self, out: &mut B) -> Res<()> {
        self.scopes.push(Scope::default());
        out.open();
        let done = self.block(out);
        out.close();
        self.leave();
        done
    }

    /// `{ statements }`.
    fn block<B: Bodies<'a>>(&mut self, out: &mut B) -> Res<()> {
        self.need(b'{', "before a body")?;
        self.deeper("blocks", |p| {
            while !p.is_sign(b'}') {
                if p.tok.kind == Kind::End {
                    return p.wanted("`}` at the end of a body");
                }
                p.statement(out)?;
            }
            p.advance()
        })
    }

    fn statement<B: Bodies<'a>>(&mut self, out: &mut B) -> Res<()> {
        let pos = self.tok.pos;
        match self.tok.kind {
            Kind::Sign(b'{') => self.scope(out),
            Kind::Sign(b';') => self.advance(),
            Kind::Sign(b'@') => {
                let guard = self.guard()?;
                let pos = self.tok.pos;
                match self.tok.kind {
                    Kind::Word(w) if !w.starts_with('.') => self.inst(w, pos, Some(guard), out),
                    _ => self.wanted("an instruction"),
                }
            }
            Kind::Word(w) if w.starts_with('.') => {
                out.statement(self.inner_directive(pos)?);
                Ok(())
            }
            Kind::Word(w) if self.is_quick() => self.inst(w, pos, None, out),
            Kind::Word(w) => {
                self.advance()?;
                if self.is_sign(b':') {
                    out.label(w, pos);
                    return self.advance();
                }
                self.slow_inst(w, pos, None, out)
            }
            _ => self.wanted("an instruction, a label, a directive or `}`"),
        }
    }

    fn inner_directive(&mut self, pos: Pos) -> Res<Statement> {
        match self.directive() {
            Some("reg") => self.registers(pos),
            Some("loc") => self.loc(),
            Some("pragma") => Ok(Statement::Pragma(self.pragma()?)),
            Some(word @ ("branchtargets" | "calltargets")) => {
                self.advance()?;
                let names = self.list(b';', |p| p.name("a label"))?;
                Ok(Statement::Targets { calls: word == "calltargets", names })
            }
            Some("callprototype") => {
                self.advance()?;
                let returns = if self.is_sign(b'(') { self.params()? } else { vec![] };
                self.name("`_`")?;
                let params = if self.is_sign(b'(') { self.params()? } else { vec![] };
                let tuning = self.tuning()?;
                self.need(b';', "after .callprototype")?;
                Ok(Statement::Prototype { returns, params, tuning })
            }
            Some("extern") => {
                self.advance()?;
                Ok(Statement::Variable(self.variable(pos, Linkage::Extern)?))
            }
            Some(w) if Space::parse(w).is_some() => Ok(Statement::Variable(self.variable(pos, Linkage::Module)?)),
            _ => self.wanted("a directive that may stand in a body, such as .reg"),
        }
    }

    fn registers(&mut self, pos: Pos) -> Res<Statement> {
        if let Some((ty, name, count)) = self.quick_range() {
            self.declare(name, Some(count), 1);
            self.advance()?;
            let names = vec![(Name::from(name), Some(count))];
            return Ok(Statement::Registers(Registers { pos, vector: 1, ty, names }));
        }
        self.advance()?;
        let mut vector = 1;
        let mut ty = None;
        while let Some(w) = self.directive() {
            match (w, Type::parse(w)) {
                ("v2", _) => vector = 2,
                ("v4", _) => vector = 4,
                (_, Some(t)) => ty = Some(t),
                _ => return self.wanted("a type of registers, such as .b32"),
            }
            self.advance()?;
        }
        let Some(ty) = ty else { return self.wanted("a type of registers, such as .b32") };
        let names = self.list(b';', |p| {
            let Kind::Word(w) = p.tok.kind else { return p.wanted("a register's name") };
            let name = p.name("a register's name")?;
            let count = if p.sign(b'<')? {
                let n = p.count32("a number of registers")?;
                p.need(b'>', "after the number of registers")?;
                Some(n)
            } else {
                None
            };
            p.declare(w, count, vector);
            Ok((name, count))
        })?;
        Ok(Statement::Registers(Registers { pos, vector, ty, names }))
    }

    fn loc(&mut self) -> Res<Statement> {
        self.advance()?;
        let [file, line, column] = self.place()?;
        let mut inlined = None;
        if self.sign(b',')? {
            if !self.word("function_name")? {
                return self.wanted("`function_name`");
            }
            let function = self.name("a label of a debug section")?;
            let offset = self.offset()?;
            self.need(b',', "after the function's name")?;
            if !self.word("inlined_at")? {
                return self.wanted("`inlined_at`");
            }
            inlined = Some(Inlined { function, offset, at: self.place()? });
        }
        Ok(Statement::Loc(Loc { file, line, column, inlined }))
    }

    fn place(&mut self) -> Res<[u64; 3]> {
        Ok([self.count("a file's number")?, self.count("a line")?, self.count("a column")?])
    }

    // --- instructions ---

    fn guard(&mut self) -> Res<Predicate<'a>> {
        if let Some(guard) = self.quick_guard() {
            self.advance()?;
            return Ok(guard);
        }
        self.advance()?;
        let negated = self.sign(b'!')?;
        let (name, number) = self.predicate()?;
        Ok(Predicate { name, number, negated })
    }

    /// The name and number of a register.
    fn predicate(&mut self) -> Res<(&'a str, u32)> {
        if let Kind::Word(name) = self.tok.kind
            && let Some(number) = self.register(name)
        {
            self.advance()?;
            return Ok((name, number));
        }
        self.wanted("a predicate register that is declared here")
    }

    /// An instruction that starts with this word.
    fn inst<B: Bodies<'a>>(&mut self, word: &'a str, pos: Pos, guard: Option<Predicate<'a>>, out: &mut B) -> Res<()> {
        if !self.is_quick() {
            self.advance()?;
            return self.slow_inst(word, pos, guard, out);
        }
        let mnemonic = Self::mnemonic(word, pos, out)?;
        self.quick_insts(Head { pos, guard, mnemonic }, out)
    }

    /// The rest of an instruction after its first word.
    fn slow_inst<B: Bodies<'a>>(
        &mut self,
        word: &'a str,
        pos: Pos,
        guard: Option<Predicate<'a>>,
        out: &mut B,
    ) -> Res<()> {
        let mnemonic = Self::mnemonic(word, pos, out)?;
        out.begin(Head { pos, guard, mnemonic });
        if !self.sign(b';')? {
            self.operands(out)?;
        }
        out.end();
        Ok(())
    }

    /// Parses a mnemonic with its modifiers.
    fn mnemonic<B: Bodies<'a>>(word: &'a str, pos: Pos, out: &mut B) -> Res<B::Mnemonic> {
        if let Some(known) = out.known(word) {
            return Ok(known);
        }
        let Some(new) = Self::learnt(word, out) else {
            return Err(ParseError::expected(pos, "an instruction", &format!("`{word}`")));
        };
        Ok(new)
    }

    /// Parses a mnemonic that was not seen before; `None`: there is no such instruction.
    pub(super) fn learnt<B: Bodies<'a>>(word: &'a str, out: &mut B) -> Option<B::Mnemonic> {
        let (op, mods) = mnemonic(word)?;
        Some(out.learn(word, op, mods))
    }

    /// Operands from the current token to the end of the instruction.
    pub(super) fn operands<B: Bodies<'a>>(&mut self, out: &mut B) -> Res<()> {
        loop {
            let operand = self.operand(out)?;
            out.push(operand);
            if self.sign(b';')? {
                return Ok(());
            }
            if !self.is_sign(b',') {
                return self.wanted("`,` or `;`");
            }
            let ended = self.quick_operands(out);
            self.advance()?;
            if ended {
                return Ok(());
            }
        }
    }

    // --- operands ---

    pub(super) fn operand<M: Operands<'a>>(&mut self, make: &mut M) -> Res<M::Operand> {
        let first = self.simple(make)?;
        if self.is_sign(b'|') { self.paired(first, make) } else { Ok(first) }
    }

    /// A pair of `first` and the operand after the `|` at the current token.
    fn paired<M: Operands<'a>>(&mut self, first: M::Operand, make: &mut M) -> Res<M::Operand> {
        self.advance()?;
        let second = self.simple(make)?;
        Ok(make.pair(first, second))
    }

    fn simple<M: Operands<'a>>(&mut self, make: &mut M) -> Res<M::Operand> {
        match self.tok.kind {
            Kind::Word("WARP_SZ") => Ok(make.immediate(self.constant()?)),
            Kind::Word(w) if !w.starts_with('.') => {
                let pos = self.tok.pos;
                self.advance()?;
                match self.named(w, pos, make)? {
                    Some(operand) => Ok(operand),
                    None => {
                        let offset = self.offset()?;
                        Ok(make.symbol(w, offset))
                    }
                }
            }
            Kind::Number(_) | Kind::Sign(b'-' | b'+' | b'~') => Ok(make.immediate(self.constant()?)),
            Kind::Sign(b'!') if !self.is_name_next() => Ok(make.immediate(self.constant()?)),
            Kind::Sign(b'!') => {
                self.advance()?;
                let (name, number) = self.predicate()?;
                Ok(make.not(name, number))
            }
            Kind::Sign(b'{') => {
                self.advance()?;
                let parts = self.deeper("operands", |p| p.list(b'}', |p| p.operand(make)))?;
                Ok(make.vector(parts))
            }
            Kind::Sign(b'(') => {
                let (lexer, tok) = (self.lexer.clone(), self.tok);
                if self.deeper("operands", Self::is_expression)? {
                    (self.lexer, self.tok) = (lexer, tok);
                    return Ok(make.immediate(self.constant()?));
                }
                (self.lexer, self.tok) = (lexer, tok);
                self.advance()?;
                let list = self.deeper("operands", |p| p.list(b')', |p| p.operand(make)))?;
                Ok(make.parenthesised(list, tok.pos))
            }
            Kind::Sign(b'[') => self.deeper("operands", |p| p.address(make)),
            _ => self.wanted("an operand"),
        }
    }

    /// Whether a name follows the current token.
    fn is_name_next(&self) -> bool {
        let rest = self.lexer.bytes().get(self.lexer.at..).unwrap_or_default();
        rest.iter().find(|c| !c.is_ascii_whitespace()).is_some_and(|c| is_name(*c) && !c.is_ascii_digit())
    }

    /// Whether the parenthesis here starts an expression: it contains a type or another parenthesis, or an operator
    /// follows the closing parenthesis. A number alone may be a call argument.
    fn is_expression(&mut self) -> Res<bool> {
        self.advance()?;
        let begins =
            matches!(self.tok.kind, Kind::Number(_) | Kind::Sign(b'-' | b'+' | b'~' | b'(')) || self.is_word("WARP_SZ");
        if self.directive().is_some() {
            return Ok(true);
        }
        if !begins || self.constant().is_err() || !self.is_sign(b')') {
            return Ok(false);
        }
        self.advance()?;
        Ok(self.is_operator())
    }

    /// A name as an operand. What it means depends on the declarations. `None`: it is a symbol.
    fn named<M: Operands<'a>>(&mut self, w: &'a str, pos: Pos, make: &mut M) -> Res<Option<M::Operand>> {
        if w == "_" {
            return Ok(Some(make.nothing()));
        }
        if let Some(number) = self.register(w) {
            return Ok(Some(make.register(w, number)));
        }
        if let Some((first, lanes)) = self.vector_register(w) {
            return Ok(Some(make.lanes(w, first, lanes)));
        }
        if let Some((stem, lane)) = w.rsplit_once('.') {
            let lane_number = match lane {
                "x" | "r" => Some(0),
                "y" | "g" => Some(1),
                "z" | "b" => Some(2),
                "w" | "a" => Some(3),
                _ => None,
            };
            return match (lane_number, self.vector_register(stem)) {
                (Some(n), Some((first, lanes))) if n < lanes => {
                    Ok(Some(make.lane(stem, n, first.saturating_add(n.into()))))
                }
                (Some(_), None) if is_special(stem) => Ok(Some(make.special(w))),
                _ => Err(ParseError::expected(pos, "an operand", &format!("`{w}`"))),
            };
        }
        if is_special(w) {
            return Ok(Some(make.special(w)));
        }
        if w.starts_with('%') {
            return Err(ParseError::expected(pos, "a register that is declared before this", &format!("`{w}`")));
        }
        Ok(None)
    }

    /// The number of a register that is in scope.
    #[inline]
    fn register(&self, w: &str) -> Option<u32> {
        let taken_apart = Numbered::of(w.as_bytes());
        self.scopes.iter().rev().find_map(|scope| scope.number(w, &taken_apart))
    }

    /// `+ 4`, `- 4`, `+-4` or nothing.
    pub(super) fn offset(&mut self) -> Res<i64> {
        let mut total = 0i64;
        while let Kind::Sign(sign @ (b'+' | b'-')) = self.tok.kind {
            self.advance()?;
            let minus = self.sign(b'-')?;
            let n = self.product("a number of bytes")?;
            let n = if (sign == b'-') != minus { n.wrapping_neg() } else { n };
            total = total.wrapping_add(n);
        }
        Ok(total)
    }

    /// `[base + offset]`, `[base, {a, b}]`.
    fn address<M: Operands<'a>>(&mut self, make: &mut M) -> Res<M::Operand> {
        self.advance()?;
        let base = self.base(make)?;
        let offset = self.offset()?;
        let rest = if self.sign(b',')? {
            self.list(b']', |p| p.operand(make))?
        } else {
            self.need(b']', "after an address")?;
            vec![]
        };
        Ok(make.address(base, offset, rest))
    }

    /// The base of an address: a register, a name or a number.
    fn base<M: Operands<'a>>(&mut self, make: &mut M) -> Res<M::Operand> {
        match self.tok.kind {
            Kind::Word(w) if !w.starts_with('.') => {
                let pos = self.tok.pos;
                self.advance()?;
                if let Some(number) = self.register(w) {
                    return Ok(make.register(w, number));
                }
                if w == "_" || is_special(w.split('.').next().unwrap_or_default()) {
                    return self.wanted("an address before this");
                }
                let named = self.named(w, pos, make)?;
                Ok(named.unwrap_or_else(|| make.symbol(w, 0)))
            }
            Kind::Number(_) | Kind::Sign(b'-' | b'~') => Ok(make.immediate(Imm::Int(self.product("an address")?))),
            _ => {
                self.simple(make)?;
                self.wanted("an address before this")
            }
        }
    }
}
