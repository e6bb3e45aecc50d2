//! Places: where a variable or an element of memory is, how it is read and written.

use super::Lower;
use crate::code::{Inst, Memory, Row, TAG_CONSTANTS, TAG_THREAD, TAG_THREADGROUP, pointer};
use crate::error::{Res, fail};
use crate::tree::{Expr, Kind};
use crate::types::{Scalar, Space, Tid, Ty};

#[derive(Clone, Debug)]
pub(crate) enum Loc {
    /// Rows; and where it is noted which of them have a value.
    Reg { row: Row, defined: Option<u32> },
    /// Thread memory at a fixed offset.
    Thread { at: u32 },
    /// Memory behind a pointer.
    Memory { pointer: Row, off: i32, space: Space },
    /// Some lanes of a vector.
    Lanes { of: Box<Loc>, scalar: Scalar, lanes: Vec<u8> },
    /// One lane of a vector in rows, by a number in a row.
    Picked { row: Row, defined: Option<u32>, scalar: Scalar, count: u32, index: Row },
}

impl Lower<'_> {
    /// The place of an lvalue.
    pub(crate) fn place(&mut self, e: &Expr) -> Res<Loc> {
        self.at = e.at;
        match &e.kind {
            Kind::Var(var) => self.variable(*var, e),
            Kind::Static(offset) => {
                let (tag, space) = match e.lv.map(|lv| lv.space) {
                    Some(Space::Threadgroup) => (TAG_THREADGROUP, Space::Threadgroup),
                    _ => (TAG_CONSTANTS, Space::Constant),
                };
                let pointer = self.constant64(pointer(tag, u64::from(*offset)));
                Ok(Loc::Memory { pointer, off: 0, space })
            }
            Kind::Member(of, offset) => {
                let of = self.aggregate(of)?;
                self.shifted(of, *offset)
            }
            Kind::Swizzle(of, lanes, n) => {
                let (scalar, _) = self.parts(of.ty);
                let of = self.place_or_value(of)?;
                self.lanes_of(of, scalar, &lanes[..*n as usize])
            }
            Kind::Element(of, index) => self.element(of, index),
            Kind::Deref(pointer) => {
                let Ty::Ptr { space, .. } = self.types.get(pointer.ty) else { return fail(e.at, "not a pointer") };
                self.pointed(pointer, space)
            }
            Kind::ThreadElements(of) => self.place(of),
            Kind::Assign(..) | Kind::Compound(..) | Kind::PtrMove(..) | Kind::Step { .. } => self.assigned_place(e),
            Kind::Comma(a, b) => {
                self.discard(a)?;
                self.place(b)
            }
            _ => self.place_or_value(e),
        }
    }

    /// A place, or a temporary with the value.
    pub(crate) fn place_or_value(&mut self, e: &Expr) -> Res<Loc> {
        if e.lv.is_some() {
            return self.place(e);
        }
        if self.types.is_aggregate(e.ty) {
            return self.aggregate(e);
        }
        let row = self.value(e)?;
        Ok(Loc::Reg { row, defined: None })
    }

    /// What a pointer points to; a sum of a pointer and a constant needs no instruction.
    fn pointed(&mut self, e: &Expr, space: Space) -> Res<Loc> {
        if let Kind::PtrAdd(base, index, minus) = &e.kind
            && let (Kind::Const(by), Ty::Ptr { to, .. }) = (&index.kind, self.types.get(e.ty))
        {
            let by = (*by as i64).saturating_mul(self.types.size(to) as i64);
            if let Ok(by) = i32::try_from(if *minus { -by } else { by }) {
                let base = self.pointed(base, space)?;
                return self.moved(base, by, space);
            }
        }
        if let Kind::AddressOf(place) = &e.kind {
            return self.place(place);
        }
        let pointer = self.value(e)?;
        Ok(Loc::Memory { pointer, off: 0, space })
    }

    fn moved(&mut self, of: Loc, by: i32, space: Space) -> Res<Loc> {
        match of {
            Loc::Thread { at } if by >= 0 && at.checked_add(by as u32).is_some() => {
                // Bounds are checked against the thread's memory, so an index past a variable may need a pointer.
                let at = at + by as u32;
                if at < self.memory_top {
                    return Ok(Loc::Thread { at });
                }
                let pointer = self.constant64(pointer(TAG_THREAD, at.into()));
                Ok(Loc::Memory { pointer, off: 0, space })
            }
            Loc::Memory { pointer, off, space } if off.checked_add(by).is_some() => {
                Ok(Loc::Memory { pointer, off: off + by, space })
            }
            other => {
                let p = self.address(&other)?;
                let d = self.alloc(2);
                self.emit(Inst::PtrOffset { d, p, by: by.into() });
                Ok(Loc::Memory { pointer: d, off: 0, space })
            }
        }
    }

    /// A place further on in the same object.
    pub(crate) fn shifted(&mut self, of: Loc, by: u32) -> Res<Loc> {
        match of {
            Loc::Thread { at } => Ok(Loc::Thread { at: at + by }),
            Loc::Memory { space, .. } => self.moved(of, by as i32, space),
            _ => fail(self.at, "an object in registers has no members"),
        }
    }

    fn lanes_of(&mut self, of: Loc, scalar: Scalar, lanes: &[u8]) -> Res<Loc> {
        let first = u32::from(lanes[0]);
        let row = lanes.iter().enumerate().all(|(n, lane)| u32::from(*lane) == first + n as u32);
        match of {
            Loc::Reg { row: base, defined } if row => {
                Ok(Loc::Reg { row: base + first * scalar.rows(), defined: defined.map(|d| d + first) })
            }
            Loc::Thread { .. } | Loc::Memory { .. } if lanes.len() == 1 => self.shifted(of, first * scalar.bytes()),
            Loc::Lanes { of, lanes: outer, .. } => {
                let lanes: Vec<u8> = lanes.iter().map(|n| outer[*n as usize]).collect();
                self.lanes_of(*of, scalar, &lanes)
            }
            of => Ok(Loc::Lanes { of: Box::new(of), scalar, lanes: lanes.to_vec() }),
        }
    }

    fn element(&mut self, of: &Expr, index: &Expr) -> Res<Loc> {
        let (scalar, count) = self.parts(of.ty);
        let of = self.place_or_value(of)?;
        let (index_scalar, _) = self.parts(index.ty);
        let index = self.value(index)?;
        match of {
            Loc::Reg { row, defined } => Ok(Loc::Picked { row, defined, scalar, count, index }),
            Loc::Lanes { .. } | Loc::Picked { .. } => fail(self.at, "subscript of a swizzle is not supported"),
            of => {
                let space = if let Loc::Memory { space, .. } = of { space } else { Space::Thread };
                let p = self.address(&of)?;
                let d = self.alloc(2);
                self.emit(Inst::PtrAdd { d, p, i: index, scale: scalar.bytes().into(), index: index_scalar });
                Ok(Loc::Memory { pointer: d, off: 0, space })
            }
        }
    }

    /// A pointer to a place.
    pub(crate) fn address(&mut self, of: &Loc) -> Res<Row> {
        match of {
            Loc::Thread { at } => Ok(self.constant64(pointer(TAG_THREAD, u64::from(*at)))),
            Loc::Memory { pointer, off: 0, .. } => Ok(*pointer),
            Loc::Memory { pointer, off, .. } => {
                let d = self.alloc(2);
                self.emit(Inst::PtrOffset { d, p: *pointer, by: i64::from(*off) });
                Ok(d)
            }
            _ => fail(self.at, "the address of a value in registers is taken"),
        }
    }

    /// The alignment that an access of a type promises.
    fn align_of(&self, ty: Tid) -> u32 {
        self.types.size_align(ty).1 as u32
    }

    /// Reads a value; rows that must not be written to.
    pub(crate) fn read(&mut self, of: &Loc, ty: Tid) -> Res<Row> {
        let (scalar, n) = self.parts(ty);
        let rows = self.types.rows(ty);
        match of {
            Loc::Reg { row, defined } => {
                self.need(*defined, n);
                Ok(*row)
            }
            Loc::Thread { at } => {
                let d = self.alloc(rows);
                self.emit(Inst::LoadThread { d, at: *at, kind: Memory::of(scalar), n });
                Ok(d)
            }
            Loc::Memory { pointer, off, .. } => {
                let d = self.alloc(rows);
                let align = self.align_of(ty);
                self.emit(Inst::Load { d, p: *pointer, off: *off, kind: Memory::of(scalar), n, align });
                Ok(d)
            }
            Loc::Lanes { of, lanes, .. } => self.read_lanes(of, scalar, lanes),
            Loc::Picked { row, defined, count, index, .. } => {
                self.need(*defined, *count);
                self.pick(*row, scalar, *count, *index)
            }
        }
    }

    fn read_lanes(&mut self, of: &Loc, scalar: Scalar, lanes: &[u8]) -> Res<Row> {
        let step = scalar.rows();
        let d = self.alloc(lanes.len() as u32 * step);
        let whole = u32::from(*lanes.iter().max().unwrap_or(&0)) + 1;
        let base = match of {
            Loc::Reg { row, defined } => {
                for lane in lanes {
                    self.need(defined.map(|d| d + u32::from(*lane)), 1);
                }
                *row
            }
            Loc::Thread { at } => {
                let d = self.alloc(whole * step);
                self.emit(Inst::LoadThread { d, at: *at, kind: Memory::of(scalar), n: whole });
                d
            }
            Loc::Memory { pointer, off, .. } => {
                let d = self.alloc(whole * step);
                let align = scalar.bytes();
                self.emit(Inst::Load { d, p: *pointer, off: *off, kind: Memory::of(scalar), n: whole, align });
                d
            }
            _ => return fail(self.at, "swizzle of a swizzle"),
        };
        for (n, lane) in lanes.iter().enumerate() {
            self.emit(Inst::Mov { d: d + n as u32 * step, a: base + u32::from(*lane) * step, n: step });
        }
        Ok(d)
    }

    /// One of `count` values, by a number; the last if it is out of range.
    fn pick(&mut self, row: Row, scalar: Scalar, count: u32, index: Row) -> Res<Row> {
        let step = scalar.rows();
        let d = self.alloc(step);
        self.emit(Inst::Mov { d, a: row + (count - 1) * step, n: step });
        for n in (0..count - 1).rev() {
            let k = self.constant(n);
            let c = self.bin(crate::code::Bin::EqI, index, k, 1);
            self.emit(Inst::Select { d, c, a: row + n * step, b: d, n: step, step: 0 });
        }
        Ok(d)
    }

    /// Writes a value that is in rows.
    pub(crate) fn write(&mut self, to: &Loc, ty: Tid, s: Row) -> Res<()> {
        let (scalar, n) = self.parts(ty);
        match to {
            Loc::Reg { row, defined } => {
                let rows = self.types.rows(ty);
                let overlap = *row > s && *row < s + rows;
                let s = if overlap {
                    let kept = self.alloc(rows);
                    self.emit(Inst::Mov { d: kept, a: s, n: rows });
                    kept
                } else {
                    s
                };
                if *row != s {
                    self.emit(Inst::Mov { d: *row, a: s, n: rows });
                }
                self.define(*defined, n);
            }
            Loc::Thread { at } => {
                self.emit(Inst::StoreThread { s, at: *at, kind: Memory::of(scalar), n });
            }
            Loc::Memory { pointer, off, .. } => {
                let align = self.align_of(ty);
                self.emit(Inst::Store { p: *pointer, s, off: *off, kind: Memory::of(scalar), n, align });
            }
            Loc::Lanes { of, scalar, lanes } => {
                let rows = scalar.rows() * lanes.len() as u32;
                let overlap = matches!(**of, Loc::Reg { row, .. } if s < row + 4 * scalar.rows() && row < s + rows);
                let s = if overlap {
                    let kept = self.alloc(rows);
                    self.emit(Inst::Mov { d: kept, a: s, n: rows });
                    kept
                } else {
                    s
                };
                let one = crate::types::Types::scalar_id(*scalar);
                for (n, lane) in lanes.iter().enumerate() {
                    let part = self.lanes_of((**of).clone(), *scalar, &[*lane])?;
                    self.write(&part, one, s + n as u32 * scalar.rows())?;
                }
            }
            Loc::Picked { row, defined, scalar, count, index } => {
                let step = scalar.rows();
                for n in 0..*count {
                    let k = self.constant(n);
                    let c = self.bin(crate::code::Bin::EqI, *index, k, 1);
                    let d = row + n * step;
                    if let Some(slot) = defined {
                        self.open_if(c);
                        self.emit(Inst::Mov { d, a: s, n: step });
                        self.emit(Inst::Define { slot: slot + n, n: 1 });
                        self.close_if();
                    } else {
                        self.emit(Inst::Select { d, c, a: s, b: d, n: step, step: 0 });
                    }
                }
            }
        }
        Ok(())
    }

    fn need(&mut self, slot: Option<u32>, n: u32) {
        if let Some(slot) = slot {
            self.emit(Inst::NeedDefined { slot, n });
        }
    }

    pub(crate) fn define(&mut self, slot: Option<u32>, n: u32) {
        if let Some(slot) = slot {
            self.emit(Inst::Define { slot, n });
        }
    }

    /// Copies an object in memory.
    pub(crate) fn copy(&mut self, to: &Loc, from: &Loc, ty: Tid) -> Res<()> {
        let (to, from) = (self.address(to)?, self.address(from)?);
        let (bytes, align) = self.types.size_align(ty);
        self.emit(Inst::Copy { to, from, bytes: bytes as u32, align: align as u32 });
        Ok(())
    }
}
