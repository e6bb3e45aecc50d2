//! Type specifiers and declarators.

use super::{Entry, Parser};
use crate::error::{Pos, Res, fail};
use crate::lex::Tok;
use crate::types::{Scalar, Space, Tid, Ty, Types};
use std::rc::Rc;

/// What stands before the names of a declaration.
#[derive(Clone, Copy)]
pub(crate) struct Spec {
    pub ty: Tid,
    pub space: Option<Space>,
    pub constant: bool,
    pub constexpr: bool,
    /// `auto`: the type of the initialiser.
    pub auto: bool,
    pub is_static: bool,
}

/// A declared name.
pub(crate) struct Declared {
    pub name: Option<Rc<str>>,
    pub at: Pos,
    pub ty: Tid,
    pub reference: bool,
    /// Of the object itself, or of what a reference refers to.
    pub space: Option<Space>,
    pub constant: bool,
}

/// The scalar of a keyword, aliases included.
fn scalar_word(word: &str) -> Option<Scalar> {
    Some(match word {
        "bool" => Scalar::Bool,
        "char" | "int8_t" => Scalar::Char,
        "uchar" | "uint8_t" => Scalar::UChar,
        "short" | "int16_t" => Scalar::Short,
        "ushort" | "uint16_t" => Scalar::UShort,
        "int" | "int32_t" => Scalar::Int,
        "uint" | "uint32_t" => Scalar::UInt,
        "long" | "int64_t" | "ptrdiff_t" | "intptr_t" => Scalar::Long,
        "ulong" | "uint64_t" | "size_t" | "uintptr_t" => Scalar::ULong,
        "half" | "float16_t" => Scalar::Half,
        "bfloat" | "bfloat16_t" => Scalar::BFloat,
        "float" | "float32_t" => Scalar::Float,
        _ => return None,
    })
}

fn vector_word(word: &str) -> Option<(Scalar, u8)> {
    let (name, digit) = word.split_at_checked(word.len().checked_sub(1)?)?;
    let lanes = digit.parse().ok().filter(|n| (2..=4).contains(n))?;
    let plain = Scalar::ALL.into_iter().find(|s| s.name() == name)?;
    Some((plain, lanes))
}

/// The built-in type of a word.
pub(super) fn builtin_type(word: &str) -> Option<Ty> {
    if let Some(scalar) = scalar_word(word) {
        return Some(Ty::Scalar(scalar));
    }
    if let Some((scalar, lanes)) = vector_word(word) {
        return Some(Ty::Vec(scalar, lanes));
    }
    if let Some((scalar, lanes)) = word.strip_prefix("packed_").and_then(vector_word) {
        return Some(Ty::Packed(scalar, lanes));
    }
    Some(match word {
        "void" => Ty::Void,
        "atomic_int" => Ty::Atomic(Scalar::Int),
        "atomic_uint" => Ty::Atomic(Scalar::UInt),
        "atomic_float" => Ty::Atomic(Scalar::Float),
        "atomic_bool" => Ty::Atomic(Scalar::Bool),
        "atomic_ulong" => Ty::Atomic(Scalar::ULong),
        "simdgroup_float8x8" => Ty::Simd(Scalar::Float),
        "simdgroup_half8x8" => Ty::Simd(Scalar::Half),
        "simdgroup_bfloat8x8" => Ty::Simd(Scalar::BFloat),
        "mem_flags" => Ty::Enum(0),
        "memory_order" => Ty::Enum(1),
        "thread_scope" => Ty::Enum(2),
        "simd_vote" => Ty::Scalar(Scalar::ULong),
        _ => return None,
    })
}

fn space_word(word: &str) -> Option<Space> {
    Some(match word {
        "device" => Space::Device,
        "constant" => Space::Constant,
        "threadgroup" => Space::Threadgroup,
        "thread" => Space::Thread,
        _ => return None,
    })
}

