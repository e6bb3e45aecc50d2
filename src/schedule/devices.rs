//! What planning asks of a device: how much work keeps it busy, and which products have a matrix unit.

use crate::uop::{Arg, Dim, Scalar, UOp};
use std::sync::Arc;

/// Kernels of up to this many element visits may run on one core.
pub(crate) const SMALL_WORK: u64 = 1 << 17;
/// Iterations of outer loops that keep the cores of a CPU busy.
const PARALLEL: u64 = 16;
/// Element visits that one workgroup of a GPU makes in about the time that a launch takes.
const WORKGROUP_WORK: u64 = 1 << 14;

/// On a CPU, from 1 GiB of scores on: memory for all of them is a matter.
const MANY_SCORES: i64 = 1 << 28;

/// The gradient in f32 on a GPU has seven products where kernels that keep scores in memory have five, and threads are
/// slower at them than at larger tiles. It pays where a causal mask hides half of the scores and the others do not fit
/// into the cache, as measured on an H100 (50 MB), or where memory for all of them is a matter: from 4 GiB on.
const SCORES_OF_CAUSAL: i64 = 1 << 26;
const SCORES_OF_ANY: i64 = 1 << 30;

/// The same on a CPU (measured on two cores, AVX-512, 8 heads of 64): as fast as the parts from so many keys on with a
/// causal mask, and from so many without one, if the gradients of all three are one kernel, with five products.
const KEYS_OF_CAUSAL: i64 = 256;
const KEYS_OF_ANY: i64 = 512;

/// Elements of the longest vector of f32 of a CPU.
const VECTOR: i64 = 16;

/// Queries of a workgroup of an attention, at least.
const QUERIES_OF_A_WORKGROUP: i64 = 64;
/// So many keys take a workgroup about as long as three launches.
const FEW_KEYS: i64 = 1024;

/// The attentions of which a GPU makes one kernel: of this type, with rows of queries and values of a multiple of so
/// many elements, and at most so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionRows {
    /// Type of all operands.
    pub of: Scalar,
    /// Elements that a row is a multiple of.
    pub multiple: i64,
    /// Elements of the longest row; and of the longest one of which it computes gradients so, or 0.
    pub most: [i64; 2],
}

/// What planning asks of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceTraits {
    /// Types whose products run on a matrix unit.
    units: Vec<Scalar>,
    /// Iterations of outer loops that keep the device busy.
    parallel: u64,
    /// Each iteration of the outermost loops is a workgroup, whose work is done by its threads.
    has_workgroups: bool,
    /// On a GPU, the attentions of which it makes one kernel.
    attentions: Vec<AttentionRows>,
    /// Threads of a CPU; 0: unknown.
    threads: u64,
    /// Attentions are one kernel also where that is slower.
    always_fuses: bool,
}

/// The dimensions in front of the last two.
fn leading(u: &UOp) -> Vec<Dim> {
    u.shape()[..u.shape().len().saturating_sub(2)].to_vec()
}

