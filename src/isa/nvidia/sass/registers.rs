//! Which fields of a form contain register numbers. Computed when the table is built, so that `effects` is fast.
//!
//! Place in the architecture: between the table's rows and `effects`. Left out: the number of registers of some
//! operands of matrix and bulk operations, which `effects` derives from their modifiers.

use super::row::{Bits, Field, FieldAccess, Index, Key, Kind, Pipe, Role};

/// How an operand names registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Naming {
    /// No registers; the end of the list.
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

/// How many registers an operand has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    One,
    Two,
    Four,
    /// One; two for operations on pairs, which some chips have.
    Arithmetic,
    /// As the modifier in that field says.
    Size(u8),
    /// Depends on other fields.
    Asked,
}

/// A register operand. Every form reserves room for the maximum number, so it is kept small.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    pub naming: Naming,
    pub write: bool,
    /// The field whose zero means that the operand is unused.
    pub unless: u8,
    pub count: Count,
    /// Position of its value.
    pub at: Bits,
    /// The form's field of its value; of its base register, uniform register and base's width, where it has them.
    pub field: u8,
    pub register: u8,
    pub uniform: u8,
    pub suffix: u8,
}

const _: () = assert!(size_of::<Named>() <= 14);

/// No such field.
pub(super) const ABSENT: u8 = u8::MAX;

