//! The words of PTX: mnemonics, types, state spaces, special registers. Source: NVIDIA's PTX ISA 8.8, chapters 5, 9 and
//! 10.

/// Declares an enum with the PTX word of each value.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($value:ident $word:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $(#[doc = $word] $value),* }

        impl $name {
            /// All of them.
            pub const ALL: &[$name] = &[$($name::$value),*];

            /// The word, without a dot.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $($name::$value => $word),* }
            }

            /// The value with this word.
            #[must_use]
            #[inline]
            pub fn parse(word: &str) -> Option<$name> {
                const WORDS: &[&str] = &[$($word),*];
                const PLACES: [u8; (4 * WORDS.len()).next_power_of_two()] = places(WORDS);
                found(word, WORDS, &PLACES).map(|k| $name::ALL[k])
            }
        }
    };
}

/// Where a word is looked for first among so many slots, a power of two: by its first eight bytes.
#[inline]
#[allow(clippy::cast_possible_truncation)] // its upper bits alone
const fn place(word: &[u8], count: usize) -> usize {
    let (mut head, mut i) = (0u64, 0);
    while i < word.len() && i < 8 {
        head = head << 8 | word[i] as u64;
        i += 1;
    }
    (head.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & (count - 1)
}

/// A hash table over words: for each slot the word's number from 1, or 0 if free. Collisions go to the next free slot.
/// There are fewer than 256 words.
#[allow(clippy::cast_possible_truncation)]
const fn places<const N: usize>(words: &[&str]) -> [u8; N] {
    let (mut out, mut k) = ([0; N], 0);
    while k < words.len() {
        let mut at = place(words[k].as_bytes(), N);
        while out[at] != 0 {
            at = (at + 1) & (N - 1);
        }
        out[at] = k as u8 + 1;
        k += 1;
    }
    out
}

/// The number of a word among words.
#[inline]
fn found<const N: usize>(word: &str, words: &[&str], places: &[u8; N]) -> Option<usize> {
    let mut at = place(word.as_bytes(), N);
    loop {
        let k = usize::from(places[at]).checked_sub(1)?;
        // Words are short: comparing their bytes here is faster than calling the string comparison.
        if words[k].len() == word.len() && words[k].bytes().eq(word.bytes()) {
            return Some(k);
        }
        at = (at + 1) & (N - 1);
    }
}

/// The parts of a word between its dots.
pub(super) fn parts(word: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(word);
    std::iter::from_fn(move || {
        let all = rest.take()?;
        match all.bytes().position(|c| c == b'.') {
            Some(n) => {
                rest = all.get(n + 1..);
                all.get(..n)
            }
            None => Some(all),
        }
    })
}

/// Registers `stem<0>` to `stem<count - 1>`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted<'a> {
    stem: &'a [u8],
    /// The stem's bytes, the first one lowest, if it is short and does not end with a digit; else 0.
    key: u64,
    pub count: u32,
}

impl<'a> Counted<'a> {
    pub(crate) fn new(stem: &'a str, count: u32) -> Counted<'a> {
        let stem = stem.as_bytes();
        let plain = !stem.last().is_some_and(u8::is_ascii_digit);
        let key = if plain { packed(stem) } else { 0 };
        Counted { stem, key, count }
    }

    pub(crate) fn stem(&self) -> &'a str {
        std::str::from_utf8(self.stem).unwrap_or_default()
    }

    /// The number of a register of this range.
    #[inline]
    pub(crate) fn number(&self, name: &Numbered) -> Option<u32> {
        let number = match self.key {
            0 => name.name.strip_prefix(self.stem).and_then(|digits| Numbered::of(digits).whole()),
            key => name.number.filter(|_| name.key == key),
        };
        number.filter(|n| *n < self.count)
    }
}

/// A name split into the part before its trailing digits, and the number of these digits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbered<'a> {
    name: &'a [u8],
    key: u64,
    /// Where the digits begin.
    at: usize,
    number: Option<u32>,
}

