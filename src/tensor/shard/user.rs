//! What a program asks of Tensors over several devices.

use super::{SEPARATOR, axis_of, devices_of, node, on, slice};
use crate::tensor::Elementwise;
use crate::tensor::Tensor;
use crate::tensor::args::axis as position;
use crate::tensor::device_name::{canonical, kind};
use crate::tensor::error::Problem;
use crate::tensor::value::{Value, build};
use crate::uop::{Op, UOp};
use std::sync::Arc;

impl Tensor {
    /// The same value over several devices, as tinygrad's `shard`: with `axis`, each device gets an equal part of that
    /// axis, in the order of the devices; with `None` each gets all of it.
    ///
    /// Operations on it run on all of its devices. Tensors of one operation must be over the same devices; where their
    /// axes differ, the parts are exchanged. A sum over the axis is completed by an all-reduce once it is needed.
    /// [`to`](Tensor::to) brings the value to one device; reading it does so by itself.
    ///
    /// # Errors
    /// Fewer than two devices, one twice, devices of different kinds, an axis that is not there or has no equal parts.
    ///
    /// ```
    /// use doorbell::tensor::prelude::*;
    /// let rows = Tensor::arange(8).reshape([4, 2]).shard(&["CPU:0", "CPU:1"], 0);
    /// assert_eq!((&rows + 1).sum(0).to_vec::<i32>().unwrap(), [16, 20]);
    /// ```
    #[track_caller]
    pub fn shard<D: AsRef<str>>(&self, devices: &[D], axis: impl Into<Option<i64>>) -> Tensor {
        let axis = axis.into();
        build("shard", [self.node()], |[x]| {
            let devices = checked(devices)?;
            let axis = axis.map(|a| position(a, x.shape().len())).transpose()?;
            sharded(x, &devices, axis)
        })
    }
    /// As [`shard`](Tensor::shard), of this very Tensor: all handles on it see the sharded one. For parameters.
    #[track_caller]
    pub fn shard_<D: AsRef<str>>(&self, devices: &[D], axis: impl Into<Option<i64>>) -> &Tensor {
        // Detached: the gradient is this Tensor's as it is now, not that of the memory it had.
        self.replace(&self.detach().shard(devices, axis));
        self
    }
    /// Over the devices of `other`, along the same axis; on one device as [`to`](Tensor::to).
    #[track_caller]
    pub fn shard_like(&self, other: &Tensor) -> Tensor {
        let like = match other.node() {
            Ok(like) => like,
            Err(fault) => return Tensor::faulty(fault),
        };
        build("shard_like", [self.node()], |[x]| {
            let Some(device) = like.device() else { return Ok(x.clone()) };
            if !device.contains(SEPARATOR) {
                return Ok(on(x, device));
            }
            let axis = axis_of(&like)?.filter(|k| *k < x.shape().len());
            sharded(x, &device.split(SEPARATOR).map(Arc::from).collect::<Vec<_>>(), axis)
        })
    }
    /// The devices this Tensor is over: one, unless it was sharded.
    pub fn devices(&self) -> Vec<Arc<str>> {
        self.device().split(SEPARATOR).map(Arc::from).collect()
    }
}

/// Part `i` along the axis, or all of it, on device `i`.
fn sharded(x: &UOp, devices: &[Arc<str>], axis: Option<usize>) -> Result<UOp, Problem> {
    let part = |(i, d): (usize, &Arc<str>)| {
        let part = match axis {
            Some(k) => slice(x, k, i, devices.len())?,
            None => x.clone(),
        };
        // A copy even of constants: it says where this part is.
        Ok(UOp::new(Op::Copy, part.dtype(), [part], crate::uop::Arg::Device(d.clone())))
    };
    let parts = devices.iter().enumerate().map(part).collect::<Result<Vec<UOp>, Problem>>()?;
    let made = node(&parts, axis);
    debug_assert_eq!(devices_of(&made).len(), devices.len());
    Ok(made)
}

fn checked<D: AsRef<str>>(devices: &[D]) -> Result<Vec<Arc<str>>, Problem> {
    let devices: Vec<&str> = devices.iter().map(AsRef::as_ref).collect();
    if devices.len() < 2 {
        let n = devices.len();
        return Err(Problem::argument(format!("{n} devices: a Tensor is sharded over two or more; see `to`")));
    }
    let names: Vec<Arc<str>> = devices.iter().map(|d| canonical(d)).collect();
    for (k, d) in names.iter().enumerate() {
        if d.is_empty() || d.contains(SEPARATOR) {
            return Err(Problem::argument(format!("\"{d}\" is not the name of one device")));
        }
        if let Some(first) = names[..k].iter().position(|other| other == d) {
            let text =
                if devices[first] == devices[k] { String::new() } else { format!(", as {} too", devices[first]) };
            return Err(Problem::argument(format!("device {} is named twice{text}", devices[k])));
        }
        if kind(d) != kind(&names[0]) {
            let (first, d) = (&names[0], &names[k]);
            return Err(Problem::argument(format!(
                "{first} and {d} are devices of different kinds: the devices of one Tensor are all of one vendor, or all CPUs"
            )));
        }
    }
    Ok(names)
}
