//! Files as memory: `DISK:path` maps a file; kernels and copies of the CPU read it in place.
//!
//! Layer: as any device; for safetensors, raw data, data sets. Source: mmap(2).
//! Read-only, unless opened for writing: then stores are written to the file, and allocating more memory than the file
//! has extends it.
//! Left out: kernels; files that shrink while mapped (a read past the new end ends the process, as with any mapping).

use super::{
    Command, Device, DeviceError, DeviceInfo, DeviceTag, Kernel, KernelImage, Memory, MemoryParts, QueueKind, Recorded,
    Stamp, Uses,
};
use doorbell_hcq::memory::View;
use doorbell_hcq::signal::{Point, SignalPool, Timeline};
use doorbell_ioctl::port::FileAccess;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The disk device: one file.
#[derive(Debug)]
pub struct DiskDevice {
    tag: DeviceTag,
    info: DeviceInfo,
    path: PathBuf,
    file: File,
    access: FileAccess,
    timeline: Arc<Timeline>,
    mapped_bytes: Arc<AtomicU64>,
}

/// Subtracts a mapping from the counter when it is released; the view unmaps itself.
struct Unmap {
    mapped_bytes: Arc<AtomicU64>,
    len_bytes: u64,
}

impl super::Release for Unmap {
    fn release(&self, _va: u64, host: Option<View>, uses: Uses) {
        self.mapped_bytes.fetch_sub(self.len_bytes, Ordering::Relaxed);
        // TIMEOUT: queues keep the memories that they use alive, so this waits only if one hangs; then the mapping is
        // leaked.
        if uses.wait(Duration::from_millis(200)).is_err() && !uses.are_done() {
            std::mem::forget(host);
        }
    }
}

impl DiskDevice {
    /// Opens the file; for writing, it is created if it is missing.
    ///
    /// # Errors
    /// `File`; `Memory` if there is no memory for the device's signal.
    pub fn open(name: &str, path: &Path, access: FileAccess) -> Result<Self, DeviceError> {
        let can_write = access == FileAccess::ReadWrite;
        let file = OpenOptions::new().read(true).write(can_write).create(can_write).truncate(false).open(path);
        let file = file.map_err(|e| file_error(path, e))?;
        let memory_bytes = file.metadata().map_err(|e| file_error(path, e))?.len();
        Ok(Self {
            tag: DeviceTag::new(name),
            info: DeviceInfo { arch: String::new(), threads: 0, memory_bytes },
            path: path.into(),
            file,
            access,
            timeline: Timeline::new(format!("{name}/host"), SignalPool::new().signal()?),
            mapped_bytes: Arc::default(),
        })
    }

    /// Length of the file now, in bytes.
    ///
    /// # Errors
    /// `File`.
    pub fn file_bytes(&self) -> Result<u64, DeviceError> {
        Ok(self.file.metadata().map_err(|e| file_error(&self.path, e))?.len())
    }

    /// `len_bytes` of the file from `offset` on.
    ///
    /// # Errors
    /// `Range` if the file is shorter, `Memory` if it cannot be mapped.
    pub fn map(&self, offset: u64, len_bytes: u64) -> Result<Memory, DeviceError> {
        let size_bytes = self.file_bytes()?;
        let end = offset.checked_add(len_bytes).filter(|&end| end <= size_bytes);
        let Some(end) = end else {
            return Err(DeviceError::Range { what: "map of a file", offset, len_bytes, size_bytes });
        };
        // Mappings cannot be empty: an empty range is taken from anonymous memory.
        let view = if len_bytes == 0 {
            View::anonymous(64, 64)?.sub(0, 0)?
        } else {
            View::file(&self.file, end, self.access)?.sub(offset, len_bytes)?
        };
        self.mapped_bytes.fetch_add(len_bytes, Ordering::Relaxed);
        Ok(Memory::new(MemoryParts {
            device: self.tag.clone(),
            va: view.base().0,
            len_bytes,
            host: Some(view),
            uses: Uses::new(None),
            release: Some(Arc::new(Unmap { mapped_bytes: Arc::clone(&self.mapped_bytes), len_bytes })),
        }))
    }

