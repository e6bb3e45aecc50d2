//! Single precision as nodes: rounded to nearest, neither clamped nor scaled, each as the function of the same
//! instruction in `float` and `convert` computes it.

use super::super::float::Mode;
use super::super::lower::name;
use super::super::operand::{Fields, In};
use super::super::soft::Round;
use super::integer::{compared, set_compared, signed};
use super::state::State;
use doorbell_uop::{DType, Op, Scalar, UOp};

/// Adds an instruction; None where it has no nodes, and then nothing was written.
pub(super) fn add(s: &mut State, f: Fields) -> Option<()> {
    match name(f) {
        "FADD" => arithmetic(s, f, ["a", "c"], |v| v[0].binary(Op::Add, &v[1])),
        "FMUL" if f.text("scale").is_empty() => arithmetic(s, f, ["a", "b"], |v| v[0].binary(Op::Mul, &v[1])),
        "FFMA" => {
            arithmetic(s, f, ["a", "b", "c"], |v| UOp::alu(Op::MulAcc, [v[0].clone(), v[1].clone(), v[2].clone()]))
        }
        "FSETP" => setp(s, f),
        "FMNMX" => minmax(s, f),
        "FSEL" => select(s, f),
        "I2F" | "I2FP" => from_integer(s, f),
        _ => None,
    }
}

fn float(v: &UOp) -> UOp {
    v.bitcast(v.dtype().with_scalar(Scalar::F32))
}

fn bits(v: &UOp) -> UOp {
    v.bitcast(v.dtype().with_scalar(Scalar::U32))
}

/// A source's bits with its sign and absolute value.
fn source(s: &mut State, i: &In) -> Option<UOp> {
    let mut v = s.raw(i)?;
    if i.abs {
        v = v.and(&s.word(0x7fff_ffff));
    }
    Some(if i.neg { v.binary(Op::Xor, &s.word(1 << 31)) } else { v })
}

/// A zero of its sign for what is denormal.
fn flushed(s: &State, v: &UOp) -> UOp {
    let small = v.and(&s.word(0x7f80_0000)).equal(&s.word(0));
    small.select(&v.and(&s.word(1 << 31)), v)
}

/// The one "not a number" that results are.
fn canonical(s: &State, v: &UOp) -> UOp {
    let value = float(v);
    value.ne(&value).select(&s.word(0x7fff_ffff), v)
}

fn arithmetic<const N: usize>(s: &mut State, f: Fields, slots: [&str; N], op: fn(&[UOp]) -> UOp) -> Option<()> {
    let mode = Mode::of(f);
    if mode.round != Round::Nearest || mode.sat || mode.fmz {
        return None;
    }
    let mut values = Vec::new();
    for slot in slots {
        let v = source(s, &f.src(slot).ok()?)?;
        values.push(float(&if mode.ftz { flushed(s, &v) } else { v }));
    }
    let r = bits(&op(&values));
    let r = if mode.ftz { flushed(s, &r) } else { r };
    let r = canonical(s, &r);
    s.write(f.dst().ok()?, r)
}

fn operands(s: &mut State, f: Fields, ftz: bool) -> Option<[UOp; 2]> {
    let (a, b) = (source(s, &f.src("a").ok()?)?, source(s, &f.src("b").ok()?)?);
    Some(if ftz { [flushed(s, &a), flushed(s, &b)] } else { [a, b] })
}

fn setp(s: &mut State, f: Fields) -> Option<()> {
    let [a, b] = operands(s, f, Mode::of(f).ftz)?.map(|v| float(&v));
    let result = compared(f.bits("cmp"), a.lt(&b), a.equal(&b), b.lt(&a));
    set_compared(s, f, result)
}

fn minmax(s: &mut State, f: Fields) -> Option<()> {
    if f.has("xor") || Mode::of(f).sat {
        return None;
    }
    let min = s.predicate(f.psrc("pp"))?;
    let [x, y] = operands(s, f, Mode::of(f).ftz)?;
    // Order of the bits as numbers, so that -0 comes before +0.
    let key = |s: &State, v: &UOp| {
        let v = signed(v);
        let sign = v.binary(Op::Shr, &signed(&s.word(31)));
        v.binary(Op::Xor, &sign.and(&signed(&s.word(0x7fff_ffff))))
    };
    let less = key(s, &x).lt(&key(s, &y));
    let (least, most) = (less.select(&x, &y), less.select(&y, &x));
    let picked = min.pick(least, most);
    let (fx, fy) = (float(&x), float(&y));
    // A number beats "not a number", or the other way round.
    let (of_x, of_y) = if f.has("nan") { (&x, &y) } else { (&y, &x) };
    let number = fy.ne(&fy).select(of_y, &fx.ne(&fx).select(of_x, &picked));
    let r = canonical(s, &number);
    s.write(f.dst().ok()?, r)
}

fn select(s: &mut State, f: Fields) -> Option<()> {
    let p = s.predicate(f.psrc("pp"))?;
    let (a, b) = (source(s, &f.src("a").ok()?)?, source(s, &f.src("b").ok()?)?);
    let r = p.pick(a, b);
    let r = if f.has("ftz") { flushed(s, &r) } else { r };
    s.write(f.dst().ok()?, r)
}

/// An integer of 32 bits to single precision.
fn from_integer(s: &mut State, f: Fields) -> Option<()> {
    let b = f.src("b").ok()?;
    let to_single = !matches!(f.text("dt"), ".F16" | ".BF16" | ".F64");
    if !to_single || !b.select.is_empty() || Round::of(f.text("rnd")) != Round::Nearest {
        return None;
    }
    let v = s.raw(&b)?;
    let lanes = v.dtype().lanes;
    let r = match f.text("st") {
        "" | ".S32" => signed(&v).cast(DType::F32.vec(lanes)),
        // By a double, which holds it exactly.
        ".U32" => v.cast(DType::I64.vec(lanes)).cast(DType::F64.vec(lanes)).cast(DType::F32.vec(lanes)),
        _ => return None,
    };
    s.write(f.dst().ok()?, bits(&r))
}
