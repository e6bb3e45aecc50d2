//! The list of tutorials about the insides, one test or a few for each title, in the list's order.

use crate::{Fragment, alone, debug, said};
use doorbell::codegen::target::Grid;
use doorbell::codegen::{OptChoice, Program, Target, compile};
use doorbell::device::{Arg, Code, Command, KernelImage, Patch, QueueKind};
use doorbell::engine::{Error, Options, Session, session};
use doorbell::nn::optim::{Optimizer, Sgd};
use doorbell::schedule::ScheduleItem;
use doorbell::tensor::prelude::*;
use doorbell::uop::{Op, UOp};
use doorbell::{Jit, Tensor};

#[allow(dead_code)]
#[path = "../../examples/accelerator.rs"]
mod accelerator;
#[allow(dead_code)]
#[path = "../../examples/custom_device.rs"]
mod custom_device;

/// A Tensor in memory.
fn memory(shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    let list: Vec<f32> = (0..count).map(|k| ((k * 7 + 3) % 11) as f32 * 0.5 - 2.0).collect();
    Tensor::from_slice(&list, shape).realize().unwrap().clone()
}

/// The only kernel that computing this Tensor takes.
fn kernel(t: &Tensor) -> UOp {
    let plan = t.schedule().unwrap();
    assert_eq!(plan.kernel_count(), 1);
    plan.kernels().next().unwrap().clone()
}

/// Its linear program with plain loops, on the CPU.
fn plain(t: &Tensor) -> Program {
    let target = session().unwrap().device("CPU").unwrap().target().clone();
    compile(&kernel(t), &target, &OptChoice::None, false).unwrap()
}

fn count(p: &Program, op: Op) -> usize {
    p.uops.iter().filter(|u| u.op() == op).count()
}

// High level overview of the abstractions

