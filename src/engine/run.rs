//! Runs a schedule on its devices: allocates its buffers, gets kernels from the cache, and makes one submission for
//! each run of items on a device that no other waits for in between (`batches`).

use super::batches::batches;
use super::jit_capture::{Capture, Facts, capturing};
use super::kernels::Compiled;
use super::launch;
use super::memory::{AllocationId, allocation_id};
use super::session::OpenDevice;
use super::{Error, JitError, Session};
use crate::codegen::{Estimates, ParamInfo};
use crate::device::{Command, Location, QueueKind};
use crate::explorer::{Label, LabelKind};
use crate::hcq::signal::host_ns;
use crate::isa::Argument;
use crate::schedule::{self, Schedule, ScheduleItem};
use crate::tensor::{FileRange, HostBytes};
use crate::uop::{self, BufferRef, UOp};
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Instant;

/// One command, with its kernel and arguments for messages and recordings.
struct Launch {
    command: Command,
    device: Arc<OpenDevice>,
    /// `None`: a copy.
    kernel: Option<Arc<Compiled>>,
    /// (argument, variable) of the arguments that are variables.
    vars: SmallVec<[(usize, Arc<str>); 2]>,
    /// (argument, allocation) of the arguments that are buffers.
    allocations: SmallVec<[(usize, AllocationId); 6]>,
}

/// A step of a schedule, in order.
enum Step<'a> {
    Launch(Box<Launch>),
    /// A copy that no queue can execute.
    ByHost {
        dst: &'a UOp,
        src: &'a UOp,
        from_bytes: usize,
        len_bytes: usize,
    },
}

impl Session {
    /// Runs a schedule; returns once everything is submitted.
    ///
    /// # Errors
    /// Errors of compiling, allocation and devices.
    pub(super) fn run(&self, s: &Schedule) -> Result<(), Error> {
        self.place_temps(s)?;
        let steps = self.steps(s)?;
        let launches = || steps.iter().filter_map(|step| if let Step::Launch(l) = step { Some(l) } else { None });
        capturing(|c| launches().for_each(|l| record(c, l, self.label(l))));
        let one_by_one = self.options.debug >= 2 || self.options.validate;
        let mut rest = steps.as_slice();
        while let Some(first) = rest.first() {
            let n = match first {
                Step::ByHost { dst, src, from_bytes, len_bytes } => {
                    self.copy_by_host(dst, src, *from_bytes, *len_bytes)?;
                    1
                }
                Step::Launch(l) if one_by_one => {
                    self.run_timed(l)?;
                    1
                }
                Step::Launch(_) => {
                    let launches = rest.iter().map_while(|s| if let Step::Launch(l) = s { Some(&**l) } else { None });
                    let launches: Vec<&Launch> = launches.collect();
                    self.submit(&launches)?;
                    launches.len()
                }
            };
            rest = &rest[n..];
        }
        if !one_by_one {
            launches().for_each(|l| self.count(l));
        }
        Ok(())
    }

    fn count(&self, l: &Launch) {
        match &l.kernel {
            Some(k) => {
                let e = &k.program.estimates;
                self.counters.launched(1, 0, e.flops, e.mem_bytes);
            }
            None => self.counters.launched(0, 1, 0, 0),
        }
    }

    /// Allocates the arenas, once per run; they are freed with the last submission that uses them.
    fn place_temps(&self, s: &Schedule) -> Result<(), Error> {
        let mut arenas = Vec::with_capacity(s.arenas.len());
        for (device, a) in &s.arenas {
            let arena = self.device(device)?.device.alloc(a.len_bytes as u64)?;
            capturing(|c| c.made.push(arena.clone()));
            arenas.push(arena);
        }
        for t in &s.temps {
            let lost = || Error::Internal("a temporary is not a buffer or its arena is missing".into());
            let buffer = t.buffer.buffer_ref().ok_or_else(lost)?;
            self.attach(buffer, arenas.get(t.arena).ok_or_else(lost)?.at(t.offset_bytes as u64))?;
        }
        Ok(())
    }

