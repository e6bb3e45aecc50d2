//! Hardware actions → packets of this device's rings.
//!
//! Layer: uses `hcq::packet`; `queue` and `graph` call it for each action, in order. Source: docs/amd.md
//! 2.5-2.8 (PM4, AQL), 3 (SDMA).
//! A list consists of dwords in pieces, and each piece must be contiguous: a PM4 piece is one action, an AQL or SDMA
//! piece is one packet. On an AQL ring, PM4 packets are collected in an indirect buffer until the next dispatch. With
//! several XCCs, each XCC runs the indirect buffer, so stores in it are restricted to the first XCC.

use super::chip::{Chip, QueueFormat};
use super::events::SignalEvent;
use super::program::Launch;
use doorbell_hcq::bits::split;
use doorbell_hcq::packet::pm4::chip::AcquireScope;
use doorbell_hcq::packet::pm4::{self, GcrCntl, regs};
use doorbell_hcq::packet::{EmitError, GpuVa, aql, sdma};
use doorbell_hcq::signal::Signal;

/// Packets of a recorded list that go into an AQL ring at once; few enough for the smallest ring.
const PIECE_PACKETS: usize = 16;

/// A list: its dwords, and where each piece ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct List {
    words: Vec<u32>,
    ends: Vec<usize>,
}

impl List {
    pub(crate) fn clear(&mut self) {
        self.words.clear();
        self.ends.clear();
    }

    /// Ends the piece that the last dwords belong to.
    fn end(&mut self) {
        if self.ends.last().copied().unwrap_or(0) < self.words.len() {
            self.ends.push(self.words.len());
        }
    }

    /// The pieces in order.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u32]> {
        self.pieces_from(0)
    }

    /// The pieces in order, without the first `count`.
    pub(crate) fn pieces_from(&self, count: usize) -> impl Iterator<Item = &[u32]> {
        let ends = &self.ends[count.min(self.ends.len())..];
        let first = count.checked_sub(1).and_then(|last| self.ends.get(last)).copied().unwrap_or(0);
        let starts = std::iter::once(first).chain(ends.iter().copied());
        starts.zip(ends).map(|(start, end)| &self.words[start..*end])
    }

    #[must_use]
    pub(crate) fn words(&self) -> &[u32] {
        &self.words
    }

    /// Dwords of the longest piece.
    #[must_use]
    pub(crate) fn longest(&self) -> usize {
        self.pieces().map(<[u32]>::len).max().unwrap_or(0)
    }
}

/// Address and size of scratch, as register values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScratchRegs {
    pub tmpring_size: u32,
    pub base: u64,
}

/// Memory for indirect buffers: stores dwords where the device can read them, and returns their address.
pub(crate) trait IbMemory<E> {
    /// # Errors
    /// The implementation's error when there is no room.
    fn place(&mut self, words: &[u32]) -> Result<u64, E>;
}

/// Encodes for the compute ring.
#[derive(Debug)]
pub(crate) struct Compute {
    chip: &'static Chip,
    xcc_count: u32,
    pub list: List,
    /// PM4 packets collected for the next indirect buffer, on AQL rings.
    pending: Vec<u32>,
}