#[test]
fn a_tensor_goes_through_schedule_codegen_and_back_end_to_the_device() -> Fragment {
    let x = Tensor::on("CPU").rand([4]).realize()?.clone();
    let twice = &x + &x; // Tensor: a graph of UOps
    let ast = kernel(&twice); // schedule: the graph of a kernel
    let cpu = session()?.device("CPU")?;
    let program = compile(&ast, cpu.target(), &OptChoice::Heuristic, false)?; // codegen: a list of UOps in order
    let binary = cpu.backend.compile(&program)?; // back end: machine code
    let code = Code::Object { object: binary.object().ok_or("no object")?, entry: &binary.entry };
    let loaded = cpu.device.load(&[KernelImage { name: &binary.entry, code }])?; // device: code in its memory

    let (to, from) = (cpu.device.alloc(16)?, cpu.device.alloc(16)?);
    let values: Vec<u8> = [1.0f32, 2.0, 3.0, 4.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    cpu.device.copy_in(&from, 0, &values)?;
    let args = program.params.iter().map(|p| Arg::Buffer(if p.written { to.at(0) } else { from.at(0) }));
    let point = cpu.device.submit(QueueKind::Compute, &[Command::exec(&loaded[0], args, program.threads)])?;
    cpu.device.wait(&point, cpu.device.patience())?;
    let mut bytes = [0; 16];
    cpu.device.copy_out(&to, 0, &mut bytes)?;
    let found: Vec<f32> = bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    assert_eq!(found, [2.0, 4.0, 6.0, 8.0]);
    Ok(())
}

// How kernel fusion works: ScheduleItem

#[test]
fn operations_are_fused_into_one_item_unless_memory_is_asked_for() -> Fragment {
    let (a, b) = (memory(&[16, 16]), memory(&[16, 16]));
    let fused = ((&a * &b) + 1.0).relu().sum(1).schedule()?;
    let [ScheduleItem::Kernel { bufs, device, .. }] = fused.items.as_slice() else { return Err("not one".into()) };
    assert_eq!((bufs.len(), &**device), (3, &*a.device()), "the result and two sources");
    let apart = ((&a * &b) + 1.0).relu().contiguous().sum(1).schedule()?;
    assert_eq!(apart.kernel_count(), 2);
    let softmax = a.softmax(-1).schedule()?;
    assert_eq!(softmax.kernel_count(), 1, "maximum, sum and quotient of a row");
    Ok(())
}

// The intermediate representation (IR)

#[test]
fn the_ir_of_a_dot_product_is_a_loop_with_loads_and_an_accumulator() {
    let p = plain(&(memory(&[100]) * memory(&[100])).sum(()));
    assert_eq!((count(&p, Op::Range), count(&p, Op::End), count(&p, Op::Acc), count(&p, Op::Store)), (1, 1, 1, 1));
    assert_eq!(count(&p, Op::Load), 2);
    // Every node stands after its sources.
    for (k, u) in p.uops.iter().enumerate() {
        assert!(u.src().iter().all(|s| p.uops[..k].contains(s)), "{u:?}");
    }
    assert!(p.source().contains("for "), "{}", p.source());
}

// How GPU code is generated: backends and runtime

#[test]
fn one_kernel_is_compiled_for_every_machine_that_this_build_knows() -> Fragment {
    let ast = kernel(&(memory(&[256]) + memory(&[256]) * 2.0));
    let s = Session::open(Options::default())?;
    let listing = |name: &str| -> Result<String, Box<dyn std::error::Error>> {
        let device = s.device(name)?;
        let program = compile(&ast, device.target(), &OptChoice::Heuristic, false)?;
        Ok(device.backend.listing(&device.backend.compile(&program)?)?)
    };
    assert!(listing("NULL:x86_64-avx2")?.contains("ymm"));
    #[cfg(feature = "amd")]
    assert!(listing("NULL:gfx1100")?.contains("global_store"));
    #[cfg(feature = "nv")]
    {
        // NVIDIA's machine code is made of PTX, which can be read too.
        let device = s.device("NULL:sm_90")?;
        let program = compile(&ast, device.target(), &OptChoice::Heuristic, false)?;
        assert!(device.backend.source(&program)?.ok_or("no text")?.contains("st.global"));
    }
    Ok(())
}

// Shapetracker allows for zero cost movement ops

#[test]
fn movement_runs_no_kernel_and_becomes_an_index_of_the_kernel_that_reads() -> Fragment {
    let x = memory(&[4, 6]);
    for view in [x.reshape([2, 12]), x.permute([1, 0]), x.flip([0]), x.shrink(&[(1, 3), (0, 6)])] {
        assert_eq!(view.schedule()?.kernel_count(), 0);
    }
    let (list, y) = (x.to_vec::<f32>()?, x.permute([1, 0]).flip([1]).reshape([3, 8]).pad(&[(1, 0), (0, 0)]) * 2.0);
    assert_eq!(y.schedule()?.kernel_count(), 1);
    let found = y.to_vec::<f32>()?;
    for (k, v) in found.iter().enumerate() {
        let at = k as i64 - 8; // one row of padding
        let (row, column) = (at / 4, at % 4); // of the flipped transpose (6, 4)
        let want = if at < 0 { 0.0 } else { list[((3 - column) * 6 + row) as usize] * 2.0 };
        assert_eq!(*v, want, "element {k}");
    }
    Ok(())
}

// How dimension merging works

#[test]
fn axes_that_lie_one_behind_the_other_are_merged_into_one_loop() {
    let p = plain(&(memory(&[8, 16]) + 1.0));
    let ends: Vec<i64> = p.uops.iter().filter(|u| u.op() == Op::Range).filter_map(|u| u.src()[0].as_int()).collect();
    assert_eq!(ends, [128]);
    // Not where one source is read across.
    let p = plain(&(memory(&[8, 16]) + memory(&[16, 8]).t()));
    assert_eq!(count(&p, Op::Range), 2);
}

// How to profile a run and tune the performance

#[test]
fn a_run_is_profiled_by_lines_counters_and_a_trace() -> Fragment {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("trace.json");
    let s = Session::open(Options { profile: Some(path.clone()), ..Options::default() })?;
    let in_it = s.enter();
    let x = Tensor::on("CPU").rand([64, 64]);
    x.matmul(&x).realize()?;
    let totals = s.counters.totals();
    assert!(totals.flops >= 2 * 64 * 64 * 64 && totals.kernels >= 1 && totals.time_ns > 0, "{totals:?}");
    drop(in_it);
    s.finish()?;
    let trace: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&path)?)?;
    assert!(trace["traceEvents"].as_array().ok_or("no events")?.iter().any(|e| e["ph"] == "X"));

    let (_, text) = said(debug(2), || x.matmul(&x).sum(()).item());
    assert!(text.lines().any(|l| l.contains("GFLOPS") && l.contains("GB/s") && l.contains("us/")), "{text}");
    Ok(())
}

