//! What a host uses: a library of kernels from a source, their arguments, launches.

use crate::code::{Code, Param};
use crate::error::CompileError;
use crate::exec::{self, Bound, Grid, Machine, Source};
use crate::fault::{Fault, FaultKind};
use crate::memory::Memory;
use crate::parse::Parser;
use crate::tree::Attribute;
use crate::types::Space;
use crate::{MAX_THREADGROUP, MAX_THREADS, lex, lower, pre};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// How a source is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Language version, major and minor: (3, 1) for bfloat.
    pub version: (u32, u32),
    /// Permission to compute less exactly. It is not made use of: results are the same with and without.
    pub fast_math: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { version: (3, 1), fast_math: false }
    }
}

/// The stack of the thread that compiles: deep expressions are walked by recursion.
const STACK_BYTES: usize = 256 << 20;

/// Kernels of one source.
#[derive(Clone, Debug)]
pub struct Library {
    kernels: Vec<Kernel>,
}

impl Library {
    /// Compiles a source.
    ///
    /// # Errors
    /// The first mistake in the source.
    pub fn compile(source: &str, options: &Options) -> Result<Self, CompileError> {
        let work = || compile_here(source, options);
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work);
            match thread.map(std::thread::ScopedJoinHandle::join) {
                Ok(Ok(made)) => made,
                Ok(Err(panic)) => std::panic::resume_unwind(panic),
                Err(error) => Err(CompileError {
                    at: crate::Pos { line: 1, column: 1 },
                    text: format!("the compiler's thread does not start: {error}"),
                    source_line: String::new(),
                }),
            }
        })
    }

    /// Names of the kernels, in the order of the source.
    #[must_use]
    pub fn kernel_names(&self) -> Vec<&str> {
        self.kernels.iter().map(Kernel::name).collect()
    }

    /// The kernel of a name.
    #[must_use]
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|k| k.name() == name)
    }
}

/// Compiles on this thread's stack.
pub(crate) fn compile_here(source: &str, options: &Options) -> Result<Library, CompileError> {
    let (major, minor) = options.version;
    let defines = [("__METAL_VERSION__", major * 100 + minor * 10), ("__METAL__", 1), ("__METAL_MACOS__", 1)];
    let place = |mistake: crate::error::Mistake| mistake.in_source(source);
    let tokens = lex::lex(source).map_err(place)?;
    let tokens = pre::preprocess(tokens, &defines).map_err(place)?;
    let mut parser = Parser::new(tokens, major * 10 + minor);
    parser.program().map_err(place)?;
    let text: Arc<str> = source.into();
    let constants: Arc<[u8]> = parser.constants.clone().into();
    let mut kernels: Vec<Kernel> = Vec::new();
    for id in parser.kernels() {
        let code = lower::kernel(&parser, id).map_err(place)?;
        if kernels.iter().any(|k| k.name() == code.name) {
            let at = parser.functions[id].at;
            let text = format!("two kernels have the name '{}'", code.name);
            return Err(place(crate::error::Mistake { at, text }));
        }
        kernels.push(Kernel { code: Arc::new(code), constants: constants.clone(), source: text.clone() });
    }
    Ok(Library { kernels })
}

/// What a kernel's argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentKind {
    /// A buffer at a slot.
    Buffer,
    /// Threadgroup memory at a slot, of a length that the launch gives.
    Threadgroup,
}

/// An argument that the host has to give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// The parameter's name.
    pub name: String,
    /// Buffer or threadgroup memory.
    pub kind: ArgumentKind,
    /// 0 to 30.
    pub slot: u32,
    /// Its address space.
    pub space: Space,
    /// Whether the kernel may store to it.
    pub writable: bool,
    /// Bytes of the type that it points to.
    pub type_bytes: u64,
    /// That type's name.
    pub type_name: String,
    /// A reference: one object of the type has to be there.
    pub reference: bool,
}

/// Memory for a buffer slot.
#[derive(Clone, Copy)]
pub enum Binding<'a> {
    /// Memory from an offset on.
    Buffer {
        /// The memory.
        memory: &'a dyn Memory,
        /// First byte.
        offset: u64,
    },
    /// Bytes that are only read.
    Bytes(&'a [u8]),
}

