//! The host engine: GPFIFO entries, push buffers, host methods, and which engine each subchannel's methods go to.
//!
//! Source: docs/nv.md 3.1-3.3.

use super::super::defect::Defect;
use super::copy::CopyEngine;
use super::grid::ComputeEngine;
use super::report::Semaphore;
use super::{Cause, Site, Stop};
use doorbell_hcq::packet::nv::host::{Action, Host as Methods, Until};
use doorbell_hcq::packet::nv::{Entry, MethodError, Subchannel, Write, Writes};
use doorbell_hcq::packet::{DecodeError, DecodeKind, GpuVa};
use std::sync::PoisonError;

use super::super::chip::ChipFacts;

/// Bits of an entry's first dword below its address, which the card ignores.
const ADDRESS_LOW: u32 = 3;
const SEM_EXECUTE: u16 = 0x6c;
const PAYLOAD_64: u32 = 1 << 24;
/// Bits of an extended base start here.
const BASE_SHIFT: u32 = 40;

/// An engine's object on a subchannel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Compute,
    Copy,
}

/// The host engine of one channel, with its compute and copy engines.
pub(crate) struct Host {
    facts: &'static ChipFacts,
    methods: Methods,
    bound: [Option<Bound>; 8],
    compute: ComputeEngine,
    copy: CopyEngine,
    base: u64,
    /// A header and those of its data that have come: the rest is in the next push buffer.
    unfinished: Vec<u32>,
}

/// Result of a step.
type Run<T> = Result<T, Box<Stop>>;

impl Host {
    pub(crate) fn new(facts: &'static ChipFacts) -> Self {
        Self {
            facts,
            methods: Methods::default(),
            bound: [None; 8],
            compute: ComputeEngine::new(facts),
            copy: CopyEngine::new(facts),
            base: 0,
            unfinished: Vec::new(),
        }
    }

    /// Runs the entry at `get`; after the last one, all deferred work.
    pub(crate) fn step(&mut self, site: Site<'_>, get: u32, put: u32) -> Run<()> {
        let at = |cause| Box::new(Stop { cause, entry: get, push_buffer: None, method: None });
        let entries = site.channel.setup.entries;
        if put >= entries {
            return Err(at(Cause::Put { put, entries }));
        }
        let va = site.channel.setup.ring_va + u64::from(get) * 8;
        let words = site.vm().read_dwords(va, 2).map_err(|fault| at(fault.into()))?;
        if words[0] & ADDRESS_LOW != 0 {
            site.complain(format!("GPFIFO entry {get}: bits {:#x} are no part of an address", words[0] & ADDRESS_LOW));
        }
        let entry = Entry::parse([words[0] & !ADDRESS_LOW, words[1]]).map_err(|kind| at(Cause::Entry(kind)))?;
        match entry {
            Entry::Nop => {}
            Entry::ExtendedBase(base) if self.facts.va_bits > 49 => self.base = u64::from(base) << BASE_SHIFT,
            Entry::ExtendedBase(_) => {
                return Err(at(Cause::NotModelled("SET_PB_SEGMENT_EXTENDED_BASE before Hopper".to_owned())));
            }
            Entry::Fetch { va: GpuVa(va), len_dwords, .. } => {
                let va = self.base | va;
                let words = site.vm().read_dwords(va, len_dwords as usize).map_err(|fault| at(fault.into()))?;
                self.push_buffer(site, get, va, &words)?;
            }
        }
        if (get + 1) % entries == put {
            self.drain(site).map_err(at)?;
        }
        Ok(())
    }

