//! Faults under which cases have to fail: defects of the software machine, and answers of a driver changed at its
//! calls, derived from the tables of calls.
//!
//! A mutant is one wrong thing, always: a call that does nothing, refuses, accepts what it should refuse, gives another
//! error, overlooks a field, or leaves one of its answers empty. `score` runs the cases under all of them.

use crate::target::{Defect, Driver};
use doorbell_emu::{kfd, nvrm};
use doorbell_ioctl::abi::nvrm as rm;
use doorbell_ioctl::abi::{self, Desc, Dir, FieldDesc, Kind, Layout, chosen, find_form, same_call};
use doorbell_ioctl::port::{CpuPtr, Errno, Fd, MapRequest, OpenFlags, PollFd, Port, read_process, write_process};
use doorbell_ioctl::trace::{Event, What};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// Request word of a call, and the class or command of RM's.
pub type CallId = (u32, Option<u32>);

/// Calls that were made, by how they ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Those that succeeded at least once.
    pub accepted: BTreeSet<CallId>,
    /// Those that were refused at least once.
    pub refused: BTreeSet<CallId>,
}

impl Calls {
    /// Adds a call with its end.
    pub fn add(&mut self, event: &Event) {
        let What::Ioctl(call) = &event.what else { return };
        let status = find_form(call.request, call.after.len()).and_then(status_of);
        let refused =
            |(field, at): (&FieldDesc, usize)| call.after.get(at..).and_then(|a| field.read(a)).unwrap_or(0) != 0;
        let ends =
            if call.result.is_err() || status.is_some_and(refused) { &mut self.refused } else { &mut self.accepted };
        ends.insert(id_of(call.request, &call.before));
    }

    /// The calls of both.
    pub fn join(&mut self, other: &Self) {
        self.accepted.extend(&other.accepted);
        self.refused.extend(&other.refused);
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = CallId> {
        self.accepted.union(&self.refused).copied()
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.iter().count()
    }
}

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// It is answered with success and does not reach the driver.
    Skip,
    /// It is refused and does not reach the driver.
    Refuse,
    /// A refusal of the driver becomes success.
    Accept,
    /// A refusal gets another error.
    OtherError,
    /// The driver sees 0 in a field, or 1 where 0 was.
    Overlook(&'static FieldDesc),
    /// The caller sees 0 in a field, or 1 where 0 was.
    Empty(&'static FieldDesc),
    /// The same in the struct that the call points at.
    EmptyPointed(&'static FieldDesc),
}

/// One wrong thing.
#[derive(Clone, Debug, PartialEq)]
pub enum Mutant {
    /// Of the software machine.
    Machine(Defect),
    /// A call, by id.
    Call(CallId, Effect),
    /// close(2) does nothing.
    CloseSkipped,
    /// munmap(2) is refused.
    UnmapRefused,
    /// mmap(2) of files is refused.
    MapRefused,
    /// Opening a file that is not there gives another error.
    OpenError,
    /// Stores to doorbells do not arrive.
    DoorbellLost,
    /// Numbers of the topology's properties are 0.
    TopologyZero,
}

/// ERANGE, which no driver gives here.
const ODD_ERROR: Errno = Errno(34);
/// RM's status for it: NV_ERR_GENERIC.
const ODD_STATUS: u64 = 0xffff;

fn name_of((request, choice): CallId) -> String {
    let desc = abi::find(request);
    let short = |name: &'static str| name.trim_start_matches("AMDKFD_IOC_").trim_start_matches("NV_ESC_").to_owned();
    let call = desc.map_or_else(|| format!("{request:#x}"), |d| short(d.name));
    let Some(choice) = choice else { return call };
    let named = chosen(rm::CONTROLS, choice).or_else(|| chosen(rm::CLASSES, choice)).map(|c| c.name);
    format!("{call}({})", named.map_or_else(|| format!("{choice:#x}"), str::to_owned))
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine(Defect::Kfd(defect)) => write!(f, "machine: {defect:?}"),
            Self::Machine(Defect::Nv(defect)) => write!(f, "machine: {defect:?}"),
            Self::CloseSkipped => f.write_str("close: does nothing"),
            Self::UnmapRefused => f.write_str("munmap: refuses"),
            Self::MapRefused => f.write_str("mmap: refuses"),
            Self::OpenError => f.write_str("open: gives another error"),
            Self::DoorbellLost => f.write_str("doorbell: lost"),
            Self::TopologyZero => f.write_str("topology: its numbers are 0"),
            Self::Call(id, effect) => {
                write!(f, "{}: ", name_of(*id))?;
                match effect {
                    Effect::Skip => f.write_str("does nothing"),
                    Effect::Refuse => f.write_str("refuses"),
                    Effect::Accept => f.write_str("accepts what it should refuse"),
                    Effect::OtherError => f.write_str("gives another error"),
                    Effect::Overlook(field) => write!(f, "overlooks {}", field.name),
                    Effect::Empty(field) => write!(f, "leaves {} empty", field.name),
                    Effect::EmptyPointed(field) => write!(f, "leaves {} of its struct empty", field.name),
                }
            }
        }
    }
}

impl Mutant {
    /// The defect of the machine, if it is one.
    #[must_use]
    pub fn defect(&self) -> Option<Defect> {
        if let Self::Machine(defect) = self { Some(*defect) } else { None }
    }

