//! The PM4 command processor of a compute queue: ring, indirect buffers, registers per XCC.
//!
//! Source: docs/amd.md 2.2-2.8. Left out: UCONFIG registers and performance counters (a named error), events other than
//! CS_PARTIAL_FLUSH.

use super::super::chip::Chip;
use super::super::compute::{ComputeFault, Dispatch};
use super::super::defect::Defect;
use super::super::queue::Work;
use super::dispatch::Registers;
use super::stale::{Client, acquire, interrupts, past_l2, reads, release, wrote};
use super::{Cause, Run, Site, Step, Stop, atomic};
use crate::kfd::chip::facts_of;
use doorbell_hcq::bits::join;
use doorbell_hcq::packet::GpuVa;
use doorbell_hcq::packet::pm4::regs::{SH_REG_COUNT, SH_REG_START, ShReg, UCONFIG_REG_START};
use doorbell_hcq::packet::pm4::{
    self, AtomicMem, CopyData, CopyDst, CopySrc, DataSel, DmaData, DmaDst, DmaSrc, DstSel, EventWrite, Function, Gfx,
    IndirectBuffer, IntSel, Operation, Packet, ReleaseMem, WaitSpace, WriteData,
};

/// HDP flush request and done: the only registers that WAIT_REG_MEM may name (docs/amd.md 2.3).
const HDP_MEM_FLUSH: (u32, u32) = (0x0e26, 0x0e27);

/// The processor's state.
pub(super) struct Pm4 {
    gfx: Gfx,
    /// One set a XCC that runs the queue.
    xccs: Vec<Registers>,
}

/// What follows a packet.
enum Flow {
    Next,
    /// Number of dwords after the packet that are skipped.
    Skip(u64),
    /// Number of dwords after the packet that run on these XCCs only.
    Only(u32, u64),
    /// Go on in another buffer and do not come back.
    Chain(IndirectBuffer),
}

/// Dwords that are run, and where they lie.
#[derive(Clone, Copy)]
struct Span<'a> {
    va: u64,
    words: &'a [u32],
    /// Offset of `words[0]` from `va`, in dwords.
    start: usize,
    xccs: u32,
    /// Inside PRED_EXEC.
    predicated: bool,
}

impl Pm4 {
    pub(crate) fn new(chip: Chip, xccs: u32) -> Self {
        let gfx = facts_of(chip).gfx;
        Self { gfx, xccs: (0..xccs).map(|_| Registers::new(chip)).collect() }
    }

    /// All XCCs of the queue.
    fn all(&self) -> u32 {
        (1 << self.xccs.len()) - 1
    }

    /// Runs the packet at the ring's read pointer.
    pub(crate) fn step(&mut self, site: Site<'_>, work: &Work) -> Run<Step> {
        let vm = &site.gpu.vm;
        let ring_dwords = work.ring_bytes / 4;
        let at = work.get % ring_dwords;
        let header = vm.read_u32(work.ring_va + at * 4).map_err(Cause::from)?;
        let len = pm4::len_dwords(header).map_err(Cause::from)? as u64;
        let available = work.put - work.get;
        if len > available {
            return Ok(Step::Starved);
        }
        let before_end = len.min(ring_dwords - at);
        let mut words = vm.read_dwords(work.ring_va + at * 4, before_end as usize).map_err(Cause::from)?;
        words.extend(vm.read_dwords(work.ring_va, (len - before_end) as usize).map_err(Cause::from)?);
        let (packet, _) = Packet::parse(self.gfx, &words).map_err(Cause::from)?;
        let gfx = self.gfx;
        let named = |mut stop: Box<Stop>| {
            stop.packet.get_or_insert_with(|| packet.text(gfx).to_string());
            stop
        };
        match self.execute(site, &packet, self.all(), false).map_err(named)? {
            Flow::Next => Ok(Step::Done(len)),
            Flow::Skip(dwords) if len + dwords > available => Ok(Step::Starved),
            Flow::Skip(dwords) => Ok(Step::Done(len + dwords)),
            Flow::Only(..) => Err(Cause::PredExecInRing.into()),
            Flow::Chain(_) => Err(Cause::Indirect("a chain starts in the ring").into()),
        }
    }

    /// Runs an indirect buffer on all XCCs, with those it chains to.
    pub(crate) fn indirect(&mut self, site: Site<'_>, first: &IndirectBuffer) -> Run<()> {
        let mut next = Some(*first);
        while let Some(ib) = next {
            reads(site.gpu, Client::Cp, "INDIRECT_BUFFER", ib.addr.0, 4 * u64::from(ib.size_dwords))?;
            let words = site.gpu.vm.read_dwords(ib.addr.0, ib.size_dwords as usize).map_err(Cause::from)?;
            let span = Span { va: ib.addr.0, words: &words, start: 0, xccs: self.all(), predicated: false };
            next = self.span(site, span)?;
        }
        Ok(())
    }

