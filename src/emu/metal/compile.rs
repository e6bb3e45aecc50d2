//! Libraries from source, functions, pipelines.

use crate::archive::Archive;
use crate::device::Device;
use crate::encode::{Bool, Sel};
use crate::foundation::{Array, Own, Text, Url, array, give_error, string};
use crate::machine::{FaultKind, Machine};
use crate::object::{self, Body, Class, Id};
use crate::send::Methods;
use doorbell_emu_msl::{Kernel, Library as Source, Options};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const LIBRARY_DOMAIN: &str = "MTLLibraryErrorDomain";
const PIPELINE_DOMAIN: &str = "AGXMetalSoftware";
const COMPILE_FAILURE: i64 = 3;
const COMPILE_WARNING: i64 = 4;
const UNSUPPORTED: i64 = 1;
const FILE_NOT_FOUND: i64 = 6;
/// `MTLPipelineOptionFailOnBinaryArchiveMiss`.
const FAIL_ON_MISS: u64 = 4;

/// How a source is compiled.
#[derive(Default)]
struct CompileOptions {
    version: AtomicU64,
    /// 0 safe, 2 fast; negative: not set.
    math: AtomicI64,
}

impl Body for CompileOptions {
    const CLASS: Class = Class::MTLCompileOptions;
}

struct Library(Source, Arc<str>);

impl Body for Library {
    const CLASS: Class = Class::MTLLibrary;
}

/// A kernel, and the source that it is of.
struct Function(Kernel, Arc<str>);

impl Body for Function {
    const CLASS: Class = Class::MTLFunction;
}

/// A kernel that can be launched.
pub(crate) struct Pipeline {
    pub kernel: Kernel,
    /// Most threads of a threadgroup.
    pub limit: u64,
    /// Indirect command buffers can launch it.
    pub is_indirect: bool,
}

/// How a pipeline is made.
#[derive(Default)]
struct PipelineDescriptor(Mutex<Described>);

#[derive(Default)]
struct Described {
    function: Option<Own>,
    is_indirect: bool,
    archives: Option<Own>,
}

impl Body for PipelineDescriptor {
    const CLASS: Class = Class::MTLComputePipelineDescriptor;
}

impl PipelineDescriptor {
    fn lock(&self) -> MutexGuard<'_, Described> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Body for Pipeline {
    const CLASS: Class = Class::MTLComputePipelineState;
}

pub(crate) fn methods(all: &mut Methods) {
    let options = Class::MTLCompileOptions;
    all.on_class(options, "new", new_options as extern "C" fn(_, _) -> _);
    all.on(options, "setLanguageVersion:", set_version as extern "C" fn(_, _, _));
    all.on(options, "setFastMathEnabled:", set_fast_math as extern "C" fn(_, _, _));
    all.on(options, "setMathMode:", set_math_mode as extern "C" fn(_, _, _));
    let device = Class::MTLDevice;
    all.on(device, "newLibraryWithSource:options:error:", new_library as extern "C" fn(_, _, _, _, _) -> _);
    all.on(device, "newComputePipelineStateWithFunction:error:", new_pipeline as extern "C" fn(_, _, _, _) -> _);
    all.on(device, "newLibraryWithURL:error:", new_library_from as extern "C" fn(_, _, _, _) -> _);
    let with = "newComputePipelineStateWithDescriptor:options:reflection:error:";
    all.on(device, with, new_pipeline_with as extern "C" fn(_, _, _, _, _, _) -> _);
    let descriptor = Class::MTLComputePipelineDescriptor;
    all.on_class(descriptor, "new", new_descriptor as extern "C" fn(_, _) -> _);
    all.on(descriptor, "setComputeFunction:", set_function as extern "C" fn(_, _, _));
    all.on(descriptor, "setBinaryArchives:", set_archives as extern "C" fn(_, _, _));
    all.on(descriptor, "setSupportIndirectCommandBuffers:", set_indirect as extern "C" fn(_, _, _));
    all.on(Class::MTLLibrary, "newFunctionWithName:", new_function as extern "C" fn(_, _, _) -> _);
    all.on(Class::MTLLibrary, "functionNames", function_names as extern "C" fn(_, _) -> _);
    let pipeline = Class::MTLComputePipelineState;
    all.on(pipeline, "maxTotalThreadsPerThreadgroup", max_threads as extern "C" fn(_, _) -> _);
    all.on(pipeline, "threadExecutionWidth", width as extern "C" fn(_, _) -> _);
    all.on(pipeline, "staticThreadgroupMemoryLength", static_bytes as extern "C" fn(_, _) -> _);
}