impl<'a> Numbered<'a> {
    pub(crate) fn of(name: &'a [u8]) -> Numbered<'a> {
        let (mut value, mut scale, mut at) = (0u64, 1u64, name.len());
        for c in name.iter().rev() {
            let digit = c.wrapping_sub(b'0');
            if digit > 9 {
                break;
            }
            value = value.wrapping_add(scale.wrapping_mul(u64::from(digit)));
            scale = scale.wrapping_mul(10);
            at -= 1;
        }
        // No leading zeros.
        let digits = name.len() - at;
        let plain = (1..=10).contains(&digits) && (digits == 1 || name.get(at) != Some(&b'0'));
        let number = if plain { u32::try_from(value).ok() } else { None };
        Numbered { name, key: packed(name.get(..at).unwrap_or_default()), at, number }
    }

    /// The number of a name that consists of digits only.
    fn whole(self) -> Option<u32> {
        self.number.filter(|_| self.at == 0)
    }
}

/// Up to seven bytes packed into a number, the first one lowest; 0 if there are more, or none.
#[inline]
fn packed(bytes: &[u8]) -> u64 {
    let all = |n: u64, c: &u8| n << 8 | u64::from(*c);
    if bytes.len() < 8 { bytes.iter().rev().fold(0, all) } else { 0 }
}

words! {
    /// The first word of an instruction.
    Opcode {
        Abs "abs", Activemask "activemask", Add "add", Addc "addc", Alloca "alloca", And "and", Applypriority "applypriority", Atom "atom",
        Bar "bar", Barrier "barrier", Bfe "bfe", Bfi "bfi", Bfind "bfind", Bmsk "bmsk", Bra "bra", Brev "brev", Brkpt "brkpt", Brx "brx",
        Call "call", Clz "clz", Clusterlaunchcontrol "clusterlaunchcontrol", Cnot "cnot", Copysign "copysign", Cos "cos", Cp "cp",
        Createpolicy "createpolicy", Cvt "cvt", Cvta "cvta",
        Discard "discard", Div "div", Dp2a "dp2a", Dp4a "dp4a", Elect "elect", Ex2 "ex2", Exit "exit", Fence "fence", Fma "fma", Fns "fns",
        Getctarank "getctarank", Griddepcontrol "griddepcontrol", Isspacep "isspacep", Istypep "istypep",
        Ld "ld", Ldmatrix "ldmatrix", Ldu "ldu", Lg2 "lg2", Lop3 "lop3",
        Mad "mad", Mad24 "mad24", Madc "madc", Mapa "mapa", Match "match", Max "max", Mbarrier "mbarrier", Membar "membar", Min "min",
        Mma "mma", Mov "mov", Movmatrix "movmatrix", Mul "mul", Mul24 "mul24", Multimem "multimem",
        Nanosleep "nanosleep", Neg "neg", Not "not", Or "or", Pmevent "pmevent", Popc "popc", Prefetch "prefetch", Prefetchu "prefetchu",
        Prmt "prmt", Rcp "rcp", Red "red", Redux "redux", Rem "rem", Ret "ret", Rsqrt "rsqrt",
        Sad "sad", Selp "selp", Set "set", Setmaxnreg "setmaxnreg", Setp "setp", Shf "shf", Shfl "shfl", Shl "shl", Shr "shr", Sin "sin",
        Slct "slct", Sqrt "sqrt", St "st", Stackrestore "stackrestore", Stacksave "stacksave", Stmatrix "stmatrix", Sub "sub", Subc "subc",
        Suld "suld", Suq "suq", Sured "sured", Sust "sust", Szext "szext",
        Tanh "tanh", Tcgen05 "tcgen05", Tensormap "tensormap", Testp "testp", Tex "tex", Tld4 "tld4", Trap "trap", Txq "txq",
        Vabsdiff "vabsdiff", Vabsdiff2 "vabsdiff2", Vabsdiff4 "vabsdiff4", Vadd "vadd", Vadd2 "vadd2", Vadd4 "vadd4", Vavrg2 "vavrg2",
        Vavrg4 "vavrg4", Vmad "vmad", Vmax "vmax", Vmax2 "vmax2", Vmax4 "vmax4", Vmin "vmin", Vmin2 "vmin2", Vmin4 "vmin4", Vote "vote",
        Vset "vset", Vset2 "vset2", Vset4 "vset4", Vshl "vshl", Vshr "vshr", Vsub "vsub", Vsub2 "vsub2", Vsub4 "vsub4",
        Wgmma "wgmma", Wmma "wmma", Xor "xor",
    }
}

words! {
    /// Types of registers, memory and instructions.
    Type {
        Pred "pred",
        B1 "b1", B8 "b8", B16 "b16", B32 "b32", B64 "b64", B128 "b128",
        U2 "u2", S2 "s2", U4 "u4", S4 "s4", U8 "u8", U16 "u16", U32 "u32", U64 "u64", S8 "s8", S16 "s16", S32 "s32", S64 "s64",
        F16 "f16", F32 "f32", F64 "f64", Bf16 "bf16", Tf32 "tf32",
        U16x2 "u16x2", S16x2 "s16x2", F16x2 "f16x2", Bf16x2 "bf16x2", F32x2 "f32x2", U8x4 "u8x4", S8x4 "s8x4",
        E4m3 "e4m3", E5m2 "e5m2", E4m3x2 "e4m3x2", E5m2x2 "e5m2x2", E3m2 "e3m2", E2m3 "e2m3", E2m1 "e2m1", E3m2x2 "e3m2x2", E2m3x2 "e2m3x2",
        E2m1x2 "e2m1x2", Ue8m0 "ue8m0", Ue8m0x2 "ue8m0x2", Ue4m3 "ue4m3",
        Texref "texref", Samplerref "samplerref", Surfref "surfref",
    }
}

impl Type {
    /// Bits of a value; 1 for predicates, 64 for opaque references.
    #[must_use]
    pub const fn bits(self) -> u32 {
        use Type::*;
        match self {
            Pred | B1 => 1,
            U2 | S2 => 2,
            U4 | S4 | E2m1 => 4,
            B8 | U8 | S8 | E4m3 | E5m2 | E3m2 | E2m3 | E2m1x2 | Ue8m0 | Ue4m3 => 8,
            B16 | U16 | S16 | F16 | Bf16 | E4m3x2 | E5m2x2 | E3m2x2 | E2m3x2 | Ue8m0x2 => 16,
            B32 | U32 | S32 | F32 | Tf32 | U16x2 | S16x2 | F16x2 | Bf16x2 | U8x4 | S8x4 => 32,
            B64 | U64 | S64 | F64 | F32x2 | Texref | Samplerref | Surfref => 64,
            B128 => 128,
        }
    }

