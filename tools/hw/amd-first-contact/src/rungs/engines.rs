//! Queues driven by raw packets: the copy engine, PM4, AQL.

use crate::explain::{Failure, fail};
use crate::ladder::Climb;
use crate::raw::{Queue, Shared};
use doorbell::device::amd::{Bo, HwRing, Placement, RingKind, Woken};
use doorbell::hcq::memory::View;
use doorbell::hcq::packet::pm4::{self, chip::AcquireScope};
use doorbell::hcq::packet::{GpuVa, aql, sdma};
use doorbell_ioctl::port::{MapRequest, Mapped};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub fn queues(climb: &mut Climb) -> Result<String, Failure> {
    let count = if climb.is_quick() { 20 } else { 1000 };
    let mut notes = Vec::new();
    for kind in [RingKind::Pm4, RingKind::Aql, RingKind::Sdma] {
        let began = Instant::now();
        for _ in 0..count {
            drop(HwRing::new(climb.core()?, kind, None)?);
        }
        notes.push(format!("{kind:?} {:.2} ms", began.elapsed().as_secs_f64() * 1e3 / f64::from(count)));
    }
    Ok(format!("{count} of each; one: {}", notes.join(", ")))
}

/// Dwords that differ at each place.
fn pattern(len_bytes: usize, seed: u32) -> Vec<u8> {
    let word = |i: u32| i.wrapping_mul(0x9e37_79b9) ^ seed;
    (0..len_bytes.div_ceil(4) as u32).flat_map(|i| word(i).to_le_bytes()).take(len_bytes).collect()
}

/// The copy queue with a value for its next fence.
struct CopyEngine<'a> {
    climb: &'a Climb,
    queue: Queue,
    page: Shared,
    next: u32,
}

impl CopyEngine<'_> {
    fn emit(&mut self, packet: &sdma::Packet<'_>) -> Result<(), Failure> {
        let mut words = Vec::new();
        packet.emit(self.climb.core()?.chip.sdma, &mut words).map_err(fail)?;
        self.queue.push(&words)
    }

    /// A fence after what was pushed, and the wait for it.
    fn fence(&mut self, what: &str) -> Result<(), Failure> {
        self.next += 1;
        let fence = sdma::Fence { addr: GpuVa(self.page.va()), value: self.next };
        self.emit(&sdma::Packet::Fence(fence))?;
        self.queue.until(&self.page, 0, self.next, what)
    }

    fn copy(&mut self, dst: u64, src: u64, len_bytes: u64) -> Result<(), Failure> {
        let piece = self.climb.core()?.chip.sdma.table().copy_piece_bytes;
        let mut at = 0;
        while at < len_bytes {
            let len = (len_bytes - at).min(piece);
            self.emit(&sdma::Packet::CopyLinear(sdma::CopyLinear {
                dst: GpuVa(dst + at),
                src: GpuVa(src + at),
                len_bytes: len,
            }))?;
            at += len;
        }
        Ok(())
    }

    fn clock(&mut self) -> Result<u64, Failure> {
        self.emit(&sdma::Packet::Timestamp(sdma::Timestamp { addr: GpuVa(self.page.va() + 64) }))?;
        self.fence("a fence behind a timestamp")?;
        self.page.wide(64)
    }

    /// Host to VRAM to host; returns bytes a second of both together.
    fn round_trip(&mut self, offset: u64, len_bytes: u64) -> Result<f64, Failure> {
        let room = offset + len_bytes;
        let vram = self.climb.core()?.own_bo("copies", room, Placement::Vram)?;
        let (from, to) = (Shared::new(self.climb, "copies", room)?, Shared::new(self.climb, "copies", room)?);
        let data = pattern(len_bytes as usize, len_bytes as u32);
        from.put(offset, &data)?;
        let began = Instant::now();
        self.copy(vram.va() + offset, from.va() + offset, len_bytes)?;
        self.copy(to.va() + offset, vram.va() + offset, len_bytes)?;
        self.fence(&format!("copies of {len_bytes} bytes"))?;
        let rate = 2.0 * len_bytes as f64 / began.elapsed().as_secs_f64();
        let mut back = vec![0; data.len()];
        to.view.read(offset, &mut back).map_err(fail)?;
        match back.iter().zip(&data).position(|(a, b)| a != b) {
            None => Ok(rate),
            Some(at) => Err(format!(
                "{len_bytes} bytes at offset {offset}: byte {at} came back as {:#x}, not {:#x}",
                back[at], data[at]
            )
            .into()),
        }
    }

    /// Into memory that the program had already, mapped for the GPU twice at the same time, a half by each address.
    fn fill_wrapped(&mut self) -> Result<(), Failure> {
        const HALF: u64 = 32 << 10;
        let core = self.climb.core()?;
        let ours = Mapped::new(core.driver.port(), &MapRequest::anonymous_shared(2 * HALF)).map_err(fail)?;
        let ours = View::of_device(&Arc::new(ours).view().map_err(fail)?);
        let wrap = || {
            let bo = Bo::wrap(&core.driver, core.node.gpu_id, ours.clone());
            bo.map_err(|e| Failure::from(format!("memory of the program: {e}")))
        };
        let (one, other) = (wrap()?, wrap()?);
        let (from, data) = (Shared::new(self.climb, "copies", 2 * HALF)?, pattern(2 * HALF as usize, 77));
        from.put(0, &data)?;
        self.copy(one.va(), from.va(), HALF)?;
        self.copy(other.va() + HALF, from.va() + HALF, HALF)?;
        self.fence("copies to memory of the program")?;
        let mut back = vec![0; data.len()];
        ours.read(0, &mut back).map_err(fail)?;
        if back == data { Ok(()) } else { Err("memory of the program has other bytes than the GPU wrote".into()) }
    }
}

