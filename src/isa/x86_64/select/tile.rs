//! AMX: vectors of 1024 bytes are tiles of 16 rows of 64 bytes, in registers of their own.
//!
//! The sum of products is added in the register of its Acc. A tile whose rows are equally spaced in memory is loaded
//! from there; other rows are computed and go through scratch memory. Every tile has the same shape, so one
//! configuration serves the whole kernel. Source: Intel SDM volume 2 (LDTILECFG, TILELOADD, TDPBF16PS). There is no
//! move between tiles: the heuristic uses no more than the eight there are.

use super::super::IselError;
use super::super::form::Form;
use super::super::mir::{self, Base, Inst, Mem, Opd};
use super::{Res, Select, Val, unsupported};
use doorbell_codegen::regalloc::{Flow, VReg};
use doorbell_uop::{DType, Op, UOp};
use iced_x86::Code;

/// Rows of a tile, and bytes of a row.
const ROWS: usize = 16;
const ROW_BYTES: i64 = 64;

/// Whether a value of this type is a tile.
pub(super) fn is_tile(dt: DType) -> bool {
    dt.lanes as usize * dt.scalar.size_bytes() == ROWS * ROW_BYTES as usize
}

impl Select<'_> {
    /// LDTILECFG at the kernel's start: palette 1, eight tiles of the same shape.
    pub(super) fn configure_tiles(&mut self) {
        let mut config = [0u8; 64];
        config[0] = 1;
        for t in 0..8 {
            config[16 + 2 * t] = ROW_BYTES as u8;
            config[48 + t] = ROWS as u8;
        }
        let at = self.pooled(&config, 64);
        let form = Form { code: Code::VEX_Ldtilecfg_m512, kinds: b"m", mem: 0 };
        self.put(Inst::new((form, Code::INVALID), &[Opd::Mem(Mem::constant(at))]).read_only());
    }

    /// TILERELEASE at its end: the next switch of threads need not save tiles.
    pub(super) fn release_tiles(&mut self) {
        self.put(Inst::bare(Code::VEX_Tilerelease, Flow::Next));
    }

    /// An Acc of zeros.
    pub(super) fn zero_tile(&mut self) -> VReg {
        let dst = self.func.vreg(mir::CLASS_T);
        let form = Form { code: Code::VEX_Tilezero_tmm, kinds: b"t", mem: 9 };
        self.put(Inst::new((form, Code::INVALID), &[Opd::Reg(dst, b't')]));
        dst
    }

    /// Adds a chain of products to the tile it starts from.
    pub(super) fn add_products(&mut self, u: &UOp, onto: VReg) -> Res<()> {
        let mut chain = vec![u.clone()];
        while let Some(next) = chain.last().map(|w| w.src()[2].clone()).filter(|n| n.op() == Op::Wmma) {
            chain.push(next);
        }
        for w in chain.iter().rev() {
            let (a, b) = (self.tile(&w.src()[0])?, self.tile(&w.src()[1])?);
            let form = Form { code: Code::VEX_Tdpbf16ps_tmm_tmm_tmm, kinds: b"ttt", mem: 9 };
            let ops = [Opd::Reg(onto, b't'), Opd::Reg(a, b't'), Opd::Reg(b, b't')];
            self.put(Inst::new((form, Code::INVALID), &ops).modify());
        }
        Ok(())
    }

    /// A product that no register sums up.
    pub(super) fn product(&mut self, u: &UOp) -> Res<Val> {
        let start = std::iter::successors(Some(u.clone()), |w| (w.op() == Op::Wmma).then(|| w.src()[2].clone())).last();
        if start.is_none_or(|s| s.as_const().is_none_or(|c| !c.is_zero())) {
            return Err(unsupported(u, "a product added to what is no register"));
        }
        let dst = self.zero_tile();
        self.add_products(u, dst)?;
        Ok(Val::T(dst))
    }

    fn tile(&mut self, u: &UOp) -> Res<VReg> {
        match self.val(u)? {
            Val::T(r) => Ok(r),
            _ => Err(unsupported(u, "an operand that is no tile")),
        }
    }

    /// Rows side by side as a tile.
    pub(super) fn tile_of_rows(&mut self, u: &UOp) -> Res<Val> {
        let (from, stride) = match self.even_rows(u)? {
            Some(place) => place,
            None => (self.rows_in_scratch(u)?, ROW_BYTES),
        };
        let dst = self.func.vreg(mir::CLASS_T);
        let mem = self.rows_at(from, stride);
        let form = Form { code: Code::VEX_Tileloadd_tmm_sibmem, kinds: b"tm", mem: 1 };
        self.put(Inst::new((form, Code::INVALID), &[Opd::Reg(dst, b't'), Opd::Mem(mem)]));
        Ok(Val::T(dst))
    }

    /// Address of the first row and the distance of the others, if the tile is made of equally spaced plain loads
    /// alone.
    fn even_rows(&mut self, u: &UOp) -> Res<Option<(Mem, i64)>> {
        let rows = u.src();
        if rows.len() != ROWS || !rows.iter().all(|r| is_row(r) && r.src()[0].src()[0] == rows[0].src()[0].src()[0]) {
            return Ok(None);
        }
        let mut terms_of_rows = Vec::with_capacity(ROWS);
        for r in rows {
            let Some((mut terms, konst)) = self.sum_of(&r.src()[0])? else { return Ok(None) };
            terms.sort_unstable();
            terms_of_rows.push((terms, konst));
        }
        let stride = terms_of_rows[1].1 - terms_of_rows[0].1;
        let even = terms_of_rows.windows(2).all(|p| p[0].0 == p[1].0 && p[1].1 - p[0].1 == stride);
        Ok(if even && stride > 0 { Some((self.address(&rows[0].src()[0])?, stride)) } else { None })
    }

    fn rows_in_scratch(&mut self, u: &UOp) -> Res<Mem> {
        let at = self.scratch(ROWS * ROW_BYTES as usize)?;
        let base = Mem { base: Base::Local(at), index: None, scale: 1, disp: 0, broadcast: false };
        let mut bytes = 0;
        for row in u.src() {
            let v = self.val(row)?;
            let dt = row.dtype();
            self.store_plain(dt, base.plus(bytes), v)?;
            bytes += (dt.lanes as usize * dt.scalar.size_bytes()) as i32;
        }
        Ok(base)
    }

    /// A memory operand with the distance of rows as its index.
    fn rows_at(&mut self, from: Mem, stride: i64) -> Mem {
        let from = if from.index.is_some() { Mem::base(self.lea(from)) } else { from };
        let stride = self.const_gpr(stride);
        Mem { index: Some((stride, b'q')), scale: 1, ..from }
    }

    /// TILESTORED to consecutive memory.
    pub(super) fn store_tile(&mut self, index: &UOp, r: VReg) -> Res<()> {
        if index.src().len() > 2 || index.src()[1].dtype().lanes > 1 {
            return Err(IselError::Internal("a tile is stored in one piece"));
        }
        let to = self.address(index)?;
        let mem = self.rows_at(to, ROW_BYTES);
        let form = Form { code: Code::VEX_Tilestored_sibmem_tmm, kinds: b"mt", mem: 0 };
        self.put(Inst::new((form, Code::INVALID), &[Opd::Mem(mem), Opd::Reg(r, b't')]).read_only());
        Ok(())
    }
}

/// A load of one row of a tile.
pub(super) fn is_row(u: &UOp) -> bool {
    let row = u.dtype().lanes as usize * u.dtype().scalar.size_bytes() == ROW_BYTES as usize;
    row && u.op() == Op::Load && u.src().len() == 1 && u.src()[0].src()[1].dtype().lanes == 1
}
