//! Types of the language and their layout: sizes and alignments in memory, rows of lanes in registers.

use std::collections::HashMap;
use std::fmt::Write;
use std::rc::Rc;

/// The arithmetic types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scalar {
    /// `bool`
    Bool,
    /// `char`
    Char,
    /// `uchar`
    UChar,
    /// `short`
    Short,
    /// `ushort`
    UShort,
    /// `int`
    Int,
    /// `uint`
    UInt,
    /// `long`
    Long,
    /// `ulong`
    ULong,
    /// `half`
    Half,
    /// `bfloat`
    BFloat,
    /// `float`
    Float,
}

impl Scalar {
    /// All of them, in the order of their rank among integers.
    pub const ALL: [Self; 12] = [
        Self::Bool,
        Self::Char,
        Self::UChar,
        Self::Short,
        Self::UShort,
        Self::Int,
        Self::UInt,
        Self::Long,
        Self::ULong,
        Self::Half,
        Self::BFloat,
        Self::Float,
    ];

    /// Size and alignment in bytes.
    #[must_use]
    pub fn bytes(self) -> u32 {
        match self {
            Self::Bool | Self::Char | Self::UChar => 1,
            Self::Short | Self::UShort | Self::Half | Self::BFloat => 2,
            Self::Int | Self::UInt | Self::Float => 4,
            Self::Long | Self::ULong => 8,
        }
    }

    /// The keyword.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Char => "char",
            Self::UChar => "uchar",
            Self::Short => "short",
            Self::UShort => "ushort",
            Self::Int => "int",
            Self::UInt => "uint",
            Self::Long => "long",
            Self::ULong => "ulong",
            Self::Half => "half",
            Self::BFloat => "bfloat",
            Self::Float => "float",
        }
    }

    pub(crate) fn is_float(self) -> bool {
        matches!(self, Self::Half | Self::BFloat | Self::Float)
    }

    pub(crate) fn is_int(self) -> bool {
        !self.is_float()
    }

    pub(crate) fn is_wide(self) -> bool {
        matches!(self, Self::Long | Self::ULong)
    }

    pub(crate) fn is_signed(self) -> bool {
        matches!(self, Self::Char | Self::Short | Self::Int | Self::Long) || self.is_float()
    }

    /// Rows of 32-bit lanes that a value takes.
    pub(crate) fn rows(self) -> u32 {
        if self.is_wide() { 2 } else { 1 }
    }

    /// The unsigned type of the same size.
    pub(crate) fn unsigned(self) -> Self {
        match self {
            Self::Char => Self::UChar,
            Self::Short => Self::UShort,
            Self::Int => Self::UInt,
            Self::Long => Self::ULong,
            other => other,
        }
    }
}

/// The address spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// Buffers.
    Device,
    /// Read-only buffers and program-scope tables.
    Constant,
    /// Memory of a threadgroup.
    Threadgroup,
    /// A thread's own variables.
    Thread,
}

impl Space {
    /// The keyword.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Constant => "constant",
            Self::Threadgroup => "threadgroup",
            Self::Thread => "thread",
        }
    }
}

/// A type's number in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tid(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ty {
    Void,
    Scalar(Scalar),
    Vec(Scalar, u8),
    Packed(Scalar, u8),
    /// An 8x8 matrix spread over the lanes of a simdgroup, two elements each.
    Simd(Scalar),
    Atomic(Scalar),
    Enum(u32),
    Struct(u32),
    Array(Tid, u32),
    Ptr {
        to: Tid,
        space: Space,
        constant: bool,
    },
    /// A template's type parameter, while its arguments are deduced.
    Param(u32),
    /// `vec<T, N>` of parameters; a number below 8 is N itself, others are parameters plus 8.
    VecParam(u32, u32),
    /// An array of a length that is a parameter.
    ArrayParam(Tid, u32),
}

pub(crate) struct Field {
    pub name: Rc<str>,
    pub ty: Tid,
    pub offset: u32,
}

pub(crate) struct StructInfo {
    pub name: Rc<str>,
    pub fields: Vec<Field>,
    pub size: u32,
    pub align: u32,
    pub complete: bool,
}

pub(crate) struct EnumInfo {
    pub name: Rc<str>,
    pub under: Scalar,
    pub scoped: bool,
}

pub(crate) struct Types {
    list: Vec<Ty>,
    index: HashMap<Ty, Tid>,
    pub structs: Vec<StructInfo>,
    pub enums: Vec<EnumInfo>,
}

impl Types {
    pub(crate) fn new() -> Self {
        let mut types = Self { list: Vec::new(), index: HashMap::new(), structs: Vec::new(), enums: Vec::new() };
        types.id(Ty::Void);
        for scalar in Scalar::ALL {
            types.id(Ty::Scalar(scalar));
        }
        for name in ["mem_flags", "memory_order", "thread_scope"] {
            types.enums.push(EnumInfo { name: name.into(), under: Scalar::Int, scoped: false });
        }
        types
    }

    pub(crate) const VOID: Tid = Tid(0);

