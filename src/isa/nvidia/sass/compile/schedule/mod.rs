//! Schedule: lines → basic blocks in issue order.
//!
//! In: the chip's lines. Out: [`list::Listing`], with ordered blocks.
//!
//! Order: [`list::listing`] cuts the code into blocks, [`banks`] avoids register bank conflicts, [`list::schedule`] is
//! the list scheduler.

pub(crate) mod banks;
pub(crate) mod list;
