//! A kernel of a cubin, a grid and arguments → constant bank 0 and the QMD. All limits are checked here, before the
//! hardware would.

use super::bank0::LaunchValues;
use super::chip::Chip;
use doorbell_elf::cubin::Kernel;
use doorbell_hcq::packet::GpuVa;
use doorbell_hcq::packet::nv::qmd::{Constant, Dependent, FieldError, Invalidate, Launch, Qmd, Release};

/// Stack bytes of a thread whose kernel does not declare a bound.
pub(crate) const DEFAULT_STACK_BYTES: u32 = 1 << 10;
/// Bytes above a thread's initial stack pointer.
const STACK_HEAD_BYTES: u32 = 0x240;
/// The window of a thread's local memory, less [`STACK_HEAD_BYTES`].
pub(super) const MAX_STACK_BYTES: u32 = (1 << 24) - STACK_HEAD_BYTES;
/// Registers of an SM, and the granularity of a warp's allocation.
const SM_REGISTERS: u64 = 1 << 16;
const WARP_REGISTER_UNIT: u64 = 256;
/// The hardware refuses grids with fewer registers a thread (seen on an H100: SKEDCHECK06_REGISTER_COUNT); so many cost
/// no occupancy on any chip.
const MIN_REGISTERS: u32 = 16;
const MAX_THREADS: u64 = 1024;
/// The bank of `__constant__` variables.
const CONSTANTS_BANK: u32 = 3;
const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
const MAX_GRID: [u32; 3] = [0x7fff_ffff, 0xffff, 0xffff];
/// Most CTAs of a cluster. Every chip with clusters supports 8; 16 need a GPC with all its SMs.
const MAX_CLUSTER: u64 = 16;

/// Why a launch is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    #[error("{kernel}: {what} {found:?}: {why}")]
    Shape { kernel: String, what: &'static str, found: [u32; 3], why: &'static str },
    #[error("{kernel}: code for sm_{code} does not run on {chip}")]
    Chip { kernel: String, code: u32, chip: &'static str },
    #[error("{kernel} wants {want} bytes of {what}, {chip} has {have}")]
    TooMuch { kernel: String, what: &'static str, want: u64, chip: &'static str, have: u64 },
    #[error("{kernel} takes {want} bytes of arguments, not {found}")]
    Arguments { kernel: String, want: usize, found: usize },
    #[error("{kernel}: {error}")]
    Field { kernel: String, error: FieldError },
}

/// A launch to plan. Sizes are in bytes.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    pub chip: &'static Chip,
    pub kernel: &'a Kernel,
    /// Compute capability of the cubin.
    pub code_sm: u32,
    /// Address of the cubin's image.
    pub image: GpuVa,
    /// Address of bank 0; a multiple of 256.
    pub bank0: GpuVa,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: Option<[u32; 3]>,
    pub dynamic_shared_bytes: u32,
    /// The bytes of all parameters, each at its offset.
    pub args: &'a [u8],
    /// The windows of shared and local memory in the generic address space.
    pub windows: [GpuVa; 2],
    pub releases: Vec<Release>,
    /// The next launch of a chain.
    pub dependent: Option<Dependent>,
}

/// The result: bytes to write to memory, and the descriptor to submit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The bytes of bank 0, for [`Request::bank0`].
    pub bank0: Vec<u8>,
    pub launch: Launch,
    pub qmd: Qmd,
    /// Local memory per thread; the channel's must be at least this large.
    pub local_bytes: u32,
}

