//! Combined instructions, seen in the words; what they leave is what ptxas's code leaves.

use crate::assemble::{MINE, made};

fn count(texts: &[String], what: &str) -> usize {
    texts.iter().filter(|t| t.contains(what)).count()
}

#[test]
fn registers_written_again_and_again_are_as_good_as_new_ones() {
    let reused = "ld.param.u64 %d1, [o]; mov.u32 %r1, %tid.x; mul.wide.u32 %d2, %r1, 4; add.s64 %d2, %d1, %d2; ld.global.u32 %r2, [%d2];
        add.u32 %r3, %r1, 1; mul.wide.u32 %d3, %r3, 4; add.s64 %d3, %d1, %d3; ld.global.u32 %r3, [%d3]; add.u32 %r3, %r3, %r2;
        shl.b32 %r4, %r3, 3; add.u32 %r4, %r4, %r2; setp.lt.u32 %p1, %r4, 9; selp.b32 %r4, %r4, %r3, %p1; bar.sync 0;
        mul.wide.u32 %d3, %r1, 4; add.s64 %d3, %d1, %d3; st.global.u32 [%d3], %r4;";
    let own = "ld.param.u64 %d1, [o]; mov.u32 %r1, %tid.x; mul.wide.u32 %d2, %r1, 4; add.s64 %d3, %d1, %d2; ld.global.u32 %r2, [%d3];
        add.u32 %r3, %r1, 1; mul.wide.u32 %d4, %r3, 4; add.s64 %d5, %d1, %d4; ld.global.u32 %a1, [%d5]; add.u32 %a2, %a1, %r2;
        shl.b32 %a3, %a2, 3; add.u32 %a4, %a3, %r2; setp.lt.u32 %p1, %a4, 9; selp.b32 %a5, %a4, %a2, %p1; bar.sync 0;
        mul.wide.u32 %d6, %r1, 4; add.s64 %d7, %d1, %d6; st.global.u32 [%d7], %a5;";
    let (reused, left) = made(&format!(".reg .b32 %a<6>; {reused}"));
    let (own, same) = made(&format!(".reg .b32 %a<6>; {own}"));
    assert_eq!((reused.len(), left), (own.len(), same));
    assert_eq!((count(&reused, "IMAD.WIDE"), count(&reused, ".X ")), (3, 0), "{reused:#?}");
}

/// What goes from block to block, or is written under a guard, is one value of one register.
#[test]
fn registers_that_blocks_hand_on_keep_their_values() {
    let (_, left) = made(&format!(
        "{MINE} mov.u32 %r2, 1; mov.u32 %r3, 0; setp.lt.u32 %p1, %r1, 9; add.u32 %r2, %r2, 2; @%p1 bra A; add.u32 %r2, %r2, 4; add.u32 %r3, %r2, 8;
        mov.u32 %r2, 16; @%p1 mov.u32 %r2, 32; add.u32 %r3, %r3, %r2; mov.u32 %r2, 64; A: add.u32 %r3, %r3, %r2; mov.u32 %r4, 0;
        L: mov.u32 %r5, %r3; add.u32 %r5, %r5, 1; mov.u32 %r3, %r5; add.u32 %r3, %r3, %r4; add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, %r1; @%p2 bra L;
        setp.lt.u32 %p1, %r1, 3; not.pred %p1, %p1; @%p1 add.u32 %r3, %r3, 1000; st.global.u32 [%d1], %r3;"
    ));
    let turns = |k: u32| (0..k.max(1)).map(|n| n + 1).sum::<u32>();
    for k in 0..32 {
        let want = if k < 9 { 3 } else { 15 + 16 + 64 } + turns(k) + if k < 3 { 0 } else { 1000 };
        assert_eq!(left[k as usize], want, "thread {k}");
    }
}

#[test]
fn products_of_constants_are_offsets() {
    // The loop's seven iterations become straight-line code, whose addresses are constants.
    let (texts, _) = made(
        "ld.param.u64 %d1, [o]; mov.u32 %r2, 0; mov.u32 %r3, 0; L: mul.lo.s32 %r4, %r2, 3; mad.wide.s32 %d2, %r4, 4, %d1; ld.global.u32 %r5, [%d2+4];
        add.u32 %r3, %r3, %r5; add.s32 %r2, %r2, 1; setp.lt.s32 %p1, %r2, 7; @%p1 bra L; bar.sync 0; mul.wide.s32 %d3, -1, -8; add.s64 %d3, %d3, %d1;
        mad.wide.u32 %d4, 2, 8, %d1; st.global.u32 [%d3], %r3; st.global.u32 [%d4], %r3;",
    );
    assert_eq!((count(&texts, "IMAD"), count(&texts, "IADD3.X"), count(&texts, "LDG")), (0, 0, 7), "{texts:#?}");
    assert_eq!((count(&texts, "+0x8]"), count(&texts, "+0x10]")), (1, 2), "{texts:#?}");
}

#[test]
fn comparisons_take_constants_and_what_their_results_are_joined_with() {
    let (texts, _) = made(&format!(
        "{MINE} .reg .f64 %x<3>; .reg .pred %q<9>; ld.global.u32 %r2, [%d1]; cvt.rn.f64.u32 %x1, %r1; setp.lt.s32 %q1, 7, %r1; setp.ge.u32 %q2, 90000, %r2;
        and.pred %q3, %q1, %q2; setp.gt.f64 %q4, 0d4034000000000000, %x1; or.pred %q5, %q4, %q3; setp.eq.f64 %q6, %x1, 0d0000000000000000; xor.pred %q7, %q6, %q5;
        not.pred %q8, %q7; selp.b32 %r3, 5, %r2, %q8; @!%q8 add.u32 %r3, %r3, 1; st.global.u32 [%d1], %r3;"
    ));
    assert_eq!((count(&texts, "PLOP3"), count(&texts, "ISETP"), count(&texts, "DSETP")), (0, 2, 2), "{texts:#?}");
    // Nothing is moved: the address takes its factor as it is, the choice and the guard the condition.
    assert_eq!((count(&texts, "MOV"), count(&texts, ".XOR")), (0, 1), "{texts:#?}");
}

#[test]
fn halves_change_places_in_one_instruction() {
    let (texts, left) = made(&format!(
        "{MINE} .reg .b16 %g<6>; ld.global.u32 %r2, [%d1]; add.u32 %r3, %r2, %r1; mov.b32 {{%g0,%g1}}, %r2; mov.b32 {{%g2,%g3}}, %r3; mov.b32 %r4, {{%g1,%g0}};
        mov.b32 %r5, {{%g1,%g3}}; mov.b32 %r6, {{%g2,%g1}}; add.u32 %r4, %r4, %r5; add.u32 %r4, %r4, %r6; st.global.u32 [%d1], %r4;"
    ));
    assert_eq!((count(&texts, "PRMT"), count(&texts, "SHF")), (3, 0), "{texts:#?}");
    for k in 0..32u32 {
        let a = k * 0x0101_0107 + 3;
        let b = a + k;
        let want = a.rotate_left(16) + (a >> 16 | b & 0xffff_0000) + (b & 0xffff | a & 0xffff_0000);
        assert_eq!(left[k as usize], want, "thread {k}");
    }
}
