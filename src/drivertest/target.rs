//! Which machine the cases run on: the kernel's, or one in software.

use crate::case::Change;
use crate::child::Interruption;
use doorbell_emu::{kfd, nvrm};
use doorbell_ioctl::abi;
use doorbell_ioctl::port::{CpuPtr, Errno, Fd, Forked, LinuxPort, OpenFlags, Port, call};
use std::sync::Arc;
use std::time::Duration;

const NVIDIA_SUSPEND: &str = "/proc/driver/nvidia/suspend";
/// How far a suspend of the kernel goes, and what begins one.
const PM_TEST: &str = "/sys/power/pm_test";
const PM_STATE: &str = "/sys/power/state";

/// A driver that there are cases for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// AMD's compute driver.
    Kfd,
    /// NVIDIA's resource manager and unified memory.
    Nv,
}

impl Driver {
    /// The first part of its cases' names.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kfd => "kfd",
            Self::Nv => "nv",
        }
    }
}

/// A machine, before it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Whose cases.
    pub driver: Driver,
    /// The chip of a software machine; `None` is this machine's kernel.
    pub chip: Option<String>,
}

impl Target {
    /// Reads `AMD`, `NV`, `AMD:emu=gfx1100`, `NV:emu=sm_90`.
    ///
    /// # Errors
    /// In words: another text, an unknown chip.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (vendor, rest) = text.split_once(':').map_or((text, None), |(v, r)| (v, Some(r)));
        let driver = match vendor {
            "AMD" => Driver::Kfd,
            "NV" => Driver::Nv,
            _ => return Err(format!("--device {text}: drivers are tested on AMD, NV, AMD:emu=CHIP or NV:emu=CHIP")),
        };
        let Some(rest) = rest else { return Ok(Self { driver, chip: None }) };
        let chip =
            rest.strip_prefix("emu=").ok_or_else(|| format!("--device {text}: after the colon comes emu=CHIP"))?;
        let target = Self { driver, chip: Some(chip.to_owned()) };
        target.software_config(chip).map_err(|chips| format!("--device {text}: software chips are {chips}"))?;
        Ok(target)
    }

    /// The device of this machine's kernel, as the command line names it.
    #[must_use]
    pub fn device(&self) -> &'static str {
        match self.driver {
            Driver::Kfd => "AMD",
            Driver::Nv => "NV",
        }
    }

    /// The driver's release, numbers with dots: KFD's interface, NVIDIA's release; empty where nothing answers.
    #[must_use]
    pub fn release(&self) -> String {
        self.open(Change::None, None)
            .ok()
            .and_then(|machine| release(self.driver, &*machine.port()))
            .unwrap_or_default()
    }

    fn software_config(&self, chip: &str) -> Result<Software, String> {
        match self.driver {
            Driver::Kfd => {
                let names = || kfd::Chip::ALL.map(kfd::Chip::name).join(", ");
                kfd::Chip::named(chip).map(|c| Software::Kfd(kfd::Config::new(c))).ok_or_else(names)
            }
            Driver::Nv => {
                let names = || nvrm::Chip::ALL.into_iter().map(|c| c.facts().name).collect::<Vec<_>>().join(", ");
                nvrm::Chip::named(chip).map(|c| Software::Nv(nvrm::Config::new(c))).ok_or_else(names)
            }
        }
    }

    /// Opens the machine, changed as a case needs it and with a defect.
    ///
    /// # Errors
    /// `ENOMEM`; `EINVAL` for a chip that is not known.
    pub fn open(&self, change: Change, defect: Option<Defect>) -> Result<Machine, Errno> {
        let Some(chip) = &self.chip else { return Ok(Machine::Kernel(LinuxPort::new())) };
        match self.software_config(chip).map_err(|_| Errno::EINVAL)? {
            Software::Kfd(mut config) => {
                if let Change::Kfd(change) = change {
                    change(&mut config);
                }
                config.defect = if let Some(Defect::Kfd(defect)) = defect { Some(defect) } else { None };
                Ok(Machine::Kfd(kfd::SoftKfd::new(config)?))
            }
            Software::Nv(mut config) => {
                if let Change::Nv(change) = change {
                    change(&mut config);
                }
                config.defect = if let Some(Defect::Nv(defect)) = defect { Some(defect) } else { None };
                Ok(Machine::Nv(nvrm::SoftNv::new(config)?))
            }
        }
    }
}