impl Request<'_> {
    /// Checks the launch and builds its bank 0 and QMD.
    ///
    /// # Errors
    /// A shape, a resource amount or arguments that the kernel or the chip does not support.
    pub fn plan(&self) -> Result<Plan, LaunchError> {
        let (chip, kernel) = (self.chip, self.kernel);
        let name = || kernel.name.clone();
        let newer = self.code_sm > chip.sm || self.code_sm / 10 != chip.sm / 10;
        if newer {
            return Err(LaunchError::Chip { kernel: name(), code: self.code_sm, chip: chip.name });
        }
        self.check_shapes()?;
        let cluster = self.clusters();
        let too_much = |what, want, have| LaunchError::TooMuch { kernel: name(), what, want, chip: chip.name, have };
        let shared = kernel.launch_shared_bytes(self.code_sm, self.dynamic_shared_bytes);
        let shared_max = u64::from(chip.shared_max_bytes + chip.shared_reserved_bytes);
        let shared_config = chip.shared_config(shared).ok_or_else(|| too_much("shared memory", shared, shared_max))?;
        let want = (kernel.bank0_bytes as usize).saturating_sub(chip.bank0.params as usize);
        if kernel.param_base != chip.bank0.params || self.args.len() != want {
            return Err(LaunchError::Arguments { kernel: name(), want, found: self.args.len() });
        }
        let stack = kernel.stack_bytes.unwrap_or(DEFAULT_STACK_BYTES);
        if stack > MAX_STACK_BYTES {
            return Err(too_much("stack", stack.into(), MAX_STACK_BYTES.into()));
        }
        let local_bytes = local_bytes(kernel);
        let constants = kernel.banks.iter().find(|bank| bank.number == CONSTANTS_BANK);
        let values = LaunchValues {
            grid: self.grid,
            block: self.block,
            cluster,
            dynamic_shared_bytes: self.dynamic_shared_bytes,
            reserved_shared_bytes: chip.shared_reserved_bytes,
            windows: self.windows,
            address: self.bank0,
            constants: constants.map(|bank| GpuVa(self.image.0.wrapping_add(bank.offset))),
        };
        let bank0 = chip.bank0.fill(&values, self.args);
        let mut constants = [None; 8];
        let bound = Constant { address: self.bank0, len_bytes: bank0.len() as u32, invalidate: true };
        constants[0] = Some(bound);
        for bank in &kernel.banks {
            let address = GpuVa(self.image.0.wrapping_add(bank.offset));
            let slot = constants.get_mut(bank.number as usize);
            let slot = slot.ok_or_else(|| too_much("constant banks", bank.number.into(), 8))?;
            *slot = Some(Constant { address, len_bytes: bank.len_bytes, invalidate: false });
        }
        let launch = Launch {
            program: GpuVa(self.image.0.wrapping_add(kernel.code_offset)),
            registers: kernel.registers.max(MIN_REGISTERS),
            barriers: kernel.barriers,
            // Read as hexadecimal: 0x90 of sm_90.
            sass_version: chip.sm / 10 * 16 + chip.sm % 10,
            grid: self.grid,
            block: self.block,
            cluster,
            // Shared memory of a CTA; fits 18 bits, which `shared_config` has checked.
            shared_bytes: shared as u32,
            shared_config,
            local_bytes,
            constants,
            releases: self.releases.clone(),
            dependent: self.dependent,
            invalidate: Invalidate::DATA,
            sysmembar: true,
        };
        let qmd = launch.emit(chip.qmd).map_err(|error| LaunchError::Field { kernel: name(), error })?;
        Ok(Plan { bank0, launch, qmd, local_bytes })
    }

    /// The cluster size: the launch's, else the kernel's. On a chip without clusters, a cluster of one CTA is an
    /// ordinary launch.
    fn clusters(&self) -> Option<[u32; 3]> {
        self.cluster.or(self.kernel.cluster).filter(|size| self.chip.has_clusters || *size != [1; 3])
    }

    fn check_cluster(&self) -> Result<(), LaunchError> {
        let kernel = self.kernel;
        let refuse = |found, why| Err(LaunchError::Shape { kernel: kernel.name.clone(), what: "cluster", found, why });
        if let (Some(asked), Some(own)) = (self.cluster, kernel.cluster)
            && asked != own
        {
            return refuse(asked, "the kernel was compiled for another one (.reqnctapercluster)");
        }
        let Some(cluster) = self.clusters() else {
            let is_wanted = kernel.wants_cluster && self.chip.has_clusters;
            return if is_wanted {
                refuse([1; 3], "the kernel must be launched with a cluster size (.explicitcluster)")
            } else {
                Ok(())
            };
        };
        if !self.chip.has_clusters {
            return refuse(cluster, "this chip has no clusters");
        }
        if cluster.contains(&0) || product(cluster) > MAX_CLUSTER {
            return refuse(cluster, "a cluster has 1 to 16 CTAs (8 on every chip, 16 where a GPC has all its SMs)");
        }
        if kernel.max_cluster.is_some_and(|max| product(cluster) > max.into()) {
            return refuse(cluster, "the kernel was compiled for fewer CTAs (.maxclusterrank)");
        }
        if self.grid.iter().zip(cluster).any(|(grid, size)| !grid.is_multiple_of(size)) {
            return refuse(cluster, "the grid is not a multiple of it");
        }
        Ok(())
    }

    fn check_shapes(&self) -> Result<(), LaunchError> {
        let refuse = |what, found, why| Err(LaunchError::Shape { kernel: self.kernel.name.clone(), what, found, why });
        let threads = product(self.block);
        let is_within = |shape: [u32; 3], max: [u32; 3]| shape.iter().zip(max).all(|(n, max)| (1..=max).contains(n));
        if !is_within(self.block, MAX_BLOCK) || threads > MAX_THREADS {
            return refuse("block", self.block, "a CTA has 1 to 1024 threads, up to 1024, 1024 and 64 along its axes");
        }
        if !is_within(self.grid, MAX_GRID) {
            return refuse("grid", self.grid, "a grid has 1 to 2147483647, 65535 and 65535 CTAs along its axes");
        }
        if self.kernel.required_block.is_some_and(|need| need != self.block) {
            return refuse("block", self.block, "the kernel was compiled for another one (.reqntid)");
        }
        if self.kernel.max_block.is_some_and(|max| threads > product(max)) {
            return refuse("block", self.block, "the kernel was compiled for fewer threads (.maxntid)");
        }
        self.check_cluster()?;
        let warps = threads.div_ceil(32);
        let warp = (32 * u64::from(self.kernel.registers)).next_multiple_of(WARP_REGISTER_UNIT);
        if warps * warp > SM_REGISTERS {
            let (want, have) = (4 * warps * warp, 4 * SM_REGISTERS);
            let (kernel, chip) = (self.kernel.name.clone(), self.chip.name);
            return Err(LaunchError::TooMuch { kernel, what: "registers", want, chip, have });
        }
        Ok(())
    }
}

