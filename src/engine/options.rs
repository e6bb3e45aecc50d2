//! Options as a value: read from the environment once, at the edge, and passed down (docs/architecture.md, decision
//! 10).
//!
//! Names and meanings are tinygrad's; the README has the table.

use crate::device::registry::EmuMode;
use crate::tensor::AllReduce;
use crate::uop::SpecLevel;
use std::path::PathBuf;
use thiserror::Error;

/// All settings of a session. `Options::default()` corresponds to an empty environment.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Default device, `CPU`, `CPU:1`, `NULL`, ... (`DEV`; [`Options::from_env`] looks for the best one where it is not
    /// set).
    pub device: String,
    /// What is printed: 1 devices and JIT, 2 a line per kernel, 3 opts, 4 code, 6 UOps, 7 assembly (`DEBUG`).
    pub debug: u8,
    /// Compile kernels without opts (`NOOPT=1`).
    pub noopt: bool,
    /// Beam width of the search for opts; 0 uses the heuristic (`BEAM`).
    pub beam: usize,
    /// Verification of graphs: 0 none, 1 at stage boundaries, 2 also every node that a rewrite rule makes (`SPEC`).
    pub spec: u8,
    /// Whether a [`Jit`](super::Jit) records (`JIT=0`: it runs its function every time).
    pub jit: bool,
    /// Whether recordings are lists that the device has ready (`JIT=2`: their commands are submitted anew each time).
    pub jit_lists: bool,
    /// Write the explorer's page of this session here when it ends (`VIZ=1` or `VIZ=path`).
    pub viz: Option<PathBuf>,
    /// Whether that page has each applied rewrite rule (`VIZ_STEPS=0`: no, and compiling is faster).
    pub viz_steps: bool,
    /// Whether the session says where it wrote that page (`VIZ_SAY=0`: no).
    pub viz_say: bool,
    /// Write a trace for Perfetto here when the session ends, the program's with the program (`PROFILE=1` or
    /// `PROFILE=path`).
    pub profile: Option<PathBuf>,
    /// `avx2`, `avx512` or `amx`, instead of the CPU's best; `neon` is the one of AArch64 (`ARCH`).
    pub arch: Option<String>,
    /// Cores that the CPU device may use, `None`: all (`THREADS`).
    pub threads: Option<usize>,
    /// Float rewrites that ignore NaN, infinities and signed zeros (`FAST_MATH=1`).
    pub fast_math: bool,
    /// Run every kernel in the reference interpreter too and compare (`VALIDATE=1`; slow).
    pub validate: bool,
    /// How partial results of several devices become one that all have (`ALL_REDUCE=auto`, `ring` or `tree`).
    pub all_reduce: AllReduce,
    /// Folder for the cache of search results and `ptxas`'s cubins; `None`: no cache (`CACHEDIR`, `CACHELEVEL=0`).
    pub cache_dir: Option<PathBuf>,
    /// Write the source of every kernel that is compiled from text into this folder: MSL, PTX (`SOURCES=path`).
    pub sources: Option<PathBuf>,
    /// NVIDIA's assembler, to use for PTX instead of this project's own (`PTXAS=path`).
    pub ptxas: Option<PathBuf>,
    /// No warning about a release of NVIDIA's driver whose structs are not known (`NV_ANY_DRIVER=1`).
    pub nv_any_driver: bool,
    /// Maps the doorbells of NVIDIA's cards through BAR1 (`NV_BAR1_DOORBELL=1`): for Hopper and later, on machines
    /// where BAR0 is not passed through.
    pub nv_bar1_doorbell: bool,
    /// RM alone manages NVIDIA's page tables, without nvidia-uvm (`NV_RM_ONLY=1`). If there is no nvidia-uvm, this is
    /// always the case.
    pub nv_rm_only: bool,
    /// Copies on NVIDIA's cards share the graphics engine's runlist, instead of using a separate copy engine
    /// (`NV_SHARED_COPY=1`).
    pub nv_shared_copy: bool,
    /// Products of f32 may use matrix units that drop the last 13 bits of each factor's mantissa (`ALLOW_TF32=1`).
    pub allow_tf32: bool,
    /// Kernels for Hopper may use the matrix unit of warpgroups (`NV_WGMMA=0`: only those of warps).
    pub nv_wgmma: bool,
    /// A host that waits for an NVIDIA card sleeps until the driver wakes it (`NV_EVENTS=0`: it polls with short
    /// sleeps).
    pub nv_events: bool,
    /// Memory of Metal's GPUs lies in private storage, which the host reaches by copies only (`METAL_PRIVATE=1`).
    pub metal_private: bool,
    /// Recorded lists of Metal's GPUs may be indirect command buffers (`METAL_ICB=0`: they are encoded anew at each
    /// replay).
    pub metal_icb: bool,
    /// Kernels for Hopper may load tiles with the tensor memory accelerator (`NV_TMA=0`: only with threads).
    pub nv_tma: bool,
    /// What the checks of AMD's software GPUs find is reported, and the work goes on (`LENIENT=1`; without it the first
    /// finding ends the submission).
    pub lenient: bool,
    /// Gradients of attentions in f32 have their own kernels on GPUs also where the kernels of the parts are faster, to
    /// save memory (`FUSE_ATTENTION=1`).
    pub fuse_attention: bool,
    /// How software GPUs run (`EMU_PLAIN`: 0 strict, 1 plain, 2 both).
    pub emu_mode: EmuMode,
}

