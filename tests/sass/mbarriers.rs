//! `mbarrier` and the copies that arrive at one, on every chip: ours and ptxas's code of the same text, in strict mode.

use crate::versus::{THREADS, input, ours_for, same_for};
use doorbell::isa::sass::SmArch;

/// As blocks of threads wait for each other and for their copies: by states and by parities, with arrivals at mbarriers
/// of their own, with threads that leave.
#[test]
fn mbarriers_leave_what_ptxas_leaves_on_every_chip() {
    let place = "mov.u32 %r1, sm; mad.lo.u32 %r1, %t, 16, %r1; mov.u32 %r9, bar; setp.eq.u32 %p1, %t, 0;";
    let load = "ld.shared.v4.b32 {%r2, %r3, %r4, %r5}, [%r1]; st.global.v4.b32 [%o], {%r2, %r3, %r4, %r5};";
    let store = "st.shared.v4.b32 [%r1], {%x, %t, %x, %t};";
    let other = "xor.b32 %r8, %t, 33; mov.u32 %r7, sm; mad.lo.u32 %r1, %r8, 16, %r7;";
    let init = format!("@%p1 mbarrier.init.shared.b64 [%r9], {THREADS}; bar.sync 0;");
    let own = "shl.b32 %r10, %t, 3; mov.u32 %r11, sm; add.u32 %r11, %r11, %r10;";
    for (name, body) in [
        ("state", format!("{place} {init} {store} mbarrier.arrive.shared.b64 %d5, [%r9]; W: mbarrier.test_wait.shared.b64 %p2, [%r9], %d5; @!%p2 bra W; {other} {load}")),
        (
            "two phases by parity, a thread that leaves",
            format!(
                "{place} {init} {store} @%p1 mbarrier.arrive_drop.shared.b64 %d5, [%r9]; @!%p1 mbarrier.arrive.shared.b64 %d5, [%r9];
                W: mbarrier.test_wait.parity.shared.b64 %p2, [%r9], 0; @!%p2 bra W; {other} {load}
                @%p1 exit; mbarrier.arrive.shared.b64 _, [%r9]; and.b32 %r12, %t, 0; add.u32 %r12, %r12, 1;
                V: mbarrier.test_wait.parity.shared.b64 %p2, [%r9], %r12; @!%p2 bra V; st.global.u32 [%o+4], %r5;"
            ),
        ),
        (
            "copies that arrive, counted and not",
            format!(
                "{place} @%p1 mbarrier.init.shared.b64 [%r9+8], {THREADS}; {init} cp.async.ca.shared.global [%r1], [%i], 16;
                cp.async.mbarrier.arrive.noinc.shared.b64 [%r9+8]; V: mbarrier.test_wait.parity.shared.b64 %p2, [%r9+8], 0; @!%p2 bra V;
                cp.async.ca.shared.global [%r1+4], [%i], 4; cp.async.mbarrier.arrive.shared.b64 [%r9]; mbarrier.arrive.shared.b64 %d5, [%r9];
                W: mbarrier.test_wait.shared.b64 %p2, [%r9], %d5; @!%p2 bra W; {other} {load}"
            ),
        ),
        (
            "one of their own for threads, arrivals to come",
            format!(
                "{own} mbarrier.init.shared.b64 [%r11], 9; mbarrier.arrive.noComplete.shared.b64 %d6, [%r11], 3;
                mbarrier.arrive.shared.b64 %d7, [%r11]; mbarrier.pending_count.b64 %r2, %d6; mbarrier.pending_count.b64 %r3, %d7;
                mbarrier.arrive_drop.shared.b64 %d8, [%r11]; mbarrier.pending_count.b64 %r4, %d8; mbarrier.arrive_drop.noComplete.shared.b64 %d9, [%r11], 2;
                mbarrier.pending_count.b64 %r5, %d9; mbarrier.inval.shared.b64 [%r11]; st.global.v4.b32 [%o], {{%r2, %r3, %r4, %r5}};"
            ),
        ),
    ] {
        let own = name.contains("own");
        let (before, after): (Vec<SmArch>, Vec<SmArch>) = SmArch::ALL.iter().partition(|c| c.is_before_hopper() || !own);
        let left: Vec<Vec<u8>> =
            before.iter().map(|c| same_for(c.arch(), &format!("{name}, {c}"), &body)).collect();
        // From sm_90 on ptxas goes round such threads by a predicate of R2UR that the software multiprocessor does not
        // know.
        for chip in after {
            assert_eq!(ours_for(chip.arch(), name, &body), left[0], "{name}, {chip}");
        }
    }
    // ptxas goes round these threads by that predicate on every chip: what is copied is the input.
    let body = format!(
        "{own} mad.lo.u32 %r1, %t, 16, %r11; sub.u32 %r1, %r1, %r10; mbarrier.init.shared.b64 [%r11], 1; cp.async.ca.shared.global [%r1+1024], [%i], 16;
        cp.async.mbarrier.arrive.noinc.shared.b64 [%r11]; W: mbarrier.test_wait.parity.shared.b64 %p2, [%r11], 0; @!%p2 bra W;
        add.u32 %r1, %r1, 1024; {load}"
    );
    for chip in SmArch::ALL {
        assert_eq!(ours_for(chip.arch(), "copies that arrive", &body), input()[..16 * THREADS as usize], "{chip}");
    }
}
