//! One process's connection to KFD: the file, the interface's version, fault events, and the last calls for a report.
//!
//! Place in the arrows: below everything else of `device::amd`; the devices of one port share it. Source: amd.md 1.1, 1.3, 1.9, 7.
//! The event page belongs to the process, not to the file: the kernel keeps it until the process ends and refuses a second one. So the
//! real port's connection is kept by the registry, and is never made twice.

use super::bo::{Buffer, Gpus, Placement};
use crate::device::DeviceError;
use crate::device::places::Places;
use crate::device::recent::Recent;
use doorbell_ioctl::abi::{Ioctl, kfd};
use doorbell_ioctl::port::{CallError, Errno, Fd, Mapped, OpenFlags, Port, call};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

const KFD_PATH: &str = "/dev/kfd";
/// Bytes of the event page: 4096 slots of 8.
const EVENT_PAGE_BYTES: u64 = 8 * kfd::SIGNAL_EVENT_LIMIT as u64;

/// The connection.
#[derive(Debug)]
pub struct Driver {
    port: Arc<dyn Port>,
    kfd: Fd,
    minor: u32,
    recent: Recent,
    events: Mutex<Events>,
    /// Devices that the process is tied to: gpu id, render node. Address spaces belong to these files, so they stay open.
    acquired: Mutex<Vec<(u32, Fd)>>,
    /// Where buffers are, and where the last ones were that are freed.
    buffers: Mutex<Places<Handle>>,
    /// Mapped doorbell slices, by gpu id.
    doorbells: Mutex<Vec<(u32, Weak<Mapped>)>>,
}

/// What is kept of a buffer: its handle, and the GPUs that have it in their page tables.
type Handle = (u64, Gpus);

/// Events of the process.
#[derive(Debug, Default)]
struct Events {
    page: Option<Buffer>,
    memory: u32,
    hw_exception: u32,
    /// Signal events alive.
    signals: u32,
}

/// A signal event of one device: what an interrupt with this id wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalEvent {
    pub id: u32,
    /// Address of its slot; a store of anything but all-ones signals it.
    pub mailbox: u64,
}

/// What ended a wait for events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The signal event, or the time was over.
    Signal,
    Timeout,
    /// A fault of some device of the process.
    Fault(Fault),
}

/// What KFD says about a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Memory(kfd::MemoryException),
    Hardware(kfd::HwException),
}

impl Driver {
    /// Opens the driver and checks its version.
    ///
    /// # Errors
    /// `Unavailable`: no driver, no right, an interface that this code does not know.
    pub fn open(name: &str, port: Arc<dyn Port>) -> Result<Arc<Self>, DeviceError> {
        let unavailable = |why: String| DeviceError::Unavailable { name: name.into(), why };
        let kfd = port.open(KFD_PATH, OpenFlags::DEVICE).map_err(|errno| {
            let hint = match errno {
                Errno::ENOENT => " (no amdgpu driver)",
                Errno::EACCES => " (this user is not in the group render)",
                _ => "",
            };
            unavailable(format!("open {KFD_PATH}: {errno}{hint}"))
        })?;
        let mut version = kfd::GetVersion::default();
        let answer = call(&*port, kfd, &kfd::GET_VERSION, &mut version);
        let (first, last) = (kfd::TESTED_MINORS.start(), kfd::TESTED_MINORS.end());
        let (major, minor) = (version.major_version, version.minor_version);
        let why = match answer {
            Err(e) => Some(e.to_string()),
            Ok(_) if major != kfd::KFD_IOCTL_MAJOR_VERSION || minor < *first => {
                Some(format!("KFD interface {major}.{minor}, tested are 1.{first} to 1.{last}"))
            }
            Ok(_) => None,
        };
        if let Some(why) = why {
            let _closed_anyway = port.close(kfd);
            return Err(unavailable(why));
        }
        if minor > *last {
            // Minors only add: what is used here stays as it is.
            log::warn!("KFD interface 1.{minor} is newer than the tested 1.{first} to 1.{last}");
        }
        Ok(Arc::new(Self {
            port,
            kfd,
            minor,
            recent: Recent::default(),
            events: Mutex::default(),
            acquired: Mutex::default(),
            doorbells: Mutex::default(),
            buffers: Mutex::default(),
        }))
    }

    #[must_use]
    pub fn port(&self) -> &Arc<dyn Port> {
        &self.port
    }

    #[must_use]
    pub fn kfd(&self) -> Fd {
        self.kfd
    }

    #[must_use]
    pub fn minor(&self) -> u32 {
        self.minor
    }

