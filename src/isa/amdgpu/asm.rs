//! Instructions and labels → code: branches get their distances when all labels are bound.

use super::chip::Target;
use super::encode::{EncodeError, encode};
use super::inst::Inst;
use super::reg::Operand;
use thiserror::Error;

/// A position in the code that branches may name before it is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Label(pub u32);

impl From<Label> for Operand {
    fn from(label: Label) -> Self {
        Operand::Label(label.0)
    }
}

/// Why code cannot be put together.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsmError {
    #[error("instruction {index}: {error}")]
    Encode { index: usize, error: EncodeError },
    #[error("label {label} is bound twice")]
    Rebound { label: u32 },
    #[error("label {label} is branched to and bound nowhere")]
    Unbound { label: u32 },
    #[error("branch at dword {at} to label {label}: {distance} dwords, a branch reaches 32767")]
    TooFar { at: usize, label: u32, distance: i64 },
}

/// Collects instructions.
#[derive(Clone, Debug)]
pub struct Assembler {
    target: Target,
    words: Vec<u32>,
    labels: Vec<Option<usize>>,
    /// Dword of a branch and its label.
    branches: Vec<(usize, u32)>,
    count: usize,
}

impl Assembler {
    #[must_use]
    pub fn new(target: Target) -> Assembler {
        Assembler { target, words: Vec::new(), labels: Vec::new(), branches: Vec::new(), count: 0 }
    }

    #[must_use]
    pub fn target(&self) -> Target {
        self.target
    }

    /// Appends an instruction.
    ///
    /// # Errors
    /// It cannot be encoded for the target.
    pub fn push(&mut self, inst: &Inst) -> Result<(), AsmError> {
        let words = encode(self.target, inst).map_err(|error| AsmError::Encode { index: self.count, error })?;
        for operand in &inst.operands {
            if let Operand::Label(label) = operand {
                self.branches.push((self.words.len(), *label));
            }
        }
        self.words.extend(words);
        self.count += 1;
        Ok(())
    }

    /// A label that is not bound yet.
    #[allow(clippy::cast_possible_truncation)] // a label a dword at most
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label((self.labels.len() - 1) as u32)
    }

    /// Binds the label to the next instruction.
    ///
    /// # Errors
    /// It is bound already.
    pub fn bind(&mut self, label: Label) -> Result<(), AsmError> {
        let here = self.words.len();
        match self.labels.get_mut(label.0 as usize) {
            Some(place @ None) => {
                *place = Some(here);
                Ok(())
            }
            _ => Err(AsmError::Rebound { label: label.0 }),
        }
    }

    /// Dwords so far.
    #[must_use]
    pub fn len_dwords(&self) -> usize {
        self.words.len()
    }

    /// Appends dwords that are no instruction of the table (padding, data).
    pub fn push_words(&mut self, words: &[u32]) {
        self.words.extend_from_slice(words);
    }

    /// The dwords, branches resolved.
    ///
    /// # Errors
    /// A label is not bound, or too far from a branch to it.
    pub fn finish(mut self) -> Result<Vec<u32>, AsmError> {
        for (at, label) in std::mem::take(&mut self.branches) {
            let bound = self.labels.get(label as usize).copied().flatten().ok_or(AsmError::Unbound { label })?;
            let distance = i64::try_from(bound).unwrap_or(i64::MAX) - i64::try_from(at).unwrap_or(i64::MAX) - 1;
            let field = i16::try_from(distance).map_err(|_| AsmError::TooFar { at, label, distance })?;
            self.words[at] = self.words[at] & 0xffff_0000 | u32::from(field.cast_unsigned());
        }
        Ok(self.words)
    }
}
