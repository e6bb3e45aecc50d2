//! The initial corpus of each target: small, valid inputs of every kind, made by the writers.
#![allow(dead_code)] // each user takes what it wants

use doorbell::elf::amdgpu::{KernelCode, KernelSpec, write as write_code};
use doorbell::elf::cubin::{Arch, Cubin};
use doorbell::elf::{self, Machine, Object, RelocKind, Relocation, Section, Symbol, Target as Aim};
use doorbell::hcq::packet::GpuVa;
use doorbell::hcq::packet::pm4::chip::AcquireScope;
use doorbell::hcq::packet::{aql, nv, pm4, sdma};
use doorbell::isa::amdgpu::{Chip, Target, assemble};
use doorbell::package::{
    self, Argument, Block, BlockKind, Contents, Element, Kernel, Launch, Place, Port, Size, Step,
    Target as PackageTarget, Term, Variable,
};
use doorbell_ioctl::abi::{self, Blob, kfd};
use doorbell_ioctl::port::{CpuPtr, Errno, Fd, MapRequest, OpenFlags, PollEvents};
use doorbell_ioctl::trace::{Event, FileSink, IoctlEvent, Moment, Sink, What};

/// The seeds of a target.
pub fn of(target: &str) -> Vec<Vec<u8>> {
    match target {
        "ioctl" => ioctls(),
        "trace" => vec![trace()],
        "elf" => vec![object()],
        "code_object" => Chip::ALL.into_iter().map(code_object).collect(),
        "pm4" => vec![bytes(&pm4_words(pm4::Gfx::Gfx11)), bytes(&pm4_words(pm4::Gfx::Gfx9))],
        "aql" => vec![bytes(&aql_words())],
        "sdma" => vec![bytes(&sdma_words(sdma::Sdma::V6)), bytes(&sdma_words(sdma::Sdma::V4))],
        "amdgpu" | "emu_decode" => Chip::ALL.into_iter().map(code).collect(),
        "amdgpu_source" => Chip::ALL.into_iter().map(|chip| headed(chip, source(chip).as_bytes())).collect(),
        "nv_push" => vec![bytes(&push_words())],
        "qmd" => vec![bytes(qmd().words())],
        "cubin" | "sass" => nv_code(target == "sass"),
        "ptx" => vec![PTX.as_bytes().to_vec()],
        "state" => STATES.iter().map(|bytes| bytes.to_vec()).collect(),
        "package" => packages(),
        _ => Vec::new(),
    }
}

/// A program for two targets, with everything that the format has; and one without constants.
fn packages() -> Vec<Vec<u8>> {
    let block = |kind, len_bytes, at, data_at| Block { kind, len_bytes, at, data_at };
    let at = |block, offset| Place { block, offset };
    let size = Size::Expression(vec![Term::Variable(0), Term::Number(2), Term::Mul]);
    let port = |name: &str, shape: Vec<Size>, block, len_bytes| Port {
        name: name.into(),
        element: Element::F32,
        shape,
        block,
        offset: 0,
        len_bytes,
    };
    let launch = Launch {
        kernel: 0,
        threads: 2,
        groups: [4, 1, 1],
        local: [32, 1, 1],
        local_bytes: 64,
        arguments: vec![
            Argument::Buffer(at(1, 0)),
            Argument::Buffer(at(3, 4)),
            Argument::Variable(0),
            Argument::Word(7),
        ],
    };
    let copy = Step::Copy { to: at(1, 0), from: at(2, 0), len_bytes: 16 };
    let target = |arch: &str| PackageTarget {
        arch: arch.into(),
        kernels: vec![Kernel { name: "k".into(), entry: "k".into(), code: b"code".to_vec() }],
        steps: vec![Step::Launch(launch.clone()), copy.clone()],
    };
    let all = Contents {
        name: "seed".into(),
        variables: vec![Variable { name: "n".into(), min: 1, max: 8 }],
        blocks: vec![
            block(BlockKind::Input, 64, 0, 0),
            block(BlockKind::Output, 64, 0, 0),
            block(BlockKind::State, 16, 64, 0),
            block(BlockKind::Constant, 16, 0, 64),
            block(BlockKind::Temporary, 8, 128, 0),
        ],
        arena_bytes: 192,
        data_bytes: 80,
        data_file: None,
        inputs: vec![port("x", vec![size.clone()], 0, 64)],
        outputs: vec![port("y", vec![size, Size::Fixed(1)], 1, 64), port("z", vec![Size::Fixed(4)], 2, 16)],
        targets: vec![target("gfx1100"), target("x86_64-avx2")],
    };
    let small = Contents {
        blocks: vec![block(BlockKind::Input, 16, 0, 0), block(BlockKind::Output, 16, 0, 0)],
        arena_bytes: 64,
        inputs: vec![port("x", vec![Size::Fixed(4)], 0, 16)],
        outputs: vec![port("y", vec![Size::Fixed(2), Size::Fixed(2)], 1, 16)],
        ..Contents::default()
    };
    let bytes = [package::write(&all, &[9; 80]), package::write(&small, &[])];
    bytes.into_iter().filter_map(Result::ok).collect()
}

