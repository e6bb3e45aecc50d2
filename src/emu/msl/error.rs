//! Positions in a source, and mistakes found in it.

use std::fmt;

/// Line and column, both from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pos {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

/// A mistake in a source, printed as clang prints it: `program_source:LINE:COL: error: TEXT`, the line, a caret.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub struct CompileError {
    /// Where it is.
    pub at: Pos,
    /// What is wrong.
    pub text: String,
    /// The line of the source.
    pub source_line: String,
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "program_source:{}:{}: error: {}", self.at.line, self.at.column, self.text)?;
        writeln!(f, "{}", self.source_line)?;
        write!(f, "{:>1$}", "^", self.at.column as usize)
    }
}

/// The text of `Display`: what `?` out of `main` prints.
impl fmt::Debug for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A mistake before its line is known.
#[derive(Clone, Debug)]
pub(crate) struct Mistake {
    pub at: Pos,
    pub text: String,
}

pub(crate) type Res<T> = Result<T, Mistake>;

pub(crate) fn fail<T>(at: Pos, text: impl Into<String>) -> Res<T> {
    Err(Mistake { at, text: text.into() })
}

impl Mistake {
    pub(crate) fn in_source(self, source: &str) -> CompileError {
        let line = source.lines().nth((self.at.line as usize).saturating_sub(1)).unwrap_or("");
        let source_line = line.chars().take(500).collect();
        CompileError { at: self.at, text: self.text, source_line }
    }
}
