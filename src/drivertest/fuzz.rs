//! A fuzzer of drivers that knows chains: what a call answers, a handle, an id, a file, later calls take. It needs no
//! GPU: it runs on the drivers in software, and keeps what reached something new there.
//!
//! A program is segments of a seed and a number of calls. The drivers have no counters of branches; new is a pair of
//! calls in a row with their outcomes that no program had before. A failing program is recorded, and shrinks to the
//! calls that `doorbell replay` needs to show it.

use crate::case::Change;
use crate::mutant::call_of;
use crate::target::{Driver, Machine, Target};
use doorbell_emu::{kfd as soft_kfd, nvrm as soft_nv};
use doorbell_ioctl::abi::{self, Desc, Dir, FieldDesc, Kind, Layout, chosen, kfd, nvrm, uvm};
use doorbell_ioctl::port::{CpuPtr, Errno, Fd, MapRequest, Mapped, OpenFlags, Port, write_process};
use doorbell_ioctl::trace::{Event, Log, Trace, What};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A program: seeds, and how many calls each makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program(pub Vec<(u64, usize)>);

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.below(from.len())])
    }
}

/// What a program has come by, by kind.
struct World {
    port: Arc<dyn Port>,
    driver: Driver,
    files: Vec<Fd>,
    known: BTreeMap<&'static str, Vec<u64>>,
    /// Memory that pointers lead to.
    scratch: Arc<Mapped>,
}

/// The pool of a field's values.
fn pool(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Handle => Some("handle"),
        Kind::GpuId => Some("gpu"),
        Kind::QueueId => Some("queue"),
        Kind::EventId => Some("event"),
        Kind::MapOffset => Some("offset"),
        _ => None,
    }
}

/// Values that limits are made of.
const ODD: &[u64] = &[
    0,
    1,
    2,
    3,
    7,
    8,
    0x1f,
    64,
    100,
    0x400,
    0x1000,
    0x2000,
    0x1_0000,
    2 << 20,
    1 << 30,
    1 << 32,
    0x7000_0000,
    0x20_0000_0000,
    0x8000_0000_0000,
    u32::MAX as u64,
    i64::MAX as u64,
    !0xfff,
    u64::MAX,
];

impl World {
    fn new(machine: &Machine, port: Arc<dyn Port>, driver: Driver) -> Result<Self, Errno> {
        let scratch = Arc::new(Mapped::new(&port, &MapRequest::anonymous_shared(1 << 16))?);
        let mut world = Self { port, driver, files: Vec::new(), known: BTreeMap::new(), scratch };
        let paths: &[&str] = match driver {
            Driver::Kfd => &["/dev/kfd", "/dev/dri/renderD128"],
            Driver::Nv => &["/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm", "/dev/nvidia-uvm"],
        };
        for path in paths {
            world.files.push(world.port.open(path, OpenFlags::DEVICE)?);
        }
        if driver == Driver::Kfd {
            let cards = crate::kfd::client::cards(&*machine.port());
            let ids: Vec<u64> = cards.into_iter().map(|(id, _)| u64::from(id)).collect();
            // Lists of cards that pointers lead to.
            for page in 0..8 {
                let at = world.scratch.base().offset(4096 * page);
                write_process(at, &(ids.first().copied().unwrap_or(0) as u32).to_ne_bytes())?;
            }
            world.known.insert("gpu", ids);
        }
        Ok(world)
    }

