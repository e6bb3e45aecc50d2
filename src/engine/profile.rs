//! What ran when: kernels and copies by the times that devices write for them, and work of the host.
//!
//! Commands are stamped and submitted as they would be without; their times are fetched once their work is done
//! ([`Timed`]), so a recording does not change the order or the overlap of work. The result is a trace in the Trace
//! Event Format (JSON) of Perfetto and chrome://tracing, and the timeline of the explorer.
//! Source: "Trace Event Format", Google, sections "Complete Events" and "Metadata Events". Times are microseconds.

use crate::device::{Command, Device, Stamp};
use crate::explorer::{Events, Label, LabelKind};
use crate::hcq::signal::{Point, host_ns};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

/// How far a device's clock may be from the host's, before times are taken for those of an earlier run.
const CLOCKS_DIFFER_NS: u64 = 1_000_000;

/// Collects events. It is cheap when unused; it is filled only if the session records.
#[derive(Debug)]
pub struct Profile {
    began: Instant,
    began_ns: u64,
    log: Mutex<Log>,
    /// Submissions whose times are not fetched yet.
    pending: Mutex<Vec<Submitted>>,
    /// Recorded lists, which are submitted many times.
    lists: Mutex<Vec<Weak<Timed>>>,
    /// Events in the file; `None`: there is none yet.
    written: Mutex<Option<usize>>,
}

#[derive(Debug, Default)]
struct Log {
    tracks: Vec<String>,
    labels: Vec<Named>,
    numbers: HashMap<Label, u32>,
    events: Vec<Event>,
    batches: u32,
    untimed: u64,
}

/// A label, with what a launch costs.
#[derive(Debug)]
struct Named {
    label: Label,
    flops: u64,
    mem_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Event {
    track: u32,
    label: u32,
    start_ns: u64,
    length_ns: u64,
    batch: u32,
}

/// A command's times, once it has run: track, label and where they are.
#[derive(Debug)]
pub(super) struct Stamped {
    track: u32,
    label: u32,
    pub stamp: Stamp,
}

#[derive(Debug)]
struct Submitted {
    point: Point,
    at_ns: u64,
    commands: Vec<Stamped>,
}

impl Default for Profile {
    fn default() -> Profile {
        Profile {
            began: Instant::now(),
            began_ns: host_ns(),
            log: Mutex::default(),
            pending: Mutex::default(),
            lists: Mutex::default(),
            written: Mutex::default(),
        }
    }
}

fn locked<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Log {
    fn track(&mut self, name: &str) -> u32 {
        let at = self.tracks.iter().position(|t| t == name).unwrap_or_else(|| {
            self.tracks.push(name.into());
            self.tracks.len() - 1
        });
        at as u32
    }

    fn label(&mut self, label: Label, flops: u64, mem_bytes: u64) -> u32 {
        if let Some(known) = self.numbers.get(&label) {
            return *known;
        }
        let number = self.labels.len() as u32;
        self.numbers.insert(label.clone(), number);
        self.labels.push(Named { label, flops, mem_bytes });
        number
    }
}

impl Profile {
    /// Records host work on `track` from `start` until now.
    pub fn host(&self, track: &str, name: &str, start: Instant) {
        let start_ns = u64::try_from(start.saturating_duration_since(self.began).as_nanos()).unwrap_or(u64::MAX);
        let length_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let mut log = locked(&self.log);
        let track = log.track(track);
        let label = log.label(Label { text: name.into(), ..Label::default() }, 0, 0);
        log.events.push(Event { track, label, start_ns, length_ns, batch: 0 });
    }

