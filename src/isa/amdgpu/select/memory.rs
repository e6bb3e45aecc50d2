//! Loads and stores of buffers and workgroup memory.
//!
//! Adjacent lanes become accesses of up to 128 bits. Buffers start at a multiple of their element only; global memory
//! takes any alignment, workgroup memory needs multiples of 4 for accesses beyond 16 bits. A gated access runs under
//! its own EXEC: one instruction for the allocator, so that nothing it adds comes between. Elements of 32 bits and more
//! that all threads read from a read-only buffer go through the scalar cache.

use super::super::{Op as Mnemonic, op};
use super::address::Addr;
use super::mir::{Code, Part};
use super::{Res, Select, Src, Val};
use doorbell_codegen::program::alignment;
use doorbell_codegen::regalloc::Role;
use doorbell_uop::{AddrSpace, Arg, Scalar, UOp};

/// Lanes that one access moves.
#[derive(Clone, Copy, Debug)]
struct Piece {
    first: usize,
    count: usize,
    at: Addr,
}

/// What is known of an access.
struct Access {
    local: bool,
    /// Type in memory: bools are bytes.
    t: Scalar,
    pieces: Vec<Piece>,
    /// No gate, one for all lanes, or one a lane.
    gates: Val,
}

impl Select<'_> {
    fn access(&mut self, index: &UOp, lanes: usize, t: Scalar) -> Res<Access> {
        let (base, i) = (&index.src()[0], &index.src()[1]);
        let gates = match index.src().get(2) {
            Some(g) => self.val(g)?,
            None => Val::new(),
        };
        let local = Self::base_of(base).dtype().space == Some(AddrSpace::Local);
        let size = t.size_bytes();
        let mut pieces = Vec::new();
        if i.dtype().lanes > 1 {
            for (first, lane) in self.plain(i)?.into_iter().enumerate() {
                let at = self.lane_address(base, lane, i)?;
                pieces.push(Piece { first, count: 1, at });
            }
        } else {
            let at = self.address(base, i)?;
            let known = if local { alignment(i) as usize * size } else { 16 };
            let most = match known {
                _ if gates.len() > 1 => size,
                1..4 => known.max(size),
                _ => 16,
            };
            let mut first = 0;
            while first < lanes {
                let mut bytes = most;
                while bytes > size && bytes > (lanes - first) * size {
                    bytes /= 2;
                }
                let at = self.further(at, (first * size) as i32)?;
                pieces.push(Piece { first, count: bytes / size, at });
                first += bytes / size;
            }
        }
        let t = if t == Scalar::Bool { Scalar::U8 } else { t };
        Ok(Access { local, t, pieces, gates })
    }

    pub(super) fn load(&mut self, u: &UOp) -> Res<Val> {
        let (index, t) = (&u.src()[0], u.dtype().scalar);
        let lanes = usize::from(u.dtype().lanes);
        if let Some(v) = self.load_scalar(u)? {
            return Ok(v);
        }
        let a = self.access(index, lanes, t)?;
        let alt = match u.src().get(1) {
            Some(alt) => self.plain(alt)?,
            None => Val::new(),
        };
        let whole = self.pos.get(u).is_some_and(|p| self.plan.whole[*p as usize]);
        let whole = whole && a.pieces.iter().all(|p| (p.count * a.t.size_bytes()).is_multiple_of(4));
        let tuple = whole.then(|| self.v_part((lanes * a.t.size_bytes() / 4) as u8));
        let raw = self.load_pieces(&a, &alt, tuple)?;
        if a.gates.is_empty() && t != Scalar::Bool {
            return Ok(raw);
        }
        self.finish_load(&a, t, raw, &alt)
    }

    /// What remains to be done with loaded lanes: bools become masks, gated packed lanes get their alternative.
    fn finish_load(&mut self, a: &Access, t: Scalar, raw: Val, alt: &Val) -> Res<Val> {
        let mut out = Val::new();
        for (k, lane) in raw.into_iter().enumerate() {
            let packed = matches!(lane, Src::Packed { .. });
            let mut x =
                if packed && (!a.gates.is_empty() || t == Scalar::Bool) { self.unpack(lane, a.t)? } else { lane };
            if t == Scalar::Bool {
                x = self.compare(doorbell_uop::Op::CmpNe, Scalar::U32, x, Src::Bits(0))?;
            }
            let other = alt.get(k.min(alt.len().max(1) - 1)).copied().unwrap_or(Src::Bits(0));
            if !a.gates.is_empty() && (packed || t == Scalar::Bool) && other != Src::Bits(0) {
                let gate = a.gates[k.min(a.gates.len() - 1)];
                x = self.choose(t, gate, x, other)?;
            }
            out.push(x);
        }
        Ok(out)
    }

    /// Loads all pieces, if requested into one tuple; of gated ones the lanes (those of 32 bits and more) that stay
    /// closed have the alternative.
    fn load_pieces(&mut self, a: &Access, alt: &Val, tuple: Option<Part>) -> Res<Val> {
        let size = a.t.size_bytes();
        let mut out = Val::new();
        let mut codes: Vec<(usize, Code)> = Vec::new();
        for p in &a.pieces {
            let bytes = p.count * size;
            let words = bytes.div_ceil(4) as u8;
            let to = match tuple {
                Some(all) => Part { sub: (p.first * size / 4) as u8, words, ..all },
                None => self.v_part(words),
            };
            if !a.gates.is_empty() {
                self.prefill(to, p, a.t, alt)?;
            }
            let load = load_op(a.local, bytes, if p.count == 1 { a.t } else { Scalar::U8 });
            codes.push((p.first, self.load_code(load, to, p.at)?));
            for k in 0..p.count {
                let bit = 8 * k * size;
                let word = Part { sub: to.sub + (bit / 32) as u8, words: 1, ..to };
                out.push(match size {
                    4 | 8 => Src::Part(Part { words: (size / 4) as u8, ..word }),
                    _ if p.count == 1 => Src::Part(to),
                    _ => Src::Packed { word, shift: (bit % 32) as u8, bits: 8 * size as u8 },
                });
            }
        }
        self.gated(codes, &a.gates)?;
        Ok(out)
    }

    /// What a gated load leaves in its registers where it does not load.
    fn prefill(&mut self, to: Part, p: &Piece, t: Scalar, alt: &Val) -> Res<()> {
        let size = t.size_bytes();
        let lane = |k: usize| alt.get((p.first + k).min(alt.len().max(1) - 1)).copied().unwrap_or(Src::Bits(0));
        let boolean = alt.first().is_some_and(|s| matches!(s, Src::Part(q) if self.is_scalar_part(*q) && size == 1));
        if size >= 4 || p.count == 1 && !boolean {
            let words = to.words / p.count as u8;
            for k in 0..p.count {
                self.copy_to(Part { sub: to.sub + k as u8 * words, words, ..to }, lane(k))?;
            }
            return Ok(());
        }
        self.copy_to(to, Src::Bits(0))
    }

    /// Emits accesses: all together under one gate, or each under its lane's.
    fn gated(&mut self, codes: Vec<(usize, Code)>, gates: &Val) -> Res<()> {
        match gates.as_slice() {
            [] => {
                for (_, c) in codes {
                    self.run(c)?;
                }
                Ok(())
            }
            [one] => self.under(*one, codes.into_iter().map(|c| c.1).collect()),
            many => {
                let many = many.to_vec();
                for (lane, c) in codes {
                    self.under(many[lane.min(many.len() - 1)], vec![c])?;
                }
                Ok(())
            }
        }
    }

    /// Operations in the lanes of a mask only.
    fn under(&mut self, mask: Src, codes: Vec<Code>) -> Res<()> {
        match mask {
            Src::Bits(0) => return Ok(()),
            Src::Bits(_) => {
                for c in codes {
                    self.run(c)?;
                }
                return Ok(());
            }
            _ => {}
        }
        let saved = self.mask_part();
        let save = self.mask_op(op::S_AND_SAVEEXEC_B32, op::S_AND_SAVEEXEC_B64);
        let restore = self.mask_op(op::S_MOV_B32, op::S_MOV_B64);
        let exec = self.exec();
        let mut all = vec![Code::new(save, &[saved.into(), self.opd_mask(mask)])];
        all.extend(codes);
        all.push(Code::new(restore, &[exec.into(), saved.into()]));
        let inst = self.run_all(all)?;
        // Lanes outside keep their old value.
        for r in inst.regs.iter_mut().filter(|r| r.vreg != saved.reg && r.role.writes()) {
            r.role = Role::Mod;
        }
        Ok(())
    }

    /// A load that all threads do alike, from memory that the kernel does not write.
    fn load_scalar(&mut self, u: &UOp) -> Res<Option<Val>> {
        let index = &u.src()[0];
        let t = u.dtype().scalar;
        let (size, lanes) = (t.size_bytes(), usize::from(u.dtype().lanes));
        let base = Self::base_of(&index.src()[0]);
        let Arg::Param(slot, _) = *base.arg() else { return Ok(None) };
        let written = self.program.params.iter().any(|p| p.slot == slot && p.written);
        let words = size * lanes / 4;
        if index.src().len() > 2 || index.src()[1].dtype().lanes > 1 || written || size < 4 || words > 16 {
            return Ok(None);
        }
        let at = self.address(&index.src()[0], &index.src()[1])?;
        let Addr::Global { base, offset: None, imm } = at else { return Ok(None) };
        let load = match words {
            1 => op::S_LOAD_B32,
            2 => op::S_LOAD_B64,
            4 => op::S_LOAD_B128,
            8 => op::S_LOAD_B256,
            16 => op::S_LOAD_B512,
            _ => return Ok(None),
        };
        let to = self.s_part(words as u8);
        self.run(Code::new(load, &[to.into(), base.into(), i64::from(imm).into()]))?;
        let each = (size / 4) as u8;
        let lane = |k: usize| Src::Part(Part { sub: k as u8 * each, words: each, ..to });
        Ok(Some((0..lanes).map(lane).collect()))
    }

    pub(super) fn store(&mut self, u: &UOp) -> Res<()> {
        let (index, value) = (&u.src()[0], &u.src()[1]);
        let t = value.dtype().scalar;
        let mut lanes = self.val(value)?;
        let a = self.access(index, usize::from(value.dtype().lanes), t)?;
        if t == Scalar::Bool {
            for lane in &mut lanes {
                *lane = self.mask_to_bits(*lane, 1)?;
            }
        }
        let mut codes = Vec::new();
        for p in &a.pieces {
            if let Some(Src::Bits(0)) = a.gates.get(p.first.min(a.gates.len().max(1) - 1)) {
                continue;
            }
            let data = self.gathered(&lanes[p.first..p.first + p.count], a.t)?;
            let store = store_op(a.local, p.count * a.t.size_bytes());
            codes.push((p.first, self.store_code(store, data, p.at)?));
        }
        self.gated(codes, &a.gates)
    }

    /// Lanes side by side in vector registers.
    pub(super) fn gathered(&mut self, lanes: &[Src], t: Scalar) -> Res<Part> {
        let size = t.size_bytes();
        if size < 4 {
            return self.gathered_small(lanes, t);
        }
        let each = (size / 4) as u8;
        if let [one] = lanes {
            return self.in_vgpr(*one, each);
        }
        let words = each * lanes.len() as u8;
        if let Src::Part(first) = lanes[0]
            && !self.is_scalar_part(first)
            && (!self.chip().is_gfx9() || first.sub.is_multiple_of(2))
        {
            let follows = |(k, s): (usize, &Src)| {
                *s == Src::Part(Part { sub: first.sub + k as u8 * each, words: each, reg: first.reg })
            };
            if lanes.iter().enumerate().all(follows) {
                return Ok(Part { words, ..first });
            }
        }
        let to = self.v_part(words);
        for (k, lane) in lanes.iter().enumerate() {
            self.copy_to(Part { sub: k as u8 * each, words: each, ..to }, *lane)?;
        }
        Ok(to)
    }

    fn gathered_small(&mut self, lanes: &[Src], t: Scalar) -> Res<Part> {
        let per = 4 / t.size_bytes();
        if lanes.len() <= per {
            let word = self.pack(lanes, t, None)?;
            return self.in_vgpr(word, 1);
        }
        let mut words = Val::new();
        let to = self.v_part((lanes.len() / per) as u8);
        for (k, part) in lanes.chunks(per).enumerate() {
            let slot = Part { sub: k as u8, words: 1, ..to };
            words.push(self.pack(part, t, Some(slot))?);
        }
        // Words that were packed are already in another tuple: there, if in order.
        if let Src::Part(first) = words[0]
            && first.reg != to.reg
            && words.iter().enumerate().all(|(k, w)| *w == Src::Part(Part { sub: first.sub + k as u8, ..first }))
        {
            return Ok(Part { words: to.words, ..first });
        }
        for (k, w) in words.iter().enumerate() {
            let slot = Part { sub: k as u8, words: 1, ..to };
            if *w != Src::Part(slot) {
                self.copy_to(slot, *w)?;
            }
        }
        Ok(to)
    }
}

