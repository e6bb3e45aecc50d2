//! Ranks of MPI: the same program in several processes, on one machine or on many, whose Tensors are combined.
//!
//! A rank is a device of a mesh of processes: each has a model of its own on its own device and its part of the rows.
//! Between the gradients and the optimiser's step, [`World::all_reduce`] makes the mean of all ranks' gradients each
//! rank's. A rank's Tensors may themselves be sharded over devices.
//!
//! ```no_run
//! use doorbell::mpi::{Combine, World};
//! use doorbell::tensor::prelude::*;
//!
//! let world = World::init()?;
//! let mine = Tensor::new([world.rank() as f32]);
//! world.all_reduce(&[&mine], Combine::Sum)?; // each rank has 0 + 1 + 2 ..
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Feature `mpi`, off by default: it needs an installed MPI (Debian: libopenmpi-dev, openmpi-bin and libclang-dev). The
//! program is started by `mpirun -n 4 program`; without it, it is the only rank. `examples/parallel_mpi.rs` trains.
//!
//! Layer: above `engine`; data is copied to the host, and MPI passes it on. Left out: MPI that reads device memory.
#![forbid(unsafe_code)]

mod pack;

use crate::engine::Error;
use crate::tensor::Tensor;
use ::mpi::Threading;
use ::mpi::collective::SystemOperation;
use ::mpi::environment::Universe;
use ::mpi::topology::Communicator as _;
use ::mpi::traits::{CommunicatorCollectives as _, Root as _};
use pack::{Packed, Part};
use std::marker::PhantomData;
use std::ops::Range;

/// What ranks combine their elements by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Combine {
    /// Their sum; integers wrap.
    Sum,
    /// The sum divided by the number of ranks, of floats only.
    Mean,
    /// The largest.
    Max,
    /// The smallest.
    Min,
}

/// Why ranks could not work together.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum MpiError {
    /// A second World.
    #[error("mpi: this process has had its World: it is made once, and lives as long as the program needs it")]
    Twice,
    /// The MPI at hand is for programs without threads.
    #[error("mpi: the installed MPI allows no threads in a program: it was built without MPI_THREAD_FUNNELED")]
    Threads,
    /// The ranks came to a call with Tensors of different numbers, shapes or dtypes.
    #[error("mpi: {what}: rank {rank} came with other Tensors than rank {mine}, which has {here}")]
    Mismatch {
        /// The call.
        what: &'static str,
        /// The first rank that has others than this one.
        rank: usize,
        /// This rank.
        mine: usize,
        /// Its Tensors.
        here: String,
    },
    /// Another rank had no Tensors to come with.
    #[error("mpi: {what}: rank {rank} could not compute its Tensors; its own message says why")]
    Failed {
        /// The call.
        what: &'static str,
        /// The first rank that failed.
        rank: usize,
    },
    /// See [`World::rows`].
    #[error("mpi: {rows} rows have no {ranks} equal parts")]
    Rows {
        /// How many were to be divided.
        rows: usize,
        /// Among how many.
        ranks: usize,
    },
    /// A rank that is not there.
    #[error("mpi: there is no rank {rank}, but {ranks}")]
    Rank {
        /// The one that was named.
        rank: usize,
        /// How many there are.
        ranks: usize,
    },
    /// Tensors that are not passed between ranks.
    #[error("mpi: {0}")]
    Argument(String),
    /// Computing the Tensors failed.
    #[error(transparent)]
    Engine(#[from] Error),
}

/// The text of `Display`: what `?` out of `main` prints.
impl std::fmt::Debug for MpiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// All ranks of the program. Its methods other than [`rank`](World::rank), [`size`](World::size) and
/// [`rows`](World::rows) are for all ranks together: each calls them in the same order, and waits there for the others.
/// What the ranks come with is compared first, so that Tensors which do not fit are an error on all of them.
///
/// It belongs to the thread that made it. Where that panics, the other ranks are ended too.
pub struct World {
    universe: Universe,
    _here: PhantomData<*const ()>,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "World(rank {} of {})", self.rank(), self.size())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // The others would wait for this rank for ever.
        if std::thread::panicking() && self.size() > 1 {
            self.universe.world().abort(1);
        }
    }
}

