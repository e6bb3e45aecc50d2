//! Seeded noise: calls with odd fields and wrong handles, push buffers and QMDs with flipped bits. Whatever they
//! return, the machine keeps working.

use super::client::{Channel, Device, HUGE, PAGE, host_memory, release};
use super::grids::launch;
use doorbell::emu::nvrm::{Chip, Config, ReportKind};
use doorbell::hcq::packet::nv::qmd::Version;
use doorbell_ioctl::abi::nvrm as rm;
use doorbell_ioctl::abi::{Desc, FieldDesc, Kind, Layout, chosen, uvm};
use doorbell_ioctl::port::{DeviceView, Fd};
use std::time::Duration;

/// xorshift64.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[(self.next() % from.len() as u64) as usize]
    }
}

/// What a caller knows, and its memory that pointers may name.
struct World {
    handles: Vec<u32>,
    files: Vec<Fd>,
    memory: u64,
    uuid: [u8; 16],
    /// Keeps the memory while calls may write there.
    _view: DeviceView,
}

/// Fills a struct: pointers lead to the world's memory or nowhere, handles are mostly known ones.
fn fill(noise: &mut Noise, world: &World, layout: &Layout, bytes: &mut [u8]) {
    const ODD: [u64; 14] =
        [0, 1, 2, 3, 8, 64, 0x1f, PAGE, HUGE, 1 << 32, 0x20_0000_0000, u32::MAX as u64, u64::MAX, i64::MAX as u64];
    for field in layout.fields {
        match field.kind {
            Kind::Nested(inner) => {
                let span = field.offset as usize..(field.offset + inner.len_bytes) as usize;
                fill(noise, world, inner, &mut bytes[span]);
            }
            _ => fill_field(noise, world, field, bytes, &ODD),
        }
    }
}

fn fill_field(noise: &mut Noise, world: &World, field: &FieldDesc, bytes: &mut [u8], odd: &[u64]) {
    if field.len_bytes == 16 {
        bytes[field.span()].copy_from_slice(&world.uuid);
        return;
    }
    let value = match field.kind {
        Kind::Pointer => noise.pick(&[0, 8, world.memory, world.memory + 1024]),
        Kind::Handle => u64::from(noise.pick(&world.handles)),
        Kind::Fd => noise.pick(&world.files).0 as u64,
        Kind::Choice(among) => u64::from(noise.pick(among).value),
        Kind::Reserved => 0,
        _ if field.name == "timeout" || field.name == "timeout_us" => noise.next() % 50,
        _ if noise.next().is_multiple_of(3) => u64::from(noise.pick(&world.handles)),
        _ => noise.pick(odd),
    };
    field.write(bytes, |_| value);
}

/// A device with one of everything.
fn world(device: &Device) -> World {
    let client = &device.client;
    let (group, buffer) = (device.group(1, 0), device.vram(HUGE));
    let share = device.share(group);
    let channel = device.channel_in(group, share, rm::HOPPER_COMPUTE_A);
    let (at, view) = host_memory(&client.port, 1 << 20);
    World {
        handles: vec![
            client.root,
            device.device,
            device.subdevice,
            device.space,
            group,
            share,
            channel.handle,
            buffer.handle,
            0,
            0xdead,
        ],
        files: vec![client.control, device.card, device.uvm, Fd(-1)],
        memory: at.0,
        uuid: device.uuid,
        _view: view,
    }
}

/// Calls that a run makes of a table: the struct filled, whatever it points at filled as well.
fn call(noise: &mut Noise, world: &World, device: &Device, desc: &Desc) {
    let mut bytes = vec![0; desc.layout.len_bytes as usize];
    fill(noise, world, desc.layout, &mut bytes);
    // What pAllocParms and params point at is the struct of the class or command.
    for (name, among) in [("h_class", rm::CLASSES), ("cmd", rm::CONTROLS)] {
        let choice = desc.layout.field(name).and_then(|f| f.read(&bytes)).and_then(|v| chosen(among, v as u32));
        if let Some(layout) = choice.and_then(|c| c.layout) {
            let mut inner = vec![0; layout.len_bytes as usize];
            fill(noise, world, layout, &mut inner);
            doorbell_ioctl::port::write_process(doorbell_ioctl::port::CpuPtr(world.memory), &inner).unwrap();
            for pointer in ["params", "p_alloc_parms"] {
                if let Some(field) = desc.layout.field(pointer) {
                    field.write(&mut bytes, |_| world.memory);
                }
            }
            if let Some(field) = desc.layout.field("params_size") {
                field.write(&mut bytes, |_| layout.len_bytes.into());
            }
        }
    }
    let file = noise.pick(&world.files[..3]);
    let _whatever = device.client.port.ioctl(file, desc.request, &mut bytes);
}

fn assert_no_bug(device: &Device, what: &str) {
    let bugs: Vec<_> = device.reports().into_iter().filter(|r| r.kind == ReportKind::Bug).collect();
    assert!(bugs.is_empty(), "{what}: {bugs:?}");
}

