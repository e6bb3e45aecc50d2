//! PTX text → tokens with their positions. Names keep their dots (`ld.global.v4.f32`, `%tid.x`, `.shared::cta`),
//! because the meaning of the parts depends on the context.

use super::module::Pos;
use super::parse::ParseError;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind<'a> {
    /// A name, mnemonic or directive with all its dots.
    Word(&'a str),
    /// Starts with a digit; not converted to a value yet.
    Number(&'a str),
    /// Between the quotes.
    Text(&'a str),
    Sign(u8),
    End,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub kind: Kind<'a>,
    pub pos: Pos,
}

/// Iterator over the tokens of a text.
#[derive(Clone, Debug)]
pub(super) struct Lexer<'a> {
    text: &'a str,
    /// Position after the last token.
    pub at: usize,
    line: u32,
    /// Start of the current line.
    start: usize,
}

/// Bytes that may be part of a name.
const NAMES: [bool; 256] = {
    let (mut table, mut c) = ([false; 256], 0u8);
    while c < 128 {
        table[c as usize] = c.is_ascii_alphanumeric() || matches!(c, b'_' | b'$' | b'%');
        c += 1;
    }
    table
};

/// The token class that a first byte implies.
#[derive(Clone, Copy)]
enum Class {
    Sign,
    Name,
    Digit,
    /// Needs a closer look, or is not a token.
    Other,
}

const CLASSES: [Class; 256] = {
    let (mut table, mut c) = ([Class::Other; 256], 0u8);
    while c < 128 {
        table[c as usize] = match c {
            b'0'..=b'9' => Class::Digit,
            b'.' | b'"' => Class::Other,
            c if is_name(c) => Class::Name,
            c if c.is_ascii_graphic() => Class::Sign,
            _ => Class::Other,
        };
        c += 1;
    }
    table
};

pub(super) const fn is_name(c: u8) -> bool {
    NAMES[c as usize]
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str) -> Lexer<'a> {
        Lexer { text, at: 0, line: 1, start: 0 }
    }

    fn byte(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.text.as_bytes()
    }

    #[inline]
    pub(crate) fn between(&self, from: usize, to: usize) -> &'a str {
        self.text.get(from..to).unwrap_or_default()
    }

    /// Whether the text between these positions is one name with all its dots.
    pub(crate) fn is_word(&self, from: usize, to: usize) -> bool {
        let mut lexer = Lexer { at: from, ..*self };
        lexer.word();
        lexer.at == to
    }

    /// A position in this line.
    #[inline]
    pub(super) fn pos_of(&self, at: usize) -> Pos {
        Pos { line: self.line, column: (at - self.start + 1).min(u32::MAX as usize) as u32 }
    }

    /// Skips whitespace, including line ends.
    #[inline]
    pub(crate) fn lines(&mut self) {
        while let Some(c) = self.text.as_bytes().get(self.at) {
            match c {
                b' ' | b'\t' | b'\r' => self.at += 1,
                b'\n' => self.new_line(),
                _ => break,
            }
        }
    }

    fn pos(&self) -> Pos {
        self.pos_of(self.at)
    }

    fn new_line(&mut self) {
        self.line = self.line.saturating_add(1);
        self.start = self.at + 1;
        self.at += 1;
    }

    /// Skips blanks and comments.
    fn blanks(&mut self) -> Result<(), ParseError> {
        let bytes = self.text.as_bytes();
        while let Some(c) = bytes.get(self.at) {
            match c {
                b' ' | b'\t' | b'\r' | b'\x0c' => self.at += 1,
                b'\n' => self.new_line(),
                b'/' => match bytes.get(self.at + 1) {
                    Some(b'/') => {
                        let rest = &bytes[self.at..];
                        self.at += rest.iter().position(|c| *c == b'\n').unwrap_or(rest.len());
                    }
                    Some(b'*') => self.comment()?,
                    _ => break,
                },
                _ => break,
            }
        }
        Ok(())
    }

    /// Skips a comment to its end.
    fn comment(&mut self) -> Result<(), ParseError> {
        let pos = self.pos();
        while !(self.byte(0) == b'*' && self.byte(1) == b'/') {
            match self.text.as_bytes().get(self.at) {
                None => return Err(ParseError::expected(pos, "an end of this comment", "the end of the text")),
                Some(b'\n') => self.new_line(),
                Some(_) => self.at += 1,
            }
        }
        self.at += 2;
        Ok(())
    }

    /// Reads the next token; at the end of the text always `End`.
    pub(crate) fn next(&mut self, token: &mut Token<'a>) -> Result<(), ParseError> {
        let bytes = self.text.as_bytes();
        // Most tokens follow one space or none.
        if bytes.get(self.at) == Some(&b' ') {
            self.at += 1;
        }
        let mut c = self.byte(0);
        if c <= b' ' || c == b'/' {
            self.blanks()?;
            c = self.byte(0);
        }
        let from = self.at;
        token.pos = self.pos();
        token.kind = match CLASSES[usize::from(c)] {
            Class::Sign => {
                self.at += 1;
                Kind::Sign(c)
            }
            Class::Name => {
                self.at += 1;
                self.word();
                Kind::Word(self.since(from))
            }
            Class::Digit => {
                self.number();
                Kind::Number(self.since(from))
            }
            Class::Other => return self.other(c, token),
        };
        Ok(())
    }

    /// A rare token, or an error.
    #[inline(never)]
    fn other(&mut self, c: u8, token: &mut Token<'a>) -> Result<(), ParseError> {
        let (pos, from) = (token.pos, self.at);
        token.kind = match c {
            _ if from >= self.text.len() => Kind::End,
            b'.' if is_name(self.byte(1)) => {
                self.at += 1;
                self.word();
                Kind::Word(self.since(from))
            }
            b'.' => {
                self.at += 1;
                Kind::Sign(c)
            }
            b'"' => {
                self.at += 1;
                while self.byte(0) != b'"' {
                    if self.at >= self.text.len() || self.byte(0) == b'\n' {
                        return Err(ParseError::expected(pos, "a closing quote on this line", "none"));
                    }
                    self.at += 1;
                }
                self.at += 1;
                Kind::Text(self.text.get(from + 1..self.at - 1).unwrap_or_default())
            }
            _ => return Err(ParseError::expected(pos, "ASCII text", &format!("byte {c:#04x}"))),
        };
        Ok(())
    }

    #[inline]
    fn since(&self, from: usize) -> &'a str {
        self.text.get(from..self.at).unwrap_or_default()
    }

    #[inline]
    pub(crate) fn word(&mut self) {
        let bytes = self.text.as_bytes();
        let mut at = self.at;
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            at += rest.iter().position(|c| !is_name(*c)).unwrap_or(rest.len());
            let name = |at: usize| bytes.get(at).is_some_and(|c| is_name(*c));
            at += match bytes.get(at) {
                Some(b'.') if name(at + 1) => 2,
                Some(b':') if bytes.get(at + 1) == Some(&b':') && name(at + 2) => 3,
                _ => break,
            };
        }
        self.at = at;
    }

    /// Digits, letters and points; a sign after a decimal exponent.
    fn number(&mut self) {
        let from = self.at;
        while self.byte(0).is_ascii_alphanumeric() || self.byte(0) == b'.' {
            let exponent = matches!(self.byte(0), b'e' | b'E')
                && matches!(self.byte(1), b'+' | b'-')
                && self.since(from).bytes().all(|c| c.is_ascii_digit() || c == b'.');
            self.at += if exponent { 2 } else { 1 };
        }
    }
}
