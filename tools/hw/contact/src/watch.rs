//! A port under a trace: every call so far in memory, and in a file that outlives the machine.

use doorbell_ioctl::port::Port;
use doorbell_ioctl::trace::{Event, FileSink, Log, Sink, Trace};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

/// The list in memory and the file at once.
struct Both(Log, FileSink<BufWriter<File>>);

impl Sink for Both {
    fn event(&mut self, event: &Event) {
        self.0.event(event);
        self.1.event(event);
        // A card that takes the machine down with it leaves its last calls in the file.
        self.1.flush();
    }

    fn flush(&mut self) {
        self.1.flush();
    }
}

/// The traced port.
pub struct Watched {
    pub port: Arc<dyn Port>,
    pub trace: Arc<Trace>,
    /// Every call so far.
    pub log: Log,
}

impl Watched {
    /// Traces `inner` into a file and a list.
    ///
    /// # Errors
    /// In words: a file that cannot be written.
    pub fn new(inner: Arc<dyn Port>, file: &Path) -> Result<Self, String> {
        let written = File::create(file).and_then(|f| FileSink::new(BufWriter::new(f)));
        let sink = written.map_err(|e| format!("--trace {}: {e}", file.display()))?;
        let log = Log::default();
        let trace = Trace::new(inner, Box::new(Both(log.clone(), sink)));
        Ok(Self { port: Arc::clone(&trace) as _, trace, log })
    }
}
