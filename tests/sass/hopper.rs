//! What only sm_90 has, by our assembler and by ptxas: both codes run on the software multiprocessor in strict mode and
//! leave the same bytes; the checker finds nothing in ours, and nvdisasm reads its words as we print them.

use crate::machine::{Case, launch_clusters};
use crate::nvidia::{disassemble, ptxas};
use doorbell::elf::cubin::{Arch, Cubin};
use doorbell::isa::sass::check::{Trust, check};
use doorbell::isa::sass::compile::{assemble, kernels};
use doorbell::isa::sass::{decode, print_at};
use std::collections::BTreeSet;

const SM90: Arch = Arch { sm: 90, specific: true };
const THREADS: u32 = 128;
/// Where input, output and a tensor map lie.
const IN: u64 = 0x7_0000_0000;
const OUT: u64 = 0x7_1000_0000;
const MAP: u64 = 0x7_2000_0000;
/// Bytes of input, and of a block's output.
const IN_BYTES: u32 = 1 << 16;
const BLOCK_BYTES: usize = 1 << 16;

/// A kernel whose thread has its number in %t, its block's in %b, the input in %i, the block's own 64 KiB of output in
/// %o, its shared memory in %s, its mbarriers in %m; a tensor map's address in %w. %p7 holds for thread 0.
fn kernel(name: &str, body: &str, tuning: &str) -> String {
    format!(
        ".visible .entry {name}(.param .u64 in, .param .u64 out, .param .u64 map, .param .align 64 .b8 tm[128]) {tuning}\n{{\n\
        .reg .pred %p<8>; .reg .b16 %h<16>; .reg .b32 %r<300>; .reg .f32 %f<300>; .reg .b64 %d<40>;\n\
        .reg .b32 %t, %b, %s, %m; .reg .b64 %i, %o, %w; .shared .align 1024 .b8 sm[32768]; .shared .align 8 .b64 bar[8];\n\
        ld.param.u64 %i, [in]; ld.param.u64 %o, [out]; ld.param.u64 %w, [map]; mov.u32 %t, %tid.x; mov.u32 %b, %ctaid.x; mov.u32 %s, sm;\n\
        mov.u32 %m, bar; mul.wide.u32 %d1, %b, 65536; add.s64 %o, %o, %d1; setp.eq.u32 %p7, %t, 0;\n\
        {body}\nret;\n}}\n"
    )
}

/// A text that both assemblers get; ptxas another one, where the machine cannot run what it makes of it.
struct Text {
    name: String,
    body: String,
    other: Option<String>,
    /// Blocks of a cluster.
    blocks: u32,
    /// Directives after the parameters, and threads of a block.
    tuning: &'static str,
    threads: u32,
    map: Vec<u8>,
}

/// Texts that become one module.
#[derive(Default)]
struct Texts(Vec<Text>);

impl Texts {
    fn same(&mut self, name: &str, body: &str) {
        self.same_in(1, name, body, &[]);
    }

    fn same_in(&mut self, blocks: u32, name: &str, body: &str, map: &[u8]) {
        let (name, body) = (name.to_owned(), body.to_owned());
        self.0.push(Text { name, body, other: None, blocks, tuning: "", threads: THREADS, map: map.to_vec() });
    }

    fn module(&self, body: impl Fn(&Text) -> &str) -> String {
        let all = self.0.iter().enumerate().map(|(k, t)| kernel(&format!("k{k}"), body(t), t.tuning));
        [".version 8.8\n.target sm_90a\n.address_size 64\n".to_owned()].into_iter().chain(all).collect()
    }

    /// Assembles by both, checks our words and runs all.
    fn check(self) {
        let text = self.module(|t| &t.body);
        let ours = assemble(&text, SM90).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let theirs = ptxas(&self.module(|t| t.other.as_ref().unwrap_or(&t.body)), "-O3");
        let file = Cubin::parse(&ours).expect("our cubin");
        let mut all = BTreeSet::new();
        for (k, t) in self.0.iter().enumerate() {
            let code = file.code(file.kernel(&format!("k{k}")).expect("the kernel")).as_chunks::<16>().0;
            let words: Vec<u128> = code.iter().map(|w| u128::from_le_bytes(*w)).collect();
            let found = check(&words, Trust::Safe).unwrap_or_else(|e| panic!("{}: {e}", t.name));
            assert!(found.is_empty(), "{}: {}", t.name, found[0]);
            all.extend(words);
        }
        let words: Vec<u128> = all.into_iter().collect();
        for (k, (word, theirs)) in words.iter().zip(disassemble(&words)).enumerate() {
            let inst = decode(*word).unwrap_or_else(|e| panic!("{word:032x}: {e}"));
            assert_eq!(Some(print_at(&inst, 16 * k as u64)), theirs, "{word:032x}");
        }
        for (k, t) in self.0.iter().enumerate() {
            t.run(&format!("k{k}"), &ours, &theirs);
        }
    }
}