/// What a number may be.
struct Limit {
    /// The variable.
    name: &'static str,
    most: usize,
    expected: &'static str,
}

const DEBUG: Limit = Limit { name: "DEBUG", most: 7, expected: "0 to 7" };
const BEAM: Limit = Limit { name: "BEAM", most: 1024, expected: "a search width of 0 to 1024" };
const SPEC: Limit = Limit { name: "SPEC", most: 2, expected: "0, 1 or 2" };
const THREADS: Limit = Limit { name: "THREADS", most: 4096, expected: "a number of cores, 1 to 4096" };

impl Limit {
    fn check(&self, value: usize) -> Result<usize, OptionError> {
        if value <= self.most { Ok(value) } else { Err(self.error(value.to_string())) }
    }

    fn error(&self, value: String) -> OptionError {
        OptionError { name: self.name, value, expected: self.expected }
    }

    fn read(&self, get: &impl Fn(&str) -> Option<String>, default: usize) -> Result<usize, OptionError> {
        number(get, self.name, default, self.most, self.expected)
    }
}

/// A variable whose value means nothing.
#[derive(Clone, Error, PartialEq)]
#[error("{name}={value} is not valid: {expected}")]
pub struct OptionError {
    /// The variable.
    pub name: &'static str,
    /// What it was set to.
    pub value: String,
    /// What it may be.
    pub expected: &'static str,
}

/// The text of `Display`: what `?` out of `main` prints.
impl std::fmt::Debug for OptionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            device: "CPU".into(),
            debug: 0,
            noopt: false,
            beam: 0,
            spec: 1,
            jit: true,
            jit_lists: true,
            viz: None,
            viz_steps: true,
            viz_say: true,
            profile: None,
            arch: None,
            threads: None,
            fast_math: false,
            validate: false,
            all_reduce: AllReduce::Auto,
            cache_dir: None,
            sources: None,
            ptxas: None,
            nv_any_driver: false,
            nv_bar1_doorbell: false,
            nv_rm_only: false,
            nv_shared_copy: false,
            allow_tf32: false,
            nv_wgmma: true,
            nv_events: true,
            metal_private: false,
            metal_icb: true,
            nv_tma: true,
            lenient: false,
            fuse_attention: false,
            emu_mode: EmuMode::Strict,
        }
    }
}

impl Options {
    /// The spec level of `spec`.
    pub fn spec_level(&self) -> SpecLevel {
        SpecLevel::from_number(u32::from(self.spec))
    }

