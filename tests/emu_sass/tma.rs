//! Tensor copies, bulk copies and clusters, in PTX assembled by ptxas, against loops in plain Rust.

use crate::harness::{Size, address, launch};
use crate::kit::Random;
use crate::kit::nvcc::{Level, assemble};
use crate::tensor::Tensor;
use doorbell::elf::cubin::Cubin;
use doorbell::emu::sass::{Fault, Options};

const HEAD: &str = ".version 8.8\n.target sm_90a\n.address_size 64\n";

/// The coordinates' registers, loaded from the fourth parameter on.
fn coordinates(rank: usize) -> (String, String) {
    let loads = (0..rank).map(|k| format!("ld.global.b32 %c{k},[%pc+{}];", 4 * k)).collect();
    let names: Vec<String> = (0..rank).map(|k| format!("%c{k}")).collect();
    (loads, names.join(","))
}

/// One thread loads the tile, all copy shared memory to the output.
fn load_kernel(tensor: &Tensor) -> String {
    let (rank, bytes) = (tensor.sizes.len(), tensor.box_bytes());
    let (loads, names) = coordinates(rank);
    format!(
        "{HEAD}.visible .entry k(.param .u64 pm,.param .u64 pc,.param .u64 po)\n{{\n.shared .align 1024 .b8 sm[16384]; .shared .align 8 .b8 bar[8];\n\
         .reg .pred %p,%q; .reg .b32 %c<5>,%t,%s,%b,%v; .reg .b64 %pm,%pc,%po,%x;\n\
         ld.param.u64 %pm,[pm]; ld.param.u64 %pc,[pc]; ld.param.u64 %po,[po]; mov.u32 %t,%tid.x; mov.u32 %s,sm; mov.u32 %b,bar;\n\
         {loads}\nsetp.eq.u32 %p,%t,0; @%p mbarrier.init.shared.b64 [%b],1; fence.proxy.async.shared::cta; bar.sync 0; @!%p bra W;\n\
         mbarrier.arrive.expect_tx.shared::cta.b64 _,[%b],{bytes};\n\
         cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%s],[%pm,{{{names}}}],[%b];\n\
         W: mbarrier.try_wait.parity.shared::cta.b64 %q,[%b],0; @!%q bra W;\n\
         shl.b32 %t,%t,2; cvt.u64.u32 %x,%t; add.s64 %po,%po,%x; add.u32 %s,%s,%t;\n\
         L: ld.shared.b32 %v,[%s]; st.global.b32 [%po],%v; add.u32 %s,%s,128; add.u32 %t,%t,128; add.s64 %po,%po,128;\n\
         setp.lt.u32 %q,%t,{bytes}; @%q bra L; ret;\n}}\n"
    )
}

/// All fill shared memory from the third buffer, one thread stores the tile, or adds it.
fn store_kernel(tensor: &Tensor, instruction: &str) -> String {
    let (rank, bytes) = (tensor.sizes.len(), tensor.box_bytes());
    let (loads, names) = coordinates(rank);
    format!(
        "{HEAD}.visible .entry k(.param .u64 pm,.param .u64 pc,.param .u64 pi)\n{{\n.shared .align 1024 .b8 sm[16384];\n\
         .reg .pred %p,%q; .reg .b32 %c<5>,%t,%s,%a,%i,%v; .reg .b64 %pm,%pc,%po,%x;\n\
         ld.param.u64 %pm,[pm]; ld.param.u64 %pc,[pc]; ld.param.u64 %po,[pi]; mov.u32 %t,%tid.x; mov.u32 %s,sm;\n\
         {loads}\nsetp.eq.u32 %p,%t,0; shl.b32 %i,%t,2; cvt.u64.u32 %x,%i; add.s64 %po,%po,%x; add.u32 %a,%s,%i;\n\
         L: ld.global.b32 %v,[%po]; st.shared.b32 [%a],%v; add.u32 %a,%a,128; add.u32 %i,%i,128; add.s64 %po,%po,128;\n\
         setp.lt.u32 %q,%i,{bytes}; @%q bra L;\n\
         fence.proxy.async.shared::cta; bar.sync 0; @!%p ret;\n\
         {instruction} [%pm,{{{names}}}],[%s];\n\
         cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ret;\n}}\n"
    )
}