    fn steps<'a>(&self, s: &'a Schedule) -> Result<Vec<Step<'a>>, Error> {
        let mut kernels = self.compiled(s)?.into_iter();
        let mut out = Vec::with_capacity(s.items.len());
        for item in &s.items {
            match item {
                ScheduleItem::Kernel { bufs, device, .. } => {
                    let device = self.device(device)?;
                    let kernel = kernels.next().ok_or_else(|| Error::Internal("fewer kernels than items".into()))?;
                    out.push(Step::Launch(Box::new(self.launch(s, device, kernel, bufs)?)));
                }
                ScheduleItem::Copy { dst, src, src_offset, len } => {
                    let size = dst.dtype().scalar.size_bytes();
                    let (from_bytes, len_bytes) = (src_offset * size, len * size);
                    let is_temporary = || s.temps.iter().any(|t| t.buffer == *dst);
                    match self.copy(dst, src, from_bytes, len_bytes)? {
                        Some(launch) => out.push(Step::Launch(Box::new(launch))),
                        // Such data exists from the start, and its destination is free, unless that held another value
                        // before.
                        None if is_data(src) && !is_temporary() => {
                            self.copy_by_host(dst, src, from_bytes, len_bytes)?;
                        }
                        None => out.push(Step::ByHost { dst, src, from_bytes, len_bytes }),
                    }
                }
            }
        }
        Ok(out)
    }

    /// The compiled kernels of the kernel items, in order; each device's missing kernels are compiled in one batch.
    fn compiled(&self, s: &Schedule) -> Result<Vec<Arc<Compiled>>, Error> {
        let kernels: Vec<(&Arc<str>, &UOp)> = s
            .items
            .iter()
            .filter_map(|i| match i {
                ScheduleItem::Kernel { ast, device, .. } => Some((device, ast)),
                ScheduleItem::Copy { .. } => None,
            })
            .collect();
        let mut out: Vec<Option<Arc<Compiled>>> = vec![None; kernels.len()];
        while let Some(first) = out.iter().position(Option::is_none) {
            let device = kernels[first].0;
            let mine: Vec<usize> = (first..kernels.len()).filter(|k| kernels[*k].0 == device).collect();
            let asts: Vec<&UOp> = mine.iter().map(|k| kernels[*k].1).collect();
            let made = self.kernels(&*self.device(device)?, &asts)?;
            for (k, c) in mine.into_iter().zip(made) {
                out[k] = Some(c);
            }
        }
        Ok(out.into_iter().flatten().collect())
    }

    fn launch(
        &self,
        s: &Schedule,
        device: Arc<OpenDevice>,
        kernel: Arc<Compiled>,
        bufs: &[UOp],
    ) -> Result<Launch, Error> {
        let p = &kernel.program;
        let buffer_of = |info: &ParamInfo| {
            let b = bufs.get(info.slot as usize).and_then(UOp::buffer_ref);
            b.ok_or_else(|| Error::Internal(format!("{} has no buffer for slot {}", p.name, info.slot)))
        };
        let place = |info: &ParamInfo| self.place(buffer_of(info)?, info.dtype.scalar.size_bytes());
        let value = |v: &UOp| {
            let uop::Arg::Var(name, min, max) = v.arg() else {
                return Err(Error::Internal(format!("{}: {v:?} is no variable", p.name)));
            };
            let value = s.var_vals.iter().find(|(n, _)| **n == **name).map(|(_, v)| *v);
            value.ok_or_else(|| Error::Unbound { name: name.to_string(), min: *min, max: *max })
        };
        let args = launch::arguments((p, &kernel.binary), place, value)?;
        let (mut vars, mut allocations) = (SmallVec::new(), SmallVec::new());
        for (arg, argument) in kernel.binary.arguments.iter().enumerate() {
            match argument {
                Argument::Buffer(k) => allocations.extend(allocation_id(buffer_of(&p.params[*k])?).map(|h| (arg, h))),
                Argument::Variable(k) => {
                    if let uop::Arg::Var(name, ..) = p.vars[*k].arg() {
                        vars.push((arg, name.shared()));
                    }
                }
                Argument::Word(_) => {}
            }
        }
        let command = launch::command(&kernel.kernel, (p, &kernel.binary), args);
        Ok(Launch { command, device, kernel: Some(kernel), vars, allocations })
    }

    /// A copy as a command; `None` if the host must do it.
    fn copy(&self, dst: &UOp, src: &UOp, from_bytes: usize, len_bytes: usize) -> Result<Option<Launch>, Error> {
        let (d, s) = ends(dst, src)?;
        if is_data(src) {
            return Ok(None);
        }
        let size = dst.dtype().scalar.size_bytes();
        let (to, device) = (self.place(d, size)?, self.device(&d.device)?);
        let mut source = self.place(s, size)?;
        source.offset += from_bytes as u64;
        let is_reachable =
            source.memory.host().is_some() && to.memory.host().is_some() || device.device.reaches(&source.memory);
        if s.device != d.device && !is_reachable {
            // A replay would not repeat the host's copy.
            capturing(|c| {
                let (first, second) = (s.device.to_string(), d.device.to_string());
                c.error.get_or_insert(JitError::ThroughHost { first, second });
            });
            return Ok(None);
        }
        let command = Command::copy(to, source, len_bytes as u64);
        let allocations =
            [(0, allocation_id(d)), (1, allocation_id(s))].into_iter().filter_map(|(arg, h)| Some((arg, h?))).collect();
        Ok(Some(Launch { command, device, kernel: None, vars: SmallVec::new(), allocations }))
    }

    /// Copies from host data, from a file, or between devices that cannot reach each other's memory: in pieces, waiting
    /// for each.
    fn copy_by_host(&self, dst: &UOp, src: &UOp, from_bytes: usize, len_bytes: usize) -> Result<(), Error> {
        const PIECE: usize = 4 << 20;
        let (d, s) = ends(dst, src)?;
        let size = dst.dtype().scalar.size_bytes();
        let (to, device) = (self.place(d, size)?, self.device(&d.device)?);
        self.counters.copied_by_host();
        let began = Instant::now();
        let done = || self.copied(&device.name, s, len_bytes, began);
        if let Some(host) = s.memory.get().and_then(|m| m.downcast_ref::<HostBytes>()) {
            let data = host.0.get(from_bytes..from_bytes + len_bytes);
            let data =
                data.ok_or_else(|| Error::Internal(format!("host data of {} bytes is too short", host.0.len())))?;
            device.device.copy_in(&to.memory, to.offset, data)?;
            done();
            return Ok(());
        }
        let source = self.source(s, size)?;
        let mut buf = vec![0u8; len_bytes.min(PIECE)];
        for at in (0..len_bytes).step_by(PIECE) {
            let piece = &mut buf[..(len_bytes - at).min(PIECE)];
            source.read((from_bytes + at) as u64, piece)?;
            device.device.copy_in(&to.memory, to.offset + at as u64, piece)?;
        }
        done();
        Ok(())
    }

    /// Reports a copy that the host has made: prints and records it where the options ask for it.
    fn copied(&self, device: &str, from: &BufferRef, len_bytes: usize, began: Instant) {
        if self.options.debug < 2 && !self.is_timed() {
            return;
        }
        let name = format!("copy {len_bytes} B <- {}", from.device);
        let ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.counters.timed(ns);
        if self.is_timed() {
            self.profile.host("copies", &format!("{name} to {device}"), began);
        }
        if self.options.debug >= 2 {
            self.print_line(device, &name, 2, Estimates { mem_bytes: len_bytes as u64, ..Estimates::default() }, ns);
        }
    }

    /// Submits launches, on as many devices as they are of.
    fn submit(&self, launches: &[&Launch]) -> Result<(), Error> {
        let commands: Vec<(&Arc<str>, &Command)> = launches.iter().map(|l| (&l.device.name, &l.command)).collect();
        for batch in batches(&commands) {
            let mut commands: Vec<Command> = batch.iter().map(|k| launches[*k].command.clone()).collect();
            let Some(first) = batch.first() else { continue };
            let device = &launches[*first].device.device;
            if !self.is_timed() {
                device.submit(QueueKind::Compute, &commands)?;
                continue;
            }
            let stamp = |(k, command): (&usize, &mut Command)| {
                self.profile.stamp(device.as_ref(), command, self.label(launches[*k])?)
            };
            let stamped = batch.iter().zip(&mut commands).filter_map(stamp).collect();
            let at_ns = host_ns();
            let point = device.submit(QueueKind::Compute, &commands)?;
            self.profile.submitted(point, at_ns, stamped);
        }
        Ok(())
    }

    /// What a launch is called in the timeline, if there is one.
    fn label(&self, l: &Launch) -> Option<u32> {
        if !self.is_timed() {
            return None;
        }
        let Some(k) = &l.kernel else {
            let Command::Copy { len_bytes: bytes, src, .. } = &l.command else { return None };
            let text = format!("copy {bytes} B <- {}", src.memory.device().name());
            return Some(self.profile.label(
                Label { text, kind: LabelKind::Copy, kernel: None, bytes: *bytes },
                0,
                *bytes,
            ));
        };
        let kernel = self.recorder.as_ref().and_then(|r| r.kernel_number(&l.device.name, &k.ast));
        let label = Label { text: k.program.name.clone(), kind: LabelKind::Kernel, kernel, bytes: 0 };
        Some(self.profile.label(label, k.program.estimates.flops, k.program.estimates.mem_bytes))
    }

    /// Where the host reads a buffer.
    pub(super) fn source<'a>(&self, buffer: &'a BufferRef, elem_bytes: usize) -> Result<Source<'a>, Error> {
        if let Some(file) = buffer.memory.get().and_then(|m| m.downcast_ref::<FileRange>()) {
            return Ok(Source::File(file));
        }
        let place = self.place(buffer, elem_bytes)?;
        Ok(Source::Memory(self.device(place.memory.device().name())?, place))
    }

    /// Runs one command alone and waits for it, to measure its time.
    fn run_timed(&self, l: &Launch) -> Result<(), Error> {
        let want = match &l.kernel {
            Some(k) => self.expected(&l.device, k, &l.command)?,
            None => None,
        };
        let mut command = l.command.clone();
        let at_ns = host_ns();
        let label = self.label(l).unwrap_or_default();
        let stamped = self.profile.stamp(l.device.device.as_ref(), &mut command, label);
        let stamped = stamped.ok_or_else(|| Error::Internal("a device has no room for a time".into()))?;
        let stamp = stamped.stamp.clone();
        let point = l.device.device.submit(QueueKind::Compute, &[command])?;
        l.device.device.wait(&point, l.device.device.patience())?;
        let ns = stamp.elapsed_ns();
        self.count(l);
        self.counters.timed(ns);
        if self.is_timed() {
            self.profile.submitted(point, at_ns, vec![stamped]);
        }
        if self.options.debug >= 2 {
            self.print_launch(&l.device.name, l.kernel.as_deref(), &l.command, ns);
        }
        if let (Some(want), Some(k)) = (want, &l.kernel) {
            self.compare(&l.device, k, &l.command, &want)?;
        }
        Ok(())
    }
}

