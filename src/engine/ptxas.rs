//! NVIDIA's assembler as an external process: PTX text → cubin; each text is assembled once.
//!
//! Layer: private to `engine`; replaces this project's own assembler if `PTXAS=path` is set. The process is started
//! only when a kernel for such a GPU is compiled. Cubins are cached by chip, assembler and text: the most recent ones
//! in memory, and on disk together with the results of kernel search.

use super::cache::{Bounded, DiskCache};
use crate::isa::nvidia::Assemble;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

/// Cubins cached in memory.
const LIMIT: usize = 256;

/// NVIDIA's assembler.
#[derive(Debug)]
pub(crate) struct Ptxas {
    path: PathBuf,
    /// Identifies the assembler: path, length, modification time.
    identity: String,
    made: Mutex<Bounded<String, Arc<[u8]>>>,
    kept: Option<DiskCache>,
}

impl Ptxas {
    /// The assembler at `path`; `cache_dir` is the folder of the disk cache.
    #[must_use]
    pub(crate) fn new(path: &Path, cache_dir: Option<&Path>) -> Self {
        let kept = cache_dir.map(DiskCache::new);
        Self { path: path.to_path_buf(), identity: identity(path), made: Mutex::new(Bounded::new(LIMIT)), kept }
    }

    fn key(&self, chip: &str, text: &str) -> String {
        format!("{chip}\n{}\n{text}", self.identity)
    }

    fn kept_or_made(&self, key: &str, (chip, text): (&str, &str)) -> Result<Vec<u8>, String> {
        let Some(cache) = &self.kept else { return run_ptxas(&self.path, chip, text) };
        if let Some(cubin) = cache.get("cubin", key.as_bytes()) {
            return Ok(cubin);
        }
        let cubin = run_ptxas(&self.path, chip, text)?;
        cache.put("cubin", key.as_bytes(), &cubin);
        Ok(cubin)
    }
}

impl Assemble for Ptxas {
    fn assemble(&self, chip: &str, text: &str) -> Result<Vec<u8>, String> {
        let key = self.key(chip, text);
        let made = || self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = made().get(&key) {
            return Ok(known.to_vec());
        }
        let cubin = self.kept_or_made(&key, (chip, text))?;
        made().insert(key, cubin.as_slice().into());
        Ok(cubin)
    }
}

fn identity(path: &Path) -> String {
    let metadata = std::fs::metadata(path).map(|m| (m.len(), m.modified().ok()));
    format!("{} {metadata:?}", path.display())
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
        // Another chip is another cubin.
        assert_eq!(new().assemble("sm_80", TEXT).unwrap(), TEXT.as_bytes());
        assert_eq!(count(), 3);
        // A damaged file is ignored.
        for file in std::fs::read_dir(folder.path().join("entries")).unwrap() {
            let path = file.unwrap().path();
            let mut bytes = std::fs::read(&path).unwrap();
            let last = bytes.len() - 9;
            bytes[last] ^= 1;
            std::fs::write(path, bytes).unwrap();
        }
        assert_eq!(new().assemble("sm_90", TEXT).unwrap(), TEXT.as_bytes());
        assert_eq!(count(), 4);
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
