//! Barriers in shared memory (SYNCS, ARRIVES), and stores to other CTAs whose bytes they count (STAS, REDAS).
//!
//! The word, by the value that ptxas stores to initialise it for `n` arrivals, low `(2^20 - n) << 1` and high `(2^20 -
//! n) << 11`: bits 20:1 keep the first count for the next phase, 42:21 are the bytes that are expected, 62:43 count up
//! the arrivals that are pending, 63 is the phase's parity. Before sm_90 (ATOMS.ARRIVE): low `2^30 - n`, high `2^31 -
//! n`, which counts up and carries into the parity. (ptxas takes a state's pending arrivals from 62:43.) Copies are
//! done at once here, so a phase that waits for bytes alone is over when the wait begins.

use super::atomic;
use super::core::Core;
use super::fault::{R, not_modelled};
use super::lower::Run;
use super::memory::{Size, addresses, cluster_cta, stored};
use super::operand::Fields;
use super::shared::Who;
use super::warp::ones;

pub(super) fn lower(f: Fields) -> R<Option<Run>> {
    Ok(Some(match (f.0.form().mnemonic, f.0.form().name) {
        ("SYNCS", "EXCH") => exchange(f)?,
        ("SYNCS", "ARRIVE") => arrive(f)?,
        ("SYNCS", "PHASECHK") => check(f)?,
        ("SYNCS", "CCTL" | "CCTLALL") => Box::new(|_| Ok(())),
        ("ATOMS", "ARRIVE") => count(f)?,
        ("ARRIVES", _) => copies_arrive(f)?,
        ("STAS", _) => store(f)?,
        ("REDAS", _) => reduce(f)?,
        _ => return Ok(None),
    }))
}

const COUNT: u64 = (1 << 20) - 1;
const BYTES: u64 = (1 << 22) - 1;

/// An mbarrier's word.
#[derive(Clone, Copy)]
struct Word {
    pending: u64,
    bytes: u64,
    first: u64,
    phase: u64,
}

impl Word {
    fn parse(w: u64) -> Word {
        Word { first: w >> 1 & COUNT, bytes: w >> 21 & BYTES, pending: w >> 43 & COUNT, phase: w >> 63 }
    }

    fn emit(self) -> u64 {
        self.first << 1 | self.bytes << 21 | self.pending << 43 | self.phase << 63
    }

    /// Arrivals and bytes; the phase ends when nothing is pending.
    fn change(self, arrivals: u64, expected: u64, delivered: u64) -> Word {
        let pending = (self.pending + arrivals) & COUNT;
        let bytes = self.bytes.wrapping_add(expected).wrapping_sub(delivered) & BYTES;
        match pending == 0 && bytes == 0 {
            true => Word { pending: self.first, bytes, phase: self.phase ^ 1, ..self },
            false => Word { pending, bytes, ..self },
        }
    }
}

/// Changes an mbarrier; returns the old word. The end of a phase orders shared memory.
fn update(c: &mut Core, at: u64, change: impl Fn(Word) -> Word) -> R<u64> {
    let cta = cluster_cta(c, at)?;
    let mut ended = false;
    let old = cta.update(at as u32 & 0xff_ffff, 8, |w| {
        let (old, new) = (Word::parse(w), change(Word::parse(w)));
        ended = old.phase != new.phase;
        new.emit()
    })?;
    if ended {
        c.ctas.iter_mut().for_each(super::shared::Cta::order);
    }
    Ok(old)
}

/// An arrival by the word of chips before sm_90; returns the old one.
fn count_up(c: &mut Core, at: u64) -> R<u64> {
    const COUNT: u32 = (1 << 31) - 1;
    let mut ended = false;
    let old = c.cta().update(at as u32 & 0xff_ffff, 8, |w| {
        let (low, high) = (w as u32, ((w >> 32) as u32).wrapping_add(1));
        ended = high & COUNT == 0;
        let next = if ended { high | (low | 1 << 30) & COUNT } else { high };
        u64::from(next) << 32 | u64::from(low)
    })?;
    if ended {
        c.ctas.iter_mut().for_each(super::shared::Cta::order);
    }
    Ok(old)
}

/// ATOMS.ARRIVE.64.
fn count(f: Fields) -> R<Run> {
    let (d, m) = (f.dst()?, f.address("m")?);
    Ok(Box::new(move |c| {
        let (at, mut old) = (addresses(c, &m, false), [0; 32]);
        for lane in ones(c.lanes) {
            old[lane] = count_up(c, at[lane])?;
        }
        c.write_pairs(d, &old);
        Ok(())
    }))
}

/// Bytes that a bulk copy has delivered.
pub(super) fn deliver(c: &mut Core, at: u64, bytes: u64) -> R<()> {
    update(c, at, |w| w.change(0, 0, bytes)).map(drop)
}

/// How it is initialised.
fn exchange(f: Fields) -> R<Run> {
    let (d, m, b) = (f.dst()?, f.address("m")?, f.src("b")?);
    Ok(Box::new(move |c| {
        let (at, new) = (addresses(c, &m, false)[0], c.raw_pairs(&b)?[0]);
        let mut old = [0; 8];
        let cta = cluster_cta(c, at)?;
        // The old content does not matter: the word is written first.
        cta.write(at as u32 & 0xff_ffff, &new.to_le_bytes(), Who::Unordered)?;
        cta.read(at as u32 & 0xff_ffff, &mut old, Who::Unordered)?;
        c.write_pairs(d, &[u64::from_le_bytes(old); 32]);
        Ok(())
    }))
}

