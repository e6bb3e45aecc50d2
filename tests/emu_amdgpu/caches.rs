//! The findings of the caches' shadow state, level by level: programs of several dispatches on one card, each with the
//! cache action left out that LLVM's memory models ask for, and with it.

use super::harness::{Launch, OUTPUT, Prepared, compile, prepare, scratch};
use super::harness::{Loaded, cpu};
use doorbell::emu::amdgpu::Chip::{Gfx942, Gfx1100, Gfx1201};
use doorbell::emu::amdgpu::{
    Access, Bus, BusFault, Chip, FaultKind, Flush, L2, Memory, Policy, ShadowMemory, SharedBytes, Strict, Window, run,
};
use std::sync::atomic::AtomicBool;

const CHIPS: [Chip; 3] = [Gfx1100, Gfx942, Gfx1201];
/// Blocks of arguments, a page each: which part of the program a dispatch runs.
const ARGUMENTS: u64 = 0x5000_0000;
const PARTS: u64 = 4;

/// Memory with a shadow state that outlives a dispatch.
struct Card {
    inner: doorbell::emu::amdgpu::PlainBus,
    shadow: ShadowMemory,
    policy: Policy,
    xccs: u32,
}

impl Bus for Card {
    fn translate(&self, va: u64, access: Access) -> Result<Window, BusFault> {
        self.inner.translate(va, access)
    }

    fn epoch(&self) -> u64 {
        0
    }

    fn shadow(&self) -> Option<&ShadowMemory> {
        Some(&self.shadow)
    }

    fn policy(&self, va: u64) -> Policy {
        if (OUTPUT..OUTPUT + 4096).contains(&va) { self.policy } else { Policy { l2: L2::Bypassed, host: false } }
    }

    fn xccs(&self) -> u32 {
        self.xccs
    }
}

/// The chip's words for what the programs are made of. Output in s[6:7], the workgroup's number in s5, lane 0 alone, v1
/// = 0, v3 = 7.
struct Words {
    load: &'static str,
    store: &'static str,
    atomic: &'static str,
    loaded: &'static str,
    stored: &'static str,
    barrier: &'static str,
}

fn words(chip: Chip) -> Words {
    match chip {
        Gfx1100 => Words {
            load: "global_load_b32 v2, v1, s[6:7]\n",
            store: "global_store_b32 v1, v3, s[6:7]\n",
            atomic: "global_atomic_add_u32 v4, v1, v3, s[6:7] offset:1024 glc\n",
            loaded: "s_waitcnt vmcnt(0) lgkmcnt(0)\n",
            stored: "s_waitcnt_vscnt null, 0x0\n",
            barrier: "s_barrier\n",
        },
        Gfx942 => Words {
            load: "global_load_dword v2, v1, s[6:7]\n",
            store: "global_store_dword v1, v3, s[6:7]\n",
            atomic: "global_atomic_add v4, v1, v3, s[6:7] offset:1024 sc0\n",
            loaded: "s_waitcnt vmcnt(0) lgkmcnt(0)\n",
            stored: "s_waitcnt vmcnt(0)\n",
            barrier: "s_barrier\n",
        },
        Gfx1201 => Words {
            load: "global_load_b32 v2, v1, s[6:7]\n",
            store: "global_store_b32 v1, v3, s[6:7]\n",
            atomic: "global_atomic_add_u32 v4, v1, v3, s[6:7] offset:1024 th:TH_ATOMIC_RETURN\n",
            loaded: "s_wait_loadcnt 0\ns_wait_kmcnt 0\n",
            stored: "s_wait_storecnt 0\n",
            barrier: "s_barrier_signal -1\ns_barrier_wait -1\n",
        },
    }
}

