//! SMs that do wrong once, on purpose: the n-th grid does nothing, or ends in an exception.

use doorbell::emu::nvrm::Sms;
use doorbell::emu::nvrm::compute::{Compute, ComputeFault, Launch, Machine, WarpError};
use hw_contact::Spec;
use std::sync::atomic::{AtomicU64, Ordering};

/// What happens to the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// It does nothing and counts as done.
    Lose,
    /// A warp meets an illegal instruction.
    Fail,
}

/// Which grid, and what happens to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    nth: u64,
    trouble: Trouble,
}

/// The warp's exception: illegal instruction.
const ILLEGAL_INSTRUCTION: u32 = 9;

impl Planned {
    /// `grid:3:lose`, `grid:1:fail`; `None`: a fault of something else.
    ///
    /// # Errors
    /// In words.
    pub fn parse(text: &str) -> Result<Option<Self>, String> {
        let spec = Spec::parse(text)?;
        if spec.call != "grid" {
            return Ok(None);
        }
        let trouble = match spec.trouble {
            "lose" => Trouble::Lose,
            "fail" => Trouble::Fail,
            _ => return Err(spec.wrong("a grid can lose or fail")),
        };
        Ok(Some(Self { nth: spec.nth, trouble }))
    }
}

/// The card's SMs, and the plan.
#[derive(Debug)]
pub struct Troubled {
    inner: Sms,
    planned: Vec<Planned>,
    grids: AtomicU64,
}

impl Troubled {
    #[must_use]
    pub fn new(inner: Sms, planned: Vec<Planned>) -> Self {
        Self { inner, planned, grids: AtomicU64::new(0) }
    }

    /// Grids so far.
    #[must_use]
    pub fn grids(&self) -> u64 {
        self.grids.load(Ordering::Relaxed)
    }
}

impl Compute for Troubled {
    fn run(&self, launch: &Launch, machine: &Machine<'_>) -> Result<(), ComputeFault> {
        let number = self.grids.fetch_add(1, Ordering::Relaxed) + 1;
        match self.planned.iter().find(|p| p.nth == number).map(|p| p.trouble) {
            None => self.inner.run(launch, machine),
            Some(Trouble::Lose) => Ok(()),
            Some(Trouble::Fail) => {
                let error = WarpError { sm: 0, code: ILLEGAL_INSTRUCTION, pc: launch.entry, va: 0 };
                Err(ComputeFault::Exception { error, text: format!("grid {number} was made to fail") })
            }
        }
    }
}
