//! Doorbell: lazy Tensors, one UOp graph, our own machine code, hand-built packets, a doorbell store.
//!
//! This page goes from `a + b` to the doorbell. Each step runs; a program needs only the first and the last.
//!
//! # 1. A Tensor is a graph
//!
//! Arithmetic on Tensors computes nothing: it makes nodes ([`uop::UOp`]). A wrong shape or type is carried by the
//! Tensor as an error, and comes out where a value is asked for.
//!
//! ```
//! use doorbell::tensor::prelude::*;
//!
//! let a = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], [4]);
//! let b = Tensor::from_slice(&[10.0f32, 20.0, 30.0, 40.0], [4]);
//! let sum = &a + &b;
//! println!("{}", sum.uop()?.tree());
//! assert_eq!(sum.to_vec::<f32>()?, [11.0, 22.0, 33.0, 44.0]); // everything below happens here
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # 2. A graph becomes kernels
//!
//! [`schedule`](mod@schedule) cuts the graph into kernels and copies and plans the memory between them. A kernel is a
//! graph of its own, without shapes: loops, loads and stores.
//!
//! ```
//! # use doorbell::schedule::{ScheduleCache, ScheduleItem, schedule};
//! # use doorbell::tensor::prelude::*;
//! # let sum = &Tensor::from_slice(&[1.0f32; 4], [4]) + &Tensor::from_slice(&[2.0f32; 4], [4]);
//! let roots = [(sum.contiguous().uop()?, "CPU".into())];
//! let plan = schedule(&roots, &ScheduleCache::default())?;
//! let kernels = plan.items.iter().filter(|item| matches!(item, ScheduleItem::Kernel { .. }));
//! assert_eq!(kernels.count(), 1); // beside it, copies of the data to the device
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # 3. A kernel becomes a linear program, and machine code
//!
//! [`codegen`] chooses how the loops run for a target and lists the nodes in execution order. A back end
//! ([`isa::Backend`]) makes machine code of the list. Devices that run nothing (`NULL:arch`) compile for any arch that
//! this build knows.
//!
//! ```
//! # use doorbell::codegen::{OptChoice, compile};
//! # use doorbell::engine::{Options, Session};
//! # use doorbell::uop::{AxisKind, DType, Op, UOp};
//! let i = UOp::range(64, 0, AxisKind::Loop);
//! let x = UOp::param(1, DType::F32, 64).index(&i).load();
//! let kernel = UOp::sink([UOp::param(0, DType::F32, 64).index(&i).store(&x.binary(Op::Add, &x), &[i.clone()])]);
//! let session = Session::open(Options::default())?;
//! # #[cfg(all(feature = "amd", feature = "nv"))] {
//! for (device, instruction) in [("NULL:x86_64-avx2", "vaddps"), ("NULL:gfx1100", "v_add_f32")] {
//!     let device = session.device(device)?;
//!     let program = compile(&kernel, device.target(), &OptChoice::Heuristic, false)?;
//!     let binary = device.backend.compile(&program)?;
//!     assert!(device.backend.listing(&binary)?.contains(instruction));
//! }
//! // NVIDIA's machine code is made of PTX, which can be read too.
//! let nv = session.device("NULL:sm_90")?;
//! let program = compile(&kernel, nv.target(), &OptChoice::Heuristic, false)?;
//! assert!(nv.backend.source(&program)?.ok_or("no text")?.contains("st.global"));
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # 4. Machine code becomes an image, a command, a doorbell store
//!
//! A device ([`device::Device`]) links the object ([`elf`]), places it in executable memory, and turns commands into
//! packets of its queue ([`hcq`]). Submitting ends with one store, the doorbell: on a GPU `Doorbell::ring` in
//! `ioctl/src/port/mapped.rs`, on the CPU a worker is woken instead. A point on the queue's timeline tells when the
//! work is done.
//!
//! ```
//! # use doorbell::codegen::{OptChoice, compile};
//! # use doorbell::device::{Arg, Code, Command, KernelImage, QueueKind};
//! # use doorbell::engine::{Options, Session};
//! # use doorbell::uop::{AxisKind, DType, Op, UOp};
//! # let i = UOp::range(64, 0, AxisKind::Loop);
//! # let x = UOp::param(1, DType::F32, 64).index(&i).load();
//! # let kernel = UOp::sink([UOp::param(0, DType::F32, 64).index(&i).store(&x.binary(Op::Add, &x), &[i.clone()])]);
//! # let session = Session::open(Options::default())?;
//! let cpu = session.device("CPU")?;
//! let program = compile(&kernel, cpu.target(), &OptChoice::Heuristic, false)?;
//! let binary = cpu.backend.compile(&program)?;
//! let object = binary.object().ok_or("no object")?;
//! let code = Code::Object { object, entry: &binary.entry };
//! let loaded = cpu.device.load(&[KernelImage { name: &binary.entry, code }])?;
//!
//! let [to, from] = [cpu.device.alloc(256)?, cpu.device.alloc(256)?];
//! cpu.device.copy_in(&from, 0, &1.5f32.to_le_bytes().repeat(64))?;
//! let command = Command::exec(&loaded[0], [Arg::Buffer(to.at(0)), Arg::Buffer(from.at(0))], program.threads);
//! let point = cpu.device.submit(QueueKind::Compute, &[command])?;
//! cpu.device.wait(&point, cpu.device.patience())?;
//!
//! let mut result = [0; 4];
//! cpu.device.copy_out(&to, 252, &mut result)?;
//! assert_eq!(f32::from_le_bytes(result), 3.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # 5. A session is a value
//!
//! A [`Session`] holds options, open devices, caches and counters. A thread computes in the one that it has entered,
//! else in the program's, whose options come from [`engine::install`] or from the environment. An option that means
//! nothing is an error there; messages that the options ask for go to [`Session::on_message`].
//!
//! ```
//! use doorbell::tensor::prelude::*;
//! use doorbell::{Options, Session};
//!
//! assert!(Session::open(Options { device: "GPU".into(), ..Options::default() }).is_err());
//! let plain_loops = Session::open(Options { noopt: true, ..Options::default() })?;
//! let in_it = plain_loops.enter();
//! assert_eq!(Tensor::from_slice(&[1.0f32; 8], [8]).sum(()).item()?, 8.0);
//! assert_eq!(plain_loops.counters.totals().compiled, 1);
//! drop(in_it);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//!
//! `cpu`, `amd`, `nv`, `metal`: a device and its back end each. `emu`: software GPUs of the vendors chosen
//! (`AMD:emu=gfx1100`, `NV:emu=sm_90`, `METAL:emu`). `datasets`: handwritten digits and MNIST. `mpi`: ranks of an
//! installed MPI (`docs/guide/several-devices.md`). All but `emu` and `mpi` are on by default.
#![deny(missing_docs, unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]
#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub use doorbell_codegen as codegen;
pub use doorbell_device as device;
pub use doorbell_elf as elf;
#[cfg(feature = "emu")]
pub use doorbell_emu as emu;
pub use doorbell_explorer as explorer;
pub use doorbell_hcq as hcq;
pub use doorbell_package as package;
pub use doorbell_runtime as runtime;
use doorbell_sort as sort;
pub use doorbell_uop as uop;