    /// The calls that a file takes, and the file.
    fn choose(&self, draw: &mut Draw) -> (Fd, &'static Desc) {
        let tables: &[(usize, &[&'static Desc])] = match self.driver {
            Driver::Kfd => &[(0, kfd::TABLE), (0, kfd::TABLE), (0, kfd::TABLE), (1, abi::drm::TABLE)],
            Driver::Nv => &[(0, nvrm::TABLE), (0, nvrm::TABLE), (0, nvrm::TABLE), (1, nvrm::TABLE), (2, uvm::TABLE)],
        };
        let (file, table) = tables[draw.below(tables.len())];
        // Allocations first: most of RM's calls need objects, and commands are most of its calls.
        let common: &[&'static Desc] = match self.driver {
            Driver::Kfd => &[
                &kfd::ACQUIRE_VM.desc,
                &kfd::ALLOC_MEMORY_OF_GPU.desc,
                &kfd::MAP_MEMORY_TO_GPU.desc,
                &kfd::CREATE_EVENT.desc,
            ],
            Driver::Nv => &[&nvrm::ALLOC.desc, &nvrm::CONTROL.desc, &nvrm::CONTROL.desc],
        };
        let desc = if file == 0 && draw.below(3) > 0 { draw.pick(common) } else { draw.pick(table) };
        // PANIC: no table is empty.
        (self.files[file], desc.expect("a table of calls"))
    }

    fn value(&self, draw: &mut Draw, field: &FieldDesc) -> u64 {
        let from = |draw: &mut Draw, name: &str| draw.pick(self.known.get(name).map_or(&[][..], Vec::as_slice));
        if field.name.starts_with("timeout") {
            return draw.next() % 3;
        }
        match field.name {
            "size" | "length" if draw.below(4) > 0 => return 0x1000 << draw.below(5),
            "n_devices" if draw.below(4) > 0 => return 1,
            "n_success" if draw.below(4) > 0 => return 0,
            _ => {}
        }
        match field.kind {
            Kind::Reserved => 0,
            // The driver writes there: this process's own memory, or none.
            Kind::Pointer => match draw.below(8) {
                0 => 0,
                1 => 8,
                _ => self.scratch.base().0 + 4096 * draw.below(8) as u64,
            },
            Kind::Fd => draw.pick(&self.files).map_or(u64::MAX, |fd| u64::from(fd.0.cast_unsigned())),
            Kind::Choice(among) => draw.pick(among).map_or(0, |choice| choice.value.into()),
            Kind::Flags(values) | Kind::Enum(values) if draw.below(4) > 0 => {
                let one = draw.pick(values).map_or(0, |(value, _)| value);
                let other = draw.pick(values).map_or(0, |(value, _)| value);
                if matches!(field.kind, Kind::Flags(_)) { one | other } else { one }
            }
            Kind::Address if draw.below(2) == 0 => 0x7000_0000 + 0x10_0000 * (draw.next() % 16),
            Kind::Dec if draw.below(4) > 0 => draw.next() % 4,
            kind => match pool(kind) {
                Some(name) if draw.below(8) > 0 => from(draw, name).unwrap_or(0),
                _ => draw.pick(ODD).unwrap_or(0),
            },
        }
    }

    fn fill(&self, draw: &mut Draw, layout: &Layout, bytes: &mut [u8]) {
        for field in layout.fields {
            if let Kind::Nested(inner) = field.kind {
                let span = field.offset as usize..(field.offset + inner.len_bytes) as usize;
                self.fill(draw, inner, &mut bytes[span]);
            } else if field.len_bytes == 16 {
                let uuid = self.known.get("uuid").and_then(|u| <[u64; 2]>::try_from(u.as_slice()).ok());
                bytes[field.span()].copy_from_slice(bytemuck::bytes_of(&uuid.unwrap_or([0; 2])));
            } else if field.dir != Dir::Out {
                let value = self.value(draw, field);
                field.write(bytes, |_| value);
            }
        }
    }

    /// The struct of the class or command, where the call points.
    fn fill_chosen(&self, draw: &mut Draw, desc: &Desc, bytes: &mut [u8]) {
        let choice = desc.layout.fields.iter().find_map(|f| match f.kind {
            Kind::Choice(among) => chosen(among, f.read(bytes)? as u32),
            _ => None,
        });
        let Some(layout) = choice.and_then(|choice| choice.layout) else { return };
        let mut inner = vec![0; layout.len_bytes as usize];
        self.fill(draw, layout, &mut inner);
        let at = self.scratch.base().0;
        if write_process(CpuPtr(at), &inner).is_err() {
            return;
        }
        for (name, value) in [("p_alloc_parms", at), ("params", at), ("params_size", layout.len_bytes.into())] {
            if let Some(field) = desc.layout.field(name) {
                field.write(bytes, |_| value);
            }
        }
    }

    /// One call.
    fn call(&mut self, draw: &mut Draw) {
        if draw.below(40) == 0 {
            return self.file(draw);
        }
        let (file, desc) = self.choose(draw);
        let mut bytes = vec![0; desc.layout.len_bytes as usize];
        self.fill(draw, desc.layout, &mut bytes);
        self.fill_chosen(draw, desc, &mut bytes);
        if self.port.ioctl(file, desc.request, &mut bytes).is_ok() {
            self.learn(desc.layout, &bytes);
        }
    }

    /// Opens one more file, or closes one that is not among the first.
    fn file(&mut self, draw: &mut Draw) {
        let first = if self.driver == Driver::Kfd { 2 } else { 4 };
        if self.files.len() > first && draw.below(2) == 0 {
            let at = first + draw.below(self.files.len() - first);
            let _closed_or_not = self.port.close(self.files.remove(at));
        } else if let Ok(fd) = self.port.open(if first == 2 { "/dev/kfd" } else { "/dev/nvidiactl" }, OpenFlags::DEVICE)
        {
            self.files.push(fd);
        }
    }

    /// Keeps what a call answered.
    fn learn(&mut self, layout: &Layout, bytes: &[u8]) {
        const KEPT: usize = 24;
        for field in layout.fields.iter().filter(|f| f.dir != Dir::In) {
            let (Some(name), Some(value)) = (pool(field.kind), field.read(bytes)) else { continue };
            let known = self.known.entry(name).or_default();
            if value != 0 && !known.contains(&value) {
                known.push(value);
            }
            if known.len() > KEPT {
                known.remove(0);
            }
        }
    }
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    /// The program.
    pub program: Program,
    /// In words.
    pub what: String,
    /// Its calls.
    pub events: Vec<Event>,
}

/// What a campaign has done.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Programs that were run.
    pub programs: u64,
    /// Calls that they made.
    pub calls: u64,
    /// Pairs of calls with their outcomes.
    pub pairs: usize,
    /// Programs that are kept, as each reached something new.
    pub corpus: usize,
    /// Calls, with RM's classes and commands, that succeeded at least once.
    pub reached: BTreeSet<(u32, Option<u32>)>,
    /// The first failure.
    pub crash: Option<Crash>,
}

/// A bug of the machine itself.
fn bug(machine: &Machine) -> Option<String> {
    match machine {
        Machine::Kernel(_) | Machine::NvProcess(_) => None,
        Machine::Kfd(machine) => {
            let all = machine.reports();
            all.iter().find(|r| r.kind == soft_kfd::ReportKind::Bug).map(ToString::to_string)
        }
        Machine::Nv(machine) => {
            let all = machine.reports();
            all.iter().find(|r| r.kind == soft_nv::ReportKind::Bug).map(ToString::to_string)
        }
    }
}

/// How a call ended: its errno or RM's status.
fn outcome(event: &Event) -> Option<((u32, Option<u32>), u64)> {
    let What::Ioctl(call) = &event.what else { return None };
    let desc = abi::find_form(call.request, call.after.len())?;
    let status =
        desc.layout.field("status").or_else(|| desc.layout.field("rm_status")).and_then(|f| f.read(&call.after));
    let end = match call.result {
        Ok(_) => status.unwrap_or(0),
        Err(errno) => 1 << 32 | u64::from(errno.0.cast_unsigned()),
    };
    Some((call_of(event)?, end))
}

/// Runs a program on a fresh machine: its calls, and what went wrong.
///
/// # Errors
/// The machine cannot be opened.
pub fn run(program: &Program, target: &Target) -> Result<(Vec<Event>, Option<String>), Errno> {
    let machine = target.open(Change::None, None)?;
    let log = Log::default();
    let port: Arc<dyn Port> = Trace::new(machine.port(), Box::new(log.clone()));
    let mut world = World::new(&machine, port, target.driver)?;
    let ran = catch_unwind(AssertUnwindSafe(|| {
        for (seed, calls) in &program.0 {
            let mut draw = Draw(*seed);
            (0..*calls).for_each(|_| world.call(&mut draw));
        }
    }));
    let wrong = match ran {
        Err(_) => Some("the driver panicked".to_owned()),
        Ok(()) => bug(&machine),
    };
    Ok((log.events(), wrong))
}

/// Runs so many programs, guided by what is new, until the first failure.
///
/// # Errors
/// The machine cannot be opened.
pub fn campaign(target: &Target, seed: u64, programs: u64) -> Result<Outcome, Errno> {
    const FRESH_CALLS: usize = 24;
    let mut done = Outcome::default();
    let (mut draw, mut seen, mut corpus) = (Draw(seed), BTreeSet::new(), Vec::<Program>::new());
    while done.programs < programs {
        let mut program = Program(vec![(draw.next(), 1 + draw.below(FRESH_CALLS))]);
        if draw.below(4) > 0
            && let Some(at) = (!corpus.is_empty()).then(|| draw.below(corpus.len()))
        {
            let mut longer = corpus[at].0.clone();
            longer.truncate(1 + draw.below(longer.len().min(6)));
            longer.append(&mut program.0);
            program = Program(longer);
        }
        let (events, wrong) = run(&program, target)?;
        done.programs += 1;
        if let Some(what) = wrong {
            done.crash = Some(Crash { program, what, events });
            break;
        }
        let outcomes: Vec<_> = events.iter().filter_map(outcome).collect();
        done.calls += outcomes.len() as u64;
        done.reached.extend(outcomes.iter().filter(|(_, end)| *end == 0).map(|(call, _)| *call));
        let before = seen.len();
        seen.extend(outcomes.windows(2).map(|pair| (pair[0], pair[1])));
        if seen.len() > before {
            corpus.push(program);
        }
    }
    (done.pairs, done.corpus) = (seen.len(), corpus.len());
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_makes_the_same_calls_each_time() {
        let target = Target::parse("AMD:emu=gfx1100").unwrap();
        let program = Program(vec![(7, 20), (8, 10)]);
        let calls = |_| run(&program, &target).unwrap().0.iter().filter_map(outcome).collect::<Vec<_>>();
        assert_eq!(calls(0), calls(1));
        assert!(calls(0).len() > 20);
    }

    #[test]
    fn chains_reach_what_needs_a_bound_card_and_objects() {
        let kfd = campaign(&Target::parse("AMD:emu=gfx1100").unwrap(), 1, 2000).unwrap();
        assert_eq!(kfd.crash, None);
        let reached = |request| kfd.reached.contains(&(request, None));
        assert!(reached(kfd::ALLOC_MEMORY_OF_GPU.desc.request), "{:x?}", kfd.reached);
        assert!(reached(kfd::MAP_MEMORY_TO_GPU.desc.request), "{:x?}", kfd.reached);
        let nv = campaign(&Target::parse("NV:emu=sm_90").unwrap(), 1, 2000).unwrap();
        assert_eq!(nv.crash, None);
        let classes = nv.reached.iter().filter(|(request, _)| *request == nvrm::ALLOC.desc.request).count();
        let commands = nv.reached.iter().filter(|(request, _)| *request == nvrm::CONTROL.desc.request).count();
        assert!(classes >= 2 && commands >= 1, "{classes} classes, {commands} commands");
    }
}
