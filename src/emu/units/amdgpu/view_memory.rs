//! Device memory as the bus sees it: a view of mapped memory in a window. Accesses outside the view read zeros and
//! store nothing; the window's bounds keep waves from making them.

use super::bus::{Memory, Rows, ones};
use doorbell_ioctl::port::DeviceView;

impl Memory for DeviceView {
    fn read(&self, offset: u64, into: &mut [u8]) {
        if self.copy_to_slice(offset, into).is_err() {
            into.fill(0);
        }
    }

    fn write(&self, offset: u64, from: &[u8]) {
        // Checked against the window before: a refusal cannot occur.
        let _ = self.copy_from_slice(offset, from);
    }

    fn view(&self) -> Option<DeviceView> {
        Some(self.clone())
    }

    fn gather(&self, lanes: u64, offsets: &[u64; 64], words: usize, rows: &mut Rows) {
        for lane in ones(lanes) {
            for (word, row) in rows.iter_mut().enumerate().take(words) {
                let at = offsets[lane] + 4 * word as u64;
                row[lane] = self.read_u32(at).unwrap_or_else(|_| {
                    let mut raw = [0; 4];
                    self.read(at, &mut raw);
                    u32::from_le_bytes(raw)
                });
            }
        }
    }

    fn scatter(&self, lanes: u64, offsets: &[u64; 64], words: usize, rows: &Rows) {
        for lane in ones(lanes) {
            for (word, row) in rows.iter().enumerate().take(words) {
                let at = offsets[lane] + 4 * word as u64;
                if self.write_u32(at, row[lane]).is_err() {
                    self.write(at, &row[lane].to_le_bytes());
                }
            }
        }
    }

    fn update_u32(&self, offset: u64, f: &mut dyn FnMut(u32) -> u32) -> u32 {
        self.fetch_update_u32(offset, f).unwrap_or(0)
    }

    fn update_u64(&self, offset: u64, f: &mut dyn FnMut(u64) -> u64) -> u64 {
        self.fetch_update_u64(offset, f).unwrap_or(0)
    }
}
