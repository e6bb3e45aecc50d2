//! Strict mode's findings, one small program each, assembled by LLVM; and that the corrected program passes.

use super::harness::{Launch, Loaded, Prepared, compile, cpu, launch, prepare, scratch};
use doorbell::emu::amdgpu::Chip::{Gfx942, Gfx1100, Gfx1201};
use doorbell::emu::amdgpu::{Access, Bus, BusFault, Chip, FaultKind, PlainBus, Strict, WaveFault, Window};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

/// A kernel of the given instructions with 16 vector registers (32 with the accumulators of gfx942), 64 bytes of LDS,
/// the kernarg pointer in s[0:1].
fn assemble(chip: Chip, body: &str) -> Loaded {
    let (accum, registers) = if chip == Gfx942 { (".amdhsa_accum_offset 16", 32) } else { ("", 16) };
    let source = format!(
        ".text\n.globl k\n.p2align 8\n.type k,@function\nk:\n{body}\ns_endpgm\n.fill 64, 4, 0\n.rodata\n.p2align 6\n.amdhsa_kernel k\n\
         .amdhsa_next_free_vgpr {registers}\n.amdhsa_next_free_sgpr 32\n.amdhsa_user_sgpr_kernarg_segment_ptr 1\n\
         .amdhsa_group_segment_fixed_size 64\n.amdhsa_float_denorm_mode_32 3\n{accum}\n.end_amdhsa_kernel\n"
    );
    let dir = scratch("strict");
    let file = dir.join("k.s");
    std::fs::write(&file, source).unwrap();
    let loaded = Loaded::new(chip, &compile(chip, &file, &[], &dir));
    std::fs::remove_dir_all(dir).unwrap();
    loaded
}

fn run_with(chip: Chip, local: u32, strict: Strict, body: &str) -> Result<Vec<u32>, FaultKind> {
    let loaded = assemble(chip, body);
    let input: Vec<u32> = (0..1024).collect();
    let l = Launch { kernel: "k", input: &input, out_words: 1024, groups: 1, local, n: 0, strict };
    launch(&loaded, &l).map(|(words, _)| words).map_err(|fault| {
        let text = fault.to_string();
        assert!(text.contains("workgroup 0,0,0 wave"), "{text}");
        fault.kind
    })
}

fn run(chip: Chip, local: u32, body: &str) -> Result<Vec<u32>, FaultKind> {
    run_with(chip, local, Strict::on(), body)
}

fn wait(chip: Chip) -> &'static str {
    match chip {
        Gfx1201 => "s_wait_loadcnt 0\ns_wait_dscnt 0\ns_wait_kmcnt 0\n",
        _ => "s_waitcnt vmcnt(0) lgkmcnt(0)\n",
    }
}

/// The chip's spelling of RDNA3 assembly.
fn spell(chip: Chip, body: &str) -> String {
    if chip != Gfx942 {
        return body.to_owned();
    }
    let pairs = [
        ("global_load_b32", "global_load_dword"),
        ("global_store_b32", "global_store_dword"),
        ("ds_load_b32", "ds_read_b32"),
        ("ds_store_b32", "ds_write_b32"),
        ("s_load_b32", "s_load_dword"),
        ("s_load_b64", "s_load_dwordx2"),
        ("v_add_nc_u32", "v_add_u32"),
    ];
    pairs.iter().fold(body.to_owned(), |text, (from, to)| text.replace(from, to))
}

const CHIPS: [Chip; 3] = [Gfx1100, Gfx942, Gfx1201];

/// The fault of a program, on every chip.
#[track_caller]
fn faults(body: &str, is: impl Fn(&FaultKind) -> bool) {
    for chip in CHIPS {
        match run(chip, 32, &spell(chip, body)) {
            Err(kind) => assert!(is(&kind), "{}: {kind}", cpu(chip)),
            Ok(_) => panic!("{}: no fault in {body}", cpu(chip)),
        }
    }
}

#[track_caller]
fn passes(body: impl Fn(Chip) -> String) {
    for chip in CHIPS {
        if let Err(kind) = run(chip, 32, &spell(chip, &body(chip))) {
            panic!("{}: {kind}", cpu(chip));
        }
    }
}

#[test]
fn an_unwritten_vector_register_is_named_with_its_lanes() {
    faults("v_add_nc_u32 v1, v2, v2", |k| matches!(k, FaultKind::VgprUnwritten { register: 2, .. }));
    let partial = "s_mov_b64 exec, 3\nv_mov_b32 v2, 0\ns_mov_b64 exec, 7\nv_add_nc_u32 v1, v2, v2";
    let kind = run(Gfx942, 64, &spell(Gfx942, partial)).unwrap_err();
    assert_eq!(kind, FaultKind::VgprUnwritten { register: 2, lanes: 4 });
}

