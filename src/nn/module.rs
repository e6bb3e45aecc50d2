//! The interface of a layer or model: its Tensors by name.

use crate::tensor::Tensor;
use std::collections::BTreeMap;

/// Tensors by dotted name, as in a safetensors file.
pub type StateDict = BTreeMap<String, Tensor>;

/// Something with named Tensors. A model implements `visit` by handing each field on under its name.
pub trait Module {
    /// Calls `f` with the name (below `prefix`) and handle of every Tensor: parameters and state such as running means.
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(String, &Tensor));

    /// All Tensors in the order of `visit`.
    fn parameters(&self) -> Vec<Tensor> {
        let mut list = Vec::new();
        self.visit("", &mut |_, t| list.push(t.clone()));
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
}

/// `name` below `prefix`.
pub(crate) fn named(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") }
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
/// Elements are named by their number.
impl<M: Module> Module for Vec<M> {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(String, &Tensor)) {
        for (k, m) in self.iter().enumerate() {
            m.visit(&named(prefix, &k.to_string()), f);
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

/// Implements [`Module`] for a struct by the names of its fields.
#[macro_export]
macro_rules! module {
    ($t:ty { $($field:ident),* $(,)? }) => {
        impl $crate::nn::Module for $t {
            fn visit(&self, prefix: &str, f: &mut dyn FnMut(String, &$crate::tensor::Tensor)) {
                $(
                    let name = if prefix.is_empty() { stringify!($field).to_string() } else { format!("{prefix}.{}", stringify!($field)) };
                    $crate::nn::Module::visit(&self.$field, &name, f);
                )*
            }
        }
    };
}
