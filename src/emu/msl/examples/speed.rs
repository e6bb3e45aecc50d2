//! How fast kernels run: millions of lane-instructions a second.
//! `cargo run --profile bench --example speed [HOST_THREADS]`

use doorbell_emu_msl::{Binding, Buffer, Launch, Library, Options};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const SOURCE: &str = "#include <metal_stdlib>
using namespace metal;
kernel void matmul(device float* c, device const float* a, device const float* b, uint3 gid [[threadgroup_position_in_grid]],
    uint3 lid [[thread_position_in_threadgroup]]) {
  int row = gid.y * 8 + lid.y, column = gid.x * 32 + lid.x;
  float sum = 0.0f;
  for (int k = 0; k < 256; k++) sum = sum + a[row * 256 + k] * b[k * 256 + column];
  c[row * 256 + column] = sum;
}
kernel void matmul4(device float* c, device const float* a, device const float* b, uint3 gid [[threadgroup_position_in_grid]],
    uint3 lid [[thread_position_in_threadgroup]]) {
  int row = gid.y * 4 + lid.y, column = (gid.x * 8 + lid.x) * 4;
  float4 sum = float4(0.0f);
  for (int k = 0; k < 256; k++) sum = sum + a[row * 256 + k] * *((device const float4*)(b + k * 256 + column));
  *((device float4*)(c + row * 256 + column)) = sum;
}
kernel void arithmetic(device uint* c, uint i [[thread_position_in_grid]]) {
  uint x = i;
  float y = i;
  for (int k = 0; k < 4096; k++) { x = x * 1664525u + 1013904223u; x ^= x >> 7; y = y * 0.5f + 1.0f; }
  c[i] = x + (uint)y;
}
kernel void reduce(device float* c, device const float* a, uint t [[thread_index_in_threadgroup]], uint i [[thread_position_in_grid]],
    uint g [[threadgroup_position_in_grid]]) {
  threadgroup float part[256];
  part[t] = a[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint s = 128; s > 0; s >>= 1) {
    if (t < s) part[t] += part[t + s];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (t == 0) c[g] = part[0];
}
kernel void half_gelu(device half* c, device const half* a, uint i [[thread_position_in_grid]]) {
  half x = a[i];
  c[i] = half(0.5f) * x * (half(1.0f) + (half)tanh(0.79788456f * ((float)x + 0.044715f * (float)(x * x * x))));
}
kernel void gemm8(device float* c, device const float* a, device const float* b, uint3 gid [[threadgroup_position_in_grid]]) {
  simdgroup_float8x8 sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f), x, y;
  for (int k = 0; k < 256; k += 8) {
    simdgroup_load(x, a + gid.y * 8 * 256 + k, 256);
    simdgroup_load(y, b + k * 256 + gid.x * 8, 256);
    simdgroup_multiply_accumulate(sum, x, y, sum);
  }
  simdgroup_store(sum, c + gid.y * 8 * 256 + gid.x * 8, 256);
}";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let host_threads = std::env::args().nth(1).map_or(Ok(1), |n| n.parse())?;
    let start = Instant::now();
    let library = Library::compile(SOURCE, &Options::default())?;
    println!("compiled in {:?}", start.elapsed());
    let memory: Vec<Buffer> = (0..3).map(|_| Buffer::of_f32(&[0.5; 65536])).collect();
    let bound: Vec<Option<Binding<'_>>> = memory.iter().map(|m| Some(Binding::buffer(m))).collect();
    let shapes = [
        ("matmul", [8, 32, 1], [32, 8, 1]),
        ("matmul4", [8, 64, 1], [8, 4, 1]),
        ("arithmetic", [64, 1, 1], [256, 1, 1]),
        ("reduce", [256, 1, 1], [256, 1, 1]),
        ("half_gelu", [256, 1, 1], [256, 1, 1]),
        ("gemm8", [32, 32, 1], [32, 1, 1]),
    ];
    for (name, groups, threads) in shapes {
        let kernel = library.kernel(name).ok_or("no such kernel")?;
        let executed = AtomicU64::new(0);
        let launch = Launch { host_threads, executed: Some(&executed), ..Launch::new(groups, threads, &bound) };
        let start = Instant::now();
        kernel.run(&launch)?;
        let seconds = start.elapsed().as_secs_f64();
        let lanes = 32.0 * executed.load(Ordering::Relaxed) as f64;
        println!("{name:10} {:8.2} ms {:8.0} M lane-instructions/s", seconds * 1e3, lanes / seconds / 1e6);
    }
    Ok(())
}