impl Text {
    fn run(&self, kernel: &str, ours: &[u8], theirs: &[u8]) {
        let word = |k: u32| k.wrapping_mul(2_654_435_761).rotate_left(k % 32) & 0xbfff_bfff;
        let input: Vec<u8> = (0..IN_BYTES / 4).flat_map(|k| word(k).to_le_bytes()).collect();
        let map = [&self.map[..], &[0; 256]].concat();
        let mut params: Vec<u8> = [IN, OUT, MAP].iter().flat_map(|a| a.to_le_bytes()).collect();
        // 64 bytes from where the bank begins.
        params.resize(0x30, 0);
        params.extend(&map[..128]);
        let blocks = self.blocks.max(2);
        let buffers = [(IN, input), (OUT, vec![0; blocks as usize * BLOCK_BYTES]), (MAP, map)];
        let case =
            Case { grid: [blocks, 1, 1], block: [self.threads, 1, 1], params, buffers: &buffers, dynamic_bytes: 0 };
        // ptxas's own schedules are held to their rules elsewhere.
        let [mine, theirs] = [("ours", ours), ("theirs", theirs)].map(|(who, cubin)| {
            let left = launch_clusters(cubin, kernel, (&case, self.blocks), who == "ours");
            left.unwrap_or_else(|e| panic!("{}, {who}: {e}", self.name)).0
        });
        assert!(mine[1].iter().any(|b| *b != 0), "{}: nothing is written", self.name);
        for (k, (mine, theirs)) in mine.iter().zip(&theirs).enumerate() {
            let differs = mine.iter().zip(theirs).position(|(a, b)| a != b);
            assert_eq!(differs, None, "{}: buffer {k} differs at that byte", self.name);
        }
    }
}

/// Stores %r1 to %r4 of each thread.
const STORE: &str = "mul.wide.u32 %d2, %t, 16; add.s64 %d2, %d2, %o; st.global.v4.u32 [%d2], {%r1, %r2, %r3, %r4};";

/// The input's 32 KiB to shared memory, by stores.
const FILL: &str = "mul.lo.u32 %r250, %t, 16; mov.u32 %r251, 0; add.u32 %r252, %s, %r250; cvt.u64.u32 %d30, %r250; add.s64 %d30, %d30, %i;
    F: ld.global.v4.u32 {%r253, %r254, %r255, %r256}, [%d30]; st.shared.v4.u32 [%r252], {%r253, %r254, %r255, %r256};
    add.s64 %d30, %d30, 2048; add.u32 %r252, %r252, 2048; add.u32 %r251, %r251, 1; setp.lt.u32 %p6, %r251, 16; @%p6 bra F;
    fence.proxy.async.shared::cta; bar.sync 0;";

/// An mbarrier for one arrival and so many bytes, which thread 0 makes and arrives at.
fn expecting(bytes: u32) -> String {
    format!(
        "@%p7 mbarrier.init.shared::cta.b64 [%m], 1; fence.mbarrier_init.release.cluster; bar.sync 0;
        @%p7 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%m], {bytes};"
    )
}

const WAIT: &str = "W: mbarrier.try_wait.parity.shared::cta.b64 %p5, [%m], 0; @!%p5 bra W;";

/// Stores the block's shared memory.
const DUMP: &str = "bar.sync 0; mul.lo.u32 %r250, %t, 16; mov.u32 %r251, 0; add.u32 %r252, %s, %r250; cvt.u64.u32 %d30, %r250; add.s64 %d30, %d30, %o;
    D: ld.shared.v4.u32 {%r253, %r254, %r255, %r256}, [%r252]; st.global.v4.u32 [%d30], {%r253, %r254, %r255, %r256};
    add.s64 %d30, %d30, 2048; add.u32 %r252, %r252, 2048; add.u32 %r251, %r251, 1; setp.lt.u32 %p6, %r251, 16; @%p6 bra D;";

#[test]
fn one_thread_of_a_warp_is_elected() {
    let mut t = Texts::default();
    t.same(
        "elect",
        &format!(
            "mov.u32 %r1, 7; elect.sync %r2|%p1, -1; @%p1 mov.u32 %r1, %t; mov.u32 %r3, %b; mov.u32 %r4, 1; {STORE}"
        ),
    );
    t.same(
        "without its number",
        &format!(
            "mov.u32 %r2, 9; elect.sync _|%p1, -1; selp.u32 %r1, 1, 0, %p1; mov.u32 %r3, %t; mov.u32 %r4, %t; {STORE}"
        ),
    );
    t.check();
}

#[test]
fn barriers_have_numbers_and_counts_of_threads_in_registers() {
    let mut t = Texts::default();
    let start = "mov.u32 %r9, 0; mul.lo.u32 %r5, %t, 4; add.u32 %r6, %r5, %s; st.shared.u32 [%r6], %t; xor.b32 %r5, %r5, 256; add.u32 %r6, %r5, %s; add.u32 %r7, %b, 3; mov.u32 %r8, %ntid.x;";
    let end = format!("ld.shared.u32 %r1, [%r6]; mov.u32 %r2, %b; mov.u32 %r3, 0; mov.u32 %r4, 1; {STORE}");
    for barrier in ["bar.sync %r7", "bar.sync %r7, %r8", "bar.sync 2, %r8", "bar.sync %r7, 128", "barrier.sync %r7"] {
        t.same(barrier, &format!("{start} {barrier}; {end}"));
    }
    t.same("one half arrives", &format!("{start} setp.lt.u32 %p1, %t, 64; @%p1 bar.arrive %r7, %r8; @!%p1 bar.sync %r7, %r8; bar.arrive 7, %r8; bar.sync 0; {end}"));
    t.check();
}

