//! The door between `codegen` and `isa`: one kernel as a list of nodes in execution order.
//!
//! **What may stand in the list.** Each node once, after its sources. Scalars and vectors of strong dtypes (no WeakInt, no
//! WeakFloat, no fp8 arithmetic); index arithmetic is I64 on targets that say so (the CPU), else I32 where bounds allow.
//!
//! | op | meaning in the list |
//! |---|---|
//! | Param, Var | kernel arguments: address of a buffer, value of a variable (Var has an integer dtype here) |
//! | Special `tid` | which chunk of the Thread axis this call runs; below src[0] |
//! | Const, Splat, Stack, Gep, Cat, VReduce | values; a vector Const has the same value in each lane |
//! | Local | scratch of the workgroup (CPU: of the calling thread); contents undefined at start |
//! | Index (address, i[, gate]) | address; used only by Load and Store. i scalar (I64) or vector (one address a lane; I32 where bounds allow, so that it has the lanes of the data); gate bool with lanes 1 or those of the access |
//! | Load (index[, alt]) | scalar i with n lanes: n consecutive elements (element alignment only); vector i: gather; with a gate there is an alt, and memory is not touched where the gate is false |
//! | Store (index, value) | as Load; with a gate, lanes whose gate is false keep their memory |
//! | Range (end) … End (range, …) | loop 0..end step 1; zero trips allowed. dtype I64 (or I32) |
//! | If (cond) … EndIf | skips its body when the scalar bool is false (what a split kernel leaves to its last thread) |
//! | Acc (init) | a mutable register; (re)initialised where it stands |
//! | SetAcc (acc, value) | assigns it; an Acc used as a source means its value at that point of the list |
//! | After (acc, End …) | the same register after the loop; an alias, no code. (Scratch areas need none: the list's order says when they are filled.) |
//! | elementwise | on sources with the same lane count; MulAcc, Where, Cast, Bitcast included. Cast keeps lanes; Bitcast keeps lanes and size |
//! | Barrier | workgroup barrier (no code on the CPU) |
//!
//! Decomposed before: Exp2, Log2, Sin, Pow, Threefry, FloorDiv, FloorMod, Sub/Neg/FDiv stay. Integer CDiv/CMod arrive with
//! divisors that are never zero and never overflow. Max on floats: NaN wins unless `fast_math`. f16 and bf16 arithmetic arrives as
//! casts around f32 arithmetic unless the target said it has it; fp8 values arrive as U8 bits only.

use crate::uop::UOp;

/// One buffer argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamInfo {
    pub slot: u32,
    pub dtype: crate::uop::DType,
    /// Number of elements.
    pub len: usize,
    pub read: bool,
    pub written: bool,
}

/// What one launch costs, counted on the list; symbolic sizes counted at their upper bound.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimates {
    /// Arithmetic operations (a MulAcc is two).
    pub flops: u64,
    /// Bytes of all loads and stores.
    pub mem_bytes: u64,
    /// Bytes of the distinct buffers touched (each once).
    pub unique_bytes: u64,
}

/// A kernel ready for a target.
#[derive(Clone, Debug)]
pub struct Program {
    /// Unique-ish name with the axes in it, e.g. `E_4n2`, `r_16_8`; an ELF symbol.
    pub name: String,
    /// Name with colours for a terminal (by axis kind).
    pub display_name: String,
    pub uops: Vec<UOp>,
    /// Buffer arguments in slot order: args[0..params.len()].
    pub params: Vec<ParamInfo>,
    /// Variables in argument order: args[params.len()..]. The nodes as they stand in `uops`.
    pub vars: Vec<UOp>,
    /// Chunks of the Thread axis; each call of the kernel runs chunk `tid` of it. 1: not split.
    pub threads: u32,
    /// Workgroups and threads of a workgroup (GPU targets; 1 on the CPU).
    pub global: [u32; 3],
    pub local: [u32; 3],
    /// Scratch bytes a workgroup needs.
    pub local_bytes: usize,
    pub estimates: Estimates,
    /// Opts that made it, as text.
    pub opts: Vec<String>,
    /// Float rules: false keeps NaN, infinity and signed zero (default).
    pub fast_math: bool,
}
