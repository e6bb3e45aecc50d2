//! Machine instructions on virtual registers → bytes: allocation, frame, encoding, branches, relocations.
//!
//! Branches back are encoded at once, short if they reach; branches forward are patched. Frame from rsp up: spill
//! slots, the thread's scratch, the caller's rsp when the frame is aligned beyond it.

use super::mir::{Base, CALLEE_SAVED, GPR, Inst, MASK, Mem, Opd, TILE, VEC, reg_info};
use super::{Arch, IselError, MachineCode};
use doorbell_codegen::regalloc::{Allocation, Edit, Flow, Func, Kind, Label, Loc, PReg, RegInfo, allocate};
use doorbell_elf::{Machine, Object, RelocKind, Relocation, Section, Target};
use iced_x86::{Code, Encoder, Instruction, MemoryOperand, Register};
use smallvec::SmallVec;

/// A function of machine instructions that waits for registers.
pub(crate) struct Unit {
    pub name: String,
    pub arch: Arch,
    /// Has the classes and labels; `insts` are added here.
    pub func: Func,
    pub insts: Vec<Inst>,
    pub rodata: Vec<u8>,
    pub local_bytes: u32,
    /// Buffers that are stored around the cache; their addresses must be aligned to a line.
    pub streamed: Vec<u32>,
}

/// An operand with its place.
#[derive(Clone, Copy)]
enum Placed {
    Reg(Register),
    Mem(MemoryOperand, Option<u32>),
    Imm(i64),
}

struct Emit<'a> {
    arch: Arch,
    func: &'a Func,
    insts: &'a [Inst],
    regs: RegInfo,
    alloc: Allocation,
    encoder: Encoder,
    len: usize,
    count: usize,
    labels: Vec<Option<usize>>,
    /// Positions of 32-bit fields that wait for a label.
    waiting: Vec<(usize, Label)>,
    /// Taken branches with edits: stub start is patched in.
    stubs: Vec<(usize, u32, Label)>,
    object: Object,
    local_at: u32,
    frame_bytes: u32,
    saved_rsp: Option<u32>,
    pushed: Vec<u16>,
    wide: bool,
    streams: bool,
}

/// Allocates, encodes and wraps a unit.
pub(crate) fn emit(mut unit: Unit) -> Result<MachineCode, IselError> {
    for inst in &unit.insts {
        unit.func.push(inst.kind, inst.flow, &inst.operands(), &[]);
    }
    let regs = reg_info(unit.arch.vector_regs());
    let alloc = allocate(&unit.func, &regs)?;
    let align = if unit.local_bytes > 0 { 64 } else { alloc.frame.align.max(8) };
    let local_at = alloc.frame.len_bytes.next_multiple_of(64);
    let body = if unit.local_bytes > 0 { local_at + unit.local_bytes } else { alloc.frame.len_bytes };
    let saved_rsp = (align > 8).then_some(body.next_multiple_of(8));
    let frame_bytes = match saved_rsp {
        Some(at) => (at + 8).next_multiple_of(64),
        None => body.next_multiple_of(8),
    };
    let wide = alloc.written.iter().any(|r| r.file == VEC);
    let pushed =
        alloc.written.iter().filter(|r| r.file == GPR && CALLEE_SAVED.contains(&r.index)).map(|r| r.index).collect();
    let mut e = Emit {
        arch: unit.arch,
        func: &unit.func,
        insts: &unit.insts,
        regs,
        alloc,
        encoder: Encoder::new(64),
        len: 0,
        count: 0,
        labels: vec![None; unit.func.label_count()],
        waiting: Vec::new(),
        stubs: Vec::new(),
        object: Object { rodata: unit.rodata, ..Object::new(Machine::X86_64) },
        local_at,
        frame_bytes,
        saved_rsp,
        pushed,
        wide,
        streams: !unit.streamed.is_empty(),
    };
    e.all()?;
    let mut text = e.encoder.take_buffer();
    for (at, label) in &e.waiting {
        let to = e.labels[label.0 as usize].ok_or(IselError::Internal("a branch to a label that is not placed"))?;
        text[*at..at + 4].copy_from_slice(&distance(*at + 4, to)?.to_le_bytes());
    }
    e.object.define_function(&unit.name, 0, text.len() as u64);
    e.object.text = text;
    let spills = e
        .alloc
        .edits
        .iter()
        .filter(|e| matches!(e.1, Edit::Move { to: Loc::Slot(_), .. } | Edit::Move { from: Loc::Slot(_), .. }))
        .count();
    Ok(MachineCode { object: e.object, instructions: e.count, spill_moves: spills, frame_bytes: e.frame_bytes })
}

