//! Faults while a kernel runs: each names kernel, line, thread and memory.

use crate::{Argument, ArgumentKind, Binding, Buffer, FaultKind, Launch, Library, Options, Pos, Space};
use std::sync::atomic::AtomicBool;

fn library(source: &str) -> Library {
    let source = super::corpus::with_header(source);
    match Library::compile(&source, &Options::default()) {
        Ok(library) => library,
        Err(error) => panic!("{error}"),
    }
}

/// Runs a kernel `k` with 64 threads in two groups and buffers of 64 words of zeros.
fn fault(source: &str) -> crate::Fault {
    let memory: Vec<Buffer> = (0..4).map(|_| Buffer::zeroed(256)).collect();
    let buffers: Vec<Option<Binding<'_>>> = memory.iter().map(|m| Some(Binding::buffer(m))).collect();
    let launch = Launch { threadgroup: &[64], max_steps: 1 << 20, ..Launch::new([2, 1, 1], [32, 1, 1], &buffers) };
    library(source).kernel("k").unwrap().run(&launch).expect_err(source)
}

#[test]
fn an_access_out_of_bounds_names_kernel_line_thread_and_buffer() {
    let found = fault(
        "kernel void k(device float* a [[buffer(2)]], uint i [[thread_position_in_grid]]) {\n  float y = 1.0f;\n  a[i + 20] = y;\n}",
    );
    let kind = FaultKind::OutOfBounds { memory: "buffer 2 'a'".into(), offset: 256, bytes: 4, len: 256, write: true };
    assert_eq!((&*found.kernel, &found.kind), ("k", &kind));
    assert_eq!((found.thread, found.group), (Some([44, 0, 0]), Some([1, 0, 0])));
    assert_eq!(found.at, Some(Pos { line: 5, column: 4 }));
    assert_eq!(
        found.to_string(),
        "kernel 'k' program_source:5:4 thread (44, 0, 0) of threadgroup (1, 0, 0): store of 4 bytes at offset 256 of buffer 2 'a', which has 256 bytes\n  a[i + 20] = y;"
    );
}

#[test]
fn a_load_below_the_start_is_found() {
    let found = fault("kernel void k(device float4* a, uint i [[thread_position_in_grid]]) { a[0] = *(a - 1 + i); }");
    let FaultKind::OutOfBounds { offset: -16, bytes: 16, write: false, .. } = found.kind else { panic!("{found}") };
}

#[test]
fn other_faults_of_memory_are_found() {
    let cases: &[(&str, &str)] = &[
        ("threadgroup float t[4]; t[0] = 1; a[0] = t[i + 5];", "of threadgroup memory"),
        ("threadgroup float t[64]; a[i] = t[i];", "read of threadgroup memory at offset 0, which has no value yet"),
        ("o[20] = 1;", "of threadgroup argument 0 'o', which has 64 bytes"),
        ("float v[4]; v[i % 4] = 1; a[i] = v[0];", "which has no value yet"),
        ("float v[4] = {1}; a[i] = v[i + 4];", "of the thread's own memory"),
        ("float y; if (i > 5) y = 1; a[i] = y;", "variable 'y', which has no value yet"),
        ("float4 y; y.x = 1; a[i] = y.y;", "variable 'y', which has no value yet"),
        ("*(device float4*)(a + 1) = float4(0);", "not aligned to 16 bytes"),
        ("device float* p = nullptr; p[0] = 1;", "null or invalid pointer"),
        ("device float* p; p[0] = 1;", "variable 'p'"),
        ("simdgroup_float8x8 m(1.0f); if (i % 32 < 9) simdgroup_store(m, a);", "not all 32 lanes"),
        ("simdgroup_float8x8 m(1.0f); if (i > 3) simdgroup_multiply(m, m, m);", "not all 32 lanes"),
        ("while (true) {}", "more steps"),
        ("if (i % 32 < 7) threadgroup_barrier(mem_flags::mem_threadgroup);", "not all threads"),
        ("if (i % 32 == 3) return; threadgroup_barrier(mem_flags::mem_threadgroup);", "not all threads"),
    ];
    for (body, expected) in cases {
        let source = format!(
            "kernel void k(device float* a, threadgroup float* o, uint i [[thread_position_in_grid]]) {{ {body} }}"
        );
        let found = fault(&source);
        assert!(found.to_string().contains(expected), "{body}\n  wanted: {expected}\n  got: {found}");
        assert!(found.at.is_some() && found.thread.is_some(), "{found:?}");
    }
}

