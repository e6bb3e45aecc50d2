//! Every decoder of outside bytes on seeded mutations of the committed corpus (`fuzz/corpus`): the bodies that
//! libFuzzer runs, a few seconds of them.
//!
//! `FUZZ_CASES=n` runs n cases a target; a failing case prints its target and number, which is its seed.
#![cfg(target_os = "linux")]

#[path = "../fuzz/bodies.rs"]
mod bodies;
#[path = "../fuzz/seeds.rs"]
mod seeds;

use std::path::Path;

/// Cases of a target without `FUZZ_CASES`.
const CASES: u64 = 8000;
/// Longest input that mutation makes.
const MAX_BYTES: usize = 4096;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// What breaks arithmetic: limits, small numbers, what the file itself is long.
fn interesting(random: &mut Random, len: usize) -> u64 {
    let table =
        [0, 1, 4, 0x7f, 0xff, 0x7fff_ffff, 0xffff_ffff, 1 << 63, u64::MAX, u64::MAX - 4095, len as u64, random.next()];
    table[random.below(table.len())]
}

/// One to six changes: bits, words, cuts, doublings, pieces of another input.
fn mutate(data: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Random) {
    for _ in 0..=random.below(6) {
        let at = random.below(data.len());
        match random.below(7) {
            _ if data.is_empty() => data.extend(random.next().to_le_bytes()),
            0 => data[at] ^= 1 << random.below(8),
            1 => data[at] = random.next() as u8,
            2 | 3 => {
                let width = [1, 2, 4, 8][random.below(4)];
                let at = at / width * width;
                let end = (at + width).min(data.len());
                let value = interesting(random, data.len()).to_le_bytes();
                data[at..end].copy_from_slice(&value[..end - at]);
            }
            4 => {
                let end = (at + 1 + random.below(64)).min(data.len());
                data.drain(at..end);
            }
            5 => {
                let end = (at + 1 + random.below(64)).min(data.len());
                let piece = data[at..end].to_vec();
                let to = random.below(data.len());
                data.splice(to..to, piece);
            }
            _ => {
                let other = &corpus[random.below(corpus.len())];
                let from = random.below(other.len());
                data.splice(at.., other[from..].iter().copied());
            }
        }
    }
    data.truncate(MAX_BYTES);
}

/// The committed inputs of a target and its hand-made seeds, in an order that does not depend on the file system.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} holds inputs", folder.display());
    let mut all = seeds::of(target);
    assert!(!all.is_empty(), "{target} has seeds");
    all.extend(files.iter().map(|path| std::fs::read(path).unwrap()));
    all
}

/// Names the case when the body panics.
struct Case(&'static str, u64);

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("target {} failed in case {}", self.0, self.1);
        }
    }
}

fn run(name: &'static str) {
    let body = bodies::TARGETS.iter().find(|t| t.0 == name).expect("a target").1;
    let corpus = corpus(name);
    for (n, input) in corpus.iter().enumerate() {
        let _case = Case(name, n as u64);
        body(input);
    }
    let cases = std::env::var("FUZZ_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(CASES);
    let mut data = Vec::new();
    for seed in 0..cases {
        let _case = Case(name, seed);
        let mut random = Random(seed);
        data.clone_from(&corpus[random.below(corpus.len())]);
        mutate(&mut data, &corpus, &mut random);
        body(&data);
    }
}

/// A test a target, so that they run side by side.
macro_rules! targets {
    ($($test:ident $name:literal)*) => {
        $(#[test]
        fn $test() {
            run($name);
        })*

        #[test]
        fn every_target_has_a_test_and_a_binary() {
            let tested = [$($name),*];
            let manifest = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/Cargo.toml")).unwrap();
            for (name, _) in bodies::TARGETS {
                assert!(tested.contains(name), "{name} has no test");
                assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} has no binary");
            }
        }
    };
}

targets! {
    mutated_calls_are_decoded_to_one_line "ioctl"
    mutated_traces_are_read_whole_or_refused "trace"
    mutated_x86_objects_link_or_are_refused "elf"
    mutated_code_objects_load_or_are_refused "code_object"
    mutated_pm4_packets_are_read_as_written_or_refused "pm4"
    mutated_aql_packets_are_read_as_written_or_refused "aql"
    mutated_sdma_packets_are_read_as_written_or_refused "sdma"
    mutated_machine_code_reads_as_it_prints "amdgpu"
    mutated_assembler_text_is_assembled_or_refused "amdgpu_source"
    mutated_machine_code_meets_the_emulator_s_decoder "emu_decode"
    mutated_push_buffers_are_read_or_refused "nv_push"
    mutated_launch_descriptors_are_read_as_written_or_refused "qmd"
    mutated_cubins_load_or_are_refused "cubin"
    mutated_ptx_is_assembled_or_refused "ptx"
    mutated_sass_encodes_as_it_decodes "sass"
    mutated_files_of_tensors_are_loaded_or_refused "state"
    mutated_packages_are_read_as_written_or_refused "package"
}

#[test]
fn the_corpus_is_small() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let mut bytes = 0;
    for folder in std::fs::read_dir(root).unwrap() {
        for file in std::fs::read_dir(folder.unwrap().path()).unwrap() {
            bytes += file.unwrap().metadata().unwrap().len();
        }
    }
    assert!(bytes < 300 << 10, "{bytes} bytes");
}
