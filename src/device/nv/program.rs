//! A kernel loaded on the GPU, and its launches: arguments at the kernel's offsets, constant bank and QMD.
//!
//! Layer: above `bo`, `blocks` and `launch`; `queue` and `graph` ask. Source: docs/nv.md 4.2, 5.4, 5.6.

use super::blocks::{BlockLayout, Template};
use super::bo::Bo;
use super::chip::Chip;
use super::launch::{MAX_STACK_BYTES, Plan, Request, local_bytes};
use super::local::{LOCAL_WINDOW, SHARED_WINDOW};
use crate::{Arg, Code, Geometry, KernelImage};
use doorbell_elf::cubin::{Cubin, Kernel, Param, is_cubin};
use doorbell_hcq::packet::GpuVa;
use doorbell_hcq::packet::nv::qmd::Dependent;
use smallvec::SmallVec;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A loaded kernel. The buffer of its code is freed with the last kernel of the image.
#[derive(Debug)]
pub(crate) struct LoadedKernel {
    pub name: Arc<str>,
    pub kernel: Kernel,
    /// Compute capability of the code.
    pub code_sm: u32,
    pub image: GpuVa,
    /// Keeps the code's buffer alive.
    #[allow(dead_code)]
    pub code: Arc<Bo>,
    pub templates: Templates,
}

/// A kernel's checked launches. Nearly all kernels are always launched with the same geometry; that template is found
/// without a lock.
#[derive(Debug, Default)]
pub(crate) struct Templates {
    first: OnceLock<Template>,
    /// The last template for another geometry.
    last: Mutex<Option<Template>>,
}

/// A parsed cubin and one of its kernels, before they have an address on the device.
#[derive(Clone, Debug)]
pub(crate) struct CubinImage {
    pub cubin: Cubin,
    pub kernel: Kernel,
}

impl CubinImage {
    /// Parses an image to load.
    ///
    /// # Errors
    /// A message: not a cubin, a cubin without the kernel, or for another chip.
    pub(crate) fn read(image: &KernelImage<'_>, chip: &Chip) -> Result<Self, String> {
        let (bytes, entry, functions) = match image.code {
            Code::Elf { bytes, entry } => (bytes, entry, None),
            Code::Cubin { bytes, entry, functions } => (bytes, entry, Some(functions)),
            Code::Object { .. } => return Err("an unlinked object; a cubin is needed".into()),
            Code::Raw(_) => return Err("raw instructions lack the launch parameters; a cubin is needed".into()),
        };
        if !is_cubin(bytes) {
            return Err("the file is not a cubin".into());
        }
        let mut cubin = Cubin::parse(bytes).map_err(|e| e.to_string())?;
        functions.map_or(Ok(()), |f| cubin.supply(f)).map_err(|e| e.to_string())?;
        if cubin.sm > chip.sm || cubin.sm / 10 != chip.sm / 10 {
            return Err(format!("the cubin is for sm_{}, the device is {}", cubin.sm, chip.name));
        }
        let kernel = cubin.kernel(entry).ok_or_else(|| {
            let names: Vec<&str> = cubin.kernels.iter().map(|k| k.name.as_str()).take(8).collect();
            format!("the cubin has no kernel {entry}, it has {}", names.join(", "))
        })?;
        let stack = kernel.stack_bytes.unwrap_or(0);
        if stack > MAX_STACK_BYTES {
            return Err(format!("{entry} needs {stack} bytes of stack per thread, the limit is {MAX_STACK_BYTES}"));
        }
        Ok(Self { kernel: kernel.clone(), cubin })
    }
}

/// Assigns arguments, in order, to positions in the parameter block.
struct ArgumentLayout<'a> {
    params: &'a [Param],
    /// Each argument fills one parameter. Otherwise several arguments (the words of a struct) may fill one longer
    /// parameter.
    is_one_to_one: bool,
    next: usize,
}

impl<'a> ArgumentLayout<'a> {
    fn of(params: &'a [Param], args: usize) -> Self {
        Self { params, is_one_to_one: params.len() == args, next: 0 }
    }

    /// Offset and length of the next argument, which has `own` bytes; the previous ones end at `have`.
    fn next(&mut self, own: usize, have: usize) -> (usize, usize) {
        if self.is_one_to_one {
            self.next += 1;
            let own_one = self.params.get(self.next - 1);
            return own_one.map_or((have, own), |p| (p.offset as usize, p.len_bytes as usize));
        }
        // A parameter's first argument goes to its start, further ones follow while they fit. A wrong total length is
        // reported at the end.
        let natural = have.next_multiple_of(own);
        let has_room = |p: &&Param| natural < p.offset as usize + p.len_bytes as usize;
        (self.params.iter().find(has_room).map_or(natural, |p| natural.max(p.offset as usize)), own)
    }
}