/// A kernel with two simdgroups and an `int` a thread.
fn two_simdgroups(body: &str) -> Result<(), crate::Fault> {
    let source = format!(
        "kernel void k(device int* a, uint i [[thread_index_in_threadgroup]], uint s [[simdgroup_index_in_threadgroup]]) {{ threadgroup int t[64]; threadgroup atomic_int n; {body} }}"
    );
    let memory = Buffer::zeroed(256);
    let buffers = [Some(Binding::buffer(&memory))];
    library(&source).kernel("k").unwrap().run(&Launch::new([1, 1, 1], [64, 1, 1], &buffers))
}

#[test]
fn a_race_between_simdgroups_is_found() {
    let barrier = "threadgroup_barrier(mem_flags::mem_threadgroup);";
    let bad = [
        format!("t[i] = i; {barrier} t[i ^ 32] = 2; a[i] = t[i];"),
        format!("t[i] = i; {barrier} a[i] = t[63 - i]; t[i] = 7;"),
        "t[i] = i; threadgroup_barrier(mem_flags::mem_device); a[i] = t[i ^ 32];".to_string(),
        format!("t[0] = s; {barrier} a[i] = t[0];"),
    ];
    for body in bad {
        let found = two_simdgroups(&body).expect_err(&body);
        assert!(matches!(found.kind, FaultKind::Race { .. }), "{body}: {found}");
    }
    let good = [
        format!("t[i] = i; {barrier} a[i] = t[63 - i]; {barrier} t[i ^ 32] = 7; {barrier} a[i] += t[i];"),
        "t[i] = i; threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup); a[i] = t[i ^ 32];"
            .to_string(),
        "t[i] = i; simdgroup_barrier(mem_flags::mem_threadgroup); a[i] = t[i ^ 1];".to_string(),
        format!("t[0] = 5; {barrier} a[i] = t[0];"),
        format!(
            "if (i == 0) atomic_store_explicit(&n, 0, memory_order_relaxed); {barrier} atomic_fetch_add_explicit(&n, 1, memory_order_relaxed);"
        ),
    ];
    for body in good {
        if let Err(fault) = two_simdgroups(&body) {
            panic!("{body}: {fault}");
        }
    }
}

#[test]
fn simdgroups_at_different_barriers_are_found() {
    let source = "kernel void k(device float* a, uint s [[simdgroup_index_in_threadgroup]]) {
  if (s == 0) threadgroup_barrier(mem_flags::mem_none);
  else threadgroup_barrier(mem_flags::mem_device);
}";
    let memory = Buffer::zeroed(4);
    let buffers = [Some(Binding::buffer(&memory))];
    let library = library(source);
    let kernel = library.kernel("k").unwrap();
    let found = kernel.run(&Launch::new([1, 1, 1], [64, 1, 1], &buffers)).unwrap_err();
    assert_eq!(found.kind, FaultKind::DivergentBarrier);
    assert!(kernel.run(&Launch::new([1, 1, 1], [32, 1, 1], &buffers)).is_ok());
}

#[test]
fn a_launch_that_does_not_fit_is_refused() {
    let library = library(
        "struct P { int n; float4 v; };
[[max_total_threads_per_threadgroup(64)]] kernel void k(device float* a, constant P& p, threadgroup float* t) { t[0] = 0; a[0] = p.n; }",
    );
    let kernel = library.kernel("k").unwrap();
    let memory = Buffer::zeroed(64);
    let (small, good) = (Binding::Bytes(&[0; 8]), Binding::Bytes(&[0; 32]));
    let all = |p| [Some(Binding::buffer(&memory)), Some(p)];
    let run = |groups: [u32; 3], threads: [u32; 3], buffers: &[Option<Binding<'_>>], lengths: &[u64]| {
        let launch = Launch { threadgroup: lengths, ..Launch::new(groups, threads, buffers) };
        kernel.run(&launch).map_err(|f| f.kind.to_string())
    };
    assert_eq!(run([1, 1, 1], [64, 1, 1], &all(good), &[16]), Ok(()));
    let refused =
        |made: Result<(), String>, text: &str| assert!(made.as_ref().is_err_and(|e| e.contains(text)), "{made:?}");
    refused(run([1, 1, 1], [65, 1, 1], &all(good), &[16]), "65 threads of a threadgroup, at most 64");
    refused(run([1, 1, 1], [0, 1, 1], &all(good), &[16]), "0 threads");
    refused(run([1, 1, 1], [1, 1, 1], &all(small), &[16]), "has 8 bytes, 'P' needs 32");
    refused(run([1, 1, 1], [1, 1, 1], &all(good)[..1], &[16]), "buffer 1 'p' is not bound");
    refused(run([1, 1, 1], [1, 1, 1], &all(good), &[]), "threadgroup slot 0 't' has no length");
    refused(run([1, 1, 1], [1, 1, 1], &all(good), &[8]), "not a multiple of 16");
    refused(run([1, 1, 1], [1, 1, 1], &all(good), &[1 << 16]), "at most 32768");
}

