//! Jobs: one for each value that may be stored in memory, with its reads.
//!
//! Candidates are values that must be stored, and the results of reduces. A reduce whose result is passed on by one
//! chain of elementwise ops and rearrangements is computed at the chain's end. A reduce that is read once, element by
//! element, in the body of another reduce is absorbed by it. Jobs are made users first, so that all reads of a value
//! are known when it is processed.

use super::ScheduleError;
use super::devices::{DeviceTraits, SMALL_WORK};
use super::graph::{Graph, is_empty, max_len};
use super::index::Idx;
use super::keep::widens;
use super::lower::{AccessPoint, Lowerer, Read, Reduced, address, ranges_in};
use super::split::is_contraction;
use super::stored::{Region, Stored, loops_of};
use super::sums::once_each;
use crate::sort;
use crate::uop::{Arg, Op, UMap, UOp};
use std::rc::Rc;

/// What one stored value needs.
pub(crate) struct Job {
    pub node: UOp,
    pub kind: JobKind,
    /// Output loops (unique to the job) and the indices that they define.
    pub loops: Vec<UOp>,
    pub idx: Idx,
    pub reads: Vec<Read>,
    /// Values of other jobs: the job's node and the indices read.
    pub uses: Vec<(UOp, Rc<AccessPoint>)>,
    pub reduces: Vec<Reduced>,
    /// The value is one sum, with nothing after it.
    pub is_sum: bool,
    /// Nodes that this job computes at more than one place or that others compute too: see `fork`.
    pub computes: Vec<UOp>,
}

pub(crate) enum JobKind {
    Compute,
    /// Into memory that exists: the parameter and the element.
    Assign {
        target: UOp,
        flat: UOp,
    },
    Copy {
        src: Region,
    },
    /// A kernel that the user wrote.
    Custom {
        src: Vec<Region>,
    },
}

/// Trips of a range.
pub(crate) fn trips(range: &UOp) -> u64 {
    u64::try_from(range.vmax().saturating_add(1)).unwrap_or(1)
}

pub(crate) fn product(ranges: &[UOp]) -> u64 {
    ranges.iter().map(trips).fold(1, u64::saturating_mul)
}

impl Job {
    /// Element visits: output elements and all iterations of the reduces.
    pub(crate) fn work(&self) -> u64 {
        let reduce = |r: &Reduced| product(&r.ranges).saturating_mul(product(&ranges_in(&r.place.idx)));
        self.reduces.iter().map(reduce).fold(product(&self.loops), u64::saturating_add)
    }
    /// A reduce over inputs none of which depends on all loops: each is read many times, as in a matmul.
    pub(crate) fn reuses_inputs(&self) -> bool {
        let all = self.loops.len() + self.reduces.iter().map(|r| r.ranges.len()).sum::<usize>();
        !self.reduces.is_empty() && self.reads.len() > 1 && self.reads.iter().all(|r| ranges_in([&r.flat]).len() < all)
    }
    /// Extents of the reduces, outer to inner stages.
    pub(crate) fn reduce_ends(&self) -> Vec<Vec<UOp>> {
        let ends = |r: &Reduced| r.ranges.iter().map(|x| x.src()[0].clone()).collect();
        self.reduces.iter().map(ends).collect()
    }
    /// A step of its own, from memory to memory.
    pub(crate) fn is_copy(&self) -> bool {
        matches!(self.kind, JobKind::Copy { .. } | JobKind::Custom { .. })
    }
    /// What such a step reads.
    pub(crate) fn sources(&self) -> &[Region] {
        match &self.kind {
            JobKind::Copy { src } => std::slice::from_ref(src),
            JobKind::Custom { src } => src,
            _ => &[],
        }
    }
}

/// Adds the results of reduces to what is stored.
pub(crate) fn store_reduces(g: &Graph, stored: &mut Stored) {
    for u in g.order.iter().filter(|u| u.op() == Op::Reduce && !is_empty(u.shape())) {
        if let Some(end) = chain_end(g, stored, u) {
            stored.insert(g, &end);
        }
    }
}

