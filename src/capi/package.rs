//! Packages.

use crate::door::{self, Error};
use crate::status::{Failure, Status};
use doorbell_device::DeviceOptions;
use doorbell_runtime::package::{Port, Size};
use doorbell_runtime::{Check, PackageFile};
use std::ffi::{CString, c_char};
use std::path::Path;

/// Sizes that a `doorbell_port` has room for.
const MAX_RANK: usize = 16;

/// `doorbell_port`.
#[repr(C)]
pub(crate) struct CPort {
    name: *const c_char,
    max_bytes: u64,
    shape: [u64; MAX_RANK],
    rank: u32,
    element: u32,
}

/// `doorbell_variable`.
#[repr(C)]
pub(crate) struct CVariable {
    name: *const c_char,
    min: i64,
    max: i64,
}

const _: () = assert!(std::mem::size_of::<CPort>() == 152 && std::mem::size_of::<CVariable>() == 24);

/// `doorbell_package`.
pub(crate) struct PackageHandle {
    pub file: PackageFile,
    inputs: Vec<CString>,
    outputs: Vec<CString>,
    variables: Vec<CString>,
}

impl PackageHandle {
    fn new(file: PackageFile) -> PackageHandle {
        let text = |s: &str| CString::new(s.replace('\0', " ")).unwrap_or_default();
        let c = &file.package().contents;
        PackageHandle {
            inputs: c.inputs.iter().map(|p| text(&p.name)).collect(),
            outputs: c.outputs.iter().map(|p| text(&p.name)).collect(),
            variables: c.variables.iter().map(|v| text(&v.name)).collect(),
            file,
        }
    }
}

fn check(flags: u32) -> Result<Check, Failure> {
    match flags {
        0 => Ok(Check::Everything),
        1 => Ok(Check::AllButConstants),
        _ => Err(Failure::new(Status::InvalidArgument, format!("flags {flags:#x} are unknown"))),
    }
}

/// Opens a file.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_package_open(
    path: *const c_char,
    flags: u32,
    out: *mut *mut PackageHandle,
    error: *mut Error,
) -> i32 {
    door::enter(error, || {
        door::give("out", out, || {
            let path = Path::new(door::text("path", path)?);
            Ok(PackageHandle::new(PackageFile::open(path, check(flags)?)?))
        })
    })
}

/// Opens a package in memory.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_package_from_memory(
    bytes: *const u8,
    len: usize,
    constants: *const u8,
    constants_len: usize,
    flags: u32,
    out: *mut *mut PackageHandle,
    error: *mut Error,
) -> i32 {
    door::enter(error, || {
        door::give("out", out, || {
            let all = door::view("bytes", bytes, len, false)?;
            let data = (constants_len > 0).then(|| door::view("constants", constants, constants_len, false));
            Ok(PackageHandle::new(PackageFile::of(&all, data.transpose()?, check(flags)?)?))
        })
    })
}

/// Closes a package.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_package_close(package: *mut PackageHandle) {
    door::enter(std::ptr::null_mut(), || {
        door::take(package);
        Ok(())
    });
}

/// The most memory that a program of the package needs on a device.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_package_peak_bytes(package: *const PackageHandle) -> u64 {
    door::shared("package", package).map_or(0, |p| p.file.package().contents.peak_bytes())
}

/// The name of the best device of this machine that the package has code for.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_package_best_device(
    package: *const PackageHandle,
    name: *mut c_char,
    len: usize,
    error: *mut Error,
) -> i32 {
    door::enter(error, || {
        let best = door::shared("package", package)?.file.best_device(&DeviceOptions::default())?;
        door::put_text(&best, name, len, std::ptr::null_mut())
    })
}

/// Number of inputs.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_package_inputs(package: *const PackageHandle) -> usize {
    door::shared("package", package).map_or(0, |p| p.inputs.len())
}

/// Number of outputs.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_package_outputs(package: *const PackageHandle) -> usize {
    door::shared("package", package).map_or(0, |p| p.outputs.len())
}

/// Number of variables.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_package_variables(package: *const PackageHandle) -> usize {
    door::shared("package", package).map_or(0, |p| p.variables.len())
}

fn port(what: &str, index: usize, ports: &[Port], names: &[CString]) -> Result<CPort, Failure> {
    let (Some(port), Some(name)) = (ports.get(index), names.get(index)) else {
        return Err(Failure::new(Status::NotFound, format!("{what} {index} of {}", ports.len())));
    };
    let mut shape = [0; MAX_RANK];
    for (to, size) in shape.iter_mut().zip(&port.shape) {
        *to = if let Size::Fixed(n) = size { *n } else { u64::MAX };
    }
    Ok(CPort {
        name: name.as_ptr(),
        max_bytes: port.len_bytes,
        shape,
        rank: u32::try_from(port.shape.len()).unwrap_or(u32::MAX),
        element: port.element.code().into(),
    })
}

/// Describes an input.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_package_input(
    package: *const PackageHandle,
    index: usize,
    out: *mut CPort,
    error: *mut Error,
) -> i32 {
    door::enter(error, || {
        let p = door::shared("package", package)?;
        door::put("out", out, port("input", index, &p.file.package().contents.inputs, &p.inputs)?)
    })
}

/// Describes an output.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_package_output(
    package: *const PackageHandle,
    index: usize,
    out: *mut CPort,
    error: *mut Error,
) -> i32 {
    door::enter(error, || {
        let p = door::shared("package", package)?;
        door::put("out", out, port("output", index, &p.file.package().contents.outputs, &p.outputs)?)
    })
}

/// Describes a variable.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_package_variable(
    package: *const PackageHandle,
    index: usize,
    out: *mut CVariable,
    error: *mut Error,
) -> i32 {
    door::enter(error, || {
        let p = door::shared("package", package)?;
        let all = &p.file.package().contents.variables;
        let (Some(v), Some(name)) = (all.get(index), p.variables.get(index)) else {
            return Err(Failure::new(Status::NotFound, format!("variable {index} of {}", all.len())));
        };
        door::put("out", out, CVariable { name: name.as_ptr(), min: v.min, max: v.max })
    })
}
