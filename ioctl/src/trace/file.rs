//! The binary trace: a head of magic and version, then records, each with its length.
//!
//! All integers are little-endian. Head: `MAGIC` (8 bytes), version u32, zero u32. Record: length of what follows u32,
//! kind u8, start u64, length u64, thread u32, then the kind's fields in the order of [`What`]. Bytes and strings have
//! a u32 length. A result is an i32: 0 and the value, or the errno. A reader skips nothing: an unknown kind or version
//! is an error with the offset in the file. A file cut off in a record ends there.

use super::{Event, IoctlEvent, MessageEvent, Moment, Sink, What};
use crate::abi::{Blob, Message, Value};
use crate::port::{CpuPtr, Errno, Fd, MapFlags, MapRequest, OpenFlags, PollEvents, Prot};
use std::io::{self, Read, Write};

/// First bytes of a trace.
pub const MAGIC: [u8; 8] = *b"DBTRACE\0";
/// Version of the format. 2 has records of memory, 3 has messages; older files are read too.
pub const VERSION: u32 = 3;
/// Longer records are not made; a length above it is a broken file.
const MAX_RECORD_BYTES: u32 = 64 << 20;

/// A file that is no trace, or a broken one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    #[error("not a trace: the first bytes are not {MAGIC:?}")]
    Magic,
    #[error("trace version {found} cannot be read, only 1 to {VERSION}")]
    Version { found: u32 },
    #[error("trace is broken at byte {offset}: {what}")]
    Broken { offset: u64, what: &'static str },
    #[error("trace cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// Writes events to a file.
#[derive(Debug)]
pub struct FileSink<W: Write + Send> {
    out: W,
    buffer: Vec<u8>,
    failed: Option<io::ErrorKind>,
}

impl<W: Write + Send> FileSink<W> {
    /// Writes the head.
    ///
    /// # Errors
    /// The writer's.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(&MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        out.write_all(&[0; 4])?;
        Ok(Self { out, buffer: Vec::new(), failed: None })
    }

    /// Why the trace ends before the run, if it does: a trace never makes a call fail.
    #[must_use]
    pub fn failed(&self) -> Option<io::ErrorKind> {
        self.failed
    }
}

impl<W: Write + Send> Sink for FileSink<W> {
    fn event(&mut self, event: &Event) {
        if self.failed.is_some() {
            return;
        }
        self.buffer.clear();
        self.buffer.extend([0; 4]);
        put_event(&mut self.buffer, event);
        let len = (self.buffer.len() - 4) as u32;
        self.buffer[..4].copy_from_slice(&len.to_le_bytes());
        if let Err(error) = self.out.write_all(&self.buffer) {
            self.failed = Some(error.kind());
        }
    }

    fn flush(&mut self) {
        if let Err(error) = self.out.flush() {
            self.failed = Some(error.kind());
        }
    }
}

/// Writers of the fields.
trait Put {
    fn num<const N: usize>(&mut self, bytes: [u8; N]);
    fn bytes(&mut self, bytes: &[u8]);
    fn outcome<T>(&mut self, result: &Result<T, Errno>, value: impl FnOnce(&mut Vec<u8>, &T));
}

impl Put for Vec<u8> {
    fn num<const N: usize>(&mut self, bytes: [u8; N]) {
        self.extend_from_slice(&bytes);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.num((bytes.len() as u32).to_le_bytes());
        self.extend_from_slice(bytes);
    }

    fn outcome<T>(&mut self, result: &Result<T, Errno>, value: impl FnOnce(&mut Vec<u8>, &T)) {
        match result {
            Ok(v) => {
                self.num(0i32.to_le_bytes());
                value(self, v);
            }
            Err(errno) => self.num(errno.0.to_le_bytes()),
        }
    }
}

fn put_event(out: &mut Vec<u8>, event: &Event) {
    let kind = match &event.what {
        What::Open { .. } => 1u8,
        What::Close { .. } => 2,
        What::Ioctl(_) => 3,
        What::Mmap { .. } => 4,
        What::Munmap { .. } => 5,
        What::Poll { .. } => 6,
        What::ReadFile { .. } => 7,
        What::ReadDir { .. } => 8,
        What::Doorbell { .. } => 9,
        What::Memory { .. } => 10,
        What::Message(_) => 11,
        What::Computed { .. } => 12,
    };
    out.push(kind);
    out.num(event.moment.start_ns.to_le_bytes());
    out.num(event.moment.length_ns.to_le_bytes());
    out.num(event.moment.thread.to_le_bytes());
    put_what(out, &event.what);
}

