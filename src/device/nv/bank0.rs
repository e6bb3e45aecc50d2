//! Constant bank 0: the launch values below a kernel's parameters, which software fills in, not the hardware.
//!
//! Source: docs/nv.md 5.4 (found by inspecting ptxas code for each chip; the constants' address: docs/sass.md 5). Left
//! out: locations that no inspected code of a chip reads.

use doorbell_elf::cubin::ChipFacts;
use doorbell_hcq::packet::GpuVa;

/// Where a chip's code reads launch values, as byte offsets in the bank. An empty list or `None` means that it does not
/// read the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bank0 {
    /// First byte of the parameters.
    pub params: u32,
    pub block: [u32; 3],
    pub grid: [u32; 3],
    pub local_window: u32,
    pub shared_window: u32,
    /// The initial stack pointer of threads.
    pub stack: u32,
    /// Size of dynamic shared memory; a second offset if code for clusters reads its own copy.
    pub dynamic_shared: &'static [u32],
    /// The address for reading parameters through memory; it is the parameters' own address or the bank's.
    pub address: u32,
    pub address_is_of_params: bool,
    pub reserved_shared: Option<u32>,
    /// The address of `__constant__` variables for generic accesses: that of bank 3.
    pub constants: Option<u32>,
    /// 1 for a grid of clusters.
    pub cluster_flag: Option<u32>,
    /// CTAs of a cluster along each axis; two copies on some chips.
    pub cluster: &'static [u32],
    /// Clusters of the grid along each axis.
    pub cluster_grid: &'static [u32],
    /// CTAs of a cluster.
    pub cluster_size: &'static [u32],
}

pub(super) const TURING: Bank0 = Bank0 {
    params: ChipFacts::SM_75.arch().param_base(),
    block: [0x00, 0x04, 0x08],
    grid: [0x0c, 0x10, 0x14],
    local_window: 0x20,
    shared_window: 0x18,
    stack: 0x28,
    dynamic_shared: &[0x2c],
    address: 0x40,
    address_is_of_params: false,
    reserved_shared: None,
    constants: None,
    cluster_flag: None,
    cluster: &[],
    cluster_grid: &[],
    cluster_size: &[],
};
pub(super) const AMPERE: Bank0 = Bank0 { reserved_shared: Some(0x114), constants: Some(0x50), ..TURING };
pub(super) const HOPPER: Bank0 = Bank0 {
    params: ChipFacts::SM_90.arch().param_base(),
    address: 0x198,
    address_is_of_params: true,
    constants: Some(0xd0),
    cluster_flag: Some(0x140),
    cluster: &[0x144],
    cluster_grid: &[0x15c],
    cluster_size: &[0x188],
    ..AMPERE
};
pub(super) const BLACKWELL: Bank0 = Bank0 {
    params: ChipFacts::SM_100.arch().param_base(),
    block: [0x360, 0x364, 0x368],
    grid: [0x370, 0x374, 0x378],
    local_window: 0x2f8,
    shared_window: 0x2f0,
    stack: 0x37c,
    // CTAs in clusters read the second offset, 0xa0 below the first.
    dynamic_shared: &[0x2ac, 0x20c],
    address: 0x348,
    address_is_of_params: true,
    reserved_shared: Some(0x16c),
    constants: Some(0x120),
    cluster_flag: Some(0x36c),
    cluster: &[0x2a0, 0x200],
    cluster_grid: &[0x2c0, 0x220],
    cluster_size: &[0x2cc, 0x22c],
};

/// The values of a launch that its kernel reads from the bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchValues {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: Option<[u32; 3]>,
    pub dynamic_shared_bytes: u32,
    pub reserved_shared_bytes: u32,
    /// The windows of shared and local memory in the generic address space.
    pub windows: [GpuVa; 2],
    /// Address of the bank itself.
    pub address: GpuVa,
    /// Address of bank 3, if the module has one.
    pub constants: Option<GpuVa>,
}

/// The initial stack pointer of a thread that has a stack. It is below the top of the window, because the launch
/// reserves the bytes above it.
pub(super) const STACK_TOP: u32 = 0x00ff_fdc0;

impl Bank0 {
    /// For a bank at address `bank`: the offset where it stores its own address (or that of its parameters), and the
    /// value.
    #[must_use]
    pub fn own_address(&self, bank: GpuVa) -> (u32, u64) {
        let value = if self.address_is_of_params { bank.0 + u64::from(self.params) } else { bank.0 };
        (self.address, value)
    }

    /// Builds the bank's bytes with `args` as the parameters; the length is rounded up to 16.
    #[must_use]
    pub fn fill(&self, values: &LaunchValues, args: &[u8]) -> Vec<u8> {
        let mut bank = vec![0; (self.params as usize + args.len()).next_multiple_of(16)];
        bank[self.params as usize..][..args.len()].copy_from_slice(args); // PANIC: made that long on the line above
        // PANIC: all offsets lie below the parameters.
        let mut put = |at: u32, bytes: &[u8]| bank[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        for axis in 0..3 {
            put(self.block[axis], &values.block[axis].to_le_bytes());
            put(self.grid[axis], &values.grid[axis].to_le_bytes());
        }
        put(self.shared_window, &values.windows[0].0.to_le_bytes());
        put(self.local_window, &values.windows[1].0.to_le_bytes());
        put(self.stack, &STACK_TOP.to_le_bytes());
        for at in self.dynamic_shared {
            put(*at, &values.dynamic_shared_bytes.to_le_bytes());
        }
        let (at, own) = self.own_address(values.address);
        put(at, &own.to_le_bytes());
        if let Some(at) = self.reserved_shared {
            put(at, &values.reserved_shared_bytes.to_le_bytes());
        }
        if let (Some(at), Some(constants)) = (self.constants, values.constants) {
            put(at, &constants.0.to_le_bytes());
        }
        if let Some(at) = self.cluster_flag {
            put(at, &u32::from(values.cluster.is_some()).to_le_bytes());
        }
        // Kernels without clusters also divide by these.
        let cluster = values.cluster.unwrap_or([1; 3]);
        for (axis, size) in (0u32..).zip(cluster) {
            let of_grid = values.grid[axis as usize] / size.max(1);
            self.cluster.iter().for_each(|at| put(at + 4 * axis, &size.to_le_bytes()));
            self.cluster_grid.iter().for_each(|at| put(at + 4 * axis, &of_grid.to_le_bytes()));
        }
        let size: u32 = cluster.iter().product();
        self.cluster_size.iter().for_each(|at| put(*at, &size.to_le_bytes()));
        bank
    }
}