    /// A signed integer.
    #[must_use]
    pub const fn is_signed(self) -> bool {
        matches!(self, Type::S2 | Type::S4 | Type::S8 | Type::S16 | Type::S32 | Type::S64 | Type::S16x2 | Type::S8x4)
    }

    /// A single floating-point number.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, Type::F16 | Type::Bf16 | Type::F32 | Type::F64 | Type::Tf32)
    }
}

words! {
    /// State spaces.
    Space {
        Const "const", Global "global", Local "local", Param "param", ParamEntry "param::entry", ParamFunc "param::func",
        Shared "shared", SharedCta "shared::cta", SharedCluster "shared::cluster", Tex "tex", Reg "reg",
    }
}

/// The meaning of a word after a dot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum AfterDot {
    Type(Type),
    Space(Space),
    Vector(u8),
    Word(&'static str),
}

/// Words after a dot that are not a type, space or vector, for the most frequent instructions.
#[rustfmt::skip]
const OTHERS: &[&str] = &[
    "rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi", "ftz", "sat", "approx", "full", "lo", "hi", "wide", "cc", "NaN", "relu", "satfinite", "to", "uni", "sync", "aligned",
    "eq", "ne", "lt", "le", "gt", "ge", "ls", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan", "and", "or", "xor", "add", "min", "max", "inc", "dec", "exch", "cas",
    "bfly", "up", "down", "idx", "any", "all", "ballot", "l", "r", "wrap", "clamp", "trans", "row", "col", "load", "store", "mma", "x1", "x2", "x4", "m8n8", "m16n8k8", "m16n8k16",
    "volatile", "weak", "relaxed", "acquire", "release", "acq_rel", "cta", "gpu", "sys", "cluster", "nc", "ca", "cg", "cs", "cv", "lu", "wb", "wt", "L1::evict_last", "L2::128B", "L2::256B",
    "async", "bulk", "tensor", "commit_group", "wait_group", "wait_all", "init", "inval", "arrive", "expect_tx", "try_wait", "test_wait", "parity", "mma_async", "fence", "proxy", "wait",
];

const fn all_after_dots() -> [&'static str; Type::ALL.len() + Space::ALL.len() + OTHERS.len()] {
    let (mut out, mut n) = ([""; Type::ALL.len() + Space::ALL.len() + OTHERS.len()], 0);
    while n < out.len() {
        out[n] = if n < Type::ALL.len() {
            Type::ALL[n].word()
        } else if n < Type::ALL.len() + Space::ALL.len() {
            Space::ALL[n - Type::ALL.len()].word()
        } else {
            OTHERS[n - Type::ALL.len() - Space::ALL.len()]
        };
        n += 1;
    }
    out
}