    /// Nanoseconds since the recording began.
    pub fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The same of an instant.
    pub(super) fn since_began_ns(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.began).as_nanos()).unwrap_or(u64::MAX)
    }

    /// The number of what a command does: a kernel's or a copy's label, with its cost.
    pub(super) fn label(&self, label: Label, flops: u64, mem_bytes: u64) -> u32 {
        locked(&self.log).label(label, flops, mem_bytes)
    }

    /// Asks the device for the times of a command; `None` if it has no room for them.
    pub(super) fn stamp(&self, device: &dyn Device, command: &mut Command, label: u32) -> Option<Stamped> {
        let stamp = device.stamp().ok()?;
        let name = device.tag().name();
        // Copies of a GPU may run beside its kernels.
        let separate = command.is_copy() && !device.info().is_cpu();
        let track = if separate { format!("{name} copies") } else { name.to_owned() };
        let track = locked(&self.log).track(&track);
        *command = command.clone().stamped(stamp.clone());
        Some(Stamped { track, label, stamp })
    }

    /// Commands that were submitted; their times are fetched when they are done.
    pub(super) fn submitted(&self, point: Point, at_ns: u64, commands: Vec<Stamped>) {
        if !commands.is_empty() {
            locked(&self.pending).push(Submitted { point, at_ns, commands });
        }
        self.fetch();
    }

    /// Fetches the times of what is done.
    fn fetch(&self) {
        let mut pending = locked(&self.pending);
        let mut k = 0;
        while k < pending.len() {
            if pending[k].point.is_done() {
                let done = pending.swap_remove(k);
                self.add(&done.commands, done.at_ns);
            } else {
                k += 1;
            }
        }
    }

    /// Fetches what is there at the end; what is not done is counted as untimed.
    pub(super) fn settle(&self) {
        self.fetch();
        for list in locked(&self.lists).iter().filter_map(Weak::upgrade) {
            list.fetch();
        }
    }

    /// Events of one submission.
    fn add(&self, commands: &[Stamped], at_ns: u64) {
        let mut log = locked(&self.log);
        log.batches += 1;
        let batch = log.batches;
        for c in commands {
            let (start, stop) = c.stamp.times_ns();
            // A device that writes no start only measures how long a command took.
            let (start, stop) = if start == 0 { (at_ns, at_ns + stop) } else { (start, stop) };
            if stop < start || start + CLOCKS_DIFFER_NS < at_ns {
                log.untimed += 1;
                continue;
            }
            let start_ns = start.saturating_sub(self.began_ns);
            log.events.push(Event { track: c.track, label: c.label, start_ns, length_ns: stop - start, batch });
        }
    }

    /// Number of events collected.
    pub fn len(&self) -> usize {
        locked(&self.log).events.len()
    }

    /// Commands that ran without being timed: a recorded list was started again before it was done.
    pub fn untimed(&self) -> u64 {
        locked(&self.log).untimed
    }

    /// Whether no file has been written, or one without the newest events.
    pub(crate) fn has_news(&self) -> bool {
        *locked(&self.written) != Some(self.len())
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The events, sorted by their start.
    pub(super) fn events(&self) -> Events {
        let log = locked(&self.log);
        let mut sorted = log.events.clone();
        crate::sort::by_key(&mut sorted, |e| e.start_ns);
        let (tracks, labels) = (log.tracks.clone(), log.labels.iter().map(|l| l.label.clone()).collect());
        let mut events = Events { tracks, labels, ..Events::default() };
        let mut last = 0;
        for e in sorted {
            events.track.push(e.track);
            events.label.push(e.label);
            events.start.push(e.start_ns - last);
            events.length.push(e.length_ns);
            events.batch.push(e.batch);
            last = e.start_ns;
        }
        events
    }

    /// The trace as one JSON object.
    pub fn to_json(&self) -> Value {
        let log = locked(&self.log);
        let us = |ns: u64| ns as f64 / 1e3;
        let event = |e: &Event| {
            let of = &log.labels[e.label as usize];
            let args = match of.label.kind {
                LabelKind::Host => json!({}),
                LabelKind::Kernel => json!({"flops": of.flops, "mem_bytes": of.mem_bytes}),
                LabelKind::Copy => json!({"bytes": of.label.bytes}),
            };
            json!({
                "ph": "X", "pid": 1, "tid": e.track, "name": of.label.text, "ts": us(e.start_ns), "dur": us(e.length_ns), "args": args,
            })
        };
        let mut out: Vec<Value> = log.events.iter().map(event).collect();
        for (tid, name) in log.tracks.iter().enumerate() {
            out.push(json!({"ph": "M", "pid": 1, "tid": tid, "name": "thread_name", "args": {"name": name}}));
        }
        json!({"traceEvents": out, "displayTimeUnit": "ns"})
    }

    /// Writes the trace file atomically.
    ///
    /// # Errors
    /// The file system's errors.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let count = self.len();
        let json = serde_json::to_vec(&self.to_json())?;
        write_whole(path, &json)?;
        *locked(&self.written) = Some(count);
        Ok(())
    }
}