/// What the host reads: a part of a file, or device memory.
pub(super) enum Source<'a> {
    File(&'a FileRange),
    Memory(Arc<OpenDevice>, Location),
}

impl Source<'_> {
    /// Bytes from `at_bytes` on.
    pub(super) fn read(&self, at_bytes: u64, to: &mut [u8]) -> Result<(), Error> {
        match self {
            Source::File(file) => {
                let named = |source| Error::File { what: file.path().display().to_string(), source };
                file.read(at_bytes, to).map_err(named)
            }
            Source::Memory(device, from) => Ok(device.device.copy_out(&from.memory, from.offset + at_bytes, to)?),
        }
    }
}

/// The buffers of a copy: destination, source.
fn ends<'a>(dst: &'a UOp, src: &'a UOp) -> Result<(&'a BufferRef, &'a BufferRef), Error> {
    let lost = || Error::Internal("a copy between things that are no buffers".into());
    Ok((dst.buffer_ref().ok_or_else(lost)?, src.buffer_ref().ok_or_else(lost)?))
}

/// Whether a buffer is host data or a file: no queue can access these, and no kernel writes them.
fn is_data(buffer: &UOp) -> bool {
    let is_host_bytes = |b: &BufferRef| b.memory.get().is_some_and(|m| m.is::<HostBytes>());
    buffer.buffer_ref().is_some_and(|b| schedule::is_data(&b.device) || is_host_bytes(b))
}