    /// Whether a case that makes these calls can notice it.
    #[must_use]
    pub fn concerns(&self, calls: &Calls) -> bool {
        match self {
            Self::Call(id, _) => calls.iter().any(|call| is(*id, call)),
            _ => true,
        }
    }
}

/// Whether a mutant's call is this one: without a choice it is every one of that number.
fn is(wanted: CallId, call: CallId) -> bool {
    same_call(wanted.0, call.0) && (wanted.1.is_none() || wanted.1 == call.1)
}

/// The id of a traced call.
#[must_use]
pub fn call_of(event: &Event) -> Option<CallId> {
    let What::Ioctl(call) = &event.what else { return None };
    Some(id_of(call.request, &call.before))
}

fn id_of(request: u32, arg: &[u8]) -> CallId {
    let Some(desc) = find_form(request, arg.len()) else { return (request, None) };
    let choice = desc.layout.fields.iter().find(|f| matches!(f.kind, Kind::Choice(_))).and_then(|f| f.read(arg));
    (desc.request, choice.map(|value| value as u32))
}

/// The field with the driver's own status, and where its struct begins.
fn status_of(desc: &Desc) -> Option<(&'static FieldDesc, usize)> {
    let named = |layout: &'static Layout| layout.field("status").or_else(|| layout.field("rm_status"));
    named(desc.layout).map(|field| (field, 0)).or_else(|| {
        desc.layout.fields.iter().find_map(|outer| match outer.kind {
            Kind::Nested(inner) => named(inner).map(|field| (field, outer.offset as usize)),
            _ => None,
        })
    })
}

/// Numbers and addresses that a call's mutants change: padding and what the tables do not describe are left alone.
fn mutable(field: &FieldDesc) -> bool {
    let whole = matches!(field.len_bytes, 1 | 2 | 4 | 8);
    whole
        && !matches!(field.kind, Kind::Reserved | Kind::Choice(_) | Kind::Nested(_) | Kind::Words)
        && !field.name.ends_with("status")
}

fn effects(desc: &'static Desc, choice: Option<u32>) -> Vec<Effect> {
    let mut all = vec![Effect::Skip, Effect::Refuse];
    if choice.is_some() {
        let pointed = [rm::CONTROLS, rm::CLASSES].into_iter().find_map(|among| chosen(among, choice?)?.layout);
        let outs = pointed.map_or(&[][..], |layout| layout.fields).iter();
        all.extend(outs.filter(|f| f.dir != Dir::In && mutable(f)).take(3).map(Effect::EmptyPointed));
        return all;
    }
    all.extend([Effect::Accept, Effect::OtherError]);
    for field in desc.layout.fields.iter().filter(|f| mutable(f)) {
        if field.dir != Dir::Out {
            all.push(Effect::Overlook(field));
        }
        if field.dir != Dir::In {
            all.push(Effect::Empty(field));
        }
    }
    all
}

/// Whether an effect changes anything at calls that ended as these did.
fn changes(effect: Effect, id: CallId, calls: &Calls) -> bool {
    match effect {
        Effect::Accept | Effect::OtherError => calls.refused.iter().any(|call| is(id, *call)),
        Effect::Empty(_) | Effect::EmptyPointed(_) => calls.accepted.iter().any(|call| is(id, *call)),
        Effect::Skip | Effect::Refuse | Effect::Overlook(_) => true,
    }
}

/// The mutants of a driver at the calls that its cases make. An answer that no call gets cannot be a wrong one: what
/// changes refusals is left out for calls that are never refused, and what changes answers for calls that always are.
#[must_use]
pub fn all(driver: Driver, calls: &Calls) -> Vec<Mutant> {
    let mut all: Vec<Mutant> = match driver {
        Driver::Kfd => kfd::Defect::ALL.iter().map(|d| Mutant::Machine(Defect::Kfd(*d))).collect(),
        Driver::Nv => nvrm::Defect::ALL.iter().map(|d| Mutant::Machine(Defect::Nv(*d))).collect(),
    };
    if driver == Driver::Kfd {
        all.push(Mutant::TopologyZero);
    }
    all.extend([
        Mutant::CloseSkipped,
        Mutant::UnmapRefused,
        Mutant::MapRefused,
        Mutant::OpenError,
        Mutant::DoorbellLost,
    ]);
    let mut ids: Vec<CallId> =
        calls.iter().flat_map(|(request, choice)| [(request, None), (request, choice)]).collect();
    ids.sort_unstable();
    ids.dedup();
    for id in ids {
        // What the tables do not know has no fields to change.
        if let Some(desc) = abi::all().find(|d| d.request == id.0) {
            let real = effects(desc, id.1).into_iter().filter(|effect| changes(*effect, id, calls));
            all.extend(real.map(|effect| Mutant::Call(id, effect)));
        }
    }
    all
}

/// A port with a mutant of its calls.
#[derive(Debug)]
pub struct Mutated {
    inner: Arc<dyn Port>,
    mutant: Mutant,
}

impl Mutated {
    /// `inner` with this mutant.
    #[must_use]
    pub fn over(inner: Arc<dyn Port>, mutant: Mutant) -> Arc<dyn Port> {
        Arc::new(Self { inner, mutant })
    }

