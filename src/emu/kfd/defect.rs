//! Defects that the driver or its cards have on request: what a harness for drivers must find.
//!
//! Each is one small wrong thing at one place, as a mistake in a driver or a fault of an engine would be.

/// What is wrong with the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// SDMA's copies leave out the last byte.
    CopyShort,
    /// SDMA's fills leave out the last element.
    FillShort,
    /// Fences and RELEASE_MEM store one more than they should.
    FenceValue,
    /// WRITE_DATA and SDMA's WRITE do nothing.
    WriteLost,
    /// Atomics of packets do nothing.
    AtomicLost,
    /// Clocks are stored as 0.
    ClockZero,
    /// The read pointer stays where it is.
    ReadPointer,
    /// Interrupts of queues reach nobody.
    InterruptLost,
    /// Events of page faults are not raised.
    FaultSilent,
    /// A page fault leaves the card's other queues running.
    FaultSpares,
    /// Every mapping may be written and executed.
    RightsIgnored,
    /// Unmapping leaves the page-table entry.
    UnmapKeeps,
    /// What a bad packet stopped goes on with the next packets once the queue is reset: no reset is reported.
    ResetSilent,
    /// Resetting a queue takes the card's other queues off the hardware.
    ResetSpreads,
    /// UPDATE_QUEUE changes nothing.
    UpdateIgnored,
    /// Dispatches end at once.
    DispatchSkipped,
    /// Exceptions are not written for the process.
    ExceptionSilent,
    /// VRAM in use is not counted.
    VramUncounted,
    /// Waiting packets wait for nothing.
    WaitIgnored,
    /// Indirect buffers are not run.
    IndirectSkipped,
    /// A process that ends keeps its memory and its queues.
    DeathKeeps,
    /// A process that ends takes the queues of all others off the hardware.
    DeathSpreads,
    /// A child of fork may use the driver by the parent's file.
    ForkMayCall,
    /// A child of fork has the parent's doorbells.
    ForkCopiesDoorbells,
    /// The end of a child of fork ends the parent's queues.
    ForkEnds,
    /// A wait that begins again after a signal has lost the events that it had taken.
    RestartForgets,
    /// After the machine's sleep queues stay off the hardware.
    ResumeForgets,
    /// The machine's sleep loses what VRAM holds.
    SuspendLosesVram,
}

impl Defect {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::CopyShort,
        Self::FillShort,
        Self::FenceValue,
        Self::WriteLost,
        Self::AtomicLost,
        Self::ClockZero,
        Self::ReadPointer,
        Self::InterruptLost,
        Self::FaultSilent,
        Self::FaultSpares,
        Self::RightsIgnored,
        Self::UnmapKeeps,
        Self::ResetSilent,
        Self::ResetSpreads,
        Self::UpdateIgnored,
        Self::DispatchSkipped,
        Self::ExceptionSilent,
        Self::VramUncounted,
        Self::WaitIgnored,
        Self::IndirectSkipped,
        Self::DeathKeeps,
        Self::DeathSpreads,
        Self::ForkMayCall,
        Self::ForkCopiesDoorbells,
        Self::ForkEnds,
        Self::RestartForgets,
        Self::ResumeForgets,
        Self::SuspendLosesVram,
    ];
}