/// Writes a file atomically.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    // For others to read as far as the user's mask lets them, like any file of a program.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = builder.tempfile_in(dir)?;
    io::Write::write_all(&mut file, bytes)?;
    file.persist(path).map_err(|e| e.error)?;
    Ok(())
}

/// The times of a recorded list, which a device writes anew at each replay.
#[derive(Debug)]
pub(super) struct Timed {
    profile: Arc<Profile>,
    commands: Vec<Stamped>,
    /// The last replay, if its times are not fetched yet.
    last: Mutex<Option<(Point, u64)>>,
}

impl Timed {
    /// Of a list of stamped commands.
    pub(crate) fn new(profile: &Arc<Profile>, commands: Vec<Stamped>) -> Arc<Timed> {
        let timed = Arc::new(Timed { profile: profile.clone(), commands, last: Mutex::default() });
        let mut lists = locked(&profile.lists);
        lists.retain(|l| l.strong_count() > 0);
        lists.push(Arc::downgrade(&timed));
        drop(lists);
        timed
    }

    /// Fetches the times of the last replay if it is done; if not, they are lost.
    pub(crate) fn fetch(&self) {
        let Some((point, at_ns)) = locked(&self.last).take() else { return };
        if point.is_done() {
            self.profile.add(&self.commands, at_ns);
        } else {
            locked(&self.profile.log).untimed += self.commands.len() as u64;
        }
    }

    /// The list was started.
    pub(crate) fn started(&self, point: Point, at_ns: u64) {
        *locked(&self.last) = Some((point, at_ns));
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        self.fetch();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::null::NullDevice;
    use crate::device::{Device, QueueKind};

    #[test]
    fn a_trace_has_complete_events_and_named_tracks() {
        let p = Arc::new(Profile::default());
        let d = NullDevice::open("NULL", "", 1).unwrap();
        let memory = d.alloc(128).unwrap();
        let label = p.label(Label { text: "copy".into(), kind: LabelKind::Copy, kernel: None, bytes: 64 }, 0, 64);
        let mut copy = Command::copy(memory.at(0), memory.at(64), 64);
        let stamped = p.stamp(&d, &mut copy, label).unwrap();
        let at_ns = host_ns();
        let point = d.submit(QueueKind::Compute, &[copy]).unwrap();
        d.synchronize(d.patience()).unwrap();
        stamped.stamp.start.set_timestamp_ns(at_ns + 5);
        stamped.stamp.stop.set_timestamp_ns(at_ns + 1505);
        p.submitted(point, at_ns, vec![stamped]);
        p.host("host", "schedule", Instant::now());
        let j = p.to_json();
        let events = j["traceEvents"].as_array().unwrap();
        assert_eq!(events.iter().filter(|e| e["ph"] == "X").count(), 2);
        let names: Vec<_> =
            events.iter().filter(|e| e["ph"] == "M").map(|e| e["args"]["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["NULL copies", "host"]);
        assert_eq!((&events[0]["dur"], &events[0]["args"]["bytes"]), (&json!(1.5), &json!(64)));
        let columns = p.events();
        assert_eq!((columns.length, columns.batch[0]), (vec![1500, p.events().length[1]], 1));
    }

    #[test]
    fn a_replay_that_is_started_again_too_early_is_counted_and_not_guessed() {
        let p = Arc::new(Profile::default());
        let d = NullDevice::open("NULL", "", 1).unwrap();
        let memory = d.alloc(128).unwrap();
        let mut copy = Command::copy(memory.at(0), memory.at(64), 64);
        let stamped = p.stamp(&d, &mut copy, p.label(Label::default(), 0, 0)).unwrap();
        let stamp = stamped.stamp.clone();
        let timed = Timed::new(&p, vec![stamped]);
        let point = d.submit(QueueKind::Compute, &[copy]).unwrap();
        d.synchronize(d.patience()).unwrap();
        // Times of a replay before this one.
        stamp.start.set_timestamp_ns(1);
        stamp.stop.set_timestamp_ns(2);
        timed.started(point, host_ns());
        drop(timed);
        assert_eq!((p.len(), p.untimed()), (0, 1));
    }
}
