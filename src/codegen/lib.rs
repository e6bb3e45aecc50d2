//! Compiles one kernel to one linear program: optimise, put in lanes, decompose, expand, linearise. Also contains
//! register allocation.
//!
//! The passes of [`compile`], in order (an attention is written by `flash` instead, and passes none of them):
//!
//! 1. FAST_MATH's rules, where asked for;
//! 2. `invariant` (reductions of what does not depend on them), `clean` (simplified, loops of one iteration removed),
//!    `merge` (adjacent loops joined), `separate` (a Range for each loop);
//! 3. `opt` (loops marked to be split, unrolled, put in lanes, spread over threads);
//! 4. `tile` (tiles of CPU matrix units through scratch memory), `grid` (loops become a GPU's launch; `group` for the
//!    reductions of a workgroup), `clean` and `separate` again;
//! 5. `lanes` (values of Vector ranges get lanes), `accumulate::widen` (half types are summed in f32);
//! 6. `decomp` (operations that the target lacks);
//! 7. `expand` (copies of Upcast and Unroll ranges), then simplified and `separate` again where copies may become
//!    simpler;
//! 8. `transpose` (gathers become loads and a transposition), `accumulate` (registers of reductions), `strong` (machine
//!    types for index arithmetic, addresses);
//! 9. `linear` (the list in execution order, with `scope`), and `barrier` on a GPU.
//!
//! In: a kernel graph (see `uop`), whose root is a `Sink` of `Store(Index(Param, i[, gate]), value, ranges...)`, and a
//! [`Target`]. Out: a [`Program`]. Depends on `uop` only.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod accumulate;
mod affine;
mod barrier;
pub mod beam;
pub mod check;
mod clean;
mod cost;
pub mod decomp;
mod expand;
mod flash;
mod grid;
mod group;
mod invariant;
mod lanes;
mod linear;
mod merge;
pub mod opt;
pub mod program;
pub mod regalloc;
mod scope;
mod separate;
mod strong;
pub mod target;
mod text;
mod tile;
mod transpose;
pub mod units;

pub use beam::Beam;
pub use flash::rows as attention_rows;
pub use opt::Opt;
pub use program::{Estimates, ParamInfo, Program, TensorInfo};
pub use target::Target;

use doorbell_sort as sort;
pub use doorbell_uop::RuleInfo;
use doorbell_uop::{Arg, AxisKind, DType, KernelInfo, Op, Order, UOp, graph_rewrite, symbolic};
use opt::OptKernel;
use std::sync::Arc;

/// Where the opts of a kernel come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum OptChoice {
    /// Chosen by rules for the target.
    #[default]
    Heuristic,
    /// No opts: plain loops (`NOOPT=1`).
    None,
    /// These opts, in this order.
    Given(Vec<Opt>),
}

