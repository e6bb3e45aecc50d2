//! Fast path of the parser, which works directly on bytes. It handles instructions whose mnemonic was seen before and
//! whose operands are registers, numbers, addresses, names, or vectors of registers and numbers. Anything else is left
//! to the token-based parser from where it begins; that parser handles everything and reports errors.

use super::bodies::{Bodies, Head, Operands, Predicate};
use super::lex::{Lexer, is_name};
use super::module::Imm;
use super::names::{Numbered, Type, is_special};
use super::parse::{ParseError, Parser, Scope};
use super::stems::Stems;

/// Maximum number of digits of a number that is parsed here.
const DIGITS: usize = 18;

/// Whitespace within a line.
const fn is_blank(c: u8) -> bool {
    matches!(c, b' ' | b'\t')
}

impl<'a> Parser<'a> {
    /// Whether the last word is an instruction (rather than a label) whose operands can be parsed here.
    pub(super) fn is_quick(&self) -> bool {
        Quick::new(self).is_inst()
    }

    /// Parses the operands of the instruction whose mnemonic was just read, and as many of the following instructions
    /// as possible.
    ///
    /// # Errors
    /// Errors of the token-based parser in operands that cannot be parsed here.
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

    /// Takes the end of an instruction if it is next.
    #[inline]
    fn quick_end(&mut self) -> bool {
        let here = self.lexer.bytes().get(self.lexer.at) == Some(&b';');
        self.lexer.at += usize::from(here);
        here
    }

    /// Takes the guard and mnemonic of the next instruction if they have the usual form.
    fn quick_head<B: Bodies<'a>>(&mut self, out: &mut B) -> Option<Head<'a, B::Mnemonic>> {
        self.lexer.lines();
        let mut q = Quick::new(self);
        let mut guard = None;
        if q.sign(b'@') {
            guard = Some(q.guard()?);
            q.lexer.at = q.after_blanks(q.lexer.at);
        }
        let (from, pos) = (q.lexer.at, q.lexer.pos_of(q.lexer.at));
        if !q.byte().is_ascii_lowercase() {
            return None;
        }
        q.lexer.at = q.mnemonic_end()?;
        let (word, to) = (q.since(from), q.lexer.at);
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

    /// Parses operands; returns whether the instruction has ended. If not, parsing continues at the operand that was
    /// not handled.
    pub(super) fn quick_operands<B: Bodies<'a>>(&mut self, out: &mut B) -> bool {
        let mut q = Quick::new(self);
        loop {
            let end = match q.counted(out) {
                Some(end) => end,
                None => {
                    let before = q.lexer.clone();
                    q.lexer.lines();
                    let (Some(operand), end @ (b',' | b';')) = (q.operand(out), q.byte()) else {
                        self.lexer = before;
                        return false;
                    };
                    out.push(operand);
                    end
                }
            };
            q.lexer.at += 1;
            if end == b';' {
                self.lexer = q.lexer;
                return true;
            }
        }
    }

    /// After `.reg`: a type, a counted range of registers, and the end of the line.
    pub(super) fn quick_range(&mut self) -> Option<(Type, &'a str, u32)> {
        let mut q = Quick::new(self);
        q.lexer.at = q.after_blanks(q.lexer.at);
        let ty = if q.sign(b'.') { Type::parse(q.plain())? } else { return None };
        q.lexer.at = q.after_blanks(q.lexer.at);
        let name = if q.byte() == b'%' { q.plain() } else { return None };
        let count = if q.sign(b'<') { u32::try_from(q.digits()?).ok()? } else { return None };
        let ended = q.sign(b'>') && q.sign(b';');
        self.lexer = if ended { q.lexer } else { return None };
        Some((ty, name, count))
    }

    /// The guard after the `@` that was just read.
    pub(super) fn quick_guard(&mut self) -> Option<Predicate<'a>> {
        let mut q = Quick::new(self);
        let guard = q.guard()?;
        self.lexer = q.lexer;
        Some(guard)
    }
}

/// A position in the text, ahead of the parser. A method that returns `None` may have moved it.
struct Quick<'p, 'a> {
    scopes: &'p [Scope<'a>],
    stems: &'p Stems,
    lexer: Lexer<'a>,
}

impl<'p, 'a> Quick<'p, 'a> {
    #[inline]
    fn new(p: &'p Parser<'a>) -> Quick<'p, 'a> {
        Quick { scopes: &p.scopes, stems: &p.stems, lexer: p.lexer.clone() }
    }

    /// The byte at a position; 0 after the end.
    #[inline]
    fn ahead(&self, at: usize) -> u8 {
        self.lexer.bytes().get(at).copied().unwrap_or(0)
    }

    #[inline]
    fn byte(&self) -> u8 {
        self.ahead(self.lexer.at)
    }

