//! A package loaded on a device: its commands encoded once, inputs and outputs bound to memory.

use crate::file::in_place;
use crate::memory::Blocks;
use crate::{Limits, PackageFile, RunError, choose};
use doorbell_device::{Arg, Code, Command, Device, Geometry, Kernel, KernelImage, Location, Patch, Recorded};
use doorbell_hcq::memory::View;
use doorbell_package::{Argument, BlockKind, Contents, Launch, Place, Step, Target, Variable};
use std::sync::Arc;
use std::time::Duration;

/// The number of an input or of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port(pub usize);

/// The number of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VariableId(pub usize);

/// Where a command has a block's address: (command, argument, block, bytes from its start).
type Use = (usize, usize, u32, u64);

/// A loaded program. One run is under way at a time.
pub struct Program {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) file: PackageFile,
    arch: String,
    pub(crate) list: Option<Box<dyn Recorded>>,
    /// What the list is made of, until the first run.
    steps: Vec<Step>,
    kernels: Vec<Kernel>,
    blocks: Blocks,
    uses: Vec<Use>,
    /// (command, argument, variable).
    variable_uses: Vec<(usize, usize, u32)>,
    values: Vec<Option<i64>>,
    /// What has changed since the last run.
    pub(crate) patches: Vec<Patch>,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Program({} for {} on {})", self.contents().name, self.arch, self.device.tag())
    }
}

impl Program {
    /// Loads a package's code and constants on a device.
    ///
    /// # Errors
    /// `NoTarget`; `Limit`, before anything is allocated; `Device`.
    pub fn load(device: &Arc<dyn Device>, file: &PackageFile, limits: &Limits) -> Result<Program, RunError> {
        let contents = &file.package().contents;
        let target = choose::target(contents, device.as_ref())?;
        let blocks = Blocks::new(device.as_ref(), file, limits)?;
        let kernels = load_kernels(device.as_ref(), target)?;
        let mut program = Program {
            device: Arc::clone(device),
            arch: target.arch.clone(),
            list: None,
            steps: target.steps.clone(),
            kernels,
            blocks,
            uses: Vec::new(),
            variable_uses: Vec::new(),
            values: contents.variables.iter().map(|v| (v.min == v.max).then_some(v.min)).collect(),
            patches: Vec::new(),
            file: file.clone(),
        };
        program.find_uses();
        Ok(program)
    }

    fn find_uses(&mut self) {
        for (c, step) in self.steps.iter().enumerate() {
            let mut place = |arg: usize, p: &Place| self.uses.push((c, arg, p.block, p.offset));
            match step {
                Step::Copy { to, from, .. } => {
                    place(0, to);
                    place(1, from);
                }
                Step::Launch(l) => {
                    for (n, a) in l.arguments.iter().enumerate() {
                        match a {
                            Argument::Buffer(p) => place(n, p),
                            Argument::Variable(v) => self.variable_uses.push((c, n, *v)),
                            Argument::Word(_) => {}
                        }
                    }
                }
            }
        }
    }

    /// What the package says.
    #[must_use]
    pub fn contents(&self) -> &Contents {
        &self.file.package().contents
    }

