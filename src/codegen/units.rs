//! Tables of the matrix units of known instruction sets: what a [`super::Target`] lists as its tensor cores.
//!
//! Sources: the vendors' ISA manuals (RDNA3 7.9, RDNA4 7.12, CDNA3 7.1, PTX `mma` fragments, Intel SDM TDPBF16PS). The
//! reduction steps may be in any order that both operands share. Left out: sparse forms, 4-bit operands, fp8 on AMD and
//! with wgmma, half-precision accumulators.

use doorbell_uop::TileBit::{E, L};
use doorbell_uop::{Scalar, Spread, TileBit, WmmaArg};

/// Rows (or columns) in the low lane bits, reduction steps in the elements.
const fn spread(row: &'static [TileBit], col: &'static [TileBit]) -> Spread {
    Spread { row, col }
}

const LANE16: &[TileBit] = &[L(0), L(1), L(2), L(3)];

/// The accumulator type: f32 for floats, i32 for bytes.
const fn sums(a: Scalar) -> Scalar {
    match a {
        Scalar::I8 | Scalar::U8 => Scalar::I32,
        _ => Scalar::F32,
    }
}

/// AMD RDNA: 16x16x16 on a wave32.
const fn rdna(name: &'static str, a: Scalar, factors: Spread, c_spread: Spread) -> WmmaArg {
    WmmaArg {
        name,
        m: 16,
        n: 16,
        k: 16,
        a,
        acc: sums(a),
        lanes: 32,
        a_spread: factors,
        b_spread: factors,
        c_spread,
        from_memory: false,
    }
}

/// gfx11: both halves of a wave32 hold the same operands.
const fn rdna3(name: &'static str, a: Scalar) -> WmmaArg {
    rdna(name, a, spread(LANE16, &[E(0), E(1), E(2), E(3)]), spread(&[L(4), E(0), E(1), E(2)], LANE16))
}

/// gfx12: each half of a wave32 holds eight steps.
const fn rdna4(name: &'static str, a: Scalar) -> WmmaArg {
    rdna(name, a, spread(LANE16, &[E(0), E(1), E(2), L(4)]), spread(&[E(0), E(1), E(2), L(4)], LANE16))
}

/// gfx9 with MFMA: each quarter of a wave64 holds four steps of half types, or eight of bytes.
const fn cdna3(name: &'static str, a: Scalar, k: u16) -> WmmaArg {
    const HALVES: Spread = spread(LANE16, &[E(0), E(1), L(4), L(5)]);
    const BYTES: Spread = spread(LANE16, &[E(0), E(1), E(2), L(4), L(5)]);
    let ab = if k == 32 { BYTES } else { HALVES };
    let c_spread = spread(&[E(0), E(1), L(4), L(5)], LANE16);
    WmmaArg {
        name,
        m: 16,
        n: 16,
        k,
        a,
        acc: sums(a),
        lanes: 64,
        a_spread: ab,
        b_spread: ab,
        c_spread,
        from_memory: false,
    }
}

/// `mma.sync` of sm_80 (fp8: sm_89) and later: two instructions on adjacent tiles, so that both operands are four words
/// per lane.
const fn mma(name: &'static str, a: Scalar) -> WmmaArg {
    const HALVES: [Spread; 2] = [
        spread(&[L(2), L(3), L(4), E(1)], &[E(0), L(0), L(1), E(2)]),
        spread(&[L(2), L(3), L(4), E(2)], &[E(0), L(0), L(1), E(1)]),
    ];
    const BYTES: [Spread; 2] = [
        spread(&[L(2), L(3), L(4), E(2)], &[E(0), E(1), L(0), L(1), E(3)]),
        spread(&[L(2), L(3), L(4), E(3)], &[E(0), E(1), L(0), L(1), E(2)]),
    ];
    const WORDS: [Spread; 2] = [
        spread(&[L(2), L(3), L(4), E(0)], &[L(0), L(1), E(1)]),
        spread(&[L(2), L(3), L(4), E(1)], &[L(0), L(1), E(0)]),
    ];
    let acc = sums(a);
    let ([a_spread, b_spread], k) = match a.size_bytes() {
        1 => (BYTES, 32),
        2 => (HALVES, 16),
        _ => (WORDS, 8),
    };
    let c_spread = spread(&[L(2), L(3), L(4), E(1)], &[E(0), L(0), L(1), E(2)]);
    WmmaArg { name, m: 16, n: 16, k, a, acc, lanes: 32, a_spread, b_spread, c_spread, from_memory: false }
}

