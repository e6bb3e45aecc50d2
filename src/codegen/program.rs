//! The interface between `codegen` and `isa`: one kernel as a list of nodes in execution order.
//!
//! **What the list may contain.** Each node once, after its sources. Values are scalars and vectors of strong dtypes
//! (no WeakInt, no WeakFloat, no fp8 arithmetic). Index arithmetic is I64 on targets that ask for it (the CPU), else
//! I32 where bounds allow.
//!
//! What each op means in the list:
//!
//! - **Param, Var**: kernel arguments: address of a buffer, value of a variable (Var has an integer dtype here).
//! - **Special `tid`**: which chunk of the Thread axis this call runs; below `src[0]` (CPU).
//! - **Special `gidx0..2`, `lidx0..2`**: workgroup, and thread in it, along x, y, z; below `src[0]`, a Const (GPU, see
//!   below).
//! - **Const, Splat, Stack, Gep, Cat, VReduce**: values; a vector Const has the same value in each lane.
//! - **Local**: scratch of the workgroup (CPU: of the calling thread); contents undefined at start.
//! - **Index (address, i[, gate])**: address; used only by Load and Store. i scalar (I64) or vector (one address a
//!   lane; I32 where bounds allow, so that it has the lanes of the data); gate bool with lanes 1 or those of the
//!   access.
//! - **Load (index[, alt])**: scalar i with n lanes: n consecutive elements (element alignment only); vector i: gather;
//!   with a gate there is an alt, and memory is not touched where the gate is false.
//! - **Store (index, value)**: as Load; with a gate, lanes whose gate is false keep their memory.
//! - **Store (index, value), Arg::Stage**: as Store, to a tile that is read after a Barrier with Arg::Stage. If the
//!   value is a Load with no other use, it is an asynchronous copy that need only be complete at that Barrier (GPU).
//! - **Commit (dep, …)**: the copies of a thread since its last Commit form a group; no effect if the copies are
//!   ordinary stores (GPU).
//! - **CopyTile (to, bar, from, column, row), Arg::Tma**: the same copy as the stores with Arg::Stage(1) until the next
//!   Commit, as one TMA operation. A back end emits one or the other; it skips the CopyTile if the buffer's address or
//!   strides do not allow a TMA copy (targets with `tma_copies`).
//! - **AwaitTile (bar, parity, …)**: waits for the TMA tiles that this mbarrier counts, in iterations of this parity;
//!   no effect if the stores are emitted instead (targets with `tma_copies`).
//! - **LoadMatrix (index), Arg::Transposed**: the fragment of a matrix unit that the wave's 32 threads load together
//!   from rows of 16 bytes, see `Op::LoadMatrix` (targets with `matrix_loads`).
//! - **LoadMatrix (index), Arg::Tile**: not a value in registers, but the location of an operand for a Wmma whose unit
//!   has `from_memory`; only such a Wmma uses it.
//! - **Range (end) … End (range, …)**: loop 0..end step 1; zero trips allowed. dtype I64 (or I32).
//! - **If (cond) … EndIf**: skips its body when the scalar bool is false (used for the work that a split kernel leaves
//!   to its last thread).
//! - **Acc (init)**: a mutable register; (re)initialised at this position of the list.
//! - **SetAcc (acc, value)**: assigns it; an Acc used as a source means its value at that point of the list.
//! - **After (acc, End …)**: the same register after the loop; an alias, no code. (Scratch areas need no After: the
//!   order of the list says when they are filled.)
//! - **elementwise**: on sources with the same lane count; MulAcc, Where, Cast, Bitcast included. Cast keeps lanes;
//!   Bitcast keeps lanes and size.
//! - **WaveReduce (x), `Arg::Reduce(op, [n])`**: every thread gets the reduction by `op` of x over its group of n
//!   threads, in the order given at `Op::WaveReduce`; the n threads are in one wave, all of them execute it, and the
//!   dtype is not bool (not on the CPU).
//! - **Wmma (a, b, acc)**: matrix unit: `acc + a · b` on one tile, spread over lanes as Arg::Wmma says; the dtype has
//!   one lane for each element that a thread holds. If the unit has `from_memory`, both operands are LoadMatrix with
//!   Arg::Tile, acc is the Acc of a loop or another such product used only by this one and a SetAcc, and the products
//!   of an iteration may run until the second-next Barrier with Arg::Stage.
//! - **Barrier**: waits until all threads of the workgroup arrive; after it they see each other's stores to workgroup
//!   memory (not on the CPU). With Arg::Stage(n): a thread first waits for its copies, except those of its newest n
//!   groups, and for products of units with `from_memory`, except those since the last such Barrier.
//!
//! **On a target with a grid** ([`super::Target::gpu`]) the list is what every thread of every workgroup runs:
//! - *Uniform control flow.* No If, no `tid`. Trip counts of loops are Consts or expressions of Vars: no loop, and so
//!   no Barrier, is reached by only some of the threads. What a thread must not do is gated at its Store. A back end
//!   needs no exec masks for control flow.
//! - *Specials.* At most one node each of `gidx0..2` and `lidx0..2`, in no particular order; missing ones have size 1.
//!   `Program::global` and `local` hold all sizes: the launch is always this whole grid, also when a Var is smaller
//!   than its largest value (stores are gated then). Neighbouring threads differ in `lidx0`: x is the fastest axis, and
//!   threads fill waves in the order x, y, z. The sizes are within the target's `Grid` (more than three axes are folded
//!   into three); the workgroup need not be a multiple of the wave, except with Wmma: then `lidx0` counts the lanes of
//!   whole waves and its size is a multiple of the wave.
//! - *Types of indices.* Specials, Ranges and Vars are I32 where their bounds fit (`index64: false`), and so is index
//!   arithmetic whose bounds fit; else I64, through Casts. An index counts elements, is never negative where the gate
//!   holds, and is at most 2^31-1 as I32: its byte offset fits 33 bits, so offsets of buffers of 2^32 bytes and more
//!   need 64-bit addition. Where a gate is false the index may be anything.
//! - *Division.* CDiv and CMod of I32 (or I64) by Consts have become multiplications and shifts; by anything else they
//!   remain.
//! - *Memory.* `Local` areas are numbered from 0; they are consecutive, in the order of the list, each aligned to 64
//!   bytes, `Program::local_bytes` in all (a back end may place them otherwise). Loads and stores of one element, or of
//!   n lanes at n consecutive elements, 2 <= n <= 32, aligned to the element only ([`alignment`] says what more is
//!   known about an address in an area; buffers are aligned to the element only, since arguments may be parts of
//!   buffers). The back end splits accesses that are longer than the widest instruction or less aligned than it
//!   requires. With a vector index each lane has its own address: n single accesses. A gate is one bool for all lanes,
//!   or one for each lane.
//! - *Barriers* are between a store to an area and the loads of what it stored, and between those loads and the stores
//!   of the next iteration. Areas that are filled by stores with Arg::Stage have several buffers, and one Barrier with
//!   Arg::Stage per iteration orders both directions. There is no exception for threads of one wave. No Barrier orders
//!   accesses to buffers: no thread reads what another one stores.
//! - *Vectors* have 2 to 64 lanes (powers of two). A back end holds each lane in its own register (f16 and 8-bit types
//!   may be packed).
//!
//! Already decomposed: Exp2, Log2, Sin, Pow, Threefry, FloorDiv, FloorMod; Sub, Neg and FDiv stay. Ldexp comes only to
//! targets that have it. Integer CDiv and CMod arrive with divisors that are never zero and never overflow. Max on
//! floats: NaN wins unless `fast_math`. f16 and bf16 arithmetic arrives as casts around f32 arithmetic unless the
//! target said it has it; fp8 values arrive as U8 bits only.

