//! `doorbell dump`: runs a built-in program and writes every kernel that it used, so that other tools can inspect or
//! run them.
//!
//! `jobs.json` lists one launch of each kernel with generated inputs, for `doorbell launch --jobs` in that directory,
//! on this or another machine; `NAME.SLOT.want` has the reference interpreter's results ([`super::dump_jobs`]). There
//! are three files per kernel: `NAME.o` (relocatable ELF), `NAME.s` (assembly text), `NAME.json` (launch parameters:
//! entry symbol, argument order with types and sizes, number of calls). A kernel is `void NAME(const uint64_t *args,
//! uint64_t tid)` in the C calling convention of the target; `args` is described by the launch parameters: buffer
//! addresses in order, then variables as 64-bit integers. For NVIDIA's chips there are `NAME.ptx` and the launch
//! parameters; the kernel's parameters are the same 64-bit words, followed by the tensor maps of TMA tiles.

use super::programs::{self, Program};
use super::{CliError, Output, dump_jobs};
use clap::Args;
use doorbell::codegen;
use doorbell::engine::{Compiled, Error, OpenDevice, session};
use doorbell::isa::Argument;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Args, Debug)]
pub(crate) struct DumpArgs {
    /// Directory to write to; created if it is missing
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Compile for this arch, independent of the machine: x86_64-avx2, aarch64-neon, gfx1100, sm_80, sm_90a ...
    #[arg(long, value_name = "ARCH")]
    target: Option<String>,
    /// Built-in program
    #[arg(value_name = "PROGRAM", value_parser = programs::parse)]
    program: Program,
}

impl DumpArgs {
    /// The null device for the given target: it compiles, but runs nothing.
    pub(crate) fn device(&self) -> Option<String> {
        self.target.as_ref().map(|arch| format!("NULL:{arch}"))
    }
}

pub(crate) fn run(args: &DumpArgs, output: Output) -> Result<(), CliError> {
    let s = session()?;
    let device = s.device(&s.options.device)?;
    args.program.run()?;
    let arch = device.device.info().arch.clone();
    fs::create_dir_all(&args.out).map_err(|e| file_error(&args.out, &e))?;
    let kernels = s.compiled_kernels(&device.name);
    let mut jobs = Vec::new();
    for k in &kernels {
        let object = code(&args.out, &device, k)?;
        jobs.push(dump_jobs::write(&args.out, k, &object)?);
        write(&args.out, &k.program.name, "json", format!("{:#}\n", launch_parameters(k, &arch)).as_bytes())?;
    }
    write(&args.out, "jobs", "json", format!("{:#}\n", serde_json::Value::from(jobs)).as_bytes())?;
    output.say(&format!("{} kernels of {} written to {}", kernels.len(), args.program.name, args.out.display()));
    let names: Vec<&str> = kernels.iter().map(|k| k.program.name.as_str()).collect();
    output.result(
        &serde_json::json!({"program": args.program.name, "device": &*device.name, "out": args.out, "kernels": names}),
    );
    Ok(())
}

/// Writes a kernel's code: its source text if the target has one (PTX), else the object and its disassembly. Returns
/// the name of the file to launch.
fn code(dir: &Path, device: &OpenDevice, k: &Compiled) -> Result<String, CliError> {
    let (name, backend) = (&k.program.name, &device.backend);
    let source = backend.source(&k.program).map_err(Error::from)?;
    if let Some((text, ext)) = source.zip(backend.language()) {
        write(dir, name, ext, text.as_bytes())?;
        return Ok(format!("{name}.{ext}"));
    }
    if !backend.makes_code() {
        return Err(CliError::CouldNotRun(format!("device {} has no machine code to dump", device.name)));
    }
    write(dir, name, "o", &k.object_file()?)?;
    write(dir, name, "s", backend.listing(&k.binary).map_err(Error::from)?.as_bytes())?;
    Ok(format!("{name}.o"))
}

/// An argument for the launch parameters: a buffer (identified by its slot, also if it is used again), a variable, or a
/// word.
fn argument(p: &codegen::Program, argument: &Argument) -> serde_json::Value {
    match argument {
        Argument::Buffer(k) => {
            let b = &p.params[*k];
            serde_json::json!({
                "kind": "buffer", "slot": b.slot, "dtype": b.dtype.scalar.name(), "elements": b.len,
                "bytes": b.len * b.dtype.scalar.size_bytes(), "read": b.read, "written": b.written,
            })
        }
        Argument::Variable(k) => {
            let v = &p.vars[*k];
            serde_json::json!({"kind": "variable", "name": v.render(), "min": v.vmin() as i64, "max": v.vmax() as i64})
        }
        Argument::Word(bits) => serde_json::json!({"kind": "word", "value": bits}),
    }
}

fn launch_parameters(k: &Compiled, arch: &str) -> serde_json::Value {
    let p = &k.program;
    let args: Vec<_> = k.binary.arguments.iter().map(|a| argument(p, a)).collect();
    serde_json::json!({
        "name": p.name, "entry": k.binary.entry, "arch": arch, "args": args,
        "calls": p.threads, "global": p.global, "local": p.local, "local_bytes": p.local_bytes, "launch_bytes": k.binary.shared_bytes, "opts": p.opts,
        "flops": p.estimates.flops, "mem_bytes": p.estimates.mem_bytes,
    })
}

fn write(dir: &Path, name: &str, ext: &str, bytes: &[u8]) -> Result<(), CliError> {
    let path = dir.join(format!("{name}.{ext}"));
    fs::write(&path, bytes).map_err(|e| file_error(&path, &e))
}

fn file_error(path: &Path, e: &std::io::Error) -> CliError {
    CliError::CouldNotRun(format!("{}: {e}", path.display()))
}
