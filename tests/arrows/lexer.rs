//! Rust source → tokens with line numbers: enough to see names, paths and braces, blind to comments and literals.
//!
//! Source: the Rust reference, "Lexical structure". Left out: number suffixes and float forms (all one literal),
//! `c"..."` escapes beyond `\"`, and shebang lines.

/// What a reader of paths needs to know of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Identifier or keyword, raw prefix dropped.
    Word(String),
    /// `::`
    PathSep,
    /// Any other single character.
    Sign(char),
    /// String, character or number.
    Literal,
    /// `'a`
    Lifetime,
}

/// A token and the line (from 1) it starts on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub kind: Kind,
    pub line: usize,
}

impl Token {
    pub fn is(&self, word: &str) -> bool {
        matches!(&self.kind, Kind::Word(w) if w == word)
    }

    pub fn sign(&self, sign: char) -> bool {
        self.kind == Kind::Sign(sign)
    }
}

/// The tokens of a file. Unterminated literals and comments end with the file.
pub fn tokens(source: &str) -> Vec<Token> {
    let mut cursor = Cursor { chars: source.chars().collect(), at: 0, line: 1 };
    let mut found = Vec::new();
    while let Some(c) = cursor.peek(0) {
        let line = cursor.line;
        if let Some(kind) = cursor.token(c) {
            found.push(Token { kind, line });
        }
    }
    found
}

struct Cursor {
    chars: Vec<char>,
    at: usize,
    line: usize,
}

impl Cursor {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn bump(&mut self) {
        if self.peek(0) == Some('\n') {
            self.line += 1;
        }
        self.at += 1;
    }

    fn skip_while(&mut self, keep: impl Fn(char) -> bool) -> String {
        let mut text = String::new();
        while let Some(c) = self.peek(0).filter(|&c| keep(c)) {
            text.push(c);
            self.bump();
        }
        text
    }

    /// Reads one token, or a blank or comment (`None`).
    fn token(&mut self, c: char) -> Option<Kind> {
        match (c, self.peek(1)) {
            ('/', Some('/')) => {
                self.skip_while(|c| c != '\n');
                None
            }
            ('/', Some('*')) => {
                self.block_comment();
                None
            }
            ('"', _) => Some(self.string(0, true)),
            ('\'', _) => Some(self.quote()),
            (':', Some(':')) => {
                self.bump();
                self.bump();
                Some(Kind::PathSep)
            }
            _ if c.is_whitespace() => {
                self.bump();
                None
            }
            _ if c.is_ascii_digit() => {
                self.skip_while(|c| c.is_alphanumeric() || c == '_');
                Some(Kind::Literal)
            }
            _ if c.is_alphabetic() || c == '_' => Some(self.word()),
            _ => {
                self.bump();
                Some(Kind::Sign(c))
            }
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0_usize;
        while let Some(c) = self.peek(0) {
            match (c, self.peek(1)) {
                ('/', Some('*')) => depth += 1,
                ('*', Some('/')) => depth -= 1,
                _ => {
                    self.bump();
                    continue;
                }
            }
            self.bump();
            self.bump();
            if depth == 0 {
                return;
            }
        }
    }

    /// An identifier, or the prefix of a raw or byte literal.
    fn word(&mut self) -> Kind {
        let text = self.skip_while(|c| c.is_alphanumeric() || c == '_');
        let hashes = (0..).take_while(|&n| self.peek(n) == Some('#')).count();
        match (text.as_str(), self.peek(hashes)) {
            ("r" | "br" | "cr", Some('"')) => {
                (0..hashes).for_each(|_| self.bump());
                self.string(hashes, false)
            }
            ("b" | "c", Some('"')) if hashes == 0 => self.string(0, true),
            ("b", Some('\'')) if hashes == 0 => self.quote(),
            ("r", Some(_)) if hashes == 1 => {
                self.bump();
                Kind::Word(self.skip_while(|c| c.is_alphanumeric() || c == '_'))
            }
            _ => Kind::Word(text),
        }
    }

    /// A string whose opening quote is next; it ends with a quote and `hashes` number signs.
    fn string(&mut self, hashes: usize, escapes: bool) -> Kind {
        self.bump();
        while let Some(c) = self.peek(0) {
            self.bump();
            if c == '\\' && escapes {
                self.bump();
            } else if c == '"' && (0..hashes).all(|n| self.peek(n) == Some('#')) {
                (0..hashes).for_each(|_| self.bump());
                break;
            }
        }
        Kind::Literal
    }

    /// A character literal or a lifetime.
    fn quote(&mut self) -> Kind {
        self.bump();
        if self.peek(0) == Some('\\') {
            self.bump();
            self.bump();
            self.skip_while(|c| c != '\'');
            self.bump();
            return Kind::Literal;
        }
        if self.peek(1) == Some('\'') {
            self.bump();
            self.bump();
            return Kind::Literal;
        }
        self.skip_while(|c| c.is_alphanumeric() || c == '_');
        Kind::Lifetime
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str) -> Vec<String> {
        let word = |t: Token| match t.kind {
            Kind::Word(w) => Some(w),
            _ => None,
        };
        tokens(source).into_iter().filter_map(word).collect()
    }

    #[test]
    fn comments_and_literals_hide_what_looks_like_code() {
        let source = "a // b\n/* c /* d */ e */ f \"g \\\" h\" r#\"i \" j\"# b'k' '\\'' 'l' m";
        assert_eq!(words(source), ["a", "f", "m"]);
    }

    #[test]
    fn a_lifetime_is_not_the_start_of_a_character() {
        assert_eq!(words("fn f<'a>(x: &'a str, c: char) { '}'; y }"), ["fn", "f", "x", "str", "c", "char", "y"]);
    }

    #[test]
    fn raw_identifiers_lose_their_prefix() {
        assert_eq!(words("r#type r#\"x\"#"), ["type"]);
    }

    #[test]
    fn lines_count_through_multi_line_strings() {
        let found = tokens("\"one\ntwo\"\nthree");
        assert_eq!(found.last().map(|t| t.line), Some(3));
    }
}
