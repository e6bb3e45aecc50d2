//! Latencies: when a result may be used. Fixed distances, scoreboards, minimum stalls.
//!
//! The hardware has no interlock for fixed-latency results: the sum of the stalls between producer and consumer must
//! reach the distance. Results of variable latency set a scoreboard, for which the consumer waits. There are two
//! figures for each pair: the smallest distance that ptxas 13.5.37 left in 65,008 instructions, and a safe one, the
//! larger of that and the published tables for sm_90 (cicuvc/nvidia-sass-document). On an H100 the tensor suite agrees
//! with numpy under these distances; none was measured by itself. Left out: an addend may come up to two cycles later,
//! register banks, the reuse cache.

use super::chip::SmArch;
use super::effects::{Access, Effects, RegFile, Slot};
use super::inst::Instruction;
use super::mods;
use super::row::{Modifier, Pipe, Role};

/// Cycles from a producer's issue to its consumer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Distance {
    /// The smallest that ptxas leaves, where it was seen; else the safe one.
    pub seen: u8,
    /// The distance that our scheduler keeps.
    pub safe: u8,
}

const fn both(seen: u8, safe: u8) -> Distance {
    Distance { seen, safe }
}

const fn same(cycles: u8) -> Distance {
    both(cycles, cycles)
}

/// How completion of an instruction is detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// After [`distance`].
    Fixed,
    /// Through the write scoreboard; instructions of one pipe complete in order.
    Scoreboard,
    /// Through groups: WARPGROUP.DEPBAR, the mbarrier of a bulk copy.
    Group,
}

/// After the instruction that sets a scoreboard, the first that waits for it issues this many cycles later.
pub(crate) const SCOREBOARD_SET: u8 = 2;

/// DEPBAR checks scoreboards later in its own cycles: before sm_90 ptxas leaves one cycle between S2UR and it.
pub(super) const SCOREBOARD_SET_FOR_DEPBAR: u8 = 1;

/// A producer's row of the table.
const fn row(pipe: Pipe) -> Option<usize> {
    Some(match pipe {
        Pipe::Alu => 0,
        Pipe::Fma => 1,
        Pipe::Imad => 2,
        Pipe::ImadWide => 3,
        Pipe::Half => 4,
        Pipe::Double => 5,
        Pipe::HalfMma => 6,
        Pipe::Mma => 7,
        Pipe::Elect => 8,
        _ => return None,
    })
}

/// Columns: ALU, FMA and IMAD, IMAD.WIDE, 16-bit, double, 16-bit .MMA, memory and MUFU, matrices, branches.
#[rustfmt::skip]
static RESULTS: [[Distance; 9]; 9] = [
    [both(4, 6), both(5, 6), both(5, 6), both(4, 6), same(6), same(6), both(4, 8), same(7), both(4, 6)],
    [same(5), same(4), both(4, 6), both(5, 6), same(6), same(6), both(4, 8), same(7), same(6)],
    [same(5), both(4, 6), both(4, 6), both(5, 6), same(6), same(6), both(4, 8), same(7), both(4, 6)],
    [both(3, 5), both(2, 6), both(4, 6), same(6), same(6), same(6), both(4, 8), same(7), same(6)],
    [same(5), same(5), both(5, 6), both(4, 5), same(6), same(6), both(4, 8), same(7), both(4, 6)],
    [same(10), same(10), same(10), same(10), same(8), same(10), both(6, 10), same(11), same(10)],
    [same(10), same(10), same(10), same(10), same(8), same(8), both(6, 10), same(11), both(6, 10)],
    [both(16, 28), both(16, 28), both(16, 28), both(16, 28), same(28), same(28), both(12, 28), both(14, 28), same(28)],
    [same(13), same(13), same(13), same(13), same(13), same(13), same(13), same(13), same(13)],
];

/// The row of the matrix shapes of 24 cycles.
static LONG_MMA: [Distance; 9] = {
    let far = both(24, 28);
    [far, far, far, far, same(28), same(28), both(23, 28), same(28), same(28)]
};

fn column(pipe: Pipe) -> usize {
    match pipe {
        Pipe::Alu | Pipe::Elect | Pipe::Nop => 0,
        Pipe::Fma | Pipe::Imad => 1,
        Pipe::ImadWide => 2,
        Pipe::Half => 3,
        Pipe::Double => 4,
        Pipe::HalfMma => 5,
        Pipe::Mma | Pipe::DoubleMma | Pipe::Gmma => 7,
        Pipe::Branch => 8,
        _ => 6,
    }
}

/// Whether the instruction reads or feeds vector arithmetic.
fn is_arithmetic(pipe: Pipe) -> bool {
    column(pipe) < 6
}

fn is_uniform(pipe: Pipe) -> bool {
    matches!(pipe, Pipe::Uniform | Pipe::UniformMove)
}

