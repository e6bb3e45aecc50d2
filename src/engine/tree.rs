//! What a recorded function takes and gives: Tensors by themselves, or nested in arrays, tuples, maps and structs.
//!
//! ```
//! use doorbell::{Jit, Tensor};
//! use doorbell::tensor::prelude::*;
//!
//! struct State {
//!     sum: Tensor,
//!     count: Tensor,
//! }
//! doorbell::tree!(State { sum, count });
//!
//! let mut step = Jit::new(|(s, x): &(State, Tensor)| State { sum: &s.sum + x, count: &s.count + 1.0 });
//! let mut state = State { sum: Tensor::zeros([2]), count: Tensor::zeros([1]) };
//! for _ in 0..4 {
//!     // Recorded at the second call, replayed from the third.
//!     state = step.call(&(state, Tensor::new([1.0f32, 2.0])))?;
//! }
//! assert_eq!(state.sum.to_vec::<f32>()?, [4.0, 8.0]);
//! assert_eq!(state.count.item()?, 4.0);
//! # Ok::<(), doorbell::Error>(())
//! ```

use super::Error;
use crate::tensor::Tensor;
use crate::uop::UOp;
use std::borrow::{Borrow, Cow};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{BuildHasher, Hash};

/// One part of an input or result.
#[derive(Clone)]
pub enum Leaf<'a> {
    /// A Tensor.
    Tensor(&'a Tensor),
    /// A bound variable, or an expression of such: its value may differ from call to call.
    Size(&'a UOp),
    /// What is frozen at the recording: a later call with another value is refused.
    Fixed(Fixed<'a>),
}

/// A value that is no Tensor.
#[derive(Clone, PartialEq, Debug)]
pub enum Fixed<'a> {
    /// A truth value, or which variant an enum has.
    Bool(bool),
    /// An integer.
    Int(i128),
    /// By its bits.
    Float(u64),
    /// A text, or the name of a map's entry.
    Text(Cow<'a, str>),
}

impl Fixed<'_> {
    pub(super) fn kept(self) -> Fixed<'static> {
        match self {
            Fixed::Bool(b) => Fixed::Bool(b),
            Fixed::Int(i) => Fixed::Int(i),
            Fixed::Float(bits) => Fixed::Float(bits),
            Fixed::Text(text) => Fixed::Text(text.into_owned().into()),
        }
    }
}
impl fmt::Display for Fixed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fixed::Bool(b) => write!(f, "{b}"),
            Fixed::Int(i) => write!(f, "{i}"),
            Fixed::Float(bits) => write!(f, "{:?}", f64::from_bits(*bits)),
            Fixed::Text(text) => write!(f, "{text:?}"),
        }
    }
}

/// Something with Tensors in it: what a [`Jit`](super::Jit) takes and gives. [`tree!`](crate::tree) implements it for a
/// struct.
pub trait Tree {
    /// The same with other Tensors in it; of a slice a Vec, of everything else the type itself.
    type Owned: Borrow<Self>;
    /// Every part, always in the same order.
    fn visit<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>));
    /// A name for every part, in the order of `visit`, below `prefix`.
    fn names(&self, prefix: &str, out: &mut Vec<String>);
    /// The same with other Tensors: `make` is called with each in the order of `visit`.
    fn map(&self, make: &mut dyn FnMut(&Tensor) -> Tensor) -> Self::Owned;
}

/// `name` below `prefix`.
#[doc(hidden)]
#[must_use]
pub fn part(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") }
}

impl Tree for Tensor {
    type Owned = Tensor;
    fn visit<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
        see(Leaf::Tensor(self));
    }
    fn names(&self, prefix: &str, out: &mut Vec<String>) {
        out.push(prefix.into());
    }
    fn map(&self, make: &mut dyn FnMut(&Tensor) -> Tensor) -> Tensor {
        make(self)
    }
}
impl Tree for UOp {
    type Owned = UOp;
    fn visit<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
        see(Leaf::Size(self));
    }
    fn names(&self, prefix: &str, out: &mut Vec<String>) {
        out.push(prefix.into());
    }
    fn map(&self, _make: &mut dyn FnMut(&Tensor) -> Tensor) -> UOp {
        self.clone()
    }
}

