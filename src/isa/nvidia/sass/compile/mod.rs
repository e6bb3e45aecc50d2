//! The assembler: PTX text → machine code of sm_80 to sm_90 and sm_120. Selection is sm_90's; [`chips`] makes another chip's instructions of it.
//!
//! ```text
//! text --parse--> lists of instructions --flatten--> names resolved --split, unroll--> list --facts--> list and what is known --select--> virtual registers, blocks
//!      --shape, converge--> BSSY, BSYNC --invariants, pipeline, hoist, scalar, settle, place--> registers --lower--> the chip's forms --schedule--> order
//!      --synchronise--> control words --> 128-bit words
//! ```
//!
//! Place in the arrows: reads [`isa::ptx`](crate::ptx), writes through this room's codec; registers come from the shared
//! allocator. What it gives is a kernel's words and the facts that a loader wants. Source: PTX ISA 8.8 for meaning; code that
//! ptxas 13.5.37 makes for layouts of constants, shared memory and parameters. Left out, each refused with its place in
//! the text: textures, surfaces, sparse matrices of a warpgroup.

mod banks;
mod build;
mod call;
mod carry;
mod chips;
mod constants;
mod data;
mod described;
mod facts;
mod flat;
mod flight;
mod flow;
mod hoist;
mod invariant;
mod lines;
mod link;
mod live;
mod mir;
mod mnemonics;
mod operands;
mod parts;
mod pipeline;
mod place;
mod pool;
mod reuse;
mod scalar;
mod schedule;
mod select;
mod shape;
mod sink;
mod source;
mod split;
mod sync;
mod touch;
mod uniform;
mod unroll;
mod vector;

use super::encode;
use super::{Chip, Form, Instruction, Pipe, Role, op};
use crate::ptx::{self, Item, Pos, Tuning};
pub use data::Data;
use doorbell_elf::cubin::{self, Arch, NewKernel, NewModule, Param};
use flat::{Names, Symbol};
use schedule::Node;
use source::{Reader, Source, Store};
use std::sync::Arc;
use sync::Placed;
use thiserror::Error;

/// A text whose bodies are lists.
type Module<'a> = ptx::Module<Source<'a>>;
type Function<'a> = ptx::Function<Source<'a>>;

/// Why a text has no machine code.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{line}:{column}: {what}")]
pub struct AsmError {
    pub line: u32,
    /// In bytes, from 1.
    pub column: u32,
    pub what: String,
}

impl AsmError {
    fn new(pos: Pos, what: String) -> AsmError {
        AsmError { line: pos.line, column: pos.column, what }
    }
}

/// A kernel's code and what its launch must know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    pub name: String,
    pub words: Vec<u128>,
    /// General registers a thread needs, with the two that the hardware keeps for itself.
    pub registers: u32,
    /// Named barriers.
    pub barriers: u32,
    /// Bytes of a thread's frames, of the functions that are called too.
    pub frame_bytes: u32,
    /// It calls a function that may call itself: how many frames there are is not known.
    pub unbounded_stack: bool,
    /// Shared memory declared with its size, without the kibibyte that the system keeps.
    pub shared_bytes: u32,
    /// Offset and length of each parameter.
    pub parameters: Vec<(u32, u32)>,
    pub parameter_bytes: u32,
    /// `.reqntid`, `.reqnctapercluster`, `.maxclusterrank`, `.explicitcluster`.
    pub threads: Option<[u32; 3]>,
    pub cluster: Option<[u32; 3]>,
    pub max_cluster: Option<u32>,
    pub wants_cluster: bool,
    /// Byte offsets of EXIT.
    pub exits: Vec<u32>,
    /// Registers stored to and loaded from the frame.
    pub spills: u32,
    /// PTX instructions it was made from.
    pub source_instructions: u32,
    /// The functions in its code: name, first byte, length.
    pub functions: Vec<(String, u32, u32)>,
}

/// The steps of an assembly, in order; all but the first and the last are taken for each kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Text → module.
    Parse,
    /// Names resolved.
    Flatten,
    /// Turns of loops side by side.
    Unroll,
    /// Constants, copies, neighbours.
    Facts,
    /// Machine instructions on virtual registers, convergence.
    Select,
    /// Dead code, registers.
    Allocate,
    Schedule,
    /// Control words.
    Synchronise,
    /// Words.
    Encode,
    /// The file.
    Cubin,
}

