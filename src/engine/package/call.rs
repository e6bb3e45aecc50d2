//! A package called with Tensors.

use super::super::memory::{attached, dense_view};
use super::super::{Error, Session, session};
use super::sizes::{element, scalar};
use crate::device::{Command, Location, QueueKind};
use crate::package::{Contents, Port};
use crate::runtime::{self, Check, Limits, PackageFile, Program, RunError};
use crate::tensor::{Elementwise, Movement, Tensor};
use crate::uop::{BufferRef, DType, UOp};
use std::path::Path;
use std::sync::Arc;

/// A package on a device: a recorded function from a file ([`Jit::save`](crate::Jit::save)).
///
/// ```
/// use doorbell::engine::Packaged;
/// use doorbell::tensor::prelude::*;
/// use doorbell::Jit;
///
/// let weights = Tensor::new([2.0f32, 3.0]).realize()?.clone();
/// let mut scaled = Jit::new(move |x: &Tensor| x * &weights);
/// for _ in 0..2 {
///     scaled.call(&Tensor::new([1.0f32, 1.0]))?; // recorded at the second call
/// }
/// let path = std::env::temp_dir().join(format!("scaled-{}.dbp", std::process::id()));
/// scaled.save(&path)?;
///
/// let mut again = Packaged::open(&path)?;
/// let out = again.call(&[("input", &Tensor::new([10.0f32, 100.0]))])?;
/// assert_eq!(out[0].1.to_vec::<f32>()?, [20.0, 300.0]);
/// # std::fs::remove_file(path).unwrap();
/// # Ok::<(), doorbell::Error>(())
/// ```
#[derive(Debug)]
pub struct Packaged {
    program: Program,
    device: Arc<str>,
}

impl Packaged {
    /// The package in a file, on the session's device.
    ///
    /// # Errors
    /// `Run`: no such file, not a package, or no code in it for the device.
    pub fn open(path: &Path) -> Result<Packaged, Error> {
        let s = session()?;
        Self::on(&s.options.device, &PackageFile::open(path, Check::Everything)?)
    }

    /// A package on a device of the session's.
    ///
    /// # Errors
    /// `Run`: no code in it for the device.
    pub fn on(device: &str, file: &PackageFile) -> Result<Packaged, Error> {
        let open = session()?.device(device)?;
        let program = Program::load(&open.device, file, &Limits::default())?;
        Ok(Packaged { program, device: open.name.clone() })
    }

    /// What the package says.
    #[must_use]
    pub fn contents(&self) -> &Contents {
        self.program.contents()
    }

    /// The loaded program.
    pub fn program(&mut self) -> &mut Program {
        &mut self.program
    }

    /// Sets a variable for the calls from now on.
    ///
    /// # Errors
    /// `Run`: no such variable, or its value is out of range.
    pub fn set(&mut self, variable: &str, value: i64) -> Result<(), Error> {
        let variable = self.program.variable(variable)?;
        Ok(self.program.set(variable, value)?)
    }

    /// Runs the program with these inputs, by name; those that are not named have the value of the call before. Each
    /// output is a Tensor of its own.
    ///
    /// # Errors
    /// Those of the inputs; `Run`: no such input, another shape or type than the package has.
    pub fn call(&mut self, inputs: &[(&str, &Tensor)]) -> Result<Vec<(String, Tensor)>, Error> {
        let s = session()?;
        for (name, t) in inputs {
            self.give(&s, name, t)?;
        }
        let mut outputs = Vec::with_capacity(self.contents().outputs.len());
        for n in 0..self.contents().outputs.len() {
            outputs.push(self.output_memory(&s, runtime::Port(n))?);
        }
        let _its_memory_is_waited_for = self.program.start()?;
        outputs.into_iter().map(|o| self.taken(&s, o)).collect()
    }

    /// Makes a Tensor's memory an input.
    fn give(&mut self, s: &Session, name: &str, t: &Tensor) -> Result<(), Error> {
        let input = self.program.input(name)?;
        let dense = Tensor::from(&t.uop()?).to(&self.device).contiguous();
        dense.realize()?;
        let port = &self.contents().inputs[input.0];
        let (want, have) = (port.element, element(dense.dtype()?)?);
        let mismatch = |have: String, want: String| {
            Error::Run(RunError::Unknown {
                kind: "input of that type or shape",
                name: format!("{name}: {have}"),
                valid: want,
            })
        };
        if have != want {
            return Err(mismatch(have.name().into(), want.name().into()));
        }
        let shape = self.program.input_shape(input)?;
        let given = dense
            .shape()?
            .iter()
            .map(|d| super::super::memory::size_of(d).map(|n| n as u64))
            .collect::<Option<Vec<u64>>>();
        if given.as_ref() != Some(&shape) {
            return Err(mismatch(format!("{given:?}"), format!("{shape:?}")));
        }
        let lost = || Error::Internal("an input of a package has no memory".into());
        let u = dense.uop()?;
        let (buffer, offset) = dense_view(&u).ok_or_else(lost)?;
        let elem = buffer.dtype().scalar.size_bytes();
        let mut place = attached(buffer.buffer_ref().ok_or_else(lost)?).ok_or_else(lost)?;
        place.offset += (offset * elem) as u64;
        let _same_session = s;
        Ok(self.program.place_input(input, place)?)
    }

    /// Memory for an output: new, or the program's own where it is part of something else.
    fn output_memory(&mut self, s: &Session, output: runtime::Port) -> Result<(runtime::Port, Location, bool), Error> {
        let port = self.contents().outputs[output.0].clone();
        let fresh = s.device(&self.device)?.device.alloc(port.len_bytes)?.at(0);
        let is_bound = match self.program.place_output(output, fresh.clone()) {
            Ok(()) => true,
            Err(RunError::Shared { .. }) => false,
            Err(e) => return Err(e.into()),
        };
        Ok((output, fresh, is_bound))
    }

    /// The Tensor of an output, after the run was started.
    fn taken(
        &self,
        s: &Session,
        (output, place, is_bound): (runtime::Port, Location, bool),
    ) -> Result<(String, Tensor), Error> {
        let port: &Port = &self.contents().outputs[output.0];
        if !is_bound && port.len_bytes > 0 {
            let from = self.program.output_place(output)?;
            let copy = Command::copy(place.clone(), from, port.len_bytes);
            s.device(&self.device)?.device.submit(QueueKind::Compute, &[copy])?;
        }
        let shape = self.program.output_shape(output)?;
        let t = scalar(port.element)?;
        let len = usize::try_from(shape.iter().product::<u64>()).unwrap_or(usize::MAX);
        let buffer = BufferRef::new(len, self.device.clone());
        s.attach(&buffer, place)?;
        let shape: Vec<usize> = shape.iter().map(|n| usize::try_from(*n).unwrap_or(usize::MAX)).collect();
        Ok((port.name.clone(), Tensor::from(UOp::buffer(DType::of(t), buffer)).reshape(shape)))
    }
}
