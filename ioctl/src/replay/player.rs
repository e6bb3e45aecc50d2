//! Replays a recording against a port and records the differences.

use super::channels::Channels;
use super::report::{Difference, ReplayOptions, Report};
use super::rings::Queues;
use super::translate::Names;
use crate::abi::{Blob, Desc, Dir, Element, Kind, Layout, find_form, kfd, nvrm, same_call};
use crate::port::{
    CpuPtr, DeviceView, Doorbell, Errno, KERNEL_LOG, MapFlags, MapRequest, Mapped, PollFd, Port, read_process,
    write_process,
};
use crate::trace::{Event, IoctlEvent, Registers, What};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Plays `events` against `port`. A call that fails now and did not then is a difference, not an end.
#[must_use]
pub fn replay(events: &[Event], port: &Arc<dyn Port>, options: &ReplayOptions) -> Report {
    let mut player = Player {
        port,
        options,
        events,
        names: Names::default(),
        queues: Queues::default(),
        channels: Channels::default(),
        pages: BTreeMap::new(),
        registers: Registers::default(),
        is_nvidia: false,
        written: BTreeMap::new(),
        busy: false,
        report: Report::default(),
        at: 0,
    };
    for (at, event) in events.iter().enumerate() {
        player.at = at;
        player.play(&event.what);
    }
    player.report
}

struct Player<'a> {
    port: &'a Arc<dyn Port>,
    options: &'a ReplayOptions,
    events: &'a [Event],
    names: Names,
    /// The queues of the recording, with recorded addresses.
    queues: Queues,
    channels: Channels,
    /// Mapped doorbells by recorded address; the replay owns them.
    pages: BTreeMap<u64, (u64, DeviceView)>,
    registers: Registers,
    /// The recording is of an NVIDIA driver.
    is_nvidia: bool,
    /// Recorded memory by recorded address, in words: what an address that is only half new needs.
    written: BTreeMap<u64, [u8; 4]>,
    /// A doorbell was rung since the queues were last seen idle.
    busy: bool,
    report: Report,
    at: usize,
}

