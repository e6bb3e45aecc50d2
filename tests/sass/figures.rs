//! The cost of our code relative to that of ptxas -O3 for the same text.

use doorbell::elf::cubin::Cubin;
use doorbell::emu::sass::Stats;
use doorbell::isa::sass::{Pipe, decode};
use std::collections::BTreeMap;
use std::fmt;

/// Instructions without padding, registers, executed instructions, estimated cycles.
#[derive(Clone, Copy)]
pub struct Figures(pub [f64; 4]);

const NAMES: [&str; 4] = ["instructions", "registers", "executed", "cycles"];

impl Figures {
    /// Of a kernel that has been run.
    pub fn of(cubin: &[u8], name: &str, stats: &Stats) -> Figures {
        let file = Cubin::parse(cubin).expect("a cubin");
        let kernel = file.kernel(name).expect("the kernel");
        let image = file.image(0).expect("an image");
        let code = &image[kernel.code_offset as usize..][..kernel.code_bytes as usize];
        let words = code.chunks_exact(16).map(|w| u128::from_le_bytes(w.try_into().expect("16 bytes")));
        let working = |w: &u128| decode(*w).is_ok_and(|i| i.form().pipe != Pipe::Nop);
        // The branch to itself after the end is the last.
        let count = words.filter(working).count() - 1;
        Figures([count as f64, f64::from(kernel.registers), stats.instructions as f64, stats.cycles as f64])
    }
}

/// Kernels by groups: ours and theirs.
#[derive(Default)]
pub struct Ratios(BTreeMap<String, Vec<(String, Figures, Figures)>>);

impl Ratios {
    pub fn add(&mut self, group: &str, kernel: &str, (ours, theirs): (Figures, Figures)) {
        self.0.entry(group.to_owned()).or_default().push((kernel.to_owned(), ours, theirs));
    }

    pub fn count(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    /// Geometric means of ours to theirs.
    fn means<'a>(kernels: impl Iterator<Item = &'a (String, Figures, Figures)> + Clone) -> [f64; 4] {
        let n = kernels.clone().count() as f64;
        [0, 1, 2, 3].map(|k| (kernels.clone().map(|(_, a, b)| (a.0[k] / b.0[k]).ln()).sum::<f64>() / n).exp())
    }

    /// The means over all are within these bounds.
    pub fn hold(&self, bounds: [f64; 4]) {
        let means = Ratios::means(self.0.values().flatten());
        for ((mean, bound), what) in means.iter().zip(bounds).zip(NAMES) {
            assert!(*mean <= bound, "{mean:.3} of the {what} of ptxas's code, more than {bound}\n{self}");
        }
    }
}

/// A table of the groups' means, and of the kernels where most is left to do.
impl fmt::Display for Ratios {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |f: &mut fmt::Formatter<'_>, name: &str, count: usize, means: [f64; 4]| {
            writeln!(f, "{name:<16}{count:>6} {}", means.map(|m| format!("{m:>13.3}")).concat())
        };
        writeln!(f, "{:<16}{:>6} {}", "of ptxas's", "", NAMES.map(|n| format!("{n:>13}")).concat())?;
        for (group, kernels) in &self.0 {
            line(f, group, kernels.len(), Ratios::means(kernels.iter()))?;
        }
        line(f, "all", self.count(), Ratios::means(self.0.values().flatten()))?;
        for (k, name) in NAMES.iter().enumerate() {
            let mut all: Vec<_> =
                self.0.iter().flat_map(|(g, v)| v.iter().map(move |(n, a, b)| (a.0[k] / b.0[k], g, n))).collect();
            all.sort_by(|a, b| b.0.total_cmp(&a.0));
            let worst: Vec<String> = all.iter().take(4).map(|(r, g, n)| format!("{g} {n} {r:.2}")).collect();
            writeln!(f, "most {name}: {}", worst.join(", "))?;
        }
        Ok(())
    }
}
