//! VALIDATE=1: the reference interpreter also runs every kernel on the same bytes, and the results are compared.

use super::interp::{Value, Vars, run_kernel};
use super::kernels::Compiled;
use super::session::OpenDevice;
use super::{Error, Session};
use crate::device::{Arg, Command};
use crate::isa::Argument;
use crate::uop;

/// The expected contents of a kernel's buffers.
pub(super) struct Expected {
    /// Bytes by slot: the contents before the launch for buffers that are only read, and after it for written ones.
    bufs: Vec<Vec<u8>>,
}

impl Session {
    /// The interpreter's result of a launch; `None` if kernels are not validated.
    pub(super) fn expected(
        &self,
        device: &OpenDevice,
        kernel: &Compiled,
        command: &Command,
    ) -> Result<Option<Expected>, Error> {
        // What a text does is known to its device alone.
        if !self.options.validate || kernel.ast.op() == uop::Op::Custom {
            return Ok(None);
        }
        let Command::Exec { args, .. } = command else { return Ok(None) };
        let p = &kernel.program;
        let mut bufs: Vec<Vec<u8>> = Vec::new();
        for info in &p.params {
            let slot = info.slot as usize;
            bufs.resize(bufs.len().max(slot + 1), Vec::new());
            bufs[slot] = self.argument(device, kernel, args, slot)?;
        }
        let mut vars = Vars::new();
        for (argument, arg) in kernel.binary.arguments.iter().zip(args) {
            if let (Argument::Variable(k), Arg::Var(value)) = (argument, arg)
                && let uop::Arg::Var(name, ..) = p.vars[*k].arg()
            {
                vars.insert(name.to_string(), *value);
            }
        }
        run_kernel(&kernel.ast, &mut bufs, &vars).map_err(|e| Error::Internal(format!("{}: {e}", p.name)))?;
        Ok(Some(Expected { bufs }))
    }

    /// Compares the device's results with the interpreter's.
    pub(super) fn compare(
        &self,
        device: &OpenDevice,
        kernel: &Compiled,
        command: &Command,
        want: &Expected,
    ) -> Result<(), Error> {
        let Command::Exec { args, .. } = command else { return Ok(()) };
        // A matrix unit may drop bits of its factors, which the interpreter keeps.
        let cuts = kernel.program.uops.iter().any(|u| matches!(u.arg(), uop::Arg::Wmma(w) if w.cuts()));
        for info in kernel.program.params.iter().filter(|i| i.written) {
            let t = info.dtype.scalar;
            let bytes = self.argument(device, kernel, args, info.slot as usize)?;
            let got = Value::from_bytes(vec![info.len], t, &bytes).to_f64();
            let want = Value::from_bytes(vec![info.len], t, &want.bufs[info.slot as usize]).to_f64();
            let tolerance = if t.is_float() && (cuts || t.size_bytes() < 4) { 2e-2 } else { 1e-4 };
            // Sums may have another order: the difference is compared relative to the values' magnitude.
            let scale = want.iter().filter(|w| w.is_finite()).fold(0.0f64, |m, w| m.max(w.abs())).max(1e-6);
            let same = |g: f64, w: f64| g == w || (g.is_nan() && w.is_nan()) || (g - w).abs() <= tolerance * scale;
            if let Some(i) = (0..got.len()).find(|i| !same(got[*i], want[*i])) {
                let (name, slot) = (&kernel.program.name, info.slot);
                let (g, w) = (got[i], want[i]);
                return Err(Error::Internal(format!(
                    "validate: {name}: element {i} of buffer {slot} is {g}, the interpreter has {w}\n{}\n{}",
                    kernel.ast.tree(),
                    kernel.program.source()
                )));
            }
        }
        Ok(())
    }

    fn argument(&self, device: &OpenDevice, kernel: &Compiled, args: &[Arg], slot: usize) -> Result<Vec<u8>, Error> {
        let p = &kernel.program;
        let lost = || Error::Internal(format!("{} has no argument for slot {slot}", p.name));
        let k = p.params.iter().position(|i| i.slot as usize == slot).ok_or_else(lost)?;
        let at = kernel.binary.arguments.iter().position(|a| *a == Argument::Buffer(k)).ok_or_else(lost)?;
        let Some(Arg::Buffer(place)) = args.get(at) else { return Err(lost()) };
        let mut bytes = vec![0; p.params[k].len * p.params[k].dtype.scalar.size_bytes()];
        device.device.copy_out(&place.memory, place.offset, &mut bytes)?;
        Ok(bytes)
    }
}