/// Plain values, which a recording freezes.
macro_rules! fixed {
    ($($t:ty => $make:expr;)*) => {$(
        impl Tree for $t {
            type Owned = $t;
            fn visit<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
                let make: for<'b> fn(&'b $t) -> Fixed<'b> = $make;
                see(Leaf::Fixed(make(self)));
            }
            fn names(&self, prefix: &str, out: &mut Vec<String>) {
                out.push(prefix.into());
            }
            fn map(&self, _make: &mut dyn FnMut(&Tensor) -> Tensor) -> $t {
                self.clone()
            }
        }
    )*};
}
fixed! {
    bool => |b| Fixed::Bool(*b);
    i32 => |i| Fixed::Int((*i).into());
    i64 => |i| Fixed::Int((*i).into());
    u32 => |i| Fixed::Int((*i).into());
    u64 => |i| Fixed::Int((*i).into());
    usize => |i| Fixed::Int(i128::try_from(*i).unwrap_or(i128::MAX));
    f32 => |x| Fixed::Float(f64::from(*x).to_bits());
    f64 => |x| Fixed::Float(x.to_bits());
    String => |s| Fixed::Text(s.as_str().into());
}

impl<T: Tree<Owned = T>> Tree for [T] {
    type Owned = Vec<T>;
    fn visit<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
        self.iter().for_each(|t| t.visit(see));
    }
    fn names(&self, prefix: &str, out: &mut Vec<String>) {
        self.iter().enumerate().for_each(|(k, t)| t.names(&part(prefix, &k.to_string()), out));
    }
    fn map(&self, make: &mut dyn FnMut(&Tensor) -> Tensor) -> Vec<T> {
        self.iter().map(|t| t.map(make)).collect()
    }
}
impl<T: Tree<Owned = T>> Tree for Vec<T> {
    type Owned = Vec<T>;
    fn visit<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
        self.as_slice().visit(see);
    }
    fn names(&self, prefix: &str, out: &mut Vec<String>) {
        self.as_slice().names(prefix, out);
    }
    fn map(&self, make: &mut dyn FnMut(&Tensor) -> Tensor) -> Vec<T> {
        self.as_slice().map(make)
    }
}
impl<T: Tree<Owned = T>, const N: usize> Tree for [T; N] {
    type Owned = [T; N];
    fn visit<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
        self.as_slice().visit(see);
    }
    fn names(&self, prefix: &str, out: &mut Vec<String>) {
        self.as_slice().names(prefix, out);
    }
    fn map(&self, make: &mut dyn FnMut(&Tensor) -> Tensor) -> [T; N] {
        self.each_ref().map(|t| t.map(make))
    }
}
impl<T: Tree<Owned = T>> Tree for Option<T> {
    type Owned = Option<T>;
    fn visit<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
        see(Leaf::Fixed(Fixed::Bool(self.is_some())));
        self.iter().for_each(|t| t.visit(see));
    }
    fn names(&self, prefix: &str, out: &mut Vec<String>) {
        out.push(format!("{prefix}.is_some()"));
        self.iter().for_each(|t| t.names(prefix, out));
    }
    fn map(&self, make: &mut dyn FnMut(&Tensor) -> Tensor) -> Option<T> {
        self.as_ref().map(|t| t.map(make))
    }
}
impl<T: Tree<Owned = T>> Tree for Box<T> {
    type Owned = Box<T>;
    fn visit<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
        (**self).visit(see);
    }
    fn names(&self, prefix: &str, out: &mut Vec<String>) {
        (**self).names(prefix, out);
    }
    fn map(&self, make: &mut dyn FnMut(&Tensor) -> Tensor) -> Box<T> {
        Box::new((**self).map(make))
    }
}

/// Maps by name; a call with other names is refused.
macro_rules! map {
    ($t:ty, $([$($more:tt)*])?) => {
        impl<K: AsRef<str> + Ord + Clone $($($more)*)?> Tree for $t {
            type Owned = $t;
            fn visit<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
                for (k, v) in by_name(self.iter()) {
                    see(Leaf::Fixed(Fixed::Text(k.as_ref().into())));
                    v.visit(see);
                }
            }
            fn names(&self, prefix: &str, out: &mut Vec<String>) {
                for (k, v) in by_name(self.iter()) {
                    out.push(prefix.into());
                    v.names(&part(prefix, k.as_ref()), out);
                }
            }
            fn map(&self, make: &mut dyn FnMut(&Tensor) -> Tensor) -> $t {
                by_name(self.iter()).into_iter().map(|(k, v)| (k.clone(), v.map(make))).collect()
            }
        }
    };
}
map!(BTreeMap<K, V>, [, V: Tree<Owned = V>]);
map!(HashMap<K, V, S>, [+ Hash, V: Tree<Owned = V>, S: BuildHasher + Default]);

