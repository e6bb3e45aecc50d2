//! Work of clusters that have not started: UGETNEXTWORKID as nvdisasm reads it, and kernels that take such work, by our
//! assembler and by ptxas, on the software multiprocessor in strict mode.

use crate::chips::agree;
use crate::machine::{Case, launch_clusters};
use crate::nvidia::{disassemble_for, ptxas_for, try_ptxas};
use doorbell::elf::cubin::{Arch, Cubin};
use doorbell::isa::sass::check::{Trust, check_for};
use doorbell::isa::sass::compile::assemble;
use doorbell::isa::sass::{SmArch, decode_for, encode, parse_for, print};

const CHIP: SmArch = SmArch::Sm120;
/// Only this target has requests whose answer goes to all blocks of a cluster.
const SM120A: Arch = Arch { sm: 120, specific: true };
const THREADS: u32 = 64;
const OUT: u64 = 0x7_0000_0000;

/// The text has two registers, the word the first of them: the other follows it.
#[test]
fn the_second_register_of_a_request_follows_from_the_first() {
    let word = |register: u128| 0x000f_d800_0800_0000_0000_0000_0000_73ca | register << 24;
    let theirs = disassemble_for(&(0..256).map(word).collect::<Vec<u128>>(), CHIP);
    for (register, theirs) in (0..256).zip(theirs) {
        let inst = decode_for(word(register), CHIP);
        assert_eq!(inst.as_ref().ok().map(print), theirs, "UR{register}");
        let Ok(inst) = inst else { continue };
        let mut parsed = parse_for(&print(&inst), 0, CHIP).unwrap_or_else(|e| panic!("{e}"));
        parsed.control = inst.control;
        assert_eq!(encode(&parsed), Ok(word(register)));
    }
    for text in ["[UR6], [UR8]", "[UR6], [UR6]", "[UR254], [UR255]", "[URZ], [UR0]", "[UR0], [URZ]"] {
        assert!(parse_for(&format!("UGETNEXTWORKID.SELFCAST {text}"), 0, CHIP).is_err(), "{text}");
    }
}

/// A kernel whose blocks add the number of their threads to the word of each place of the grid that they work at: of
/// their own, and of those whose clusters they take. In clusters the first block asks for all.
fn kernel(clusters: bool) -> String {
    let (meet, asks, cast, rank) = match clusters {
        true => (
            "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
            "mov.u32 %r1, %cluster_ctarank; setp.eq.and.u32 %p2, %r1, 0, %p1;",
            ".multicast::cluster::all",
            "mov.u32 %r1, %cluster_ctaid.x; add.u32 %x, %x, %r1;",
        ),
        false => ("bar.sync 0;", "setp.eq.u32 %p2, %t, 0;", "", ""),
    };
    format!(
        ".version 8.7\n.target sm_120a\n.address_size 64\n.visible .entry k(.param .u64 out)\n{{\n\
        .reg .pred %p<8>; .reg .b32 %r<20>; .reg .b32 %t, %x, %y, %z, %a, %m, %s; .reg .b64 %d<8>; .reg .b128 %q;\n\
        .shared .align 16 .b8 answer[16]; .shared .align 8 .b64 bar;\n\
        ld.param.u64 %d1, [out]; mov.u32 %t, %tid.x; mov.u32 %x, %ctaid.x; mov.u32 %y, %ctaid.y; mov.u32 %z, %ctaid.z;\n\
        mov.u32 %a, answer; mov.u32 %m, bar; mov.u32 %s, 0; setp.eq.u32 %p1, %t, 0; {asks}\n\
        @%p1 mbarrier.init.shared::cta.b64 [%m], 1; {meet}\n\
        WORK: mov.u32 %r2, %nctaid.y; mad.lo.u32 %r3, %z, %r2, %y; mov.u32 %r4, %nctaid.x; mad.lo.u32 %r5, %r3, %r4, %x;\n\
        mul.wide.u32 %d2, %r5, 4; add.s64 %d3, %d1, %d2; red.global.add.u32 [%d3], 1;\n\
        @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%m], 16; {meet}\n\
        @%p2 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes{cast}.b128 [%a], [%m];\n\
        WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%m], %s; @!%p3 bra WAIT;\n\
        xor.b32 %s, %s, 1; ld.shared.v2.b64 {{%d4, %d5}}, [%a]; mov.b128 %q, {{%d4, %d5}}; {meet}\n\
        clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p4, %q; @!%p4 bra END;\n\
        clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {{%x, %r6, %z, _}}, %q;\n\
        clusterlaunchcontrol.query_cancel.get_first_ctaid::y.b32.b128 %y, %q; {rank} bra WORK;\n\
        END: ret;\n}}\n"
    )
}

