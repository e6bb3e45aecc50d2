//! The op vocabulary, one enum for every layer. `spec` checks which ops may appear where.

/// The operation of a node. Sources and argument are documented with each op; `x` is a value, `i…` indices, `r…`
/// ranges.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Op {
    // --- leaves ---
    /// `()`, Arg::Const: the same value in all lanes.
    Const,
    /// `()`, Arg::Var: a named integer with bounds, dtype WeakInt; a kernel gets its value as an argument.
    Var,
    /// `(var, const)`: a variable with the value it has in this run.
    Bind,
    /// `()`, Arg::Buffer: memory on a device; shape (len,).
    Buffer,
    /// `(n)`: tensor graph: element i is i; shape (n,), dtype WeakInt, n a size (may be symbolic). Needs no memory: the
    /// scheduler replaces it by the index expression of the axis. Used for arange, one-hot masks and gathers.
    Iota,
    /// `()`, Arg::Param: the numbered buffer argument of a kernel (dtype is an address) or of a cached graph (dtype is
    /// a value, with shape).
    Param,
    /// `()`, Arg::Local: scratch memory of a workgroup, dtype is a Local address.
    Local,
    /// `(end)`, Arg::Range: counts 0..end. Dtype WeakInt, later I32/I64. In a linear program it opens the loop.
    Range,
    /// `()`, Arg::Str name: a hardware index (`tid` on the CPU) with an exclusive upper bound in `src[0]`.
    Special,

    // --- tensor graph: movement (sizes are sources, so that they may be symbolic) ---
    /// `(x, d0, d1 ...)`
    Reshape,
    /// `(x)`, Arg::Axes: output axis k is input axis `axes[k]`.
    Permute,
    /// `(x, d0, d1 ...)`: same rank; a size-1 axis becomes d.
    Expand,
    /// `(x, before0.., after0..)`: pads with zero (false); counts for all axes, first all befores then all afters.
    Pad,
    /// `(x, begin0.., end0..)`: keeps begin..end of each axis.
    Shrink,
    /// `(x)`, Arg::Axes: these axes are reversed.
    Flip,

    // --- tensor graph: the rest ---
    /// Tensor: `(x)`, Arg::Reduce(op, axes): the axes become size 1. Kernel: `(x, r...)`, Arg::Reduce(op, []): sums
    /// over the ranges.
    Reduce,
    /// `(x)`: must be materialised.
    Contiguous,
    /// `(x)`: identity whose gradient is materialised.
    ContiguousBackward,
    /// `(x)`: identity that blocks gradients.
    Detach,
    /// `(x)`, Arg::Device: the same value on another device.
    Copy,
    /// `(x0, x1 ...)`, `Arg::Axes([k])` or `Axes([])`: one value over several devices: each source is one device's
    /// equal part along axis k, or each is the whole value. Gone before scheduling.
    Shard,
    /// `(x)`, Arg::Axes([i, n]) or Axes([i, n, k]): what device i of n has of x: all, or its part along axis k. Gone
    /// before scheduling.
    Part,
    /// `(target, value)`: target is a Buffer or a view of one; the value is stored there; the node's value is the new
    /// content.
    Assign,
    /// `(value, form, x...)`, Arg::Attention: the value, which one kernel may compute from the values `x`: then as
    /// `form` says, and what is in between exists in that kernel only. The scheduler decides; everywhere else it is its
    /// first source.
    Fused,
    /// `(x...)`, Arg::Custom: the result of a kernel that the user wrote; shape and dtype stand in the argument. With
    /// dtype Void and Params as sources: such a kernel that is text, in the place of a kernel graph.
    Custom,

    // --- effects and structure ---
    /// `(s...)`, Arg::Kernel or None: root.
    Sink,
    /// `(value, dep...)`: the value, once the deps are done. The only ordering edge.
    After,
    /// `(address, i[, gate])`: address of element i (dtype stays the address type). With a vector i: one address per
    /// lane. Without a gate, i is in bounds for every value of its ranges; with a gate it need only be in bounds where
    /// the gate is true.
    Index,
    /// `(index[, alt])`: dtype has n lanes; scalar i: n consecutive elements, vector i: a gather. alt (same dtype) is
    /// the value where the gate is false.
    Load,
    /// `(index[, e])`, Arg::Transposed: loads a matrix-unit fragment from rows of 16 bytes in Local memory; e is its
    /// range of elements (before vectorisation). Lane 8m + r of a wave has the address of row r of matrix m; lane l
    /// gets word l % 4 of row l / 4 of each matrix, or (transposed, 16-bit elements) elements 2 (l % 4) and 2 (l % 4) +
    /// 1 of column l / 4.
    ///
    /// Arg::Tile: the tile that starts at the address, for a unit that reads workgroup memory directly. It must stay
    /// unchanged until the second-next Barrier with Arg::Stage. The address is the same for all threads of its lanes.
    LoadMatrix,
    /// `(index, value, r...)`: kernel graph: the ranges are the loops around this store, outermost first; linear
    /// program: no ranges.
    ///
    /// Arg::Stage: fills a tile that is read after a later Barrier with Arg::Stage; if the value is a Load, the copy
    /// may be asynchronous. Arg::Stage(1): a CopyTile of its group does the same copy.
    Store,
    /// `(range, dep...)`: linear program: closes the loop of that range.
    End,
    /// `(cond)`: linear program: skips to its EndIf when false.
    If,
    /// `(if)`: linear program: ends the body of an If.
    EndIf,
    /// `(init)`: a mutable register that starts with init each time its scope is entered.
    Acc,
    /// `(acc, value)`: gives the register a new value.
    SetAcc,
    /// `(dep...)`: waits until all threads of the workgroup arrive. Arg::Stage(n): each thread first waits for its
    /// copies, except those of its newest n groups, and for products that read workgroup memory directly, except those
    /// since the last such Barrier.
    Barrier,
    /// `(dep...)`: a thread's copies since the last Commit (stores with Arg::Stage) form a group.
    Commit,
    /// `(to, bar, from, column, row)`, Arg::Tma: the same copy as the stores of its group with Arg::Stage(1), as one
    /// operation for a target with `tma_copies`: copies the TMA tile of the buffer `from` whose first element is at
    /// this column and row to `to` (an Index of workgroup memory; its gate is the same for all threads). Completion is
    /// counted by the mbarrier `bar`, an Index of an area of mbarriers. A back end that does the stores ignores this
    /// node.
    CopyTile,
    /// `(bar, parity, dep...)`: waits until the TMA tiles that `bar` counts in iterations of this parity have arrived.
    AwaitTile,
    /// `(x, r...)`, Arg::Stage: materialise x over the ranges (a tile in Local memory inside a kernel).
    Stage,

    // --- vectors ---
    /// `(x)`: broadcasts a scalar to every lane.
    Splat,
    /// `(x0, x1 ...)`: a vector of scalars.
    Stack,
    /// `(v)`, Arg::Axes lanes: these lanes (one: a scalar).
    Gep,
    /// `(v0, v1 ...)`: lanes of v0, then of v1 ...
    Cat,
    /// `(v)`, Arg::Reduce(op, []): all lanes to one.
    VReduce,
    /// `(x[, r])`, `Arg::Reduce(op, [n])`: a reduction over `n` neighbouring threads (a power of two, at most a wave,
    /// counted along the workgroup), whose result all of them get. Each thread combines its value with that of the
    /// thread whose number differs in bit 0, then in bit 1, and so on up to n / 2. In a kernel graph it may close the
    /// range of threads over which the result is uniform.
    WaveReduce,
    /// `(a, b, acc)`, Arg::Wmma: matrix unit: acc + a · b for the tile that the lanes of a wave hold together. Before
    /// vectorisation: `(a, b, e, ra, rb)`: element e of the product of scalar expressions in the element ranges ra and
    /// rb, which it closes.
    Wmma,

    // --- elementwise, unary ---
    /// `(x)`: x in the node's dtype, lane by lane. Integers wrap, floats round; a float becomes an integer by
    /// truncation, and a bool that says whether it is not zero.
    Cast,
    /// `(x)`: the bits of x as the node's dtype, which has the same size and lanes.
    Bitcast,
    /// `(x)`: -x; integers wrap.
    Neg,
    /// `(x)`: 1 / x of floats.
    Recip,
    /// `(x)`: square root of floats.
    Sqrt,
    /// `(x)`: 2^x of floats.
    Exp2,
    /// `(x)`: logarithm to base 2 of floats.
    Log2,
    /// `(x)`: sine of floats; x is in radians.
    Sin,
    /// Round toward zero (floats).
    Trunc,
    // --- binary ---
    /// `(a, b)`: a + b; integers wrap, of bools: or.
    Add,
    /// `(a, b)`: a - b; integers wrap, of bools: xor.
    Sub,
    /// `(a, b)`: a · b; integers wrap, of bools: and.
    Mul,
    /// `(a, b)`: a / b of floats.
    FDiv,
    /// `(a, b)`: the larger one; of floats NaN wins (unless `fast_math`), of bools: or.
    Max,
    /// Integer division rounding toward zero (C).
    CDiv,
    /// Remainder with the sign of the dividend (C).
    CMod,
    /// Integer division rounding down.
    FloorDiv,
    /// Remainder with the sign of the divisor.
    FloorMod,
    /// `(a, b)`: a^b; integers wrap, and with a negative exponent a^b is rounded toward zero.
    Pow,
    /// `(x, n)`: x · 2^n of floats, rounded once; n is integral. Used by late decompositions if the target has it
    /// (`Target::ldexp`).
    Ldexp,
    /// `(a, b)`: a shifted left by b bits (integers), wrapped; 0 if b is the width or more.
    Shl,
    /// Arithmetic for signed types, logical for unsigned.
    Shr,
    /// `(a, b)`: bitwise and of integers, logical and of bools.
    And,
    /// `(a, b)`: bitwise or of integers, logical or of bools.
    Or,
    /// `(a, b)`: bitwise exclusive or of integers, logical of bools.
    Xor,
    /// `(a, b)` → bool: a < b; false if one is NaN.
    CmpLt,
    /// `(a, b)` → bool: a differs from b; true if one is NaN.
    CmpNe,
    /// `(a, b)` → bool: a equals b; false if one is NaN.
    CmpEq,
    /// `(counter: u64, key: u64)` → u64: threefry2x32-20, low words first.
    Threefry,
    // --- ternary ---
    /// `(cond: bool, a, b)`
    Where,
    /// `(a, b, c)`: a*b+c; for floats the target may round once or twice.
    MulAcc,
}