    /// A call on the driver's file, remembered for reports.
    ///
    /// # Errors
    /// The driver's.
    pub fn call<T: bytemuck::Pod>(&self, ioctl: &Ioctl<T>, args: &mut T) -> Result<(), CallError> {
        let result = call(&*self.port, self.kfd, ioctl, args);
        // Waits come all the time and say nothing.
        if ioctl.desc.request != kfd::WAIT_EVENTS.desc.request || result.is_err() {
            let name = ioctl.desc.name.trim_start_matches("AMDKFD_IOC_");
            match &result {
                Ok(_) => self.recent.note(name, None),
                Err(e) => self.recent.note(name, Some(&format_args!("-{}", e.errno))),
            }
        }
        result.map(|_| ())
    }

    /// The last calls, oldest first.
    #[must_use]
    pub fn recent_calls(&self) -> String {
        self.recent.line()
    }

    /// Ties the process to a device, once, and gives its render node.
    ///
    /// # Errors
    /// The driver's: `EBUSY` when the process has tied it to another file.
    pub fn acquire(&self, gpu_id: u32, render_minor: u32) -> Result<Fd, CallError> {
        let mut acquired = self.acquired.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, fd)) = acquired.iter().find(|(id, _)| *id == gpu_id) {
            return Ok(*fd);
        }
        let path = format!("/dev/dri/renderD{render_minor}");
        let open = self.port.open(&path, OpenFlags::DEVICE);
        let render = open.map_err(|errno| CallError { name: "open of the render node", errno })?;
        let drm_fd = u32::try_from(render.0).unwrap_or(u32::MAX);
        if let Err(error) = self.call(&kfd::ACQUIRE_VM, &mut kfd::AcquireVm { drm_fd, gpu_id }) {
            let _closed_anyway = self.port.close(render);
            return Err(error);
        }
        if acquired.is_empty() && self.minor >= kfd::MINOR_EVENT_AGE {
            // Mode 0: resets the process's debug settings, and no more.
            self.call(&kfd::RUNTIME_ENABLE, &mut kfd::RuntimeEnable::default())?;
        }
        acquired.push((gpu_id, render));
        Ok(render)
    }

    /// The doorbell slice of a device: the one that its queues share, or a new one by `map`.
    ///
    /// # Errors
    /// As `map`.
    pub fn doorbells(
        &self,
        gpu_id: u32,
        map: impl FnOnce() -> Result<Arc<Mapped>, Errno>,
    ) -> Result<Arc<Mapped>, Errno> {
        let mut known = self.doorbells.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slice) = known.iter().find(|(id, _)| *id == gpu_id).and_then(|(_, slice)| slice.upgrade()) {
            return Ok(slice);
        }
        let slice = map()?;
        known.retain(|(id, _)| *id != gpu_id);
        known.push((gpu_id, Arc::downgrade(&slice)));
        Ok(slice)
    }

    /// A buffer is there from now on.
    pub fn note_buffer(&self, va: u64, len_bytes: u64, handle: u64, gpus: &Gpus) {
        self.places().note(va, len_bytes, (handle, Gpus::clone(gpus)));
    }

    fn places(&self) -> MutexGuard<'_, Places<Handle>> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the buffer that holds an address into a device's page table, unless it is there. `false`: no buffer of this process's devices.
    ///
    /// # Errors
    /// The driver's: `EINVAL` for memory of a device without a link to this one.
    pub fn map_peer(&self, va: u64, gpu_id: u32) -> Result<bool, CallError> {
        let found = self.places().holding(va).map(|(_, _, (handle, gpus))| (*handle, Gpus::clone(gpus)));
        let Some((handle, gpus)) = found else { return Ok(false) };
        super::bo::map_to(self, handle, &gpus, gpu_id).map(|()| true)
    }

    /// A buffer is gone.
    pub fn note_freed(&self, va: u64) {
        self.places().forget(va);
    }

    /// What lies, or lay, at an address: in words, for a report.
    #[must_use]
    pub fn describe(&self, va: u64) -> String {
        self.places().describe(va)
    }

    fn events(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A signal event for a device; the first one brings the event page and the fault events with it.
    ///
    /// # Errors
    /// The driver's.
    pub fn create_event(&self, gpu_id: u32, render: Fd) -> Result<SignalEvent, CallError> {
        let mut events = self.events();
        let mut page_handle = 0;
        let base = match &events.page {
            Some(page) => {
                page.map_to(self, gpu_id)?;
                page.va()
            }
            None => {
                let page = Buffer::new(self, gpu_id, render, EVENT_PAGE_BYTES, Placement::Host)?;
                page_handle = page.handle();
                let va = page.va();
                events.page = Some(page);
                va
            }
        };
        let signal = self.new_event(kfd::EVENT_SIGNAL, page_handle)?;
        if events.memory == 0 {
            events.memory = self.new_event(kfd::EVENT_MEMORY, 0)?.event_id;
            events.hw_exception = self.new_event(kfd::EVENT_HW_EXCEPTION, 0)?.event_id;
        }
        events.signals += 1;
        Ok(SignalEvent { id: signal.event_id, mailbox: base + 8 * u64::from(signal.event_slot_index) })
    }

    fn new_event(&self, event_type: u32, page_handle: u64) -> Result<kfd::CreateEvent, CallError> {
        let mut args = kfd::CreateEvent {
            event_page_offset: page_handle,
            event_type,
            auto_reset: u32::from(event_type == kfd::EVENT_SIGNAL),
            ..Default::default()
        };
        self.call(&kfd::CREATE_EVENT, &mut args)?;
        Ok(args)
    }

    /// Ends a device's event.
    ///
    /// # Errors
    /// The driver's.
    pub fn destroy_event(&self, event: SignalEvent) -> Result<(), CallError> {
        self.events().signals -= 1;
        self.call(&kfd::DESTROY_EVENT, &mut kfd::DestroyEvent { event_id: event.id, pad: 0 })
    }

    /// Sleeps until the event, a fault, or the time is over.
    ///
    /// # Errors
    /// The driver's.
    pub fn wait(&self, event: SignalEvent, timeout_ms: u32) -> Result<Woken, CallError> {
        let (memory, hw_exception) = {
            let events = self.events();
            (events.memory, events.hw_exception)
        };
        let mut data =
            [event.id, memory, hw_exception].map(|event_id| kfd::EventData { event_id, ..Default::default() });
        let mut args = kfd::WaitEvents {
            events_ptr: data.as_mut_ptr().expose_provenance() as u64,
            num_events: data.len() as u32,
            timeout: timeout_ms,
            ..Default::default()
        };
        self.call(&kfd::WAIT_EVENTS, &mut args)?;
        let (fault, reset) = (data[1].memory_exception(), data[2].hw_exception());
        Ok(match args.wait_result {
            _ if fault.gpu_id != 0 => Woken::Fault(Fault::Memory(fault)),
            _ if reset.gpu_id != 0 => Woken::Fault(Fault::Hardware(reset)),
            kfd::WAIT_RESULT_TIMEOUT => Woken::Timeout,
            _ => Woken::Signal,
        })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let events = std::mem::take(self.events.get_mut().unwrap_or_else(PoisonError::into_inner));
        for event_id in [events.memory, events.hw_exception].into_iter().filter(|id| *id != 0) {
            if let Err(e) = self.call(&kfd::DESTROY_EVENT, &mut kfd::DestroyEvent { event_id, pad: 0 }) {
                log::warn!("closing KFD: {e}");
            }
        }
        if let Some(page) = events.page {
            // The kernel keeps the event page for the process's life and says EPERM.
            match page.free(self) {
                Ok(()) | Err(CallError { errno: Errno::EPERM, .. }) => {}
                Err(e) => log::warn!("closing KFD: {e}"),
            }
        }
        for (_, render) in std::mem::take(self.acquired.get_mut().unwrap_or_else(PoisonError::into_inner)) {
            let _closed_anyway = self.port.close(render);
        }
        let _closed_anyway = self.port.close(self.kfd);
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Memory(m) => {
                let mut kinds = Vec::new();
                for (bit, kind) in [
                    (m.not_present, "page not present"),
                    (m.read_only, "store to read-only page"),
                    (m.no_execute, "page not executable"),
                    (m.imprecise, "imprecise"),
                ] {
                    if bit != 0 {
                        kinds.push(kind);
                    }
                }
                write!(f, "memory fault at {:#x} of gpu {:#x}: {}", m.va, m.gpu_id, kinds.join(", "))?;
                if m.error_type != 0 { write!(f, ", error type {}", m.error_type) } else { Ok(()) }
            }
            Self::Hardware(h) => {
                let what = if h.reset_type == 0 { "whole GPU reset" } else { "engine reset" };
                let cause = if h.reset_cause == 0 { "hang" } else { "ECC" };
                let lost = if h.memory_lost != 0 { ", VRAM contents lost" } else { "" };
                write!(f, "{what} of gpu {:#x} after {cause}{lost}", h.gpu_id)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_print_what_the_kernel_said() {
        let m = kfd::MemoryException { not_present: 1, va: 0x7000, gpu_id: 0x12, ..Default::default() };
        assert_eq!(Fault::Memory(m).to_string(), "memory fault at 0x7000 of gpu 0x12: page not present");
        let h = kfd::HwException { memory_lost: 1, gpu_id: 0x12, ..Default::default() };
        let text = "whole GPU reset of gpu 0x12 after hang, VRAM contents lost";
        assert_eq!(Fault::Hardware(h).to_string(), text);
    }
}
