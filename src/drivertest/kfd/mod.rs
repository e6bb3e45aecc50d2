//! Cases for AMD's KFD, by family.
//!
//! Source: docs/amd.md (which cites the kernel's files); the kernel's order of checks decides the error that a case
//! expects. Every body works on the running kernel as on the software machine, and skips with a key where a chip or a
//! second card is missing.

pub(crate) mod client;
mod engines;
mod events;
mod faults;
mod hostile;
mod kernels;
mod memory;
mod open;
pub(crate) mod packets;
mod processes;
mod queues;
mod threads;

use crate::case::{Case, Step};
use client::Kfd;

/// All cases.
#[must_use]
pub(crate) fn cases() -> Vec<Case> {
    let families =
        [open::cases, memory::cases, queues::cases, events::cases, engines::cases, kernels::cases, faults::cases];
    let mut all: Vec<Case> = families.into_iter().flat_map(|family| family()).collect();
    all.extend(hostile::cases());
    all.extend(threads::cases());
    all.extend(processes::cases());
    all
}

/// A case with a process on the first card, which gives back all it made.
fn on_card(name: &str, what: &str, body: impl Fn(&Kfd<'_>) -> Step + Send + Sync + 'static) -> Case {
    boxed(name, what, Box::new(body))
}

/// Apart from [`on_card`], which is compiled for every body.
fn boxed(name: &str, what: &str, body: Box<dyn Fn(&Kfd<'_>) -> Step + Send + Sync>) -> Case {
    Case::new(format!("kfd.{name}"), what, move |bench| {
        let kfd = Kfd::bound(bench)?;
        body(&kfd)?;
        bench.step("tear-down");
        kfd.close()
    })
}

/// The same before the address space is bound.
fn unbound(name: &str, what: &str, body: impl Fn(&Kfd<'_>) -> Step + Send + Sync + 'static) -> Case {
    Case::new(format!("kfd.{name}"), what, move |bench| {
        let kfd = Kfd::unbound(bench)?;
        body(&kfd)?;
        kfd.close()
    })
}
