//! State dictionaries, and the files that hold them: safetensors ([`save`], [`load`]), PyTorch's ([`load_torch`]),
//! numpy's ([`load_npy`], [`save_npz`] ...), archives ([`zip_extract`], [`tar_extract`]).
//!
//! A file is written under a temporary name and renamed, so a reader sees the old or the new one, never half of one.
//! Loading reads names and shapes alone: each Tensor is a part of the file until it is copied to its device, piece by
//! piece (compressed parts are read at once). Nothing in a file is executed. Assignments to a module are checked for
//! names, shapes and dtypes before anything is changed.
//!
//! ```
//! use doorbell::nn::{Linear, Module, state};
//!
//! let dir = tempfile::tempdir()?;
//! let path = dir.path().join("net.safetensors");
//! state::save(&Linear::new(2, 3).state_dict(), &path)?;
//!
//! let net = Linear::new(2, 3);
//! state::load_into(&net, &state::load(&path)?)?;
//!
//! // Other names, and only a part of them.
//! let loaded = state::renamed(&state::load(&path)?, |name| Some(format!("head.{name}")))?;
//! let body = state::renamed(&loaded, |name| (name != "head.bias").then(|| name.replace("head.", "")))?;
//! let report = state::load_into_with(&net, &body, state::Loading { strict: false, ..Default::default() })?;
//! assert_eq!(report.missing, ["bias"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod file;
mod npy;
mod pickle;
mod safetensors;
mod tar;
mod torch;
mod zip;

pub use file::write_atomically;
pub use npy::{load_npy, load_npz, save_npy, save_npz};
pub use safetensors::{load, load_metadata, save, save_with_metadata};
pub use tar::tar_extract;
pub use torch::{Item, load_torch, load_torch_items};
pub use zip::zip_extract;

use super::module::{Module, StateDict};
use crate::engine::Error;
use crate::tensor::{Fault, Shown, Tensor, Value};
use crate::uop::{Dim, Scalar};
use ::safetensors::tensor::SafeTensorError;
use std::path::PathBuf;

/// Why state was not saved or loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The operating system refused.
    #[error("{what} {}: {error}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's answer.
        error: std::io::Error,
    },
    /// A safetensors file is damaged.
    #[error("safetensors {}: {error}", path.display())]
    Format {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        error: SafeTensorError,
    },
    /// A file is damaged, or has something that is not read.
    #[error("{format} {}: {what}", path.display())]
    Damaged {
        /// The format it was read as.
        format: &'static str,
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The format of the file, or this library, lacks the element type.
    #[error("tensor '{name}': element type {what} has no counterpart")]
    ElementType {
        /// Which Tensor.
        name: String,
        /// Its element type.
        what: String,
    },
    /// A Tensor carries an error.
    #[error("tensor '{name}': {error}")]
    Faulty {
        /// Which Tensor.
        name: String,
        /// What it carries.
        error: Fault,
    },
    /// A Tensor could not be computed or read back.
    #[error("tensor '{name}': its bytes could not be read: {error}")]
    Read {
        /// Which Tensor.
        name: String,
        /// The engine's error.
        error: Box<Error>,
    },
    /// What was assigned could not be computed: a file that has changed, a device that failed.
    #[error("the state was assigned, but could not be computed: {0}")]
    Compute(Box<Error>),
    /// A Tensor of symbolic shape has no file.
    #[error("tensor '{name}': size {size} is not known")]
    Symbolic {
        /// Which Tensor.
        name: String,
        /// The size.
        size: String,
    },
    /// The module has it, the state does not.
    #[error("tensor '{name}' is missing in the state; it has {}", sample(.has))]
    Missing {
        /// The name.
        name: String,
        /// The state's names.
        has: Vec<String>,
    },
    /// The state has it, the module does not.
    #[error("tensor '{name}' of the state is not in the module; it has {}", sample(.has))]
    Unknown {
        /// The name.
        name: String,
        /// The module's names.
        has: Vec<String>,
    },
    /// Shape or element type differ.
    #[error("tensor '{name}': {found} in the state, {wanted} in the module")]
    Mismatch {
        /// The name.
        name: String,
        /// What the state has.
        found: String,
        /// What the module has.
        wanted: String,
    },
    /// Two Tensors were given one name.
    #[error("tensors '{first}' and '{second}' would both be called '{name}'")]
    SameName {
        /// The new name.
        name: String,
        /// One old name.
        first: String,
        /// The other.
        second: String,
    },
}

/// So that `?` passes it on where the engine's error is returned.
impl From<StateError> for Error {
    fn from(e: StateError) -> Error {
        Error::Function(e.to_string())
    }
}

fn sample(names: &[String]) -> String {
    let mut text = names.iter().take(6).map(|n| format!("'{n}'")).collect::<Vec<_>>().join(", ");
    if names.len() > 6 {
        text.push_str(&format!(" and {} more", names.len() - 6));
    }
    if text.is_empty() { "none".into() } else { text }
}

