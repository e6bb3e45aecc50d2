//! Buffers at addresses, and the shared memory of a block.

/// What threads reach.
#[derive(Default)]
pub struct Memory {
    /// Start address and bytes.
    pub buffers: Vec<(u64, Vec<u8>)>,
    /// `None`: unwritten. With the number of barriers passed when it was written, and the writer.
    pub shared: Vec<Option<Cell>>,
    epoch: u32,
    /// Matrices among the parameters, by address.
    pub matrices: std::collections::HashMap<u64, super::tma::Matrix>,
    pub counts: super::Counts,
    /// Thread, shared address and bytes of what the current instruction has touched.
    pub touched: Vec<(usize, u64, usize)>,
}

#[derive(Clone, Copy)]
pub struct Cell {
    value: u8,
    epoch: u32,
    thread: usize,
    /// Units that read memory by themselves see it.
    fenced: bool,
}

impl Memory {
    pub fn barrier(&mut self) {
        self.epoch += 1;
    }

    /// What threads have written becomes visible to such units.
    pub fn fence(&mut self) {
        self.shared.iter_mut().flatten().for_each(|c| c.fenced = true);
    }

    /// As such a unit reads.
    pub fn read_beside(&self, at: u64, len: usize) -> Result<Vec<u8>, String> {
        let from = self.place(at, len)?;
        if !self.shared[from..from + len].iter().flatten().all(|c| c.fenced) {
            return Err(format!("shared memory at {at:#x} was written with no fence of the proxy since"));
        }
        self.read_shared(at, len, usize::MAX)
    }

    /// The bytes at a global address.
    pub fn global(&mut self, at: u64, len: usize) -> Result<&mut [u8], String> {
        if !at.is_multiple_of(len as u64) {
            return Err(format!("{len} bytes at {at:#x} are not aligned"));
        }
        let found = self.buffers.iter_mut().find(|(start, b)| {
            at >= *start && at.checked_add(len as u64).is_some_and(|end| end <= *start + b.len() as u64)
        });
        let (start, b) = found.ok_or(format!("{len} bytes at {at:#x} are in no buffer"))?;
        let from = (at - *start) as usize;
        Ok(&mut b[from..from + len])
    }

    pub fn place(&self, at: u64, len: usize) -> Result<usize, String> {
        // Addresses of shared memory have 32 bits.
        let at = at & 0xffff_ffff;
        let from = at.checked_sub(super::SHARED).map(|d| d as usize);
        match from {
            Some(f) if at.is_multiple_of(len as u64) && f + len <= self.shared.len() => Ok(f),
            _ => Err(format!("{len} bytes of shared memory at {at:#x}")),
        }
    }

    pub fn read_shared(&self, at: u64, len: usize, thread: usize) -> Result<Vec<u8>, String> {
        let from = self.place(at, len)?;
        self.shared[from..from + len]
            .iter()
            .map(|c| match c {
                None => Err(format!("shared memory at {at:#x} is read and was never written")),
                Some(c) if c.epoch == self.epoch && c.thread != thread => {
                    Err(format!("shared memory at {at:#x} was written by thread {} with no barrier since", c.thread))
                }
                Some(c) => Ok(c.value),
            })
            .collect()
    }

    /// The bytes become unwritten.
    pub fn lose(&mut self, at: u64, len: usize) -> Result<(), String> {
        let from = self.place(at, len)?;
        self.shared[from..from + len].fill(None);
        Ok(())
    }

    /// A write of the copy engine: threads that have waited see it, and the other units too.
    pub fn land(&mut self, at: u64, bytes: &[u8]) -> Result<(), String> {
        let from = self.place(at, bytes.len())?;
        for (cell, value) in self.shared[from..].iter_mut().zip(bytes) {
            *cell = Some(Cell { value: *value, epoch: u32::MAX, thread: usize::MAX, fenced: true });
        }
        Ok(())
    }

    pub fn write_shared(&mut self, at: u64, bytes: &[u8], thread: usize) -> Result<(), String> {
        let from = self.place(at, bytes.len())?;
        let epoch = self.epoch;
        for (cell, value) in self.shared[from..].iter_mut().zip(bytes) {
            *cell = Some(Cell { value: *value, epoch, thread, fenced: false });
        }
        Ok(())
    }
}
