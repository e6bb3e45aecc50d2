//! Where a form's word names registers: found when the table is made, so that what an instruction reads and writes is asked of nothing else.
//!
//! Place in the arrows: between the table's rows and `effects`. Left out: how many registers an operand has, which other fields decide.

use super::row::{Field, FieldAccess, Index, Kind, Role};

/// How an operand names registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Naming {
    /// It names none: so do all behind it.
    Nothing,
    General,
    Uniform,
    Predicate,
    UniformPredicate,
    PredicateInverted,
    UniformPredicateInverted,
    EitherPredicate,
    /// A constant's index.
    IndexGeneral,
    IndexUniform,
    Bindless,
    Address,
}

/// An operand that names registers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    pub naming: Naming,
    pub access: FieldAccess,
    /// The form's field of its value; of its base register, uniform register and base's width, where it has them.
    pub field: u8,
    pub register: u8,
    pub uniform: u8,
    pub suffix: u8,
    /// It is one register, but for chips with arithmetic on pairs.
    pub single: bool,
}

/// No such field.
pub(super) const ABSENT: u8 = u8::MAX;

const NOTHING: Named = Named {
    naming: Naming::Nothing,
    access: FieldAccess::Reads,
    field: ABSENT,
    register: ABSENT,
    uniform: ABSENT,
    suffix: ABSENT,
    single: true,
};

const fn naming(kind: Kind) -> Naming {
    match kind {
        Kind::R => Naming::General,
        Kind::UR => Naming::Uniform,
        Kind::P => Naming::Predicate,
        Kind::UP => Naming::UniformPredicate,
        Kind::PInverted => Naming::PredicateInverted,
        Kind::UPInverted => Naming::UniformPredicateInverted,
        Kind::EitherP => Naming::EitherPredicate,
        Kind::Constant(Index::Register) => Naming::IndexGeneral,
        Kind::Constant(Index::Uniform) => Naming::IndexUniform,
        Kind::Bindless => Naming::Bindless,
        Kind::Address(_) => Naming::Address,
        _ => Naming::Nothing,
    }
}

/// The operands of a form that name registers, in the order of the text; `operands` are their fields, of which each is `single` or not.
#[allow(clippy::cast_possible_truncation)] // a form has fewer than 64 fields
pub(super) const fn named<const N: usize>(fields: &[Field], operands: &[u8; N], single: bool) -> [Named; N] {
    let (mut out, mut count, mut i) = ([NOTHING; N], 0, 0);
    while i < N && operands[i] != ABSENT {
        let field = &fields[operands[i] as usize];
        let naming = naming(field.kind);
        if !matches!(naming, Naming::Nothing) {
            let (mut register, mut uniform, mut suffix, mut k) = (ABSENT, ABSENT, ABSENT, 0);
            while k < fields.len() {
                match fields[k].role {
                    Role::Register if same(fields[k].slot, field.slot) => register = k as u8,
                    Role::Uniform if same(fields[k].slot, field.slot) => uniform = k as u8,
                    Role::RegisterSuffix if same(fields[k].slot, field.slot) => suffix = k as u8,
                    _ => {}
                }
                k += 1;
            }
            let (access, field) = (field.access, operands[i]);
            out[count] = Named { naming, access, field, register, uniform, suffix, single };
            count += 1;
        }
        i += 1;
    }
    out
}

pub(super) const fn same(a: &str, b: &str) -> bool {
    let (a, b, mut i) = (a.as_bytes(), b.as_bytes(), 0);
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}