impl Compute {
    #[must_use]
    pub(crate) fn new(chip: &'static Chip, xcc_count: u64) -> Self {
        let xcc_count = u32::try_from(xcc_count).unwrap_or(u32::MAX);
        Self { chip, xcc_count, list: List::default(), pending: Vec::new() }
    }

    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.pending.clear();
    }

    fn pm4(&mut self, make: impl FnOnce(&mut Vec<u32>) -> Result<(), EmitError>) -> Result<(), EmitError> {
        match self.chip.format {
            QueueFormat::Aql => make(&mut self.pending),
            QueueFormat::Pm4 => {
                make(&mut self.list.words)?;
                self.list.end();
                Ok(())
            }
        }
    }

    /// Emits packets that store to memory, for one XCC only.
    fn once(&mut self, make: impl FnOnce(&mut Vec<u32>) -> Result<(), EmitError>) -> Result<(), EmitError> {
        if self.xcc_count == 1 {
            return self.pm4(make);
        }
        self.pm4(|out| {
            let start = out.len();
            pm4::PredExec { xcc_mask: 1, exec_dwords: 0 }.emit(out)?;
            let after_header = out.len();
            make(out)?;
            // Emitted again over the first one, now that the count is known.
            let end = out.len();
            let exec_dwords = u32::try_from(end - after_header).unwrap_or(u32::MAX);
            pm4::PredExec { xcc_mask: 1, exec_dwords }.emit(out)?;
            out.copy_within(end.., start);
            out.truncate(end);
            Ok(())
        })
    }

    /// WAIT_REG_MEM: the queue stalls until the signal's low dword is `value` or more.
    ///
    /// # Errors
    /// As all packets: a field that does not fit.
    pub(crate) fn wait(&mut self, signal: &Signal, value: u32) -> Result<(), EmitError> {
        let va = GpuVa(signal.va());
        self.pm4(|out| pm4::WaitRegMem::at_least(va, value).emit(out))
    }

    /// ACQUIRE_MEM: makes others' writes visible to later kernels.
    ///
    /// # Errors
    /// As `wait`.
    pub(crate) fn acquire(&mut self, scope: AcquireScope) -> Result<(), EmitError> {
        let gfx = self.chip.gfx;
        self.pm4(|out| pm4::AcquireMem::all(gfx.acquire(scope)).emit(out))
    }

    /// RELEASE_MEM after all earlier work, with write-back of the caches; a second one writes the event's slot and
    /// raises the interrupt.
    ///
    /// # Errors
    /// As `wait`.
    pub(crate) fn signal(&mut self, signal: &Signal, value: u32, event: Option<SignalEvent>) -> Result<(), EmitError> {
        let cache = self.chip.gfx.table().release_flush;
        let (va, plain) = (GpuVa(signal.va()), self.chip.gfx.table().release_plain);
        let is_gfx9 = !self.chip.gfx.table().gcr;
        self.once(|out| {
            let (data_sel, int_sel) = (pm4::DataSel::Low32, pm4::IntSel::None);
            pm4::ReleaseMem { cache, data_sel, int_sel, addr: va, data: value.into(), ctxid: 0 }.emit(out)?;
            let Some(event) = event else { return Ok(()) };
            // gfx9's packet has no context id; the driver then scans the slots.
            let ctxid = if is_gfx9 { 0 } else { event.id };
            let (addr, int_sel) = (GpuVa(event.mailbox), pm4::IntSel::AfterConfirm);
            pm4::ReleaseMem { cache: plain, data_sel, int_sel, addr, data: event.id.into(), ctxid }.emit(out)
        })
    }

    /// Stores the GPU's clock after all earlier work.
    ///
    /// # Errors
    /// As `wait`.
    pub(crate) fn timestamp(&mut self, signal: &Signal) -> Result<(), EmitError> {
        let cache = self.chip.gfx.table().release_plain;
        let addr = GpuVa(signal.timestamp_va());
        self.once(|out| {
            let (data_sel, int_sel) = (pm4::DataSel::GpuClock, pm4::IntSel::None);
            pm4::ReleaseMem { cache, data_sel, int_sel, addr, data: 0, ctxid: 0 }.emit(out)
        })
    }

    /// One launch, after all earlier work; writes of earlier kernels and of the host are visible to it.
    ///
    /// # Errors
    /// As `wait`; and the indirect buffer's.
    pub(crate) fn exec<E: From<EmitError>>(
        &mut self,
        launch: &Launch<'_>,
        scratch: ScratchRegs,
        ib: &mut dyn IbMemory<E>,
    ) -> Result<(), E> {
        match self.chip.format {
            QueueFormat::Pm4 => Ok(self.exec_pm4(launch, scratch)?),
            QueueFormat::Aql => {
                self.flush(ib)?;
                self.list.words.extend(launch.aql_packet()?.emit()?);
                self.list.end();
                Ok(())
            }
        }
    }

    fn exec_pm4(&mut self, launch: &Launch<'_>, scratch: ScratchRegs) -> Result<(), EmitError> {
        let (chip, d) = (self.chip, &launch.program.descriptor);
        let mut rsrc = [d.rsrc1];
        if chip.gfx.table().rsrc1_priv {
            regs::RSRC1_PRIV.set(&mut rsrc, "priv", 1)?;
        }
        let mut rsrc2 = [d.rsrc2];
        regs::RSRC2_LDS_SIZE.set(&mut rsrc2, "LDS size", launch.lds_bytes.div_ceil(chip.lds_granule_bytes))?;
        let user_data = launch.user_data();
        let has_scratch = d.private_segment_bytes > 0;
        let dispatch = pm4::ComputeDispatch {
            entry: GpuVa(launch.program.entry),
            rsrc1: rsrc[0],
            rsrc2: rsrc2[0],
            rsrc3: d.rsrc3,
            tmpring_size: if has_scratch { scratch.tmpring_size } else { 0 },
            scratch_base: GpuVa(if has_scratch { scratch.base } else { 0 }),
            user_data: &user_data,
            local: launch.geometry.local,
            groups: launch.geometry.groups,
            wave32: d.wave32(),
        };
        self.pm4(|out| {
            pm4::AcquireMem::all(chip.gfx.acquire(AcquireScope::Dispatch)).emit(out)?;
            dispatch.emit(chip.gfx, out)?;
            pm4::EventWrite::CS_PARTIAL_FLUSH.emit(out)
        })
    }

    /// On AQL rings: moves the collected PM4 packets to an indirect buffer, and emits the packet that runs it.
    ///
    /// # Errors
    /// The indirect buffer's.
    pub(crate) fn flush<E: From<EmitError>>(&mut self, ib: &mut dyn IbMemory<E>) -> Result<(), E> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let addr = GpuVa(ib.place(&self.pending)?);
        let size_dwords = u32::try_from(self.pending.len()).unwrap_or(u32::MAX);
        let ib = pm4::IndirectBuffer { addr, size_dwords, chain: false };
        let packet = aql::VendorPm4 { header: aql::Header::SYSTEM, ib, completion: GpuVa(0) };
        self.list.words.extend(packet.emit()?);
        self.list.end();
        self.pending.clear();
        Ok(())
    }

    /// Appends packets that were encoded earlier, after flushing the collected PM4 packets. AQL rings only.
    ///
    /// # Errors
    /// The indirect buffer's.
    pub(crate) fn packets<E: From<EmitError>>(&mut self, words: &[u32], ib: &mut dyn IbMemory<E>) -> Result<(), E> {
        self.flush(ib)?;
        for piece in words.chunks(PIECE_PACKETS * aql::PACKET_DWORDS) {
            self.list.words.extend_from_slice(piece);
            self.list.end();
        }
        Ok(())
    }

    /// Runs an indirect buffer. PM4 rings only.
    ///
    /// # Errors
    /// As `wait`.
    pub(crate) fn indirect(&mut self, addr: u64, size_dwords: u32) -> Result<(), EmitError> {
        self.pm4(|out| pm4::IndirectBuffer { addr: GpuVa(addr), size_dwords, chain: false }.emit(out))
    }
}