pub fn sdma(climb: &mut Climb) -> Result<String, Failure> {
    let climb = &*climb;
    let (queue, page) = (Queue::new(climb, RingKind::Sdma)?, Shared::new(climb, "fence", 4096)?);
    let mut engine = CopyEngine { climb, queue, page, next: 0 };
    engine.emit(&sdma::Packet::Nop { skipped: &[] })?;
    engine.fence("NOP and FENCE")?;
    let (first, second) = (engine.clock()?, engine.clock()?);
    if first == 0 || second <= first {
        return Err(format!("timestamps {first} and then {second}").into());
    }
    let mut largest = (0, 0.0);
    let quick: [u64; 7] = [1, 3, 4, 63, 4096, 4099, 4 << 20];
    let sizes: Vec<u64> = if climb.is_quick() { quick.to_vec() } else { [&quick[..], &[64 << 20, 1 << 30]].concat() };
    for len in sizes {
        for offset in if len < 8192 { vec![0, 1, 60] } else { vec![0] } {
            largest = (len, engine.round_trip(offset, len)?);
        }
    }
    engine.fill_wrapped()?;
    // Three times around the ring, with packets that do not divide it.
    let source = Shared::new(climb, "copies", 4096)?;
    let laps = 3 * climb.core()?.options.ring_bytes / (28 + 16);
    for n in 0..laps {
        engine.copy(source.va() + 2048, source.va(), 512)?;
        if n % 64 == 0 {
            engine.fence("a fence on the way around the ring")?;
        }
    }
    engine.fence("the fence after three laps of the ring")?;
    Ok(format!(
        "clock and fences, copies up to {} MiB at {:.2} GB/s, also to the program's own memory, ring wrapped",
        largest.0 >> 20,
        largest.1 / 1e9
    ))
}

/// Dwords of PM4 that end with RELEASE_MEM of `value` to the start of a page.
struct Pm4<'a> {
    climb: &'a Climb,
    page: &'a Shared,
    words: Vec<u32>,
}

impl<'a> Pm4<'a> {
    fn new(climb: &'a Climb, page: &'a Shared) -> Self {
        Self { climb, page, words: Vec::new() }
    }

    fn release(&mut self, at: u64, data_sel: pm4::DataSel, data: u64) -> Result<(), Failure> {
        let cache = self.climb.core()?.chip.gfx.table().release_flush;
        let addr = GpuVa(self.page.va() + at);
        let packet = pm4::ReleaseMem { cache, data_sel, int_sel: pm4::IntSel::None, addr, data, ctxid: 0 };
        packet.emit(&mut self.words).map_err(fail)
    }

    fn acquire(&mut self) -> Result<(), Failure> {
        let gfx = self.climb.core()?.chip.gfx;
        pm4::AcquireMem::all(gfx.acquire(AcquireScope::Full)).emit(&mut self.words).map_err(fail)
    }

