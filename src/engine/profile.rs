//! A trace of kernels, copies and host work over time, in the Trace Event Format (JSON) of Perfetto and
//! chrome://tracing.
//! Source: "Trace Event Format", Google, sections "Complete Events" and "Metadata Events". Times are microseconds.

use serde_json::{Value, json};
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Collects events. It is cheap when unused; it is filled only if profiling is on.
#[derive(Debug)]
pub struct Profile {
    began: Instant,
    events: Mutex<Vec<Event>>,
    /// Events in the file; `None`: there is none yet.
    written: Mutex<Option<usize>>,
}

#[derive(Debug)]
struct Event {
    name: String,
    track: String,
    start_us: f64,
    dur_us: f64,
    args: Value,
}

impl Default for Profile {
    fn default() -> Profile {
        Profile { began: Instant::now(), events: Mutex::new(Vec::new()), written: Mutex::new(None) }
    }
}

impl Profile {
    /// Records host work on `track` from `start` until now.
    pub fn host(&self, track: &str, name: &str, start: Instant) {
        let start_us = start.saturating_duration_since(self.began).as_secs_f64() * 1e6;
        self.push(track, name, start_us, start.elapsed().as_secs_f64() * 1e6, json!({}));
    }
    /// Records a kernel or copy of `dur_ns` that has just ended on a device's track.
    pub fn device(&self, track: &str, name: &str, dur_ns: u64, args: Value) {
        let end = self.began.elapsed().as_secs_f64() * 1e6;
        let dur = dur_ns as f64 / 1e3;
        self.push(track, name, (end - dur).max(0.0), dur, args);
    }
    fn push(&self, track: &str, name: &str, start_us: f64, dur_us: f64, args: Value) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.push(Event { name: name.into(), track: track.into(), start_us, dur_us, args });
    }
    /// Number of events collected.
    pub fn len(&self) -> usize {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
    /// Whether no file has been written, or one without the newest events.
    pub(crate) fn has_news(&self) -> bool {
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) != Some(self.len())
    }
    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The trace as one JSON object.
    pub fn to_json(&self) -> Value {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let mut tracks: Vec<&str> = Vec::new();
        let mut out = Vec::new();
        for e in events.iter() {
            let tid = tracks.iter().position(|t| *t == e.track).unwrap_or_else(|| {
                tracks.push(&e.track);
                tracks.len() - 1
            });
            out.push(json!({"ph": "X", "pid": 1, "tid": tid, "name": e.name, "ts": e.start_us, "dur": e.dur_us, "args": e.args}));
        }
        for (tid, name) in tracks.iter().enumerate() {
            out.push(json!({"ph": "M", "pid": 1, "tid": tid, "name": "thread_name", "args": {"name": name}}));
        }
        json!({"traceEvents": out, "displayTimeUnit": "ns"})
    }
    /// Writes the trace file atomically.
    ///
    /// # Errors
    /// The file system's errors.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let dir = path.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        let count = self.len();
        serde_json::to_writer(&mut file, &self.to_json())?;
        file.persist(path).map_err(|e| e.error)?;
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) = Some(count);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_has_complete_events_and_named_tracks() {
        let p = Profile::default();
        p.device("CPU", "E_4", 1500, json!({"flops": 4}));
        p.host("host", "schedule", Instant::now());
        let j = p.to_json();
        let events = j["traceEvents"].as_array().unwrap();
        assert_eq!(events.iter().filter(|e| e["ph"] == "X").count(), 2);
        let names: Vec<_> =
            events.iter().filter(|e| e["ph"] == "M").map(|e| e["args"]["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["CPU", "host"]);
        assert_eq!(events[0]["dur"], 1.5);
    }
}
