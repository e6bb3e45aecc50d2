//! The record of a session for the explorer (`VIZ`, `doorbell viz`): what each part of the engine did and why.
//!
//! Lines of the user's program, graphs, schedules with reasons, rewrites, programs and code are noted when they are
//! made; what ran when is in [`Profile`](super::profile::Profile). Nothing is noted, and nothing costs time, unless the
//! session's options ask for it.

mod banks;
mod finish;
mod graph;
mod interrupt;
mod kernel;
mod limits;
mod memory;
mod plan;

pub(super) use interrupt::write_when_interrupted;
pub(super) use kernel::{Made, Notes};

use super::Session;
use crate::codegen::{self, RuleInfo};
use crate::device::MemoryWatch;
use crate::explorer::{Calls, Line, Part, Record, RuleLine};
use crate::uop::{self, UOp};
use std::collections::HashMap;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Collects the record of a session.
#[derive(Default)]
pub(super) struct Recorder {
    state: Mutex<State>,
    /// Whether applied rules are noted, which makes compiling slower.
    steps: bool,
}

#[derive(Default)]
struct State {
    record: Record,
    lines: HashMap<Line, usize>,
    texts: HashMap<String, Vec<String>>,
    rules: HashMap<&'static str, usize>,
    listed: HashMap<&'static str, RuleInfo>,
    plans: HashMap<plan::Key, usize>,
    /// Number of each kernel by device and kernel graph.
    kernels: HashMap<(Arc<str>, u64), usize>,
    /// Memories that are still there, with the number of their buffer.
    alive: Vec<(MemoryWatch, usize)>,
    buffers: HashMap<usize, usize>,
    parts: Vec<Part>,
    calls: Calls,
    /// Events that the written file has.
    written: Option<(usize, usize)>,
}

impl Recorder {
    pub(crate) fn new(steps: bool) -> Recorder {
        let listed = codegen::rules().into_iter().map(|r| (r.name, r)).collect();
        Recorder { steps, state: Mutex::new(State { listed, ..State::default() }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a kernel, if it was compiled in this session.
    pub(crate) fn kernel_number(&self, device: &Arc<str>, ast: &UOp) -> Option<usize> {
        self.state().kernels.get(&(device.clone(), ast.id())).copied()
    }

    /// Adds calls of drivers, with the packets behind their doorbells.
    pub(crate) fn set_calls(&self, calls: Calls) {
        self.state().calls = calls;
    }
}

impl State {
    /// The number of the call that made a node.
    fn line(&mut self, made: uop::Made) -> usize {
        let (file, line) = (made.at.file().to_owned(), made.at.line());
        let mut entry = Line { op: made.op.into(), file, line, text: String::new() };
        if let Some(known) = self.lines.get(&entry) {
            return *known;
        }
        let number = self.record.lines.len();
        self.lines.insert(entry.clone(), number);
        entry.text = self.text(made.at);
        self.record.lines.push(entry);
        number
    }

    /// The text of a line of the user's program, if its file is there.
    fn text(&mut self, at: &Location<'_>) -> String {
        let lines = self.texts.entry(at.file().into()).or_insert_with(|| {
            let text = std::fs::read_to_string(at.file()).unwrap_or_default();
            text.lines().map(|l| l.trim().to_owned()).collect()
        });
        lines.get(at.line() as usize - 1).cloned().unwrap_or_default()
    }

    /// The number of a rule; counts that it was applied.
    fn rule(&mut self, name: &'static str) -> usize {
        let number = *self.rules.entry(name).or_insert_with(|| {
            let mut rule = RuleLine { name: name.into(), ..RuleLine::default() };
            if let Some(info) = self.listed.get(name) {
                (rule.list, rule.about) = (info.list.into(), info.about.into());
                rule.place = format!("{}:{}", info.at.file(), info.at.line());
            }
            self.record.rules.push(rule);
            self.record.rules.len() - 1
        });
        self.record.rules[number].count += 1;
        number
    }
}

impl Session {
    /// Whether times of commands are wanted.
    pub(super) fn is_timed(&self) -> bool {
        self.options.profile.is_some() || self.recorder.is_some()
    }
}