    /// From the process's environment; where `DEV` is not set, the device is the best one that is there (a GPU that can
    /// be used, else the CPU).
    ///
    /// # Errors
    /// The first variable that cannot be understood.
    pub fn from_env() -> Result<Options, OptionError> {
        let get = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
        let read = Options::from_lookup(get)?;
        Ok(Options { device: crate::default_device::choice().name.to_string(), ..read })
    }

    /// Reads options from any source of variables.
    ///
    /// # Errors
    /// The first variable that cannot be understood.
    pub fn from_lookup(get: impl Fn(&str) -> Option<String>) -> Result<Options, OptionError> {
        let d = Options::default();
        let home =
            get("XDG_CACHE_HOME").map(PathBuf::from).or_else(|| get("HOME").map(|h| PathBuf::from(h).join(".cache")));
        let cache = get("CACHEDIR").map(PathBuf::from).or_else(|| home.map(|h| h.join("doorbell")));
        Ok(Options {
            device: get("DEV").unwrap_or(d.device),
            debug: DEBUG.read(&get, 0)? as u8,
            noopt: number(&get, "NOOPT", 0, 1, "0 or 1")? == 1,
            beam: BEAM.read(&get, 0)?,
            spec: SPEC.read(&get, 1)? as u8,
            jit: number(&get, "JIT", 1, 2, "0, 1 or 2")? != 0,
            jit_lists: number(&get, "JIT", 1, 2, "0, 1 or 2")? != 2,
            viz: path(&get, "VIZ", "doorbell-viz.html"),
            viz_steps: number(&get, "VIZ_STEPS", 1, 1, "0 or 1")? == 1,
            viz_say: number(&get, "VIZ_SAY", 1, 1, "0 or 1")? == 1,
            profile: path(&get, "PROFILE", "doorbell-trace.json"),
            arch: get("ARCH"),
            threads: match THREADS.read(&get, 0)? {
                0 => None,
                n => Some(n),
            },
            fast_math: number(&get, "FAST_MATH", 0, 1, "0 or 1")? == 1,
            validate: number(&get, "VALIDATE", 0, 1, "0 or 1")? == 1,
            all_reduce: all_reduce(&get)?,
            cache_dir: if number(&get, "CACHELEVEL", 1, 2, "0, 1 or 2")? == 0 { None } else { cache },
            sources: get("SOURCES").map(PathBuf::from),
            ptxas: get("PTXAS").map(PathBuf::from),
            nv_any_driver: number(&get, "NV_ANY_DRIVER", 0, 1, "0 or 1")? == 1,
            nv_bar1_doorbell: number(&get, "NV_BAR1_DOORBELL", 0, 1, "0 or 1")? == 1,
            nv_rm_only: number(&get, "NV_RM_ONLY", 0, 1, "0 or 1")? == 1,
            nv_shared_copy: number(&get, "NV_SHARED_COPY", 0, 1, "0 or 1")? == 1,
            nv_events: number(&get, "NV_EVENTS", 1, 1, "0 or 1")? == 1,
            metal_private: number(&get, "METAL_PRIVATE", 0, 1, "0 or 1")? == 1,
            metal_icb: number(&get, "METAL_ICB", 1, 1, "0 or 1")? == 1,
            allow_tf32: number(&get, "ALLOW_TF32", 0, 1, "0 or 1")? == 1,
            nv_wgmma: number(&get, "NV_WGMMA", 1, 1, "0 or 1")? == 1,
            nv_tma: number(&get, "NV_TMA", 1, 1, "0 or 1")? == 1,
            lenient: number(&get, "LENIENT", 0, 1, "0 or 1")? == 1,
            fuse_attention: number(&get, "FUSE_ATTENTION", 0, 1, "0 or 1")? == 1,
            emu_mode: match number(&get, "EMU_PLAIN", 0, 2, "0, 1 or 2")? {
                0 => EmuMode::Strict,
                1 => EmuMode::Plain,
                _ => EmuMode::Both,
            },
        })
    }
}

