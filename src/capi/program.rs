//! Programs: packages on a device.

use crate::device::DeviceHandle;
use crate::door::{self, Done, Error};
use crate::package::PackageHandle;
use crate::status::{Failure, Status};
use doorbell_runtime::{Canceller, Limits, Port, Program, Running, VariableId};
use std::ffi::c_char;
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

/// `doorbell_limits`.
#[repr(C)]
pub(crate) struct CLimits {
    struct_size: u32,
    reserved: u32,
    memory_bytes: u64,
    arena: *mut u8,
    arena_bytes: usize,
}

const _: () = assert!(std::mem::size_of::<CLimits>() == 32);

/// `doorbell_program`.
pub(crate) struct ProgramHandle {
    canceller: Canceller,
    inner: Mutex<Inner>,
}

struct Inner {
    program: Program,
    running: Option<Running>,
    /// The text of the last failure of a run.
    report: String,
}

fn limits(asked: *const CLimits) -> Result<Limits, Failure> {
    if asked.is_null() {
        return Ok(Limits::default());
    }
    let asked = door::shared("limits", asked)?;
    if (asked.struct_size as usize) < std::mem::size_of::<CLimits>() {
        return Err(Failure::new(Status::InvalidArgument, "limits.struct_size is too small"));
    }
    let arena = (!asked.arena.is_null()).then(|| door::view("arena", asked.arena, asked.arena_bytes, true));
    Ok(Limits { memory_bytes: (asked.memory_bytes > 0).then_some(asked.memory_bytes), arena: arena.transpose()? })
}

/// Runs `f` on the program, unless another thread does.
fn with(program: *const ProgramHandle, error: *mut Error, f: impl FnOnce(&mut Inner, &Canceller) -> Done) -> i32 {
    door::enter(error, || {
        let handle = door::shared("program", program)?;
        let mut inner = match handle.inner.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(inner)) => inner.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::new(Status::Busy, "another thread is using the program"));
            }
        };
        f(&mut inner, &handle.canceller)
    })
}

/// Keeps the report of a run that failed.
fn reported(inner: &mut Inner, result: Result<(), doorbell_runtime::RunError>) -> Done {
    result.map_err(|e| {
        inner.report = e.to_string();
        e.into()
    })
}

/// Loads a package on a device.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_program_load(
    device: *const DeviceHandle,
    package: *const PackageHandle,
    asked: *const CLimits,
    out: *mut *mut ProgramHandle,
    error: *mut Error,
) -> i32 {
    door::enter(error, || {
        door::give("out", out, || {
            let (device, package) = (door::shared("device", device)?, door::shared("package", package)?);
            let program = Program::load(&device.device, &package.file, &limits(asked)?)?;
            let inner = Inner { program, running: None, report: String::new() };
            Ok(ProgramHandle { canceller: Canceller::default(), inner: Mutex::new(inner) })
        })
    })
}

/// Closes a program, after its last run.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_program_close(program: *mut ProgramHandle) {
    if program.is_null() {
        return;
    }
    with(program, std::ptr::null_mut(), |inner, _| {
        if let Some(running) = inner.running.take() {
            let _a_hung_device_keeps_its_memory = running.wait(inner.program.patience());
        }
        Ok(())
    });
    door::enter(std::ptr::null_mut(), || {
        door::take(program);
        Ok(())
    });
}

/// Copies an input.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_program_write_input(
    program: *mut ProgramHandle,
    index: usize,
    bytes: *const u8,
    len: usize,
    error: *mut Error,
) -> i32 {
    with(program, error, |inner, _| Ok(inner.program.write_input(Port(index), door::bytes("bytes", bytes, len)?)?))
}

/// Makes memory of the caller's an input.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_program_bind_input(
    program: *mut ProgramHandle,
    index: usize,
    memory: *const u8,
    len: usize,
    error: *mut Error,
) -> i32 {
    with(program, error, |inner, _| {
        Ok(inner.program.bind_input(Port(index), door::view("memory", memory, len, false)?)?)
    })
}

/// Makes memory of the caller's an output.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_program_bind_output(
    program: *mut ProgramHandle,
    index: usize,
    memory: *mut u8,
    len: usize,
    error: *mut Error,
) -> i32 {
    with(program, error, |inner, _| {
        Ok(inner.program.bind_output(Port(index), door::view("memory", memory, len, true)?)?)
    })
}

/// Copies an output.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_program_read_output(
    program: *mut ProgramHandle,
    index: usize,
    bytes: *mut u8,
    len: usize,
    error: *mut Error,
) -> i32 {
    with(program, error, |inner, _| {
        Ok(inner.program.read_output(Port(index), door::bytes_mut("bytes", bytes, len)?)?)
    })
}

/// Bytes of an output, with the present variables.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_program_output_bytes(
    program: *mut ProgramHandle,
    index: usize,
    out: *mut u64,
    error: *mut Error,
) -> i32 {
    with(program, error, |inner, _| door::put("out", out, inner.program.output_bytes(Port(index))?))
}

/// Bytes of an input, with the present variables.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_program_input_bytes(
    program: *mut ProgramHandle,
    index: usize,
    out: *mut u64,
    error: *mut Error,
) -> i32 {
    with(program, error, |inner, _| door::put("out", out, inner.program.input_bytes(Port(index))?))
}

/// Sets a variable.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_program_set_variable(
    program: *mut ProgramHandle,
    index: usize,
    value: i64,
    error: *mut Error,
) -> i32 {
    with(program, error, |inner, _| Ok(inner.program.set(VariableId(index), value)?))
}

/// Gives what is kept from run to run its first value again.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_program_reset(program: *mut ProgramHandle, error: *mut Error) -> i32 {
    with(program, error, |inner, _| Ok(inner.program.reset()?))
}

/// Starts a run.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_program_start(program: *mut ProgramHandle, error: *mut Error) -> i32 {
    with(program, error, |inner, _| {
        let started = inner.program.start().map(|running| inner.running = Some(running));
        reported(inner, started)
    })
}

/// Waits for the last run that was started.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_program_wait(program: *mut ProgramHandle, timeout_ns: u64, error: *mut Error) -> i32 {
    with(program, error, |inner, canceller| {
        let Some(running) = inner.running.clone() else { return Ok(()) };
        let done = running.wait_or_cancel(Duration::from_nanos(timeout_ns), canceller);
        reported(inner, done)
    })
}

/// Ends the wait of another thread.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_program_cancel(program: *const ProgramHandle) {
    if let Ok(handle) = door::shared("program", program) {
        handle.canceller.cancel();
    }
}

/// The report of the last run that failed.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_program_report(
    program: *mut ProgramHandle,
    text: *mut c_char,
    len: usize,
    needed: *mut usize,
    error: *mut Error,
) -> i32 {
    with(program, error, |inner, _| door::put_text(&inner.report, text, len, needed))
}