/// The bytes of the arguments, as the kernel reads them.
pub(crate) type Arguments = SmallVec<[u8; 64]>;

/// `len_bytes` zero bytes. Most kernels' arguments fit inline, without an allocation.
fn zeros(len_bytes: usize) -> Arguments {
    const FEW: usize = 64;
    if len_bytes <= FEW { Arguments::from_buf_and_len([0; FEW], len_bytes) } else { Arguments::from_elem(0, len_bytes) }
}

impl LoadedKernel {
    /// Bytes of local memory that a thread of the kernel needs.
    #[must_use]
    pub(crate) fn local_bytes(&self) -> u32 {
        local_bytes(&self.kernel)
    }

    /// The arguments at the offsets that the cubin declares or, if it declares none, one after another at their natural
    /// alignment. `at_place` is called with each argument's offset and length.
    ///
    /// # Errors
    /// A message: the arguments do not match the kernel's parameters.
    pub(crate) fn arguments(&self, args: &[Arg], mut at_place: impl FnMut(usize, usize)) -> Result<Arguments, String> {
        let want = (self.kernel.bank0_bytes as usize).saturating_sub(self.kernel.param_base as usize);
        let (mut out, mut have) = (zeros(want), 0_usize);
        let mut layout = ArgumentLayout::of(&self.kernel.params, args.len());
        for (n, arg) in args.iter().enumerate() {
            let own = match arg {
                Arg::Scalar { len_bytes, .. } => usize::from(*len_bytes),
                Arg::Buffer(_) | Arg::Var(_) => 8,
            };
            if !matches!(own, 1 | 2 | 4 | 8) {
                return Err(format!("pass a scalar of {own} bytes"));
            }
            let (at, len) = layout.next(own, have);
            // A variable takes the declared length; an address or scalar must have exactly that length.
            let fits = if matches!(arg, Arg::Var(_)) { len <= 8 } else { len == own };
            if !fits {
                return Err(format!("pass {own} bytes as argument {n} of {}, which has {len}", self.name));
            }
            have = have.max(at + len);
            // Bytes beyond the kernel's parameters are reported below.
            match (out.get_mut(at..at + len), arg.bits().to_le_bytes()) {
                (Some([a, b, c, d, e, f, g, h]), bytes) => [*a, *b, *c, *d, *e, *f, *g, *h] = bytes,
                (Some(place), bytes) => place.copy_from_slice(&bytes[..len]),
                (None, _) => {}
            }
            at_place(at, len);
        }
        // Only trailing padding may be missing, not a parameter.
        let lacks = self.kernel.params.last().is_some_and(|last| have <= last.offset as usize);
        if have > want || have.next_multiple_of(4) < want || lacks {
            let count = (args.len(), self.kernel.params.len());
            let name = &self.name;
            return Err(format!(
                "pass {} arguments of {have} bytes to {name}, which takes {} of {want}",
                count.0, count.1
            ));
        }
        Ok(out)
    }

    /// Calls `with` with the template for this geometry, which is checked only once.
    ///
    /// # Errors
    /// A message, as `plan`.
    pub(crate) fn with_template<T>(
        &self,
        chip: &'static Chip,
        geometry: &Geometry,
        args: &[u8],
        then: impl FnOnce(&Template) -> T,
    ) -> Result<T, String> {
        if let Some(template) = self.templates.first.get().filter(|t| t.is_over(geometry)) {
            return Ok(then(template));
        }
        let mut last = self.templates.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(template) = last.as_ref().filter(|t| t.is_over(geometry)) {
            return Ok(then(template));
        }
        let plan = self.plan(chip, geometry, args, GpuVa(0), None)?;
        let layout = BlockLayout::of(&self.kernel, chip);
        let template = Template::new(chip, geometry, &plan, layout).ok_or("launch without a bank")?;
        match self.templates.first.set(template) {
            Ok(()) => Ok(then(self.templates.first.get().ok_or("launch")?)),
            Err(template) => Ok(then(last.insert(template))),
        }
    }

    /// Plans a launch whose bank lies at `bank0`.
    ///
    /// # Errors
    /// A message: a shape, a resource amount or arguments that the kernel or the chip does not support.
    pub(crate) fn plan(
        &self,
        chip: &'static Chip,
        geometry: &Geometry,
        args: &[u8],
        bank0: GpuVa,
        dependent: Option<Dependent>,
    ) -> Result<Plan, String> {
        let request = Request {
            chip,
            kernel: &self.kernel,
            code_sm: self.code_sm,
            image: self.image,
            bank0,
            grid: geometry.groups,
            block: geometry.local,
            cluster: geometry.cluster,
            dynamic_shared_bytes: geometry.local_bytes,
            args,
            windows: [SHARED_WINDOW, LOCAL_WINDOW],
            releases: Vec::new(),
            dependent,
        };
        request.plan().map_err(|e| format!("launch {e}"))
    }
}
