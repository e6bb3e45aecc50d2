//! The copy engine: linear and pitched copies, fills, semaphores.
//!
//! Source: docs/nv.md 3.5. A copy runs to its end before the next one starts. Left out: what `hcq::packet::nv::copy`
//! leaves out.

use super::super::chip::ChipFacts;
use super::super::defect::Defect;
use super::report::Semaphore;
use super::{Cause, Site};
use doorbell_hcq::packet::nv::MethodError;
use doorbell_hcq::packet::nv::copy::{Action, Copy as Methods, Payload};
use std::sync::atomic::Ordering;

/// The copy engine of one channel.
pub(crate) struct CopyEngine {
    facts: &'static ChipFacts,
    methods: Methods,
    /// Work that no wait has covered yet.
    pending: Vec<Action>,
}

impl CopyEngine {
    pub(crate) fn new(facts: &'static ChipFacts) -> Self {
        Self { facts, methods: Methods::default(), pending: Vec::new() }
    }

    pub(crate) fn write(&mut self, site: Site<'_>, method: u16, value: u32) -> Result<(), Cause> {
        let actions = self.methods.write(method, value).map_err(Cause::CopyMethod)?;
        for action in actions.into_iter().flatten() {
            match action {
                Action::Release { payload: Payload::Wide, .. } if !self.facts.wide_semaphores => {
                    let why = "this chip's semaphores have 32 bits";
                    return Err(Cause::CopyMethod(MethodError::Value {
                        engine: "copy engine",
                        name: "LAUNCH_DMA",
                        value,
                        why,
                    }));
                }
                Action::Release { address, value, timestamp, payload } => {
                    self.drain(site)?;
                    let wide = payload == Payload::Wide;
                    Semaphore { va: address.0, payload: value, wide, timestamp }.write(site)?;
                }
                work if site.gpu.strict => self.pending.push(work),
                work => site.busy(|| run(site, work))?,
            }
        }
        Ok(())
    }

    pub(crate) fn drain(&mut self, site: Site<'_>) -> Result<(), Cause> {
        for work in std::mem::take(&mut self.pending) {
            site.busy(|| run(site, work))?;
        }
        Ok(())
    }
}

fn run(site: Site<'_>, work: Action) -> Result<(), Cause> {
    let vm = site.vm();
    match work {
        Action::Copy { src, dst, len_bytes, .. } => {
            let short = u64::from(site.gpu.has(Defect::CopyShort));
            vm.copy(dst.0, src.0, u64::from(len_bytes).saturating_sub(short))?;
        }
        Action::CopyLines { src, dst, line_bytes, lines, src_pitch, dst_pitch } => {
            let lines = if site.gpu.has(Defect::OneLine) { lines.min(1) } else { lines };
            for line in 0..if line_bytes == 0 { 0 } else { u64::from(lines) } {
                if site.channel.stop.load(Ordering::Relaxed) {
                    return Err(Cause::Taken);
                }
                let (from, to) = (line * u64::from(src_pitch), line * u64::from(dst_pitch));
                vm.copy(dst.0.wrapping_add(to), src.0.wrapping_add(from), line_bytes.into())?;
            }
        }
        Action::Fill { dst, value, element, count } => {
            let len = element.len_bytes();
            let pattern = &value.to_le_bytes()[..len as usize];
            let count = u64::from(count).saturating_sub(site.gpu.has(Defect::FillShort).into());
            vm.fill(dst.0, pattern, count * u64::from(len))?;
        }
        Action::Release { .. } => {}
    }
    Ok(())
}