impl Phase {
    /// All, in order.
    pub const ALL: [Phase; 10] = [
        Phase::Parse,
        Phase::Flatten,
        Phase::Unroll,
        Phase::Facts,
        Phase::Select,
        Phase::Allocate,
        Phase::Schedule,
        Phase::Synchronise,
        Phase::Encode,
        Phase::Cubin,
    ];
}

/// Is told of the end of each step.
type Watch<'a> = &'a mut dyn FnMut(Phase);

/// Assembles a text as a cubin.
///
/// # Errors
/// What cannot be read, or has no machine code yet, with its place; a chip without a table.
pub fn assemble(text: &str, arch: Arch) -> Result<Vec<u8>, AsmError> {
    assemble_watched(text, arch, &mut |_| {})
}

/// [`assemble`], calling `done` after each step: for who wants to know what takes how long.
///
/// # Errors
/// As [`assemble`].
pub fn assemble_watched(text: &str, arch: Arch, done: Watch) -> Result<Vec<u8>, AsmError> {
    let refused = |what: String| AsmError::new(Pos::default(), what);
    let Some(chip) = Chip::of(arch) else {
        let known: Vec<String> = Chip::ALL.iter().map(Chip::to_string).collect();
        return Err(refused(format!("{arch}: machine code is made for {} and sm_90a", known.join(", "))));
    };
    let (kernels, data) = watched(text, chip, done)?;
    let kernels = kernels.iter().map(Kernel::for_cubin).collect();
    let new = NewModule { kernels, variables: data.variables, addresses: data.addresses };
    let cubin = cubin::write_module(arch, &new).map_err(|e| refused(e.to_string()));
    done(Phase::Cubin);
    cubin
}

impl Kernel {
    /// What a cubin says of it.
    #[must_use]
    pub fn for_cubin(&self) -> NewKernel {
        let mut code = Vec::with_capacity(16 * self.words.len());
        self.words.iter().for_each(|w| code.extend_from_slice(&w.to_le_bytes()));
        let shared = if self.shared_bytes > 0 { facts::SHARED_START + self.shared_bytes } else { 0 };
        NewKernel {
            name: self.name.clone(),
            code,
            registers: self.registers,
            barriers: self.barriers,
            frame_bytes: self.frame_bytes,
            unbounded_stack: self.unbounded_stack,
            functions: self.functions.clone(),
            shared_bytes: shared,
            parameters: self
                .parameters
                .iter()
                .map(|(offset, len_bytes)| Param { offset: *offset, len_bytes: *len_bytes })
                .collect(),
            exit_offsets: self.exits.clone(),
            required_block: self.threads,
            cluster: self.cluster,
            max_cluster: self.max_cluster,
            wants_cluster: self.wants_cluster,
            ..NewKernel::default()
        }
    }
}

/// Assembles a text's kernels for sm_90.
///
/// # Errors
/// What cannot be read, or has no machine code yet, with its place.
pub fn kernels(text: &str) -> Result<Vec<Kernel>, AsmError> {
    Ok(text_code(text, Chip::Sm90)?.0)
}

/// Assembles a text for a chip: its kernels, and its variables.
///
/// # Errors
/// What cannot be read, or has no machine code yet, with its place.
pub fn text_code(text: &str, chip: Chip) -> Result<(Vec<Kernel>, Data), AsmError> {
    watched(text, chip, &mut |_| {})
}

fn watched(text: &str, chip: Chip, done: Watch) -> Result<(Vec<Kernel>, Data), AsmError> {
    let first = tried(text, (chip, false), done);
    if first.is_err() && chip != Chip::Sm90 {
        // What the chip has not is seen in code in which nothing tells any more where it comes from.
        tried(text, (chip, true), &mut |_| {})?;
    }
    first
}

