//! The command line.

use crate::nvdisasm::Nvdisasm;
use doorbell_ptx::sass::SmArch;
use std::path::{Path, PathBuf};

/// What the files are.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// PTX, assembled for a chip.
    Ptx(SmArch),
    Cubin,
    Object,
    /// Kernels of PTX, run by two assemblers' code for a chip.
    Run(SmArch),
}

impl Kind {
    /// Of its files in a folder.
    fn extension(&self) -> &'static str {
        match self {
            Kind::Ptx(_) | Kind::Run(_) => "ptx",
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
            Kind::Run(chip) => write!(f, "run {chip}"),
        }
    }
}

/// The parsed command line.
#[derive(Debug)]
pub struct Args {
    pub kind: Kind,
    pub files: Vec<PathBuf>,
    /// Those that a sample left out.
    pub rest: Vec<PathBuf>,
    /// The table is added to this file.
    pub out: Option<PathBuf>,
    pub nvdisasm: Option<Nvdisasm>,
    pub ptxas: Option<PathBuf>,
    pub wanted: Wanted,
}

/// Which kernels are run.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// So many have to leave the same.
    pub kernels: usize,
    /// They are taken in an order by a generator of this seed.
    pub seed: u64,
    /// Of those whose names contain this.
    pub name: String,
    /// Texts and both codes of kernels that differ are written to this folder.
    pub keep: Option<PathBuf>,
}

impl Args {
    /// Reads the words after the program's name; folders are replaced by their files, in order, and sampled.
    ///
    /// # Errors
    /// One line with what is wrong.
    pub fn parse(words: &[String]) -> Result<Args, String> {
        let mut words = words.iter();
        let kind = match words.next().map(String::as_str) {
            Some(kind @ ("ptx" | "run")) => {
                let name = words.next().ok_or_else(|| format!("{kind} needs a chip"))?;
                let chip = SmArch::ALL.into_iter().find(|c| c.to_string() == *name);
                let chip = chip.ok_or_else(|| format!("no chip {name}"))?;
                if kind == "ptx" { Kind::Ptx(chip) } else { Kind::Run(chip) }
            }
            Some("cubin") => Kind::Cubin,
            Some("object") => Kind::Object,
            other => return Err(format!("{other:?} is not ptx, run, cubin or object")),
        };
        let (mut files, mut out, mut nvdisasm, mut one_of) = (vec![], None, None, 1u64);
        let (mut sample, mut seed, mut ptxas, mut kernels, mut name) = (usize::MAX, 26u64, None, 200, String::new());
        let mut keep = None;
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            let number = |text: &String| text.parse::<u64>().map_err(|_| format!("{word} {text} is no number"));
            match word.as_str() {
                "--out" => out = Some(value()?.into()),
                "--nvdisasm" => nvdisasm = Some(value()?.into()),
                "--nvdisasm-one-of" => one_of = number(value()?)?.max(1),
                "--ptxas" => ptxas = Some(value()?.into()),
                "--kernels" => kernels = usize::try_from(number(value()?)?).unwrap_or(usize::MAX),
                "--keep" => keep = Some(value()?.into()),
                "--name" => name.clone_from(value()?),
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
        let nvdisasm = nvdisasm.map(|program| Nvdisasm::new(program, one_of));
        if matches!(kind, Kind::Run(_)) && ptxas.is_none() {
            return Err("run needs --ptxas".into());
        }
        let (files, rest) = sampled(files, sample, seed);
        Ok(Args { kind, files, rest, out, nvdisasm, ptxas, wanted: Wanted { kernels, seed, name, keep } })
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

/// `count` of the files, by a generator of the seed, and the others.
fn sampled(mut files: Vec<PathBuf>, count: usize, seed: u64) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let (mut state, mut rest) = (seed, vec![]);
    while files.len() > count {
        state = next(state);
        let at = (state >> 33) as usize % files.len();
        rest.push(files.remove(at));
    }
    (files, rest)
}

/// A linear congruential generator of 64 bits with Knuth's multiplier; its high bits are the better ones.
pub fn next(state: u64) -> u64 {
    state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1)
}
