//! All collected samples of PTX: ptxas's code at -O0 and -O3 and ours, in strict mode, leave what the manual asks for,
//! wherever the reference knows the instructions; where it does not, what ptxas's code leaves.

mod alone;
mod columns;
mod copies;
mod kernels;
mod mma;
mod product;
mod tma;
mod warp;
mod wgmma;

use crate::figures::{Figures, Ratios};
use crate::machine::{Case, launch, launch_with};
use crate::nvidia::ptxas;
use crate::reference::{self, Left, Tolerance, format};
use doorbell::elf::cubin::Arch;
use doorbell::emu::sass::Options;
use doorbell::isa::ptx::parse;
use doorbell::isa::sass::compile::assemble;
use std::io::Read;

pub const SAMPLES: &[u8] = include_bytes!("../../data/ptx/samples.ptx.gz");
const THREADS: u32 = 64;
const BUFFERS: [u64; 4] = [0x7_0000_0000, 0x7_1000_0000, 0x7_2000_0000, 0x7_3000_0000];
const BUFFER_BYTES: usize = 1 << 17;

/// Kernels that fewer threads run, since they would read what others write, or at addresses that are not aligned or
/// beyond what there is.
const FEWER: [(&str, &[&str], u32); 6] = [
    ("control", &["k1"], 1),
    ("control", &["k4", "k5"], 16),
    ("half", &["k99", "k100", "k101", "k102"], 1),
    ("integer", &["k290", "k291", "k292"], 1),
    ("memory", &["k113"], 1),
    ("memory", &["k126"], 32),
];

/// Kernels that cannot be run with such data ([`alone`] runs them with theirs): threads of a warp that wait for others
/// which have left, a loop as long as a random number, unwritten shared memory.
const LEFT_OUT: [(&str, &str); 4] = [("control", "k2"), ("control", "k6"), ("memory", "k124"), ("memory", "k125")];

/// The text of all files, each after its name.
fn files() -> String {
    let mut all = String::new();
    flate2::read::GzDecoder::new(SAMPLES).read_to_string(&mut all).expect("the samples");
    all
}

/// All files by name.
pub fn sample_files() -> Vec<(String, String)> {
    let all = files();
    let parts = all.split("//// ").filter_map(|f| f.split_once('\n'));
    parts.map(|(name, text)| (name.to_owned(), text.to_owned())).collect()
}

/// A file's text up to its first kernel, and its kernels.
fn file(name: &str) -> (String, Vec<String>) {
    let all = files();
    let text = all.split("//// ").find_map(|f| f.strip_prefix(name)?.strip_prefix('\n')).expect("a file of that name");
    const ENTRY: &str = ".visible .entry";
    let mut parts = text.split(ENTRY);
    let head = parts.next().expect("a head").to_owned();
    (head, parts.map(|p| format!("{ENTRY}{p}")).collect())
}

/// The parameters' bytes: four buffers, `pn`, `pf` and `pm`.
fn params(buffers: [u64; 4], n: u32, f: f32, m: u32) -> Vec<u8> {
    let words = [n.to_le_bytes(), f.to_le_bytes(), m.to_le_bytes()];
    buffers.iter().flat_map(|b| b.to_le_bytes()).chain(words.into_iter().flatten()).collect()
}

/// What a sample reads and did not write: text that so many threads fill the shared memory `sm` with, from where the
/// register points.
fn fill(from: &str, bytes: usize, threads: usize) -> String {
    format!(
        "{{ .reg .b32 %at,%end,%w<4>; .reg .b64 %from,%own; .reg .pred %more;
        mov.u32 %at,%tid.x; mul.wide.u32 %own,%at,16; add.s64 %from,{from},%own; mov.u32 %end,sm; mad.lo.u32 %at,%at,16,%end; add.u32 %end,%end,{bytes};
        FILL: ld.global.v4.b32 {{%w0,%w1,%w2,%w3}},[%from]; st.shared.v4.b32 [%at],{{%w0,%w1,%w2,%w3}};
        add.s64 %from,%from,{step}; add.u32 %at,%at,{step}; setp.lt.u32 %more,%at,%end; @%more bra FILL;
        fence.proxy.async.shared::cta; bar.sync 0; }}\n",
        step = 16 * threads
    )
}

