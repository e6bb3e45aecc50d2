//! The render node: amdgpu's answers to a KFD process about its card.
//!
//! Source: docs/amd.md 1.10. Left out (a named report and EOPNOTSUPP): buffers, contexts and submissions of the
//! graphics driver.

use super::SoftKfd;
use super::clock::GPU_CLOCK_HZ;
use super::report::ReportKind;
use crate::kfd::chip::facts_of;
use bytemuck::{bytes_of, pod_read_unaligned};
use doorbell_ioctl::abi::drm::{self, DeviceInfo, HeapInfo, Info, InfoFirmware, MemoryInfo, Version};
use doorbell_ioctl::abi::{request_len_bytes, request_number, request_type};
use doorbell_ioctl::port::{CpuPtr, Errno, write_process};
use std::sync::atomic::Ordering;

/// Bytes of `struct drm_amdgpu_info_device`.
const DEVICE_INFO_BYTES: usize = 440;
/// Driver's name and version.
const DRIVER: &str = "amdgpu";
const DRIVER_VERSION: (u32, u32) = (3, 59);
const GTT_BYTES: u64 = 32 << 30;
const SMALL_BAR_BYTES: u64 = 256 << 20;
const FAMILY: u32 = 145;

const SENSOR_SHADER_CLOCK: u32 = 1;
const SENSOR_MEMORY_CLOCK: u32 = 2;
const SENSOR_TEMPERATURE: u32 = 3;
const SENSOR_POWER: u32 = 5;

impl SoftKfd {
    pub(super) fn render_ioctl(&self, gpu: usize, request: u32, arg: &mut [u8]) -> Result<i32, Errno> {
        let user = arg.get_mut(..request_len_bytes(request)).ok_or(Errno::EFAULT)?;
        if request_type(request) != request_type(drm::INFO.desc.request) {
            return Err(Errno::ENOTTY);
        }
        let number = request_number(request);
        if number == request_number(drm::INFO.desc.request) {
            let mut bytes = [0; size_of::<Info>()];
            let len = user.len().min(bytes.len());
            bytes[..len].copy_from_slice(&user[..len]);
            return self.info(gpu, &pod_read_unaligned(&bytes)).map(|()| 0);
        }
        if number == request_number(drm::VERSION.desc.request) && user.len() == size_of::<Version>() {
            let mut version: Version = pod_read_unaligned(user);
            let name = DRIVER.as_bytes();
            if version.name_len > 0 {
                let len = name.len().min(usize::try_from(version.name_len).unwrap_or(usize::MAX));
                write_process(CpuPtr(version.name), &name[..len])?;
            }
            (version.version_major, version.version_minor) = DRIVER_VERSION;
            (version.name_len, version.date_len, version.desc_len) = (name.len() as u64, 0, 0);
            user.copy_from_slice(bytes_of(&version));
            return Ok(0);
        }
        match drm::TABLE.iter().find(|d| request_number(d.request) == number) {
            Some(desc) => {
                let text = format!("{} exists and is not modelled", desc.name);
                self.gpus[gpu].report(ReportKind::Unmodelled, None, text);
                Err(Errno::EOPNOTSUPP)
            }
            None => Err(Errno::EINVAL),
        }
    }

    fn info(&self, gpu: usize, info: &Info) -> Result<(), Errno> {
        if info.return_size == 0 || info.return_pointer == 0 {
            return Err(Errno::EINVAL);
        }
        let answer = self.answer(gpu, info)?;
        let len = answer.len().min(info.return_size as usize);
        write_process(CpuPtr(info.return_pointer), &answer[..len])
    }

    fn answer(&self, gpu: usize, info: &Info) -> Result<Vec<u8>, Errno> {
        let facts = facts_of(self.config.chip);
        let used = self.state().devices[gpu].vram_used.load(Ordering::Relaxed);
        let visible = if self.config.small_bar { SMALL_BAR_BYTES } else { self.config.vram_bytes };
        Ok(match info.query {
            drm::AMDGPU_INFO_TIMESTAMP => self.clock.ticks().to_ne_bytes().to_vec(),
            drm::AMDGPU_INFO_FW_VERSION => bytes_of(&InfoFirmware { ver: 550, feature: 0 }).to_vec(),
            drm::AMDGPU_INFO_VRAM_USAGE => used.to_ne_bytes().to_vec(),
            drm::AMDGPU_INFO_GTT_USAGE => 0_u64.to_ne_bytes().to_vec(),
            drm::AMDGPU_INFO_VRAM_GTT => {
                [self.config.vram_bytes, visible, GTT_BYTES].iter().flat_map(|v| v.to_ne_bytes()).collect()
            }
            drm::AMDGPU_INFO_MEMORY => {
                let heap = |total: u64, heap_usage| HeapInfo {
                    total_heap_size: total,
                    usable_heap_size: total,
                    heap_usage,
                    max_allocation: total / 4 * 3,
                };
                let (vram, cpu_accessible_vram) = (heap(self.config.vram_bytes, used), heap(visible, 0));
                bytes_of(&MemoryInfo { vram, cpu_accessible_vram, gtt: heap(GTT_BYTES, 0) }).to_vec()
            }
            drm::AMDGPU_INFO_DEV_INFO => {
                let engines = facts.array_count / facts.simd_arrays_per_engine;
                let head = DeviceInfo {
                    device_id: facts.device_id,
                    family: FAMILY,
                    num_shader_engines: engines,
                    num_shader_arrays_per_engine: facts.simd_arrays_per_engine,
                    gpu_counter_freq: (GPU_CLOCK_HZ / 1000) as u32,
                    max_engine_clock: 2_000_000,
                    max_memory_clock: 1_249_000,
                    cu_active_number: facts.simd_count / facts.simd_per_cu,
                    ..DeviceInfo::default()
                };
                let mut bytes = bytes_of(&head).to_vec();
                bytes.resize(DEVICE_INFO_BYTES, 0);
                bytes[240..244].copy_from_slice(&facts.wave_front_size.to_ne_bytes());
                bytes
            }
            drm::AMDGPU_INFO_SENSOR => {
                let value: u32 = match info.detail[0] {
                    SENSOR_SHADER_CLOCK => 2000,
                    SENSOR_MEMORY_CLOCK => 1249,
                    SENSOR_TEMPERATURE => 40_000,
                    SENSOR_POWER => 100,
                    _ => return Err(Errno::EINVAL),
                };
                value.to_ne_bytes().to_vec()
            }
            drm::AMDGPU_INFO_GPUVM_FAULT => {
                let fault = self.gpus[gpu].last_fault();
                let mut bytes = fault.map_or(0, |f| f.va).to_ne_bytes().to_vec();
                bytes.extend([u32::from(fault.is_some()), 0].iter().flat_map(|v| v.to_ne_bytes()));
                bytes
            }
            _ => return Err(Errno::EINVAL),
        })
    }
}
