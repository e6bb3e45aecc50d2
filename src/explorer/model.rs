//! What a record holds. Numbers of other entries are indices into the lists of [`Record`]. Times are nanoseconds since
//! the run began.

use crate::{Nodes, Part};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of this form; changed whenever an older program could not read it.
pub const VERSION: u32 = 1;

/// A whole run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Record {
    /// [`VERSION`] of the program that wrote it.
    pub version: u32,
    /// Which run it is.
    pub run: Run,
    /// The calls of the user's program that made values.
    pub lines: Vec<Line>,
    /// Each different schedule.
    pub plans: Vec<Plan>,
    /// Each computation that the program asked for.
    pub realizes: Vec<Realize>,
    /// The kernels that were compiled.
    pub kernels: Vec<Kernel>,
    /// Memory.
    pub buffers: Vec<Buffer>,
    /// The rewrite rules of this release that were applied.
    pub rules: Vec<RuleLine>,
    /// Totals by name.
    pub counters: BTreeMap<String, u64>,
    /// What the devices can do, as measured.
    pub limits: Vec<Limit>,
    /// What the record does not have, and why.
    pub notes: Vec<String>,
    /// Parts that are decoded when they are looked at: `events` ([`Events`]), `plan:N` ([`PlanGraph`]), `kernel:N`
    /// ([`Code`]), `calls` ([`Calls`]).
    #[serde(skip)]
    pub parts: Vec<Part>,
}

/// Which run it is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    /// The command line.
    pub command: String,
    /// The default device.
    pub device: String,
    /// The release that ran.
    pub release: String,
    /// When it began, in seconds since 1970.
    pub began_s: u64,
    /// How long it took.
    pub length_ns: u64,
}

/// A call of the user's program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Line {
    /// The method: `sum`.
    pub op: String,
    /// The file, as the compiler names it.
    pub file: String,
    /// Its line, from 1.
    pub line: u32,
    /// That line's text; empty if the file is not there.
    pub text: String,
}

/// A schedule: what runs for one form of graph.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Plan {
    /// What runs, in order.
    pub items: Vec<Item>,
    /// Bytes of the memory that temporaries share.
    pub arena_bytes: u64,
}

/// A kernel or a copy of a schedule.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Item {
    /// Which of both.
    pub kind: ItemKind,
    /// Where it runs.
    pub device: String,
    /// Calls whose values it computes.
    pub lines: Vec<usize>,
    /// Values that it computes, and those of them that it stores.
    pub values: [usize; 2],
    /// The first buffers that it used: the stored one first.
    pub buffers: Vec<usize>,
    /// Other items that it gives values to, and why they are not one with it.
    pub cuts: Vec<(usize, String)>,
}

/// What an item is.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemKind {
    /// A kernel.
    Kernel(usize),
    /// A copy of so many bytes, and where from.
    Copy(u64, String),
}

impl Default for ItemKind {
    fn default() -> Self {
        ItemKind::Copy(0, String::new())
    }
}

/// The graph of a plan: `plan:N`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PlanGraph {
    /// The nodes, those that are already in memory as buffers.
    pub nodes: Nodes,
    /// What was asked for.
    pub roots: Vec<usize>,
    /// The call that made each node, plus one; 0: none.
    pub line: Vec<usize>,
    /// The items that compute each node.
    pub items: Vec<Vec<usize>>,
}

/// A computation that the program asked for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Realize {
    /// When it began.
    pub at_ns: u64,
    /// How long scheduling, compiling and submitting took.
    pub length_ns: u64,
    /// Its schedule.
    pub plan: usize,
    /// Whether it was recorded for replays.
    pub captured: bool,
}

/// A compiled kernel.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Kernel {
    /// Its symbol.
    pub name: String,
    /// The device it was compiled for.
    pub device: String,
    /// That device's architecture.
    pub arch: String,
    /// Equal for equal kernel graphs, in any run.
    pub key: String,
    /// The opts that were applied.
    pub opts: Vec<String>,
    /// Arithmetic operations of a launch.
    pub flops: u64,
    /// Bytes of all loads and stores of a launch.
    pub mem_bytes: u64,
    /// Bytes of the distinct memory that a launch touches.
    pub unique_bytes: u64,
    /// Chunks for the cores of a CPU.
    pub threads: u32,
    /// Workgroups.
    pub global: [u32; 3],
    /// Threads of a workgroup.
    pub local: [u32; 3],
    /// Shared memory of a workgroup.
    pub local_bytes: u64,
    /// Nodes of the linear program.
    pub uops: usize,
    /// Rules that were applied.
    pub steps: usize,
    /// Instructions of the listing.
    pub instructions: usize,
    /// Time from graph to machine code.
    pub compile_ns: u64,
    /// Candidates that a search timed.
    pub candidates: usize,
}

