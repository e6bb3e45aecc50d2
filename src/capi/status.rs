//! Status codes, and the error that a caller gets.

use doorbell_device::DeviceError;
use doorbell_hcq::signal::WaitError;
use doorbell_runtime::RunError;
use std::ffi::c_char;

/// The codes of `doorbell_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Status {
    Ok = 0,
    InvalidArgument = 1,
    NotFound = 2,
    Damaged = 3,
    NoTarget = 4,
    NoDevice = 5,
    OutOfMemory = 6,
    Limit = 7,
    NotReady = 8,
    Timeout = 9,
    Cancelled = 10,
    Fault = 11,
    Driver = 12,
    Unsupported = 13,
    Busy = 14,
    Internal = 15,
    Compile = 16,
}

impl Status {
    const ALL: [(Status, &str); 17] = [
        (Status::Ok, "ok\0"),
        (Status::InvalidArgument, "invalid argument\0"),
        (Status::NotFound, "not found\0"),
        (Status::Damaged, "damaged package\0"),
        (Status::NoTarget, "no code for the device\0"),
        (Status::NoDevice, "no such device\0"),
        (Status::OutOfMemory, "out of memory\0"),
        (Status::Limit, "over the limit\0"),
        (Status::NotReady, "an input or variable has no value\0"),
        (Status::Timeout, "timeout\0"),
        (Status::Cancelled, "cancelled\0"),
        (Status::Fault, "device fault\0"),
        (Status::Driver, "driver error\0"),
        (Status::Unsupported, "unsupported\0"),
        (Status::Busy, "in use by another thread\0"),
        (Status::Internal, "internal error\0"),
        (Status::Compile, "cannot be compiled\0"),
    ];
}

/// The name of a status.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_status_name(status: i32) -> *const c_char {
    let known = Status::ALL.iter().find(|(s, _)| *s as i32 == status);
    known.map_or("unknown status\0", |(_, name)| name).as_ptr().cast()
}

/// A failure on its way to the caller.
pub(crate) struct Failure {
    pub status: Status,
    /// The raw code of the kernel driver, 0 if there is none.
    pub driver_code: i64,
    pub text: String,
}

impl Failure {
    pub(crate) fn new(status: Status, text: impl Into<String>) -> Failure {
        Failure { status, driver_code: 0, text: text.into() }
    }
}

impl From<RunError> for Failure {
    fn from(e: RunError) -> Failure {
        let text = e.to_string();
        let status = match e {
            RunError::Package(_) => Status::Damaged,
            RunError::File { .. } => Status::NotFound,
            RunError::NoTarget { .. } => Status::NoTarget,
            RunError::Limit { .. } => Status::Limit,
            RunError::Unknown { .. } => Status::NotFound,
            RunError::Length { .. } | RunError::Variable { have: Some(_), .. } => Status::InvalidArgument,
            RunError::Shared { .. } => Status::Unsupported,
            RunError::Variable { have: None, .. } | RunError::NoInput { .. } => Status::NotReady,
            RunError::Cancelled => Status::Cancelled,
            RunError::Device(e) => return e.into(),
            _ => Status::Internal,
        };
        Failure::new(status, text)
    }
}

impl From<DeviceError> for Failure {
    fn from(e: DeviceError) -> Failure {
        let driver_code = driver_code(&e);
        let status = match &e {
            DeviceError::Unknown { .. } | DeviceError::NotInBuild { .. } | DeviceError::Unavailable { .. } => {
                Status::NoDevice
            }
            DeviceError::UnknownArch { .. } | DeviceError::MissingFeature { .. } => Status::NoDevice,
            DeviceError::OutOfMemory { .. } | DeviceError::TooBig { .. } | DeviceError::Memory(_) => {
                Status::OutOfMemory
            }
            DeviceError::Range { .. } | DeviceError::WrongDevice { .. } => Status::InvalidArgument,
            DeviceError::Unsupported { .. } => Status::Unsupported,
            DeviceError::Load { .. } => Status::Damaged,
            DeviceError::File { .. } => Status::NotFound,
            DeviceError::Wait(WaitError::Timeout(_)) => Status::Timeout,
            DeviceError::Wait(_) => Status::Fault,
            _ => Status::Driver,
        };
        Failure { driver_code, ..Failure::new(status, e.to_string()) }
    }
}

/// The kernel driver's own number for an error.
fn driver_code(e: &DeviceError) -> i64 {
    match e {
        DeviceError::Driver { source, .. } => i64::from(source.errno.0),
        _ => 0,
    }
}
