//! Machine code through the runtime: from the shortest kernel to clusters, each checked word for word.

use crate::code::{PTXAS_SM90, PTXAS_TMA, cubin};
use crate::ladder::Climb;
use doorbell::device::nv::{NvDevice, Selector};
use doorbell::device::{Arg, Code, Command, Device, Geometry, Kernel, KernelImage, Memory, Patch, QueueKind};
use doorbell::isa::sass::tensor_map::Swizzle;
use hw_contact::Failure;
use std::time::{Duration, Instant};

/// A device with what launches need.
pub struct Bench {
    pub device: NvDevice,
    pub patience: Duration,
    cubin: Vec<u8>,
}

impl Bench {
    /// # Errors
    /// The device's, the assembler's.
    pub fn open(climb: &Climb) -> Result<Self, Failure> {
        let card = climb.card.as_ref().ok_or("the rung card was left out")?;
        let selector = Selector::Bdf(card.bdf.clone());
        Self::of(NvDevice::open("NV", climb.driver()?, &selector, &climb.options())?, climb)
    }

    /// A device that is open, with the climb's kernels.
    ///
    /// # Errors
    /// The assembler's.
    pub fn of(device: NvDevice, climb: &Climb) -> Result<Self, Failure> {
        let cubin = cubin(climb, &device.info().arch)?;
        Ok(Self { device, patience: climb.patience(), cubin })
    }

    /// # Errors
    /// The device's.
    pub fn load_from(&self, bytes: &[u8], name: &str) -> Result<Kernel, Failure> {
        let mut kernels = self.device.load(&[KernelImage { name, code: Code::Elf { bytes, entry: name } }])?;
        kernels.pop().ok_or_else(|| "the device loaded nothing".into())
    }

    /// # Errors
    /// The device's.
    pub fn load(&self, name: &str) -> Result<Kernel, Failure> {
        self.load_from(&self.cubin, name)
    }

    /// # Errors
    /// The device's.
    pub fn words(&self, values: &[u32]) -> Result<Memory, Failure> {
        let memory = self.device.alloc(values.len() as u64 * 4)?;
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.device.copy_in(&memory, 0, &bytes)?;
        Ok(memory)
    }

    /// # Errors
    /// The device's.
    pub fn read(&self, memory: &Memory) -> Result<Vec<u32>, Failure> {
        let mut bytes = vec![0; memory.len_bytes() as usize];
        self.device.copy_out(memory, 0, &mut bytes)?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect())
    }

    /// Runs one launch to its end.
    ///
    /// # Errors
    /// The device's: the report of a launch that does not end, too.
    pub fn run(&self, kernel: &Kernel, args: Vec<Arg>, grid: [u32; 3], block: [u32; 3]) -> Result<(), Failure> {
        self.run_with(kernel, args, Geometry::of(grid, block))
    }

    fn run_with(&self, kernel: &Kernel, args: Vec<Arg>, geometry: Geometry) -> Result<(), Failure> {
        let launch = Command::exec(kernel, args, 1).over(geometry);
        let point = self.device.submit(QueueKind::Compute, &[launch])?;
        Ok(self.device.wait(&point, self.patience)?)
    }

    /// # Errors
    /// The result of closing.
    pub fn close(self) -> Result<(), Failure> {
        Ok(self.device.close()?)
    }
}

/// The run's device; opened by the first rung, and again after one that failed.
pub fn bench(climb: &mut Climb) -> Result<&Bench, Failure> {
    if climb.bench.is_none() {
        climb.let_go();
        climb.bench = Some(Bench::open(climb)?);
    }
    climb.bench.as_ref().ok_or_else(|| "no device".into())
}

pub fn expect(what: &str, seen: &[u32], wanted: impl Fn(usize) -> u32) -> Result<(), Failure> {
    match seen.iter().enumerate().find(|(at, word)| **word != wanted(*at)) {
        None => Ok(()),
        Some((at, word)) => Err(format!("{what}: word {at} is {word:#x}, not {:#x}", wanted(at)).into()),
    }
}

pub fn buffer(memory: &Memory) -> Arg {
    Arg::Buffer(memory.at(0))
}

pub fn launch(climb: &mut Climb) -> Result<String, Failure> {
    let began = Instant::now();
    let bench = bench(climb)?;
    let opened = began.elapsed();
    let nothing = bench.load("nothing")?;
    bench.run(&nothing, vec![], [1; 3], [1; 3])?;
    let first = began.elapsed();
    bench.run(&nothing, vec![], [132, 1, 1], [1024, 1, 1])?;
    let ms = |took: Duration| took.as_secs_f64() * 1e3;
    Ok(format!("opened in {:.1} ms, first kernel done after {:.1} ms", ms(opened), ms(first)))
}

