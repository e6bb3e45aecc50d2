//! Error numbers of the kernel, with their names.
//!
//! Source: errno(3), `asm-generic/errno.h`; the numbers are the running system's, from libc.

use std::fmt;

/// An error number of the kernel. Prints as its name.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

/// Declares constants and the table that names them.
macro_rules! errnos {
    ($($name:ident)*) => {
        #[allow(missing_docs)]
        impl Errno {
            $(pub const $name: Self = Self(libc::$name);)*
        }
        const NAMES: &[(i32, &str)] = &[$((libc::$name, stringify!($name))),*];
    };
}

errnos! {
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT EBUSY EEXIST EXDEV ENODEV ENOTDIR EISDIR
    EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY
    ELOOP EIDRM ENODATA ETIME EPROTO EBADMSG EOVERFLOW EILSEQ EMSGSIZE EOPNOTSUPP EADDRINUSE ENOBUFS ETIMEDOUT EALREADY ESTALE EDQUOT
    ECANCELED EOWNERDEAD
}

impl Errno {
    /// The error of the last failed call of this thread.
    #[must_use]
    pub fn last() -> Self {
        Self(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }

    /// The number in an I/O error; `EIO` for one that has none.
    #[must_use]
    pub fn of(error: &std::io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }

    /// The name, as `EINVAL`; `None` for a number without one here.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        NAMES.iter().find(|(number, _)| *number == self.0).map(|(_, name)| *name)
    }

    /// The number with that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(_, known)| *known == name).map(|(number, _)| Self(*number))
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}({})", self.0)
    }
}

impl std::error::Error for Errno {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_print_as_their_names_and_unknown_ones_as_numbers() {
        assert_eq!(Errno::EINVAL.to_string(), "EINVAL");
        assert_eq!(Errno(-3).to_string(), "errno -3");
        assert_eq!(Errno::named("ENOTTY"), Some(Errno::ENOTTY));
        assert_eq!(Errno::named("EWHAT"), None);
    }

    #[test]
    fn error_of_a_failed_call_is_its_number() {
        let error = std::fs::File::open("/nowhere/at/all").unwrap_err();
        assert_eq!(Errno::of(&error), Errno::ENOENT);
    }
}