#[test]
fn unwritten_scalar_registers_and_scc_are_faults() {
    faults("s_and_b32 s20, s21, s21", |k| matches!(k, FaultKind::SgprUnwritten { register: 21 }));
    faults("s_cselect_b32 s20, 1, 2", |k| matches!(k, FaultKind::SccUnwritten));
    faults("s_cbranch_scc1 8", |k| matches!(k, FaultKind::SccUnwritten));
}

#[test]
fn with_strict_mode_off_the_same_reads_pass() {
    for chip in CHIPS {
        let body = spell(chip, "v_add_nc_u32 v1, v2, v2\ns_and_b32 s20, s21, s22\ns_cselect_b32 s20, 1, 2");
        assert!(run_with(chip, 32, Strict::off(), &body).is_ok());
    }
}

#[test]
fn a_fault_names_the_lane_that_it_concerns() {
    let text = |chip: Chip, body: &str| {
        let loaded = assemble(chip, &spell(chip, body));
        let l =
            Launch { kernel: "k", input: &[0; 16], out_words: 16, groups: 1, local: 32, n: 0, strict: Strict::on() };
        launch(&loaded, &l).expect_err("a fault").to_string()
    };
    for chip in [Gfx1100, Gfx942, Gfx1201] {
        let lds = text(chip, "v_mov_b32 v1, 8\ns_mov_b32 exec_lo, 0x20\nds_load_b32 v2, v1");
        assert!(lds.contains("LDS byte 0x8 is read") && lds.ends_with("workgroup 0,0,0 wave 0 lane 5"), "{lds}");
        let memory =
            text(chip, "v_mov_b32 v2, 64\nv_mov_b32 v3, 0\ns_mov_b32 exec_lo, 0x180\nglobal_load_b32 v4, v[2:3], off");
        assert!(memory.ends_with("wave 0 lane 7"), "{memory}");
        let register = text(chip, "s_mov_b32 exec_lo, 0x4\nv_add_nc_u32 v1, v2, v2");
        assert!(register.ends_with("wave 0 lane 2"), "{register}");
        let whole = text(chip, "s_and_b32 s20, s21, s21");
        assert!(whole.ends_with("wave 0"), "{whole}");
    }
}

#[test]
fn lds_that_nobody_wrote_is_a_fault() {
    faults("v_mov_b32 v1, 8\nds_load_b32 v2, v1", |k| matches!(k, FaultKind::LdsUnwritten { offset: 8 }));
}

#[test]
fn lds_beyond_the_descriptor_is_a_fault_and_reads_zero_without_strict_mode() {
    faults("v_mov_b32 v1, 64\nds_store_b32 v1, v0", |k| {
        matches!(k, FaultKind::LdsOutOfRange { offset: 64, len_bytes: 4, size_bytes: 64 })
    });
    assert!(run_with(Gfx1100, 32, Strict::off(), "v_mov_b32 v1, 64\nds_load_b32 v2, v1").is_ok());
}

#[test]
fn scalar_loads_beyond_a_buffer_give_zero_wherever_that_is() {
    // A buffer of 16 bytes at the input; loads inside, across its end, and where nothing is mapped.
    let body = "s_load_b128 s[4:7], s[0:1], null\ns_waitcnt lgkmcnt(0)\ns_mov_b32 s8, s4\ns_mov_b32 s9, s5\n\
                s_mov_b32 s10, 16\ns_mov_b32 s11, 0\ns_mov_b32 s12, 0x10000000\ns_buffer_load_b32 s16, s[8:11], 0x8\n\
                s_buffer_load_b64 s[18:19], s[8:11], 0xc\ns_buffer_load_b32 s20, s[8:11], s12\ns_waitcnt lgkmcnt(0)\n\
                v_mov_b32 v4, s16\nv_mov_b32 v5, s18\nv_mov_b32 v6, s19\nv_mov_b32 v7, s20\nv_lshlrev_b32 v1, 4, v0\n\
                global_store_b128 v1, v[4:7], s[6:7]\n";
    let words = run(Gfx1100, 1, body).unwrap();
    assert_eq!(words[..4], [2, 3, 0, 0]);
}

const LOAD: &str = "v_mov_b32 v1, 0\nglobal_load_b32 v2, v1, s[0:1]\n";

#[test]
fn a_load_must_be_waited_for_before_its_register_is_read_or_written() {
    let unwaited = |k: &FaultKind| matches!(k, FaultKind::VgprNotWaited { register: 2, .. });
    faults(&format!("{LOAD}v_mov_b32 v3, v2"), unwaited);
    faults(&format!("{LOAD}v_mov_b32 v2, 0"), unwaited);
    passes(|chip| format!("{LOAD}{}v_mov_b32 v3, v2", wait(chip)));
    let names = CHIPS.map(|chip| match run(chip, 32, &spell(chip, &format!("{LOAD}v_mov_b32 v3, v2"))) {
        Err(FaultKind::VgprNotWaited { counter, .. }) => counter,
        other => panic!("{other:?}"),
    });
    assert_eq!(names, ["vmcnt", "vmcnt", "loadcnt"]);
}