/// Where the chain of single users of a reduce ends; `None` if a stored value ends it.
fn chain_end(g: &Graph, stored: &Stored, reduce: &UOp) -> Option<UOp> {
    let (mut at, mut end) = (reduce.clone(), reduce.clone());
    loop {
        if stored.at.contains_key(&at) {
            return None;
        }
        let [next] = g.users(&at) else { return Some(end) };
        match next.op() {
            // Memory holds the narrow form; readers widen it.
            Op::Cast if widens(&at, next) => {}
            op if op.is_elementwise() => end = next.clone(),
            Op::Reshape | Op::Permute | Op::Flip | Op::Shrink | Op::Contiguous => {}
            Op::Pad if max_len(next.shape()) <= max_len(at.shape()) / 4 * 5 => {}
            Op::Assign if next.src()[1] == at => return None,
            _ => return Some(end),
        }
        at = next.clone();
    }
}

/// Jobs in graph order; absorbed values are taken out of `stored`.
pub(crate) fn jobs(g: &Graph, stored: &mut Stored) -> Result<Vec<Job>, ScheduleError> {
    let mut jobs: Vec<Job> = Vec::new();
    // How often each stored value is read, and by which job.
    let mut wanted: UMap<Vec<(usize, Rc<AccessPoint>)>> = UMap::default();
    let mut next_range = 0;
    for u in g.order.iter().rev() {
        if is_empty(u.shape()) || !(stored.at.contains_key(u) || u.op() == Op::Assign) {
            continue;
        }
        let job = lower_job(stored, u, &mut next_range)?;
        let free = !stored.required.contains(u) && u.op() != Op::Assign && !job.is_copy();
        let heavy = job.reuses_inputs() && job.work() > SMALL_WORK;
        let heavy = heavy || sums_products(stored, &job);
        let reads = wanted.get(u).map_or(&[][..], Vec::as_slice);
        let owner = absorber(&jobs, reads, job.work(), &g.traits(u)).filter(|_| !heavy);
        let owner = owner.or_else(|| stored.at.get(u).and_then(|at| summed_up(&jobs, reads, (&job, at, heavy))));
        if let Some(owner) = owner.filter(|_| free) {
            stored.at.remove(u);
            for w in wanted.values_mut() {
                w.retain(|(k, _)| *k != owner);
            }
            let node = jobs[owner].node.clone();
            jobs[owner] = lower_job(stored, &node, &mut next_range)?;
            want(&mut wanted, owner, &jobs[owner]);
            continue;
        }
        want(&mut wanted, jobs.len(), &job);
        jobs.push(job);
    }
    jobs.reverse();
    Ok(jobs)
}

fn want(wanted: &mut UMap<Vec<(usize, Rc<AccessPoint>)>>, k: usize, job: &Job) {
    for (node, place) in &job.uses {
        wanted.entry(node.clone()).or_default().push((k, place.clone()));
    }
}

/// The job that can absorb a value: the only reader, at one place, inside a reduce, once for each of its iterations.
fn absorber(jobs: &[Job], wanted: &[(usize, Rc<AccessPoint>)], work: u64, device: &DeviceTraits) -> Option<usize> {
    let [(owner, place)] = wanted else { return None };
    let job = &jobs[*owner];
    if place.gate.is_some() || place.version.is_some() {
        return None;
    }
    let have = whole_ranges(&place.idx)?;
    // The ranges of some reduce and all loops around it, including those of enclosing reduces.
    let once_a_turn = |q: &Reduced| {
        let outer = ranges_in(q.place.idx.iter().chain(&q.place.gate));
        let need = || q.ranges.iter().chain(&outer);
        need().all(|r| have.contains(r)) && have.iter().all(|r| need().any(|n| n == r))
    };
    let busy = device.is_busy(product(&job.loops), job.work().saturating_add(work));
    (busy && job.reduces.iter().any(once_a_turn)).then_some(*owner)
}

