//! The same launches and copies by CUDA's driver library, for comparison.

use crate::bench::{Sizes, median, seconds};
use crate::cuda::Cuda;
use crate::{Args, code, machine};
use doorbell::device::nv::{Driver, cards};
use doorbell_ioctl::port::LinuxPort;
use hw_contact::{Failure, fail};
use serde_json::{Map, Value, json};
use std::time::Instant;

/// # Errors
/// There is no such library, or what it refused.
pub fn measure(args: &Args) -> Result<Value, Failure> {
    let selector = machine::selector(args).map_err(Failure::from)?;
    if matches!(selector, doorbell::device::nv::Selector::Emulated(_)) {
        return Err("CUDA sees no software GPU".into());
    }
    let (bdf, chip) = place(args, &selector)?;
    let sizes = Sizes::of(args.quick);
    // The library is loaded before the clock starts: a program that uses CUDA is linked with it.
    let cuda = Cuda::load(&args.cuda).map_err(Failure::from)?;
    let cubin = code::cubin(args, &chip)?;
    let mut told = Map::new();
    let began = Instant::now();
    let context = cuda.open(&bdf).map_err(Failure::from)?;
    told.insert("open_ms".into(), json!(began.elapsed().as_secs_f64() * 1e3));
    let from = match context.load(&cubin) {
        Ok(()) => "our cubin",
        Err(refused) => {
            told.insert("our_cubin_refused".into(), json!(refused));
            context.load_text(&code::text(&chip)).map_err(Failure::from)?;
            "our PTX"
        }
    };
    context.launch_and_wait("nothing").map_err(Failure::from)?;
    told.insert("open_to_first_kernel_ms".into(), json!(began.elapsed().as_secs_f64() * 1e3));
    told.insert("kernel_from".into(), json!(from));
    told.insert("driver_version".into(), json!(cuda.driver_version()));
    launches(&context, sizes, &mut told).map_err(Failure::from)?;
    copies(&context, sizes, &mut told).map_err(Failure::from)?;
    Ok(Value::Object(told))
}

/// The card's place on the bus and its chip, as the kernel's driver says them.
fn place(args: &Args, selector: &doorbell::device::nv::Selector) -> Result<(String, String), Failure> {
    let driver = Driver::open("NV", LinuxPort::new(), args.any_driver)?;
    let all = cards(&driver).map_err(fail)?;
    let card = selector.pick(&all, &driver).map_err(fail)?.ok_or("no such GPU")?.clone();
    let mut gpu = doorbell::device::nv::Gpu::begin(&driver, &card, false).map_err(|e| e.of_device("NV"))?;
    let wanted = ["attach", "classes"];
    for step in doorbell::device::nv::STEPS.iter().filter(|s| wanted.contains(&s.name)) {
        (step.run)(&mut gpu).map_err(|e| e.of_device("NV"))?;
    }
    Ok((card.bdf, gpu.chip.name.to_string()))
}

fn launches(context: &crate::cuda::Context<'_>, sizes: Sizes, told: &mut Map<String, Value>) -> Result<(), String> {
    let each = (0..sizes.launches).map(|_| seconds(|| context.launch_and_wait("nothing")));
    told.insert("launch_latency_us".into(), json!(median(each.collect::<Result<_, _>>()?) * 1e6));
    let took = seconds(|| {
        (0..sizes.launches).try_for_each(|_| context.launch("nothing"))?;
        context.wait()
    })?;
    told.insert("launch_rate_per_s".into(), json!(sizes.launches as f64 / took));
    let each = (0..sizes.replays).map(|_| {
        seconds(|| {
            (0..sizes.graph).try_for_each(|_| context.launch("nothing"))?;
            context.wait()
        })
    });
    let list = median(each.collect::<Result<_, _>>()?);
    told.insert("list_us_per_kernel".into(), json!(list * 1e6 / sizes.graph as f64));
    let graph = context.record("nothing", sizes.graph)?;
    let replay = || {
        seconds(|| {
            context.replay(&graph)?;
            context.wait()
        })
    };
    for _ in 0..5 {
        replay()?;
    }
    let each = (0..sizes.replays).map(|_| replay()).collect::<Result<_, _>>()?;
    told.insert("graph_us_per_kernel".into(), json!(median(each) * 1e6 / sizes.graph as f64));
    told.insert("graph_kernels".into(), json!(sizes.graph));
    Ok(())
}

fn copies(context: &crate::cuda::Context<'_>, sizes: Sizes, told: &mut Map<String, Value>) -> Result<(), String> {
    let len = sizes.copy_bytes;
    let (far, other) = (context.alloc(len)?, context.alloc(len)?);
    let pinned = context.alloc_host(len)?;
    let mut pageable = vec![1_u8; len];
    let rate = |run: &mut dyn FnMut() -> Result<(), String>| -> Result<f64, String> {
        run()?;
        let each = (0..sizes.copies).map(|_| seconds(&mut *run)).collect::<Result<Vec<f64>, String>>()?;
        Ok(len as f64 / median(each) / 1e9)
    };
    told.insert("copy_bytes".into(), json!(len));
    told.insert("h2d_pinned_gb_s".into(), json!(rate(&mut || context.copy_in_pinned(far, &pinned, len))?));
    told.insert("d2h_pinned_gb_s".into(), json!(rate(&mut || context.copy_out_pinned(&pinned, far, len))?));
    told.insert("d2d_gb_s".into(), json!(rate(&mut || context.copy(other, far, len))?));
    told.insert("h2d_pageable_gb_s".into(), json!(rate(&mut || context.copy_in(far, &pageable))?));
    told.insert("d2h_pageable_gb_s".into(), json!(rate(&mut || context.copy_out(&mut pageable, far))?));
    Ok(())
}