    /// The architecture of the code that runs.
    #[must_use]
    pub fn arch(&self) -> &str {
        &self.arch
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The input of that name.
    ///
    /// # Errors
    /// `Unknown`.
    pub fn input(&self, name: &str) -> Result<Port, RunError> {
        let all = &self.contents().inputs;
        find("input", name, all.iter().map(|p| p.name.as_str())).map(Port)
    }

    /// The output of that name.
    ///
    /// # Errors
    /// `Unknown`.
    pub fn output(&self, name: &str) -> Result<Port, RunError> {
        let all = &self.contents().outputs;
        find("output", name, all.iter().map(|p| p.name.as_str())).map(Port)
    }

    /// The variable of that name.
    ///
    /// # Errors
    /// `Unknown`.
    pub fn variable(&self, name: &str) -> Result<VariableId, RunError> {
        let all = &self.contents().variables;
        find("variable", name, all.iter().map(|v| v.name.as_str())).map(VariableId)
    }

    /// Sets a variable for the runs from now on.
    ///
    /// # Errors
    /// `Variable`, `Unknown`.
    pub fn set(&mut self, variable: VariableId, value: i64) -> Result<(), RunError> {
        let v = numbered("variable", &self.contents().variables, variable.0, |v| &v.name)?;
        if value < v.min || value > v.max {
            return Err(out_of_range(v, Some(value)));
        }
        if let Some(to) = self.values.get_mut(variable.0) {
            *to = Some(value);
        }
        if self.list.is_some() {
            let uses = self.variable_uses.iter().filter(|u| u.2 as usize == variable.0);
            let patch = |(command, arg, _): &(usize, usize, u32)| Patch::Arg {
                command: *command,
                arg: *arg,
                value: Arg::Var(value),
            };
            self.patches.extend(uses.map(patch));
        }
        Ok(())
    }

    /// Bytes of an input, with the present values of the variables in its shape.
    ///
    /// # Errors
    /// `Unknown`, `Variable`.
    pub fn input_bytes(&self, input: Port) -> Result<u64, RunError> {
        self.port_bytes(numbered("input", &self.contents().inputs, input.0, |p| &p.name)?)
    }

    /// Bytes of an output, with the present values of the variables in its shape.
    ///
    /// # Errors
    /// `Unknown`, `Variable`.
    pub fn output_bytes(&self, output: Port) -> Result<u64, RunError> {
        self.port_bytes(numbered("output", &self.contents().outputs, output.0, |p| &p.name)?)
    }

    /// The shape of an input, with the present values of the variables.
    ///
    /// # Errors
    /// `Unknown`, `Variable`.
    pub fn input_shape(&self, input: Port) -> Result<Vec<u64>, RunError> {
        self.shape(numbered("input", &self.contents().inputs, input.0, |p| &p.name)?)
    }

    /// The shape of an output, with the present values of the variables.
    ///
    /// # Errors
    /// `Unknown`, `Variable`.
    pub fn output_shape(&self, output: Port) -> Result<Vec<u64>, RunError> {
        self.shape(numbered("output", &self.contents().outputs, output.0, |p| &p.name)?)
    }

    fn shape(&self, port: &doorbell_package::Port) -> Result<Vec<u64>, RunError> {
        let unset = port.shape.iter().flat_map(|s| s.variables()).find(|v| self.value(*v).is_none());
        if let Some(v) = unset.and_then(|v| self.contents().variables.get(v as usize)) {
            return Err(out_of_range(v, None));
        }
        let one = |s: &doorbell_package::Size| s.value(|v| self.value(v)).ok_or_else(|| too_long(port, u64::MAX));
        port.shape.iter().map(one).collect()
    }

    fn value(&self, variable: u32) -> Option<i64> {
        self.values.get(variable as usize).copied().flatten()
    }

    fn port_bytes(&self, port: &doorbell_package::Port) -> Result<u64, RunError> {
        let mut len = port.element.size_bytes();
        for n in self.shape(port)? {
            len = len.saturating_mul(n);
        }
        if len > port.len_bytes { Err(too_long(port, len)) } else { Ok(len) }
    }

    /// Copies bytes to an input's own memory.
    ///
    /// # Errors
    /// `Length`, `Unknown`, `Variable`, `Device`; `Limit` at the first time, if its memory is more than is allowed.
    pub fn write_input(&mut self, input: Port, bytes: &[u8]) -> Result<(), RunError> {
        let want = self.input_bytes(input)?;
        let (block, offset, len) = {
            let p = numbered("input", &self.contents().inputs, input.0, |p| &p.name)?;
            if bytes.len() as u64 != want {
                return Err(RunError::Length { kind: "input", name: p.name.clone(), have: bytes.len() as u64, want });
            }
            (p.block, p.offset, self.contents().blocks.get(p.block as usize).map_or(0, |b| b.len_bytes))
        };
        let place = match self.place(block) {
            Some(place) if place.memory.host().is_none_or(View::is_writable) => place.clone(),
            _ => {
                let device = Arc::clone(&self.device);
                let place = self.blocks.take(device.as_ref(), len)?;
                self.move_block(block, place.clone());
                place
            }
        };
        Ok(self.device.copy_in(&place.memory, place.offset + offset, bytes)?)
    }

    /// Makes memory of the caller's an input, without a copy: the runs from now on read it there. On devices that use
    /// host memory: the CPU.
    ///
    /// # Errors
    /// `Length`, `Unknown`; `Device` if the device cannot use host memory.
    pub fn bind_input(&mut self, input: Port, memory: View) -> Result<(), RunError> {
        let want = self.input_bytes(input)?;
        let port = numbered("input", &self.contents().inputs, input.0, |p| &p.name)?;
        let (block, name) = (port.block, port.name.clone());
        if memory.len_bytes() != want {
            return Err(RunError::Length { kind: "input", name, have: memory.len_bytes(), want });
        }
        let place = self.host(memory)?;
        self.move_block(block, place);
        Ok(())
    }

    /// As [`Program::bind_input`], with memory of the device, which the input's variables do not shorten.
    ///
    /// # Errors
    /// `Unknown`.
    pub fn place_input(&mut self, input: Port, place: Location) -> Result<(), RunError> {
        let port = numbered("input", &self.contents().inputs, input.0, |p| &p.name)?;
        self.move_block(port.block, place);
        Ok(())
    }

    /// As [`Program::bind_output`], with memory of the device.
    ///
    /// # Errors
    /// `Unknown`, `Shared`.
    pub fn place_output(&mut self, output: Port, place: Location) -> Result<(), RunError> {
        let port = numbered("output", &self.contents().outputs, output.0, |p| &p.name)?;
        let block = port.block;
        if let Some(with) = self.shared_with(output, port) {
            return Err(RunError::Shared { name: port.name.clone(), with });
        }
        self.move_block(block, place);
        Ok(())
    }

    /// Where an output is.
    ///
    /// # Errors
    /// `Unknown`; `NoInput` if it is an input that has no value.
    pub fn output_place(&self, output: Port) -> Result<Location, RunError> {
        let port = numbered("output", &self.contents().outputs, output.0, |p| &p.name)?;
        self.location(&Place { block: port.block, offset: port.offset })
    }

    /// Makes memory of the caller's an output, without a copy: the runs from now on write it there. On devices that
    /// use host memory: the CPU.
    ///
    /// # Errors
    /// `Length`, `Unknown`; `Shared` if the output is a part of something else; `Device` if the device cannot use host
    /// memory.
    pub fn bind_output(&mut self, output: Port, memory: View) -> Result<(), RunError> {
        let port = numbered("output", &self.contents().outputs, output.0, |p| &p.name)?;
        let (block, name) = (port.block, port.name.clone());
        if let Some(with) = self.shared_with(output, port) {
            return Err(RunError::Shared { name, with });
        }
        let want = port.len_bytes;
        if memory.len_bytes() != want {
            return Err(RunError::Length { kind: "output", name, have: memory.len_bytes(), want });
        }
        let place = self.host(memory)?;
        self.move_block(block, place);
        Ok(())
    }

    /// Why an output's block cannot be replaced.
    fn shared_with(&self, output: Port, port: &doorbell_package::Port) -> Option<&'static str> {
        let block = self.contents().blocks.get(port.block as usize)?;
        match block.kind {
            BlockKind::Input => return Some("an input"),
            BlockKind::State => return Some("what is kept from run to run"),
            BlockKind::Constant => return Some("a constant"),
            _ => {}
        }
        let others = self.contents().outputs.iter().enumerate();
        if others.into_iter().any(|(n, o)| n != output.0 && o.block == port.block) {
            return Some("another output");
        }
        (port.offset != 0 || port.len_bytes != block.len_bytes).then_some("intermediate values")
    }

