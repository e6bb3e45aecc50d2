//! Functions of the library with effects: barriers, atomics, simdgroups, second results.

use super::Lower;
use crate::code::{Bin, Inst, Math, Memory, Reduce, Rmw, Row, Shuffle, Un, Vote};
use crate::error::{Res, fail};
use crate::tree::{Binary, Expr, Kind};
use crate::types::{Scalar, Ty};

/// `mem_flags::mem_threadgroup`
const MEM_THREADGROUP: u64 = 2;

fn rmw(name: &str, scalar: Scalar) -> Option<Rmw> {
    let signed = scalar.is_signed();
    let float = scalar.is_float();
    Some(match name.strip_prefix("atomic_")?.strip_suffix("_explicit")? {
        "load" => Rmw::Load,
        "store" => Rmw::Store,
        "exchange" => Rmw::Exchange,
        "fetch_add" if float => Rmw::AddF,
        "fetch_sub" if float => Rmw::SubF,
        "fetch_add" => Rmw::Add,
        "fetch_sub" => Rmw::Sub,
        "fetch_and" => Rmw::And,
        "fetch_or" => Rmw::Or,
        "fetch_xor" => Rmw::Xor,
        "fetch_min" | "min" if signed => Rmw::MinS,
        "fetch_max" | "max" if signed => Rmw::MaxS,
        "fetch_min" | "min" => Rmw::MinU,
        "fetch_max" | "max" => Rmw::MaxU,
        _ => return None,
    })
}

fn reduce(name: &str) -> Option<Reduce> {
    Some(match name {
        "simd_sum" => Reduce::Sum,
        "simd_product" => Reduce::Product,
        "simd_min" => Reduce::Min,
        "simd_max" => Reduce::Max,
        "simd_and" => Reduce::And,
        "simd_or" => Reduce::Or,
        "simd_xor" => Reduce::Xor,
        "simd_prefix_inclusive_sum" => Reduce::InclusiveSum,
        "simd_prefix_exclusive_sum" => Reduce::ExclusiveSum,
        "simd_prefix_inclusive_product" => Reduce::InclusiveProduct,
        "simd_prefix_exclusive_product" => Reduce::ExclusiveProduct,
        _ => return None,
    })
}

fn shuffle(name: &str) -> Option<Shuffle> {
    Some(match name {
        "simd_shuffle" | "simd_broadcast" => Shuffle::To,
        "simd_shuffle_up" => Shuffle::Up,
        "simd_shuffle_down" => Shuffle::Down,
        "simd_shuffle_xor" => Shuffle::Xor,
        "simd_shuffle_rotate_up" => Shuffle::RotateUp,
        "simd_shuffle_rotate_down" => Shuffle::RotateDown,
        "simd_broadcast_first" => Shuffle::First,
        _ => return None,
    })
}

fn vote(name: &str) -> Option<Vote> {
    Some(match name {
        "simd_any" => Vote::Any,
        "simd_all" => Vote::All,
        "simd_ballot" => Vote::Ballot,
        "simd_is_first" => Vote::First,
        "simd_active_threads_mask" => Vote::Active,
        _ => return None,
    })
}

