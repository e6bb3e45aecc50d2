//! The object of a launch: read, assembled where it is text, and given the functions that it calls of CUDA's runtime.

use super::job::file_error;
use crate::CliError;
use clap::Args;
use doorbell::device::{Code, KernelImage};
#[cfg(feature = "nv")]
use doorbell::elf::cubin::Functions;
use doorbell::engine::OpenDevice;
#[cfg(feature = "nv")]
use doorbell::engine::calls::{Calls, Sizes, is_wanted, is_wanted_in};
use std::path::Path;

/// The memory of these functions.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct CallArgs {
    /// Heap of kernels that call malloc
    #[cfg(feature = "nv")]
    #[arg(long, value_name = "BYTES", default_value_t = Sizes::default().heap_bytes)]
    heap: u64,
    /// Room for the text of kernels that call printf; calls that find none are lost, and counted
    #[cfg(feature = "nv")]
    #[arg(long, value_name = "BYTES", default_value_t = Sizes::default().text_bytes)]
    print_buffer: u64,
}

#[cfg(all(test, feature = "nv"))]
impl Default for CallArgs {
    fn default() -> Self {
        let Sizes { text_bytes, heap_bytes } = Sizes::default();
        CallArgs { heap: heap_bytes, print_buffer: text_bytes }
    }
}

/// What an object's kernels printed.
#[derive(Debug, Default)]
pub(crate) struct Printed {
    pub lines: Vec<String>,
    pub lost_calls: u32,
}

/// An object that a device loads.
#[derive(Debug)]
pub(crate) struct Object {
    pub bytes: Vec<u8>,
    #[cfg(feature = "nv")]
    calls: Option<Calls>,
    #[cfg(feature = "nv")]
    functions: Option<Functions>,
}

impl Object {
    /// Reads an object for a kernel; a source text for the device's back end is assembled. `assembles` says that our
    /// assembler does it.
    pub(crate) fn read(
        path: &Path,
        kernel: &str,
        open: &OpenDevice,
        args: &CallArgs,
        assembles: bool,
    ) -> Result<Object, CliError> {
        let bytes = crate::files::read(path).map_err(|e| file_error(path, &e))?;
        let is_text = path.extension().is_some_and(|e| open.backend.language().is_some_and(|l| e == l));
        let failed = |e: &dyn std::fmt::Display| CliError::Failed(format!("{}: {e}", path.display()));
        match std::str::from_utf8(&bytes) {
            Ok(text) if is_text => Object::assemble(text, kernel, open, args, assembles).map_err(|e| failed(&e)),
            _ => Object::link(bytes, open, args).map_err(|e| failed(&e)),
        }
    }

    /// Loaded under the kernel's name.
    pub(crate) fn image<'a>(&'a self, kernel: &'a str) -> KernelImage<'a> {
        let (bytes, entry) = (self.bytes.as_slice(), kernel);
        #[cfg(feature = "nv")]
        if let Some(functions) = &self.functions {
            return KernelImage { name: kernel, code: Code::Cubin { bytes, entry, functions } };
        }
        KernelImage { name: kernel, code: Code::Elf { bytes, entry } }
    }
}

#[cfg(feature = "nv")]
impl Object {
    fn assemble(
        text: &str,
        kernel: &str,
        open: &OpenDevice,
        args: &CallArgs,
        assembles: bool,
    ) -> Result<Object, doorbell::Error> {
        // Another assembler leaves the names to whoever loads its cubin.
        if !assembles || !is_wanted_in(text) {
            return Object::link(open.backend.assemble(kernel, text)?, open, args);
        }
        let calls = Calls::open(open, args.sizes())?;
        let linked = calls.in_module(text);
        let bytes = open.backend.assemble(kernel, linked.as_deref().unwrap_or(text))?;
        Ok(Object { bytes, calls: Some(calls), functions: None })
    }

    fn link(bytes: Vec<u8>, open: &OpenDevice, args: &CallArgs) -> Result<Object, doorbell::Error> {
        if !is_wanted(&bytes) || !doorbell::elf::cubin::is_arch(&open.device.info().arch) {
            return Ok(Object { bytes, calls: None, functions: None });
        }
        let calls = Calls::open(open, args.sizes())?;
        let functions = Some(calls.functions()?);
        Ok(Object { bytes, calls: Some(calls), functions })
    }

    /// What its kernels printed, each line after the device's name; and an assertion that failed, as an error.
    pub(crate) fn report(&self, device: &str) -> (Printed, Result<(), CliError>) {
        let Some(calls) = &self.calls else { return (Printed::default(), Ok(())) };
        let report = calls.take();
        let lines = report.text().lines().map(|line| format!("{device}: {line}")).collect();
        let failed = report.failed.map_or(Ok(()), |a| Err(CliError::Failed(format!("{device}: {a}"))));
        (Printed { lines, lost_calls: report.lost }, failed)
    }
}

#[cfg(feature = "nv")]
impl CallArgs {
    fn sizes(&self) -> Sizes {
        Sizes { text_bytes: self.print_buffer, heap_bytes: self.heap }
    }
}

#[cfg(not(feature = "nv"))]
impl Object {
    fn assemble(
        text: &str,
        kernel: &str,
        open: &OpenDevice,
        _args: &CallArgs,
        _assembles: bool,
    ) -> Result<Object, doorbell::Error> {
        Ok(Object { bytes: open.backend.assemble(kernel, text)? })
    }

    fn link(bytes: Vec<u8>, _open: &OpenDevice, _args: &CallArgs) -> Result<Object, doorbell::Error> {
        Ok(Object { bytes })
    }

    pub fn report(&self, _device: &str) -> (Printed, Result<(), CliError>) {
        (Printed::default(), Ok(()))
    }
}
