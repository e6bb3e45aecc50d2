//! Channels driven by raw methods: host, compute and copy engine, before any kernel.

use crate::ladder::Climb;
use crate::raw::{Lane, Raw, Shared, pattern, vram};
use doorbell::device::nv::{Core, Events, Group, LOCAL_WINDOW, SHARED_WINDOW};
use doorbell::hcq::packet::GpuVa;
use doorbell::hcq::packet::nv::copy::{self, Element};
use doorbell::hcq::packet::nv::{PushBuffer, Subchannel, compute, host};
use hw_contact::{Failure, fail};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Words of a lane's page: those that engines write, with a time after one, and those that the host writes.
const WORD: u64 = 0;
const TIMED: u64 = 64;
const HOSTS: u64 = 128;

pub fn channel(climb: &mut Climb) -> Result<String, Failure> {
    let core = Arc::clone(climb.core()?);
    let group = Group::new(&core)?;
    let compute = Lane::new(climb, &group, core.gpu.chip.compute_class)?;
    group.schedule().map_err(fail)?;
    let (handle, token) = (compute.channel.handle(), compute.channel.token());
    climb.raw = Some(Raw { compute, _group: group });
    Ok(format!("channel {handle:#x}, token {token:#x}"))
}

fn lane(climb: &mut Climb) -> Result<&mut Lane, Failure> {
    climb.raw.as_mut().map(|raw| &mut raw.compute).ok_or_else(|| "the rung channel was left out".into())
}

fn release(list: &mut PushBuffer, address: u64, value: u64, wait_idle: bool, timestamp: bool) -> Result<(), Failure> {
    let release = host::Action::Release { address: GpuVa(address), value, wait_idle, timestamp };
    release.emit(list).map_err(fail)
}

pub fn host(climb: &mut Climb) -> Result<String, Failure> {
    let lane = lane(climb)?;
    let page = lane.page.va();
    let mut list = PushBuffer::new();
    release(&mut list, page + WORD, 0x1234_5678_9abc_def0, false, false)?;
    let began = Instant::now();
    lane.run(&list, WORD, 0x1234_5678_9abc_def0, "a semaphore of the host engine")?;
    let took = began.elapsed();
    // A wait that the host ends.
    lane.page.put(HOSTS, &0u64.to_le_bytes())?;
    let mut list = PushBuffer::new();
    let until = host::Until::AtLeast;
    let wait = host::Action::Acquire { address: GpuVa(page + HOSTS), value: 7, until, switch: true };
    wait.emit(&mut list).map_err(fail)?;
    release(&mut list, page + WORD, 2, false, false)?;
    lane.send(&list)?;
    // TIMEOUT: a channel that does not wait is through in microseconds.
    std::thread::sleep(Duration::from_millis(20));
    if lane.page.wide(WORD)? == 2 {
        return Err("the channel went past a semaphore that was not written".into());
    }
    lane.page.put(HOSTS, &7u64.to_le_bytes())?;
    lane.until(WORD, 2, "a semaphore behind a wait that the host has ended")?;
    Ok(format!("semaphore after {:.1} us, a wait ended by the host", took.as_secs_f64() * 1e6))
}

pub fn clock(climb: &mut Climb) -> Result<String, Failure> {
    let lane = lane(climb)?;
    let page = lane.page.va();
    let mut read = |value: u64| -> Result<(u64, Instant), Failure> {
        let mut list = PushBuffer::new();
        release(&mut list, page + TIMED, value, true, true)?;
        lane.run(&list, TIMED, value, "a semaphore with its time, after all work")?;
        Ok((lane.page.wide(TIMED + 8)?, Instant::now()))
    };
    let (first, began) = read(1)?;
    // TIMEOUT: long compared with a submission.
    std::thread::sleep(Duration::from_millis(50));
    let (second, ended) = read(2)?;
    let rate = second.saturating_sub(first) as f64 / (ended - began).as_nanos() as f64;
    // A loaded machine stretches the host's side; an order of magnitude is a wrong unit.
    if first == 0 || !(0.1..10.0).contains(&rate) {
        return Err(format!("timestamps {first} and then {second} in {:?}: not in ns", ended - began).into());
    }
    let mut list = PushBuffer::new();
    host::Action::WaitIdle { all: false }.emit(&mut list).map_err(fail)?;
    host::Action::Membar { system: true }.emit(&mut list).map_err(fail)?;
    release(&mut list, page + WORD, 3, true, false)?;
    lane.run(&list, WORD, 3, "wait for idle and a memory barrier")?;
    Ok(format!("timestamps in ns (rate {rate:.2}), wait for idle, memory barrier"))
}