/// Why a kernel could not be compiled.
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CodegenError {
    /// A loop of the graph has no end: no Store or Reduce lists this range.
    #[error("kernel graph: range {0} is open at the sink: no Store or Reduce lists it")]
    OpenRange(String),
    /// Two loops overlap, and neither contains the other.
    #[error("kernel graph: the loops of {0} cross others instead of nesting")]
    CrossedLoops(String),
    /// The root is no Sink of Stores: this node was found instead.
    #[error("kernel graph: expected a Sink of Stores, found {0}")]
    NotAKernel(String),
    /// The opts put two axes in lanes, and this node depends on both.
    #[error("opts: {0} depends on two axes in lanes")]
    TwoVectorAxes(String),
    /// The opts put an axis in lanes, and this node has no form with lanes.
    #[error("opts: {0} cannot be done in lanes")]
    NoLanes(String),
    /// A given opt does not fit the kernel or the target.
    #[error("opt {opt} does not apply: {why}")]
    Opt {
        /// The opt that was refused.
        opt: Opt,
        /// The property of the axis or the target that it does not fit.
        why: String,
    },
    /// The kernel does not fit the target's grid.
    #[error("launch: {0}")]
    Launch(String),
    /// The list violates rules that back ends rely on. This is an internal error; the program is not run.
    #[error("these opts give a program that is not sound: {0}")]
    Unsound(String),
    /// FAST_MATH's rules or the decompositions failed: they do not end, or made a malformed node.
    #[error(transparent)]
    Decompose(#[from] doorbell_uop::RewriteError),
    /// An opt that a kernel names as text cannot be parsed.
    #[error(transparent)]
    OptText(#[from] opt::ParseOptError),
}

/// The text of `Display`: what `?` out of `main` prints.
impl std::fmt::Debug for CodegenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// Compiles one kernel graph for `target`. `fast_math`: float rewrites that ignore NaN, infinities and signed zeros are
/// applied ([`symbolic::fast()`]), and back ends may use shorter instructions that differ only in these cases.
///
/// # Errors
/// The graph is not a kernel, or a given opt does not apply to it.
pub fn compile(ast: &UOp, target: &Target, opts: &OptChoice, fast_math: bool) -> Result<Program, CodegenError> {
    compile_observed(ast, target, opts, fast_math, &mut |_, _| {})
}

/// As [`compile`]; `observe` is given the kernel graph after each pass, with the pass's name.
///
/// # Errors
/// As [`compile`].
pub fn compile_observed(
    ast: &UOp,
    target: &Target,
    opts: &OptChoice,
    fast_math: bool,
    observe: &mut dyn FnMut(&'static str, &UOp),
) -> Result<Program, CodegenError> {
    check(ast)?;
    observe("kernel graph", ast);
    let info = match ast.arg() {
        Arg::Kernel(k) => k.clone(),
        _ => Arc::new(KernelInfo::default()),
    };
    if info.attention
        && let Some(list) = flash::program(ast, target)
    {
        check::verify(&list).map_err(CodegenError::Unsound)?;
        return Ok(program(list, ast, &info, fast_math));
    }
    let opts = match (&info.opts, opts) {
        (Some(texts), _) => OptChoice::Given(texts.iter().map(|t| t.parse()).collect::<Result<_, _>>()?),
        (None, o) => o.clone(),
    };
    let ast = &fast_math_rules(ast, fast_math)?;
    let merged = merge::merge_axes(&clean::clean(&invariant::fold_invariant(ast)));
    let mut kernel = OptKernel::new(separate::separate(&clean::clean(&merged))?, target);
    observe("axes merged", &kernel.sink);
    let given = matches!(opts, OptChoice::Given(_));
    match opts {
        OptChoice::None => {}
        OptChoice::Given(list) => list.into_iter().try_for_each(|o| kernel.apply(o))?,
        OptChoice::Heuristic => opt::choose(&mut kernel),
    }
    observe("opts applied", &kernel.sink);
    let named = grid::with_global_axes(&tile::through_scratch(&kernel.sink), target);
    let placed = separate::separate(&clean::clean(&grid::launch(&named, target)?))?;
    observe("launch placed", &placed);
    let lanes = accumulate::widen(&lanes::to_lanes(&placed)?, target);
    observe("lanes", &lanes);
    let lowered = decomp::lower(&lanes, target, fast_math)?;
    observe("decomposed", &lowered);
    let mut expanded = expand::expand(&lowered);
    if folds_when_expanded(&placed) {
        // A copy that was simplified may depend on fewer loops than the other copies, and then needs a loop of its own.
        expanded = separate::separate(&expanded.simplify())?;
    }
    observe("expanded", &expanded);
    let last = late(&transpose::transpose(&expanded, target), target)?;
    observe("before linearising", &last);
    let mut list = linear::linearize(&last)?;
    if target.has_grid() {
        list = barrier::insert(list);
    }
    // Programs with opts from a search or a caller are verified in every build; our own choices only in tests and debug
    // builds.
    if given || cfg!(debug_assertions) {
        check::verify(&list).map_err(CodegenError::Unsound)?;
    }
    let mut p = program(list, if target.has_grid() { &named } else { &placed }, &info, fast_math);
    p.opts = kernel.applied.iter().map(Opt::to_string).collect();
    Ok(p)
}

/// Every rule of the production pipeline, list by list, in the order in which they are tried: the rules of the
/// simplifier ([`doorbell_uop::rules`]) and the decompositions. `docs/rewriting.md` shows them.
pub fn rules() -> Vec<RuleInfo> {
    doorbell_uop::rules().into_iter().chain(decomp::listed()).collect()
}

/// Applies FAST_MATH's rules before any other pass: later they would also match the magic constants of decompositions
/// as if these were ordinary sums.
fn fast_math_rules(ast: &UOp, fast_math: bool) -> Result<UOp, CodegenError> {
    if !fast_math {
        return Ok(ast.clone());
    }
    Ok(graph_rewrite(ast, symbolic::fast_symbolic(), &mut ())?)
}

/// The passes from expanded loops to ops that may be in the list.
fn late(kernel: &UOp, target: &Target) -> Result<UOp, CodegenError> {
    let k = accumulate::accumulate(kernel);
    let k = strong::split_addresses(&k)?;
    Ok(strong::strengthen(&k, target))
}

/// Whether copies may become simpler than the original: only an op that is not a sum of indices can behave differently
/// for different values of a range.
fn folds_when_expanded(kernel: &UOp) -> bool {
    let order = Order::of(kernel);
    let order = order.nodes();
    order.iter().any(|u| u.op() == Op::Range && matches!(opt::kind_of(u), AxisKind::Upcast | AxisKind::Unroll))
        && order.iter().any(|u| {
            let index = u.dtype() == DType::INDEX && !matches!(u.op(), Op::Const | Op::Range | Op::Var);
            index && !affine::AffineMemo::is_sum(u)
                || u.op().is_comparison()
                || u.op() == Op::Cast && u.src()[0].dtype() == DType::INDEX
        })
}

fn check(ast: &UOp) -> Result<(), CodegenError> {
    if ast.op() != Op::Sink || ast.src().is_empty() {
        return Err(CodegenError::NotAKernel(format!("{ast:?}")));
    }
    match ast.src().iter().find(|s| s.op() != Op::Store || s.src().len() < 2 || s.src()[0].op() != Op::Index) {
        Some(bad) => Err(CodegenError::NotAKernel(format!("{bad:?}"))),
        None => Ok(()),
    }
}

/// The axes of a kernel: its ranges in nesting order of their kinds, then by number.
fn axes(kernel: &UOp) -> Vec<UOp> {
    let order = Order::of(kernel);
    let mut axes: Vec<UOp> = order.nodes().iter().filter(|u| u.op() == Op::Range).map(|u| (*u).clone()).collect();
    sort::by_key(&mut axes, |r| r.range_arg().map(|a| (a.kind, a.id, a.sub)));
    axes
}

fn program(list: Vec<UOp>, kernel: &UOp, info: &KernelInfo, fast_math: bool) -> Program {
    let params = cost::params(&list);
    let reduces = kernel.any(|u| u.op() == Op::Reduce);
    let (mut name, mut display_name) = cost::names(&axes(kernel), reduces);
    if !info.name.is_empty() {
        (name, display_name) = (info.name.clone(), info.name.clone());
    }
    let mut vars: Vec<UOp> = list.iter().filter(|u| u.op() == Op::Var).cloned().collect();
    sort::by_key(&mut vars, |v| match v.arg() {
        Arg::Var(name, ..) => name.to_string(),
        _ => String::new(),
    });
    let (mut threads, mut global, mut local) = (1, [1; 3], [1; 3]);
    let mut local_bytes = 0;
    for u in &list {
        match (u.op(), u.arg()) {
            (Op::Special, Arg::Str(s)) => {
                let size = (u.vmax() + 1) as u32;
                let axis = s.bytes().last().map_or(0, |c| (c.wrapping_sub(b'0') as usize).min(2));
                match s.as_bytes().first() {
                    Some(b'g') => global[axis] = size,
                    Some(b'l') => local[axis] = size,
                    _ => threads = size,
                }
            }
            (Op::Local, Arg::Local(_, len)) => {
                local_bytes += (len * u.dtype().scalar.size_bytes()).next_multiple_of(64)
            }
            _ => {}
        }
    }
    let estimates = cost::estimate(&list, &params);
    let tensors = cost::tensors(&list, &params);
    let opts = info.opts.clone().unwrap_or_default();
    Program {
        name,
        display_name,
        uops: list,
        params,
        vars,
        tensors,
        threads,
        global,
        local,
        local_bytes,
        estimates,
        opts,
        fast_math,
    }
}

#[cfg(doctest)]
#[doc = include_str!("README.md")]
struct Readme;
