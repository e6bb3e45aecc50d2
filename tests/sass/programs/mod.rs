//! Random programs through our assembler and through ptxas: both codes run on the software multiprocessor in strict
//! mode and leave the same bytes. Ours has a sound schedule and nvdisasm reads it as we print it.
//!
//! Of the seeds from `PTX_SEED` (1) on, as many as `PTX_SEEDS` (4) says, `PTX_PROGRAMS` (50) programs each;
//! `PTX_PROGRAM` takes one of them, `PTX_LEVEL` what ptxas optimises (else the seed decides), `PTX_CHIP` (sm_90a) for
//! which chip; a few for each other chip are always tried. A program that fails is made smaller as long as it fails the
//! same way, and printed; with `PTX_WHOLE` it is only named, or printed as it is where it is the one.

mod make;
mod templates;
mod tree;

use crate::chips::agree;
use crate::machine::{Case, launch};
use crate::nvidia::try_ptxas;
use doorbell::elf::cubin::{Arch, Cubin};
use doorbell::isa::sass::SmArch;
use doorbell::isa::sass::check::{Trust, check_for};
use doorbell::isa::sass::compile::assemble;
use std::collections::BTreeSet;
use std::ops::Range;
use tree::{INPUT, OUTPUT, Program, THREADS, head};

/// What is wrong with a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Refused,
    Unsound,
    Faults,
    TheirsFaults,
    Differs,
}

type Failure = (Kind, String);

const FROM: u64 = 0x7_0000_0000;
const TO: u64 = 0x7_1000_0000;

/// Words that programs use: small, large, one bit, and floats of each width where the kernels read such.
fn input() -> Vec<u8> {
    let mut random = crate::compiled::Random(0x1234_5678_9abc_def1);
    let mut bytes = vec![];
    for thread in 0..THREADS {
        for at in (0..INPUT).step_by(4) {
            let any = (random.below(1 << 32)) as u32;
            let near = ((any % 4001) as f32 - 2000.0) / 64.0;
            let word = match at {
                80..96 => match any >> 16 & 7 {
                    0 => {
                        [0, 0x8000_0000, 0x7f80_0000, 0xff80_0000, 0x7fff_ffff, 1, 0x8070_0000, 0x7f7f_ffff][thread % 8]
                    }
                    _ => near.to_bits(),
                },
                96..112 => {
                    let bits = (f64::from(near) * 1.000_000_1).to_bits();
                    // Low word, high word of the same number.
                    let other = (f64::from(thread as f32 - 20.5) / 3.0).to_bits();
                    let v = if thread.is_multiple_of(3) && at < 104 { bits } else { other };
                    if at % 8 == 0 { v as u32 & 0xffff_0000 } else { (other >> 32) as u32 }
                }
                112..120 | 128..132 => {
                    u32::from(half::f16::from_f32(near).to_bits())
                        | any & 0x8000_0000
                        | (any & 0x3ff) << 16
                        | 0x3800_0000
                }
                120..128 | 132..136 => {
                    u32::from(half::bf16::from_f32(near).to_bits()) | (any & 0x807f) << 16 | 0x3f80_0000
                }
                _ => match any >> 20 & 7 {
                    0 => any & 0xff,
                    1 => 1 << (any & 31),
                    2 => (any & 0xff).wrapping_neg(),
                    3 => [0, u32::MAX, 0x8000_0000, 0x7fff_ffff][(any & 3) as usize],
                    _ => any,
                },
            };
            bytes.extend(word.to_le_bytes());
        }
    }
    bytes
}

fn run(cubin: &[u8], program: &Program, input: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let buffers = [(FROM, input.to_vec()), (TO, vec![0; THREADS * OUTPUT + 256])];
    let mut params: Vec<u8> = [FROM, TO].iter().flat_map(|a| a.to_le_bytes()).collect();
    params.extend(5u64.to_le_bytes());
    params.extend(0x8000_0001_ffff_fff7u64.to_le_bytes());
    params.extend(1.5f32.to_le_bytes());
    let case = Case { grid: [1; 3], block: [THREADS as u32, 1, 1], params, buffers: &buffers, dynamic_bytes: 0 };
    launch(cubin, &format!("k{}", program.number), &case, true).map(|r| r.0)
}

/// The chip that programs are made for: `PTX_CHIP` (sm_90a).
fn arch() -> Arch {
    match std::env::var("PTX_CHIP") {
        Ok(name) => Arch::parse(&name).unwrap_or_else(|| panic!("PTX_CHIP={name}")),
        Err(_) => Arch { sm: 90, specific: true },
    }
}

