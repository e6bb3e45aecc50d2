//! The `doorbell` binary: see `cli`.

mod cli;

/// Graphs are many small nodes made and freed, which this allocator does faster than the C library's.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    cli::run()
}
