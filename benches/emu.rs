//! Lane operations a second of the software compute units and multiprocessors, on one thread, with strict mode on and
//! off, and translated to code of this machine. Budget: >= 50 M lane operations/s a core. Run with
//! `cargo bench --bench emu`.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use doorbell::emu::amdgpu::{Chip, Dispatch, HotCode, PlainBus, SharedBytes, Strict, run_hot};
use doorbell::emu::sass;
use doorbell::engine::software::translation;
use doorbell::isa::sass::assemble;
use std::sync::atomic::AtomicBool;

const ENTRY: u64 = 0x10_0000;

/// A thousand iterations of eight vector instructions on gfx1100.
#[rustfmt::skip]
const LOOP: [u32; 18] = [
    0xb004_03e8,                // s_movk_i32 s4, 1000
    0x7e02_02f2,                // v_mov_b32 v1, 1.0
    0x7e04_02f0,                // v_mov_b32 v2, 0.5
    0x7e06_02f4,                // v_mov_b32 v3, 2.0
    0xd613_0001, 0x0406_0702,   // v_fma_f32 v1, v2, v3, v1
    0x5602_0702,                // v_fmac_f32 v1, v2, v3
    0x100a_0501,                // v_mul_f32 v5, v1, v2
    0x060c_0305,                // v_add_f32 v6, v5, v1
    0x4a0e_0501,                // v_add_nc_u32 v7, v1, v2
    0x3a10_0307,                // v_xor_b32 v8, v7, v1
    0x3012_1083,                // v_lshlrev_b32 v9, 3, v8
    0xd60b_000a, 0x041e_1109,   // v_mad_u32_u24 v10, v9, v8, v7
    0x8104_c104,                // s_add_i32 s4, s4, -1
    0xbf07_8004,                // s_cmp_lg_u32 s4, 0
    0xbfa2_fff3,                // s_cbranch_scc1 -13
    0xbfb0_0000,                // s_endpgm
];

fn lane_operations(c: &mut Criterion) {
    let code: Vec<u8> = LOOP.iter().flat_map(|w| w.to_le_bytes()).collect();
    let mut bus = PlainBus::default();
    bus.map_code(ENTRY, SharedBytes::from_bytes(&code));
    let dispatch = Dispatch {
        chip: Chip::Gfx1100,
        entry: ENTRY,
        wave32: true,
        groups: [1, 1, 1],
        local: [128, 1, 1],
        last_partial: [0; 3],
        rsrc1: 0x60af_0001,
        rsrc2: 0,
        rsrc3: 0,
        user_data: Vec::new(),
        user_data_written: 0,
        lds_bytes: 0,
        scratch_base: 0,
        scratch_wave_bytes: 0,
        scratch_waves: 0,
    };
    let stop = AtomicBool::new(false);
    let mut group = c.benchmark_group("emu/gfx1100");
    let translated = HotCode::new(translation());
    let interpreted = HotCode::default();
    let modes = [
        ("strict", Strict::on(), &interpreted),
        ("plain", Strict::off(), &interpreted),
        ("plain, translated", Strict::off(), &translated),
    ];
    for (name, strict, hot) in modes {
        let stats = run_hot(&dispatch, &bus, &strict, &stop, hot).expect("a kernel without faults");
        group.throughput(Throughput::Elements(stats.lane_operations));
        group.bench_function(name, |b| b.iter(|| run_hot(&dispatch, &bus, &strict, &stop, hot)));
    }
    group.finish();
}

/// A thousand iterations of eight vector instructions on sm_90.
const SASS: &str = "
    [B------:R-:W-:Y:S05] MOV R0, 0x3e8 ;
    [B------:R-:W-:Y:S05] MOV R1, 0x3f800000 ;
    [B------:R-:W-:Y:S05] MOV R2, 0x3f000000 ;
    [B------:R-:W-:Y:S05] MOV R3, 0x40000000 ;
loop:
    [B------:R-:W-:Y:S05] FFMA R1, R2, R3, R1 ;
    [B------:R-:W-:Y:S05] FFMA R1, R2, R3, R1 ;
    [B------:R-:W-:Y:S05] FMUL R5, R1, R2 ;
    [B------:R-:W-:Y:S05] FADD R6, R5, R1 ;
    [B------:R-:W-:Y:S05] IADD3 R7, R1, R2, RZ ;
    [B------:R-:W-:Y:S05] LOP3.LUT R8, R7, R1, RZ, 0x3c, !PT ;
    [B------:R-:W-:Y:S05] SHF.L.U32 R9, R8, 0x3, RZ ;
    [B------:R-:W-:Y:S05] IMAD R10, R9, R8, R7 ;
    [B------:R-:W-:Y:S05] IADD3 R0, R0, -0x1, RZ ;
    [B------:R-:W-:Y:S13] ISETP.NE.AND P0, PT, R0, RZ, PT ;
    [B------:R-:W-:Y:S05] @P0 BRA .loop ;
    [B------:R-:W-:Y:S05] EXIT ;
";

fn sass_lane_operations(c: &mut Criterion) {
    let words = assemble(SASS).expect("a program without errors");
    let mut bus = sass::PlainBus::default();
    bus.map(ENTRY, &words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>(), false);
    let launch = sass::Launch {
        chip: sass::SmArch::Sm90,
        entry: ENTRY,
        grid: [1; 3],
        block: [128, 1, 1],
        cluster: [1; 3],
        registers: 16,
        barriers: 1,
        shared_bytes: 1024,
        local_bytes: 0,
        banks: [None; 8],
    };
    let stop = AtomicBool::new(false);
    let mut group = c.benchmark_group("emu/sm_90");
    for (name, options) in [("strict", sass::Options::default()), ("plain", sass::Options::fast())] {
        let stats = sass::run(&launch, &bus, &stop, &options).expect("a kernel without faults");
        group.throughput(Throughput::Elements(stats.lane_operations));
        group.bench_function(name, |b| b.iter(|| sass::run(&launch, &bus, &stop, &options)));
    }
    let decoder = sass::Decoder::translated(translation());
    for (name, options) in
        [("strict, translated", sass::Options::default()), ("plain, translated", sass::Options::fast())]
    {
        let launch = || sass::run_decoded(&launch, &bus, &stop, &options, &decoder);
        group.throughput(Throughput::Elements(launch().expect("a kernel without faults").lane_operations));
        group.bench_function(name, |b| b.iter(launch));
    }
    group.finish();
}

criterion_group!(benches, lane_operations, sass_lane_operations);
criterion_main!(benches);