/// Files of PyTorch and numpy.
const STATES: &[&[u8]] = &[
    include_bytes!("../tests/data/nn/newer.pt"),
    include_bytes!("../tests/data/nn/legacy.pt"),
    include_bytes!("../tests/data/nn/evil.pt"),
    include_bytes!("../tests/data/nn/plain.npy"),
    include_bytes!("../tests/data/nn/big.npy"),
];

/// A kernel with what PTX has: parameters, a branch, a loop, shared memory, vectors.
const PTX: &str = ".version 8.8\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u32 n)\n{\n\
    .reg .b32 %r<6>;\n.reg .b64 %d<3>;\n.reg .f32 %f<5>;\n.reg .pred %p<2>;\n.shared .align 4 .b8 tile[128];\n\
    ld.param.u64 %d1, [a];\nld.param.u32 %r1, [n];\nmov.u32 %r2, %tid.x;\nsetp.ge.u32 %p1, %r2, %r1;\n@%p1 bra DONE;\n\
    mad.wide.u32 %d2, %r2, 16, %d1;\nld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%d2];\nLOOP:\nfma.rn.f32 %f1, %f2, %f3, %f1;\n\
    add.u32 %r1, %r1, -1;\nsetp.ne.u32 %p1, %r1, 0;\n@%p1 bra LOOP;\nshl.b32 %r3, %r2, 2;\nand.b32 %r3, %r3, 127;\n\
    mov.u32 %r4, tile;\nadd.u32 %r3, %r3, %r4;\nst.shared.f32 [%r3], %f1;\nst.global.f32 [%d2+4], %f1;\nDONE:\nret;\n}\n";

/// The kernel as a cubin, or its code alone.
fn nv_code(only_code: bool) -> Vec<Vec<u8>> {
    let arch = Arch { sm: 90, specific: false };
    let Ok(file) = doorbell::isa::sass::compile::assemble(PTX, arch) else { return Vec::new() };
    let code = |cubin: Cubin| cubin.kernels.iter().map(|k| cubin.code(k).to_vec()).collect();
    if only_code { Cubin::parse(&file).map(code).unwrap_or_default() } else { vec![file] }
}

/// Methods of a launch and of a copy, and GPFIFO entries.
fn push_words() -> Vec<u32> {
    let mut list = nv::PushBuffer::new();
    let address = GpuVa(0x20_0000_1000);
    let actions = [
        nv::compute::Action::InvalidateCaches { instruction: true, data: true, constant: true },
        nv::compute::Action::WaitIdle,
        nv::compute::Action::LocalMemory(address),
    ];
    actions.iter().for_each(|a| a.emit(&mut list).unwrap_or_default());
    let release = nv::host::Action::Release { address, value: 7, wait_idle: true, timestamp: true };
    release.emit(&mut list).unwrap_or_default();
    let mut words = list.words().to_vec();
    words.extend(nv::Entry::fetch(address, 64).emit().unwrap_or_default());
    words
}

