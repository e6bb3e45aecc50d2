//! What each instruction does, on one thread's bits.

use super::{Bits, Block, Memory, Opd, Step};
use doorbell::isa::ptx::{Opcode, Space, Type};
use half::{bf16, f16};

type Res<T> = Result<T, String>;

/// The low bits of a type, sign-extended if it is signed.
fn read(t: Type, b: Bits) -> Bits {
    match t {
        Type::S8 => i64::from(b as i8).cast_unsigned(),
        Type::S16 => i64::from(b as i16).cast_unsigned(),
        Type::S32 => i64::from(b as i32).cast_unsigned(),
        _ => b & mask(t),
    }
}

fn mask(t: Type) -> Bits {
    match t.bits() {
        64.. => u64::MAX,
        n => (1 << n) - 1,
    }
}

fn f32_of(b: Bits) -> f32 {
    f32::from_bits(b as u32)
}

fn f64_of(b: Bits) -> f64 {
    f64::from_bits(b)
}

/// A float of any type, exactly.
pub fn float(t: Type, b: Bits) -> f64 {
    match t {
        Type::F16 => f16::from_bits(b as u16).to_f64(),
        Type::Bf16 => bf16::from_bits(b as u16).to_f64(),
        Type::F32 => f64::from(f32_of(b)),
        Type::Tf32 => f64::from(f32_of(b & !0x1fff)),
        Type::E4m3 | Type::E5m2 => eight(t, b as u8),
        _ => f64_of(b),
    }
}

/// A float of eight bits (OCP OFP8): e4m3 without infinities, e5m2 as the upper half of an f16.
fn eight(t: Type, b: u8) -> f64 {
    if t == Type::E5m2 {
        return f16::from_bits(u16::from(b) << 8).to_f64();
    }
    let (exponent, mantissa) = (i32::from(b >> 3 & 15), f64::from(b & 7));
    let size = match (exponent, b & 7) {
        (15, 7) => f64::NAN,
        (0, _) => mantissa * 2f64.powi(-9),
        _ => (8.0 + mantissa) * 2f64.powi(exponent - 10),
    };
    if b >> 7 == 1 { -size } else { size }
}

/// Rounds to nearest even, once. (`half` rounds an f64 through its upper bits: through an f32 rounded to odd instead.)
pub fn round(t: Type, v: f64) -> Bits {
    let odd = || {
        let near = v as f32;
        let cut = u32::from(f64::from(near).abs() > v.abs());
        f32::from_bits((near.to_bits() - cut) | u32::from(f64::from(near) != v && !v.is_nan()))
    };
    match t {
        Type::F16 => f16::from_f32(if v.is_nan() { f32::NAN } else { odd() }).to_bits().into(),
        Type::Bf16 => bf16::from_f32(if v.is_nan() { f32::NAN } else { odd() }).to_bits().into(),
        Type::F32 => (v as f32).to_bits().into(),
        _ => v.to_bits(),
    }
}

pub fn step(b: &mut Block, s: &Step, t: usize, mem: &mut Memory) -> Res<()> {
    match s.inst.op {
        Opcode::Ld => return load(b, s, t, mem),
        Opcode::St => return store(b, s, t, mem),
        Opcode::Mov => return mov(b, s, t),
        _ => {}
    }
    let a: Vec<Bits> = s.operands[1..].iter().map(|o| b.get(t, o)).collect::<Res<_>>()?;
    let r = compute(s, &a)?;
    b.set(t, &s.operands[0], r)
}

