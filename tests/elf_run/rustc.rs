//! Objects made by rustc, that is LLVM, against the same source in this test.

use crate::memory::{Placed, Where};
use doorbell::elf;
use std::process::Command;

mod native {
    include!("rust_kernel.rs");
}

fn compile(flags: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kernel.o");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/elf_run/rust_kernel.rs");
    let fixed =
        ["--edition=2024", "--crate-type=lib", "--emit=obj", "-Cpanic=abort", "-Ccodegen-units=1", source, "-o"];
    let run = Command::new(rustc).args(fixed).arg(&path).args(flags.split_whitespace()).output().unwrap();
    assert!(run.status.success(), "rustc {flags}: {}", String::from_utf8_lossy(&run.stderr));
    std::fs::read(&path).unwrap()
}

extern "C" fn panicked() -> ! {
    eprintln!("the kernel called one of core's panic functions");
    std::process::abort()
}

#[test]
fn objects_of_rustc_compute_what_the_source_computes_here() {
    for flags in [
        "-Copt-level=3",
        "-Copt-level=1 -Cdebuginfo=2",
        "-Copt-level=2 -Crelocation-model=static",
        "-Copt-level=2 -Ccode-model=large",
    ] {
        let image = elf::link(&compile(flags)).unwrap();
        let place = if image.needs_low_2gib() { Where::Low2Gib } else { Where::Anywhere };
        let resolve = |name: &str| name.contains("panic").then_some((panicked as *const ()).addr() as u64);
        let placed = Placed::new(image, place, &resolve);
        for tid in 0..50 {
            let (mut ours, mut here) = (0u64, 0u64);
            // SAFETY: the kernel writes one word, which outlives the call.
            unsafe { placed.call("rust_kernel", &[(&raw mut ours).addr() as u64, 200], tid) };
            // SAFETY: as above.
            unsafe { native::rust_kernel([(&raw mut here).addr() as u64, 200].as_ptr(), tid) };
            assert_eq!(ours, here, "rustc {flags}, tid {tid}");
        }
        native::COUNTER.store(0, std::sync::atomic::Ordering::Relaxed); // each object starts with a counter of its own
    }
}
