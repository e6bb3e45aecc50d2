//! Functions of `metal_stdlib` that touch memory or other threads: barriers, atomics, simdgroups and their matrices.

use super::Parser;
use crate::error::{Pos, Res, fail};
use crate::tree::{Expr, Kind};
use crate::types::{Scalar, Space, Tid, Ty, Types};

#[rustfmt::skip]
const NAMES: &[&str] = &[
    "threadgroup_barrier", "simdgroup_barrier", "atomic_thread_fence",
    "atomic_load_explicit", "atomic_store_explicit", "atomic_exchange_explicit",
    "atomic_fetch_add_explicit", "atomic_fetch_sub_explicit", "atomic_fetch_and_explicit",
    "atomic_fetch_or_explicit", "atomic_fetch_xor_explicit", "atomic_fetch_min_explicit", "atomic_fetch_max_explicit",
    "atomic_min_explicit", "atomic_max_explicit", "atomic_compare_exchange_weak_explicit",
    "simd_sum", "simd_product", "simd_min", "simd_max", "simd_and", "simd_or", "simd_xor",
    "simd_prefix_inclusive_sum", "simd_prefix_exclusive_sum",
    "simd_prefix_inclusive_product", "simd_prefix_exclusive_product",
    "simd_shuffle", "simd_shuffle_up", "simd_shuffle_down", "simd_shuffle_xor",
    "simd_shuffle_rotate_up", "simd_shuffle_rotate_down", "simd_broadcast", "simd_broadcast_first",
    "simd_any", "simd_all", "simd_ballot", "simd_is_first", "simd_active_threads_mask",
    "simdgroup_load", "simdgroup_store", "simdgroup_multiply", "simdgroup_multiply_accumulate",
];

pub(super) fn name_of(word: &str) -> Option<&'static str> {
    NAMES.iter().copied().find(|n| *n == word)
}

/// Whether it is more than a function of its arguments' values.
pub(super) fn has_effect(name: &str) -> bool {
    name_of(name).is_some() || matches!(name, "modf" | "sincos" | "frexp")
}

impl Parser {
    pub(crate) fn sync_builtin(&mut self, name: &'static str, args: Vec<Expr>, at: Pos) -> Res<Expr> {
        if name.ends_with("_barrier") || name == "atomic_thread_fence" {
            let good = args.iter().all(|a| matches!(self.types.get(a.ty), Ty::Enum(0..3)));
            return match (good, args.first().map(|a| self.types.get(a.ty))) {
                (true, Some(Ty::Enum(0))) => self.value(Kind::Builtin(name, args), Types::VOID, at),
                _ => self.no_match(name, &args, at),
            };
        }
        if name.starts_with("atomic_") {
            return self.atomic(name, args, at);
        }
        if name.starts_with("simdgroup_") {
            return self.matrix(name, args, at);
        }
        self.simd(name, args, at)
    }

    fn atomic(&mut self, name: &'static str, mut args: Vec<Expr>, at: Pos) -> Res<Expr> {
        let orders = if name.contains("compare") { 2 } else { 1 };
        let values = match name {
            "atomic_load_explicit" => 0,
            "atomic_compare_exchange_weak_explicit" => 2,
            _ => 1,
        };
        if args.len() < 1 + values + orders || args.len() > 2 + values + orders {
            return self.no_match(name, &args, at);
        }
        let tail = args.split_off(1 + values);
        if !tail.iter().all(|a| matches!(self.types.get(a.ty), Ty::Enum(1..3))) {
            return fail(at, format!("'{name}' needs a memory_order"));
        }
        args[0] = self.decay(args[0].clone())?;
        let Ty::Ptr { to, space, constant } = self.types.get(args[0].ty) else { return self.no_match(name, &args, at) };
        let Ty::Atomic(scalar) = self.types.get(to) else { return self.no_match(name, &args, at) };
        let load = name == "atomic_load_explicit";
        if !matches!(space, Space::Device | Space::Threadgroup) || (constant && !load) {
            return self.no_match(name, &args, at);
        }
        let order = name.contains("_load_") || name.contains("_store_") || name.contains("exchange");
        let arithmetic = name.contains("_add_") || name.contains("_sub_");
        let fits = match scalar {
            Scalar::Int | Scalar::UInt => true,
            Scalar::Float => order || (arithmetic && space == Space::Device),
            Scalar::ULong => name.contains("_min_") || name.contains("_max_"),
            _ => order,
        };
        if !fits {
            return self.no_match(name, &args, at);
        }
        let value = Types::scalar_id(scalar);
        let mut made = vec![args.remove(0)];
        if name.contains("compare") {
            let expected = self.types.ptr(value, Space::Thread, false);
            let place = self.decay(args.remove(0))?;
            made.push(self.implicit(place, expected, name)?);
        }
        for arg in args {
            made.push(self.implicit(arg, value, name)?);
        }
        let ret = match name {
            "atomic_store_explicit" | "atomic_min_explicit" | "atomic_max_explicit" => Types::VOID,
            "atomic_compare_exchange_weak_explicit" => Types::scalar_id(Scalar::Bool),
            _ => value,
        };
        self.value(Kind::Builtin(name, made), ret, at)
    }

