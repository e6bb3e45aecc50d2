//! Notifiers of a subdevice: the events that an event object can receive, and the flags next to the number in its
//! `notifyIndex`.
//!
//! Source: `cl2080_notification.h`, `nvos.h`, `cl0005.h` of the open kernel modules 535.104 to 595.45, which agree on
//! these numbers.

use super::Release;

/// Errors of the card's timer; no event can have it.
pub const NV2080_NOTIFIERS_TIMER: u32 = 11;
/// Exceptions of the first graphics engine, and interrupts that its channels request.
pub const NV2080_NOTIFIERS_GR0: u32 = 12;
/// The first of ten copy engines.
pub const NV2080_NOTIFIERS_CE0: u32 = 23;
/// NON_STALL_INTERRUPT of any channel.
pub const NV2080_NOTIFIERS_FIFO_EVENT_MTHD: u32 = 35;
/// A channel has died.
pub const NV2080_NOTIFIERS_RC_ERROR: u32 = 37;

/// The number within `notifyIndex`.
pub const NV0005_NOTIFY_INDEX_INDEX: u32 = 0xffff;
/// The event has no data: only poll reports it, once, however often it happened.
pub const NV01_EVENT_WITHOUT_EVENT_DATA: u32 = 0x1000_0000;
/// The event receives interrupts that channels request: no other event receives these.
pub const NV01_EVENT_NONSTALL_INTR: u32 = 0x0800_0000;

/// NV2080_CTRL_EVENT_SET_NOTIFICATION_ACTION: how often a notifier fires.
pub const NOTIFICATION_DISABLE: u32 = 0;
pub const NOTIFICATION_SINGLE: u32 = 1;
pub const NOTIFICATION_REPEAT: u32 = 2;

impl Release {
    /// NV2080_NOTIFIERS_MAXCOUNT.
    #[must_use]
    pub fn notifiers(self) -> u32 {
        match self.major {
            ..550 => 181,
            550..570 => 187,
            570..580 => 197,
            580..590 => 198,
            _ => 199,
        }
    }
}