    fn span(&mut self, site: Site<'_>, span: Span<'_>) -> Run<Option<IndirectBuffer>> {
        let mut at = 0;
        while let Some(rest) = span.words.get(at..).filter(|rest| !rest.is_empty()) {
            let here = (span.va, (span.start + at) as u64);
            let place = |mut stop: Box<Stop>| {
                stop.indirect.get_or_insert(here);
                stop
            };
            site.may_go_on().map_err(Box::from).map_err(place)?;
            let (packet, len) = Packet::parse(self.gfx, rest).map_err(Cause::from).map_err(Box::from).map_err(place)?;
            let gfx = self.gfx;
            let named = |mut stop: Box<Stop>| {
                stop.packet.get_or_insert_with(|| packet.text(gfx).to_string());
                place(stop)
            };
            let flow = self.execute(site, &packet, span.xccs, true).map_err(named)?;
            let following = &rest[len..];
            at += len;
            match flow {
                Flow::Next => {}
                Flow::Skip(dwords) => at += beyond("COND_EXEC", dwords, following).map_err(named)?.len(),
                Flow::Only(xccs, dwords) => {
                    let words = beyond("PRED_EXEC", dwords, following).map_err(named)?;
                    let start = span.start + at;
                    at += words.len();
                    let xccs = xccs & span.xccs;
                    if xccs != 0 {
                        self.span(site, Span { words, start, xccs, predicated: true, ..span })?;
                    }
                }
                Flow::Chain(_) if span.predicated => {
                    return Err(named(Cause::Indirect("a chain inside PRED_EXEC").into()));
                }
                Flow::Chain(ib) => return Ok(Some(ib)),
            }
        }
        Ok(None)
    }

    fn execute(&mut self, site: Site<'_>, packet: &Packet<'_>, xccs: u32, in_ib: bool) -> Run<Flow> {
        match packet {
            Packet::Nop(_) => {}
            Packet::AcquireMem(p) => acquire(site.gpu, p.cache),
            Packet::EventWrite(p) if *p == EventWrite::CS_PARTIAL_FLUSH => {}
            Packet::EventWrite(p) => return Err(not_modelled("EVENT_WRITE", p.to_string()).into()),
            Packet::SetShReg(p) => {
                for (at, &value) in (p.first.0..).zip(p.values) {
                    self.set_register("SET_SH_REG", ShReg(at), value, xccs)?;
                }
            }
            Packet::SetUconfigReg(p) => {
                let reg = UCONFIG_REG_START + u32::from(p.first.0);
                return Err(Cause::Register { packet: "SET_UCONFIG_REG", reg }.into());
            }
            Packet::DispatchDirect(p) => self.dispatch(site, p.groups, p.initiator, xccs)?,
            Packet::DispatchIndirect(p) => {
                reads(site.gpu, Client::Cp, "DISPATCH_INDIRECT", p.addr.0, 12)?;
                let counts = site.gpu.vm.read_dwords(p.addr.0, 3).map_err(Cause::from)?;
                self.dispatch(site, [counts[0], counts[1], counts[2]], p.initiator, xccs)?;
            }
            Packet::IndirectBuffer(ib) if ib.chain => return Ok(Flow::Chain(*ib)),
            Packet::IndirectBuffer(_) if in_ib => {
                return Err(Cause::Indirect("one within another, which compute queues do not have").into());
            }
            Packet::IndirectBuffer(_) if site.gpu.has(Defect::IndirectSkipped) => {}
            Packet::IndirectBuffer(ib) => self.indirect(site, ib)?,
            Packet::PredExec(p) => return Ok(Flow::Only(p.xcc_mask, u64::from(p.exec_dwords))),
            Packet::CondExec(p) => {
                let go = site.gpu.vm.read_u32(p.addr.0).map_err(Cause::from)? != 0;
                return Ok(if go { Flow::Next } else { Flow::Skip(u64::from(p.exec_dwords)) });
            }
            Packet::WriteData(_) if site.gpu.has(Defect::WriteLost) => {}
            Packet::WriteData(p) => self.write_data(site, p, xccs)?,
            Packet::CopyData(p) => self.copy_data(site, p, xccs)?,
            Packet::DmaData(p) => dma_data(site, p)?,
            Packet::AtomicMem(p) => {
                for _ in 0..xccs.count_ones() {
                    atomic_mem(site, p)?;
                }
            }
            Packet::WaitRegMem(p) => {
                let (mask, reference) = (u64::from(p.mask), u64::from(p.reference));
                wait(site, p.space, p.operation, |value| p.function.holds(value & mask, reference), false)?;
            }
            Packet::WaitRegMem64(p) => {
                wait(site, p.space, p.operation, |value| p.function.holds(value & p.mask, p.reference), true)?;
            }
            Packet::ReleaseMem(p) => {
                for _ in 0..xccs.count_ones() {
                    release_mem(site, p)?;
                }
            }
        }
        Ok(Flow::Next)
    }