#[test]
fn calls_with_odd_fields_end_in_an_answer() {
    for seed in 1..=200 {
        let mut noise = Noise(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let device = Device::new(Chip::Sm90);
        let world = world(&device);
        // The client ends the run too early, when it is freed or its file's.
        let is_short = |d: &&&Desc| d.request != rm::FREE.desc.request || seed % 4 == 0;
        let table: Vec<&Desc> = rm::TABLE.iter().chain(uvm::TABLE).filter(is_short).copied().collect();
        for _ in 0..300 {
            let desc = noise.pick(&table);
            // Waits are bounded; those of the host's clock are not what is looked for.
            call(&mut noise, &world, &device, desc);
        }
        assert_no_bug(&device, &format!("seed {seed}"));
    }
}

#[test]
fn every_control_and_class_takes_odd_params_on_every_object() {
    let device = Device::new(Chip::Sm90);
    let world = world(&device);
    let mut noise = Noise(0x1234_5678_9abc_def1);
    for choice in rm::CONTROLS.iter().filter(|c| c.layout.is_some()) {
        let layout = choice.layout.unwrap();
        for handle in &world.handles {
            let mut params = vec![0; layout.len_bytes as usize];
            fill(&mut noise, &world, layout, &mut params);
            let _whatever = device.client.control_raw(*handle, choice.value, &mut params);
        }
    }
    for choice in rm::CLASSES {
        for parent in &world.handles {
            let mut params = vec![0; 512];
            if let Some(layout) = choice.layout {
                fill(&mut noise, &world, layout, &mut params);
            }
            let at = params.as_mut_ptr() as u64;
            let _whatever = device.client.alloc_raw(device.client.root, *parent, 0, choice.value, at);
        }
    }
    assert_no_bug(&device, "controls and classes");
}

/// Lets a channel run for a moment, then takes it away.
fn run(device: &Device, channel: &Channel) {
    channel.ring();
    std::thread::sleep(Duration::from_micros(300));
    device.client.free(channel.group).unwrap();
}

#[test]
fn push_buffers_of_noise_stop_their_channel_or_run() {
    let (device, _) = Device::with_sms(Chip::Sm90, |_, _| Ok(()));
    let page = device.system(4 * PAGE);
    for seed in 1..=120_u64 {
        let mut noise = Noise(0x2545_f491_4f6c_dd1d_u64.wrapping_mul(seed));
        let mut channel = if seed % 2 == 0 { device.compute() } else { device.copy(0x0b) };
        let subchannel = if seed % 2 == 0 { 1 } else { 4 };
        let mut words = Vec::new();
        while words.len() < 64 {
            let op = noise.pick(&[1_u32, 1, 1, 3, 4, 5, 7]);
            let method =
                noise.pick(&[0_u32, 0x5c, 0x6c, 0x78, 0x180, 0x1b0, 0x2a0, 0x2b4, 0x240, 0x300, 0x400, 0x418, 0x700]);
            let count = (noise.next() % 6 + 1) as u32;
            words.push(op << 29 | count << 16 | subchannel << 13 | method >> 2);
            for _ in 0..count {
                words.push(noise.pick(&[0, 1, 4, 0x182, 0x41, 0x20, page.va as u32, noise.0 as u32]));
            }
        }
        channel.push(&words);
        channel.push(&release(page.va, seed));
        run(&device, &channel);
    }
    assert_no_bug(&device, "push buffers");
    assert_eq!(device.client.machine.left_over()[1], 0);
}

#[test]
fn flipped_bits_of_qmds_and_entries_are_refused_or_run() {
    let (device, _) = Device::with_sms(Chip::Sm90, |_, _| Ok(()));
    let memory = device.vram(16 * PAGE);
    let good = launch(Chip::Sm90, &memory).emit(Version::V4_0).unwrap();
    let mut noise = Noise(77);
    for _ in 0..120 {
        let mut channel = device.compute();
        let mut words = good.words().to_vec();
        for _ in 0..noise.next() % 3 + 1 {
            words[(noise.next() % 96) as usize] ^= 1 << (noise.next() % 32);
        }
        for (n, word) in (0u64..).zip(&words) {
            memory.view.write_u32(0x3000 + n * 4, *word).unwrap();
        }
        channel.push(&[0x2001_20ad, ((memory.va + 0x3000) >> 8) as u32, 0x2001_20b0, 9]);
        channel.entry([noise.next() as u32, noise.next() as u32]);
        run(&device, &channel);
    }
    assert_no_bug(&device, "QMDs");
}

#[test]
fn seeded_pauses_change_no_result() {
    for seed in 1..=8 {
        let config = Config { shuffle: seed, ..Config::new(Chip::Sm90) };
        let device = Device::of(doorbell::emu::nvrm::SoftNv::new(config).unwrap());
        let (mut first, mut second) = (device.compute(), device.copy(0x0b));
        let page = device.system(PAGE);
        for value in 1..=20 {
            first.push(&super::client::acquire(page.va + 16, 2 * value - 2));
            first.push(&release(page.va, 2 * value - 1));
            second.push(&super::client::acquire(page.va, 2 * value - 1));
            second.push(&release(page.va + 16, 2 * value));
            first.ring();
            second.ring();
            page.wait_u64(16, 2 * value);
        }
        assert_eq!(device.reports(), []);
    }
}
