//! The program cache: kernel graph → compiled and loaded kernel, for each device.
//!
//! Equal kernels are the identical node (the scheduler numbers their parameters), so the key is the node itself. The
//! kernels that a schedule lacks are compiled in parallel and loaded in one batch. The cache is bounded, like that of
//! schedules: otherwise a program whose shapes keep changing would fill the memory with code. An evicted kernel stays
//! alive while a schedule or a recording uses it.

use super::cache::{Bounded, hash};
use super::launch;
use super::record::{Made, Notes};
use super::session::OpenDevice;
use super::{Error, Session};
use crate::codegen::{self, Estimates, OptChoice, ParamInfo, Program};
use crate::device::{Kernel, KernelImage};
use crate::elf;
use crate::isa::{Argument, Binary, BinaryCode};
use crate::sort;
use crate::uop::{self, CustomArg, CustomCode, CustomText, Op, UOp, spec};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A kernel that can be launched, with its graph, program and binary.
#[derive(Debug)]
pub struct Compiled {
    /// The kernel graph that was compiled.
    pub ast: UOp,
    /// Its linear program.
    pub program: Program,
    /// Its machine code.
    pub binary: Binary,
    /// The kernel as its device loaded it.
    pub kernel: Kernel,
}

impl Compiled {
    /// The machine code as a file, an ELF object or a cubin; empty if none was made.
    ///
    /// # Errors
    /// An inconsistent object.
    pub fn object_file(&self) -> Result<Vec<u8>, Error> {
        Ok(match &self.binary.code {
            BinaryCode::Object(object) => elf::write(object)?,
            BinaryCode::File(bytes) => bytes.clone(),
            _ => Vec::new(),
        })
    }
}

/// Device name and kernel graph.
type Key = (Arc<str>, UOp);

/// Kernels kept: far more than the tens to hundreds of a typical program. A kernel takes about ten KiB with its graph.
const KERNEL_LIMIT: usize = 16_384;

/// Compiled kernels by device and graph.
pub(crate) struct KernelCache {
    kernels: Mutex<Bounded<Key, Arc<Compiled>>>,
    names: Mutex<HashMap<String, usize>>,
}

impl Default for KernelCache {
    fn default() -> Self {
        KernelCache { kernels: Mutex::new(Bounded::new(KERNEL_LIMIT)), names: Mutex::default() }
    }
}

impl KernelCache {
    fn kernels(&self) -> MutexGuard<'_, Bounded<Key, Arc<Compiled>>> {
        self.kernels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, device: &Arc<str>, ast: &UOp) -> Option<Arc<Compiled>> {
        self.kernels().get(&(device.clone(), ast.clone()))
    }

    /// Removes all kernels.
    pub(crate) fn clear(&self) {
        self.kernels().clear();
    }

    /// Makes the name unique: a second program of the same name becomes `name_n1`, the next `name_n2` ...
    fn unique_name(&self, program: &mut Program) {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let count = names.entry(program.name.clone()).or_default();
        if *count > 0 {
            let suffix = format!("n{count}");
            program.name.push_str(&suffix);
            program.display_name.push_str(&suffix);
        }
        *count += 1;
    }
}

impl Session {
    /// The kernels of `asts` on `device`, in their order; missing ones are compiled.
    ///
    /// # Errors
    /// The first kernel that does not compile or load.
    pub fn kernels(&self, device: &OpenDevice, asts: &[&UOp]) -> Result<Vec<Arc<Compiled>>, Error> {
        let known: Vec<_> = asts.iter().map(|ast| self.cache.get(&device.name, ast)).collect();
        let mut missing: Vec<UOp> = Vec::new();
        for (ast, _) in asts.iter().zip(&known).filter(|(_, known)| known.is_none()) {
            if !missing.contains(ast) {
                missing.push((*ast).clone());
            }
        }
        let made = if missing.is_empty() { Vec::new() } else { self.compile_all(device, &missing)? };
        let one = |(ast, known): (&&UOp, Option<Arc<Compiled>>)| {
            let made = || made.iter().find(|c| c.ast == **ast).cloned();
            known.or_else(made).ok_or_else(|| Error::Internal("a kernel was not compiled".into()))
        };
        asts.iter().zip(known).map(one).collect()
    }