fn compute(s: &Step, a: &[Bits]) -> Res<Bits> {
    let ty = *s.types.first().ok_or("no type")?;
    Ok(match s.inst.op {
        Opcode::Cvta => a[0],
        Opcode::Cvt if matches!(s.types[0], Type::F16x2 | Type::Bf16x2) => return convert_pair(s, a[0], a[1]),
        Opcode::Cvt => return convert(s, a[0]),
        Opcode::Setp => u64::from(compare(s, ty, a[0], a[1])?),
        Opcode::Selp => {
            if a[2] != 0 {
                a[0] & mask(ty)
            } else {
                a[1] & mask(ty)
            }
        }
        Opcode::Prmt => permute(a[0], a[1], a[2]),
        Opcode::Bfe => (a[0] & mask(ty)) >> a[1] & ((1 << a[2]) - 1),
        Opcode::Mad if s.inst.has("wide") => {
            let product = i128::from(read(ty, a[0]).cast_signed()) * i128::from(read(ty, a[1]).cast_signed());
            (product as i64).cast_unsigned().wrapping_add(a[2])
        }
        op if ty == Type::Pred => match op {
            Opcode::And => a[0] & a[1],
            Opcode::Or => a[0] | a[1],
            Opcode::Xor => a[0] ^ a[1],
            Opcode::Not => a[0] ^ 1,
            _ => return Err("not on predicates".into()),
        },
        op if ty.is_float() => float_op(s, op, ty, a)?,
        op => int_op(op, ty, a)? & mask(ty),
    })
}

fn float_op(s: &Step, op: Opcode, ty: Type, a: &[Bits]) -> Res<Bits> {
    if !s.inst.has("rn") && !matches!(op, Opcode::Neg | Opcode::Max) {
        return Err("an operation that may be contracted".into());
    }
    let v: Vec<f64> = a.iter().map(|b| float(ty, *b)).collect();
    // One rounding: f64 arithmetic on narrower floats is exact enough for each of these but the fused one.
    Ok(match op {
        Opcode::Add => round(ty, v[0] + v[1]),
        Opcode::Sub => round(ty, v[0] - v[1]),
        Opcode::Mul => round(ty, v[0] * v[1]),
        Opcode::Div => round(ty, v[0] / v[1]),
        Opcode::Rcp => round(ty, 1.0 / v[0]),
        Opcode::Sqrt => round(ty, v[0].sqrt()),
        Opcode::Fma if ty == Type::F32 => f32_of(a[0]).mul_add(f32_of(a[1]), f32_of(a[2])).to_bits().into(),
        Opcode::Fma => round(ty, v[0].mul_add(v[1], v[2])),
        Opcode::Neg => (a[0] ^ 1 << (ty.bits() - 1)) & mask(ty),
        Opcode::Max => {
            let nan = v.iter().any(|x| x.is_nan());
            match nan && s.inst.has("NaN") {
                true => round(ty, f64::NAN),
                false => round(ty, v[0].max(v[1])),
            }
        }
        _ => return Err("not on floats".into()),
    })
}

fn int_op(op: Opcode, ty: Type, a: &[Bits]) -> Res<Bits> {
    let (x, y) = (read(ty, a[0]), a.get(1).map_or(0, |b| read(ty, *b)));
    let signed = ty.is_signed();
    let count = a.get(1).map_or(0, |b| (*b & 0xffff_ffff).min(u64::from(ty.bits())) as u32);
    let wide = |f: fn(i128, i128) -> i128| {
        let value = |b: u64| if signed { i128::from(b.cast_signed()) } else { i128::from(b) };
        f(value(x), value(y)) as u64
    };
    Ok(match op {
        Opcode::Add => x.wrapping_add(y),
        Opcode::Sub => x.wrapping_sub(y),
        Opcode::Mul => x.wrapping_mul(y),
        Opcode::Mad => x.wrapping_mul(y).wrapping_add(a[2]),
        Opcode::Neg => x.wrapping_neg(),
        Opcode::And => x & y,
        Opcode::Or => x | y,
        Opcode::Xor => x ^ y,
        Opcode::Max => wide(i128::max),
        Opcode::Div | Opcode::Rem if y == 0 => return Err("division by zero".into()),
        Opcode::Div => wide(|a, b| a / b),
        Opcode::Rem => wide(|a, b| a % b),
        Opcode::Shl => u128::from(x).checked_shl(count).map_or(0, |v| v as u64),
        Opcode::Shr if signed => (i128::from(x.cast_signed()) >> count) as u64,
        Opcode::Shr => (u128::from(x) >> count) as u64,
        _ => return Err("not known to this interpreter".into()),
    })
}

