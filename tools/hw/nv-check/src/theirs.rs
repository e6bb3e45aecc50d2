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
    if matches!(selector, doorbell::device::nv::Selector::Emulated { .. }) {
        return Err("CUDA sees no software GPU".into());
    }
    let (bdf, chip) = place(args, &selector)?;
    let sizes = Sizes::of(args.quick);
    // The library is loaded before the clock starts: a program that uses CUDA is linked with it.
    let cuda = Cuda::load(&args.cuda).map_err(Failure::from)?;
    let cubin = code::cubin(args, &chip)?;
    with(&cuda, (&bdf, &chip), &cubin, sizes).map_err(Failure::from)
}

/// What the library does on the card at that place, which is of that chip.
fn with(cuda: &Cuda, (bdf, chip): (&str, &str), cubin: &[u8], sizes: Sizes) -> Result<Value, String> {
    let mut reported = Map::new();
    let began = Instant::now();
    let context = cuda.open(bdf)?;
    reported.insert("open_ms".into(), json!(began.elapsed().as_secs_f64() * 1e3));
    let from = match context.load(cubin) {
        Ok(()) => "our cubin",
        Err(refused) => {
            reported.insert("our_cubin_refused".into(), json!(refused));
            context.load_text(&code::text(chip))?;
            "our PTX"
        }
    };
    context.launch_and_wait("nothing")?;
    reported.insert("open_to_first_kernel_ms".into(), json!(began.elapsed().as_secs_f64() * 1e3));
    reported.insert("kernel_from".into(), json!(from));
    reported.insert("driver_version".into(), json!(cuda.driver_version()));
    launches(&context, sizes, &mut reported)?;
    copies(&context, sizes, &mut reported)?;
    Ok(Value::Object(reported))
}

/// The card's bus address and its chip, from the kernel's driver.
fn place(args: &Args, selector: &doorbell::device::nv::Selector) -> Result<(String, String), Failure> {
    let driver = Driver::open("NV", LinuxPort::new(), args.any_driver)?;
    let all = cards(&driver).map_err(fail)?;
    let card = selector.pick(&all, &driver).map_err(fail)?.ok_or("no such GPU")?.clone();
    let mut gpu = doorbell::device::nv::Gpu::begin(&driver, &card, false).map_err(|e| e.into_device_error("NV"))?;
    let wanted = ["attach", "classes"];
    for step in doorbell::device::nv::STEPS.iter().filter(|s| wanted.contains(&s.name)) {
        (step.run)(&mut gpu).map_err(|e| e.into_device_error("NV"))?;
    }
    Ok((card.bdf, gpu.chip.name.to_string()))
}

fn launches(context: &crate::cuda::Context<'_>, sizes: Sizes, reported: &mut Map<String, Value>) -> Result<(), String> {
    let each = (0..sizes.launches).map(|_| seconds(|| context.launch_and_wait("nothing")));
    reported.insert("launch_latency_us".into(), json!(median(each.collect::<Result<_, _>>()?) * 1e6));
    let took = seconds(|| {
        (0..sizes.launches).try_for_each(|_| context.launch("nothing"))?;
        context.wait()
    })?;
    reported.insert("launch_rate_per_s".into(), json!(sizes.launches as f64 / took));
    let each = (0..sizes.replays).map(|_| {
        seconds(|| {
            (0..sizes.graph).try_for_each(|_| context.launch("nothing"))?;
            context.wait()
        })
    });
    let list = median(each.collect::<Result<_, _>>()?);
    reported.insert("list_us_per_kernel".into(), json!(list * 1e6 / sizes.graph as f64));
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
    reported.insert("graph_us_per_kernel".into(), json!(median(each) * 1e6 / sizes.graph as f64));
    reported.insert("graph_kernels".into(), json!(sizes.graph));
    Ok(())
}

