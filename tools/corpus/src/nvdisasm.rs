//! Words of kernels as nvdisasm reads them, next to how we print them.
//!
//! It takes a fifth of a second to start, so kernels wait for each other and are read in large pieces.

use crate::report::Report;
use crate::work;
use doorbell_ptx::sass::{self, SmArch};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Words of one call; a kernel with more of them has a call of its own.
const WORDS: usize = 100_000;

/// The disassembler that has to read the code of PTX and of cubins.
#[derive(Debug)]
pub struct Nvdisasm {
    pub program: PathBuf,
    /// It reads one kernel of so many.
    pub one_of: u64,
    waiting: Mutex<Vec<Kernel>>,
}

#[derive(Debug)]
struct Kernel {
    chip: SmArch,
    path: PathBuf,
    name: String,
    words: Vec<u128>,
}

impl Nvdisasm {
    pub fn new(program: PathBuf, one_of: u64) -> Nvdisasm {
        Nvdisasm { program, one_of, waiting: Mutex::default() }
    }

    /// Whether it is to read the kernel of this name, which is by chance, and the same in each run.
    #[must_use]
    pub fn wants(&self, kernel: &str) -> bool {
        // FNV-1a of 64 bits.
        let hash =
            kernel.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        (hash >> 16).is_multiple_of(self.one_of)
    }

    /// Has a kernel wait for [`Nvdisasm::read`].
    pub fn later(&self, path: &Path, name: &str, chip: SmArch, words: Vec<u128>) {
        let kernel = Kernel { chip, path: path.to_owned(), name: name.to_owned(), words };
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(kernel);
    }

    /// Reads the kernels that wait, on all processors.
    pub fn read(&self) -> Report {
        let mut kernels = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        kernels.sort_by(|a, b| (a.chip as u32, &a.path, &a.name).cmp(&(b.chip as u32, &b.path, &b.name)));
        work::each(&pieces(&kernels), &|kernels, report| self.read_piece(kernels, report))
    }

    fn read_piece(&self, kernels: &[Kernel], report: &mut Report) {
        let words: Vec<u128> = kernels.iter().flat_map(|k| &k.words).copied().collect();
        match (self.texts(kernels[0].chip, &words), kernels) {
            (Ok(texts), _) if texts.len() >= words.len() => compare(kernels, &texts, report),
            (Ok(texts), [kernel]) => {
                let text = format!("{} of {} words read in {}", texts.len(), words.len(), kernel.name);
                report.fault(&kernel.path, "nvdisasm", &text);
            }
            (Err(e), [kernel]) => report.fault(&kernel.path, "nvdisasm", &format!("{e} in {}", kernel.name)),
            // It stops at the first word that it does not know: which kernel's is it?
            _ => kernels.iter().for_each(|kernel| self.read_piece(std::slice::from_ref(kernel), report)),
        }
    }

    /// Its text of each word.
    fn texts(&self, chip: SmArch, words: &[u128]) -> Result<Vec<String>, String> {
        let file =
            std::env::temp_dir().join(format!("corpus-{}-{:?}", std::process::id(), std::thread::current().id()));
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        std::fs::write(&file, bytes).map_err(|e| e.to_string())?;
        let arch = if chip == SmArch::Sm90 { "SM90a".to_owned() } else { format!("SM{}", chip.number()) };
        let out = Command::new(&self.program).args(["--binary", &arch]).arg(&file).output();
        let _ = std::fs::remove_file(&file);
        let out = out.map_err(|e| e.to_string())?;
        if !out.status.success() {
            return Err(String::from_utf8_lossy(&out.stderr).trim().to_owned());
        }
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let lines = text.lines().filter_map(|l| Some(l.split_once("*/")?.1.split(';').next()?.trim().to_owned()));
        Ok(lines.filter(|l| !l.is_empty()).collect())
    }
}

/// Neighbours of one chip, about [`WORDS`] words in each piece.
fn pieces(kernels: &[Kernel]) -> Vec<&[Kernel]> {
    let (mut pieces, mut begin, mut words) = (vec![], 0, 0);
    for (at, kernel) in kernels.iter().enumerate() {
        if at > begin && (words + kernel.words.len() > WORDS || kernel.chip != kernels[begin].chip) {
            pieces.push(&kernels[begin..at]);
            (begin, words) = (at, 0);
        }
        words += kernel.words.len();
    }
    pieces.push(&kernels[begin..]);
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

/// Whether the texts of the kernels' words, one after the other, are ours.
fn compare(kernels: &[Kernel], mut texts: &[String], report: &mut Report) {
    let mut at = 0u64;
    for kernel in kernels {
        let (theirs, rest) = texts.split_at(kernel.words.len());
        report.count("kernels that nvdisasm read", 1);
        let ours = kernel.words.iter().zip((at..).step_by(16)).map(|(word, at)| printed(*word, at, kernel.chip));
        if let Some((a, b)) = ours.zip(theirs).find(|(a, b)| a != *b) {
            report.fault(&kernel.path, "nvdisasm", &format!("ours {a}, theirs {b} in {}", kernel.name));
        }
        texts = rest;
        at += 16 * kernel.words.len() as u64;
    }
}

fn printed(word: u128, at: u64, chip: SmArch) -> String {
    sass::decode_for(word, chip).map_or_else(|e| e.to_string(), |i| sass::print_at(&i, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_read_in_pieces_of_one_chip() {
        let kernel = |chip, words| Kernel { chip, path: PathBuf::new(), name: String::new(), words: vec![0; words] };
        let of = |chips: &[(SmArch, usize)]| -> Vec<usize> {
            let kernels: Vec<Kernel> = chips.iter().map(|(chip, words)| kernel(*chip, *words)).collect();
            pieces(&kernels).iter().map(|p| p.len()).collect()
        };
        let (a, b) = (SmArch::Sm80, SmArch::Sm90);
        assert_eq!(of(&[]), [0usize; 0]);
        assert_eq!(of(&[(a, WORDS / 2), (a, WORDS / 2), (a, 1), (b, 1)]), [2, 1, 1]);
        assert_eq!(of(&[(a, 2 * WORDS), (a, 1)]), [1, 1]);
    }
}
