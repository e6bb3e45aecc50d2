//! Kernels that a user writes, as nodes of the tensor graph: [`Op::Custom`](super::Op::Custom).

use super::{DType, Dim, Name, UOp};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// What an [`Op::Custom`](super::Op::Custom) runs and what it gives.
#[derive(Clone)]
pub struct CustomArg {
    /// Its name in messages; of a kernel in text: the entry.
    pub name: Name,
    /// Type of the result.
    pub dtype: DType,
    /// Sizes of the result; none for a scalar.
    pub shape: Vec<Dim>,
    /// What is run.
    pub code: CustomCode,
    /// How a gradient goes through it; `None`: asking for one is an error.
    pub gradient: Option<CustomGradient>,
}

/// The kernel itself. Its argument 0 is the result's memory, 1 and so on are the sources', each dense and row-major.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum CustomCode {
    /// A kernel graph: a `Sink` of `Store`s.
    Graph(UOp),
    /// Text in the language that the device's back end assembles.
    Text(CustomText),
}

/// A kernel in a device's assembly language, and how it is launched.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CustomText {
    /// The text that the back end assembles; its entry is the kernel's name.
    pub text: Arc<str>,
    /// Workgroups along x, y and z.
    pub global: [u32; 3],
    /// Threads of a workgroup along x, y and z.
    pub local: [u32; 3],
    /// Workgroup memory to ask for, beside what the text itself declares.
    pub shared_bytes: u32,
}

/// Gradient of the result and the sources → gradient of each source, `None` where there is none.
type Gradient = dyn Fn(&UOp, &[UOp]) -> Vec<Option<UOp>> + Send + Sync;

/// A user's gradient; equal to itself and its clones only.
#[derive(Clone)]
pub struct CustomGradient(pub Arc<Gradient>);

impl CustomGradient {
    fn address(&self) -> usize {
        Arc::as_ptr(&self.0).cast::<()>().addr()
    }
}
impl PartialEq for CustomArg {
    fn eq(&self, o: &CustomArg) -> bool {
        let address = |a: &CustomArg| a.gradient.as_ref().map(CustomGradient::address);
        (&*self.name, self.dtype, &self.shape, &self.code) == (&*o.name, o.dtype, &o.shape, &o.code)
            && address(self) == address(o)
    }
}
impl Eq for CustomArg {}
impl Hash for CustomArg {
    fn hash<H: Hasher>(&self, h: &mut H) {
        self.name.hash(h);
        self.code.hash(h);
    }
}
impl fmt::Debug for CustomArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}'", self.name)
    }
}