const QUALIFIERS: &[&str] = &[
    "const",
    "constexpr",
    "static",
    "inline",
    "volatile",
    "unsigned",
    "signed",
    "struct",
    "enum",
    "typename",
    "auto",
    "METAL_FUNC",
    "METAL_CONST",
    "constant",
    "device",
    "threadgroup",
    "thread",
    "vec",
    "array",
    "atomic",
    "simdgroup_matrix",
    "__attribute__",
    "extern",
    "coherent",
];

impl Parser {
    /// Whether a declaration or a type may start `ahead` tokens from here.
    pub(crate) fn is_type_at(&self, ahead: usize) -> bool {
        let mut ahead = ahead;
        // `metal::float4`, `::metal::vec<...>`
        loop {
            let token = self.peek_at(ahead);
            if token.is("::") {
                ahead += 1;
            } else if matches!(&token.tok, Tok::Id(w) if self.is_namespace(w)) && self.peek_at(ahead + 1).is("::") {
                ahead += 2;
            } else {
                break;
            }
        }
        let Tok::Id(word) = &self.peek_at(ahead).tok else { return false };
        match self.lookup(word) {
            Some(Entry::Type(_)) => return !self.peek_at(ahead + 1).is("::"),
            Some(Entry::StructTemplate(_)) => return true,
            Some(_) => return false,
            None => {}
        }
        if matches!(&**word, "vec" | "array" | "atomic" | "simdgroup_matrix") {
            return self.peek_at(ahead + 1).is("<");
        }
        let member = self.peek_at(ahead + 1).is("::");
        if matches!(&**word, "mem_flags" | "memory_order" | "thread_scope") && member {
            return false;
        }
        QUALIFIERS.contains(&&**word) || builtin_type(word).is_some()
    }

    pub(crate) fn is_namespace(&self, word: &str) -> bool {
        matches!(word, "metal" | "fast" | "precise" | "simd") || matches!(self.lookup(word), Some(Entry::Namespace))
    }

    /// Skips `metal::` and the like.
    pub(crate) fn skip_namespaces(&mut self) {
        loop {
            let named = matches!(&self.peek().tok, Tok::Id(w) if self.is_namespace(w));
            if self.is("::") {
                self.p += 1;
            } else if named && self.peek_at(1).is("::") {
                self.p += 2;
            } else {
                return;
            }
        }
    }

    /// `const device float`: qualifiers and one type in any order.
    pub(crate) fn spec(&mut self) -> Res<Spec> {
        let start = self.at();
        let mut spec =
            Spec { ty: Types::VOID, space: None, constant: false, constexpr: false, auto: false, is_static: false };
        let (mut found, mut sign): (Option<Tid>, Option<bool>) = (None, None);
        loop {
            self.skip_namespaces();
            let Tok::Id(word) = &self.peek().tok else { break };
            let word = word.clone();
            let at = self.at();
            if let Some(space) = space_word(&word) {
                if spec.space.is_some_and(|old| old != space) {
                    return fail(at, "multiple address spaces specified for type");
                }
                spec.space = Some(space);
                self.p += 1;
                continue;
            }
            match &*word {
                "const" => spec.constant = true,
                "constexpr" => spec.constexpr = true,
                "static" => spec.is_static = true,
                "inline" | "volatile" | "typename" | "METAL_FUNC" | "METAL_CONST" | "extern" | "coherent" => {}
                "unsigned" => sign = Some(false),
                "signed" => sign = Some(true),
                "__attribute__" => {
                    self.p += 1;
                    self.skip_balanced()?;
                    continue;
                }
                "auto" if found.is_none() => {
                    spec.auto = true;
                    found = Some(Types::VOID);
                }
                "long" | "int" if found.is_some_and(|t| self.long_int(t, &word)) => {}
                _ if found.is_none() && self.is_type_at(0) => {
                    found = Some(self.base_type()?);
                    continue;
                }
                _ => break,
            }
            self.p += 1;
        }
        spec.constant |= spec.constexpr || spec.space == Some(Space::Constant);
        spec.ty = match (found, sign) {
            (Some(ty), Some(false)) => match self.types.get(ty) {
                Ty::Scalar(s) if s.is_int() => Types::scalar_id(s.unsigned()),
                _ => return fail(start, "'unsigned' does not fit this type"),
            },
            (Some(ty), _) => ty,
            (None, Some(signed)) => Types::scalar_id(if signed { Scalar::Int } else { Scalar::UInt }),
            (None, None) => return self.no_type(),
        };
        Ok(spec)
    }

