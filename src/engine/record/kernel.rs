//! What is noted of a kernel: its graph after each pass, each applied rule, linear program and machine code.

use super::{Recorder, State, graph};
use crate::codegen::{OptChoice, Program};
use crate::engine::session::OpenDevice;
use crate::explorer::{Candidate, Code, Graph, Kernel, Part, Steps};
use crate::isa::{Argument, Binary, BinaryCode};
use crate::uop::{self, UOp};
use std::time::{Duration, Instant};

/// Applied rules that are noted of one kernel at most.
const MOST_STEPS: usize = 200_000;

/// What is noted while a kernel is compiled.
#[derive(Default)]
pub(in crate::engine) struct Notes {
    /// The kernel graph after each pass.
    pub stages: Vec<(&'static str, UOp)>,
    /// Applied rules.
    pub steps: uop::Trace,
    /// What a search timed.
    pub candidates: Vec<Candidate>,
}

/// A compiled kernel.
pub(in crate::engine) struct Made<'a> {
    pub device: &'a OpenDevice,
    pub ast: &'a UOp,
    pub program: &'a Program,
    pub binary: &'a Binary,
    pub began: Instant,
}

impl Recorder {
    /// Runs a compilation and notes the rules that it applies.
    pub(crate) fn watch<T>(&self, compile: impl FnOnce() -> T) -> (T, uop::Trace) {
        if self.steps { uop::traced(compile) } else { (compile(), uop::Trace::default()) }
    }

    /// Notes a kernel.
    pub(crate) fn compiled(&self, made: &Made<'_>, notes: Notes) {
        let compile_ns = u64::try_from(made.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let code = self.code(made, &notes);
        let mut state = self.state();
        let number = state.record.kernels.len();
        let steps = state.steps(&notes.steps, &code.1);
        let kernel = kernel(made, &notes, &code.0, compile_ns);
        let nodes = code.1.into_nodes();
        let part = Part::of(&format!("kernel:{number}"), &Code { nodes, steps, ..code.0 });
        state.record.kernels.push(kernel);
        state.kernels.insert((made.device.name.clone(), made.ast.id()), number);
        state.parts.push(part);
    }

    /// All but the nodes and steps, which need the numbers of nodes and rules.
    fn code(&self, made: &Made<'_>, notes: &Notes) -> (Code, Graph<u64>) {
        let (program, backend) = (made.program, &made.device.backend);
        let mut nodes = Graph::default();
        let mut add = |u: &UOp| graph::add(&mut nodes, u, &|_| false);
        let stages = notes.stages.iter().map(|(name, u)| ((*name).into(), add(u))).collect();
        let list = program.uops.iter().map(&mut add).collect();
        for s in notes.steps.steps.iter().take(MOST_STEPS) {
            add(&s.before);
            add(&s.after);
        }
        let has_code = made.binary.code != BinaryCode::None;
        let code = Code {
            stages,
            list,
            banks: super::banks::conflicts(program),
            program: program.source(),
            source: backend.source(program).ok().flatten().unwrap_or_default(),
            listing: if has_code {
                backend.listing(made.binary).unwrap_or_else(|e| format!("// {e}"))
            } else {
                String::new()
            },
            arguments: made.binary.arguments.iter().map(|a| argument(program, a)).collect(),
            candidates: notes.candidates.clone(),
            ..Code::default()
        };
        (code, nodes)
    }
}

impl State {
    fn steps(&mut self, trace: &uop::Trace, nodes: &Graph<u64>) -> Steps {
        let mut steps = Steps { left_out: trace.steps.len().saturating_sub(MOST_STEPS), ..Steps::default() };
        for s in trace.steps.iter().take(MOST_STEPS) {
            let (Some(before), Some(after)) = (nodes.get(&s.before.id()), nodes.get(&s.after.id())) else { continue };
            steps.rule.push(self.rule(s.rule));
            steps.before.push(before);
            steps.after.push(after);
        }
        steps
    }
}

fn kernel(made: &Made<'_>, notes: &Notes, code: &Code, compile_ns: u64) -> Kernel {
    let (p, device) = (made.program, made.device);
    let (flops, mem_bytes, unique_bytes) = (p.estimates.flops, p.estimates.mem_bytes, p.estimates.unique_bytes);
    Kernel {
        name: p.name.clone(),
        device: device.name.to_string(),
        arch: device.device.info().arch.clone(),
        key: format!("{:016x}", hash(&made.ast.tree())),
        opts: p.opts.clone(),
        flops,
        mem_bytes,
        unique_bytes,
        threads: p.threads,
        global: p.global,
        local: p.local,
        local_bytes: p.local_bytes as u64,
        uops: p.uops.len(),
        steps: notes.steps.steps.len(),
        instructions: code.listing.lines().filter(|l| !l.trim().is_empty()).count(),
        compile_ns,
        candidates: notes.candidates.len(),
    }
}

fn argument(p: &Program, argument: &Argument) -> String {
    match argument {
        Argument::Buffer(k) => p.params.get(*k).map_or_else(String::new, |b| {
            let use_of = match (b.read, b.written) {
                (true, true) => "read and written",
                (false, true) => "written",
                _ => "read",
            };
            format!("data{}: {} x {}, {use_of}", b.slot, b.len, b.dtype.scalar)
        }),
        Argument::Variable(k) => p.vars.get(*k).map_or_else(String::new, |v| format!("{}: a number", v.render())),
        Argument::Word(bits) => format!("{bits:#x}"),
    }
}

/// FNV-1a.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

impl Notes {
    /// Compiles with these opts, noting the graph after each pass.
    pub(crate) fn compile(
        &mut self,
        (recorder, ast): (&Recorder, &UOp),
        target: &crate::codegen::Target,
        choice: &OptChoice,
        fast_math: bool,
    ) -> Result<Program, crate::codegen::CodegenError> {
        let stages = &mut self.stages;
        let observe = &mut |name, u: &UOp| stages.push((name, u.clone()));
        let (program, steps) =
            recorder.watch(|| crate::codegen::compile_observed(ast, target, choice, fast_math, observe));
        self.steps = steps;
        program
    }

    /// A candidate of a search, with its time if it ran.
    pub(crate) fn candidate(&mut self, p: &Program, time: Option<Duration>) {
        let ns = time.map_or(0, |t| u64::try_from(t.as_nanos()).unwrap_or(u64::MAX));
        let opts = p.opts.join(", ");
        match self.candidates.iter_mut().find(|c| c.opts == opts) {
            Some(known) => known.ns = if known.ns == 0 { ns } else { known.ns.min(ns) },
            None => self.candidates.push(Candidate { opts, ns }),
        }
    }
}
