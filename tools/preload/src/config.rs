//! What is traced and where it goes: read from the environment once, at the start.
#![forbid(unsafe_code)]

use crate::own;
use doorbell_ioctl::port::monotonic_ns;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::OnceLock;

/// The environment's wishes.
pub struct Config {
    /// Files traced in addition to the drivers'; one that ends in `/` means all below it.
    paths: Vec<Vec<u8>>,
    pub text: Text,
    pub binary: Option<PathBuf>,
    /// Time 0 of the trace.
    pub began_ns: u64,
}

/// Where lines go.
pub enum Text {
    Nowhere,
    StandardError,
    File(PathBuf),
}

static CONFIG: OnceLock<Config> = OnceLock::new();

/// The configuration; the first caller sets up the process. Without our variables nothing is allocated: the caller may
/// be an allocator.
pub fn config() -> &'static Config {
    CONFIG.get_or_init(|| {
        own::start();
        let paths = std::env::var_os("DOORBELL_TRACE_PATHS")
            .map(|list| list.into_vec().split(|b| *b == b':').filter(|p| !p.is_empty()).map(<[u8]>::to_vec).collect());
        let text = match std::env::var_os("DOORBELL_TRACE_TEXT") {
            None => Text::StandardError,
            Some(name) if name.is_empty() => Text::Nowhere,
            Some(name) => Text::File(absolute(&name)),
        };
        let binary = std::env::var_os("DOORBELL_TRACE").filter(|n| !n.is_empty()).map(|n| absolute(&n));
        Config { paths: paths.unwrap_or_default(), text, binary, began_ns: monotonic_ns() }
    })
}

/// The program may change its folder before its first traced call.
fn absolute(name: &OsStr) -> PathBuf {
    std::path::absolute(name).unwrap_or_else(|_| name.into())
}

impl Config {
    /// Whether the file of that name is traced.
    pub fn is_traced(&self, path: &[u8]) -> bool {
        let named = |known: &[u8]| path == known || known.ends_with(b"/") && path.starts_with(known);
        // `nvidiactl`, `nvidia0`, `nvidia-uvm`: one family of names.
        let is_nvidia = path.starts_with(b"/dev/nvidia");
        named(b"/dev/kfd") || named(b"/dev/dri/") || is_nvidia || self.paths.iter().any(|p| named(p))
    }

    /// Whether a relative path might name a traced file: it ends in a name that one has.
    pub fn may_be_traced(&self, path: &[u8]) -> bool {
        let last = path.rsplit(|b| *b == b'/').next().unwrap_or_default();
        let families: [&[u8]; 3] = [b"card", b"renderD", b"nvidia"];
        let is_driver = last == b"kfd" || families.iter().any(|f| last.starts_with(f));
        let named = |p: &Vec<u8>| p.ends_with(b"/") || p.rsplit(|b| *b == b'/').next() == Some(last);
        is_driver || self.paths.iter().any(named)
    }
}

/// The name of an open file, as the kernel knows it.
pub fn name_of(fd: libc::c_int) -> Option<Vec<u8>> {
    let name = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    Some(name.as_os_str().as_bytes().to_vec())
}