    fn write(&mut self, at: u64, values: &[u32]) -> Result<(), Failure> {
        let (dst, addr) = (pm4::DstSel::Memory, GpuVa(self.page.va() + at));
        pm4::WriteData { dst, no_incr: false, confirm: true, addr, values }.emit(&mut self.words).map_err(fail)
    }
}

pub fn pm4(climb: &mut Climb) -> Result<String, Failure> {
    let climb = &*climb;
    let (mut queue, page) = (Queue::new(climb, RingKind::Pm4)?, Shared::new(climb, "release", 4096)?);
    let mut p = Pm4::new(climb, &page);
    pm4::Nop { payload: &[0; 3] }.emit(&mut p.words).map_err(fail)?;
    p.release(0, pm4::DataSel::Low32, 1)?;
    queue.run(&p.words, &page, 0, 1, "NOP and RELEASE_MEM of 32 bits")?;
    let mut p = Pm4::new(climb, &page);
    p.release(8, pm4::DataSel::All64, 0x1234_5678_9abc_def0)?;
    p.write(32, &[0xcafe, 0xf00d])?;
    p.release(0, pm4::DataSel::Low32, 2)?;
    queue.run(&p.words, &page, 0, 2, "RELEASE_MEM of 64 bits and WRITE_DATA")?;
    if (page.wide(8)?, page.word(32)?, page.word(36)?) != (0x1234_5678_9abc_def0, 0xcafe, 0xf00d) {
        return Err(format!("stored were {:#x}, {:#x}, {:#x}", page.wide(8)?, page.word(32)?, page.word(36)?).into());
    }
    let khz = clock_rate(climb, &mut queue, &page)?;
    wait_released_by_the_host(climb, &mut queue, &page)?;
    indirect_buffer(climb, &mut queue, &page)?;
    let woken = interrupt(climb, &mut queue, &page)?;
    Ok(format!("stores, clock of {:.1} MHz, wait released by the host, indirect buffer, {woken}", khz / 1e3))
}

/// The GPU's clock twice against the host's.
fn clock_rate(climb: &Climb, queue: &mut Queue, page: &Shared) -> Result<f64, Failure> {
    let mut read = |value: u32| -> Result<(u64, Instant), Failure> {
        let mut p = Pm4::new(climb, page);
        p.release(64, pm4::DataSel::GpuClock, 0)?;
        p.release(0, pm4::DataSel::Low32, value.into())?;
        queue.run(&p.words, page, 0, value, "the GPU's clock")?;
        Ok((page.wide(64)?, Instant::now()))
    };
    let (first, began) = read(3)?;
    // TIMEOUT: long compared with a submission.
    std::thread::sleep(Duration::from_millis(50));
    let (second, ended) = read(4)?;
    let khz = second.saturating_sub(first) as f64 / (ended - began).as_secs_f64() / 1e3;
    // A loaded machine stretches the host's side; an order of magnitude is a wrong unit.
    if !(10_000.0..1_000_000.0).contains(&khz) {
        return Err(format!("the clock went from {first} to {second} in {:?}", ended - began).into());
    }
    Ok(khz)
}

fn wait_released_by_the_host(climb: &Climb, queue: &mut Queue, page: &Shared) -> Result<(), Failure> {
    page.put(128, &0u32.to_le_bytes())?;
    let mut p = Pm4::new(climb, page);
    pm4::WaitRegMem::at_least(GpuVa(page.va() + 128), 7).emit(&mut p.words).map_err(fail)?;
    p.release(0, pm4::DataSel::Low32, 5)?;
    queue.push(&p.words)?;
    // TIMEOUT: a queue that does not wait is through in microseconds.
    std::thread::sleep(Duration::from_millis(20));
    if page.word(0)? == 5 {
        return Err("WAIT_REG_MEM let the queue through before its word was written".into());
    }
    page.put(128, &7u32.to_le_bytes())?;
    queue.until(page, 0, 5, "WAIT_REG_MEM whose word the host has written")
}

