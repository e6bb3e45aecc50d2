//! Our assembler for chips other than sm_90: nvdisasm reads every word as we print it, no schedule has a fault,
//! parameters are read where the chip has them, and what a chip has not is refused by name.

use crate::chips::{OTHERS, agree};
use crate::codegen_kernels::kernels as graphs;
use crate::machine::{Case, launch_clusters};
use crate::nvidia::ptxas_for;
use doorbell::codegen::{self, OptChoice};
use doorbell::elf::cubin::{Arch, Cubin};
use doorbell::isa::ptx::{self, Buffers, render};
use doorbell::isa::sass::check::{Trust, check_for};
use doorbell::isa::sass::compile::assemble;
use doorbell::isa::sass::{SmArch, decode_for, print_at};
use std::collections::BTreeSet;

#[test]
fn kernels_assembled_for_each_chip_are_read_by_nvdisasm_and_have_no_fault() {
    for chip in OTHERS {
        let target = ptx::Chip::parse(&chip.to_string()).expect("the renderer's chip");
        let (mut all, mut base) = (BTreeSet::new(), false);
        for (name, ast) in graphs() {
            let program = codegen::compile(&ast, &target.target(), &OptChoice::Heuristic, false)
                .unwrap_or_else(|e| panic!("{name}: {e}"));
            let text =
                render(&program, target, Buffers::Anywhere).unwrap_or_else(|e| panic!("{name}: {e}")).to_string();
            let file = assemble(&text, chip.arch()).unwrap_or_else(|e| panic!("{chip} {name}: {e}\n{text}"));
            let cubin = Cubin::parse(&file).unwrap_or_else(|e| panic!("{chip} {name}: {e}"));
            assert_eq!(cubin.sm, chip.number());
            for k in &cubin.kernels {
                let words: Vec<u128> =
                    cubin.code(k).as_chunks::<16>().0.iter().map(|w| u128::from_le_bytes(*w)).collect();
                let faults = check_for(&words, chip, Trust::Safe).unwrap_or_else(|e| panic!("{name}: {e}"));
                assert!(faults.is_empty(), "{chip} {name}: {}", faults[0]);
                all.extend(words);
            }
            let first = format!("c[0x0][{:#x}]", chip.arch().param_base());
            base |= all.iter().any(|w| decode_for(*w, chip).is_ok_and(|i| print_at(&i, 0).contains(&first)));
        }
        assert!(base, "{chip}: no parameter is read at {:#x}", chip.arch().param_base());
        assert!(all.len() > 400, "{chip}: {} distinct words", all.len());
        agree(&all.into_iter().collect::<Vec<_>>(), chip);
    }
}

/// A kernel with these statements in its body.
fn kernel(body: &str) -> String {
    let head = ".version 8.8\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 o)\n{\n.reg .b32 %r<8>;\n";
    format!("{head}.reg .b64 %d<8>;\n.reg .pred %p<4>;\n{body}\nret;\n}}\n")
}

#[test]
fn the_size_of_shared_memory_and_counters_are_where_ptxas_has_them() {
    let text = kernel(
        "mov.u32 %r1, %total_smem_size; mov.u32 %r2, %pm3; pmevent 15; ld.param.u64 %d1, [o]; st.global.v2.u32 [%d1], {%r1, %r2};",
    );
    for chip in OTHERS.into_iter().chain([SmArch::Sm90]) {
        let kept = if chip == SmArch::Sm120 { "c[0x0][0x16c]" } else { "c[0x0][0x114]" };
        let ours = assemble(&text, chip.arch()).unwrap_or_else(|e| panic!("{chip}: {e}"));
        for cubin in [ours, ptxas_for(&text, &chip.to_string(), "-O3")] {
            let file = Cubin::parse(&cubin).unwrap_or_else(|e| panic!("{chip}: {e}"));
            let words = file.code(&file.kernels[0]).as_chunks::<16>().0;
            let word = |w: &[u8; 16]| decode_for(u128::from_le_bytes(*w), chip).expect("a known word");
            let all: String = words.iter().map(|w| print_at(&word(w), 0) + "\n").collect();
            assert!([kept, "SR_SMEMSZ", "SR_PM3", "PMTRIG 0x8000"].iter().all(|t| all.contains(t)), "{chip}:\n{all}");
        }
    }
}

