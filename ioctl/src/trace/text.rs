//! One line of text an event.

use super::{Event, IoctlEvent, Sink, What};
use crate::abi::{Returned, Value, decode_call};
use crate::port::{Errno, MapFlags, MapRequest};
use std::fmt;
use std::io::Write;

/// Writes events as lines.
#[derive(Debug)]
pub struct TextSink<W: Write + Send> {
    out: W,
}

impl<W: Write + Send> TextSink<W> {
    #[must_use]
    pub fn new(out: W) -> Self {
        Self { out }
    }
}

impl<W: Write + Send> Sink for TextSink<W> {
    fn event(&mut self, event: &Event) {
        // A trace never makes a call fail: a full disk loses lines.
        let _lost_line = writeln!(self.out, "{event}");
    }

    fn flush(&mut self) {
        let _lost_lines = self.out.flush();
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ns, us) = (self.moment.start_ns, self.moment.length_ns / 1000);
        write!(f, "{:>6}.{:06} t{} ", ns / 1_000_000_000, ns / 1000 % 1_000_000, self.moment.thread)?;
        write!(f, "{}", self.what)?;
        if us > 0 { write!(f, " <{us} us>") } else { Ok(()) }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { path, flags, result } => {
                write!(f, "open({path}, {})", names(flags.iter_names()))?;
                answer(f, result, |f, fd| write!(f, "{fd:?}"))
            }
            Self::Close { fd, result } => {
                write!(f, "close({fd:?})")?;
                answer(f, result, |f, ()| f.write_str("0"))
            }
            Self::Ioctl(call) => write!(f, "{:?} {}", call.fd, call_text(call)),
            Self::Mmap { map, result } => {
                write!(f, "mmap({})", map_text(map))?;
                answer(f, result, |f, at| write!(f, "{:#x}", at.0))
            }
            Self::Munmap { addr, len_bytes, result } => {
                write!(f, "munmap({:#x}, {len_bytes:#x})", addr.0)?;
                answer(f, result, |f, ()| f.write_str("0"))
            }
            Self::Poll { fds, timeout_ms, result } => {
                f.write_str("poll(")?;
                for (fd, wanted, seen) in fds {
                    write!(f, "{fd:?} {} -> {}, ", names(wanted.iter_names()), names(seen.iter_names()))?;
                }
                write!(f, "{timeout_ms} ms)")?;
                answer(f, result, |f, n| write!(f, "{n}"))
            }
            Self::ReadFile { path, result } => {
                write!(f, "read_file({path})")?;
                answer(f, result, |f, bytes| write!(f, "{} bytes", bytes.len()))
            }
            Self::ReadDir { path, result } => {
                write!(f, "read_dir({path})")?;
                answer(f, result, |f, names| write!(f, "{}", names.join(" ")))
            }
            Self::Doorbell { at, value } => write!(f, "doorbell({:#x}) = {value:#x}", at.0),
            Self::Memory { at, bytes } => write!(f, "memory({:#x}) {} bytes changed", at.0, bytes.len()),
            Self::Computed { at, bytes } => write!(f, "memory({:#x}) {} bytes computed", at.0, bytes.len()),
            Self::Message(event) => match &event.result {
                Value::Nothing => write!(f, "{}", event.message),
                result => write!(f, "{} = {result}", event.message),
            },
        }
    }
}

fn answer<T>(
    f: &mut fmt::Formatter<'_>,
    result: &Result<T, Errno>,
    value: impl FnOnce(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    f.write_str(" = ")?;
    match result {
        Ok(v) => value(f, v),
        Err(errno) => write!(f, "-{errno}"),
    }
}

fn names<B>(set: impl Iterator<Item = (&'static str, B)>) -> String {
    let found: Vec<&str> = set.map(|(name, _)| name).collect();
    if found.is_empty() { "NONE".into() } else { found.join("|") }
}

fn call_text(call: &IoctlEvent) -> String {
    let returned = Returned { result: call.result, bytes: &call.after, blobs: &call.blobs_after };
    decode_call(call.request, &call.before, &call.blobs_before, Some(returned))
}

fn map_text(map: &MapRequest) -> String {
    let at = map.addr.map_or("anywhere".to_string(), |a| format!("{:#x}", a.0));
    let backing = match map.fd {
        Some(fd) => format!("{fd:?} at {:#x}", map.offset),
        None => "nothing".into(),
    };
    let (prot, flags) = (names(map.prot.iter_names()), names((map.flags & !MapFlags::FIXED).iter_names()));
    format!("{at}, {:#x}, {prot}, {flags}, {backing}", map.len_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::{CpuPtr, Fd, OpenFlags};
    use crate::trace::Moment;

    #[test]
    fn lines_name_what_was_asked_and_answered() {
        let line = |what: What| what.to_string();
        let path = "/dev/kfd".to_string();
        let open = What::Open { path, flags: OpenFlags::DEVICE, result: Err(Errno::EACCES) };
        assert_eq!(line(open), "open(/dev/kfd, READ|WRITE|CLOEXEC) = -EACCES");
        let map = MapRequest::file(Fd(4), 0x1000, 0x2000).at(CpuPtr(0x7000));
        let text = line(What::Mmap { map, result: Ok(CpuPtr(0x7000)) });
        assert_eq!(text, "mmap(0x7000, 0x2000, READ|WRITE, SHARED, fd 4 at 0x1000) = 0x7000");
        let call = IoctlEvent {
            fd: Fd(3),
            request: 0x8008_4b01,
            before: vec![0; 8],
            blobs_before: Vec::new(),
            after: vec![1, 0, 0, 0, 17, 0, 0, 0],
            blobs_after: Vec::new(),
            result: Ok(0),
        };
        let text = line(What::Ioctl(Box::new(call)));
        assert_eq!(text, "fd 3 AMDKFD_IOC_GET_VERSION() = 0 -> major_version=1, minor_version=17");
    }

    #[test]
    fn event_starts_with_its_time_and_thread() {
        let moment = Moment { start_ns: 2_000_345_678, length_ns: 12_345, thread: 1 };
        let event = Event { moment, what: What::Doorbell { at: CpuPtr(0x9008), value: 16 } };
        assert_eq!(event.to_string(), "     2.000345 t1 doorbell(0x9008) = 0x10 <12 us>");
    }
}