fn tried(text: &str, (chip, blame): (Chip, bool), done: Watch) -> Result<(Vec<Kernel>, Data), AsmError> {
    let store = Store::default();
    let read = ptx::parse_with(text, &mut Reader::new(&store));
    let mut module = read.map_err(|e| AsmError::new(e.pos(), e.what()))?;
    done(Phase::Parse);
    let (mut names, mut data) = (Names::default(), Data::default());
    let (functions, numbers) = call::declared(&module)?;
    (names.functions, names.chip, names.blame) = (Arc::new(functions), chip, blame);
    names.symbols.extend(numbers.into_iter().map(|(name, n)| (name, Symbol::Function(n))));
    for item in &module.items {
        if let Item::Variable(v) = item {
            data::declare(v, &mut names, &mut data)?;
        }
    }
    for f in module.items.iter_mut().filter_map(|i| if let Item::Function(f) = i { Some(&mut **f) } else { None }) {
        data::declare_inside(f, &mut names, &mut data)?;
    }
    let bodies = |entry| module.functions().filter(move |f| f.entry == entry && f.body.is_some());
    let least = bodies(true).map(|f| most_registers(f, sizes(f, "reqntid"))).min().unwrap_or(253);
    let mut functions = link::Functions::new(names.functions.list.len());
    names.place_dynamic(&module)?;
    for f in all_bodies(&mut module, false) {
        let Some(n) = names.function(&f.name) else { continue };
        functions.add(n, routine(f, &mut names, (Some(n), least), (&store, done))?);
    }
    let kernels = all_bodies(&mut module, true).map(|f| kernel(f, (&names, &functions), chip, (&store, done)));
    Ok((kernels.collect::<Result<_, _>>()?, data))
}

/// The kernels, or the functions, that have a body.
fn all_bodies<'m, 'a>(module: &'m mut Module<'a>, entry: bool) -> impl Iterator<Item = &'m mut Function<'a>> {
    let all = module.items.iter_mut().filter_map(|i| if let Item::Function(f) = i { Some(&mut **f) } else { None });
    all.filter(move |f| f.entry == entry && f.body.is_some())
}

impl Names {
    /// Memory whose size the launch gives begins behind all that is declared: in a kernel's body, or where functions name such memory as
    /// well, in any body.
    fn place_dynamic(&mut self, module: &Module) -> Result<(), AsmError> {
        if self.dynamic.is_empty() || !module.functions().any(|f| !f.entry && f.body.is_some()) {
            return Ok(());
        }
        let mut all = self.clone();
        let mut most = 0;
        for f in module.functions().filter(|f| !f.entry) {
            all.count_shared(f)?;
        }
        for f in module.functions().filter(|f| f.entry) {
            let mut own = all.clone();
            own.count_shared(f)?;
            most = most.max(own.shared_bytes);
        }
        self.least_shared_bytes = most.next_multiple_of(16);
        for name in std::mem::take(&mut self.dynamic) {
            self.symbols.insert(name, Symbol::Shared(self.least_shared_bytes));
        }
        Ok(())
    }
}

impl Names {
    fn count_shared(&mut self, f: &Function) -> Result<(), AsmError> {
        f.body.as_ref().map_or(Ok(()), |body| flat::shared(body, self))
    }
}

/// A kernel's or a function's code before it is scheduled.
struct Routine {
    placed: place::Placed,
    calls: Vec<u32>,
    barriers: u32,
    source_instructions: u32,
    /// Registers that the kernel must start with, as warps give them to each other.
    start: Option<u32>,
}

