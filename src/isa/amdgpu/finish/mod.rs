//! From selected instructions to a kernel's code: registers, waits, hazards, bytes.

mod facts;
mod far;
mod hazard;
pub(super) mod names;
mod place;
mod wait;

pub use super::select::mir::Limits;
use super::select::{self, Selected, mir};
use super::{Assembler, EncodeError, Inst, Target};
use doorbell_codegen::Program;
use doorbell_codegen::regalloc::{self, Allocation, Edit, Loc, RegAllocError};
use doorbell_elf::GpuKernel;
use doorbell_uop::{DType, Op};
use place::{Placed, Step};

/// Why a program has no machine code.
#[derive(Clone, Debug, thiserror::Error, PartialEq)]
#[non_exhaustive]
pub enum CompileError {
    #[error("no instructions for {op:?} on {dtype}: {why}")]
    Unsupported { op: Op, dtype: DType, why: &'static str },
    #[error("malformed program: {0}")]
    Malformed(String),
    #[error("registers: {0}")]
    Registers(String),
    #[error("cannot be encoded: {0}")]
    Encode(String),
    /// Only looked for in debug builds.
    #[error("the finished code fails its check: {0}")]
    Unsound(#[from] super::CheckError),
}

impl From<RegAllocError> for CompileError {
    fn from(e: RegAllocError) -> Self {
        CompileError::Registers(e.to_string())
    }
}

impl From<EncodeError> for CompileError {
    fn from(e: EncodeError) -> Self {
        CompileError::Encode(e.to_string())
    }
}

/// A kernel's code and what a launch needs to know of it.
#[derive(Clone, Debug)]
pub struct MachineCode {
    pub target: Target,
    /// Instructions; begins with the entry. The writer of the object pads it for the prefetch.
    pub text: Vec<u8>,
    pub kernel: GpuKernel,
    /// Number of instructions.
    pub instructions: usize,
    /// Registers stored to and loaded from spill slots.
    pub spill_moves: usize,
    /// The instructions in order, for listings.
    pub listing: Vec<Inst>,
}

/// Compiles a program.
///
/// # Errors
/// See [`CompileError`].
pub fn compile(program: &Program, target: Target) -> Result<MachineCode, CompileError> {
    compile_within(program, target, Limits::default())
}

/// Compiles a program for less than the chip has: fewer registers, shorter branches.
///
/// # Errors
/// See [`CompileError`].
pub fn compile_within(program: &Program, target: Target, limits: Limits) -> Result<MachineCode, CompileError> {
    let selected = select::select(program, target)?;
    let placed = registers(&selected, target, limits)?;
    let steps = wait::insert(placed.steps.clone(), target)?;
    let steps = hazard::resolve(steps, target)?;
    let steps = far::reach(steps, target, limits.branch_dwords)?;
    let (words, listing) = assemble(&steps, target)?;
    let text: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    if cfg!(debug_assertions) {
        super::check(target, &text)?;
    }
    let kernel = facts::describe(program, &selected, &placed, target);
    let spill_moves = placed.spill_moves;
    Ok(MachineCode { target, text, kernel, instructions: listing.len(), spill_moves, listing })
}

/// Allocates registers: as many vector registers as are needed at once, more if tuples do not fit between the others.
fn registers(selected: &Selected, target: Target, limits: Limits) -> Result<Placed, CompileError> {
    let most = limits.vgprs;
    let need = regalloc::pressure(&selected.func, &mir::reg_info(target, 256, limits))?;
    let mut limit = need[usize::from(mir::VGPR)].next_multiple_of(8).clamp(8, most);
    loop {
        let info = mir::reg_info(target, limit, limits);
        match regalloc::allocate(&selected.func, &info) {
            Ok(alloc) if limit == most || !spills_vectors(&alloc, &info) => {
                if let Some(placed) = place::place(selected, &alloc, target)? {
                    return Ok(placed);
                }
                // No room for the registers that hold spilled scalar ones: they need vector registers beyond the
                // allocated ones.
                let info = mir::reg_info(target, 248.min(most), limits);
                let alloc = regalloc::allocate(&selected.func, &info)?;
                return place::place(selected, &alloc, target)?
                    .ok_or_else(|| CompileError::Registers("too many scalar registers are spilled".into()));
            }
            Err(e) if limit == most => return Err(e.into()),
            _ => limit = (limit + limit.max(32) / 4).next_multiple_of(8).min(most),
        }
    }
}

fn spills_vectors(alloc: &Allocation, info: &regalloc::RegInfo) -> bool {
    alloc.edits.iter().map(|e| &e.1).chain(alloc.edge_edits.iter().flat_map(|e| &e.1)).any(|e| match e {
        Edit::Move { class, from, to } => {
            let vector = info.classes[usize::from(class.0)].file == mir::VGPR;
            vector && (matches!(from, Loc::Slot(_)) || matches!(to, Loc::Slot(_)))
        }
        Edit::Remat { .. } => false,
    })
}

fn assemble(steps: &[Step], target: Target) -> Result<(Vec<u32>, Vec<Inst>), CompileError> {
    let mut asm = Assembler::new(target);
    let mut listing = Vec::new();
    let labels = steps.iter().map(|s| if let Step::Label(l) = s { l + 1 } else { 0 }).max().unwrap_or(0);
    let names: Vec<super::Label> = (0..labels).map(|_| asm.label()).collect();
    let failed = |e: super::AsmError| CompileError::Encode(e.to_string());
    for s in steps {
        match s {
            Step::Label(l) => asm.bind(names[*l as usize]).map_err(failed)?,
            Step::Op(inst) | Step::Jump(inst, _) => {
                asm.push(inst).map_err(failed)?;
                listing.push(inst.clone());
            }
        }
    }
    Ok((asm.finish().map_err(failed)?, listing))
}
