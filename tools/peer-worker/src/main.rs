//! Doorbell as one of the measured peers: the workloads that PyTorch, numpy, JAX, onnxruntime, candle, burn and
//! tinygrad run, on the same inputs, with the same line protocol. Cores: `PEERS_THREADS`. Built by `cargo build --profile
//! bench -p peer-worker` (to `target/release`): the profile `release` leaves what makes kernels unoptimised.

mod inputs;
mod protocol;
mod workloads;

use doorbell::engine::{self, Options};

/// Graphs are many small nodes made and freed, which this allocator does faster than the C library's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    let options = Options::from_env().map(|o| {
        let threads = std::env::var("PEERS_THREADS").ok().and_then(|t| t.parse().ok());
        Options { threads: o.threads.or(threads), ..o }
    });
    let done = options.map_err(|e| e.to_string()).and_then(|o| {
        doorbell::tensor::set_default_device(&o.device);
        engine::install(o).map_err(|e| e.to_string())?;
        protocol::serve(&|name| workloads::make(name).map_err(|e| e.to_string())).map_err(|e| e.to_string())
    });
    match done {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("peer-worker: {e}");
            std::process::ExitCode::FAILURE
        }
    }
}
