//! Read: PTX text → a body as a list of instructions.
//!
//! In: the text, and what its module declares. Out: [`flat::Body`], a list of instructions whose registers, labels and
//! symbols are numbers or places; the module's variables ([`data::Data`]) and functions ([`call::Signatures`]).
//! Refused: what the text names and does not declare.
//!
//! Order: [`source`] reads a body while the text is parsed ([`mnemonics`] and [`operands`] are how it keeps an
//! instruction), [`call`] numbers the functions, [`data`] places the variables, [`directives`] takes what a kernel's
//! declaration says, [`flat`] resolves names.

pub mod call;
pub mod data;
pub mod directives;
pub mod flat;
pub mod mnemonics;
pub mod operands;
pub mod source;