impl Lower<'_> {
    pub(crate) fn effect(&mut self, name: &str, args: &[Expr], e: &Expr) -> Res<Row> {
        match name {
            "threadgroup_barrier" => {
                self.at = e.at;
                // A flag that is not known orders all memory.
                let orders = match args.first().map(|a| &a.kind) {
                    Some(Kind::Const(flags)) => flags & MEM_THREADGROUP != 0,
                    _ => true,
                };
                self.emit(Inst::Barrier { orders });
                return Ok(0);
            }
            // Lanes run in step, and memory has one order.
            "simdgroup_barrier" | "atomic_thread_fence" => return Ok(0),
            "modf" | "sincos" | "frexp" => return self.second_result(name, args, e),
            "atomic_compare_exchange_weak_explicit" => return self.compare_exchange(args, e),
            _ => {}
        }
        if name.starts_with("simdgroup_") || name.starts_with("make_filled") {
            return self.matrix(name, args, e);
        }
        if let Some(op) = vote(name) {
            let c = if let [test] = args { self.value(test)? } else { 0 };
            self.at = e.at;
            let d = self.alloc_for(e.ty);
            self.emit(Inst::Vote { op, d, c });
            return Ok(d);
        }
        if name.starts_with("atomic_") {
            return self.atomic(name, args, e);
        }
        let (scalar, n) = self.parts(e.ty);
        let a = self.value(&args[0])?;
        let lane = if let Some(lane) = args.get(1) { self.value(lane)? } else { 0 };
        self.at = e.at;
        let d = self.alloc_for(e.ty);
        if let Some(op) = reduce(name) {
            self.emit(Inst::Reduce { op, d, a, n, scalar });
            self.fit(scalar, d, n);
        } else if let Some(op) = shuffle(name) {
            self.emit(Inst::Shuffle { op, d, a, lane, n });
        } else {
            return fail(e.at, format!("'{name}' is not supported"));
        }
        Ok(d)
    }

    fn atomic(&mut self, name: &str, args: &[Expr], e: &Expr) -> Res<Row> {
        let Ty::Ptr { to, .. } = self.types.get(args[0].ty) else { return fail(e.at, "not a pointer") };
        let Ty::Atomic(scalar) = self.types.get(to) else { return fail(e.at, "not an atomic") };
        let Some(op) = rmw(name, scalar) else { return fail(e.at, format!("'{name}' is not supported")) };
        let p = self.value(&args[0])?;
        let v = if let Some(value) = args.get(1) { self.value(value)? } else { p };
        self.at = e.at;
        let wide = scalar.is_wide();
        let d = self.alloc(scalar.rows());
        self.emit(Inst::Atomic { op, d, p, v, wide });
        Ok(d)
    }

    fn compare_exchange(&mut self, args: &[Expr], e: &Expr) -> Res<Row> {
        let (p, place, v) = (self.value(&args[0])?, self.value(&args[1])?, self.value(&args[2])?);
        self.at = e.at;
        let expected = self.alloc(1);
        self.emit(Inst::Load { d: expected, p: place, off: 0, kind: Memory::Word, n: 1, align: 4 });
        let d = self.alloc(1);
        self.emit(Inst::AtomicCas { d, p, expected, v });
        // The old value, which is what it was compared with where it was stored.
        self.emit(Inst::Store { p: place, s: expected, off: 0, kind: Memory::Word, n: 1, align: 4 });
        Ok(d)
    }

    /// `modf(x, whole)`, `sincos(x, cosine)`, `frexp(x, exponent)`
    fn second_result(&mut self, name: &str, args: &[Expr], e: &Expr) -> Res<Row> {
        let (scalar, n) = self.parts(args[0].ty);
        let x = self.value(&args[0])?;
        let to = self.place(&args[1])?;
        self.at = e.at;
        let (first, second) = match name {
            "modf" => {
                let whole = self.un(Un::Math(Math::Trunc), x, n);
                let rest = self.binary(Binary::Sub, scalar, n, (x, whole), None)?;
                // The sign stays where nothing is left, and infinity leaves nothing.
                let zero = self.constant(0);
                let zeros = self.alloc(n);
                self.emit(Inst::Splat { d: zeros, a: zero, n, rows: 1 });
                let infinite = self.un(Un::IsInf, x, n);
                let rest = self.select(infinite, zeros, rest, n);
                (self.bin(Bin::CopySign, rest, x, n), whole)
            }
            "sincos" => (self.un(Un::Math(Math::Sin), x, n), self.un(Un::Math(Math::Cos), x, n)),
            _ => (self.un(Un::Math(Math::FrexpFraction), x, n), self.un(Un::FrexpExponent, x, n)),
        };
        self.fit(scalar, first, n);
        if name != "frexp" {
            self.fit(scalar, second, n);
        }
        self.write(&to, args[1].ty, second)?;
        Ok(first)
    }

    fn matrix(&mut self, name: &str, args: &[Expr], e: &Expr) -> Res<Row> {
        match name {
            "make_filled_simdgroup_matrix" => {
                let a = self.value(&args[0])?;
                self.at = e.at;
                let d = self.alloc(2);
                self.emit(Inst::MatrixFill { d, a });
                Ok(d)
            }
            "simdgroup_load" | "simdgroup_store" => self.matrix_memory(name == "simdgroup_load", args, e),
            _ => {
                let (a, b) = (self.value(&args[1])?, self.value(&args[2])?);
                let c = if let Some(c) = args.get(3) {
                    self.value(c)?
                } else {
                    let c = self.alloc(2);
                    self.emit(Inst::Const { d: c, v: 0 });
                    self.emit(Inst::Const { d: c + 1, v: 0 });
                    c
                };
                let to = self.place(&args[0])?;
                self.at = e.at;
                let (round, _) = self.parts(args[0].ty);
                let d = self.alloc(2);
                self.emit(Inst::MatrixMul { d, a, b, c, round });
                self.write(&to, args[0].ty, d)?;
                Ok(0)
            }
        }
    }

    fn matrix_memory(&mut self, load: bool, args: &[Expr], e: &Expr) -> Res<Row> {
        let (scalar, _) = self.parts(args[0].ty);
        let kind = Memory::of(scalar);
        let p = self.value(&args[1])?;
        let rows = self.alloc(7);
        let mut at = rows;
        for arg in &args[2..] {
            let n = self.types.rows(arg.ty);
            let a = self.value_to(arg, Some(at))?;
            self.move_into(at, a, arg.ty);
            at += n;
        }
        if load {
            let to = self.place(&args[0])?;
            self.at = e.at;
            let d = self.alloc(2);
            self.emit(Inst::MatrixLoad { d, p, args: rows, kind });
            self.write(&to, args[0].ty, d)?;
        } else {
            let s = self.value(&args[0])?;
            self.at = e.at;
            self.emit(Inst::MatrixStore { s, p, args: rows, kind });
        }
        Ok(0)
    }
}