#[test]
fn vector_loads_come_back_in_order() {
    let two = |wait: &str, read: &str| format!("{LOAD}global_load_b32 v3, v1, s[0:1]\n{wait}\nv_mov_b32 v4, {read}");
    assert!(run(Gfx1100, 32, &two("s_waitcnt vmcnt(1)", "v2")).is_ok());
    let kind = run(Gfx1100, 32, &two("s_waitcnt vmcnt(1)", "v3")).unwrap_err();
    assert!(matches!(kind, FaultKind::VgprNotWaited { register: 3, counter: "vmcnt" }));
    assert!(run(Gfx1201, 32, &two("s_wait_loadcnt 1", "v2")).is_ok());
    assert!(run(Gfx1201, 32, &two("s_wait_loadcnt 1", "v3")).is_err());
}

#[test]
fn scalar_loads_come_back_in_any_order() {
    let body = |wait: &str| format!("s_load_b32 s4, s[0:1], 0\ns_load_b32 s5, s[0:1], 4\n{wait}\ns_mov_b32 s6, s4");
    let kind = run(Gfx1100, 32, &body("s_waitcnt lgkmcnt(1)")).unwrap_err();
    assert!(matches!(kind, FaultKind::SgprNotWaited { register: 4, counter: "lgkmcnt" }));
    assert!(run(Gfx1100, 32, &body("s_waitcnt lgkmcnt(0)")).is_ok());
    let kind = run(Gfx1201, 32, &body("s_wait_kmcnt 1")).unwrap_err();
    assert!(matches!(kind, FaultKind::SgprNotWaited { register: 4, counter: "kmcnt" }));
}

#[test]
fn an_lds_load_behind_a_scalar_load_needs_a_wait_for_zero() {
    let body = |n: u32| {
        format!(
            "v_mov_b32 v1, 0\nds_store_b32 v1, v1\nds_load_b32 v2, v1\ns_load_b32 s4, s[0:1], 0\n\
             s_waitcnt lgkmcnt({n})\nv_mov_b32 v3, v2"
        )
    };
    assert!(matches!(run(Gfx1100, 1, &body(1)), Err(FaultKind::VgprNotWaited { register: 2, counter: "lgkmcnt" })));
    assert!(run(Gfx1100, 1, &body(0)).is_ok());
}

#[test]
fn registers_beyond_the_descriptor_are_faults() {
    faults("v_mov_b32 v40, 0", |k| matches!(k, FaultKind::VgprBeyondAllocation { register: 40, allocated: 16 }));
}

/// gfx942: v and a registers are one file, and a0 follows the last v of accum_offset. Seen on gfx950: a `ds_read` into
/// v64 of a kernel with accum_offset 64 changes a0. aiter's attention kernels have 160 and use v160 to v235.
#[test]
fn a_vector_register_beyond_accum_offset_is_an_accumulator() {
    let body = "s_load_dwordx2 s[4:5], s[0:1], 8\ns_waitcnt lgkmcnt(0)\nv_mov_b32 v1, 77\nv_accvgpr_write_b32 a5, v1\n\
                s_nop 7\nv_mov_b32 v22, 88\ns_nop 7\nv_accvgpr_read_b32 v2, a6\nv_mov_b32 v3, v21\nv_lshlrev_b32 v4, 3, v0\n\
                global_store_dwordx2 v4, v[2:3], s[4:5]";
    let kind = run(Gfx942, 1, body).unwrap_err();
    assert_eq!(kind, FaultKind::VgprIsAccumulator { register: 22, accum_offset: 16 });
    assert_eq!(kind.to_string(), "v22 is a6 of a descriptor with accum_offset 16");
    for strict in [Strict { lenient: true, ..Strict::on() }, Strict::off()] {
        assert_eq!(run_with(Gfx942, 1, strict, body).unwrap()[..2], [88, 77]);
    }
}

/// Memory, and what lenient checks find.
struct Noting(PlainBus, Mutex<Vec<FaultKind>>);

impl Bus for Noting {
    fn translate(&self, va: u64, access: Access) -> Result<Window, BusFault> {
        self.0.translate(va, access)
    }

    fn epoch(&self) -> u64 {
        self.0.epoch()
    }

    fn note(&self, finding: &WaveFault) {
        self.1.lock().unwrap().push(finding.kind.clone());
    }
}

