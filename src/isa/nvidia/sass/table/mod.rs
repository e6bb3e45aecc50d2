//! The table: forms of all chips, their fields, the values of those and what contradicts each other, and a name for each form.

#[rustfmt::skip]
mod fields;
#[rustfmt::skip]
mod legal;
#[rustfmt::skip]
mod lists;
#[rustfmt::skip]
pub mod op;
#[rustfmt::skip]
mod rows;

pub(super) use rows::FORMS;