/// `wgmma.mma_async` of sm_90a: 64 rows by 64 or 128 columns, 32 bytes of reduction steps, both operands in shared
/// memory (256 columns would be twice the lanes that a vector can have, and half of a thread's registers). The spreads
/// of the operands describe what a thread would hold (for a: as in the instruction's register form), although no thread
/// holds them.
const fn wgmma(name: &'static str, a: Scalar, columns: u16) -> WmmaArg {
    const ROWS: &[TileBit] = &[L(2), L(3), L(4), E(1), L(5), L(6)];
    const HALVES: Spread = spread(ROWS, &[E(0), L(0), L(1), E(2)]);
    const BYTES: Spread = spread(&[L(2), L(3), L(4), E(2), L(5), L(6)], &[E(0), E(1), L(0), L(1), E(3)]);
    const WORDS: Spread = spread(&[L(2), L(3), L(4), E(0), L(5), L(6)], &[L(0), L(1), E(1)]);
    const LINES: &[TileBit] = &[L(0), L(1), L(2), L(3), L(4), L(5)];
    const WIDE_LINES: &[TileBit] = &[L(0), L(1), L(2), L(3), L(4), L(5), L(6)];
    let (a_spread, k, b_steps, wide_steps): (_, _, &[TileBit], &[TileBit]) = match a.size_bytes() {
        1 => (BYTES, 32, &[L(6), E(0), E(1), E(2), E(3)], &[E(0), E(1), E(2), E(3), E(4)]),
        2 => (HALVES, 16, &[L(6), E(0), E(1), E(2)], &[E(0), E(1), E(2), E(3)]),
        _ => (WORDS, 8, &[L(6), E(0), E(1)], &[E(0), E(1), E(2)]),
    };
    let (b_spread, c_columns): (_, &[TileBit]) = match columns {
        64 => (spread(LINES, b_steps), &[E(0), L(0), L(1), E(2), E(3), E(4)]),
        _ => (spread(WIDE_LINES, wide_steps), &[E(0), L(0), L(1), E(2), E(3), E(4), E(5)]),
    };
    let (acc, c_spread) = (sums(a), spread(ROWS, c_columns));
    WmmaArg { name, m: 64, n: columns, k, a, acc, lanes: 128, a_spread, b_spread, c_spread, from_memory: true }
}

/// gfx11 (RDNA3): WMMA of f16, bf16 and bytes.
pub const RDNA3: &[WmmaArg] = &[
    rdna3("v_wmma_f32_16x16x16_f16", Scalar::F16),
    rdna3("v_wmma_f32_16x16x16_bf16", Scalar::BF16),
    rdna3("v_wmma_i32_16x16x16_iu8", Scalar::I8),
    rdna3("v_wmma_i32_16x16x16_iu8", Scalar::U8),
];
/// gfx12 (RDNA4): WMMA of f16, bf16 and bytes.
pub const RDNA4: &[WmmaArg] = &[
    rdna4("v_wmma_f32_16x16x16_f16", Scalar::F16),
    rdna4("v_wmma_f32_16x16x16_bf16", Scalar::BF16),
    rdna4("v_wmma_i32_16x16x16_iu8", Scalar::I8),
    rdna4("v_wmma_i32_16x16x16_iu8", Scalar::U8),
];
/// gfx942 (CDNA3): MFMA of f16, bf16 and signed bytes.
pub const CDNA3: &[WmmaArg] = &[
    cdna3("v_mfma_f32_16x16x16_f16", Scalar::F16, 16),
    cdna3("v_mfma_f32_16x16x16_bf16", Scalar::BF16, 16),
    cdna3("v_mfma_i32_16x16x32_i8", Scalar::I8, 32),
];
const MMA_F16: WmmaArg = mma("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", Scalar::F16);
const MMA_BF16: WmmaArg = mma("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", Scalar::BF16);
const MMA_S8: WmmaArg = mma("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", Scalar::I8);
const MMA_U8: WmmaArg = mma("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32", Scalar::U8);
const MMA_E4M3: WmmaArg = mma("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", Scalar::F8E4M3);
const MMA_E5M2: WmmaArg = mma("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32", Scalar::F8E5M2);
const MMA_TF32: WmmaArg = mma("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", Scalar::F32);
/// sm_80 and later: `mma.sync` of f16, bf16, bytes and tf32.
pub const SM80: &[WmmaArg] = &[MMA_F16, MMA_BF16, MMA_S8, MMA_U8, MMA_TF32];
/// sm_89 and later: as [`SM80`], and fp8.
pub const SM89: &[WmmaArg] = &[MMA_F16, MMA_BF16, MMA_S8, MMA_U8, MMA_E4M3, MMA_E5M2, MMA_TF32];
/// The units of single warps come first: they do not need PIPE.
pub const SM90A: &[WmmaArg] = &[
    MMA_F16,
    MMA_BF16,
    MMA_S8,
    MMA_U8,
    MMA_E4M3,
    MMA_E5M2,
    wgmma("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16", Scalar::F16, 128),
    wgmma("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16", Scalar::F16, 64),
    wgmma("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16", Scalar::BF16, 128),
    wgmma("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16", Scalar::BF16, 64),
    wgmma("wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8", Scalar::I8, 128),
    wgmma("wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8", Scalar::I8, 64),
    wgmma("wgmma.mma_async.sync.aligned.m64n128k32.s32.u8.u8", Scalar::U8, 128),
    wgmma("wgmma.mma_async.sync.aligned.m64n64k32.s32.u8.u8", Scalar::U8, 64),
    MMA_TF32,
    wgmma("wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32", Scalar::F32, 128),
    wgmma("wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32", Scalar::F32, 64),
];

