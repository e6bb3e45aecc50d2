//! Typed tree → bytecode. Calls are inlined: a kernel is one list of instructions without a call stack.

mod access;
mod arith;
mod builtin;
mod call;
mod expr;
mod flow;
mod place;
mod sync;

use crate::code::{Bin, Code, Inst, Row, Un};
use crate::error::{Pos, Res, fail};
use crate::parse::Parser;
use crate::tree::{Expr, FnId, Function};
use crate::types::{Scalar, Tid, Ty, Types};
use flow::Open;
use place::Loc;
use std::collections::HashMap;

/// Most instructions of a kernel.
const MAX_INSTS: usize = 4 << 20;
/// First rows, for numbers.
const CONSTANT_ROWS: u32 = 256;
/// Deepest nesting of calls.
const MAX_CALLS: usize = 128;

/// A function that is being inlined.
pub(crate) struct Frame {
    pub function: FnId,
    pub vars: Vec<Option<Loc>>,
    /// Where its result goes, of which type.
    pub result: Option<(Loc, Tid)>,
    /// Open constructs outside of it.
    pub base: usize,
    /// Whether returns end its lanes before its end.
    pub framed: bool,
}

pub(crate) struct Lower<'a> {
    pub types: &'a Types,
    pub functions: &'a [Function],
    /// Variables of the function being parsed, while a constant is evaluated.
    pub outer: &'a [crate::tree::Var],
    pub code: Code,
    /// Numbers that have rows of their own, by value and rows.
    numbers: HashMap<(u64, u32), Row>,
    pub top: Row,
    pub memory_top: u32,
    pub frames: Vec<Frame>,
    pub open: Vec<Open>,
    pub at: Pos,
}

impl<'a> Lower<'a> {
    fn new(types: &'a Types, functions: &'a [Function], outer: &'a [crate::tree::Var]) -> Self {
        Self {
            types,
            functions,
            outer,
            code: Code { rows: CONSTANT_ROWS, ..Code::default() },
            numbers: HashMap::new(),
            top: CONSTANT_ROWS,
            memory_top: 0,
            frames: Vec::new(),
            open: Vec::new(),
            at: Pos::default(),
        }
    }

    pub(crate) fn emit(&mut self, inst: Inst) -> usize {
        self.code.insts.push(inst);
        self.code.at.push(self.at);
        self.code.insts.len() - 1
    }

    pub(crate) fn here(&self) -> u32 {
        self.code.insts.len() as u32
    }

    pub(crate) fn check_size(&self) -> Res<()> {
        if self.code.insts.len() > MAX_INSTS || self.top > 1 << 16 {
            return fail(self.at, "the kernel is too large");
        }
        Ok(())
    }

    /// New rows, free again when the scope or statement ends.
    pub(crate) fn alloc(&mut self, rows: u32) -> Row {
        let row = self.top;
        self.top += rows;
        self.code.rows = self.code.rows.max(self.top);
        row
    }

    pub(crate) fn alloc_for(&mut self, ty: Tid) -> Row {
        self.alloc(self.types.rows(ty))
    }

    /// New thread memory for a value.
    pub(crate) fn alloc_memory(&mut self, ty: Tid) -> Res<u32> {
        let (size, align) = self.types.size_align(ty);
        let at = u64::from(self.memory_top).next_multiple_of(align.max(4));
        if at + size > crate::parse::MAX_THREAD_BYTES {
            return fail(self.at, "a thread's variables do not fit into its memory");
        }
        self.memory_top = (at + size) as u32;
        self.code.thread_bytes = self.code.thread_bytes.max(self.memory_top.next_multiple_of(4));
        Ok(at as u32)
    }

    /// A row with a number. It is shared: nothing may write to it.
    pub(crate) fn constant(&mut self, v: u32) -> Row {
        if let Some(row) = self.shared(v.into(), 1) {
            return row;
        }
        let d = self.alloc(1);
        self.emit(Inst::Const { d, v });
        d
    }

