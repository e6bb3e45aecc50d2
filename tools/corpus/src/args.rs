//! The command line.

use doorbell_ptx::sass::SmArch;
use std::path::{Path, PathBuf};

/// What the files are.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// PTX, assembled for a chip.
    Ptx(SmArch),
    Cubin,
    Object,
}

impl Kind {
    /// Of its files in a folder.
    fn extension(&self) -> &'static str {
        match self {
            Kind::Ptx(_) => "ptx",
            Kind::Cubin => "cubin",
            Kind::Object => "co",
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Kind::Ptx(chip) => write!(f, "ptx {chip}"),
            Kind::Cubin => f.write_str("cubin"),
            Kind::Object => f.write_str("object"),
        }
    }
}

/// The parsed command line.
#[derive(Debug)]
pub struct Args {
    pub kind: Kind,
    pub files: Vec<PathBuf>,
    /// The table is added to this file.
    pub out: Option<PathBuf>,
    pub nvdisasm: Option<Nvdisasm>,
}

/// The disassembler that has to read the code of PTX.
#[derive(Clone, Debug, PartialEq)]
pub struct Nvdisasm {
    pub program: PathBuf,
    /// It reads one kernel of so many: it takes far longer than the assembler.
    pub one_of: u64,
}

impl Nvdisasm {
    /// Whether it is to read the kernel of this name, which is by chance, and the same in each run.
    #[must_use]
    pub fn wants(&self, kernel: &str) -> bool {
        // FNV-1a of 64 bits.
        let hash =
            kernel.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        (hash >> 16).is_multiple_of(self.one_of)
    }
}

impl Args {
    /// Reads the words after the program's name; folders are replaced by their files, in order, and sampled.
    ///
    /// # Errors
    /// One line with what is wrong.
    pub fn parse(words: &[String]) -> Result<Args, String> {
        let mut words = words.iter();
        let kind = match words.next().map(String::as_str) {
            Some("ptx") => {
                let name = words.next().ok_or("ptx needs a chip")?;
                let chip = SmArch::ALL.into_iter().find(|c| c.to_string() == *name);
                Kind::Ptx(chip.ok_or_else(|| format!("no chip {name}"))?)
            }
            Some("cubin") => Kind::Cubin,
            Some("object") => Kind::Object,
            other => return Err(format!("{other:?} is not ptx, cubin or object")),
        };
        let (mut files, mut out, mut nvdisasm, mut one_of) = (vec![], None, None, 1u64);
        let (mut sample, mut seed) = (usize::MAX, 26u64);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            let number = |text: &String| text.parse::<u64>().map_err(|_| format!("{word} {text} is no number"));
            match word.as_str() {
                "--out" => out = Some(value()?.into()),
                "--nvdisasm" => nvdisasm = Some(value()?.into()),
                "--nvdisasm-one-of" => one_of = number(value()?)?.max(1),
                "--sample" => sample = usize::try_from(number(value()?)?).unwrap_or(usize::MAX),
                "--seed" => seed = number(value()?)?,
                _ if word.starts_with("--") => return Err(format!("unknown option {word}")),
                _ if Path::new(word).is_dir() => {
                    collect(Path::new(word), kind.extension(), &mut files).map_err(|e| format!("{word}: {e}"))?;
                }
                _ => files.push(word.into()),
            }
        }
        files.sort();
        let nvdisasm = nvdisasm.map(|program| Nvdisasm { program, one_of });
        Ok(Args { kind, files: sampled(files, sample, seed), out, nvdisasm })
    }
}

/// The files of a folder and those in it that have the extension.
fn collect(folder: &Path, extension: &str, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, extension, files)?;
        } else if path.extension().is_some_and(|e| e == extension) {
            files.push(path);
        }
    }
    Ok(())
}

/// `count` of the files, by a generator of the seed.
fn sampled(mut files: Vec<PathBuf>, count: usize, seed: u64) -> Vec<PathBuf> {
    let mut state = seed;
    while files.len() > count {
        // Knuth's multiplier for a linear congruential generator of 64 bits.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let at = (state >> 33) as usize % files.len();
        files.remove(at);
    }
    files
}
