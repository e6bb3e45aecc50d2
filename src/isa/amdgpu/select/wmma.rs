//! The matrix unit.

use super::mir::Part;
use super::{Res, Select, Val};
use crate::uop::UOp;

impl Select<'_> {
    pub(super) fn wmma(&mut self, u: &UOp, _home: Option<&[Part]>) -> Res<Val> {
        Err(self.unsupported(u, "no matrix unit yet"))
    }
}
