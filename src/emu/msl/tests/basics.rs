//! The forms that a code generator prints.

use crate::{Binding, Buffer, Launch, Library, Options};

#[test]
fn a_strided_kernel_with_vector_casts_adds_two_buffers() {
    let source = "#include <metal_stdlib>
using namespace metal;
kernel void add(device float* data0, const device float* data1, const device float* data2,
                uint3 gid [[threadgroup_position_in_grid]], uint3 lid [[thread_position_in_threadgroup]]) {
  int gidx0 = gid.x; /* 4 */
  int lidx0 = lid.x; /* 8 */
  int alu0 = ((gidx0<<5)+(lidx0<<2));
  float4 val0 = (*((device float4*)((data1+alu0))));
  float4 val1 = (*((device float4*)((data2+alu0))));
  *((device float4*)((data0+alu0))) = float4((val0.x+val1.x),(val0.y+val1.y),(val0.z+val1.z),(val0.w+val1.w));
}";
    let library = Library::compile(source, &Options::default()).unwrap();
    let a: Vec<f32> = (0..128).map(|n| n as f32).collect();
    let b: Vec<f32> = (0..128).map(|n| 0.5 * n as f32).collect();
    let (out, a, b) = (Buffer::zeroed(512), Buffer::of_f32(&a), Buffer::of_f32(&b));
    let buffers = [&out, &a, &b].map(|m| Some(Binding::buffer(m)));
    library.kernel("add").unwrap().run(&Launch::new([4, 1, 1], [8, 1, 1], &buffers)).unwrap();
    let expected: Vec<f32> = (0..128).map(|n| 1.5 * n as f32).collect();
    assert_eq!(out.to_f32(), expected);
}

#[test]
fn votes_pragmas_and_flags_are_read() {
    let source = "kernel void k(device uint* a, uint i [[thread_position_in_grid]]) {
  uint votes = (uint)(simd_vote::vote_t)simd_ballot(i % 2 == 0);
  uint sum = 0;
  _Pragma(\"clang loop unroll(full)\")
  for (uint k = 0; k < 4; k++) sum += k;
  threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
  a[i] = votes + sum;
}";
    let library = Library::compile(&super::corpus::with_header(source), &Options::default()).unwrap();
    let memory = Buffer::zeroed(128);
    let buffers = [Some(Binding::buffer(&memory))];
    library.kernel("k").unwrap().run(&Launch::new([1, 1, 1], [32, 1, 1], &buffers)).unwrap();
    assert_eq!(memory.to_u32(), [0x5555_5555 + 6; 32]);
}

#[test]
fn a_matrix_unit_behind_a_function_of_vectors_multiplies() {
    let source = "static inline float2 wmma_8_8_8(half2 a, half2 b, float2 c) {
  simdgroup_half8x8 mat_a, mat_b; simdgroup_float8x8 mat_c;
  mat_a.thread_elements()[0] = a[0]; mat_b.thread_elements()[0] = b[0]; mat_c.thread_elements()[0] = c[0];
  mat_a.thread_elements()[1] = a[1]; mat_b.thread_elements()[1] = b[1]; mat_c.thread_elements()[1] = c[1];
  simdgroup_multiply_accumulate(mat_c, mat_a, mat_b, mat_c);
  return float2(mat_c.thread_elements()[0], mat_c.thread_elements()[1]);
}
kernel void k(device float* data0_64, device half* data1_64, device half* data2_64, uint3 gid [[threadgroup_position_in_grid]], uint3 lid [[thread_position_in_threadgroup]]) {
  threadgroup __attribute__((aligned(16))) float temp0[64];
  int row = (lid.x / 2) % 4 + 4 * (lid.x / 16), column = 2 * (lid.x % 2) + 4 * ((lid.x / 8) % 2);
  int at = row * 8 + column;
  float2 acc0 = float2(0.0f, (float)(0));
  acc0 = wmma_8_8_8(*((device half2*)(data1_64+at)), half2((*(data2_64+at)), (*(data2_64+(at+1)))), acc0);
  *(temp0+at) = acc0.x;
  *(temp0+(at+1)) = acc0.y;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int ridx0 = 0; ridx0 < 2; ridx0++) {
    float val0 = (*(temp0+(lid.x*2+ridx0)));
    *(data0_64+(lid.x*2+ridx0)) = ((val0<0.0f)?0.0f:val0);
  }
}";
    let library = Library::compile(&super::corpus::with_header(source), &Options::default()).unwrap();
    let values: Vec<f32> = (0..64).map(|n| (n % 7) as f32 - 3.0).collect();
    let halves = super::corpus::f16s(&values);
    let (out, a, b) = (Buffer::zeroed(256), Buffer::new(&halves), Buffer::new(&halves));
    let buffers = [&out, &a, &b].map(|m| Some(Binding::buffer(m)));
    library.kernel("k").unwrap().run(&Launch::new([1, 1, 1], [32, 1, 1], &buffers)).unwrap();
    let product = |n: usize| (0..8).map(|k| values[n / 8 * 8 + k] * values[k * 8 + n % 8]).sum::<f32>().max(0.0);
    assert_eq!(out.to_f32(), (0..64).map(product).collect::<Vec<f32>>());
}
