//! Code on the GPU, and what one launch of it needs: its arguments at the kernel's offsets, the bank and the QMD.
//!
//! Place in the arrows: above `bo`, `blocks` and `launch`; `queue` and `graph` ask. Source: nv.md 4.2, 5.4, 5.6.

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

/// A loaded kernel. Its buffer is freed with the last kernel of the image.
#[derive(Debug)]
pub struct Program {
    pub name: Arc<str>,
    pub kernel: Kernel,
    /// Compute capability of the code.
    pub code_sm: u32,
    pub image: GpuVa,
    /// Keeps the code.
    #[allow(dead_code)]
    pub code: Arc<Bo>,
    pub templates: Templates,
}

/// Launches of a kernel that were checked: nearly all kernels are launched over one grid, which is then found without a lock.
#[derive(Debug, Default)]
pub struct Templates {
    first: OnceLock<Template>,
    /// The last one over another grid.
    last: Mutex<Option<Template>>,
}

/// An image before it has an address.
#[derive(Clone, Debug)]
pub struct Placed {
    pub cubin: Cubin,
    pub kernel: Kernel,
}

impl Placed {
    /// Reads what was given to load.
    ///
    /// # Errors
    /// In words: no cubin, or one without the kernel, or for another chip.
    pub fn read(image: &KernelImage<'_>, chip: &Chip) -> Result<Self, String> {
        let (bytes, entry) = match image.code {
            Code::Elf { bytes, entry } => (bytes, entry),
            Code::Raw(_) => return Err("bare instructions do not say what a launch needs; a cubin is wanted".into()),
        };
        if !is_cubin(bytes) {
            return Err("the file is no cubin".into());
        }
        let cubin = Cubin::parse(bytes).map_err(|e| e.to_string())?;
        if cubin.sm > chip.sm || cubin.sm / 10 != chip.sm / 10 {
            return Err(format!("the cubin is for sm_{}, the device is {}", cubin.sm, chip.name));
        }
        let kernel = cubin.kernel(entry).ok_or_else(|| {
            let names: Vec<&str> = cubin.kernels.iter().map(|k| k.name.as_str()).take(8).collect();
            format!("the cubin has no kernel {entry}, it has {}", names.join(", "))
        })?;
        let stack = kernel.stack_bytes.unwrap_or(0);
        if stack > MAX_STACK_BYTES {
            return Err(format!("{entry} wants {stack} bytes of stack a thread, at most {MAX_STACK_BYTES}"));
        }
        Ok(Self { kernel: kernel.clone(), cubin })
    }
}

/// Where one argument after the other goes.
struct Places<'a> {
    params: &'a [Param],
    /// Each has a parameter of its own; else several, the words of a struct, fill one that is longer.
    is_each: bool,
    next: usize,
}

impl<'a> Places<'a> {
    fn of(params: &'a [Param], args: usize) -> Self {
        Self { params, is_each: params.len() == args, next: 0 }
    }

    /// The place of the next one, which has `own` bytes, where all before it end at `have`; and the bytes that it fills.
    fn next(&mut self, own: usize, have: usize) -> (usize, usize) {
        if self.is_each {
            self.next += 1;
            let own_one = self.params.get(self.next - 1);
            return own_one.map_or((have, own), |p| (p.offset as usize, p.len_bytes as usize));
        }
        // The first of a parameter stands where it begins, the others behind it as long as it lasts. Another sum of bytes is told at the end.
        let natural = have.next_multiple_of(own);
        let has_room = |p: &&Param| natural < p.offset as usize + p.len_bytes as usize;
        (self.params.iter().find(has_room).map_or(natural, |p| natural.max(p.offset as usize)), own)
    }
}

/// Arguments as the kernel finds them.
pub type Arguments = SmallVec<[u8; 64]>;

/// So many zero bytes. Those of most kernels fit where they are and need no call.
fn zeros(len_bytes: usize) -> Arguments {
    const FEW: usize = 64;
    if len_bytes <= FEW { Arguments::from_buf_and_len([0; FEW], len_bytes) } else { Arguments::from_elem(0, len_bytes) }
}

impl Program {
    /// Bytes of local memory that a thread of the kernel needs.
    #[must_use]
    pub fn local_bytes(&self) -> u32 {
        local_bytes(&self.kernel)
    }

    /// The arguments at the offsets that the cubin says, or, where it says none, one after another at their natural alignment.
    /// `at_place` is told where each lies, and its length.
    ///
    /// # Errors
    /// In words: other arguments than the kernel takes.
    pub fn arguments(&self, args: &[Arg], mut at_place: impl FnMut(usize, usize)) -> Result<Arguments, String> {
        let want = (self.kernel.bank0_bytes as usize).saturating_sub(self.kernel.param_base as usize);
        let (mut out, mut have) = (zeros(want), 0_usize);
        let mut places = Places::of(&self.kernel.params, args.len());
        for (n, arg) in args.iter().enumerate() {
            let own = match arg {
                Arg::Scalar { len_bytes, .. } => usize::from(*len_bytes),
                Arg::Buffer(_) | Arg::Var(_) => 8,
            };
            if !matches!(own, 1 | 2 | 4 | 8) {
                return Err(format!("pass a scalar of {own} bytes"));
            }
            let (at, len) = places.next(own, have);
            // A variable fills what the kernel declares; an address and a scalar have their length.
            let fits = if matches!(arg, Arg::Var(_)) { len <= 8 } else { len == own };
            if !fits {
                return Err(format!("pass {own} bytes as argument {n} of {}, which has {len}", self.name));
            }
            have = have.max(at + len);
            // More than the kernel takes is told below.
            match (out.get_mut(at..at + len), arg.bits().to_le_bytes()) {
                (Some([a, b, c, d, e, f, g, h]), bytes) => [*a, *b, *c, *d, *e, *f, *g, *h] = bytes,
                (Some(place), bytes) => place.copy_from_slice(&bytes[..len]),
                (None, _) => {}
            }
            at_place(at, len);
        }
        // What is missing may be padding, but no parameter.
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

    /// Hands on the launch over this grid, which is checked once.
    ///
    /// # Errors
    /// In words: as `plan`.
    pub fn with_template<T>(
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

    /// A launch whose bank lies at `bank0`.
    ///
    /// # Errors
    /// In words: a shape, an amount or arguments that the kernel or the chip does not take.
    pub fn plan(
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
