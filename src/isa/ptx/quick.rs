//! Instructions as nearly all are written, read from the bytes at once: mnemonics that were met before, and operands that are registers, numbers,
//! addresses, names, or vectors of the first two. What stands otherwise is left where it begins to the tokens, which know all that there is and what
//! to say of what is wrong.

use super::bodies::{Bodies, Head, Operands, Predicate};
use super::lex::{Lexer, is_name};
use super::module::Imm;
use super::names::Numbered;
use super::parse::{ParseError, Parser, Scope};

/// Most digits of a number that is read here.
const DIGITS: usize = 18;

/// Blanks that may stand within a line.
const fn is_blank(c: u8) -> bool {
    matches!(c, b' ' | b'\t')
}

impl<'a> Parser<'a> {
    /// Whether the word that was read last is an instruction whose operands may be read here: a label is not.
    pub(super) fn is_quick(&self) -> bool {
        Quick::new(self).is_inst()
    }

    /// An instruction whose mnemonic was read last, and those behind it that can be read here.
    ///
    /// # Errors
    /// What the tokens say of operands that cannot be read here.
    pub(super) fn quick_insts<B: Bodies<'a>>(
        &mut self,
        head: Head<'a, B::Mnemonic>,
        out: &mut B,
    ) -> Result<(), ParseError> {
        let mut next = Some(head);
        while let Some(head) = next {
            out.begin(head);
            if !self.quick_end() && !self.quick_operands(out) {
                self.advance()?;
                self.operands(out)?;
                out.end();
                return Ok(());
            }
            out.end();
            next = self.quick_head(out);
        }
        self.advance()
    }

    /// Takes the end of an instruction if it is here.
    #[inline]
    fn quick_end(&mut self) -> bool {
        let here = self.lexer.bytes().get(self.lexer.at) == Some(&b';');
        self.lexer.at += usize::from(here);
        here
    }

    /// Takes the guard and mnemonic of the next instruction, if that is written as most are.
    fn quick_head<B: Bodies<'a>>(&mut self, out: &mut B) -> Option<Head<'a, B::Mnemonic>> {
        self.lexer.lines();
        let mut q = Quick::new(self);
        let mut guard = None;
        if q.sign(b'@') {
            guard = Some(q.guard()?);
            q.at = q.after_blanks(q.at);
        }
        let (from, pos) = (q.at, self.lexer.pos_of(q.at));
        if !q.byte().is_ascii_lowercase() {
            return None;
        }
        q.at += q.bytes.get(from..)?.iter().position(|c| *c <= b' ' || *c == b';')?;
        let (word, to) = (self.lexer.between(from, q.at), q.at);
        if !q.is_inst() {
            return None;
        }
        let mnemonic = match out.known(word) {
            Some(known) => known,
            None if self.lexer.is_word(from, to) => Self::learnt(word, out)?,
            None => return None,
        };
        self.lexer.at = to;
        Some(Head { pos, guard, mnemonic })
    }

    /// Reads operands; whether the instruction has ended. If not, the text goes on with the operand that was not read.
    pub(super) fn quick_operands<B: Bodies<'a>>(&mut self, out: &mut B) -> bool {
        let mut q = Quick::new(self);
        loop {
            let before = q.at;
            q.at = q.after_blanks(before);
            let from = q.at;
            let (Some(part), end @ (b',' | b';')) = (q.part(out), q.byte()) else {
                self.lexer.at = before;
                return false;
            };
            let operand = part.make(q.lexer.between(from, q.at), out);
            out.push(operand);
            q.at += 1;
            if end == b';' {
                self.lexer.at = q.at;
                return true;
            }
        }
    }

    /// The guard behind the sign that was read last.
    pub(super) fn quick_guard(&mut self) -> Option<Predicate<'a>> {
        let mut q = Quick::new(self);
        let guard = q.guard()?;
        self.lexer.at = q.at;
        Some(guard)
    }
}

/// An operand that was read, but not made yet: what makes it may count names.
enum Part<'a, O> {
    Register(u32),
    Number(Imm),
    Symbol,
    /// An address: its register or name, and the offset.
    At((&'a str, Option<u32>), i64),
    Vector(Vec<O>),
}

impl<'a, O> Part<'a, O> {
    /// Makes the operand that stands in the text so.
    #[inline]
    fn make<M: Operands<'a, Operand = O>>(self, text: &'a str, make: &mut M) -> O {
        match self {
            Part::Register(number) => make.register(text, number),
            Part::Number(value) => make.immediate(value),
            Part::Symbol => make.symbol(text, 0),
            Part::Vector(parts) => make.vector(parts),
            Part::At((name, register), offset) => {
                let base = match register {
                    Some(number) => make.register(name, number),
                    None => make.symbol(name, 0),
                };
                make.address(base, offset, vec![])
            }
        }
    }
}

/// A place in the text, before what is read next. What gives `None` may have moved it.
struct Quick<'p, 'a> {
    scopes: &'p [Scope<'a>],
    lexer: &'p Lexer<'a>,
    bytes: &'a [u8],
    at: usize,
}

impl<'p, 'a> Quick<'p, 'a> {
    #[inline]
    fn new(p: &'p Parser<'a>) -> Quick<'p, 'a> {
        Quick { scopes: &p.scopes, lexer: &p.lexer, bytes: p.lexer.bytes(), at: p.lexer.at }
    }

    /// The byte in a place; 0 behind the end.
    #[inline]
    fn ahead(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(0)
    }

    #[inline]
    fn byte(&self) -> u8 {
        self.ahead(self.at)
    }

