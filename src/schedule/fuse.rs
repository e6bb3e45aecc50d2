//! Jobs → kernels: which jobs share one.
//!
//! Jobs may share a kernel when every value that passes between them passes within one iteration: the consumer reads it
//! at exactly its own loop indices. The loop sets of the jobs must nest (rows within a batch, columns within a row),
//! because a kernel is one nest of loops with values computed as far out as they can be: softmax is row { max, sum,
//! column { out } }. Nothing is computed twice for the sake of fusion. A merge is refused when it would leave cores
//! idle, walk memory against its layout, exceed the parameters a kernel may have, or make two kernels wait for each
//! other. [`Apart`] names these reasons.

use super::devices::SMALL_WORK;
use super::graph::Graph;
use super::index::{self, Lin};
use super::jobs::{Job, JobKind, trips, whole_ranges};
use super::order::edges;
use super::paths::Paths;
use super::stored::{Stored, slot};
use crate::sort;
use crate::uop::{Arg, AttentionPart, Op, UMap, UOp, USet};

/// Buffers a kernel may have (what the narrowest of the field's devices allows).
const MAX_BUFFERS: usize = 31;
/// Work up to which the walk order of memory does not matter.
const TINY_WORK: u64 = 1 << 12;

/// Why two kernels are not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Apart {
    Alone,
    Devices,
    Waits,
    Indices,
    Nesting,
    Iterations,
    InPlace,
    Profit,
    Buffers,
}

impl Apart {
    /// In a sentence.
    pub(crate) fn why(self) -> &'static str {
        match self {
            Apart::Alone => "a copy, a kernel of the user's or an attention is a step of its own",
            Apart::Devices => "they run on different devices",
            Apart::Waits => "another kernel has to run between them",
            Apart::Indices => "the value is read at other indices than those of the reader's loops",
            Apart::Nesting => "the loops of one do not lie within those of the other",
            Apart::Iterations => "values would pass between different iterations of a loop",
            Apart::InPlace => "memory that it overwrites is read at other elements",
            Apart::Profit => "together they would keep fewer cores busy or walk memory against its layout",
            Apart::Buffers => "together they would have more than 31 buffers",
        }
    }
}

/// Jobs that run as one kernel. Its axes are numbered; each job runs over some of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct FusedKernel {
    /// Job numbers, in graph order, with the axis of each of the job's loops.
    pub jobs: Vec<(usize, Vec<usize>)>,
    /// Extent of each axis.
    pub axes: Vec<UOp>,
}

pub(crate) struct Fusion<'a> {
    g: &'a Graph,
    jobs: &'a [Job],
    stored: &'a Stored,
    at: UMap<usize>,
    users: Vec<Vec<usize>>,
    paths: Paths,
    /// Of each job, and of each kernel: pairs of kernels are many, and looked at each.
    job_traits: Vec<Traits>,
    traits: Vec<Traits>,
    /// Kernel of each job.
    home: Vec<usize>,
    pub kernels: Vec<FusedKernel>,
}

/// What decides whether two kernels gain from sharing their loops.
#[derive(Clone, Debug, Default)]
struct Traits {
    /// Not to be joined with others.
    alone: bool,
    /// Inputs are read many times, in loops that are long enough to be made for that.
    heavy: bool,
    /// True if so, and if the loops of a window are adjacent.
    windowed: bool,
    work: u64,
    /// Extents of the reduces, job by job.
    ends: Vec<Vec<UOp>>,
    reads: USet,
}

impl Traits {
    fn of(job: &Job) -> Self {
        let work = job.work();
        let heavy = job.reuses_inputs() && work > SMALL_WORK;
        Self {
            alone: job.is_copy() || job.node.op() == Op::Fused,
            heavy,
            windowed: heavy && job.reduces.iter().any(|r| r.merged),
            work,
            ends: job.reduce_ends(),
            reads: job.reads.iter().map(|r| r.param.clone()).collect(),
        }
    }

    fn add(&mut self, other: &Self) {
        self.alone |= other.alone;
        self.heavy |= other.heavy;
        self.windowed |= other.windowed;
        self.work = self.work.saturating_add(other.work);
        self.ends.extend(other.ends.iter().cloned());
        self.reads.extend(other.reads.iter().cloned());
    }
}

/// Groups all jobs into kernels; empty kernels are those merged into others.
pub(crate) fn fuse(g: &Graph, jobs: &[Job], stored: &Stored) -> Vec<FusedKernel> {
    let mut f = Fusion::new(g, jobs, stored);
    f.merge_attentions();
    f.merge_chains();
    f.merge_siblings();
    f.kernels
}

