//! What the compiler answers.

use crate::objc::send;
use crate::seen::Seen;
use crate::work::{Below, Bench, EXACT, launch};
use doorbell_ioctl::port::objc::Id;
use hw_contact::Failure;
use std::time::Instant;

const SMALL: &str = "kernel void one(device float* x [[buffer(0)]]) { x[0] = 42.0f; }";
const BAD: &str = "kernel void k(device float* x [[buffer(0)]]) { y = 1; }";
const WARNING: &str = "#warning \"a warning on purpose\"\nkernel void k(device float* x [[buffer(0)]]) { x[0] = 1; }";

/// A library of a source, the error beside it, and the version asked for.
fn library(below: &Below, source: &str, version: Option<u64>) -> (Id, Option<(String, i64, String)>) {
    let raw = below.raw;
    let options = send!(raw, raw.class("MTLCompileOptions"), "new"; Id);
    if let Some(version) = version {
        send!(raw, options, "setLanguageVersion:", version => u64; ());
    }
    let mut error = Id::NIL;
    let made = send!(raw, below.device, "newLibraryWithSource:options:error:",
        raw.string(source) => Id, options => Id, &raw mut error => *mut Id; Id);
    raw.release(&[options]);
    (made, raw.error(error))
}

pub fn compile(bench: &Bench, seen: &mut Seen) -> Result<(), Failure> {
    // A name that no cache of compiled sources has seen.
    let id = std::process::id();
    let source = format!("{EXACT}{}", SMALL.replace("one", &format!("one_{id}")));
    let began = Instant::now();
    let kernel = bench.kernel(&source, &format!("one_{id}"))?;
    let cold = began.elapsed();
    let began = Instant::now();
    bench.kernel(&source, &format!("one_{id}"))?;
    seen.note(format!("the smallest kernel compiles in {cold:.1?}, again in {:.1?}", began.elapsed()));
    let memory = bench.memory(&[0.0])?;
    bench.run(&[launch(&kernel, &[&memory], [1; 3], [1; 3])])?;
    seen.is("it stores", bench.values(&memory)?, vec![42.0]);
    let below = Below::open(bench)?;
    below.raw.pool(|| {
        let (made, error) = library(&below, BAD, Some(3 << 16));
        let (domain, code, text) = error.unwrap_or_default();
        seen.is("a wrong source gives a library", !made.is_nil(), false);
        seen.is("its error", (domain.as_str(), code), ("MTLLibraryErrorDomain", 3));
        let line = text.lines().find(|line| line.contains("error:")).unwrap_or(&text);
        seen.holds(line.starts_with("program_source:1:48: error:"), line, "expected program_source:1:48: error: ...");
        let (made, error) = library(&below, WARNING, Some(3 << 16));
        seen.is("a source with a warning gives a library", !made.is_nil(), true);
        match error {
            Some((domain, code, _)) => {
                seen.is("the error beside it", (domain.as_str(), code), ("MTLLibraryErrorDomain", 4))
            }
            None => seen.note("no error beside it"),
        }
        below.raw.release(&[made]);
    });
    Ok(())
}

pub fn version(bench: &Bench, seen: &mut Seen) -> Result<(), Failure> {
    let below = Below::open(bench)?;
    let raw = below.raw;
    let bfloat = "#include <metal_stdlib>\nusing namespace metal;\n\
                  kernel void k(device bfloat* x [[buffer(0)]]) { x[0] = bfloat(1.0f); }";
    raw.pool(|| {
        let (made, _) = library(&below, bfloat, Some(3 << 16 | 1));
        seen.is("bfloat compiles as version 3.1", !made.is_nil(), true);
        raw.release(&[made]);
        // Which version applies is told by what compiles: `__METAL_VERSION__` is 310 for 3.1.
        let least = |n: u64| format!("#if __METAL_VERSION__ < {n}\n#error older\n#endif\nkernel void k() {{}}");
        let all = [210, 220, 230, 240, 300, 310, 320, 400];
        let applies = |version: Option<u64>| {
            let compiles = |n: &&u64| {
                let (made, _) = library(&below, &least(**n), version);
                raw.release(&[made]);
                !made.is_nil()
            };
            all.iter().rev().find(compiles).copied().unwrap_or(0)
        };
        seen.is("__METAL_VERSION__ when 3.0 is asked for", applies(Some(3 << 16)), 300);
        seen.note(format!("__METAL_VERSION__ when none is asked for: {}", applies(None)));
    });
    Ok(())
}