#[test]
fn a_register_beyond_accum_offset_hides_no_other_finding() {
    let loaded = assemble(Gfx942, "v_mov_b32 v1, 0\nds_write_b32 v1, v1\nds_read_b32 v20, v1\nv_mov_b32 v3, v20");
    let strict = Strict { lenient: true, ..Strict::on() };
    let l = Launch { kernel: "k", input: &[0], out_words: 1, groups: 1, local: 1, n: 0, strict };
    let Prepared { dispatch, bus, .. } = prepare(&loaded, &l);
    let bus = Noting(bus, Mutex::default());
    doorbell::emu::amdgpu::run(&dispatch, &bus, &strict, &AtomicBool::new(false)).unwrap();
    let accumulator = FaultKind::VgprIsAccumulator { register: 20, accum_offset: 16 };
    let early = FaultKind::VgprNotWaited { register: 20, counter: "lgkmcnt" };
    assert_eq!(bus.1.into_inner().unwrap(), [accumulator.clone(), accumulator, early]);
}

#[test]
fn misaligned_tuples_are_faults() {
    // s_mov_b64 s[3:4], s[0:1]; global_load_dwordx2 v[3:4], v1, s[0:1] of gfx942.
    let kind = run(Gfx1100, 32, ".long 0xbe830100").unwrap_err();
    assert_eq!(kind, FaultKind::MisalignedTuple { class: 's', first: 3, words: 2, align: 2 });
    let kind = run(Gfx942, 64, "v_mov_b32 v1, 0\n.long 0xdc548000, 0x03000001").unwrap_err();
    assert_eq!(kind, FaultKind::MisalignedTuple { class: 'v', first: 3, words: 2, align: 2 });
}

/// Two waves that communicate through LDS; `between` is between the store and the load of the other's word.
fn meeting(chip: Chip, between: &str) -> Result<Vec<u32>, FaultKind> {
    let lanes = if chip == Gfx942 { 64 } else { 32 };
    // Lane 0 of each wave: its wave number times four is its word.
    let body = format!(
        "v_lshrrev_b32 v1, {}, v0\nv_lshlrev_b32 v1, 2, v1\nv_xor_b32 v2, 4, v1\ns_mov_b32 exec_lo, 1\n{}\
         ds_store_b32 v1, v0\n{between}\nds_load_b32 v3, v2\n{}v_mov_b32 v4, v3",
        if chip == Gfx942 { 6 } else { 5 },
        if chip == Gfx942 { "s_mov_b32 exec_hi, 0\n" } else { "" },
        wait(chip)
    );
    let body = if chip == Gfx942 {
        body
    } else {
        body.replace("v_lshrrev_b32 v1", "v_and_b32 v0, 0x3ff, v0\nv_lshrrev_b32 v1")
    };
    run(chip, 2 * lanes, &spell(chip, &body))
}

#[test]
fn waves_that_share_lds_without_a_barrier_race() {
    // The first wave runs to its load before the second stores: unwritten, or a race when the order is the other.
    for chip in CHIPS {
        let kind = meeting(chip, wait(chip)).unwrap_err();
        assert!(matches!(kind, FaultKind::LdsRace { .. } | FaultKind::LdsUnwritten { .. }), "{kind}");
    }
    let both = "v_mov_b32 v1, 0\nds_store_b32 v1, v0";
    for chip in CHIPS {
        let kind = run(chip, 128, &spell(chip, both)).unwrap_err();
        assert!(matches!(kind, FaultKind::LdsRace { this: "written", other: "written", wave: 0, .. }), "{kind}");
    }
}

#[test]
fn a_store_must_be_waited_for_before_the_barrier() {
    let barrier = |chip| if chip == Gfx1201 { "s_barrier_signal -1\ns_barrier_wait -1" } else { "s_barrier" };
    for chip in CHIPS {
        let kind = meeting(chip, barrier(chip)).unwrap_err();
        assert!(matches!(kind, FaultKind::LdsStoreNotWaited { .. }), "{kind}");
        meeting(chip, &format!("{}{}", wait(chip), barrier(chip))).unwrap();
    }
}

/// The output's address in s[2:3], the work-item's number in v0.
fn with_output(chip: Chip, body: &str) -> String {
    let item = if chip == Gfx942 { "" } else { "v_and_b32 v0, 0x3ff, v0\n" };
    spell(chip, &format!("{item}s_load_b64 s[2:3], s[0:1], 0x8\n{}{body}", wait(chip)))
}

/// Two waves that communicate through global memory: each stores its word and loads the other's, with `between`
/// between.
fn meeting_in_memory(chip: Chip, between: &str) -> Result<Vec<u32>, FaultKind> {
    let (lanes, shift, rest) = if chip == Gfx942 { (64, 6, "s_mov_b32 exec_hi, 0\n") } else { (32, 5, "") };
    let body = format!(
        "v_lshrrev_b32 v1, {shift}, v0\nv_lshlrev_b32 v1, 2, v1\nv_xor_b32 v2, 4, v1\ns_mov_b32 exec_lo, 1\n{rest}\
         global_store_b32 v1, v0, s[2:3]\n{between}\nglobal_load_b32 v3, v2, s[2:3]\n{}v_mov_b32 v4, v3",
        wait(chip)
    );
    run(chip, 2 * lanes, &with_output(chip, &body))
}

