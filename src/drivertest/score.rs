//! The mutation score: which mutants the cases notice, and whether each case notices one.

use crate::bench::{self, Outcome, Setting};
use crate::case::{Case, Verdict};
use crate::mutant::{self, Calls, Effect, Mutant};
use crate::select::fits;
use doorbell_ioctl::port::Errno;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// How long a mutant may keep a case waiting.
const IMPATIENCE: Duration = Duration::from_millis(150);

/// Faults that no case can notice, with the reason: patterns of their names.
const EXPLAINED: &[(&str, &str)] = &[
    ("CRIU_OP: *", "the software driver refuses every CRIU_OP, as without the capability"),
    ("SVM: *", "it refuses every SVM, as a kernel built without it"),
    ("GET_QUEUE_WAVE_STATE: *", "it has no saved waves, so that every such call is refused"),
    ("SET_TRAP_HANDLER: overlooks t*a_addr", "no trap handler runs on the software card"),
    ("SET_MEMORY_POLICY: overlooks alternate_aperture_*", "the software card has no alternate aperture"),
    ("SET_SCRATCH_BACKING_VA: overlooks va_addr", "the software card takes the address of scratch from registers"),
    ("GET_DMABUF_INFO: * metadata_*", "buffers of a compute process have no metadata"),
    ("RUNTIME_ENABLE: overlooks r_debug", "an address for debuggers, which no call reads back"),
    ("RUNTIME_ENABLE: leaves capabilities_mask empty", "every mask is an answer"),
    ("UVM_PAGEABLE_MEM_ACCESS*", "0 and 1 are both answers"),
    ("SYS_PARAMS: overlooks memblock_size", "a field that is only answered"),
    ("*_OS_EVENT: overlooks h_device", "the driver does not look at it"),
    ("RM_DUP_OBJECT: overlooks flags", "no flag concerns memory"),
    ("RM_CONTROL: overlooks flags", "no flag is set by a user's program"),
    ("RM_CONTROL(*_BUILD_VERSION_V2): leaves *changelist_number of its struct empty", "every number is an answer"),
    ("RM_CONTROL(*_FIRST_ASYNC_CE_IDX): leaves *", "every index of an engine is an answer"),
    ("RM_CONTROL(*_ARCH_INFO): leaves *ion of its struct empty", "numbers of a board: every one is an answer"),
    ("RM_CONTROL(*_SET_TIMESLICE): leaves *", "a field that is not answered"),
    (
        "RM_CONTROL(*_CMD_PREEMPT): does nothing",
        "an idle group is not to be preempted, and the software card ends a copy first",
    ),
    ("RM_ALLOC: overlooks params_size", "the driver copies the whole struct of the class whatever it says"),
    ("RM_ALLOC: overlooks p_rights_requested", "no rights are asked for"),
    ("RM_ALLOC(*): leaves pitch of its struct empty", "memory that is no image has no pitch"),
    ("RM_ALLOC(NV50_MEMORY_VIRTUAL): leaves attr*", "what the driver answers for addresses alone nobody reads back"),
    ("RM_ALLOC(FERMI_*): leaves *", "a field that the driver leaves as it was, and nobody reads back"),
    ("RM_ALLOC_MEMORY: overlooks fd", "the memory is the process's own, not a file's"),
    ("RM_IDLE_CHANNELS: overlooks timeout", "an idle channel needs no time"),
    ("RM_*MAP_MEMORY_DMA: overlooks flags", "the driver takes the flags of the range"),
    ("CREATE_EVENT: overlooks node_id", "the driver does not look at it"),
    ("UVM_MAP_EXTERNAL_ALLOCATION: overlooks rm_ctrl_fd", "the driver finds the memory by its client"),
    ("UVM_REGISTER_*: overlooks rm_ctrl_fd", "the driver finds the object by its client"),
    (
        "UVM_REGISTER_GPU: leaves numa_node_id empty",
        "where a card's memory is no node, releases answer -1 or a node beside it",
    ),
    ("UVM_REGISTER_GPU: overlooks h_*", "looked at with partitions only"),
    ("RM_FREE: overlooks h_object_parent", "the driver frees an object by its own handle"),
    ("RM_UNMAP_MEMORY: overlooks flags", "the driver does not look at them"),
    ("RM_ALLOC: overlooks flags", "the driver does not look at them"),
    ("RM_UNMAP_MEMORY_DMA: overlooks h_memory", "the driver finds the mapping by its range and address"),
    ("RM_MAP_MEMORY_DMA: overlooks flags2", "no flag of the second field concerns plain memory"),
];

