//! The open GPU: what its queues share, and its buffers.

use super::archive::ArchiveFile;
use super::messages::{Buffer, Gpu};
use super::ns::Owned;
use super::objc::Runtime;
use super::queue::Queue;
use crate::health::Health;
use crate::{DeviceError, DeviceTag, QueueKind};
use doorbell_hcq::signal::{SignalPool, Timeline};
use doorbell_ioctl::port::DeviceView;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a device and its queues share.
#[derive(Debug)]
pub(crate) struct Common {
    pub name: String,
    pub tag: DeviceTag,
    pub runtime: &'static Runtime,
    pub(crate) health: Health,
    pub patience: Duration,
}

/// What all handles of an open device share.
pub(crate) struct Core {
    pub common: Arc<Common>,
    /// Bytes of memories that are alive.
    pub used_bytes: AtomicU64,
    /// Buffers by address.
    pub buffers: Mutex<HashMap<u64, Arc<Owned<Buffer>>>>,
    /// Their memory, where a tap sees the messages.
    pub shared: Mutex<HashMap<u64, Arc<DeviceView>>>,
    /// What copies between the host and private memory go through.
    pub staging: Mutex<Option<crate::Memory>>,
    pub signals: Arc<SignalPool>,
    /// Recorded lists may be kept as indirect command buffers.
    pub has_indirect: bool,
    /// Pipelines that only an indirect command buffer names must be made resident.
    pub is_lazy: bool,
    /// Pipelines of earlier processes.
    pub archive: Option<ArchiveFile>,
    pub compute: Arc<Queue>,
    /// Opened at its first use.
    pub copy: Mutex<Option<Arc<Queue>>>,
    // Dropped last.
    pub gpu: Owned<Gpu>,
}

impl Deref for Core {
    type Target = Common;

    fn deref(&self) -> &Common {
        &self.common
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Core({} {:?})", self.name, self.compute)
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Core {
    /// A queue.
    ///
    /// # Errors
    /// `Unavailable` where Metal gives none.
    pub(crate) fn queue(&self, kind: QueueKind) -> Result<Arc<Queue>, DeviceError> {
        if kind == QueueKind::Compute {
            return Ok(Arc::clone(&self.compute));
        }
        let mut copy = lock(&self.copy);
        if let Some(queue) = &*copy {
            return Ok(Arc::clone(queue));
        }
        self.check_open()?;
        let queue = Queue::open(&self.common, &self.gpu, "copy", &self.signals)?;
        *copy = Some(Arc::clone(&queue));
        Ok(queue)
    }

    /// The queues that are open.
    pub(crate) fn queues(&self) -> Vec<Arc<Queue>> {
        let copy = lock(&self.copy).clone();
        std::iter::once(Arc::clone(&self.compute)).chain(copy).collect()
    }

    /// The queue of this device that a timeline belongs to.
    pub(crate) fn queue_of(&self, timeline: &Arc<Timeline>) -> Option<Arc<Queue>> {
        self.queues().into_iter().find(|queue| Arc::ptr_eq(&queue.timeline, timeline))
    }

    /// Refuses work from now on.
    pub(crate) fn end(&self) {
        self.health.close();
        self.queues().iter().for_each(|queue| queue.end());
    }

    /// Tells a tap of a buffer's memory.
    pub(crate) fn share(&self, buffer: &Owned<Buffer>, memory: &DeviceView) {
        let Some(tap) = self.runtime.tap else { return };
        let memory = Arc::new(memory.clone());
        tap.shares(buffer.number(), &Arc::downgrade(&memory));
        lock(&self.shared).insert(memory.base().0, memory);
    }

    /// Forgets a buffer.
    pub(crate) fn forget(&self, va: u64) {
        let buffer = lock(&self.buffers).remove(&va);
        if let (Some(tap), Some(buffer)) = (self.runtime.tap, &buffer) {
            tap.frees(buffer.number());
            let memory = lock(&self.shared).remove(&va);
            drop(memory);
        }
    }
}

impl Common {
    /// # Errors
    /// `Unavailable` after a fault, `Closed`.
    pub(crate) fn check_open(&self) -> Result<(), DeviceError> {
        self.health.check(&self.name)
    }

    pub(crate) fn cannot(&self, what: String) -> DeviceError {
        DeviceError::Unsupported { device: self.name.clone(), what }
    }
}