#[test]
fn waves_that_share_memory_need_a_barrier_and_a_wait_for_the_store_before_it() {
    for chip in CHIPS {
        let barrier = if chip == Gfx1201 { "s_barrier_signal -1\ns_barrier_wait -1" } else { "s_barrier" };
        let stored = match chip {
            Gfx1100 => "s_waitcnt_vscnt null, 0x0\n",
            Gfx942 => "s_waitcnt vmcnt(0)\n",
            Gfx1201 => "s_wait_storecnt 0x0\n",
        };
        let kind = meeting_in_memory(chip, stored).unwrap_err();
        assert!(matches!(kind, FaultKind::GlobalRace { this: "written", other: "read", wave: 0, .. }), "{kind}");
        let kind = meeting_in_memory(chip, barrier).unwrap_err();
        assert!(matches!(kind, FaultKind::GlobalStoreNotWaited { .. }), "{kind}");
        meeting_in_memory(chip, &format!("{stored}{barrier}")).unwrap();
    }
}

#[test]
fn stores_of_two_workgroups_to_one_word_race_and_atomics_do_not() {
    for chip in CHIPS {
        let launched = |body: &str| {
            let loaded = assemble(chip, &with_output(chip, body));
            let l =
                Launch { kernel: "k", input: &[0], out_words: 64, groups: 2, local: 32, n: 0, strict: Strict::on() };
            launch(&loaded, &l).map(|(words, _)| words[0]).map_err(|fault| (fault.kind, fault.text))
        };
        let (kind, text) = launched("v_mov_b32 v1, 0\nglobal_store_b32 v1, v0, s[2:3]").unwrap_err();
        let race = |kind: &FaultKind| {
            matches!(kind, FaultKind::GlobalRace { this: "written", other: "written", group: 0, .. })
        };
        assert!(race(&kind) && text.contains("global_store"), "{kind} {text}");
        let add = if chip == Gfx942 { "global_atomic_add" } else { "global_atomic_add_u32" };
        let sum = launched(&format!("v_mov_b32 v1, 0\nv_mov_b32 v2, 1\n{add} v1, v2, s[2:3]")).unwrap();
        assert_eq!(sum, 64);
    }
}

#[test]
fn a_barrier_that_nobody_signalled_is_stuck() {
    let kind = run(Gfx1201, 64, "s_barrier_wait -1").unwrap_err();
    assert!(matches!(kind, FaultKind::BarrierStuck { waiting: 2, ended: 0 }));
}

#[test]
fn hazards_of_gfx1100_are_found() {
    let zero = "v_mov_b32 v1, 0\nv_mov_b32 v2, 0\nv_mov_b32 v3, 0\nv_mov_b32 v4, 0\nv_mov_b32 v5, 0\n";
    let rule = |body: &str| match run(Gfx1100, 32, &format!("{zero}{body}")) {
        Err(FaultKind::Hazard { rule, .. }) => rule,
        other => panic!("{body}: {other:?}"),
    };
    assert_eq!(rule("v_exp_f32 v6, v1\nv_add_f32 v7, v6, v6"), "a vector instruction reads a transcendental result");
    assert!(run(Gfx1100, 32, &format!("{zero}v_exp_f32 v6, v1\ns_waitcnt_depctr 0xfff\nv_add_f32 v7, v6, v6")).is_ok());
    let six = "v_mov_b32 v8, 0\n".repeat(6);
    assert!(run(Gfx1100, 32, &format!("{zero}v_exp_f32 v6, v1\n{six}v_add_f32 v7, v6, v6")).is_ok());
    assert_eq!(rule("v_cmpx_eq_u32 v1, v2\nv_permlane16_b32 v3, v1, 0, 0"), "v_cmpx before v_permlane");
    assert_eq!(rule("v_mad_u64_u32 v[2:3], s4, v2, v1, v[4:5]"), "a wide multiply-add writes one of its sources");
}