    /// Copies an output to the host, after the runs so far.
    ///
    /// # Errors
    /// `Length`, `Unknown`, `Variable`, `Device`; `NoInput` if it is an input that has no value.
    pub fn read_output(&self, output: Port, bytes: &mut [u8]) -> Result<(), RunError> {
        let want = self.output_bytes(output)?;
        let port = numbered("output", &self.contents().outputs, output.0, |p| &p.name)?;
        if bytes.len() as u64 != want {
            return Err(RunError::Length { kind: "output", name: port.name.clone(), have: bytes.len() as u64, want });
        }
        let place = self.place(port.block).ok_or_else(|| self.no_input(port.block))?;
        Ok(self.device.copy_out(&place.memory, place.offset + port.offset, bytes)?)
    }

    /// Gives what is kept from run to run its first value again.
    ///
    /// # Errors
    /// `Device`.
    pub fn reset(&mut self) -> Result<(), RunError> {
        self.blocks.fill(self.device.as_ref(), &self.file, BlockKind::State)
    }

    fn place(&self, block: u32) -> Option<&Location> {
        self.blocks.places.get(block as usize).and_then(Option::as_ref)
    }

    fn host(&self, memory: View) -> Result<Location, RunError> {
        Ok(in_place(self.device.as_ref(), &memory)?.at(0))
    }