/// Shape and dtype, for messages.
fn described(shape: &[Dim], dtype: Scalar) -> String {
    format!("{} {dtype}", Shown(shape))
}

fn facts(name: &str, t: &Tensor) -> Result<(Vec<Dim>, Scalar), StateError> {
    let u = t.node().map_err(|error| StateError::Faulty { name: name.into(), error })?;
    Ok((u.shape().to_vec(), u.dtype().scalar))
}

/// Sizes that a file can hold.
fn sizes(name: &str, shape: &[Dim]) -> Result<Vec<usize>, StateError> {
    let size = |d: &Dim| {
        let known = d.as_int().and_then(|i| usize::try_from(i).ok());
        known.ok_or_else(|| StateError::Symbolic { name: name.into(), size: d.to_string() })
    };
    shape.iter().map(size).collect()
}

/// A Tensor's row-major little-endian bytes.
fn read(name: &str, t: &Tensor) -> Result<Vec<u8>, StateError> {
    t.to_bytes().map_err(|e| StateError::Read { name: name.into(), error: Box::new(e) })
}

/// How a state is taken into a module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loading {
    /// Whether every name of the module must be in the state and the other way round.
    pub strict: bool,
    /// Whether elements are converted to the module's types; otherwise they must agree.
    pub cast: bool,
}

impl Default for Loading {
    fn default() -> Loading {
        Loading { strict: true, cast: false }
    }
}

/// What a load left out.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Loaded {
    /// Names of the module that the state lacks: their Tensors stay as they are.
    pub missing: Vec<String>,
    /// Names of the state that the module lacks.
    pub unexpected: Vec<String>,
}

/// Assigns a state to a module's Tensors, and computes them: the file it came from may change afterwards. Names, shapes
/// and dtypes must agree exactly; only PyTorch's counts of batches (`num_batches_tracked`), which a plain batch norm
/// here does not have, are passed by.
///
/// # Errors
/// A name is missing or unknown, or a shape or dtype differs. Nothing was assigned then.
#[doc(alias = "load_state_dict")]
pub fn load_into(module: &dyn Module, state: &StateDict) -> Result<(), StateError> {
    load_into_with(module, state, Loading::default()).map(drop)
}

/// As [`load_into`], with the strictness chosen; returns which names found no partner.
///
/// # Errors
/// A shape differs, or a dtype unless they are cast; if strict, a name is missing or unknown. Nothing was assigned
/// then.
pub fn load_into_with(module: &dyn Module, state: &StateDict, how: Loading) -> Result<Loaded, StateError> {
    let own = module.state_dict();
    let missing: Vec<String> = own.keys().filter(|n| !state.contains_key(*n)).cloned().collect();
    let counts = |n: &str| n == "num_batches_tracked" || n.ends_with(".num_batches_tracked");
    let unexpected: Vec<String> = state.keys().filter(|n| !own.contains_key(*n) && !counts(n)).cloned().collect();
    if how.strict {
        if let Some(name) = missing.first() {
            return Err(StateError::Missing { name: name.clone(), has: state.keys().cloned().collect() });
        }
        if let Some(name) = unexpected.first() {
            return Err(StateError::Unknown { name: name.clone(), has: own.keys().cloned().collect() });
        }
    }
    let both = || own.iter().filter_map(|(name, to)| state.get(name).map(|from| (name, to, from)));
    for (name, to, from) in both() {
        let ((fs, ft), (ts, tt)) = (facts(name, from)?, facts(name, to)?);
        if fs != ts || ft != tt && !how.cast {
            let (found, wanted) = (described(&fs, ft), described(&ts, tt));
            return Err(StateError::Mismatch { name: name.clone(), found, wanted });
        }
    }
    let mut assigned = Vec::new();
    for (_, to, from) in both() {
        use crate::tensor::Elementwise;
        let here = from.shard_like(to);
        assigned.push(to.assign(&to.dtype().map_or(here.clone(), |t| here.cast(t))).clone());
    }
    Tensor::realize_all(&assigned).map_err(|e| StateError::Compute(Box::new(e)))?;
    Ok(Loaded { missing, unexpected })
}

/// The state under other names; a Tensor for which `name` returns `None` is left out.
///
/// # Errors
/// Two Tensors would have one name.
pub fn renamed(state: &StateDict, name: impl Fn(&str) -> Option<String>) -> Result<StateDict, StateError> {
    let mut out = StateDict::new();
    let mut origin: std::collections::BTreeMap<String, &str> = std::collections::BTreeMap::new();
    for (old, t) in state {
        let Some(new) = name(old) else { continue };
        if let Some(first) = origin.insert(new.clone(), old) {
            return Err(StateError::SameName { name: new, first: first.into(), second: old.clone() });
        }
        out.insert(new, t.clone());
    }
    Ok(out)
}