fn compare(s: &Step, ty: Type, a: Bits, b: Bits) -> Res<bool> {
    if ty.is_float() {
        let (x, y) = (float(ty, a), float(ty, b));
        return Ok(match () {
            () if s.inst.has("lt") => x < y,
            () if s.inst.has("eq") => x == y,
            () if s.inst.has("neu") => x != y,
            () if s.inst.has("nan") => x.is_nan() || y.is_nan(),
            () => return Err("comparison not known".into()),
        });
    }
    let order = match ty.is_signed() {
        true => read(ty, a).cast_signed().cmp(&read(ty, b).cast_signed()),
        false => read(ty, a).cmp(&read(ty, b)),
    };
    Ok(match () {
        () if s.inst.has("lt") => order.is_lt(),
        () if s.inst.has("le") => order.is_le(),
        () if s.inst.has("eq") => order.is_eq(),
        () if s.inst.has("ne") => order.is_ne(),
        () => return Err("comparison not known".into()),
    })
}

/// Four selectors of four bits: a byte of both words, or copies of its sign.
fn permute(a: Bits, b: Bits, select: Bits) -> Bits {
    let bytes = b << 32 | a & 0xffff_ffff;
    (0..4).fold(0, |word, k| {
        let nibble = select >> (4 * k) & 15;
        let byte = bytes >> (8 * (nibble & 7)) & 0xff;
        let byte = if nibble & 8 == 0 { byte } else { (byte >> 7) * 0xff };
        word | byte << (8 * k)
    })
}

/// Two f32, rounded to halves of a word: the first one becomes the upper half.
fn convert_pair(s: &Step, high: Bits, low: Bits) -> Res<Bits> {
    let half = if s.types[0] == Type::F16x2 { Type::F16 } else { Type::Bf16 };
    if s.types[1] != Type::F32 || !s.inst.has("rn") {
        return Err("a pair of halves is rounded from f32".into());
    }
    let [high, low] = [high, low].map(|x| round(half, float(Type::F32, x)));
    Ok(high << 16 | low)
}

fn convert(s: &Step, x: Bits) -> Res<Bits> {
    let (to, from) = (s.types[0], s.types[1]);
    match (to.is_float(), from.is_float()) {
        (true, true) => {
            let v = float(from, x);
            let rounds = to.bits() < from.bits();
            match (s.inst.has("rzi"), s.inst.has("rn")) {
                (true, _) if to == from => Ok(round(to, v.trunc())),
                (false, rn) if rn == rounds => Ok(round(to, v)),
                _ => Err("rounding is missing or not allowed".into()),
            }
        }
        (false, true) => {
            let v = float(from, x);
            if !s.inst.has("rzi") {
                return Err("rounding is missing".into());
            }
            let wide = to.bits() == 64 || from == Type::F64;
            Ok(mask(to)
                & match to {
                    _ if v.is_nan() => {
                        if wide {
                            1 << (to.bits() - 1)
                        } else {
                            0
                        }
                    }
                    Type::S32 => i64::from(v as i32).cast_unsigned(),
                    Type::U32 => u64::from(v as u32),
                    Type::S64 => (v as i64).cast_unsigned(),
                    Type::U64 => v as u64,
                    _ => return Err("conversion not known".into()),
                })
        }
        (true, false) => {
            let (i, u) = (read(from, x).cast_signed(), read(from, x));
            Ok(match (to, from.is_signed()) {
                (Type::F32, true) => (i as f32).to_bits().into(),
                (Type::F32, false) => (u as f32).to_bits().into(),
                (Type::F64, true) => (i as f64).to_bits(),
                (Type::F64, false) => (u as f64).to_bits(),
                _ => return Err("conversion not known".into()),
            })
        }
        (false, false) => {
            let v = read(from, x);
            match s.inst.has("sat") {
                true if !from.is_signed() => Ok(v.min(mask(to))),
                true => Err("conversion not known".into()),
                false => Ok(v & mask(to)),
            }
        }
    }
}