fn put_what(out: &mut Vec<u8>, what: &What) {
    match what {
        What::Open { path, flags, result } => {
            out.bytes(path.as_bytes());
            out.num(flags.bits().to_le_bytes());
            out.outcome(result, |out, fd| out.num(fd.0.to_le_bytes()));
        }
        What::Close { fd, result } => {
            out.num(fd.0.to_le_bytes());
            out.outcome(result, |_, ()| {});
        }
        What::Ioctl(call) => {
            out.num(call.fd.0.to_le_bytes());
            out.num(call.request.to_le_bytes());
            out.bytes(&call.before);
            put_blobs(out, &call.blobs_before);
            out.outcome(&call.result, |out, value| out.num(value.to_le_bytes()));
            out.bytes(&call.after);
            put_blobs(out, &call.blobs_after);
        }
        What::Mmap { map, result } => {
            // 0 means any address: nothing is ever mapped at 0.
            out.num(map.addr.map_or(0, |a| a.0).to_le_bytes());
            out.num(map.len_bytes.to_le_bytes());
            out.num(map.prot.bits().to_le_bytes());
            out.num(map.flags.bits().to_le_bytes());
            out.num(map.fd.map_or(-1, |fd| fd.0).to_le_bytes());
            out.num(map.offset.to_le_bytes());
            out.outcome(result, |out, at| out.num(at.0.to_le_bytes()));
        }
        What::Munmap { addr, len_bytes, result } => {
            out.num(addr.0.to_le_bytes());
            out.num(len_bytes.to_le_bytes());
            out.outcome(result, |_, ()| {});
        }
        What::Poll { fds, timeout_ms, result } => {
            out.num((fds.len() as u32).to_le_bytes());
            for (fd, wanted, seen) in fds {
                out.num(fd.0.to_le_bytes());
                out.num(wanted.bits().to_le_bytes());
                out.num(seen.bits().to_le_bytes());
            }
            out.num(timeout_ms.to_le_bytes());
            out.outcome(result, |out, n| out.num(n.to_le_bytes()));
        }
        What::ReadFile { path, result } => {
            out.bytes(path.as_bytes());
            out.outcome(result, |out, bytes| out.bytes(bytes));
        }
        What::ReadDir { path, result } => {
            out.bytes(path.as_bytes());
            out.outcome(result, |out, names| {
                out.num((names.len() as u32).to_le_bytes());
                names.iter().for_each(|n| out.bytes(n.as_bytes()));
            });
        }
        What::Doorbell { at, value } => {
            out.num(at.0.to_le_bytes());
            out.num(value.to_le_bytes());
        }
        What::Memory { at, bytes } | What::Computed { at, bytes } => {
            out.num(at.0.to_le_bytes());
            out.bytes(bytes);
        }
        What::Message(event) => {
            let MessageEvent { message, result } = &**event;
            out.bytes(message.class.as_bytes());
            out.push(message.of_class.into());
            out.num(message.receiver.to_le_bytes());
            out.bytes(message.selector.as_bytes());
            out.num((message.arguments.len() as u32).to_le_bytes());
            message.arguments.iter().chain([result]).for_each(|value| put_value(out, value));
        }
    }
}

/// A value: its kind u8, then its fields.
fn put_value(out: &mut Vec<u8>, value: &Value) {
    let kind = match value {
        Value::Nothing => 0u8,
        Value::Object(_) => 1,
        Value::Selector(_) => 2,
        Value::Unsigned(_) => 3,
        Value::Signed(_) => 4,
        Value::Float(_) => 5,
        Value::Byte(_) => 6,
        Value::Size(_) => 7,
        Value::Range(_) => 8,
        Value::Pointer(_) => 9,
        Value::Text(None) => 10,
        Value::Text(Some(_)) => 11,
        Value::Bytes(_) => 12,
        Value::Error(_) => 13,
    };
    out.push(kind);
    match value {
        Value::Nothing | Value::Text(None) => {}
        Value::Object(n) | Value::Unsigned(n) | Value::Float(n) | Value::Pointer(n) | Value::Error(n) => {
            out.num(n.to_le_bytes());
        }
        Value::Signed(n) => out.num(n.to_le_bytes()),
        Value::Byte(n) => out.push(*n),
        Value::Size(all) => all.iter().for_each(|n| out.num(n.to_le_bytes())),
        Value::Range(all) => all.iter().for_each(|n| out.num(n.to_le_bytes())),
        Value::Selector(text) | Value::Text(Some(text)) => out.bytes(text.as_bytes()),
        Value::Bytes(bytes) => out.bytes(bytes),
    }
}

