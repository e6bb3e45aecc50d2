//! Special registers, and instructions that order memory, which is in order here anyway.

use super::core::Core;
use super::fault::{FaultKind, R, fail, not_modelled};
use super::lower::Run;
use super::memory::LOCAL_WINDOW;
use super::operand::{Dst, Fields};
use super::warp::Lanes;
use doorbell_ptx::sass::SmArch;

/// Whether an instruction changes nothing here: memory is coherent and in order; scoreboards are strict mode's.
pub(super) fn is_nothing(f: Fields) -> bool {
    matches!(
        f.0.form().mnemonic,
        "NOP"
            | "MEMBAR"
            | "ERRBAR"
            | "CGAERRBAR"
            | "FENCE"
            | "CCTL"
            | "DEPBAR"
            | "LDGDEPBAR"
            | "PREEXIT"
            | "ACQBULK"
            | "YIELD"
            | "NANOSLEEP"
            | "ENDCOLLECTIVE"
            | "PMTRIG"
            | "UTMACMDFLUSH"
            | "UTMACCTL"
            | "UTMAPF"
            | "UBLKPF"
    )
}

pub(super) fn lower(f: Fields) -> R<Option<Run>> {
    Ok(Some(match f.0.form().mnemonic {
        "S2R" | "S2UR" | "CS2R" | "CS2UR" => special(f)?,
        "LEPC" => code_address(f)?,
        _ if is_nothing(f) => Box::new(|_| Ok(())),
        "BPT" => Box::new(|_| fail(FaultKind::Trap)),
        "BMOV" => convergence(f)?,
        "RPCMOV" => returning(f)?,
        "B2R" => reduced(f)?,
        "USETMAXREG" => set_registers(f),
        _ => return Ok(None),
    }))
}

/// What a special register reads as.
#[derive(Clone, Copy)]
enum Special {
    Lane,
    /// Warps that there may be on a multiprocessor.
    Warps,
    WarpId,
    Tid(usize),
    Ctaid(usize),
    SharedBytes,
    SharedWindow,
    /// Lanes below, up to, ... the own one: the mask of lane 0 shifted.
    Eq,
    Lt,
    Le,
    Gt,
    Ge,
    Clock(u32),
    /// Where local memory begins in its window.
    LocalOffset,
    Rank,
    /// 1 in a cluster, else 0: code of sm_120 finds the launch constants for CTAs of clusters that many times 160 bytes
    /// lower.
    InCluster,
    Warpgroup,
    Zero,
}

impl Special {
    fn of(number: u64) -> Option<Special> {
        Some(match number {
            0 => Special::Lane,
            2 => Special::Warps,
            3 => Special::WarpId,
            33..=35 => Special::Tid(number as usize - 33),
            37..=39 => Special::Ctaid(number as usize - 37),
            47 => Special::SharedWindow,
            50 => Special::SharedBytes,
            56 => Special::Eq,
            57 => Special::Lt,
            58 => Special::Le,
            59 => Special::Gt,
            60 => Special::Ge,
            80 | 82 => Special::Clock(0),
            81 | 83 => Special::Clock(32),
            135 => Special::Warpgroup,
            136 => Special::Rank,
            138 => Special::InCluster,
            55 => Special::LocalOffset,
            // Performance counters count nothing.
            48 | 54 | 67 | 100..=115 | 255 => Special::Zero,
            _ => return None,
        })
    }

    fn read(self, c: &Core) -> Lanes {
        let cta = &c.ctas[c.warp.cta];
        let mask = |f: fn(u32) -> u32| std::array::from_fn(|lane| f(lane as u32));
        match self {
            Special::Lane => mask(|lane| lane),
            // CUDA's guide: by compute capability.
            Special::Warps => match c.machine.launch.chip {
                SmArch::Sm80 | SmArch::Sm90 => [64 << 8; 32],
                SmArch::Sm86 | SmArch::Sm89 | SmArch::Sm120 => [48 << 8; 32],
            },
            Special::WarpId => [c.warp.number << 8; 32],
            Special::Tid(axis) => c.warp.tid[axis],
            Special::Ctaid(axis) => [cta.index[axis]; 32],
            Special::SharedBytes => [cta.shared_bytes(); 32],
            Special::SharedWindow => [(c.machine.options.shared_window >> 32) as u32; 32],
            Special::Eq => mask(|lane| 1 << lane),
            Special::Lt => mask(|lane| (1 << lane) - 1),
            Special::Le => mask(|lane| ((2u64 << lane) as u32).wrapping_sub(1)),
            Special::Gt => mask(|lane| !((1u64 << (lane + 1)) - 1) as u32),
            Special::Ge => mask(|lane| !((1 << lane) - 1)),
            Special::Clock(shift) => [(c.warp.clock >> shift) as u32; 32],
            Special::LocalOffset => [LOCAL_WINDOW as u32 - c.machine.launch.local_bytes; 32],
            Special::Rank => [cta.rank; 32],
            Special::InCluster => [u32::from(c.machine.launch.cluster != [1; 3]); 32],
            Special::Warpgroup => [c.warp.number / 4; 32],
            Special::Zero => [0; 32],
        }
    }
}

