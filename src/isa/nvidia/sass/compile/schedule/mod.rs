//! Schedule: lines → pieces of straight code in the order that they are issued.
//!
//! In: the chip's lines. Out: [`list::Listing`], whose pieces are ordered.
//!
//! Order: [`list::listing`] cuts the code into pieces, [`banks`] gives operands of one instruction registers of
//! different banks, [`list::schedule`] is the list scheduler.

pub mod banks;
pub mod list;
