//! Source text, or a library that Apple's tools have compiled → a pipeline: compile, find the function, make the
//! pipeline.

use super::archive::url;
use super::core::Core;
use super::messages::{CompileOptions, Function, Library, Pipeline, PipelineDescriptor};
use super::ns::{ErrorSlot, NoPlace, Owned, string, text_of};
use crate::{Code, DeviceError, KernelImage};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A kernel that can be launched.
#[derive(Debug)]
pub(crate) struct Program {
    pub pipeline: Owned<Pipeline>,
    /// Most threads of a threadgroup, which is less than the device's limit where a kernel needs many registers.
    pub max_threads: u64,
    /// An indirect command buffer can launch it.
    pub is_indirect: bool,
}

/// MSL versions, as the compiler's options have them: the first with what our kernels use, and the first with `bfloat`.
pub(crate) const MSL_3_0: u64 = 3 << 16;
pub(crate) const MSL_3_1: u64 = 3 << 16 | 1;
/// The first bytes of a library that Apple's tools have compiled.
const METALLIB: &[u8] = b"MTLB";
/// `MTLPipelineOptionFailOnBinaryArchiveMiss`.
pub(crate) const FAIL_ON_MISS: u64 = 4;
/// `MTLMathModeSafe`.
pub(crate) const MATH_SAFE: i64 = 0;
/// Where a source says that arithmetic must be exact, near its beginning.
const SAFE_MATH: &str = "math_mode(safe)";

/// A file with these bytes, as long as the value lives.
struct Written(PathBuf);

impl Written {
    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        let _left_over = std::fs::remove_file(&self.0);
    }
}

fn written(bytes: &[u8]) -> Result<Written, String> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let file = Written(std::env::temp_dir().join(format!("doorbell-{}-{number}.metallib", std::process::id())));
    // It must be new: nobody else's file is written to.
    let made = std::fs::File::options().write(true).create_new(true).open(file.path());
    made.and_then(|mut to| to.write_all(bytes)).map_err(|e| format!("{}: {e}", file.path().display()))?;
    Ok(file)
}

impl Core {
    /// Compiles the source of an image, or takes a compiled library.
    ///
    /// # Errors
    /// `Load`, with the compiler's text.
    pub(crate) fn program(&self, image: &KernelImage<'_>) -> Result<Program, DeviceError> {
        let refused = |why: String| DeviceError::Load { device: self.name.clone(), kernel: image.name.into(), why };
        let (bytes, entry) = match image.code {
            Code::Elf { bytes, entry } | Code::Cubin { bytes, entry, .. } => (bytes, entry),
            Code::Raw(bytes) => (bytes, image.name),
            Code::Object { .. } => return Err(refused("it is an object, not the source of a kernel".into())),
        };
        let is_compiled = bytes.starts_with(METALLIB);
        let text = std::str::from_utf8(if is_compiled { &[] } else { bytes });
        let text = text.map_err(|_| refused("it is neither text nor a metallib".into()))?;
        // Kept until the pipeline is made: nothing says that a library reads its file at once.
        let file = is_compiled.then(|| written(bytes)).transpose().map_err(refused)?;
        self.runtime.pool(|| {
            let library = match &file {
                Some(file) => self.compiled_library(file.path()),
                None => self.library(text),
            };
            let library = library.map_err(refused)?;
            let function = self.function(&library, entry).map_err(refused)?;
            let (pipeline, is_indirect) = self.pipeline(&function).map_err(refused)?;
            let max_threads = pipeline.max_total_threads();
            Ok(Program { pipeline, max_threads, is_indirect })
        })
    }

