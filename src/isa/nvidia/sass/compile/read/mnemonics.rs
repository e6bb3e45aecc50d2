//! Mnemonics with their modifiers and precomputed properties. The most common ones are parsed once per process, others
//! once per text.

use super::flat::Said;
use crate::ptx::{self, Modifier, Opcode};
use smallvec::SmallVec;
use std::sync::LazyLock;

/// A mnemonic with its modifiers and precomputed properties.
pub(crate) struct Mnemonic {
    pub op: Opcode,
    pub mods: SmallVec<[Modifier; 4]>,
    pub said: Said,
}

impl Mnemonic {
    pub(crate) fn new(op: Opcode, mods: impl Iterator<Item = Modifier>) -> Mnemonic {
        let mods: SmallVec<[Modifier; 4]> = mods.collect();
        let said = Said::of(op, &mods);
        Mnemonic { op, mods, said }
    }
}

/// The most common mnemonics in compilers' output.
const COMMON: &str = "\
    abs.f32 add.cc.u32 add.f32 add.rn.f32 add.rn.f64 add.s32 add.s64 add.u32 and.b32 and.b64 and.pred bar.sync bfe.u32 bra bra.uni brev.b32 clz.b32 \
    cvt.f32.bf16 cvt.f32.f16 cvt.f64.f32 cvt.rn.bf16x2.f32 cvt.rn.f16.f32 cvt.rn.f32.s32 cvt.rn.f64.s32 cvt.rzi.s32.f32 cvt.s64.s32 cvt.u64.u32 cvta.to.global.u64 \
    div.rn.f32 ex2.approx.f32 fma.rn.f32 fma.rn.ftz.f32 ld.const.b32 ld.global.b16 ld.global.b32 ld.global.b64 ld.global.f32 ld.global.f64 ld.global.nc.f32 \
    ld.global.s32 ld.global.u16 ld.global.u32 ld.global.u64 ld.global.u8 ld.global.v2.b32 ld.global.v4.b32 ld.global.v4.f32 ld.param.b32 ld.param.f32 ld.param.u32 ld.param.u64 \
    ld.shared.f32 ld.shared.u32 ld.shared.v4.f32 lop3.b32 mad.lo.s32 mad.lo.u32 mad.wide.s32 mad.wide.u32 max.NaN.f32 max.f32 max.s32 max.u32 min.f32 min.s32 min.u32 \
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 mov.b16 mov.b32 mov.b64 mov.f32 mov.f64 mov.pred mov.u32 mov.u64 mul.f32 mul.hi.u32 mul.lo.s32 mul.lo.u32 mul.rn.f32 \
    mul.wide.s32 mul.wide.u32 neg.f32 neg.s32 not.b32 not.pred or.b32 or.b64 or.pred popc.b32 prmt.b32 rcp.approx.f32 ret selp.b32 selp.f32 selp.s32 \
    setp.eq.s32 setp.eq.u32 setp.ge.s32 setp.ge.u32 setp.gt.f32 setp.gt.s32 setp.gt.u32 setp.le.s32 setp.lt.f32 setp.lt.s32 setp.lt.u32 setp.ne.s32 setp.ne.u32 \
    shf.l.wrap.b32 shfl.sync.bfly.b32 shfl.sync.down.b32 shfl.sync.idx.b32 shl.b32 shl.b64 shr.s32 shr.u32 shr.u64 sqrt.rn.f32 \
    st.global.b16 st.global.b32 st.global.b64 st.global.f32 st.global.f64 st.global.u16 st.global.u32 st.global.u64 st.global.u8 st.global.v4.b32 st.global.v4.f32 \
    st.shared.f32 st.shared.u32 st.shared.v4.b32 st.shared.v4.f32 sub.f32 sub.rn.f32 sub.s32 sub.s64 sub.u32 xor.b32";

/// Slots of the hash table, a power of two.
const PLACES: usize = 512;

/// Mnemonics by their words.
pub(crate) struct Common {
    /// For each slot the word's number from 1, or 0 if free. Collisions go to the next free slot.
    places: [u8; PLACES],
    all: Vec<(&'static str, Mnemonic)>,
}

static ALL: LazyLock<Common> = LazyLock::new(Common::new);

/// The first slot in which to look for a word.
#[inline]
fn place(word: &[u8]) -> usize {
    let mixed = match (word.first_chunk(), word.last_chunk(), word.first_chunk(), word.last_chunk()) {
        (Some(head), Some(tail), ..) => u64::from_le_bytes(*head) ^ u64::from_le_bytes(*tail).rotate_left(27),
        (_, _, Some(head), Some(tail)) => {
            u64::from(u32::from_le_bytes(*head)) << 32 | u64::from(u32::from_le_bytes(*tail))
        }
        _ => word.iter().fold(0, |all, c| all << 8 | u64::from(*c)),
    };
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 55) as usize
}

impl Common {
    /// The table shared by the whole process.
    pub(crate) fn table() -> &'static Common {
        &ALL
    }

    fn new() -> Common {
        let (mut places, mut all) = ([0; PLACES], Vec::with_capacity(usize::from(u8::MAX)));
        for word in COMMON.split(' ') {
            let Some((op, mods)) = ptx::mnemonic(word) else { continue };
            let mut at = place(word.as_bytes());
            while places[at] != 0 {
                at = (at + 1) % PLACES;
            }
            all.push((word, Mnemonic::new(op, mods)));
            places[at] = all.len() as u8;
        }
        Common { places, all }
    }

    #[inline]
    pub(crate) fn get(&self, word: &str) -> Option<&Mnemonic> {
        let mut at = place(word.as_bytes());
        loop {
            let n = usize::from(self.places[at]).checked_sub(1)?;
            match self.all.get(n) {
                Some((here, mnemonic)) if *here == word => return Some(mnemonic),
                _ => at = (at + 1) % PLACES,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_mnemonics_are_instructions_and_stand_once_in_the_table() {
        let words: Vec<&str> = COMMON.split(' ').collect();
        let found: Vec<Opcode> = words.iter().map(|w| Common::table().get(w).unwrap().op).collect();
        let names: Vec<&str> = words.iter().map(|w| w.split('.').next().unwrap()).collect();
        assert_eq!(found.iter().map(|op| op.word()).collect::<Vec<_>>(), names);
        assert_eq!(words.len(), Common::table().all.len());
        assert!(words.len() <= usize::from(u8::MAX) && words.is_sorted());
        assert!(Common::table().get("add.s31").is_none() && Common::table().get("").is_none());
    }
}
