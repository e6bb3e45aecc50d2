//! Values that all threads of a warp share and loops keep are in uniform registers: the same memory as ptxas's code on
//! every chip, that it is done, and that it is not done where threads may part.

use crate::versus::{kernel, same_everywhere};
use doorbell::isa::sass::compile::kernels;
use doorbell::isa::sass::decode;

/// The body's instructions that work on uniform registers or go by uniform predicates.
fn uniform(body: &str) -> Vec<String> {
    let all = kernels(&kernel(body)).unwrap_or_else(|e| panic!("{e}\n{body}"));
    let words = all[0].words.iter().map(|w| decode(*w).unwrap_or_else(|e| panic!("{e}")));
    // Constants of banks come through uniform registers everywhere.
    let is = |m: &str| m.starts_with('U') && m != "ULDC" || m == "S2UR";
    let name = |form: &doorbell::isa::sass::Form| match (form.mnemonic, form.name) {
        ("BRA", "U") => Some("BRA.U".to_owned()),
        (m, _) => Some(m.to_owned()).filter(|m| is(m)),
    };
    words.filter_map(|i| name(i.form())).collect()
}

/// Runs `iteration` for thirty-odd iterations; %r1 counts, %r2 is the result.
fn counted(bound: &str, iteration: &str) -> String {
    format!(
        "mov.u32 %r1, 0; mov.u32 %r2, %x; L: {iteration} add.s32 %r1, %r1, 1; setp.lt.s32 %p1, %r1, {bound}; @%p1 bra L;
        st.global.u32 [%o], %r2;"
    )
}

/// What an iteration does with the counter.
const ITERATIONS: [(&str, &str); 7] = [
    ("sum", "add.s32 %r2, %r2, %r1;"),
    ("product", "mul.lo.s32 %r3, %r1, %t; xor.b32 %r2, %r2, %r3;"),
    ("product and sum", "mad.lo.s32 %r2, %r2, %t, %r1;"),
    (
        "its product",
        "mul.lo.s32 %r3, %r1, 28; shl.b32 %r4, %r1, 3; add.s32 %r3, %r3, %r4; mad.lo.s32 %r2, %r2, %t, %r3;",
    ),
    ("difference", "sub.s32 %r2, %r1, %r2; and.b32 %r3, %r1, 6; xor.b32 %r2, %r2, %r3;"),
    ("comparison", "setp.lt.s32 %p2, %t, %r1; selp.b32 %r3, %t, %r1, %p2; add.s32 %r2, %r2, %r3;"),
    ("wide product", "mad.wide.s32 %d3, %t, %r1, %i; cvt.u32.u64 %r3, %d3; sub.s32 %r2, %r3, %r2;"),
];

#[test]
fn counters_of_loops_stand_in_uniform_registers() {
    for (name, iteration) in ITERATIONS {
        let body = counted("37", iteration);
        let all = uniform(&body);
        assert!(all.contains(&"UIADD3".to_owned()), "{name}: {all:?}");
        assert!(all.contains(&"BRA.U".to_owned()), "{name}: {all:?}");
        same_everywhere(name, &body);
    }
}

#[test]
fn places_of_blocks_and_loops_in_loops_leave_what_ptxas_leaves() {
    let inner = "mov.u32 %r5, 0; K: mad.lo.s32 %r2, %r2, %t, %r5; add.s32 %r5, %r5, 2; setp.lt.s32 %p2, %r5, 74; @%p2 bra K; add.s32 %r2, %r2, %r1;";
    let nested = counted("37", inner);
    assert!(uniform(&nested).iter().filter(|m| *m == "BRA.U").count() == 2, "{:?}", uniform(&nested));
    same_everywhere("nested", &nested);
    let block =
        format!("mov.u32 %r7, %ctaid.x; {}", counted("37", "add.s32 %r3, %r1, %r7; mad.lo.s32 %r2, %r2, %t, %r3;"));
    assert!(uniform(&block).contains(&"S2UR".to_owned()), "{:?}", uniform(&block));
    same_everywhere("block", &block);
}

#[test]
fn what_threads_may_see_otherwise_stays_in_registers_of_their_own() {
    let own = "add.s32 %r2, %r2, %r1;";
    let cases = [
        ("own bound", counted("%t", own)),
        ("own bound, read behind the loop", format!("{} st.global.u32 [%o+4], %r1;", counted("%t", own))),
        ("stored", format!("{} st.global.u32 [%o+4], %r1;", counted("37", own))),
        ("own way around", format!("setp.gt.u32 %p3, %t, 40; @%p3 bra M; {} M:", counted("37", own))),
        (
            "own way out",
            counted("37", "setp.eq.s32 %p2, %r1, %t; @%p2 bra O; mad.lo.s32 %r2, %r2, 5, %r1;")
                .replace("@%p1 bra L;", "@%p1 bra L; O: st.global.u32 [%o+8], %r1;"),
        ),
        ("own step", counted("370", "add.s32 %r1, %r1, %t; add.s32 %r2, %r2, %r1;")),
        (
            "loaded",
            counted("37", "ld.global.u32 %r1, [%i]; and.b32 %r1, %r1, 7; add.s32 %r1, %r1, 37; add.s32 %r2, %r2, %r1;"),
        ),
    ];
    for (name, body) in cases {
        assert_eq!(uniform(&body), Vec::<String>::new(), "{name}");
        same_everywhere(name, &body);
    }
}

#[test]
fn what_a_matrix_load_gives_each_thread_parts_the_threads() {
    let way = "mad.lo.s32 %r2, %r2, %t, %r1; mad.lo.s32 %r2, %r2, %t, %x;".repeat(5);
    let iteration = format!("@%p3 bra M; {way} M: add.s32 %r2, %r2, %r1;");
    let body = format!(
        "ld.param.u64 %d2, [in]; wmma.load.c.sync.aligned.row.m16n16k16.global.s32 {{%r10,%r11,%r12,%r13,%r14,%r15,%r16,%r17}}, [%d2], 16;
        setp.gt.s32 %p3, %r10, 0; {}",
        counted("37", &iteration)
    );
    assert_eq!(uniform(&body), Vec::<String>::new());
    same_everywhere("matrix", &body);
}