fn copies(context: &crate::cuda::Context<'_>, sizes: Sizes, reported: &mut Map<String, Value>) -> Result<(), String> {
    let len = sizes.copy_bytes;
    let (far, other) = (context.alloc(len)?, context.alloc(len)?);
    let pinned = context.alloc_host(len)?;
    let mut pageable = vec![1_u8; len];
    let rate = |run: &mut dyn FnMut() -> Result<(), String>| -> Result<f64, String> {
        run()?;
        let each = (0..sizes.copies).map(|_| seconds(&mut *run)).collect::<Result<Vec<f64>, String>>()?;
        Ok(len as f64 / median(each) / 1e9)
    };
    reported.insert("copy_bytes".into(), json!(len));
    reported.insert("h2d_pinned_gb_s".into(), json!(rate(&mut || context.copy_in_pinned(far, &pinned, len))?));
    reported.insert("d2h_pinned_gb_s".into(), json!(rate(&mut || context.copy_out_pinned(&pinned, far, len))?));
    reported.insert("d2d_gb_s".into(), json!(rate(&mut || context.copy(other, far, len))?));
    reported.insert("h2d_pageable_gb_s".into(), json!(rate(&mut || context.copy_in(far, &pageable))?));
    reported.insert("d2h_pageable_gb_s".into(), json!(rate(&mut || context.copy_out(&mut pageable, far))?));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    /// A library with CUDA's names that copies with memcpy and runs nothing.
    const FAKE: &str = r#"
#include <stdlib.h>
#include <string.h>
typedef void *H; typedef unsigned long long D;
static int captured;
int cuInit(unsigned f) { return INIT; }
int cuDriverGetVersion(int *v) { *v = 13050; return 0; }
int cuGetErrorName(int c, const char **n) { *n = c == 100 ? "CUDA_ERROR_NO_DEVICE" : c == 209 ? "CUDA_ERROR_NO_BINARY_FOR_GPU" : 0; return *n ? 0 : 1; }
int cuDeviceGetByPCIBusId(int *d, const char *b) { *d = 0; return strcmp(b, "0000:01:00.0") ? 101 : 0; }
int cuCtxCreate_v2(H *c, unsigned f, int d) { *c = &captured; return 0; }
int cuStreamCreate(H *s, unsigned f) { *s = &captured; return 0; }
int cuStreamSynchronize(H s) { return 0; }
int cuModuleLoadData(H *m, const void *i) { *m = &captured; return ELF && *(const char *)i == 0x7f ? 209 : 0; }
int cuModuleGetFunction(H *f, H m, const char *n) { *f = &captured; return strcmp(n, "nothing") ? 500 : 0; }
int cuLaunchKernel(H f, unsigned a, unsigned b, unsigned c, unsigned x, unsigned y, unsigned z, unsigned s, H t, void **p, void **e) { captured++; return 0; }
int cuStreamBeginCapture_v2(H s, int m) { captured = 0; return 0; }
int cuStreamEndCapture(H s, H *g) { *g = &captured; return captured == 0; }
int cuGraphInstantiateWithFlags(H *r, H g, unsigned long long f) { *r = g; return 0; }
int cuGraphLaunch(H g, H s) { return 0; }
int cuMemAlloc_v2(D *a, size_t n) { *a = (D)malloc(n); return *a == 0; }
int cuMemAllocHost_v2(void **a, size_t n) { *a = calloc(n, 1); return *a == 0; }
int cuMemcpyHtoDAsync_v2(D d, const void *s, size_t n, H t) { memcpy((void *)d, s, n); return 0; }
int cuMemcpyDtoHAsync_v2(void *d, D s, size_t n, H t) { memcpy(d, (void *)s, n); return 0; }
int cuMemcpyDtoDAsync_v2(D d, D s, size_t n, H t) { memcpy((void *)d, (void *)s, n); return 0; }
"#;

    fn library(dir: &Path, name: &str, init: u32, refuses_elf: bool) -> PathBuf {
        let (source, library) = (dir.join("fake.c"), dir.join(name));
        std::fs::write(&source, FAKE).unwrap();
        let flags = [format!("-DINIT={init}"), format!("-DELF={}", u32::from(refuses_elf))];
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-w"]).args(flags).arg("-o").arg(&library).arg(&source);
        assert!(cc.status().unwrap().success());
        library
    }

    fn tried(library: &Path, bdf: &str) -> Result<Value, String> {
        with(&Cuda::load(library)?, (bdf, "sm_90"), b"\x7fELF and so on", Sizes::of(true))
    }

    #[test]
    fn every_function_of_the_library_is_called_as_it_wants_and_refusals_are_told_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let reported = tried(&library(dir.path(), "all.so", 0, false), "0000:01:00.0").unwrap();
        assert_eq!(
            (reported["kernel_from"].as_str(), reported["driver_version"].as_i64()),
            (Some("our cubin"), Some(13050))
        );
        let rates = ["launch_rate_per_s", "graph_us_per_kernel", "h2d_pinned_gb_s", "d2h_pageable_gb_s", "d2d_gb_s"];
        rates.iter().for_each(|key| assert!(reported[key].as_f64().is_some_and(|v| v > 0.0), "{key}: {reported:#}"));
        // An assembler output that CUDA refuses is reported, and the text is used in its place.
        let reported = tried(&library(dir.path(), "text.so", 0, true), "0000:01:00.0").unwrap();
        assert_eq!(reported["kernel_from"].as_str(), Some("our PTX"));
        let refused = reported["our_cubin_refused"].as_str();
        assert_eq!(refused, Some("cuModuleLoadData: CUDA_ERROR_NO_BINARY_FOR_GPU (209)"));
        let none = library(dir.path(), "none.so", 100, false);
        assert_eq!(tried(&none, "0000:01:00.0").unwrap_err(), "cuInit: CUDA_ERROR_NO_DEVICE (100)");
        let all = dir.path().join("all.so");
        assert_eq!(tried(&all, "0000:02:00.0").unwrap_err(), "cuDeviceGetByPCIBusId: no name (101)");
    }
}