    fn simd(&mut self, name: &'static str, mut args: Vec<Expr>, at: Pos) -> Res<Expr> {
        let (bool_id, ulong) = (Types::scalar_id(Scalar::Bool), Types::scalar_id(Scalar::ULong));
        let count = match name {
            "simd_is_first" | "simd_active_threads_mask" => 0,
            _ if (name.starts_with("simd_shuffle") || name == "simd_broadcast") => 2,
            _ => 1,
        };
        if args.len() != count {
            return self.no_match(name, &args, at);
        }
        match name {
            "simd_is_first" => return self.value(Kind::Builtin(name, args), bool_id, at),
            "simd_active_threads_mask" => return self.value(Kind::Builtin(name, args), ulong, at),
            "simd_any" | "simd_all" | "simd_ballot" => {
                let test = self.condition(args.remove(0))?;
                let ret = if name == "simd_ballot" { ulong } else { bool_id };
                return self.value(Kind::Builtin(name, vec![test]), ret, at);
            }
            _ => {}
        }
        let (scalar, lanes) = match self.types.get(args[0].ty) {
            Ty::Scalar(s) => (s, 1),
            Ty::Vec(s, n) => (s, n),
            _ => return self.no_match(name, &args, at),
        };
        let bitwise = matches!(name, "simd_and" | "simd_or" | "simd_xor");
        let missing = matches!(scalar, Scalar::Bool | Scalar::BFloat | Scalar::Long | Scalar::ULong);
        if missing || (bitwise && scalar.is_float()) {
            return self.no_match(name, &args, at);
        }
        let ty = self.types.vec(scalar, lanes);
        if count == 2 {
            let lane = self.implicit(args[1].clone(), Types::scalar_id(Scalar::UShort), name)?;
            args[1] = lane;
        }
        self.value(Kind::Builtin(name, args), ty, at)
    }

    fn matrix(&mut self, name: &'static str, args: Vec<Expr>, at: Pos) -> Res<Expr> {
        let scalar = |p: &Self, e: &Expr| match p.types.get(e.ty) {
            Ty::Simd(scalar) => Some(scalar),
            _ => None,
        };
        if name == "simdgroup_load" || name == "simdgroup_store" {
            return self.matrix_memory(name, args, at);
        }
        let count = if name == "simdgroup_multiply" { 3 } else { 4 };
        if args.len() != count || args.iter().any(|a| scalar(self, a).is_none()) {
            return self.no_match(name, &args, at);
        }
        self.assignable(&args[0], at)?;
        let kinds: Vec<Scalar> = args.iter().filter_map(|a| scalar(self, a)).collect();
        let good = kinds[1] == kinds[2]
            && (kinds[0] == kinds[1] || kinds[0] == Scalar::Float)
            && kinds.get(3).is_none_or(|c| *c == kinds[0]);
        if !good {
            return self.no_match(name, &args, at);
        }
        self.value(Kind::Builtin(name, args), Types::VOID, at)
    }

    fn matrix_memory(&mut self, name: &'static str, args: Vec<Expr>, at: Pos) -> Res<Expr> {
        if !(2..=5).contains(&args.len()) {
            return self.no_match(name, &args, at);
        }
        let Ty::Simd(scalar) = self.types.get(args[0].ty) else { return self.no_match(name, &args, at) };
        let load = name == "simdgroup_load";
        if load {
            self.assignable(&args[0], at)?;
        }
        let shown = args.clone();
        let mut args = args.into_iter();
        let (Some(matrix), Some(pointer)) = (args.next(), args.next()) else { return fail(at, "too few arguments") };
        let pointer = self.decay(pointer)?;
        let good = match self.types.get(pointer.ty) {
            Ty::Ptr { to, space: Space::Device | Space::Threadgroup, constant } => {
                to == Types::scalar_id(scalar) && (load || !constant)
            }
            _ => false,
        };
        if !good {
            return self.no_match(name, &shown, at);
        }
        let ulong = Types::scalar_id(Scalar::ULong);
        let stride = match args.next() {
            Some(stride) => self.implicit(stride, ulong, name)?,
            None => self.constant(Scalar::ULong, 8, at)?,
        };
        let origin: Tid = self.types.vec(Scalar::ULong, 2);
        let origin = match args.next() {
            Some(place) => self.implicit(place, origin, name)?,
            None => self.value(Kind::Zero, origin, at)?,
        };
        let transpose = match args.next() {
            Some(flag) => self.condition(flag)?,
            None => self.constant(Scalar::Bool, 0, at)?,
        };
        self.value(Kind::Builtin(name, vec![matrix, pointer, stride, origin, transpose]), Types::VOID, at)
    }
}