    fn compile_all(&self, device: &OpenDevice, asts: &[UOp]) -> Result<Vec<Arc<Compiled>>, Error> {
        let began = Instant::now();
        let made = self.assemble_all(device, asts)?;
        let kernels = load(device, &made)?;
        let mut all = Vec::with_capacity(asts.len());
        for ((ast, (program, binary)), kernel) in asts.iter().zip(made).zip(kernels) {
            let c = Arc::new(Compiled { ast: ast.clone(), program, binary, kernel });
            self.counters.compiled();
            self.cache.kernels().insert((device.name.clone(), ast.clone()), c.clone());
            all.push(c);
        }
        if self.is_timed() {
            self.profile.host("compile", &format!("{} kernels", asts.len()), began);
        }
        Ok(all)
    }

    /// Programs and binaries of `asts`, in their order. Each free core takes the next kernel, the largest first:
    /// kernels differ much in size, and a large one started last would keep a single core busy at the end.
    fn assemble_all(&self, device: &OpenDevice, asts: &[UOp]) -> Result<Vec<(Program, Binary)>, Error> {
        let alone = asts.len() == 1 || self.options.beam > 0;
        let workers =
            if alone { 1 } else { std::thread::available_parallelism().map_or(1, usize::from).min(asts.len()) };
        let mut order: Vec<usize> = (0..asts.len()).collect();
        if workers > 1 {
            order.sort_by_cached_key(|k| Reverse(asts[*k].toposort().len()));
        }
        let next = AtomicUsize::new(0);
        let work = || -> Vec<(usize, Result<_, Error>)> {
            let mine = std::iter::from_fn(|| order.get(next.fetch_add(1, Ordering::Relaxed)).copied());
            mine.map(|k| (k, self.assemble(device, &asts[k]))).collect()
        };
        let mut done = std::thread::scope(|scope| {
            let others: Vec<_> = (1..workers).map(|_| scope.spawn(work)).collect();
            let mut done = work();
            for h in others {
                done.extend(h.join().map_err(|_| Error::Internal("a compiler thread panicked".into()))?);
            }
            Ok::<_, Error>(done)
        })?;
        sort::by_key(&mut done, |d| d.0);
        done.into_iter().map(|d| d.1).collect()
    }

    /// Compiles one kernel graph to its program and binary.
    fn assemble(&self, device: &OpenDevice, ast: &UOp) -> Result<(Program, Binary), Error> {
        if let (Op::Custom, uop::Arg::Custom(custom)) = (ast.op(), ast.arg()) {
            return self.assemble_text(device, ast, custom);
        }
        if self.options.spec >= 1 {
            spec::verify(spec::Stage::Kernel, ast)?;
        }
        let began = Instant::now();
        let mut notes = Notes::default();
        let program = || match (self.options.beam, &self.recorder) {
            (0, Some(r)) => Ok(notes.compile((r, ast), device.target(), &self.choice(), self.options.fast_math)?),
            (0, None) => Ok(codegen::compile(ast, device.target(), &self.choice(), self.options.fast_math)?),
            (width, _) => self.search(device, ast, width, &mut notes),
        };
        let program = uop::checked(self.options.spec_level(), spec::Stage::Kernel, program)?;
        let refused = |source| Error::Compile { device: device.name.clone(), source };
        let (program, binary) = match self.encoded(device, ast, program) {
            Err(Error::Compile { source, .. }) if self.options.beam == 0 && !self.options.noopt => {
                // Opts may ask for more registers than there are; without them a kernel needs few.
                log::warn!("{}: {source}; the kernel is compiled again without opts", device.name);
                let plain = codegen::compile(ast, device.target(), &OptChoice::None, self.options.fast_math)?;
                self.encoded(device, ast, plain).map_err(|_| refused(source))?
            }
            done => done?,
        };
        if let Some(r) = &self.recorder {
            r.compiled(&Made { device, ast, program: &program, binary: &binary, began }, notes);
        }
        Ok((program, binary))
    }