fn put_blobs(out: &mut Vec<u8>, blobs: &[Blob]) {
    out.num((blobs.len() as u32).to_le_bytes());
    for blob in blobs {
        out.num(blob.index.to_le_bytes());
        out.bytes(&blob.bytes);
    }
}

/// Reads a whole trace.
///
/// # Errors
/// `Magic`, `Version`; `Broken` with the offset; `Io`.
pub fn read_trace(mut from: impl Read) -> Result<Vec<Event>, TraceError> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes)?;
    if bytes.get(..8) != Some(&MAGIC[..]) {
        return Err(TraceError::Magic);
    }
    let mut cursor = Cursor { bytes: &bytes, at: 8 };
    let found = cursor.u32()?;
    if found == 0 || found > VERSION {
        return Err(TraceError::Version { found });
    }
    cursor.u32()?;
    let mut events = Vec::new();
    while cursor.at < bytes.len() {
        let start = cursor.at;
        // A run that was killed leaves a last record cut off.
        let Ok(len) = cursor.u32() else { break };
        if len > MAX_RECORD_BYTES {
            return Err(TraceError::Broken { offset: start as u64, what: "record is too long" });
        }
        let end = cursor.at + len as usize;
        if end > bytes.len() {
            break;
        }
        let mut record = Cursor { bytes: &bytes[..end], at: cursor.at };
        events.push(record.event()?);
        if record.at != end {
            return Err(TraceError::Broken { offset: start as u64, what: "record is longer than its fields" });
        }
        cursor.at = end;
    }
    Ok(events)
}

