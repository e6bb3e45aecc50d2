//! Code of software GPUs as code of this machine: blocks of it compiled by the CPU's back end.

use crate::codegen::{ParamInfo, Program};
use crate::device::cpu::{InPlace, choose_arch};
use crate::emu::translate::{Block, DeviceView, Translated, Translation, Translator, VIEWS};
use crate::isa::Backend;
use crate::uop::DType;
use std::sync::Arc;

/// The back end for this machine.
struct Host(Arc<dyn Backend>);

/// What compiles blocks here; nothing on a machine without a back end.
pub(super) fn translation() -> Translation {
    let arch = choose_arch("CPU", None).ok();
    let backend = arch.and_then(|arch| super::backends::for_cpu(&arch, 1));
    Translation(backend.map(|b| Arc::new(Host(b)) as Arc<dyn Translator>))
}

/// A block's code.
struct Code(InPlace);

impl Translator for Host {
    fn translate(&self, block: &Block) -> Option<Box<dyn Translated>> {
        let binary = self.0.compile(&program(block)).ok()?;
        let code = InPlace::load(binary.object()?, &binary.entry, &block.words, block.views).ok()?;
        Some(Box::new(Code(code)))
    }
}

impl Translated for Code {
    fn run(&self, buffers: &mut [&mut [u32]], views: &[Option<DeviceView>]) {
        self.0.run(buffers, views);
    }
}

fn program(block: &Block) -> Program {
    let param =
        |slot: usize, len: usize| ParamInfo { slot: slot as u32, dtype: DType::U32, len, read: true, written: true };
    let buffers = block.words.iter().enumerate().map(|(slot, words)| param(slot, *words));
    let views = (0..block.views).map(|k| param(VIEWS as usize + k, 1));
    Program {
        name: "block".into(),
        display_name: "block".into(),
        uops: block.uops.clone(),
        params: buffers.chain(views).collect(),
        vars: Vec::new(),
        tensors: Vec::new(),
        threads: 1,
        global: [1; 3],
        local: [1; 3],
        local_bytes: 0,
        estimates: Default::default(),
        opts: Vec::new(),
        fast_math: false,
    }
}
