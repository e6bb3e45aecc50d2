//! A runtime: the table of functions, and selectors registered once; pools.

pub use doorbell_ioctl::port::objc::{Id, Objc, Sel};

use doorbell_ioctl::abi::{Message, Value};
use doorbell_ioctl::port::objc::{Functions, Tap};
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

/// A table with the selectors of all messages, registered once.
#[derive(Debug)]
pub struct Runtime {
    pub(super) objc: Functions,
    /// In the order of the list of messages.
    pub(super) selectors: Vec<Sel>,
    /// Sees all messages.
    pub(super) tap: Option<&'static dyn Tap>,
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
        let (tap, objc) = (objc.tap(), *objc.functions());
        let at = |tap: Option<&'static dyn Tap>| tap.map(|tap| std::ptr::from_ref(tap).addr());
        let is_same = |r: &&&Runtime| addresses(&r.objc) == addresses(&objc) && at(r.tap) == at(tap);
        if let Some(runtime) = known.iter().find(is_same) {
            return runtime;
        }
        // SAFETY: the names are C strings.
        let register = |name: &std::ffi::CString| unsafe { (objc.sel_register_name)(name.as_ptr()) };
        let selectors = super::messages::selectors().iter().map(register).collect();
        let runtime: &'static Runtime = Box::leak(Box::new(Runtime { objc, selectors, tap }));
        known.push(runtime);
        runtime
    }

    /// Runs `f` in an autorelease pool: what messages return without giving it away lives until then.
    pub fn pool<R>(&'static self, f: impl FnOnce() -> R) -> R {
        /// Ends the pool also when `f` panics.
        struct Pool(&'static Runtime, *mut c_void);
        impl Drop for Pool {
            fn drop(&mut self) {
                let Pool(runtime, pool) = self;
                // SAFETY: the pool was begun on this thread, and pools begun later have ended.
                let end = || unsafe { (runtime.objc.pool_pop)(*pool) };
                let arguments = || vec![Value::Pointer(pool.expose_provenance() as u64)];
                runtime.call("objc_autoreleasePoolPop", arguments, end, |()| Value::Nothing);
            }
        }
        // SAFETY: the guard ends the pool on this thread, after those that `f` begins.
        let begin = || unsafe { (self.objc.pool_push)() };
        let value = |pool: &*mut c_void| Value::Pointer(pool.expose_provenance() as u64);
        let _pool = Pool(self, self.call("objc_autoreleasePoolPush", Vec::new, begin, value));
        f()
    }

    /// The default device, with a reference of the caller's; or nil.
    pub(super) fn system_default_device(&self) -> Id {
        // SAFETY: the function has no conditions.
        let create = || unsafe { (self.objc.create_system_default_device)() };
        self.call("MTLCreateSystemDefaultDevice", Vec::new, create, |id| Value::Object(id.number()))
    }

    /// The list of devices, with a reference of the caller's; or nil.
    pub(super) fn all_devices(&self) -> Id {
        // SAFETY: the function has no conditions.
        let copy = || unsafe { (self.objc.copy_all_devices)() };
        self.call("MTLCopyAllDevices", Vec::new, copy, |id| Value::Object(id.number()))
    }

    /// Calls a function in the tap's sight. What a tap answers in its place is not used: a function always runs.
    fn call<R>(
        &self,
        name: &'static str,
        arguments: impl FnOnce() -> Vec<Value>,
        call: impl FnOnce() -> R,
        value: impl Fn(&R) -> Value,
    ) -> R {
        let Some(tap) = self.tap else { return call() };
        let mut message = Message::function(name, arguments());
        let (mut call, mut result) = (Some(call), None);
        tap.pass(&mut message, &mut |_| {
            if let Some(call) = call.take() {
                result = Some(call());
            }
            result.as_ref().map_or(Value::Nothing, &value)
        });
        match (result, call) {
            (Some(result), _) => result,
            (None, Some(call)) => call(),
            // PANIC: `call` is taken only where `result` is set.
            (None, None) => unreachable!("a call without its result"),
        }
    }
}

/// What makes two tables one runtime: where messages, selectors and classes come from.
fn addresses(objc: &Functions) -> [usize; 3] {
    [objc.msg_send as usize, objc.sel_register_name as usize, objc.get_class as usize]
}