    fn refuse<T>(&self, what: &str) -> Result<T, DeviceError> {
        Err(DeviceError::Unsupported { device: self.tag.name().into(), what: what.into() })
    }

    fn check(&self, memory: &Memory) -> Result<(), DeviceError> {
        if *memory.device() == self.tag {
            return Ok(());
        }
        let (ours, theirs) = (self.tag.name().into(), memory.device().name().into());
        Err(DeviceError::WrongDevice { what: "memory", ours, theirs })
    }
}

fn file_error(path: &Path, source: std::io::Error) -> DeviceError {
    DeviceError::File { path: path.display().to_string(), source }
}

/// TIMEOUT: how long a host copy waits for queues that use the file.
const COPY_TIMEOUT: Duration = Duration::from_secs(30);

impl Device for DiskDevice {
    fn tag(&self) -> &DeviceTag {
        &self.tag
    }

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn executes(&self) -> bool {
        false
    }

    /// The first `len_bytes` of the file; opened for writing, a shorter file grows.
    fn alloc(&self, len_bytes: u64) -> Result<Memory, DeviceError> {
        if self.access == FileAccess::ReadWrite && self.file_bytes()? < len_bytes {
            self.file.set_len(len_bytes).map_err(|e| file_error(&self.path, e))?;
        }
        self.map(0, len_bytes)
    }

    fn copy_in(&self, dst: &Memory, offset: u64, src: &[u8]) -> Result<(), DeviceError> {
        self.check(dst)?;
        dst.check("copy in", offset, src.len() as u64)?;
        dst.uses().wait(COPY_TIMEOUT)?;
        Ok(dst.host().map_or(Ok(()), |view| view.write(offset, src))?)
    }

    fn copy_out(&self, src: &Memory, offset: u64, dst: &mut [u8]) -> Result<(), DeviceError> {
        self.check(src)?;
        src.check("copy out", offset, dst.len() as u64)?;
        src.uses().wait(COPY_TIMEOUT)?;
        Ok(src.host().map_or(Ok(()), |view| view.read(offset, dst))?)
    }

    fn load(&self, images: &[KernelImage<'_>]) -> Result<Vec<Kernel>, DeviceError> {
        if images.is_empty() { Ok(Vec::new()) } else { self.refuse("run kernels") }
    }

    /// Runs the copies on the calling thread.
    fn submit(&self, queue: QueueKind, commands: &[Command]) -> Result<Point, DeviceError> {
        queue.check_no_engine(&self.tag)?;
        for command in commands {
            match command {
                Command::Exec { .. } => return self.refuse("run kernels"),
                Command::Wait(point) => point.wait(COPY_TIMEOUT)?,
                Command::Copy { dst, src, len_bytes, .. } => {
                    dst.memory.check("copy destination", dst.offset, *len_bytes)?;
                    src.memory.check("copy source", src.offset, *len_bytes)?;
                    dst.memory.uses().wait(COPY_TIMEOUT)?;
                    src.memory.uses().wait(COPY_TIMEOUT)?;
                    let (Some(to), Some(from)) = (dst.memory.host(), src.memory.host()) else {
                        return self.refuse("copy memory that is not mapped for the host");
                    };
                    to.write_from(dst.offset, from, src.offset, *len_bytes)?;
                }
            }
        }
        let value = self.timeline.next();
        self.timeline.signal().set(value);
        Ok(self.timeline.point(value))
    }

    fn record(&self, _commands: &[Command]) -> Result<Box<dyn Recorded>, DeviceError> {
        self.refuse("record")
    }

    fn stamp(&self) -> Result<Stamp, DeviceError> {
        self.refuse("time commands")
    }

    fn synchronize(&self, _timeout: Duration) -> Result<(), DeviceError> {
        Ok(())
    }

    fn memory_used(&self) -> u64 {
        self.mapped_bytes.load(Ordering::Relaxed)
    }

    /// Does nothing: mappings stay valid as long as their memories, and the kernel writes dirty pages to the file
    /// later.
    fn close(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}
