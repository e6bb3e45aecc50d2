//! BEAM: opts chosen by timing. Lists of opts grow by one opt a round; the `width` fastest go on.
//!
//! The caller compiles further, runs and times a program; nothing here knows a device. Results are kept on disk by kernel,
//! target and width, in files that a crash leaves whole or absent; a file that cannot be used is as good as none.

use super::{CodegenError, Opt, OptChoice, Program, Target, compile};
use doorbell_uop::UOp;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest program worth timing.
const MOST_UOPS: usize = 3000;
/// Rounds of a search; each adds one opt.
const MOST_ROUNDS: usize = 12;
/// A first run this many times slower than the best is not run again.
const HOPELESS: u32 = 3;
/// Runs of a program; the fastest counts.
const RUNS: usize = 3;
/// Version of the opts' meaning: files of another one are not used.
const FORMAT: u32 = 1;

/// A search: how wide, and where its results are kept.
#[derive(Clone, Debug)]
pub struct Beam {
    /// Candidates that survive a round.
    pub width: usize,
    /// Folder for results; `None`: not kept.
    pub cache_dir: Option<PathBuf>,
    /// As in [`compile`].
    pub fast_math: bool,
}

#[derive(Serialize, Deserialize)]
struct Kept {
    format: u32,
    key: String,
    opts: Vec<String>,
    ns: u64,
}

struct Candidate {
    opts: Vec<Opt>,
    program: Program,
    time: Duration,
}

/// Programs that were timed, by the ids of their nodes (which stay alive, so that equal programs keep equal ids).
#[derive(Default)]
struct Seen(HashMap<Vec<u64>, Vec<UOp>>);

impl Seen {
    /// False: it was here before.
    fn insert(&mut self, p: &Program) -> bool {
        let ids = p.uops.iter().map(UOp::id).collect();
        self.0.insert(ids, p.uops.clone()).is_none()
    }
}

impl Beam {
    /// The fastest program found. `time` runs a program once; `None`: it could not.
    ///
    /// # Errors
    /// The kernel does not compile without opts.
    pub fn search(
        &self,
        ast: &UOp,
        target: &Target,
        mut time: impl FnMut(&Program) -> Option<Duration>,
    ) -> Result<Program, CodegenError> {
        let key = format!("{}\n{} fast_math={}\n{}", self.width, target_text(target), self.fast_math, ast.tree());
        if let Some(p) = self.recall(&key).and_then(|opts| self.compile(ast, target, opts).ok()) {
            return Ok(p);
        }
        let mut seen = Seen::default();
        let plain = self.compile(ast, target, vec![])?;
        let chosen = compile(ast, target, &OptChoice::Heuristic, self.fast_math)?;
        let mut beam: Vec<Candidate> = vec![];
        for program in [plain.clone(), chosen] {
            let opts = program.opts.iter().filter_map(|o| o.parse().ok()).collect();
            self.admit(&mut beam, &mut seen, (opts, program), &mut time);
        }
        for _ in 0..MOST_ROUNDS {
            let before = beam.first().map(|c| c.time);
            let parents: Vec<Vec<Opt>> = beam.iter().map(|c| c.opts.clone()).collect();
            for opts in parents.iter().flat_map(|p| actions(target).map(|a| [p.as_slice(), &[a]].concat())) {
                if let Ok(program) = self.compile(ast, target, opts.clone()) {
                    self.admit(&mut beam, &mut seen, (opts, program), &mut time);
                }
            }
            let after = beam.first().map(|c| c.time);
            // Less than one percent is noise.
            if before.zip(after).is_none_or(|(b, a)| a.as_nanos() * 101 >= b.as_nanos() * 100) {
                break;
            }
        }
        let Some(best) = beam.into_iter().next() else { return Ok(plain) };
        self.keep(&key, &best);
        Ok(best.program)
    }

    fn compile(&self, ast: &UOp, target: &Target, opts: Vec<Opt>) -> Result<Program, CodegenError> {
        compile(ast, target, &OptChoice::Given(opts), self.fast_math)
    }

    /// Times a program that is new and not too long, and keeps the `width` fastest.
    fn admit(
        &self,
        beam: &mut Vec<Candidate>,
        seen: &mut Seen,
        (opts, program): (Vec<Opt>, Program),
        time: &mut impl FnMut(&Program) -> Option<Duration>,
    ) {
        if program.uops.len() > MOST_UOPS || !seen.insert(&program) {
            return;
        }
        let best = beam.first().map(|c| c.time);
        let Some(mut t) = time(&program) else { return };
        for _ in 1..RUNS {
            if best.is_some_and(|b| t > b * HOPELESS) {
                break;
            }
            t = t.min(time(&program).unwrap_or(t));
        }
        let at = beam.partition_point(|c| c.time <= t);
        beam.insert(at, Candidate { opts, program, time: t });
        beam.truncate(self.width.max(1));
    }

    fn file(&self, key: &str) -> Option<PathBuf> {
        let name = format!("{:016x}{:016x}.json", hash(key, 0), hash(key, 1));
        self.cache_dir.as_deref().map(|d| d.join(name))
    }

    fn recall(&self, key: &str) -> Option<Vec<Opt>> {
        let kept: Kept = serde_json::from_slice(&std::fs::read(self.file(key)?).ok()?).ok()?;
        if kept.format != FORMAT || kept.key != key {
            return None;
        }
        kept.opts.iter().map(|o| o.parse().ok()).collect()
    }

