//! A launch of a compiled kernel: its arguments in the order of its back end, over the program's workgroups.
//!
//! Layer: between `isa`'s [`Binary`] and the device's `Command`; realize, search and validation all use it.

use super::Error;
use crate::codegen::{ParamInfo, Program};
use crate::device::{Arg, Code, Command, Geometry, Kernel, KernelImage, Location};
use crate::isa::{Argument, Binary, BinaryCode};
use crate::uop::UOp;
use smallvec::SmallVec;

/// The arguments of a command.
pub(super) type Args = SmallVec<[Arg; 6]>;

/// A kernel's arguments: `buffer` returns the location of a parameter's memory (called once for each), `variable` the
/// value of a variable.
pub(super) fn arguments(
    (p, binary): (&Program, &Binary),
    mut buffer: impl FnMut(&ParamInfo) -> Result<Location, Error>,
    mut variable: impl FnMut(&UOp) -> Result<i64, Error>,
) -> Result<Args, Error> {
    let lost = || Error::Internal(format!("{}: an argument of nothing", p.name));
    let mut args = Args::with_capacity(binary.arguments.len());
    for (n, argument) in binary.arguments.iter().enumerate() {
        let arg = match argument {
            Argument::Word(bits) => Arg::Scalar { bits: *bits, len_bytes: 8 },
            Argument::Variable(v) => Arg::Var(variable(p.vars.get(*v).ok_or_else(lost)?)?),
            // A tensor map starts at a buffer that is an earlier argument.
            Argument::Buffer(k) => match binary.arguments[..n].iter().position(|earlier| earlier == argument) {
                Some(same) => args[same].clone(),
                None => Arg::Buffer(buffer(p.params.get(*k).ok_or_else(lost)?)?),
            },
        };
        args.push(arg);
    }
    Ok(args)
}

/// The command that runs a kernel with these arguments.
pub(super) fn command(kernel: &Kernel, (p, binary): (&Program, &Binary), args: Args) -> Command {
    let over = Geometry { local_bytes: binary.shared_bytes, ..Geometry::of(p.global, p.local) };
    Command::exec(kernel, args, p.threads).over(over)
}

/// The image of the kernel for a device to load.
pub(super) fn image(binary: &Binary) -> KernelImage<'_> {
    let entry = binary.entry.as_str();
    let code = match &binary.code {
        BinaryCode::Object(object) => Code::Object { object, entry },
        BinaryCode::File(bytes) => Code::Elf { bytes, entry },
        // A device that executes nothing needs no code.
        _ => Code::Elf { bytes: &[], entry },
    };
    KernelImage { name: entry, code }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::{OptChoice, Target, compile};
    use crate::device::Device;
    use crate::device::null::NullDevice;
    use crate::uop::{AxisKind, DType};

    #[test]
    fn arguments_stand_as_the_back_end_says_and_each_buffer_is_asked_for_once() {
        let r = UOp::range(64, 0, AxisKind::Loop);
        let x = UOp::param(1, DType::F32, 64).index(&r).load();
        let ast = UOp::sink([UOp::param(0, DType::F32, 64).index(&r).store(&x, &[r])]);
        let p = compile(&ast, &Target::null(), &OptChoice::None, false).unwrap();
        let d = NullDevice::open("NULL", "", 1).unwrap();
        let memory = d.alloc(1024).unwrap();
        let mut binary = Binary::plain(&p, BinaryCode::None);
        assert_eq!(binary.arguments, [Argument::Buffer(0), Argument::Buffer(1)]);
        binary.arguments.extend([Argument::Word(7), Argument::Buffer(1), Argument::Word(9)]);
        let mut asked = Vec::new();
        let place = |info: &ParamInfo| {
            asked.push(info.slot);
            Ok(memory.at(256 * u64::from(info.slot)))
        };
        let args = arguments((&p, &binary), place, |_| Ok(0)).unwrap();
        let at = |n: u64| memory.va() + 256 * n;
        let bits: Vec<u64> = args.iter().map(Arg::bits).collect();
        assert_eq!((bits, asked), (vec![at(0), at(1), 7, at(1), 9], vec![0, 1]));
        binary.arguments.push(Argument::Variable(0));
        let lost = arguments((&p, &binary), |_| Ok(memory.at(0)), |_| Ok(0));
        assert!(lost.unwrap_err().to_string().contains("an argument of nothing"));
    }
}
