//! Settings of a CPU device, and detection of the machine's features.

use crate::DeviceError;
use std::time::Duration;

/// Settings of a CPU device; the defaults assume that the process has the machine to itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuOptions {
    /// Cores that a kernel is distributed over, including the host thread that waits for it; 0 means all that the
    /// process may use.
    pub threads: u32,
    /// Worker threads, instead of one less than `threads` and at least one. With none, work runs in the host thread
    /// that waits for it (`host_helps`); what nobody waits for is not run.
    pub workers: Option<u32>,
    /// How long an idle worker or a waiting host spins before it sleeps, in nanoseconds.
    pub spin_ns: u64,
    /// A recorded list expected to take less time than this runs on the submitting thread if the queue is idle; 0
    /// disables that.
    pub inline_ns: u64,
    /// Whether a waiting host thread runs queued work itself. A deadline then cannot interrupt a kernel that it is
    /// running.
    pub host_helps: bool,
    /// The architecture to compile for, instead of the machine's best: one of [`ARCHS`].
    pub arch: Option<String>,
    /// Most bytes of freed memory to keep for reuse.
    pub cache_bytes: u64,
    /// Size of each queue's ring.
    pub ring_dwords: u64,
    /// Size of each queue's kernargs ring, in 64-bit words.
    pub kernargs_words: u64,
    /// How long a submission or a host copy waits for earlier work before it fails.
    pub submit_timeout: Duration,
}

impl Default for CpuOptions {
    fn default() -> Self {
        Self {
            threads: 0,
            workers: None,
            // TIMEOUT: several times the 12-19 us that a futex wake costs, so a busy host finds workers awake.
            spin_ns: 100_000,
            inline_ns: 20_000, // TIMEOUT: the cost of waking a sleeping worker.
            host_helps: true,
            arch: None,
            cache_bytes: 4 << 30,
            ring_dwords: 1 << 14,
            kernargs_words: 1 << 17,
            submit_timeout: Duration::from_secs(30), // TIMEOUT: a common limit for a hung device.
        }
    }
}

impl CpuOptions {
    /// `threads`, with 0 replaced by the cores that the process may use.
    #[must_use]
    pub(crate) fn resolved_threads(&self) -> u32 {
        if self.threads != 0 {
            return self.threads;
        }
        std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX))
    }
}

/// AVX2 and FMA: the minimum.
pub(crate) const ARCH_AVX2: &str = "x86_64-avx2";
/// AVX-512 F, BW, CD, DQ and VL.
pub(crate) const ARCH_AVX512: &str = "x86_64-avx512";
/// Also AMX tiles with bf16, if the kernel permits the process to use them.
pub(crate) const ARCH_AMX: &str = "x86_64-amx";
/// Valid names, for messages.
pub const ARCHS: &str = "x86_64-avx2, x86_64-avx512, x86_64-amx, aarch64-neon";
/// Armv8.0-A with Advanced SIMD: every 64-bit Arm processor that runs an operating system.
pub(crate) const ARCH_NEON: &str = "aarch64-neon";

/// The features that this machine lacks for AVX2 code and for AVX-512 code.
#[cfg(target_arch = "x86_64")]
fn missing() -> (Vec<&'static str>, Vec<&'static str>) {
    let avx2 = [
        ("avx2", is_x86_feature_detected!("avx2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("f16c", is_x86_feature_detected!("f16c")),
        ("bmi2", is_x86_feature_detected!("bmi2")),
    ];
    let avx512 = [
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512bw", is_x86_feature_detected!("avx512bw")),
        ("avx512cd", is_x86_feature_detected!("avx512cd")),
        ("avx512dq", is_x86_feature_detected!("avx512dq")),
        ("avx512vl", is_x86_feature_detected!("avx512vl")),
    ];
    let lacks =
        |all: &[(&'static str, bool)]| all.iter().filter(|(_, has)| !has).map(|(name, _)| *name).collect::<Vec<_>>();
    let low = lacks(&avx2);
    let high = low.iter().copied().chain(lacks(&avx512)).collect();
    (low, high)
}

#[cfg(not(target_arch = "x86_64"))]
fn missing() -> (Vec<&'static str>, Vec<&'static str>) {
    (vec!["an x86-64 processor"], vec!["an x86-64 processor"])
}

/// What AMX code lacks on this machine: the processor's feature, or the kernel's permission to use tiles, which this
/// requests for the process.
#[cfg(target_arch = "x86_64")]
fn missing_tiles() -> Option<&'static str> {
    // Leaf 7: EDX bit 22 AMX-BF16, bit 24 AMX-TILE (Intel SDM volume 2, CPUID).
    let edx = std::arch::x86_64::__cpuid_count(7, 0).edx;
    if edx >> 22 & 1 == 0 || edx >> 24 & 1 == 0 {
        return Some("amx-bf16");
    }
    (!doorbell_ioctl::port::request_tiles()).then_some("the kernel's permission to use AMX tiles")
}

#[cfg(not(target_arch = "x86_64"))]
fn missing_tiles() -> Option<&'static str> {
    Some("an x86-64 processor")
}

/// The architecture to compile for: the requested one, or this machine's best.
///
/// # Errors
/// `UnknownArch`, `MissingFeature`.
pub fn choose_arch(device: &str, asked: Option<&str>) -> Result<String, DeviceError> {
    let (avx2, avx512) = missing();
    let lack = |asked: &str, missing: &[&str]| {
        Err(DeviceError::MissingFeature { name: device.into(), asked: asked.into(), missing: missing.join(", ") })
    };
    match asked {
        None | Some(ARCH_NEON) if cfg!(target_arch = "aarch64") => Ok(ARCH_NEON.into()),
        Some(ARCH_NEON) => lack(ARCH_NEON, &["an AArch64 processor"]),
        None if avx512.is_empty() && missing_tiles().is_none() => Ok(ARCH_AMX.into()),
        Some(ARCH_AMX) => match missing_tiles() {
            None if avx512.is_empty() => Ok(ARCH_AMX.into()),
            None => lack(ARCH_AMX, &avx512),
            Some(what) => lack(ARCH_AMX, &[what]),
        },
        None if avx512.is_empty() => Ok(ARCH_AVX512.into()),
        None | Some(ARCH_AVX2) if avx2.is_empty() => Ok(ARCH_AVX2.into()),
        Some(ARCH_AVX512) if avx512.is_empty() => Ok(ARCH_AVX512.into()),
        None | Some(ARCH_AVX2) => lack(ARCH_AVX2, &avx2),
        Some(ARCH_AVX512) => lack(ARCH_AVX512, &avx512),
        Some(other) => Err(DeviceError::UnknownArch { name: device.into(), asked: other.into(), valid: ARCHS.into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_arch_names_the_valid_ones() {
        let e = choose_arch("CPU", Some("sm_90")).unwrap_err();
        assert_eq!(
            e.to_string(),
            "arch \"sm_90\" of device CPU is unknown, valid: x86_64-avx2, x86_64-avx512, x86_64-amx, aarch64-neon"
        );
    }

    #[test]
    fn zero_threads_means_all_cores() {
        assert!(CpuOptions::default().resolved_threads() >= 1);
        assert_eq!(CpuOptions { threads: 3, ..CpuOptions::default() }.resolved_threads(), 3);
    }
}
