//! BEAM: chooses opts by timing. Each step of the search extends the lists of opts by one opt; the `width` fastest
//! lists survive.
//!
//! The caller compiles, runs and times the programs, and stores the results by kernel, target and width ([`Results`]).
//! Nothing here knows about devices or files.

use super::{CodegenError, Opt, OptChoice, Program, Target, compile};
use doorbell_uop::UOp;
use std::collections::HashMap;
use std::time::Duration;

/// Programs longer than this are not timed.
const MOST_UOPS: usize = 3000;
/// Maximum number of search steps; each adds one opt.
const MOST_ROUNDS: usize = 12;
/// A program whose first run is this many times slower than the best one is not run again.
const HOPELESS: u32 = 3;
/// How often a program is run; its fastest run counts.
const RUNS: usize = 3;
/// Version of the opts' meaning, part of every key.
const FORMAT: u32 = 2;

/// Storage for search results: the opts of a kernel as text, under a key that contains everything they depend on.
pub trait Results {
    /// The text stored under a key. Text that is not a list of opts, or opts that do not apply, are ignored.
    fn recall(&self, key: &str) -> Option<String>;
    /// Stores a result, if possible.
    fn keep(&self, key: &str, opts: &str);
}

/// Stores nothing.
impl Results for () {
    fn recall(&self, _key: &str) -> Option<String> {
        None
    }

    fn keep(&self, _key: &str, _opts: &str) {}
}

/// The parameters of a search.
#[derive(Clone, Debug)]
pub struct Beam {
    /// Candidates that survive each step.
    pub width: usize,
    /// As in [`compile`].
    pub fast_math: bool,
}

struct Candidate {
    opts: Vec<Opt>,
    program: Program,
    time: Duration,
}

/// Programs that were timed, by the ids of their nodes. The nodes are kept alive, so that equal programs keep equal
/// ids.
#[derive(Default)]
struct Seen(HashMap<Vec<u64>, Vec<UOp>>);

impl Seen {
    /// Returns false if the program was inserted before.
    fn insert(&mut self, p: &Program) -> bool {
        let ids = p.uops.iter().map(UOp::id).collect();
        self.0.insert(ids, p.uops.clone()).is_none()
    }
}

impl Beam {
    /// The fastest program found. `time` runs a program once and returns `None` if that failed.
    ///
    /// # Errors
    /// The kernel does not compile even without opts.
    pub fn search(
        &self,
        ast: &UOp,
        target: &Target,
        results: &dyn Results,
        mut time: impl FnMut(&Program) -> Option<Duration>,
    ) -> Result<Program, CodegenError> {
        let (width, fast_math) = (self.width, self.fast_math);
        let key = format!("{FORMAT} {width}\n{target:?} fast_math={fast_math}\n{}", ast.tree());
        if let Some(p) =
            results.recall(&key).and_then(|text| opts_of(&text)).and_then(|opts| self.compile(ast, target, opts).ok())
        {
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
            // An improvement of less than one percent is treated as noise.
            if before.zip(after).is_none_or(|(b, a)| a.as_nanos() * 101 >= b.as_nanos() * 100) {
                break;
            }
        }
        let Some(best) = beam.into_iter().next() else { return Ok(plain) };
        results.keep(&key, &best.opts.iter().map(Opt::to_string).collect::<Vec<_>>().join("\n"));
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
}

/// A list of opts from text, one a line.
fn opts_of(text: &str) -> Option<Vec<Opt>> {
    text.lines().map(|line| line.parse().ok()).collect()
}

/// The opts that a step tries after each list.
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

/// The reduction loops of a matrix unit come after the output loops.
fn pipes() -> Vec<Opt> {
    (2..9).flat_map(|axis| [2, 3, 4].map(|depth| Opt::Pipe { axis, depth })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use doorbell_uop::{AxisKind, DType, Op};
    use std::cell::RefCell;

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
    /// A fake timer: a program takes as long as its loops have trips in total.
    fn trips(p: &Program) -> Option<Duration> {
        let loops = p.uops.iter().filter(|u| u.op() == Op::Range);
        Some(Duration::from_micros(loops.map(|u| u.vmax() as u64 + 1).product()))
    }

    /// Results in memory.
    #[derive(Default)]
    struct Kept(RefCell<HashMap<String, String>>);

    impl Results for Kept {
        fn recall(&self, key: &str) -> Option<String> {
            self.0.borrow().get(key).cloned()
        }

        fn keep(&self, key: &str, opts: &str) {
            self.0.borrow_mut().insert(key.into(), opts.into());
        }
    }

    #[test]
    fn the_search_finds_the_fewest_trips_and_the_second_time_recalls_them() {
        let (kept, beam) = (Kept::default(), Beam { width: 2, fast_math: false });
        let p = beam.search(&kernel(), &target(), &kept, trips).unwrap();
        assert!(trips(&p).unwrap() <= Duration::from_micros(2), "{:?}", p.opts);
        let again = beam.search(&kernel(), &target(), &kept, |_| panic!("timed again")).unwrap();
        assert_eq!(again.uops, p.uops);
        // Another width or target is another key.
        let mut timed = 0;
        let mut count = |p: &Program| {
            timed += 1;
            trips(p)
        };
        Beam { width: 1, ..beam }.search(&kernel(), &target(), &kept, &mut count).unwrap();
        beam.search(&kernel(), &Target { name: "other", ..target() }, &kept, &mut count).unwrap();
        assert!(timed > 2 && kept.0.borrow().len() == 3);
    }

    #[test]
    fn a_result_that_cannot_be_used_is_searched_again() {
        let (kept, beam) = (Kept::default(), Beam { width: 1, fast_math: false });
        beam.search(&kernel(), &target(), &kept, trips).unwrap();
        for text in ["nonsense", "UPCAST:5:3"] {
            kept.0.borrow_mut().values_mut().for_each(|v| *v = text.into());
            let mut timed = 0;
            let count = |p: &Program| {
                timed += 1;
                trips(p)
            };
            beam.search(&kernel(), &target(), &kept, count).unwrap();
            assert!(timed > 0, "{text}");
        }
    }

    #[test]
    fn a_device_that_cannot_run_anything_still_gets_a_program() {
        let beam = Beam { width: 4, fast_math: false };
        assert!(beam.search(&kernel(), &target(), &(), |_| None).is_ok());
    }
}