pub fn compute(climb: &mut Climb) -> Result<String, Failure> {
    let chip = climb.core()?.gpu.chip;
    let lane = lane(climb)?;
    let page = lane.page.va();
    let mut list = PushBuffer::new();
    let bind = host::Action::SetObject { subchannel: Subchannel::COMPUTE, class: chip.compute_class };
    bind.emit(&mut list).map_err(fail)?;
    for action in [
        compute::Action::SharedWindow(SHARED_WINDOW),
        compute::Action::LocalWindow(LOCAL_WINDOW),
        compute::Action::InvalidateCaches { instruction: true, data: true, constant: true },
        compute::Action::WaitIdle,
    ] {
        action.emit(&mut list).map_err(fail)?;
    }
    if chip.has_report_semaphore {
        let address = GpuVa(page + WORD);
        compute::Action::Release { address, value: 4, timestamp: false }.emit(&mut list).map_err(fail)?;
    } else {
        release(&mut list, page + WORD, 4, true, false)?;
    }
    lane.run(&list, WORD, 4, "class, windows, and a semaphore of the compute engine")?;
    let how =
        if chip.has_report_semaphore { "its own semaphore" } else { "the host's semaphore: it has none of 64 bits" };
    Ok(format!("class {:#x} bound, windows set, {how}", chip.compute_class))
}

/// Requested interrupts, each of which has to arrive.
const INTERRUPTS: u64 = 16;

pub fn events(climb: &mut Climb) -> Result<String, Failure> {
    let (core, patience) = (Arc::clone(climb.core()?), climb.patience());
    let events = Events::new(&core.gpu).map_err(fail)?;
    let lane = lane(climb)?;
    let page = lane.page.va();
    let mut took = Vec::new();
    for value in 100..100 + INTERRUPTS {
        let generation = events.generation();
        let mut list = PushBuffer::new();
        release(&mut list, page + WORD, value, true, false)?;
        host::Action::Interrupt.emit(&mut list).map_err(fail)?;
        let began = Instant::now();
        lane.send(&list)?;
        let is_heard = events.sleep(generation, patience);
        took.push(began.elapsed());
        lane.until(WORD, value, "a semaphore before an interrupt")?;
        if !is_heard {
            return Err(format!("NON_STALL_INTERRUPT woke nobody in {patience:?}").into());
        }
    }
    took.sort_unstable();
    let middle = took.get(took.len() / 2).map_or(0.0, |t| t.as_secs_f64() * 1e6);
    Ok(format!("{INTERRUPTS} interrupts heard, {middle:.0} us from doorbell to wake-up"))
}

/// A copy channel, on an engine of its own or on the compute channel's.
struct Copies {
    core: Arc<Core>,
    lane: Lane,
    next: u64,
    is_bound: bool,
}

impl Copies {
    /// Actions and the semaphore after them.
    fn run(&mut self, actions: &[copy::Action], what: &str) -> Result<(), Failure> {
        let chip = self.core.gpu.chip;
        let mut list = PushBuffer::new();
        if !self.is_bound {
            let bind = host::Action::SetObject { subchannel: Subchannel::COPY, class: chip.copy_class };
            bind.emit(&mut list).map_err(fail)?;
        }
        actions.iter().try_for_each(|a| a.emit(&mut list)).map_err(fail)?;
        self.next += 1;
        let (address, payload) = (GpuVa(self.lane.page.va() + WORD), chip.copy_payload);
        let end = copy::Action::Release { address, value: self.next, timestamp: false, payload };
        end.emit(&mut list).map_err(fail)?;
        self.lane.run(&list, WORD, self.next, what)?;
        self.is_bound = true;
        Ok(())
    }

