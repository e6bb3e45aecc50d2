//! A session: options, open devices, caches, counters and the receiver of messages.
//!
//! [`Session::open`] makes one from [`Options`]. A thread computes in the session that it has entered
//! ([`Session::enter`]), else in the program's session: the one of [`install`], or one with the environment's options,
//! made at the first realize.

use super::kernels::KernelCache;
use super::profile::Profile;
use super::record::{Recorder, write_when_interrupted};
use super::{Counters, Error, Options, backends};
use crate::codegen::{Target, attention_rows};
use crate::default_device;
use crate::device::cpu::choose_arch;
use crate::device::registry::EmuOptions;
use crate::device::{self, Device, DeviceError, DeviceOptions, Registry};
use crate::isa::Backend;
use crate::schedule::{AttentionRows, DeviceTraits, ScheduleCache};
use crate::tensor;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Receives the messages that the options enable, each a text of one or more lines.
pub type Messages = Box<dyn Fn(&str) + Send + Sync>;

/// The state of a program's computations. Sessions are independent of each other, except that they share devices opened
/// with the same options, and these devices' memory.
pub struct Session {
    /// What it was opened with.
    pub options: Options,
    /// What it has run.
    pub counters: Counters,
    /// What it has recorded for a trace.
    pub profile: Arc<Profile>,
    /// What it has recorded for the explorer, if it does.
    pub(super) recorder: Option<Recorder>,
    pub(super) cache: KernelCache,
    pub(super) schedules: ScheduleCache,
    /// Open devices by every name that was used for them.
    devices: Mutex<HashMap<Arc<str>, Arc<OpenDevice>>>,
    /// Held while a graph with assignments is scheduled and submitted.
    pub(super) assigning: Mutex<()>,
    messages: OnceLock<Messages>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("options", &self.options).finish_non_exhaustive()
    }
}

/// A device with its back end.
pub struct OpenDevice {
    /// Its full name: `CPU`, `NV:1`.
    pub name: Arc<str>,
    /// Memory and queues.
    pub device: Arc<dyn Device>,
    /// What makes its machine code.
    pub backend: Arc<dyn Backend>,
    /// Whether it is a software GPU, whose times say nothing of a card.
    pub is_software: bool,
}

impl OpenDevice {
    /// The target for codegen.
    #[must_use]
    pub fn target(&self) -> &Target {
        self.backend.target()
    }

    /// Whether kernels can run here, so that they can be timed.
    #[must_use]
    pub fn runs_kernels(&self) -> bool {
        self.backend.makes_code() && self.device.executes()
    }
}

/// The program's session.
static PROGRAM: OnceLock<Arc<Session>> = OnceLock::new();

thread_local! {
    /// The sessions that this thread has entered, the newest last.
    static ENTERED: RefCell<Vec<Arc<Session>>> = const { RefCell::new(Vec::new()) };
}

/// Makes the program's session, and makes its device the default for Tensors created from now on. Call it before
/// anything is realized.
///
/// # Errors
/// As [`Session::open`]; `Internal` if the program already has a session with other options.
pub fn install(options: Options) -> Result<Arc<Session>, Error> {
    let new = Session::open(options)?;
    let s = PROGRAM.get_or_init(|| new.clone());
    if s.options != new.options {
        return Err(Error::Internal("the session's options are already set".into()));
    }
    tensor::set_default_device(&s.options.device);
    Ok(s.clone())
}

/// The session that this thread computes in: the one it entered last, or the program's, which is made with the
/// environment's options if none was installed.
///
/// # Errors
/// An environment variable with an invalid value; as [`Session::open`].
pub fn session() -> Result<Arc<Session>, Error> {
    if let Some(s) = ENTERED.with_borrow(|all| all.last().cloned()) {
        return Ok(s);
    }
    if let Some(s) = PROGRAM.get() {
        return Ok(of_program(s));
    }
    let new = Session::open(Options::from_env()?)?;
    Ok(of_program(PROGRAM.get_or_init(|| new)))
}

