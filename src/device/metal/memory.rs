//! Buffers: shared with the host, of the program, or private; and the host's copies.
//!
//! Private storage has no address for the host. Its copies go through one shared buffer, by the copy queue. A buffer is
//! known by a number: the address of its contents, or for a private one that of the object.

use super::core::{Core, lock};
use super::ns::Block;
use crate::memory::check_wrapped;
use crate::{Command, DeviceError, Memory, MemoryParts, QueueKind, Release, Uses};
use doorbell_hcq::memory::View;
use doorbell_ioctl::port::{CpuPtr, DeviceView};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Buffers are a multiple of this.
const BUFFER_STEP: u64 = 16;
/// A page of Apple's chips: where memory of the program can be used in place, it is whole pages.
const PAGE: u64 = 16 << 10;
/// Memory that host and GPU share, with hazards tracked by the framework.
pub(crate) const SHARED: u64 = 0;
/// Memory of the GPU alone (`MTLResourceStorageModePrivate`).
pub(crate) const PRIVATE: u64 = 2 << 4;
/// Copies of a blit encoder begin and end at multiples of this on a Mac.
const COPY_STEP: u64 = 4;
/// Bytes that are copied at a time between the host and private memory.
const STAGING_BYTES: u64 = 4 << 20;

/// Forgets a buffer when its memory is freed; the framework keeps it until command buffers with it are done.
struct Free(Arc<Core>, u64);

impl Release for Free {
    fn release(&self, va: u64, host: Option<View>, _uses: Uses) {
        self.0.forget(va);
        self.0.used_bytes.fetch_sub(self.1, Ordering::Relaxed);
        drop(host);
    }
}

/// As [`Free`], for memory of the program: it stays mapped until nothing uses it any more.
struct Unwrap(Arc<Core>);

impl Release for Unwrap {
    fn release(&self, va: u64, host: Option<View>, uses: Uses) {
        self.0.forget(va);
        if uses.wait(self.0.patience).is_err() && !uses.are_done() {
            // A command buffer that never ends may still use it.
            std::mem::forget(host);
        }
    }
}

/// A size that buffers have.
fn rounded(len_bytes: u64) -> u64 {
    len_bytes.max(1).checked_next_multiple_of(BUFFER_STEP).unwrap_or(u64::MAX)
}

impl Core {
    pub(crate) fn own(&self, memory: &Memory) -> Result<(), DeviceError> {
        if *memory.device() == self.tag {
            return Ok(());
        }
        let theirs = memory.device().name().into();
        Err(DeviceError::WrongDevice { what: "memory", ours: self.name.clone(), theirs })
    }

    fn check_size(&self, asked: u64, size: u64) -> Result<(), DeviceError> {
        let max = self.gpu.max_buffer_length();
        if size > max {
            return Err(DeviceError::TooBig { device: self.name.clone(), asked, max });
        }
        Ok(())
    }

    fn no_memory(&self, asked: u64) -> DeviceError {
        DeviceError::OutOfMemory {
            device: self.name.clone(),
            asked,
            used: self.used_bytes.load(Ordering::Relaxed),
            why: format!("Metal has {} bytes in use", self.gpu.current_allocated()),
        }
    }

    fn uses(&self) -> Uses {
        Uses::new(Some(Arc::clone(&self.compute.timeline)))
    }

    /// Memory that the host reaches, too.
    ///
    /// # Errors
    /// As [`crate::Device::alloc`].
    pub(crate) fn alloc_shared(self: &Arc<Self>, len_bytes: u64) -> Result<Memory, DeviceError> {
        self.check_open()?;
        let size = rounded(len_bytes);
        self.check_size(len_bytes, size)?;
        let made = self.runtime.pool(|| self.gpu.new_buffer(size, SHARED));
        let buffer = made.map(|b| (b.contents(), b)).filter(|(contents, _)| !contents.is_null());
        let (contents, buffer) = buffer.ok_or_else(|| self.no_memory(len_bytes))?;
        let va = contents.expose_provenance() as u64;
        let buffer = Arc::new(buffer);
        lock(&self.buffers).insert(va, Arc::clone(&buffer));
        self.used_bytes.fetch_add(len_bytes, Ordering::Relaxed);
        // SAFETY: the contents of a shared buffer are mapped as long as the buffer lives, which is the view's owner.
        let view = unsafe { DeviceView::from_raw(CpuPtr(va), size, Arc::clone(&buffer) as _) };
        self.share(&buffer, &view);
        Ok(Memory::new(MemoryParts {
            device: self.tag.clone(),
            va,
            len_bytes,
            host: Some(View::of_device(&view).sub(0, len_bytes)?),
            uses: self.uses(),
            release: Some(Arc::new(Free(Arc::clone(self), len_bytes))),
        }))
    }

    /// Memory of the GPU alone.
    ///
    /// # Errors
    /// As [`crate::Device::alloc`].
    pub(crate) fn alloc_private(self: &Arc<Self>, len_bytes: u64) -> Result<Memory, DeviceError> {
        self.check_open()?;
        let size = rounded(len_bytes);
        self.check_size(len_bytes, size)?;
        let made = self.runtime.pool(|| self.gpu.new_buffer(size, PRIVATE));
        let buffer = Arc::new(made.ok_or_else(|| self.no_memory(len_bytes))?);
        let va = buffer.number();
        lock(&self.buffers).insert(va, buffer);
        self.used_bytes.fetch_add(len_bytes, Ordering::Relaxed);
        Ok(Memory::new(MemoryParts {
            device: self.tag.clone(),
            va,
            len_bytes,
            host: None,
            uses: self.uses(),
            release: Some(Arc::new(Free(Arc::clone(self), len_bytes))),
        }))
    }