fn distance(from: usize, to: usize) -> Result<i32, IselError> {
    i32::try_from(to as i64 - from as i64).map_err(|_| IselError::TooLarge { what: "code", len: to.max(from) })
}

impl Emit<'_> {
    fn all(&mut self) -> Result<(), IselError> {
        self.prologue()?;
        let edits = std::mem::take(&mut self.alloc.edits);
        let mut next = edits.iter().peekable();
        for i in 0..self.insts.len() {
            while let Some((_, edit)) = next.next_if(|e| e.0 as usize == i) {
                self.edit(edit)?;
            }
            self.inst(i)?;
        }
        self.alloc.edits = edits;
        for (field, branch, target) in std::mem::take(&mut self.stubs) {
            let start = Label(self.labels.len() as u32);
            self.labels.push(Some(self.len));
            self.waiting.push((field, start));
            let edits: Vec<Edit> =
                self.alloc.edge_edits.iter().filter(|e| e.0 == branch).flat_map(|e| e.1.clone()).collect();
            for edit in &edits {
                self.edit(edit)?;
            }
            self.jump(Code::Jmp_rel32_64, target)?;
        }
        Ok(())
    }

    fn prologue(&mut self) -> Result<(), IselError> {
        for r in self.pushed.clone() {
            self.encode(Instruction::with1(Code::Push_r64, gpr(r, b'q')))?;
        }
        let rsp = Register::RSP;
        let bytes = self.frame_bytes as i32;
        if let Some(at) = self.saved_rsp {
            // rax is not used for arguments.
            self.encode(Instruction::with2(Code::Mov_r64_rm64, Register::RAX, rsp))?;
            self.encode(Instruction::with2(Code::Sub_rm64_imm32, rsp, bytes))?;
            self.encode(Instruction::with2(Code::And_rm64_imm8, rsp, -64))?;
            self.encode(Instruction::with2(Code::Mov_rm64_r64, stack(at), Register::RAX))?;
        } else if bytes > 0 {
            self.encode(Instruction::with2(Code::Sub_rm64_imm32, rsp, bytes))?;
        }
        Ok(())
    }

    fn epilogue(&mut self) -> Result<(), IselError> {
        let rsp = Register::RSP;
        if let Some(at) = self.saved_rsp {
            self.encode(Instruction::with2(Code::Mov_r64_rm64, rsp, stack(at)))?;
        } else if self.frame_bytes > 0 {
            self.encode(Instruction::with2(Code::Add_rm64_imm32, rsp, self.frame_bytes as i32))?;
        }
        for r in self.pushed.clone().into_iter().rev() {
            self.encode(Instruction::with1(Code::Pop_r64, gpr(r, b'q')))?;
        }
        if self.streams {
            // Such stores are not ordered with the signal that reports the kernel's end.
            self.encode(Ok(Instruction::with(Code::Sfence)))?;
        }
        if self.wide {
            self.encode(Ok(Instruction::with(Code::VEX_Vzeroupper)))?;
        }
        self.encode(Ok(Instruction::with(Code::Retnq)))
    }

    fn inst(&mut self, i: usize) -> Result<(), IselError> {
        let inst = &self.insts[i];
        match inst.flow {
            Flow::Label(l) => {
                self.labels[l.0 as usize] = Some(self.len);
                Ok(())
            }
            Flow::Jump(l) => self.jump(inst.code, l),
            Flow::Branch(l) => {
                let stub = self.alloc.edge_edits.iter().any(|e| e.0 as usize == i);
                if !stub {
                    return self.jump(inst.code, l);
                }
                self.encode(Instruction::with_branch(inst.code, self.len as u64))?;
                self.stubs.push((self.len - 4, i as u32, l));
                Ok(())
            }
            Flow::Return => self.epilogue(),
            Flow::Next if inst.code == Code::INVALID => Ok(()),
            Flow::Next => {
                let locs: SmallVec<[Loc; 6]> = self.alloc.operands[self.func.operand_range(i as u32)].into();
                if inst.kind == Kind::Copy && inst.mask.is_none() && locs.len() == 2 && locs[0] == locs[1] {
                    return Ok(());
                }
                self.placed(inst, &locs)
            }
        }
    }

    /// Encodes an instruction whose register operands are at `locs`, in the order of [`Inst::operands`].
    fn placed(&mut self, inst: &Inst, locs: &[Loc]) -> Result<(), IselError> {
        let mut locs = locs.iter().copied();
        let mut next = || locs.next().ok_or(IselError::Internal("an operand without a place"));
        let mut ops: SmallVec<[Placed; 4]> = SmallVec::new();
        let (mut narrow, mut first) = (true, None);
        for op in &inst.ops {
            let placed = match *op {
                Opd::Imm(v) => Placed::Imm(v),
                Opd::Same(kind) => Placed::Reg(register(first.ok_or(IselError::Internal("no first operand"))?, kind)?),
                Opd::Reg(_, kind) => match next()? {
                    Loc::Reg(p) => {
                        first = first.or(Some(p));
                        narrow &= p.index < 16;
                        Placed::Reg(register(p, kind)?)
                    }
                    Loc::Slot(s) => Placed::Mem(stack(self.alloc.frame.slots[s as usize].offset), None),
                },
                Opd::Mem(m) => {
                    narrow &= !m.broadcast && m.index.is_none_or(|i| i.1 == b'q');
                    self.memory(m, &mut next)?
                }
            };
            ops.push(placed);
        }
        let code = if inst.twin != Code::INVALID && narrow && inst.mask.is_none() { inst.twin } else { inst.code };
        let (mut out, reloc) = build(code, &ops)?;
        if inst.mask.is_some() {
            match next()? {
                Loc::Reg(p) => out.set_op_mask(register(p, b'k')?),
                Loc::Slot(_) => return Err(IselError::Internal("a mask in a slot")),
            }
            out.set_zeroing_masking(inst.zeroing);
        }
        match reloc {
            None => self.encode(Ok(out)),
            Some(at) => self.encode_constant(out, at),
        }
    }

    fn memory(&self, m: Mem, next: &mut dyn FnMut() -> Result<Loc, IselError>) -> Result<Placed, IselError> {
        let mut reg = |kind| match next()? {
            Loc::Reg(p) => register(p, kind),
            Loc::Slot(_) => Err(IselError::Internal("an address in a slot")),
        };
        let (base, disp, constant) = match m.base {
            Base::Reg(_) => (reg(b'q')?, i64::from(m.disp), None),
            Base::Local(at) => (Register::RSP, i64::from(m.disp) + i64::from(self.local_at + at), None),
            Base::Const(at) => (Register::RIP, 0, Some(at.wrapping_add_signed(m.disp))),
        };
        let index = match m.index {
            Some((_, kind)) => reg(kind.to_ascii_lowercase())?,
            None => Register::None,
        };
        let size = if disp == 0 && base != Register::RIP {
            0
        } else if i8::try_from(disp).is_ok() && base != Register::RIP {
            1
        } else {
            8
        };
        let scale = u32::from(m.scale);
        Ok(Placed::Mem(MemoryOperand::new(base, index, scale, disp, size, m.broadcast, Register::None), constant))
    }

    fn edit(&mut self, edit: &Edit) -> Result<(), IselError> {
        match *edit {
            Edit::Remat { inst, to } => {
                let inst = &self.insts[inst as usize];
                self.placed(inst, &[Loc::Reg(to)])
            }
            Edit::Move { class, from, to } => {
                let class = self.regs.classes[class.0 as usize].clone();
                if class.file == TILE {
                    return Err(IselError::Internal("more tiles than there are registers"));
                }
                let evex = |p: PReg| p.index >= 16 || class.slot_bytes == 64;
                match (from, to) {
                    (Loc::Reg(a), Loc::Reg(b)) => {
                        let (code, kind) = move_code(class.file, class.slot_bytes, evex(a) || evex(b));
                        self.encode(Instruction::with2(code.0, register(b, kind)?, register(a, kind)?))
                    }
                    (Loc::Slot(s), Loc::Reg(b)) => {
                        let (code, kind) = move_code(class.file, class.slot_bytes, evex(b));
                        self.encode(Instruction::with2(code.1, register(b, kind)?, self.slot(s)))
                    }
                    (Loc::Reg(a), Loc::Slot(s)) => {
                        let (code, kind) = move_code(class.file, class.slot_bytes, evex(a));
                        self.encode(Instruction::with2(code.2, self.slot(s), register(a, kind)?))
                    }
                    (Loc::Slot(_), Loc::Slot(_)) => Err(IselError::Internal("a move from slot to slot")),
                }
            }
        }
    }

    fn slot(&self, s: u32) -> MemoryOperand {
        stack(self.alloc.frame.slots[s as usize].offset)
    }

    fn jump(&mut self, code: Code, to: Label) -> Result<(), IselError> {
        if let Some(at) = self.labels[to.0 as usize] {
            let short = at as i64 - (self.len as i64 + 2);
            let code = if i8::try_from(short).is_ok() { code.as_short_branch() } else { code };
            return self.encode(Instruction::with_branch(code, at as u64));
        }
        self.encode(Instruction::with_branch(code, self.len as u64))?;
        self.waiting.push((self.len - 4, to));
        Ok(())
    }

    fn encode(&mut self, inst: Result<Instruction, iced_x86::IcedError>) -> Result<(), IselError> {
        let inst = inst.map_err(|e| IselError::Encode(e.to_string()))?;
        let n = self.encoder.encode(&inst, self.len as u64);
        self.len += n.map_err(|e| IselError::Encode(format!("{inst}: {e} ({})", self.arch.name())))?;
        self.count += 1;
        Ok(())
    }

    /// Encodes an instruction whose memory operand is a constant, and notes the relocation.
    fn encode_constant(&mut self, mut inst: Instruction, at: u32) -> Result<(), IselError> {
        let start = self.len;
        inst.set_memory_displacement64(start as u64);
        self.encode(Ok(inst))?;
        let field = start + self.encoder.get_constant_offsets().displacement_offset();
        self.object.relocations.push(Relocation {
            section: Section::Text,
            offset_bytes: field as u64,
            kind: RelocKind::Pc32,
            target: Target::Section(Section::Rodata),
            addend: i64::from(at) - (self.len - field) as i64,
        });
        Ok(())
    }
}

