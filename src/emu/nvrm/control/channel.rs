//! Commands to channels and their groups: token, schedule, preempt, reset, error state.

use super::super::channel::{Channel, Dead, Group};
use super::super::object::{Body, Client};
use super::super::{SoftNv, engine::code, status};
use super::{Ask, Row, row};
use doorbell_ioctl::abi::nvrm::{self, Status};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

pub(crate) const ROWS: &[Row] = &[
    row(&nvrm::GPFIFO_GET_WORK_SUBMIT_TOKEN, |ask| {
        let channel = channel(ask)?;
        // The token holds the runlist.
        channel.runlist().ok_or(status::INVALID_STATE)?;
        let work_submit_token = channel.token();
        ask.store(&nvrm::WorkSubmitToken { work_submit_token });
        Ok(())
    }),
    row(&nvrm::GPFIFO_SET_WORK_SUBMIT_TOKEN_NOTIF_INDEX, |ask| {
        const RECORD: u64 = 16;
        const INFO32: u64 = 8;
        let params: nvrm::TokenNotifIndex = ask.read();
        let channel = channel(ask)?;
        let notifier = channel.setup.notifier.as_ref().ok_or(status::INVALID_STATE)?;
        let at = u64::from(params.index) * RECORD + INFO32;
        notifier.write_u32(at, channel.token()).map_err(|_| status::OUT_OF_RANGE)
    }),
    row(&nvrm::GROUP_GPFIFO_SCHEDULE, |ask| {
        let params: nvrm::GroupSchedule = ask.read();
        schedule(group(ask)?, params.b_enable != 0)
    }),
    row(&nvrm::CHANNEL_GPFIFO_SCHEDULE, |ask| {
        let params: nvrm::ChannelSchedule = ask.read();
        schedule(&channel(ask)?.group, params.b_enable != 0)
    }),
    // A channel without a group names its engine again; it was given when the channel was made.
    row(&nvrm::CHANNEL_BIND, |ask| {
        let params: nvrm::ChannelBind = ask.read();
        let own = channel(ask)?.setup.engine_type;
        if params.engine_type == own { Ok(()) } else { Err(status::INVALID_STATE) }
    }),
    row(&nvrm::GROUP_SET_TIMESLICE, |ask| {
        let params: nvrm::GroupTimeslice = ask.read();
        *group(ask)?.timeslice_us.lock().unwrap_or_else(PoisonError::into_inner) = params.timeslice_us;
        Ok(())
    }),
    row(&nvrm::GROUP_GET_TIMESLICE, |ask| {
        let timeslice_us = *group(ask)?.timeslice_us.lock().unwrap_or_else(PoisonError::into_inner);
        ask.store(&nvrm::GroupTimeslice { timeslice_us });
        Ok(())
    }),
    // Answered without the drivers' lock: it waits.
    row(&nvrm::GROUP_PREEMPT, |_| Err(status::INVALID_STATE)),
    // It chooses nothing: it writes an error into the notifiers, as if the engine had failed.
    row(&nvrm::CHANNEL_SET_ERROR_NOTIFIER, |ask| {
        let params: nvrm::SetErrorNotifier = ask.read();
        let channel = channel(ask)?;
        let all = channel.group.members();
        for one in all.iter().filter(|c| params.b_notify_each_channel_in_tsg != 0 || c.setup.id == channel.setup.id) {
            ask.gpu()?.notify(one, code::GR_EXCEPTION);
        }
        Ok(())
    }),
    row(&nvrm::CHANNEL_GET_CLASS_ENGINEID, |ask| {
        let mut params: nvrm::ClassEngineId = ask.read();
        let object = ask.client.object(params.h_object)?;
        if !matches!(object.body, Body::Engine) || object.parent != ask.handle {
            return Err(status::INVALID_OBJECT);
        }
        params.class_id = object.class;
        params.engine_id = channel(ask)?.setup.engine_type;
        params.class_engine_id = params.engine_id << 16 | params.class_id;
        ask.store(&params);
        Ok(())
    }),
    row(&nvrm::CHANNEL_RESET_CHANNEL, |ask| {
        let params: nvrm::ResetChannel = ask.read();
        let (gpu, own) = (channel(ask)?.group.gpu, channel(ask)?.setup.engine_type);
        if params.engine_id != own {
            return Err(status::OBJECT_NOT_FOUND);
        }
        ask.nv.gpus[gpu].recover(channel(ask)?, Dead { code: code::RESET_CHANNEL });
        Ok(())
    }),
    row(&nvrm::CHANNEL_GET_DEFER_RC_STATE, |ask| {
        ask.store(&nvrm::DeferRcState { b_defer_rc_pending: 0 });
        Ok(())
    }),
    row(&nvrm::CHANNEL_GET_MMU_FAULT_INFO, |ask| {
        let fault = *channel(ask)?.fault.lock().unwrap_or_else(PoisonError::into_inner);
        let mut params = nvrm::ChannelMmuFault::default();
        if let Some(fault) = fault {
            (params.addr_lo, params.addr_hi) = (fault.va as u32, (fault.va >> 32) as u32);
            params.fault_type = fault.kind;
            let name: &[u8] = match fault.kind {
                super::super::gpu::FAULT_RO_VIOLATION => b"FAULT_RO_VIOLATION",
                super::super::gpu::FAULT_ATOMIC_VIOLATION => b"FAULT_ATOMIC_VIOLATION",
                super::super::gpu::FAULT_PDE => b"FAULT_PDE",
                _ => b"FAULT_PTE",
            };
            params.fault_string[..name.len()].copy_from_slice(name);
        }
        ask.store(&params);
        Ok(())
    }),
];