fn indirect_buffer(climb: &Climb, queue: &mut Queue, page: &Shared) -> Result<(), Failure> {
    let commands = Shared::new(climb, "command buffer", 4096)?;
    let mut inner = Pm4::new(climb, page);
    inner.write(256, &[0x1b])?;
    let bytes: Vec<u8> = inner.words.iter().flat_map(|w| w.to_le_bytes()).collect();
    commands.put(0, &bytes)?;
    let mut p = Pm4::new(climb, page);
    let size_dwords = inner.words.len() as u32;
    pm4::IndirectBuffer { addr: GpuVa(commands.va()), size_dwords, chain: false }.emit(&mut p.words).map_err(fail)?;
    p.release(0, pm4::DataSel::Low32, 6)?;
    queue.run(&p.words, page, 0, 6, "an indirect buffer")?;
    if page.word(256)? == 0x1b { Ok(()) } else { Err("the indirect buffer's store is not there".into()) }
}

/// An event of the driver that a packet signals.
fn interrupt(climb: &Climb, queue: &mut Queue, page: &Shared) -> Result<String, Failure> {
    let core = climb.core()?;
    let event = core.driver.create_event(core.node.gpu_id, core.render, core.since).map_err(fail)?;
    let ctxid = if core.chip.gfx.table().gcr { event.id } else { 0 };
    let mut p = Pm4::new(climb, page);
    let (cache, addr) = (core.chip.gfx.table().release_plain, GpuVa(event.mailbox));
    let (data_sel, int_sel) = (pm4::DataSel::Low32, pm4::IntSel::AfterConfirm);
    pm4::ReleaseMem { cache, data_sel, int_sel, addr, data: event.id.into(), ctxid }
        .emit(&mut p.words)
        .map_err(fail)?;
    let began = Instant::now();
    queue.push(&p.words)?;
    let timeout_ms = u32::try_from(climb.patience().as_millis()).unwrap_or(u32::MAX);
    let woken = core.driver.wait(event, timeout_ms).map_err(fail)?;
    let took = began.elapsed();
    core.driver.destroy_event(event).map_err(fail)?;
    match woken {
        Woken::Signal => Ok(format!("interrupt after {:.0} us", took.as_secs_f64() * 1e6)),
        Woken::Timeout => Err("RELEASE_MEM's interrupt woke nobody".into()),
        Woken::Fault(fault) => Err(fault.to_string().into()),
    }
}

/// Kind and value of an `amd_signal_t`.
fn signal_bytes(value: i64) -> Vec<u8> {
    const KIND_USER: u64 = 1;
    [KIND_USER.to_le_bytes(), value.to_le_bytes()].concat()
}

pub fn aql(climb: &mut Climb) -> Result<String, Failure> {
    let climb = &*climb;
    let (mut queue, page) = (Queue::new(climb, RingKind::Aql)?, Shared::new(climb, "signals", 4096)?);
    let (dependency, done) = (GpuVa(page.va() + 64), GpuVa(page.va() + 128));
    page.put(64, &signal_bytes(1))?;
    page.put(128, &signal_bytes(1))?;
    let header = aql::Header::SYSTEM;
    let signals = [dependency, GpuVa(0), GpuVa(0), GpuVa(0), GpuVa(0)];
    let barrier = aql::Barrier { header, any: false, signals, completion: done };
    queue.push(&barrier.emit().map_err(fail)?)?;
    // TIMEOUT: as for WAIT_REG_MEM.
    std::thread::sleep(Duration::from_millis(20));
    if page.wide(136)? != 1 {
        return Err("the barrier let the queue through before its signal was zero".into());
    }
    page.put(72, &0i64.to_le_bytes())?;
    queue.until(&page, 136, 0, "the completion signal of a barrier whose dependency is zero")?;
    let commands = Shared::new(climb, "command buffer", 4096)?;
    let mut inner = Pm4::new(climb, &page);
    inner.acquire()?;
    inner.write(256, &[0xa91])?;
    inner.release(0, pm4::DataSel::Low32, 9)?;
    let bytes: Vec<u8> = inner.words.iter().flat_map(|w| w.to_le_bytes()).collect();
    commands.put(0, &bytes)?;
    let ib = pm4::IndirectBuffer { addr: GpuVa(commands.va()), size_dwords: inner.words.len() as u32, chain: false };
    let vendor = aql::VendorPm4 { header, ib, completion: GpuVa(0) };
    queue.run(&vendor.emit().map_err(fail)?, &page, 0, 9, "a vendor packet's indirect buffer")?;
    if page.word(256)? != 0xa91 {
        return Err("the vendor packet's store is not there".into());
    }
    Ok("barrier waits for its signal and completes, indirect buffer by vendor packet".into())
}