/// Move, load and store of a class, and the kind of its registers.
fn move_code(file: u8, bytes: u32, evex: bool) -> ((Code, Code, Code), u8) {
    use Code::*;
    match (file, bytes, evex) {
        (GPR, ..) => ((Mov_r64_rm64, Mov_r64_rm64, Mov_rm64_r64), b'q'),
        (MASK, ..) => ((VEX_Kmovq_kr_km64, VEX_Kmovq_kr_km64, VEX_Kmovq_m64_kr), b'k'),
        (_, 16, false) => ((VEX_Vmovaps_xmm_xmmm128, VEX_Vmovaps_xmm_xmmm128, VEX_Vmovaps_xmmm128_xmm), b'x'),
        (_, 32, false) => ((VEX_Vmovaps_ymm_ymmm256, VEX_Vmovaps_ymm_ymmm256, VEX_Vmovaps_ymmm256_ymm), b'y'),
        (_, 16, true) => {
            ((EVEX_Vmovaps_xmm_k1z_xmmm128, EVEX_Vmovaps_xmm_k1z_xmmm128, EVEX_Vmovaps_xmmm128_k1z_xmm), b'x')
        }
        (_, 32, true) => {
            ((EVEX_Vmovaps_ymm_k1z_ymmm256, EVEX_Vmovaps_ymm_k1z_ymmm256, EVEX_Vmovaps_ymmm256_k1z_ymm), b'y')
        }
        _ => ((EVEX_Vmovaps_zmm_k1z_zmmm512, EVEX_Vmovaps_zmm_k1z_zmmm512, EVEX_Vmovaps_zmmm512_k1z_zmm), b'z'),
    }
}

