//! Asynchronous copies of three collected samples of PTX, with the surroundings that they need (counts that arrivals do
//! not exceed, mbarriers that are there, one order of the copies to a place): ptxas's code at -O0 and -O3 and ours in
//! strict mode, against plain Rust.

use crate::machine::{Case, launch_clusters};
use crate::nvidia::ptxas;
use doorbell::elf::cubin::Arch;
use doorbell::isa::sass::compile::assemble;

const IN: u64 = 0x7_0000_0000;
const OUT: u64 = 0x7_1000_0000;
const OUT_BYTES: usize = 3 << 12;

/// A kernel with its thread in %t, its block in %c, its shared memory in %s, its mbarriers in %m; input at %i (two
/// buffers of 4 KiB), output at %o; %p1 is thread 0, %f a float.
fn kernel(body: &str) -> String {
    format!(
        ".version 8.8\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 in, .param .u64 out, .param .f32 f)\n{{\n\
        .shared .align 128 .b8 sm[16384]; .shared .align 8 .b8 bar[64];\n\
        .reg .pred %p<8>; .reg .b32 %r<40>, %t, %c, %s, %m; .reg .b64 %d<20>, %i, %o; .reg .f32 %f<16>;\n\
        ld.param.u64 %i, [in]; ld.param.u64 %o, [out]; ld.param.f32 %f1, [f]; mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x;\n\
        mov.u32 %s, sm; mov.u32 %m, bar; setp.eq.u32 %p1, %t, 0;\n{body}\nret;\n}}\n"
    )
}

/// Whole numbers as f32, so that sums are exact and their upper halves are bf16 of the same.
fn number(k: usize) -> f32 {
    (k % 61) as f32 - 20.0
}

/// Runs the body by all three; `want` is the expected output.
fn leaves(body: &str, (blocks, threads): (u32, u32), before: &[u8], want: &[u8]) {
    let text = kernel(body);
    let ours = assemble(&text, Arch { sm: 90, specific: true }).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let input = (0..2048).flat_map(|k| number(k).to_le_bytes()).collect();
    let mut params: Vec<u8> = [IN, OUT].iter().flat_map(|a| a.to_le_bytes()).collect();
    params.extend(2.5f32.to_le_bytes());
    let buffers = [(IN, input), (OUT, before.to_vec())];
    let case = Case { grid: [blocks, 1, 1], block: [threads, 1, 1], params, buffers: &buffers, dynamic_bytes: 0 };
    for (who, cubin) in [("ours", &ours), ("-O0", &ptxas(&text, "-O0")), ("-O3", &ptxas(&text, "-O3"))] {
        let (left, _) = launch_clusters(cubin, "k", (&case, blocks), true).unwrap_or_else(|e| panic!("{who}: {e}"));
        let differs = left[1].iter().zip(want).position(|(a, b)| a != b);
        assert_eq!(differs, None, "{who}: {:?} for {:?}", &left[1][..64], &want[..64]);
    }
}

