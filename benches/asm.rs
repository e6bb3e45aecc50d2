//! Speed of the AMDGPU assembler and decoders in this process, in instructions a second: `cargo bench --bench asm`.
//! The instructions are random ones of every row of a chip's table, as in `tests/amdgpu`; one iteration is all of them.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use doorbell::emu::amdgpu as emu;
use doorbell::isa::amdgpu;
use doorbell::isa::amdgpu::format::Format;
use doorbell::isa::amdgpu::{Chip, Inst, Target, all_rows, assemble, decode, encode, print};
use std::hint::black_box;
use std::time::Duration;

// The tests use the rest of it.
#[allow(dead_code)]
#[path = "../tests/amdgpu/random.rs"]
mod random;

/// Instructions of each row.
const PER_ROW: usize = 8;

fn instructions(target: Target) -> Vec<Inst> {
    let mut rng = random::Rng(1);
    let rows = all_rows(target.chip).filter(|r| !matches!(r.format, Format::VopdX | Format::VopdY));
    rows.flat_map(|row| (0..PER_ROW).filter_map(|_| random::instruction(&mut rng, target, row)).collect::<Vec<_>>())
        .collect()
}

fn chips(c: &mut Criterion) {
    let all =
        [(Chip::Gfx1100, emu::Chip::Gfx1100), (Chip::Gfx942, emu::Chip::Gfx942), (Chip::Gfx1201, emu::Chip::Gfx1201)];
    for (chip, emulated) in all {
        let target = Target::of(chip);
        let insts = instructions(target);
        let lines: Vec<String> = insts.iter().filter_map(|i| print(target, i).ok()).collect();
        let source = lines.join("\n");
        let code: Vec<Vec<u32>> = insts.iter().filter_map(|i| Some(encode(target, i).ok()?.to_vec())).collect();
        assert!(lines.len() == insts.len() && code.len() == insts.len(), "every instruction has text and code");
        let mut g = c.benchmark_group(chip.name());
        g.throughput(Throughput::Elements(insts.len() as u64));
        g.bench_function("assemble source text", |b| b.iter(|| black_box(assemble(target, &source)).is_ok()));
        g.bench_function("encode", |b| {
            b.iter(|| insts.iter().filter(|i| black_box(encode(target, i)).is_ok()).count());
        });
        g.bench_function("decode", |b| {
            b.iter(|| code.iter().filter(|words| black_box(decode(target, words)).is_ok()).count());
        });
        g.bench_function("print", |b| b.iter(|| insts.iter().filter(|i| black_box(print(target, i)).is_ok()).count()));
        g.bench_function("decode and print in the emulator", |b| {
            let wave32 = !chip.is_gfx9();
            let padded: Vec<[u32; 4]> =
                code.iter().map(|words| std::array::from_fn(|n| words.get(n).copied().unwrap_or(0))).collect();
            b.iter(|| {
                padded.iter().filter(|words| black_box(emu::disassemble(emulated, wave32, **words)).is_ok()).count()
            });
        });
        g.finish();
    }
}

criterion_group! {
    name = asm;
    config = Criterion::default().measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(500)).sample_size(20);
    targets = chips
}
criterion_main!(asm);