fn stack(offset: u32) -> MemoryOperand {
    MemoryOperand::with_base_displ(Register::RSP, i64::from(offset))
}

fn gpr(index: u16, kind: u8) -> Register {
    let first = match kind {
        b'b' => [
            Register::AL,
            Register::CL,
            Register::DL,
            Register::BL,
            Register::SPL,
            Register::BPL,
            Register::SIL,
            Register::DIL,
        ]
        .get(index as usize)
        .copied(),
        _ => None,
    };
    let from = |base: Register| base + u32::from(index);
    match (kind, first) {
        (b'b', Some(low)) => low,
        (b'b', None) => Register::R8L + (u32::from(index) - 8),
        (b'w', _) => from(Register::AX),
        (b'd', _) => from(Register::EAX),
        _ => from(Register::RAX),
    }
}

/// iced-x86's name of a register used as a kind.
fn register(p: PReg, kind: u8) -> Result<Register, IselError> {
    let at = |base: Register| base + u32::from(p.index);
    match (p.file, kind) {
        (VEC, b'x') => Ok(at(Register::XMM0)),
        (VEC, b'y') => Ok(at(Register::YMM0)),
        (VEC, b'z') => Ok(at(Register::ZMM0)),
        (MASK, b'k') => Ok(at(Register::K0)),
        (TILE, b't') => Ok(at(Register::TMM0)),
        (GPR, b'b' | b'w' | b'd' | b'q') => Ok(gpr(p.index, kind)),
        _ => Err(IselError::Internal("a register of the wrong file")),
    }
}