fn mov(b: &mut Block, s: &Step, t: usize) -> Res<()> {
    let ty = s.types[0];
    match (&s.operands[0], &s.operands[1]) {
        (Opd::Vector(to), from) => {
            let (v, each) = (b.get(t, from)?, ty.bits() / to.len() as u32);
            for (k, o) in to.iter().enumerate() {
                b.set(t, o, v >> (k as u32 * each) & ((1 << each) - 1))?;
            }
            Ok(())
        }
        (to, Opd::Vector(from)) => {
            let each = ty.bits() / from.len() as u32;
            let mut v = 0;
            for (k, o) in from.iter().enumerate() {
                v |= (b.get(t, o)? & ((1 << each) - 1)) << (k as u32 * each);
            }
            b.set(t, to, v)
        }
        (to, from) => {
            let v = b.get(t, from)?;
            b.set(t, to, if ty == Type::Pred { u64::from(v != 0) } else { v & mask(ty) })
        }
    }
}

fn lanes(o: &Opd) -> Vec<Opd> {
    if let Opd::Vector(v) = o { v.clone() } else { vec![o.clone()] }
}

fn load(b: &mut Block, s: &Step, t: usize, mem: &mut Memory) -> Res<()> {
    let ty = s.types[0];
    let (to, at) = (lanes(&s.operands[0]), b.address(t, &s.operands[1])?);
    let size = ty.bits() as usize / 8;
    let len = size * to.len();
    if to.len() != usize::from(s.inst.vector()) {
        return Err("lanes and registers differ".into());
    }
    let bytes = match s.inst.space() {
        Some(Space::Param) => {
            b.args.get(((at - super::PARAM) / 8) as usize).ok_or("no such parameter")?.to_le_bytes()[..size].to_vec()
        }
        Some(Space::Global) => {
            mem.counts.global_read += len as u64;
            mem.global(at, len)?.to_vec()
        }
        Some(Space::Shared) => {
            mem.touched.push((t, at, len));
            mem.read_shared(at, len, t)?
        }
        _ => return Err("space not known".into()),
    };
    for (o, chunk) in to.iter().zip(bytes.chunks(size)) {
        let mut word = [0u8; 8];
        word[..size].copy_from_slice(chunk);
        let v = read(ty, u64::from_le_bytes(word));
        // A register has 32 bits at least where the type is an integer.
        b.set(t, o, if size < 8 { v & 0xffff_ffff } else { v })?;
    }
    Ok(())
}

fn store(b: &mut Block, s: &Step, t: usize, mem: &mut Memory) -> Res<()> {
    let ty = s.types[0];
    let (at, from) = (b.address(t, &s.operands[0])?, lanes(&s.operands[1]));
    let size = ty.bits() as usize / 8;
    if from.len() != usize::from(s.inst.vector()) {
        return Err("lanes and registers differ".into());
    }
    let mut bytes = vec![];
    for o in &from {
        bytes.extend_from_slice(&b.get(t, o)?.to_le_bytes()[..size]);
    }
    match s.inst.space() {
        Some(Space::Global) => mem.global(at, bytes.len())?.copy_from_slice(&bytes),
        Some(Space::Shared) => {
            mem.touched.push((t, at, bytes.len()));
            mem.write_shared(at, &bytes, t)?;
        }
        _ => return Err("space not known".into()),
    }
    Ok(())
}

