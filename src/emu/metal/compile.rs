//! Libraries from source, functions, pipelines.

use crate::device::Device;
use crate::encode::{Bool, Sel};
use crate::foundation::{Own, Text, array, give_error, string};
use crate::machine::Machine;
use crate::object::{self, Body, Class, Id};
use crate::send::Methods;
use doorbell_emu_msl::{Kernel, Library as Source, Options};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

const LIBRARY_DOMAIN: &str = "MTLLibraryErrorDomain";
const PIPELINE_DOMAIN: &str = "AGXMetalSoftware";
const COMPILE_FAILURE: i64 = 3;
const COMPILE_WARNING: i64 = 4;

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

struct Library(Source);

impl Body for Library {
    const CLASS: Class = Class::MTLLibrary;
}

struct Function(Kernel);

impl Body for Function {
    const CLASS: Class = Class::MTLFunction;
}

/// A kernel that can be launched.
pub struct Pipeline {
    pub kernel: Kernel,
    /// Most threads of a threadgroup.
    pub limit: u64,
}

impl Body for Pipeline {
    const CLASS: Class = Class::MTLComputePipelineState;
}

pub fn methods(all: &mut Methods) {
    let options = Class::MTLCompileOptions;
    all.on_class(options, "new", new_options as extern "C" fn(_, _) -> _);
    all.on(options, "setLanguageVersion:", set_version as extern "C" fn(_, _, _));
    all.on(options, "setFastMathEnabled:", set_fast_math as extern "C" fn(_, _, _));
    all.on(options, "setMathMode:", set_math_mode as extern "C" fn(_, _, _));
    let device = Class::MTLDevice;
    all.on(device, "newLibraryWithSource:options:error:", new_library as extern "C" fn(_, _, _, _, _) -> _);
    all.on(device, "newComputePipelineStateWithFunction:error:", new_pipeline as extern "C" fn(_, _, _, _) -> _);
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
            object::create(machine, Library(made))
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
    kernel.map_or(Id::NIL, |kernel| object::create(machine, Function(kernel)))
}

extern "C" fn function_names(this: Id, _: Sel) -> Id {
    let Some(library) = object::get::<Library>(this) else { return Id::NIL };
    let machine = library.machine();
    let names = library.0.kernel_names().into_iter().map(|n| Own(string(machine, n))).collect();
    object::autorelease(array(machine, names))
}

extern "C" fn new_pipeline(this: Id, _: Sel, function: Id, error: *mut Id) -> Id {
    let Some(device) = object::get::<Device>(this) else { return Id::NIL };
    let machine = device.machine();
    let what = "newComputePipelineStateWithFunction:";
    let Some(function) = object::argument::<Function>(machine, what, function) else { return Id::NIL };
    let knobs = machine.knobs();
    if let Some(text) = knobs.pipeline_error {
        give_error(error, machine, PIPELINE_DOMAIN, 2, text);
        return Id::NIL;
    }
    let limit = u64::from(function.0.max_threads()).min(knobs.pipeline_limit.unwrap_or(u64::MAX));
    object::create(machine, Pipeline { kernel: function.0.clone(), limit })
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