extern "C" fn new_options(_: Id, _: Sel) -> Id {
    object::create(&Machine::of_thread(), CompileOptions { math: AtomicI64::new(-1), ..CompileOptions::default() })
}

extern "C" fn set_version(this: Id, _: Sel, version: u64) {
    if let Some(o) = object::get::<CompileOptions>(this) {
        o.version.store(version, Ordering::Relaxed);
    }
}

extern "C" fn set_fast_math(this: Id, _: Sel, on: Bool) {
    set_math_mode(this, Sel(0), if on.0 == 0 { 0 } else { 2 });
}

extern "C" fn set_math_mode(this: Id, _: Sel, mode: i64) {
    if let Some(o) = object::get::<CompileOptions>(this) {
        o.math.store(mode, Ordering::Relaxed);
    }
}

extern "C" fn new_library(this: Id, _: Sel, source: Id, options: Id, error: *mut Id) -> Id {
    let Some(device) = object::get::<Device>(this) else { return Id::NIL };
    let machine = device.machine();
    let Some(text) = object::argument::<Text>(machine, "newLibraryWithSource:", source) else { return Id::NIL };
    let mut read = Options { fast_math: true, ..Options::default() };
    if !options.is_nil() {
        let what = "newLibraryWithSource:options:";
        let Some(options) = object::argument::<CompileOptions>(machine, what, options) else { return Id::NIL };
        let version = options.version.load(Ordering::Relaxed);
        if version > 0 {
            read.version = ((version >> 16) as u32, (version & 0xffff) as u32);
        }
        read.fast_math = options.math.load(Ordering::Relaxed) != 0;
    }
    match Source::compile(&text.get(), &read) {
        Ok(made) => {
            if let Some(warning) = machine.knobs().compile_warning {
                give_error(error, machine, LIBRARY_DOMAIN, COMPILE_WARNING, warning);
            }
            object::create(machine, Library(made, text.get().into()))
        }
        Err(why) => {
            give_error(error, machine, LIBRARY_DOMAIN, COMPILE_FAILURE, why.to_string());
            Id::NIL
        }
    }
}

extern "C" fn new_function(this: Id, _: Sel, name: Id) -> Id {
    let Some(library) = object::get::<Library>(this) else { return Id::NIL };
    let machine = library.machine();
    let Some(name) = object::argument::<Text>(machine, "newFunctionWithName:", name) else { return Id::NIL };
    let kernel = library.0.kernel(&name.get()).cloned();
    let source = Arc::clone(&library.1);
    kernel.map_or(Id::NIL, |kernel| object::create(machine, Function(kernel, source)))
}

extern "C" fn function_names(this: Id, _: Sel) -> Id {
    let Some(library) = object::get::<Library>(this) else { return Id::NIL };
    let machine = library.machine();
    let names = library.0.kernel_names().into_iter().map(|n| Own(string(machine, n))).collect();
    object::autorelease(array(machine, names))
}

extern "C" fn new_pipeline(this: Id, _: Sel, function: Id, error: *mut Id) -> Id {
    let Some(device) = object::get::<Device>(this) else { return Id::NIL };
    make_pipeline(device.machine(), "newComputePipelineStateWithFunction:", function, (false, error))
}

extern "C" fn new_pipeline_with(this: Id, _: Sel, with: Id, options: u64, reflection: *mut Id, error: *mut Id) -> Id {
    let Some(device) = object::get::<Device>(this) else { return Id::NIL };
    let machine = device.machine();
    let what = "newComputePipelineStateWithDescriptor:";
    let Some(descriptor) = object::argument::<PipelineDescriptor>(machine, what, with) else { return Id::NIL };
    if !reflection.is_null() {
        machine.fault(FaultKind::WrongArgument, format!("{what} with a place for reflection, which is not modelled"));
    }
    let (function, is_indirect, archives) = {
        let described = descriptor.lock();
        let archives = described.archives.as_ref().and_then(|all| object::get::<Array>(all.0));
        let archives = archives.map(|all| all.ids()).unwrap_or_default();
        (described.function.as_ref().map_or(Id::NIL, |f| f.0), described.is_indirect, archives)
    };
    let key = key_of(function, is_indirect);
    let is_archived = archives.iter().filter_map(|id| object::get::<Archive>(*id)).any(|a| a.has(key));
    if is_archived {
        machine.archive_hits.fetch_add(1, Ordering::Relaxed);
    } else if options & FAIL_ON_MISS != 0 {
        give_error(error, machine, PIPELINE_DOMAIN, 2, "no binary archive has the function".into());
        return Id::NIL;
    }
    if is_indirect && machine.knobs().no_indirect_pipelines {
        let text = "Compute function cannot be used with indirect command buffers";
        give_error(error, machine, PIPELINE_DOMAIN, 3, text.into());
        return Id::NIL;
    }
    make_pipeline(machine, what, function, (is_indirect, error))
}

