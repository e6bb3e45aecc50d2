//! Read: PTX text → a body as a list of instructions.
//!
//! In: the text, and its module's declarations. Out: [`flat::Body`], a list of instructions whose registers, labels and
//! symbols are numbers or addresses; the module's variables ([`data::Data`]) and functions ([`call::Signatures`]).
//! Undeclared names are errors.
//!
//! Order: [`source`] builds a body while the text is parsed ([`mnemonics`] and [`operands`] represent its
//! instructions), [`call`] numbers the functions, [`data`] assigns addresses to variables, [`directives`] reads a
//! kernel's declaration, [`flat`] resolves names.

pub(crate) mod call;
pub(crate) mod data;
pub(super) mod directives;
pub(super) mod flat;
pub(crate) mod mnemonics;
pub(crate) mod operands;
pub(crate) mod source;
