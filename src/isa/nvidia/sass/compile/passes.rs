//! The passes of an assembly, from top to bottom. Each function is one stage; what it calls are its passes, in their
//! order.
//!
//! ```text
//! module     parse, declare                                          once a text
//!   body     flatten, split, unroll, pool, facts, vectors            once a kernel and function
//!   attempts select, shape, converge                                 once an attempt: see `attempts`
//!            invariants, pipeline, sink, hoist, hold or serialize
//!            uniform registers, liveness, registers, code beside
//!   finish   link                                                    once a kernel, with its functions
//!            constants, descriptor, translate
//!            pieces, gather, banks, schedule
//!            synchronise, reuse
//!            words
//! ```

use super::allocate::place::{self, AllocatedCode};
use super::allocate::{beside, live, pool, scalar};
use super::arrange::{flight, flow, hoist, invariant, pipeline, shape, sink};
use super::attempts::{self, Choices, Multiplies};
use super::context::{Context, Unit};
use super::control::{reuse, sync};
use super::lines::Line;
use super::lower::link::{self, Functions, Routine};
use super::lower::{chips, constants, described};
use super::optimise::facts::RegisterFacts;
use super::optimise::{split, unroll, vector};
use super::read::directives::{block_warps, head, most_registers, sizes};
use super::read::flat::{self, Body, Item, Names, Symbol};
use super::read::source::{Reader, Source, Store};
use super::read::{call, data};
use super::schedule::{banks, list};
use super::select::{self, Selected};
use super::{AsmError, Data, Input, KernelCode, Phase, emit};
use crate::ptx;
use crate::sass::SmArch;

/// A parsed text whose bodies are lists.
type Module<'a> = ptx::Module<Source<'a>>;
type Function<'a> = ptx::Function<Source<'a>>;

/// A text or module → its kernels' code and its variables; with `blame`, looks for what the chip lacks.
///
/// # Errors
/// A syntax error, or an instruction without machine code, with its position.
pub(crate) fn module(
    input: Input,
    chip: SmArch,
    blame: bool,
    done: &dyn Fn(Phase),
) -> Result<(Vec<KernelCode>, Data), AsmError> {
    let store = Store::default();
    let mut module = read(input, &store)?;
    done(Phase::Parse);
    let (functions, numbers) = call::declared(&module)?;
    let ctx = Context { chip, blame, store: &store, functions, done };
    let (mut names, mut data) = (Names::default(), Data::default());
    names.symbols.extend(numbers.into_iter().map(|(name, n)| (name, Symbol::Function(n))));
    data::declare_all(&mut module, &mut names, &mut data)?;
    names.place_dynamic(&module)?;
    let kernels = module.functions().filter(|f| f.entry && f.body.is_some());
    let least = kernels.map(|f| most_registers(f, sizes(f, "reqntid"))).min().unwrap_or(253);
    let mut linked = Functions::new(ctx.functions.list.len());
    for f in bodies(&mut module, false) {
        let Some(n) = names.function(&f.name) else { continue };
        let mut unit = body(f, &mut names, &ctx, Some(n), least)?;
        linked.add(n, attempts::registers_for(&mut unit)?);
        done(Phase::Allocate);
    }
    let kernels = bodies(&mut module, true).map(|f| kernel(f, names.clone(), &ctx, &linked));
    Ok((kernels.collect::<Result<_, _>>()?, data))
}

/// The input with its bodies as lists.
fn read<'a>(input: Input<'a>, store: &'a Store<'a>) -> Result<Module<'a>, AsmError> {
    let mut reader = Reader::new(store);
    let read = match input {
        Input::Text(text) => ptx::parse_with(text, &mut reader),
        Input::Module(module) => ptx::walk(module, &mut reader),
    };
    read.map_err(|e| AsmError::new(e.pos(), e.what()))
}

/// The kernels, or the functions, that have a body.
fn bodies<'m, 'a>(module: &'m mut Module<'a>, entry: bool) -> impl Iterator<Item = &'m mut Function<'a>> {
    let all =
        module.items.iter_mut().filter_map(|i| if let ptx::Item::Function(f) = i { Some(&mut **f) } else { None });
    all.filter(move |f| f.entry == entry && f.body.is_some())
}

/// One kernel, with the functions that it calls.
fn kernel<'a>(
    f: &mut Function<'a>,
    mut names: Names,
    ctx: &Context<'a>,
    functions: &Functions,
) -> Result<KernelCode, AsmError> {
    let mut k = head(f, &mut names, ctx.chip)?;
    if ctx.functions.list.is_empty() {
        names.place_used(f)?;
    }
    names.place_own_dynamic(f)?;
    let mut unit = body(f, &mut names, ctx, None, most_registers(f, k.threads))?;
    let own = attempts::registers_for(&mut unit)?;
    (ctx.done)(Phase::Allocate);
    k.shared_bytes = names.shared_bytes.max(names.least_shared_bytes);
    finish(own, functions, ctx, &mut k)?;
    Ok(k)
}