pub fn store(climb: &mut Climb) -> Result<String, Failure> {
    let bench = bench(climb)?;
    let out = bench.words(&[0; 64])?;
    let store = bench.load("store")?;
    bench.run(&store, vec![buffer(&out)], [1; 3], [1; 3])?;
    expect("a constant", &bench.read(&out)?[..1], |_| 0x600d)?;
    let entry = store.entry();
    drop(store);
    // Very likely at the same address: old instructions in a cache would run again.
    let argument = bench.load("argument")?;
    for value in [0x0bad_cafe_u32, 0x1234_5678] {
        bench.run(&argument, vec![buffer(&out), Arg::Var(value.into())], [1; 3], [1; 3])?;
        expect("an argument", &bench.read(&out)?[..1], |_| value)?;
    }
    let reused =
        if argument.entry() & !0xffff == entry & !0xffff { "an address used again" } else { "another address" };
    Ok(format!("a constant, arguments at {reused}"))
}

pub fn ids(climb: &mut Climb) -> Result<String, Failure> {
    let bench = bench(climb)?;
    let kernel = bench.load("ids")?;
    for [x, y, z] in [[5, 1, 1], [3, 4, 1], [2, 3, 5]] {
        let out = bench.words(&vec![0; (x * y * z * 128) as usize])?;
        bench.run(&kernel, vec![buffer(&out)], [x, y, z], [8, 4, 2])?;
        let wanted = |at: usize| {
            let (block, thread) = (at as u32 / 128, at as u32 % 128 / 2);
            let blocks = (block % x) | ((block / x % y) << 8) | ((block / x / y) << 16);
            let threads = (thread % 8) | ((thread / 8 % 4) << 10) | ((thread / 32) << 20);
            if at.is_multiple_of(2) { blocks } else { threads }
        };
        expect(&format!("numbers of a grid of {x} x {y} x {z}"), &bench.read(&out)?, wanted)?;
    }
    let (n, word) = (64 * 33, |i: usize, seed: u32| (i as u32).wrapping_mul(0x9e37_79b9) ^ seed);
    let a = bench.words(&(0..n).map(|i| word(i, 1)).collect::<Vec<_>>())?;
    let b = bench.words(&(0..n).map(|i| word(i, 2)).collect::<Vec<_>>())?;
    bench.run(&bench.load("add")?, vec![buffer(&a), buffer(&b)], [33, 1, 1], [64, 1, 1])?;
    expect("vector add", &bench.read(&a)?, |i| word(i, 1).wrapping_add(word(i, 2)))?;
    Ok("block and thread numbers in three dimensions, vector add".into())
}

pub fn shared(climb: &mut Climb) -> Result<String, Failure> {
    let most = climb.core().map(|core| core.gpu.chip.shared_max_bytes).ok();
    let bench = bench(climb)?;
    let most = most.unwrap_or(bench.device.gpu().chip.shared_max_bytes);
    let out = bench.words(&[0; 1024])?;
    bench.run(&bench.load("shared")?, vec![buffer(&out)], [1; 3], [1024, 1, 1])?;
    expect("shared memory across barriers of 1024", &bench.read(&out)?, |i| 1023 - i as u32)?;
    let dynamic = bench.load("dynamics")?;
    let few = bench.words(&[0; 32])?;
    for bytes in [4096, 48 << 10, most] {
        let geometry = Geometry { local_bytes: bytes, ..Geometry::of([2, 1, 1], [32, 1, 1]) };
        bench.run_with(&dynamic, vec![buffer(&few), Arg::Var(i64::from(bytes))], geometry)?;
        let wanted = |i: usize| (31 - i as u32) | ((31 - i as u32) ^ 0x55) << 16;
        expect(&format!("both ends of {bytes} bytes of dynamic shared memory"), &bench.read(&few)?, wanted)?;
    }
    Ok(format!("4 KiB with barriers of 1024 threads, dynamic up to {} KiB", most >> 10))
}

pub fn local(climb: &mut Climb) -> Result<String, Failure> {
    let is_quick = climb.is_quick();
    let bench = bench(climb)?;
    let blocks = if is_quick { 8 } else { 8 * bench.device.info().threads };
    let out = bench.words(&vec![0; (blocks * 256) as usize])?;
    bench.run(&bench.load("stack")?, vec![buffer(&out)], [blocks, 1, 1], [256, 1, 1])?;
    expect("every thread's own stack", &bench.read(&out)?, |i| i as u32)?;
    Ok(format!("stacks of 2 KiB in {} threads", blocks * 256))
}