    fn set_register(&mut self, packet: &'static str, reg: ShReg, value: u32, xccs: u32) -> Result<(), Cause> {
        let mut chosen = self.xccs.iter_mut().enumerate().filter(|(xcc, _)| xccs & 1 << xcc != 0);
        chosen.try_for_each(|(_, registers)| registers.set(packet, reg, value))
    }

    /// The registers of the first of these XCCs.
    fn registers(&self, xccs: u32) -> &Registers {
        // PANIC: a span runs on at least one XCC of the queue.
        self.xccs.get(xccs.trailing_zeros() as usize).expect("an XCC of the queue")
    }

    /// The workgroups are spread over the XCCs: one dispatch, with the first one's registers.
    fn dispatch(&self, site: Site<'_>, counts: [u32; 3], initiator: u32, xccs: u32) -> Result<(), Cause> {
        let Some(dispatch) = self.registers(xccs).dispatch(counts, initiator)? else { return Ok(()) };
        // By convention the first two user SGPRs point to the arguments; a value that is no address is not looked at.
        let kernarg =
            (dispatch.user_data_written & 0b11 == 0b11).then(|| join(dispatch.user_data[0], dispatch.user_data[1]));
        run_dispatch(site, &dispatch, kernarg)
    }

    fn write_data(&mut self, site: Site<'_>, p: &WriteData<'_>, xccs: u32) -> Result<(), Cause> {
        for (at, &value) in (0_u64..).zip(p.values) {
            let step = if p.no_incr { 0 } else { at };
            match p.dst {
                DstSel::Register => {
                    let reg = sh_register("WRITE_DATA", p.addr.0.wrapping_add(step))?;
                    self.set_register("WRITE_DATA", reg, value, xccs)?;
                }
                DstSel::L2 | DstSel::Memory => {
                    let va = p.addr.0.wrapping_add(4 * step);
                    site.gpu.vm.write_u32(va, value)?;
                    wrote(site.gpu, Client::Cp, va, 4);
                }
            }
        }
        Ok(())
    }

    fn copy_data(&mut self, site: Site<'_>, p: &CopyData, xccs: u32) -> Result<(), Cause> {
        const NAME: &str = "COPY_DATA";
        let vm = &site.gpu.vm;
        let value = match p.src_sel {
            CopySrc::Immediate => p.src,
            CopySrc::GpuClock => site.ticks(),
            CopySrc::MemoryL2 => {
                let (mut bytes, len) = ([0; 8], if p.wide { 8 } else { 4 });
                reads(site.gpu, Client::Cp, NAME, p.src, len)?;
                vm.read_bytes(p.src, &mut bytes[..len as usize])?;
                u64::from_le_bytes(bytes)
            }
            CopySrc::Register => {
                let word = |at| self.registers(xccs).get(NAME, sh_register(NAME, p.src.wrapping_add(at))?);
                let high = if p.wide { word(1)? } else { 0 };
                u64::from(word(0)?) | u64::from(high) << 32
            }
            CopySrc::PerfCounter => return Err(not_modelled(NAME, "a performance counter".to_owned())),
        };
        let dwords: &[u32] = &[value as u32, (value >> 32) as u32][..if p.wide { 2 } else { 1 }];
        match p.dst_sel {
            CopyDst::Register => {
                for (at, &dword) in (0..).zip(dwords) {
                    self.set_register(NAME, sh_register(NAME, p.dst.0.wrapping_add(at))?, dword, xccs)?;
                }
            }
            CopyDst::L2 | CopyDst::Memory if p.wide && p.dst.0.is_multiple_of(8) => vm.write_u64(p.dst.0, value)?,
            CopyDst::L2 | CopyDst::Memory => {
                for (at, &dword) in (0..).zip(dwords) {
                    vm.write_u32(p.dst.0.wrapping_add(4 * at), dword)?;
                }
            }
        }
        Ok(())
    }
}