impl<'a> Binding<'a> {
    /// The whole of a memory.
    #[must_use]
    pub fn buffer(memory: &'a dyn Memory) -> Self {
        Self::Buffer { memory, offset: 0 }
    }
}

/// A launch of a kernel.
#[derive(Clone, Copy)]
pub struct Launch<'a> {
    /// Threadgroups in each dimension.
    pub groups: [u32; 3],
    /// Threads of a threadgroup in each dimension.
    pub threads: [u32; 3],
    /// Threads of the grid, if the last groups of a dimension are smaller than the others.
    pub grid: Option<[u32; 3]>,
    /// What is bound to the buffer slots, from 0 on.
    pub buffers: &'a [Option<Binding<'a>>],
    /// Bytes of each threadgroup slot, from 0 on.
    pub threadgroup: &'a [u64],
    /// Threads of the host that work on it.
    pub host_threads: usize,
    /// Instructions that a simdgroup may take in loops: bounds endless ones.
    pub max_steps: u64,
    /// Grows by the instructions that simdgroups execute.
    pub executed: Option<&'a AtomicU64>,
    /// The launch ends with a fault soon after this is set.
    pub stop: Option<&'a AtomicBool>,
}

impl<'a> Launch<'a> {
    /// Whole groups, on one host thread.
    #[must_use]
    pub fn new(groups: [u32; 3], threads: [u32; 3], buffers: &'a [Option<Binding<'a>>]) -> Self {
        Self {
            groups,
            threads,
            grid: None,
            buffers,
            threadgroup: &[],
            host_threads: 1,
            max_steps: u64::MAX,
            executed: None,
            stop: None,
        }
    }

    /// A grid of threads in groups; those at its end may be smaller.
    #[must_use]
    pub fn grid(grid: [u32; 3], threads: [u32; 3], buffers: &'a [Option<Binding<'a>>]) -> Self {
        let groups = std::array::from_fn(|n| grid[n].div_ceil(threads[n].max(1)));
        Self { grid: Some(grid), ..Self::new(groups, threads, buffers) }
    }
}

/// A compiled kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    code: Arc<Code>,
    constants: Arc<[u8]>,
    source: Arc<str>,
}

