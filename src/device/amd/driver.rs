//! A process's connection to KFD: the file, the interface version, and a log of the last calls for reports.
//!
//! Layer: below everything else of `device::amd`; the devices of one port share it. Source: docs/amd.md
//! 1.1, 1.3, 1.9, 7.
//! The event page belongs to the process, not to the file: the kernel keeps it until the process ends and refuses a
//! second one. So the registry keeps the real port's connection and never opens a second one.

use super::bo::{Bo, Gpus};
use super::events::Events;
use crate::DeviceError;
use crate::gpu::buffer_map::BufferMap;
use crate::gpu::last_calls::LastCalls;
use crate::gpu::signal_pages::SharedPages;
use doorbell_ioctl::abi::{Ioctl, kfd};
use doorbell_ioctl::port::{CallError, Errno, Fd, Mapped, OpenFlags, Port, call};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

const KFD_PATH: &str = "/dev/kfd";

/// The connection to the driver.
#[derive(Debug)]
pub struct Driver {
    port: Arc<dyn Port>,
    kfd: Fd,
    minor: u32,
    last_calls: LastCalls,
    pub(super) events: Events,
    /// Devices that the process has acquired: gpu id, render node. Address spaces belong to these files, so they stay
    /// open.
    acquired: Mutex<Vec<(u32, Fd)>>,
    is_enabled: AtomicBool,
    /// Live buffers by address, and the last freed ones.
    buffers: Mutex<BufferMap<Handle>>,
    signal_pages: SharedPages<Bo>,
    /// Mapped doorbell slices, by gpu id.
    doorbells: Mutex<Vec<(u32, Weak<Mapped>)>>,
}

/// A buffer's handle, and the GPUs that have it mapped.
type Handle = (u64, Gpus);

/// A fault, as KFD reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Memory(kfd::MemoryException),
    Hardware(kfd::HwException),
}

impl Driver {
    /// Opens the driver and checks its version.
    ///
    /// # Errors
    /// `Unavailable`: no driver, no permission, an unknown interface version.
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
            // Minor versions only add calls: those used here do not change.
            log::warn!("KFD interface 1.{minor} is newer than the tested 1.{first} to 1.{last}");
        }
        Ok(Arc::new(Self {
            port,
            kfd,
            minor,
            last_calls: LastCalls::default(),
            events: Events::default(),
            acquired: Mutex::default(),
            is_enabled: AtomicBool::new(false),
            doorbells: Mutex::default(),
            buffers: Mutex::default(),
            signal_pages: SharedPages::default(),
        }))
    }

    /// The pages of its devices' signals.
    #[must_use]
    pub fn signal_pages(&self) -> &SharedPages<Bo> {
        &self.signal_pages
    }

    #[must_use]
    pub fn port(&self) -> &Arc<dyn Port> {
        &self.port
    }

    /// Bytes of a page of the host, which the kernel's sizes of buffers and doorbells are multiples of.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        self.port.page_bytes()
    }

    #[must_use]
    pub fn kfd(&self) -> Fd {
        self.kfd
    }

    #[must_use]
    pub fn minor(&self) -> u32 {
        self.minor
    }

    /// Makes a call on the driver's file and logs it for reports.
    ///
    /// # Errors
    /// The driver's.
    pub fn call<T: bytemuck::Pod>(&self, ioctl: &Ioctl<T>, args: &mut T) -> Result<(), CallError> {
        let result = call(&*self.port, self.kfd, ioctl, args);
        // Successful waits are too frequent to be useful in a report.
        if ioctl.desc.request != kfd::WAIT_EVENTS.desc.request || result.is_err() {
            let name = ioctl.desc.name.trim_start_matches("AMDKFD_IOC_");
            match &result {
                Ok(_) => self.last_calls.note(name, None),
                Err(e) => self.last_calls.note(name, Some(&format_args!("-{}", e.errno))),
            }
        }
        result.map(|_| ())
    }

    /// The last calls, oldest first.
    #[must_use]
    pub(crate) fn recent_calls(&self) -> String {
        self.last_calls.line()
    }

    /// Acquires a device for the process, once, and returns its render node.
    ///
    /// # Errors
    /// The driver's: `EBUSY` when the process has acquired it with another file.
    pub fn acquire(&self, gpu_id: u32, render_minor: u32) -> Result<Fd, CallError> {
        let mut acquired = self.acquired.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, fd)) = acquired.iter().find(|(id, _)| *id == gpu_id) {
            self.enable()?;
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
        // The address space belongs to this file from now on, also if a later step fails.
        acquired.push((gpu_id, render));
        self.enable()?;
        Ok(render)
    }

    /// Enables the runtime for the process with default debug settings (mode 0), once.
    fn enable(&self) -> Result<(), CallError> {
        if self.minor >= kfd::MINOR_EVENT_AGE && !self.is_enabled.load(Ordering::Relaxed) {
            self.call(&kfd::RUNTIME_ENABLE, &mut kfd::RuntimeEnable::default())?;
            // ORDER: relaxed; the callers hold the lock of `acquired`.
            self.is_enabled.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The doorbell slice of a device: the existing one, which its queues share, or a new one from `map`.
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

    /// Records a buffer.
    pub(crate) fn note_buffer(&self, va: u64, len_bytes: u64, handle: u64, gpus: &Gpus) {
        self.buffer_map().note(va, len_bytes, (handle, Gpus::clone(gpus)));
    }

    fn buffer_map(&self) -> MutexGuard<'_, BufferMap<Handle>> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Maps the buffer that contains an address in a device's page table, if it is not mapped yet. Returns `false` if
    /// it is no buffer of this process's devices.
    ///
    /// # Errors
    /// The driver's: `EINVAL` for memory of a device without a link to this one.
    pub(crate) fn map_peer(&self, va: u64, gpu_id: u32) -> Result<bool, CallError> {
        let found = self.buffer_map().containing(va).map(|(_, _, (handle, gpus))| (*handle, Gpus::clone(gpus)));
        let Some((handle, gpus)) = found else { return Ok(false) };
        super::bo::map_to(self, handle, &gpus, gpu_id).map(|()| true)
    }

    /// Records that a buffer was freed.
    pub(crate) fn forget_buffer(&self, va: u64) {
        self.buffer_map().forget(va);
    }

    /// Describes in words which buffer contains, or contained, an address; for a report.
    #[must_use]
    pub fn describe(&self, va: u64) -> String {
        self.buffer_map().describe(va)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let mut events = std::mem::take(&mut self.events);
        events.close(self);
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
