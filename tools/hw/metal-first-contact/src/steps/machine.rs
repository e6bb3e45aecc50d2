//! What the machine and its GPU are.

use crate::objc::{Bool, send};
use crate::seen::Seen;
use crate::work::{Below, Bench};
use doorbell::device::Device;
use doorbell_ioctl::port::objc::Id;
use hw_contact::Failure;
use std::process::Command;

/// The output of a program, in one line; `None` where it is missing.
fn said(program: &str, args: &[&str]) -> Option<String> {
    let out = Command::new(program).args(args).output().ok().filter(|out| out.status.success())?;
    Some(String::from_utf8_lossy(&out.stdout).split_whitespace().collect::<Vec<_>>().join(" "))
}

pub fn system(bench: &Bench, seen: &mut Seen) -> Result<(), Failure> {
    seen.note(format!("built for {} on {}", std::env::consts::ARCH, std::env::consts::OS));
    for (program, args) in [
        ("sw_vers", &[][..]),
        ("sysctl", &["-n", "machdep.cpu.brand_string", "hw.memsize", "hw.pagesize"]),
        ("rustc", &["-vV"]),
    ] {
        match said(program, args) {
            Some(text) => seen.note(format!("{program}: {text}")),
            None => seen.note(format!("{program}: no answer")),
        }
    }
    if bench.is_software() {
        seen.note("the software Metal of this runtime, not a Mac");
    }
    Ok(())
}

/// Values of `MTLGPUFamily`, in their order.
const FAMILIES: &[(i64, &str)] = &[
    (1005, "Apple5"),
    (1006, "Apple6"),
    (1007, "Apple7"),
    (1008, "Apple8"),
    (1009, "Apple9"),
    (1010, "Apple10"),
    (2002, "Mac2"),
    (3001, "Common1"),
    (3002, "Common2"),
    (3003, "Common3"),
    (5001, "Metal3"),
    (5002, "Metal4"),
];

pub fn device(bench: &Bench, seen: &mut Seen) -> Result<(), Failure> {
    let below = Below::open(bench)?;
    let (raw, gpu) = (below.raw, below.device);
    let name = raw.pool(|| raw.text(send!(raw, gpu, "name"; Id)));
    seen.note(format!("{name}, registry id {:#x}", send!(raw, gpu, "registryID"; u64)));
    let has = |family: i64| send!(raw, gpu, "supportsFamily:", family => i64; Bool).is_yes();
    let all: Vec<&str> = FAMILIES.iter().filter(|(family, _)| has(*family)).map(|(_, name)| *name).collect();
    seen.holds(has(1007), &format!("families {}", all.join(" ")), "expected Apple7 or a later one");
    seen.is("unified memory", send!(raw, gpu, "hasUnifiedMemory"; Bool).is_yes(), !bench.pretends("device"));
    let threadgroup = send!(raw, gpu, "maxThreadgroupMemoryLength"; u64);
    seen.holds(threadgroup >= 32 << 10, &format!("threadgroup memory {threadgroup}"), "expected 32768 or more");
    let [buffer, most, used] = [
        send!(raw, gpu, "maxBufferLength"; u64),
        send!(raw, gpu, "recommendedMaxWorkingSetSize"; u64),
        send!(raw, gpu, "currentAllocatedSize"; u64),
    ];
    seen.holds(buffer >= 1 << 30, &format!("largest buffer {} MiB", buffer >> 20), "expected 1 GiB or more");
    seen.note(format!("working set {} MiB, in use {} KiB", most >> 20, used >> 10));
    // The runtime's own device on the same GPU.
    let info = bench.device()?.info();
    seen.note(format!("opened as arch {} with {} MiB", info.arch, info.memory_bytes >> 20));
    fresh_memory(bench, seen)
}

/// Whether new memory is zero, which nothing relies on.
fn fresh_memory(bench: &Bench, seen: &mut Seen) -> Result<(), Failure> {
    let device = bench.device()?;
    let memory = device.alloc(1 << 20)?;
    let mut bytes = vec![0; 1 << 20];
    device.copy_out(&memory, 0, &mut bytes)?;
    let zeros = bytes.iter().filter(|b| **b == 0).count();
    seen.note(format!("of a new MiB of memory {zeros} bytes are zero"));
    Ok(())
}

pub fn is_virtual(bench: &Bench, seen: &mut Seen) -> Result<(), Failure> {
    let below = Below::open(bench)?;
    let (raw, gpu) = (below.raw, below.device);
    let name = raw.pool(|| raw.text(send!(raw, gpu, "name"; Id)));
    let is_virtual = name.to_ascii_lowercase().contains("virtual");
    let reported = if is_virtual { "a virtual GPU: nothing seen here counts for lists" } else { "no virtual GPU" };
    seen.holds(!is_virtual, &format!("{name}: {reported}"), "expected the machine's own GPU");
    Ok(())
}