    /// `long int`, `short int`, `long long`: a second word that changes nothing.
    fn long_int(&self, ty: Tid, word: &str) -> bool {
        match self.types.get(ty) {
            Ty::Scalar(Scalar::Long) => true,
            Ty::Scalar(Scalar::Short) => word == "int",
            _ => false,
        }
    }

    fn no_type<T>(&self) -> Res<T> {
        let token = self.peek();
        match &token.tok {
            Tok::Id(word) if &**word == "double" => fail(token.at, "'double' is not supported in Metal"),
            Tok::Id(word) => fail(token.at, format!("unknown type name '{word}'")),
            _ => fail(token.at, format!("expected a type before '{}'", token.text())),
        }
    }

    fn base_type(&mut self) -> Res<Tid> {
        let (word, at) = self.word()?;
        match self.lookup(&word) {
            Some(&Entry::Type(ty)) => return Ok(ty),
            Some(&Entry::StructTemplate(template)) => return self.struct_of_template(template, at),
            _ => {}
        }
        match &*word {
            "simd_vote" if self.is("::") && self.peek_at(1).is_word("vote_t") => self.p += 2,
            "struct" => return self.struct_type(),
            "enum" => return self.enum_type(at),
            "vec" | "array" | "atomic" | "simdgroup_matrix" => return self.library_template(&word, at),
            _ => {}
        }
        let Some(ty) = builtin_type(&word) else { return fail(at, format!("unknown type name '{word}'")) };
        let bfloat = matches!(ty, Ty::Scalar(Scalar::BFloat) | Ty::Vec(Scalar::BFloat, _) | Ty::Simd(Scalar::BFloat));
        if bfloat && self.version < 31 {
            return fail(at, format!("unknown type name '{word}' (bfloat needs Metal 3.1)"));
        }
        Ok(self.types.id(ty))
    }

    fn library_template(&mut self, word: &str, at: Pos) -> Res<Tid> {
        self.require("<")?;
        let of = self.type_name()?;
        let ty = match word {
            "atomic" => {
                let Ty::Scalar(scalar) = self.types.get(of) else { return fail(at, "invalid type of an atomic") };
                Ty::Atomic(scalar)
            }
            "simdgroup_matrix" => {
                self.require(",")?;
                let rows = self.constant_int()?;
                self.require(",")?;
                let columns = self.constant_int()?;
                match self.types.get(of) {
                    Ty::Scalar(scalar) if scalar.is_float() && rows == 8 && columns == 8 => Ty::Simd(scalar),
                    _ => return fail(at, "simdgroup_matrix is 8 x 8 of half, bfloat or float"),
                }
            }
            "vec" => {
                self.require(",")?;
                if let Some(param) = self.eat_param_value() {
                    let Ty::Param(index) = self.types.get(of) else { return fail(at, "cannot deduce 'vec'") };
                    Ty::VecParam(index, param + 8)
                } else {
                    self.vec_of(of, at)?
                }
            }
            _ => {
                self.require(",")?;
                let count = self.constant_int()?;
                self.array_of(of, count, at)?
            }
        };
        self.require(">")?;
        Ok(self.types.id(ty))
    }