/// One kernel of some parts; the third argument picks one.
fn assemble(chip: Chip, split: bool, parts: &[&str]) -> Loaded {
    let accum = match (chip, split) {
        (Gfx942, _) => ".amdhsa_accum_offset 16",
        (_, true) => ".amdhsa_workgroup_processor_mode 1",
        (_, false) => ".amdhsa_workgroup_processor_mode 0",
    };
    let (load2, load1) = if chip == Gfx942 { ("dwordx2", "dword") } else { ("b64", "b32") };
    let group = if chip == Gfx1201 { "ttmp9" } else { "s2" };
    let exec = if chip == Gfx942 { "s_mov_b64 exec, 1" } else { "s_mov_b32 exec_lo, 1" };
    let wait = words(chip).loaded;
    let mut body = format!(
        "s_mov_b32 s5, {group}\ns_load_{load1} s4, s[0:1], 0x10\ns_load_{load2} s[6:7], s[0:1], 0x8\n{wait}\
         v_readfirstlane_b32 s8, v0\n{exec}\nv_mov_b32 v1, 0\nv_mov_b32 v3, 7\n"
    );
    if chip == Gfx1201 {
        body = body.replace(exec, &format!("s_wait_alu 0xf1ff\n{exec}"));
    }
    for n in 0..parts.len() {
        body += &format!("s_cmp_eq_u32 s4, {n}\ns_cbranch_scc1 part{n}\n");
    }
    for (n, part) in parts.iter().enumerate() {
        body += &format!("s_endpgm\npart{n}:\n{part}\n");
    }
    let source = format!(
        ".text\n.globl k\n.p2align 8\n.type k,@function\nk:\n{body}\ns_endpgm\n.fill 64, 4, 0\n.rodata\n.p2align 6\n.amdhsa_kernel k\n\
         .amdhsa_next_free_vgpr 16\n.amdhsa_next_free_sgpr 32\n.amdhsa_user_sgpr_kernarg_segment_ptr 1\n\
         .amdhsa_float_denorm_mode_32 3\n{accum}\n.end_amdhsa_kernel\n"
    );
    let dir = scratch("caches");
    let file = dir.join("k.s");
    std::fs::write(&file, source).unwrap();
    let loaded = Loaded::new(chip, &compile(chip, &file, &[], &dir));
    std::fs::remove_dir_all(dir).unwrap();
    loaded
}

/// A program on a card.
struct Rig {
    card: Card,
    prepared: doorbell::emu::amdgpu::Dispatch,
    output: std::sync::Arc<SharedBytes>,
}

impl Rig {
    fn new(chip: Chip, split: bool, policy: L2, xccs: u32, parts: &[&str]) -> Self {
        let loaded = assemble(chip, split, parts);
        let l = Launch { kernel: "k", input: &[0], out_words: 1024, groups: 1, local: 1, n: 0, strict: Strict::on() };
        let Prepared { dispatch, mut bus, output } = prepare(&loaded, &l);
        let arguments = SharedBytes::new((PARTS * 4096) as usize);
        for part in 0..PARTS {
            arguments.write(part * 4096 + 8, &OUTPUT.to_le_bytes());
            arguments.write(part * 4096 + 16, &part.to_le_bytes());
        }
        bus.map(ARGUMENTS, arguments, false);
        let policy = Policy { l2: policy, host: false };
        Self { card: Card { inner: bus, shadow: ShadowMemory::default(), policy, xccs }, prepared: dispatch, output }
    }

    /// Runs a part with so many workgroups of so many work-items.
    fn run(&self, part: u64, groups: u32, local: u32) -> Result<(), FaultKind> {
        let at = ARGUMENTS + part * 4096;
        let mut dispatch = self.prepared.clone();
        dispatch.user_data = vec![at as u32, (at >> 32) as u32];
        (dispatch.groups, dispatch.local) = ([groups, 1, 1], [local, 1, 1]);
        run(&dispatch, &self.card, &Strict::on(), &AtomicBool::new(false)).map(|_| ()).map_err(|fault| fault.kind)
    }

    fn flush(&self, flush: Flush) {
        self.card.shadow.flush(flush);
    }
}

const NONE: Flush = Flush { vector: false, array: false, scalar: false, l2: false, write_back: false };
const VECTORS: Flush = Flush { vector: true, array: true, ..NONE };

#[track_caller]
fn stale(chip: Chip, result: Result<(), FaultKind>, wanted: &str) {
    match result {
        Err(FaultKind::StaleRead { va: OUTPUT, cache }) if cache == wanted => {}
        other => panic!("{}: {other:?}, not stale in the {wanted}", cpu(chip)),
    }
}

fn near(chip: Chip) -> &'static str {
    if chip == Gfx942 { "vector L1" } else { "vector L0" }
}

#[test]
fn a_neighbours_load_brings_a_dword_into_the_cache_before_it_is_stored() {
    for chip in CHIPS {
        let w = words(chip);
        let neighbour = w.load.replace("s[6:7]", "s[6:7] offset:64") + w.loaded;
        let load = format!("{}{}", w.load, w.loaded);
        let between = |flush: Flush| {
            let rig = Rig::new(chip, false, L2::Probed, 1, &[&neighbour, w.store, &load]);
            rig.run(0, 1, 1).unwrap();
            rig.run(1, 1, 1).unwrap();
            rig.flush(flush);
            rig.run(2, 1, 1)
        };
        stale(chip, between(NONE), near(chip));
        stale(chip, between(Flush { scalar: true, l2: true, ..NONE }), near(chip));
        between(VECTORS).unwrap();
        let alone = between(Flush { vector: true, ..NONE });
        if chip == Gfx1100 { stale(chip, alone, "GL1") } else { alone.unwrap() }
    }
}

