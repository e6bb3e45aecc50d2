//! Deliberate faults, concurrent processes, and the soak. Each fault has a process of its own.

use super::kernels::Bench;
use crate::child;
use crate::ladder::Climb;
use doorbell::device::{Arg, Device as _};
use hw_contact::Failure;
use std::time::{Duration, Instant};

/// (part, what the error must say)
const FAULTS: &[(&str, &[&str])] = &[("wild", &["0x1234567000"]), ("loop", &["did not finish in"])];

/// The card must be as before.
fn works(climb: &Climb, after: &str) -> Result<(), Failure> {
    let said = child::start(climb, "work")?.end(climb.patience() * 4)?;
    if said == "worked" { Ok(()) } else { Err(format!("after {after} a new device says {said:?}").into()) }
}

pub fn faults(climb: &mut Climb) -> Result<String, Failure> {
    let mut notes = Vec::new();
    for (part, wanted) in FAULTS {
        let began = Instant::now();
        let said = child::start(climb, part)?.end(climb.patience() * 4)?;
        if !wanted.iter().all(|w| said.contains(w)) {
            return Err(format!("{part}: the device said {said:?}").into());
        }
        let said: String = said.chars().take(160).collect();
        notes.push(format!("{part} in {:.1} s: {said}", began.elapsed().as_secs_f64()));
        works(climb, part)?;
    }
    Ok(format!("{}; a new device works after each", notes.join("; ")))
}

pub fn processes(climb: &mut Climb) -> Result<String, Failure> {
    let (a, b, killed) = (child::start(climb, "work")?, child::start(climb, "work")?, child::start(climb, "loop")?);
    // TIMEOUT: long enough that its kernel runs.
    std::thread::sleep(Duration::from_millis(if climb.is_quick() { 300 } else { 2000 }));
    killed.kill()?;
    for (name, process) in [("first", a), ("second", b)] {
        let said = process.end(climb.patience() * 8)?;
        if said != "worked" {
            return Err(format!("the {name} of two processes says {said:?}").into());
        }
    }
    works(climb, "a killed process")?;
    Ok("two worked at once, one was killed in its kernel, another worked after it".into())
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }
}

/// Random additions and copies until the time is over; returns the number of rounds.
///
/// # Errors
/// A wrong word, or the device's.
pub fn work(bench: &Bench, seed: u64, time: Duration, most: u32) -> Result<u32, Failure> {
    let mut random = Random(seed);
    let add = bench.load("add")?;
    let (began, mut rounds) = (Instant::now(), 0);
    while rounds == 0 || began.elapsed() < time {
        let blocks = 1 + (random.next() % u64::from(most)) as u32;
        let mut word = || random.next() as u32;
        let mut words: Vec<u32> = (0..blocks * 64).map(|_| word()).collect();
        let steps: Vec<u32> = (0..blocks * 64).map(|_| word()).collect();
        let (a, b) = (bench.words(&words)?, bench.words(&steps)?);
        for _ in 0..3 {
            bench.run(&add, vec![Arg::Buffer(a.at(0)), Arg::Buffer(b.at(0))], [blocks, 1, 1], [64, 1, 1])?;
            words.iter_mut().zip(&steps).for_each(|(w, s)| *w = w.wrapping_add(*s));
        }
        if bench.read(&a)? != words {
            return Err(format!("round {rounds} of seed {seed}: {blocks} blocks came back wrong").into());
        }
        rounds += 1;
    }
    Ok(rounds)
}

pub fn soak(climb: &mut Climb) -> Result<String, Failure> {
    climb.bench = None;
    climb.let_go();
    let bench = Bench::open(climb)?;
    let most = if climb.is_quick() { 16 } else { 1 << 14 };
    let rounds = work(&bench, 0x50ac, Duration::from_secs(climb.args.soak), most)?;
    let nothing = bench.load("nothing")?;
    let count = if climb.is_quick() { 20 } else { 1000 };
    let mut times = Vec::new();
    for _ in 0..count {
        let began = Instant::now();
        bench.run(&nothing, vec![], [1; 3], [32, 1, 1])?;
        times.push(began.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    let bytes = vec![7u8; if climb.is_quick() { 4 << 20 } else { 256 << 20 }];
    let memory = bench.device.alloc(bytes.len() as u64)?;
    let mut back = bytes.clone();
    let began = Instant::now();
    bench.device.copy_in(&memory, 0, &bytes)?;
    bench.device.synchronize(climb.patience())?;
    let (to, began_out) = (began.elapsed(), Instant::now());
    bench.device.copy_out(&memory, 0, &mut back)?;
    let from = began_out.elapsed();
    let rate = |took: Duration| bytes.len() as f64 / took.as_secs_f64() / 1e9;
    drop((memory, nothing));
    bench.close()?;
    Ok(format!(
        "{rounds} rounds right; launch to seen {:.1} us (median), to the card {:.2} GB/s, back {:.2} GB/s",
        times[times.len() / 2],
        rate(to),
        rate(from)
    ))
}
