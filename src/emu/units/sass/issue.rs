//! When a warp that has its scheduler alone would issue: an estimate, for comparing two codes of one kernel.
//!
//! Models: an instruction issues when the one before has stalled and the scoreboards it waits for are free; results
//! without a fixed latency take [`guessed_latency`]. Left out: other warps, barriers between them, full queues, caches,
//! register banks.

use doorbell_ptx::sass::{Control, Instruction, SCOREBOARDS, guessed_latency};

/// Cycles until memory instructions have read their sources: an estimate.
const SOURCES_READ: u64 = 12;

/// A warp's clock.
#[derive(Clone, Debug, Default)]
pub(super) struct Issue {
    clock: u64,
    /// When each scoreboard is free.
    free: [u64; SCOREBOARDS as usize],
}

impl Issue {
    /// The cycle after the last instruction so far.
    pub(crate) fn cycles(&self) -> u64 {
        self.clock
    }

    /// The next instruction issues.
    pub(crate) fn step(&mut self, inst: &Instruction) {
        let Control { stall, write, read, wait, .. } = inst.control;
        if wait != 0 {
            let waited = self.free.iter().enumerate().filter(|(k, _)| wait >> k & 1 == 1);
            self.clock = waited.fold(self.clock, |clock, (_, free)| clock.max(*free));
        }
        if write.is_some() || read.is_some() {
            for (board, after) in [(write, u64::from(guessed_latency(inst.form().pipe))), (read, SOURCES_READ)] {
                if let Some(free) = board.and_then(|k| self.free.get_mut(usize::from(k))) {
                    *free = (*free).max(self.clock + after);
                }
            }
        }
        self.clock += u64::from(stall.max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use doorbell_ptx::sass::op;

    #[test]
    fn an_instruction_issues_after_the_stall_and_after_the_scoreboards_it_waits_for() {
        let mut load = Instruction::new(op::LDG_R);
        (load.control.stall, load.control.write) = (2, Some(3));
        let mut next = Instruction::new(op::MOV_R);
        let mut issue = Issue::default();
        issue.step(&load);
        assert_eq!(issue.cycles(), 2);
        issue.step(&next);
        assert_eq!(issue.cycles(), 3);
        next.control.wait = 1 << 3;
        issue.step(&next);
        assert_eq!(issue.cycles(), u64::from(guessed_latency(load.form().pipe)) + 1);
    }
}
