//! A device under measurement: its session, what it is, and its hand-written kernels.

use crate::error::BenchError;
use crate::hand::Library;
use crate::telemetry;
use doorbell::device::{Arg, Command, Device, DeviceInfo, Geometry, Kernel, Memory, QueueKind};
use doorbell::engine::{Entered, OpenDevice, Options, Session};
use doorbell::hcq::memory::View;
#[cfg(target_os = "linux")]
use doorbell_ioctl::port::SharedMemory;
use std::sync::Arc;
use std::time::Duration;

/// What kind of device it is, by its architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Cpu,
    Amd,
    Nv,
    Metal,
    Other,
}

impl Kind {
    fn of(info: &DeviceInfo) -> Self {
        let starts = |with: &str| info.arch.starts_with(with);
        match () {
            () if info.is_cpu() => Self::Cpu,
            () if starts("gfx") => Self::Amd,
            () if starts("sm_") => Self::Nv,
            () if starts("metal") => Self::Metal,
            () => Self::Other,
        }
    }
}

/// The name of a neighbour: `NV:1` for `NV`, `NV:0:emu=sm_90` for `NV:1:emu=sm_90`.
fn peer_name(name: &str) -> String {
    let mut parts: Vec<String> = name.split(':').map(str::to_owned).collect();
    match parts.get(1).and_then(|part| part.parse::<u32>().ok()) {
        Some(index) => parts[1] = if index == 0 { 1 } else { index - 1 }.to_string(),
        None => parts.insert(1, "1".into()),
    }
    parts.join(":")
}

/// Memory of the program starts on a multiple of this: the largest page of a host or GPU here.
const PAGE_BYTES: u64 = 64 << 10;

/// An open device with what its cases need.
pub struct Machine {
    pub name: String,
    pub kind: Kind,
    /// Software GPUs: values are checked there, times mean nothing.
    pub is_software: bool,
    /// Sizes are small: software GPUs, and where speed is of no interest.
    pub is_small: bool,
    pub session: Arc<Session>,
    pub open: Arc<OpenDevice>,
    kernels: Library,
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Machine({})", self.name)
    }
}

impl Machine {
    /// Opens the device of that name.
    ///
    /// # Errors
    /// There is none, or it cannot be opened; it executes nothing.
    pub fn open(name: &str, options: Options, is_quick: bool) -> Result<Self, BenchError> {
        let session = Session::open(Options { device: name.into(), ..options })?;
        let open = session.device(name)?;
        if !open.runs_kernels() {
            return Err(BenchError::LeftOut(format!("{name} executes nothing")));
        }
        let is_software = open.is_software;
        let kind = Kind::of(open.device.info());
        let kernels = Library::of(kind, open.target().name);
        let is_small = is_software || is_quick;
        Ok(Self { name: open.name.to_string(), kind, is_software, is_small, session, open, kernels })
    }

    /// Makes its session that of the calling thread, for Tensors.
    #[must_use = "the thread leaves the session when this is dropped"]
    pub fn enter(&self) -> Entered {
        self.session.enter()
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &dyn Device {
        self.open.device.as_ref()
    }

    /// The next device of its kind, or the one before the last.
    ///
    /// # Errors
    /// `LeftOut`: there is none.
    pub fn peer(&self) -> Result<Arc<OpenDevice>, BenchError> {
        if matches!(self.kind, Kind::Cpu | Kind::Metal | Kind::Other) {
            return Err(BenchError::LeftOut("devices of its kind share the host's memory".into()));
        }
        let name = peer_name(&self.name);
        self.session.device(&name).map_err(|e| BenchError::LeftOut(format!("there is no {name}: {e}")))
    }

    /// Cores or compute units.
    #[must_use]
    pub fn units(&self) -> u32 {
        self.device().info().threads.max(1)
    }

    /// How long work may take before the device counts as hung.
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.device().patience()
    }