    /// A pipeline that indirect command buffers can launch, or else one that they cannot.
    fn pipeline(&self, function: &Owned<Function>) -> Result<(Owned<Pipeline>, bool), String> {
        if (self.has_indirect || self.archive.is_some())
            && let Some(descriptor) = PipelineDescriptor::create(self.runtime).flatten()
        {
            descriptor.set_function(Some(function));
            descriptor.set_indirect(self.has_indirect);
            if let Some(pipeline) = self.described_pipeline(&descriptor) {
                return Ok((pipeline, self.has_indirect));
            }
        }
        let mut error = ErrorSlot::new();
        let made = self.gpu.new_pipeline(function, &mut error);
        let why = || error.get(self.runtime).map_or_else(|| "no pipeline, and no error".into(), |e| e.to_string());
        Ok((made.ok_or_else(why)?, false))
    }

    /// A descriptor's pipeline: the archive's, or a new one, which the archive then keeps. `None` where neither can be
    /// made, above all for indirect command buffers.
    fn described_pipeline(&self, descriptor: &Owned<PipelineDescriptor>) -> Option<Owned<Pipeline>> {
        let make = |options| {
            let mut error = ErrorSlot::new();
            let made = self.gpu.new_pipeline_with(descriptor, options, NoPlace(0), &mut error);
            if made.is_none() {
                let why = error.get(self.runtime).map(|e| e.to_string()).unwrap_or_default();
                log::debug!("{}: no pipeline with options {options}: {why}", self.name);
            }
            made
        };
        let Some(archive) = &self.archive else { return make(0) };
        archive.offer(descriptor);
        make(FAIL_ON_MISS).or_else(|| make(0).inspect(|_| archive.add(descriptor)))
    }

    /// A library that Apple's tools have compiled.
    fn compiled_library(&self, path: &Path) -> Result<Owned<Library>, String> {
        let url = url(self.runtime, path).ok_or("Metal makes no URL of its path")?;
        let mut error = ErrorSlot::new();
        let made = self.gpu.new_library_from(&url, &mut error);
        let why = || error.get(self.runtime).map_or_else(|| "no library, and no error".into(), |e| e.to_string());
        made.ok_or_else(why)
    }

    fn library(&self, text: &str) -> Result<Owned<Library>, String> {
        let source = string(self.runtime, text).ok_or("it has a zero byte")?;
        let options = self.compile_options(text)?;
        let mut error = ErrorSlot::new();
        // The object decides: an error beside a library is a warning.
        let made = self.gpu.new_library(&source, Some(&options), &mut error);
        let error = error.get(self.runtime);
        match (made, error) {
            (Some(library), None) => Ok(library),
            (Some(library), Some(warning)) => {
                log::debug!("{}: {warning}", self.name);
                Ok(library)
            }
            (None, Some(error)) => Err(error.to_string()),
            (None, None) => Err("no library, and no error".into()),
        }
    }

    fn compile_options(&self, text: &str) -> Result<Owned<CompileOptions>, String> {
        let options = CompileOptions::create(self.runtime).flatten().ok_or("there is no MTLCompileOptions")?;
        // Otherwise the version follows the system that the program was linked for.
        options.set_language_version(if text.contains("bfloat") { MSL_3_1 } else { MSL_3_0 });
        let is_safe = text.lines().take(4).any(|line| line.contains(SAFE_MATH));
        match (is_safe, options.has_math_mode()) {
            (false, _) => {}
            (true, true) => options.set_math_mode(MATH_SAFE),
            (true, false) => options.set_fast_math(false),
        }
        Ok(options)
    }

    fn function(&self, library: &Owned<Library>, entry: &str) -> Result<Owned<Function>, String> {
        let name = string(self.runtime, entry).ok_or("its name has a zero byte")?;
        library.new_function(&name).ok_or_else(|| {
            let names = library.function_names().0.map(|names| {
                let name = |at| names.object_at(at).0;
                // SAFETY: the list holds strings.
                (0..names.count()).filter_map(name).map(|n| unsafe { n.into_text() }).collect::<Vec<_>>()
            });
            format!("the source has no kernel {entry}, it has {}", names.unwrap_or_default().join(", "))
        })
    }

    /// The device's own name.
    pub(crate) fn gpu_name(&self) -> String {
        self.runtime.pool(|| self.gpu.name().0.map(|n| text_of(&n)).unwrap_or_default())
    }
}
