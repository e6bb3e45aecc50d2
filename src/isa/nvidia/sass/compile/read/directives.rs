//! A kernel's declaration: its parameters and their offsets, its sizes, and how many registers these allow a thread.

use super::flat::{Names, Symbol, place};
use crate::ptx::{Function, Tuning};
use crate::sass::SmArch;
use crate::sass::compile::{AsmError, KernelCode};

/// Reads a kernel's declaration; parameters get offsets, aligned as they are in the constant bank.
pub(crate) fn head<B>(f: &Function<B>, names: &mut Names, chip: SmArch) -> Result<KernelCode, AsmError> {
    let mut k = KernelCode { name: f.name.to_string(), ..KernelCode::default() };
    (k.threads, k.cluster) = (sizes(f, "reqntid"), sizes(f, "reqnctapercluster"));
    k.max_cluster = sizes(f, "maxclusterrank").map(|n| n[0]);
    k.wants_cluster = f.tuning.iter().any(|t| matches!(t, Tuning::Numbers(name, _) if &**name == "explicitcluster"));
    let base = chip.arch().param_base();
    for p in &f.params {
        let mut end = base + k.parameter_bytes;
        let at = place(p, &mut end)? - base;
        k.parameter_bytes = end - base;
        let len = k.parameter_bytes - at;
        k.parameters.push((at, len));
        names.symbols.insert(p.name.clone(), Symbol::Param(at, len));
    }
    Ok(k)
}

/// The three sizes of a directive; missing ones are 1.
pub(crate) fn sizes<B>(f: &Function<B>, directive: &str) -> Option<[u32; 3]> {
    f.tuning.iter().find_map(|t| match t {
        Tuning::Numbers(name, n) if &**name == directive => {
            let n = |k: usize| n.get(k).and_then(|v| u32::try_from(*v).ok()).unwrap_or(1);
            Some([n(0), n(1), n(2)])
        }
        _ => None,
    })
}

/// Warps of a block, as far as a function's declaration determines it.
pub(crate) fn block_warps<B>(f: &Function<B>, threads: Option<[u32; 3]>) -> u64 {
    let product = |t: [u32; 3]| t.iter().fold(1u64, |n, k| n.saturating_mul((*k).into()));
    let threads = threads.map(product).or_else(|| number(f, "maxntid"));
    threads.unwrap_or(256).div_ceil(32).max(1)
}

/// The product of a directive's numbers.
fn number<B>(f: &Function<B>, directive: &str) -> Option<u64> {
    f.tuning.iter().find_map(|t| match t {
        Tuning::Numbers(name, n) if &**name == directive => Some(n.iter().fold(1, |n: u64, k| n.saturating_mul(*k))),
        _ => None,
    })
}

/// Maximum number of general registers.
pub(crate) fn most_registers<B>(f: &Function<B>, threads: Option<[u32; 3]>) -> u16 {
    // Registers are allocated to a warp in units of eight per thread; the hardware reserves two of a thread's.
    let most = (2048 / block_warps(f, threads) / 8 * 8).clamp(24, 255) - 2;
    number(f, "maxnreg").map_or(most, |n| most.min(n.max(18) - 2)).min(253) as u16
}

/// Resident blocks of a multiprocessor with at most 64 warps, for blocks of so many warps and threads of so many
/// registers (plus two reserved ones).
pub(crate) fn resident(block_warps: u64, registers: u32) -> u64 {
    let warps = 2048 / u64::from(registers + 2).next_multiple_of(8);
    warps.min(64) / block_warps
}