    fn push_buffer(&mut self, site: Site<'_>, entry: u32, va: u64, words: &[u32]) -> Run<()> {
        let joined;
        let words = if self.unfinished.is_empty() {
            words
        } else {
            joined = [&std::mem::take(&mut self.unfinished), words].concat();
            &joined
        };
        let mut writes = Writes::of(words);
        while let Some(write) = writes.next() {
            let dword = writes.position().saturating_sub(1);
            let stop = |cause, method| Box::new(Stop { cause, entry, push_buffer: Some((va, dword)), method });
            match write {
                Err(DecodeError { offset_dwords, kind: DecodeKind::Truncated { .. } }) => {
                    site.complain(format!("GPFIFO entry {entry}: the push buffer ends within a method's data"));
                    self.unfinished = words.get(offset_dwords as usize..).unwrap_or_default().to_vec();
                }
                Err(error) => {
                    let place = Some((va, error.offset_dwords as usize));
                    return Err(Box::new(Stop { cause: error.into(), entry, push_buffer: place, method: None }));
                }
                Ok(write) => {
                    self.write(site, write).map_err(|cause| stop(cause, Some(write.describe())))?;
                }
            }
        }
        Ok(())
    }

    /// One write to one method.
    fn write(&mut self, site: Site<'_>, write: Write) -> Result<(), Cause> {
        if write.method < Write::HOST_LIMIT {
            let action = self.methods.write(write.subchannel, write.method, write.value).map_err(Cause::HostMethod)?;
            return action.map_or(Ok(()), |action| self.act(site, action, write));
        }
        match self.bound.get(usize::from(write.subchannel.0)).copied().flatten() {
            Some(Bound::Compute) => self.compute.write(site, write.method, write.value),
            Some(Bound::Copy) => self.copy.write(site, write.method, write.value),
            None => Err(Cause::Unbound { subchannel: write.subchannel.0, method: write.method }),
        }
    }

    fn act(&mut self, site: Site<'_>, action: Action, write: Write) -> Result<(), Cause> {
        let wide = write.method == SEM_EXECUTE && write.value & PAYLOAD_64 != 0;
        match action {
            Action::SetObject { subchannel, class } => self.set_object(site, subchannel, class),
            Action::Acquire { address, value, until, .. } => {
                // The engines go on while the host waits.
                self.drain(site)?;
                acquire(site, address.0, value, until, wide)
            }
            Action::Release { address, value, wait_idle, timestamp } => {
                if wait_idle {
                    self.drain(site)?;
                }
                Ok(Semaphore { va: address.0, payload: value, wide, timestamp }.write(site)?)
            }
            Action::WaitIdle { .. } => self.drain(site),
            Action::Membar { .. } => Ok(()),
            Action::Interrupt => {
                site.gpu.interrupt(site.channel);
                Ok(())
            }
        }
    }

    fn set_object(&mut self, site: Site<'_>, subchannel: Subchannel, class: u32) -> Result<(), Cause> {
        let known = site.channel.classes.lock().unwrap_or_else(PoisonError::into_inner).contains(&class);
        let bound = match class {
            _ if !known => return Err(Cause::NoObject { class }),
            _ if class == self.facts.compute_class => Bound::Compute,
            _ if class == self.facts.copy_class => Bound::Copy,
            _ => return Err(Cause::NoObject { class }),
        };
        let slot = self.bound.get_mut(usize::from(subchannel.0));
        let slot = slot.ok_or(Cause::HostMethod(MethodError::Value {
            engine: "host",
            name: "SET_OBJECT",
            value: class,
            why: "there are 8 subchannels",
        }))?;
        *slot = Some(bound);
        Ok(())
    }

    /// Does the work that the engines have put off.
    fn drain(&mut self, site: Site<'_>) -> Result<(), Cause> {
        self.compute.drain(site)?;
        self.copy.drain(site)
    }
}

/// Waits for a semaphore.
fn acquire(site: Site<'_>, va: u64, value: u64, until: Until, wide: bool) -> Result<(), Cause> {
    let mask = if wide { u64::MAX } else { u32::MAX.into() };
    let value = value & mask;
    if site.gpu.has(Defect::AcquireIgnored) {
        return Ok(());
    }
    site.wait_until(|| {
        let found = if wide { site.vm().read_u64(va)? } else { site.vm().read_u32(va)?.into() };
        Ok(match until {
            Until::Equal => found == value,
            Until::AtLeast => found >= value,
            Until::Circular if wide => found.wrapping_sub(value).cast_signed() >= 0,
            Until::Circular => (found as u32).wrapping_sub(value as u32).cast_signed() >= 0,
        })
    })
}
