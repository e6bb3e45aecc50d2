//! Commands to a subdevice about the card as a whole.

use super::super::channel::{ENGINE_GR0, copy_engine_index, copy_engine_type};
use super::super::{status, sysfs};
use super::{Ask, Row, answer_list, row};
use doorbell_ioctl::abi::nvrm::{self, Status};
use std::sync::atomic::Ordering;

pub(crate) const ROWS: &[Row] = &[
    row(&nvrm::GPU_GET_INFO_V2, |ask| {
        // SMC mode 0x2a; the others are capabilities that are absent here.
        const SMC_MODE: u32 = 0x2a;
        let params: nvrm::GpuInfo = ask.read();
        const UNSUPPORTED: u32 = 0;
        const ENABLED: u32 = 1;
        const DISABLED: u32 = 2;
        let mig = match (ask.nv.config.mig, ask.nv.config.chip.facts().can_be_partitioned()) {
            (true, _) => ENABLED,
            (false, true) => DISABLED,
            (false, false) => UNSUPPORTED,
        };
        answer_list(ask.params, 4, params.gpu_info_list_size, |index| Some(if index == SMC_MODE { mig } else { 0 }))
    }),
    row(&nvrm::GPU_GET_NAME_STRING, |ask| {
        const FLAG_UNICODE: u8 = 1;
        if ask.params[0] & FLAG_UNICODE != 0 {
            return Err(status::NOT_SUPPORTED);
        }
        let name = ask.nv.config.chip.facts().product.as_bytes();
        ask.params[4..].fill(0);
        ask.params[4..4 + name.len()].copy_from_slice(name);
        Ok(())
    }),
    row(&nvrm::GPU_GET_SHORT_NAME_STRING, |ask| {
        let name = ask.nv.config.chip.facts().short_name.as_bytes();
        let mut params = nvrm::ShortNameString::default();
        params.gpu_short_name_string[..name.len()].copy_from_slice(name);
        ask.store(&params);
        Ok(())
    }),
    row(&nvrm::GPU_GET_GID_INFO, gid_info),
    row(&nvrm::GPU_GET_ENGINES_V2, |ask| {
        let copies = ask.nv.config.chip.facts().copy_engines;
        let types: Vec<u32> = std::iter::once(ENGINE_GR0).chain((0..copies).map(copy_engine_type)).collect();
        let mut params = nvrm::Engines { engine_count: types.len() as u32, ..Default::default() };
        params.engine_list[..types.len()].copy_from_slice(&types);
        ask.store(&params);
        Ok(())
    }),
    row(&nvrm::GPU_GET_FIRST_ASYNC_CE_IDX, |ask| {
        ask.store(&nvrm::FirstAsyncCe { first_async_ce_idx: 2 });
        Ok(())
    }),
    row(&nvrm::GPU_QUERY_COMPUTE_MODE_RULES, |ask| {
        const PROHIBITED: u32 = 2;
        let rules = if ask.nv.config.compute_prohibited { PROHIBITED } else { 0 };
        ask.store(&nvrm::ComputeModeRules { rules });
        Ok(())
    }),
    row(&nvrm::GPU_QUERY_ECC_STATUS, |ask| {
        // No errors of any unit.
        ask.params.fill(0);
        Ok(())
    }),
    row(&nvrm::GPU_GET_RESET_STATUS, |ask| {
        ask.store(&nvrm::ResetStatus { b_reset_required: 0 });
        Ok(())
    }),
    row(&nvrm::GPU_GET_RECOVERY_ACTION, |ask| {
        ask.store(&nvrm::RecoveryAction { action: 0 });
        Ok(())
    }),
    row(&nvrm::RC_GET_ERROR_COUNT, |ask| {
        let error_count = ask.gpu()?.rc_errors.load(Ordering::Relaxed);
        ask.store(&nvrm::RcErrorCount { error_count });
        Ok(())
    }),
    row(&nvrm::MC_GET_ARCH_INFO, |ask| {
        let facts = ask.nv.config.chip.facts();
        let (architecture, implementation) = (facts.architecture, facts.implementation);
        ask.store(&nvrm::ArchInfo { architecture, implementation, revision: 0xa1, ..Default::default() });
        Ok(())
    }),
    row(&nvrm::CE_GET_CAPS_V2, |ask| {
        let mut params: nvrm::CeCaps = ask.read();
        params.caps_tbl = ce_caps(ce_index(ask, params.ce_engine_type)?);
        ask.store(&params);
        Ok(())
    }),
    row(&nvrm::CE_GET_CE_PCE_MASK, |ask| {
        let mut params: nvrm::CePceMask = ask.read();
        let index = ce_index(ask, params.ce_engine_type)?;
        // As an H100 answers: two physical engines for COPY2 and for COPY3, twelve for COPY4.
        params.pce_mask = match index {
            0 | 1 => 1 << index,
            2 => 0x5000,
            3 => 0xa000,
            _ => 0xfff,
        };
        ask.store(&params);
        Ok(())
    }),
];

fn ce_index(ask: &Ask<'_>, engine_type: u32) -> Result<u32, Status> {
    let copies = ask.nv.config.chip.facts().copy_engines;
    copy_engine_index(engine_type).filter(|index| *index < copies).ok_or(status::INVALID_ARGUMENT)
}

/// As an H100 answers. Byte 0: GRCE bit 0, shared 1, for reads of system memory 2, for writes 3, NVLink 4, system
/// memory 5, peers 6.
fn ce_caps(index: u32) -> u16 {
    match index {
        0 | 1 => 0x3e3,
        2 | 3 => 0x3e2,
        _ => 0x3e0,
    }
}

fn gid_info(ask: &mut Ask<'_>) -> Result<(), Status> {
    const FORMAT_BINARY: u32 = 2;
    let mut params: nvrm::GidInfo = ask.read();
    let uuid = sysfs::uuid(ask.gpu()?.index);
    let text = sysfs::uuid_text(&uuid);
    let bytes = if params.flags & FORMAT_BINARY != 0 { &uuid[..] } else { text.as_bytes() };
    params.data = [0; 256];
    params.data[..bytes.len()].copy_from_slice(bytes);
    params.length = bytes.len() as u32;
    ask.store(&params);
    Ok(())
}