    fn keep(&self, key: &str, best: &Candidate) {
        let Some(path) = self.file(key) else { return };
        let kept = Kept {
            format: FORMAT,
            key: key.into(),
            opts: best.opts.iter().map(Opt::to_string).collect(),
            ns: u64::try_from(best.time.as_nanos()).unwrap_or(u64::MAX),
        };
        // A result that cannot be kept is searched again next time.
        if let Err(e) = write_whole(&path, &kept) {
            log::debug!("BEAM result not kept in {}: {e}", path.display());
        }
    }
}

fn write_whole(path: &Path, kept: &Kept) -> std::io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(dir)?;
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(&serde_json::to_vec(kept)?)?;
    file.persist(path)?;
    Ok(())
}

/// FNV-1a with one of two starting points.
fn hash(text: &str, which: u64) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325u64 ^ which.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    text.bytes().fold(start, |h, b| (h ^ b as u64).wrapping_mul(0x100_0000_01b3))
}

fn target_text(t: &Target) -> String {
    format!("{t:?}")
}

/// What a round tries after each list.
fn actions(target: &Target) -> impl Iterator<Item = Opt> {
    let axes = 0..6usize;
    let amounts = move |list: &'static [usize]| axes.clone().flat_map(move |axis| list.iter().map(move |n| (axis, *n)));
    let threads = target.threads as usize;
    let workgroup: &'static [usize] = if target.has_grid() { &[2, 3, 4, 8, 16, 32, 64, 256] } else { &[] };
    let lanes: &'static [usize] = if target.vector_bytes > 0 { &[4, 8, 16, 32] } else { &[] };
    amounts(&[2, 3, 4, 6, 8, 14])
        .map(|(axis, amount)| Opt::Upcast { axis, amount })
        .chain(amounts(&[2, 3, 4, 5, 7, 8, 16]).map(|(axis, amount)| Opt::Unroll { axis, amount }))
        .chain(amounts(lanes).map(|(axis, amount)| Opt::Vectorize { axis, amount }))
        .chain((0..6).flat_map(|axis| (axis + 1..6).map(move |with| Opt::Swap { axis, with })))
        .chain(amounts(&[16, 64, 256]).map(|(axis, amount)| Opt::Tile { axis, amount }))
        .chain((0..4).flat_map(|param| (0..4).map(move |axis| Opt::Stage { param, axis })))
        .chain((0..3).flat_map(move |axis| {
            [1, 2, 4, 8]
                .into_iter()
                .map(move |k| Opt::Thread { axis, amount: k * threads })
                .filter(move |_| threads > 1)
        }))
        .chain((0..3).flat_map(|axis| [16, 32].map(|amount| Opt::PadTo { axis, amount })))
        .chain(amounts(workgroup).map(|(axis, amount)| Opt::Local { axis, amount }))
        .chain(amounts(workgroup).map(|(axis, amount)| Opt::Group { axis, amount }))
        .chain((0..if target.tensor_cores.is_empty() { 0 } else { 4 }).map(|choice| Opt::Tc { choice }))
        .chain(if target.tensor_cores.is_empty() || !target.has_grid() { vec![] } else { pipes() })
}

/// Loops of a matrix unit's sum stand behind those of the output.
fn pipes() -> Vec<Opt> {
    (2..9).flat_map(|axis| [2, 3, 4].map(|depth| Opt::Pipe { axis, depth })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use doorbell_uop::{AxisKind, DType, Op};

    fn target() -> Target {
        Target {
            name: "test",
            vector_bytes: 32,
            vector_regs: 16,
            threads: 1,
            index64: true,
            local_bytes: 1 << 16,
            ..Target::null()
        }
    }
    fn kernel() -> UOp {
        let r = UOp::range(64, 0, AxisKind::Loop);
        let x = UOp::param(1, DType::F32, 64).index(&r).load();
        let v = x.binary(Op::Add, &x);
        UOp::sink([UOp::param(0, DType::F32, 64).index(&r).store(&v, &[r])])
    }
    /// Pretends that a program takes as long as its loops have trips.
    fn trips(p: &Program) -> Option<Duration> {
        let loops = p.uops.iter().filter(|u| u.op() == Op::Range);
        Some(Duration::from_micros(loops.map(|u| u.vmax() as u64 + 1).product()))
    }

    #[test]
    fn the_search_finds_the_fewest_trips_and_the_second_time_reads_them_from_disk() {
        let dir = tempfile::tempdir().unwrap();
        let beam = Beam { width: 2, cache_dir: Some(dir.path().to_path_buf()), fast_math: false };
        let p = beam.search(&kernel(), &target(), trips).unwrap();
        assert!(trips(&p).unwrap() <= Duration::from_micros(2), "{:?}", p.opts);
        let again = beam.search(&kernel(), &target(), |_| panic!("timed again")).unwrap();
        assert_eq!(again.uops, p.uops);
    }

    #[test]
    fn a_damaged_result_is_searched_again() {
        let dir = tempfile::tempdir().unwrap();
        let beam = Beam { width: 1, cache_dir: Some(dir.path().to_path_buf()), fast_math: false };
        beam.search(&kernel(), &target(), trips).unwrap();
        for f in std::fs::read_dir(dir.path()).unwrap() {
            std::fs::write(f.unwrap().path(), b"{\"format\":1,\"key\":").unwrap();
        }
        let mut timed = 0;
        beam.search(&kernel(), &target(), |p| {
            timed += 1;
            trips(p)
        })
        .unwrap();
        assert!(timed > 0);
    }

    #[test]
    fn a_device_that_cannot_run_anything_still_gets_a_program() {
        let beam = Beam { width: 4, cache_dir: None, fast_math: false };
        assert!(beam.search(&kernel(), &target(), |_| None).is_ok());
    }
}
