//! Work on all processors.

use crate::report::Report;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Calls `f` with every item, in order, on all processors.
pub fn each<T: Sync>(items: &[T], f: &(dyn Fn(&T, &mut Report) + Sync)) -> Report {
    let (next, all) = (AtomicUsize::new(0), Mutex::new(Report::default()));
    threads(&|| {
        let mut report = Report::default();
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            f(item, &mut report);
        }
        if let Ok(mut all) = all.lock() {
            all.add(report);
        }
    });
    all.into_inner().unwrap_or_default()
}

/// Calls `work` once on each processor, and waits for all.
pub fn threads(work: &(dyn Fn() + Sync)) {
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            // Recursive descent in the parser and walks over long functions.
            let started = std::thread::Builder::new().stack_size(64 << 20).spawn_scoped(scope, work);
            started.map(drop).unwrap_or_else(|e| eprintln!("corpus: no thread: {e}"));
        }
    });
}
