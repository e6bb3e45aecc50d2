//! Commands to RM's objects and their structs.
//!
//! A command's number holds the class it is for (31:16), a category and an index. The names of all commands are in
//! `control_names`.

mod channel;
mod client;
mod debug;
mod gpu;
mod service;

pub use channel::*;
pub use client::*;
pub use debug::*;
pub use gpu::*;
pub use service::*;

use std::marker::PhantomData;

/// A command whose struct is `T`.
#[derive(Debug)]
pub struct Control<T> {
    pub cmd: u32,
    params: PhantomData<fn() -> T>,
}

impl<T> Control<T> {
    const fn new(cmd: u32) -> Self {
        Self { cmd, params: PhantomData }
    }

    /// What `params_size` has to be.
    #[must_use]
    pub const fn len_bytes(&self) -> u32 {
        size_of::<T>() as u32
    }
}
