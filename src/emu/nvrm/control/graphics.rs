//! Commands to a subdevice about its SMs.

use super::super::chip::ChipFacts;
use super::super::status;
use super::{Ask, Row, answer_list, row};
use doorbell_ioctl::abi::nvrm::{self, Status};
use doorbell_ioctl::port::{CpuPtr, read_process, write_process};

pub(crate) const ROWS: &[Row] = &[
    row(&nvrm::GR_GET_INFO, info_by_pointer),
    row(&nvrm::GR_GET_INFO_V2, |ask| {
        let count = u32::from_le_bytes([ask.params[0], ask.params[1], ask.params[2], ask.params[3]]);
        let facts = ask.nv.config.chip.facts();
        answer_list(ask.params, 4, count, |index| info(facts, index))
    }),
    row(&nvrm::GR_GET_GLOBAL_SM_ORDER, sm_order),
    row(&nvrm::GR_GET_GPC_MASK, |ask| {
        let mut params: nvrm::GpcMask = ask.read();
        params.gpc_mask = (1 << ask.nv.config.chip.facts().gpcs) - 1;
        ask.store(&params);
        Ok(())
    }),
    row(&nvrm::GR_GET_TPC_MASK, |ask| {
        let mut params: nvrm::TpcMask = ask.read();
        let facts = ask.nv.config.chip.facts();
        if params.gpc_id >= facts.gpcs {
            return Err(status::INVALID_ARGUMENT);
        }
        params.tpc_mask = (1 << tpcs_of(facts, params.gpc_id)) - 1;
        ask.store(&params);
        Ok(())
    }),
    row(&nvrm::GR_GET_CTX_BUFFER_SIZE, |ask| {
        let mut params: nvrm::CtxBufferSize = ask.read();
        super::channel_of(ask.client, params.h_channel)?;
        params.total_buffer_size = 24 << 20;
        ask.store(&params);
        Ok(())
    }),
];

/// TPCs in use of a GPC: those of the chip spread evenly, the first GPCs have one more.
fn tpcs_of(facts: &ChipFacts, gpc: u32) -> u32 {
    let (even, odd) = (facts.tpcs() / facts.gpcs, facts.tpcs() % facts.gpcs);
    even + u32::from(gpc < odd)
}

/// GR_INFO by index; indices that no caller here uses are 0.
fn info(facts: &ChipFacts, index: u32) -> Option<u32> {
    const LAST: u32 = 0x3a;
    Some(match index {
        0x0c => facts.sm_version,
        0x0d => facts.sm_warps,
        0x0e => 32,
        0x14 => facts.gpcs,
        0x17 => facts.tpcs_per_gpc,
        // Cores: 128 an SM, 64 on Turing and GA100.
        0x1d => facts.sms * if matches!(facts.sm_version, 0x705 | 0x800) { 64 } else { 128 },
        0x20 => 2,
        0x23 => facts.sms * 4,
        // Subcontexts.
        0x2c => 64,
        _ if index <= LAST => 0,
        _ => return None,
    })
}

fn info_by_pointer(ask: &mut Ask<'_>) -> Result<(), Status> {
    const MOST: u32 = 64;
    let params: nvrm::GrInfoByPointer = ask.read();
    if params.gr_info_list_size > MOST {
        return Err(status::INVALID_ARGUMENT);
    }
    let mut list = vec![0; params.gr_info_list_size as usize * size_of::<nvrm::InfoEntry>()];
    let at = CpuPtr(params.gr_info_list);
    read_process(at, &mut list).map_err(|_| status::INVALID_ADDRESS)?;
    let facts = ask.nv.config.chip.facts();
    answer_list(&mut list, 0, params.gr_info_list_size, |index| info(facts, index))?;
    write_process(at, &list).map_err(|_| status::INVALID_ADDRESS)
}

/// Records of nine 16-bit numbers a SM: GPC, TPC in it, SM in that, TPC of all, and the numbers in partitions.
fn sm_order(ask: &mut Ask<'_>) -> Result<(), Status> {
    let facts = ask.nv.config.chip.facts();
    let mut params: nvrm::GlobalSmOrder = ask.read();
    let mut sm = 0;
    let mut tpc = 0;
    for gpc in 0..facts.gpcs {
        for local in 0..tpcs_of(facts, gpc) {
            for local_sm in 0..2 {
                let record = [gpc, local, local_sm, tpc, gpc, local, 0, 0, local].map(|n| (n as u16).to_le_bytes());
                params.global_sm_id[sm * 18..sm * 18 + 18].copy_from_slice(record.as_flattened());
                sm += 1;
            }
            tpc += 1;
        }
    }
    (params.num_sm, params.num_tpc) = (sm as u16, tpc as u16);
    ask.store(&params);
    Ok(())
}
