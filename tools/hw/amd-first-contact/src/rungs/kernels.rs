//! Machine code: from the shortest kernel to full workgroups, each checked word for word.

use crate::code::{self, Needs};
use crate::explain::{Failure, fail};
use crate::ladder::Climb;
use doorbell::device::amd::{AmdDevice, Selector};
use doorbell::device::{Arg, Code, Command, Device, Geometry, Kernel, KernelImage, Memory, QueueKind};
use std::time::Duration;

/// A device with what launches need.
pub struct Bench {
    pub device: AmdDevice,
    pub patience: Duration,
}

impl Bench {
    /// # Errors
    /// The device's.
    pub fn open(climb: &Climb) -> Result<Self, Failure> {
        let (node, _) = climb.node()?;
        let selector = Selector::Bdf(node.bdf());
        let device = AmdDevice::open("AMD", climb.driver()?, &selector, &climb.options())?;
        Ok(Self { device, patience: climb.patience() })
    }

    /// # Errors
    /// The device's.
    pub fn load(&self, text: &str, needs: Needs) -> Result<Kernel, Failure> {
        let image = code::image(&self.device.info().arch, text, needs)?;
        let mut kernels = self.device.load(&[KernelImage { name: "rung", code: Code::Raw(&image) }])?;
        kernels.pop().ok_or_else(|| "the device loaded nothing".into())
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
    pub fn run(&self, kernel: &Kernel, args: Vec<Arg>, groups: [u32; 3], local: [u32; 3]) -> Result<(), Failure> {
        let launch = Command::exec(kernel, args, 1).over(Geometry::of(groups, local));
        let point = self.device.submit(QueueKind::Compute, &[launch])?;
        Ok(self.device.wait(&point, self.patience)?)
    }

    /// # Errors
    /// The result of closing.
    pub fn close(self) -> Result<(), Failure> {
        Ok(self.device.close()?)
    }
}

fn expect(what: &str, seen: &[u32], wanted: impl Fn(usize) -> u32) -> Result<(), Failure> {
    match seen.iter().enumerate().find(|(at, word)| **word != wanted(*at)) {
        None => Ok(()),
        Some((at, word)) => Err(format!("{what}: word {at} is {word:#x}, not {:#x}", wanted(at)).into()),
    }
}

fn buffer(memory: &Memory) -> Arg {
    Arg::Buffer(memory.at(0))
}

pub fn kernels(climb: &mut Climb) -> Result<String, Failure> {
    let bench = Bench::open(climb)?;
    let one = ([1; 3], [1; 3]);
    bench.run(&bench.load(code::END, Needs::default())?, vec![], one.0, one.1)?;
    let out = bench.words(&[0; 64])?;
    let store = bench.load(code::STORE, Needs::default())?;
    bench.run(&store, vec![buffer(&out)], one.0, one.1)?;
    expect("a constant", &bench.read(&out)?[..1], |_| 0x600d)?;
    let entry = store.entry();
    drop(store);
    // Very likely at the same address: old instructions in a cache would run again.
    let argument = bench.load(code::STORE_ARGUMENT, Needs::default())?;
    for value in [0x0bad_cafe_u32, 0x1234_5678] {
        bench.run(&argument, vec![buffer(&out), Arg::Var(value.into())], one.0, one.1)?;
        expect("an argument", &bench.read(&out)?[..1], |_| value)?;
    }
    let reused = if argument.entry() == entry { "an address used again" } else { "another address" };
    ids(&bench)?;
    vector_add(&bench)?;
    bench.close()?;
    Ok(format!("end, store, arguments at {reused}, ids in three dimensions, vector add"))
}

/// Every work-item's group and own numbers, in grids of one, two and three dimensions.
fn ids(bench: &Bench) -> Result<(), Failure> {
    let kernel = bench.load(code::IDS, Needs::default())?;
    for [x, y, z] in [[5, 1, 1], [3, 4, 1], [2, 3, 5]] {
        let out = bench.words(&vec![0; (x * y * z * 128) as usize])?;
        let extent = Arg::Var(i64::from(x) | i64::from(y) << 32);
        bench.run(&kernel, vec![buffer(&out), extent], [x, y, z], [8, 4, 2])?;
        let wanted = |at: usize| {
            let (group, item) = (at as u32 / 128, at as u32 % 128 / 2);
            let groups = (group % x) | ((group / x % y) << 8) | ((group / x / y) << 16);
            let items = (item % 8) | ((item / 8 % 4) << 10) | ((item / 32) << 20);
            if at.is_multiple_of(2) { groups } else { items }
        };
        expect(&format!("ids of a grid of {x} x {y} x {z}"), &bench.read(&out)?, wanted)?;
    }
    Ok(())
}

fn vector_add(bench: &Bench) -> Result<(), Failure> {
    let (n, word) = (64 * 33, |i: usize, seed: u32| (i as u32).wrapping_mul(0x9e37_79b9) ^ seed);
    let a = bench.words(&(0..n).map(|i| word(i, 1)).collect::<Vec<_>>())?;
    let b = bench.words(&(0..n).map(|i| word(i, 2)).collect::<Vec<_>>())?;
    let add = bench.load(code::ADD, Needs::default())?;
    bench.run(&add, vec![buffer(&a), buffer(&b)], [33, 1, 1], [64, 1, 1])?;
    expect("vector add", &bench.read(&a)?, |i| word(i, 1).wrapping_add(word(i, 2)))
}

pub fn waves(climb: &mut Climb) -> Result<String, Failure> {
    let bench = Bench::open(climb)?;
    let out = bench.words(&[0; 1024])?;
    let lds = bench.load(code::LDS, Needs { lds_bytes: 4096, ..Needs::default() })?;
    bench.run(&lds, vec![buffer(&out)], [1; 3], [1024, 1, 1])?;
    expect("LDS across a barrier of 1024", &bench.read(&out)?, |i| 1023 - i as u32)?;
    let counter = bench.words(&[0])?;
    let groups = if climb.is_quick() { 16 } else { 1024 };
    bench.run(&bench.load(code::ATOMIC, Needs::default())?, vec![buffer(&counter)], [groups, 1, 1], [256, 1, 1])?;
    expect("an atomic counter", &bench.read(&counter)?, |_| groups * 256)?;
    let full = if climb.is_quick() { 64 } else { 32 * climb.node()?.0.cu_count() as u32 };
    let lanes = bench.words(&vec![0; (full * 64) as usize])?;
    let scratch = bench.load(code::SCRATCH, Needs { scratch_bytes: 64, ..Needs::default() })?;
    bench.run(&scratch, vec![buffer(&lanes)], [full, 1, 1], [64, 1, 1])?;
    expect("every lane's own scratch", &bench.read(&lanes)?, |i| i as u32)?;
    let few = bench.words(&[0; 32])?;
    let registers = bench.load(code::REGISTERS, Needs { vgprs: 256, ..Needs::default() })?;
    bench.run(&registers, vec![buffer(&few)], [1; 3], [32, 1, 1])?;
    expect("the last of 256 registers", &bench.read(&few)?, |i| i as u32 ^ 0x55)?;
    bench.run(&bench.load(code::PERMUTE, Needs::default())?, vec![buffer(&few)], [1; 3], [32, 1, 1])?;
    expect("lanes permuted", &bench.read(&few)?, |i| 31 - i as u32)?;
    bench.close().map_err(|e| fail(e.what))?;
    Ok(format!("LDS of 1024, {groups} x 256 atomics, scratch of {full} groups, 256 registers, permute"))
}
