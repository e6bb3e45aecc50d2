//! The copy engine: packets of an SDMA queue, in order.
//!
//! Source: docs/amd.md 3. A packet that crosses the ring's end is an error here; hardware would misread it.

use super::super::defect::Defect;
use super::super::queue::Work;
use super::super::vm::Vm;
use super::pm4::holds;
use super::stale::{Client, acquire, reads, wrote};
use super::{Cause, Run, Site, Step, Stop, atomic};
use doorbell_hcq::packet::DecodeKind;
use doorbell_hcq::packet::pm4::Acquire;
use doorbell_hcq::packet::sdma::{self, ConstFill, FillSize, Indirect, Packet, PollRegmem};

/// Dwords that are read at first; longer packets are read again.
const FIRST_LOOK: u64 = 64;
/// INDIRECT ends on such a boundary of the ring.
const INDIRECT_END_DWORDS: u64 = 8;
const INDIRECT_DWORDS: u64 = 6;

/// The engine; it has no state between packets.
pub(super) struct Sdma {
    version: sdma::Sdma,
}

impl Sdma {
    pub(crate) fn new(version: sdma::Sdma) -> Self {
        Self { version }
    }

    /// Runs the packet at the ring's read pointer.
    pub(crate) fn step(&self, site: Site<'_>, work: &Work) -> Run<Step> {
        let at = work.get % work.ring_bytes;
        let to_end = (work.ring_bytes - at) / 4;
        let available = (work.put - work.get) / 4;
        if available == 0 {
            return Ok(Step::Starved);
        }
        let most = available.min(to_end);
        let mut look = most.min(FIRST_LOOK);
        loop {
            let words = site.gpu.vm.read_dwords(work.ring_va + at, look as usize).map_err(Cause::from)?;
            match Packet::parse(self.version, &words) {
                Ok((packet, len)) => {
                    let ring_dword = Some(at / 4);
                    self.execute(site, &packet, ring_dword).map_err(|mut stop: Box<Stop>| {
                        stop.packet.get_or_insert_with(|| packet.to_string());
                        stop
                    })?;
                    return Ok(Step::Done(len as u64 * 4));
                }
                Err(e) => match e.kind {
                    DecodeKind::Truncated { wanted, .. } if (wanted as u64) <= most => look = wanted as u64,
                    DecodeKind::Truncated { wanted, .. } if wanted as u64 > to_end => {
                        return Err(Cause::Packet(e.kind).into());
                    }
                    DecodeKind::Truncated { .. } => return Ok(Step::Starved),
                    kind => return Err(Cause::Packet(kind).into()),
                },
            }
        }
    }

    /// `ring_dword`: position of the packet in the ring; `None` in an indirect buffer.
    fn execute(&self, site: Site<'_>, packet: &Packet<'_>, ring_dword: Option<u64>) -> Run<()> {
        let vm = &site.gpu.vm;
        match packet {
            Packet::Nop { .. } | Packet::HdpFlush | Packet::DummyTrap => {}
            Packet::Gcr(p) => acquire(site.gpu, Acquire::Gcr(p.cache)),
            Packet::CopyLinear(p) => {
                reads(site.gpu, Client::Sdma, "COPY", p.src.0, p.len_bytes)?;
                let short = u64::from(site.gpu.has(Defect::CopyShort));
                vm.copy(p.dst.0, p.src.0, p.len_bytes - short).map_err(Cause::from)?;
                wrote(site.gpu, Client::Sdma, p.dst.0, p.len_bytes);
            }
            Packet::Write(_) if site.gpu.has(Defect::WriteLost) => {}
            Packet::Indirect(_) if site.gpu.has(Defect::IndirectSkipped) => {}
            Packet::Write(p) => {
                let bytes: Vec<u8> = p.values.iter().flat_map(|v| v.to_le_bytes()).collect();
                vm.write_bytes(p.dst.0, &bytes).map_err(Cause::from)?;
                wrote(site.gpu, Client::Sdma, p.dst.0, bytes.len() as u64);
            }
            Packet::Indirect(p) => match ring_dword {
                Some(at) if (at + INDIRECT_DWORDS).is_multiple_of(INDIRECT_END_DWORDS) => self.indirect(site, p)?,
                Some(_) => return Err(Cause::Indirect("does not end on an 8-dword boundary of the ring").into()),
                None => return Err(Cause::Indirect("one within another").into()),
            },
            Packet::Fence(p) => vm.write_u32(p.addr.0, site.fence(p.value.into()) as u32).map_err(Cause::from)?,
            Packet::Trap(p) => site.interrupt(p.context),
            Packet::PollRegmem(p) => poll(site, p)?,
            Packet::Atomic(p) => atomic::run(site, "ATOMIC", p.tc_op, p.addr.0, (p.data, p.compare), false)?,
            Packet::ConstFill(p) => {
                fill(vm, p, site.gpu.has(Defect::FillShort))?;
                wrote(site.gpu, Client::Sdma, p.dst.0, p.len_bytes());
            }
            Packet::Timestamp(p) => vm.write_u64(p.addr.0, site.ticks()).map_err(Cause::from)?,
        }
        Ok(())
    }

    fn indirect(&self, site: Site<'_>, ib: &Indirect) -> Run<()> {
        let words = site.gpu.vm.read_dwords(ib.addr.0, ib.size_dwords as usize).map_err(Cause::from)?;
        let mut at = 0;
        while let Some(rest) = words.get(at..).filter(|rest| !rest.is_empty()) {
            let place = |mut stop: Box<Stop>| {
                stop.indirect.get_or_insert((ib.addr.0, at as u64));
                stop
            };
            site.may_go_on().map_err(Box::from).map_err(place)?;
            let (packet, len) =
                Packet::parse(self.version, rest).map_err(Cause::from).map_err(Box::from).map_err(place)?;
            self.execute(site, &packet, None).map_err(|mut stop| {
                stop.packet.get_or_insert_with(|| packet.to_string());
                place(stop)
            })?;
            at += len;
        }
        Ok(())
    }
}

fn poll(site: Site<'_>, p: &PollRegmem) -> Result<(), Cause> {
    let mut looks = 0;
    let mut gave_up = false;
    site.wait_until(|| {
        let value = site.gpu.vm.read_u32(p.addr.0)?;
        looks += 1;
        gave_up = p.retry != PollRegmem::RETRY_FOR_EVER && looks > p.retry;
        Ok(gave_up || holds(p.function, value, p.mask, p.reference))
    })?;
    if gave_up {
        let what = format!("giving up after {} looks", p.retry);
        return Err(Cause::NotModelled { packet: "POLL_REGMEM", what });
    }
    Ok(())
}

fn fill(vm: &Vm, p: &ConstFill, short: bool) -> Result<(), Cause> {
    let unit = match p.size {
        FillSize::Byte => 1,
        FillSize::Half => 2,
        FillSize::Dword => 4,
    };
    Ok(vm.fill(p.dst.0, &p.value.to_le_bytes()[..unit], p.len_bytes() - if short { unit as u64 } else { 0 })?)
}