#[test]
fn blocks_of_a_cluster_see_each_others_shared_memory() {
    let mut t = Texts::default();
    let other = "mov.u32 %r10, %cluster_ctarank; mov.u32 %r11, %cluster_nctarank; add.u32 %r12, %r10, 1; rem.u32 %r12, %r12, %r11;
        mapa.shared::cluster.u32 %r13, %s, %r12; mad.lo.u32 %r14, %t, 16, %r13; mad.lo.u32 %r15, %t, 16, %s;";
    let meet = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;";
    let own = "ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [%r15];";
    t.same_in(
        2,
        "stores",
        &format!(
            "{other} add.u32 %r5, %t, %b; st.shared::cluster.v4.b32 [%r14], {{%r5, %t, %b, %r10}}; {meet} {own} {STORE}"
        ),
        &[],
    );
    t.same_in(4, "loads", &format!("{other} add.u32 %r5, %t, %b; st.shared.v4.b32 [%r15], {{%r5, %t, %b, %r10}}; {meet}
        ld.shared::cluster.u32 %r1, [%r14]; ld.shared::cluster.v2.u32 {{%r2, %r3}}, [%r14+8]; mov.u32 %r4, %r12; {STORE} {meet}"), &[]);
    t.same_in(2, "atomics", &format!("{other} st.shared.v4.b32 [%r15], {{%t, %b, %t, %b}}; {meet} and.b32 %r5, %t, 112; add.u32 %r14, %r13, %r5;
        red.shared::cluster.add.u32 [%r14], 5; atom.shared::cluster.add.u32 %r6, [%r14+4], 3; atom.shared::cluster.or.b32 %r6, [%r14+8], %t;
        red.shared::cluster.max.u32 [%r14+12], %t; barrier.cluster.arrive; barrier.cluster.wait; {own} {STORE}"), &[]);
    t.same_in(2, "special registers", &format!("mov.u32 %r1, %cluster_ctaid.x; mov.u32 %r2, %clusterid.x; mov.u32 %r3, %nclusterid.x;
        mov.u32 %r4, %cluster_nctaid.x; mad.lo.u32 %r3, %r3, 100, %r4; mov.u32 %r4, %cluster_ctarank; shl.b32 %r4, %r4, 8; mov.u32 %r5, %cluster_nctarank;
        add.u32 %r4, %r4, %r5; {STORE}"), &[]);
    t.same_in(2, "ranks of addresses", &format!("{other} getctarank.shared::cluster.u32 %r1, %r13; getctarank.shared::cluster.u32 %r2, %s; mov.u32 %r3, %r12;
        cvta.shared.u64 %d3, sm; mapa.u64 %d4, %d3, %r12; cvt.u64.u32 %d5, %t; shl.b64 %d5, %d5, 4; add.s64 %d4, %d4, %d5;
        st.u32 [%d4], %b; {meet} ld.shared.u32 %r4, [%r15]; isspacep.shared::cluster %p1, %d4; selp.u32 %r3, %r3, 77, %p1;
        isspacep.global %p1, %o; selp.u32 %r2, %r2, 78, %p1; {STORE}"), &[]);
    t.check();
}

#[test]
fn stores_to_other_blocks_are_counted_by_their_mbarriers() {
    let mut t = Texts::default();
    let start = "@%p7 mbarrier.init.shared::cta.b64 [%m], 1; fence.mbarrier_init.release.cluster; barrier.cluster.arrive; barrier.cluster.wait;
        mov.u32 %r10, %cluster_ctarank; xor.b32 %r11, %r10, 1; mapa.shared::cluster.u32 %r12, %s, %r11; mapa.shared::cluster.u32 %r13, %m, %r11;
        mad.lo.u32 %r14, %t, 32, %r12; mad.lo.u32 %r15, %t, 32, %s;";
    t.same_in(2, "st.async", &format!("{start} @%p7 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%m], 3584;
        st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r14], %t, [%r13];
        st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r14+16], {{%b, %t, %r10, %r11}}, [%r13]; cvt.u64.u32 %d3, %t; shl.b64 %d3, %d3, 30;
        st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%r14+8], %d3, [%r13];
        {WAIT} ld.shared.u32 %r1, [%r15]; ld.shared.u32 %r2, [%r15+12]; ld.shared.v2.u32 {{%r3, %r4}}, [%r15+16]; {STORE} barrier.cluster.arrive; barrier.cluster.wait;"), &[]);
    t.same_in(2, "red.async", &format!("mad.lo.u32 %r15, %t, 32, %s; st.shared.u32 [%r15], %b; {start}
        @%p7 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%m], 1024;
        red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r14], %t, [%r13];
        red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.max.u32 [%r14], 60, [%r13];
        {WAIT} ld.shared.u32 %r1, [%r15]; mov.u32 %r2, 0; mov.u32 %r3, 0; mov.u32 %r4, 0; {STORE} barrier.cluster.arrive; barrier.cluster.wait;"), &[]);
    t.same_in(2, "arrivals elsewhere", &format!("@%p7 mbarrier.init.shared::cta.b64 [%m], {THREADS}; fence.mbarrier_init.release.cluster; barrier.cluster.arrive; barrier.cluster.wait;
        mov.u32 %r10, %cluster_ctarank; xor.b32 %r11, %r10, 1; mapa.shared::cluster.u32 %r13, %m, %r11; mapa.shared::cluster.u32 %r12, %s, %r11;
        mad.lo.u32 %r14, %t, 16, %r12; st.shared::cluster.v4.u32 [%r14], {{%b, %t, %r10, %t}};
        mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r13]; V: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p5, [%m], 0; @!%p5 bra V;
        mad.lo.u32 %r15, %t, 16, %s; ld.shared.v4.u32 {{%r1, %r2, %r3, %r4}}, [%r15]; {STORE} barrier.cluster.arrive; barrier.cluster.wait;"), &[]);
    t.check();
}

#[test]
fn bulk_copies_leave_what_ptxas_leaves() {
    let mut t = Texts::default();
    let load = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes";
    t.same("in", &format!("{} @%p7 {load} [%s], [%i], 32768, [%m]; {WAIT} {DUMP}", expecting(32768)));
    t.same("in pieces of a length that is told", &format!("{FILL} {} and.b32 %r1, %b, 3; add.u32 %r1, %r1, 1; shl.b32 %r1, %r1, 8; shl.b32 %r2, %r1, 1;
        sub.u32 %r3, 2048, %r2; @%p7 {load} [%s], [%i+4096], %r2, [%m]; @%p7 {load} [%s+8192], [%i+16], %r3, [%m]; {WAIT} {DUMP}", expecting(2048)));
    t.same("out", &format!("{FILL} @!%p7 bra X; cp.async.bulk.global.shared::cta.bulk_group [%o], [%s], 16384; cp.async.bulk.commit_group;
        cp.async.bulk.global.shared::cta.bulk_group [%o+16384], [%s+1024], 4096; cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 1; cp.async.bulk.wait_group 0; X:"));
    t.same("by several threads", &format!("{} setp.lt.u32 %p1, %t, 40; shl.b32 %r1, %t, 8; add.u32 %r2, %s, %r1; cvt.u64.u32 %d3, %r1; add.s64 %d3, %d3, %i;
        @%p1 {load} [%r2], [%d3+512], 256, [%m]; mov.u32 %r7, 0; setp.ge.u32 %p2, %t, 40; shl.b32 %r3, %t, 8; and.b32 %r3, %r3, 32512; add.u32 %r3, %r3, %s; @%p2 st.shared.u32 [%r3], %t;
        {WAIT} bar.sync 0; mad.lo.u32 %r4, %t, 64, %s; ld.shared.u32 %r1, [%r2]; and.b32 %r1, %r1, 0xfff; mov.u32 %r3, 1; mov.u32 %r4, 2; mov.u32 %r2, 3; {STORE}",
        expecting(40 * 256)));
    for op in [
        "add.u32",
        "add.s32",
        "min.s32",
        "max.u32",
        "and.b32",
        "xor.b32",
        "inc.u32",
        "add.u64",
        "add.f32",
        "add.noftz.f16",
        "add.noftz.bf16",
        "min.f16",
        "max.s64",
        "add.f64",
    ] {
        t.same(&format!("reduction {op}"), &format!("{FILL} @!%p7 bra X; cp.async.bulk.global.shared::cta.bulk_group [%o], [%s], 8192; cp.async.bulk.commit_group;
            cp.async.bulk.wait_group 0; cp.reduce.async.bulk.global.shared::cta.bulk_group.{op} [%o], [%s+8192], 8192;
            cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; X:"));
    }
    t.same("hints", &format!("{FILL} cp.async.bulk.prefetch.L2.global [%i], 1024; prefetch.global.L2 [%i+4096]; discard.global.L2 [%o], 128;
        prefetch.global.L1 [%i]; prefetchu.L1 [%i]; applypriority.global.L2::evict_normal [%i], 128; {DUMP}"));
    t.check();
}

#[test]
fn bulk_copies_within_a_cluster_leave_what_ptxas_leaves() {
    let mut t = Texts::default();
    let start = "@%p7 mbarrier.init.shared::cta.b64 [%m], 1; fence.mbarrier_init.release.cluster; barrier.cluster.arrive; barrier.cluster.wait;
        mov.u32 %r10, %cluster_ctarank; xor.b32 %r11, %r10, 1; mapa.shared::cluster.u32 %r12, %s, %r11; mapa.shared::cluster.u32 %r13, %m, %r11;";
    t.same_in(2, "to a neighbour", &format!("{FILL} {start} @%p7 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%m], 4096; barrier.cluster.arrive; barrier.cluster.wait;
        @%p7 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r12], [%s+8192], 4096, [%r13]; {WAIT} {DUMP} barrier.cluster.arrive; barrier.cluster.wait;"), &[]);
    t.same_in(2, "reduced in a neighbour", &format!("{FILL} {start} @%p7 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%m], 4096; barrier.cluster.arrive; barrier.cluster.wait;
        @%p7 cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [%r12], [%s+8192], 4096, [%r13]; {WAIT} {DUMP} barrier.cluster.arrive; barrier.cluster.wait;"), &[]);
    t.same_in(4, "to all", &format!("{FILL} {start} @%p7 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%m], 4096; barrier.cluster.arrive; barrier.cluster.wait;
        mov.b16 %h1, 13; setp.eq.u32 %p1, %r10, 2; and.pred %p1, %p1, %p7; @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%s], [%i+12288], 4096, [%m], %h1;
        setp.eq.u32 %p2, %r10, 1; @%p2 bra N; {WAIT} N: {DUMP} barrier.cluster.arrive; barrier.cluster.wait;"), &[]);
    t.check();
}

#[test]
fn the_other_forms_of_mbarriers_leave_what_ptxas_leaves() {
    let mut t = Texts::default();
    let init = format!(
        "@%p7 mbarrier.init.shared::cta.b64 [%m], {THREADS}; @%p7 mbarrier.init.shared::cta.b64 [%m+8], 500; bar.sync 0;"
    );
    let end = format!(
        "mov.b64 {{%r1, %r2}}, %d3; xor.b32 %r1, %r1, %r2; mov.u32 %r1, 5; ld.shared.v2.u32 {{%r3, %r4}}, [%m+8]; bar.sync 0; {STORE}"
    );
    let arrives =
        format!("{init} mbarrier.arrive.noComplete.shared::cta.b64 %d3, [%m+8], 2; bar.sync 0; mov.u32 %r2, 1; {end}");
    t.same("arrivals without an end", &arrives);
    // ptxas lets one thread arrive for all, by means that are not modelled.
    t.0[0].other = Some(arrives.replace(".noComplete", ""));
    t.same("bytes", &format!("{init} @%p7 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%m+8], 512; bar.sync 0;
        @%p7 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%m+8], 256; mbarrier.arrive.expect_tx.shared::cta.b64 %d3, [%m+8], 16; bar.sync 0; {end}"));
    t.same("arrivals that count", &format!("{init} mbarrier.arrive.shared::cta.b64 %d3, [%m+8], 2; mbarrier.arrive_drop.shared::cta.b64 %d3, [%m+8]; bar.sync 0; {end}"));
    t.check();
}

/// A tensor of 32-bit words: sizes, strides in bytes from the second dimension on, the tile, swizzle.
fn map(sizes: &[u32], strides: &[u64], shape: &[u8], swizzle: u32) -> Vec<u8> {
    let mut bytes = vec![0u8; 128];
    let mut word = |at: usize, v: u32| bytes[at..at + 4].copy_from_slice(&v.to_le_bytes());
    word(0, IN as u32);
    word(4, (IN >> 32) as u32);
    word(8, (sizes.len() as u32 - 1) << 4 | 2 << 7 | swizzle << 13);
    strides.iter().enumerate().for_each(|(k, s)| word(0x0c + 4 * k, (s >> 4) as u32));
    sizes.iter().enumerate().for_each(|(k, s)| word(0x20 + 4 * k, s - 1));
    shape.iter().enumerate().for_each(|(k, n)| bytes[0x37 + k] = n - 1);
    bytes
}

/// Maps of one to five dimensions over the input's 16,384 words, with the bytes of their tiles.
fn maps() -> Vec<(Vec<u8>, u32)> {
    vec![
        (map(&[16384], &[], &[64], 0), 256),
        (map(&[64, 200], &[256], &[32, 16], 3), 2048),
        (map(&[32, 10, 40], &[128, 1280], &[16, 4, 8], 2), 2048),
        (map(&[16, 8, 8, 16], &[64, 512, 4096], &[8, 4, 2, 4], 1), 1024),
        (map(&[8, 8, 8, 8, 4], &[32, 256, 2048, 16384], &[4, 2, 4, 2, 2], 0), 512),
    ]
}

#[test]
fn boxes_of_tensors_leave_what_ptxas_leaves() {
    let mut t = Texts::default();
    for (k, (map, bytes)) in maps().iter().enumerate() {
        let (n, at) = (
            k + 1,
            ["{%r20}", "{%r20,%r21}", "{%r20,%r21,%r22}", "{%r20,%r21,%r22,%r23}", "{%r20,%r21,%r22,%r23,%r24}"][k],
        );
        let places =
            "mad.lo.u32 %r20, %b, 4, 1; add.u32 %r21, %b, 2; mov.u32 %r22, 3; sub.u32 %r23, 2, %b; mov.u32 %r24, 1;";
        let load = format!(
            "cp.async.bulk.tensor.{n}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%s], [%w, {at}], [%m]"
        );
        let dump = format!(
            "mul.lo.u32 %r1, %t, 16; setp.lt.u32 %p1, %r1, {bytes}; add.u32 %r5, %r1, %s; @!%p1 bra E; ld.shared.v4.u32 {{%r1, %r2, %r3, %r4}}, [%r5]; {STORE} E:"
        );
        t.same_in(1, &format!("load {n}d"), &format!("{} {places} @%p7 {load}; {WAIT} {dump}", expecting(*bytes)), map);
        let from_parameter = format!(
            "{} {places} mov.u64 %d9, tm; cvta.param.u64 %w, %d9; @%p7 {load}; {WAIT} {dump}",
            expecting(*bytes)
        );
        t.same_in(1, &format!("load {n}d by a parameter's map"), &from_parameter, map);
        for what in [
            "cp.async.bulk.tensor.{n}d.global.shared::cta.tile.bulk_group",
            "cp.reduce.async.bulk.tensor.{n}d.global.shared::cta.add.tile.bulk_group",
            "cp.reduce.async.bulk.tensor.{n}d.global.shared::cta.max.tile.bulk_group",
        ] {
            let what = what.replace("{n}", &n.to_string());
            t.same_in(1, &what, &format!("{FILL} {places} setp.eq.u32 %p1, %b, 1; and.pred %p1, %p1, %p7; @!%p1 bra X; {what} [%w, {at}], [%s+1024];
                cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; X: mov.u32 %r1, %t; mov.u32 %r2, 0; mov.u32 %r3, 0; mov.u32 %r4, 1; {STORE}"), map);
        }
    }
    t.check();
}

#[test]
fn a_box_goes_to_several_blocks_at_once() {
    let mut t = Texts::default();
    let (map, bytes) = &maps()[1];
    t.same_in(2, "multicast", &format!("{} barrier.cluster.arrive; barrier.cluster.wait; mov.u32 %r10, %cluster_ctarank; setp.eq.u32 %p1, %r10, 1; and.pred %p1, %p1, %p7; mov.b16 %h1, 3;
        mov.u32 %r20, 4; mov.u32 %r21, 7; @%p1 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%s], [%w, {{%r20,%r21}}], [%m], %h1;
        {WAIT} mad.lo.u32 %r5, %t, 16, %s; ld.shared.v4.u32 {{%r1, %r2, %r3, %r4}}, [%r5]; {STORE} barrier.cluster.arrive; barrier.cluster.wait;", expecting(*bytes)), map);
    t.check();
}

#[test]
fn fields_of_a_tensor_map_are_replaced_as_ptxas_does() {
    let mut t = Texts::default();
    let fields = [
        "global_address.{s}.b1024.b64 [{a}], %d3",
        "rank.{s}.b1024.b32 [{a}], 2",
        "rank.{s}.b1024.b32 [{a}], %r9",
        "box_dim.{s}.b1024.b32 [{a}], 0, %r8",
        "box_dim.{s}.b1024.b32 [{a}], 3, 17",
        "global_dim.{s}.b1024.b32 [{a}], 1, %r7",
        "global_dim.{s}.b1024.b32 [{a}], 4, 99",
        "global_stride.{s}.b1024.b64 [{a}], 0, %d3",
        "global_stride.{s}.b1024.b64 [{a}], 3, %d3",
        "element_stride.{s}.b1024.b32 [{a}], 2, %r9",
        "elemtype.{s}.b1024.b32 [{a}], 6",
        "interleave_layout.{s}.b1024.b32 [{a}], 1",
        "swizzle_mode.{s}.b1024.b32 [{a}], 3",
        "fill_mode.{s}.b1024.b32 [{a}], 1",
    ];
    let values = "mov.u32 %r7, 0x12345; mov.u32 %r8, 200; mov.u32 %r9, 3; mov.u64 %d3, 0x654321012340;";
    for (k, f) in fields.iter().enumerate() {
        let own = f.replace("{s}", "shared::cta").replace("{a}", "sm");
        t.same(
            &format!("{own} in shared memory"),
            &format!("{FILL} {values} @%p7 tensormap.replace.tile.{own}; {DUMP}"),
        );
        if k % 3 == 0 {
            let far = f.replace("{s}", "global").replace("{a}", "%o");
            t.same(
                &format!("{far} in global memory"),
                &format!(
                    "{values} mov.u32 %r1, -1; mov.u32 %r2, -1; mov.u32 %r3, 0; mov.u32 %r4, -1; {STORE}
                bar.sync 0; @%p7 tensormap.replace.tile.{far};"
                ),
            );
        }
    }
    t.same("published", &format!("{FILL} setp.lt.u32 %p1, %t, 32; @!%p1 bra X; tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%o], [sm], 128;
        fence.proxy.tensormap::generic.acquire.gpu [%o], 128; X:"));
    t.check();
}

/// A multiply by tiles in shared memory whose descriptors are in %d10 and %d11, with or without a swizzle.
fn multiply(t: &mut Texts, name: &str, shape: &str, sums: (usize, bool), (a, rest): (&str, &str)) {
    let (count, float) = sums;
    let letter = if float { "%f" } else { "%r" };
    let list: Vec<String> = (0..count).map(|k| format!("{letter}{}", 100 + k)).collect();
    let sums = list.join(",");
    let zero: String = list
        .iter()
        .enumerate()
        .map(
            |(k, r)| {
                if float { format!("mov.f32 {r}, 0f3{:x}800000;", k % 8) } else { format!("add.u32 {r}, %t, {k};") }
            },
        )
        .collect();
    let store: String = list.iter().enumerate().map(|(k, r)| format!("st.global.b32 [%d2+{}], {r};", 4 * k)).collect();
    let descriptors = "shr.u32 %r1, %s, 4; and.b32 %r1, %r1, 0x3fff; cvt.u64.u32 %d10, %r1; or.b64 %d10, %d10, 0x4000002000010000; add.s64 %d11, %d10, 0x200;
        mad.lo.u32 %r2, %t, 16, %s; ld.shared.v4.u32 {%r3, %r4, %r5, %r6}, [%r2];";
    t.same(name, &format!("{FILL} {descriptors} {zero} setp.ne.u32 %p1, %b, 1; wgmma.fence.sync.aligned;
        wgmma.mma_async.sync.aligned.{shape} {{{sums}}}, {a}, %d11, %p1, {rest}; add.s64 %d11, %d11, 2;
        wgmma.mma_async.sync.aligned.{shape} {{{sums}}}, {a}, %d11, 1, {rest}; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
        mul.wide.u32 %d2, %t, {}; add.s64 %d2, %d2, %o; {store}", 4 * count));
}

#[test]
fn multiplies_of_a_warpgroup_leave_what_ptxas_leaves() {
    let mut t = Texts::default();
    let (own, fragment) = ("%d10", "{%r3,%r4,%r5,%r6}");
    for n in [8, 24, 64, 176, 256] {
        multiply(
            &mut t,
            &format!("f16 to f32 n{n}"),
            &format!("m64n{n}k16.f32.f16.f16"),
            (n / 2, true),
            (own, "1,1,0,0"),
        );
    }
    for n in [8, 72] {
        multiply(&mut t, &format!("f16 n{n}"), &format!("m64n{n}k16.f16.f16.f16"), (n / 4, false), (own, "1,1,0,1"));
    }
    multiply(&mut t, "bf16, both transposed, A negated", "m64n32k16.f32.bf16.bf16", (16, true), (own, "-1,1,1,1"));
    multiply(&mut t, "bf16, B negated, A in registers", "m64n64k16.f32.bf16.bf16", (32, true), (fragment, "1,-1,1"));
    multiply(&mut t, "f16, A negated in registers", "m64n16k16.f32.f16.f16", (8, true), (fragment, "-1,1,0"));
    multiply(&mut t, "tf32", "m64n48k8.f32.tf32.tf32", (24, true), (own, "1,-1"));
    multiply(&mut t, "tf32 in registers", "m64n48k8.f32.tf32.tf32", (24, true), (fragment, "1,1"));
    for (a, b) in [("e4m3", "e4m3"), ("e5m2", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e5m2")] {
        multiply(&mut t, &format!("{a} by {b}"), &format!("m64n32k32.f32.{a}.{b}"), (16, true), (own, "1,1"));
        multiply(
            &mut t,
            &format!("{a} by {b} to f16"),
            &format!("m64n96k32.f16.{a}.{b}"),
            (24, false),
            (fragment, "1,1"),
        );
    }
    t.check();
}

#[test]
fn integer_multiplies_of_a_warpgroup_leave_what_ptxas_leaves() {
    let mut t = Texts::default();
    let mut one = |name: &str, shape: &str, n: usize, a: &str| {
        let list: Vec<String> = (0..n / 2).map(|k| format!("%r{}", 100 + k)).collect();
        let sums = list.join(",");
        let zero: String = list.iter().enumerate().map(|(k, r)| format!("add.u32 {r}, %t, {k};")).collect();
        let store: String =
            list.iter().enumerate().map(|(k, r)| format!("st.global.b32 [%d2+{}], {r};", 4 * k)).collect();
        t.same(name, &format!("{FILL} shr.u32 %r1, %s, 4; and.b32 %r1, %r1, 0x3fff; cvt.u64.u32 %d10, %r1; or.b64 %d10, %d10, 0x0000004000010000; add.s64 %d11, %d10, 0x200;
            mad.lo.u32 %r2, %t, 16, %s; ld.shared.v4.u32 {{%r3, %r4, %r5, %r6}}, [%r2]; {zero} wgmma.fence.sync.aligned;
            wgmma.mma_async.sync.aligned.{shape} {{{sums}}}, {a}, %d11, 1; wgmma.mma_async.sync.aligned.{shape} {{{sums}}}, {a}, %d10, 1;
            wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; mul.wide.u32 %d2, %t, {}; add.s64 %d2, %d2, %o; {store}", 2 * n));
    };
    for (a, b) in [("s8", "s8"), ("u8", "s8"), ("s8", "u8"), ("u8", "u8")] {
        one(&format!("{a} by {b}"), &format!("m64n32k32.s32.{a}.{b}"), 32, "%d10");
        one(
            &format!("{a} by {b} in registers, saturated"),
            &format!("m64n64k32.s32.{a}.{b}.satfinite"),
            64,
            "{%r3,%r4,%r5,%r6}",
        );
    }
    one("bits", "m64n64k256.s32.b1.b1.and.popc", 64, "%d10");
    t.check();
}

#[test]
fn multiplies_stay_on_their_way_across_a_loop() {
    let mut t = Texts::default();
    // One group is left while the next is issued: the fragments of two iterations are in use at once.
    let sums: Vec<String> = (0..32).map(|k| format!("%f{}", 100 + k)).collect();
    let (sums, list) = (sums.join(","), sums);
    let zero: String = list.iter().map(|r| format!("mov.f32 {r}, 0f00000000;")).collect();
    let store: String = list.iter().enumerate().map(|(k, r)| format!("st.global.b32 [%d2+{}], {r};", 4 * k)).collect();
    // Fragments as they were loaded, changed in their place, and with one register from elsewhere.
    for (name, changed) in [("a loop", "%r3"), ("a loop, its fragments put together", "%r20")] {
        t.same(name, &format!("{FILL} shr.u32 %r1, %s, 4; and.b32 %r1, %r1, 0x3fff; cvt.u64.u32 %d10, %r1; or.b64 %d10, %d10, 0x4000002000010000; add.s64 %d11, %d10, 0x200;
        {zero} mad.lo.u32 %r2, %t, 16, %s; mov.u32 %r9, 0; wgmma.fence.sync.aligned;
        L: ld.shared.v4.u32 {{%r3, %r4, %r5, %r6}}, [%r2]; xor.b32 {changed}, %r3, 0x80008000; wgmma.fence.sync.aligned;
        wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {{{sums}}}, {{{changed},%r4,%r5,%r6}}, %d11, 1, 1, 1, 0; wgmma.commit_group.sync.aligned;
        ld.shared.v4.u32 {{%r13, %r14, %r15, %r16}}, [%r2+4096]; wgmma.fence.sync.aligned;
        wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {{{sums}}}, {{%r13,%r14,%r15,%r16}}, %d11, 1, 1, 1, 0; wgmma.commit_group.sync.aligned;
        wgmma.wait_group.sync.aligned 1; add.s64 %d11, %d11, 2; add.u32 %r2, %r2, 2048; add.u32 %r9, %r9, 1; wgmma.wait_group.sync.aligned 0; setp.lt.u32 %p1, %r9, 4; @%p1 bra L;
        wgmma.wait_group.sync.aligned 0; mul.wide.u32 %d2, %t, 128; add.s64 %d2, %d2, %o; {store}"));
    }
    let (start, own) = (
        "shr.u32 %r1, %s, 4; and.b32 %r1, %r1, 0x3fff; cvt.u64.u32 %d10, %r1; or.b64 %d10, %d10, 0x4000002000010000; add.s64 %d11, %d10, 0x200; mov.u32 %r9, 0;",
        "mov.f32 %f100, 0f3f800000; mov.f32 %f101, 0f00000000; mov.f32 %f102, 0f40000000; mov.f32 %f103, 0f00000000;",
    );
    let end = "mov.b32 %r1, %f100; mov.b32 %r2, %f101; mov.b32 %r3, %f102; mov.b32 %r4, %f103;";
    let multiply = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16";
    t.same("a group that ends behind a loop", &format!("{FILL} {start} {own} wgmma.fence.sync.aligned;
        L: {multiply} {{%f100, %f101, %f102, %f103}}, %d10, %d11, 1, 1, 1, 0, 0; add.s64 %d11, %d11, 2; add.u32 %r9, %r9, 1; setp.lt.u32 %p1, %r9, 3; @%p1 bra L;
        wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; {end} {STORE}"));
    t.same("sums in another order", &format!("{FILL} {start} {own} wgmma.fence.sync.aligned;
        {multiply} {{%f100, %f101, %f102, %f103}}, %d10, %d11, 1, 1, 1, 0, 0; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; wgmma.fence.sync.aligned;
        {multiply} {{%f103, %f101, %f102, %f100}}, %d10, %d11, 1, 1, 1, 0, 0; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; {end} {STORE}"));
    t.same("sums that are not wanted before", &format!("{FILL} {start} wgmma.fence.sync.aligned;
        {multiply} {{%f100, %f101, %f102, %f103}}, %d10, %d11, 0, 1, 1, 0, 0; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; {end} {STORE}"));
    t.check();
}

#[test]
fn warps_give_registers_to_each_other() {
    let mut t = Texts::default();
    let sums: Vec<String> = (0..128).map(|k| format!("%f{}", 100 + k)).collect();
    let (list, zero): (String, String) =
        (sums.join(","), sums.iter().map(|r| format!("mov.f32 {r}, 0f3f800000;")).collect());
    let store: String = sums.iter().enumerate().map(|(k, r)| format!("st.global.b32 [%d2+{}], {r};", 4 * k)).collect();
    t.same("a producer and consumers", &format!("@%p7 mbarrier.init.shared::cta.b64 [%m], 1; bar.sync 0; setp.lt.u32 %p1, %t, 128; @!%p1 bra C;
        setmaxnreg.dec.sync.aligned.u32 40; @!%p7 bra X; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%m], 32768;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%s], [%i], 16384, [%m]; cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%s+16384], [%i+16384], 16384, [%m]; bra X;
        C: setmaxnreg.inc.sync.aligned.u32 232; {WAIT} shr.u32 %r1, %s, 4; and.b32 %r1, %r1, 0x3fff; cvt.u64.u32 %d10, %r1; or.b64 %d10, %d10, 0x4000002000010000; add.s64 %d11, %d10, 0x200;
        {zero} wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {{{list}}}, %d10, %d11, 1, 1, 1, 0, 0;
        wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; sub.u32 %r2, %t, 128; mul.wide.u32 %d2, %r2, 512; add.s64 %d2, %d2, %o; {store} X:"));
    (t.0[0].tuning, t.0[0].threads) = (".maxntid 256, 1, 1 .minnctapersm 1", 256);
    let texts = printed(&t.module(|t| &t.body));
    assert!(texts.iter().any(|t| t == "USETMAXREG.DEALLOC.CTAPOOL 0x28"), "{texts:#?}");
    assert!(texts.iter().any(|t| t == "USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xe8"), "{texts:#?}");
    t.check();
}

#[test]
fn without_a_number_of_registers_at_the_start_none_are_given() {
    let mut t = Texts::default();
    t.same("dec", &format!("setmaxnreg.dec.sync.aligned.u32 40; mov.u32 %r1, %t; mov.u32 %r2, %b; mov.u32 %r3, 0; mov.u32 %r4, 1; {STORE}"));
    assert!(!printed(&t.module(|t| &t.body)).iter().any(|t| t.contains("USETMAXREG")));
    t.check();
}

#[test]
fn too_few_registers_make_each_multiply_waited_for() {
    let mut t = Texts::default();
    let lists: Vec<String> =
        (0..3).map(|k| (0..32).map(|n| format!("%f{}", 32 * k + n)).collect::<Vec<_>>().join(",")).collect();
    let zero: String = (0..96).map(|k| format!("mov.f32 %f{k}, 0f3f800000;")).collect();
    let all: String = lists
        .iter()
        .map(|l| format!("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {{{l}}}, %d10, %d11, 1, 1, 1, 0, 0;"))
        .collect();
    let store: String = (0..96).map(|k| format!("st.global.b32 [%d2+{}], %f{k};", 4 * k)).collect();
    t.same("three at a time", &format!("{FILL} shr.u32 %r1, %s, 4; and.b32 %r1, %r1, 0x3fff; cvt.u64.u32 %d10, %r1; or.b64 %d10, %d10, 0x4000002000010000; add.s64 %d11, %d10, 0x200;
        {zero} wgmma.fence.sync.aligned; {all} wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; mul.wide.u32 %d2, %t, 384; add.s64 %d2, %d2, %o; {store}"));
    t.0[0].tuning = ".maxnreg 104";
    let texts = printed(&t.module(|t| &t.body));
    assert!(texts.iter().filter(|t| t.starts_with("WARPGROUP.DEPBAR")).count() >= 3, "{texts:#?}");
    t.check();
}

/// The words of a module's first kernel as text.
fn printed(text: &str) -> Vec<String> {
    let made = kernels(text).unwrap_or_else(|e| panic!("{e}"));
    made[0].words.iter().map(|w| print_at(&decode(*w).expect("our word"), 0)).collect()
}