/// Local memory that a thread of the kernel needs: its stack and the bytes above it.
#[must_use]
pub fn local_bytes(kernel: &Kernel) -> u32 {
    match kernel.stack_bytes.unwrap_or(DEFAULT_STACK_BYTES) {
        0 => 0,
        stack => stack.min(MAX_STACK_BYTES).saturating_add(STACK_HEAD_BYTES).next_multiple_of(16),
    }
}

fn product(shape: [u32; 3]) -> u64 {
    shape.iter().map(|n| u64::from(*n)).product()
}

#[cfg(test)]
mod tests {
    use super::*;
    use doorbell_elf::cubin::Cubin;

    const SM90: &[u8] = include_bytes!("../../../tests/data/cubin/module_sm90.cubin");

    fn request<'a>(chip: &str, cubin: &Cubin, kernel: &'a Kernel, args: &'a [u8]) -> Request<'a> {
        Request {
            chip: Chip::of_name(chip).unwrap(),
            kernel,
            code_sm: cubin.sm,
            image: GpuVa(0x20_0000_0000),
            bank0: GpuVa(0x20_0010_0000),
            grid: [4, 2, 1],
            block: [64, 1, 1],
            cluster: None,
            dynamic_shared_bytes: 0,
            args,
            windows: [GpuVa(0x7294 << 32), GpuVa(0x7293 << 32)],
            releases: Vec::new(),
            dependent: None,
        }
    }

    #[test]
    fn launch_of_a_real_cubin_fills_bank_and_qmd() {
        let cubin = Cubin::parse(SM90).unwrap();
        let args: Vec<u8> = (1..=12).collect();
        let k = cubin.kernel("k").unwrap();
        let plan = request("sm_90", &cubin, k, &args).plan().unwrap();
        let word = |at: usize| u32::from_le_bytes(plan.bank0[at..at + 4].try_into().unwrap());
        assert_eq!(plan.bank0.len(), 0x220);
        assert_eq!(&plan.bank0[0x210..0x21c], &args[..]);
        assert_eq!([0x00, 0x04, 0x08, 0x0c, 0x10, 0x14].map(word), [64, 1, 1, 4, 2, 1]);
        assert_eq!((word(0x28), word(0x114), word(0x140)), (0xff_fdc0, 0x400, 0));
        assert_eq!((word(0x144), word(0x15c), word(0x188)), (1, 4, 1));
        assert_eq!((word(0x198), word(0x19c)), (0x10_0210, 0x20), "the parameters' address");
        assert_eq!((word(0x1c), word(0x24)), (0x7294, 0x7293));
        let constants = plan.launch.constants[3].unwrap().address.0;
        assert_eq!((word(0xd0), word(0xd4)), (constants as u32, 0x20), "the constants' address");
        assert_eq!(Launch::parse(&plan.qmd).as_ref(), Ok(&plan.launch));
        assert_eq!((plan.launch.registers, plan.launch.barriers, plan.launch.shared_bytes), (16, 1, 0x600));
        assert_eq!(plan.launch.sass_version, 0x90);
        assert_eq!(plan.launch.shared_config, [8 << 10, 228 << 10]);
        let bound: Vec<usize> = (0..8).filter(|n| plan.launch.constants[*n].is_some()).collect();
        assert_eq!(bound, [0, 3, 4]);
        assert_eq!(plan.local_bytes, 0);
        let stack = cubin.kernel("stack").unwrap();
        let plan = request("sm_90", &cubin, stack, &[0; 34]).plan().unwrap();
        assert_eq!(plan.local_bytes, 256 + 0x240);
    }