/// Runs a kernel of three buffers at both levels: tensor map, coordinates, data, and the tensor last.
fn run(text: &str, tensor: &Tensor, buffers: [Vec<u8>; 2]) -> Vec<Vec<Vec<u8>>> {
    let at: Vec<u8> = tensor.at.iter().flat_map(|c| c.to_le_bytes()).collect();
    let [data, bytes] = buffers;
    let all = [tensor.map(address(3)), at, data, bytes];
    let parameters: Vec<Vec<u8>> = (0..3).map(|k| address(k).to_le_bytes().to_vec()).collect();
    Level::ALL
        .iter()
        .map(|level| {
            let cubin = Cubin::parse(&assemble(text, *level)).unwrap();
            let outcome = launch(&cubin, "k", Size::default(), &all, &parameters, &Options::default());
            outcome.unwrap_or_else(|e| panic!("{level:?}: {e}")).0
        })
        .collect()
}

const PLAIN: Tensor = Tensor {
    kind: 7,
    element_bytes: 4,
    sizes: &[40, 20],
    strides: &[160],
    counts: &[8, 8],
    steps: &[1, 1],
    swizzle: 0,
    fills_nan: false,
    at: &[12, 3],
};

#[rustfmt::skip]
const TENSORS: &[Tensor] = &[
    PLAIN,
    // Over the upper and the lower edge, zeros and not a number.
    Tensor { at: &[36, 17], ..PLAIN },
    Tensor { at: &[-3, -2], fills_nan: true, ..PLAIN },
    Tensor { counts: &[32, 16], swizzle: 3, ..PLAIN },
    Tensor { counts: &[16, 16], swizzle: 2, at: &[30, 10], ..PLAIN },
    Tensor { counts: &[8, 16], swizzle: 1, ..PLAIN },
    // Every second row.
    Tensor { counts: &[8, 16], steps: &[1, 2], ..PLAIN },
    Tensor { sizes: &[100], strides: &[], counts: &[64], steps: &[1], at: &[50], ..PLAIN },
    Tensor { kind: 6, element_bytes: 2, sizes: &[16, 5, 7], strides: &[32, 160], counts: &[8, 4, 4], steps: &[1, 1, 1], at: &[4, 3, 1], ..PLAIN },
    Tensor { kind: 0, element_bytes: 1, sizes: &[32, 3, 3, 2, 2], strides: &[32, 96, 288, 576], counts: &[16, 2, 2, 2, 2], steps: &[1; 5], at: &[8, 1, -1, 0, 1], ..PLAIN },
];

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..len).map(|_| random.below(256) as u8).collect()
}

#[test]
fn boxes_loaded_by_tensor_maps_agree_with_loops_over_elements() {
    for (number, tensor) in TENSORS.iter().enumerate() {
        let source = bytes(8192, number as u64);
        let mut want = vec![0u8; tensor.box_bytes()];
        let nan = 0x7fff_ffffu32.to_le_bytes();
        for (from, to) in tensor.elements(tensor.at) {
            let len = tensor.element_bytes;
            want[to..to + len].copy_from_slice(match from {
                Some(from) => &source[from..from + len],
                None if tensor.fills_nan => &nan,
                None => &[0; 8][..len],
            });
        }
        for after in run(&load_kernel(tensor), tensor, [vec![0; 16384], source]) {
            assert_eq!(after[2][..want.len()], want, "tensor {number}");
        }
    }
}

#[test]
fn boxes_stored_by_tensor_maps_leave_everything_outside_alone() {
    for (number, tensor) in TENSORS.iter().enumerate() {
        let (data, before) = (bytes(16384, 99), bytes(8192, number as u64));
        let mut want = before.clone();
        for (to, from) in tensor.elements(tensor.at) {
            if let Some(to) = to {
                want[to..to + tensor.element_bytes].copy_from_slice(&data[from..from + tensor.element_bytes]);
            }
        }
        let name = format!("cp.async.bulk.tensor.{}d.global.shared::cta.tile.bulk_group", tensor.sizes.len());
        for after in run(&store_kernel(tensor, &name), tensor, [data, before]) {
            assert!(after[3] == want, "tensor {number}");
        }
    }
}