    /// Two rows with a number; shared as well.
    pub(crate) fn constant64(&mut self, v: u64) -> Row {
        if let Some(row) = self.shared(v, 2) {
            return row;
        }
        let d = self.alloc(2);
        self.emit(Inst::Const { d, v: v as u32 });
        self.emit(Inst::Const { d: d + 1, v: (v >> 32) as u32 });
        d
    }

    /// Rows that hold a number from the start, while there are any left.
    fn shared(&mut self, v: u64, rows: u32) -> Option<Row> {
        if let Some(row) = self.numbers.get(&(v, rows)) {
            return Some(*row);
        }
        let row = self.code.numbers.len() as u32;
        if row + rows > CONSTANT_ROWS {
            return None;
        }
        self.code.numbers.extend([v as u32, (v >> 32) as u32].iter().take(rows as usize));
        self.numbers.insert((v, rows), row);
        Some(row)
    }

    /// An operation on `n` components into new rows.
    pub(crate) fn un(&mut self, op: Un, a: Row, n: u32) -> Row {
        let d = self.alloc(op.rows().1 * n);
        self.emit(Inst::Un { op, d, a, n });
        d
    }

    pub(crate) fn bin(&mut self, op: Bin, a: Row, b: Row, n: u32) -> Row {
        let d = self.alloc(op.rows().1 * n);
        self.emit(Inst::Bin { op, d, a, b, n });
        d
    }

    pub(crate) fn select(&mut self, c: Row, a: Row, b: Row, n: u32) -> Row {
        let d = self.alloc(n);
        self.emit(Inst::Select { d, c, a, b, n, step: 1 });
        d
    }

    /// The element type and lanes of what lives in registers.
    pub(crate) fn parts(&self, ty: Tid) -> (Scalar, u32) {
        match self.types.get(ty) {
            Ty::Simd(scalar) => (scalar, 2),
            Ty::Ptr { .. } => (Scalar::ULong, 1),
            _ => self.types.arith(ty).map_or((Scalar::Int, 1), |(s, n)| (s, n.into())),
        }
    }

    pub(crate) fn frame(&mut self) -> &mut Frame {
        // PANIC: a kernel's or an evaluation's own frame is below all others.
        self.frames.last_mut().expect("a frame")
    }

    fn finish(mut self) -> Code {
        self.emit(Inst::End);
        self.code
    }
}

/// The bytecode of a kernel.
pub(crate) fn kernel(parser: &Parser, id: FnId) -> Res<Code> {
    let function = &parser.functions[id];
    let mut lower = Lower::new(&parser.types, &parser.functions, &[]);
    lower.at = function.at;
    lower.code.name = function.host_name.as_ref().unwrap_or(&function.name).to_string();
    lower.code.max_threads = function.max_threads;
    lower.code.threadgroup_bytes = function.threadgroup_bytes;
    lower.kernel(id)?;
    Ok(lower.finish())
}

/// Most steps of a constant's evaluation.
const MAX_STEPS: u64 = 1 << 20;

/// The scalars of a constant expression; `None`: it cannot be computed.
pub(crate) fn evaluate(parser: &Parser, expr: &Expr) -> Option<Vec<u64>> {
    let mut lower = Lower::new(&parser.types, &parser.functions, &parser.now.vars);
    lower.at = expr.at;
    lower.frames.push(Frame { function: usize::MAX, vars: Vec::new(), result: None, base: 0, framed: false });
    if lower.types.rows(expr.ty) == 0 {
        return None;
    }
    let row = lower.value(expr).ok()?;
    let (scalar, lanes) = lower.parts(expr.ty);
    let code = lower.finish();
    let rows = crate::exec::evaluate(&code, &parser.constants, MAX_STEPS)?;
    let step = scalar.rows();
    let get = |n: u32| -> Option<u64> {
        let low = u64::from(rows.get((row + n * step) as usize)?[0]);
        let high = if step == 2 { u64::from(rows.get((row + n * step + 1) as usize)?[0]) << 32 } else { 0 };
        let bits = low | high;
        Some(if scalar.is_float() { bits } else { crate::parse::fit(bits, scalar) })
    };
    (0..lanes).map(get).collect()
}