    #[inline]
    fn after_blanks(&self, mut at: usize) -> usize {
        while is_blank(self.ahead(at)) {
            at += 1;
        }
        at
    }

    /// Whether the word before this position is an instruction whose operands can be parsed here.
    #[inline]
    fn is_inst(&self) -> bool {
        let here = self.byte();
        if !is_blank(here) {
            return here == b';';
        }
        let c = self.ahead(self.after_blanks(self.lexer.at + 1));
        is_name(c) || matches!(c, b'[' | b'{' | b'-')
    }

    /// Where the mnemonic here ends: before whitespace or a semicolon.
    #[inline]
    fn mnemonic_end(&self) -> Option<usize> {
        const ONES: u64 = 0x0101_0101_0101_0101;
        let (mut at, mut rest) = (self.lexer.at, self.lexer.bytes().get(self.lexer.at..)?);
        while let Some((part, more)) = rest.split_first_chunk() {
            let part = u64::from_le_bytes(*part);
            let end = part ^ (ONES * u64::from(b';'));
            // Bit trick: the lowest byte that is below 0x21 or a semicolon has the lowest of these bits set.
            let found = (part.wrapping_sub(ONES * 0x21) & !part | end.wrapping_sub(ONES) & !end) & (ONES * 0x80);
            if found != 0 {
                return Some(at + (found.trailing_zeros() / 8) as usize);
            }
            (at, rest) = (at + 8, more);
        }
        rest.iter().position(|c| *c <= b' ' || *c == b';').map(|n| at + n)
    }

    /// Takes the character if it is next.
    #[inline]
    fn sign(&mut self, c: u8) -> bool {
        let here = self.byte() == c;
        self.lexer.at += usize::from(here);
        here
    }