#[test]
fn boxes_reduced_by_tensor_maps_agree_with_loops_over_elements() {
    type Op = fn(&[u8], &[u8]) -> Vec<u8>;
    fn w(b: &[u8]) -> u32 {
        u32::from_le_bytes([b[0], b[1], b[2], b[3]])
    }
    let cases: [(u32, &str, Op); 5] = [
        (2, "add", |a, b| w(a).wrapping_add(w(b)).to_le_bytes().to_vec()),
        (3, "min", |a, b| (w(a) as i32).min(w(b) as i32).to_le_bytes().to_vec()),
        (2, "max", |a, b| w(a).max(w(b)).to_le_bytes().to_vec()),
        (2, "xor", |a, b| (w(a) ^ w(b)).to_le_bytes().to_vec()),
        (7, "add", |a, b| (f32::from_bits(w(a)) + f32::from_bits(w(b))).to_le_bytes().to_vec()),
    ];
    for (kind, op, combine) in cases {
        let tensor = Tensor { kind, at: &[36, 17], ..PLAIN };
        // Words whose exponents are those of ordinary numbers.
        let numbers = |seed| {
            let mut all = bytes(16384, seed);
            all.chunks_exact_mut(4).for_each(|word| word[3] = 0x3f | word[3] & 0x80);
            all
        };
        let (data, before) = (numbers(7), numbers(8));
        let mut want = before.clone();
        for (to, from) in tensor.elements(tensor.at) {
            if let Some(to) = to {
                let sum = combine(&before[to..to + 4], &data[from..from + 4]);
                want[to..to + 4].copy_from_slice(&sum);
            }
        }
        let name = format!("cp.reduce.async.bulk.tensor.2d.global.shared::cta.{op}.tile.bulk_group");
        for after in run(&store_kernel(&tensor, &name), &tensor, [data, before]) {
            assert!(after[3] == want, "{op} of type {kind}");
        }
    }
}

/// Runs a kernel of one input and one output on a cluster of two CTAs.
fn cluster(body: &str, input: Vec<u8>, level: Level) -> Result<Vec<u8>, Fault> {
    let text = format!(
        "{HEAD}.visible .entry k(.param .u64 pi,.param .u64 po) .reqnctapercluster 2\n{{\n\
         .shared .align 1024 .b8 sm[8192]; .shared .align 8 .b8 bar[8];\n\
         .reg .pred %p,%q,%z; .reg .b16 %h; .reg .b32 %t,%s,%b,%v,%w,%r,%o,%i,%rs,%rb; .reg .b64 %pi,%po,%x;\n\
         ld.param.u64 %pi,[pi]; ld.param.u64 %po,[po]; mov.u32 %t,%tid.x; mov.u32 %s,sm; mov.u32 %b,bar; mov.u32 %r,%cluster_ctarank;\n\
         xor.b32 %o,%r,1; mapa.shared::cluster.u32 %rs,%s,%o; mapa.shared::cluster.u32 %rb,%b,%o;\n\
         setp.eq.u32 %z,%t,0; shl.b32 %i,%t,2; add.u32 %s,%s,%i; add.u32 %rs,%rs,%i;\n\
         mad.lo.u32 %v,%r,128,%i; cvt.u64.u32 %x,%v; add.s64 %po,%po,%x;\n{body}\nret;\n}}\n"
    );
    let cubin = Cubin::parse(&assemble(&text, level)).unwrap();
    let size = Size { grid: [2, 1, 1], cluster: [2, 1, 1], ..Size::default() };
    let parameters: Vec<Vec<u8>> = (0..2).map(|k| address(k).to_le_bytes().to_vec()).collect();
    let buffers = [input, vec![0; 256]];
    launch(&cubin, "k", size, &buffers, &parameters, &Options::default()).map(|(mut after, _)| after.remove(1))
}

