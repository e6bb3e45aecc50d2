//! What a session asks of software GPUs.

/// Why a software GPU cannot be opened where no emulator was registered: the feature `emu` of `doorbell` brings them.
pub const NOT_BUILT_IN: &str = "this build has no software GPUs, which `--features emu` adds";

/// How software GPUs run kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EmuMode {
    /// With all checks that no hardware makes.
    #[default]
    Strict,
    /// Without them, and what is executed often as code of this machine.
    Plain,
    /// Each kernel twice, strict and plain: different bits are an error.
    Both,
}

/// Options of software GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EmuOptions {
    /// How they run kernels.
    pub mode: EmuMode,
    /// AMD's go on after a finding and collect them all.
    pub lenient: bool,
}