#[test]
fn arrivals_of_copies_and_counts_of_mbarriers_are_those_of_plain_rust() {
    let body = "@%p1 mbarrier.init.shared.b64 [%m], 64; @%p1 mbarrier.init.shared.b64 [%m+8], 64; @%p1 mbarrier.init.shared.b64 [%m+16], 2000; @%p1 mbarrier.init.shared.b64 [%m+24], 500;
        bar.sync 0; mad.lo.u32 %r1, %t, 16, %s; mul.wide.u32 %d1, %t, 16; add.s64 %d2, %i, %d1; cp.async.ca.shared.global [%r1], [%d2], 16;
        cp.async.mbarrier.arrive.shared.b64 [%m]; cp.async.mbarrier.arrive.noinc.shared.b64 [%m+8]; mbarrier.arrive.shared.b64 %d3, [%m];
        W: mbarrier.test_wait.shared.b64 %p2, [%m], %d3; @!%p2 bra W; W2: mbarrier.try_wait.shared.b64 %p3, [%m], %d3; @!%p3 bra W2;
        W3: mbarrier.try_wait.parity.shared.b64 %p4, [%m], 0; @!%p4 bra W3; W4: mbarrier.test_wait.parity.shared.b64 %p4, [%m+8], 0; @!%p4 bra W4;
        W5: mbarrier.try_wait.parity.shared.b64 %p5, [%m], 0, 0x989680; @!%p5 bra W5; xor.b32 %r2, %r1, 16; ld.shared.b32 %r3, [%r2+4]; mov.u32 %r4, 0; mov.u32 %r9, 0;
        setp.lt.u32 %p6, %t, 32; @!%p6 bra V; mbarrier.arrive.noComplete.shared.b64 %d8, [%m+24], 3; mbarrier.pending_count.b64 %r9, %d8; V:
        @!%p1 bra S; mbarrier.arrive.noComplete.shared.b64 %d4, [%m+16], 3; mbarrier.pending_count.b64 %r5, %d4;
        mbarrier.arrive.expect_tx.shared.b64 %d5, [%m+16], 512; mbarrier.pending_count.b64 %r6, %d5; mbarrier.arrive.expect_tx.shared.b64 _, [%m+16], 16;
        mbarrier.expect_tx.relaxed.cta.shared.b64 [%m+16], 1024; mbarrier.complete_tx.relaxed.cta.shared.b64 [%m+16], 256;
        mbarrier.arrive_drop.shared.b64 %d6, [%m+16]; mbarrier.pending_count.b64 %r7, %d6; mbarrier.arrive.shared.b64 _, [%m+16], 2;
        mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%m+16]; mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%m+16], 64;
        mbarrier.arrive.shared.b64 %d7, [%m+16]; mbarrier.pending_count.b64 %r8, %d7; mbarrier.inval.shared.b64 [%m+16];
        mad.lo.u32 %r4, %r5, 10000, %r6; mad.lo.u32 %r4, %r4, 10, %r7; xor.b32 %r4, %r4, %r8; S:
        mul.wide.u32 %d1, %t, 8; add.s64 %d1, %d1, %o; st.global.v2.b32 [%d1], {%r3, %r4};
        st.global.b32 [%d1+512], %r9;";
    let mut want = vec![0; OUT_BYTES];
    for t in 0..64 {
        want[8 * t..][..4].copy_from_slice(&number(4 * (t ^ 1) + 1).to_le_bytes());
        // A warp's lanes arrive one after the other.
        let pending = if t < 32 { 500 - 3 * t as u32 } else { 0 };
        want[512 + 8 * t..][..4].copy_from_slice(&pending.to_le_bytes());
    }
    // What was pending before each arrival.
    let (three, then, dropped, last) = (2000u32, 1997u32, 1995u32, 1990u32);
    want[4..8].copy_from_slice(&(((three * 10000 + then) * 10 + dropped) ^ last).to_le_bytes());
    leaves(body, (1, 64), &vec![0; OUT_BYTES], &want);
}

#[test]
fn bulk_copies_and_reductions_are_those_of_plain_rust() {
    let body = "@%p1 mbarrier.init.shared.b64 [%m], 1; fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta; bar.sync 0; @!%p1 bra S;
        add.s64 %d1, %i, 4096; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%m], 8192; mov.u32 %r2, 4096;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%s], [%i], 4096, [%m];
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%s+4096], [%d1], %r2, [%m]; S:
        W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%m], 0; @!%p2 bra W; mad.lo.u32 %r1, %t, 16, %s;
        ld.shared.v4.f32 {%f2, %f3, %f4, %f5}, [%r1]; ld.shared.f32 %f6, [%r1+4096]; fma.rn.f32 %f2, %f2, %f1, %f6;
        st.shared.v4.f32 [%r1+4096], {%f2, %f3, %f4, %f5}; fence.proxy.async.shared::cta; bar.sync 0; @!%p1 bra X;
        cp.async.bulk.global.shared::cta.bulk_group [%o], [%s+4096], 4096; cp.async.bulk.commit_group;
        cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%o+4096], [%s], 4096;
        cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.bf16 [%o+8192], [%s], 4096; cp.async.bulk.commit_group;
        cp.async.bulk.wait_group 0; cp.reduce.async.bulk.global.shared::cta.bulk_group.max.s32 [%o+8192], [%s], 4096; cp.async.bulk.commit_group;
        cp.async.bulk.wait_group.read 1; cp.async.bulk.wait_group 0; cp.async.bulk.prefetch.L2.global [%i], 4096; X:";
    let before: Vec<u8> = (0..OUT_BYTES / 4)
        .flat_map(|k| match k {
            0..2048 => 3.0f32.to_le_bytes(),
            _ => 0x3f80_3f80u32.to_le_bytes(),
        })
        .collect();
    let mut want = before.clone();
    let bf16 = |bits: u32| half::bf16::from_bits(bits as u16).to_f32();
    for k in 0..1024 {
        let a = number(k);
        let scaled = if k % 4 == 0 { a * 2.5 + number(1024 + k) } else { a };
        // Each half plus one, then the larger word.
        let half = |shift: u32| u32::from(half::bf16::from_f32(bf16(a.to_bits() >> shift) + 1.0).to_bits());
        let sums = (half(16) << 16 | half(0)).cast_signed().max(a.to_bits().cast_signed());
        want[4 * k..][..4].copy_from_slice(&scaled.to_le_bytes());
        want[4096 + 4 * k..][..4].copy_from_slice(&(a + 3.0).to_le_bytes());
        want[8192 + 4 * k..][..4].copy_from_slice(&sums.to_le_bytes());
    }
    leaves(body, (1, 256), &before, &want);
}

