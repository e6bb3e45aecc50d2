//! The messages of DEBUG, in tinygrad's format.

use super::Session;
use super::kernels::Compiled;
use crate::codegen::{Estimates, Program};
use crate::device::Command;
use crate::uop::UOp;
use std::io::IsTerminal;

impl Session {
    /// DEBUG=2: one line per kernel: device, number, name, arguments, memory in use, time, total time, rates.
    pub(super) fn print_launch(&self, device: &str, kernel: Option<&Compiled>, command: &Command, ns: u64) {
        let (name, e) = match (kernel, command) {
            (Some(k), _) => (
                if std::io::stderr().is_terminal() { &k.program.display_name } else { &k.program.name }.clone(),
                k.program.estimates,
            ),
            (None, Command::Copy { src, len_bytes, .. }) => (
                format!("copy {len_bytes} B <- {}", src.memory.device().name()),
                Estimates { mem_bytes: *len_bytes, ..Estimates::default() },
            ),
            _ => ("copy".into(), Estimates::default()),
        };
        let args = match command {
            Command::Exec { args, .. } => args.len(),
            _ => 2,
        };
        self.print_line(device, &name, args, e, ns);
    }

    /// The line of one kernel or copy.
    pub(super) fn print_line(&self, device: &str, name: &str, args: usize, e: Estimates, ns: u64) {
        let t = self.counters.totals();
        let used: u64 = self.open_devices().iter().map(|d| d.device.memory_used()).sum();
        let secs = (ns as f64 / 1e9).max(1e-12);
        self.say(&format!(
            "*** {device:<6} {:4} {name:<32} arg {args:2} mem {:6.3} GB tm {:9.2}us/{:9.2}ms ({:7.1} GFLOPS {:6.1}|{:.1} GB/s)",
            t.kernels + t.copies,
            used as f64 / 1e9,
            ns as f64 / 1e3,
            t.time_ns as f64 / 1e6,
            e.flops as f64 / secs / 1e9,
            e.unique_bytes as f64 / secs / 1e9,
            e.mem_bytes as f64 / secs / 1e9,
        ));
    }

    /// DEBUG=3: opts; 4: the kernel graph; 6: the linear program.
    pub(super) fn print_code(&self, ast: &UOp, p: &Program) {
        if self.options.debug >= 3 {
            self.say(&format!("{}: opts [{}]", p.name, p.opts.join(", ")));
        }
        if self.options.debug >= 4 {
            self.say(&p.source());
        }
        if self.options.debug >= 5 {
            self.say(&ast.tree());
        }
        if self.options.debug >= 6 {
            for (k, u) in p.uops.iter().enumerate() {
                self.say(&format!("{k:4} {u:?} <- {:?}", u.src().iter().map(UOp::id).collect::<Vec<_>>()));
            }
        }
    }
}