/// Adds a command to this thread's capture.
fn record(c: &mut Capture, l: &Launch, label: Option<u32>) {
    c.devices.push(l.device.name.clone());
    c.facts.push(Facts { label, ..facts(l) });
    c.vars.extend(l.vars.iter().map(|(arg, name)| (c.commands.len(), *arg, name.clone())));
    c.allocations
        .extend(l.allocations.iter().map(|(arg, allocation_id)| (c.commands.len(), *arg, allocation_id.clone())));
    c.commands.push(l.command.clone());
}

/// What a command costs, and what it does with its buffers.
fn facts(l: &Launch) -> Facts {
    let Some(k) = &l.kernel else {
        let Command::Copy { len_bytes, .. } = &l.command else { return Facts::default() };
        return Facts { uses: vec![(0, *len_bytes, false, true), (1, *len_bytes, true, false)], ..Facts::default() };
    };
    let (p, e) = (&k.program, &k.program.estimates);
    let uses = k.binary.arguments.iter().enumerate().filter_map(|(arg, argument)| match argument {
        Argument::Buffer(n) => {
            let info = p.params.get(*n)?;
            Some((arg, (info.len * info.dtype.scalar.size_bytes()) as u64, info.read, info.written))
        }
        _ => None,
    });
    let kernel = Some(k.clone());
    Facts { kernels: 1, flops: e.flops, mem_bytes: e.mem_bytes, uses: uses.collect(), label: None, kernel }
}