/// A sum of stored sums, and so on, down to many products: as one sum it reads its inputs again and again.
fn sums_products(stored: &Stored, job: &Job) -> bool {
    let summed = |r: &Reduced| {
        let param = r.of.as_ref()?;
        stored.at.iter().find(|(_, at)| address(at) == *param).map(|(node, _)| node.clone())
    };
    job.reduces.iter().filter_map(summed).any(|mut u| {
        while u.op().is_movement() || u.op() == Op::Reduce && u.reduce_op() == Some(Op::Add) {
            u = u.src()[0].clone();
        }
        is_contraction(&u) && max_len(u.shape()) as u64 > SMALL_WORK
    })
}

/// The job that sums a sum: it reads each element at most once, some of them shifted or padded, in a sum of nothing
/// else.
fn summed_up(
    jobs: &[Job],
    wanted: &[(usize, Rc<AccessPoint>)],
    (sum, param, heavy): (&Job, &UOp, bool),
) -> Option<usize> {
    let [(owner, place)] = wanted else { return None };
    let job = &jobs[*owner];
    if !sum.is_sum || place.gate.is_none() || place.version.is_some() {
        return None;
    }
    // Iterations for elements that do not exist do nothing but take time.
    let iterations = |q: &Reduced| product(&q.ranges).saturating_mul(product(&ranges_in(&q.place.idx)));
    let each_once = |q: &Reduced| {
        let open: Vec<UOp> = q.ranges.iter().cloned().chain(ranges_in(&q.place.idx)).collect();
        let few = iterations(q) <= product(&sum.loops).saturating_mul(2) || sum.work() <= SMALL_WORK;
        // Loops of the job that the sum does not need would do it again.
        let again = heavy && product(&ranges_in(&q.place.idx)) != product(&job.loops);
        q.of.as_ref() == Some(&address(param)) && few && !again && once_each(&place.idx, &open)
    };
    job.reduces.iter().any(each_once).then_some(*owner)
}

/// The ranges that these indices are, if they are distinct ranges and zeros.
pub(crate) fn whole_ranges(idx: &[UOp]) -> Option<Vec<UOp>> {
    let mut found: Vec<UOp> = Vec::new();
    for i in idx {
        match i.op() {
            Op::Range if !found.contains(i) => found.push(i.clone()),
            Op::Const if i.as_int() == Some(0) => {}
            _ => return None,
        }
    }
    Some(found)
}

fn lower_job(stored: &Stored, u: &UOp, next_range: &mut u32) -> Result<Job, ScheduleError> {
    let bad = |why| ScheduleError::Malformed { op: u.op(), why };
    let mut job = Job {
        node: u.clone(),
        kind: JobKind::Compute,
        loops: Vec::new(),
        idx: Idx::new(),
        reads: Vec::new(),
        uses: Vec::new(),
        reduces: Vec::new(),
        is_sum: false,
        computes: Vec::new(),
    };
    if u.op() == Op::Copy {
        let src = stored.region(&u.src()[0])?.ok_or(bad("the source has no dense memory"))?;
        job.kind = JobKind::Copy { src };
        return Ok(job);
    }
    if u.op() == Op::Custom {
        job.kind = JobKind::Custom { src: stored.sources_of(u)? };
        return Ok(job);
    }
    let cut = |x: &UOp| stored.cut(x);
    (job.loops, job.idx) = loops_of(u.shape(), *next_range);
    let first = *next_range + job.loops.len() as u32;
    if u.op() == Op::Assign {
        let mut low = Lowerer::new(&cut, first);
        low.lower(&u.src()[0], &job.idx)?;
        let r = low.reads.pop().ok_or(bad("the target is not a view of memory"))?;
        job.kind = JobKind::Assign { target: r.param, flat: r.flat };
    }
    let mut low = Lowerer::new(&cut, first);
    let value = low.lower_own(u, &job.idx)?;
    job.is_sum = value.op() == Op::Reduce && value.reduce_op() == Some(Op::Add);
    *next_range = low.next_range();
    let stored_reads = low.reads.iter().filter(|r| !matches!(r.node.arg(), Arg::Param(..)));
    job.uses = stored_reads.map(|r| (r.node.clone(), r.place.clone())).collect();
    job.uses.append(&mut low.memory_uses);
    job.computes = low.computed().cloned().collect();
    sort::by_key(&mut job.computes, UOp::id);
    job.reads = low.reads;
    job.reduces = low.reduces;
    Ok(job)
}