fn module(arch: Arch, programs: &[Program]) -> String {
    programs.iter().fold(head(&arch.to_string()), |text, p| text + &p.text())
}

/// What ptxas does not take, with the lines that it names.
fn refused(text: &str, said: &str) {
    for line in said.lines().take(20) {
        let number = line.split_once("line ").and_then(|l| l.1.split(';').next()?.parse::<usize>().ok());
        println!("{line}\n    {}", number.and_then(|n| text.lines().nth(n - 1)).unwrap_or_default());
    }
}

/// What is wrong with each program; the words of the sound ones. `None`: ptxas does not take the module.
fn judge(arch: Arch, programs: &[Program], level: &str, words: &mut BTreeSet<u128>) -> Option<Vec<Option<Failure>>> {
    let text = module(arch, programs);
    let theirs = match try_ptxas(&text, &arch.to_string(), level) {
        Ok(c) => c,
        Err(e) => {
            refused(&text, &e);
            return None;
        }
    };
    let input = input();
    let chip = SmArch::of(arch).expect("a chip of the table");
    let together = assemble(&text, arch).ok();
    let one = |p: &Program| -> Result<Vec<u128>, Failure> {
        let ours = match &together {
            Some(c) => c.clone(),
            None => {
                assemble(&module(arch, std::slice::from_ref(p)), arch).map_err(|e| (Kind::Refused, e.to_string()))?
            }
        };
        let file = Cubin::parse(&ours).map_err(|e| (Kind::Refused, e.to_string()))?;
        let kernel = file.kernel(&format!("k{}", p.number)).ok_or((Kind::Refused, "no kernel".to_owned()))?;
        let code = file.code(kernel).as_chunks::<16>().0.iter().map(|w| u128::from_le_bytes(*w));
        let code: Vec<u128> = code.collect();
        let found = check_for(&code, chip, Trust::Safe).map_err(|e| (Kind::Unsound, e.to_string()))?;
        if let Some(f) = found.first() {
            return Err((Kind::Unsound, f.to_string()));
        }
        let want = run(&theirs, p, &input).map_err(|e| (Kind::TheirsFaults, e))?;
        let got = run(&ours, p, &input).map_err(|e| (Kind::Faults, e))?;
        match want[1].iter().zip(&got[1]).position(|(a, b)| a != b) {
            None => Ok(code),
            Some(at) => {
                let word = |v: &[u8]| u32::from_le_bytes([0, 1, 2, 3].map(|k| v[at / 4 * 4 + k]));
                let (thread, offset) = (at / OUTPUT, at % OUTPUT / 4 * 4);
                let what = p.results.get(offset.wrapping_sub(64) / 8).map_or("", String::as_str);
                let (want, got) = (word(&want[1]), word(&got[1]));
                Err((Kind::Differs, format!("thread {thread} at {offset} ({what}): {got:#x}, ptxas's {want:#x}")))
            }
        }
    };
    let mut out = vec![];
    for p in programs {
        out.push(match one(p) {
            Ok(code) => {
                words.extend(code);
                None
            }
            Err(f) => Some(f),
        });
    }
    Some(out)
}

/// The program with all taken away that the failure does not need.
fn reduced(arch: Arch, program: &Program, failure: Failure, level: &str) -> (Program, Failure) {
    let (mut best, mut why) = (program.clone(), failure);
    let (mut at, mut found_some) = (0, false);
    for _ in 0..400 {
        let all = best.smaller();
        if at >= all.len() {
            if !found_some {
                break;
            }
            (at, found_some) = (0, false);
        }
        let chunk = all.iter().skip(at).take(24);
        let numbered: Vec<Program> =
            chunk.enumerate().map(|(k, p)| Program { number: k, ..renumbered(p, k) }).collect();
        // Where one of them is no PTX, each alone.
        let found = judge(arch, &numbered, level, &mut BTreeSet::new()).unwrap_or_else(|| {
            numbered.iter().map(|p| judge(arch, std::slice::from_ref(p), level, &mut BTreeSet::new())?.pop()?).collect()
        });
        let fails =
            found.into_iter().zip(numbered).enumerate().find(|(_, (f, _))| f.as_ref().is_some_and(|f| f.0 == why.0));
        match fails {
            Some((k, (Some(f), p))) => {
                (best, why) = (p, f);
                (at, found_some) = (at + k, true);
            }
            _ => at += 24,
        }
    }
    (best, why)
}

