//! What code costs, to be put beside that of ptxas -O3 for the same text.

use doorbell::elf::cubin::Cubin;
use doorbell::emu::sass::Stats;
use doorbell::isa::sass::{Pipe, decode};

/// Instructions without padding, registers, executed instructions, estimated cycles.
#[derive(Clone, Copy)]
pub struct Figures(pub [f64; 4]);

impl Figures {
    /// Of a kernel that has been run.
    pub fn of(cubin: &[u8], name: &str, stats: &Stats) -> Figures {
        let file = Cubin::parse(cubin).expect("a cubin");
        let kernel = file.kernel(name).expect("the kernel");
        let image = file.image(0).expect("an image");
        let code = &image[kernel.code_offset as usize..][..kernel.code_bytes as usize];
        let words = code.chunks_exact(16).map(|w| u128::from_le_bytes(w.try_into().expect("16 bytes")));
        let working = |w: &u128| decode(*w).is_ok_and(|i| i.form().pipe != Pipe::Nop);
        // The branch to itself behind the end is the last.
        let count = words.filter(working).count() - 1;
        Figures([count as f64, f64::from(kernel.registers), stats.instructions as f64, stats.cycles as f64])
    }
}