/// Read and optimise: the body of a kernel, or of the function with that number, with so many registers available.
/// Takes the body out of `f`.
fn body<'c, 'a>(
    f: &mut Function<'a>,
    names: &mut Names,
    ctx: &'c Context<'a>,
    number: Option<u32>,
    registers: u16,
) -> Result<Unit<'c, 'a>, AsmError> {
    let mut own = names.clone();
    call::name_incoming(f, number, &ctx.functions, &mut own);
    let mut body = flat::flatten(f.body.take().unwrap_or_default(), ctx, &mut own)?;
    names.shared_bytes = own.shared_bytes;
    let source_instructions = body.items.iter().filter(|i| matches!(i, Item::Inst(_))).count() as u32;
    (ctx.done)(Phase::Flatten);
    split::split(&mut body, ctx.store);
    let rolled = unroll::unroll(&mut body, ctx.store);
    (ctx.done)(Phase::Unroll);
    body.pool = pool::pool(f, &body);
    let facts = facts(&mut body, ctx.store);
    (ctx.done)(Phase::Facts);
    let block_warps = block_warps(f, sizes(f, "reqntid"));
    Ok(Unit { ctx, number, pos: f.pos, registers, block_warps, source_instructions, body, facts, rolled })
}

/// The last part of optimise, after unrolling: the analysis of the body's registers.
pub(crate) fn facts<'a>(body: &mut Body<'a>, store: &'a Store<'a>) -> RegisterFacts {
    let (mut facts, seen) = RegisterFacts::new(body, store);
    if seen.shared_loads > 1 && vector::join(body, store, &facts) {
        facts.recount(body);
    }
    if seen.vectors || seen.shared_loads > 1 {
        facts.group(body);
    }
    facts
}

/// Select: machine instructions on virtual registers, with convergence barriers.
///
/// # Errors
/// An instruction of the text without machine code.
pub(crate) fn select(unit: &Unit, choices: Choices) -> Result<Selected, AsmError> {
    let mut selected = select::select(unit, choices.shares)?;
    shape::shape(&mut selected.code);
    flow::converge(&mut selected.code)?;
    Ok(selected)
}

/// Arrange: the order of code on virtual registers. Returns how many additional registers a loop needs for loads one
/// iteration ahead.
pub(super) fn arrange(selected: &mut Selected, choices: Choices) -> u32 {
    let (code, stack) = (&mut selected.code, selected.stack.reg());
    let mut ahead = 0;
    // Values that are live over a call are spilled.
    let calls = !selected.calls.is_empty();
    if choices.invariants && !calls {
        invariant::invariants(code, stack);
    }
    if choices.loads_ahead && !calls {
        ahead = pipeline::pipeline(code, stack);
    }
    if choices.sinks {
        sink::sink(code);
    }
    if choices.hoists {
        hoist::hoist(code, stack);
    }
    match choices.multiplies {
        Multiplies::AsWritten => {}
        Multiplies::Held => flight::hold(code),
        Multiplies::Serial => flight::serialize(code),
    }
    ahead
}

/// Registers that a body gets at least.
const LEAST: u16 = 16;

/// Allocate: lines with physical registers, of which the unit says how many there are.
///
/// # Errors
/// More registers are needed at once than there are, and spilling does not help.
pub(crate) fn allocate(selected: &mut Selected, unit: &Unit) -> Result<AllocatedCode, AsmError> {
    scalar::choose(selected);
    let settled = live::settle(&mut selected.code, selected.stack.reg());
    let (limit, local_bytes) = (unit.limit(), unit.body.outgoing_bytes + unit.body.local_bytes);
    let body = place::place(selected, &settled, limit, local_bytes)?;
    if selected.beside.is_empty() {
        return Ok(body);
    }
    let mut all = beside::append(body, &mut selected.beside, limit);
    let need = if all.is_ok() { 0 } else { beside::need(&mut selected.beside)? };
    // The body gets fewer, until enough are left for the code beside it.
    for fewer in (1..=3).filter_map(|part| limit.checked_sub(need * part / 3)) {
        if all.is_err() && fewer >= LEAST {
            let body = place::place(selected, &settled, fewer, local_bytes)?;
            all = beside::append(body, &mut selected.beside, limit);
        }
    }
    all
}

/// Lower: sm_90 lines → the chip's.
///
/// # Errors
/// An instruction that the chip lacks.
pub(crate) fn lower(mut lines: Vec<Line>, chip: SmArch) -> Result<Vec<Line>, String> {
    if !chip.is_before_hopper() {
        lines = constants::in_registers(lines, chip)?;
    }
    described::describe(&mut lines, chip)?;
    chips::translate(&mut lines, chip)?;
    Ok(lines)
}

/// Lower, schedule, control and emit: the words of a kernel and of the functions that it calls.
fn finish(own: Routine, functions: &Functions, ctx: &Context, k: &mut KernelCode) -> Result<(), AsmError> {
    k.source_instructions = own.source_instructions;
    let (start, pos) = (own.start, own.pos);
    let linked = functions.link(own, &ctx.functions, k)?;
    let lines = lower(linked.lines, ctx.chip).map_err(|what| AsmError::new(pos, what))?;
    let mut pieces = list::listing(&lines);
    flight::gather(&mut pieces);
    if start.is_none() && linked.functions.is_empty() {
        // Functions and their callers must agree on registers.
        banks::spread(&mut pieces, linked.labels);
    }
    list::schedule(&mut pieces);
    (ctx.done)(Phase::Schedule);
    let registers = list::highest(&pieces.nodes);
    let (mut code, places) = sync::synchronise(&pieces, linked.labels, registers as usize);
    reuse::reuse(&mut code, &pieces.nodes, &places);
    (ctx.done)(Phase::Synchronise);
    k.registers = start.unwrap_or(registers + 2);
    let end = code.len();
    let extent = |(name, from, to): &(String, usize, Option<usize>)| link::extent(name, *from, *to, &places, end);
    k.functions = linked.functions.iter().map(extent).collect();
    k.words = emit::words(code, &places, &mut k.exits, ctx.chip)?;
    (ctx.done)(Phase::Encode);
    Ok(())
}
