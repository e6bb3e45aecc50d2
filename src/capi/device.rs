//! Devices.

use crate::door::{self, Error};
use crate::status::{Failure, Status};
#[cfg(feature = "cpu")]
use doorbell_device::cpu::CpuDevice;
use doorbell_device::cpu::CpuOptions;
use doorbell_device::{Device, DeviceOptions, Registry};
use std::ffi::{CString, c_char};
use std::sync::Arc;

/// `doorbell_options`.
#[repr(C)]
pub(crate) struct COptions {
    struct_size: u32,
    threads: u32,
    workers: i32,
    reserved: u32,
}

const _: () = assert!(std::mem::size_of::<COptions>() == 16);

/// `doorbell_device`.
pub(crate) struct DeviceHandle {
    pub device: Arc<dyn Device>,
    name: CString,
    arch: CString,
}

/// What the caller asks for; the least without options: everything runs in the thread that waits.
fn options(asked: *const COptions) -> Result<DeviceOptions, Failure> {
    let mut cpu = CpuOptions { threads: 1, workers: Some(0), ..CpuOptions::default() };
    if !asked.is_null() {
        let asked = door::shared("options", asked)?;
        if (asked.struct_size as usize) < std::mem::size_of::<COptions>() {
            return Err(Failure::new(Status::InvalidArgument, "options.struct_size is too small"));
        }
        cpu.threads = asked.threads;
        cpu.workers = u32::try_from(asked.workers).ok();
    }
    Ok(DeviceOptions { cpu, ..DeviceOptions::default() })
}

fn open(name: &str, options: &DeviceOptions) -> Result<Arc<dyn Device>, Failure> {
    #[cfg(feature = "emu")]
    drop(doorbell::Session::open(doorbell::Options::default()));
    // A CPU device ends with its handle. GPUs stay open in the process: a driver gives it one connection.
    #[cfg(feature = "cpu")]
    if name.eq_ignore_ascii_case("CPU") {
        return Ok(Arc::new(CpuDevice::open("CPU", &options.cpu)?));
    }
    Ok(Registry::global().open(name, options)?)
}

/// Opens a device.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_device_open(
    name: *const c_char,
    asked: *const COptions,
    out: *mut *mut DeviceHandle,
    error: *mut Error,
) -> i32 {
    door::enter(error, || {
        door::give("out", out, || {
            let device = open(door::text("name", name)?, &options(asked)?)?;
            let text = |s: &str| CString::new(s).unwrap_or_default();
            Ok(DeviceHandle { name: text(device.tag().name()), arch: text(&device.info().arch), device })
        })
    })
}

/// Closes a device.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_device_close(device: *mut DeviceHandle) {
    door::enter(std::ptr::null_mut(), || {
        door::take(device);
        Ok(())
    });
}

/// The device's name; it lives as long as the handle.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_device_name(device: *const DeviceHandle) -> *const c_char {
    door::shared("device", device).map_or(std::ptr::null(), |d| d.name.as_ptr())
}

/// The device's architecture; it lives as long as the handle.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_device_arch(device: *const DeviceHandle) -> *const c_char {
    door::shared("device", device).map_or(std::ptr::null(), |d| d.arch.as_ptr())
}