    /// Whole pages of the program.
    ///
    /// # Errors
    /// As [`crate::Device::wrap_host`].
    pub(crate) fn wrap(self: &Arc<Self>, host: &View) -> Result<Memory, DeviceError> {
        self.check_open()?;
        check_wrapped(&self.tag, host, PAGE)?;
        let (at, len_bytes) = (host.base(), host.len_bytes());
        let refused = |why: &str| DeviceError::Wrap { device: self.name.clone(), at: at.0, len_bytes, why: why.into() };
        if !len_bytes.is_multiple_of(PAGE) {
            return Err(refused("it is not whole pages of 16384 bytes"));
        }
        self.check_size(len_bytes, len_bytes)?;
        let mut buffers = lock(&self.buffers);
        if buffers.contains_key(&at.0) {
            return Err(refused("it is memory of this device already"));
        }
        let made = self.runtime.pool(|| self.gpu.new_buffer_in_place(at.as_ptr::<u8>(), len_bytes, SHARED, Block(0)));
        let buffer = made.filter(|b| b.contents() == at.as_ptr::<u8>());
        let buffer = Arc::new(buffer.ok_or_else(|| refused("Metal makes no buffer of it"))?);
        buffers.insert(at.0, Arc::clone(&buffer));
        drop(buffers);
        // SAFETY: the program's memory is mapped as long as the view of it lives, which is the owner.
        self.share(&buffer, &unsafe { DeviceView::from_raw(at, len_bytes, Arc::new(host.clone())) });
        Ok(Memory::new(MemoryParts {
            device: self.tag.clone(),
            va: at.0,
            len_bytes,
            host: Some(host.clone()),
            uses: self.uses(),
            release: Some(Arc::new(Unwrap(Arc::clone(self)))),
        }))
    }

    /// # Errors
    /// As [`crate::Device::copy_in`].
    pub(crate) fn copy_in(self: &Arc<Self>, dst: &Memory, offset: u64, src: &[u8]) -> Result<(), DeviceError> {
        self.own(dst)?;
        dst.check("copy in", offset, src.len() as u64)?;
        let Some(view) = dst.host() else {
            return self.through_staging(dst, offset, src.len() as u64, |at, staging, place, is_whole| {
                let (from, to) = (at.start as usize, at.end as usize);
                if !is_whole {
                    self.copy_now(Command::copy(staging.at(0), dst.at(place.start), place.end - place.start))?;
                }
                let head = offset + at.start - place.start;
                staging.host().map_or(Ok(()), |view| view.write(head, &src[from..to]))?;
                self.copy_now(Command::copy(dst.at(place.start), staging.at(0), place.end - place.start))
            });
        };
        dst.uses().wait(self.patience)?;
        Ok(view.write(offset, src)?)
    }

    /// # Errors
    /// As [`crate::Device::copy_out`].
    pub(crate) fn copy_out(self: &Arc<Self>, src: &Memory, offset: u64, dst: &mut [u8]) -> Result<(), DeviceError> {
        self.own(src)?;
        src.check("copy out", offset, dst.len() as u64)?;
        let Some(view) = src.host() else {
            return self.through_staging(src, offset, dst.len() as u64, |at, staging, place, _| {
                self.copy_now(Command::copy(staging.at(0), src.at(place.start), place.end - place.start))?;
                let head = offset + at.start - place.start;
                let part = &mut dst[at.start as usize..at.end as usize];
                Ok(staging.host().map_or(Ok(()), |view| view.read(head, part))?)
            });
        };
        src.uses().wait(self.patience)?;
        Ok(view.read(offset, dst)?)
    }

    /// Cuts a range of private memory into pieces that fit the staging buffer. `f` gets the piece in the host's bytes,
    /// the staging buffer, the piece in the memory grown to what can be copied, and whether it did not have to grow.
    fn through_staging(
        self: &Arc<Self>,
        memory: &Memory,
        offset: u64,
        len_bytes: u64,
        mut f: impl FnMut(std::ops::Range<u64>, &Memory, std::ops::Range<u64>, bool) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let mut kept = lock(&self.staging);
        let wanted = rounded((len_bytes + 2 * COPY_STEP).min(STAGING_BYTES));
        if kept.as_ref().is_none_or(|staging| staging.len_bytes() < wanted) {
            *kept = Some(self.alloc_shared(wanted)?);
        }
        let Some(staging) = &*kept else { return Err(self.no_memory(wanted)) };
        let most = staging.len_bytes() - 2 * COPY_STEP;
        let mut done = 0;
        while done < len_bytes {
            let end = (done + most).min(len_bytes);
            let (first, last) = (offset + done, offset + end);
            let place = first / COPY_STEP * COPY_STEP..last.next_multiple_of(COPY_STEP).min(memory.len_bytes());
            let is_whole = place == (first..last);
            f(done..end, staging, place, is_whole)?;
            done = end;
        }
        Ok(())
    }

    /// Makes a copy on the copy queue, after all work that uses its memories.
    fn copy_now(&self, copy: Command) -> Result<(), DeviceError> {
        Ok(self.submit(QueueKind::Copy, &[copy])?.wait(self.patience)?)
    }

    /// # Errors
    /// As [`crate::Device::synchronize`].
    pub(crate) fn synchronize(&self, timeout: Duration) -> Result<(), DeviceError> {
        let start = Instant::now();
        let wait = |queue: &Arc<super::queue::Queue>| {
            let timeline = &queue.timeline;
            timeline.wait(timeline.submitted(), timeout.saturating_sub(start.elapsed()))
        };
        Ok(self.queues().iter().try_for_each(wait)?)
    }
}