/// Calls name the kernel's own function.
fn renumbered(program: &Program, number: usize) -> Program {
    let mut p = program.clone();
    p.rename_calls(number);
    p
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().map_or(usual, |n| n.parse().unwrap_or_else(|e| panic!("{name}={n}: {e}")))
}

/// What ptxas optimises programs of a seed by.
fn level(seed: u64) -> &'static str {
    let levels = ["-O0", "-O3", "-O1", "-O3"];
    match std::env::var("PTX_LEVEL") {
        Ok(wanted) => levels.into_iter().find(|l| l[1..] == wanted).unwrap_or_else(|| panic!("PTX_LEVEL={wanted}")),
        Err(_) => levels[(seed % 4) as usize],
    }
}

/// Prints a program that fails, as small as it can be made.
fn reported(arch: Arch, seed: u64, program: &Program, failure: Failure, small: bool) -> String {
    let (number, level) = (program.number, level(seed));
    println!("{arch} seed {seed} program {number} {level}: {:?} {}", failure.0, failure.1);
    if !small {
        if std::env::var("PTX_PROGRAM").is_ok() {
            println!("{}", module(arch, std::slice::from_ref(program)));
        }
        return format!("{arch} {seed}:{number} {failure:?}");
    }
    let (small, why) = reduced(arch, program, failure, level);
    println!("{:?} {}\n{}", why.0, why.1, small.text());
    format!("{arch} {seed}:{number} {why:?}")
}

/// Programs of a seed for a chip, those of a number up to `count`, or the one of `PTX_PROGRAM`: nothing is wrong with
/// any, and nvdisasm reads our words.
fn hold(arch: Arch, seeds: Range<u64>, count: usize) {
    const AT_ONCE: usize = 50;
    let one = number("PTX_PROGRAM", u64::MAX) as usize;
    let mut words = BTreeSet::new();
    let mut failed = vec![];
    for seed in seeds {
        let all: Vec<Program> = (0..count).map(|k| make::program(arch.sm, seed, k, 60)).collect();
        let all: Vec<Program> = all.into_iter().filter(|p| one >= count || p.number == one).collect();
        for programs in all.chunks(AT_ONCE) {
            let found = judge(arch, programs, level(seed), &mut words)
                .unwrap_or_else(|| panic!("{arch} seed {seed}: ptxas refuses"));
            for (p, f) in programs.iter().zip(found) {
                // What fails in many programs is made smaller in a few.
                let small = failed.len() < 3 && std::env::var("PTX_WHOLE").is_err();
                failed.extend(f.map(|f| reported(arch, seed, p, f, small)));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
    agree(&words.into_iter().collect::<Vec<_>>(), SmArch::of(arch).expect("a chip of the table"));
}

#[test]
fn random_programs_leave_what_ptxas_leaves() {
    let (first, seeds) = (number("PTX_SEED", 1), number("PTX_SEEDS", 4));
    hold(arch(), first..first + seeds, number("PTX_PROGRAMS", 50) as usize);
}

/// A few for each of the other chips, of seeds that ptxas optimises differently.
#[test]
fn random_programs_for_other_chips_leave_what_ptxas_leaves() {
    for (sm, seed) in [(80, 1), (86, 2), (89, 3), (120, 1)] {
        hold(Arch { sm, specific: false }, seed..seed + 1, 15);
    }
}

#[test]
fn statements_of_every_kind_leave_what_ptxas_leaves() {
    let mut failed = vec![];
    for (round, programs) in make::one_each(arch().sm, number("PTX_SEED", 1)).chunks(100).enumerate() {
        let found =
            judge(arch(), programs, "-O1", &mut BTreeSet::new()).unwrap_or_else(|| panic!("{round}: ptxas refuses"));
        for (p, f) in programs.iter().zip(found) {
            let Some(f) = f else { continue };
            println!("{:?} {}: {:?}", f.0, f.1, p.body);
            failed.push(p.number);
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn a_program_made_smaller_is_a_program_and_keeps_what_fails() {
    let program = make::program(arch().sm, 3, 0, 40);
    let smaller = program.smaller();
    assert!(smaller.len() > 40, "{}", smaller.len());
    let some: Vec<Program> = smaller
        .iter()
        .step_by(smaller.len() / 12)
        .enumerate()
        .map(|(k, p)| Program { number: k, ..renumbered(p, k) })
        .collect();
    let found = judge(arch(), &some, "-O1", &mut BTreeSet::new()).expect("ptxas takes them");
    assert!(found.iter().all(Option::is_none), "{found:?}");
}