    /// What the driver, or for a CPU the system, says of the device now.
    #[must_use]
    pub fn state(&self) -> serde_json::Value {
        match self.device().state() {
            Some(state) => state.values,
            None if self.kind == Kind::Cpu => serde_json::to_value(telemetry::cpu()).unwrap_or_default(),
            None => serde_json::Value::Null,
        }
    }

    /// The hand-written kernel of that name.
    ///
    /// # Errors
    /// `LeftOut`: there is none for this chip, or its assembler refuses it.
    pub fn hand(&self, name: &str) -> Result<Kernel, BenchError> {
        self.kernels.load(&self.open, name)
    }

    /// A launch of a hand-written kernel. On a CPU, `groups` is the number of calls.
    #[must_use]
    pub fn launch(&self, kernel: &Kernel, groups: u32, local: u32, args: Vec<Arg>) -> Command {
        match self.kind {
            Kind::Cpu => Command::exec(kernel, args, groups),
            _ => Command::exec(kernel, args, 1).over(Geometry::of([groups, 1, 1], [local, 1, 1])),
        }
    }

    /// Runs commands to their end.
    ///
    /// # Errors
    /// The device's.
    pub fn run(&self, queue: QueueKind, commands: &[Command]) -> Result<(), BenchError> {
        let point = self.device().submit(queue, commands)?;
        Ok(self.device().wait(&point, self.patience())?)
    }

    /// The bytes of a memory.
    ///
    /// # Errors
    /// The device's.
    pub fn bytes(&self, memory: &Memory, len: usize) -> Result<Vec<u8>, BenchError> {
        let mut bytes = vec![0; len];
        self.device().copy_out(memory, 0, &mut bytes)?;
        Ok(bytes)
    }

    /// Memory with these bytes.
    ///
    /// # Errors
    /// The device's.
    pub fn memory(&self, bytes: &[u8]) -> Result<Memory, BenchError> {
        let memory = self.device().alloc(bytes.len() as u64)?;
        self.device().copy_in(&memory, 0, bytes)?;
        Ok(memory)
    }

    /// Memory of the program, as it might have any, from a page on.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn program_memory(&self, len_bytes: u64) -> Result<View, BenchError> {
        // The software drivers of AMD and NVIDIA are in this process and reach what is mapped shared.
        #[cfg(target_os = "linux")]
        if self.is_software && self.kind != Kind::Metal {
            let shared = SharedMemory::new(len_bytes).and_then(|memory| memory.map());
            return Ok(View::of_device(&shared.map_err(|e| BenchError::Empty(format!("shared memory: {e}")))?));
        }
        View::anonymous(len_bytes, PAGE_BYTES).map_err(|e| BenchError::Empty(e.to_string()))
    }

    /// MHz of a core or compute unit, counted inside a kernel; `None` where no kernel can count.
    ///
    /// # Errors
    /// The device's.
    pub fn clock_mhz(&self) -> Result<Option<f64>, BenchError> {
        self.kernels.clock_mhz(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_known_by_the_architecture() {
        for (arch, kind) in [
            ("x86_64-avx512", Kind::Cpu),
            ("aarch64-neon", Kind::Cpu),
            ("gfx942", Kind::Amd),
            ("sm_90a", Kind::Nv),
            ("metal", Kind::Metal),
            ("metal-apple9", Kind::Metal),
            ("toy", Kind::Other),
        ] {
            assert_eq!(Kind::of(&DeviceInfo { arch: arch.into(), threads: 1, memory_bytes: 0 }), kind, "{arch}");
        }
    }

    #[test]
    fn the_peer_is_another_device_of_the_same_kind() {
        for (name, peer) in
            [("NV", "NV:1"), ("NV:1", "NV:0"), ("AMD:emu=gfx942", "AMD:1:emu=gfx942"), ("AMD:3", "AMD:2")]
        {
            assert_eq!(peer_name(name), peer);
        }
    }
}