    fn vec_of(&mut self, of: Tid, at: Pos) -> Res<Ty> {
        let lanes = self.constant_int()?;
        match self.types.get(of) {
            Ty::Scalar(scalar) if (2..=4).contains(&lanes) => Ok(Ty::Vec(scalar, lanes as u8)),
            Ty::Scalar(scalar) if lanes == 1 => Ok(Ty::Scalar(scalar)),
            Ty::Param(index) if (1..=4).contains(&lanes) => Ok(Ty::VecParam(index, lanes as u32)),
            _ => fail(at, "vec<T, N> needs a scalar type and 1 to 4 elements"),
        }
    }

    /// A template's integer parameter whose value is not known yet.
    fn eat_param_value(&mut self) -> Option<u32> {
        let Tok::Id(word) = &self.peek().tok else { return None };
        let Some(&Entry::ParamValue(index)) = self.lookup(word) else { return None };
        self.p += 1;
        Some(index)
    }

    pub(crate) fn array_of(&mut self, of: Tid, count: i64, at: Pos) -> Res<Ty> {
        let size = self.types.size(of).saturating_mul(u64::try_from(count).unwrap_or(u64::MAX));
        if count < 1 {
            return fail(at, format!("array of {count} elements"));
        }
        if size > 1 << 30 {
            return fail(at, "array is too large");
        }
        Ok(Ty::Array(of, count as u32))
    }

    /// A type without a name: of a cast, of `sizeof`, of a template's argument.
    pub(crate) fn type_name(&mut self) -> Res<Tid> {
        let spec = self.spec()?;
        let declared = self.declarator(&spec)?;
        if let Some(name) = declared.name {
            return fail(declared.at, format!("unexpected name '{name}' in a type"));
        }
        Ok(declared.ty)
    }

    /// `* const p`, `&r`, `a[4][N]`.
    pub(crate) fn declarator(&mut self, spec: &Spec) -> Res<Declared> {
        let mut declared = Declared {
            name: None,
            at: self.at(),
            ty: spec.ty,
            reference: false,
            space: spec.space,
            constant: spec.constant,
        };
        while self.eat("*") {
            let to_space = declared.space.unwrap_or(Space::Thread);
            if spec.auto {
                return fail(declared.at, "'auto *' is not supported: write 'auto'");
            }
            declared.ty = self.types.ptr(declared.ty, to_space, declared.constant);
            (declared.space, declared.constant) = (None, false);
            self.pointer_qualifiers(&mut declared);
        }
        let wrapped = self.is("(") && self.peek_at(1).is("&");
        if wrapped {
            self.p += 1;
        }
        if self.eat("&") {
            declared.reference = true;
            self.eat_word("__restrict");
        }
        declared.at = self.at();
        if let Tok::Id(word) = &self.peek().tok {
            declared.name = Some(word.clone());
            self.p += 1;
        }
        if wrapped {
            self.require(")")?;
        }
        declared.ty = self.array_suffix(declared.ty)?;
        Ok(declared)
    }

    fn pointer_qualifiers(&mut self, declared: &mut Declared) {
        while let Tok::Id(word) = &self.peek().tok {
            match &**word {
                "const" => declared.constant = true,
                "volatile" | "__restrict" | "restrict" | "__restrict__" => {}
                other => match space_word(other) {
                    Some(space) => declared.space = Some(space),
                    None => return,
                },
            }
            self.p += 1;
        }
    }

    fn array_suffix(&mut self, of: Tid) -> Res<Tid> {
        if !self.is("[") || self.peek_at(1).is("[") {
            return Ok(of);
        }
        self.enter()?;
        let at = self.at();
        self.p += 1;
        if self.eat("]") {
            // The length comes from the initialiser; 0 stands for it until then.
            let inner = self.array_suffix(of)?;
            self.leave();
            return Ok(self.types.id(Ty::Array(inner, 0)));
        }
        let param = self.eat_param_value();
        let count = if param.is_some() { 1 } else { self.constant_int()? };
        self.require("]")?;
        let inner = self.array_suffix(of)?;
        self.leave();
        let ty = match param {
            Some(index) => Ty::ArrayParam(inner, index),
            None => self.array_of(inner, count, at)?,
        };
        Ok(self.types.id(ty))
    }
}