#[test]
fn a_dword_of_another_line_is_not_in_the_cache() {
    for chip in CHIPS {
        let w = words(chip);
        let other = w.load.replace("s[6:7]", "s[6:7] offset:128") + w.loaded;
        let rig = Rig::new(chip, false, L2::Probed, 1, &[&other, w.store, &format!("{}{}", w.load, w.loaded)]);
        (0..3).for_each(|part| rig.run(part, 1, 1).unwrap());
    }
}

/// Wave 0 loads a dword that wave 1 stores between two barriers, and loads it again with `before` before.
fn two_waves(chip: Chip, split: bool, before: &str) -> Result<(), FaultKind> {
    let (w, lanes) = (words(chip), if chip == Gfx942 { 64 } else { 32 });
    // s8 is the first lane's number: 0 in wave 0.
    let body = format!(
        "s_and_b32 s8, s8, 0x3ff\ns_cmp_eq_u32 s8, 0\ns_cbranch_scc0 other\n{load}{loaded}{barrier}{barrier}{before}{load}{loaded}s_endpgm\n\
         other:\n{barrier}{store}{stored}{barrier}",
        load = w.load,
        loaded = w.loaded,
        barrier = w.barrier,
        store = w.store,
        stored = w.stored
    );
    Rig::new(chip, split, L2::Probed, 1, &[&body]).run(0, 1, 2 * lanes)
}

#[test]
fn waves_on_both_units_of_a_wgp_want_l0_emptied_after_the_barrier() {
    stale(Gfx1100, two_waves(Gfx1100, true, ""), "vector L0");
    stale(Gfx1100, two_waves(Gfx1100, true, "buffer_gl1_inv\n"), "vector L0");
    two_waves(Gfx1100, true, "buffer_gl0_inv\n").unwrap();
    stale(Gfx1201, two_waves(Gfx1201, true, "global_inv scope:SCOPE_CU\n"), "vector L0");
    two_waves(Gfx1201, true, "global_inv scope:SCOPE_SE\ns_wait_loadcnt 0\n").unwrap();
    // One unit, one cache: nothing to empty.
    [Gfx1100, Gfx1201].into_iter().for_each(|chip| two_waves(chip, false, "").unwrap());
    two_waves(Gfx942, false, "").unwrap();
}

/// A dword that an earlier dispatch loaded; workgroup 0 stores it and signals by an atomic, workgroup 1 loads it with
/// `acquire` before.
fn two_groups(chip: Chip, xccs: u32, release: &str, acquire: &str) -> Result<(), FaultKind> {
    let w = words(chip);
    let body = format!(
        "s_cmp_eq_u32 s5, 0\ns_cbranch_scc0 reader\n{store}{release}{stored}{atomic}{loaded}s_endpgm\n\
         reader:\n{atomic}{loaded}{acquire}{load}{loaded}",
        store = w.store,
        stored = w.stored,
        atomic = w.atomic,
        loaded = w.loaded,
        load = w.load
    );
    let rig = Rig::new(chip, false, L2::Probed, xccs, &[&format!("{}{}", w.load, w.loaded), &body]);
    rig.run(0, 1, 1).unwrap();
    rig.run(1, 2, 1)
}

#[test]
fn a_workgroup_that_acquires_empties_every_cache_that_another_does_not_see() {
    stale(Gfx1100, two_groups(Gfx1100, 1, "", ""), "vector L0");
    stale(Gfx1100, two_groups(Gfx1100, 1, "", "buffer_gl1_inv\n"), "vector L0");
    stale(Gfx1100, two_groups(Gfx1100, 1, "", "buffer_gl0_inv\n"), "GL1");
    two_groups(Gfx1100, 1, "", "buffer_gl1_inv\nbuffer_gl0_inv\n").unwrap();
    stale(Gfx942, two_groups(Gfx942, 1, "", "buffer_inv sc0\n"), "vector L1");
    two_groups(Gfx942, 1, "", "buffer_inv sc1\n").unwrap();
    stale(Gfx1201, two_groups(Gfx1201, 1, "", ""), "vector L0");
    two_groups(Gfx1201, 1, "", "global_inv scope:SCOPE_DEV\ns_wait_loadcnt 0\n").unwrap();
}