/// `mma.sync.aligned`: m16n8k16 with f32 sums of f16 or bf16 products, m16n8k32 with s32 sums of bytes or f32 sums of
/// fp8, m16n8k8 of tf32: the fragments of PTX ISA 9.7.14.5.8 and 9.7.14.5.10.
pub fn mma(b: &mut Block, s: &Step) -> Res<()> {
    let (t, acc) = (s.types[1], s.types[0]);
    let whole = acc == Type::S32 && matches!(t, Type::S8 | Type::U8);
    let bytes = s.inst.has("m16n8k32") && (whole || acc == Type::F32 && matches!(t, Type::E4m3 | Type::E5m2));
    let halves = s.inst.has("m16n8k16") && acc == Type::F32 && matches!(t, Type::F16 | Type::Bf16);
    let words = s.inst.has("m16n8k8") && acc == Type::F32 && t == Type::Tf32;
    if !bytes && !halves && !words || !b.threads.is_multiple_of(32) {
        return Err("not known to this interpreter".into());
    }
    // Elements a register; a register more is eight rows down or as many steps further as all lanes of a row hold.
    let per = if bytes { 4 } else { 1 + usize::from(halves) };
    let steps = 8 * per;
    let value = |bits: u64| if whole { read(t, bits).cast_signed() as f64 } else { float(t, bits) };
    let [d, a, w, c] = s.operands.as_slice() else { return Err("four operands".into()) };
    let (d, a, w, c) = (lanes(d), lanes(a), lanes(w), lanes(c));
    for warp in (0..b.threads).step_by(32) {
        let (mut ma, mut mb, mut mc) = ([[0f64; 32]; 16], [[0f64; 8]; 32], [[0f64; 8]; 16]);
        for lane in 0..32 {
            let (group, part) = (lane / 4, lane % 4);
            let element = |o: &Opd, i: usize| -> Res<f64> {
                let bits = b.get(warp + lane, o)? >> (32 / per * (i % per));
                Ok(value(bits & (u64::MAX >> (64 - 32 / per))))
            };
            for i in 0..4 * per {
                let (row, half) = (group + 8 * (i / per % 2), i / (2 * per));
                ma[row][part * per + i % per + half * steps / 2] = element(&a[i / per], i)?;
            }
            for i in 0..2 * per {
                mb[part * per + i % per + i / per * steps / 2][group] = element(&w[i / per], i)?;
            }
            for i in 0..4 {
                let bits = b.get(warp + lane, &c[i])?;
                let sum = if whole { read(acc, bits).cast_signed() as f64 } else { float(acc, bits) };
                mc[group + 8 * (i / 2)][part * 2 + (i & 1)] = sum;
            }
        }
        for lane in 0..32 {
            let (group, part) = (lane / 4, lane % 4);
            for (i, to) in d.iter().enumerate() {
                let (row, col) = (group + 8 * (i / 2), part * 2 + (i & 1));
                let sum: f64 = mc[row][col] + (0..steps).map(|k| ma[row][k] * mb[k][col]).sum::<f64>();
                let bits = if whole { u64::from((sum as i64 as i32).cast_unsigned()) } else { round(acc, sum) };
                b.set(warp + lane, to, bits)?;
            }
        }
    }
    Ok(())
}

/// Lanes of each warp that there are, as a mask, by warp.
fn existing(b: &Block) -> Vec<(usize, u32)> {
    let of = |first: usize| (first, u32::MAX >> (32 - (b.threads - first).min(32)));
    (0..b.threads).step_by(32).map(of).collect()
}

/// All threads of a warp come to it together.
pub fn active(b: &mut Block, s: &Step) -> Res<()> {
    for (first, mask) in existing(b) {
        for t in first..(first + 32).min(b.threads) {
            b.set(t, &s.operands[0], u64::from(mask))?;
        }
    }
    Ok(())
}

/// Threads of a warp exchange registers: each reads the one whose number differs by the mask.
pub fn shuffle(b: &mut Block, s: &Step) -> Res<()> {
    let [to, from, step, limit, members] = s.operands.as_slice() else { return Err("five operands".into()) };
    if !s.inst.has("sync") || !s.inst.has("bfly") || s.types[0] != Type::B32 || s.guard.is_some() {
        return Err("not known to this interpreter".into());
    }
    for (first, there) in existing(b) {
        let threads = first..(first + 32).min(b.threads);
        let all: Vec<Bits> = threads.clone().map(|t| b.get(t, from)).collect::<Res<_>>()?;
        for (lane, t) in threads.enumerate() {
            let named = b.get(t, members)? as u32;
            if named & there != there || named != there && named != u32::MAX {
                return Err(format!("thread {t} waits for {named:#x} of {there:#x}"));
            }
            if b.get(t, limit)? != 31 {
                return Err("parts of a warp are not known to this interpreter".into());
            }
            let at = lane ^ b.get(t, step)? as usize;
            let v = all.get(at).ok_or(format!("thread {t} reads lane {at}, which is not there"))?;
            b.set(t, to, v & mask(Type::B32))?;
        }
    }
    Ok(())
}
