//! The table of sm_90: forms, their fields, the values of those, and a name for each form.

#[rustfmt::skip]
mod fields;
#[rustfmt::skip]
mod lists;
#[rustfmt::skip]
pub mod op;
#[rustfmt::skip]
mod rows;

pub(super) use rows::FORMS;