    fn changed(&self, effect: Effect, fd: Fd, request: u32, arg: &mut [u8]) -> Result<i32, Errno> {
        let status = find_form(request, arg.len()).and_then(status_of);
        let fail = |arg: &mut [u8]| match status {
            Some((field, at)) if arg.len() > at => {
                field.write(&mut arg[at..], |_| ODD_STATUS);
                Ok(0)
            }
            _ => Err(ODD_ERROR),
        };
        match effect {
            Effect::Skip => return Ok(0),
            Effect::Refuse => return fail(arg),
            Effect::Overlook(field) => field.write(arg, flip),
            _ => {}
        }
        let result = self.inner.ioctl(fd, request, arg);
        let refused =
            result.is_err() || status.is_some_and(|(f, at)| arg.get(at..).and_then(|a| f.read(a)).unwrap_or(0) != 0);
        match effect {
            Effect::Accept if refused => {
                if let Some((field, at)) = status.filter(|(_, at)| arg.len() > *at) {
                    field.write(&mut arg[at..], |_| 0);
                }
                return Ok(0);
            }
            Effect::OtherError if refused => return fail(arg),
            Effect::Empty(field) if !refused => field.write(arg, flip),
            Effect::EmptyPointed(field) if !refused => empty_pointed(request, arg, field),
            _ => {}
        }
        result
    }
}

/// Nothing where something was, something where nothing was.
fn flip(value: u64) -> u64 {
    u64::from(value == 0)
}

fn empty_pointed(request: u32, arg: &[u8], field: &FieldDesc) {
    let pointer = find_form(request, arg.len()).and_then(|desc| desc.embedded.first().map(|e| (desc, e.pointer)));
    let at = pointer.and_then(|(desc, name)| desc.layout.field(name)?.read(arg)).filter(|at| *at != 0);
    let Some(at) = at else { return };
    let place = CpuPtr(at).offset(field.offset.into());
    let mut bytes = vec![0; field.len_bytes as usize];
    if read_process(place, &mut bytes).is_ok() {
        let was = bytes.iter().any(|byte| *byte != 0);
        bytes.fill(0);
        bytes[0] = u8::from(!was);
        let _stays_as_it_is = write_process(place, &bytes);
    }
}

impl Port for Mutated {
    fn open(&self, path: &str, flags: OpenFlags) -> Result<Fd, Errno> {
        let opened = self.inner.open(path, flags);
        if self.mutant == Mutant::OpenError { opened.map_err(|_| ODD_ERROR) } else { opened }
    }

    fn close(&self, fd: Fd) -> Result<(), Errno> {
        if self.mutant == Mutant::CloseSkipped { Ok(()) } else { self.inner.close(fd) }
    }

    fn ioctl(&self, fd: Fd, request: u32, arg: &mut [u8]) -> Result<i32, Errno> {
        match &self.mutant {
            Mutant::Call(id, effect) if is(*id, id_of(request, arg)) => self.changed(*effect, fd, request, arg),
            _ => self.inner.ioctl(fd, request, arg),
        }
    }

    fn mmap(&self, map: &MapRequest) -> Result<CpuPtr, Errno> {
        if self.mutant == Mutant::MapRefused && map.fd.is_some() {
            return Err(ODD_ERROR);
        }
        self.inner.mmap(map)
    }

    fn munmap(&self, addr: CpuPtr, len_bytes: u64) -> Result<(), Errno> {
        if self.mutant == Mutant::UnmapRefused {
            return Err(ODD_ERROR);
        }
        self.inner.munmap(addr, len_bytes)
    }

    fn poll(&self, fds: &mut [PollFd], timeout_ms: i32) -> Result<usize, Errno> {
        self.inner.poll(fds, timeout_ms)
    }

    fn read_file(&self, path: &str) -> Result<Vec<u8>, Errno> {
        let bytes = self.inner.read_file(path)?;
        if self.mutant != Mutant::TopologyZero || !path.ends_with("/properties") {
            return Ok(bytes);
        }
        let zero = |line: &str| line.split_once(' ').map_or_else(String::new, |(name, _)| format!("{name} 0\n"));
        Ok(String::from_utf8_lossy(&bytes).lines().map(zero).collect::<String>().into_bytes())
    }

    fn read_dir(&self, path: &str) -> Result<Vec<String>, Errno> {
        self.inner.read_dir(path)
    }

    fn page_bytes(&self) -> u64 {
        self.inner.page_bytes()
    }

    fn doorbell(&self, at: CpuPtr, value: u64) {
        if self.mutant != Mutant::DoorbellLost {
            self.inner.doorbell(at, value);
        }
    }
}