fn make_pipeline(machine: &Arc<Machine>, what: &str, function: Id, (is_indirect, error): (bool, *mut Id)) -> Id {
    let Some(function) = object::argument::<Function>(machine, what, function) else { return Id::NIL };
    let knobs = machine.knobs();
    if let Some(text) = knobs.pipeline_error {
        give_error(error, machine, PIPELINE_DOMAIN, 2, text);
        return Id::NIL;
    }
    let limit = u64::from(function.0.max_threads()).min(knobs.pipeline_limit.unwrap_or(u64::MAX));
    object::create(machine, Pipeline { kernel: function.0.clone(), limit, is_indirect })
}

extern "C" fn new_descriptor(_: Id, _: Sel) -> Id {
    object::create(&Machine::of_thread(), PipelineDescriptor::default())
}

extern "C" fn set_function(this: Id, _: Sel, function: Id) {
    let Some(descriptor) = object::get::<PipelineDescriptor>(this) else { return };
    if function.is_nil() {
        descriptor.lock().function = None;
    } else if object::argument::<Function>(descriptor.machine(), "setComputeFunction:", function).is_some() {
        descriptor.lock().function = Some(Own::retain(function));
    }
}

extern "C" fn set_archives(this: Id, _: Sel, archives: Id) {
    let Some(descriptor) = object::get::<PipelineDescriptor>(this) else { return };
    if archives.is_nil() {
        descriptor.lock().archives = None;
    } else if let Some(all) = object::argument::<Array>(descriptor.machine(), "setBinaryArchives:", archives)
        && all
            .ids()
            .iter()
            .all(|id| object::argument::<Archive>(descriptor.machine(), "setBinaryArchives:", *id).is_some())
    {
        descriptor.lock().archives = Some(Own::retain(archives));
    }
}

/// What an archive knows the function of a descriptor by; 0 for none.
pub(crate) fn key_of_descriptor(descriptor: Id) -> u64 {
    object::get::<PipelineDescriptor>(descriptor).map_or(0, |descriptor| {
        let described = descriptor.lock();
        key_of(described.function.as_ref().map_or(Id::NIL, |f| f.0), described.is_indirect)
    })
}

fn key_of(function: Id, is_indirect: bool) -> u64 {
    let Some(function) = object::get::<Function>(function) else { return 0 };
    let mut hash = DefaultHasher::new();
    (function.0.name(), &function.1, is_indirect).hash(&mut hash);
    hash.finish() | 1
}

extern "C" fn new_library_from(this: Id, _: Sel, url: Id, error: *mut Id) -> Id {
    let Some(device) = object::get::<Device>(this) else { return Id::NIL };
    let machine = device.machine();
    let Some(url) = object::argument::<Url>(machine, "newLibraryWithURL:", url) else { return Id::NIL };
    let refuse = |code, text: String| give_error(error, machine, LIBRARY_DOMAIN, code, text);
    match std::fs::read(url.path()) {
        Err(why) => refuse(FILE_NOT_FOUND, format!("library {} cannot be read: {why}", url.path().display())),
        Ok(bytes) if bytes.starts_with(b"MTLB") => {
            let why =
                "a metallib holds code for Apple's compiler, which the software Metal has not: it runs source only";
            refuse(UNSUPPORTED, why.into());
        }
        Ok(_) => refuse(UNSUPPORTED, "Invalid library file: it is not formatted as a MetalLib file".into()),
    }
    Id::NIL
}

extern "C" fn set_indirect(this: Id, _: Sel, supported: Bool) {
    if let Some(descriptor) = object::get::<PipelineDescriptor>(this) {
        descriptor.lock().is_indirect = supported.0 != 0;
    }
}

extern "C" fn max_threads(this: Id, _: Sel) -> u64 {
    object::get::<Pipeline>(this).map_or(0, |p| p.limit)
}

extern "C" fn width(_: Id, _: Sel) -> u64 {
    32
}

extern "C" fn static_bytes(this: Id, _: Sel) -> u64 {
    object::get::<Pipeline>(this).map_or(0, |p| p.kernel.threadgroup_bytes().into())
}
