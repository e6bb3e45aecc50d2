//! Files that are written although the program is interrupted.

use crate::engine::Session;
use std::sync::{Arc, Once};

/// Writes the trace and the page of a session when SIGINT or SIGTERM ends the program. A program that handles such a
/// signal itself ends in its own way, with the files as always.
#[cfg(unix)]
pub(in crate::engine) fn write_when_interrupted(s: &Arc<Session>) {
    use signal_hook::consts::{SIGINT, SIGTERM};
    static ONCE: Once = Once::new();
    let s = Arc::downgrade(s);
    ONCE.call_once(|| {
        let open = [SIGINT, SIGTERM].into_iter().filter(|signal| !is_handled(*signal));
        let Ok(mut signals) = signal_hook::iterator::Signals::new(open) else { return };
        let wait = move || {
            let Some(signal) = signals.forever().next() else { return };
            if let Some(s) = s.upgrade() {
                s.write_files();
            }
            // Ends the program as the signal would have.
            let _ends = signal_hook::low_level::emulate_default_handler(signal);
        };
        let _without = std::thread::Builder::new().name("interrupt".into()).spawn(wait);
    });
}

/// Nothing on other systems: the files are written when the program ends by itself.
#[cfg(not(unix))]
pub(in crate::engine) fn write_when_interrupted(_: &Arc<Session>) {
    let _never: Option<Once> = None;
}

/// Whether the program has a handler for a signal, as Linux says.
#[cfg(unix)]
fn is_handled(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let caught = status.lines().find_map(|l| l.strip_prefix("SigCgt:"));
    let mask = caught.and_then(|m| u64::from_str_radix(m.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}
