//! `doorbell compile` and `doorbell run`: packages made ahead of time, and run without compiling anything.

use super::programs::{self, Program};
use super::{CliError, Output};
use clap::Args;
use doorbell::device;
use doorbell::engine::{PackageOptions, session};
use doorbell::package::{Contents, Element, Port};
use doorbell::runtime::{self, Check, Limits, PackageFile, RunError};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Instant;

#[derive(Args, Debug)]
pub(crate) struct CompileArgs {
    /// Architectures, separated by commas: x86_64-avx512, gfx1100, sm_90a ...; the default is the device's
    #[arg(long, value_name = "ARCHS", value_delimiter = ',')]
    target: Vec<String>,
    /// File to write
    #[arg(long, short, value_name = "FILE")]
    out: PathBuf,
    /// Most cores that a CPU's kernel can be shared by
    #[arg(long, value_name = "N", default_value_t = 8)]
    threads: u32,
    /// Write the constants to a file of this name, beside the package
    #[arg(long, value_name = "NAME")]
    data_file: Option<String>,
    /// Built-in program
    #[arg(value_name = "PROGRAM", value_parser = programs::parse)]
    program: Program,
}

#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// The package
    #[arg(value_name = "FILE")]
    package: PathBuf,
    /// Inputs by name
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
    /// Where to write the outputs
    #[arg(long, value_name = "FILE")]
    outputs: Option<PathBuf>,
    /// Zeros for inputs that are not in the file
    #[arg(long)]
    zeros: bool,
    /// A value for a variable
    #[arg(long = "var", value_name = "NAME=N", value_parser = variable)]
    variables: Vec<(String, i64)>,
    /// Most bytes of the device's memory
    #[arg(long, value_name = "BYTES")]
    memory: Option<u64>,
    /// How many times to run it
    #[arg(long, value_name = "N", default_value_t = 1)]
    times: u32,
}

fn variable(text: &str) -> Result<(String, i64), String> {
    let (name, value) = text.split_once('=').ok_or("NAME=N is expected")?;
    Ok((name.into(), value.parse().map_err(|e| format!("{value}: {e}"))?))
}

impl From<RunError> for CliError {
    fn from(e: RunError) -> CliError {
        let text = e.to_string();
        match e {
            RunError::Device(_) | RunError::Cancelled => CliError::Failed(text),
            _ => CliError::CouldNotRun(text),
        }
    }
}

pub(crate) fn compile(args: &CompileArgs, output: Output) -> Result<(), CliError> {
    let options = PackageOptions {
        name: String::new(),
        targets: args.target.clone(),
        threads: args.threads,
        data_file: args.data_file.clone(),
    };
    let bytes = args.program.package(&options)?;
    bytes.write(&args.out)?;
    let package = doorbell::package::Package::parse(&bytes.package).map_err(|e| CliError::Failed(e.to_string()))?;
    let c = &package.contents;
    output.say(&format!("{}: {} bytes, {}", args.out.display(), bytes.package.len(), c.archs()));
    ports("input", &c.inputs, output);
    ports("output", &c.outputs, output);
    output.result(&json!({
        "file": args.out, "bytes": bytes.package.len(), "targets": c.targets.iter().map(|t| &t.arch).collect::<Vec<_>>(),
        "peak_bytes": c.peak_bytes(), "constant_bytes": c.data_bytes,
    }));
    Ok(())
}

fn ports(kind: &str, all: &[Port], output: Output) {
    for p in all {
        let sizes: Vec<String> = p.shape.iter().map(ToString::to_string).collect();
        output.say(&format!("  {kind} {}: {} ({})", p.name, p.element.name(), sizes.join(", ")));
    }
}

pub(crate) fn run(args: &RunArgs, device: Option<&str>, output: Output) -> Result<(), CliError> {
    let options = session()?.device_options();
    let began = Instant::now();
    let file = PackageFile::open(&args.package, Check::Everything)?;
    let name = match device {
        Some(name) => name.to_string(),
        None => file.best_device(&options)?,
    };
    let device = device::open(&name, &options).map_err(|e| CliError::CouldNotRun(e.to_string()))?;
    let limits = Limits { memory_bytes: args.memory, ..Limits::default() };
    let mut program = runtime::Program::load(&device, &file, &limits)?;
    for (name, value) in &args.variables {
        program.set(program.variable(name)?, *value)?;
    }
    give_inputs(args, &mut program)?;
    let loaded = began.elapsed();
    let began = Instant::now();
    for _ in 0..args.times.max(1) {
        program.run()?;
    }
    let ran = began.elapsed() / args.times.max(1);
    let outputs = read_outputs(&program)?;
    if let Some(path) = &args.outputs {
        write_outputs(path, &outputs)?;
    }
    for o in &outputs {
        output.say(&format!("{}: {} {:?}: {}", o.name, o.element.name(), o.shape, head(o)));
    }
    let (load_us, run_us) = (loaded.as_micros(), ran.as_micros());
    output.say(&format!("{} on {name}: loaded in {load_us} us, a run takes {run_us} us", program.arch()));
    let shown: Vec<Value> =
        outputs.iter().map(|o| json!({"name": o.name, "dtype": o.element.name(), "shape": o.shape})).collect();
    output.result(&json!({
        "device": name, "arch": program.arch(), "load_us": load_us as u64, "run_us": run_us as u64, "outputs": shown,
    }));
    Ok(())
}