impl World {
    /// Starts MPI in this process.
    ///
    /// # Errors
    /// `Twice`, `Threads`.
    pub fn init() -> Result<World, MpiError> {
        let (universe, threads) = ::mpi::initialize_with_threading(Threading::Funneled).ok_or(MpiError::Twice)?;
        let world = World { universe, _here: PhantomData };
        // Devices have threads, which call nothing of MPI.
        if threads < Threading::Funneled { Err(MpiError::Threads) } else { Ok(world) }
    }

    /// The number of this process, from 0.
    #[must_use]
    pub fn rank(&self) -> usize {
        usize::try_from(self.universe.world().rank()).unwrap_or(0)
    }

    /// How many there are.
    #[must_use]
    pub fn size(&self) -> usize {
        usize::try_from(self.universe.world().size()).unwrap_or(1)
    }

    /// This rank's part of so many rows.
    ///
    /// # Errors
    /// They have no equal parts: the mean over ranks would not be that over rows.
    pub fn rows(&self, rows: usize) -> Result<Range<usize>, MpiError> {
        let (rank, ranks) = (self.rank(), self.size());
        match rows % ranks {
            0 => Ok(rank * (rows / ranks)..(rank + 1) * (rows / ranks)),
            _ => Err(MpiError::Rows { rows, ranks }),
        }
    }

    /// Combines each Tensor with those in the same place on the other ranks; all ranks then have the result. Where a
    /// Tensor is memory, the result is in that memory. Half types are combined in f32. (torch:
    /// `dist.all_reduce`, for many at once.)
    ///
    /// # Errors
    /// `Mismatch` in number, shape or dtype, `Failed`: on all ranks. A bool, or the mean of integers.
    pub fn all_reduce(&self, tensors: &[&Tensor], how: Combine) -> Result<(), MpiError> {
        let what = "all_reduce";
        let mut packed = self.met(what, Packed::of(tensors, how == Combine::Mean))?;
        let (world, op) = (self.universe.world(), how.operation());
        for part in &mut packed.parts {
            macro_rules! reduce {
                ($list:expr) => {{
                    let mut sum = $list.clone();
                    for (own, sum) in $list.chunks(MOST).zip(sum.chunks_mut(MOST)) {
                        world.all_reduce_into(own, sum, op);
                    }
                    *$list = sum;
                }};
            }
            match part {
                Part::F32(list) => reduce!(list),
                Part::F64(list) => reduce!(list),
                Part::I8(list) => reduce!(list),
                Part::I16(list) => reduce!(list),
                Part::I32(list) => reduce!(list),
                Part::I64(list) => reduce!(list),
                Part::U8(list) => reduce!(list),
                Part::U16(list) => reduce!(list),
                Part::U32(list) => reduce!(list),
                Part::U64(list) => reduce!(list),
            }
            if how == Combine::Mean {
                part.divide(self.size());
            }
        }
        Ok(packed.put(what, tensors)?)
    }

    /// The mean over all ranks of the gradients of these parameters, where they have any: between `backward` and the
    /// optimiser's step.
    ///
    /// # Errors
    /// As [`World::all_reduce`].
    pub fn average_gradients(&self, parameters: &[Tensor]) -> Result<(), MpiError> {
        let gradients: Vec<Tensor> = parameters.iter().filter_map(Tensor::grad).collect();
        self.all_reduce(&gradients.iter().collect::<Vec<_>>(), Combine::Mean)
    }