/// Why a fault cannot be noticed.
#[must_use]
pub fn explained(mutant: &Mutant) -> Option<&'static str> {
    let name = mutant.to_string();
    EXPLAINED.iter().find(|(pattern, _)| fits(pattern, &name)).map(|(_, reason)| *reason)
}

/// The result over all cases of a driver.
#[derive(Debug, Default)]
pub struct Score {
    /// Cases that did not pass without a mutant: name, how they ended, why.
    pub unfit: Vec<(String, Verdict, String)>,
    /// Each case with the first mutant that it noticed.
    pub proven: Vec<(String, String)>,
    /// Cases that noticed none.
    pub unproven: Vec<String>,
    /// Mutants that some case noticed.
    pub killed: usize,
    /// Mutants that none noticed.
    pub survivors: Vec<Mutant>,
}

impl Score {
    /// Share of the mutants that were noticed, in percent.
    #[must_use]
    pub fn percent(&self) -> f64 {
        let all = self.killed + self.survivors.len();
        if all == 0 { 0.0 } else { 100.0 * self.killed as f64 / all as f64 }
    }
}

impl std::fmt::Display for Score {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (cases, all) = (self.proven.len() + self.unproven.len(), self.killed + self.survivors.len());
        for (case, verdict, why) in &self.unfit {
            writeln!(f, "without a fault: {case}: {} {why}", verdict.word())?;
        }
        for case in &self.unproven {
            writeln!(f, "notices no fault: {case}")?;
        }
        for mutant in &self.survivors {
            let reason = explained(mutant).unwrap_or("no reason is known");
            writeln!(f, "noticed by no case: {mutant} ({reason})")?;
        }
        writeln!(f, "{} of {cases} cases are seen to fail under a fault", self.proven.len())?;
        write!(f, "mutation score {:.1} %: {} of {all} faults are noticed", self.percent(), self.killed)
    }
}

impl Score {
    /// One object.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        let survivor = |mutant: &Mutant| serde_json::json!([mutant.to_string(), explained(mutant)]);
        let survivors: Vec<serde_json::Value> = self.survivors.iter().map(survivor).collect();
        serde_json::json!({
            "cases": self.proven.len() + self.unproven.len(),
            "proven": self.proven.len(),
            "unproven": self.unproven,
            "faults": self.killed + self.survivors.len(),
            "noticed": self.killed,
            "percent": self.percent(),
            "survivors": survivors,
            "unfit": self.unfit.iter().map(|(case, verdict, why)| serde_json::json!([case, verdict, why])).collect::<Vec<_>>(),
        })
    }
}

/// Whether a case notices a mutant.
///
/// # Errors
/// A machine that cannot be opened.
pub fn notices(case: &Case, setting: &Setting, mutant: &Mutant) -> Result<bool, Errno> {
    let setting = Setting { mutant: Some(mutant.clone()), patience: IMPATIENCE, ..setting.clone() };
    // A mutant may make a case's own assumptions wrong.
    let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bench::run(case, &setting)));
    Ok(match run {
        Ok(outcome) => outcome?.verdict.is_bad(),
        Err(_) => true,
    })
}

/// One pass of a case without a mutant.
struct Fit<'a> {
    case: &'a Case,
    calls: Calls,
}

