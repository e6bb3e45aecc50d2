//! Commands to the debugger: error states of SMs and MMU.

use super::super::status;
use super::{Ask, Body, Row, row};
use doorbell_ioctl::abi::nvrm::{self, Status};
use doorbell_ioctl::port::{CpuPtr, write_process};

pub(crate) const ROWS: &[Row] = &[
    row(&nvrm::DEBUG_READ_ALL_SM_ERROR_STATES, sm_errors),
    row(&nvrm::DEBUG_CLEAR_ALL_SM_ERROR_STATES, |ask| {
        let params: nvrm::ClearAllSmErrorStates = ask.read();
        super::channel_of(ask.client, params.h_target_channel)?;
        ask.gpu()?.clear_warp_errors();
        Ok(())
    }),
    row(&nvrm::DEBUG_READ_MMU_FAULT_INFO, |ask| {
        let faults = ask.gpu()?.faults();
        let mut params = nvrm::ReadMmuFaultInfo { count: faults.len() as u32, ..Default::default() };
        for (entry, fault) in params.mmu_fault_info_list.iter_mut().zip(&faults) {
            (entry.fault_address, entry.fault_type, entry.access_type) = (fault.va, fault.kind, fault.access);
        }
        ask.store(&params);
        Ok(())
    }),
    row(&nvrm::DEBUG_SET_EXCEPTION_MASK, |_| Ok(())),
    row(&nvrm::DEBUG_SET_MODE_MMU_DEBUG, |ask| {
        let params: nvrm::SetModeMmuDebug = ask.read();
        if matches!(params.action, 1 | 2) { Ok(()) } else { Err(status::INVALID_ARGUMENT) }
    }),
    row(&nvrm::DEBUG_READ_MEMORY, |ask| {
        const MOST: u32 = 1 << 26;
        let params: nvrm::ReadMemory = ask.read();
        let Body::Memory(memory) = &ask.client.object(params.h_memory)?.body else {
            return Err(status::INVALID_OBJECT);
        };
        if params.length > MOST {
            return Err(status::INVALID_ARGUMENT);
        }
        let mut bytes = vec![0; params.length as usize];
        memory.view.copy_to_slice(params.offset, &mut bytes).map_err(|_| status::INVALID_ARGUMENT)?;
        write_process(CpuPtr(params.buffer), &bytes).map_err(|_| status::INVALID_ADDRESS)
    }),
];

/// Up to 100 SMs from `startingSM` on.
fn sm_errors(ask: &mut Ask<'_>) -> Result<(), Status> {
    let mut params: nvrm::ReadAllSmErrorStates = ask.read();
    super::channel_of(ask.client, params.h_target_channel)?;
    let gpu = ask.gpu()?;
    let sms = gpu.facts().sms;
    let (first, count) = (params.starting_sm, params.num_s_ms_to_read);
    if count as usize > params.sm_error_state_array.len() || first.saturating_add(count) > sms {
        return Err(status::INVALID_ARGUMENT);
    }
    params.sm_error_state_array = bytemuck::Zeroable::zeroed();
    for error in gpu.warp_errors() {
        let slot = error.sm.checked_sub(first).filter(|n| *n < count);
        let Some(state) = slot.and_then(|n| params.sm_error_state_array.get_mut(n as usize)) else { continue };
        state.hww_warp_esr = error.code;
        (state.hww_warp_esr_pc, state.hww_warp_esr_pc64, state.hww_esr_addr) = (error.pc as u32, error.pc, error.va);
        state.hww_global_esr = 1;
    }
    let fault = gpu.faults().last().copied();
    (params.valid, params.fault_info) = (fault.is_some().into(), fault.map_or(0, |fault| fault.kind));
    params.mmu_fault_info = params.fault_info;
    ask.store(&params);
    Ok(())
}
