//! The typed tree that the front end makes and `lower` reads: every conversion is explicit.

use crate::error::Pos;
use crate::types::{Space, Tid};
use std::rc::Rc;

pub(crate) type VarId = u32;
pub(crate) type FnId = usize;

/// A place in memory or a variable: may be assigned unless constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lvalue {
    pub space: Space,
    pub constant: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub kind: Kind,
    pub ty: Tid,
    pub at: Pos,
    pub lv: Option<Lvalue>,
    /// Nodes on the longest path below.
    pub depth: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unary {
    Neg,
    Not,
    BitNot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    And,
    Or,
    Xor,
    Shl,
    Shr,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Binary {
    pub(crate) fn is_comparison(self) -> bool {
        matches!(self, Self::Eq | Self::Ne | Self::Lt | Self::Le | Self::Gt | Self::Ge)
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// A scalar: the bits of its type; floats of every width as f32.
    Const(u64),
    Var(VarId),
    /// A program-scope constant or a threadgroup variable, by its offset.
    Static(u32),
    Unary(Unary, Box<Expr>),
    /// Both sides have the same type, but for shifts of vectors by scalars.
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// Pointer, index, whether it is subtracted.
    PtrAdd(Box<Expr>, Box<Expr>, bool),
    PtrDiff(Box<Expr>, Box<Expr>),
    /// `&&` if true, else `||`.
    Logic(bool, Box<Expr>, Box<Expr>),
    Cond(Box<Expr>, Box<Expr>, Box<Expr>),
    Assign(Box<Expr>, Box<Expr>),
    /// Place, operator, right side, and the type that it is computed in.
    Compound(Box<Expr>, Binary, Box<Expr>, Tid),
    /// Pointer place moved by an index; whether subtracted.
    PtrMove(Box<Expr>, Box<Expr>, bool),
    /// Place, whether increment, whether the new value is the result.
    Step {
        place: Box<Expr>,
        up: bool,
        prefix: bool,
    },
    Cast(Box<Expr>),
    Bits(Box<Expr>),
    Swizzle(Box<Expr>, [u8; 4], u8),
    /// Vector, index.
    Element(Box<Expr>, Box<Expr>),
    /// Struct, byte offset of the member.
    Member(Box<Expr>, u32),
    Deref(Box<Expr>),
    AddressOf(Box<Expr>),
    /// The two elements of a lane, as a vector.
    ThreadElements(Box<Expr>),
    Call(FnId, Vec<Expr>),
    Builtin(&'static str, Vec<Expr>),
    /// A vector from scalars and vectors of the same element type.
    Make(Vec<Expr>),
    Comma(Box<Expr>, Box<Expr>),
    /// Fields of a struct or elements of an array; what is missing is zero.
    List(Vec<Expr>),
    Zero,
}

#[derive(Clone, Debug)]
pub(crate) enum Stmt {
    Expr(Expr),
    Let {
        var: VarId,
        init: Option<Expr>,
        at: Pos,
    },
    If(Expr, Vec<Stmt>, Vec<Stmt>),
    /// `for`, `while`; a `do` loop tests last.
    Loop {
        test: Option<Expr>,
        step: Option<Expr>,
        body: Vec<Stmt>,
        test_last: bool,
    },
    Switch {
        value: Expr,
        body: Vec<Case>,
    },
    Break,
    Continue,
    Return(Option<Expr>, Pos),
    Block(Vec<Stmt>),
}

#[derive(Clone, Debug)]
pub(crate) enum Case {
    Value(u64),
    Default,
    Stmt(Stmt),
}

#[derive(Clone, Debug)]
pub(crate) struct Var {
    pub name: Rc<str>,
    pub ty: Tid,
    pub reference: bool,
    /// Of what a reference refers to.
    pub space: Space,
    pub constant: bool,
    /// Its address is taken, or it is an aggregate.
    pub in_memory: bool,
    /// Value of a constant integer.
    pub value: Option<u64>,
}

/// Values that a kernel's parameter may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    ThreadInGrid,
    ThreadInGroup,
    GroupInGrid,
    ThreadsPerGroup,
    GroupsPerGrid,
    ThreadsPerGrid,
    IndexInGroup,
    Lane,
    Simdgroup,
    Simdgroups,
    Width,
    IndexInQuad,
    Quad,
    QuadsPerGroup,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attribute {
    None,
    Buffer(u32),
    Threadgroup(u32),
    Position(Position),
}

#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub name: Rc<str>,
    pub at: Pos,
    pub params: Vec<VarId>,
    pub attributes: Vec<Attribute>,
    pub ret: Tid,
    pub vars: Vec<Var>,
    pub body: Option<Vec<Stmt>>,
    pub kernel: bool,
    pub host_name: Option<Rc<str>>,
    pub max_threads: Option<u32>,
    pub threadgroup_bytes: u32,
    pub calls: Vec<(FnId, Pos)>,
}