mod default_device;
pub mod engine;
pub mod isa {
    //! The back ends, one for each instruction set.
    #[cfg(feature = "cpu")]
    pub use doorbell_aarch64 as aarch64;
    #[cfg(feature = "amd")]
    pub use doorbell_amdgpu as amdgpu;
    pub use doorbell_isa::*;
    #[cfg(feature = "metal")]
    pub use doorbell_msl as metal;
    #[cfg(feature = "nv")]
    pub use doorbell_ptx as nvidia;
    #[cfg(feature = "nv")]
    pub use doorbell_ptx::{ptx, sass};
    #[cfg(feature = "cpu")]
    pub use doorbell_x86_64 as x86_64;
}
#[cfg(feature = "mpi")]
pub mod mpi;
pub mod nn;
pub mod schedule;
pub mod tensor;

pub use engine::{EmuMode, Error, Jit, Options, Session};
pub use tensor::Tensor;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
#[cfg(doctest)]
#[doc = include_str!("../docs/guide/from-tinygrad.md")]
struct FromTinygrad;
#[cfg(doctest)]
#[doc = include_str!("../docs/guide/from-pytorch.md")]
struct FromPyTorch;
#[cfg(doctest)]
#[doc = include_str!("../docs/guide/embed.md")]
struct Embed;
#[cfg(doctest)]
#[doc = include_str!("../docs/guide/several-devices.md")]
struct SeveralDevices;
