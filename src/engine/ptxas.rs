//! NVIDIA's assembler as a process: PTX text → cubin, each text assembled once.
//!
//! Place in the arrows: `engine` alone; stands in the place of our own assembler where `PTXAS=path` names it. Nothing is started unless a kernel for
//! such a GPU is compiled. Cubins are kept by their text in the process, and on disk where kernel search keeps what it has learnt.

use crate::isa::nvidia::Assemble;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

/// What is at the head of a kept cubin; another form of the file is another word.
const MAGIC: &[u8; 8] = b"dbcubin1";

/// NVIDIA's assembler.
#[derive(Debug)]
pub struct Ptxas {
    path: PathBuf,
    /// Which one it is: path, length, time of change.
    identity: String,
    made: Mutex<HashMap<String, Arc<[u8]>>>,
    /// Where cubins are kept.
    folder: Option<PathBuf>,
}

impl Ptxas {
    /// The one at that path; `cache_dir` is where searches are remembered.
    #[must_use]
    pub fn new(path: &Path, cache_dir: Option<&Path>) -> Self {
        let folder = cache_dir.map(|dir| dir.join("cubin"));
        Self { path: path.to_path_buf(), identity: identity(path), made: Mutex::default(), folder }
    }

    fn made_or_kept(&self, chip: &str, text: &str) -> Result<Vec<u8>, String> {
        let path = self.folder.as_ref().map(|folder| folder.join(self.file_name(chip, text)));
        if let Some(kept) = path.as_deref().and_then(|path| self.read_kept(path, text)) {
            return Ok(kept);
        }
        let cubin = run_ptxas(&self.path, chip, text)?;
        if let Some(path) = &path {
            self.keep(path, text, &cubin);
        }
        Ok(cubin)
    }

    fn file_name(&self, chip: &str, text: &str) -> String {
        let mut hasher = DefaultHasher::new();
        (chip, &self.identity, text).hash(&mut hasher);
        format!("{}-{:016x}.bin", chip, hasher.finish())
    }

    /// A kept cubin is taken only with exactly this text and this assembler before it.
    fn read_kept(&self, path: &Path, text: &str) -> Option<Vec<u8>> {
        let bytes = std::fs::read(path).ok()?;
        let rest = bytes.strip_prefix(MAGIC.as_slice())?;
        let rest = strip_counted(rest, self.identity.as_bytes())?;
        Some(strip_counted(rest, text.as_bytes())?.to_vec())
    }

    /// Keeps a cubin; where that does not work, it is made again next time.
    fn keep(&self, path: &Path, text: &str, cubin: &[u8]) {
        let mut bytes = MAGIC.to_vec();
        for part in [self.identity.as_bytes(), text.as_bytes()] {
            bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bytes.extend_from_slice(part);
        }
        bytes.extend_from_slice(cubin);
        let written = path.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| {
            // Whole or not at all: another process may read it.
            let part = path.with_extension(format!("part{}", std::process::id()));
            std::fs::write(&part, &bytes).and_then(|()| std::fs::rename(&part, path))
        });
        if let Err(e) = written {
            log::debug!("{} is not kept: {e}", path.display());
        }
    }
}

impl Assemble for Ptxas {
    fn assemble(&self, chip: &str, text: &str) -> Result<Vec<u8>, String> {
        if let Some(known) = self.made.lock().unwrap_or_else(PoisonError::into_inner).get(text) {
            return Ok(known.to_vec());
        }
        let cubin = self.made_or_kept(chip, text)?;
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.insert(text.into(), cubin.as_slice().into());
        Ok(cubin)
    }
}

/// What follows `wanted` and its length, if that is what stands there.
fn strip_counted<'a>(bytes: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    let (count, rest) = bytes.split_first_chunk::<8>()?;
    if u64::from_le_bytes(*count) != wanted.len() as u64 { None } else { rest.strip_prefix(wanted) }
}

fn identity(path: &Path) -> String {
    let facts = std::fs::metadata(path).map(|m| (m.len(), m.modified().ok()));
    format!("{} {facts:?}", path.display())
}

/// Runs the assembler on a text.
fn run_ptxas(ptxas: &Path, chip: &str, text: &str) -> Result<Vec<u8>, String> {
    let io = |what: &str, e: std::io::Error| format!("{what}: {e}");
    let folder = tempfile::tempdir().map_err(|e| io("temporary folder", e))?;
    let (source, object) = (folder.path().join("kernel.ptx"), folder.path().join("kernel.cubin"));
    std::fs::write(&source, text).map_err(|e| io("write PTX", e))?;
    let mut command = Command::new(ptxas);
    command.arg("-arch").arg(chip).arg("-o").arg(&object).arg(&source);
    let out = command.output().map_err(|e| io(&format!("PTXAS={}", ptxas.display()), e))?;
    if !out.status.success() {
        let said = [out.stderr, out.stdout].concat();
        let said: Vec<String> = String::from_utf8_lossy(&said).lines().take(4).map(|l| l.trim().to_string()).collect();
        return Err(format!("{} -arch {chip} {}: {}", ptxas.display(), out.status, said.join("; ")));
    }
    std::fs::read(&object).map_err(|e| io("read the cubin", e))
}

#[cfg(test)]
mod tests {
    use super::super::backends;
    use super::*;
    use crate::isa::Backend;
    use crate::isa::ptx::Chip;

    const TEXT: &str = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }\n";

    /// A program that is started while another thread's child still holds it open for writing is "busy".
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    fn script(folder: &Path, body: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = folder.join("ptxas");
        std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn text_is_assembled_once_and_kept_on_disk() {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("runs");
        // Copies its source to the object and counts its runs.
        let ptxas = script(folder.path(), &format!("echo run >> {}; cp \"$5\" \"$4\"", runs.display()));
        let new = || Ptxas::new(&ptxas, Some(folder.path()));
        let count = || std::fs::read_to_string(&runs).unwrap().lines().count();
        let code = new();
        for _ in 0..2 {
            assert_eq!(code.assemble("sm_90", TEXT).unwrap(), TEXT.as_bytes());
        }
        assert_eq!(new().assemble("sm_90", TEXT).unwrap(), TEXT.as_bytes());
        assert_eq!(count(), 1);
        assert_ne!(new().assemble("sm_90", ".version 8.1").unwrap(), TEXT.as_bytes());
        assert_eq!(count(), 2);
        // A file of another text under the same name is not taken.
        let kept = folder.path().join("cubin").join(code.file_name("sm_90", TEXT));
        let mut bytes = std::fs::read(&kept).unwrap();
        let last = MAGIC.len() + 16 + code.identity.len() + 3;
        bytes[last] ^= 1;
        std::fs::write(&kept, bytes).unwrap();
        assert_eq!(new().assemble("sm_90", TEXT).unwrap(), TEXT.as_bytes());
        assert_eq!(count(), 3);
    }

    #[test]
    fn refusal_of_the_assembler_is_told_with_the_kernel() {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().unwrap();
        let ptxas = script(folder.path(), "echo 'line 3; error : no such thing' >&2; exit 255");
        let error = |path: &Path| {
            let code = backends::nvidia(Chip::parse("sm_90").unwrap(), Some(path), None);
            Backend::assemble(&code, "k", TEXT).unwrap_err().to_string()
        };
        let refused = error(&ptxas);
        assert!(refused.starts_with("k: ") && refused.contains("line 3; error : no such thing"), "{refused}");
        assert!(error(&folder.path().join("none")).contains("PTXAS="));
    }
}
