//! A package where it lies: a mapped file, or memory. Tables and code are read once, constants stay where they are.

use crate::RunError;
use doorbell_device::{Device, DeviceError, Memory};
use doorbell_hcq::memory::View;
use doorbell_ioctl::port::FileAccess;
use doorbell_package::{HEADER_BYTES, Head, Package, PackageError, checksum_of};
use std::fs::File;
use std::path::Path;

/// What is compared with its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Check {
    /// All bytes.
    #[default]
    Everything,
    /// All but the constants: a file of gigabytes is then read when it is used.
    AllButConstants,
}

/// A checked package, with its constants.
#[derive(Clone, Debug)]
pub struct PackageFile {
    package: Package,
    data: Option<View>,
}

/// Bytes that a checksum takes at once.
const PIECE: usize = 256 << 10;

impl PackageFile {
    /// Maps a file, and beside it the file of its constants if it has one.
    ///
    /// # Errors
    /// `File`, `Package`.
    pub fn open(path: &Path, check: Check) -> Result<PackageFile, RunError> {
        let view = map(path)?;
        let package = read_head(&view)?;
        let data = match &package.contents.data_file {
            Some(file) => Some(map(&path.with_file_name(&file.name))?),
            None if package.data.is_empty() => None,
            None => Some(view),
        };
        Self::with(package, data, check)
    }

    /// A package in memory. `data`: its constants, if they are a file of their own.
    ///
    /// # Errors
    /// `Package`.
    pub fn of(view: &View, data: Option<View>, check: Check) -> Result<PackageFile, RunError> {
        let package = read_head(view)?;
        let data = match (&package.contents.data_file, data) {
            (Some(file), None) => {
                let why = format!("the file {} is needed for them", file.name);
                return Err(PackageError::Inconsistent { what: "the constants".into(), why }.into());
            }
            (Some(_), given) => given,
            (None, _) => (!package.data.is_empty()).then(|| view.clone()),
        };
        Self::with(package, data, check)
    }

    /// A package in bytes, which are copied.
    ///
    /// # Errors
    /// As [`PackageFile::of`].
    pub fn from_bytes(bytes: &[u8]) -> Result<PackageFile, RunError> {
        let view = View::anonymous(bytes.len().max(1) as u64, doorbell_package::ALIGN_BYTES)?;
        view.write(0, bytes)?;
        Self::of(&view.sub(0, bytes.len() as u64)?, None, Check::Everything)
    }

    /// `data`: the view that holds the constants, a whole file.
    fn with(package: Package, data: Option<View>, check: Check) -> Result<PackageFile, RunError> {
        let data = match data {
            None => None,
            Some(view) if package.contents.data_file.is_some() => {
                let (have, want) = (view.len_bytes(), package.contents.data_bytes);
                if have != want {
                    return Err(PackageError::Length { have, want }.into());
                }
                Some(view)
            }
            Some(view) => Some(view.sub(package.data.start, package.data.end - package.data.start)?),
        };
        let file = PackageFile { package, data };
        if check == Check::Everything {
            file.check_constants()?;
        }
        Ok(file)
    }

    /// Compares the constants with their checksum.
    ///
    /// # Errors
    /// `Package`: they are damaged.
    pub(crate) fn check_constants(&self) -> Result<(), RunError> {
        let Some(view) = &self.data else { return Ok(()) };
        let mut failed = None;
        let mut piece = vec![0; PIECE.min(usize::try_from(view.len_bytes()).unwrap_or(PIECE))];
        let pieces = (0..view.len_bytes()).step_by(PIECE).map_while(|at| {
            let len = piece.len().min(usize::try_from(view.len_bytes() - at).unwrap_or(PIECE));
            failed = view.read(at, &mut piece[..len]).err();
            failed.is_none().then(|| piece[..len].to_vec())
        });
        let checksum = checksum_of(pieces);
        match failed {
            Some(e) => Err(e.into()),
            None => Ok(self.package.check_data(checksum)?),
        }
    }

    /// What the package says.
    #[must_use]
    pub fn package(&self) -> &Package {
        &self.package
    }

    /// The constants at an offset, as memory.
    pub(crate) fn constants(&self, at: u64, len_bytes: u64) -> Result<View, RunError> {
        match &self.data {
            Some(view) => Ok(view.sub(at, len_bytes)?),
            None => {
                Err(PackageError::Inconsistent { what: "the constants".into(), why: "there are none".into() }.into())
            }
        }
    }

    /// Copies constants to a device's memory, in pieces.
    pub(crate) fn copy_constants(
        &self,
        at: u64,
        len_bytes: u64,
        mut put: impl FnMut(u64, &[u8]) -> Result<(), DeviceError>,
    ) -> Result<(), RunError> {
        let view = self.constants(at, len_bytes)?;
        let mut piece = vec![0; PIECE.min(usize::try_from(len_bytes).unwrap_or(PIECE))];
        let mut done = 0;
        while done < len_bytes {
            let len = piece.len().min(usize::try_from(len_bytes - done).unwrap_or(PIECE));
            view.read(done, &mut piece[..len])?;
            put(done, &piece[..len])?;
            done += len as u64;
        }
        Ok(())
    }
}

/// All of a package but its constants.
fn read_head(view: &View) -> Result<Package, RunError> {
    let read = |len: u64| {
        let mut bytes = vec![0; usize::try_from(len.min(view.len_bytes())).unwrap_or(0)];
        view.read(0, &mut bytes).map(|()| bytes)
    };
    let head = Head::parse(&read(HEADER_BYTES as u64)?, view.len_bytes())?;
    Ok(Package::parse_head(&read(head.head_bytes)?, view.len_bytes())?)
}

fn map(path: &Path) -> Result<View, RunError> {
    let failed = |source| RunError::File { path: path.display().to_string(), source };
    let file = File::open(path).map_err(failed)?;
    let len = file.metadata().map_err(failed)?.len();
    if len == 0 {
        // An empty file cannot be mapped; it is no package.
        return Err(Head::parse(&[], 0).err().unwrap_or(PackageError::Length { have: 0, want: 1 }).into());
    }
    Ok(View::file(&file, len, FileAccess::Read)?)
}

/// Memory of the host as a device's own, where that is what the device uses anyway: on a CPU. A GPU would read it
/// through its link in every run.
///
/// # Errors
/// `Unsupported` on other devices.
pub(crate) fn in_place(device: &dyn Device, view: &View) -> Result<Memory, DeviceError> {
    if device.info().is_cpu() {
        return device.wrap_host(view);
    }
    let what = "use memory of the host as its own".into();
    Err(DeviceError::Unsupported { device: device.tag().name().into(), what })
}