/// A function of that number, or a kernel; of it at most that many registers. Its body is taken.
fn routine<'a>(
    f: &mut Function<'a>,
    names: &mut Names,
    (number, registers): (Option<u32>, u16),
    (store, done): (&'a Store<'a>, Watch),
) -> Result<Routine, AsmError> {
    let mut own = names.clone();
    if let Some(n) = number.and_then(|n| names.functions.list.get(n as usize)) {
        let all = f.returns.iter().zip(&n.signature.returns).chain(f.params.iter().zip(&n.signature.params));
        own.symbols.extend(all.map(|(v, (at, _))| (v.name.clone(), Symbol::Incoming(*at))));
    }
    let mut body = flat::flatten(f.body.take().unwrap_or_default(), store, &mut own)?;
    names.shared_bytes = own.shared_bytes;
    let source_instructions = body.items.iter().filter(|i| matches!(i, flat::Item::Inst(_))).count() as u32;
    done(Phase::Flatten);
    split::split(&mut body, store);
    let before = unroll::unroll(&mut body, store);
    done(Phase::Unroll);
    body.pool = pool::pool(f, &body);
    let facts = facts::Facts::new(&mut body, store);
    done(Phase::Facts);
    let mut selected = selected(&body, &facts, (names, number))?;
    done(Phase::Select);
    if names.blame {
        known_on_chip(&body, &selected.code, names.chip)?;
    }
    let ahead = arrange(&mut selected, true);
    let local_bytes = body.outgoing_bytes + body.local_bytes;
    let most = body.pool.map_or(registers, |p| registers.max(p.most.saturating_sub(2)).min(253));
    let again = || self::selected(&body, &facts, (names, number));
    let mut placed = allocated(&mut selected, &again, (most, local_bytes))?;
    let blocks = |p: &place::Placed, less| resident(f, p.registers.saturating_sub(less));
    if ahead > 0 && body.pool.is_none() && blocks(&placed, 0) < blocks(&placed, ahead) {
        // Registers of loads that are a turn ahead cost blocks that would be there at once.
        let mut plain = again()?;
        arrange(&mut plain, false);
        let plain = allocated(&mut plain, &again, (most, local_bytes))?;
        placed = if blocks(&plain, 0) > blocks(&placed, 0) { plain } else { placed };
    }
    if body.pool.is_some() && !pool::keeps_within(&placed.lines, registers + 2) {
        body.pool = None;
        let again = || self::selected(&body, &facts, (names, number));
        let mut fixed = again()?;
        flight::hold(&mut fixed.code);
        placed = allocated(&mut fixed, &again, (registers, local_bytes))?;
    }
    if let Some(before) = before.filter(|_| placed.spills > 0 && selected.calls.is_empty() && body.pool.is_none()) {
        // Loops as they stood need fewer registers.
        before.restore(&mut body);
        let facts = facts::Facts::new(&mut body, store);
        let again = || self::selected(&body, &facts, (names, number));
        let less = allocated(&mut again()?, &again, (registers, local_bytes))?;
        placed = if less.spills < placed.spills { less } else { placed };
    }
    done(Phase::Allocate);
    let start = body.pool.map(|_| u32::from(registers) + 2);
    Ok(Routine { placed, calls: selected.calls, barriers: selected.barriers, source_instructions, start })
}

/// The first instruction of the text that becomes one that the chip has not is an error.
fn known_on_chip(body: &flat::Body, code: &mir::Code, chip: Chip) -> Result<(), AsmError> {
    let all = code.order.iter().flat_map(|b| &code.blocks[*b].ops);
    let refused = |m: &mir::Mach| Some((m.pos, chips::lower(vec![lines::Line::Inst(m.inst, None)], chip).err()?));
    let Some((pos, what)) = all.filter_map(refused).min_by_key(|(pos, _)| (pos.line, pos.column)) else {
        return Ok(());
    };
    let name = body.items.iter().find_map(|i| match i {
        flat::Item::Inst(i) if (i.pos.line, i.pos.column) == (pos.line, pos.column) => Some(i.name()),
        _ => None,
    });
    Err(AsmError::new(pos, format!("{}: {what}", name.unwrap_or_default())))
}

/// Puts code on virtual registers in order, its loads a turn ahead or not; how many registers more a loop needs for that.
fn arrange(selected: &mut select::Selected, ahead: bool) -> u32 {
    let (code, stack) = (&mut selected.code, selected.stack.reg());
    let mut more = 0;
    if selected.calls.is_empty() {
        // A call has what is kept over it stored.
        invariant::invariants(code, stack);
        more = if ahead { pipeline::pipeline(code, stack) } else { 0 };
    }
    sink::sink(code);
    hoist::hoist(code, stack);
    flight::hold(code);
    more
}

/// Gives out registers, at most that many, beside so many bytes of the frame: of code selected again where that turns out better.
fn allocated(
    first: &mut select::Selected,
    again: &dyn Fn() -> Result<select::Selected, AsmError>,
    (most, local_bytes): (u16, u32),
) -> Result<place::Placed, AsmError> {
    let apart = || {
        let mut apart = again()?;
        flight::serialize(&mut apart.code);
        place::place(&mut apart, most, local_bytes)
    };
    let mut placed = match place::place(first, most, local_bytes) {
        // Multiplies that are on their way together may want more registers than there are.
        Err(_) if flight::multiplies(&first.code) => return apart(),
        other => other?,
    };
    if placed.spills > 0 && first.calls.is_empty() {
        // Less that is kept over loops needs fewer registers, and so do loads in their own places.
        for hoists in [true, false] {
            let mut calm = again()?;
            if hoists {
                hoist::hoist(&mut calm.code, calm.stack.reg());
            }
            flight::hold(&mut calm.code);
            let less = place::place(&mut calm, most, local_bytes)?;
            placed = if less.spills < placed.spills { less } else { placed };
            if placed.spills == 0 {
                break;
            }
        }
    }
    if placed.multiplies && !flight::is_undisturbed(&placed.lines) { apart() } else { Ok(placed) }
}