#[test]
fn a_store_to_bytes_is_refused_and_a_binding_starts_at_its_offset() {
    let library = library("kernel void k(device int* a) { a[0] += 1; }");
    let kernel = library.kernel("k").unwrap();
    let found = kernel.run(&Launch::new([1, 1, 1], [1, 1, 1], &[Some(Binding::Bytes(&[0; 4]))])).unwrap_err();
    assert_eq!(found.kind, FaultKind::ReadOnly { memory: "buffer 0 'a'".into() });
    let memory = Buffer::of_u32(&[1, 2, 3, 4]);
    let at = |offset| [Some(Binding::Buffer { memory: &memory, offset })];
    kernel.run(&Launch::new([1, 1, 1], [1, 1, 1], &at(8))).unwrap();
    assert_eq!(memory.to_u32(), [1, 2, 4, 4]);
    assert!(kernel.run(&Launch::new([1, 1, 1], [1, 1, 1], &at(16))).is_err());
}

#[test]
fn a_flag_stops_an_endless_kernel() {
    let library = library("kernel void k(device volatile int* a) { while (a[0] == 0) {} }");
    let (memory, stop) = (Buffer::zeroed(4), AtomicBool::new(false));
    let buffers = [Some(Binding::buffer(&memory))];
    let launch = Launch { stop: Some(&stop), ..Launch::new([4, 1, 1], [32, 1, 1], &buffers) };
    let found = std::thread::scope(|scope| {
        let run = scope.spawn(|| library.kernel("k").unwrap().run(&launch));
        std::thread::sleep(std::time::Duration::from_millis(20));
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        run.join().unwrap()
    });
    assert_eq!(found.unwrap_err().kind, FaultKind::Stopped);
}

#[test]
fn a_grid_of_threads_has_smaller_groups_at_its_end() {
    let library = library(
        "kernel void k(device uint* a, uint2 p [[thread_position_in_grid]], uint2 n [[threads_per_threadgroup]], uint2 all [[threads_per_grid]]) {
  a[p.y * all.x + p.x] = n.x * 100 + n.y;
}",
    );
    let memory = Buffer::zeroed(4 * 7 * 3);
    let buffers = [Some(Binding::buffer(&memory))];
    library.kernel("k").unwrap().run(&Launch::grid([7, 3, 1], [4, 2, 1], &buffers)).unwrap();
    let expected: Vec<u32> =
        (0..21).map(|n| if n % 7 < 4 { 400 } else { 300 } + if n / 7 < 2 { 2 } else { 1 }).collect();
    assert_eq!(memory.to_u32(), expected);
}

#[test]
fn arguments_say_what_a_host_has_to_bind() {
    let library = library(
        "struct P { int n; }; kernel void k(const device half4* a, constant P& p [[buffer(7)]], threadgroup uint* t, device atomic_int* c) { t[0] = a[0].x; }",
    );
    let argument = |name: &str, kind, slot, space, writable, type_bytes, type_name: &str, reference| Argument {
        name: name.into(),
        kind,
        slot,
        space,
        writable,
        type_bytes,
        type_name: type_name.into(),
        reference,
    };
    let expected = [
        argument("a", ArgumentKind::Buffer, 0, Space::Device, false, 8, "half4", false),
        argument("p", ArgumentKind::Buffer, 7, Space::Constant, false, 4, "P", true),
        argument("t", ArgumentKind::Threadgroup, 0, Space::Threadgroup, true, 4, "uint", false),
        argument("c", ArgumentKind::Buffer, 1, Space::Device, true, 4, "atomic_int", false),
    ];
    assert_eq!(library.kernel("k").unwrap().arguments(), expected);
}