pub fn globals(climb: &mut Climb) -> Result<String, Failure> {
    let is_quick = climb.is_quick();
    let bench = bench(climb)?;
    let out = bench.words(&[0; 64])?;
    bench.run(&bench.load("globals")?, vec![buffer(&out)], [1; 3], [64, 1, 1])?;
    expect("a constant table and a variable", &bench.read(&out)?, |i| 11 * (i as u32 % 4 + 1) + 7)?;
    let counter = bench.words(&[0])?;
    let blocks = if is_quick { 16 } else { 1024 };
    bench.run(&bench.load("atomics")?, vec![buffer(&counter)], [blocks, 1, 1], [256, 1, 1])?;
    expect("an atomic counter", &bench.read(&counter)?, |_| blocks * 256)?;
    Ok(format!("a table in bank 3, a variable with its first value, {blocks} x 256 atomics"))
}

pub fn chain(climb: &mut Climb) -> Result<String, Failure> {
    let is_quick = climb.is_quick();
    let bench = bench(climb)?;
    let (a, b, c) = (bench.words(&[0; 64])?, bench.words(&[1; 64])?, bench.words(&[100; 64])?);
    let add = bench.load("add")?;
    let geometry = Geometry::of([1; 3], [64, 1, 1]);
    let one = || Command::exec(&add, vec![buffer(&a), buffer(&b)], 1).over(geometry);
    let length = if is_quick { 16 } else { 256 };
    let commands: Vec<Command> = (0..length).map(|_| one()).collect();
    let mut list = bench.device.record(&commands)?;
    for _ in 0..10 {
        list.replay(&[])?;
    }
    expect("a chain, ten times", &bench.read(&a)?, |_| 10 * length)?;
    let patch = Patch::Arg { command: 1, arg: 1, value: buffer(&c) };
    list.replay(&[patch])?;
    expect("a chain with another argument", &bench.read(&a)?, |_| 10 * length + length - 1 + 100)?;
    Ok(format!("{length} QMDs in a row, replayed ten times, then with another argument"))
}

pub fn clusters(climb: &mut Climb) -> Result<String, Failure> {
    let bench = bench(climb)?;
    let chip = bench.device.gpu().chip;
    if let Some(why) = not_here(chip) {
        return Ok(why);
    }
    let out = bench.words(&(0..256).collect::<Vec<_>>())?;
    for (name, value, blocks, threads) in [("stack", 100_i64, 1, 256), ("clusters", -7, 4, 64), ("add", 5, 4, 64)] {
        let kernel = bench.load_from(PTXAS_SM90, name)?;
        bench.run(&kernel, vec![buffer(&out), Arg::Var(value)], [blocks, 1, 1], [threads, 1, 1])?;
    }
    expect("ptxas's own kernels", &bench.read(&out)?, |i| i as u32 + 98)?;
    Ok("ptxas's cubin: a stack, clusters of two, an addition".into())
}

/// Why a cubin for sm_90 is not run on another chip.
pub fn not_here(chip: &doorbell::device::nv::Chip) -> Option<String> {
    (chip.name != "sm_90").then(|| format!("nothing here for {}: the cubin is for sm_90", chip.name))
}

pub fn bulk(climb: &mut Climb) -> Result<String, Failure> {
    let bench = bench(climb)?;
    if let Some(why) = not_here(bench.device.gpu().chip) {
        return Ok(why);
    }
    let word = |i: usize| (i as u32).wrapping_mul(0x9e37_79b9);
    let (from, to) = (bench.words(&(0..1024).map(word).collect::<Vec<_>>())?, bench.words(&[0; 1024])?);
    let kernel = bench.load_from(PTXAS_TMA, "bulk")?;
    bench.run(&kernel, vec![buffer(&from), buffer(&to)], [1; 3], [128, 1, 1])?;
    expect("4 KiB to shared memory and back", &bench.read(&to)?, |i| word(i).wrapping_add(1))?;
    Ok("4 KiB to shared memory and back, told by an mbarrier".into())
}

pub fn tensor(climb: &mut Climb) -> Result<String, Failure> {
    let bench = bench(climb)?;
    if let Some(why) = not_here(bench.device.gpu().chip) {
        return Ok(why);
    }
    let word = |i: usize| i as u32 ^ 0x5a00_0000;
    let (map, out) = (bench.words(&[0; 32])?, bench.words(&[0; 128])?);
    let from = bench.words(&(0..64 * 32).map(word).collect::<Vec<_>>())?;
    let kernel = bench.load_from(PTXAS_TMA, "tensor")?;
    bench.run(&kernel, vec![buffer(&map), buffer(&from), buffer(&out)], [1; 3], [32, 1, 1])?;
    expect("a box of a tensor", &bench.read(&out)?, |i| word((i / 16 + 4) * 64 + i % 16 + 8))?;
    let made: Vec<u8> = bench.read(&map)?.iter().flat_map(|word| word.to_le_bytes()).collect();
    let sizes = super::boxes::Sizes { columns: 64, rows: 32, across: 16, down: 8 };
    super::boxes::compare(&made, &sizes.map(from.va(), Swizzle::None)?)?;
    Ok("a box of 16 by 8 words by a map that the kernel made, bit for bit as ours".into())
}
