//! Linear nodes → statements of MSL, node by node in list order.
//!
//! A value is a list of lanes, each a name or a literal: MSL's vectors have at most four lanes, and its compiler makes
//! vectors of its own. Every node's lane becomes one constant; registers of the list (`Acc`) become variables.
//!
//! **The kernel's arguments**: buffers in the order of `Program::params`, then variables, each in the slot of its
//! number. Grid and threadgroup are the program's `global` and `local`.
//!
//! **Arithmetic.** Contraction is off unless the program asks for fast math, and integers wrap around: signed sums that
//! might leave their type are made of unsigned ones. f64 has no type in MSL and is refused.

mod alu;
mod cast;
mod control;
mod memory;
mod text;

use super::family::{Family, MAX_BUFFERS};
use doorbell_codegen::Program;
use doorbell_uop::{Arg, DType, Op, Scalar, UMap, UOp};
use smallvec::SmallVec;
use std::fmt::Write;

/// Why a program has no text in MSL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RenderError {
    /// An op or a type that the language lacks.
    #[error("{kernel}: no MSL for {op:?} on {dtype}")]
    Unsupported {
        /// The kernel's name.
        kernel: String,
        /// The op.
        op: Op,
        /// Its type, for a comparison that of its sources.
        dtype: DType,
    },
    /// A list that is not what [`doorbell_codegen::Program`] says.
    #[error("{kernel}: malformed program: {why}")]
    Malformed {
        /// The kernel's name.
        kernel: String,
        /// What is wrong.
        why: String,
    },
    /// More than a kernel may have.
    #[error("{kernel}: {}", self.what())]
    Limit {
        /// The kernel's name.
        kernel: String,
        /// What there is too much of.
        of: &'static str,
        /// How much.
        have: usize,
        /// How much a kernel may have.
        limit: usize,
    },
}

impl RenderError {
    /// The text without the kernel's name.
    pub(crate) fn what(&self) -> String {
        match self {
            RenderError::Limit { of, have, limit, .. } => format!("{have} {of}, a Metal kernel has {limit}"),
            RenderError::Malformed { why, .. } => format!("malformed program: {why}"),
            RenderError::Unsupported { op, dtype, .. } => format!("no MSL for {op:?} on {dtype}"),
        }
    }
}

type Res<T> = Result<T, RenderError>;

/// One lane of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Lane {
    /// A constant of the text, by number.
    Value(u32),
    /// A variable, by number.
    Variable(u32),
    /// A literal or another expression without an effect, in parentheses where it needs them.
    Text(String),
}

type Val = SmallVec<[Lane; 4]>;

/// Renders the program as a source file with one kernel.
///
/// # Errors
/// A node or a type that the language lacks, a malformed list, too many arguments, too much threadgroup memory.
pub fn render(program: &Program, family: Family) -> Result<String, RenderError> {
    let mut r = Render::new(program, family);
    r.limits()?;
    for u in &program.uops {
        r.node(u)?;
    }
    if !r.open.is_empty() {
        return Err(r.malformed("a loop is not closed"));
    }
    r.file()
}

struct Render<'a> {
    program: &'a Program,
    family: Family,
    /// Statements of the body.
    body: String,
    /// Values made so far, and names of memory.
    values: UMap<Val>,
    made: u32,
    /// Loops that are open.
    open: Vec<UOp>,
    /// Functions that the text needs.
    uses_bfloat_bits: bool,
}