/// Waits for the devices of the program's session and writes the trace and the page that were asked for. They are
/// written without it too, when the program's main thread ends or is interrupted.
///
/// # Errors
/// A device's work did not complete; the trace could not be written.
pub fn finish() -> Result<(), Error> {
    PROGRAM.get().map_or(Ok(()), |s| s.finish())
}

/// Drops the compiled kernels and open devices of the program's session; nothing may be computing. Later work opens
/// them again.
pub fn close() {
    if let Some(s) = PROGRAM.get() {
        s.close();
    }
}

/// While this value exists, its thread computes in a session. Drop these values in the reverse order of entering.
#[derive(Debug)]
pub struct Entered {
    /// The previous default device of Tensors.
    device: Option<Arc<str>>,
    /// It belongs to its thread.
    _thread: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        ENTERED.with_borrow_mut(Vec::pop);
        tensor::set_thread_device(self.device.take());
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.write_files();
    }
}

/// Writes the trace of the program's session when a thread that used it ends: the last one is the program's main
/// thread, also where it ends by `std::process::exit`.
struct AtExit;

impl Drop for AtExit {
    fn drop(&mut self) {
        let Some(s) = PROGRAM.get() else { return };
        // A panic while a thread's values are dropped would abort the program.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| s.finish()));
        if let Ok(Err(e)) = done {
            s.say(&format!("what PROFILE or VIZ asked for is lost: {e}"));
        }
    }
}

thread_local! {
    static AT_EXIT: AtExit = const { AtExit };
}

/// What planning asks of a device with this target.
fn traits(target: &Target, options: &Options) -> DeviceTraits {
    let units = target.tensor_cores.iter().map(|unit| unit.a).collect();
    let cpu = || DeviceTraits::default().with_threads(target.threads);
    let device = if target.has_grid() { DeviceTraits::gpu(target.compute_units) } else { cpu() };
    let rows = attention_rows(target).into_iter();
    let attentions = rows.map(|(of, multiple, most)| AttentionRows { of, multiple, most }).collect();
    device.with_units(units).with_attentions(attentions).fusing_always(options.fuse_attention)
}

/// The program's session, whose trace is written when the program ends.
fn of_program(s: &Arc<Session>) -> Arc<Session> {
    if s.is_timed() {
        write_when_interrupted(s);
        // Fails while the thread ends, when it is too late.
        let _ = AT_EXIT.try_with(|_| ());
    }
    s.clone()
}

/// The arch that the options ask of CPUs, by its full name.
fn full_arch(options: &Options) -> Option<String> {
    options.arch.as_ref().map(|arch| match arch.as_str() {
        "neon" => format!("aarch64-{arch}"),
        "avx2" | "avx512" | "amx" => format!("x86_64-{arch}"),
        _ => arch.clone(),
    })
}

impl Session {
    /// A session with these options. Devices are opened when they are first used.
    ///
    /// # Errors
    /// `Option` for an option out of its range, `Device` for an unknown device or arch.
    pub fn open(options: Options) -> Result<Arc<Session>, Error> {
        #[cfg(feature = "emu")]
        super::software::offer();
        options.check()?;
        Registry::global().name(&options.device)?;
        // Whether the processor has what the arch needs is asked when a CPU is opened.
        if let Some(arch) = full_arch(&options)
            && let Err(e @ DeviceError::UnknownArch { .. }) = choose_arch("CPU", Some(&arch))
        {
            return Err(e.into());
        }
        let recorder = options.viz.is_some().then(|| Recorder::new(options.viz_steps));
        let schedules = if recorder.is_some() { ScheduleCache::explain() } else { ScheduleCache::default() };
        Ok(Arc::new(Session {
            options,
            counters: Counters::default(),
            profile: Arc::default(),
            recorder,
            cache: KernelCache::default(),
            schedules,
            devices: Mutex::default(),
            assigning: Mutex::default(),
            messages: OnceLock::new(),
        }))
    }

