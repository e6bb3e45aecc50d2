//! Kernels in the Metal Shading Language, run as a threadgroup runs them: the references of `tests/ops_numpy` on a
//! device whose kernels are the texts of `isa::metal`, executed by `doorbell-emu-msl`, which reads any MSL.

#[path = "ops_numpy/compare.rs"]
mod compare;
#[path = "ops_numpy/reader.rs"]
mod reader;
#[path = "ops_numpy/tensors.rs"]
mod tensors;

use compare::compare;
use doorbell::device::{Arg, Executor, Geometry, HostDevice};
use doorbell::engine::add_device;
use doorbell::hcq::memory::View;
use doorbell::isa::metal::{Family, Metal};
use doorbell::tensor::prelude::*;
use doorbell_emu_msl::{Binding, Launch, Library, Memory, Options, Width};
use reader::{Array, Case, cases};
use std::sync::{Arc, Once};

/// A GPU of software.
#[derive(Debug)]
struct Threadgroups;

/// A buffer, as kernels see it.
struct Shared<'a> {
    view: &'a View,
    at: u64,
    len: u64,
}

impl Memory for Shared<'_> {
    fn len_bytes(&self) -> u64 {
        self.len
    }
    fn read(&self, offset: u64, width: Width) -> u32 {
        let mut bytes = [0; 4];
        self.view.read(self.at + offset, &mut bytes[..width.bytes() as usize]).unwrap();
        u32::from_le_bytes(bytes)
    }
    fn write(&self, offset: u64, width: Width, value: u32) {
        self.view.write(self.at + offset, &value.to_le_bytes()[..width.bytes() as usize]).unwrap();
    }
    fn update_u32(&self, offset: u64, f: &mut dyn FnMut(u32) -> u32) -> u32 {
        let old = self.read(offset, Width::Word);
        self.write(offset, Width::Word, f(old));
        old
    }
    fn update_u64(&self, offset: u64, f: &mut dyn FnMut(u64) -> u64) -> u64 {
        let half = |at| u64::from(self.read(at, Width::Word));
        let old = half(offset) | half(offset + 4) << 32;
        let new = f(old);
        self.write(offset, Width::Word, new as u32);
        self.write(offset + 4, Width::Word, (new >> 32) as u32);
        old
    }
}

impl Executor for Threadgroups {
    type Program = (String, Library);

    fn load(&self, name: &str, code: &[u8]) -> Result<(String, Library), String> {
        let text = std::str::from_utf8(code).map_err(|e| e.to_string())?;
        let library = Library::compile(text, &Options::default()).map_err(|e| format!("{e}\n{text}"))?;
        Ok((name.to_owned(), library))
    }

    fn run(&self, _: &(String, Library), _: &[Arg]) -> Result<(), String> {
        Err("no grid".into())
    }

    fn run_grid(&self, (name, library): &(String, Library), args: &[Arg], over: &Geometry) -> Result<(), String> {
        let memories: Vec<Option<Shared>> = args
            .iter()
            .map(|a| match a {
                Arg::Buffer(p) => {
                    let (view, len) = (p.memory.host()?, p.memory.len_bytes() - p.offset);
                    Some(Shared { view, at: p.offset, len })
                }
                _ => None,
            })
            .collect();
        let words: Vec<[u8; 8]> = args.iter().map(|a| a.bits().to_le_bytes()).collect();
        let mut buffers: Vec<Option<Binding>> = Vec::new();
        for (memory, word) in memories.iter().zip(&words) {
            buffers.push(Some(match memory {
                Some(shared) => Binding::buffer(shared),
                None => Binding::Bytes(word),
            }));
        }
        let kernel = library.kernel(name).ok_or("the library lacks it")?;
        kernel.run(&Launch::new(over.groups, over.local, &buffers)).map_err(|e| e.to_string())
    }
}

const DEVICE: &str = "APPLE";

fn device() -> &'static str {
    static ADDED: Once = Once::new();
    ADDED.call_once(|| {
        let device = HostDevice::open(DEVICE, Family::Apple7.name(), Threadgroups).unwrap();
        add_device(DEVICE, Arc::new(device), Arc::new(Metal::new(Family::Apple7))).unwrap();
    });
    DEVICE
}

fn value(tensor: &Tensor) -> Result<Array, String> {
    let sizes = tensor.shape().map_err(|error| error.to_string())?;
    let sizes = sizes.iter().map(|d| d.as_int().and_then(|n| usize::try_from(n).ok()).ok_or("a symbolic size"));
    let shape = sizes.collect::<Result<_, _>>()?;
    let dtype = tensor.dtype().map_err(|error| error.to_string())?.strong();
    Ok(Array { dtype, shape, bytes: tensor.to_bytes().map_err(|error| error.to_string())? })
}

/// Faults of a case's output and gradients.
fn run(case: &Case) -> Vec<String> {
    let tensor = |array: &Array| Tensor::from_bytes(array.bytes.clone(), array.dtype, &array.shape, device());
    let inputs: Vec<Tensor> = case.inputs.iter().map(tensor).collect();
    let output = tensors::apply(case, &inputs);
    let mut wanted = vec![(output.clone(), &case.outputs[0], &case.tolerance)];
    if let Some(grad) = &case.grad {
        let with = || inputs.iter().zip(&grad.inputs).filter_map(|(x, g)| Some((x, g.as_ref()?)));
        let targets: Vec<&Tensor> = with().map(|(x, _)| x).collect();
        let found = output.gradient_with(&tensor(&grad.of), &targets);
        wanted.extend(with().zip(found).map(|((_, want), got)| (got, want, &grad.tolerance)));
    }
    let fault =
        |(got, want, tolerance): (Tensor, &Array, _)| value(&got).and_then(|v| compare(&v, want, tolerance)).err();
    wanted.into_iter().filter_map(fault).map(|f| format!("{}: {f}", case.name)).collect()
}

/// What Metal has not: f64, and more than 31 arguments of a kernel.
fn is_refusal(fault: &str) -> bool {
    let double = fault.contains("has no instruction for") && fault.contains(" on f64");
    double || fault.contains(" buffers and variables, a Metal kernel has 31")
}

/// Runs a group of references; what Metal has not must be refused, and nothing else.
fn agrees(group: &str) {
    let (mut agreed, mut refused, mut faults) = (0, 0, Vec::new());
    for case in cases(group).into_iter().filter(|c| !c.inputs.is_empty()) {
        let found = run(&case);
        match found.is_empty() {
            true => agreed += 1,
            false if found.iter().all(|f| is_refusal(f)) => refused += 1,
            false => faults.extend(found.into_iter().filter(|f| !is_refusal(f))),
        }
    }
    println!("{group}: {agreed} agree, {refused} are refused, {} faults", faults.len());
    faults.truncate(12);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(agreed > refused, "{agreed} agree, {refused} are refused");
}

macro_rules! groups {
    ($($group:ident)*) => { $(
        #[test]
        fn $group() {
            agrees(stringify!($group));
        }
    )* };
}
groups!(unary binary casts reduce linear movement loss conv index order select dtypes names losses linalg);