    /// Takes an operand that is a register of a counted range, after at most one space; returns the character after it.
    #[inline]
    fn counted<B: Bodies<'a>>(&mut self, out: &mut B) -> Option<u8> {
        let from = self.lexer.at + usize::from(self.byte() == b' ');
        let head = self.lexer.bytes().get(from..from + 8)?.first_chunk()?;
        let (number, len) = self.stems.begins(u64::from_le_bytes(*head))?;
        let end = self.ahead(from + len);
        if !matches!(end, b',' | b';') {
            return None;
        }
        self.lexer.at = from + len;
        let register = out.register(self.since(from), number);
        out.push(register);
        Some(end)
    }

    fn operand<M: Operands<'a>>(&mut self, make: &mut M) -> Option<M::Operand> {
        let from = self.lexer.at;
        match self.byte() {
            b'%' => match self.register() {
                Some(number) => Some(make.register(self.since(from), number)),
                None => self.special().map(|()| make.special(self.since(from))),
            },
            b'0'..=b'9' | b'-' => self.number().map(|value| make.immediate(value)),
            b'[' => self.address(make),
            b'{' => self.vector(make),
            _ => match self.named()? {
                (name, Some(number)) => Some(make.register(name, number)),
                (name, None) => self.ends().then(|| make.symbol(name, 0)),
            },
        }
    }

    /// Whether an operand ends here. Making a name operand counts the name, so this is checked first.
    fn ends(&self) -> bool {
        matches!(self.byte(), b',' | b';')
    }

    /// Takes a name without dots.
    fn plain(&mut self) -> &'a str {
        let from = self.lexer.at;
        while is_name(self.byte()) {
            self.lexer.at += 1;
        }
        self.since(from)
    }

    #[inline]
    fn since(&self, from: usize) -> &'a str {
        self.lexer.between(from, self.lexer.at)
    }

    /// The number of a register; nearly all are declared as counted ranges. The next character must not continue the
    /// name.
    fn register(&mut self) -> Option<u32> {
        let head = self.lexer.bytes().get(self.lexer.at..self.lexer.at + 8)?.first_chunk()?;
        match self.stems.begins(u64::from_le_bytes(*head)) {
            Some((number, len)) => {
                self.lexer.at += len;
                Some(number)
            }
            None => self.named().and_then(|(_, number)| number),
        }
    }

    /// A special register: `%tid.x`, `%laneid`.
    #[inline(never)]
    fn special(&mut self) -> Option<()> {
        let from = self.lexer.at;
        let name_end = |at: usize| Some(at + self.lexer.bytes().get(at..)?.iter().position(|c| !is_name(*c))?);
        let end = name_end(from + 1)?;
        let to = if self.ahead(end) == b'.' { end + 2 } else { end };
        let lane = to == end || matches!(self.ahead(end + 1), b'x' | b'y' | b'z' | b'w');
        let (stem, whole) = (self.lexer.between(from, end), self.lexer.between(from, to));
        let declared =
            |name: &str| self.scopes.iter().any(|s| s.number(name, &Numbered::of(name.as_bytes())).is_some());
        let ended = !is_name(self.ahead(to)) && !matches!(self.ahead(to), b'.' | b':');
        if !lane || !ended || !is_special(stem) || declared(stem) || declared(whole) {
            return None;
        }
        self.lexer.at = to;
        Some(())
    }

    /// A name without dots, with its number if it is a register.
    #[inline(never)]
    fn named(&mut self) -> Option<(&'a str, Option<u32>)> {
        let bytes = self.lexer.bytes().get(self.lexer.at..)?;
        let n = bytes.iter().position(|c| !is_name(*c))?;
        let name = self.lexer.between(self.lexer.at, self.lexer.at + n);
        if n == 0 || name == "_" || matches!(bytes.get(n), Some(b'.' | b':')) {
            return None;
        }
        let mut number = None;
        let own = name.starts_with('%');
        if own || self.scopes.iter().any(|s| s.bare) {
            let taken_apart = Numbered::of(name.as_bytes());
            number = self.scopes.iter().rev().find_map(|s| s.number(name, &taken_apart));
        }
        // Other names with `%` are special registers or undeclared; vectors and constants are not symbols.
        let other = || name == "WARP_SZ" || self.scopes.iter().any(|s| s.vector(name).is_some());
        if number.is_none() && (own || other()) {
            return None;
        }
        self.lexer.at += n;
        Some((name, number))
    }

    /// `%p1 `, `!%p1 `.
    fn guard(&mut self) -> Option<Predicate<'a>> {
        let negated = self.sign(b'!');
        let from = self.lexer.at;
        let number = self.register()?;
        let name = self.lexer.between(from, self.lexer.at);
        is_blank(self.byte()).then_some(Predicate { name, number, negated })
    }

    /// A decimal integer, or the bits of an f32.
    fn number(&mut self) -> Option<Imm> {
        if self.byte() == b'0' && matches!(self.ahead(self.lexer.at + 1), b'f' | b'F') {
            let digits = self.lexer.bytes().get(self.lexer.at + 2..self.lexer.at + 10)?;
            let hex = |n: u32, c: &u8| char::from(*c).to_digit(16).map(|d| n << 4 | d);
            let bits = digits.iter().try_fold(0, hex)?;
            self.lexer.at += 10;
            return Some(Imm::F32(bits));
        }
        let minus = self.sign(b'-');
        let n = self.digits()?;
        Some(Imm::Int(if minus { -n } else { n }))
    }

    /// A run of digits; with a leading zero it would be octal, which is not handled here.
    #[inline]
    fn digits(&mut self) -> Option<i64> {
        let (from, mut n) = (self.lexer.at, 0i64);
        loop {
            let digit = self.byte().wrapping_sub(b'0');
            if digit > 9 {
                break;
            }
            if self.lexer.at == from + DIGITS {
                return None;
            }
            n = 10 * n + i64::from(digit);
            self.lexer.at += 1;
        }
        let zero = self.ahead(from) == b'0' && self.lexer.at > from + 1;
        (self.lexer.at > from && !zero).then_some(n)
    }

    /// `[%rd1+4]`, `[name]`.
    fn address<M: Operands<'a>>(&mut self, make: &mut M) -> Option<M::Operand> {
        self.lexer.at += 1;
        let from = self.lexer.at;
        let (name, number) = match self.byte() {
            b'%' => {
                let number = self.register()?;
                (self.since(from), Some(number))
            }
            b'0'..=b'9' => return None,
            _ => self.named()?,
        };
        let offset = match self.byte() {
            b']' => 0,
            b'+' => {
                self.lexer.at += 1;
                let minus = self.sign(b'-');
                let n = self.digits()?;
                if minus { -n } else { n }
            }
            _ => return None,
        };
        if !self.sign(b']') || !self.ends() {
            return None;
        }
        let base = match number {
            Some(number) => make.register(name, number),
            None => make.symbol(name, 0),
        };
        Some(make.address(base, offset, vec![]))
    }

    /// A vector of registers and numbers in braces.
    fn vector<M: Operands<'a>>(&mut self, make: &mut M) -> Option<M::Operand> {
        self.lexer.at += 1;
        let mut parts = Vec::with_capacity(4);
        loop {
            self.lexer.lines();
            parts.push(match self.byte() {
                b'%' => {
                    let from = self.lexer.at;
                    let number = self.register()?;
                    make.register(self.since(from), number)
                }
                _ => self.number().map(|value| make.immediate(value))?,
            });
            if self.sign(b'}') {
                return Some(make.vector(parts));
            }
            if !self.sign(b',') {
                return None;
            }
        }
    }
}