/// What the driver says of itself.
fn release(driver: Driver, port: &dyn Port) -> Option<String> {
    match driver {
        Driver::Kfd => {
            let file = port.open("/dev/kfd", OpenFlags::DEVICE).ok()?;
            let mut version = abi::kfd::GetVersion::default();
            let reported = call(port, file, &abi::kfd::GET_VERSION, &mut version);
            port.close(file).ok()?;
            reported.ok().map(|_| format!("{}.{}", version.major_version, version.minor_version))
        }
        Driver::Nv => {
            const QUERY: u32 = 0x32;
            let file = port.open("/dev/nvidiactl", OpenFlags::DEVICE).ok()?;
            let mut version = abi::nvrm::CheckVersion { cmd: QUERY, ..Default::default() };
            let reported = call(port, file, &abi::nvrm::CHECK_VERSION_STR, &mut version);
            port.close(file).ok()?;
            let text = String::from_utf8_lossy(&version.version_string).trim_end_matches('\0').to_owned();
            reported.ok().map(|_| text)
        }
    }
}

enum Software {
    Kfd(kfd::Config),
    Nv(nvrm::Config),
}

/// What is wrong with a software machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// AMD's.
    Kfd(kfd::Defect),
    /// NVIDIA's.
    Nv(nvrm::Defect),
}

/// An open machine.
#[derive(Clone, Debug)]
pub enum Machine {
    /// The running kernel.
    Kernel(Arc<LinuxPort>),
    /// AMD's in software.
    Kfd(Arc<kfd::SoftKfd>),
    /// NVIDIA's in software.
    Nv(Arc<nvrm::SoftNv>),
    /// A second process of it.
    NvProcess(Arc<nvrm::Process>),
}

impl Machine {
    /// A second process of a software machine; none of the kernel's.
    ///
    /// # Errors
    /// `ENOMEM`, `EMFILE`.
    pub fn another_process(&self) -> Result<Option<Self>, Errno> {
        match self {
            Self::Kfd(machine) => machine.another_process().map(|process| Some(Self::Kfd(process))),
            Self::Nv(machine) => Ok(Some(Self::NvProcess(machine.another_process()))),
            Self::Kernel(_) | Self::NvProcess(_) => Ok(None),
        }
    }

