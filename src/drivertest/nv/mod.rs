//! Cases for NVIDIA's RM and UVM, by family.
//!
//! Source: docs/nv.md and NVIDIA's open kernel modules for checks and their codes. Every body works on the running
//! kernel as on the software machine, and skips with a key where a class, a second card or a release is missing.

pub(crate) mod channel;
mod channels;
pub(crate) mod client;
pub(crate) mod code;
mod controls;
mod dma;
mod engines;
mod events;
mod faults;
mod files;
mod hostile;
mod kernels;
mod memory;
pub(crate) mod methods;
mod objects;
pub(crate) mod outcome;
mod processes;
mod threads;
mod uvm;
mod uvm_tests;

use crate::case::{Case, Step};
use client::{Client, Device};

/// All cases.
#[must_use]
pub(crate) fn cases() -> Vec<Case> {
    let families = [
        files::cases,
        objects::cases,
        controls::cases,
        memory::cases,
        dma::cases,
        uvm::cases,
        channels::cases,
        engines::cases,
        events::cases,
        faults::cases,
        kernels::cases,
        hostile::cases,
        threads::cases,
        processes::cases,
        uvm_tests::cases,
    ];
    families.into_iter().flat_map(|family| family()).collect()
}

/// A case with a card and a registered address space, which gives back all it made.
fn on_card(name: &str, what: &str, body: impl Fn(&Device<'_>) -> Step + Send + Sync + 'static) -> Case {
    boxed(name, what, Box::new(body))
}

/// Apart from [`on_card`], which is compiled for every body.
fn boxed(name: &str, what: &str, body: Box<dyn Fn(&Device<'_>) -> Step + Send + Sync>) -> Case {
    Case::new(format!("nv.{name}"), what, move |bench| {
        let device = Device::new(bench)?;
        body(&device)?;
        bench.step("tear-down");
        device.end()
    })
}

/// A case with a client alone.
fn with_client(name: &str, what: &str, body: impl Fn(&Client<'_>) -> Step + Send + Sync + 'static) -> Case {
    Case::new(format!("nv.{name}"), what, move |bench| {
        let client = Client::new(bench)?;
        body(&client)?;
        client.end()
    })
}
