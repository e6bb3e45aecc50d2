//! Atomics on global, generic and shared memory.
//!
//! Vectors of floats are changed word by word, as the PTX ISA specifies. Exchanges of 128 bits are two of 64 here:
//! atomic as a whole only where no other multiprocessor uses the address at the same time.

use super::bus::Access;
use super::core::Core;
use super::fault::{R, not_modelled};
use super::lower::Run;
use super::memory::{Size, Space, addresses, aligned, cluster_cta, stored, write_words};
use super::operand::{Fields, PDst};
use super::soft::{self, BF16, F16, Round};
use super::warp::ones;

pub(super) fn lower(f: Fields) -> R<Option<Run>> {
    let space = match f.0.form().mnemonic {
        "ATOM" => Space::Generic,
        "ATOMG" | "REDG" | "RED" => Space::Global,
        "ATOMS" => Space::Shared,
        _ => return Ok(None),
    };
    let run = match f.0.form().name {
        // An mbarrier's.
        "ARRIVE" => return Ok(None),
        "INC" => count(f)?,
        "CAS" | "CASP" => compare_and_swap(f, space)?,
        _ if is_float(f.text("sz")) => float(f, space)?,
        _ => integer(f, space)?,
    };
    // The predicate reports completion. On the chip it is false where a generic address is one of shared memory, and
    // the program continues in a loop that does the same; here it is always true.
    let pu = f.pdst("pu");
    if pu.index == 7 || f.0.form().name == "CASP" {
        return Ok(Some(run));
    }
    Ok(Some(Box::new(move |c| {
        run(c)?;
        c.set_pred(pu, u32::MAX);
        Ok(())
    })))
}

/// Whether values of that size are floats.
fn is_float(size: &str) -> bool {
    ["F16", "F32", "F64"].iter().any(|kind| size.contains(kind))
}

/// Changes a word of 4 or 8 bytes.
fn update(c: &mut Core, space: Space, at: u64, len: usize, change: &mut dyn FnMut(u64) -> u64) -> R<u64> {
    let shared_window = c.machine.options.shared_window;
    match space {
        Space::Shared => c.cta().update(at as u32 & 0xff_ffff, len, change),
        Space::Generic if at >> 32 == shared_window >> 32 => {
            cluster_cta(c, at)?.update(at as u32 & 0xff_ffff, len, change)
        }
        _ => {
            aligned("global", at, len)?;
            update_global(c, at, len, change)
        }
    }
}

pub(super) fn update_global(c: &mut Core, at: u64, len: usize, change: &mut dyn FnMut(u64) -> u64) -> R<u64> {
    let bus = c.machine.bus;
    c.sm.tlb.refresh(bus);
    if let Some((view, place)) = c.sm.tlb.range(bus, at, len as u64, Access::Atomic) {
        let old = match len {
            4 => view.fetch_update_u32(place, |old| change(old.into()) as u32).map(u64::from),
            _ => view.fetch_update_u64(place, &mut *change),
        };
        if let Ok(old) = old {
            return Ok(old);
        }
    }
    Ok(bus.update(at, len as u32, change)?)
}

type Op = fn(u64, u64, u32) -> u64;

/// The new value of the old one and the operand.
pub(super) type Update = Box<dyn Fn(u64, u64) -> u64 + Send + Sync>;

/// The new value from the old, the operand and the width in bits, both in the low bits.
pub(super) fn operation(name: &str, signed: bool) -> Option<Op> {
    Some(match (name, signed) {
        (".ADD", _) => |a, b, _| a.wrapping_add(b),
        (".MIN", false) => |a, b, _| a.min(b),
        (".MAX", false) => |a, b, _| a.max(b),
        (".MIN", true) => |a, b, bits| if less(b, a, bits) { b } else { a },
        (".MAX", true) => |a, b, bits| if less(a, b, bits) { b } else { a },
        (".INC", _) => |a, b, _| if a >= b { 0 } else { a + 1 },
        (".DEC", _) => |a, b, _| if a == 0 || a > b { b } else { a - 1 },
        (".AND", _) => |a, b, _| a & b,
        (".OR", _) => |a, b, _| a | b,
        (".XOR", _) => |a, b, _| a ^ b,
        (".EXCH", _) => |_, b, _| b,
        _ => return None,
    })
}

fn less(a: u64, b: u64, bits: u32) -> bool {
    (a << (64 - bits)).cast_signed() < (b << (64 - bits)).cast_signed()
}