/// The instruction, and the constant it refers to, if any.
fn build(code: Code, ops: &[Placed]) -> Result<(Instruction, Option<u32>), IselError> {
    use Placed::{Imm as I, Mem as M, Reg as R};
    let imm = |v: i64| i32::try_from(v).map_err(|_| IselError::Internal("an immediate beyond 32 bits"));
    let made = match *ops {
        [] => Ok(Instruction::with(code)),
        [R(a)] => Instruction::with1(code, a),
        [M(a, _)] => Instruction::with1(code, a),
        [R(a), R(b)] => Instruction::with2(code, a, b),
        [R(a), M(b, _)] => Instruction::with2(code, a, b),
        [M(a, _), R(b)] => Instruction::with2(code, a, b),
        [R(a), I(v)] if code == Code::Mov_r64_imm64 => Instruction::with2(code, a, v),
        [R(a), I(v)] => Instruction::with2(code, a, imm(v)?),
        [M(a, _), I(v)] => Instruction::with2(code, a, imm(v)?),
        [R(a), R(b), R(c)] => Instruction::with3(code, a, b, c),
        [R(a), R(b), M(c, _)] => Instruction::with3(code, a, b, c),
        [R(a), M(b, _), R(c)] => Instruction::with3(code, a, b, c),
        [M(a, _), R(b), R(c)] => Instruction::with3(code, a, b, c),
        [R(a), R(b), I(v)] => Instruction::with3(code, a, b, imm(v)?),
        [R(a), M(b, _), I(v)] => Instruction::with3(code, a, b, imm(v)?),
        [M(a, _), R(b), I(v)] => Instruction::with3(code, a, b, imm(v)?),
        [R(a), R(b), R(c), R(d)] => Instruction::with4(code, a, b, c, d),
        [R(a), R(b), M(c, _), R(d)] => Instruction::with4(code, a, b, c, d),
        [R(a), R(b), R(c), I(v)] => Instruction::with4(code, a, b, c, imm(v)?),
        [R(a), R(b), M(c, _), I(v)] => Instruction::with4(code, a, b, c, imm(v)?),
        _ => return Err(IselError::Internal("operands of no known pattern")),
    };
    let constant = ops.iter().find_map(|o| if let M(_, at) = o { *at } else { None });
    // By its number: the names of all instructions would be a hundredth of the binary.
    Ok((made.map_err(|e| IselError::Encode(format!("instruction {} of iced-x86: {e}", code as usize)))?, constant))
}
