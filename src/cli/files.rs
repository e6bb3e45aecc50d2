//! Files that a user names: read to a limit, so that a device file or a pipe without an end is an error.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The most that is read of a regular file, and of anything else.
const FILE_MOST: u64 = 4 << 30;
const STREAM_MOST: u64 = 64 << 20;

/// A file's bytes.
///
/// # Errors
/// The system's; a file that is longer than the limit, which the error names.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let about = file.metadata()?;
    let most = if about.is_file() { FILE_MOST } else { STREAM_MOST };
    let too_long = || io::Error::other(format!("longer than {most} bytes, which is the most that is read of it"));
    if about.is_file() && about.len() > most {
        return Err(too_long());
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(too_long()) } else { Ok(bytes) }
}

/// A file's text.
///
/// # Errors
/// As [`read`]; bytes that are not UTF-8.
#[cfg(any(test, all(target_os = "linux", feature = "amd", feature = "nv", feature = "emu")))]
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_without_an_end_is_an_error_with_its_limit() {
        let error = read(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(error.to_string(), "longer than 67108864 bytes, which is the most that is read of it");
        assert_eq!(read(Path::new("/dev/null")).unwrap(), Vec::<u8>::new());
        assert!(read_text(Path::new("/proc/self/status")).unwrap().starts_with("Name:"));
    }
}
