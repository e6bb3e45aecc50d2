//! Pipelines that are kept across processes: a binary archive in a file.
//!
//! Source: Apple's documentation of `MTLBinaryArchive`. A library is compiled from source in any case; the archive
//! saves what the driver makes of it for this GPU. An archive that cannot be read (damaged, of another GPU or another
//! release of the system) is ignored, and replaced when the device is closed. Whether it gains anything over the
//! system's own cache only a Mac can tell.

use super::messages::{Archive, ArchiveDescriptor, Gpu, NsArray, NsUrl, PipelineDescriptor};
use super::ns::{ErrorSlot, Owned, string};
use super::objc::Runtime;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Larger files are begun anew: what they hold is never taken out again.
const MOST_BYTES: u64 = 64 << 20;

/// An archive and its file.
#[derive(Debug)]
pub(crate) struct ArchiveFile {
    path: PathBuf,
    archive: Owned<Archive>,
    /// Holds pipelines that the file does not.
    is_changed: Mutex<bool>,
}

/// The URL of a file. Call it in a pool.
pub(crate) fn url(runtime: &'static Runtime, path: &Path) -> Option<Owned<NsUrl>> {
    NsUrl::of_file(runtime, &string(runtime, path.to_str()?)?)?.0
}

impl ArchiveFile {
    /// The archive of a GPU in a folder; `None` where Metal has no archives.
    pub(crate) fn open(runtime: &'static Runtime, gpu: &Owned<Gpu>, folder: &Path, gpu_name: &str) -> Option<Self> {
        let name: String = gpu_name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let path = folder.join(format!("metal-archive-{name}"));
        let is_there = path.metadata().is_ok_and(|data| data.len() <= MOST_BYTES);
        let read = is_there.then(|| Self::make(runtime, gpu, Some(&path))).flatten();
        if read.is_some() {
            // Files of the cache that were not used for longest go first.
            let touched = std::fs::File::options().append(true).open(&path);
            let touched = touched.and_then(|file| file.set_modified(std::time::SystemTime::now()));
            touched.unwrap_or_else(|e| log::debug!("{}: {e}", path.display()));
        }
        let archive = read.or_else(|| Self::make(runtime, gpu, None))?;
        Some(Self { path, archive, is_changed: Mutex::new(false) })
    }

    fn make(runtime: &'static Runtime, gpu: &Owned<Gpu>, path: Option<&Path>) -> Option<Owned<Archive>> {
        runtime.pool(|| {
            let descriptor = ArchiveDescriptor::create(runtime).flatten()?;
            if let Some(path) = path {
                descriptor.set_url(Some(&url(runtime, path)?));
            }
            let mut error = ErrorSlot::new();
            let made = gpu.new_archive(&descriptor, &mut error);
            if made.is_none() {
                let why = error.get(runtime).map(|e| e.to_string()).unwrap_or_default();
                log::debug!("binary archive {}: {why}", path.unwrap_or(Path::new("")).display());
            }
            made
        })
    }

    /// Makes a descriptor's pipeline be looked for here. Call it in a pool.
    pub(crate) fn offer(&self, descriptor: &Owned<PipelineDescriptor>) {
        let all = NsArray::with_object(self.archive.runtime, &self.archive).and_then(|lent| lent.0);
        descriptor.set_archives(all.as_ref());
    }

    /// Keeps a descriptor's pipeline. Call it in a pool.
    pub(crate) fn add(&self, descriptor: &Owned<PipelineDescriptor>) {
        let mut error = ErrorSlot::new();
        if self.archive.add(descriptor, &mut error) {
            *super::core::lock(&self.is_changed) = true;
        } else {
            let why = error.get(self.archive.runtime).map(|e| e.to_string()).unwrap_or_default();
            log::debug!("binary archive {}: {why}", self.path.display());
        }
    }

    /// Writes the file if there is anything new; a failure only means that the pipelines are made again.
    pub(crate) fn save(&self) {
        let mut is_changed = super::core::lock(&self.is_changed);
        if !std::mem::take(&mut *is_changed) {
            return;
        }
        self.write().unwrap_or_else(|why| log::debug!("binary archive {}: {why}", self.path.display()));
    }

    /// Another process may read the file, or write it, too.
    fn write(&self) -> Result<(), String> {
        let folder = self.path.parent().ok_or("it has no folder")?;
        std::fs::create_dir_all(folder).map_err(|e| e.to_string())?;
        // A dot: an unfinished file of the cache.
        let part = folder.join(format!(".metal-archive-{}", std::process::id()));
        let runtime = self.archive.runtime;
        let written = runtime.pool(|| {
            let url = url(runtime, &part).ok_or("its path is no text")?;
            let mut error = ErrorSlot::new();
            let is_written = self.archive.serialize(&url, &mut error);
            let why = || error.get(runtime).map_or_else(|| "no error".into(), |e| e.to_string());
            if is_written { Ok(()) } else { Err(why()) }
        });
        let moved = written.and_then(|()| std::fs::rename(&part, &self.path).map_err(|e| e.to_string()));
        if moved.is_err() {
            let _it_may_not_be_there = std::fs::remove_file(&part);
        }
        moved
    }
}