    /// Puts a block elsewhere, for the runs from now on.
    fn move_block(&mut self, block: u32, place: Location) {
        if self.list.is_some() {
            for (command, arg, _, offset) in self.uses.iter().filter(|u| u.2 == block) {
                let value = Arg::Buffer(Location { memory: place.memory.clone(), offset: place.offset + offset });
                self.patches.push(Patch::Arg { command: *command, arg: *arg, value });
            }
        }
        if let Some(to) = self.blocks.places.get_mut(block as usize) {
            *to = Some(place);
        }
    }

    fn no_input(&self, block: u32) -> RunError {
        let input = self.contents().inputs.iter().find(|p| p.block == block);
        RunError::NoInput { name: input.map_or_else(|| format!("block {block}"), |p| p.name.clone()) }
    }

    /// Encodes the commands with what is bound now.
    pub(crate) fn encode(&self) -> Result<Box<dyn Recorded>, RunError> {
        let commands = self.steps.iter().map(|s| self.command(s)).collect::<Result<Vec<_>, _>>()?;
        Ok(self.device.record(&commands)?)
    }

    /// Whether there is nothing to run.
    pub(crate) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    fn location(&self, p: &Place) -> Result<Location, RunError> {
        let place = self.place(p.block).ok_or_else(|| self.no_input(p.block))?;
        Ok(Location { memory: place.memory.clone(), offset: place.offset + p.offset })
    }

    fn command(&self, step: &Step) -> Result<Command, RunError> {
        let l = match step {
            Step::Copy { to, from, len_bytes } => {
                return Ok(Command::copy(self.location(to)?, self.location(from)?, *len_bytes));
            }
            Step::Launch(l) => l,
        };
        let arguments = l.arguments.iter().map(|a| self.argument(a)).collect::<Result<Vec<_>, _>>()?;
        let Some(kernel) = self.kernels.get(l.kernel as usize) else {
            return Err(RunError::Unknown { kind: "kernel", name: l.kernel.to_string(), valid: "others".into() });
        };
        Ok(Command::exec(kernel, arguments, l.threads).over(geometry(l)))
    }

    fn argument(&self, a: &Argument) -> Result<Arg, RunError> {
        Ok(match a {
            Argument::Buffer(p) => Arg::Buffer(self.location(p)?),
            Argument::Word(bits) => Arg::Scalar { bits: *bits, len_bytes: 8 },
            Argument::Variable(n) => match (self.value(*n), self.contents().variables.get(*n as usize)) {
                (Some(value), _) => Arg::Var(value),
                (None, Some(v)) => return Err(out_of_range(v, None)),
                (None, None) => {
                    return Err(RunError::Unknown { kind: "variable", name: n.to_string(), valid: "others".into() });
                }
            },
        })
    }

    /// How long a wait lasts where the caller names no deadline.
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.device.patience()
    }
}

fn geometry(l: &Launch) -> Geometry {
    Geometry { local_bytes: l.local_bytes, ..Geometry::of(l.groups, l.local) }
}

fn load_kernels(device: &dyn Device, target: &Target) -> Result<Vec<Kernel>, RunError> {
    let image = |k: &'_ doorbell_package::Kernel| -> (String, String) { (k.name.clone(), k.entry.clone()) };
    let names: Vec<(String, String)> = target.kernels.iter().map(image).collect();
    let images: Vec<KernelImage> = target
        .kernels
        .iter()
        .zip(&names)
        .map(|(k, (name, entry))| KernelImage { name, code: Code::Elf { bytes: &k.code, entry } })
        .collect();
    Ok(device.load(&images)?)
}

fn out_of_range(v: &Variable, have: Option<i64>) -> RunError {
    RunError::Variable { name: v.name.clone(), have, min: v.min, max: v.max }
}

fn too_long(port: &doorbell_package::Port, have: u64) -> RunError {
    RunError::Length { kind: "input or output", name: port.name.clone(), have, want: port.len_bytes }
}

fn find<'a>(kind: &'static str, name: &str, mut all: impl Iterator<Item = &'a str> + Clone) -> Result<usize, RunError> {
    let valid = all.clone();
    all.position(|n| n == name).ok_or_else(|| RunError::Unknown {
        kind,
        name: name.into(),
        valid: valid.collect::<Vec<_>>().join(", "),
    })
}

fn numbered<'a, T>(
    kind: &'static str,
    all: &'a [T],
    number: usize,
    name: impl Fn(&T) -> &String,
) -> Result<&'a T, RunError> {
    all.get(number).ok_or_else(|| RunError::Unknown {
        kind,
        name: number.to_string(),
        valid: all.iter().map(|t| name(t).clone()).collect::<Vec<_>>().join(", "),
    })
}