#[test]
fn hazards_of_gfx942_are_found() {
    let zero = "v_mov_b32 v1, 0\nv_mov_b32 v2, 0\nv_mov_b32 v3, 0\nv_mov_b32 v4, 0\nv_mov_b32 v5, 0\nv_mov_b32 v6, 0\nv_mov_b32 v7, 0\ns_nop 7\n";
    let go = |body: &str| run(Gfx942, 64, &format!("{zero}{body}"));
    let rule = |body: &str| match go(body) {
        Err(FaultKind::Hazard { rule, need, have }) => (rule, need, have),
        other => panic!("{body}: {other:?}"),
    };
    let cases = [
        (
            "v_readfirstlane_b32 s4, v1\nNOPv_add_u32 v2, s4, v1",
            "a vector instruction wrote the scalar that a vector one reads",
            2,
        ),
        (
            "v_cmp_eq_u32 vcc, v1, v2\nNOPv_cndmask_b32 v2, v1, v1, vcc",
            "a vector instruction wrote the scalar that a vector one reads",
            2,
        ),
        ("v_add_u32 v3, v1, v2\nNOPv_readfirstlane_b32 s4, v3", "a vector result is read by a lane read", 1),
        (
            "v_add_u32 v3, v1, v2\nNOPv_mov_b32_dpp v4, v3 row_shl:1 row_mask:0xf bank_mask:0xf bound_ctrl:1",
            "a vector result is read through DPP",
            2,
        ),
        ("v_exp_f32 v3, v1\nNOPv_add_u32 v4, v3, v3", "a transcendental result is read", 1),
        (
            "v_add_u32 v2, v1, v1\nNOPv_mfma_f32_16x16x4_f32 v[8:11], v2, v1, 0",
            "a vector result is read by a matrix instruction",
            2,
        ),
        ("v_mfma_f32_16x16x16_f16 v[4:7], v[2:3], v[2:3], 0\nNOPv_add_u32 v1, v4, v4", "a matrix result is read", 7),
        ("v_mfma_f32_16x16x16_f16 v[4:7], v[2:3], v[2:3], 0\nNOPv_mov_b32 v4, 0", "a matrix result is overwritten", 7),
        (
            "v_mfma_f32_16x16x16_f16 v[4:7], v[2:3], v[2:3], 0\nNOPv_mfma_f32_16x16x16_f16 v[8:11], v[4:5], v[2:3], 0",
            "a matrix result is read",
            7,
        ),
        (
            "v_mfma_f32_16x16x16_f16 v[8:11], v[2:3], v[2:3], v[4:7]\nNOPv_mov_b32 v4, 0",
            "a matrix addend is overwritten",
            3,
        ),
    ];
    for (body, text, states) in cases {
        assert_eq!(rule(&body.replace("NOP", "")), (text, states, 0), "{body}");
        let nops = |n: u32| if n == 0 { String::new() } else { format!("s_nop {}\n", n - 1) };
        assert_eq!(rule(&body.replace("NOP", &nops(states - 1))), (text, states, states - 1), "{body}");
        go(&body.replace("NOP", &nops(states))).unwrap_or_else(|k| panic!("{body}: {k}"));
    }
    go("v_mfma_f32_16x16x16_f16 v[4:7], v[2:3], v[2:3], 0\nv_mfma_f32_16x16x16_f16 v[4:7], v[2:3], v[2:3], v[4:7]")
        .unwrap();
}

#[test]
fn matrix_instructions_one_behind_the_other_are_a_hazard_on_rdna() {
    let fill: String = (1..16).map(|n| format!("v_mov_b32 v{n}, 0\n")).collect();
    let pair = |between: &str| {
        format!(
            "{fill}v_mov_b32 v0, 0\nv_wmma_f32_16x16x16_f16 v[0:7], v[8:11], v[8:11], 0\n{between}\
             v_wmma_f32_16x16x16_f16 v[8:15], v[0:3], v[0:3], 0"
        )
    };
    let kind = run(Gfx1201, 32, &pair("")).unwrap_err();
    assert!(matches!(kind, FaultKind::Hazard { need: 1, have: 0, .. }), "{kind}");
    run(Gfx1201, 32, &pair("v_nop\n")).unwrap();
}

#[test]
fn reserved_bits_and_unknown_words_are_faults() {
    // s_load_b32 s4, s[0:1], 0 with bit 15 set.
    let kind = run(Gfx1100, 32, ".long 0xf4008100, 0xf8000000").unwrap_err();
    assert!(matches!(kind, FaultKind::ReservedBits { bits: 0x8000, .. }), "{kind}");
    faults(".long 0", |k| matches!(k, FaultKind::IllegalInstruction { word: 0 }));
    faults(".long 0xffffffff", |k| matches!(k, FaultKind::IllegalInstruction { word: 0xffff_ffff }));
    let kind = run(Gfx1100, 32, "s_code_end").unwrap_err();
    assert!(matches!(kind, FaultKind::IllegalInstruction { .. }));
}

