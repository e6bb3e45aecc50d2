//! Strict mode's shadow state of shared memory: which warp wrote and read each word since which barrier; each byte
//! where a word's bytes differ.

use super::fault::{FaultKind, R, fail};
use super::shared::Who;
use std::collections::HashMap;

/// Which warp accessed a word or a byte, and in which interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Note {
    /// Warp plus one that wrote it last; 0: none, or an atomic or asynchronous write.
    writer: u16,
    /// Warp plus one that read it last; `u16::MAX`: several.
    reader: u16,
    /// Barriers passed until then.
    write_epoch: u32,
    read_epoch: u32,
    written: bool,
    /// The word's bytes have notes of their own.
    split: bool,
}

const UNTOUCHED: Note = Note { writer: 0, reader: 0, write_epoch: 0, read_epoch: 0, written: false, split: false };

/// Notes of a CTA's shared memory.
pub(super) struct Shadow {
    words: Vec<Note>,
    bytes: HashMap<u32, [Note; 4]>,
}

impl Note {
    #[inline]
    fn read(&mut self, address: usize, who: Who, epoch: u32) -> R<()> {
        if !self.written {
            return fail(FaultKind::SharedUnwritten { address: address as u32 });
        }
        let Who::Warp(warp) = who else { return Ok(()) };
        let me = warp as u16 + 1;
        if self.writer != 0 && self.writer != me && self.write_epoch == epoch {
            return race(address, "read", "written", self.writer);
        }
        let others = self.read_epoch == epoch && self.reader != 0 && self.reader != me;
        self.reader = if others { u16::MAX } else { me };
        self.read_epoch = epoch;
        Ok(())
    }

    #[inline]
    fn write(&mut self, address: usize, who: Who, epoch: u32) -> R<()> {
        self.written = true;
        let Who::Warp(warp) = who else {
            self.writer = 0;
            return Ok(());
        };
        let me = warp as u16 + 1;
        if self.reader != 0 && self.reader != me && self.read_epoch == epoch {
            return race(address, "write", "read", self.reader);
        }
        if self.writer != 0 && self.writer != me && self.write_epoch == epoch {
            return race(address, "write", "written", self.writer);
        }
        (self.writer, self.write_epoch) = (me, epoch);
        Ok(())
    }
}

#[cold]
fn race(address: usize, this: &'static str, other: &'static str, who: u16) -> R<()> {
    fail(FaultKind::SharedRace { address: address as u32, this, other, warp: u32::from(who - 1) })
}

impl Shadow {
    pub(crate) fn new(len_bytes: usize) -> Shadow {
        Shadow { words: vec![UNTOUCHED; len_bytes.div_ceil(4)], bytes: HashMap::new() }
    }

    #[inline]
    pub(crate) fn read(&mut self, from: usize, len: usize, who: Who, epoch: u32) -> R<()> {
        self.each(from, len, |note, address| note.read(address, who, epoch))
    }

    #[inline]
    pub(crate) fn write(&mut self, from: usize, len: usize, who: Who, epoch: u32) -> R<()> {
        self.each(from, len, |note, address| note.write(address, who, epoch))
    }

    /// Whether all these bytes were written; those beyond the end are.
    pub(crate) fn is_written(&self, from: usize, len: usize) -> bool {
        (from..from + len).all(|at| match self.words.get(at / 4) {
            Some(word) if word.split => self.bytes.get(&((at / 4) as u32)).is_none_or(|bytes| bytes[at % 4].written),
            Some(word) => word.written,
            None => true,
        })
    }

    #[inline]
    fn each(&mut self, from: usize, len: usize, mut note: impl FnMut(&mut Note, usize) -> R<()>) -> R<()> {
        let end = from + len;
        let mut at = from;
        while at < end {
            let word = at / 4;
            let whole = at.is_multiple_of(4) && at + 4 <= end;
            // PANIC: the caller has checked the range.
            if whole && !self.words[word].split {
                note(&mut self.words[word], at)?;
                at += 4;
            } else {
                at = self.each_byte(word, at, end, &mut note)?;
            }
        }
        Ok(())
    }

    /// The bytes of a word from one address to another, or to its end; where it ends.
    #[cold]
    fn each_byte(
        &mut self,
        word: usize,
        from: usize,
        end: usize,
        note: &mut dyn FnMut(&mut Note, usize) -> R<()>,
    ) -> R<usize> {
        let whole = self.words[word];
        let bytes = self.bytes.entry(word as u32).or_insert([whole; 4]);
        let end = end.min(4 * word + 4);
        for at in from..end {
            note(&mut bytes[at % 4], at)?;
        }
        if bytes.iter().all(|b| *b == bytes[0]) {
            self.words[word] = bytes[0];
            self.bytes.remove(&(word as u32));
        } else {
            self.words[word].split = true;
        }
        Ok(end)
    }
}
