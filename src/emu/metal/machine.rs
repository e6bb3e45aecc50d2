//! A machine: what its GPU is, what it is told to do wrong, the objects alive on it and the faults of its program.

use crate::ledger::{Ledger, Pulse};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// What the GPU of a machine is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Its newest family, 7 for Apple7; 0 for a GPU of none of Apple's families.
    pub family: u32,
    /// Its name.
    pub name: String,
    /// Ends the process with a message at the first fault, as Metal's validation layer does.
    pub strict: bool,
    /// Threads of the host that run kernels.
    pub host_threads: usize,
    /// Bytes of its largest buffer.
    pub max_buffer_bytes: u64,
    /// How many GPUs it has.
    pub gpus: u32,
    /// In which order command buffers of a queue run that nothing orders.
    pub order: Order,
    /// Takes all resources for untracked ones: then only events order command buffers.
    pub all_untracked: bool,
}

/// The order of command buffers of one queue that nothing orders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// That of their commits, each whole where it need not wait.
    #[default]
    Commit,
    /// The newest first, command by command.
    Newest,
    /// Command by command as a seed draws.
    Seeded(u64),
}

impl Default for Config {
    fn default() -> Self {
        Self {
            family: 7,
            name: "Software Apple7".into(),
            strict: false,
            host_threads: 1,
            max_buffer_bytes: 8 << 30,
            gpus: 1,
            order: Order::Commit,
            all_untracked: false,
        }
    }
}

/// How a command buffer fails: numbers and names as drivers print them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The watchdog ended it.
    Timeout,
    /// An access to memory that is not there.
    PageFault,
    /// No memory for it.
    OutOfMemory,
    /// The process is ignored after former faults.
    SubmissionsIgnored,
    /// It never ends.
    Hang,
}

impl Failure {
    /// `NSError`'s code and the text's end.
    pub(crate) fn code_and_text(self) -> (i64, &'static str) {
        match self {
            Self::Timeout | Self::Hang => {
                (2, "Caused GPU Timeout Error (00000002:kIOGPUCommandBufferCallbackErrorTimeout)")
            }
            Self::PageFault => {
                (3, "Caused GPU Address Fault Error (0000000b:kIOGPUCommandBufferCallbackErrorPageFault)")
            }
            Self::OutOfMemory => (8, "Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"),
            Self::SubmissionsIgnored => (
                4,
                "Ignored (for causing prior/excessive GPU errors) (00000004:kIOGPUCommandBufferCallbackErrorSubmissionsIgnored)",
            ),
        }
    }
}

/// What goes wrong on purpose.
#[derive(Clone, Debug, Default)]
pub struct Knobs {
    /// There is no device.
    pub nil_device: bool,
    /// There is no queue.
    pub nil_queue: bool,
    /// There is no memory for a buffer.
    pub nil_buffer: bool,
    /// There is no event.
    pub nil_event: bool,
    /// Sources compile with this warning.
    pub compile_warning: Option<String>,
    /// No pipeline can be made, with this text.
    pub pipeline_error: Option<String>,
    /// No pipeline can be made that indirect command buffers can launch.
    pub no_indirect_pipelines: bool,
    /// There is no indirect command buffer.
    pub nil_indirect: bool,
    /// Most threads of a threadgroup of every pipeline.
    pub pipeline_limit: Option<u64>,
    /// Command buffer n of the machine, from 0 on, fails.
    pub fail: Option<(u64, Failure)>,
    /// Nothing that is committed begins.
    pub hold: bool,
}

/// The kind of a program's mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// A message to an object that was released for the last time.
    DeadObject,
    /// A message to something that never was an object.
    NoObject,
    /// A selector that the object's class does not have.
    UnknownSelector,
    /// An argument that is an object of another class, or nil where that is not allowed.
    WrongArgument,
    /// An object autoreleased, or returned so, on a thread without a pool.
    NoPool,
    /// A pool ended before one that was begun later, or twice.
    PoolOrder,
    /// An encoder used after it ended, or a command buffer after its commit.
    AfterEnd,
    /// A commit, an event or a second encoder while one is open.
    OpenEncoder,
    /// An encoder released without having ended.
    UnendedEncoder,
    /// A dispatch without a pipeline.
    NoPipeline,
    /// A buffer slot beyond 30, or one that the kernel reads and nobody bound.
    Slot,
    /// Bytes, threadgroup memory, offsets or ranges beyond their limits.
    Range,
    /// A threadgroup above the pipeline's limit: a GPU drops such a dispatch silently.
    ThreadgroupTooLarge,
    /// An indirect command buffer without a pipeline, with one that is not made for it, or changed while it is
    /// executed.
    Indirect,
    /// An indirect command buffer names what the encoder has not made resident.
    NotResident,
    /// A buffer of another GPU.
    OtherDevice,
    /// A copy within a buffer whose ranges overlap.
    Overlap,
    /// The host asks for memory that only the GPU has.
    Private,
    /// Two command buffers use an untracked resource, and nothing orders them.
    Unordered,
    /// More command buffers in flight than the queue was made for: `commandBuffer` would block.
    QueueFull,
}