    #[test]
    fn parameters_begin_where_ptxas_puts_them_on_every_chip() {
        let files: [(&str, &[u8]); 4] = [
            ("sm_75", include_bytes!("../../../tests/data/cubin/module_sm75.cubin")),
            ("sm_80", include_bytes!("../../../tests/data/cubin/module_sm80.cubin")),
            ("sm_90", include_bytes!("../../../tests/data/cubin/module_sm90_v7.cubin")),
            ("sm_120", include_bytes!("../../../tests/data/cubin/module_sm120.cubin")),
        ];
        for (name, bytes) in files {
            let cubin = Cubin::parse(bytes).unwrap();
            for kernel in &cubin.kernels {
                assert_eq!(kernel.param_base, Chip::of_name(name).unwrap().bank0.params, "{name} {}", kernel.name);
            }
            let plan = request(name, &cubin, cubin.kernel("k").unwrap(), &[0; 12]).plan();
            assert!(plan.is_ok(), "{name}: {plan:?}");
        }
    }

    #[test]
    fn what_the_kernel_or_the_chip_does_not_take_is_refused_with_the_limit() {
        let cubin = Cubin::parse(SM90).unwrap();
        let (k, stack) = (cubin.kernel("k").unwrap(), cubin.kernel("stack").unwrap());
        let refused = |change: &dyn Fn(&mut Request)| {
            let mut r = request("sm_90", &cubin, k, &[0; 12]);
            change(&mut r);
            r.plan().unwrap_err().to_string()
        };
        assert_eq!(refused(&|r| r.args = &[0; 8]), "k takes 12 bytes of arguments, not 8");
        assert!(refused(&|r| r.block = [32, 1, 1]).contains(".reqntid"));
        assert!(refused(&|r| r.grid = [1, 65536, 1]).contains("grid [1, 65536, 1]"));
        assert!(refused(&|r| r.cluster = Some([3, 1, 1])).contains("cluster [3, 1, 1]: the grid is not a multiple"));
        assert!(refused(&|r| (r.grid, r.cluster) = ([32, 1, 1], Some([32, 1, 1]))).contains("1 to 16 CTAs"));
        assert!(refused(&|r| r.cluster = Some([2, 0, 1])).contains("1 to 16 CTAs"));
        let two = Kernel { cluster: Some([2, 1, 1]), ..k.clone() };
        let named = Kernel { wants_cluster: true, max_cluster: Some(2), ..k.clone() };
        let refused_of = |kernel: &Kernel, cluster| {
            let mut r = request("sm_90", &cubin, kernel, &[0; 12]);
            r.cluster = cluster;
            r.plan().map(|plan| plan.launch.cluster).map_err(|e| e.to_string())
        };
        assert_eq!(refused_of(&two, None), Ok(Some([2, 1, 1])));
        assert!(refused_of(&two, Some([4, 1, 1])).unwrap_err().contains(".reqnctapercluster"));
        assert!(refused_of(&named, None).unwrap_err().contains(".explicitcluster"));
        assert!(refused_of(&named, Some([2, 2, 1])).unwrap_err().contains(".maxclusterrank"));
        assert_eq!(refused_of(&named, Some([1, 2, 1])), Ok(Some([1, 2, 1])));
        assert_eq!(
            refused(&|r| r.dynamic_shared_bytes = 300 << 10),
            "k wants 308736 bytes of shared memory, sm_90 has 233472"
        );
        assert_eq!(refused(&|r| r.chip = Chip::of_name("sm_80").unwrap()), "k: code for sm_90 does not run on sm_80");
        let mut r = request("sm_90", &cubin, stack, &[0; 34]);
        r.block = [2048, 1, 1];
        assert!(r.plan().unwrap_err().to_string().contains("1 to 1024 threads"));
        let wide = Kernel { registers: 255, ..stack.clone() };
        r = request("sm_90", &cubin, &wide, &[0; 34]);
        r.block = [512, 1, 1];
        assert!(r.plan().unwrap_err().to_string().contains("registers"));
        r.block = [256, 1, 1];
        assert!(r.plan().is_ok());
        let damaged = Kernel { registers: u32::MAX, stack_bytes: Some(u32::MAX - 1), ..stack.clone() };
        assert!(request("sm_90", &cubin, &damaged, &[0; 34]).plan().is_err());
        let deep = Kernel { stack_bytes: Some(u32::MAX - 1), ..stack.clone() };
        assert!(request("sm_90", &cubin, &deep, &[0; 34]).plan().unwrap_err().to_string().contains("bytes of stack"));
    }
}
