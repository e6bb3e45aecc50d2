//! The modifiers that selection knows of each instruction: any other one is refused, not overlooked. Instructions that are not here
//! are refused by name.

use crate::isa::ptx::Opcode;

const ROUNDING: &[&str] = &["rn", "rz", "rm", "rp"];
const COMPARISONS: &[&str] = &[
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan",
    "and", "or", "xor", "ftz",
];
/// Order, scope and cache hints of memory accesses.
const MEMORY: &[&str] = &[
    "volatile",
    "weak",
    "relaxed",
    "acquire",
    "cta",
    "gpu",
    "cluster",
    "sys",
    "nc",
    "ca",
    "cg",
    "cs",
    "cv",
    "lu",
    "wb",
    "wt",
    "L2::64B",
    "L2::128B",
    "L2::256B",
    "L1::evict_normal",
    "L1::evict_unchanged",
    "L1::evict_first",
    "L1::evict_last",
    "L1::no_allocate",
    "L2::evict_normal",
    "L2::evict_first",
    "L2::evict_last",
];

const COPIES: &[&str] = &[
    "async",
    "bulk",
    "ca",
    "cg",
    "L2::64B",
    "L2::128B",
    "L2::256B",
    "commit_group",
    "wait_group",
    "wait_all",
    "mbarrier",
    "arrive",
    "noinc",
];
const MBARRIERS: &[&str] = &[
    "init",
    "inval",
    "arrive",
    "arrive_drop",
    "expect_tx",
    "complete_tx",
    "test_wait",
    "try_wait",
    "parity",
    "pending_count",
    "noComplete",
    "release",
    "acquire",
    "relaxed",
    "cta",
    "cluster",
];

/// Whether an instruction may have a modifier. What of it fits a type is for the instruction's own selection to say.
pub(super) fn knows(op: Opcode, word: &str) -> bool {
    use Opcode::*;
    let lists: &[&[&str]] = match op {
        Add | Sub => &[ROUNDING, &["ftz", "sat", "cc"]],
        Addc | Subc => &[&["cc"]],
        Mul | Mad | Mul24 | Mad24 => &[ROUNDING, &["lo", "hi", "wide", "ftz", "sat", "cc"]],
        Fma => &[ROUNDING, &["ftz", "sat", "relu"]],
        Min | Max => &[&["ftz", "NaN", "xorsign", "abs", "relu"]],
        Neg | Abs => &[&["ftz"]],
        Div | Rcp | Sqrt | Rsqrt => &[ROUNDING, &["approx", "full", "ftz"]],
        Ex2 | Lg2 | Sin | Cos | Tanh => &[&["approx", "ftz"]],
        Testp => &[&["finite", "infinite", "number", "notanumber"]],
        Cvt => &[ROUNDING, &["rni", "rzi", "rmi", "rpi", "rna", "ftz", "sat", "relu", "satfinite"]],
        Bmsk | Szext => &[&["clamp", "wrap"]],
        Prmt => &[&["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"]],
        Dp2a => &[&["lo", "hi"]],
        Vabsdiff4 => &[&["add"]],
        Madc => &[&["lo", "hi", "cc"]],
        Stmatrix => &[&["sync", "aligned", "m8n8", "x1", "x2", "x4", "trans"]],
        Movmatrix => &[&["sync", "aligned", "trans", "m8n8"]],
        Setp | Set | Slct => &[COMPARISONS],
        Shf => &[&["l", "r", "wrap", "clamp"]],
        Bfind => &[&["shiftamt"]],
        Cvta => &[&["to"]],
        Bra | Ret | Exit => &[&["uni"]],
        Ld | Ldu => &[MEMORY],
        St => &[MEMORY, &["release"]],
        Prefetch | Prefetchu | Applypriority => &[&["L1", "L2", "L2::evict_last", "L2::evict_normal"]],
        Atom | Red => &[&[
            "add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas", "relaxed", "acquire", "release",
            "acq_rel", "cta", "cluster", "gpu", "sys", "noftz",
        ]],
        Call | Brx => &[&["uni", "idx"]],
        Wmma => &[&["load", "store", "mma", "a", "b", "c", "d", "sync", "aligned", "row", "col", "satfinite", "rn"]],
        Cp => &[COPIES],
        Mbarrier => &[MBARRIERS],
        Bar | Barrier => &[&["sync", "arrive", "arv", "red", "popc", "and", "or", "aligned", "cta", "warp"]],
        Membar => &[&["cta", "gl", "sys"]],
        Fence => &[&["sc", "acq_rel", "cta", "gpu", "sys", "cluster"]],
        Shfl => &[&["sync", "up", "down", "bfly", "idx"]],
        Vote => &[&["sync", "all", "any", "uni", "ballot"]],
        Match => &[&["sync", "all", "any"]],
        Redux => &[&["sync", "add", "min", "max", "and", "or", "xor"]],
        Mma => &[&["sync", "aligned", "row", "col", "satfinite"]],
        Ldmatrix => &[&["sync", "aligned", "m8n8", "x1", "x2", "x4", "trans"]],
        Mov | And | Or | Xor | Not | Cnot | Shl | Shr | Lop3 | Bfe | Bfi | Brev | Clz | Popc | Selp | Copysign
        | Sad | Dp4a | Activemask | Trap | Brkpt | Nanosleep => &[],
        // Refused as a whole, or with words of their own.
        _ => return true,
    };
    let shape = matches!(op, Mma | Wmma) && word.starts_with('m') && word.contains('n') && word.contains('k');
    shape || lists.iter().any(|l| l.contains(&word))
}