#[test]
fn beam_searches_for_faster_loops() {
    let options = Options { beam: 1, debug: 1, threads: Some(1), ..Options::default() };
    let (value, text) = said(options, || {
        let x = Tensor::on("CPU").ones([32, 32]);
        x.matmul(&x).sum(()).item()
    });
    assert_eq!(value.unwrap(), 32768.0);
    assert!(text.contains("beam: ") && text.contains("candidates, opts ["), "{text}");
}

// How JIT and cache enable faster compilation: TinyJit

#[test]
fn kernels_are_compiled_once_and_a_recorded_function_runs_them_as_one_list() -> Fragment {
    alone(|s| {
        let (w, mut ran) = (memory(&[8, 8]), 0);
        let mut f = Jit::new(|x: &Tensor| {
            ran += 1;
            x.matmul(&w).relu().sum(1).softmax(0)
        });
        let mut compiled = Vec::new();
        for k in 0..5 {
            let numbers: Vec<f32> = memory(&[4, 8]).to_vec::<f32>()?.iter().map(|v| v * k as f32).collect();
            let x = Tensor::from_slice(&numbers, [4, 8]);
            let found = f.call(&x)?.to_vec::<f32>()?;
            let wanted = x.matmul(&w).relu().sum(1).softmax(0).to_vec::<f32>()?;
            assert!(found.iter().zip(&wanted).all(|(a, b)| (a - b).abs() < 1e-6), "{found:?} {wanted:?}");
            compiled.push(s.counters.totals().compiled);
        }
        assert!(f.is_recorded() && f.kernels() > Some(0));
        assert_eq!(
            f.call(&memory(&[5, 8])).unwrap_err().to_string(),
            "jit: the input has shape (5, 8), recorded with (4, 8)"
        );
        drop(f);
        assert_eq!(ran, 2, "from the third call on the list is replayed");
        assert!(compiled.iter().all(|c| *c == compiled[0]), "{compiled:?}");
        Ok(())
    })
}

// Command queue is a better way to handle job dispatch

