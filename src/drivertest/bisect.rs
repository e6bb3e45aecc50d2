//! Shrinking a recorded run: the fewest calls of it that still show the same difference when it is replayed.

use doorbell_ioctl::port::Port;
use doorbell_ioctl::replay::{Difference, ReplayOptions, replay};
use doorbell_ioctl::trace::{Event, What};
use std::sync::Arc;

/// The first difference of a replay.
#[must_use]
pub(crate) fn first_difference(events: &[Event], port: &Arc<dyn Port>, options: &ReplayOptions) -> Option<Difference> {
    replay(events, port, options).differences.into_iter().next()
}

/// Leaves out as many events as possible while `shows` holds, halves first, then smaller parts (delta debugging,
/// Zeller and Hildebrandt 2002). `shows` holds for all of them.
pub fn shrink(events: &[Event], mut shows: impl FnMut(&[Event]) -> bool) -> Vec<Event> {
    let mut left = events.to_vec();
    let mut part = left.len().div_ceil(2);
    while part > 0 {
        let mut at = 0;
        let mut removed = false;
        while at < left.len() {
            let end = (at + part).min(left.len());
            let without: Vec<Event> = left[..at].iter().chain(&left[end..]).cloned().collect();
            if !without.is_empty() && shows(&without) {
                left = without;
                removed = true;
            } else {
                at = end;
            }
        }
        if !removed || part == 1 {
            part = if part == 1 && removed { 1 } else { part / 2 };
        }
    }
    left
}

/// The outcome of [`bisect`].
#[derive(Debug)]
pub struct Bisected {
    /// The difference, as the whole recording shows it.
    pub difference: Difference,
    /// What is left.
    pub events: Vec<Event>,
    /// Replays that it took.
    pub replays: usize,
}

/// Finds the first difference of a recording and the fewest events that show it: the same call with the same field and
/// values. `open` gives a fresh machine.
pub fn bisect(
    events: &[Event],
    options: &ReplayOptions,
    mut open: impl FnMut() -> Option<Arc<dyn Port>>,
) -> Option<Bisected> {
    let difference = first_difference(events, &open()?, options)?;
    let mut replays = 1;
    let events = shrink(&events[..=difference.event.min(events.len() - 1)], |part| {
        replays += 1;
        // Memory is written before a doorbell; a part without any call shows nothing.
        let calls = part.iter().any(|event| !matches!(event.what, What::Memory { .. }));
        let found = calls.then(|| open().and_then(|port| first_difference(part, &port, options))).flatten();
        found.is_some_and(|found| (found.call, found.what) == (difference.call.clone(), difference.what.clone()))
    });
    Some(Bisected { difference, events, replays })
}

#[cfg(test)]
mod tests {
    use super::*;
    use doorbell_ioctl::port::{CpuPtr, Errno};
    use doorbell_ioctl::trace::Moment;

    fn event(value: u64) -> Event {
        Event { moment: Moment::default(), what: What::Doorbell { at: CpuPtr(8), value } }
    }

    #[test]
    fn what_does_not_matter_is_left_out() {
        let events: Vec<Event> = (0..100).map(event).collect();
        let mut tries = 0;
        let needed = [event(3), event(50), event(97)];
        let left = shrink(&events, |part| {
            tries += 1;
            needed.iter().all(|event| part.contains(event))
        });
        assert_eq!(left, needed);
        assert!(tries < 120, "{tries}");
    }

    #[test]
    fn a_recording_shrinks_to_the_call_that_answers_differently() {
        use doorbell_emu::kfd::{Chip, Config, SoftKfd};
        use doorbell_ioctl::port::OpenFlags;
        use doorbell_ioctl::trace::{Log, Trace};
        let log = Log::default();
        let machine = || SoftKfd::new(Config::new(Chip::Gfx1100)).unwrap();
        let port = Trace::recording(machine(), Box::new(log.clone()));
        for path in ["/dev/kfd", "/dev/dri/renderD128", "/dev/dri/renderD129"] {
            let _some_are_not_there = port.open(path, OpenFlags::DEVICE);
        }
        let (options, fewer) = (ReplayOptions::default(), Config { gpus: 2, ..Config::new(Chip::Gfx1100) });
        let found = bisect(&log.events(), &options, || Some(SoftKfd::new(fewer.clone()).unwrap())).unwrap();
        assert_eq!(found.events.len(), 1, "{found:?}");
        assert!(matches!(&found.events[0].what, What::Open { result: Err(Errno::ENOENT), .. }));
        assert!(bisect(&log.events(), &options, || Some(machine())).is_none(), "the same machine answers the same");
    }
}