impl Default for DeviceTraits {
    fn default() -> Self {
        DeviceTraits {
            units: Vec::new(),
            parallel: PARALLEL,
            has_workgroups: false,
            attentions: Vec::new(),
            threads: 0,
            always_fuses: false,
        }
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

    /// The same GPU with these kernels for attentions.
    #[must_use]
    pub fn with_attentions(self, attentions: Vec<AttentionRows>) -> DeviceTraits {
        DeviceTraits { attentions, ..self }
    }

    /// The same CPU with so many threads.
    #[must_use]
    pub fn with_threads(self, threads: u32) -> DeviceTraits {
        DeviceTraits { threads: threads.into(), ..self }
    }

    /// The same, with gradients of attentions in their own kernels on GPUs also where that is slower.
    #[must_use]
    pub fn fusing_always(self, always_fuses: bool) -> DeviceTraits {
        DeviceTraits { always_fuses, ..self }
    }

    /// Whether one kernel computes the gradient of an attention's queries along with those of keys and values: a thread
    /// adds to it what each tile of keys contributes, so it takes whole attentions, and every thread has its share.
    pub(super) fn adds_up(&self, query: &UOp, other: &UOp) -> bool {
        self.takes_whole(query) && leading(query) == leading(other)
    }
    fn takes_whole(&self, query: &UOp) -> bool {
        let all = leading(query).iter().map(|d| d.as_int().unwrap_or(0) as u64).product::<u64>();
        let columns = query.shape().last().and_then(Dim::as_int).unwrap_or(1);
        let fair = self.threads > 0 && (all % self.threads == 0 || all >= 4 * self.threads);
        !self.has_workgroups && fair && query.dtype().scalar == Scalar::F32 && columns % VECTOR == 0
    }

    /// See [`Devices::fuses`].
    fn fuses(&self, fused: &UOp) -> bool {
        let read = &fused.src()[2..];
        let of = read[0].dtype().scalar;
        let Arg::Attention(attention) = fused.arg() else { return false };
        let is_gradient = attention.part.is_gradient();
        let size = |k: usize, from_end: usize| read[k].shape().iter().rev().nth(from_end).and_then(Dim::as_int);
        // A workgroup goes through all keys: few of them take long, if there are many keys.
        let queries = read[0].shape().iter().rev().skip(1).map(|d| d.as_int().unwrap_or(1)).product::<i64>();
        let scores = size(1, 1).unwrap_or(0).saturating_mul(queries);
        if !self.has_workgroups {
            let least = match (attention.causal, self.takes_whole(&read[0])) {
                (true, _) => KEYS_OF_CAUSAL,
                (false, true) => KEYS_OF_ANY,
                (false, false) => i64::MAX,
            };
            let pays = scores >= MANY_SCORES || size(1, 1).is_some_and(|keys| keys >= least);
            return !self.units.contains(&of) && (!is_gradient || pays);
        }
        let busy = 2 * (queries / QUERIES_OF_A_WORKGROUP) >= self.parallel as i64;
        if !busy && size(1, 1).is_none_or(|keys| keys > FEW_KEYS) {
            return false;
        }
        let least = if attention.causal { SCORES_OF_CAUSAL } else { SCORES_OF_ANY };
        if is_gradient && of == Scalar::F32 && scores < least && !self.always_fuses {
            return false;
        }
        let row = |k: usize| size(k, 0);
        let fits =
            |kernel: &AttentionRows, n: i64| n % kernel.multiple == 0 && n <= kernel.most[usize::from(is_gradient)];
        let both = [row(0), row(2)];
        let takes = |kernel: &AttentionRows| both.iter().all(|n| n.is_some_and(|n| fits(kernel, n)));
        self.attentions.iter().any(|kernel| kernel.of == of && takes(kernel))
    }

    /// Whether so many iterations of the outer loops, with so many element visits in all, leave little of the device
    /// idle.
    pub fn is_busy(&self, iterations: u64, work: u64) -> bool {
        let small = if self.has_workgroups { iterations.saturating_mul(WORKGROUP_WORK) } else { SMALL_WORK };
        iterations >= self.parallel || work <= small
    }

    /// Whether the products of a matrix are computed in tiles that workgroups share. They read each operand from
    /// memory, without anything computed on the way, and have their loops to themselves.
    pub(super) fn has_tiles(&self) -> bool {
        self.has_workgroups
    }

    /// With fewer results than this, a large reduction is cut into parts.
    pub(crate) fn few_results(&self) -> u64 {
        self.parallel * if self.has_workgroups { 2 } else { 4 }
    }
}

/// Whether a device is host data or a file: no queue can access these, and no kernel writes them.
pub(crate) fn is_data(device: &str) -> bool {
    matches!(device.split(':').next(), Some("HOST" | "DISK"))
}

/// Traits by the device's name; those that nobody described are CPUs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Devices(Vec<(Arc<str>, DeviceTraits)>);

impl Devices {
    /// Whether the device was not described so already.
    pub(crate) fn describe(&mut self, device: &Arc<str>, traits: DeviceTraits) -> bool {
        let new = (device.clone(), traits);
        if self.0.contains(&new) {
            return false;
        }
        self.0.retain(|(name, _)| name != device);
        self.0.push(new);
        true
    }
    /// Whether nothing more is to be known of a device.
    pub(super) fn has(&self, device: &str) -> bool {
        is_data(device) || self.0.iter().any(|(name, _)| **name == *device)
    }
    /// Whether a kernel that computes all of a [`Op::Fused`](crate::uop::Op::Fused) is the best way on its device.
    pub(super) fn fuses(&self, fused: &UOp) -> bool {
        fused.device().is_none_or(|d| self.traits(d).fuses(fused))
    }
    pub(crate) fn traits(&self, device: &str) -> DeviceTraits {
        self.0.iter().find(|(name, _)| **name == *device).map(|(_, traits)| traits.clone()).unwrap_or_default()
    }
}