/// The distance between a register's producer and a consumer of it; both must be of fixed latency or the consumer of
/// any.
#[must_use]
pub fn distance(producer: &Instruction, written: &Access, consumer: &Instruction, read: &Access) -> Distance {
    let (from, to) = (producer.form().pipe, consumer.form().pipe);
    match written.file {
        RegFile::General if written.count == 2 && producer.form().mnemonic == "CS2R" => both(5, 10),
        // The program counter; calls by address add to it.
        RegFile::General if producer.form().mnemonic == "LEPC" && producer.chip().is_before_hopper() => both(9, 15),
        RegFile::General => general(producer, from, to, read.slot == Slot::C),
        RegFile::Predicate => predicate(producer, consumer, read),
        RegFile::Uniform => uniform(from, to),
        RegFile::UniformPredicate => uniform_predicate(from, to, read),
    }
}

fn general(producer: &Instruction, from: Pipe, to: Pipe, addend: bool) -> Distance {
    let Some(row) = row(from) else {
        return both(11, 15);
    };
    match (from, to) {
        (Pipe::Mma, Pipe::Mma) if addend && is_long(producer) => both(24, 28),
        (Pipe::Mma, Pipe::Mma) if addend => both(14, 28),
        // The smallest integer shapes, of bytes, four bits and single bits, complete sooner.
        (Pipe::Mma, _)
            if [mods::sh::_8816, mods::sh::_8832, mods::sh::_88128].iter().any(|m| producer.says(*m))
                && column(to) < 4 =>
        {
            both(13, 28)
        }
        // ptxas leaves less between two of them on sm_80 only.
        (Pipe::HalfMma, Pipe::HalfMma) if producer.chip() == SmArch::Sm80 => both(6, 8),
        (Pipe::Mma, _) if is_long(producer) => LONG_MMA[column(to)],
        (Pipe::Half, Pipe::Alu) if producer.form().mnemonic == "VHMNMX" => both(4, 5),
        // The addend is needed later than the factors.
        (Pipe::Alu | Pipe::Imad | Pipe::Fma, Pipe::ImadWide) if addend => {
            let Distance { seen, safe } = RESULTS[row][column(to)];
            both(seen - 2, safe)
        }
        _ => RESULTS[row][column(to)],
    }
}

/// The matrix shapes of 24 cycles.
fn is_long(inst: &Instruction) -> bool {
    let shape = |all: &[Modifier]| all.iter().any(|m| inst.says(*m));
    let halves = inst.form().mnemonic == "HMMA";
    if inst.form().name == "SP" {
        let short = if halves && !inst.says(mods::st::TF32) { mods::sh::_16832 } else { mods::sh::_16816 };
        return shape(&[mods::sh::_16864, short]);
    }
    // Integers of four bits, on chips that multiply them: half as much as bytes of the same shape.
    if shape(&[mods::sh::_16832]) && (inst.says(mods::at::S4) || inst.says(mods::at::U4)) {
        return false;
    }
    let tf32 = inst.says(mods::st::TF32) && !shape(&[mods::sh::_1684]);
    shape(&[mods::sh::_16832, mods::sh::_168256, mods::sh::_16864]) || halves && (shape(&[mods::sh::_16816]) || tf32)
}

fn predicate(producer: &Instruction, consumer: &Instruction, read: &Access) -> Distance {
    let to = consumer.form().pipe;
    // Votes read predicates late, like guards: an H100 that is given 5 cycles votes on the old value.
    let votes = consumer.form().mnemonic.starts_with("VOTE");
    let double = producer.form().pipe == Pipe::Double;
    let carry = matches!(producer.form().pipe, Pipe::Imad | Pipe::ImadWide);
    match () {
        () if producer.form().pipe == Pipe::Elect => same(13),
        () if double && to == Pipe::Double && read.slot != Slot::GUARD => both(6, 14),
        () if read.slot == Slot::GUARD || votes || !is_arithmetic(to) || to == Pipe::Double => {
            same(if double { 14 } else { 13 })
        }
        () if double => same(6),
        () if carry => both(4, 9),
        () => both(4, 5),
    }
}

fn uniform(from: Pipe, to: Pipe) -> Distance {
    match (from, to) {
        (Pipe::RegToUniform, to) if is_uniform(to) => same(13),
        (Pipe::RegToUniform, _) => both(13, 15),
        (Pipe::UniformMove, to) if is_uniform(to) => same(2),
        (Pipe::UniformMove, Pipe::Gmma) => both(2, 8),
        (Pipe::UniformMove, Pipe::Bulk) => both(2, 7),
        (Pipe::UniformMove, _) => both(2, 5),
        (_, Pipe::Uniform) => same(4),
        (_, Pipe::UniformMove) => both(4, 12),
        (_, Pipe::Gmma) => both(9, 12),
        (_, to) if is_arithmetic(to) => both(6, 12),
        _ => both(6, 12),
    }
}

fn uniform_predicate(from: Pipe, to: Pipe, read: &Access) -> Distance {
    match (from, to) {
        (Pipe::UniformMove, Pipe::Branch) => same(2),
        (Pipe::UniformMove, _) => both(1, 5),
        (_, Pipe::Branch) => same(9),
        (_, Pipe::Gmma) => both(11, 15),
        (_, Pipe::Uniform) if read.slot != Slot::GUARD => both(4, 6),
        (_, to) if is_arithmetic(to) && read.slot != Slot::GUARD => both(6, 11),
        _ => same(11),
    }
}

