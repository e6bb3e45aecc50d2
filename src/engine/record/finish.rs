//! The record as a whole, and its file.

use super::Recorder;
use crate::engine::profile::write_whole;
use crate::engine::{Error, Session};
use crate::explorer::{Calls, Part, Record, Run, VERSION, page};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// When this process asked for the first record.
static BEGAN: OnceLock<u64> = OnceLock::new();

/// Seconds since 1970 when the first session began to record.
pub(super) fn began_s() -> u64 {
    *BEGAN.get_or_init(|| SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()))
}

impl Session {
    /// Adds calls of drivers to the record, with the packets behind their doorbells; nothing if there is no record.
    pub fn record_calls(&self, calls: Calls) {
        if let Some(r) = &self.recorder {
            r.set_calls(calls);
        }
    }

    /// The record up to now; `None` if the session's options ask for none.
    pub fn record(&self) -> Option<Record> {
        let recorder = self.recorder.as_ref()?;
        self.profile.settle();
        let now_ns = self.profile.now_ns();
        let mut state = recorder.state();
        state.let_go(now_ns);
        let mut record = state.record.clone();
        record.version = VERSION;
        let mut command: Vec<String> = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
        // The page may be sent to others: where the program lies is nobody's business.
        if let Some(program) = command.first_mut() {
            *program = program.rsplit(['/', '\\']).next().unwrap_or_default().into();
        }
        record.run = Run {
            command: command.join(" "),
            device: self.options.device.clone(),
            release: env!("CARGO_PKG_VERSION").into(),
            began_s: began_s(),
            length_ns: now_ns,
        };
        let t = self.counters.totals();
        let totals = [
            ("kernels", t.kernels),
            ("copies", t.copies),
            ("host_copies", t.host_copies),
            ("flops", t.flops),
            ("mem_bytes", t.mem_bytes),
            ("compiled", t.compiled),
        ];
        record.counters = totals.into_iter().map(|(name, n)| (name.to_owned(), n)).collect();
        record.notes.extend(self.notes(recorder));
        record.parts = state.parts.clone();
        record.parts.push(Part::of("events", &self.profile.events()));
        if !state.calls.text.is_empty() {
            record.parts.push(Part::of("calls", &state.calls));
        }
        Some(record)
    }

    fn notes(&self, recorder: &Recorder) -> Vec<String> {
        let untimed = self.profile.untimed();
        let early = "their recording was started again before its times were fetched";
        let mut notes = Vec::new();
        if untimed > 0 {
            notes.push(format!("{untimed} launches were not timed: {early}"));
        }
        if !recorder.steps {
            notes.push("rewrite steps were not recorded (VIZ_STEPS=0)".into());
        }
        notes
    }

    /// Writes the page that the options ask for, if it is not written yet as it is now. It is written when the session
    /// ends, too; this is for those who want to follow a run.
    ///
    /// # Errors
    /// The file could not be written.
    pub fn write_page(&self) -> Result<(), Error> {
        let (Some(recorder), Some(path)) = (&self.recorder, &self.options.viz) else { return Ok(()) };
        self.profile.settle();
        let events = self.profile.len();
        let (before, now) = {
            let state = recorder.state();
            (state.written, Some((events, state.parts.len() + state.calls.text.len())))
        };
        if before == now {
            return Ok(());
        }
        let Some(record) = self.record() else { return Ok(()) };
        let page = page::html(&record, None);
        let named = |source| Error::File { what: path.display().to_string(), source };
        write_whole(path, page.as_bytes()).map_err(named)?;
        recorder.state().written = now;
        if before.is_none() && self.options.viz_say {
            let shown: PathBuf = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            self.say(&format!("VIZ: the explorer of this run is {} (open it in a browser)", shown.display()));
        }
        Ok(())
    }
}
