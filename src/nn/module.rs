//! The interface of a layer or model: its Tensors by name, and which of them are trained.

use crate::tensor::Tensor;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

/// Tensors by dotted name, as in a safetensors file.
pub type StateDict = BTreeMap<String, Tensor>;

/// Something with named Tensors. A model implements `visit` by handing each field on under its name;
/// [`module!`](crate::module) writes that.
///
/// A Tensor that asks for a gradient ([`Tensor::requires_grad`]) is a parameter, every other one is a buffer: running
/// statistics, frozen weights, tables.
pub trait Module {
    /// Calls `f` with the name (below `prefix`) and handle of every Tensor: parameters and buffers.
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(String, &Tensor));

    /// The Tensors that ask for a gradient, each once, in the order of `visit`, for an optimiser. The list knows the
    /// buffers too: a step of the optimiser realizes what the forward pass has assigned to them.
    fn parameters(&self) -> Parameters {
        let mut list = Parameters::default();
        self.visit("", &mut |name, t| list.add(Some(name), t));
        list
    }
    /// The Tensors that do not ask for a gradient, each once, in the order of `visit`.
    fn buffers(&self) -> Vec<Tensor> {
        self.parameters().buffers
    }
    /// All Tensors, each once, in the order of `visit`: what is to be realized before training, for example.
    fn tensors(&self) -> Vec<Tensor> {
        let mut list: Vec<Tensor> = Vec::new();
        self.visit("", &mut |_, t| {
            if !list.iter().any(|o| o.is(t)) {
                list.push(t.clone());
            }
        });
        list
    }
    /// All Tensors by name.
    fn state_dict(&self) -> StateDict {
        let mut dict = StateDict::new();
        self.visit("", &mut |name, t| {
            dict.insert(name, t.clone());
        });
        dict
    }
    /// Number of elements of all parameters; Tensors that are faulty or symbolic count as 0.
    fn parameter_count(&self) -> usize {
        let size = |t: &Tensor| {
            let shape = t.shape().unwrap_or_default();
            shape.iter().map(|d| d.as_int().and_then(|n| usize::try_from(n).ok())).product::<Option<usize>>()
        };
        self.parameters().iter().filter(|t| t.shape().is_ok()).filter_map(size).sum()
    }
    /// Takes every parameter out of training: it asks for no gradient any more and becomes a buffer.
    fn freeze(&self) {
        self.visit("", &mut |_, t| t.set_requires_grad(false));
    }
}

/// What an optimiser moves, and what it realizes besides.
///
/// Made by [`Module::parameters`], or from Tensors: `&[w, b]`, `&list`, `vec![..]`. It can be read as the slice of the
/// parameters.
#[derive(Clone, Debug, Default)]
pub struct Parameters {
    /// Names for messages; `None` for a plain Tensor.
    pub(crate) names: Vec<Option<String>>,
    pub(crate) list: Vec<Tensor>,
    pub(crate) buffers: Vec<Tensor>,
}

impl Parameters {
    /// Sorts Tensors of one list by whether they ask for a gradient, each once: those that do are parameters, the
    /// others buffers.
    pub fn sorted(tensors: impl IntoIterator<Item = Tensor>) -> Parameters {
        let mut list = Parameters::default();
        tensors.into_iter().for_each(|t| list.add(None, &t));
        list
    }
    /// These and those of `other`: two models under one optimiser.
    pub fn and(mut self, other: impl Into<Parameters>) -> Parameters {
        let other = other.into();
        self.names.extend(other.names);
        self.list.extend(other.list);
        self.buffers.extend(other.buffers);
        self
    }
    /// Adds Tensors that a step realizes without moving them.
    pub fn with_buffers(mut self, buffers: &[Tensor]) -> Parameters {
        self.buffers.extend_from_slice(buffers);
        self
    }
    /// Only the parameters whose name passes; plain Tensors are named by their index, `0`, `1`, ... The buffers
    /// stay: in two groups of one model, they are realized by either.
    pub fn filtered(&self, keep: impl Fn(&str) -> bool) -> Parameters {
        let mut out = Parameters { buffers: self.buffers.clone(), ..Parameters::default() };
        for (k, (name, t)) in self.names.iter().zip(&self.list).enumerate() {
            if keep(name.as_deref().unwrap_or(&k.to_string())) {
                out.names.push(name.clone());
                out.list.push(t.clone());
            }
        }
        out
    }
    /// Tensors that a step realizes without moving them.
    pub fn buffers(&self) -> &[Tensor] {
        &self.buffers
    }
    /// The parameters as a plain list.
    pub fn to_vec(&self) -> Vec<Tensor> {
        self.list.clone()
    }
    fn add(&mut self, name: Option<String>, t: &Tensor) {
        if self.list.iter().chain(&self.buffers).any(|o| o.is(t)) {
            return;
        }
        if t.wants_grad() {
            self.names.push(name);
            self.list.push(t.clone());
        } else {
            self.buffers.push(t.clone());
        }
    }
}

impl Deref for Parameters {
    type Target = [Tensor];
    fn deref(&self) -> &[Tensor] {
        &self.list
    }
}
impl IntoIterator for Parameters {
    type Item = Tensor;
    type IntoIter = std::vec::IntoIter<Tensor>;
    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}
impl<'a> IntoIterator for &'a Parameters {
    type Item = &'a Tensor;
    type IntoIter = std::slice::Iter<'a, Tensor>;
    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}