use doorbell_uop::{UMap, UOp};

/// The largest power of two (up to 64) that divides this index expression for all values of its variables. An access to
/// a scratch area at this index is aligned to that many elements.
pub fn alignment(index: &UOp) -> u32 {
    use doorbell_uop::Op;
    const MOST: u32 = 6;
    let mut known: UMap<u32> = UMap::default();
    for u in index.toposort() {
        let bits = |k: usize| u.src().get(k).and_then(|s| known.get(s)).copied().unwrap_or(0);
        let n = match u.op() {
            Op::Const => u.as_int().map_or(0, |i| i.unsigned_abs().trailing_zeros()),
            Op::Add | Op::Sub | Op::Max => bits(0).min(bits(1)),
            Op::And => bits(0).max(bits(1)),
            Op::Mul => bits(0) + bits(1),
            Op::Shl => bits(0) + u.src()[1].as_int().map_or(0, |i| i as u32),
            Op::Cast | Op::Neg => bits(0),
            _ => 0,
        };
        known.insert(u, n.min(MOST));
    }
    1 << known.get(index).copied().unwrap_or(0)
}

/// One buffer argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamInfo {
    /// Its number in the kernel graph, [`doorbell_uop::Arg::Param`].
    pub slot: u32,
    /// Type of one element.
    pub dtype: doorbell_uop::DType,
    /// Number of elements.
    pub len: usize,
    /// Whether the kernel loads from it.
    pub read: bool,
    /// Whether the kernel stores to it.
    pub written: bool,
}

