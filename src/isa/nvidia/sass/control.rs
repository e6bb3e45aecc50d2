//! The control word: scheduling information of an instruction for its warp's scheduler.
//!
//! Written as `[B01----:R-:W2:Y:S04]`: scoreboards waited for, scoreboard set when the sources have been read,
//! scoreboard set when the result is written, yield, stall; a trailing `:E` is bit 125.

use super::bits::{Ranges, get, mask, put};
use thiserror::Error;

const STALL: Ranges = &[(105, 108)];
const KEEP: Ranges = &[(109, 109)];
const STALL_AND_KEEP: Ranges = &[(105, 109)];
const WRITE: Ranges = &[(110, 112)];
const READ: Ranges = &[(113, 115)];
const WAIT: Ranges = &[(116, 121)];
const EXTRA: Ranges = &[(125, 125)];
/// All bits of the control word except the operands' reuse flags.
pub(super) const BITS: Ranges = &[(105, 121), (125, 125)];

/// How many scoreboards a warp has.
pub const SCOREBOARDS: u8 = 6;

/// Stall, yield and scoreboards of one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Cycles until the next instruction of this warp may issue, 0 to 15; without `yields` 1 to 11.
    pub stall: u8,
    /// The scheduler may switch to another warp.
    pub yields: bool,
    /// Scoreboard 0 to 5 that is set until the result is written.
    pub write: Option<u8>,
    /// Scoreboard 0 to 5 that is set until the sources have been read.
    pub read: Option<u8>,
    /// Scoreboards waited for before issue: bit i is scoreboard i.
    pub wait: u8,
    /// Bit 125, which ptxas sets together with a reuse flag of some sparse matrix instructions.
    pub extra: bool,
}

impl Default for Control {
    fn default() -> Control {
        Control::ALONE
    }
}

/// A control word that does not exist in hardware.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ControlError {
    #[error("stall {stall} {}: the limits are 0 to 15 with yield and 1 to 11 without", if *yields { "with yield" } else { "without yield" })]
    Stall { stall: u8, yields: bool },
    #[error("{which} scoreboard {number}: there are 0 to 5")]
    Scoreboard { which: &'static str, number: u8 },
    #[error("wait mask {mask:#x}: it has six bits")]
    Wait { mask: u8 },
    #[error("reuse flags need an instruction that does not yield")]
    ReuseWithYield,
}

impl Control {
    /// One cycle, keeps issuing, no scoreboard.
    pub(super) const ALONE: Control =
        Control { stall: 1, yields: false, write: None, read: None, wait: 0, extra: false };

    /// Reads the control word of an instruction.
    ///
    /// # Errors
    /// A stall or scoreboard that does not exist.
    #[allow(clippy::cast_possible_truncation)] // fields of at most six bits
    pub(super) fn parse_word(word: u128) -> Result<Control, ControlError> {
        let board = |ranges| match get(word, ranges) as u8 {
            7 => None,
            n => Some(n),
        };
        let control = Control {
            stall: get(word, STALL) as u8,
            yields: get(word, KEEP) == 0,
            write: board(WRITE),
            read: board(READ),
            wait: get(word, WAIT) as u8,
            extra: get(word, EXTRA) == 1,
        };
        control.check()?;
        Ok(control)
    }

    /// The word with this control word in it.
    ///
    /// # Errors
    /// A stall or scoreboard that does not exist.
    pub fn emit(self, word: u128) -> Result<u128, ControlError> {
        self.check()?;
        let issue = u64::from(self.stall) + if self.yields { 0 } else { 16 };
        let all = put(0, STALL_AND_KEEP, issue)
            | put(0, WRITE, u64::from(self.write.unwrap_or(7)))
            | put(0, READ, u64::from(self.read.unwrap_or(7)))
            | put(0, WAIT, u64::from(self.wait))
            | put(0, EXTRA, u64::from(self.extra));
        Ok(word & !mask(BITS) | all)
    }

    fn check(self) -> Result<(), ControlError> {
        let stalls = if self.yields { 0..=15 } else { 1..=11 };
        if !stalls.contains(&self.stall) {
            return Err(ControlError::Stall { stall: self.stall, yields: self.yields });
        }
        let is_board = |board: Option<u8>| board.is_none_or(|n| n < SCOREBOARDS);
        if !is_board(self.write) || !is_board(self.read) {
            let (which, board) = if is_board(self.write) { ("read", self.read) } else { ("write", self.write) };
            return Err(ControlError::Scoreboard { which, number: board.unwrap_or(0) });
        }
        if self.wait >= 1 << SCOREBOARDS {
            return Err(ControlError::Wait { mask: self.wait });
        }
        Ok(())
    }

    /// The control word of a text like `[B01----:R-:W2:Y:S04]`; `None`: it is not of that form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Control> {
        let inner = text.trim().strip_prefix('[')?.strip_suffix(']')?;
        let mut parts = inner.split(':');
        let boards = parts.next()?.strip_prefix('B').filter(|b| b.len() == usize::from(SCOREBOARDS))?;
        let mut wait = 0;
        for (i, c) in boards.chars().enumerate() {
            match c.to_digit(10) {
                Some(d) if usize::try_from(d) == Ok(i) => wait |= 1 << i,
                None if c == '-' => {}
                _ => return None,
            }
        }
        let board = |text: &str| match text {
            "-" => Some(None),
            n => n.parse::<u8>().ok().map(Some),
        };
        let read = board(parts.next()?.strip_prefix('R')?)?;
        let write = board(parts.next()?.strip_prefix('W')?)?;
        let yields = match parts.next()? {
            "Y" => true,
            "-" => false,
            _ => return None,
        };
        let stall = parts.next()?.strip_prefix('S')?.parse().ok()?;
        let extra = match parts.next() {
            None => false,
            Some("E") => true,
            Some(_) => return None,
        };
        let control = Control { stall, yields, write, read, wait, extra };
        (parts.next().is_none()).then_some(control)
    }
}

impl std::fmt::Display for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[B")?;
        for i in 0..SCOREBOARDS {
            if self.wait & 1 << i == 0 { f.write_str("-")? } else { write!(f, "{i}")? }
        }
        for (name, board) in [('R', self.read), ('W', self.write)] {
            match board {
                None => write!(f, ":{name}-")?,
                Some(n) => write!(f, ":{name}{n}")?,
            }
        }
        write!(f, ":{}:S{:02}{}]", if self.yields { 'Y' } else { '-' }, self.stall, if self.extra { ":E" } else { "" })
    }
}