/// A cache operation of the copy engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyCaches {
    /// Before copies: makes others' writes visible to the engine.
    Invalidate,
    /// After copies: makes their writes visible to others.
    WriteBack,
}

impl CopyCaches {
    /// The flags that AMD's runtime uses before and after its copies.
    fn flags(self) -> GcrCntl {
        let written = GcrCntl::GL2_WB | GcrCntl::GLK_WB;
        match self {
            Self::Invalidate => written | GcrCntl::GL2_INV | GcrCntl::GL1_INV | GcrCntl::GLV_INV | GcrCntl::GLK_INV,
            Self::WriteBack => written,
        }
    }
}

/// Encodes for the copy ring.
#[derive(Debug)]
pub(crate) struct Copy {
    engine: sdma::Sdma,
    pub list: List,
}

impl Copy {
    #[must_use]
    pub(crate) fn new(chip: &Chip) -> Self {
        Self { engine: chip.sdma, list: List::default() }
    }

    fn put(&mut self, packet: &sdma::Packet<'_>) -> Result<(), EmitError> {
        packet.emit(self.engine, &mut self.list.words)?;
        self.list.end();
        Ok(())
    }

    /// POLL_REGMEM: the queue stalls until the signal's low dword is `value` or more.
    ///
    /// # Errors
    /// As all packets: a field that does not fit.
    pub(crate) fn wait(&mut self, signal: &Signal, value: u32) -> Result<(), EmitError> {
        let addr = GpuVa(signal.va());
        self.put(&sdma::Packet::PollRegmem(sdma::PollRegmem::at_least(addr, value)))
    }