impl From<Vec<Tensor>> for Parameters {
    fn from(list: Vec<Tensor>) -> Parameters {
        Parameters { names: vec![None; list.len()], list, buffers: Vec::new() }
    }
}
impl From<&[Tensor]> for Parameters {
    fn from(list: &[Tensor]) -> Parameters {
        list.to_vec().into()
    }
}
impl From<&Vec<Tensor>> for Parameters {
    fn from(list: &Vec<Tensor>) -> Parameters {
        list.clone().into()
    }
}
impl<const N: usize> From<[Tensor; N]> for Parameters {
    fn from(list: [Tensor; N]) -> Parameters {
        Vec::from(list).into()
    }
}
impl<const N: usize> From<&[Tensor; N]> for Parameters {
    fn from(list: &[Tensor; N]) -> Parameters {
        list.to_vec().into()
    }
}
impl From<&Parameters> for Parameters {
    fn from(list: &Parameters) -> Parameters {
        list.clone()
    }
}

/// `name` below `prefix`.
pub(crate) fn named(prefix: &str, name: &str) -> String {
    match (prefix, name) {
        ("", name) => name.to_string(),
        (prefix, "") => prefix.to_string(),
        (prefix, name) => format!("{prefix}.{name}"),
    }
}

/// A field that is one Tensor.
impl Module for Tensor {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(String, &Tensor)) {
        f(prefix.to_string(), self);
    }
}
impl<M: Module> Module for Option<M> {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(String, &Tensor)) {
        if let Some(m) = self {
            m.visit(prefix, f);
        }
    }
}
/// Elements of a list, under their numbers.
fn visit_all<'a>(
    list: impl IntoIterator<Item = &'a (impl Module + 'a)>,
    prefix: &str,
    f: &mut dyn FnMut(String, &Tensor),
) {
    for (k, m) in list.into_iter().enumerate() {
        m.visit(&named(prefix, &k.to_string()), f);
    }
}
/// Elements are named by their number.
impl<M: Module> Module for Vec<M> {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(String, &Tensor)) {
        visit_all(self, prefix, f);
    }
}
/// Elements are named by their number.
impl<M: Module, const N: usize> Module for [M; N] {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(String, &Tensor)) {
        visit_all(self, prefix, f);
    }
}
/// Elements are named by their key.
impl<K: std::fmt::Display, M: Module> Module for BTreeMap<K, M> {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(String, &Tensor)) {
        for (name, m) in self {
            m.visit(&named(prefix, &name.to_string()), f);
        }
    }
}
impl Module for [(&str, &dyn Module)] {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(String, &Tensor)) {
        for (name, m) in self {
            m.visit(&named(prefix, name), f);
        }
    }
}
/// Types that hold a module.
macro_rules! holders {
    ($($t:ty),*) => {$(
        impl<M: Module + ?Sized> Module for $t {
            fn visit(&self, prefix: &str, f: &mut dyn FnMut(String, &Tensor)) {
                (**self).visit(prefix, f);
            }
        }
    )*};
}
holders!(&M, Box<M>, Rc<M>, Arc<M>);
/// Tuples: elements are named by their number.
macro_rules! tuples {
    ($($($m:ident $k:tt)*;)*) => {$(
        impl<$($m: Module),*> Module for ($($m,)*) {
            fn visit(&self, prefix: &str, f: &mut dyn FnMut(String, &Tensor)) {
                $(self.$k.visit(&named(prefix, stringify!($k)), f);)*
            }
        }
    )*};
}
tuples! {
    A 0;
    A 0 B 1;
    A 0 B 1 C 2;
    A 0 B 1 C 2 D 3;
    A 0 B 1 C 2 D 3 E 4;
    A 0 B 1 C 2 D 3 E 4 F 5;
    A 0 B 1 C 2 D 3 E 4 F 5 G 6;
    A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7;
}

/// Implements [`Module`](crate::nn::Module) for a struct by the names of its fields: Tensors, layers, and Options,
/// Vecs, arrays, tuples, Boxes and maps of them. Every field stands in one of the two lists, so that none is forgotten:
/// fields with Tensors first, then, after `skip`, the plain ones (`module!(Name { skip a, b })` where all are plain).
///
/// ```
/// use doorbell::nn::{Linear, Module};
///
/// struct Net {
///     body: [Linear; 2],
///     head: (Linear, Option<Linear>),
///     width: usize,
/// }
/// doorbell::module!(Net { body, head; skip width });
///
/// let net = Net {
///     body: [Linear::new(4, 8), Linear::new(8, 8).without_bias()],
///     head: (Linear::new(8, 2), None),
///     width: 8,
/// };
/// assert_eq!(
///     net.state_dict().into_keys().collect::<Vec<_>>(),
///     ["body.0.bias", "body.0.weight", "body.1.weight", "head.0.bias", "head.0.weight"]
/// );
/// assert_eq!((net.parameters().len(), net.parameter_count(), net.width), (5, 40 + 64 + 18, 8));
/// ```
#[macro_export]
macro_rules! module {
    ($t:ty { skip $($plain:tt),* $(,)? }) => {
        impl $crate::nn::Module for $t {
            fn visit(&self, _: &str, _: &mut dyn FnMut(String, &$crate::tensor::Tensor)) {
                let Self { $($plain: _,)* } = self;
            }
        }
    };
    ($t:ty { $($field:tt),* $(,)? $(; skip $($plain:tt),* $(,)?)? }) => {
        impl $crate::nn::Module for $t {
            fn visit(&self, prefix: &str, f: &mut dyn FnMut(String, &$crate::tensor::Tensor)) {
                // A field in neither list is an error here.
                let Self { $($field: _,)* $($($plain: _,)*)? } = self;
                $(
                    let name = if prefix.is_empty() { stringify!($field).to_string() } else { format!("{prefix}.{}", stringify!($field)) };
                    $crate::nn::Module::visit(&self.$field, &name, f);
                )*
                let _ = (prefix, f);
            }
        }
    };
}