fn arrive(f: Fields) -> R<Run> {
    let (d, m, b, kind) = (f.dst()?, f.address("m")?, f.src("b")?, f.text("at"));
    // Arrivals with a promised count complete no phase: the state is that before all of them, with the lanes in its low
    // word, to which ptxas's code adds what the lanes below have brought.
    let together = f.text("tm") == ".TMASK";
    if !matches!(f.text("tm"), "" | ".RED" | ".TMASK") {
        return not_modelled(format!("SYNCS.ARRIVE{}", f.text("tm")));
    }
    let drops = f.has("oo");
    Ok(Box::new(move |c| {
        let (at, operand) = (addresses(c, &m, false), c.raw(&b)?);
        let mut old = [0; 32];
        for lane in ones(c.lanes) {
            let n = u64::from(operand[lane]);
            old[lane] = update(c, at[lane], |w| {
                let w = if drops { Word { first: (w.first + 1) & COUNT, ..w } } else { w };
                match kind {
                    ".A1T0" => w.change(1, 0, 0),
                    ".ART0" => w.change(n, 0, 0),
                    ".A0TR" => w.change(0, n, 0),
                    ".A0TX" | ".A0T1" => w.change(0, 0, n),
                    _ => w.change(1, n, 0),
                }
            })?;
        }
        if together {
            let mates = |lane: usize| ones(c.lanes).filter(move |other| at[*other] == at[lane]);
            let before = old;
            for lane in ones(c.lanes) {
                let first = mates(lane).next().unwrap_or(lane);
                old[lane] = before[first] >> 32 << 32 | mates(lane).fold(0, |mask, other| mask | 1 << other);
            }
        }
        c.write_pairs(d, &old);
        Ok(())
    }))
}

/// Whether the phase of the parity in bit 31 is over.
fn check(f: Fields) -> R<Run> {
    let (pu, m, b) = (f.pdst("pu"), f.address("m")?, f.src("b")?);
    Ok(Box::new(move |c| {
        let (at, parity) = (addresses(c, &m, false), c.raw(&b)?);
        let mut over = 0;
        for lane in ones(c.lanes) {
            let mut word = [0; 8];
            let cta = cluster_cta(c, at[lane])?;
            cta.read(at[lane] as u32 & 0xff_ffff, &mut word, Who::Unordered)?;
            let phase = Word::parse(u64::from_le_bytes(word)).phase;
            over |= u32::from(phase != u64::from(parity[lane] >> 31)) << lane;
        }
        c.set_pred(pu, over);
        Ok(())
    }))
}

/// Copies by LDGSTS arrive when they are done, which is at once. Without a count of their own they add to the pending
/// arrivals first.
fn copies_arrive(f: Fields) -> R<Run> {
    let (m, kind) = (f.address("m")?, f.text("c"));
    Ok(Box::new(move |c| {
        let at = addresses(c, &m, false);
        if c.machine.launch.chip.is_before_hopper() {
            for lane in ones(c.lanes) {
                count_up(c, at[lane])?;
            }
            return Ok(());
        }
        for lane in ones(if kind == ".ARVCNT" { c.lanes } else { 0 }) {
            update(c, at[lane], |w| w.change(1, 0, 0))?;
        }
        Ok(())
    }))
}

/// STAS: words to shared memory of the cluster; the address is in the low word of a pair, the mbarrier in the high one.
fn store(f: Fields) -> R<Run> {
    let (b, m, size) = (f.register("b")?, f.address("m")?, Size::of(f.text("sz")));
    Ok(Box::new(move |c| {
        let at = addresses(c, &m, true);
        for lane in ones(c.lanes) {
            let bytes = stored(c, b, lane);
            cluster_cta(c, at[lane] & 0xffff_ffff)?.write(
                at[lane] as u32 & 0xff_ffff,
                &bytes[..size.len],
                Who::Unordered,
            )?;
            deliver(c, at[lane] >> 32, size.len as u64)?;
        }
        Ok(())
    }))
}

/// REDAS: the same, combined with what is there.
fn reduce(f: Fields) -> R<Run> {
    let (b, m, size, name) = (f.register("b")?, f.address("m")?, Size::of(f.text("sz")), f.text("op"));
    let signed = f.text("sz").starts_with(".S");
    let Some(op) = atomic::operation(name, signed) else { return not_modelled(format!("REDAS{name}")) };
    Ok(Box::new(move |c| {
        let at = addresses(c, &m, true);
        for lane in ones(c.lanes) {
            let mut word = [0; 8];
            word[..size.len].copy_from_slice(&stored(c, b, lane)[..size.len]);
            let (operand, bits) = (u64::from_le_bytes(word), 8 * size.len as u32);
            let cta = cluster_cta(c, at[lane] & 0xffff_ffff)?;
            cta.update(at[lane] as u32 & 0xff_ffff, size.len, |old| op(old, operand, bits))?;
            deliver(c, at[lane] >> 32, size.len as u64)?;
        }
        Ok(())
    }))
}
