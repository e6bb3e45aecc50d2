//! A seeded sample of the references of `tests/ops_numpy`, values and gradients, on software GPUs of the chips that the
//! tensor suite does not run on as a whole. `SEED` chooses another sample, `CASES` its size.

#[path = "../ops_numpy/compare.rs"]
mod compare;
#[path = "../ops_numpy/reader.rs"]
mod reader;
#[path = "../ops_numpy/tensors.rs"]
mod tensors;

use compare::compare;
use doorbell::device::Registry;
use doorbell::device::registry::EmuOptions;
use doorbell::emu::amdgpu::Strict;
use doorbell::emu::kfd::{Chip, Config, SoftKfd};
use doorbell::emu::nvrm::{self, SoftNv};
use doorbell::tensor::Tensor;
use reader::{Array, Case, cases};
use std::sync::Arc;

const GROUPS: &[&str] = &[
    "unary", "binary", "casts", "reduce", "linear", "movement", "loss", "conv", "index", "order", "dtypes", "names",
    "losses", "select", "linalg",
];

fn emulate(chip: &str, _cards: usize, _options: EmuOptions) -> Result<Arc<dyn doorbell_ioctl::port::Port>, String> {
    if let Some(chip) = nvrm::Chip::named(chip) {
        let soft = SoftNv::new(nvrm::Config::new(chip));
        return Ok(soft.map_err(|errno| format!("software GPU: {errno}"))?);
    }
    let chip = match chip {
        "gfx942" => Chip::Gfx942,
        "gfx1201" => Chip::Gfx1201,
        other => return Err(format!("not {other}")),
    };
    let config = Config { waves: Strict::on(), ..Config::new(chip) };
    Ok(SoftKfd::new(config).map_err(|errno| format!("software GPU: {errno}"))?)
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

fn value(tensor: &Tensor) -> Result<Array, String> {
    let sizes = tensor.shape().map_err(|error| error.to_string())?;
    let sizes = sizes.iter().map(|d| d.as_int().and_then(|n| usize::try_from(n).ok()).ok_or("a symbolic size"));
    let shape = sizes.collect::<Result<_, _>>()?;
    let dtype = tensor.dtype().map_err(|error| error.to_string())?.strong();
    Ok(Array { dtype, shape, bytes: tensor.to_bytes().map_err(|error| error.to_string())? })
}

/// The output of a case and its gradients on a device.
fn run(case: &Case, device: &str) -> Vec<String> {
    let tensor = |array: &Array| Tensor::from_bytes(array.bytes.clone(), array.dtype, &array.shape, device);
    let inputs: Vec<Tensor> = case.inputs.iter().map(tensor).collect();
    let output = tensors::apply(case, &inputs);
    // Built before anything is computed: realizing the output would make it a leaf.
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

/// Some cases of each group, the same ones for the same seed. `PTXAS` has NVIDIA's assembler make the code for its
/// chip.
fn sample_agrees(device: &str, default_count: u64) {
    Registry::global().set_emulate(emulate, Vec::new());
    let (mut seed, count) = (number("SEED", 942), number("CASES", default_count) as usize);
    let mut next = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let (mut ran, mut faults) = (0, Vec::new());
    for group in GROUPS {
        // Software GPUs are slow: no case of many elements.
        let small = |c: &Case| !c.inputs.is_empty() && c.inputs.iter().chain(&c.outputs).all(|a| a.len() <= 4096);
        let mut cases: Vec<Case> = cases(group).into_iter().filter(small).collect();
        for _ in 0..count.min(cases.len()) {
            let case = cases.swap_remove(next(cases.len()));
            faults.extend(run(&case, device));
            ran += 1;
        }
    }
    assert!(faults.is_empty(), "{} faults in {ran} cases on {device}:\n{}", faults.len(), faults.join("\n"));
    assert!(ran >= GROUPS.len(), "{ran} cases");
}

#[test]
fn a_sample_agrees_on_gfx942() {
    sample_agrees("AMD:emu=gfx942", 6);
}

#[test]
fn a_sample_agrees_on_gfx1201() {
    sample_agrees("AMD:emu=gfx1201", 6);
}

#[test]
fn a_sample_agrees_on_sm_90() {
    sample_agrees("NV:emu=sm_90", 3);
}

#[test]
fn a_sample_agrees_on_sm_80() {
    sample_agrees("NV:emu=sm_80", 3);
}

#[test]
fn a_sample_agrees_on_sm_86_and_sm_89() {
    sample_agrees("NV:emu=sm_86", 1);
    sample_agrees("NV:emu=sm_89", 2);
}

#[test]
fn a_sample_agrees_on_sm_120() {
    sample_agrees("NV:emu=sm_120", 3);
}
