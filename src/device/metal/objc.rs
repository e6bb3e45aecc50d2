//! A runtime: the table of functions, and selectors registered once; pools.

pub use doorbell_ioctl::port::objc::{Id, Objc, Sel};

use doorbell_ioctl::port::objc::Functions;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

/// A table with the selectors of all messages, registered once.
#[derive(Debug)]
pub struct Runtime {
    pub(super) objc: Functions,
    /// In the order of the list of messages.
    pub(super) selectors: Vec<Sel>,
}

// SAFETY: selectors are registered for all threads, and the table's functions may be called from any.
unsafe impl Send for Runtime {}
// SAFETY: as above.
unsafe impl Sync for Runtime {}

impl Runtime {
    /// The runtime of a table. Runtimes live as long as the process: there are as few as there are tables.
    #[must_use]
    pub fn of(objc: Objc) -> &'static Runtime {
        static KNOWN: Mutex<Vec<&'static Runtime>> = Mutex::new(Vec::new());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let objc = *objc.functions();
        let is_same = |r: &&&Runtime| addresses(&r.objc) == addresses(&objc);
        if let Some(runtime) = known.iter().find(is_same) {
            return runtime;
        }
        // SAFETY: the names are C strings.
        let register = |name: &std::ffi::CString| unsafe { (objc.sel_register_name)(name.as_ptr()) };
        let selectors = super::messages::selectors().iter().map(register).collect();
        let runtime: &'static Runtime = Box::leak(Box::new(Runtime { objc, selectors }));
        known.push(runtime);
        runtime
    }

    /// Runs `f` in an autorelease pool: what messages return without giving it away lives until then.
    pub fn pool<R>(&self, f: impl FnOnce() -> R) -> R {
        /// Ends the pool also when `f` panics.
        struct Pool(Functions, *mut c_void);
        impl Drop for Pool {
            fn drop(&mut self) {
                // SAFETY: the pool was begun on this thread, and pools begun later have ended.
                unsafe { (self.0.pool_pop)(self.1) };
            }
        }
        // SAFETY: the guard ends the pool on this thread, after those that `f` begins.
        let _pool = Pool(self.objc, unsafe { (self.objc.pool_push)() });
        f()
    }
}

/// What makes two tables one runtime: where messages, selectors and classes come from.
fn addresses(objc: &Functions) -> [usize; 3] {
    [objc.msg_send as usize, objc.sel_register_name as usize, objc.get_class as usize]
}
