//! Source text → a pipeline: compile, find the function, make the pipeline.

use super::core::Core;
use super::messages::{CompileOptions, Function, Library, Pipeline};
use super::ns::{ErrorSlot, Owned, string, text_of};
use crate::{Code, DeviceError, KernelImage};

/// A kernel that can be launched.
#[derive(Debug)]
pub struct Program {
    pub pipeline: Owned<Pipeline>,
    /// Most threads of a threadgroup, which is less than the device's limit where a kernel needs many registers.
    pub max_threads: u64,
}

/// MSL versions, as the compiler's options have them: the first with what our kernels use, and the first with `bfloat`.
pub const MSL_3_0: u64 = 3 << 16;
pub const MSL_3_1: u64 = 3 << 16 | 1;
/// `MTLMathModeSafe`.
pub const MATH_SAFE: i64 = 0;
/// Where a source says that arithmetic must be exact, near its beginning.
const SAFE_MATH: &str = "math_mode(safe)";

impl Core {
    /// Compiles the source of an image.
    ///
    /// # Errors
    /// `Load`, with the compiler's text.
    pub fn program(&self, image: &KernelImage<'_>) -> Result<Program, DeviceError> {
        let refused = |why: String| DeviceError::Load { device: self.name.clone(), kernel: image.name.into(), why };
        let (bytes, entry) = match image.code {
            Code::Elf { bytes, entry } | Code::Cubin { bytes, entry, .. } => (bytes, entry),
            Code::Raw(bytes) => (bytes, image.name),
            Code::Object { .. } => return Err(refused("it is an object, not the source of a kernel".into())),
        };
        let text = std::str::from_utf8(bytes).map_err(|_| refused("it is not text".into()))?;
        self.runtime.pool(|| {
            let library = self.library(text).map_err(refused)?;
            let function = self.function(&library, entry).map_err(refused)?;
            let mut error = ErrorSlot::new();
            let made = self.gpu.new_pipeline(&function, &mut error);
            let why = || error.get(self.runtime).map_or_else(|| "no pipeline, and no error".into(), |e| e.to_string());
            let pipeline = made.ok_or_else(|| refused(why()))?;
            let max_threads = pipeline.max_total_threads();
            Ok(Program { pipeline, max_threads })
        })
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
    pub fn gpu_name(&self) -> String {
        self.runtime.pool(|| self.gpu.name().0.map(|n| text_of(&n)).unwrap_or_default())
    }
}