    /// Gives all ranks what one of them has: initial parameters.
    ///
    /// # Errors
    /// As [`World::all_reduce`]; no such rank.
    pub fn broadcast(&self, tensors: &[&Tensor], from: usize) -> Result<(), MpiError> {
        let what = "broadcast";
        let ranks = self.size();
        let root = i32::try_from(from).ok().filter(|_| from < ranks).ok_or(MpiError::Rank { rank: from, ranks })?;
        let mut packed = self.met(what, Packed::of(tensors, false))?;
        let world = self.universe.world();
        let root = world.process_at_rank(root);
        for part in &mut packed.parts {
            macro_rules! pass {
                ($list:expr) => {
                    $list.chunks_mut(MOST).for_each(|some| root.broadcast_into(some))
                };
            }
            match part {
                Part::F32(list) => pass!(list),
                Part::F64(list) => pass!(list),
                Part::I8(list) => pass!(list),
                Part::I16(list) => pass!(list),
                Part::I32(list) => pass!(list),
                Part::I64(list) => pass!(list),
                Part::U8(list) => pass!(list),
                Part::U16(list) => pass!(list),
                Part::U32(list) => pass!(list),
                Part::U64(list) => pass!(list),
            }
        }
        Ok(packed.put(what, tensors)?)
    }

    /// The Tensors of all ranks one after another along the first axis, in the order of the ranks.
    ///
    /// # Errors
    /// As [`World::all_reduce`]; a Tensor without an axis.
    pub fn all_gather(&self, tensor: &Tensor) -> Result<Tensor, MpiError> {
        let what = "all_gather";
        let packed = match tensor.rank().map_err(Error::from)? {
            0 => Err(MpiError::Argument("all_gather: a Tensor without an axis".into())),
            _ => Packed::of(&[tensor], false).and_then(|p| p.of_most(MOST)),
        };
        let mut packed = self.met(what, packed)?;
        let (world, ranks) = (self.universe.world(), self.size());
        for part in &mut packed.parts {
            macro_rules! gather {
                ($list:expr) => {{
                    let mut all = $list.repeat(ranks);
                    world.all_gather_into(&$list[..], &mut all[..]);
                    *$list = all;
                }};
            }
            match part {
                Part::F32(list) => gather!(list),
                Part::F64(list) => gather!(list),
                Part::I8(list) => gather!(list),
                Part::I16(list) => gather!(list),
                Part::I32(list) => gather!(list),
                Part::I64(list) => gather!(list),
                Part::U8(list) => gather!(list),
                Part::U16(list) => gather!(list),
                Part::U32(list) => gather!(list),
                Part::U64(list) => gather!(list),
            }
        }
        Ok(packed.gathered(tensor, ranks)?)
    }

    /// Waits until all ranks are here.
    pub fn barrier(&self) {
        self.universe.world().barrier();
    }

    /// Compares what the ranks came with. One that has failed says so, instead of leaving the others waiting.
    fn met(&self, what: &'static str, packed: Result<Packed, MpiError>) -> Result<Packed, MpiError> {
        let mine = packed.as_ref().map_or(FAILED, Packed::signature);
        let mut all = vec![0u64; self.size()];
        self.universe.world().all_gather_into(&mine, &mut all[..]);
        let packed = packed?;
        if let Some(rank) = all.iter().position(|s| *s == FAILED) {
            return Err(MpiError::Failed { what, rank });
        }
        match all.iter().position(|s| *s != mine) {
            Some(rank) => Err(MpiError::Mismatch { what, rank, mine: self.rank(), here: packed.shown() }),
            None => Ok(packed),
        }
    }
}

/// Elements of one call of MPI, which counts them in an i32.
const MOST: usize = 1 << 28;

/// What a rank shows in the place of what its Tensors are like, if it has none to show.
const FAILED: u64 = 0;

impl Combine {
    fn operation(self) -> SystemOperation {
        match self {
            Combine::Sum | Combine::Mean => SystemOperation::sum(),
            Combine::Max => SystemOperation::max(),
            Combine::Min => SystemOperation::min(),
        }
    }
}