#[test]
fn copies_between_the_blocks_of_a_cluster_are_those_of_plain_rust() {
    // The first block's thread 0 sends all; 2072 bytes come to the second block, 1024 to the first.
    let body = "mad.lo.u32 %r1, %t, 4, %s; mad.lo.u32 %r2, %c, 1000, %t; st.shared.b32 [%r1], %r2; st.shared.b32 [%r1+1024], %r2;
        st.shared.b32 [%r1+2048], %r2; st.shared.b32 [%r1+3072], %r2; @%p1 mbarrier.init.shared.b64 [%m], 1;
        fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta; bar.sync 0; setp.eq.u32 %p3, %c, 0; selp.u32 %r3, 1024, 2072, %p3;
        @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%m], %r3; barrier.cluster.arrive; barrier.cluster.wait; and.pred %p3, %p3, %p1; @!%p3 bra S;
        mapa.shared::cluster.u32 %r11, %m, 1; mapa.shared::cluster.u32 %r12, %s, 1;
        cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r12+1024], [%s+2048], 1024, [%r11];
        st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r12+2048], 77, [%r11]; mov.u32 %r13, 78;
        st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r12+2064], {%r13, %c, %t, %r13}, [%r11];
        red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r12+3072], %r13, [%r11]; mov.b16 %h1, 3;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%s], [%i], 1024, [%m], %h1; S:
        W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%m], 0; @!%p2 bra W; bar.sync 0; mul.wide.u32 %d1, %c, 4096; add.s64 %o, %o, %d1;
        mul.wide.u32 %d1, %t, 4; add.s64 %o, %o, %d1; ld.shared.b32 %r4, [%r1]; ld.shared.b32 %r5, [%r1+1024]; ld.shared.b32 %r6, [%r1+2048];
        ld.shared.b32 %r7, [%r1+3072]; st.global.b32 [%o], %r4; st.global.b32 [%o+1024], %r5; st.global.b32 [%o+2048], %r6;
        st.global.b32 [%o+3072], %r7; barrier.cluster.arrive; barrier.cluster.wait;";
    let mut want = vec![0u32; OUT_BYTES / 4];
    for block in 0..2usize {
        for t in 0..256 {
            let own = (1000 * block + t) as u32;
            let sent = if block == 1 { t as u32 } else { own };
            let words = [number(t).to_bits(), sent, own, own];
            (0..4).for_each(|part| want[1024 * block + 256 * part + t] = words[part]);
        }
    }
    want[1024 + 512] = 77;
    want[1024 + 516..][..4].copy_from_slice(&[78, 0, 0, 78]);
    want[1024 + 768] += 78;
    let want: Vec<u8> = want.iter().flat_map(|w| w.to_le_bytes()).collect();
    leaves(&format!(".reg .b16 %h<4>; {body}"), (2, 256), &vec![0; OUT_BYTES], &want);
}