/// Does `work` for each of `items` on all cores; results in their order, or the first error.
fn on_all_cores<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(usize, &T) -> Result<R, Errno> + Sync,
) -> Result<Vec<R>, Errno> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let one = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { return done };
            done.push((at, work(at, item)));
        }
    };
    let mut all: Vec<(usize, Result<R, Errno>)> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..cores).map(|_| scope.spawn(one)).collect();
        let mut all = one();
        for worker in others {
            all.extend(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        all
    });
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, result)| result).collect()
}

/// Runs each case as it is, then looks for a mutant that each notices, then for a case that notices each mutant.
///
/// # Errors
/// A machine that cannot be opened.
pub fn score(cases: &[Case], setting: &Setting) -> Result<Score, Errno> {
    let mut score = Score::default();
    let mut fit = Vec::new();
    for (case, end) in cases.iter().zip(on_all_cores(cases, |_, case| bench::run(case, setting))?) {
        let Outcome { verdict, why, calls, .. } = end;
        match verdict {
            Verdict::Pass => fit.push(Fit { case, calls }),
            _ => score.unfit.push((case.name.clone(), verdict, why)),
        }
    }
    let mut calls = Calls::default();
    fit.iter().for_each(|fit| calls.join(&fit.calls));
    let mutants = mutant::all(setting.target.driver, &calls);
    let killed: Vec<AtomicBool> = mutants.iter().map(|_| AtomicBool::new(false)).collect();
    let proven = on_all_cores(&fit, |at, fit| prove(fit, at, setting, &mutants, &killed))?;
    for (fit, found) in fit.iter().zip(proven) {
        match found {
            Some(name) => score.proven.push((fit.case.name.clone(), name)),
            None => score.unproven.push(fit.case.name.clone()),
        }
    }
    // Those that make few calls are done soon.
    fit.sort_by_key(|fit| fit.calls.count());
    let noticed = on_all_cores(&mutants, |at, mutant| {
        if killed[at].load(Ordering::Relaxed) { Ok(true) } else { by_any(&fit, setting, mutant) }
    })?;
    for (mutant, noticed) in mutants.into_iter().zip(noticed) {
        if noticed {
            score.killed += 1;
        } else {
            score.survivors.push(mutant);
        }
    }
    Ok(score)
}

/// The first mutant that a case notices. It looks at some that no other case has noticed, then at the most likely
/// ones (a call that it makes is refused), then at all that concern it.
fn prove(
    fit: &Fit<'_>,
    round: usize,
    setting: &Setting,
    mutants: &[Mutant],
    killed: &[AtomicBool],
) -> Result<Option<String>, Errno> {
    /// The pass over the mutants looks at all of them anyway.
    const TRIES: usize = 2;
    let concerned: Vec<usize> = (0..mutants.len()).filter(|at| mutants[*at].concerns(&fit.calls)).collect();
    let new: Vec<usize> = concerned.iter().copied().filter(|at| !killed[*at].load(Ordering::Relaxed)).collect();
    let first = new.iter().cycle().skip(round % new.len().max(1)).take(TRIES.min(new.len())).copied();
    let likely = concerned.iter().copied().filter(|at| matches!(mutants[*at], Mutant::Call(_, Effect::Refuse)));
    for at in first.chain(likely).chain(concerned.iter().copied()) {
        if notices(fit.case, setting, &mutants[at])? {
            killed[at].store(true, Ordering::Relaxed);
            return Ok(Some(mutants[at].to_string()));
        }
    }
    Ok(None)
}

fn by_any(fit: &[Fit<'_>], setting: &Setting, mutant: &Mutant) -> Result<bool, Errno> {
    for fit in fit.iter().filter(|fit| mutant.concerns(&fit.calls)) {
        if notices(fit.case, setting, mutant)? {
            return Ok(true);
        }
    }
    Ok(false)
}
