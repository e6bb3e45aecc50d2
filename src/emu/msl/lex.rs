//! Source text → tokens with line and column.

use crate::error::{Pos, Res, fail};
use std::rc::Rc;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Tok {
    Id(Rc<str>),
    /// A number as written.
    Num(Rc<str>),
    Str(Rc<str>),
    Char(u32),
    Sign(&'static str),
    End,
}

#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub tok: Tok,
    pub at: Pos,
    /// First on its line.
    pub first: bool,
    /// Blank before it.
    pub spaced: bool,
}

impl Token {
    pub(crate) fn is(&self, sign: &str) -> bool {
        matches!(&self.tok, Tok::Sign(s) if *s == sign)
    }

    pub(crate) fn is_word(&self, word: &str) -> bool {
        matches!(&self.tok, Tok::Id(w) if **w == *word)
    }

    pub(crate) fn text(&self) -> String {
        match &self.tok {
            Tok::Id(w) | Tok::Num(w) => w.to_string(),
            Tok::Str(s) => format!("\"{s}\""),
            Tok::Char(c) => format!("'{}'", char::from_u32(*c).unwrap_or('?')),
            Tok::Sign(s) => (*s).to_string(),
            Tok::End => "end of file".into(),
        }
    }
}

/// Longest first. `>>` and `>>=` are two signs each, so that `vec<vec<T>>` needs nothing special.
const SIGNS: &[&str] = &[
    "<<=", "...", "->*", "::", "->", "++", "--", "<<", "<=", ">=", "==", "!=", "&&", "||", "+=", "-=", "*=", "/=",
    "%=", "&=", "|=", "^=", "##", "{", "}", "(", ")", "[", "]", ";", ",", ":", "?", ".", "+", "-", "*", "/", "%", "&",
    "|", "^", "~", "!", "=", "<", ">", "#",
];

/// Longest source in bytes.
pub(crate) const MAX_SOURCE: usize = 8 << 20;

pub(crate) fn lex(source: &str) -> Res<Vec<Token>> {
    if source.len() > MAX_SOURCE {
        return fail(Pos { line: 1, column: 1 }, format!("source of {} bytes is too large", source.len()));
    }
    let mut lexer = Lexer { text: source.as_bytes(), at: 0, pos: Pos { line: 1, column: 1 }, tokens: Vec::new() };
    lexer.run()?;
    Ok(lexer.tokens)
}

struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    pos: Pos,
    tokens: Vec<Token>,
}

fn is_word(c: u8) -> bool {
    c.is_ascii_alphanumeric() || c == b'_'
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        self.text.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn bump(&mut self) {
        let c = self.peek(0);
        self.at += 1;
        if c == b'\n' {
            self.pos.line += 1;
            self.pos.column = 1;
        } else if c & 0xc0 != 0x80 {
            self.pos.column += 1;
        }
    }

    fn run(&mut self) -> Res<()> {
        let (mut first, mut spaced) = (true, false);
        while self.at < self.text.len() {
            let (c, next) = (self.peek(0), self.peek(1));
            match c {
                b'\n' => {
                    first = true;
                    self.bump();
                }
                b' ' | b'\t' | b'\r' | 0x0b | 0x0c => {
                    spaced = true;
                    self.bump();
                }
                b'\\' if next == b'\n' || (next == b'\r' && self.peek(2) == b'\n') => {
                    while self.peek(0) != b'\n' {
                        self.bump();
                    }
                    self.bump();
                    spaced = true;
                }
                b'/' if next == b'/' => {
                    while self.at < self.text.len() && self.peek(0) != b'\n' {
                        self.bump();
                    }
                    spaced = true;
                }
                b'/' if next == b'*' => {
                    self.comment()?;
                    spaced = true;
                }
                _ => {
                    let at = self.pos;
                    let tok = self.token(c)?;
                    self.tokens.push(Token { tok, at, first, spaced });
                    (first, spaced) = (false, false);
                }
            }
        }
        self.tokens.push(Token { tok: Tok::End, at: self.pos, first: true, spaced });
        Ok(())
    }

    fn comment(&mut self) -> Res<()> {
        let at = self.pos;
        self.bump();
        self.bump();
        while !(self.peek(0) == b'*' && self.peek(1) == b'/') {
            if self.at >= self.text.len() {
                return fail(at, "unterminated /* comment");
            }
            self.bump();
        }
        self.bump();
        self.bump();
        Ok(())
    }

    fn token(&mut self, c: u8) -> Res<Tok> {
        if c.is_ascii_alphabetic() || c == b'_' {
            return Ok(Tok::Id(self.take(|_, c| is_word(c))));
        }
        if c.is_ascii_digit() || (c == b'.' && self.peek(1).is_ascii_digit()) {
            // An exponent's sign belongs to the number; hexadecimal e is a digit.
            let hex = c == b'0' && matches!(self.peek(1), b'x' | b'X');
            let sign =
                move |before: u8| if hex { matches!(before, b'p' | b'P') } else { matches!(before, b'e' | b'E') };
            return Ok(Tok::Num(self.take(|before, c| {
                is_word(c) || c == b'.' || c == b'\'' || (matches!(c, b'+' | b'-') && sign(before))
            })));
        }
        match c {
            b'"' => self.string(),
            b'\'' => self.character(),
            _ => self.sign(),
        }
    }

    fn take(&mut self, keep: impl Fn(u8, u8) -> bool) -> Rc<str> {
        let start = self.at;
        let mut before = 0;
        while self.at < self.text.len() && keep(before, self.peek(0)) {
            before = self.peek(0);
            self.bump();
        }
        String::from_utf8_lossy(&self.text[start..self.at]).into()
    }

    fn string(&mut self) -> Res<Tok> {
        let at = self.pos;
        self.bump();
        let mut text = Vec::new();
        loop {
            match self.peek(0) {
                b'"' => break,
                b'\n' | 0 => return fail(at, "missing terminating '\"' character"),
                b'\\' => {
                    self.bump();
                    text.push(self.escape());
                }
                c => text.push(c),
            }
            self.bump();
        }
        self.bump();
        Ok(Tok::Str(String::from_utf8_lossy(&text).into()))
    }

    fn escape(&self) -> u8 {
        match self.peek(0) {
            b'n' => b'\n',
            b't' => b'\t',
            b'0' => 0,
            c => c,
        }
    }

    fn character(&mut self) -> Res<Tok> {
        let at = self.pos;
        self.bump();
        let value = match self.peek(0) {
            b'\\' => {
                self.bump();
                self.escape()
            }
            c => c,
        };
        self.bump();
        if self.peek(0) != b'\'' {
            return fail(at, "missing terminating ' character");
        }
        self.bump();
        Ok(Tok::Char(value.into()))
    }

    fn sign(&mut self) -> Res<Tok> {
        let rest = &self.text[self.at..];
        let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(sign.as_bytes())) else {
            let shown = String::from_utf8_lossy(&rest[..rest.len().min(4)]).chars().next().unwrap_or('?');
            return fail(self.pos, format!("unexpected character '{shown}'"));
        };
        (0..sign.len()).for_each(|_| self.bump());
        Ok(Tok::Sign(sign))
    }
}