fn by_name<'a, K: Ord, V>(entries: impl Iterator<Item = (&'a K, &'a V)>) -> Vec<(&'a K, &'a V)> {
    let mut all: Vec<_> = entries.collect();
    all.sort_by(|a, b| a.0.cmp(b.0));
    all
}

macro_rules! tuple {
    ($($t:ident $n:tt),*) => {
        impl<$($t: Tree<Owned = $t>),*> Tree for ($($t,)*) {
            type Owned = ($($t,)*);
            fn visit<'a>(&'a self, _see: &mut dyn FnMut(Leaf<'a>)) {
                $(self.$n.visit(_see);)*
            }
            fn names(&self, _prefix: &str, _out: &mut Vec<String>) {
                $(self.$n.names(&part(_prefix, stringify!($n)), _out);)*
            }
            #[allow(clippy::unused_unit)]
            fn map(&self, _make: &mut dyn FnMut(&Tensor) -> Tensor) -> Self {
                ($(self.$n.map(_make),)*)
            }
        }
    };
}
tuple!();
tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

/// Implements [`Tree`](crate::engine::Tree) for a struct by the names of all its fields, so that a
/// [`Jit`](crate::Jit) takes and gives it: `doorbell::tree!(State { hidden, cell })`.
#[macro_export]
macro_rules! tree {
    ($t:ident { $($field:ident),* $(,)? }) => {
        impl $crate::engine::Tree for $t {
            type Owned = $t;
            fn visit<'a>(&'a self, see: &mut dyn FnMut($crate::engine::Leaf<'a>)) {
                $($crate::engine::Tree::visit(&self.$field, see);)*
            }
            fn names(&self, prefix: &str, out: &mut ::std::vec::Vec<::std::string::String>) {
                $($crate::engine::Tree::names(
                    &self.$field,
                    &$crate::engine::part(prefix, stringify!($field)),
                    out,
                );)*
            }
            fn map(&self, make: &mut dyn FnMut(&$crate::tensor::Tensor) -> $crate::tensor::Tensor) -> $t {
                $t { $($field: $crate::engine::Tree::map(&self.$field, make)),* }
            }
        }
    };
}

/// What a recorded function returns: a [`Tree`], or a `Result` of one, with an error that [`Error`] goes into by `?`:
/// `Error` itself, `Box<dyn std::error::Error>`, or one of the program's own.
pub trait Outcome {
    /// What the recording gives at each call.
    type Value: Tree<Owned = Self::Value>;
    /// The error of a call.
    type Failure: From<Error>;
    /// # Errors
    /// The function's own.
    fn into_result(self) -> Result<Self::Value, Self::Failure>;
}
impl<T: Tree<Owned = T>> Outcome for T {
    type Value = T;
    type Failure = Error;
    fn into_result(self) -> Result<T, Error> {
        Ok(self)
    }
}
impl<T: Tree<Owned = T>, E: From<Error>> Outcome for Result<T, E> {
    type Value = T;
    type Failure = E;
    fn into_result(self) -> Result<T, E> {
        self
    }
}

/// The Tensors of a tree, as handles.
pub(super) fn tensors<T: Tree + ?Sized>(tree: &T) -> Vec<Tensor> {
    let mut all = Vec::new();
    tree.visit(&mut |leaf| {
        if let Leaf::Tensor(t) = leaf {
            all.push(t.clone());
        }
    });
    all
}

/// The tree with these Tensors in the place of its own, as many as there are.
pub(super) fn with_tensors<T: Tree + ?Sized>(tree: &T, tensors: &[Tensor]) -> T::Owned {
    let mut rest = tensors.iter();
    tree.map(&mut |own| rest.next().unwrap_or(own).clone())
}

/// Names of the parts of an input, as messages have them.
pub(super) fn shown<T: Tree + ?Sized>(tree: &T) -> Vec<String> {
    let mut names = Vec::new();
    tree.names("", &mut names);
    let show = |n: String| if n.is_empty() { "the input".into() } else { format!("input {n}") };
    names.into_iter().map(show).collect()
}