/// A launch with a constant bank and shared memory.
fn qmd() -> nv::qmd::Qmd {
    use nv::qmd::{Constant, Invalidate, Launch, Version};
    let mut constants = [None; 8];
    constants[0] = Some(Constant { address: GpuVa(0x20_0000_0000), len_bytes: 0x230, invalidate: true });
    let launch = Launch {
        program: GpuVa(0x20_0000_8000),
        registers: 24,
        barriers: 1,
        sass_version: 0x90,
        grid: [4, 2, 1],
        block: [64, 1, 1],
        cluster: None,
        shared_bytes: 1024,
        shared_config: [0x9, 0x3a],
        local_bytes: 0,
        constants,
        releases: Vec::new(),
        dependent: None,
        invalidate: Invalidate::DATA,
        sysmembar: true,
    };
    launch.emit(Version::V4_0).unwrap_or_else(|_| nv::qmd::Qmd::new(Version::V4_0))
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// The byte that chooses the chip, then the rest.
fn headed(chip: Chip, rest: &[u8]) -> Vec<u8> {
    let index = Chip::ALL.iter().position(|c| *c == chip).unwrap_or(0);
    std::iter::once(u8::try_from(index).unwrap_or(0)).chain(rest.iter().copied()).collect()
}

/// One call of each kind with small numbers in its fields.
fn ioctls() -> Vec<Vec<u8>> {
    let one = |(n, desc): (usize, &abi::Desc)| {
        let len = u8::try_from(desc.layout.len_bytes).unwrap_or(u8::MAX);
        let body = (0..len).map(|i| if i % 8 == 0 { i / 8 + 1 } else { 0 });
        let head = [u8::try_from(n).unwrap_or(u8::MAX), len, 0, 0];
        head.into_iter().chain(body).chain(std::iter::repeat_n(7, 48)).collect()
    };
    abi::all().enumerate().map(one).collect()
}

/// An event of every kind, with a queue whose ring is written and rung.
fn trace() -> Vec<u8> {
    let call = |request: u32, before: &[u8], result| IoctlEvent {
        fd: Fd(3),
        request,
        before: before.to_vec(),
        blobs_before: vec![Blob { index: 0, bytes: vec![1, 2, 3, 4] }],
        after: before.to_vec(),
        blobs_after: Vec::new(),
        result,
    };
    let queue = kfd::CreateQueue {
        ring_base_address: 0x7000_0000,
        ring_size: 0x1000,
        queue_id: 1,
        doorbell_offset: 0x1000_0008,
        ..Default::default()
    };
    let map = MapRequest::file(Fd(3), 0x1000_0000, 0x2000);
    let whats = [
        What::Open { path: "/dev/kfd".into(), flags: OpenFlags::DEVICE, result: Ok(Fd(3)) },
        What::Mmap { map, result: Ok(CpuPtr(0x6000_0000)) },
        What::Ioctl(Box::new(call(kfd::CREATE_QUEUE.desc.request, bytemuck_bytes(&queue), Ok(0)))),
        What::Memory { at: CpuPtr(0x7000_0000), bytes: vec![0, 0x10, 0, 0xc0] },
        What::Doorbell { at: CpuPtr(0x6000_0008), value: 1 },
        What::Ioctl(Box::new(call(0xc018_4b18, &[1; 24], Err(Errno::EINVAL)))),
        What::Poll { fds: vec![(Fd(3), PollEvents::IN, PollEvents::empty())], timeout_ms: 5, result: Ok(0) },
        What::ReadFile { path: "/sys/x".into(), result: Ok(b"1".to_vec()) },
        What::ReadDir { path: "/sys".into(), result: Ok(vec!["0".into(), "1".into()]) },
        What::Munmap { addr: CpuPtr(0x6000_0000), len_bytes: 0x2000, result: Ok(()) },
        What::Close { fd: Fd(3), result: Err(Errno::EBADF) },
    ];
    let mut file = Vec::new();
    if let Ok(mut sink) = FileSink::new(&mut file) {
        for (n, what) in whats.into_iter().enumerate() {
            let moment = Moment { start_ns: 1000 * n as u64, length_ns: 10, thread: 0 };
            sink.event(&Event { moment, what });
        }
    }
    file
}

/// The struct's bytes, by CREATE_QUEUE's layout.
fn bytemuck_bytes(queue: &kfd::CreateQueue) -> &[u8] {
    bytemuck::bytes_of(queue)
}

/// An x86-64 object with every kind of section, symbol and target.
fn object() -> Vec<u8> {
    let mut object = Object::new(Machine::X86_64);
    (object.text, object.rodata, object.bss_len) = (vec![0x90; 40], vec![7; 24], 32);
    object.define_function("kernel", 0, 40);
    let external = object.declare_external("expf");
    let (section, offset_bytes, size_bytes) = (Some(Section::Bss), 8, 8);
    object.symbols.push(Symbol { name: "state".into(), section, offset_bytes, size_bytes, global: false, func: false });
    let aims = [Aim::Symbol(0), Aim::Symbol(external), Aim::Symbol(2), Aim::Section(Section::Rodata)];
    let kinds = [RelocKind::Plt32, RelocKind::GotPc32, RelocKind::Abs64, RelocKind::Pc32];
    for (i, (target, kind)) in aims.into_iter().zip(kinds).enumerate() {
        let (section, offset_bytes, addend) = (Section::Text, 8 * i as u64, -4);
        object.relocations.push(Relocation { section, offset_bytes, kind, target, addend });
    }
    elf::write(&object).unwrap_or_default()
}

fn code_object(gpu: Chip) -> Vec<u8> {
    let spec = KernelSpec {
        gpu,
        wave32: !gpu.is_gfx9(),
        vgprs: 8,
        acc_vgprs: 0,
        sgprs: 16,
        lds_bytes: 64,
        scratch_bytes: 0,
        kernarg_bytes: 16,
        user_sgprs: 2,
        workgroup_ids: [true, false, false],
        workitem_dims: 1,
    };
    let kernel = |name: &str| KernelCode {
        name: name.into(),
        code: vec![0; 8],
        descriptor: spec.descriptor(),
        args: Vec::new(),
        sgprs: 16,
        vgprs: 8,
        acc_vgprs: 0,
        max_workgroup: 1024,
    };
    write_code(gpu, &[kernel("a"), kernel("b")]).unwrap_or_default()
}

fn pm4_words(gfx: pm4::Gfx) -> Vec<u32> {
    let mut out = Vec::new();
    let va = GpuVa(0x7f00_0000_1000);
    let cache = gfx.table().release_flush;
    let dispatch = pm4::ComputeDispatch {
        entry: GpuVa(0x7f00_0001_0100),
        rsrc1: 0x60af_0000,
        rsrc2: 0x84,
        rsrc3: 0,
        tmpring_size: 0,
        scratch_base: GpuVa(0),
        user_data: &[0x1000, 0x7f00],
        local: [64, 1, 1],
        groups: [4, 1, 1],
        wave32: gfx != pm4::Gfx::Gfx9,
    };
    let (data_sel, int_sel) = (pm4::DataSel::Low32, pm4::IntSel::AfterConfirm);
    let (dst, values) = (pm4::DstSel::Memory, &[1, 2, 3][..]);
    let done = [
        pm4::AcquireMem::all(gfx.acquire(AcquireScope::Full)).emit(&mut out),
        pm4::WaitRegMem::at_least(va, 7).emit(&mut out),
        dispatch.emit(gfx, &mut out),
        pm4::EventWrite::CS_PARTIAL_FLUSH.emit(&mut out),
        pm4::WriteData { dst, no_incr: false, confirm: true, addr: va, values }.emit(&mut out),
        pm4::IndirectBuffer { addr: va, size_dwords: 64, chain: false }.emit(&mut out),
        pm4::PredExec { xcc_mask: 1, exec_dwords: 8 }.emit(&mut out),
        pm4::ReleaseMem { cache, data_sel, int_sel, addr: va, data: 7, ctxid: 3 }.emit(&mut out),
    ];
    assert!(done.iter().all(Result::is_ok), "{done:?}");
    out
}

fn aql_words() -> Vec<u32> {
    let (header, completion, ib) = (
        aql::Header::SYSTEM,
        GpuVa(0x7f00_0000_0040),
        pm4::IndirectBuffer { addr: GpuVa(0x1000), size_dwords: 16, chain: false },
    );
    let dispatch = aql::KernelDispatch {
        header,
        dimensions: 3,
        workgroup: [64, 2, 1],
        grid: [4096, 2, 1],
        private_bytes: 0,
        group_bytes: 256,
        kernel_object: GpuVa(0x7f00_0000_1000),
        kernarg: GpuVa(0x7f00_0000_2000),
        completion,
    };
    let signals = [completion, GpuVa(0), GpuVa(0), GpuVa(0), GpuVa(0)];
    let packets = [
        aql::Packet::KernelDispatch(dispatch),
        aql::Packet::Barrier(aql::Barrier { header, any: false, signals, completion }),
        aql::Packet::VendorPm4(aql::VendorPm4 { header, ib, completion }),
        aql::Packet::Invalid,
    ];
    packets.iter().flat_map(|p| p.emit().unwrap_or_default()).collect()
}

fn sdma_words(engine: sdma::Sdma) -> Vec<u32> {
    let va = GpuVa(0x7f00_0000_1000);
    let packets = [
        sdma::Packet::CopyLinear(sdma::CopyLinear { dst: va, src: GpuVa(0x2000), len_bytes: 4096 }),
        sdma::Packet::Fence(sdma::Fence { addr: va, value: 9 }),
        sdma::Packet::Trap(sdma::Trap { context: 3 }),
        sdma::Packet::PollRegmem(sdma::PollRegmem::at_least(va, 9)),
        sdma::Packet::HdpFlush,
        sdma::Packet::Timestamp(sdma::Timestamp { addr: va }),
        sdma::Packet::Indirect(sdma::Indirect { addr: va, size_dwords: 32 }),
        sdma::Packet::Nop { skipped: &[1, 2] },
        sdma::Packet::DummyTrap,
    ];
    let mut out = Vec::new();
    assert!(packets.iter().all(|p| p.emit(engine, &mut out).is_ok()));
    out
}

/// A few instructions of many formats, in the chip's spelling.
fn source(chip: Chip) -> String {
    let (load, store, wide, wait) = match chip {
        Chip::Gfx942 => ("global_load_dword", "global_store_dword", "s_load_dwordx2", "s_waitcnt vmcnt(0) lgkmcnt(0)"),
        Chip::Gfx1100 => ("global_load_b32", "global_store_b32", "s_load_b64", "s_waitcnt vmcnt(0) lgkmcnt(0)"),
        Chip::Gfx1201 => ("global_load_b32", "global_store_b32", "s_load_b64", "s_wait_loadcnt 0x0\ns_wait_kmcnt 0x0"),
    };
    format!(
        "start:\n{wide} s[4:5], s[0:1], 0x10\n{wait}\nv_mov_b32 v1, 0x12345678\n{load} v2, v0, s[4:5] offset:16\n{wait}\n\
         v_fma_f32 v3, v1, v2, -v3\ns_cmp_lg_u32 s3, 0 ; comment\ns_cbranch_scc1 start\n{store} v0, v3, s[4:5]\ns_endpgm\n.long 0xbf800000\n"
    )
}

fn code(chip: Chip) -> Vec<u8> {
    let words = assemble(Target::of(chip), &source(chip)).map(|a| a.words).unwrap_or_default();
    assert!(!words.is_empty(), "{} has a source", chip.name());
    headed(chip, &bytes(&words))
}