/// With clusters, without, and of blocks that count as one each.
#[test]
fn what_the_launch_tells_is_read_where_ptxas_reads_it() {
    const OUT: u64 = 0x7_0000_0000;
    let alone = ["%dynamic_smem_size", "%envreg3", "%envreg20", "%nsmid", "%ntid.x", "%nctaid.x"];
    let clusters = [
        "%cluster_nctaid.x",
        "%nclusterid.x",
        "%cluster_ctaid.x",
        "%clusterid.x",
        "%cluster_nctarank",
        "%cluster_ctarank",
        "%aggr_smem_size",
        "%is_explicit_cluster",
    ];
    for chip in SmArch::ALL {
        let has_clusters = matches!(chip, SmArch::Sm90 | SmArch::Sm120);
        let mut names = alone.to_vec();
        names.extend(if has_clusters { &clusters[..] } else { &[] });
        let words: String = (0..)
            .step_by(4)
            .zip(&names)
            .map(|(at, name)| match *name {
                "%is_explicit_cluster" => {
                    format!("mov.pred %p1, {name}; selp.u32 %r1, 7, 9, %p1; st.global.u32 [%d1+{at}], %r1;\n")
                }
                _ => format!("mov.u32 %r1, {name}; st.global.u32 [%d1+{at}], %r1;\n"),
            })
            .collect();
        let text = kernel(&format!(
            "ld.param.u64 %d1, [o]; mov.u32 %r2, %ctaid.x; mul.wide.u32 %d2, %r2, 64; add.s64 %d1, %d1, %d2;\n{words}\
            mov.u64 %d3, %gridid; st.global.u64 [%d1+56], %d3;"
        ))
        .replace(".version 8.8\n.target sm_80", &format!(".version 8.8\n.target {chip}"));
        let ours = assemble(&text, chip.arch()).unwrap_or_else(|e| panic!("{chip}: {e}\n{text}"));
        let theirs = ptxas_for(&text, &chip.to_string(), "-O3");
        for blocks in if has_clusters { vec![1, 2] } else { vec![1] } {
            let buffers = [(OUT, vec![0xaa; 4 * 64])];
            let params = OUT.to_le_bytes().to_vec();
            let case = Case { grid: [4, 1, 1], block: [32, 1, 1], params, buffers: &buffers, dynamic_bytes: 48 };
            let [a, b] = [&ours, &theirs].map(|c| {
                launch_clusters(c, "k", (&case, blocks), true).unwrap_or_else(|e| panic!("{chip}: {e}")).0.remove(0)
            });
            assert_eq!(a, b, "{chip}, clusters of {blocks}: {names:?}");
            let word = |block: usize, k: usize| {
                u32::from_le_bytes(a[64 * block + 4 * k..][..4].try_into().expect("four bytes"))
            };
            assert_eq!((word(3, 0), word(3, 4), word(3, 5)), (48, 32, 4), "{chip}");
            if has_clusters {
                let found: Vec<u32> = (6..12).map(|k| word(3, k)).collect();
                let want = if blocks == 2 { [2, 2, 1, 1, 2, 1] } else { [1, 4, 0, 3, 1, 0] };
                assert_eq!(found, want, "{chip}, clusters of {blocks}");
            }
        }
    }
}

#[test]
fn what_a_chip_has_not_is_refused_by_name() {
    let body = "mov.u32 %r1, %cluster_nctaid.x; ld.param.u64 %d1, [o]; st.global.u32 [%d1], %r1;";
    let e = assemble(&kernel(body), SmArch::Sm80.arch()).expect_err("clusters");
    assert_eq!((e.line, e.what.as_str()), (9, "mov.u32: sm_80 keeps nothing like c[0x0][0x144] of sm_90"));
    for (body, chip, what) in [
        (
            "st.global.u32 [%d1], %r1; mbarrier.try_wait.parity.shared.b64 %p1, [%r1], 1;",
            SmArch::Sm80,
            "9:27: mbarrier.try_wait.parity.shared.b64: it is there from sm_90 on",
        ),
        (
            "mov.u32 %r1, 0;\nwgmma.fence.sync.aligned;",
            SmArch::Sm120,
            "10:1: wgmma.fence.sync.aligned: sm_120 has no WARPGROUP",
        ),
        ("fence.proxy.async;", SmArch::Sm89, "9:1: fence.proxy.async: sm_89 has no FENCE"),
    ] {
        assert_eq!(assemble(&kernel(body), chip.arch()).expect_err(what).to_string(), what);
    }
    let cubin =
        assemble(&kernel("ld.param.u64 %d1, [o]; st.global.u64 [%d1], %d1;"), SmArch::Sm80.arch()).expect("a copy");
    assert_eq!(Cubin::parse(&cubin).expect("a cubin").sm, 80);
    let e = assemble(&kernel(""), Arch { sm: 75, specific: false }).expect_err("a chip without a table");
    assert_eq!(e.what, "sm_75: machine code is made for sm_80, sm_86, sm_89, sm_90, sm_120 and sm_90a");
}