/// The meaning of a word after a dot; `None`: it is not in this list.
pub(super) fn after_dot(word: &str) -> Option<AfterDot> {
    const WORDS: &[&str] = &all_after_dots();
    const PLACES: [u8; (4 * WORDS.len()).next_power_of_two()] = places(WORDS);
    const _: () = assert!(WORDS.len() < 256);
    const SPACES: usize = Type::ALL.len();
    const FROM: usize = SPACES + Space::ALL.len();
    Some(match found(word, WORDS, &PLACES) {
        Some(k @ 0..SPACES) => AfterDot::Type(Type::ALL[k]),
        Some(k @ SPACES..FROM) => AfterDot::Space(Space::ALL[k - SPACES]),
        Some(k) => AfterDot::Word(WORDS[k]),
        None => match word {
            "v2" => AfterDot::Vector(2),
            "v4" => AfterDot::Vector(4),
            "v8" => AfterDot::Vector(8),
            _ => return None,
        },
    })
}

/// Whether a register of that name (with its `%`, without `.x`) is a special register.
#[must_use]
pub fn is_special(name: &str) -> bool {
    let Some(word) = name.strip_prefix('%') else { return false };
    let numbered = |stem: &str, n: u32| {
        word.strip_prefix(stem)
            .and_then(|d| d.strip_suffix("_64").unwrap_or(d).parse::<u32>().ok())
            .is_some_and(|k| k < n)
    };
    let plain = matches!(
        word,
        "tid"
            | "ntid"
            | "laneid"
            | "warpid"
            | "nwarpid"
            | "ctaid"
            | "nctaid"
            | "smid"
            | "nsmid"
            | "gridid"
            | "clusterid"
            | "nclusterid"
            | "cluster_ctaid"
            | "cluster_nctaid"
            | "cluster_ctarank"
            | "cluster_nctarank"
            | "is_explicit_cluster"
            | "lanemask_eq"
            | "lanemask_le"
            | "lanemask_lt"
            | "lanemask_ge"
            | "lanemask_gt"
            | "clock"
            | "clock_hi"
            | "clock64"
            | "globaltimer"
            | "globaltimer_lo"
            | "globaltimer_hi"
            | "reserved_smem_offset_begin"
            | "reserved_smem_offset_end"
            | "reserved_smem_offset_cap"
            | "total_smem_size"
            | "aggr_smem_size"
            | "dynamic_smem_size"
            | "current_graph_exec"
    );
    plain || numbered("pm", 8) || numbered("envreg", 32) || numbered("reserved_smem_offset_", 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_values_belong_together() {
        assert_eq!(Opcode::parse("ldmatrix"), Some(Opcode::Ldmatrix));
        assert_eq!(Opcode::parse("ld.global"), None);
        assert_eq!(
            (after_dot("f32"), after_dot("param")),
            (Some(AfterDot::Type(Type::F32)), Some(AfterDot::Space(Space::Param)))
        );
        assert_eq!(
            (after_dot("v4"), after_dot("relaxed")),
            (Some(AfterDot::Vector(4)), Some(AfterDot::Word("relaxed")))
        );
        assert_eq!((after_dot("evict"), after_dot("")), (None, None));
        assert!(OTHERS.iter().all(|w| after_dot(w) == Some(AfterDot::Word(w))));
        assert!(Opcode::ALL.iter().all(|o| Opcode::parse(o.word()) == Some(*o)));
        assert!(Type::ALL.iter().all(|o| Type::parse(o.word()) == Some(*o)));
        assert_eq!((Type::Bf16x2.bits(), Type::E4m3x2.bits()), (32, 16));
    }

    #[test]
    fn a_counted_range_has_the_names_below_its_count() {
        let number = |stem, count, name: &str| Counted::new(stem, count).number(&Numbered::of(name.as_bytes()));
        assert_eq!(
            (number("%r", 10, "%r9"), number("%r", 10, "%r10"), number("%r", 10, "%rd9")),
            (Some(9), None, None)
        );
        assert_eq!((number("%r", 10, "%r"), number("%r", 10, "%r01"), number("%r", 10, "%r0")), (None, None, Some(0)));
        assert_eq!(
            (number("%r1", 10, "%r10"), number("%r1", 10, "%r19"), number("%r1", 10, "%r1")),
            (Some(0), Some(9), None)
        );
        assert_eq!((number("long_prefix_", 5, "long_prefix_4"), number("%r0", 5, "%r01")), (Some(4), Some(1)));
    }

    #[test]
    fn special_registers_have_known_names() {
        assert!(is_special("%tid") && is_special("%envreg31") && is_special("%pm7_64"));
        assert!(!is_special("%envreg32") && !is_special("tid") && !is_special("%r1"));
    }
}