fn word(bytes: &[u8]) -> u64 {
    let mut all = [0; 8];
    all[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(all)
}

/// Destination of an atomic's old value; 255 for reductions.
fn old_value(f: Fields) -> R<u8> {
    if f.0.operand("d").is_some() { f.register("d") } else { Ok(255) }
}

fn is_global(space: Space) -> bool {
    space != Space::Shared
}

fn integer(f: Fields, space: Space) -> R<Run> {
    let (d, b, m, size) = (old_value(f)?, f.register("b")?, f.address("m")?, Size::of(f.text("sz")));
    let (name, signed) = (f.text("op"), f.text("sz").starts_with(".S"));
    let Some(op) = operation(name, signed) else { return not_modelled(format!("{}{name}", f.0.form().mnemonic)) };
    if size.len == 16 && name != ".EXCH" {
        return not_modelled(format!("{}{name}.128", f.0.form().mnemonic));
    }
    Ok(Box::new(move |c| {
        let at = addresses(c, &m, is_global(space));
        let mut rows = [[0; 32]; 4];
        for lane in ones(c.lanes) {
            let operand = stored(c, b, lane);
            for (k, part) in operand[..size.len].chunks(8).enumerate() {
                let (b, bits) = (word(part), 8 * part.len() as u32);
                let old = update(c, space, at[lane] + 8 * k as u64, part.len(), &mut |a| op(a, b, bits))?;
                (rows[2 * k][lane], rows[2 * k + 1][lane]) = (old as u32, (old >> 32) as u32);
            }
        }
        write_words(c, d, &rows[..size.len / 4]);
        Ok(())
    }))
}

/// ATOMS.POPC.INC: one for each lane.
fn count(f: Fields) -> R<Run> {
    let m = f.address("m")?;
    if old_value(f)? != 255 {
        return not_modelled("ATOMS.POPC.INC with a result");
    }
    Ok(Box::new(move |c| {
        let at = addresses(c, &m, false);
        for lane in ones(c.lanes) {
            update(c, Space::Shared, at[lane], 4, &mut |a| a.wrapping_add(1) & 0xffff_ffff)?;
        }
        Ok(())
    }))
}

/// CAS returns the old value; CAST whether it was replaced, in a register or in a predicate.
fn compare_and_swap(f: Fields, space: Space) -> R<Run> {
    let pu = if f.0.form().name == "CASP" { f.pdst("pu") } else { PDst { uniform: false, index: 7 } };
    let (d, b, e) = (old_value(f)?, f.register("b")?, f.register("c")?);
    let (m, size, tells) = (f.address("m")?, Size::of(f.text("sz")), f.text("op").starts_with(".CAST"));
    Ok(Box::new(move |c| {
        let at = addresses(c, &m, is_global(space));
        let (mut rows, mut replaced) = ([[0; 32]; 4], 0);
        for lane in ones(c.lanes) {
            let (expected, new) = (stored(c, b, lane), stored(c, e, lane));
            let mut old = [0; 16];
            for (k, part) in old[..size.len].chunks_mut(8).enumerate() {
                let len = part.len();
                let (want, new) = (word(&expected[8 * k..8 * k + len]), word(&new[8 * k..8 * k + len]));
                let both = size.len < 16;
                let change = &mut |a: u64| if both && a == want { new } else { a };
                let was = update(c, space, at[lane] + 8 * k as u64, len, change)?;
                part.copy_from_slice(&was.to_le_bytes()[..len]);
            }
            let equal = old[..size.len] == expected[..size.len];
            if size.len == 16 && equal {
                for k in 0..2 {
                    let new = word(&new[8 * k..8 * k + 8]);
                    update(c, space, at[lane] + 8 * k as u64, 8, &mut |_| new)?;
                }
            }
            for (k, part) in old.chunks_exact(4).enumerate() {
                rows[k][lane] = if tells { u32::from(equal && k == 0) } else { word(part) as u32 };
            }
            replaced |= u32::from(equal) << lane;
        }
        write_words(c, d, &rows[..size.len / 4]);
        c.set_pred(pu, replaced);
        Ok(())
    }))
}

/// A float format of an atomic: how many words, and the operation on one.
fn float(f: Fields, space: Space) -> R<Run> {
    let (d, b, m) = (old_value(f)?, f.register("b")?, f.address("m")?);
    let (kind, name) = (f.text("sz"), f.text("op"));
    let (words, len) = match kind {
        k if k.contains("F64") => (1, 8),
        k if k.contains("16x4") || k.contains("F32x2") => (2, 4),
        k if k.contains("16x8") || k.contains("F32x4") => (4, 4),
        _ => (1, 4),
    };
    let ftz = kind.contains("FTZ");
    let op: Box<dyn Fn(u64, u64) -> u64 + Send + Sync> = match kind {
        k if k.contains("F64") && name == ".ADD" => Box::new(|a, b| (f64::from_bits(a) + f64::from_bits(b)).to_bits()),
        k if k.contains("F32") && name == ".ADD" => Box::new(move |a, b| {
            let (x, y) = (f32::from_bits(a as u32), f32::from_bits(b as u32));
            let clean = |v: f32| if ftz { super::float::flush(v) } else { v };
            clean(clean(x) + clean(y)).to_bits().into()
        }),
        k if k.contains("16x") => {
            let format = if k.contains("BF16") { BF16 } else { F16 };
            let name = name.to_owned();
            Box::new(move |a, b| {
                let one = |shift: u32| {
                    let (x, y) = (soft::widen(a >> shift & 0xffff, format), soft::widen(b >> shift & 0xffff, format));
                    let r = match &*name {
                        ".MIN" => x.min(y),
                        ".MAX" => x.max(y),
                        _ => soft::sum_to_odd(x, y),
                    };
                    soft::narrow(r, format, Round::Nearest)
                };
                one(0) | one(16) << 16
            })
        }
        _ => return not_modelled(format!("{}{name}{kind}", f.0.form().mnemonic)),
    };
    Ok(Box::new(move |c| {
        let at = addresses(c, &m, is_global(space));
        let mut rows = [[0; 32]; 4];
        for lane in ones(c.lanes) {
            let operand = stored(c, b, lane);
            for k in 0..words {
                let b = word(&operand[len * k..len * k + len]);
                let old = update(c, space, at[lane] + (len * k) as u64, len, &mut |a| op(a, b))?;
                rows[k][lane] = old as u32;
                if len == 8 {
                    rows[1][lane] = (old >> 32) as u32;
                }
            }
        }
        write_words(c, d, &rows[..words * len / 4]);
        Ok(())
    }))
}
