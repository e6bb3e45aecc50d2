//! The kernel's log by a cursor: lines of warnings and errors that came since.
//!
//! Source: Documentation/ABI/testing/dev-kmsg: `priority,sequence,microseconds,flags;text`; the level is the priority's
//! low three bits, 4 is a warning.

use doorbell_ioctl::port::{KERNEL_LOG, Port};

/// The least severe level that counts.
const WARNING: u64 = 4;

/// A place in the log.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    next: u64,
    /// The log cannot be read here.
    pub blind: bool,
}

fn lines(port: &dyn Port) -> Option<Vec<(u64, u64, String)>> {
    let bytes = port.read_file(KERNEL_LOG).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let line = |line: &str| {
        let (head, text) = line.split_once(';')?;
        let mut numbers = head.split(',').map(|n| n.parse::<u64>());
        let (priority, sequence) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        Some((priority & 7, sequence, text.to_owned()))
    };
    Some(text.lines().filter_map(line).collect())
}

impl Cursor {
    /// The end of the log as it is.
    #[must_use]
    pub fn at_end(port: &dyn Port) -> Self {
        match lines(port) {
            Some(lines) => Self { next: lines.last().map_or(0, |(_, sequence, _)| sequence + 1), blind: false },
            None => Self { next: 0, blind: true },
        }
    }

    /// Warnings and errors after it.
    #[must_use]
    pub fn warnings(self, port: &dyn Port) -> Vec<String> {
        if self.blind {
            return Vec::new();
        }
        let new = lines(port)
            .unwrap_or_default()
            .into_iter()
            .filter(|(level, seq, _)| *seq >= self.next && *level <= WARNING);
        new.map(|(_, _, text)| text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use doorbell_emu::kfd::{Chip, Config, SoftKfd};

    #[test]
    fn a_machine_without_news_has_no_warnings() {
        let machine = SoftKfd::new(Config::new(Chip::Gfx1100)).unwrap();
        let cursor = Cursor::at_end(&*machine);
        assert!(!cursor.blind && cursor.warnings(&*machine).is_empty());
    }
}