/// The kernels between which values pass through memory, producer first, and why they are not one; `None`: they could
/// be, but the value is needed in memory anyway, or was found to be better there.
pub(crate) fn cuts(
    g: &Graph,
    jobs: &[Job],
    stored: &Stored,
    kernels: &[FusedKernel],
) -> Vec<(usize, usize, Option<Apart>)> {
    let mut f = Fusion::new(g, jobs, stored);
    for (k, kernel) in kernels.iter().enumerate() {
        for (j, _) in kernel.jobs.iter().filter(|(j, _)| *j != k) {
            f.home[*j] = k;
            f.paths.merge(*j, k);
            f.traits[*j] = Traits::default();
        }
    }
    f.traits = kernels.iter().map(|k| f.traits_of(k)).collect();
    f.kernels = kernels.to_vec();
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    for (c, job) in jobs.iter().enumerate() {
        let producers = job.uses.iter().filter_map(|(n, _)| f.at.get(n));
        pairs.extend(producers.map(|p| (f.home[*p], f.home[c])).filter(|(p, c)| p != c));
    }
    pairs.sort_unstable();
    pairs.dedup();
    pairs.into_iter().map(|(p, c)| (p, c, f.join(p, c).err())).collect()
}

impl<'a> Fusion<'a> {
    /// A kernel for each job.
    fn new(g: &'a Graph, jobs: &'a [Job], stored: &'a Stored) -> Fusion<'a> {
        let kernel = |(k, j): (usize, &Job)| FusedKernel {
            jobs: vec![(k, (0..j.loops.len()).collect())],
            axes: j.loops.iter().map(|r| r.src()[0].clone()).collect(),
        };
        let traits: Vec<Traits> = jobs.iter().map(Traits::of).collect();
        Fusion {
            g,
            jobs,
            stored,
            at: numbers(jobs),
            users: users(jobs),
            paths: Paths::of(jobs.len(), &edges(jobs, stored)),
            job_traits: traits.clone(),
            traits,
            home: (0..jobs.len()).collect(),
            kernels: jobs.iter().enumerate().map(kernel).collect(),
        }
    }

    /// What one kernel computes of an attention.
    fn merge_attentions(&mut self) {
        let part = |j: &Job| if let Arg::Attention(a) = j.node.arg() { Some(a.part) } else { None };
        let found: Vec<(usize, AttentionPart)> =
            self.jobs.iter().enumerate().filter_map(|(k, j)| Some((k, part(j)?))).collect();
        for (n, (b, second)) in found.iter().enumerate() {
            for (a, first) in &found[..n] {
                let same = self.jobs[*a].node.src()[1..] == self.jobs[*b].node.src()[1..];
                let together = first.is_with(*second) || self.adds_up([(*a, *first), (*b, *second)]);
                let (from, to) = (self.home[*a], self.home[*b]);
                if same && together && from != to && !self.paths.are_apart(from, to) {
                    let merged = self.side_by_side(from, to);
                    self.replace(from, to, merged);
                }
            }
        }
    }

    /// Whether one kernel computes two gradients of which one is that of the queries.
    fn adds_up(&self, parts: [(usize, AttentionPart); 2]) -> bool {
        let node = |k: usize| &self.jobs[parts[k].0].node;
        let is_query = parts.map(|p| p.1 == AttentionPart::QueryGradient);
        let gradients = parts.iter().all(|p| p.1.is_gradient());
        let traits = self.g.traits(node(0));
        gradients && (is_query[0] != is_query[1]) && traits.adds_up(node(is_query[1].into()), node(is_query[0].into()))
    }

    /// A kernel of the jobs of both, whose loops are the same but for axes of other lengths.
    fn side_by_side(&self, a: usize, b: usize) -> FusedKernel {
        let mut kernel = self.kernels[b].clone();
        for (job, _) in self.kernels[a].jobs.clone() {
            let (of, _) = kernel.jobs[0];
            let axes = loops_by_axis(&self.jobs[of]);
            let names = kernel.jobs[0].1.clone();
            let mut mine = Vec::new();
            for (k, at) in loops_by_axis(&self.jobs[job]).iter().enumerate().filter_map(|(k, at)| Some((k, (*at)?))) {
                let extent = &self.jobs[job].loops[at].src()[0];
                let beside = axes.get(k).copied().flatten().map(|loop_of| names[loop_of]);
                mine.push(beside.filter(|axis| kernel.axes[*axis] == *extent).unwrap_or_else(|| {
                    kernel.axes.push(extent.clone());
                    kernel.axes.len() - 1
                }));
            }
            kernel.jobs.push((job, mine));
        }
        sort::by_key(&mut kernel.jobs, |j| j.0);
        kernel
    }

    /// Producers into their consumers, nearest first.
    fn merge_chains(&mut self) {
        for c in 0..self.jobs.len() {
            let mut producers: Vec<usize> =
                self.jobs[c].uses.iter().filter_map(|(n, _)| self.at.get(n).copied()).collect();
            producers.sort_unstable();
            producers.dedup();
            for p in producers.into_iter().rev() {
                let (a, b) = (self.home[p], self.home[c]);
                if a != b
                    && let Some(k) = self.joined(a, b)
                {
                    self.replace(a, b, k);
                }
            }
        }
    }

    /// Kernels over equal loops that read the same memory and do not wait for each other.
    fn merge_siblings(&mut self) {
        for b in 0..self.kernels.len() {
            for a in 0..b {
                if self.kernels[a].jobs.is_empty() || self.kernels[b].jobs.is_empty() || !self.alike(a, b) {
                    continue;
                }
                if let Some(k) = self.joined(a, b) {
                    self.replace(a, b, k);
                }
            }
        }
    }

    fn replace(&mut self, a: usize, b: usize, merged: FusedKernel) {
        for (j, _) in &merged.jobs {
            self.home[*j] = b;
        }
        self.paths.merge(a, b);
        self.traits[a] = Traits::default();
        self.traits[b] = self.traits_of(&merged);
        self.kernels[a] = FusedKernel::default();
        self.kernels[b] = merged;
    }

    /// Whether two independent kernels gain from sharing their loops.
    fn alike(&self, a: usize, b: usize) -> bool {
        if self.kernels[a].axes != self.kernels[b].axes {
            return false;
        }
        let (ta, tb) = (&self.traits[a], &self.traits[b]);
        let reduces = !ta.ends.is_empty() || !tb.ends.is_empty();
        if ta.alone || tb.alone || ta.heavy || tb.heavy || reduces && ta.ends != tb.ends {
            return false;
        }
        let small = |t: &Traits| t.work <= TINY_WORK;
        let shared = tb.reads.iter().any(|p| ta.reads.contains(p) && p.shape().first().is_some_and(|d| !d.is(1)));
        shared || small(ta) && small(tb) && !reduces
    }

    fn traits_of(&self, k: &FusedKernel) -> Traits {
        let mut all = Traits::default();
        k.jobs.iter().for_each(|(j, _)| all.add(&self.job_traits[*j]));
        all
    }

    /// The kernel of `a` and `b`, if they may and should be one.
    fn joined(&self, a: usize, b: usize) -> Option<FusedKernel> {
        self.join(a, b).ok()
    }

    /// As `joined`, with the reason why not.
    fn join(&self, a: usize, b: usize) -> Result<FusedKernel, Apart> {
        let (ka, kb) = (&self.kernels[a], &self.kernels[b]);
        let device = |k: &FusedKernel| k.jobs.first().map(|j| self.g.device(&self.jobs[j.0].node));
        let unless = |fine: bool, why: Apart| if fine { Ok(()) } else { Err(why) };
        unless(!self.traits[a].alone && !self.traits[b].alone, Apart::Alone)?;
        unless(device(ka) == device(kb), Apart::Devices)?;
        unless(!self.paths.are_apart(a, b), Apart::Waits)?;
        let merged = self.unify(ka, kb).ok_or(Apart::Indices)?;
        unless(self.nests(&merged), Apart::Nesting)?;
        unless(self.values_pass_within_iterations(&merged), Apart::Iterations)?;
        unless(self.in_place_is_safe(&merged), Apart::InPlace)?;
        unless(self.profits(&merged), Apart::Profit)?;
        unless(self.buffers(&merged) <= MAX_BUFFERS, Apart::Buffers)?;
        Ok(merged)
    }

    /// Maps the axes of `ka` to axes of `kb`, by the values passing between them; the others by extent.
    fn unify(&self, ka: &FusedKernel, kb: &FusedKernel) -> Option<FusedKernel> {
        let mut same: Vec<Option<usize>> = vec![None; ka.axes.len()];
        let mut link = |x: usize, y: usize| -> Option<()> {
            if same.iter().enumerate().any(|(k, s)| *s == Some(y) && k != x) || same[x].is_some_and(|s| s != y) {
                return None;
            }
            same[x] = Some(y);
            Some(())
        };
        for (producers, consumers, forward) in [(ka, kb, true), (kb, ka, false)] {
            for (c, c_axes) in &consumers.jobs {
                for (p_axes, loops) in self.passed(*c, producers) {
                    let to = loops?;
                    for (k, at) in to.iter().enumerate() {
                        let (x, y) = (p_axes[k], c_axes[*at]);
                        if forward { link(x, y)? } else { link(y, x)? }
                    }
                }
            }
        }
        // Axes that no value ties together: equal extents in order.
        let mut free: Vec<usize> = (0..kb.axes.len()).filter(|y| !same.contains(&Some(*y))).collect();
        for (name, extent) in same.iter_mut().zip(&ka.axes).filter(|(name, _)| name.is_none()) {
            *name = free.iter().position(|y| kb.axes[*y] == *extent).map(|at| free.remove(at));
        }
        let mut merged = kb.clone();
        let names: Vec<usize> = same
            .iter()
            .zip(&ka.axes)
            .map(|(s, extent)| {
                s.unwrap_or_else(|| {
                    merged.axes.push(extent.clone());
                    merged.axes.len() - 1
                })
            })
            .collect();
        if merged.axes.len() > 60 || same.iter().zip(&ka.axes).any(|(s, e)| s.is_some_and(|y| kb.axes[y] != *e)) {
            return None;
        }
        merged.jobs.extend(ka.jobs.iter().map(|(j, axes)| (*j, axes.iter().map(|x| names[*x]).collect())));
        sort::by_key(&mut merged.jobs, |j| j.0);
        Some(merged)
    }

    /// Values that job `c` reads from jobs of `from`: the producer's axes, and the loop of `c` for each loop of the
    /// producer (`None`: at indices that are not whole loops of `c`).
    fn passed<'k>(
        &'k self,
        c: usize,
        from: &'k FusedKernel,
    ) -> impl Iterator<Item = (&'k [usize], Option<Vec<usize>>)> + 'k {
        self.jobs[c].uses.iter().filter_map(move |(node, place)| {
            let p = *self.at.get(node)?;
            let (_, axes) = from.jobs.iter().find(|j| j.0 == p)?;
            let loops = || {
                let plain = place.gate.is_none() && place.version.is_none();
                let ranges = plain.then(|| whole_ranges(&place.idx)).flatten()?;
                let job = &self.jobs[c];
                (ranges.len() == axes.len()).then_some(())?;
                ranges.iter().map(|r| job.loops.iter().position(|l| l == r)).collect::<Option<Vec<_>>>()
            };
            Some((axes.as_slice(), loops()))
        })
    }

    /// Within a merged kernel every producer's axes are those that its consumers read.
    fn values_pass_within_iterations(&self, k: &FusedKernel) -> bool {
        k.jobs.iter().all(|(c, c_axes)| {
            self.passed(*c, k)
                .all(|(p_axes, loops)| loops.is_some_and(|l| l.iter().zip(p_axes).all(|(at, p)| c_axes[*at] == *p)))
        })
    }

    /// The axis sets of the jobs are nested.
    fn nests(&self, k: &FusedKernel) -> bool {
        let sets = levels(k);
        sets.windows(2).all(|w| w[0] & w[1] == w[0])
    }

    fn profits(&self, k: &FusedKernel) -> bool {
        let sets = levels(k);
        let (Some(outer), Some(inner)) = (sets.first().copied(), sets.last().copied()) else { return true };
        if outer == inner {
            return true;
        }
        let Traits { windowed, heavy, work, .. } = self.traits_of(k);
        let Some(node) = k.jobs.first().map(|j| &self.jobs[j.0].node) else { return true };
        let device = self.g.traits(node);
        // The sums of a convolution's gradient keep their own loops: adjacent rows of a window.
        if windowed || heavy && device.has_tiles() {
            return false;
        }
        let parallel = (0..k.axes.len())
            .filter(|a| outer >> a & 1 == 1)
            .map(|a| trips_of(&k.axes[a]))
            .fold(1, u64::saturating_mul);
        // The last axis of what is stored should be walked innermost.
        let against =
            k.jobs.iter().any(|(_, axes)| set(axes) != outer && axes.last().is_some_and(|a| outer >> a & 1 == 1));
        device.is_busy(parallel, work) && (!against || work <= TINY_WORK)
    }

    fn buffers(&self, k: &FusedKernel) -> usize {
        let own: Vec<usize> = k.jobs.iter().map(|j| j.0).collect();
        let written = own.iter().filter(|j| is_output(self.jobs, &self.users, self.stored, &own, **j)).count();
        let mut read: USet = USet::default();
        for j in &own {
            let outside = |n: &UOp| self.at.get(n).is_none_or(|p| !own.contains(p));
            read.extend(self.jobs[*j].reads.iter().filter(|r| outside(&r.node)).map(|r| r.param.clone()));
        }
        written + read.len()
    }

    /// Memory that the kernel overwrites is read in it only at the element that is being written, before it is.
    fn in_place_is_safe(&self, k: &FusedKernel) -> bool {
        k.jobs.iter().all(|(w, w_axes)| {
            let JobKind::Assign { target, flat } = &self.jobs[*w].kind else { return true };
            let mine = self.on_axes(*w, w_axes, flat, k);
            k.jobs.iter().all(|(r, r_axes)| {
                let mut reads = self.jobs[*r].reads.iter().filter(|x| slot(&x.param) == slot(target));
                let over = *r != *w
                    && matches!(&self.jobs[*r].kind, JobKind::Assign { target: t, .. } if slot(t) == slot(target));
                !over
                    && reads.all(|x| {
                        set(r_axes) == set(w_axes)
                            && Lin::of(&index::add(
                                &self.on_axes(*r, r_axes, &x.flat, k),
                                &index::mul(&mine, &UOp::int(-1)),
                            ))
                            .is_some_and(|l| l.build().as_int() == Some(0))
                    })
            })
        })
    }

    /// An index of job `j` with the kernel's axes in place of its loops.
    fn on_axes(&self, j: usize, axes: &[usize], index: &UOp, k: &FusedKernel) -> UOp {
        let axis = |a: usize| super::kernel::output_loop(&k.axes[a], u32::MAX - a as u32);
        let map: UMap<UOp> = self.jobs[j].loops.iter().cloned().zip(axes.iter().map(|a| axis(*a))).collect();
        index.substitute(&map)
    }
}

/// Of each axis of a job's value, the number of its loop.
fn loops_by_axis(job: &Job) -> Vec<Option<usize>> {
    let mut loops = 0..;
    job.node.shape().iter().map(|d| if d.is(1) { None } else { loops.next() }).collect()
}

fn trips_of(extent: &UOp) -> u64 {
    trips(&super::kernel::output_loop(extent, 0))
}

fn set(axes: &[usize]) -> u64 {
    axes.iter().fold(0, |s, a| s | 1 << a)
}

/// The distinct axis sets of a kernel's jobs, smallest first.
pub(crate) fn levels(k: &FusedKernel) -> Vec<u64> {
    let mut sets: Vec<u64> = k.jobs.iter().map(|j| set(&j.1)).collect();
    sort::by_key(&mut sets, |s| (s.count_ones(), *s));
    sets.dedup();
    sets
}

/// Whether a job's value must be stored when the jobs of `kernel` run together.
pub(crate) fn is_output(jobs: &[Job], users: &[Vec<usize>], stored: &Stored, kernel: &[usize], j: usize) -> bool {
    matches!(jobs[j].kind, JobKind::Assign { .. })
        || stored.required.contains(&jobs[j].node)
        || users[j].iter().any(|k| !kernel.contains(k))
}

/// The jobs that use each job's value.
pub(crate) fn users(jobs: &[Job]) -> Vec<Vec<usize>> {
    let at = numbers(jobs);
    let mut users = vec![Vec::new(); jobs.len()];
    for (k, job) in jobs.iter().enumerate() {
        for p in job.uses.iter().filter_map(|(n, _)| at.get(n)) {
            users[*p].push(k);
        }
    }
    users
}

/// The job that computes each node.
fn numbers(jobs: &[Job]) -> UMap<usize> {
    jobs.iter().enumerate().map(|(k, j)| (j.node.clone(), k)).collect()
}

/// Axes of a kernel in nesting order, outermost first: smaller loop sets further out, within a set as the largest job
/// has them.
pub(crate) fn nest(k: &FusedKernel) -> Vec<usize> {
    let mut order: Vec<usize> = Vec::new();
    for level in levels(k) {
        let widest = k.jobs.iter().rev().max_by_key(|j| j.1.len());
        let natural = widest.into_iter().chain(&k.jobs).flat_map(|j| j.1.iter().copied());
        for a in natural.filter(|a| level >> a & 1 == 1) {
            if !order.contains(&a) {
                order.push(a);
            }
        }
    }
    order
}