    pub(crate) fn scalar_id(scalar: Scalar) -> Tid {
        Tid(1 + scalar as u32)
    }

    pub(crate) fn id(&mut self, ty: Ty) -> Tid {
        if let Some(&id) = self.index.get(&ty) {
            return id;
        }
        let id = Tid(self.list.len() as u32);
        self.list.push(ty);
        self.index.insert(ty, id);
        id
    }

    pub(crate) fn get(&self, id: Tid) -> Ty {
        self.list[id.0 as usize]
    }

    pub(crate) fn vec(&mut self, scalar: Scalar, lanes: u8) -> Tid {
        if lanes == 1 { Self::scalar_id(scalar) } else { self.id(Ty::Vec(scalar, lanes)) }
    }

    pub(crate) fn ptr(&mut self, to: Tid, space: Space, constant: bool) -> Tid {
        self.id(Ty::Ptr { to, space, constant })
    }

    /// The element type and lanes of a scalar, vector or enumeration.
    pub(crate) fn arith(&self, id: Tid) -> Option<(Scalar, u8)> {
        match self.get(id) {
            Ty::Scalar(s) => Some((s, 1)),
            Ty::Vec(s, n) | Ty::Packed(s, n) => Some((s, n)),
            Ty::Enum(e) => Some((self.enums[e as usize].under, 1)),
            _ => None,
        }
    }

    pub(crate) fn is_aggregate(&self, id: Tid) -> bool {
        matches!(self.get(id), Ty::Struct(_) | Ty::Array(..))
    }

    pub(crate) fn size_align(&self, id: Tid) -> (u64, u64) {
        match self.get(id) {
            Ty::Void | Ty::Param(_) | Ty::VecParam(..) | Ty::ArrayParam(..) => (1, 1),
            Ty::Scalar(s) | Ty::Atomic(s) => (s.bytes().into(), s.bytes().into()),
            Ty::Enum(e) => {
                let bytes = self.enums[e as usize].under.bytes().into();
                (bytes, bytes)
            }
            Ty::Vec(s, n) => {
                let bytes = u64::from(s.bytes()) * u64::from(n.next_power_of_two());
                (bytes, bytes)
            }
            Ty::Packed(s, n) => (u64::from(s.bytes()) * u64::from(n), s.bytes().into()),
            Ty::Simd(s) => {
                let bytes = u64::from(s.bytes()) * 2;
                (bytes, bytes)
            }
            Ty::Struct(s) => {
                let info = &self.structs[s as usize];
                (info.size.into(), info.align.into())
            }
            Ty::Array(of, count) => {
                let (size, align) = self.size_align(of);
                (size * u64::from(count), align)
            }
            Ty::Ptr { .. } => (8, 8),
        }
    }

    pub(crate) fn size(&self, id: Tid) -> u64 {
        self.size_align(id).0
    }

    /// Rows of a value in registers; 0 for what lives in memory only.
    pub(crate) fn rows(&self, id: Tid) -> u32 {
        match self.get(id) {
            Ty::Scalar(s) => s.rows(),
            Ty::Enum(e) => self.enums[e as usize].under.rows(),
            Ty::Vec(s, n) | Ty::Packed(s, n) => s.rows() * u32::from(n),
            Ty::Simd(_) | Ty::Ptr { .. } => 2,
            _ => 0,
        }
    }

    pub(crate) fn is_template(&self, id: Tid) -> bool {
        match self.get(id) {
            Ty::Param(_) | Ty::VecParam(..) | Ty::ArrayParam(..) => true,
            Ty::Ptr { to, .. } => self.is_template(to),
            Ty::Array(of, _) => self.is_template(of),
            _ => false,
        }
    }

    pub(crate) fn name(&self, id: Tid) -> String {
        match self.get(id) {
            Ty::Void => "void".into(),
            Ty::Scalar(s) => s.name().into(),
            Ty::Vec(s, n) => format!("{}{n}", s.name()),
            Ty::Packed(s, n) => format!("packed_{}{n}", s.name()),
            Ty::Simd(s) => format!("simdgroup_{}8x8", s.name()),
            Ty::Atomic(s) => format!("atomic_{}", s.name()),
            Ty::Enum(e) => self.enums[e as usize].name.to_string(),
            Ty::Struct(s) => self.structs[s as usize].name.to_string(),
            Ty::Param(i) => format!("T{i}"),
            Ty::VecParam(t, n) => format!("vec<T{t}, {n}>"),
            Ty::ArrayParam(of, _) => format!("{}[N]", self.name(of)),
            Ty::Array(..) => {
                let (mut of, mut dims) = (id, String::new());
                while let Ty::Array(inner, count) = self.get(of) {
                    let _ = write!(dims, "[{count}]");
                    of = inner;
                }
                format!("{}{dims}", self.name(of))
            }
            Ty::Ptr { to, space, constant } => {
                let constant = if constant && space != Space::Constant { "const " } else { "" };
                format!("{constant}{} {} *", space.name(), self.name(to))
            }
        }
    }
}