/// A special register, or a pair of them.
fn special(f: Fields) -> R<Run> {
    let (d, number) = (f.dst()?, f.bits("s"));
    let wide = matches!(f.0.form().mnemonic, "CS2R" | "CS2UR") && f.text("w").is_empty();
    let name = f.text("s");
    let Some(low) = Special::of(number) else { return not_modelled(format!("special register {name}")) };
    let high = if wide && number != 255 { Special::of(number + 1) } else { Some(Special::Zero) };
    let Some(high) = high else { return not_modelled(format!("special register after {name}")) };
    Ok(Box::new(move |c| {
        let values = low.read(c);
        c.write(d, &values);
        if wide {
            let values = high.read(c);
            match d {
                Dst::R(255) | Dst::U(255) => {}
                Dst::R(r) => c.write(Dst::R(r + 1), &values),
                Dst::U(u) => c.write(Dst::U(u + 1), &values),
            }
        }
        Ok(())
    }))
}

/// LEPC: its own address; from sm_90 on, that of a place by its distance from the next instruction.
fn code_address(f: Fields) -> R<Run> {
    let distance = if f.0.operand("t").is_some() { 16 + super::flow::distance(f)? } else { 0 };
    let d = f.dst()?;
    Ok(Box::new(move |c| {
        let at = c.pc.wrapping_add_signed(distance);
        c.write_pairs(d, &[at; 32]);
        Ok(())
    }))
}

/// BMOV: a convergence barrier's lanes to or from a register.
fn convergence(f: Fields) -> R<Run> {
    let b = (f.bits("b") & 15) as usize;
    if f.0.form().name == "BR" {
        let a = f.src("a")?;
        return Ok(Box::new(move |c| {
            let values = c.raw(&a)?;
            super::warp::ones(c.lanes).for_each(|lane| c.warp.converge[b][lane] = values[lane]);
            Ok(())
        }));
    }
    let (d, clear) = (f.dst()?, f.has("cl"));
    Ok(Box::new(move |c| {
        let values = c.warp.converge[b];
        c.write(d, &values);
        if clear {
            super::warp::ones(c.lanes).for_each(|lane| c.warp.converge[b][lane] = 0);
        }
        Ok(())
    }))
}

/// RPCMOV: halves of the return address, where ptxas keeps other values as well.
fn returning(f: Fields) -> R<Run> {
    let half = f.bits("h") as usize & 1;
    if f.0.form().name == "WR" {
        let b = f.src("b")?;
        return Ok(Box::new(move |c| {
            let values = c.raw(&b)?;
            super::warp::ones(c.lanes).for_each(|lane| c.warp.returns[half][lane] = values[lane]);
            Ok(())
        }));
    }
    let d = f.dst()?;
    Ok(Box::new(move |c| {
        let values = c.warp.returns[half];
        c.write(d, &values);
        Ok(())
    }))
}

/// B2R.RESULT: what BAR.RED has left.
fn reduced(f: Fields) -> R<Run> {
    let (d, pu) = (f.dst()?, f.pdst("pu"));
    Ok(Box::new(move |c| {
        let (count, holds) = c.warp.reduced;
        c.write(d, &[count; 32]);
        c.set_pred(pu, if holds { u32::MAX } else { 0 });
        Ok(())
    }))
}

/// Registers given back or taken: there are always enough here.
fn set_registers(f: Fields) -> Run {
    let pu = f.pdst("pu");
    Box::new(move |c| {
        c.set_pred(pu, u32::MAX);
        Ok(())
    })
}
