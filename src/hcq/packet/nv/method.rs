//! Methods: headers and their data in a push buffer.

use super::names;
use crate::bits::{Field, field};
use crate::packet::{DecodeError, DecodeKind, EmitError, GpuVa};
use std::fmt::Write as _;

const SET: &str = "method";
const OP: Field = field(0, 29, 31);
const COUNT: Field = field(0, 16, 28);
const SUBCHANNEL: Field = field(0, 13, 15);
const ADDRESS: Field = field(0, 0, 11);

/// Operation of a header that ends its push buffer.
const END_OF_BUFFER: u32 = 7;

/// Most values after one header.
pub(crate) const MAX_COUNT: usize = 0x1fff;

/// A subchannel, to which an engine is bound. The numbers follow a common convention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Subchannel(pub u8);

impl Subchannel {
    /// Host methods are valid on any subchannel; this one is used.
    pub const HOST: Self = Self(0);
    pub const COMPUTE: Self = Self(1);
    pub const COPY: Self = Self(4);
}

/// One value written to one register of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    pub subchannel: Subchannel,
    /// Byte address, a multiple of 4.
    pub method: u16,
    pub value: u32,
}

impl Write {
    /// Methods below it are the host's, whatever engine the subchannel is bound to.
    pub const HOST_LIMIT: u16 = 0x100;

    /// The QMD that this write names, if it starts a launch.
    #[must_use]
    pub fn launched_qmd(&self) -> Option<GpuVa> {
        let names_qmd = self.subchannel != Subchannel::COPY && self.method == super::compute::SEND_PCAS_A;
        names_qmd.then(|| GpuVa(u64::from(self.value) * super::qmd::ALIGN_BYTES))
    }

    /// Text such as `COMPUTE SEND_PCAS_A=0x1234`; the engine is inferred from the subchannel.
    #[must_use]
    pub fn describe(&self) -> String {
        let (engine, table) = match (self.method < Self::HOST_LIMIT, self.subchannel) {
            (true, _) => ("HOST", names::HOST),
            (_, Subchannel::COPY) => ("COPY", names::COPY),
            _ => ("COMPUTE", names::COMPUTE),
        };
        let mut text = format!("{engine} ");
        let _infallible = match names::name_of(table, self.method) {
            Some(name) => write!(text, "{name}={:#x}", self.value),
            None => write!(text, "{:#06x}={:#x}", self.method, self.value),
        };
        text
    }
}

/// A push buffer under construction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushBuffer {
    words: Vec<u32>,
}

impl PushBuffer {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The dwords so far.
    #[must_use]
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// Removes the dwords, but keeps the allocation.
    pub fn clear(&mut self) {
        self.words.clear();
    }

    fn header(&mut self, op: u32, to: Subchannel, method: u16, count: u32) -> Result<(), EmitError> {
        let mut w = [0];
        OP.set(&mut w, "op", op)?;
        COUNT.set(&mut w, "count", count)?;
        SUBCHANNEL.set(&mut w, "subchannel", to.0.into())?;
        ADDRESS.set(&mut w, "method", u32::from(method) >> 2)?;
        self.words.push(w[0]);
        Ok(())
    }

    /// Writes values to consecutive methods, starting at `method`.
    ///
    /// # Errors
    /// More than 8191 values, or none.
    pub fn methods(&mut self, to: Subchannel, method: u16, values: &[u32]) -> Result<(), EmitError> {
        self.counted(1, to, method, values)
    }

    /// Writes several values to the same method.
    ///
    /// # Errors
    /// As [`PushBuffer::methods`].
    pub fn repeated(&mut self, to: Subchannel, method: u16, values: &[u32]) -> Result<(), EmitError> {
        self.counted(3, to, method, values)
    }

    /// Writes a value of 13 bits, which is stored in the header.
    ///
    /// # Errors
    /// A larger value.
    pub fn immediate(&mut self, to: Subchannel, method: u16, value: u32) -> Result<(), EmitError> {
        self.header(4, to, method, value)
    }

    fn counted(&mut self, op: u32, to: Subchannel, method: u16, values: &[u32]) -> Result<(), EmitError> {
        if values.is_empty() || values.len() > MAX_COUNT {
            return Err(EmitError::Values { packet: SET, count: values.len(), min: 1, max: MAX_COUNT });
        }
        self.header(op, to, method, values.len() as u32)?;
        self.words.extend_from_slice(values);
        Ok(())
    }
}

/// Iterates over the writes of a push buffer, in order; ends with an error at the first invalid header.
#[derive(Clone, Debug)]
pub struct Writes<'a> {
    words: &'a [u32],
    /// Next dword.
    at: usize,
    /// The header's group that is being read.
    group: Option<Group>,
}

#[derive(Clone, Copy, Debug)]
struct Group {
    subchannel: Subchannel,
    method: u16,
    left: u32,
    /// How many of the following values still advance to the next method.
    steps: u32,
}

impl<'a> Writes<'a> {
    #[must_use]
    pub fn of(words: &'a [u32]) -> Self {
        Self { words, at: 0, group: None }
    }

    /// Index of the next dword, for reports.
    #[must_use]
    pub fn position(&self) -> usize {
        self.at
    }

    fn fail(&mut self, kind: DecodeKind) -> Option<Result<Write, DecodeError>> {
        let offset_dwords = self.at.saturating_sub(1) as u64;
        self.at = self.words.len();
        self.group = None;
        Some(Err(DecodeError { offset_dwords, kind }))
    }

    /// Reads a header; one with an immediate value is itself a write.
    fn header(&mut self, header: u32) -> Option<Result<Write, DecodeError>> {
        let w = [header];
        let subchannel = Subchannel(SUBCHANNEL.get(&w) as u8);
        let (method, count) = ((ADDRESS.get(&w) << 2) as u16, COUNT.get(&w));
        let steps = match OP.get(&w) {
            // Reserved bit 12 of the older headers.
            _ if header >> 12 & 1 != 0 => {
                return self.fail(DecodeKind::Reserved { packet: SET, dword: 0, bits: 1 << 12 });
            }
            0 if header == 0 => return None,
            1 => u32::MAX,
            3 => 0,
            4 => return Some(Ok(Write { subchannel, method, value: count })),
            5 => 1,
            // The rest of the push buffer is skipped.
            END_OF_BUFFER => {
                self.at = self.words.len();
                return None;
            }
            _ => return self.fail(DecodeKind::Header { set: SET, header }),
        };
        let have = self.words.len() - self.at;
        if have < count as usize {
            return self.fail(DecodeKind::Truncated { packet: SET, wanted: count as usize, have });
        }
        self.group = (count > 0).then_some(Group { subchannel, method, left: count, steps });
        None
    }
}

impl Iterator for Writes<'_> {
    type Item = Result<Write, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let word = *self.words.get(self.at)?;
            self.at += 1;
            let Some(g) = &mut self.group else {
                match self.header(word) {
                    Some(write) => return Some(write),
                    None => continue,
                }
            };
            let write = Write { subchannel: g.subchannel, method: g.method, value: word };
            if g.steps > 0 {
                g.steps -= 1;
                g.method = g.method.wrapping_add(4);
            }
            g.left -= 1;
            if g.left == 0 {
                self.group = None;
            }
            return Some(Ok(write));
        }
    }
}
