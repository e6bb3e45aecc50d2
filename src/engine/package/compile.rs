//! The code of a package for one architecture: each kernel of the recording compiled again, one after the other, so
//! that names and bytes are the same every time.

use super::super::kernels::Compiled;
use super::super::session::OpenDevice;
use super::super::{Error, JitError, Options, Session, backends};
use super::kept::{Kept, KeptPlace, KeptStep};
use super::plan::Planned;
use crate::device::null::NullDevice;
use crate::isa::Argument;
use crate::package::{self as package, Launch, Step, Target};
use std::sync::Arc;

/// Parts that kernels for another CPU are cut into, if nobody says how many.
const THREADS: u32 = 8;

/// Where kernels of an architecture are compiled.
struct Compiler {
    arch: String,
    session: Arc<Session>,
    device: OpenDevice,
    /// The recording's own kernels are taken as they are: a search would have to run them.
    as_recorded: bool,
}

impl Compiler {
    /// For `arch`, or for the recording's device.
    fn new(s: &Session, kept: &Kept, arch: Option<&str>, threads: u32) -> Result<Compiler, Error> {
        let own = match kept.devices.first() {
            Some(name) => s.device(name)?,
            None => return Err(JitError::NothingCaptured.into()),
        };
        let is_own = arch.is_none_or(|arch| own.target().name == arch) && threads == 0;
        let backend = match arch {
            Some(arch) if !is_own => {
                let threads = if threads == 0 { THREADS } else { threads };
                backends::for_arch(arch, threads, &s.options)?
            }
            None if !is_own => backends::for_arch(own.target().name, threads, &s.options)?,
            _ => own.backend.clone(),
        };
        let arch = arch.map_or_else(|| own.target().name.to_string(), str::to_owned);
        let options = Options { debug: 0, beam: 0, profile: None, validate: false, ..s.options.clone() };
        let device: Arc<NullDevice> = Arc::new(NullDevice::open("PACKAGE", &arch, backend.target().threads)?);
        Ok(Compiler {
            arch,
            session: Session::open(options)?,
            device: OpenDevice { name: "PACKAGE".into(), device, backend, is_software: false },
            as_recorded: is_own && s.options.beam > 0,
        })
    }

    fn kernel(&self, recorded: &Arc<Compiled>) -> Result<Arc<Compiled>, Error> {
        if self.as_recorded {
            return Ok(recorded.clone());
        }
        let made = self.session.kernels(&self.device, &[&recorded.ast]);
        let mut made = made.map_err(|e| Error::Function(format!("target {}: {e}", self.arch)))?;
        made.pop().ok_or_else(|| Error::Internal("a kernel was not compiled".into()))
    }
}

/// The program for an architecture; `None`: the recording's device.
pub(super) fn target(
    s: &Session,
    kept: &Kept,
    planned: &mut Planned,
    arch: Option<&str>,
    threads: u32,
) -> Result<Target, Error> {
    let compiler = Compiler::new(s, kept, arch, threads)?;
    let mut target = Target { arch: compiler.arch.clone(), ..Target::default() };
    let mut known: Vec<Arc<Compiled>> = Vec::new();
    for step in &kept.steps {
        let step = match step {
            KeptStep::Copy { to, from, len_bytes } => {
                Step::Copy { to: planned.place(*to)?, from: planned.place(*from)?, len_bytes: *len_bytes }
            }
            KeptStep::Kernel { kernel, places } => {
                let made = compiler.kernel(kernel)?;
                let number = match known.iter().position(|k| Arc::ptr_eq(k, &made)) {
                    Some(n) => n,
                    None => {
                        target.kernels.push(kernel_of(&compiler.arch, &made)?);
                        known.push(made.clone());
                        known.len() - 1
                    }
                };
                Step::Launch(launch(planned, &made, number, places)?)
            }
        };
        target.steps.push(step);
    }
    planned.contents.variables.clone_from(&planned.variables.0);
    Ok(target)
}

fn kernel_of(arch: &str, c: &Compiled) -> Result<package::Kernel, Error> {
    let code = c.object_file()?;
    if code.is_empty() {
        return Err(Error::Function(format!("target {arch} has no machine code")));
    }
    Ok(package::Kernel { name: c.program.name.clone(), entry: c.binary.entry.clone(), code })
}

fn launch(planned: &mut Planned, c: &Compiled, number: usize, places: &[(u32, KeptPlace)]) -> Result<Launch, Error> {
    let (p, binary) = (&c.program, &c.binary);
    let lost = || Error::Internal(format!("{}: an argument of nothing", p.name));
    let mut arguments = Vec::with_capacity(binary.arguments.len());
    for a in &binary.arguments {
        arguments.push(match a {
            Argument::Word(bits) => package::Argument::Word(*bits),
            Argument::Variable(v) => {
                let v = p.vars.get(*v).and_then(|v| planned.variables.number(v)).ok_or_else(lost)?;
                package::Argument::Variable(v)
            }
            Argument::Buffer(k) => {
                let slot = p.params.get(*k).ok_or_else(lost)?.slot;
                let at = places.iter().find(|(s, _)| *s == slot).ok_or_else(lost)?.1;
                package::Argument::Buffer(planned.place(at)?)
            }
        });
    }
    Ok(Launch {
        kernel: u32::try_from(number).map_err(|_| lost())?,
        threads: p.threads.max(1),
        groups: p.global,
        local: p.local,
        local_bytes: binary.shared_bytes,
        arguments,
    })
}