fn words(cubin: &[u8]) -> Vec<u128> {
    let file = Cubin::parse(cubin).expect("a cubin");
    let code = file.code(file.kernel("k").expect("the kernel"));
    code.as_chunks::<16>().0.iter().map(|w| u128::from_le_bytes(*w)).collect()
}

/// The requests of a kernel's code, without their registers and guards, and their control words.
fn requests(code: &[u128]) -> Vec<String> {
    let all = code.iter().map(|w| decode_for(*w, CHIP).unwrap_or_else(|e| panic!("{w:032x}: {e}")));
    let asks = all.filter(|i| i.form().mnemonic == "UGETNEXTWORKID");
    asks.map(|i| format!("{} {}", i.control, i.modifier("cast"))).collect()
}

#[test]
fn blocks_take_the_work_of_clusters_that_have_not_started() {
    for (clusters, blocks) in [(false, 1u32), (true, 2)] {
        let text = kernel(clusters);
        let ours = assemble(&text, SM120A).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let theirs = ptxas_for(&text, "sm_120a", "-O3");
        for (who, cubin) in [("ours", &ours), ("ptxas's", &theirs)] {
            let faults = check_for(&words(cubin), CHIP, Trust::Seen).unwrap_or_else(|e| panic!("{who}: {e}"));
            assert!(faults.is_empty(), "{who}: {}", faults[0]);
            agree(&words(cubin), CHIP);
            let grid = [4, 3, 2];
            let buffers = [(OUT, vec![0; 4 * 24])];
            let params = OUT.to_le_bytes().to_vec();
            let case = Case { grid, block: [THREADS, 1, 1], params, buffers: &buffers, dynamic_bytes: 0 };
            let (left, stats) =
                launch_clusters(cubin, "k", (&case, blocks), true).unwrap_or_else(|e| panic!("{who}, {blocks}: {e}"));
            assert_eq!(left[0], [THREADS; 24].iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>(), "{who}");
            assert_eq!(stats.blocks, u64::from(blocks), "{who}: the first cluster has taken all others");
        }
        let faults = check_for(&words(&ours), CHIP, Trust::Safe).unwrap_or_else(|e| panic!("{e}"));
        assert!(faults.is_empty(), "{}", faults[0]);
        assert_eq!(requests(&words(&ours)), requests(&words(&theirs)), "{text}");
    }
}

#[test]
fn other_chips_have_no_such_request() {
    let request = "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r1], [%r2];";
    for chip in SmArch::ALL.into_iter().filter(|c| *c != CHIP) {
        let arch = chip.arch();
        let text = format!(
            ".version 8.7\n.target {arch}\n.address_size 64\n.visible .entry k()\n{{\n.reg .b32 %r<3>;\n\
            mov.u32 %r1, 0; mov.u32 %r2, 16; {request} ret;\n}}\n"
        );
        let refused = assemble(&text, arch).expect_err("no such instruction").to_string();
        assert!(refused.contains("clusterlaunchcontrol"), "{refused}");
        assert!(try_ptxas(&text, &arch.to_string(), "-O3").is_err(), "{arch}");
    }
}
