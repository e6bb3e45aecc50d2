//! BEAM: chooses the opts of a kernel by timing it on the device.
//!
//! The candidates run on scratch memory with the sizes of the kernel's buffers, never on the program's buffers;
//! variables have their largest value. For devices that run nothing, the heuristic chooses.

use super::cache::DiskCache;
use super::launch;
use super::record::Notes;
use super::session::OpenDevice;
use super::{Error, Session};
use crate::codegen::beam::{Beam, Results};
use crate::codegen::{self, Opt, OptChoice, ParamInfo, Program};
use crate::device::{Memory, time_command};
use crate::uop::UOp;
use std::collections::HashMap;
use std::time::Duration;

/// How long one candidate may run before it is rejected.
// TIMEOUT: tinygrad's limit for one candidate is 10 s; this shorter one ends a search over slow kernels earlier.
const CANDIDATE: Duration = Duration::from_secs(5);

impl Session {
    /// The fastest program found with a search of this width; candidates, and how the program came about, are added to
    /// `notes` if the session records.
    pub(super) fn search(
        &self,
        device: &OpenDevice,
        ast: &UOp,
        width: usize,
        notes: &mut Notes,
    ) -> Result<Program, Error> {
        let heuristic = || codegen::compile(ast, device.target(), &self.choice(), self.options.fast_math);
        if !device.runs_kernels() {
            return Ok(heuristic()?);
        }
        let beam = Beam { width, fast_math: self.options.fast_math };
        let kept = DiskResults(self.options.cache_dir.as_deref().map(DiskCache::new));
        let mut scratch: HashMap<u32, Memory> = HashMap::new();
        let mut tried = 0;
        let best = beam.search(ast, device.target(), &kept, |p| {
            tried += 1;
            let took = time(device, p, &mut scratch).ok();
            if self.recorder.is_some() {
                notes.candidate(p, took);
            }
            took
        })?;
        if self.options.debug >= 1 {
            self.say(&format!("beam: {} from {tried} candidates, opts [{}]", best.name, best.opts.join(", ")));
        }
        let Some(r) = &self.recorder else { return Ok(best) };
        let opts: Option<Vec<Opt>> = best.opts.iter().map(|o| o.parse().ok()).collect();
        let Some(opts) = opts else { return Ok(best) };
        Ok(notes.compile((r, ast), device.target(), &OptChoice::Given(opts), self.options.fast_math)?)
    }
}

/// Results on disk, if there is a disk cache.
struct DiskResults(Option<DiskCache>);

impl Results for DiskResults {
    fn recall(&self, key: &str) -> Option<String> {
        String::from_utf8(self.0.as_ref()?.get("beam", key.as_bytes())?).ok()
    }

    fn keep(&self, key: &str, opts: &str) {
        if let Some(cache) = &self.0 {
            cache.put("beam", key.as_bytes(), opts.as_bytes());
        }
    }
}

/// One run of a candidate.
fn time(device: &OpenDevice, p: &Program, scratch: &mut HashMap<u32, Memory>) -> Result<Duration, Error> {
    let binary = device.backend.compile(p)?;
    let mut kernels = device.device.load(&[launch::image(&binary)])?;
    let kernel = kernels.pop().ok_or_else(|| Error::Internal(format!("{} was not loaded", p.name)))?;
    let place = |info: &ParamInfo| {
        let len_bytes = (info.len * info.dtype.scalar.size_bytes()) as u64;
        if let Some(memory) = scratch.get(&info.slot) {
            return Ok(memory.at(0));
        }
        // Zeros, so that no index read from memory exceeds its buffer, and no denormal slows a candidate down.
        let memory = device.device.alloc(len_bytes)?;
        device.device.copy_in(&memory, 0, &vec![0; len_bytes as usize])?;
        let place = memory.at(0);
        scratch.insert(info.slot, memory);
        Ok(place)
    };
    let largest = |v: &UOp| Ok(v.vmax().clamp(0, i64::MAX.into()) as i64);
    let args = launch::arguments((p, &binary), place, largest)?;
    let command = launch::command(&kernel, (p, &binary), args);
    let ns = time_command(device.device.as_ref(), &command, 1, CANDIDATE)?;
    Ok(Duration::from_nanos(ns.first().copied().unwrap_or(u64::MAX)))
}