#[test]
fn commands_are_queued_waited_for_and_recorded() -> Fragment {
    let cpu = session()?.device("CPU")?;
    let device = &cpu.device;
    let [a, b] = [device.alloc(8)?, device.alloc(8)?];
    device.copy_in(&a, 0, &7u64.to_le_bytes())?;
    // Two queues: the second submission reads what the first writes, and is ordered after it.
    let first = device.submit(QueueKind::Copy, &[Command::copy(b.at(0), a.at(0), 8)])?;
    let second = device.submit(QueueKind::Compute, &[Command::copy(a.at(0), b.at(0), 4)])?;
    device.wait(&first, device.patience())?;
    device.wait(&second, device.patience())?;
    let read = |m| -> Result<u64, Box<dyn std::error::Error>> {
        let mut bytes = [0; 8];
        device.copy_out(m, 0, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    };
    assert_eq!((read(&a)?, read(&b)?), (7, 7));

    // A list that lies ready: a replay changes arguments and rings once.
    let ast = kernel(&(Tensor::on("CPU").zeros([1]).contiguous().realize()? + 1.0));
    let program = compile(&ast, cpu.target(), &OptChoice::None, false)?;
    let binary = cpu.backend.compile(&program)?;
    let code = Code::Object { object: binary.object().ok_or("no object")?, entry: &binary.entry };
    let loaded = device.load(&[KernelImage { name: &binary.entry, code }])?;
    let to = program.params.iter().position(|p| p.written).ok_or("no result")?;
    device.copy_in(&a, 0, &1.5f32.to_le_bytes().repeat(2))?;
    let args = (0..2).map(|k| Arg::Buffer(if k == to { b.at(0) } else { a.at(0) }));
    let mut list = device.record(&[Command::exec(&loaded[0], args, program.threads)])?;
    list.replay(&[])?;
    let point = list.replay(&[Patch::Arg { command: 0, arg: to, value: Arg::Buffer(b.at(4)) }])?;
    device.wait(&point, device.patience())?;
    let mut bytes = [0; 8];
    device.copy_out(&b, 0, &mut bytes)?;
    assert_eq!(bytes.as_chunks::<4>().0.iter().map(|w| f32::from_le_bytes(*w)).collect::<Vec<_>>(), [2.5, 2.5]);
    Ok(())
}

// Multi GPU training

/// A step of descent: the loss and the weights after it.
fn step(w: &Tensor, x: &Tensor, y: &Tensor) -> Result<(f64, Vec<f32>), Error> {
    let mut optim = Sgd::new([w.clone()], 0.1)?;
    let loss = x.matmul(w).mse_loss(y);
    loss.backward()?;
    loss.realize_with(&optim.schedule_step()?)?;
    Ok((loss.item()?, w.to_vec::<f32>()?))
}

#[test]
fn a_batch_over_two_devices_trains_as_on_one() -> Fragment {
    let (x, y) = (memory(&[8, 3]), memory(&[8, 1]));
    let weights = || memory(&[3, 1]).requires_grad();
    let (loss, one) = step(&weights(), &x, &y)?;
    let devices = ["CPU:0", "CPU:1"];
    let w = weights();
    w.shard_(&devices, None); // parameters whole on each, the batch in parts
    let (of_two, two) = step(&w, &x.shard(&devices, 0), &y.shard(&devices, 0))?;
    assert_eq!(w.devices().len(), 2);
    assert!((loss - of_two).abs() < 1e-6 && one.iter().zip(&two).all(|(a, b)| (a - b).abs() < 1e-6));
    Ok(())
}

// Adding custom accelerator

#[test]
fn a_device_of_one_s_own_and_one_with_its_own_instructions() {
    custom_device::main().unwrap();
    accelerator::main().unwrap();
}

// Code generator and details on common UOps

#[test]
fn a_gpu_s_kernel_has_specials_where_the_cpu_s_has_loops() -> Fragment {
    let x = memory(&[64, 64]);
    let ast = kernel(&x.sum(1));
    let gpu = Target::gpu("some GPU", Grid::amd(32));
    let program = compile(&ast, &gpu, &OptChoice::None, false)?;
    assert!(program.global.iter().product::<u32>() * program.local.iter().product::<u32>() >= 64);
    assert!(count(&program, Op::Special) > 0);
    assert_eq!(count(&program, Op::Range), 1, "the sum's");
    assert_eq!(count(&plain(&x.sum(1)), Op::Range), 2);
    // An element that is not there is not loaded: the load has a gate and another value.
    let padded = plain(&memory(&[5]).pad(&[(0, 3)]).contiguous());
    let load = padded.uops.iter().find(|u| u.op() == Op::Load).ok_or("no load")?;
    assert_eq!((load.src().len(), load.src()[0].src().len()), (2, 3), "{}", padded.source());
    Ok(())
}

// Tensor core support part 1

#[test]
fn a_product_for_a_machine_with_a_matrix_unit_uses_it() -> Fragment {
    let product = memory(&[64, 64]).cast(Scalar::BF16).contiguous();
    product.realize()?;
    let product = product.matmul(&product);
    let s = Session::open(Options::default())?;
    let uses = |name: &str| -> Result<(bool, bool), Box<dyn std::error::Error>> {
        let p = compile(&kernel(&product), s.device(name)?.target(), &OptChoice::Heuristic, false)?;
        Ok((count(&p, Op::Wmma) > 0, p.opts.iter().any(|o| o.starts_with("TC"))))
    };
    assert_eq!(uses("NULL:x86_64-amx")?, (true, true));
    assert_eq!(uses("NULL:x86_64-avx2")?, (false, false));
    #[cfg(feature = "amd")]
    assert_eq!(uses("NULL:gfx1100")?, (true, true));
    #[cfg(feature = "nv")]
    assert_eq!(uses("NULL:sm_90")?, (true, true));
    Ok(())
}