#[test]
fn stray_accesses_are_memory_faults_with_their_address() {
    let base = "v_mov_b32 v1, 0\ns_mov_b32 s4, 0x1000\ns_mov_b32 s5, 0x77\n";
    faults(&format!("{base}global_load_b32 v2, v1, s[4:5]"), |k| {
        *k == FaultKind::Memory { va: 0x77_0000_1000, access: Access::Read, fault: BusFault::Unmapped }
    });
    let write = |chip: Chip| {
        if chip == Gfx942 { "global_store_dword v1, v1, s[0:1]" } else { "global_store_b32 v1, v1, s[0:1]" }
    };
    for chip in CHIPS {
        let kind = run(chip, 32, &format!("v_mov_b32 v1, 0\n{}", write(chip))).unwrap_err();
        assert!(matches!(kind, FaultKind::Memory { access: Access::Write, fault: BusFault::Permission, .. }), "{kind}");
    }
    faults("s_mov_b64 s[4:5], 0\ns_setpc_b64 s[4:5]", |k| {
        *k == FaultKind::Memory { va: 0, access: Access::Fetch, fault: BusFault::Unmapped }
    });
}

#[test]
fn scalars_that_the_vector_unit_has_read_must_settle_on_gfx1201_before_they_are_read_again() {
    let early = |body: &str| match run(Gfx1201, 32, body) {
        Err(FaultKind::Hazard { rule, .. }) => {
            assert!(rule.starts_with("a scalar register that the vector unit has read"), "{rule}");
            true
        }
        Err(kind) => panic!("{kind} in {body}"),
        Ok(_) => false,
    };
    // Written by the scalar unit, read by either; another register of the pair counts too, another pair does not.
    let seen = "s_mov_b32 s8, 1\ns_mov_b32 s9, 1\ns_mov_b32 s10, 1\nv_mov_b32 v1, s8\n";
    for (write, wait, read, is_early) in [
        ("s_mov_b32 s8, 2", "", "v_mov_b32 v2, s8", true),
        ("s_mov_b32 s8, 2", "", "s_add_co_i32 s12, s8, 1", true),
        ("s_mov_b32 s9, 2", "", "v_mov_b32 v2, s9", true),
        ("s_mov_b32 s10, 2", "", "v_mov_b32 v2, s10", false),
        ("s_mov_b32 s8, 2", "s_wait_alu 0xfffe", "v_mov_b32 v2, s8", false),
        ("s_mov_b32 s8, 2", "s_wait_alu 0xf1ff", "v_mov_b32 v2, s8", true),
        ("s_mov_b32 s8, 2", "s_load_b32 s16, s[0:1], 0", "v_mov_b32 v2, s8", false),
        ("s_mov_b32 s8, 2", "v_mov_b32 v2, s10", "v_mov_b32 v2, s9", false),
        // By the vector unit, which alone must wait.
        ("v_readfirstlane_b32 s8, v1", "", "v_mov_b32 v2, s8", true),
        ("v_readfirstlane_b32 s8, v1", "s_wait_alu 0xf1ff", "v_mov_b32 v2, s8", false),
        ("v_readfirstlane_b32 s8, v1", "s_wait_alu 0xfffe", "v_mov_b32 v2, s8", true),
        ("v_readfirstlane_b32 s8, v1", "", "s_add_co_i32 s12, s8, 1", false),
        ("v_readfirstlane_b32 s8, v1", "s_add_co_i32 s12, s8, 1", "v_mov_b32 v2, s8", false),
        ("v_cmp_eq_u32 s8, v1, v1", "", "v_cndmask_b32 v2, v1, v1, s8", true),
        // Looked at and changed in one.
        ("s_mov_b32 s8, 2", "", "s_addk_co_i32 s8, 1", true),
    ] {
        let body = format!("{seen}{write}\n{wait}\n{read}");
        assert_eq!(early(&body), is_early, "{body}");
        let other = Strict { scalar_reads: false, ..Strict::on() };
        assert!(run_with(Gfx1201, 32, other, &body).is_ok(), "{body}");
    }
    // VCC has a field of its own.
    let vcc = |wait: &str| {
        format!(
            "v_mov_b32 v1, 1\nv_cmp_eq_u32 vcc_lo, v1, v1\nv_cndmask_b32 v2, v1, v1, vcc_lo\nv_cmp_eq_u32 vcc_lo, v1, v2\n{wait}\nv_cndmask_b32 v3, v1, v1, vcc_lo"
        )
    };
    assert!(early(&vcc("")) && early(&vcc("s_wait_alu 0xf1ff")) && !early(&vcc("s_wait_alu 0xfffd")));
}

#[test]
fn traps_halts_and_endless_loops_stop_the_wave() {
    faults("s_trap 2", |k| *k == FaultKind::Trap { id: 2 });
    faults("s_sethalt 1", |k| *k == FaultKind::Halted);
    let limit = Strict { max_instructions: 1_000_000, ..Strict::on() };
    let kind = run_with(Gfx1100, 32, limit, "s_branch -1").unwrap_err();
    assert!(matches!(kind, FaultKind::Endless { .. }));
}

