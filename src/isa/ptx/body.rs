//! What stands in a function's braces: statements, instructions, operands.

use super::lex::Kind;
use super::module::{Guard, Imm, Inlined, Inst, Linkage, Loc, Modifier, Operand, Pos, Registers, Statement};
use super::name::Name;
use super::names::{Counted, Numbered, Opcode, Space, Type, is_special};
use super::number;
use super::parse::{ParseError, Parser, Scope};
use std::sync::Arc;

type Res<T> = Result<T, ParseError>;

impl<'a> Parser<'a> {
    /// `{ statements }` with names of their own.
    pub(super) fn scope(&mut self) -> Res<Vec<Statement>> {
        self.scopes.push(Scope::default());
        let body = self.block();
        self.scopes.pop();
        body
    }

    /// `{ statements }`.
    fn block(&mut self) -> Res<Vec<Statement>> {
        self.need(b'{', "before a body")?;
        self.deeper("blocks", |p| {
            let mut out = Vec::new();
            while !p.is_sign(b'}') {
                if p.tok.kind == Kind::End {
                    return p.wanted("`}` at the end of a body");
                }
                p.statement(&mut out)?;
            }
            p.advance()?;
            Ok(out)
        })
    }

    fn statement(&mut self, out: &mut Vec<Statement>) -> Res<()> {
        let pos = self.tok.pos;
        match self.tok.kind {
            Kind::Sign(b'{') => {
                let inner = self.scope()?;
                out.push(Statement::Block(inner));
            }
            Kind::Sign(b';') => {
                self.advance()?;
            }
            Kind::Sign(b'@') => {
                let guard = self.guard()?;
                out.push(Statement::Inst(self.inst(Some(guard))?));
            }
            Kind::Word(w) if w.starts_with('.') => {
                let s = self.inner_directive(pos)?;
                out.push(s);
            }
            Kind::Word(w) => {
                self.advance()?;
                if self.sign(b':')? {
                    out.push(Statement::Label(Name::from(w), pos));
                } else {
                    out.push(Statement::Inst(self.inst_of(w, pos, None)?));
                }
            }
            _ => return self.wanted("an instruction, a label, a directive or `}`"),
        }
        Ok(())
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
            if let Some(scope) = p.scopes.last_mut() {
                match count {
                    Some(n) => scope.ranges.push(Counted::new(w, n)),
                    None => {
                        scope.names.insert(w);
                    }
                }
            }
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

    fn guard(&mut self) -> Res<Guard> {
        self.advance()?;
        let negated = self.sign(b'!')?;
        match self.tok.kind {
            Kind::Word(w) if self.is_register(w) => {
                self.advance()?;
                Ok(Guard { negated, pred: Name::from(w) })
            }
            _ => self.wanted("a predicate register that is declared here"),
        }
    }

    fn inst(&mut self, guard: Option<Guard>) -> Res<Inst> {
        let pos = self.tok.pos;
        match self.tok.kind {
            Kind::Word(w) if !w.starts_with('.') => {
                self.advance()?;
                self.inst_of(w, pos, guard)
            }
            _ => self.wanted("an instruction"),
        }
    }

    /// The rest of an instruction whose first word has been taken.
    fn inst_of(&mut self, word: &'a str, pos: Pos, guard: Option<Guard>) -> Res<Inst> {
        let (op, mods) = match self.mnemonics.get(word) {
            Some(known) => known.clone(),
            None => {
                let mut parts = word.split('.');
                let Some(op) = parts.next().and_then(Opcode::parse) else {
                    return Err(ParseError::expected(pos, "an instruction", &format!("`{word}`")));
                };
                let mods: Arc<[Modifier]> = parts.map(|w| Modifier::of(w, Name::from)).collect();
                self.mnemonics.insert(word, (op, mods.clone()));
                (op, mods)
            }
        };
        let operands = self.operands()?;
        Ok(Inst { pos, guard, op, mods, operands })
    }

    /// Operands up to the end of an instruction, most of which are registers.
    fn operands(&mut self) -> Res<Vec<Operand>> {
        if self.sign(b';')? {
            return Ok(Vec::new());
        }
        let mut out = Vec::with_capacity(4);
        loop {
            match self.tok.kind {
                Kind::Word(w) if w.starts_with('%') && self.is_register(w) => {
                    self.advance()?;
                    if self.is_sign(b'|') {
                        let first = Operand::Reg(Name::from(w));
                        out.push(self.paired(first)?);
                    } else {
                        out.push(Operand::Reg(Name::from(w)));
                    }
                }
                _ => out.push(self.operand()?),
            }
            match self.tok.kind {
                Kind::Sign(b',') => self.advance()?,
                Kind::Sign(b';') => {
                    self.advance()?;
                    return Ok(out);
                }
                _ => return self.wanted("`,` or `;`"),
            };
        }
    }

    // --- operands ---

    pub(super) fn operand(&mut self) -> Res<Operand> {
        let first = self.simple()?;
        self.paired(first)
    }

    /// The operand, or a pair of it and another.
    fn paired(&mut self, first: Operand) -> Res<Operand> {
        if !self.sign(b'|')? {
            return Ok(first);
        }
        let second = self.simple()?;
        Ok(Operand::Pair(Box::new(first), Box::new(second)))
    }

    fn simple(&mut self) -> Res<Operand> {
        match self.tok.kind {
            Kind::Word(w) if !w.starts_with('.') => {
                let pos = self.tok.pos;
                self.advance()?;
                self.named(w, pos)
            }
            Kind::Number(_) | Kind::Sign(b'-' | b'+' | b'~') => self.immediate(),
            Kind::Sign(b'!') => {
                self.advance()?;
                match self.tok.kind {
                    Kind::Word(w) if self.is_register(w) => {
                        self.advance()?;
                        Ok(Operand::Not(Name::from(w)))
                    }
                    _ => self.wanted("a predicate register that is declared here"),
                }
            }
            Kind::Sign(b'{') => {
                self.advance()?;
                Ok(Operand::Vector(self.deeper("operands", |p| p.list(b'}', Self::operand))?))
            }
            Kind::Sign(b'(') => {
                self.advance()?;
                Ok(Operand::List(self.deeper("operands", |p| p.list(b')', Self::operand))?))
            }
            Kind::Sign(b'[') => self.deeper("operands", Self::address),
            _ => self.wanted("an operand"),
        }
    }

    /// A name as an operand: what it is depends on what has been declared.
    fn named(&mut self, w: &'a str, pos: Pos) -> Res<Operand> {
        if w == "_" {
            return Ok(Operand::Nothing);
        }
        if self.is_register(w) {
            return Ok(Operand::Reg(Name::from(w)));
        }
        if let Some((stem, lane)) = w.rsplit_once('.') {
            let lane_number = match lane {
                "x" | "r" => Some(0),
                "y" | "g" => Some(1),
                "z" | "b" => Some(2),
                "w" | "a" => Some(3),
                _ => None,
            };
            return match lane_number {
                Some(n) if self.is_register(stem) => Ok(Operand::Lane(Name::from(stem), n)),
                Some(_) if is_special(stem) => Ok(Operand::Special(Name::from(w))),
                _ => Err(ParseError::expected(pos, "an operand", &format!("`{w}`"))),
            };
        }
        if is_special(w) {
            return Ok(Operand::Special(Name::from(w)));
        }
        if w.starts_with('%') {
            return Err(ParseError::expected(pos, "a register that is declared before this", &format!("`{w}`")));
        }
        let name = Name::from(w);
        let offset = self.offset()?;
        Ok(Operand::Symbol(name, offset))
    }

    /// Whether a register of that name is declared here.
    fn is_register(&self, w: &str) -> bool {
        let taken_apart = Numbered::of(w.as_bytes());
        self.scopes.iter().rev().any(|scope| scope.has(w, &taken_apart))
    }

    fn immediate(&mut self) -> Res<Operand> {
        let minus = match self.tok.kind {
            Kind::Sign(c @ (b'-' | b'+' | b'~')) => {
                self.advance()?;
                c
            }
            _ => b'+',
        };
        let Kind::Number(text) = self.tok.kind else { return self.wanted("a number") };
        let Some(value) = number::constant(text) else { return self.wanted("a number of PTX") };
        self.advance()?;
        let value = match (minus, value) {
            (b'-', Imm::Int(i)) => Imm::Int(i.wrapping_neg()),
            (b'~', Imm::Int(i)) => Imm::Int(!i),
            (b'-', Imm::F32(b)) => Imm::F32(b ^ 1 << 31),
            (b'-', Imm::F64(b)) => Imm::F64(b ^ 1 << 63),
            (_, v) => v,
        };
        Ok(Operand::Imm(value))
    }

    /// `+ 4`, `- 4`, `+-4` or nothing.
    pub(super) fn offset(&mut self) -> Res<i64> {
        let mut total = 0i64;
        while let Kind::Sign(sign @ (b'+' | b'-')) = self.tok.kind {
            self.advance()?;
            let minus = self.sign(b'-')?;
            let n = self.count("a number of bytes")?.cast_signed();
            let n = if (sign == b'-') != minus { n.wrapping_neg() } else { n };
            total = total.wrapping_add(n);
        }
        Ok(total)
    }

    /// `[base + offset]`, `[base, {a, b}]`.
    fn address(&mut self) -> Res<Operand> {
        self.advance()?;
        let (base, mut offset) = match self.simple()? {
            Operand::Symbol(name, offset) => (Operand::Symbol(name, 0), offset),
            other => (other, 0),
        };
        if !matches!(base, Operand::Reg(_) | Operand::Lane(..) | Operand::Symbol(..) | Operand::Imm(Imm::Int(_))) {
            return self.wanted("an address before this");
        }
        offset = offset.wrapping_add(self.offset()?);
        let rest = if self.sign(b',')? {
            self.list(b']', Self::operand)?
        } else {
            self.need(b']', "after an address")?;
            vec![]
        };
        Ok(Operand::Address { base: Box::new(base), offset, rest })
    }
}