/// How a kernel came about: `kernel:N`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Code {
    /// Nodes of all that follows.
    pub nodes: Nodes,
    /// The kernel graph after each pass: name and node.
    pub stages: Vec<(String, usize)>,
    /// Applied rules.
    pub steps: Steps,
    /// The linear program.
    pub list: Vec<usize>,
    /// Accesses of workgroup memory: index in the linear program, and cycles for the bank conflicts of a wave (1:
    /// none).
    #[serde(default)]
    pub banks: Vec<(usize, u32)>,
    /// The linear program as text.
    pub program: String,
    /// The text that machine code is made of (PTX, MSL); empty if there is no such language.
    pub source: String,
    /// Machine code.
    pub listing: String,
    /// Arguments in order.
    pub arguments: Vec<String>,
    /// What a search timed.
    pub candidates: Vec<Candidate>,
}

/// Applied rules, column by column.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Steps {
    /// Into [`Record::rules`].
    pub rule: Vec<usize>,
    /// The node before.
    pub before: Vec<usize>,
    /// The node after.
    pub after: Vec<usize>,
    /// Applied rules that are left out for their number.
    pub left_out: usize,
}

/// A candidate of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Its opts.
    pub opts: String,
    /// Its fastest run; 0: it failed.
    pub ns: u64,
}

/// A rewrite rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleLine {
    /// Its name.
    pub name: String,
    /// The list that it belongs to.
    pub list: String,
    /// What it does.
    pub about: String,
    /// Where it is defined: file and line.
    pub place: String,
    /// How often it was applied.
    pub count: u64,
}

/// Memory of one buffer, or an area of temporaries.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Buffer {
    /// The device.
    pub device: String,
    /// Its size.
    pub bytes: u64,
    /// Type and number of elements; `temporaries` for an area.
    pub what: String,
    /// When it was first seen to be there.
    pub born_ns: u64,
    /// When it was first seen to be gone; 0: it was there at the end.
    pub died_ns: u64,
    /// Items that used it: plan and item.
    pub users: Vec<(usize, usize)>,
}

/// What a device can do, as measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// The device.
    pub device: String,
    /// Arithmetic operations a second, in units of 10^9.
    pub gflops: f64,
    /// Bytes a second, in units of 10^9.
    pub gbytes: f64,
    /// What was measured.
    pub how: String,
}

/// What happened over time, column by column: `events`. Sorted by start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Events {
    /// Queues, and threads of the host.
    pub tracks: Vec<String>,
    /// What happened.
    pub labels: Vec<Label>,
    /// Into `tracks`.
    pub track: Vec<u32>,
    /// Into `labels`.
    pub label: Vec<u32>,
    /// Difference to the start of the event before.
    pub start: Vec<u64>,
    /// How long it took.
    pub length: Vec<u64>,
    /// The submission that it belongs to; 0: none.
    pub batch: Vec<u32>,
}

/// What happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Label {
    /// Its name.
    pub text: String,
    /// What kind.
    pub kind: LabelKind,
    /// The kernel that ran.
    pub kernel: Option<usize>,
    /// Bytes of a copy.
    pub bytes: u64,
}

/// The kinds of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LabelKind {
    /// A kernel on a device.
    Kernel,
    /// A copy on a device.
    Copy,
    /// Work of the host.
    #[default]
    Host,
}

/// Calls of kernel drivers and the packets behind doorbells: `calls`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Calls {
    /// When each began.
    pub at_ns: Vec<u64>,
    /// How long each took.
    pub length_ns: Vec<u64>,
    /// Each call with named fields.
    pub text: Vec<String>,
    /// Of doorbells: packets, one a line.
    pub packets: Vec<Vec<String>>,
}