    /// The machine code of a program, which gets its name.
    fn encoded(&self, device: &OpenDevice, ast: &UOp, mut program: Program) -> Result<(Program, Binary), Error> {
        if self.options.spec >= 1 {
            spec::verify_list(&program.uops)?;
        }
        self.cache.unique_name(&mut program);
        self.print_code(ast, &program);
        let is_shown = self.options.debug >= 7;
        let is_read = is_shown || self.options.sources.is_some();
        if let Some(source) = if is_read { device.backend.source(&program)? } else { None } {
            self.show_source(&program.name, &source)?;
        }
        let refused = |source| Error::Compile { device: device.name.clone(), source };
        let binary = device.backend.compile(&program).map_err(refused)?;
        if is_shown && binary.code != BinaryCode::None {
            self.say(&device.backend.listing(&binary)?);
        }
        Ok((program, binary))
    }

    /// Prints or keeps the text that a kernel is compiled from.
    fn show_source(&self, name: &str, source: &str) -> Result<(), Error> {
        if self.options.debug >= 7 {
            self.say(source);
        }
        let Some(folder) = &self.options.sources else { return Ok(()) };
        // Processes that write here at once have kernels of the same names.
        let file = folder.join(format!("{name}-{:016x}", hash(source.as_bytes(), 0)));
        let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&file, source));
        written.map_err(|source| Error::File { what: file.display().to_string(), source })
    }

    /// A user's kernel in the device's assembly language: the device's program has nothing but its launch.
    fn assemble_text(&self, device: &OpenDevice, ast: &UOp, custom: &CustomArg) -> Result<(Program, Binary), Error> {
        let CustomCode::Text(CustomText { text, global, local, shared_bytes }) = &custom.code else {
            return Err(Error::Internal(format!("kernel '{}' has no text", custom.name)));
        };
        if self.options.debug >= 4 {
            self.say(text);
        }
        let began = Instant::now();
        let name = custom.name.to_string();
        let refused = |source| Error::Compile { device: device.name.clone(), source };
        let code = BinaryCode::File(device.backend.assemble(&name, text).map_err(refused)?);
        let param = |u: &UOp| match u.arg() {
            uop::Arg::Param(slot, len) => {
                let (read, written) = (*slot > 0, *slot == 0);
                Some(ParamInfo { slot: *slot, dtype: u.dtype().pointee(), len: *len, read, written })
            }
            _ => None,
        };
        let params: Vec<ParamInfo> = ast.src().iter().filter_map(param).collect();
        let arguments = (0..params.len()).map(Argument::Buffer).collect();
        let program = Program {
            name: name.clone(),
            display_name: name.clone(),
            uops: Vec::new(),
            params,
            vars: Vec::new(),
            tensors: Vec::new(),
            threads: 1,
            global: *global,
            local: *local,
            local_bytes: 0,
            estimates: Estimates::default(),
            opts: Vec::new(),
            fast_math: false,
        };
        let binary = Binary { entry: name, code, shared_bytes: *shared_bytes, arguments };
        if let Some(r) = &self.recorder {
            r.compiled(&Made { device, ast, program: &program, binary: &binary, began }, Notes::default());
        }
        Ok((program, binary))
    }

    /// The kernels compiled for a device that are still in the cache, sorted by name.
    pub fn compiled_kernels(&self, device: &str) -> Vec<Arc<Compiled>> {
        let kernels = self.cache.kernels();
        let mut all: Vec<_> = kernels.iter().filter(|(k, _)| &*k.0 == device).map(|(_, c)| c.clone()).collect();
        sort::by(&mut all, |a, b| a.program.name.cmp(&b.program.name));
        all
    }

    /// The choice of opts that the options ask for.
    pub(crate) fn choice(&self) -> OptChoice {
        if self.options.noopt { OptChoice::None } else { OptChoice::Heuristic }
    }
}

fn load(device: &OpenDevice, made: &[(Program, Binary)]) -> Result<Vec<Kernel>, Error> {
    let images: Vec<KernelImage> = made.iter().map(|(_, binary)| launch::image(binary)).collect();
    Ok(device.device.load(&images)?)
}
