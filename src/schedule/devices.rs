//! What planning asks of a device: how much work keeps it busy, and which products have a matrix unit.

use crate::uop::Scalar;
use std::sync::Arc;

/// Kernels of up to this many element visits may run on one core.
pub const SMALL_WORK: u64 = 1 << 17;
/// Iterations of outer loops that keep the cores of a CPU busy.
const PARALLEL: u64 = 16;
/// Element visits that one workgroup of a GPU makes in about the time that a launch takes.
const WORKGROUP_WORK: u64 = 1 << 14;

/// What planning asks of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceTraits {
    /// Types whose products run on a matrix unit.
    units: Vec<Scalar>,
    /// Iterations of outer loops that keep the device busy.
    parallel: u64,
    /// Each iteration of the outermost loops is a workgroup, whose work is done by its threads.
    has_workgroups: bool,
}

impl Default for DeviceTraits {
    fn default() -> Self {
        DeviceTraits { units: Vec::new(), parallel: PARALLEL, has_workgroups: false }
    }
}

impl DeviceTraits {
    /// A GPU that runs so many workgroups at the same time (0: unknown).
    pub fn gpu(compute_units: u32) -> DeviceTraits {
        DeviceTraits { parallel: u64::from(compute_units).max(64), has_workgroups: true, ..DeviceTraits::default() }
    }

    /// The same with matrix units for products of these types.
    #[must_use]
    pub fn with_units(self, units: Vec<Scalar>) -> DeviceTraits {
        DeviceTraits { units, ..self }
    }

    /// Whether a kernel that computes all of a [`Op::Fused`](crate::uop::Op::Fused) of this type is the best way there.
    /// Only CPUs have such kernels.
    pub(super) fn fuses(&self, of: Scalar) -> bool {
        !self.has_workgroups && !self.units.contains(&of)
    }

    /// Whether so many iterations of the outer loops, with so many element visits in all, leave little of the device
    /// idle.
    pub fn is_busy(&self, iterations: u64, work: u64) -> bool {
        let small = if self.has_workgroups { iterations.saturating_mul(WORKGROUP_WORK) } else { SMALL_WORK };
        iterations >= self.parallel || work <= small
    }

    /// Whether the products of a matrix are computed in tiles that workgroups share. They read each operand from memory,
    /// without anything computed on the way, and have their loops to themselves.
    pub(super) fn has_tiles(&self) -> bool {
        self.has_workgroups
    }

    /// With fewer results than this, a large reduction is cut into parts.
    pub fn few_results(&self) -> u64 {
        self.parallel * if self.has_workgroups { 2 } else { 4 }
    }
}

/// Traits by the device's name; those that nobody described are CPUs.
#[derive(Clone, Debug, Default)]
pub struct Devices(Vec<(Arc<str>, DeviceTraits)>);

impl Devices {
    pub fn describe(&mut self, device: &Arc<str>, traits: DeviceTraits) {
        self.0.retain(|(name, _)| name != device);
        self.0.push((device.clone(), traits));
    }
    pub fn traits(&self, device: &str) -> DeviceTraits {
        self.0.iter().find(|(name, _)| **name == *device).map(|(_, traits)| traits.clone()).unwrap_or_default()
    }
}
