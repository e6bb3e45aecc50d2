//! A harness for GPU drivers: cases that drive AMD's KFD and NVIDIA's RM and UVM without vendor libraries, a runner
//! with a process a case, and faults under which every case is seen to fail.
//!
//! Place: above `ioctl` (the only way to a driver) and `emu` (drivers and cards in software); the command line runs it.
//! `case` (what a case is) → `kfd`, `nv` (the cases, by family) → `bench` (a case on a machine, with its checks for
//! leaks and the kernel's log), `child` (its second process) → `mutant` (faults, and whether a case notices) → `run`
//! (processes, deadlines, journal) → `report` (text, KTAP, JUnit, JSON), `expect` (what is known to fail). Guide:
//! docs/guide/drivertest.md.
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

pub mod bench;
pub mod bisect;
pub mod case;
#[cfg(test)]
mod checks;
mod child;
pub mod expect;
pub mod fuzz;
mod kernel_log;
mod kfd;
pub mod mutant;
mod nv;
pub mod report;
pub mod run;
pub mod score;
pub mod select;
pub mod syzlang;
pub mod target;

pub use bench::Bench;
pub use case::{Case, Problem, Verdict};
pub use target::{Driver, Target};

/// Every case of a driver, by name.
#[must_use]
pub fn cases(driver: Driver) -> Vec<Case> {
    let mut all = match driver {
        Driver::Kfd => kfd::cases(),
        Driver::Nv => nv::cases(),
    };
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

#[cfg(doctest)]
#[doc = include_str!("README.md")]
struct Readme;
