//! The files that a trace goes to. They have high numbers, so that the program's own are what they would be without us.
//!
//! Source: flock(2), fcntl(2) F_DUPFD_CLOEXEC, getrlimit(2).

use crate::config::{Config, Text};
use crate::{fds, own, real};
use doorbell_ioctl::port::Errno;
use doorbell_ioctl::trace::{Event, FileSink, Sink, TextSink};
use libc::c_int;
use std::ffi::CString;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::atomic::Ordering;

/// Our numbers lie this far below the limit of the process.
const BELOW_LIMIT: u64 = 32;
/// The highest limit that counts: a table of files grows with its highest number.
const MAX_LIMIT: u64 = 1 << 16;

/// Where events go, made at the first one.
pub struct Outputs {
    text: Option<TextSink<Lines>>,
    file: Option<FileSink<Output>>,
}

impl Outputs {
    /// Opens what the configuration names. A file that cannot be made is a line on standard error, and left out.
    pub fn new(config: &Config, is_child: bool) -> Self {
        for slot in &fds::OURS {
            close(slot.swap(-1, Ordering::Relaxed));
        }
        let text = match &config.text {
            Text::Nowhere => None,
            Text::StandardError => Output::place(0, copy(libc::STDERR_FILENO)).map(|out| (out, is_child)),
            Text::File(name) => opened(0, name, is_child).map(|(out, own_name)| (out, is_child && !own_name)),
        };
        let file = config.binary.as_ref().and_then(|name| opened(1, name, is_child));
        let prefix = |marked: bool| if marked { format!("[{}] ", std::process::id()) } else { String::new() };
        Self {
            text: text.map(|(out, marked)| TextSink::new(Lines { out, prefix: prefix(marked), line: Vec::new() })),
            file: file.and_then(|(out, _)| FileSink::new(out).ok()),
        }
    }

    pub fn event(&mut self, event: &Event) {
        if let Some(sink) = &mut self.text {
            sink.event(event);
        }
        if let Some(sink) = &mut self.file {
            sink.event(event);
        }
    }
}

/// Opens a trace's file under its name or one of its own; returns whether the process's number is in the name.
fn opened(slot: usize, name: &Path, is_child: bool) -> Option<(Output, bool)> {
    let number = std::process::id().to_string();
    let text = name.as_os_str().as_bytes();
    let named = text.windows(2).any(|w| w == b"%p");
    let mut plain = Vec::new();
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        rest = match tail {
            [b'p', tail @ ..] if *first == b'%' => {
                plain.extend(number.as_bytes());
                tail
            }
            _ => {
                plain.push(*first);
                tail
            }
        };
    }
    let mut with_number = plain.clone();
    with_number.extend(format!(".{number}").as_bytes());
    let tries = match (named, is_child) {
        (true, _) => vec![(plain, true)],
        (false, false) => vec![(plain, false), (with_number, true)],
        // What is no regular file (a terminal, a pipe) is shared with the parent.
        (false, true) if is_regular(name) => vec![(with_number, true)],
        (false, true) => vec![(plain, false)],
    };
    let mut why = Errno::EINVAL;
    for (bytes, own_name) in tries {
        match create(bytes) {
            Ok(fd) => return Output::place(slot, fd).map(|out| (out, own_name)),
            Err(errno) => why = errno,
        }
    }
    complain(&format!("doorbell-preload: {}: not written: {why}\n", name.display()));
    None
}

fn is_regular(name: &Path) -> bool {
    std::fs::metadata(name).map_or(true, |m| m.is_file())
}

/// Opens a file to append whole records to; a regular one is truncated, after it has been locked against other
/// processes that trace.
fn create(name: Vec<u8>) -> Result<c_int, Errno> {
    let name = CString::new(std::ffi::OsString::from_vec(name).into_vec()).map_err(|_| Errno::EINVAL)?;
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC | libc::O_NOCTTY;
    let fd = real::create(&name, flags, 0o666);
    if fd < 0 {
        return Err(Errno(own::errno()));
    }
    let mut found = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the descriptor is open, and `found` holds its answer.
    let rc = unsafe { libc::fstat(fd, found.as_mut_ptr()) };
    // SAFETY: written by the call when it returns 0.
    let is_file = rc == 0 && unsafe { found.assume_init() }.st_mode & libc::S_IFMT == libc::S_IFREG;
    if is_file {
        // SAFETY: the descriptor is open.
        if unsafe { libc::flock(fd, libc::LOCK_EX | libc::LOCK_NB) } != 0 {
            let errno = Errno(own::errno());
            close(fd);
            return Err(errno);
        }
        // SAFETY: the descriptor is open for writing. A file that cannot be emptied is appended to.
        unsafe { libc::ftruncate(fd, 0) };
    }
    Ok(raised(fd))
}

/// The same file under a high number, or as it was when there is none free.
fn raised(fd: c_int) -> c_int {
    let high = copy(fd);
    if high < 0 {
        return fd;
    }
    close(fd);
    high
}

/// A copy with a high number, not kept over exec; negative when there is none.
fn copy(fd: c_int) -> c_int {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a place for the answer.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    let lowest = limit.rlim_cur.min(MAX_LIMIT).saturating_sub(BELOW_LIMIT);
    let lowest = c_int::try_from(lowest).unwrap_or(0);
    // SAFETY: F_DUPFD_CLOEXEC takes any number and a lowest one. It comes back here (`exports::fcntl`), which passes it
    // on.
    unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, lowest) }
}

fn close(fd: c_int) {
    if let (0.., Some(call)) = (fd, real::close()) {
        // SAFETY: a number that only we use.
        unsafe { call(fd) };
    }
}

fn complain(line: &str) {
    // SAFETY: the bytes are valid for their length.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}

/// One of our files. It is never closed by a drop: its number is the program's after a dup2 over it.
pub struct Output {
    slot: usize,
}

impl Output {
    fn place(slot: usize, fd: c_int) -> Option<Self> {
        let place = fds::OURS.get(slot).filter(|_| fd >= 0)?;
        place.store(fd, Ordering::Relaxed);
        Some(Self { slot })
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fd = fds::OURS.get(self.slot).map_or(-1, |slot| slot.load(Ordering::Relaxed));
        // SAFETY: the bytes are valid for their length; a number that is no longer ours is -1, which the kernel
        // refuses.
        let n = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
        usize::try_from(n).map_err(|_| {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::BrokenPipe {
                own::drop_sigpipe();
            }
            error
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes whole lines at once, with a prefix where processes share a file.
struct Lines {
    out: Output,
    prefix: String,
    line: Vec<u8>,
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.line.is_empty() {
            self.line.extend(self.prefix.as_bytes());
        }
        self.line.extend(bytes);
        if bytes.ends_with(b"\n") {
            let sent = self.out.write_all(&self.line);
            self.line.clear();
            sent?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