    #[inline]
    fn after_blanks(&self, mut at: usize) -> usize {
        while is_blank(self.ahead(at)) {
            at += 1;
        }
        at
    }

    /// Whether the word before this is an instruction whose operands may be read here.
    #[inline]
    fn is_inst(&self) -> bool {
        let at = self.after_blanks(self.at);
        match self.ahead(at) {
            b';' => at == self.at,
            b'%' | b'[' | b'{' | b'-' => at > self.at,
            c => at > self.at && is_name(c),
        }
    }

    /// Takes the sign if it is here.
    #[inline]
    fn sign(&mut self, c: u8) -> bool {
        let here = self.byte() == c;
        self.at += usize::from(here);
        here
    }

    #[inline]
    fn part<M: Operands<'a>>(&mut self, make: &mut M) -> Option<Part<'a, M::Operand>> {
        match self.byte() {
            b'%' => self.register().map(Part::Register),
            b'0'..=b'9' | b'-' => self.number().map(Part::Number),
            b'[' => self.address(),
            b'{' => self.vector(make),
            _ => match self.named()? {
                (_, Some(number)) => Some(Part::Register(number)),
                (_, None) => Some(Part::Symbol),
            },
        }
    }

    /// The number of a register, nearly all of which are declared with a count. What follows it must be no part of a name.
    fn register(&mut self) -> Option<u32> {
        let head = self.bytes.get(self.at..self.at + 8)?.first_chunk()?;
        let head = u64::from_le_bytes(*head);
        for scope in self.scopes.iter().rev() {
            if !scope.names.is_empty() {
                return self.named().and_then(|(_, number)| number);
            }
            for (range, first) in &scope.ranges {
                if let Some((number, len)) = range.begins(head)? {
                    self.at += len;
                    return Some(first.saturating_add(number));
                }
            }
        }
        None
    }

    /// A name without dots, with its number if it is a register.
    #[inline(never)]
    fn named(&mut self) -> Option<(&'a str, Option<u32>)> {
        let bytes = self.bytes.get(self.at..)?;
        let n = bytes.iter().position(|c| !is_name(*c))?;
        let name = self.lexer.between(self.at, self.at + n);
        if n == 0 || name == "_" || matches!(bytes.get(n), Some(b'.' | b':')) {
            return None;
        }
        let mut number = None;
        let own = name.starts_with('%');
        if own || self.scopes.iter().any(|s| s.bare) {
            let taken_apart = Numbered::of(name.as_bytes());
            number = self.scopes.iter().rev().find_map(|s| s.number(name, &taken_apart));
        }
        // Others that begin so are the machine's, or not declared.
        if own && number.is_none() {
            return None;
        }
        self.at += n;
        Some((name, number))
    }

    /// `%p1 `, `!%p1 `.
    fn guard(&mut self) -> Option<Predicate<'a>> {
        let negated = self.sign(b'!');
        let from = self.at;
        let number = self.register()?;
        let name = self.lexer.between(from, self.at);
        is_blank(self.byte()).then_some(Predicate { name, number, negated })
    }

    /// A decimal integer, or the bits of a float of 32.
    fn number(&mut self) -> Option<Imm> {
        if self.byte() == b'0' && matches!(self.ahead(self.at + 1), b'f' | b'F') {
            let digits = self.bytes.get(self.at + 2..self.at + 10)?;
            let hex = |n: u32, c: &u8| char::from(*c).to_digit(16).map(|d| n << 4 | d);
            let bits = digits.iter().try_fold(0, hex)?;
            self.at += 10;
            return Some(Imm::F32(bits));
        }
        let minus = self.sign(b'-');
        let n = self.digits()?;
        Some(Imm::Int(if minus { -n } else { n }))
    }

    /// Digits in a row; a zero before others makes them octal ones, which are not read here.
    #[inline]
    fn digits(&mut self) -> Option<i64> {
        let (from, mut n) = (self.at, 0i64);
        loop {
            let digit = self.byte().wrapping_sub(b'0');
            if digit > 9 {
                break;
            }
            if self.at == from + DIGITS {
                return None;
            }
            n = 10 * n + i64::from(digit);
            self.at += 1;
        }
        let zero = self.ahead(from) == b'0' && self.at > from + 1;
        (self.at > from && !zero).then_some(n)
    }

    /// `[%rd1+4]`, `[name]`.
    fn address<O>(&mut self) -> Option<Part<'a, O>> {
        self.at += 1;
        let from = self.at;
        let base = match self.byte() {
            b'%' => {
                let number = self.register()?;
                (self.lexer.between(from, self.at), Some(number))
            }
            b'0'..=b'9' => return None,
            _ => self.named()?,
        };
        let offset = match self.byte() {
            b']' => 0,
            b'+' => {
                self.at += 1;
                let minus = self.sign(b'-');
                let n = self.digits()?;
                if minus { -n } else { n }
            }
            _ => return None,
        };
        self.sign(b']').then_some(Part::At(base, offset))
    }

    /// Registers and numbers in braces.
    fn vector<M: Operands<'a>>(&mut self, make: &mut M) -> Option<Part<'a, M::Operand>> {
        self.at += 1;
        let mut parts = Vec::with_capacity(4);
        loop {
            self.at = self.after_blanks(self.at);
            parts.push(match self.byte() {
                b'%' => {
                    let from = self.at;
                    let number = self.register()?;
                    make.register(self.lexer.between(from, self.at), number)
                }
                _ => self.number().map(|value| make.immediate(value))?,
            });
            if self.sign(b'}') {
                return Some(Part::Vector(parts));
            }
            if !self.sign(b',') {
                return None;
            }
        }
    }
}