/// The channel of a handle.
///
/// # Errors
/// `OBJECT_NOT_FOUND`, `INVALID_CHANNEL` for anything else's.
pub(crate) fn channel_of(client: &Client, handle: u32) -> Result<Arc<Channel>, Status> {
    match &client.object(handle)?.body {
        Body::Channel(channel) => Ok(Arc::clone(channel)),
        _ => Err(status::INVALID_CHANNEL),
    }
}

fn channel<'a>(ask: &Ask<'a>) -> Result<&'a Arc<Channel>, Status> {
    match ask.body {
        Body::Channel(channel) => Ok(channel),
        _ => Err(status::INVALID_CHANNEL),
    }
}

fn group<'a>(ask: &Ask<'a>) -> Result<&'a Arc<Group>, Status> {
    match ask.body {
        Body::Group(group) => Ok(group),
        _ => Err(status::INVALID_OBJECT),
    }
}

/// Puts all channels of a group on their runlist. A channel of the graphics engine in a space of UVM has to be bound by
/// it first.
fn schedule(group: &Group, enable: bool) -> Result<(), Status> {
    let members = group.members();
    let is_graphics = super::super::channel::copy_engine_index(group.engine_type).is_none();
    let unbound = |c: &Arc<Channel>| c.setup.space.externally_owned && !c.bound.load(Ordering::Relaxed);
    if enable && is_graphics && members.iter().any(unbound) {
        return Err(status::INVALID_STATE);
    }
    // A dead channel is put on as well, and does nothing. An H100 does what is submitted to a group that was taken off
    // all the same.
    if enable {
        members.iter().for_each(|channel| channel.schedule());
    }
    Ok(())
}

/// PREEMPT: takes a group off its engine. Running work is waited for; work that does not end in time is reset.
pub(crate) fn preempt(nv: &SoftNv, body: &Body, params: &nvrm::GroupPreempt) -> Result<(), Status> {
    /// As long as the driver waits on its own.
    const DEFAULT: Duration = Duration::from_secs(1);
    const MOST_US: u32 = 1_000_000;
    let Body::Group(group) = body else { return Err(status::INVALID_OBJECT) };
    let timeout = match params.b_manual_timeout {
        0 => DEFAULT,
        _ if params.timeout_us > MOST_US => return Err(status::INVALID_ARGUMENT),
        _ => Duration::from_micros(params.timeout_us.into()),
    };
    if params.b_wait == 0 {
        return Ok(());
    }
    for channel in group.members() {
        if !channel.wait_for(timeout, |c| !c.is_busy() || c.death().is_some()) {
            nv.gpus[group.gpu].recover(&channel, Dead { code: code::RESET_CHANNEL });
            return Err(status::TIMEOUT);
        }
    }
    Ok(())
}