#[test]
fn a_store_reaches_workgroups_of_other_xccs_when_their_l2_is_written_back() {
    let acquire = "buffer_inv sc1\n";
    let missing = |result| matches!(result, Err(FaultKind::NotWrittenBack { va: OUTPUT, group: 0, xcc: 0 }));
    assert!(missing(two_groups(Gfx942, 8, "", acquire)));
    assert!(missing(two_groups(Gfx942, 8, "buffer_wbl2 sc0\n", acquire)));
    two_groups(Gfx942, 8, "buffer_wbl2 sc1\n", acquire).unwrap();
    two_groups(Gfx942, 1, "", acquire).unwrap();
}

#[test]
fn a_store_of_agent_scope_does_not_stay_in_the_l2_of_its_xcc() {
    let w = words(Gfx942);
    let through = w.store.replace("s[6:7]", "s[6:7] sc1");
    let load = format!("{}{}", w.load, w.loaded);
    let between = |store: &str, flush: Flush| {
        let rig = Rig::new(Gfx942, false, L2::Probed, 8, &[store, &load]);
        rig.run(0, 1, 1).unwrap();
        rig.flush(flush);
        rig.run(1, 1, 1)
    };
    assert!(matches!(between(w.store, VECTORS), Err(FaultKind::NotWrittenBack { .. })));
    between(&through, VECTORS).unwrap();
    between(w.store, Flush { write_back: true, ..VECTORS }).unwrap();
}

#[test]
fn the_scalar_cache_does_not_see_a_store_of_its_own_wave() {
    for chip in CHIPS {
        let w = words(chip);
        let scalar = if chip == Gfx942 { "s_load_dword s9, s[6:7], 0x0\n" } else { "s_load_b32 s9, s[6:7], 0x0\n" };
        let with = |between: &str| {
            let body = format!("{scalar}{}{}{}{between}{scalar}{}", w.loaded, w.store, w.stored, w.loaded);
            Rig::new(chip, false, L2::Probed, 1, &[&body]).run(0, 1, 1)
        };
        stale(chip, with(""), "scalar cache");
        with("s_dcache_inv\n").unwrap();
    }
}

#[test]
fn memory_that_changes_behind_l2_wants_its_lines_dropped() {
    for chip in CHIPS {
        let w = words(chip);
        let load = format!("{}{}", w.load, w.loaded);
        let between = |policy: L2, flush: Flush| {
            let rig = Rig::new(chip, false, policy, 1, &[&load]);
            rig.run(0, 1, 1).unwrap();
            rig.output.write(0, &77_u32.to_le_bytes());
            rig.flush(flush);
            rig.run(0, 1, 1)
        };
        let nearer = Flush { scalar: true, write_back: true, ..VECTORS };
        stale(chip, between(L2::Cached, nearer), "L2");
        between(L2::Cached, Flush::ALL).unwrap();
        between(L2::Probed, nearer).unwrap();
        between(L2::Bypassed, nearer).unwrap();
    }
}

#[test]
fn a_store_through_l2_is_seen_by_a_later_load_through_it() {
    for chip in CHIPS {
        let w = words(chip);
        let rig = Rig::new(chip, false, L2::Cached, 1, &[&format!("{}{}", w.load, w.loaded), w.store]);
        rig.run(0, 1, 1).unwrap();
        rig.run(1, 1, 1).unwrap();
        rig.flush(VECTORS);
        rig.run(0, 1, 1).unwrap();
    }
}

#[test]
fn a_load_of_system_scope_passes_by_l2_and_one_of_agent_scope_does_not() {
    for (chip, agent, system) in [(Gfx942, "sc1", "sc0 sc1"), (Gfx1201, "scope:SCOPE_DEV", "scope:SCOPE_SYS")] {
        let w = words(chip);
        let second = |scope: &str| {
            let again = w.load.replace("s[6:7]", &format!("s[6:7] {scope}")) + w.loaded;
            let rig = Rig::new(chip, false, L2::Cached, 1, &[&format!("{}{}", w.load, w.loaded), &again]);
            rig.run(0, 1, 1).unwrap();
            rig.output.write(0, &77_u32.to_le_bytes());
            rig.run(1, 1, 1)
        };
        stale(chip, second(agent), "L2");
        second(system).unwrap();
    }
}
