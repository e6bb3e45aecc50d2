//! One launch: read the files, load the object, run the kernel, write the outputs.

use super::contents::contents;
use super::expect::Expect;
use super::object::Object;
use super::spec::Spec;
use crate::CliError;
use doorbell::device::{Arg, Command, Device, DeviceError, Geometry, Memory, time_command};
use doorbell::engine::OpenDevice;
use std::fs;
use std::path::{Path, PathBuf};

/// A kernel to launch, with its arguments.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub object: PathBuf,
    pub kernel: String,
    /// Workgroups in x, y, z. On a CPU: the product is the number of calls.
    pub grid: [u32; 3],
    /// Work-items of a workgroup in x, y, z. On a CPU: 1.
    pub block: [u32; 3],
    pub lds_bytes: u32,
    /// Workgroups of a cluster in x, y, z, if the kernel does not declare it.
    pub cluster: Option<[u32; 3]>,
    pub args: Vec<Spec>,
    /// Number of launches; each is timed.
    pub repeat: u32,
    /// Expected outputs.
    pub expect: Vec<Expect>,
}

/// A buffer argument, and the file to write it to afterwards.
struct Buffer<'a> {
    memory: Memory,
    len_bytes: u64,
    to: Option<&'a Path>,
}

impl Job {
    /// Runs the launches of an object; returns the time of each in nanoseconds.
    pub(crate) fn run(&self, object: &Object, open: &OpenDevice) -> Result<Vec<u64>, CliError> {
        let device = open.device.as_ref();
        let bytes = &object.bytes;
        let image = object.image(&self.kernel);
        // A launch that the object does not support is the caller's mistake.
        let refused = |e: DeviceError| match e {
            DeviceError::Load { .. } | DeviceError::Unsupported { .. } => {
                CliError::Usage(format!("{e}; {} contains {}", self.object.display(), contents(bytes)))
            }
            e => failed(&e),
        };
        let kernels = device.load(&[image]).map_err(refused)?;
        let mut buffers = Vec::new();
        let args = self.arguments(device, &mut buffers)?;
        let [x, y, z] = self.grid;
        let is_cpu = device.info().is_cpu();
        let calls = u128::from(x) * u128::from(y) * u128::from(z);
        if is_cpu && self.block != [1; 3] {
            return Err(CliError::Usage(format!(
                "block {:?}: a CPU runs one work-item per call; --grid is the number of calls",
                self.block
            )));
        }
        if let (true, Some(cluster)) = (is_cpu, self.cluster) {
            return Err(CliError::Usage(format!("cluster {cluster:?}: a CPU has no clusters")));
        }
        let threads = if is_cpu { u32::try_from(calls).ok() } else { Some(1) };
        let threads = threads.ok_or_else(|| {
            CliError::Usage(format!("grid {:?}: {calls} calls, the limit is {}", self.grid, u32::MAX))
        })?;
        let (local_bytes, cluster) = (self.lds_bytes, self.cluster);
        let over = Geometry { local_bytes, cluster, ..Geometry::of(self.grid, self.block) };
        let command = Command::exec(&kernels[0], args, threads).over(over);
        let times = time_command(device, &command, self.repeat, device.patience()).map_err(refused)?;
        for b in &buffers {
            if let Some(to) = b.to {
                let mut out = vec![0; usize::try_from(b.len_bytes).unwrap_or(usize::MAX)];
                device.copy_out(&b.memory, 0, &mut out).map_err(|e| failed(&e))?;
                fs::write(to, out).map_err(|e| file_error(to, &e))?;
            }
        }
        Ok(times)
    }

    fn arguments<'a>(&'a self, device: &dyn Device, buffers: &mut Vec<Buffer<'a>>) -> Result<Vec<Arg>, CliError> {
        let mut args = Vec::new();
        for spec in &self.args {
            let (data, len_bytes, to) = match spec {
                Spec::Bytes(bytes) => {
                    args.extend(scalars(bytes));
                    continue;
                }
                Spec::Same(n) => {
                    args.push(args.get(*n).filter(|a| matches!(a, Arg::Buffer(_))).cloned().ok_or_else(|| {
                        CliError::Usage(format!("argument \"same:{n}\": no argument {n} before it is a buffer"))
                    })?);
                    continue;
                }
                Spec::In(from) => (read(from)?, None, None),
                Spec::InOut { from, to } => (read(from)?, None, Some(to.as_path())),
                Spec::Out { len_bytes, to } => (Vec::new(), Some(*len_bytes), Some(to.as_path())),
            };
            let len_bytes = len_bytes.unwrap_or(data.len() as u64);
            let memory = device.alloc(len_bytes).map_err(|e| failed(&e))?;
            let zeros = || usize::try_from(len_bytes).map(|n| vec![0; n]).unwrap_or_default();
            let data = if data.is_empty() { zeros() } else { data };
            device.copy_in(&memory, 0, &data).map_err(|e| failed(&e))?;
            args.push(Arg::Buffer(memory.at(0)));
            buffers.push(Buffer { memory, len_bytes, to });
        }
        Ok(args)
    }
}

/// Splits a value of any length into scalars of 8, 4, 2 and 1 bytes, in order.
fn scalars(mut bytes: &[u8]) -> Vec<Arg> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let n = [8, 4, 2, 1].into_iter().find(|n| *n <= bytes.len()).unwrap_or(1);
        let (head, rest) = bytes.split_at(n);
        let bits = head.iter().rev().fold(0u64, |v, b| v << 8 | u64::from(*b));
        out.push(Arg::Scalar { bits, len_bytes: n as u8 });
        bytes = rest;
    }
    out
}

fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    crate::files::read(path).map_err(|e| file_error(path, &e))
}

pub(crate) fn file_error(path: &Path, e: &std::io::Error) -> CliError {
    CliError::CouldNotRun(format!("{}: {e}", path.display()))
}

fn failed(e: &DeviceError) -> CliError {
    CliError::Failed(e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_is_cut_into_scalars_in_order() {
        let cut: Vec<(u64, u8)> = scalars(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])
            .iter()
            .map(|a| match a {
                Arg::Scalar { bits, len_bytes } => (*bits, *len_bytes),
                _ => panic!(),
            })
            .collect();
        assert_eq!(cut, [(0x0807_0605_0403_0201, 8), (0x0a09, 2), (11, 1)]);
    }
}