/// A program's mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What kind it is of.
    pub kind: FaultKind,
    /// What was done to which object.
    pub text: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.text)
    }
}

/// A machine with one GPU.
#[derive(Debug)]
pub struct Machine {
    pub(crate) config: Config,
    knobs: Mutex<Knobs>,
    /// A knob is set that command buffers ask for.
    is_told: AtomicBool,
    /// The command buffer that hung until the knob was changed, its number plus one.
    hung: AtomicU64,
    pub(crate) ledger: Ledger,
    pub(crate) pulse: Pulse,
    faults: Mutex<Vec<Fault>>,
    live: Mutex<BTreeMap<&'static str, u64>>,
    pub(crate) allocated: AtomicU64,
    /// Pipelines that a binary archive had.
    pub(crate) archive_hits: AtomicU64,
    /// Command buffers committed so far.
    pub(crate) committed: AtomicU64,
}

thread_local! {
    static CURRENT: RefCell<Vec<Arc<Machine>>> = const { RefCell::new(Vec::new()) };
}

/// Ends the work of a thread on a machine when it is dropped.
#[derive(Debug)]
pub struct Entered(());

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.with_borrow_mut(|all| drop(all.pop()));
    }
}

impl Machine {
    /// A machine without objects.
    #[must_use]
    pub fn new(config: Config) -> Arc<Self> {
        Arc::new(Self {
            config,
            knobs: Mutex::default(),
            is_told: AtomicBool::new(false),
            hung: AtomicU64::new(0),
            ledger: Ledger::default(),
            pulse: Pulse::default(),
            faults: Mutex::default(),
            live: Mutex::default(),
            allocated: AtomicU64::new(0),
            archive_hits: AtomicU64::new(0),
            committed: AtomicU64::new(0),
        })
    }

    /// Makes it the machine of this thread, until the guard is dropped: where devices come from that are created here.
    #[must_use]
    pub fn enter(self: &Arc<Self>) -> Entered {
        CURRENT.with_borrow_mut(|all| all.push(Arc::clone(self)));
        Entered(())
    }

    /// The machine of this thread, or one that all threads without one share.
    pub(crate) fn of_thread() -> Arc<Self> {
        static SHARED: LazyLock<Arc<Machine>> = LazyLock::new(|| Machine::new(Config::default()));
        CURRENT.with_borrow(|all| all.last().cloned()).unwrap_or_else(|| Arc::clone(&SHARED))
    }

    /// Says what goes wrong from now on.
    pub fn set(&self, knobs: Knobs) {
        self.is_told.store(knobs.hold || knobs.fail.is_some(), Ordering::Release);
        let was = std::mem::replace(&mut *self.knobs.lock().unwrap_or_else(PoisonError::into_inner), knobs);
        if let Some((number, Failure::Hang)) = was.fail {
            // What hung is ended by the watchdog.
            self.hung.store(number + 1, Ordering::Release);
        }
        self.pulse.beat();
    }

    /// A knob concerns command buffers.
    pub(crate) fn is_told(&self) -> bool {
        self.is_told.load(Ordering::Acquire)
    }

    pub(crate) fn is_held(&self) -> bool {
        self.is_told() && self.knobs().hold
    }

    /// How a command buffer fails, if it does.
    pub(crate) fn failure_of(&self, number: u64) -> Option<Failure> {
        if self.hung.load(Ordering::Acquire) == number + 1 {
            return Some(Failure::Timeout);
        }
        self.is_told().then(|| self.knobs().fail).flatten().filter(|(n, _)| *n == number).map(|(_, failure)| failure)
    }

    pub(crate) fn knobs(&self) -> Knobs {
        self.knobs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The faults since the last call.
    #[must_use]
    pub fn take_faults(&self) -> Vec<Fault> {
        std::mem::take(&mut self.faults.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How many objects of each class are alive.
    #[must_use]
    pub fn live(&self) -> Vec<(&'static str, u64)> {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.iter().filter(|(_, count)| **count > 0).map(|(class, count)| (*class, *count)).collect()
    }

    /// How many command buffers were committed.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.committed.load(Ordering::Acquire)
    }

    /// How many pipelines came from binary archives.
    #[must_use]
    pub fn archive_hits(&self) -> u64 {
        self.archive_hits.load(Ordering::Relaxed)
    }

    pub(crate) fn count(&self, class: &'static str, by: i64) {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let count = live.entry(class).or_default();
        *count = count.saturating_add_signed(by);
    }

    /// Records a fault; a strict machine ends the process.
    #[expect(clippy::print_stderr, reason = "as Apple's validation layer does before it ends the process")]
    pub(crate) fn fault(&self, kind: FaultKind, text: impl Into<String>) {
        let fault = Fault { kind, text: text.into() };
        if self.config.strict {
            eprintln!("software Metal, {}: {fault}", self.config.name);
            std::process::abort();
        }
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
    }
}
