//! Time to compile one kernel graph to a linear program: `cargo bench --bench codegen`.

use criterion::{Criterion, criterion_group, criterion_main};
use doorbell::codegen::{self, OptChoice};
use std::hint::black_box;
use std::time::Duration;

/// Graphs are many small nodes made and freed, which this allocator does faster than the C library's.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

// The tests use the rest of these kernels.
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
            b.iter_custom(|rounds| {
                let began = cpu_time();
                for _ in 0..rounds {
                    black_box(codegen::compile(&ast, &target, &OptChoice::Heuristic, false).map(|p| p.uops.len())).ok();
                }
                cpu_time() - began
            })
        });
    }
}

/// Time this thread has run: other work on the machine does not count.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0))
}

criterion_group! { name = all; config = Criterion::default().sample_size(20).warm_up_time(std::time::Duration::from_millis(300)).measurement_time(std::time::Duration::from_secs(1)); targets = compile }
criterion_main!(all);