/// Passes a dispatch to the compute units.
pub(super) fn run_dispatch(site: Site<'_>, dispatch: &Dispatch, kernarg: Option<u64>) -> Result<(), Cause> {
    if site.gpu.strict {
        let checked = site.gpu.caches.dispatch(&site.gpu.vm, dispatch.entry, kernarg);
        checked.or_else(|cause| site.gpu.found(Some(site.queue.setup.id), cause))?;
    }
    if site.gpu.has(Defect::DispatchSkipped) {
        return Ok(());
    }
    match site.gpu.compute.run(dispatch, &site.gpu.machine(site.queue)) {
        Err(ComputeFault::Stopped) => Err(Cause::Taken),
        other => Ok(other?),
    }
}

fn not_modelled(packet: &'static str, what: String) -> Cause {
    Cause::NotModelled { packet, what }
}

/// The register of the SH space at a dword address.
fn sh_register(packet: &'static str, address: u64) -> Result<ShReg, Cause> {
    let reg = u32::try_from(address).unwrap_or(u32::MAX);
    let offset = reg.checked_sub(SH_REG_START).filter(|offset| *offset < SH_REG_COUNT);
    let offset = offset.and_then(|offset| u16::try_from(offset).ok());
    offset.map(ShReg).ok_or(Cause::Register { packet, reg })
}

/// The next `dwords` after a packet that refers to them.
fn beyond<'a>(packet: &'static str, dwords: u64, following: &'a [u32]) -> Run<&'a [u32]> {
    let have = following.len() as u64;
    let words = usize::try_from(dwords).ok().and_then(|count| following.get(..count));
    words.ok_or_else(|| Cause::Beyond { packet, wanted: dwords, have }.into())
}

fn dma_data(site: Site<'_>, p: &DmaData) -> Result<(), Cause> {
    const NAME: &str = "DMA_DATA";
    let (vm, len) = (&site.gpu.vm, u64::from(p.len_bytes));
    match p.src_sel {
        DmaSrc::Address => past_l2(site.gpu, NAME, p.src, len)?,
        DmaSrc::AddressL2 => reads(site.gpu, Client::Cp, NAME, p.src, len)?,
        DmaSrc::Data => {}
    }
    match (p.src_sel, p.dst_sel) {
        (_, DmaDst::Nowhere) => return Ok(()),
        (DmaSrc::Data, _) => vm.fill(p.dst.0, &(p.src as u32).to_le_bytes(), len)?,
        (DmaSrc::Address | DmaSrc::AddressL2, _) => vm.copy(p.dst.0, p.src, len)?,
    }
    wrote(site.gpu, Client::Cp, p.dst.0, len);
    Ok(())
}

fn atomic_mem(site: Site<'_>, p: &AtomicMem) -> Result<(), Cause> {
    atomic::run(site, "ATOMIC_MEM", p.tc_op, p.addr.0, (p.data, p.compare), p.until_compare)
}

fn wait(
    site: Site<'_>,
    space: WaitSpace,
    operation: Operation,
    holds: impl Fn(u64) -> bool,
    wide: bool,
) -> Result<(), Cause> {
    match space {
        WaitSpace::Memory(GpuVa(va)) if operation != Operation::WriteThenWait => site.wait_until(|| {
            let vm = &site.gpu.vm;
            let value = if wide { vm.read_u64(va)? } else { u64::from(vm.read_u32(va)?) };
            Ok(holds(value))
        }),
        WaitSpace::Register(request, done)
            if operation == Operation::WriteThenWait && (request, done) == HDP_MEM_FLUSH =>
        {
            Ok(())
        }
        WaitSpace::Register(reg, _) => Err(Cause::Register { packet: "WAIT_REG_MEM", reg }),
        WaitSpace::Memory(_) => Err(not_modelled("WAIT_REG_MEM", "writing memory before the wait".to_owned())),
    }
}

/// At end of pipe: the value, then the interrupt.
fn release_mem(site: Site<'_>, p: &ReleaseMem) -> Result<(), Cause> {
    if !site.queue.setup.has_eop {
        return Err(Cause::NoEop);
    }
    release(site.gpu, p.cache);
    let vm = &site.gpu.vm;
    match p.data_sel {
        DataSel::None => {}
        DataSel::Low32 => vm.write_u32(p.addr.0, site.fence(p.data) as u32)?,
        DataSel::All64 => vm.write_u64(p.addr.0, site.fence(p.data))?,
        DataSel::GpuClock => vm.write_u64(p.addr.0, site.ticks())?,
    }
    if p.int_sel != IntSel::None {
        interrupts(site.gpu, site.queue, "RELEASE_MEM")?;
        site.interrupt(p.ctxid);
    }
    Ok(())
}

/// SDMA's poll compares as WAIT_REG_MEM does.
pub(super) fn holds(function: Function, value: u32, mask: u32, reference: u32) -> bool {
    function.holds(u64::from(value & mask), u64::from(reference))
}