fn kernel<'a>(
    f: &mut Function<'a>,
    (names, functions): (&Names, &link::Functions),
    chip: Chip,
    (store, done): (&'a Store<'a>, Watch),
) -> Result<Kernel, AsmError> {
    let mut names = names.clone();
    let mut k = head(f, &mut names, chip)?;
    if !names.dynamic.is_empty() {
        // Memory whose size the launch gives begins behind all that is declared.
        let mut all = names.clone();
        all.count_shared(f)?;
        let start = all.shared_bytes.next_multiple_of(16);
        for name in std::mem::take(&mut names.dynamic) {
            names.symbols.insert(name, Symbol::Shared(start));
        }
    }
    let own = routine(f, &mut names, (None, most_registers(f, k.threads)), (store, &mut *done))?;
    k.source_instructions = own.source_instructions;
    let start = own.start;
    let linked = functions.link(own, &names.functions, &mut k)?;
    let lines = chips::lower(linked.lines, chip).map_err(|what| AsmError::new(f.pos, what))?;
    let mut listing = schedule::listing(&lines);
    if start.is_none() && linked.functions.is_empty() {
        // Functions and who calls them agree on registers.
        banks::spread(&mut listing, linked.labels);
    }
    schedule::schedule(&mut listing);
    done(Phase::Schedule);
    let registers = highest(&listing.nodes);
    let (mut code, places) = sync::synchronise(&listing, linked.labels, registers as usize);
    reuse::reuse(&mut code, &listing.nodes, &places);
    done(Phase::Synchronise);
    k.registers = start.unwrap_or(registers + 2);
    k.shared_bytes = names.shared_bytes.max(names.least_shared_bytes);
    let end = code.len();
    let extent = |(name, from, to): &(String, usize, Option<usize>)| link::extent(name, *from, *to, &places, end);
    k.functions = linked.functions.iter().map(extent).collect();
    k.words = words(code, &places, &mut k.exits, chip)?;
    done(Phase::Encode);
    Ok(k)
}

/// Machine instructions on virtual registers, with what threads need to meet again.
fn selected(
    body: &flat::Body,
    facts: &facts::Facts,
    (names, number): (&Names, Option<u32>),
) -> Result<select::Selected, AsmError> {
    let mut selected = select::select(body, facts, names, number)?;
    shape::shape(&mut selected.code);
    flow::converge(&mut selected.code)?;
    Ok(selected)
}

/// What a kernel's declaration says; its parameters get their places, aligned as the bank that they stand in has them.
fn head(f: &Function, names: &mut Names, chip: Chip) -> Result<Kernel, AsmError> {
    let mut k = Kernel { name: f.name.to_string(), ..Kernel::default() };
    (k.threads, k.cluster) = (sizes(f, "reqntid"), sizes(f, "reqnctapercluster"));
    k.max_cluster = sizes(f, "maxclusterrank").map(|n| n[0]);
    k.wants_cluster = f.tuning.iter().any(|t| matches!(t, Tuning::Numbers(name, _) if &**name == "explicitcluster"));
    let base = chip.arch().param_base();
    for p in &f.params {
        let mut end = base + k.parameter_bytes;
        let at = flat::place(p, &mut end)? - base;
        k.parameter_bytes = end - base;
        let len = k.parameter_bytes - at;
        k.parameters.push((at, len));
        names.symbols.insert(p.name.clone(), Symbol::Param(at, len));
    }
    Ok(k)
}

/// The three sizes of a directive; those that are not said are 1.
fn sizes(f: &Function, directive: &str) -> Option<[u32; 3]> {
    f.tuning.iter().find_map(|t| match t {
        Tuning::Numbers(name, n) if &**name == directive => {
            let n = |k: usize| n.get(k).and_then(|v| u32::try_from(*v).ok()).unwrap_or(1);
            Some([n(0), n(1), n(2)])
        }
        _ => None,
    })
}