const NOTHING: Named = Named {
    naming: Naming::Nothing,
    write: false,
    unless: ABSENT,
    count: Count::One,
    at: Bits::NONE,
    field: ABSENT,
    register: ABSENT,
    uniform: ABSENT,
    suffix: ABSENT,
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

/// The operands of a form that name registers, in the order of the text; `operands` are their fields.
pub(super) const fn named<const N: usize>(
    mnemonic: &str,
    name: &str,
    pipe: Pipe,
    fields: &[Field],
    operands: &[u8; N],
) -> [Named; N] {
    let (mut out, mut count, mut i) = ([NOTHING; N], 0, 0);
    while i < N && operands[i] != ABSENT {
        let field = &fields[operands[i] as usize];
        let slot = field.slot;
        let naming = naming(field.kind);
        let may = matches!(field.access, FieldAccess::MayRead);
        let unless = if may { meaning(mnemonic, slot, fields) } else { ABSENT };
        // The predicate of HFMA2 is unused without .RELU.
        let dead = may && matches!(slot.as_bytes(), b"pr") && unless == ABSENT;
        if !matches!(naming, Naming::Nothing) && !dead {
            out[count] = Named {
                naming,
                write: matches!(field.access, FieldAccess::Writes),
                unless,
                count: match naming {
                    Naming::General | Naming::Uniform => registers(mnemonic, name, pipe, slot, fields),
                    Naming::Bindless => Count::Two,
                    _ => Count::One,
                },
                at: field.place(),
                field: operands[i],
                register: of_key(fields, field.key.with(Role::Register)),
                uniform: of_key(fields, field.key.with(Role::Uniform)),
                suffix: of_key(fields, field.key.with(Role::RegisterSuffix)),
            };
            count += 1;
        }
        i += 1;
    }
    out
}

/// Whether one of the operands may name uniform registers.
pub(super) const fn any_uniform(named: &[Named]) -> bool {
    let mut i = 0;
    while i < named.len() {
        match named[i].naming {
            Naming::Uniform | Naming::IndexUniform | Naming::Bindless => return true,
            Naming::Address if named[i].uniform != ABSENT => return true,
            _ => i += 1,
        }
    }
    false
}

/// The field that says whether an operand is used: carry-in predicates need .X, the predicate of HFMA2 needs .RELU, the
/// cache hint of a bulk copy its flag.
const fn meaning(mnemonic: &str, slot: &str, fields: &[Field]) -> u8 {
    let carries = matches!(mnemonic.as_bytes(), b"IADD3" | b"IMAD" | b"LEA" | b"UIADD3" | b"UIMAD" | b"ULEA");
    let compares = matches!(mnemonic.as_bytes(), b"ISETP" | b"UISETP");
    match slot.as_bytes() {
        b"pp" if carries => place(fields, "x", Role::Value),
        b"pq" if carries || compares => place(fields, "x", Role::Value),
        b"pr" => place(fields, "relu", Role::Value),
        b"ud" => place(fields, "dc", Role::Value),
        _ => ABSENT,
    }
}

/// Operations with operands whose number of registers depends on other fields.
const fn asked(mnemonic: &str) -> bool {
    matches!(
        mnemonic.as_bytes(),
        b"UIADD3"
            | b"CS2R"
            | b"CS2UR"
            | b"UMOV"
            | b"USEL"
            | b"UIMNMX"
            | b"UISETP"
            | b"LEPC"
            | b"MATCH"
            | b"LDSM"
            | b"STSM"
            | b"F2F"
            | b"FRND"
            | b"F2I"
            | b"I2F"
            | b"HMMA"
            | b"QMMA"
            | b"IMMA"
            | b"BMMA"
            | b"DMMA"
            | b"HGMMA"
            | b"IGMMA"
            | b"QGMMA"
            | b"BGMMA"
            | b"SYNCS"
            | b"RET"
            | b"CALL"
            | b"BRX"
            | b"BRXU"
            | b"UBLKCP"
            | b"UBLKRED"
            | b"UBLKPF"
            | b"UTMALDG"
            | b"UTMASTG"
            | b"UTMAREDG"
            | b"UTMAPF"
    )
}

/// How many registers an operand has.
const fn registers(mnemonic: &str, name: &str, pipe: Pipe, slot: &str, fields: &[Field]) -> Count {
    if matches!(pipe, Pipe::Alu | Pipe::Fma | Pipe::Imad | Pipe::Half) && !matches!(mnemonic.as_bytes(), b"CS2R") {
        return Count::Arithmetic;
    }
    let loads = matches!(mnemonic.as_bytes(), b"LDG" | b"LD" | b"LDS" | b"LDL" | b"LDC" | b"ULDC" | b"LDCU" | b"LDGMC");
    let stores = matches!(
        mnemonic.as_bytes(),
        b"STG" | b"ST" | b"STS" | b"STL" | b"ATOM" | b"ATOMG" | b"REDG" | b"RED" | b"ATOMS" | b"STAS" | b"REDAS"
    );
    let described = matches!(
        mnemonic.as_bytes(),
        b"LDG" | b"LD" | b"STG" | b"ST" | b"ATOM" | b"ATOMG" | b"REDG" | b"RED" | b"LDGSTS" | b"LDGMC"
    );
    let size = match place(fields, "sz", Role::Value) {
        ABSENT => Count::One,
        field => Count::Size(field),
    };
    match slot.as_bytes() {
        // 32 bytes are in two runs of registers.
        b"d" | b"d2" | b"b" | b"b2" if matches!(name.as_bytes(), b"X2D") => Count::Four,
        b"d" | b"d2" | b"b" | b"b2" if matches!(name.as_bytes(), b"X2M") => Count::Asked,
        b"a" if matches!(mnemonic.as_bytes(), b"UGETNEXTWORKID") => Count::Two,
        b"d" | b"c" if matches!(mnemonic.as_bytes(), b"IMAD" | b"UIMAD") && begins(name, "WIDE") => Count::Two,
        _ if matches!(mnemonic.as_bytes(), b"DADD" | b"DMUL" | b"DFMA" | b"DSETP") => Count::Two,
        b"d" if matches!(mnemonic.as_bytes(), b"ATOMS") && matches!(name.as_bytes(), b"ARRIVE") => Count::Two,
        b"d" if loads => size,
        b"b" | b"c" | b"d" if stores => size,
        b"u" if described => Count::Two,
        _ if asked(mnemonic) => Count::Asked,
        _ => Count::One,
    }
}

pub(super) const fn place(fields: &[Field], slot: &str, role: Role) -> u8 {
    of_key(fields, Key::of(slot, role))
}

#[allow(clippy::cast_possible_truncation)] // a form has fewer than 64 fields
const fn of_key(fields: &[Field], key: Key) -> u8 {
    let mut k = 0;
    while k < fields.len() {
        if fields[k].key.is(key) {
            return k as u8;
        }
        k += 1;
    }
    ABSENT
}

const fn begins(text: &str, with: &str) -> bool {
    let (text, with, mut i) = (text.as_bytes(), with.as_bytes(), 0);
    while i < text.len() && i < with.len() && text[i] == with[i] {
        i += 1;
    }
    i == with.len()
}
