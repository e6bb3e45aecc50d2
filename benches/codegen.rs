//! Time to compile one kernel graph to a linear program: `cargo bench --bench codegen`.

use criterion::{Criterion, criterion_group, criterion_main};
use doorbell::codegen::{self, OptChoice};
use std::hint::black_box;

/// Graphs are many small nodes made and freed, which this allocator does faster than the C library's.
#[cfg(target_arch = "x86_64")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

// The tests use the rest of these kernels.
#[path = "support/cpu_time.rs"]
mod cpu_time;
#[allow(dead_code)]
#[path = "../tests/codegen_kernels/mod.rs"]
mod kernels;

fn compile(c: &mut Criterion) {
    let cases = [
        ("add 1Mi", kernels::add(1 << 20)),
        ("row sum 1024x1024", kernels::row_sum(1024, 1024)),
        ("softmax 1024x1000", kernels::softmax(1024, 1000)),
        ("matmul 1024", kernels::matmul(1024, 1024, 1024)),
        ("conv 16x28x28", kernels::conv(16, 28, 28)),
    ];
    for (name, ast) in cases {
        let target = kernels::avx512();
        c.bench_function(&format!("compile {name}"), |b| {
            let compile = || codegen::compile(&ast, &target, &OptChoice::Heuristic, false).map(|p| p.uops.len());
            b.iter_custom(|rounds| cpu_time::of(rounds, || drop(black_box(compile()))));
        });
    }
}

criterion_group! { name = all; config = Criterion::default().sample_size(20).warm_up_time(std::time::Duration::from_millis(300)).measurement_time(std::time::Duration::from_secs(1)); targets = compile }
criterion_main!(all);