/// What a sample leaves in its shared memory `sm`: text by which so many threads store it, a block's after the other's,
/// to where the register points.
fn dump(to: &str, bytes: usize, threads: usize) -> String {
    format!(
        "{{ .reg .b32 %at,%end,%w<4>; .reg .b64 %to,%own; .reg .pred %more;
        mov.u32 %at,%ctaid.x; mul.wide.u32 %own,%at,{bytes}; add.s64 %to,{to},%own; mov.u32 %at,%tid.x; mul.wide.u32 %own,%at,16; add.s64 %to,%to,%own;
        mov.u32 %end,sm; mad.lo.u32 %at,%at,16,%end; add.u32 %end,%end,{bytes};
        DUMP: ld.shared.v4.b32 {{%w0,%w1,%w2,%w3}},[%at]; st.global.v4.b32 [%to],{{%w0,%w1,%w2,%w3}};
        add.s64 %to,%to,{step}; add.u32 %at,%at,{step}; setp.lt.u32 %more,%at,%end; @%more bra DUMP; }}\n",
        step = 16 * threads
    )
}

/// A module's code by our assembler and by ptxas at both levels.
struct Codes([(&'static str, Vec<u8>); 3]);

impl Codes {
    fn of(text: &str) -> Codes {
        let ours = assemble(text, Arch { sm: 90, specific: true }).unwrap_or_else(|e| panic!("{e}"));
        Codes([("ours", ours), ("-O0", ptxas(text, "-O0")), ("-O3", ptxas(text, "-O3"))])
    }

    /// What each leaves in the buffers, in strict mode, in clusters of so many blocks.
    fn run(&self, kernel: &str, case: (&Case, u32)) -> Vec<(&'static str, Vec<Vec<u8>>)> {
        self.run_with(kernel, case, Options::default())
    }

    /// The same by other options.
    fn run_with(&self, kernel: &str, case: (&Case, u32), options: Options) -> Vec<(&'static str, Vec<Vec<u8>>)> {
        let run = |(who, cubin): &(&'static str, Vec<u8>)| {
            let left = launch_with(cubin, kernel, case, options).unwrap_or_else(|e| panic!("{who}: {e}"));
            (*who, left.0)
        };
        self.0.iter().map(run).collect()
    }
}

/// Bits of all kinds: small and large numbers, and what floats of three formats have at their ends.
fn input(seed: u64) -> Vec<u8> {
    const ENDS: [u64; 14] = [
        0x0000_0000_0000_0001,
        0x000f_ffff_ffff_ffff,
        0x7f80_0000_ff80_0000,
        0x7fc0_0000_0000_0001,
        0x8000_0000_3f80_0000,
        0x7ff0_0000_0000_0000,
        0xfff8_0000_0000_0001,
        0x8000_0000_0000_0001,
        0x7c00_fc00_7e00_0001,
        0x8001_3c00_bc00_7bff,
        0x7f7f_ffff_0080_0000,
        0x0010_0000_0000_0000,
        0x4f00_0000_cf00_0000,
        0x5f00_0000_4eff_ffff,
    ];
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state ^ state >> 29
    };
    let word = |k: usize| {
        let r = next();
        match k % 4 {
            0 if (k / 4).is_multiple_of(3) => ENDS[(r % 14) as usize],
            1 => (f64::from(r as u32 as i32) / 1e6).to_bits(),
            2 => {
                u64::from(((r as i32 >> 8) as f32 / 4096.0).to_bits())
                    | u64::from(((r >> 32) as i16 as f32).to_bits()) << 32
            }
            _ => r,
        }
    };
    (0..BUFFER_BYTES / 8).map(word).flat_map(u64::to_le_bytes).collect()
}

/// The same without zeros among halves of words: divisors.
fn nonzero(seed: u64) -> Vec<u8> {
    input(seed).chunks_exact(2).flat_map(|h| if h == [0, 0] { [7, 0] } else { [h[0], h[1]] }).collect()
}

/// Whether a buffer holds what it has to.
fn differs(at: u64, got: &[u8], want: &Left) -> Option<String> {
    let bytes = &want.buffers.iter().find(|b| b.0 == at).expect("the buffer").1;
    let mut k = 0;
    while k < got.len() {
        let place = at + k as u64;
        let (len, holds) = match want.floats.get(&place) {
            None => (1, got[k] == bytes[k]),
            Some(t) => {
                let (Tolerance::Exact(ty) | Tolerance::Within(ty, _)) = *t;
                let len = ty.bits() as usize / 8;
                let read = |b: &[u8]| b[k..k + len].iter().rev().fold(0u128, |n, b| n << 8 | u128::from(*b));
                let f = format(ty).expect("a float");
                let (a, b) = (f.to_f64(read(got)), f.to_f64(read(bytes)));
                let near = match *t {
                    Tolerance::Exact(_) => read(got) == read(bytes),
                    Tolerance::Within(_, off) => a == b || (a - b).abs() <= off,
                };
                (len, near || a.is_nan() && b.is_nan())
            }
        };
        if !holds {
            return Some(format!("at {k}: {:02x?}, not {:02x?}", &got[k..k + len], &bytes[k..k + len]));
        }
        k += len;
    }
    None
}

/// Runs a file's kernels; gives those that the reference does not know, where only ptxas's code is the measure.
fn run(name: &str, given: impl Fn(u64) -> Vec<u8>) -> Vec<String> {
    let (head, kernels) = file(name);
    let whole = head.clone() + &kernels.concat();
    let [calm, fast] = ["-O0", "-O3"].map(|level| ptxas(&whole, level));
    let buffers: Vec<(u64, Vec<u8>)> = (0..).zip(BUFFERS).map(|(k, at)| (at, given(k + 1))).collect();
    let params: Vec<u128> = BUFFERS.iter().map(|b| u128::from(*b)).chain([48, 0x4020_0000, 3]).collect();
    let mut bytes: Vec<u8> = BUFFERS.iter().flat_map(|b| b.to_le_bytes()).collect();
    [48u32, 0x4020_0000, 3].iter().for_each(|p| bytes.extend(p.to_le_bytes()));
    let mut pointers = buffers.clone();
    pointers[0].1 = (0..BUFFER_BYTES as u64 / 8).flat_map(|k| (BUFFERS[3] + k % 512 * 16).to_le_bytes()).collect();
    let (mut unknown, mut faults, mut runs, mut ratios) = (vec![], vec![], 0, Ratios::default());
    for text in &kernels {
        let text = head.clone() + text;
        // These take what they load as addresses too.
        let buffers = if text.contains("%rd20,[%rd21]") { &pointers } else { &buffers };
        let module = parse(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        let entry = module.functions().find(|f| f.entry).expect("a kernel");
        if LEFT_OUT.contains(&(name, &*entry.name)) {
            continue;
        }
        let threads = FEWER.iter().find(|f| f.0 == name && f.1.contains(&&*entry.name)).map_or(THREADS, |f| f.2);
        let want = reference::run(&module, entry, &params, threads, buffers);
        let case = Case { grid: [1; 3], block: [threads, 1, 1], params: bytes.clone(), buffers, dynamic_bytes: 4096 };
        let ours = match assemble(&text, Arch { sm: 90, specific: true }) {
            Ok(cubin) => cubin,
            Err(e) => {
                unknown.push(format!("{}: refused: {e}", entry.name));
                continue;
            }
        };
        let (mut left, mut costs) = (vec![], vec![]);
        for (who, cubin) in [("ours", &ours), ("-O0", &calm), ("-O3", &fast)] {
            // Atomic operations begin with unwritten memory.
            match launch(cubin, &entry.name, &case, name != "atomics") {
                Ok((after, stats)) => {
                    costs.push(Figures::of(cubin, &entry.name, &stats));
                    left.push((who, after));
                    runs += 1;
                }
                Err(e) => faults.push(format!("{} by {who}: {e}", entry.name)),
            }
        }
        if let [ours, _, theirs] = costs[..] {
            ratios.add(name, &entry.name, (ours, theirs));
        }
        match want {
            Err(why) => {
                unknown.push(format!("{}: {why}", entry.name));
                // At -O3 ptxas makes one operation of products and sums that say no rounding, which changes them.
                if let [(_, ours), theirs @ ..] = &left[..]
                    && theirs.iter().all(|(_, t)| t != ours)
                {
                    faults.push(format!("{}: ours leaves something else than both of ptxas's", entry.name));
                }
            }
            Ok(want) => {
                for (who, after) in &left {
                    let all = BUFFERS.iter().zip(after).find_map(|(at, got)| differs(*at, got, &want));
                    faults.extend(all.map(|what| format!("{} by {who}: {what}", entry.name)));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{name}: {} faults\n{}", faults.len(), faults.join("\n"));
    assert_eq!(runs, 3 * (kernels.len() - LEFT_OUT.iter().filter(|l| l.0 == name).count()), "{name}");
    println!("{ratios}");
    if name != "control" {
        // Two of its four kernels call functions, which save what they change.
        ratios.hold([1.15, 1.15, 1.2, 1.2]);
    }
    unknown
}

/// Which tests run a file's kernels, how many there are: all 1,610 but three of `tma` are run, those of `async_copy`
/// that are not here in `samples.rs`.
#[test]
fn no_sample_is_forgotten() {
    let here = [
        ("atomics", 160),
        ("compare", 155),
        ("control", 6),
        ("convert", 247),
        ("f32_binary", 100),
        ("f32_unary", 29),
        ("f64", 34),
        ("half", 102),
        ("integer", 292),
        ("memory", 128),
        ("random_float", 50),
        ("random_half", 30),
        ("random_int", 60),
        ("random_uniform", 40),
    ];
    let elsewhere = [
        ("async_copy", 11),
        ("hopper_gemm", 1),
        ("kernels", 9),
        ("mma", 45),
        ("tma", 27),
        ("warp_sync", 20),
        ("wgmma", 64),
    ];
    let all = files();
    let mut found: Vec<(&str, usize)> = all
        .split("//// ")
        .skip(1)
        .map(|f| (f.lines().next().expect("a name"), f.matches(".visible .entry").count()))
        .collect();
    let mut want = [&here[..], &elsewhere].concat();
    found.sort_unstable();
    want.sort_unstable();
    assert_eq!(found, want);
    assert_eq!(found.iter().map(|f| f.1).sum::<usize>(), 1610);
}

#[test]
fn integer() {
    let unknown = run("integer", nonzero);
    assert!(unknown.is_empty(), "{unknown:#?}");
}

#[test]
fn f32_binary() {
    let unknown = run("f32_binary", input);
    assert!(unknown.is_empty(), "{unknown:#?}");
}

#[test]
fn f32_unary() {
    let unknown = run("f32_unary", input);
    assert!(unknown.is_empty(), "{unknown:#?}");
}

#[test]
fn f64() {
    let unknown = run("f64", input);
    assert!(unknown.is_empty(), "{unknown:#?}");
}

#[test]
fn half() {
    let unknown = run("half", input);
    assert!(unknown.is_empty(), "{unknown:#?}");
}

#[test]
fn convert() {
    let unknown = run("convert", input);
    assert!(unknown.is_empty(), "{unknown:#?}");
}

#[test]
fn compare() {
    let unknown = run("compare", input);
    assert!(unknown.is_empty(), "{unknown:#?}");
}

#[test]
fn random_int() {
    let unknown = run("random_int", input);
    assert!(unknown.is_empty(), "{unknown:#?}");
}

#[test]
fn random_uniform() {
    let unknown = run("random_uniform", input);
    assert!(unknown.is_empty(), "{unknown:#?}");
}

#[test]
fn memory() {
    // One reads a part of a parameter.
    let unknown = run("memory", input);
    assert_eq!(unknown.len(), 1, "{unknown:#?}");
}

#[test]
fn control() {
    // Calls and lists of targets are not in the reference.
    let unknown = run("control", input);
    assert_eq!(unknown.len(), 3, "{unknown:#?}");
}

#[test]
fn random_float() {
    // All go on with what they approximate.
    let unknown = run("random_float", input);
    assert_eq!(unknown.len(), 50, "{unknown:#?}");
}

#[test]
fn random_half() {
    // The same, or with bits of what is no number.
    let unknown = run("random_half", input);
    assert_eq!(unknown.len(), 30, "{unknown:#?}");
}

#[test]
fn atomics() {
    let unknown = run("atomics", input);
    assert!(unknown.is_empty(), "{unknown:#?}");
}