    /// Makes this the thread's session until the returned value is dropped, and its device the default for Tensors that
    /// the thread creates.
    #[must_use = "the thread leaves the session when this is dropped"]
    pub fn enter(self: &Arc<Self>) -> Entered {
        ENTERED.with_borrow_mut(|all| all.push(self.clone()));
        let device = tensor::set_thread_device(Some(self.options.device.as_str().into()));
        Entered { device, _thread: PhantomData }
    }

    /// Says where messages go that the options ask for (`debug`); the first one counts. Without one they go to the
    /// `log` crate, at level info, or to standard error where the program has set up no log.
    pub fn on_message(&self, take: impl Fn(&str) + Send + Sync + 'static) {
        let _first_one_counts = self.messages.set(Box::new(take));
    }

    /// Sends a message to the receiver.
    #[expect(clippy::print_stderr, reason = "options asked for the message, and the program has no log")]
    pub(super) fn say(&self, text: &str) {
        match self.messages.get() {
            Some(take) => take(text),
            None if log::max_level() == log::LevelFilter::Off => eprintln!("{text}"),
            None => log::info!("{text}"),
        }
    }

    /// Waits for the devices, and writes the trace and the page that the options ask for.
    ///
    /// # Errors
    /// A device's work did not complete; a file could not be written.
    pub fn finish(&self) -> Result<(), Error> {
        for d in self.open_devices() {
            d.device.synchronize(d.device.patience())?;
        }
        self.write_profile()?;
        self.write_page()
    }

    /// Writes what was asked for, with a message for what could not be written.
    pub(super) fn write_files(&self) {
        for (what, written) in [("trace that PROFILE", self.write_profile()), ("page that VIZ", self.write_page())] {
            if let Err(e) = written {
                self.say(&format!("the {what} asked for is lost: {e}"));
            }
        }
    }

    /// Writes the trace that was asked for, if it is not written yet as it is now.
    fn write_profile(&self) -> Result<(), Error> {
        self.profile.settle();
        let Some(path) = self.options.profile.as_ref().filter(|_| self.profile.has_news()) else { return Ok(()) };
        self.profile.write(path).map_err(|source| Error::File { what: path.display().to_string(), source })
    }

