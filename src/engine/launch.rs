//! A launch of a compiled kernel: its arguments in the order that its back end says, over the program's workgroups.
//!
//! Place in the arrows: between `isa`'s [`Binary`] and the device's `Command`; realize, search and validation all come through here.

use super::Error;
use crate::codegen::{ParamInfo, Program};
use crate::device::{Arg, Code, Command, Geometry, Kernel, KernelImage, Place};
use crate::isa::{Argument, Binary, BinaryCode};
use crate::uop::UOp;
use smallvec::SmallVec;

/// Arguments as a command has them.
pub(super) type Args = SmallVec<[Arg; 6]>;

/// A kernel's arguments: `buffer` says where the memory of a parameter is (asked once for each), `variable` what a variable's value is.
pub(super) fn arguments(
    (p, binary): (&Program, &Binary),
    mut buffer: impl FnMut(&ParamInfo) -> Result<Place, Error>,
    mut variable: impl FnMut(&UOp) -> Result<i64, Error>,
) -> Result<Args, Error> {
    let lost = || Error::Internal(format!("{}: an argument of nothing", p.name));
    let mut args = Args::with_capacity(binary.arguments.len());
    for (n, argument) in binary.arguments.iter().enumerate() {
        let arg = match argument {
            Argument::Word(bits) => Arg::Scalar { bits: *bits, len_bytes: 8 },
            Argument::Variable(v) => Arg::Var(variable(p.vars.get(*v).ok_or_else(lost)?)?),
            // What a matrix begins with is an argument that stands before it.
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

/// The kernel as a device loads it.
pub(super) fn image(binary: &Binary) -> KernelImage<'_> {
    let entry = binary.entry.as_str();
    let code = match &binary.code {
        BinaryCode::Object(object) => Code::Object { object, entry },
        BinaryCode::File(bytes) => Code::Elf { bytes, entry },
        // A device that executes nothing asks for no code.
        _ => Code::Elf { bytes: &[], entry },
    };
    KernelImage { name: entry, code }
}