    /// FENCE after earlier copies; then a second FENCE to the event's slot, and an interrupt.
    ///
    /// # Errors
    /// As `wait`.
    pub(crate) fn signal(&mut self, signal: &Signal, value: u32, event: Option<SignalEvent>) -> Result<(), EmitError> {
        self.put(&sdma::Packet::Fence(sdma::Fence { addr: GpuVa(signal.va()), value }))?;
        if let Some(event) = event {
            self.put(&sdma::Packet::Fence(sdma::Fence { addr: GpuVa(event.mailbox), value: event.id }))?;
            self.put(&sdma::Packet::Trap(sdma::Trap { context: event.id }))?;
        }
        Ok(())
    }

    /// GCR over all of memory. gfx9's engines have no such packet; there, fences and the compute queue's acquire do the
    /// same.
    ///
    /// # Errors
    /// As `wait`.
    pub(crate) fn cache_control(&mut self, caches: CopyCaches) -> Result<(), EmitError> {
        if !self.engine.table().gcr {
            return Ok(());
        }
        self.put(&sdma::Packet::Gcr(sdma::Gcr { cache: caches.flags(), base: GpuVa(0), limit: GpuVa(0) }))
    }

    /// Stores the GPU's clock.
    ///
    /// # Errors
    /// As `wait`.
    pub(crate) fn timestamp(&mut self, signal: &Signal) -> Result<(), EmitError> {
        self.put(&sdma::Packet::Timestamp(sdma::Timestamp { addr: GpuVa(signal.timestamp_va()) }))
    }

    /// Copies bytes, split into pieces of the engine's maximal size.
    ///
    /// # Errors
    /// As `wait`.
    pub(crate) fn copy(&mut self, dst: u64, src: u64, len_bytes: u64) -> Result<(), EmitError> {
        let piece = self.engine.table().copy_piece_bytes;
        let mut at = 0;
        while at < len_bytes {
            let len_bytes = (len_bytes - at).min(piece);
            let copy = sdma::CopyLinear { dst: GpuVa(dst + at), src: GpuVa(src + at), len_bytes };
            self.put(&sdma::Packet::CopyLinear(copy))?;
            at += len_bytes;
        }
        Ok(())
    }
}

/// Low dword of an address, then the high one: two user SGPRs.
#[must_use]
pub(crate) fn sgpr_pair(va: u64) -> [u32; 2] {
    split(va)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_go_on_where_the_ring_was_full() {
        let mut list = List::default();
        for piece in [&[1, 2][..], &[3], &[4, 5]] {
            list.words.extend_from_slice(piece);
            list.end();
        }
        let from = |count| list.pieces_from(count).map(<[u32]>::to_vec).collect::<Vec<_>>();
        assert_eq!(from(0), [vec![1, 2], vec![3], vec![4, 5]]);
        assert_eq!(from(2), [vec![4, 5]]);
        assert!(from(3).is_empty() && from(4).is_empty());
    }
}