impl Op {
    /// Number of ops.
    pub const COUNT: usize = Op::MulAcc as usize + 1;
    /// Unary arithmetic (not Cast and Bitcast, which change the dtype).
    pub const fn is_unary(self) -> bool {
        matches!(self, Op::Neg | Op::Recip | Op::Sqrt | Op::Exp2 | Op::Log2 | Op::Sin | Op::Trunc)
    }
    /// Arithmetic of two sources, with comparisons and Threefry.
    pub const fn is_binary(self) -> bool {
        (self as u8) >= (Op::Add as u8) && (self as u8) <= (Op::Threefry as u8)
    }
    /// Where and MulAcc.
    pub const fn is_ternary(self) -> bool {
        matches!(self, Op::Where | Op::MulAcc)
    }
    /// Unary, binary and ternary arithmetic.
    pub const fn is_alu(self) -> bool {
        self.is_unary() || self.is_binary() || self.is_ternary()
    }
    /// Arithmetic, Cast and Bitcast: the output element depends on the same element of each source.
    pub const fn is_elementwise(self) -> bool {
        (self as u8) >= (Op::Cast as u8)
    }
    /// Tensor-level movement ops: Reshape, Permute, Expand, Pad, Shrink, Flip.
    pub const fn is_movement(self) -> bool {
        (self as u8) >= (Op::Reshape as u8) && (self as u8) <= (Op::Flip as u8)
    }
    /// CmpLt, CmpNe and CmpEq, whose result is bool.
    pub const fn is_comparison(self) -> bool {
        matches!(self, Op::CmpLt | Op::CmpNe | Op::CmpEq)
    }
    /// Binary ops whose sources may be exchanged.
    pub const fn is_commutative(self) -> bool {
        matches!(self, Op::Add | Op::Mul | Op::Max | Op::And | Op::Or | Op::Xor | Op::CmpNe | Op::CmpEq)
    }
    /// Ops a Reduce or VReduce may have.
    pub const fn is_reduction(self) -> bool {
        matches!(self, Op::Add | Op::Mul | Op::Max)
    }
    /// Number of sources of an elementwise op.
    pub const fn arity(self) -> Option<usize> {
        if matches!(self, Op::Cast | Op::Bitcast) || self.is_unary() {
            Some(1)
        } else if self.is_binary() {
            Some(2)
        } else if self.is_ternary() {
            Some(3)
        } else {
            None
        }
    }
}