    /// Drops plans, compiled kernels and open devices; later work opens them again.
    pub fn close(&self) {
        self.cache.clear();
        self.schedules.clear();
        self.devices.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The device of that name, opened at the first call. `CPU`, `cpu` and `CPU:0` are one device.
    ///
    /// # Errors
    /// No such device, or it cannot be opened.
    pub fn device(&self, name: &str) -> Result<Arc<OpenDevice>, Error> {
        let mut open = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(d) = open.get(name) {
            return Ok(d.clone());
        }
        let parsed = Registry::global().name(name)?;
        let own_name = parsed.to_string();
        // Graphs carry the name as it was given.
        let describe = |name: Arc<str>, d: &OpenDevice| {
            self.schedules.describe(&name, traits(d.target(), &self.options));
        };
        if let Some(d) = open.get(own_name.as_str()).cloned() {
            describe(name.into(), &d);
            open.insert(name.into(), d.clone());
            return Ok(d);
        }
        let device = device::open(&own_name, &self.device_options())?;
        let backend = backends::for_device(&own_name, device.as_ref(), &self.options)?;
        let info = device.info();
        if self.options.debug >= 1 {
            self.say(&format!("opened {own_name}: {} with {} threads", info.arch, info.threads));
            if own_name == self.options.device && *default_device::choice().name == *own_name {
                self.say(&format!("{own_name} is the default device: {}", default_device::choice().why));
            }
        }
        let is_software = parsed.is_software();
        let d = Arc::new(OpenDevice { name: own_name.into(), device, backend, is_software });
        describe(d.name.clone(), &d);
        describe(name.into(), &d);
        open.insert(d.name.clone(), d.clone());
        open.insert(name.into(), d.clone());
        Ok(d)
    }

    /// The device options of this session's options.
    pub fn device_options(&self) -> DeviceOptions {
        let emulation = EmuOptions { mode: self.options.emu_mode, lenient: self.options.lenient };
        let mut d = DeviceOptions { emulation, ..DeviceOptions::default() };
        d.cpu.threads = self.options.threads.map_or(0, |n| u32::try_from(n).unwrap_or(u32::MAX));
        d.cpu.arch = full_arch(&self.options);
        #[cfg(feature = "nv")]
        {
            d.nv.any_release = self.options.nv_any_driver;
            d.nv.bar1_doorbell = self.options.nv_bar1_doorbell;
            if self.options.nv_rm_only {
                d.nv.tables = crate::device::nv::PageTables::Rm;
            }
            d.nv.events = self.options.nv_events;
            d.nv.own_copy_engine = !self.options.nv_shared_copy;
        }
        #[cfg(feature = "metal")]
        {
            d.metal.private = self.options.metal_private;
            d.metal.encode_anew = !self.options.metal_icb;
            // Beside the other entries, so that one limit holds for all.
            d.metal.archive = self.options.cache_dir.as_ref().map(|dir| dir.join("entries"));
        }
        d
    }

    /// Devices opened so far.
    pub fn open_devices(&self) -> Vec<Arc<OpenDevice>> {
        let open = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        open.iter().filter(|(name, d)| **name == d.name).map(|(_, d)| d.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(all(feature = "amd", feature = "nv"))]
    #[test]
    fn units_that_cut_f32_are_there_for_who_allows_them() {
        for (allow_tf32, name, cuts) in [(false, "NULL:sm_86", 0), (true, "NULL:sm_86", 1), (true, "NULL:gfx1100", 0)] {
            let s = Session::open(Options { allow_tf32, ..Options::default() }).unwrap();
            let d = s.device(name).unwrap();
            assert_eq!(d.target().tensor_cores.iter().filter(|u| u.cuts()).count(), cuts, "{name}");
            assert!(d.target().tensor_cores.len() >= 4);
        }
    }

    #[test]
    fn names_of_one_device_open_it_once() {
        let s = Session::open(Options::default()).unwrap();
        let first = s.device("NULL").unwrap();
        assert!(Arc::ptr_eq(&first, &s.device("null").unwrap()));
        assert!(Arc::ptr_eq(&s.device("CPU:0").unwrap(), &s.device("CPU").unwrap()));
        assert_eq!(s.open_devices().len(), 2);
    }

    #[test]
    fn a_wrong_device_is_an_error_when_the_session_is_opened() {
        let error = Session::open(Options { device: "GPU".into(), ..Options::default() }).unwrap_err();
        assert!(error.to_string().starts_with("unknown device \"GPU\", valid: "), "{error}");
    }

    #[cfg(feature = "cpu")]
    #[test]
    fn a_thread_computes_in_the_session_that_it_entered_last() {
        let open = |device: &str| Session::open(Options { device: device.into(), ..Options::default() }).unwrap();
        let (outer, inner) = (open("NULL:x86_64-avx2"), open("NULL:x86_64-avx512"));
        let in_outer = outer.enter();
        {
            let _in_inner = inner.enter();
            assert!(Arc::ptr_eq(&session().unwrap(), &inner));
            assert_eq!(&*tensor::default_device(), "NULL:x86_64-avx512");
        }
        assert!(Arc::ptr_eq(&session().unwrap(), &outer));
        assert_eq!(&*tensor::default_device(), "NULL:x86_64-avx2");
        std::thread::scope(|s| {
            s.spawn(|| assert_ne!(&*tensor::default_device(), "NULL:x86_64-avx2"));
        });
        drop(in_outer);
        assert_ne!(&*tensor::default_device(), "NULL:x86_64-avx2");
    }

    #[cfg(feature = "cpu")]
    #[test]
    fn messages_go_to_whoever_asked_for_them_first() {
        let s = Session::open(Options { debug: 1, threads: Some(1), ..Options::default() }).unwrap();
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = heard.clone();
        s.on_message(move |text| kept.lock().unwrap().push(text.into()));
        s.on_message(|_| panic!("the second one is not asked"));
        s.device("NULL:x86_64-avx2").unwrap();
        assert_eq!(*heard.lock().unwrap(), ["opened NULL:x86_64-avx2: x86_64-avx2 with 1 threads"]);
    }
}