    /// The number of the process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        match self {
            Self::Kernel(_) | Self::Nv(_) => std::process::id(),
            Self::Kfd(machine) => machine.pid(),
            Self::NvProcess(process) => process.pid(),
        }
    }

    /// The process ends.
    pub fn end_process(&self) {
        match self {
            Self::Kernel(_) | Self::Nv(_) => {}
            Self::Kfd(machine) => machine.end_process(),
            Self::NvProcess(process) => process.end(),
        }
    }

    /// A signal arrives at a software machine's process.
    pub fn interrupt(&self, how: Interruption) {
        match (self, how) {
            (Self::Kfd(machine), Interruption::Stop) => machine.stop_and_continue(),
            (Self::Kfd(machine), Interruption::Handler) => machine.interrupt_next_wait(),
            (Self::NvProcess(process), Interruption::Stop) => process.stop_and_continue(),
            (Self::NvProcess(process), Interruption::Handler) => process.interrupt_next_wait(),
            (Self::Kernel(_) | Self::Nv(_), _) => {}
        }
    }

    /// The machine sleeps and wakes up: on the running kernel NVIDIA's cards alone by its file in /proc, with AMD's all
    /// devices for five seconds, as the kernel's test of power management does it.
    ///
    /// # Errors
    /// In words: the kernel offers no such thing, or not to this process.
    pub fn sleep(&self, driver: Driver) -> Result<(), String> {
        /// Long enough for work that does not stop to be seen.
        const NAP: Duration = Duration::from_millis(20);
        let write = |path: &str, word: &str| std::fs::write(path, word).map_err(|e| format!("{path}: {e}"));
        match self {
            Self::Kernel(_) if driver == Driver::Nv => {
                write(NVIDIA_SUSPEND, "suspend")?;
                std::thread::sleep(NAP);
                write(NVIDIA_SUSPEND, "resume")
            }
            Self::Kernel(_) => {
                write(PM_TEST, "devices")?;
                let slept = write(PM_STATE, "mem");
                write(PM_TEST, "none").and(slept)
            }
            Self::Kfd(machine) => {
                machine.suspend();
                std::thread::sleep(NAP);
                machine.resume();
                Ok(())
            }
            Self::Nv(machine) => {
                machine.suspend();
                std::thread::sleep(NAP);
                machine.resume();
                Ok(())
            }
            Self::NvProcess(_) => Err("the first process of a machine does it".to_owned()),
        }
    }

    /// What a child of fork sees of this process.
    ///
    /// # Errors
    /// The kernel's; `ENOSYS` for a process that a software machine has only beside its first.
    pub fn forked(&self, fd: Fd, request: u32, arg: &mut [u8], at: CpuPtr) -> Result<Forked, Errno> {
        match self {
            Self::Kernel(port) => port.forked(fd, request, arg, at),
            Self::Kfd(machine) => machine.forked(fd, request, arg, at),
            Self::Nv(machine) => machine.forked(fd, request, arg, at),
            Self::NvProcess(_) => Err(Errno::ENOSYS),
        }
    }

    /// What a software machine's driver holds of processes that have ended, in words.
    #[must_use]
    pub(crate) fn left_by_the_dead(&self) -> Vec<String> {
        let Self::Kfd(machine) = self else { return Vec::new() };
        let (buffers, queues) = machine.left_over_of_the_dead();
        let named = |count: usize, what: &str| (count > 0).then(|| format!("a process that ended has {count} {what}"));
        [named(buffers, "buffers"), named(queues, "queues")].into_iter().flatten().collect()
    }

    /// The way to its driver.
    #[must_use]
    pub fn port(&self) -> Arc<dyn Port> {
        match self {
            Self::Kernel(port) => Arc::clone(port) as _,
            Self::Kfd(machine) => Arc::clone(machine) as _,
            Self::Nv(machine) => Arc::clone(machine) as _,
            Self::NvProcess(process) => Arc::clone(process) as _,
        }
    }

    /// Whether it is the running kernel.
    #[must_use]
    pub(crate) fn is_kernel(&self) -> bool {
        matches!(self, Self::Kernel(_))
    }

    /// What a software machine's driver still holds, in words; event pages are the process's for life.
    #[must_use]
    pub fn left_over(&self, event_pages: usize) -> Vec<String> {
        let named = |count: usize, what: &str| (count > 0).then(|| format!("the driver still has {count} {what}"));
        match self {
            Self::Kernel(_) => Vec::new(),
            Self::Kfd(machine) => {
                let (buffers, queues) = machine.left_over();
                let buffers = buffers.saturating_sub(event_pages);
                let files = named(machine.open_files(), "open files");
                [files, named(buffers, "buffers"), named(queues, "queues")].into_iter().flatten().collect()
            }
            Self::NvProcess(process) => named(process.open_files(), "open files").into_iter().collect(),
            Self::Nv(machine) => {
                let counts = machine.left_over();
                let names = ["open files", "objects", "channels", "ranges", "mappings of the processor"];
                std::iter::once(machine.open_files())
                    .chain(counts)
                    .zip(names)
                    .filter_map(|(count, what)| named(count, what))
                    .collect()
            }
        }
    }

    /// Findings of a software machine that no kernel has: the case itself used the driver wrongly.
    #[must_use]
    pub fn findings(&self) -> Vec<String> {
        match self {
            Self::Kernel(_) | Self::NvProcess(_) => Vec::new(),
            Self::Kfd(machine) => {
                let strict = |r: &kfd::Report| matches!(r.kind, kfd::ReportKind::Strict | kfd::ReportKind::Bug);
                machine.reports().iter().filter(|r| strict(r)).map(ToString::to_string).collect()
            }
            Self::Nv(machine) => {
                let strict = |r: &nvrm::Report| matches!(r.kind, nvrm::ReportKind::Strict | nvrm::ReportKind::Bug);
                machine.reports().iter().filter(|r| strict(r)).map(ToString::to_string).collect()
            }
        }
    }
}
