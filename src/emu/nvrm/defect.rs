//! Defects that the driver or its cards have on request: what a harness for drivers must find.
//!
//! Each is one small wrong thing at one place, as a mistake in a driver or a fault of an engine would be.

/// What is wrong with the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Copies leave out the last byte.
    CopyShort,
    /// Fills leave out the last element.
    FillShort,
    /// Copies with lines do the first line only.
    OneLine,
    /// Semaphores get one more than they should.
    Payload,
    /// Times are written as 0.
    ClockZero,
    /// Acquires wait for nothing.
    AcquireIgnored,
    /// Grids end at once.
    GridSkipped,
    /// Error notifiers stay empty.
    NotifierSilent,
    /// Channels of a group outlive each other.
    GroupSpares,
    /// An error takes all channels of the card with it.
    ErrorSpreads,
    /// Every mapping may be written.
    RightsIgnored,
    /// UVM's unmapping leaves the page-table entries.
    UnmapKeeps,
    /// Interrupts that channels request reach nobody.
    InterruptLost,
    /// Files that listen for errors get no event.
    EventLost,
    /// GPGet stays where it is.
    GetStuck,
    /// VRAM in use is not counted.
    VramUncounted,
    /// Inline data is not stored.
    InlineLost,
    /// A process that ends keeps its objects.
    DeathKeeps,
    /// A process that ends takes all channels of its cards with it.
    DeathSpreads,
    /// The end of a child of fork closes the parent's files.
    ForkEnds,
    /// A child of fork may not use the parent's files.
    ForkRefused,
    /// A signal takes away the events that wait in a process's files.
    SignalForgets,
    /// After the machine's sleep channels stay off the hardware.
    ResumeForgets,
    /// The machine's sleep loses what VRAM holds.
    SuspendLosesVram,
}

impl Defect {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::CopyShort,
        Self::FillShort,
        Self::OneLine,
        Self::Payload,
        Self::ClockZero,
        Self::AcquireIgnored,
        Self::GridSkipped,
        Self::NotifierSilent,
        Self::GroupSpares,
        Self::ErrorSpreads,
        Self::RightsIgnored,
        Self::UnmapKeeps,
        Self::InterruptLost,
        Self::EventLost,
        Self::GetStuck,
        Self::VramUncounted,
        Self::InlineLost,
        Self::DeathKeeps,
        Self::DeathSpreads,
        Self::ForkEnds,
        Self::ForkRefused,
        Self::SignalForgets,
        Self::ResumeForgets,
        Self::SuspendLosesVram,
    ];
}
