//! The engine's error type: why a realize failed, with the layer that the error came from.

use crate::codegen::CodegenError;
use crate::device::DeviceError;
use crate::elf::ElfError;
use crate::isa::IsaError;
use crate::schedule::ScheduleError;
use crate::tensor::TensorError;
use std::panic::Location;
use std::sync::Arc;
use thiserror::Error;

/// Why something could not be computed. Cheap to clone where it is a Tensor's own error, since many Tensors may carry
/// it.
#[derive(Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the text of each variant says what it means and holds")]
pub enum Error {
    #[error(transparent)]
    Tensor(Box<TensorError>),
    #[error(transparent)]
    Spec(#[from] crate::uop::SpecError),
    /// SPEC=2: a rewrite rule made a node that violates the spec of its stage.
    #[error(transparent)]
    Rewrite(#[from] crate::uop::RewriteError),
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    #[error(transparent)]
    Codegen(#[from] CodegenError),
    #[error(transparent)]
    Isa(#[from] IsaError),
    /// A kernel that a device's back end does not compile.
    #[error("{device}: {source}")]
    Compile { device: Arc<str>, source: IsaError },
    #[error(transparent)]
    Elf(#[from] ElfError),
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// An environment variable with an invalid value.
    #[error(transparent)]
    Option(#[from] super::OptionError),
    #[error(transparent)]
    Jit(#[from] JitError),
    /// A package that cannot be written.
    #[error(transparent)]
    Package(#[from] crate::package::PackageError),
    /// A package that cannot be loaded or run.
    #[error(transparent)]
    Run(#[from] crate::runtime::RunError),
    #[error("{what}: {source}")]
    File { what: String, source: std::io::Error },
    #[error(
        "to_vec: the Tensor holds {have}, {want} was asked for: read it as to_vec::<{}>(), or convert it first by \
         cast(Scalar::{want:?})", rust_name(*.have)
    )]
    WrongType { have: crate::uop::Scalar, want: crate::uop::Scalar },
    #[error("to_nested: the Tensor has {have} axes, {want} nested Vecs were asked for")]
    WrongRank { have: usize, want: usize },
    #[error("the Tensor {shape} of {dtype} is memory without a value (Tensor::empty): assign to it before it is read")]
    Empty { shape: String, dtype: crate::uop::Scalar },
    #[error("item: the tensor has {0} elements, not one")]
    NotOne(usize),
    /// A size or number that has no value in this run.
    #[error(
        "variable '{name}' has no value in this run: use `variable.bind(value)`, with a value of {min} to {max}, in its place"
    )]
    Unbound { name: String, min: i64, max: i64 },
    /// An error that was found after the graph was built, with the call that asked for what could not be computed.
    #[error("{source}; for `{op}` of shape {shape} on {device}, called at {at}")]
    In { source: Box<Error>, op: &'static str, shape: String, device: Arc<str>, at: &'static Location<'static> },
    /// What a recorded function itself ran into.
    #[error("{0}")]
    Function(String),
    /// An internal invariant is violated.
    #[error("engine: {0}")]
    Internal(String),
}

/// The text of `Display`: what `?` out of `main` prints.
impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// What a recorded function refuses.
#[derive(Error, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the text of each variant says what it means and holds")]
pub enum JitError {
    #[error("jit: nothing was captured: the function ran no kernel")]
    NothingCaptured,
    #[error("jit: {input} has shape {have}, recorded with {want}")]
    Shape { input: String, have: String, want: String },
    #[error("jit: {input} has dtype {have}, recorded with {want}")]
    Dtype { input: String, have: String, want: String },
    #[error("jit: {input} is on {have}, recorded on {want}")]
    Device { input: String, have: String, want: String },
    #[error("jit: {have} inputs, recorded with {want}")]
    Count { have: usize, want: usize },
    #[error("jit: {first} and {second} are the same buffer: `.contiguous()` of an expression of one makes another")]
    SameBuffer { first: String, second: String },
    /// What is no Tensor in an input.
    #[error("jit: {input} is {have}, recorded with {want}: numbers are frozen; a Tensor or a bound variable is not")]
    Frozen { input: String, have: String, want: String },
    #[error(
        "jit: a recording is already going on in this thread: call the inner function itself, it is recorded with the outer one"
    )]
    Nested,
    #[error("jit: data was read back during the recording; only what runs on the device can be replayed")]
    ReadDuringCapture,
    #[error(
        "jit: {second} cannot reach memory of {first}, so the host copies from one to the other, which no replay would \
         repeat: copy before the recorded function, and hand the copy over"
    )]
    ThroughHost { first: String, second: String },
    #[error(
        "jit: variable '{0}' was recorded but no input of this call binds it: hand the bound variable over as an input"
    )]
    Unbound(String),
    #[error("jit: nothing is recorded yet: save after the second call")]
    NotRecorded,
    #[error("jit: a package is for one device, this recording is for {first} and {second}")]
    Devices { first: String, second: String },
    #[error("jit: output {output} is a view of memory that is not dense: end the function with `.contiguous()` on it")]
    View { output: String },
    #[error("jit: variable '{name}' is bound to {first} and to {second} in one call")]
    TwoValues { name: String, first: i64, second: i64 },
}

/// The text of `Display`: what `?` out of `main` prints.
impl std::fmt::Debug for JitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// Whether the error concerns the device itself (unknown name, cannot be opened), not the computation.
    #[must_use]
    pub fn is_device(&self) -> bool {
        if let Error::In { source, .. } = self {
            return source.is_device();
        }
        matches!(
            self,
            Error::Device(
                DeviceError::Unknown { .. }
                    | DeviceError::NotInBuild { .. }
                    | DeviceError::Unavailable { .. }
                    | DeviceError::UnknownArch { .. }
                    | DeviceError::MissingFeature { .. }
            )
        )
    }
    /// One word for the layer that the error came from.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Error::In { source, .. } => source.kind(),
            Error::Unbound { .. } | Error::Tensor(_) => "tensor",
            Error::Spec(_) | Error::Rewrite(_) => "spec",
            Error::Schedule(_) => "schedule",
            Error::Codegen(_) => "codegen",
            // The text is PTX: no other target compiles from text yet.
            Error::Isa(IsaError::Source { .. }) | Error::Compile { source: IsaError::Source { .. }, .. } => "ptx",
            Error::Isa(_) | Error::Compile { .. } => "isa",
            Error::Elf(_) => "elf",
            Error::Device(_) => "device",
            Error::Option(_) => "option",
            Error::Jit(_) => "jit",
            Error::Package(_) | Error::Run(_) => "package",
            Error::File { .. } => "file",
            Error::WrongType { .. } | Error::WrongRank { .. } | Error::Empty { .. } | Error::NotOne(_) => "data",
            Error::Function(_) => "function",
            Error::Internal(_) => "internal",
        }
    }
}

/// The Rust type of an element, as `to_vec` names it.
fn rust_name(t: crate::uop::Scalar) -> String {
    use crate::uop::Scalar;
    match t {
        Scalar::F16 => "half::f16".into(),
        Scalar::BF16 => "half::bf16".into(),
        t if t.is_fp8() => "f32>() after cast(Scalar::F32), as to_vec::<f32".into(),
        t => t.name().into(),
    }
}

impl From<TensorError> for Error {
    fn from(e: TensorError) -> Error {
        Error::Tensor(Box::new(e))
    }
}
impl From<Arc<TensorError>> for Error {
    fn from(e: Arc<TensorError>) -> Error {
        Error::from((*e).clone())
    }
}