/// How the results of an instruction are waited for.
#[must_use]
pub fn completion(inst: &Instruction) -> Completion {
    let form = inst.form();
    match form.pipe {
        // On these chips double precision is a unit that several partitions share.
        Pipe::Double if matches!(inst.chip(), SmArch::Sm86 | SmArch::Sm89 | SmArch::Sm120) => Completion::Scoreboard,
        Pipe::RegToUniform if inst.chip().is_before_hopper() => Completion::Scoreboard,
        Pipe::Gmma | Pipe::Bulk => Completion::Group,
        Pipe::Xu | Pipe::Shared | Pipe::Global | Pipe::Constant | Pipe::DoubleMma => Completion::Scoreboard,
        Pipe::Misc
            if matches!(form.mnemonic, "S2R" | "S2UR" | "SHFL" | "MATCH" | "REDUX" | "SYNCS" | "B2R" | "FENCE") =>
        {
            Completion::Scoreboard
        }
        // The high half of a 64-bit address or counter comes from memory like the rest of them.
        _ if form.mnemonic == "USETMAXREG" => Completion::Scoreboard,
        // To and from barrier registers.
        _ if form.mnemonic == "BMOV" => Completion::Scoreboard,
        _ => Completion::Fixed,
    }
}

/// Whether its only result is a predicate that is there once its sources have been read: atomics on generic addresses
/// tell so whether the address is one of global memory. ptxas has the branch on it wait for the sources' scoreboard.
#[must_use]
pub fn delivers_with_reads(inst: &Instruction, effects: &Effects) -> bool {
    let predicates = || effects.writes.iter().all(|w| w.file == RegFile::Predicate);
    inst.form().mnemonic == "ATOM" && inst.control.write.is_none() && !effects.writes.is_empty() && predicates()
}

/// Estimated latency of an instruction without a fixed one, if nothing delays it. Only scheduling order and estimates
/// depend on it.
#[must_use]
pub const fn guessed_latency(pipe: Pipe) -> u16 {
    match pipe {
        Pipe::Global => 300,
        Pipe::Shared => 30,
        Pipe::Constant => 40,
        _ => 24,
    }
}

/// Whether sources are read late, so that an instruction that overwrites them must wait for a read scoreboard (or for
/// the write scoreboard).
#[must_use]
pub fn reads_late(inst: &Instruction) -> bool {
    let late = completion(inst) == Completion::Scoreboard || inst.form().pipe == Pipe::Bulk;
    late && inst
        .form()
        .fields
        .iter()
        .any(|f| matches!(f.role, Role::Value | Role::Register | Role::Uniform) && f.slot != "d")
}

/// Whether shared memory's queue has certainly read its sources after this instruction: a barrier that waits, before
/// sm_90.
///
/// Source: ptxas 13.5.37, which there overwrites addresses of LDS and ATOMS after a barrier without waiting for a
/// scoreboard, and nowhere else.
#[must_use]
pub fn ends_shared_reads(inst: &Instruction) -> bool {
    let form = inst.form();
    let arrives = form.name.ends_with("ARV") || inst.says(mods::md::ARV);
    form.mnemonic == "BAR" && inst.chip() < SmArch::Sm90 && !arrives
}

/// The smallest stall that the instruction may carry.
#[must_use]
pub fn least_stall(inst: &Instruction) -> u8 {
    let set = inst.control.write.is_some() || inst.control.read.is_some();
    let usual = if set { SCOREBOARD_SET } else { 1 };
    // Most instructions, and none of those named below.
    if !matches!(inst.form().pipe, Pipe::Branch | Pipe::Misc | Pipe::Bulk | Pipe::Gmma) {
        return usual;
    }
    match inst.form().mnemonic {
        "BRA" | "BRX" | "BRXU" | "BSYNC" | "EXIT" | "CALL" | "RET" | "BREAK" | "WARPSYNC" => 5,
        "BAR" | "MEMBAR" => 6,
        "DEPBAR" => 4,
        "UTMALDG" | "UGETNEXTWORKID" => 12,
        // To wgmma instructions, to the wait for their group, to the next wgmma.
        "WARPGROUP" if inst.form().name == "ARV" => 6,
        "WARPGROUP" => 2,
        _ if inst.form().pipe == Pipe::Gmma && !inst.modifier("gsb").is_empty() => 3,
        _ if inst.form().pipe == Pipe::Gmma => 4,
        _ => usual,
    }
}

/// Cycles from a producer's issue to that of an instruction which writes the same register, so that the first write
/// does not complete last.
///
/// Two results of one pipe complete in order. Source: the published tables for sm_90, output dependences, and what
/// ptxas leaves.
#[must_use]
pub fn overwrite(first: &Instruction, second: &Instruction) -> Distance {
    let (a, b) = (first.form().pipe, second.form().pipe);
    match a {
        _ if a == b || completion(second) != Completion::Fixed => same(1),
        Pipe::Mma => both(21, 22),
        Pipe::Double | Pipe::HalfMma => same(3),
        _ => same(1),
    }
}
