//! Permission to use AMX tiles: a process requests it once, before the first thread touches a tile, because the tiles
//! make every thread's saved state 8 KiB larger.
//!
//! Source: Linux `Documentation/arch/x86/xstate.rst`, arch_prctl(2); Linux 5.16 and later.

/// Whether this process may use tiles; requests it the first time.
#[must_use]
pub fn request_tiles() -> bool {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    {
        const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
        const XFEATURE_XTILEDATA: libc::c_long = 18;
        // SAFETY: this call takes two numbers and touches no memory of the process.
        unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
    }
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
    {
        false
    }
}