fn could_not<E: std::fmt::Display>(path: &Path) -> impl Fn(E) -> CliError {
    move |e| CliError::CouldNotRun(format!("{}: {e}", path.display()))
}

/// Inputs from the file, checked by type and shape.
fn give_inputs(args: &RunArgs, program: &mut runtime::Program) -> Result<(), CliError> {
    let bytes = match &args.inputs {
        Some(path) => std::fs::read(path).map_err(could_not(path))?,
        None => Vec::new(),
    };
    let path = args.inputs.clone().unwrap_or_default();
    let given = if bytes.is_empty() { None } else { Some(SafeTensors::deserialize(&bytes).map_err(could_not(&path))?) };
    let contents: Contents = program.contents().clone();
    if let Some(given) = &given {
        let unknown = given.names().into_iter().find(|name| contents.inputs.iter().all(|p| p.name != **name));
        if let Some(name) = unknown {
            program.input(name)?;
        }
    }
    for p in &contents.inputs {
        let input = program.input(&p.name)?;
        let shape = program.input_shape(input)?;
        match given.as_ref().and_then(|g| g.tensor(&p.name).ok()) {
            Some(t) => {
                let have: Vec<u64> = t.shape().iter().map(|n| *n as u64).collect();
                if dtype(p.element) != Some(t.dtype()) || have != shape {
                    let want = format!("{} {shape:?}", p.element.name());
                    let why =
                        format!("{}: {} is {:?} {have:?}, the program takes {want}", path.display(), p.name, t.dtype());
                    return Err(CliError::CouldNotRun(why));
                }
                program.write_input(input, t.data())?;
            }
            None if args.zeros => {
                let len = usize::try_from(program.input_bytes(input)?).unwrap_or(0);
                program.write_input(input, &vec![0; len])?;
            }
            None => {
                let why = format!("input {} has no value: --inputs FILE with it, or --zeros", p.name);
                return Err(CliError::Usage(why));
            }
        }
    }
    Ok(())
}

/// An output on the host.
struct Read {
    name: String,
    element: Element,
    shape: Vec<u64>,
    bytes: Vec<u8>,
}

fn read_outputs(program: &runtime::Program) -> Result<Vec<Read>, CliError> {
    let mut all = Vec::new();
    for p in &program.contents().outputs {
        let output = program.output(&p.name)?;
        let mut bytes = vec![0; usize::try_from(program.output_bytes(output)?).unwrap_or(0)];
        program.read_output(output, &mut bytes)?;
        all.push(Read { name: p.name.clone(), element: p.element, shape: program.output_shape(output)?, bytes });
    }
    Ok(all)
}

fn write_outputs(path: &Path, outputs: &[Read]) -> Result<(), CliError> {
    let views = outputs.iter().map(|o| view(path, o)).collect::<Result<Vec<_>, _>>()?;
    safetensors::serialize_to_file(views, &None, path).map_err(could_not(path))
}

fn view<'a>(path: &Path, o: &'a Read) -> Result<(String, TensorView<'a>), CliError> {
    let Some(dtype) = dtype(o.element) else {
        return Err(CliError::CouldNotRun(format!("{}: safetensors has no type {}", path.display(), o.element.name())));
    };
    let shape = o.shape.iter().map(|n| usize::try_from(*n).unwrap_or(usize::MAX)).collect();
    let view = TensorView::new(dtype, shape, &o.bytes).map_err(could_not(path))?;
    Ok((o.name.clone(), view))
}

/// The type as safetensors files have it.
fn dtype(e: Element) -> Option<Dtype> {
    Some(match e {
        Element::Bool => Dtype::BOOL,
        Element::I8 => Dtype::I8,
        Element::U8 => Dtype::U8,
        Element::I16 => Dtype::I16,
        Element::U16 => Dtype::U16,
        Element::I32 => Dtype::I32,
        Element::U32 => Dtype::U32,
        Element::I64 => Dtype::I64,
        Element::U64 => Dtype::U64,
        Element::F8E4M3 => Dtype::F8_E4M3,
        Element::F8E5M2 => Dtype::F8_E5M2,
        Element::F16 => Dtype::F16,
        Element::BF16 => Dtype::BF16,
        Element::F32 => Dtype::F32,
        Element::F64 => Dtype::F64,
        Element::F8E4M3Fnuz | Element::F8E5M2Fnuz => return None,
    })
}

/// The first elements, as numbers.
fn head(o: &Read) -> String {
    const SHOWN: usize = 6;
    let size = usize::try_from(o.element.size_bytes()).unwrap_or(1);
    let scalar = doorbell::uop::Scalar::parse(o.element.name());
    let one = |c: &[u8]| {
        let mut word = [0; 8];
        word[..c.len()].copy_from_slice(c);
        scalar.map_or(f64::NAN, |t| doorbell::uop::from_bits(u64::from_le_bytes(word), t).as_f64())
    };
    let all = o.bytes.chunks_exact(size);
    let rest = if all.len() > SHOWN { " ..." } else { "" };
    let shown: Vec<String> = all.take(SHOWN).map(|c| format!("{:.6}", one(c))).collect();
    shown.join(" ") + rest
}