#[test]
fn scratch_that_was_not_allocated_and_odd_atomics_are_faults() {
    let kind = run(Gfx1100, 32, "scratch_store_b32 off, v0, off").unwrap_err();
    assert!(matches!(kind, FaultKind::ScratchOutOfRange { size_bytes: 0, .. }), "{kind}");
    let body =
        "s_load_b64 s[4:5], s[0:1], 8\nv_mov_b32 v1, 2\ns_waitcnt lgkmcnt(0)\nglobal_atomic_add_u32 v1, v0, s[4:5]";
    let kind = run(Gfx1100, 32, body).unwrap_err();
    assert_eq!(kind, FaultKind::Misaligned { va: 0x2000_0002, align: 4 });
}

#[test]
fn waves_in_random_order_give_the_same_sums() {
    let source = super::harness::folder().join("groups.c");
    let dir = scratch("seeds");
    let loaded = Loaded::new(Gfx1100, &compile(Gfx1100, &source, &["-O2"], &dir));
    std::fs::remove_dir_all(dir).unwrap();
    let input = super::harness::inputs(4096, 5);
    let sums = |seed: u64, threads: usize| {
        let strict = Strict { seed, threads, ..Strict::on() };
        let l = Launch { kernel: "lds_reduce", input: &input, out_words: 16, groups: 12, local: 128, n: 0, strict };
        launch(&loaded, &l).unwrap().0
    };
    let expected: Vec<u32> =
        (0..12).map(|g| input[g * 128..][..128].iter().fold(0, |s: u32, v| s.wrapping_add(*v))).collect();
    for seed in [0, 1, 2, 77] {
        assert_eq!(sums(seed, 1)[..12], expected, "seed {seed}");
        assert_eq!(sums(seed, 3)[..12], expected, "seed {seed} on three threads");
    }
}

#[test]
fn loads_to_lds_put_a_dword_a_lane_behind_m0() {
    // Words 16 to 31 of LDS are not there: eight lanes, whose values lie from byte 16 on.
    let body = |load: &str| {
        format!(
            "s_load_dwordx4 s[4:7], s[0:1], 0\nv_lshlrev_b32 v1, 2, v0\ns_mov_b32 m0, 16\ns_waitcnt lgkmcnt(0)\n\
             s_mov_b32 s8, s4\ns_mov_b32 s9, s5\ns_mov_b32 s10, 0x1000\ns_mov_b32 s11, 0x20000\n{load}\n\
             s_waitcnt vmcnt(0)\nds_read_b32 v2, v1 offset:16\ns_waitcnt lgkmcnt(0)\nglobal_store_dword v1, v2, s[6:7]"
        )
    };
    let words = |load: &str| run(Gfx942, 8, &body(load)).map(|words| words[..8].to_vec());
    let from = |first: u32| (first..first + 8).collect::<Vec<u32>>();
    assert_eq!(words("buffer_load_dword v1, s[8:11], 0 offen lds").unwrap(), from(0));
    assert_eq!(words("s_movk_i32 s12, 64\nbuffer_load_dword v1, s[8:11], s12 offen lds").unwrap(), from(16));
    assert_eq!(words("global_load_lds_dword v1, s[4:5]").unwrap(), from(0));
    // Byte 0 of words 0 to 7; of signed bytes at the end of the range, zeros beyond it.
    assert_eq!(words("buffer_load_ubyte v1, s[8:11], 0 offen lds").unwrap(), from(0));
    let high = "s_movk_i32 s12, 0xff0\nbuffer_load_sbyte v1, s[8:11], s12 offen lds";
    assert_eq!(words(high).unwrap(), [-4i32 as u32, -3i32 as u32, -2i32 as u32, -1i32 as u32, 0, 0, 0, 0]);
    let early = words("s_mov_b32 m0, 16\nbuffer_load_dword v1, s[8:11], 0 offen lds").unwrap_err();
    assert!(matches!(early, FaultKind::Hazard { need: 1, .. }), "{early}");
}

#[test]
fn leniently_a_wave_is_not_far_ahead_of_the_others() {
    // Each wave stores to its word again when the other has long had time to read it, as aiter's layer norms do.
    let body = format!(
        "v_lshrrev_b32 v1, 6, v0\nv_lshlrev_b32 v1, 2, v1\nv_xor_b32 v2, 4, v1\ns_mov_b64 exec, 1\nds_store_b32 v1, v0\n\
         {0}s_barrier\nds_load_b32 v3, v2\n{0}{1}v_mov_b32 v4, 9\nds_store_b32 v1, v4\nglobal_store_b32 v1, v3, s[2:3]",
        wait(Gfx942),
        "s_nop 0\n".repeat(40)
    );
    let body = with_output(Gfx942, &body);
    let kind = run(Gfx942, 128, &body).unwrap_err();
    assert!(matches!(kind, FaultKind::LdsRace { .. }), "{kind}");
    let words = run_with(Gfx942, 128, Strict { lenient: true, ..Strict::on() }, &body).unwrap();
    assert_eq!(words[..2], [64, 0]);
}