/// A buffer argument that TMA tiles are copied from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Index into `Program::params`.
    pub param: usize,
    /// The buffer as a matrix, and the size of its tiles.
    pub tensor: doorbell_uop::Tensor2,
}

/// Cost of one launch, counted on the list. Symbolic sizes count with their upper bound.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimates {
    /// Arithmetic operations (a MulAcc is two).
    pub flops: u64,
    /// Bytes of all loads and stores.
    pub mem_bytes: u64,
    /// Bytes of the distinct buffers touched (each counted once).
    pub unique_bytes: u64,
}

/// A kernel ready for a target.
#[derive(Clone, Debug)]
pub struct Program {
    /// A mostly unique name that contains the axes, e.g. `E_4n2`, `r_16_8`; an ELF symbol.
    pub name: String,
    /// Name with colours for a terminal (by axis kind).
    pub display_name: String,
    /// The list in execution order; empty for a user's kernel in text.
    pub uops: Vec<UOp>,
    /// Buffer arguments in slot order: args[0..params.len()].
    pub params: Vec<ParamInfo>,
    /// Variables in argument order: args[params.len()..]. The nodes are those in `uops`.
    pub vars: Vec<UOp>,
    /// The tensors that TMA tiles are copied from. They are passed as arguments after the variables, as the tensor maps
    /// that the hardware reads (empty on most targets).
    pub tensors: Vec<TensorInfo>,
    /// Number of chunks of the Thread axis; each call of the kernel runs chunk `tid`. 1: not split.
    pub threads: u32,
    /// Workgroups along x, y, z (GPU targets; 1 on the CPU).
    pub global: [u32; 3],
    /// Threads of a workgroup along x, y, z (GPU targets; 1 on the CPU).
    pub local: [u32; 3],
    /// Scratch bytes a workgroup needs.
    pub local_bytes: usize,
    /// What one launch costs.
    pub estimates: Estimates,
    /// The opts that were applied, as text.
    pub opts: Vec<String>,
    /// Whether float rules may ignore NaN, infinities and signed zeros (default: false).
    pub fast_math: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alignment_follows_the_terms_of_a_sum() {
        let (a, b) = (UOp::var("a", 0, 9), UOp::var("b", 0, 9));
        assert_eq!(alignment(&(&(&a * 8) + &(&b * 12))), 4);
        assert_eq!(alignment(&(&(&a * 8) + 1)), 1);
        assert_eq!(alignment(&UOp::int(0)), 64);
        assert_eq!(alignment(&(&a << &UOp::int(4))), 16);
    }
}