/// The units that use their factors without rounding, that is, without the tf32 ones at the end of the list, which drop
/// the low bits of an f32.
pub const fn exact(mut units: &'static [WmmaArg]) -> &'static [WmmaArg] {
    while let [others @ .., last] = units
        && last.cuts()
    {
        units = others;
    }
    units
}

/// AMX: tile registers of 16 rows of 64 bytes; operand b holds two steps of a column side by side.
pub const AMX: &[WmmaArg] = &[WmmaArg {
    name: "tdpbf16ps",
    m: 16,
    n: 16,
    k: 32,
    a: Scalar::BF16,
    acc: Scalar::F32,
    lanes: 1,
    a_spread: spread(&[E(5), E(6), E(7), E(8)], &[E(0), E(1), E(2), E(3), E(4)]),
    b_spread: spread(&[E(1), E(2), E(3), E(4)], &[E(0), E(5), E(6), E(7), E(8)]),
    c_spread: spread(&[E(4), E(5), E(6), E(7)], &[E(0), E(1), E(2), E(3)]),
    from_memory: false,
}];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_unit_holds_every_element_of_its_tiles() {
        for w in [RDNA3, RDNA4, CDNA3, SM90A, AMX].into_iter().flatten() {
            let held = |s: &Spread| -> BTreeSet<(usize, usize)> {
                (0..w.lanes as usize).flat_map(|l| (0..s.elements() as usize).map(move |e| s.place(l, e))).collect()
            };
            let (m, n, k) = (w.m as usize, w.n as usize, w.k as usize);
            for (s, size) in [(&w.a_spread, m * k), (&w.b_spread, n * k), (&w.c_spread, m * n)] {
                assert_eq!(held(s).len(), size, "{}", w.name);
            }
            assert_eq!(
                w.lanes as usize * w.c_spread.elements() as usize,
                m * n,
                "{}: no two lanes store the same",
                w.name
            );
        }
    }

    #[test]
    fn tiles_lie_where_the_manuals_say() {
        // RDNA3: result register 1 of lane 16 is row 3, column 0.
        assert_eq!(RDNA3[0].c_spread.place(16, 1), (3, 0));
        // PTX: a5 of thread 6 (group 1, thread 2 in it) is row 1, column 2 * 2 + 1 + 8.
        assert_eq!(SM80[0].a_spread.place(6, 5), (1, 13));
        // PTX, wgmma's accumulator: d7 of thread 70 (warp 2, group 1, thread 2 in it) is row 16 * 2 + 1 + 8, column 2 *
        // 2 + 1 + 8.
        assert_eq!(SM90A[6].c_spread.place(70, 7), (41, 13));
        // AMX: row 3 of the b tile holds steps 6 and 7; its element 5 is column 2, step 7.
        assert_eq!(AMX[0].b_spread.place(0, 3 * 32 + 5), (2, 7));
    }
}