/// An offset in the bytes; reads past the end are errors.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn broken(&self, what: &'static str) -> TraceError {
        TraceError::Broken { offset: self.at as u64, what }
    }

    fn take(&mut self, len: usize) -> Result<&[u8], TraceError> {
        let end = self.at.checked_add(len).filter(|&e| e <= self.bytes.len()).ok_or(self.broken("ends in a field"))?;
        let found = &self.bytes[self.at..end];
        self.at = end;
        Ok(found)
    }

    fn num<const N: usize>(&mut self) -> Result<[u8; N], TraceError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    fn u32(&mut self) -> Result<u32, TraceError> {
        Ok(u32::from_le_bytes(self.num()?))
    }

    fn i32(&mut self) -> Result<i32, TraceError> {
        Ok(i32::from_le_bytes(self.num()?))
    }

    fn u64(&mut self) -> Result<u64, TraceError> {
        Ok(u64::from_le_bytes(self.num()?))
    }

    fn fd(&mut self) -> Result<Fd, TraceError> {
        Ok(Fd(self.i32()?))
    }

    fn blob(&mut self) -> Result<Vec<u8>, TraceError> {
        let len = self.u32()? as usize;
        Ok(self.take(len)?.to_vec())
    }

    fn string(&mut self) -> Result<String, TraceError> {
        let bytes = self.blob()?;
        String::from_utf8(bytes).map_err(|_| self.broken("text is not UTF-8"))
    }

    fn outcome<T>(
        &mut self,
        value: impl FnOnce(&mut Self) -> Result<T, TraceError>,
    ) -> Result<Result<T, Errno>, TraceError> {
        match self.i32()? {
            0 => Ok(Ok(value(self)?)),
            errno => Ok(Err(Errno(errno))),
        }
    }

    fn blobs(&mut self) -> Result<Vec<Blob>, TraceError> {
        let count = self.u32()?;
        let mut blobs = Vec::new();
        for _ in 0..count {
            blobs.push(Blob { index: self.u32()?, bytes: self.blob()? });
        }
        Ok(blobs)
    }

    fn event(&mut self) -> Result<Event, TraceError> {
        let [kind] = self.num()?;
        let moment = Moment { start_ns: self.u64()?, length_ns: self.u64()?, thread: self.u32()? };
        let what = match kind {
            1 => What::Open {
                path: self.string()?,
                flags: OpenFlags::from_bits_retain(self.u32()?),
                result: self.outcome(Self::fd)?,
            },
            2 => What::Close { fd: self.fd()?, result: self.outcome(|_| Ok(()))? },
            3 => What::Ioctl(Box::new(self.ioctl()?)),
            4 => What::Mmap { map: self.map()?, result: self.outcome(|c| Ok(CpuPtr(c.u64()?)))? },
            5 => What::Munmap { addr: CpuPtr(self.u64()?), len_bytes: self.u64()?, result: self.outcome(|_| Ok(()))? },
            6 => self.poll()?,
            7 => What::ReadFile { path: self.string()?, result: self.outcome(Self::blob)? },
            8 => What::ReadDir { path: self.string()?, result: self.outcome(Self::names)? },
            9 => What::Doorbell { at: CpuPtr(self.u64()?), value: self.u64()? },
            10 => What::Memory { at: CpuPtr(self.u64()?), bytes: self.blob()? },
            11 => What::Message(Box::new(self.message()?)),
            12 => What::Computed { at: CpuPtr(self.u64()?), bytes: self.blob()? },
            _ => return Err(self.broken("kind of record is unknown")),
        };
        Ok(Event { moment, what })
    }

    fn message(&mut self) -> Result<MessageEvent, TraceError> {
        let class = self.string()?;
        let [of_class] = self.num()?;
        let (receiver, selector, count) = (self.u64()?, self.string()?, self.u32()?);
        let mut arguments = Vec::new();
        for _ in 0..count {
            arguments.push(self.value()?);
        }
        let (class, selector) = (class.into(), selector.into());
        let message = Message { class, of_class: of_class != 0, receiver, selector, arguments };
        Ok(MessageEvent { message, result: self.value()? })
    }

    fn value(&mut self) -> Result<Value, TraceError> {
        let [kind] = self.num()?;
        Ok(match kind {
            0 => Value::Nothing,
            1 => Value::Object(self.u64()?),
            2 => Value::Selector(self.string()?),
            3 => Value::Unsigned(self.u64()?),
            4 => Value::Signed(i64::from_le_bytes(self.num()?)),
            5 => Value::Float(self.u64()?),
            6 => {
                let [byte] = self.num()?;
                Value::Byte(byte)
            }
            7 => Value::Size([self.u64()?, self.u64()?, self.u64()?]),
            8 => Value::Range([self.u64()?, self.u64()?]),
            9 => Value::Pointer(self.u64()?),
            10 => Value::Text(None),
            11 => Value::Text(Some(self.string()?)),
            12 => Value::Bytes(self.blob()?),
            13 => Value::Error(self.u64()?),
            _ => return Err(self.broken("kind of value is unknown")),
        })
    }

    fn ioctl(&mut self) -> Result<IoctlEvent, TraceError> {
        let (fd, request) = (self.fd()?, self.u32()?);
        let (before, blobs_before) = (self.blob()?, self.blobs()?);
        let result = self.outcome(Self::i32)?;
        Ok(IoctlEvent { fd, request, before, blobs_before, result, after: self.blob()?, blobs_after: self.blobs()? })
    }

    fn map(&mut self) -> Result<MapRequest, TraceError> {
        let (addr, len_bytes) = (self.u64()?, self.u64()?);
        let (prot, flags) = (Prot::from_bits_retain(self.u32()?), MapFlags::from_bits_retain(self.u32()?));
        let (fd, offset) = (self.i32()?, self.u64()?);
        let addr = (addr != 0).then_some(CpuPtr(addr));
        Ok(MapRequest { addr, len_bytes, prot, flags, fd: (fd >= 0).then_some(Fd(fd)), offset })
    }

    fn poll(&mut self) -> Result<What, TraceError> {
        let count = self.u32()?;
        let mut fds = Vec::new();
        for _ in 0..count {
            let fd = self.fd()?;
            let (wanted, seen) = (self.u32()?, self.u32()?);
            fds.push((fd, PollEvents::from_bits_retain(wanted), PollEvents::from_bits_retain(seen)));
        }
        Ok(What::Poll { fds, timeout_ms: self.i32()?, result: self.outcome(Self::u64)? })
    }

    fn names(&mut self) -> Result<Vec<String>, TraceError> {
        let count = self.u32()?;
        (0..count).map(|_| self.string()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_of_each() -> Vec<Event> {
        let moment = Moment { start_ns: 5, length_ns: 70, thread: 2 };
        let map = MapRequest::file(Fd(4), 0xc000_0000_0000_0000, 0x2000).at(CpuPtr(0x7000));
        let blob = Blob { index: 1, bytes: vec![1, 2, 3] };
        let call = IoctlEvent {
            fd: Fd(3),
            request: 0xc018_4b18,
            before: vec![0; 24],
            blobs_before: vec![blob.clone()],
            after: vec![1; 24],
            blobs_after: vec![blob, Blob { index: 0, bytes: Vec::new() }],
            result: Ok(0),
        };
        [
            What::Open { path: "/dev/kfd".into(), flags: OpenFlags::DEVICE, result: Ok(Fd(3)) },
            What::Open { path: "/dev/no".into(), flags: OpenFlags::READ, result: Err(Errno::ENOENT) },
            What::Close { fd: Fd(3), result: Ok(()) },
            What::Ioctl(Box::new(call)),
            What::Mmap { map, result: Ok(CpuPtr(0x7000)) },
            What::Mmap { map: MapRequest::reserve(4096), result: Err(Errno::ENOMEM) },
            What::Munmap { addr: CpuPtr(0x7000), len_bytes: 0x2000, result: Err(Errno::EINVAL) },
            What::Poll { fds: vec![(Fd(9), PollEvents::IN, PollEvents::HUP)], timeout_ms: -1, result: Ok(1) },
            What::ReadFile { path: "/sys/x".into(), result: Ok(b"key 1\n".to_vec()) },
            What::ReadDir { path: "/sys".into(), result: Ok(vec!["a".into(), "b".into()]) },
            What::Doorbell { at: CpuPtr(0x9008), value: 77 },
            What::Memory { at: CpuPtr(0x7100), bytes: vec![4; 16] },
            What::Message(Box::new(every_value())),
            What::Computed { at: CpuPtr(0x7108), bytes: vec![5; 8] },
        ]
        .map(|what| Event { moment, what })
        .to_vec()
    }

    fn every_value() -> MessageEvent {
        let arguments = vec![
            Value::Object(7),
            Value::Selector("setMathMode:".into()),
            Value::Unsigned(u64::MAX),
            Value::Signed(-3),
            Value::Float(1.5_f64.to_bits()),
            Value::Byte(1),
            Value::Size([1, 2, 3]),
            Value::Range([4, 5]),
            Value::Pointer(0x9000),
            Value::Text(None),
            Value::Text(Some("kernel".into())),
            Value::Bytes(vec![1, 2]),
            Value::Error(0x30),
        ];
        let (class, selector) = ("MTLDevice".into(), "all:".into());
        let message = Message { class, of_class: true, receiver: 0x10, selector, arguments };
        MessageEvent { message, result: Value::Nothing }
    }

    fn written(events: &[Event]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut sink = FileSink::new(&mut bytes).unwrap();
        events.iter().for_each(|e| sink.event(e));
        assert!(sink.failed().is_none());
        bytes
    }

    #[test]
    fn every_kind_of_event_comes_back_as_it_was() {
        let events = one_of_each();
        assert_eq!(read_trace(&written(&events)[..]).unwrap(), events);
    }

    #[test]
    fn doorbell_record_has_the_documented_bytes() {
        let moment = Moment { start_ns: 1, length_ns: 2, thread: 3 };
        let bytes = written(&[Event { moment, what: What::Doorbell { at: CpuPtr(0x10), value: 0x20 } }]);
        let mut expected = b"DBTRACE\0\x03\0\0\0\0\0\0\0".to_vec();
        expected.extend([37, 0, 0, 0, 9]);
        expected.extend([1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0]);
        expected.extend([0x10, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes, expected);
    }

    #[test]
    fn file_cut_off_in_a_record_ends_with_the_record_before() {
        let events = one_of_each();
        let bytes = written(&events);
        let found = read_trace(&bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(found, events[..events.len() - 1]);
    }

    #[test]
    fn foreign_files_versions_and_broken_records_are_errors() {
        let bytes = written(&one_of_each());
        assert!(matches!(read_trace(&b"DBTRACY\0\x01\0\0\0"[..]), Err(TraceError::Magic)));
        assert!(matches!(read_trace(&b""[..]), Err(TraceError::Magic)));
        let mut other = bytes.clone();
        other[8] = 4;
        assert!(matches!(read_trace(&other[..]), Err(TraceError::Version { found: 4 })));
        let mut other = bytes.clone();
        other[20] = 99;
        assert!(matches!(read_trace(&other[..]), Err(TraceError::Broken { .. })));
        let mut other = bytes;
        other[19] = 0xff;
        assert!(matches!(read_trace(&other[..]), Err(TraceError::Broken { offset: 16, .. })));
    }

    #[test]
    fn every_flipped_byte_is_read_or_refused() {
        let bytes = written(&one_of_each());
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 0xff;
            // Any result is fine except a panic or an endless read.
            let _read_or_refused = read_trace(&other[..]);
        }
    }
}