    /// Host to VRAM to host; returns bytes a second of both together.
    fn round_trip(&mut self, offset: u64, len_bytes: u32) -> Result<f64, Failure> {
        let room = offset + u64::from(len_bytes);
        let far = vram(&self.core, room)?;
        let (from, to) = (Shared::new(&self.core, "copies", room)?, Shared::new(&self.core, "copies", room)?);
        let data = pattern(len_bytes as usize, len_bytes);
        from.put(offset, &data)?;
        let copy = |dst: u64, src: u64| {
            let (src, dst) = (GpuVa(src + offset), GpuVa(dst + offset));
            copy::Action::Copy { src, dst, len_bytes, pipelined: false }
        };
        let there_and_back = [copy(far.va(), from.va()), copy(to.va(), far.va())];
        let began = Instant::now();
        self.run(&there_and_back, &format!("copies of {len_bytes} bytes"))?;
        let rate = 2.0 * f64::from(len_bytes) / began.elapsed().as_secs_f64();
        let mut back = vec![0; data.len()];
        to.view.read(offset, &mut back).map_err(fail)?;
        match back.iter().zip(&data).position(|(a, b)| a != b) {
            None => Ok(rate),
            Some(at) => {
                let (seen, wanted) = (back[at], data[at]);
                let what =
                    format!("{len_bytes} bytes at offset {offset}: byte {at} came back as {seen:#x}, not {wanted:#x}");
                Err(what.into())
            }
        }
    }
}

pub fn copy(climb: &mut Climb) -> Result<String, Failure> {
    let core = Arc::clone(climb.core()?);
    let class = core.gpu.chip.copy_class;
    let own = Group::of_own_copy_engine(&core).map_err(Failure::from).and_then(|group| {
        let Some(group) = group else { return Err("no copy engine beside the graphics engine".into()) };
        let lane = Lane::new(climb, &group, class)?;
        group.schedule().map_err(fail)?;
        Ok((lane, group))
    });
    let (lane, group, where_to) = match own {
        Ok((lane, group)) => {
            let engine = group.engine_type();
            (lane, group, format!("engine type {engine:#x}"))
        }
        // The runtime does the same.
        Err(refused) => {
            let group = Group::new(&core)?;
            let lane = Lane::new(climb, &group, class)?;
            group.schedule().map_err(fail)?;
            (lane, group, format!("beside the graphics engine ({})", refused.what))
        }
    };
    let mut copies = Copies { core: Arc::clone(&core), lane, next: 0, is_bound: false };
    copies.run(&[], "class and semaphore of the copy engine")?;
    let quick: [u32; 7] = [1, 3, 4, 63, 4096, 4099, 4 << 20];
    let sizes: Vec<u32> = if climb.is_quick() { quick.to_vec() } else { [&quick[..], &[64 << 20, 256 << 20]].concat() };
    let mut largest = (0, 0.0);
    for len in sizes {
        for offset in if len < 8192 { vec![0, 1, 60] } else { vec![0] } {
            largest = (len, copies.round_trip(offset, len)?);
        }
    }
    fills(&mut copies)?;
    drop((copies, group));
    Ok(format!(
        "{where_to}, copies up to {} MiB at {:.2} GB/s, fills of 1 to 8 bytes",
        largest.0 >> 20,
        largest.1 / 1e9
    ))
}

fn fills(copies: &mut Copies) -> Result<(), Failure> {
    let target = Shared::new(&copies.core, "fills", 4096)?;
    for (n, element) in [Element::B1, Element::B2, Element::B4, Element::B8].into_iter().enumerate() {
        let (len, value) = (element.len_bytes(), 0x8877_6655_4433_2211_u64);
        let dst = GpuVa(target.va() + 1024 * n as u64);
        copies.run(&[copy::Action::Fill { dst, value, element, count: 64 }], &format!("a fill of {len} bytes"))?;
        let mut back = vec![0; 64 * len as usize];
        target.view.read(1024 * n as u64, &mut back).map_err(fail)?;
        let wanted = &value.to_le_bytes()[..len as usize];
        if let Some(at) = back.chunks(len as usize).position(|one| one != wanted) {
            return Err(format!(
                "a fill of {len} bytes: element {at} is {:x?}",
                &back[at * len as usize..][..len as usize]
            )
            .into());
        }
    }
    Ok(())
}