impl Options {
    /// Whether the values mean something, wherever they come from.
    ///
    /// # Errors
    /// The first one that does not, by the name of its variable.
    pub(super) fn check(&self) -> Result<(), OptionError> {
        DEBUG.check(self.debug.into())?;
        BEAM.check(self.beam)?;
        SPEC.check(self.spec.into())?;
        match self.threads {
            Some(0) => Err(THREADS.error("0".into())),
            threads => THREADS.check(threads.unwrap_or(1)).map(drop),
        }
    }
}

/// A file to write: none, the usual one, or a path.
fn path(get: &impl Fn(&str) -> Option<String>, name: &str, usual: &str) -> Option<PathBuf> {
    match get(name).as_deref() {
        None | Some("0") => None,
        Some("1") => Some(PathBuf::from(usual)),
        Some(path) => Some(PathBuf::from(path)),
    }
}

fn all_reduce(get: &impl Fn(&str) -> Option<String>) -> Result<AllReduce, OptionError> {
    match get("ALL_REDUCE").as_deref() {
        None | Some("auto") => Ok(AllReduce::Auto),
        Some("ring") => Ok(AllReduce::Ring),
        Some("tree") => Ok(AllReduce::Tree),
        Some(other) => {
            let expected = "auto, ring or tree";
            Err(OptionError { name: "ALL_REDUCE", value: other.into(), expected })
        }
    }
}

fn number(
    get: &impl Fn(&str) -> Option<String>,
    name: &'static str,
    default: usize,
    max: usize,
    expected: &'static str,
) -> Result<usize, OptionError> {
    let Some(value) = get(name) else { return Ok(default) };
    match value.trim().parse::<usize>() {
        Ok(n) if n <= max => Ok(n),
        _ => Err(OptionError { name, value, expected }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env<'a>(vars: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        move |n| vars.iter().find(|v| v.0 == n).map(|v| v.1.to_string())
    }

    #[test]
    fn an_empty_environment_gives_the_defaults() {
        assert_eq!(Options::from_lookup(env(&[])).unwrap(), Options::default());
    }

    #[test]
    fn a_session_is_opened_with_values_that_mean_something() {
        let o = Options::default;
        let wrong = [
            (Options { spec: 9, ..o() }, "SPEC=9 is not valid: 0, 1 or 2"),
            (Options { debug: 99, ..o() }, "DEBUG=99 is not valid: 0 to 7"),
            (Options { threads: Some(0), ..o() }, "THREADS=0 is not valid: a number of cores, 1 to 4096"),
            (Options { beam: 5000, ..o() }, "BEAM=5000 is not valid: a search width of 0 to 1024"),
            (Options { arch: Some("avx3".into()), ..o() }, "arch \"avx3\" of device CPU is unknown"),
            (Options { device: "TPU".into(), ..o() }, "unknown device"),
        ];
        for (options, said) in wrong {
            let error = crate::engine::Session::open(options).unwrap_err().to_string();
            assert!(error.starts_with(said), "{error}");
        }
    }

    #[test]
    fn known_variables_are_read_and_wrong_ones_named() {
        let o =
            Options::from_lookup(env(&[("DEV", "CPU:1"), ("DEBUG", "2"), ("BEAM", "4"), ("PROFILE", "1")])).unwrap();
        assert_eq!((o.device.as_str(), o.debug, o.beam), ("CPU:1", 2, 4));
        assert_eq!(o.profile, Some(PathBuf::from("doorbell-trace.json")));
        let kept = Options::from_lookup(env(&[("SOURCES", "texts")])).unwrap();
        assert_eq!((kept.sources, o.sources), (Some(PathBuf::from("texts")), None));
        let tf32 = |v| Options::from_lookup(env(&[("ALLOW_TF32", v)])).map(|o| o.allow_tf32);
        assert_eq!((o.allow_tf32, tf32("1"), tf32("2").is_err()), (false, Ok(true), true));
        let e = Options::from_lookup(env(&[("DEBUG", "9")])).unwrap_err();
        assert_eq!(e.to_string(), "DEBUG=9 is not valid: 0 to 7");
    }
}