fn out(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

const INIT: &str = "@%z mbarrier.init.shared.b64 [%b],1; fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;\n\
                    barrier.cluster.arrive.release; barrier.cluster.wait.acquire;\n";
const WAIT: &str = "W: mbarrier.try_wait.parity.shared::cta.b64 %q,[%b],0; @!%q bra W;\n";
const LAST: &str = "barrier.cluster.arrive; barrier.cluster.wait;";

#[test]
fn a_cta_reads_what_the_other_of_its_cluster_wrote_after_their_barrier() {
    let body = "mad.lo.u32 %w,%r,1000,%t; st.shared.b32 [%s],%w; barrier.cluster.arrive.release; barrier.cluster.wait.acquire;\n\
                ld.shared::cluster.b32 %v,[%rs]; st.global.b32 [%po],%v; barrier.cluster.arrive; barrier.cluster.wait;";
    for level in Level::ALL {
        let got = out(&cluster(body, vec![0; 16], level).unwrap_or_else(|e| panic!("{level:?}: {e}")));
        let want: Vec<u32> = (0..64).map(|k| if k < 32 { 1000 + k } else { k - 32 }).collect();
        assert_eq!(got, want, "{level:?}");
    }
}

#[test]
fn stores_and_reductions_to_another_cta_count_for_its_mbarrier() {
    let body = format!(
        "st.shared.b32 [%s+1024],%t; {INIT}@%z mbarrier.arrive.expect_tx.shared::cta.b64 _,[%b],256;\n\
         mad.lo.u32 %w,%r,1000,%t;\n\
         st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%rs],%w,[%rb];\n\
         red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%rs+1024],%w,[%rb];\n\
         {WAIT}ld.shared.b32 %v,[%s]; ld.shared.b32 %w,[%s+1024]; mad.lo.u32 %v,%w,65536,%v; st.global.b32 [%po],%v; {LAST}"
    );
    for level in Level::ALL {
        let got = out(&cluster(&body, vec![0; 16], level).unwrap_or_else(|e| panic!("{level:?}: {e}")));
        let word = |k: u32| if k < 32 { 1000 + k } else { k - 32 };
        let want: Vec<u32> = (0..64).map(|k| (word(k) + k % 32) << 16 | word(k)).collect();
        assert_eq!(got, want, "{level:?}");
    }
}

#[test]
fn arrivals_at_another_ctas_mbarrier_end_its_phase() {
    let body = format!(
        "@%z mbarrier.init.shared.b64 [%b],32; fence.mbarrier_init.release.cluster; barrier.cluster.arrive.release; barrier.cluster.wait.acquire;\n\
         mad.lo.u32 %w,%r,1000,%t; st.shared::cluster.b32 [%rs],%w; mbarrier.arrive.release.cluster.shared::cluster.b64 _,[%rb];\n\
         {WAIT}ld.shared.b32 %v,[%s]; st.global.b32 [%po],%v; {LAST}"
    );
    for level in Level::ALL {
        let got = out(&cluster(&body, vec![0; 16], level).unwrap_or_else(|e| panic!("{level:?}: {e}")));
        let want: Vec<u32> = (0..64).map(|k| if k < 32 { 1000 + k } else { k - 32 }).collect();
        assert_eq!(got, want, "{level:?}");
    }
}

#[test]
fn a_multicast_copy_reaches_both_ctas_and_counts_in_both() {
    let body = format!(
        "{INIT}@%z mbarrier.arrive.expect_tx.shared::cta.b64 _,[%b],128; {LAST} setp.eq.u32 %p,%r,0; and.pred %p,%p,%z; @!%p bra W;\n\
         mov.b16 %h,3; mov.u32 %w,sm;\n\
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%w],[%pi],128,[%b],%h;\n\
         {WAIT}ld.shared.b32 %v,[%s]; st.global.b32 [%po],%v; {LAST}"
    );
    let input = bytes(128, 5);
    for level in Level::ALL {
        let got = cluster(&body, input.clone(), level).unwrap_or_else(|e| panic!("{level:?}: {e}"));
        assert!(got[..128] == input && got[128..] == input, "{level:?}");
    }
}

#[test]
fn a_bulk_copy_between_ctas_and_a_bulk_reduction_to_global_memory_move_their_bytes() {
    let body = format!(
        "mad.lo.u32 %w,%r,1000,%t; st.shared.b32 [%s+2048],%w; {INIT}@!%z bra W;\n\
         mbarrier.arrive.expect_tx.shared::cta.b64 _,[%b],128; mov.u32 %w,sm; mapa.shared::cluster.u32 %v,%w,%o; add.u32 %w,%w,2048;\n\
         cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%v],[%w],128,[%rb];\n\
         mov.u32 %w,sm; add.u32 %w,%w,2048; cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%po],[%w],128;\n\
         cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\n\
         {WAIT}ld.shared.b32 %v,[%s]; bar.sync 0; red.global.add.u32 [%po],%v; {LAST}"
    );
    for level in Level::ALL {
        let got = out(&cluster(&body, vec![0; 16], level).unwrap_or_else(|e| panic!("{level:?}: {e}")));
        let want: Vec<u32> = (0..64).map(|k| 1000 + 2 * (k % 32)).collect();
        assert_eq!(got, want, "{level:?}");
    }
}