impl<'a> Render<'a> {
    fn new(program: &'a Program, family: Family) -> Render<'a> {
        Render {
            program,
            family,
            body: String::new(),
            values: UMap::default(),
            made: 0,
            open: vec![],
            uses_bfloat_bits: false,
        }
    }

    fn limits(&self) -> Res<()> {
        let arguments = self.program.params.len() + self.program.vars.len();
        let threads = self.program.local.iter().map(|n| *n as usize).product();
        let kernel = || self.program.name.clone();
        let too_many = |of, have, limit| Err(RenderError::Limit { kernel: kernel(), of, have, limit });
        if arguments > MAX_BUFFERS {
            return too_many("buffers and variables", arguments, MAX_BUFFERS);
        }
        let target = self.family.target();
        let most = target.grid.map_or(1, |g| g.max_workgroup as usize);
        if threads > most {
            return too_many("threads of a threadgroup", threads, most);
        }
        if self.program.local_bytes > target.local_bytes {
            return too_many("bytes of threadgroup memory", self.program.local_bytes, target.local_bytes);
        }
        Ok(())
    }

    fn node(&mut self, u: &UOp) -> Res<()> {
        let v = match u.op() {
            Op::Sink | Op::Const | Op::Index | Op::Commit => return Ok(()),
            Op::Param | Op::After if u.dtype().space.is_some() => return Ok(()),
            Op::Local => return self.local(u),
            Op::Store => return self.store(u),
            Op::SetAcc => return self.set_acc(u),
            Op::End => return self.close_loop(u),
            Op::Barrier => {
                self.line("threadgroup_barrier(mem_flags::mem_threadgroup);");
                return Ok(());
            }
            Op::Range => self.open_loop(u)?,
            Op::Acc => self.acc(u)?,
            Op::After => self.val(&u.src()[0])?,
            _ => {
                let v = self.compute(u)?;
                self.settle(u.dtype().scalar, v)
            }
        };
        self.values.insert(u.clone(), v);
        Ok(())
    }

    /// Copies lanes that are variables, which change later.
    fn settle(&mut self, t: Scalar, v: Val) -> Val {
        v.into_iter()
            .map(|lane| if let Lane::Variable(_) = lane { self.named(t, &lane.to_string()) } else { lane })
            .collect()
    }

    fn compute(&mut self, u: &UOp) -> Res<Val> {
        match u.op() {
            Op::Load => self.load(u),
            Op::Special => self.special(u),
            Op::Var => self.variable(u),
            Op::Splat => {
                let x = self.val(&u.src()[0])?;
                Ok(std::iter::repeat_n(x[0].clone(), usize::from(u.dtype().lanes)).collect())
            }
            Op::Stack | Op::Cat => {
                let mut out = Val::new();
                for s in u.src() {
                    out.extend(self.val(s)?);
                }
                Ok(out)
            }
            Op::Gep => {
                let v = self.val(&u.src()[0])?;
                let Arg::Axes(lanes) = u.arg() else { return Err(self.unsupported(u)) };
                let lane = |k: &u16| v.get(usize::from(*k)).or(v.first().filter(|_| v.len() == 1)).cloned();
                lanes.iter().map(lane).collect::<Option<Val>>().ok_or_else(|| self.malformed("a lane is not there"))
            }
            Op::VReduce => {
                let Arg::Reduce(op, _) = u.arg() else { return Err(self.unsupported(u)) };
                let v = self.val(&u.src()[0])?;
                let mut sum = v[0].clone();
                for x in &v[1..] {
                    sum = self.alu(u, *op, &[sum, x.clone()])?;
                }
                Ok(smallvec::smallvec![sum])
            }
            Op::WaveReduce => self.wave_reduce(u),
            Op::Wmma => self.product(u),
            op if op.is_elementwise() => self.lanewise(u),
            _ => Err(self.unsupported(u)),
        }
    }

    /// Each lane by itself; equal lanes once.
    fn lanewise(&mut self, u: &UOp) -> Res<Val> {
        let sources: SmallVec<[Val; 3]> = u.src().iter().map(|s| self.val(s)).collect::<Res<_>>()?;
        let mut out = Val::new();
        let mut done: Vec<(SmallVec<[Lane; 3]>, Lane)> = Vec::new();
        for k in 0..usize::from(u.dtype().lanes) {
            let a: SmallVec<[Lane; 3]> = sources.iter().map(|v| v[k.min(v.len() - 1)].clone()).collect();
            let from = u.src()[0].dtype().scalar;
            let r = match (done.iter().find(|d| d.0 == a), u.op()) {
                (Some(known), _) => known.1.clone(),
                (_, Op::Cast) => self.cast(u, from, u.dtype().scalar, &a[0])?,
                (_, Op::Bitcast) => self.bitcast(u, from, u.dtype().scalar, &a[0])?,
                (_, Op::Where) => self.named(u.dtype().scalar, &format!("{} ? {} : {}", a[0], a[1], a[2])),
                (_, op) if op.is_comparison() => self.compare(op, from, &a[0], &a[1]),
                (_, op) => self.alu(u, op, &a)?,
            };
            done.push((a, r.clone()));
            out.push(r);
        }
        Ok(out)
    }

    /// A node's value.
    fn val(&mut self, u: &UOp) -> Res<Val> {
        if let Some(c) = u.as_const().filter(|_| u.op() == Op::Const) {
            let literal = self.literal(u, c)?;
            return Ok(std::iter::repeat_n(Lane::Text(literal), usize::from(u.dtype().lanes)).collect());
        }
        self.values
            .get(u)
            .cloned()
            .ok_or_else(|| self.malformed(&format!("{u:?} is used before it stands in the list")))
    }

    /// A new constant of this value.
    fn named(&mut self, t: Scalar, value: &str) -> Lane {
        let n = self.made;
        self.made += 1;
        let text = format!("const {} v{n} = {value};", self.type_name(t));
        self.line(&text);
        Lane::Value(n)
    }

    /// A statement.
    fn line(&mut self, text: &str) {
        let indent = 4 * (1 + self.open.len());
        // PANIC: never fails on a String.
        let _ = writeln!(self.body, "{:indent$}{text}", "");
    }

    fn unsupported(&self, u: &UOp) -> RenderError {
        let dtype = if u.op().is_comparison() { u.src()[0].dtype() } else { u.dtype() };
        RenderError::Unsupported { kernel: self.program.name.clone(), op: u.op(), dtype }
    }

    fn malformed(&self, why: &str) -> RenderError {
        RenderError::Malformed { kernel: self.program.name.clone(), why: why.to_owned() }
    }
}