/// Warps of a block, as far as a function's declaration tells.
fn block_warps(f: &Function, threads: Option<[u32; 3]>) -> u64 {
    let product = |t: [u32; 3]| t.iter().fold(1u64, |n, k| n.saturating_mul((*k).into()));
    let threads = threads.map(product).or_else(|| number(f, "maxntid"));
    threads.unwrap_or(256).div_ceil(32).max(1)
}

/// The product of a directive's numbers.
fn number(f: &Function, directive: &str) -> Option<u64> {
    f.tuning.iter().find_map(|t| match t {
        Tuning::Numbers(name, n) if &**name == directive => Some(n.iter().fold(1, |n: u64, k| n.saturating_mul(*k))),
        _ => None,
    })
}

/// General registers that may be given out.
fn most_registers(f: &Function, threads: Option<[u32; 3]>) -> u16 {
    // Eight registers of a warp are given out together; two of a thread's are the hardware's.
    let most = (2048 / block_warps(f, threads) / 8 * 8).clamp(24, 255) - 2;
    number(f, "maxnreg").map_or(most, |n| most.min(n.max(18) - 2)).min(253) as u16
}

/// Blocks of a function whose threads use so many registers, and two of the hardware's, that are on a multiprocessor at once: at most 64 warps.
fn resident(f: &Function, registers: u32) -> u64 {
    let warps = 2048 / u64::from(registers + 2).next_multiple_of(8);
    warps.min(64) / block_warps(f, sizes(f, "reqntid"))
}

/// The highest general register in use, plus one.
fn highest(nodes: &[Node]) -> u32 {
    let all = nodes.iter().flat_map(|n| n.effects.reads.iter().chain(&n.effects.writes));
    let general = all.filter(|a| a.file == super::RegFile::General);
    general.map(|a| u32::from(a.first) + u32::from(a.count)).max().unwrap_or(0)
}

/// Code is padded to a multiple of this many instructions.
const PADDING: usize = 8;

fn words(mut code: Vec<Placed>, places: &[usize], exits: &mut Vec<u32>, chip: Chip) -> Result<Vec<u128>, AsmError> {
    let failed = |e: String| AsmError::new(Pos::default(), e);
    let own_form = |form: &'static Form| match form.chips.has(chip) {
        true => form,
        false => Form::find(form.mnemonic, form.name, chip).unwrap_or(op::BRA_I),
    };
    let mut stop = Instruction::on(own_form(op::BRA_I), chip);
    let set = |inst: &mut Instruction, at: usize, to: usize| {
        let distance = (to as i128 - at as i128 - 1) * 4;
        let width = inst.form().position("t", Role::Value).map_or(56, |i| inst.form().fields[i].width());
        let bits = super::bits::wrapped(distance, width).unwrap_or(u64::MAX);
        inst.set("t", Role::Value, bits).map(|_| ()).map_err(|e| e.to_string())
    };
    let own = code.len();
    set(&mut stop, own, own).map_err(failed)?;
    stop.control.stall = 0;
    stop.control.yields = true;
    code.push(Placed { inst: stop, target: None, node: None });
    let mut pad = Instruction::on(own_form(op::NOP_N), chip);
    (pad.control.stall, pad.control.yields) = (0, true);
    while !code.len().is_multiple_of(PADDING) {
        code.push(Placed { inst: pad, target: None, node: None });
    }
    let mut out = Vec::with_capacity(code.len());
    for (at, n) in code.iter_mut().enumerate() {
        let branch = n.inst.form().pipe == Pipe::Branch;
        match n.target {
            // A place in the code as a number.
            Some(to) if n.inst.form().mnemonic == "MOV" => {
                n.inst.set("b", Role::Value, 16 * places[to] as u64).map_err(|e| failed(e.to_string()))?;
            }
            Some(to) => set(&mut n.inst, at, places[to]).map_err(failed)?,
            // Such numbers count from the start.
            None if branch && n.inst.form().mnemonic == "RET" => set(&mut n.inst, at, 0).map_err(failed)?,
            None => {}
        }
        if branch && n.inst.form().mnemonic == "EXIT" {
            exits.push(16 * at as u32);
        }
        out.push(encode(&n.inst).map_err(|e| failed(e.to_string()))?);
    }
    Ok(out)
}
