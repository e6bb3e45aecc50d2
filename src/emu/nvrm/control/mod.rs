//! CONTROL: commands to objects.
//!
//! Source: docs/nv.md 2, 2.5, 6; `control.c` of the open kernel modules for the order of checks: client, size, object,
//! class, then the command's own. A command's number holds its class. Answers that depend on a board or its firmware
//! are plausible ones. A command that exists and is not here is a named report and NOT_SUPPORTED.

mod channel;
mod client;
mod debug;
mod gpu;
mod graphics;
mod service;

pub(crate) use channel::channel_of;

use super::config::Call;
use super::object::{Body, Client};
use super::state::State;
use super::{SoftNv, status};
use bytemuck::{Pod, bytes_of, pod_read_unaligned};
use doorbell_ioctl::abi::chosen;
use doorbell_ioctl::abi::nvrm::{self, Status};
use doorbell_ioctl::port::{CpuPtr, read_process, write_process};
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

/// The inputs of a handler.
struct Ask<'a> {
    nv: &'a SoftNv,
    client: &'a Client,
    /// The object that the command is for.
    handle: u32,
    body: &'a Body,
    /// The command's struct.
    params: &'a mut [u8],
}

/// Handlers that return at once.
type Handler = fn(&mut Ask<'_>) -> Result<(), Status>;

/// A command: number, bytes of its struct, handler.
struct Row {
    cmd: u32,
    len_bytes: u32,
    handle: Handler,
}

const fn row<T>(control: &nvrm::Control<T>, handle: Handler) -> Row {
    Row { cmd: control.cmd, len_bytes: control.len_bytes(), handle }
}

/// Structs that another release has in another length: command, since which major, bytes.
const RESIZED: &[(u32, u32, u32)] = &[
    (nvrm::GR_GET_INFO_V2.cmd, 595, 496),
    (nvrm::GPU_GET_NAME_STRING.cmd, 595, 68),
    (nvrm::GPU_QUERY_ECC_STATUS.cmd, 595, 1664),
];

/// Longest struct of a command.
const MAX_PARAMS: u32 = 1 << 16;

impl Ask<'_> {
    fn read<T: Pod>(&self) -> T {
        // PANIC: the length was compared with the command's; no handler reads more than that.
        pod_read_unaligned(self.params.get(..size_of::<T>()).expect("long enough"))
    }

    fn store<T: Pod>(&mut self, params: &T) {
        self.params[..size_of::<T>()].copy_from_slice(bytes_of(params));
    }

    /// The object's card.
    fn gpu(&self) -> Result<&super::gpu::Gpu, Status> {
        let gpu = self.client.object(self.handle)?.gpu().ok_or(status::INVALID_OBJECT)?;
        Ok(&self.nv.gpus[gpu])
    }
}

/// All commands but those that wait.
fn rows() -> impl Iterator<Item = &'static Row> {
    [client::ROWS, gpu::ROWS, graphics::ROWS, service::ROWS, channel::ROWS, debug::ROWS].into_iter().flatten()
}

/// Whether a command of this number is for such an object.
fn is_for(cmd: u32, body: &Body) -> bool {
    match cmd >> 16 {
        0x0000 => matches!(body, Body::Client),
        0x0080 => matches!(body, Body::Device { .. }),
        0x2080 => matches!(body, Body::Subdevice { .. }),
        0x83de => matches!(body, Body::Debugger { .. }),
        0x906f | 0xa06f | 0xb06f | 0xc36f | 0xc56f => matches!(body, Body::Channel(_)),
        0xa06c => matches!(body, Body::Group(_)),
        0xcb33 => matches!(body, Body::ConfidentialCompute),
        0x0041 | 0x003e => matches!(body, Body::Memory(_)),
        0x90f1 => matches!(body, Body::Space(_)),
        _ => false,
    }
}

impl SoftNv {
    pub(super) fn rm_control(
        &self,
        mut state: MutexGuard<'_, State>,
        file: u64,
        args: &nvrm::RmControl,
    ) -> Result<(), Status> {
        if let Some(refused) = self.refusal(&mut state, Call::Control(args.cmd)) {
            return Err(refused);
        }
        // A null command, of whatever class.
        if args.cmd & 0xffff == 0 {
            return Ok(());
        }
        if (args.params == 0) != (args.params_size == 0) || args.params_size > MAX_PARAMS {
            return Err(status::INVALID_ARGUMENT);
        }
        let known = rows().find(|row| row.cmd == args.cmd);
        let len = known.map(|row| self.control_len(row));
        if len.is_some_and(|len| len != args.params_size) {
            return Err(status::INVALID_ARGUMENT);
        }
        let client = state.clients.of(args.h_client, file, status::INVALID_CLIENT)?;
        let object = client.object(args.h_object)?;
        if let Some(gpu) = object.gpu()
            && self.gpus[gpu].lost.load(Ordering::Relaxed)
        {
            return Err(status::GPU_IS_LOST);
        }
        let is_for = is_for(args.cmd, &object.body);
        let Some(row) = known.filter(|_| is_for) else {
            self.refused_control(args.cmd, is_for);
            return Err(status::NOT_SUPPORTED);
        };
        let mut params = vec![0; args.params_size as usize];
        read_process(CpuPtr(args.params), &mut params).map_err(|_| status::INVALID_ADDRESS)?;
        let body = object.body.clone();
        if args.cmd == nvrm::GROUP_PREEMPT.cmd {
            drop(state);
            return channel::preempt(self, &body, &pod_read_unaligned(&params));
        }
        let mut ask = Ask { nv: self, client, handle: args.h_object, body: &body, params: &mut params };
        let outcome = (row.handle)(&mut ask);
        write_process(CpuPtr(args.params), &params).map_err(|_| status::INVALID_ADDRESS)?;
        outcome
    }

    fn control_len(&self, row: &Row) -> u32 {
        let major = self.config.release.major;
        let resized = RESIZED.iter().find(|(cmd, since, _)| *cmd == row.cmd && major >= *since);
        resized.map_or(row.len_bytes, |(_, _, len)| *len)
    }

    fn refused_control(&self, cmd: u32, is_for: bool) {
        match chosen(nvrm::CONTROLS, cmd) {
            Some(choice) if is_for => self.unmodelled(format!("control {} ({cmd:#010x})", choice.name)),
            Some(_) => {}
            None => self.unknown(format!("control {cmd:#010x}")),
        }
    }
}

/// Fills a list of indices and values at `at` in `params`; entries after `count` stay.
fn answer_list(params: &mut [u8], at: usize, count: u32, answer: impl Fn(u32) -> Option<u32>) -> Result<(), Status> {
    const ENTRY: usize = size_of::<nvrm::InfoEntry>();
    let list = params.get_mut(at..).and_then(|rest| rest.get_mut(..(count as usize).checked_mul(ENTRY)?));
    for entry in list.ok_or(status::INVALID_ARGUMENT)?.chunks_exact_mut(ENTRY) {
        let index = u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
        let data = answer(index).ok_or(status::INVALID_ARGUMENT)?;
        entry[4..].copy_from_slice(&data.to_le_bytes());
    }
    Ok(())
}
