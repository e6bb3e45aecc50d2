//! The commands of a computation as a value, for programs that run them again and time them.

use super::Error;
use super::jit_capture::Open;
use crate::device::Command;
use crate::tensor::Tensor;

/// What a computation submitted: commands in order, with their memory kept alive, and the estimates of their work.
#[derive(Clone, Debug)]
pub struct Captured {
    /// Launches and copies, all on one device unless the Tensors are on several.
    pub commands: Vec<Command>,
    /// Number of kernels among them.
    pub kernels: u64,
    /// Arithmetic operations by the kernels' estimates.
    pub flops: u64,
    /// Bytes loaded and stored by the kernels' estimates.
    pub mem_bytes: u64,
}

/// Computes the Tensors of `function` once, and returns them with the commands that it took. Running the commands again
/// computes the same values into the same memory. What was in memory before (inputs that are realized) is read from
/// there; data of the host must be realized first, since its copy is no command.
///
/// # Errors
/// What `function` returns and its Tensors carry; a capture within a capture.
pub fn captured<F>(function: F) -> Result<(Vec<Tensor>, Captured), Error>
where
    F: FnOnce() -> Result<Vec<Tensor>, Error>,
{
    let open = Open::begin()?;
    let made = function().and_then(|tensors| Tensor::realize_all(&tensors).map(|()| tensors));
    let capture = open.end();
    if let Some(error) = capture.error {
        return Err(error.into());
    }
    let tensors = made?;
    let [kernels, _copies, flops, mem_bytes] = capture.totals();
    Ok((tensors, Captured { commands: capture.commands, kernels, flops, mem_bytes }))
}

#[cfg(all(test, feature = "cpu"))]
mod tests {
    use super::*;
    use crate::device::QueueKind;
    use crate::engine::session;
    use crate::tensor::prelude::*;

    #[test]
    fn captured_commands_compute_the_same_again() {
        let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], [4]);
        x.realize().unwrap();
        let (out, all) = captured(|| Ok(vec![&x + 1.0])).unwrap();
        assert_eq!((out[0].to_vec::<f32>().unwrap(), all.kernels), (vec![2.0, 3.0, 4.0, 5.0], 1));
        let open = session().unwrap().device(&x.device()).unwrap();
        let Command::Exec { args, .. } = &all.commands[0] else { panic!("no launch") };
        let Some(crate::device::Arg::Buffer(place)) = args.first() else { panic!("no buffer") };
        open.device.copy_in(&place.memory, place.offset, &[0; 16]).unwrap();
        let point = open.device.submit(QueueKind::Compute, &all.commands).unwrap();
        open.device.wait(&point, open.device.patience()).unwrap();
        assert_eq!(out[0].to_vec::<f32>().unwrap(), [2.0, 3.0, 4.0, 5.0]);
    }
}
