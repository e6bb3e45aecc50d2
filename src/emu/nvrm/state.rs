//! The drivers' state: open files, clients, mappings of the CPU, UVM's address spaces.

use super::memory::Charge;
use super::object::Clients;
use super::uvm::UvmSpace;
use doorbell_ioctl::port::CpuPtr;
use std::collections::BTreeMap;

/// An open file.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    /// Every open is a file of its own.
    pub file: u64,
    pub pid: u32,
    pub kind: FileKind,
}

/// Which device file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// /dev/nvidiactl
    Control,
    /// /dev/nvidiaN, and the control file that REGISTER_FD named.
    Card { gpu: usize, control: Option<u64> },
    /// /dev/nvidia-uvm before a call defines its use.
    Uvm,
    /// After INITIALIZE.
    UvmSpace,
    /// After MM_INITIALIZE.
    UvmMm,
    /// After a test's FILE_INITIALIZE.
    UvmTest,
}

/// What MAP_MEMORY has armed a file for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A memory object: its key, and the offset in it.
    Memory { client: u32, object: u32, offset: u64 },
    /// A usermode region of a card.
    Usermode { gpu: usize, bar1: bool },
}

/// A mapping for the processor, from MAP_MEMORY to UNMAP_MEMORY.
#[derive(Debug)]
pub(crate) struct CpuMapping {
    pub client: u32,
    pub object: u32,
    pub target: Target,
    pub len_bytes: u64,
    pub writable: bool,
    /// The file that one mmap may take it with.
    pub file: u64,
    pub _bar1: Option<Charge>,
}

/// A usermode region that the process has mapped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DoorbellMap {
    pub at: CpuPtr,
    pub len_bytes: u64,
    pub gpu: usize,
    pub bar1: bool,
}

/// Everything under the drivers' lock.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub files: BTreeMap<i32, Open>,
    pub next_file: u64,
    pub clients: Clients,
    /// By the cookie that MAP_MEMORY gave.
    pub mappings: BTreeMap<u64, CpuMapping>,
    pub next_cookie: u64,
    pub doorbells: Vec<DoorbellMap>,
    /// By file.
    pub spaces: BTreeMap<u64, UvmSpace>,
    /// What SYS_PARAMS has answered; 0 before.
    pub memblock_bytes: u64,
    /// What UVM's tests have set: how long prefetching is off after a fault, in ms.
    pub prefetch_lapse_ms: u32,
    /// How often each of the configured refusals was reached.
    pub refused: Vec<u32>,
}

/// Numbers of open files start here, where they are not mistaken for the process's own.
const FIRST_FD: i32 = 1000;

impl State {
    /// Opens a file: its number is the lowest that is free.
    pub(crate) fn open(&mut self, kind: FileKind, pid: u32) -> i32 {
        let fd = (FIRST_FD..).find(|fd| !self.files.contains_key(fd)).unwrap_or(i32::MAX);
        self.next_file += 1;
        self.files.insert(fd, Open { file: self.next_file, pid, kind });
        fd
    }

    /// The file of that number.
    pub(crate) fn file(&self, fd: i32) -> Option<&Open> {
        self.files.get(&fd)
    }

    /// Cards whose files the process of a file has open.
    pub(crate) fn open_cards(&self, file: u64) -> Vec<usize> {
        let pid = self.files.values().find(|open| open.file == file).map_or(0, |open| open.pid);
        let card = |open: &Open| match open.kind {
            FileKind::Card { gpu, .. } if open.pid == pid => Some(gpu),
            _ => None,
        };
        self.files.values().filter_map(card).collect()
    }

    /// Changes what a file is.
    pub(crate) fn set_kind(&mut self, file: u64, kind: FileKind) {
        for open in self.files.values_mut().filter(|open| open.file == file) {
            open.kind = kind;
        }
    }
}
