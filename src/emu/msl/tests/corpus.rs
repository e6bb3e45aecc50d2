//! Kernels of the ordinary kind, each with a scalar reference in Rust; and the same through clang.

use super::clang::{Entry, Program, present};
use crate::{Binding, Buffer, Launch, Library, Options};

/// What a buffer holds afterwards.
pub(crate) enum Expect {
    Bytes(Vec<u8>),
    /// Within a part of the larger of 1 and the value.
    Floats(Vec<f32>, f32),
    Halves(Vec<f32>, f32),
}

pub(crate) struct Case {
    pub name: &'static str,
    pub source: &'static str,
    /// The kernel's name for the host, in the source, and in C++.
    pub kernel: [&'static str; 3],
    pub groups: [u32; 3],
    pub threads: [u32; 3],
    pub buffers: Vec<Vec<u8>>,
    pub threadgroup: Vec<u64>,
    pub expect: Vec<(usize, Expect)>,
}

impl Case {
    pub(crate) fn new(name: &'static str, source: &'static str, groups: u32, threads: u32) -> Self {
        Self {
            name,
            source,
            kernel: [name; 3],
            groups: [groups, 1, 1],
            threads: [threads, 1, 1],
            buffers: Vec::new(),
            threadgroup: Vec::new(),
            expect: Vec::new(),
        }
    }

    pub(crate) fn buffer(mut self, bytes: Vec<u8>) -> Self {
        self.buffers.push(bytes);
        self
    }

    pub(crate) fn shape(mut self, groups: [u32; 3], threads: [u32; 3]) -> Self {
        (self.groups, self.threads) = (groups, threads);
        self
    }

    pub(crate) fn expect(mut self, buffer: usize, what: Expect) -> Self {
        self.expect.push((buffer, what));
        self
    }

    /// Runs it in this crate; the buffers afterwards.
    pub(crate) fn run(&self, host_threads: usize) -> Vec<Vec<u8>> {
        let library = match Library::compile(&with_header(self.source), &Options::default()) {
            Ok(library) => library,
            Err(error) => panic!("{}: {error}", self.name),
        };
        let memory: Vec<Buffer> = self.buffers.iter().map(|b| Buffer::new(b)).collect();
        let bound: Vec<Option<Binding<'_>>> = memory.iter().map(|m| Some(Binding::buffer(m))).collect();
        let launch =
            Launch { threadgroup: &self.threadgroup, host_threads, ..Launch::new(self.groups, self.threads, &bound) };
        let kernel = library.kernel(self.kernel[0]).unwrap_or_else(|| panic!("{}: no such kernel", self.name));
        if let Err(fault) = kernel.run(&launch) {
            panic!("{}: {fault}", self.name);
        }
        memory.iter().map(Buffer::to_bytes).collect()
    }

    fn check(&self, made: &[Vec<u8>], who: &str) {
        for (buffer, expect) in &self.expect {
            let made = &made[*buffer];
            match expect {
                Expect::Bytes(bytes) => {
                    let first = made.iter().zip(bytes).position(|(a, b)| a != b);
                    assert!(
                        made.len() == bytes.len() && first.is_none(),
                        "{} {who}: buffer {buffer} byte {first:?}",
                        self.name
                    );
                }
                Expect::Floats(values, bound) => self.close(&floats(made), values, *bound, who),
                Expect::Halves(values, bound) => self.close(&halves(made), values, *bound, who),
            }
        }
    }

    fn close(&self, made: &[f32], values: &[f32], bound: f32, who: &str) {
        assert_eq!(made.len(), values.len(), "{}", self.name);
        for (n, (a, b)) in made.iter().zip(values).enumerate() {
            let near = (a - b).abs() <= bound * b.abs().max(1.0) || a.to_bits() == b.to_bits();
            assert!(near, "{} {who}: element {n} is {a}, not {b}", self.name);
        }
    }
}

pub(crate) fn bytes_of<T: Copy>(values: &[T], to: impl Fn(T) -> Vec<u8>) -> Vec<u8> {
    values.iter().flat_map(|v| to(*v)).collect()
}

pub(crate) fn f32s(values: &[f32]) -> Vec<u8> {
    bytes_of(values, |v| v.to_le_bytes().to_vec())
}

pub(crate) fn u32s(values: &[u32]) -> Vec<u8> {
    bytes_of(values, |v| v.to_le_bytes().to_vec())
}

pub(crate) fn i32s(values: &[i32]) -> Vec<u8> {
    bytes_of(values, |v| v.to_le_bytes().to_vec())
}

pub(crate) fn u64s(values: &[u64]) -> Vec<u8> {
    bytes_of(values, |v| v.to_le_bytes().to_vec())
}

pub(crate) fn f16s(values: &[f32]) -> Vec<u8> {
    bytes_of(values, |v| crate::exec::half::half_bits(v.to_bits()).to_le_bytes().to_vec())
}

pub(crate) fn zeros(n: usize) -> Vec<u8> {
    vec![0; n]
}

pub(crate) fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect()
}

pub(crate) fn halves(bytes: &[u8]) -> Vec<f32> {
    let half = |c: &[u8]| crate::exec::half::half_from_bits(u16::from_le_bytes(c.try_into().unwrap()).into());
    bytes.chunks(2).map(|c| f32::from_bits(half(c))).collect()
}

/// Numbers that look random, the same each time.
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) ^ (self.0 >> 15)) as u32
    }

    pub(crate) fn below(&mut self, n: u32) -> u32 {
        self.next() % n
    }

    /// Between -1 and 1.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.next() >> 8) as f32 / 8_388_608.0 - 1.0
    }

    pub(crate) fn units(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.unit()).collect()
    }
}

/// The source after the lines that all begin with.
pub(crate) fn with_header(source: &str) -> String {
    format!("#include <metal_stdlib>\nusing namespace metal;\n{source}")
}

/// All cases.
fn cases() -> Vec<Case> {
    [super::corpus_groups::cases(), super::corpus_math::cases(), super::corpus_language::cases()]
        .into_iter()
        .flatten()
        .collect()
}

/// The sources of all cases.
pub(crate) fn sources() -> Vec<&'static str> {
    cases().iter().map(|c| c.source).collect()
}

#[test]
fn kernels_agree_with_their_references() {
    let cases = cases();
    assert!(cases.len() >= 30, "{} cases", cases.len());
    for case in &cases {
        case.check(&case.run(1), "here");
    }
}

#[test]
fn several_host_threads_compute_the_same() {
    for case in cases() {
        if case.groups.iter().product::<u32>() > 1 {
            case.check(&case.run(3), "on three host threads");
        }
    }
}

#[test]
fn kernels_agree_with_clang_bit_for_bit() {
    if !present() {
        return;
    }
    let cases = cases();
    let entries: Vec<Entry<'_>> =
        cases.iter().map(|c| Entry { source: c.source, function: c.kernel[1], call: c.kernel[2] }).collect();
    let program = Program::compile("corpus", &entries);
    for (n, case) in cases.iter().enumerate() {
        let theirs = program.run(n, (case.groups, case.threads), &case.buffers, &case.threadgroup);
        case.check(&theirs, "by clang");
        let ours = case.run(1);
        for (buffer, (a, b)) in ours.iter().zip(&theirs).enumerate() {
            let first = a.iter().zip(b).position(|(x, y)| x != y);
            assert_eq!(first, None, "{}: buffer {buffer} differs from clang's", case.name);
        }
    }
}
