//! Runs of instructions that are compiled once they were entered often, and found again by their words.

use super::{Block, DeviceView, Translated, Translation};
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Most instructions of a run.
pub(crate) const LONGEST: usize = 192;
/// A run is compiled when it has been entered so often, unless its owner says otherwise.
pub(crate) const OFTEN: u32 = 24;
/// Number of runs that are kept.
const KEPT: usize = 1 << 13;

/// How often a run was entered, or its code.
pub(crate) enum Known<R> {
    Entered(u32),
    Made(Arc<R>),
}

impl<R> Clone for Known<R> {
    fn clone(&self) -> Self {
        match self {
            Known::Entered(n) => Known::Entered(*n),
            Known::Made(run) => Known::Made(Arc::clone(run)),
        }
    }
}

/// The runs of all launches, by their words and what else their code depends on.
pub(crate) struct Runs<K, R>(Mutex<HashMap<K, Known<R>>>);

impl<K, R> Default for Runs<K, R> {
    fn default() -> Self {
        Runs(Mutex::default())
    }
}

impl<K: Eq + Hash, R> Runs<K, R> {
    /// Counts so many entries of a run; its code once they are `often`. Nobody waits while it is compiled.
    pub(crate) fn enter(&self, key: K, times: u32, often: u32, make: impl FnOnce() -> R) -> Known<R> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = lock().get(&key).cloned().unwrap_or(Known::Entered(0));
        let now = match before {
            Known::Made(_) => return before,
            Known::Entered(n) if n.saturating_add(times) < often => Known::Entered(n + times),
            Known::Entered(_) => Known::Made(Arc::new(make())),
        };
        let mut runs = lock();
        if runs.len() >= KEPT {
            runs.clear();
        }
        runs.insert(key, now.clone());
        now
    }
}

/// A block, and its code once it is needed; none where the host has no instructions for it.
pub(crate) struct Lazy {
    block: Block,
    code: OnceLock<Option<Box<dyn Translated>>>,
}

impl Lazy {
    pub(crate) fn new(block: Block) -> Self {
        Self { block, code: OnceLock::new() }
    }

    /// The code; compiled the first time.
    pub(crate) fn get(&self, translation: &Translation) -> Option<&dyn Translated> {
        let make = || translation.0.as_ref().and_then(|t| t.translate(&self.block));
        self.code.get_or_init(make).as_deref()
    }
}

/// A range of memory as blocks read it: where it starts, and at how many of its bytes an access may start, 64 bits
/// each.
pub(crate) fn range_words(va_start: u64, memory: &DeviceView, access_bytes: u32) -> [u32; 4] {
    let bound = (memory.len_bytes() + 1).saturating_sub(access_bytes.into());
    [va_start as u32, (va_start >> 32) as u32, bound as u32, (bound >> 32) as u32]
}