impl Player<'_> {
    fn play(&mut self, what: &What) {
        if !matches!(what, What::Memory { .. } | What::Doorbell { .. }) {
            self.report.calls += 1;
        }
        match what {
            What::Open { path, flags, result } => {
                let now = self.port.open(path, *flags);
                if let (Ok(then), Ok(now)) = (result, &now) {
                    self.names.learn_fd(*then, *now);
                    self.registers.opened(*then, path);
                    self.is_nvidia |= path.starts_with("/dev/nvidia");
                }
                self.compare("open", path, result.map(|_| ()), now.map(|_| ()));
            }
            What::Close { fd, result } => {
                let now = self.port.close(self.names.fd(*fd));
                self.compare("close", "", *result, now);
            }
            What::Ioctl(call) => self.ioctl(call),
            What::Mmap { map, result } => self.mmap(map, *result),
            What::Munmap { addr, len_bytes, result } => self.munmap(*addr, *len_bytes, *result),
            What::Poll { fds, timeout_ms, .. } => {
                let mut now: Vec<PollFd> = fds
                    .iter()
                    .map(|(fd, wanted, seen)| PollFd { fd: self.names.fd(*fd), wanted: *wanted, seen: *seen })
                    .collect();
                // The number of ready files depends on timing.
                let most = i32::try_from(self.options.queue_timeout.as_millis()).unwrap_or(i32::MAX);
                let timeout_ms = if *timeout_ms < 0 { most } else { (*timeout_ms).min(most) };
                let _in_time = self.port.poll(&mut now, timeout_ms);
            }
            What::ReadFile { path, result } => self.read_file(path, result),
            What::ReadDir { path, result } => {
                let now = self.port.read_dir(path);
                if now != *result {
                    self.differ("read_dir", format!("{path}: {result:?} then, {now:?} now"));
                }
            }
            What::Memory { at, bytes } => {
                self.settle();
                self.memory(*at, bytes);
            }
            What::Doorbell { at, value } => self.doorbell(*at, *value),
            // Not a port's: a device's own player replays messages.
            What::Message(_) | What::Computed { .. } => {}
        }
        self.queues.follow(what);
        self.channels.follow(what);
    }

    fn differ(&mut self, call: &str, what: String) {
        self.report.differences.push(Difference { event: self.at, call: call.into(), what });
    }

    fn compare(&mut self, call: &str, detail: &str, then: Result<(), Errno>, now: Result<(), Errno>) {
        if then != now {
            let text = |r: Result<(), Errno>| r.map_or_else(|e| e.to_string(), |()| "ok".to_owned());
            let space = if detail.is_empty() { "" } else { " " };
            self.differ(call, format!("{detail}{space}{} then, {} now", text(then), text(now)));
        }
    }

    fn read_file(&mut self, path: &str, then: &Result<Vec<u8>, Errno>) {
        let now = self.port.read_file(path);
        let number = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.trim().parse::<u64>().ok();
        if let (true, Ok(a), Ok(b)) = (path.ends_with("/gpu_id"), then, &now)
            && let (Some(a), Some(b)) = (number(a), number(b))
        {
            self.names.learn_gpu(a, b);
            return;
        }
        // What the kernel logs is another thing each time.
        if now == *then || path == KERNEL_LOG {
            return;
        }
        let what = match (then, &now) {
            (Ok(a), Ok(b)) => {
                let (a, b) = (String::from_utf8_lossy(a), String::from_utf8_lossy(b));
                let line = a.lines().zip(b.lines()).find(|(a, b)| a != b);
                let (a, b) = line.unwrap_or(("fewer lines", "more lines"));
                format!("{path}: {a:?} then, {b:?} now")
            }
            (then, now) => format!("{path}: {:?} then, {:?} now", then.as_ref().err(), now.as_ref().err()),
        };
        self.differ("read_file", what);
    }

    fn ioctl(&mut self, call: &IoctlEvent) {
        let desc = find_form(call.request, call.before.len());
        if !desc.is_some_and(waits) {
            self.settle();
        }
        let mut arg = call.before.clone();
        let mut embedded = Vec::new();
        if let Some(desc) = desc {
            self.names.translate(desc.layout, &mut arg);
            forget_pointers(desc.layout, &mut arg);
            embedded = self.attach(desc, call, &mut arg);
        }
        let now = self.port.ioctl(self.names.fd(call.fd), call.request, &mut arg);
        let name = desc.map_or_else(|| format!("ioctl {:#x}", call.request), |d| d.name.to_owned());
        if desc.is_some_and(returns_time) || desc.is_some_and(|desc| queries_current_state(desc, &call.before)) {
            return;
        }
        self.compare(&name, "", call.result.map(|_| ()), now.map(|_| ()));
        let (Some(desc), Ok(_), Ok(_)) = (desc, call.result, now) else { return };
        let mut different = self.names.learn(desc.out.unwrap_or(desc.layout), &call.after, &arg);
        for blob in &call.blobs_after {
            different.extend(self.blob(desc, call, blob, &embedded));
        }
        for (field, a, b) in different {
            self.differ(&name, format!("{field}: {a:#x} then, {b:#x} now"));
        }
    }

    /// Points the struct's pointers at new memory with the recorded contents.
    fn attach(&self, desc: &Desc, call: &IoctlEvent, arg: &mut [u8]) -> Vec<(u32, Vec<u8>)> {
        let mut embedded = Vec::new();
        for (index, e) in (0u32..).zip(desc.embedded) {
            let (Some((_, len)), Some(pointer)) = (e.range(desc.layout, &call.before), desc.layout.field(e.pointer))
            else {
                continue;
            };
            let then = call.blobs_before.iter().find(|b| b.index == index);
            let mut bytes = then.map_or_else(Vec::new, |b| b.bytes.clone());
            bytes.resize(usize::try_from(len).unwrap_or(0).max(bytes.len()), 0);
            match e.element {
                Element::Struct(_) | Element::Chosen(_) => {
                    if let Some(layout) = e.pointee(desc.layout, &call.before) {
                        let size = (layout.len_bytes as usize).max(1);
                        bytes.chunks_exact_mut(size).for_each(|part| {
                            self.names.translate(layout, part);
                            forget_pointers(layout, part);
                        });
                    }
                }
                // Lists of words are lists of devices.
                Element::U32 => bytes.chunks_exact_mut(4).for_each(|w| {
                    let id = u64::from(u32::from_le_bytes([w[0], w[1], w[2], w[3]]));
                    w.copy_from_slice(&(self.names.gpu(id) as u32).to_le_bytes());
                }),
                Element::Bytes => {}
            }
            pointer.write(arg, |_| bytes.as_ptr().expose_provenance() as u64);
            embedded.push((index, bytes));
        }
        embedded
    }

    fn blob(
        &mut self,
        desc: &Desc,
        call: &IoctlEvent,
        then: &Blob,
        embedded: &[(u32, Vec<u8>)],
    ) -> Vec<(String, u64, u64)> {
        let e = desc.embedded.get(then.index as usize);
        let now = embedded.iter().find(|(index, _)| *index == then.index);
        let (Some(e), Some((_, now))) = (e, now) else { return Vec::new() };
        match e.pointee(desc.layout, &call.before) {
            Some(layout) if e.dir != Dir::In => {
                let size = (layout.len_bytes as usize).max(1);
                // The driver wrote through the pointer: the bytes are read as it left them.
                let mut seen = vec![0; now.len()];
                let at = CpuPtr(now.as_ptr().expose_provenance() as u64);
                if read_process(at, &mut seen).is_err() {
                    return Vec::new();
                }
                then.bytes
                    .chunks_exact(size)
                    .zip(seen.chunks_exact(size))
                    .flat_map(|(a, b)| self.names.learn(layout, a, b))
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    fn mmap(&mut self, map: &MapRequest, then: Result<CpuPtr, Errno>) {
        let fixed = map.flags.contains(MapFlags::FIXED);
        let mut request = MapRequest { fd: map.fd.map(|fd| self.names.fd(fd)), ..*map };
        request.offset = if map.fd.is_some() { self.names.map_offset(map.offset) } else { map.offset };
        request.addr = match (fixed, then) {
            (true, _) => map.addr.map(|a| CpuPtr(self.names.address(a.0))),
            (false, then) => then.ok(),
        };
        let is_registers = self.registers.are_mapped(map) && !fixed;
        let now = if is_registers { self.map_registers(&request, then) } else { self.port.mmap(&request) };
        if let (Ok(then), Ok(now)) = (then, now) {
            self.names.learn_range(then.0, map.len_bytes, now.0);
            if then != now && self.is_nvidia && !is_registers {
                self.differ(
                    "mmap",
                    format!("{:#x} then, {:#x} now: what lies there cannot be translated", then.0, now.0),
                );
            }
            if then != now {
                self.report.moved.push((then.0, map.len_bytes, now.0));
            }
            self.written.retain(|at, _| *at < then.0 || *at >= then.0 + map.len_bytes);
        }
        self.compare("mmap", "", then.map(|_| ()), now.map(|_| ()));
    }

    fn map_registers(&mut self, request: &MapRequest, then: Result<CpuPtr, Errno>) -> Result<CpuPtr, Errno> {
        let page = Arc::new(Mapped::new(self.port, &MapRequest { addr: None, ..*request })?);
        let view = page.view()?;
        if let Ok(then) = then {
            self.pages.insert(then.0, (request.len_bytes, view));
        }
        Ok(page.base())
    }

    fn munmap(&mut self, addr: CpuPtr, len_bytes: u64, then: Result<(), Errno>) {
        self.settle();
        let now = if self.pages.remove(&addr.0).is_some() {
            Ok(())
        } else {
            self.port.munmap(CpuPtr(self.names.address(addr.0)), len_bytes)
        };
        if then.is_ok() {
            self.names.forget_range(addr.0, len_bytes);
        }
        self.compare("munmap", "", then, now);
    }

    /// Memory as the recording found it changed, by the recorded process or by its device.
    fn memory(&mut self, at: CpuPtr, bytes: &[u8]) {
        let lagging = self.lagging(at.0, bytes);
        if self.is_nvidia || !self.names.is_moved() {
            return self.write(at.0, bytes, &lagging);
        }
        let words = |b: &[u8]| <[u8; 4]>::try_from(b).unwrap_or_default();
        self.written.extend((at.0..).step_by(4).zip(bytes.chunks_exact(4).map(words)));
        // One word more on both sides: an address may be new in one half only.
        let (before, after) = (at.0.wrapping_sub(4), at.0.wrapping_add(bytes.len() as u64));
        let mut wide = bytes.to_vec();
        wide.extend(self.written.get(&after).into_iter().flatten());
        let before = self.written.get(&before).map(|word| (before, *word));
        wide.splice(0..0, before.iter().flat_map(|(_, word)| *word));
        let recorded = wide.clone();
        self.names.memory(&mut wide);
        let (mut from, mut now) = (before.map_or(at.0, |(before, _)| before), &wide[..]);
        // A neighbour that is no half of an address stays: the device may have written it since.
        if before.is_some() && now[..4] == recorded[..4] {
            (from, now) = (at.0, &now[4..]);
        }
        let beyond = from.wrapping_add(now.len() as u64).wrapping_sub(after) as usize;
        if wide.ends_with(&recorded[recorded.len() - beyond..]) {
            now = &now[..now.len() - beyond];
        }
        self.write(from, now, &lagging);
    }

    /// The words of recorded memory that the replay's device has already written, in recorded addresses: the recorded
    /// device had progressed less when its memory was recorded. These are read pointers of queues and channels, and
    /// words whose value in the replay was not written by the player and which the recording reaches soon, or counts
    /// past: a timeline value may be passed between two recorded states.
    fn lagging(&self, at: u64, bytes: &[u8]) -> HashSet<u64> {
        let mut today = vec![0; bytes.len()];
        if read_process(CpuPtr(self.names.address(at)), &mut today).is_err() {
            return HashSet::new();
        }
        let words = (at..).step_by(4).zip(bytes.chunks_exact(4).zip(today.chunks_exact(4)));
        let is_read_pointer = |word: u64| {
            self.queues.live.iter().any(|q| word.wrapping_sub(q.read_pointer) < 8)
                || self.channels.live.iter().any(|c| word == c.get_address())
        };
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, u32::from_le_bytes);
        let is_on_the_way = |then: &[u8], today: &[u8], next: &[u8]| {
            next == today || (number(then)..number(next)).contains(&number(today))
        };
        words
            .filter(|(word, (then, today))| {
                is_read_pointer(*word)
                    || then != today
                        && found(&self.events[self.at + 1..], *word)
                            .is_some_and(|next| is_on_the_way(then, today, next))
                        && found_last(&self.events[..self.at], *word).unwrap_or(&[0; 4]) != *today
            })
            .map(|(word, _)| word)
            .collect()
    }

    /// Writes all words but those that are the device's.
    fn write(&mut self, recorded: u64, bytes: &[u8], lagging: &HashSet<u64>) {
        // Anything else of this process is not the recording's to write.
        if !self.names.holds(recorded, bytes.len() as u64) {
            let what = format!("{} bytes at {recorded:#x} lie in no mapping of this replay", bytes.len());
            return self.differ("memory", what);
        }
        let mut rest = bytes;
        let mut at = recorded;
        while !rest.is_empty() {
            let is_lagging = lagging.contains(&at);
            let same = |n: &usize| lagging.contains(&at.wrapping_add(*n as u64)) == is_lagging;
            let len = (0..rest.len()).step_by(4).take_while(same).count() * 4;
            let (run, more) = rest.split_at(len.min(rest.len()));
            let now = self.names.address(at);
            if !is_lagging && let Err(e) = write_process(CpuPtr(now), run) {
                self.differ("memory", format!("{} bytes at {now:#x} cannot be written: {e}", run.len()));
            }
            (at, rest) = (at.wrapping_add(run.len() as u64), more);
        }
    }

    fn doorbell(&mut self, at: CpuPtr, value: u64) {
        self.report.doorbells += 1;
        let page = self.pages.range(..=at.0).next_back().filter(|(start, (len, _))| at.0 - **start < *len);
        let Some((start, (_, view))) = page else {
            return self.differ("doorbell", format!("{:#x} lies in no doorbell page", at.0));
        };
        // NVIDIA's doorbell is the channel's token, in 32 bits.
        let make = if self.is_nvidia { Doorbell::of_u32 } else { Doorbell::new };
        match make(view, at.0 - start, self.port) {
            Ok(doorbell) => doorbell.ring(if self.is_nvidia { self.names.queue(value) } else { value }),
            Err(e) => return self.differ("doorbell", e.to_string()),
        }
        if let Some(queue) = self.queues.rung(at.0) {
            queue.put_bytes = queue.put_of(value);
            self.busy = true;
        }
        if let Some(channel) = self.channels.rung(value) {
            let mut put = [0; 4];
            // A pointer that cannot be read yields nothing.
            let _unread = read_process(CpuPtr(self.names.address(channel.put_address())), &mut put);
            channel.put = u64::from(u32::from_le_bytes(put)) % channel.entries;
            self.busy = true;
        }
    }

    /// Waits until the queues have read what they were given: the recorded process had waited for something, too.
    fn settle(&mut self) {
        if !self.busy {
            return;
        }
        self.busy = false;
        let deadline = Instant::now() + self.options.queue_timeout;
        for queue in self.queues.live.clone() {
            let at = CpuPtr(self.names.address(queue.read_pointer));
            let is_idle = || {
                let mut get = [0; 8];
                // A pointer that cannot be read yields nothing.
                read_process(at, &mut get).is_err() || {
                    let get = u64::from_le_bytes(get).wrapping_mul(queue.unit_bytes());
                    queue.ring_bytes == 0 || queue.put_bytes.wrapping_sub(get).is_multiple_of(queue.ring_bytes)
                }
            };
            if !self.wait_until(is_idle, deadline, &format!("queue {}", queue.number)) {
                return;
            }
        }
        for channel in self.channels.live.clone() {
            let at = CpuPtr(self.names.address(channel.get_address()));
            let is_idle = || {
                let mut get = [0; 4];
                read_process(at, &mut get).is_err() || u64::from(u32::from_le_bytes(get)) == channel.put
            };
            if !self.wait_until(is_idle, deadline, &format!("channel {}", channel.number)) {
                return;
            }
        }
    }

    fn wait_until(&mut self, is_idle: impl Fn() -> bool, deadline: Instant, who: &str) -> bool {
        while !is_idle() {
            if Instant::now() >= deadline {
                self.report.timeouts += 1;
                self.differ("wait", format!("{who} has not caught up in {:?}", self.options.queue_timeout));
                return false;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        true
    }
}

/// Addresses of memory of the recorded process: the pointers are replaced or their targets are not known.
fn forget_pointers(layout: &Layout, bytes: &mut [u8]) {
    for f in layout.fields.iter().filter(|f| f.kind == Kind::Pointer) {
        f.write(bytes, |_| 0);
    }
}

/// How many changes of memory a device's write can be late in a recording.
const HORIZON: usize = 64;

/// The first recorded value of a word.
fn found(events: &[Event], word: u64) -> Option<&[u8]> {
    events.iter().take(HORIZON).find_map(|event| value_of(&event.what, word))
}

/// The last recorded value of a word.
fn found_last(events: &[Event], word: u64) -> Option<&[u8]> {
    events.iter().rev().find_map(|event| value_of(&event.what, word))
}

fn value_of(what: &What, word: u64) -> Option<&[u8]> {
    let What::Memory { at, bytes } = what else { return None };
    let start = usize::try_from(word.checked_sub(at.0)?).ok()?;
    bytes.get(start..start.checked_add(4)?)
}

fn is_one_of(desc: &Desc, list: &[u32]) -> bool {
    list.iter().any(|r| same_call(*r, desc.request))
}

/// Calls that wait for the device, so that the player does not have to wait before them.
fn waits(desc: &Desc) -> bool {
    is_one_of(desc, &[kfd::WAIT_EVENTS.desc.request])
}

/// Commands whose answer differs at every call.
fn queries_current_state(desc: &Desc, before: &[u8]) -> bool {
    const NOW: [u32; 5] = [
        nvrm::TIMER_GET_TIME.cmd,
        nvrm::TIMER_GET_GPU_CPU_TIME_CORRELATION_INFO.cmd,
        nvrm::THERMAL_SYSTEM_EXECUTE_V2.cmd,
        nvrm::PERF_GET_LEVEL_INFO_V2.cmd,
        nvrm::FB_GET_INFO_V2.cmd,
    ];
    let cmd = desc.layout.field("cmd").and_then(|f| f.read(before));
    same_call(desc.request, nvrm::CONTROL.desc.request)
        && cmd.is_some_and(|cmd| NOW.iter().any(|n| u64::from(*n) == cmd))
}

/// Calls whose answer differs at every call.
fn returns_time(desc: &Desc) -> bool {
    is_one_of(
        desc,
        &[kfd::WAIT_EVENTS.desc.request, kfd::GET_CLOCK_COUNTERS.desc.request, kfd::AVAILABLE_MEMORY.desc.request],
    )
}