fn load_op(local: bool, bytes: usize, t: Scalar) -> Mnemonic {
    match (local, bytes, t.is_signed() && t.is_int()) {
        (false, 1, true) => op::GLOBAL_LOAD_I8,
        (false, 1, false) => op::GLOBAL_LOAD_U8,
        (false, 2, true) => op::GLOBAL_LOAD_I16,
        (false, 2, false) => op::GLOBAL_LOAD_U16,
        (false, 4, _) => op::GLOBAL_LOAD_B32,
        (false, 8, _) => op::GLOBAL_LOAD_B64,
        (false, ..) => op::GLOBAL_LOAD_B128,
        (true, 1, true) => op::DS_LOAD_I8,
        (true, 1, false) => op::DS_LOAD_U8,
        (true, 2, true) => op::DS_LOAD_I16,
        (true, 2, false) => op::DS_LOAD_U16,
        (true, 4, _) => op::DS_LOAD_B32,
        (true, 8, _) => op::DS_LOAD_B64,
        (true, ..) => op::DS_LOAD_B128,
    }
}

fn store_op(local: bool, bytes: usize) -> Mnemonic {
    match (local, bytes) {
        (false, 1) => op::GLOBAL_STORE_B8,
        (false, 2) => op::GLOBAL_STORE_B16,
        (false, 4) => op::GLOBAL_STORE_B32,
        (false, 8) => op::GLOBAL_STORE_B64,
        (false, _) => op::GLOBAL_STORE_B128,
        (true, 1) => op::DS_STORE_B8,
        (true, 2) => op::DS_STORE_B16,
        (true, 4) => op::DS_STORE_B32,
        (true, 8) => op::DS_STORE_B64,
        (true, _) => op::DS_STORE_B128,
    }
}