impl Kernel {
    /// Its name, or the one that `[[host_name]]` gives it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.code.name
    }

    /// Buffers and threadgroup memory that it takes, in the order of its parameters.
    #[must_use]
    pub fn arguments(&self) -> Vec<Argument> {
        let argument = |p: &Param| {
            let (kind, slot) = match p.attribute {
                Attribute::Threadgroup(slot) => (ArgumentKind::Threadgroup, slot),
                Attribute::Buffer(slot) => (ArgumentKind::Buffer, slot),
                _ => (ArgumentKind::Buffer, 0),
            };
            Argument {
                name: p.name.clone(),
                kind,
                slot,
                space: p.space,
                writable: p.writable,
                type_bytes: p.pointee_bytes,
                type_name: p.type_name.clone(),
                reference: p.reference,
            }
        };
        self.code.params.iter().map(argument).collect()
    }

    /// Most threads of a threadgroup.
    #[must_use]
    pub fn max_threads(&self) -> u32 {
        self.code.max_threads.unwrap_or(MAX_THREADS)
    }

    /// Bytes of the threadgroup variables that it declares.
    #[must_use]
    pub fn threadgroup_bytes(&self) -> u32 {
        self.code.threadgroup_bytes.next_multiple_of(16)
    }

    /// Instructions of its bytecode.
    #[must_use]
    pub fn instructions(&self) -> usize {
        self.code.insts.len()
    }

    /// Runs all threadgroups and returns when they have ended.
    ///
    /// # Errors
    /// A launch that does not fit, or the fault of the first threadgroup that had one. Stores made before it stay.
    pub fn run(&self, launch: &Launch<'_>) -> Result<(), Fault> {
        let refuse = |text: String| self.fault(FaultKind::Launch(text.into()), None, None, None);
        let threads = launch.threads.iter().map(|n| u64::from(*n)).product::<u64>();
        if threads == 0 || threads > self.max_threads().into() {
            return Err(refuse(format!("{threads} threads of a threadgroup, at most {}", self.max_threads())));
        }
        let (slots, threadgroup_bytes) = self.threadgroup(launch).map_err(refuse)?;
        let machine = Machine {
            code: &self.code,
            constants: &self.constants,
            buffers: self.bind(launch).map_err(refuse)?,
            slots,
            threadgroup_bytes,
            max_steps: launch.max_steps,
            executed: launch.executed,
            stop: launch.stop,
        };
        let full: [u64; 3] = std::array::from_fn(|n| u64::from(launch.groups[n]) * u64::from(launch.threads[n]));
        let grid = Grid {
            groups: launch.groups,
            group: launch.threads,
            threads: launch.grid.map_or(full, |g| g.map(u64::from)),
        };
        if grid.threads.iter().zip(full).any(|(n, full)| *n > full) {
            return Err(refuse("the grid has more threads than its groups".into()));
        }
        exec::launch(&machine, grid, launch.host_threads)
            .map_err(|found| self.fault(found.kind, found.at, found.thread, Some(found.group)))
    }

    fn fault(
        &self,
        kind: FaultKind,
        at: Option<crate::Pos>,
        thread: Option<[u32; 3]>,
        group: Option<[u32; 3]>,
    ) -> Fault {
        let line = at.and_then(|at| self.source.lines().nth((at.line as usize).saturating_sub(1)));
        let source_line = line.unwrap_or("").into();
        Fault { kernel: self.code.name.as_str().into(), kind, at, source_line, thread, group }
    }

    fn bind<'a>(&self, launch: &Launch<'a>) -> Result<Vec<Option<Bound<'a>>>, String> {
        let mut bound: Vec<Option<Bound<'a>>> = Vec::new();
        for param in &self.code.params {
            let Attribute::Buffer(slot) = param.attribute else { continue };
            let name = format!("buffer {slot} '{}'", param.name);
            let Some(binding) = launch.buffers.get(slot as usize).copied().flatten() else {
                return Err(format!("{name} is not bound"));
            };
            let made = match binding {
                Binding::Buffer { memory, offset } => {
                    let len = memory.len_bytes().checked_sub(offset);
                    let Some(len) = len else { return Err(format!("{name}: offset {offset} is beyond its memory")) };
                    Bound { memory: Source::Memory(memory), base: offset, len, writable: param.writable, name }
                }
                Binding::Bytes(bytes) => {
                    let len = bytes.len() as u64;
                    Bound { memory: Source::Bytes(bytes), base: 0, len, writable: false, name }
                }
            };
            if param.reference && made.len < param.pointee_bytes {
                let (have, need) = (made.len, param.pointee_bytes);
                return Err(format!("{} has {have} bytes, '{}' needs {need}", made.name, param.type_name));
            }
            while bound.len() <= slot as usize {
                bound.push(None);
            }
            bound[slot as usize] = Some(made);
        }
        Ok(bound)
    }

    /// Starts and lengths of the threadgroup slots, and all bytes of a group.
    fn threadgroup(&self, launch: &Launch<'_>) -> Result<(Vec<(u64, u64)>, u64), String> {
        let mut total = u64::from(self.threadgroup_bytes());
        let mut slots = Vec::new();
        for (slot, len) in launch.threadgroup.iter().enumerate() {
            if len % 16 != 0 {
                return Err(format!("{len} bytes of threadgroup slot {slot} are not a multiple of 16"));
            }
            slots.push((total, *len));
            total = total.saturating_add(*len);
        }
        if total > MAX_THREADGROUP {
            return Err(format!("{total} bytes of threadgroup memory, at most {MAX_THREADGROUP}"));
        }
        for param in &self.code.params {
            if let Attribute::Threadgroup(slot) = param.attribute
                && slots.get(slot as usize).is_none_or(|s| s.1 == 0)
            {
                return Err(format!("threadgroup slot {slot} '{}' has no length", param.name));
            }
        }
        Ok((slots, total))
    }
}
