//! Messages of the library, for a caller who wants them.

use crate::door::{self, Error};
use crate::status::{Failure, Status};
use log::{Level, Log, Metadata, Record};
use std::ffi::{CString, c_char, c_void};
use std::sync::OnceLock;

/// `doorbell_log_fn`.
pub(crate) type Take = extern "C" fn(user: *mut c_void, level: i32, text: *const c_char);

struct ToCaller {
    take: Take,
    /// The caller's pointer, as a number: it is only handed back.
    user: usize,
}

static LOG: OnceLock<ToCaller> = OnceLock::new();

impl Log for ToCaller {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &Record<'_>) {
        let Ok(text) = CString::new(record.args().to_string()) else { return };
        (self.take)(std::ptr::with_exposed_provenance_mut(self.user), record.level() as i32, text.as_ptr());
    }
    fn flush(&self) {}
}

/// Sends messages up to a level to a function.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_set_log(take: Option<Take>, user: *mut c_void, level: i32, error: *mut Error) -> i32 {
    door::enter(error, || {
        let wrong = |why: &str| Failure::new(Status::InvalidArgument, why);
        let take = take.ok_or_else(|| wrong("take is a null pointer"))?;
        let levels = [Level::Error, Level::Warn, Level::Info, Level::Debug, Level::Trace];
        let level = levels.into_iter().find(|l| *l as i32 == level).ok_or_else(|| wrong("levels are 1 to 5"))?;
        let mut is_new = false;
        let log = LOG.get_or_init(|| {
            is_new = true;
            ToCaller { take, user: user.expose_provenance() }
        });
        if !is_new || log::set_logger(log).is_err() {
            return Err(wrong("it can be set once in a process"));
        }
        log::set_max_level(level.to_level_filter());
        Ok(())
    })
}
