//! Host, copy and inline methods as dwords of docs/nv.md 3: what they write, in which order, on which chips.

use super::client::{Device, HUGE, PAGE, acquire, release, wait};
use doorbell::emu::nvrm::{Chip, Config, SoftNv};

/// A copy of bytes: offsets, length, LAUNCH 0x182.
pub fn copy(src: u64, dst: u64, bytes: u32) -> Vec<u32> {
    let [src_hi, dst_hi] = [src, dst].map(|va| (va >> 32) as u32);
    vec![0x2004_8100, src_hi, src as u32, dst_hi, dst as u32, 0x2001_8106, bytes, 0x2001_80c0, 0x182]
}

#[test]
fn host_releases_payload_and_time_and_wakes_an_acquire() {
    for chip in Chip::ALL {
        let device = Device::new(chip);
        let (mut first, mut second) = (device.compute(), device.copy(0x0b));
        let page = device.system(PAGE);
        second.push(&acquire(page.va, 5));
        second.push(&release(page.va + 32, 6));
        second.ring();
        assert_eq!(page.view.read_u64(32), Ok(0));
        first.submit(&release(page.va, 5));
        page.wait_u64(32, 6);
        let (released, acquired) = (page.view.read_u64(8).unwrap(), page.view.read_u64(40).unwrap());
        assert!(released > 0 && acquired > released, "{chip:?}: {released} {acquired}");
        assert_eq!(device.reports(), []);
    }
}

#[test]
fn short_payloads_write_and_compare_32_bits() {
    let device = Device::new(Chip::Sm90);
    let mut channel = device.compute();
    let page = device.system(PAGE);
    page.view.write_u64(0, u64::MAX).unwrap();
    // Release without WFI, 64-bit flag and timestamp.
    channel.submit(&[0x2005_0017, page.va as u32, (page.va >> 32) as u32, 7, 9, 0x0000_0001]);
    wait("the payload", || page.view.read_u64(0).unwrap() == 0xffff_ffff_0000_0007);
    // Acquire: equal, 32 bits; the upper half is not looked at.
    channel.push(&[0x2005_0017, page.va as u32, (page.va >> 32) as u32, 7, 0, 0x0000_1000]);
    channel.push(&release(page.va + 16, 1));
    channel.ring();
    page.wait_u64(16, 1);
}

#[test]
fn circular_acquire_passes_over_the_wrap_and_at_least_does_not() {
    let device = Device::new(Chip::Sm90);
    let (mut circular, mut plain) = (device.compute(), device.copy(0x0b));
    let page = device.system(PAGE);
    page.view.write_u64(0, 3).unwrap();
    let words = |execute| [0x2005_0017, page.va as u32, (page.va >> 32) as u32, u32::MAX - 4, u32::MAX, execute];
    circular.push(&words(0x0100_1003));
    circular.push(&release(page.va + 16, 1));
    circular.ring();
    page.wait_u64(16, 1);
    plain.push(&words(0x0100_1002));
    plain.push(&release(page.va + 32, 1));
    plain.ring();
    circular.submit(&release(page.va + 48, 1));
    page.wait_u64(48, 1);
    assert_eq!(page.view.read_u64(32), Ok(0), "still waits");
    page.view.store_release_u64(0, u64::MAX).unwrap();
    page.wait_u64(32, 1);
}

#[test]
fn ring_wraps_and_gp_get_follows_where_the_chip_has_it() {
    for (chip, has) in [(Chip::Sm90, true), (Chip::Sm100, false)] {
        let device = Device::new(chip);
        let mut channel = device.compute();
        let page = device.system(PAGE);
        for value in 1..=200 {
            channel.submit(&release(page.va, value));
            page.wait_u64(0, value);
        }
        let get = || channel.ring.view.read_u32(u64::from(channel.entries) * 8 + 0x88).unwrap();
        if has {
            wait("GPGet", || get() == channel.put);
        } else {
            assert_eq!(get(), 0);
        }
    }
}

#[test]
fn a_doorbell_of_no_channel_is_reported_and_one_through_a_blocked_bar0_is_lost() {
    let device = Device::new(Chip::Sm90);
    let channel = device.compute();
    channel.doorbell.ring(0x7_0fff);
    assert!(device.reports()[0].to_string().contains("token 0x70fff"));
    let device = Device::of(SoftNv::new(Config { bar0_doorbell_lost: true, ..Config::new(Chip::Sm90) }).unwrap());
    let page = device.system(PAGE);
    let mut channel = device.compute();
    channel.submit(&release(page.va, 1));
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(page.view.read_u64(0), Ok(0));
    let mut params = doorbell_ioctl::abi::nvrm::UsermodeAlloc { b_bar1_mapping: 1, b_priv: 0 };
    let class = doorbell_ioctl::abi::nvrm::HOPPER_USERMODE_A;
    let usermode = device.client.alloc_with(device.subdevice, class, &mut params).unwrap();
    let (view, _) = device.client.map(device.device, usermode, 0x1_0000, device.client.card(0)).unwrap();
    let bell = doorbell_ioctl::port::Doorbell::new(&view, 0x90, &device.client.port).unwrap();
    bell.ring(channel.token.into());
    page.wait_u64(0, 1);
}

#[test]
fn copies_move_bytes_over_mappings_and_odd_lengths() {
    for chip in Chip::ALL {
        let device = Device::new(chip);
        let mut channel = device.copy(0x0b);
        let (source, target) = (device.vram(2 * HUGE), device.system(4 * PAGE));
        let bytes: Vec<u8> = (0..9001_u32).map(|n| (n * 31) as u8).collect();
        source.view.copy_from_slice(HUGE - 3, &bytes).unwrap();
        channel.push(&copy(source.va + HUGE - 3, target.va + 5, 9001));
        channel.push(&release(target.va + 3 * PAGE, 1));
        channel.ring();
        target.wait_u64(3 * PAGE, 1);
        let mut back = vec![0; bytes.len()];
        target.view.copy_to_slice(5, &mut back).unwrap();
        assert_eq!(back, bytes, "{chip:?}");
    }
}

#[test]
fn lines_go_from_one_pitch_to_another() {
    let device = Device::new(Chip::Sm90);
    let mut channel = device.copy(0x0b);
    let page = device.system(PAGE);
    for n in 0..64 {
        page.view.write_u8(n, n as u8 + 1).unwrap();
    }
    let (src, dst) = (page.va, page.va + 1024);
    let [hi, lo] = [(src >> 32) as u32, src as u32];
    // OFFSETS, PITCH_IN 16, PITCH_OUT 8, LINE_LENGTH 4, LINE_COUNT 3; LAUNCH 0x182 | multi-line.
    channel.submit(&[0x2004_8100, hi, lo, hi, dst as u32, 0x2004_8104, 16, 8, 4, 3, 0x2001_80c0, 0x382]);
    channel.submit(&release(page.va + 2048, 1));
    page.wait_u64(2048, 1);
    let got: Vec<u8> = (0..24).map(|n| page.view.read_u8(1024 + n).unwrap()).collect();
    let line = |first: u8| [first, first + 1, first + 2, first + 3, 0, 0, 0, 0];
    assert_eq!(got, [line(1), line(17), line(33)].concat());
}

#[test]
fn fills_repeat_their_constant_in_every_width() {
    let device = Device::new(Chip::Sm90);
    let mut channel = device.copy(0x0b);
    let page = device.system(PAGE);
    // REMAP components, elements, expected bytes: docs/nv.md 3.5.
    let cases: [(u32, u32, &[u8]); 3] = [
        (0x0000_0004, 5, &[0x78; 5]),
        (0x0003_0004, 2, &[0x78, 0x56, 0x34, 0x12, 0x78, 0x56, 0x34, 0x12]),
        (0x0103_0054, 1, &[0x78, 0x56, 0x34, 0x12, 0xef, 0xcd, 0xab, 0x90]),
    ];
    for (n, (components, count, expected)) in (1..).zip(cases) {
        let dst = page.va + 256 * n;
        let remap = [0x2003_81c0, 0x1234_5678, 0x90ab_cdef, components];
        let place = [0x2002_8102, (dst >> 32) as u32, dst as u32, 0x2001_8106, count, 0x2001_80c0, 0x582];
        channel.submit(&[&remap[..], &place].concat());
        channel.submit(&release(page.va, n));
        page.wait_u64(0, n);
        let mut got = vec![0; expected.len() + 1];
        page.view.copy_to_slice(256 * n, &mut got).unwrap();
        assert_eq!((&got[..expected.len()], got[expected.len()]), (expected, 0), "{components:#x}");
    }
}

#[test]
fn copy_semaphores_have_the_width_of_the_chip() {
    for chip in [Chip::Sm75, Chip::Sm80, Chip::Sm86, Chip::Sm90] {
        let device = Device::new(chip);
        let mut channel = device.copy(0x0b);
        let page = device.system(PAGE);
        let [hi, lo] = [(page.va >> 32) as u32, page.va as u32];
        // SET_SEMAPHORE_A.. payload 5, LAUNCH flush | four words.
        channel.submit(&[0x2003_8090, hi, lo, 5, 0x2001_80c0, 0x14]);
        wait("the semaphore", || page.view.read_u64(0).unwrap() == 5);
        assert_ne!(page.view.read_u64(8), Ok(0));
        // The same with a payload of two words.
        channel.submit(&[0x2004_8090, hi, lo + 32, 6, 7, 0x2001_80c0, 0x14 | 1 << 27]);
        if matches!(chip, Chip::Sm75 | Chip::Sm80) {
            assert_eq!(channel.wait_error(), 41, "{chip:?}: engine 2's exception");
        } else {
            page.wait_u64(32, 7 << 32 | 6);
        }
    }
}

#[test]
fn compute_channels_take_inline_data_and_write_their_own_semaphores() {
    for chip in Chip::ALL {
        let device = Device::new(chip);
        let mut channel = device.compute();
        let page = device.system(PAGE);
        let [hi, lo] = [(page.va >> 32) as u32, page.va as u32];
        // LINE_LENGTH_IN 6, LINE_COUNT 1, OFFSET_OUT; LAUNCH_DMA 0x41; two dwords.
        channel.push(&[0x2004_2060, 6, 1, hi, lo + 64, 0x2001_206c, 0x41, 0x6002_206d, 0x4433_2211, 0xffff_6655]);
        // SET_REPORT_SEMAPHORE_A..D: one word.
        channel.push(&[0x2004_26c0, hi, lo, 77, 1 << 28]);
        channel.ring();
        wait("the report", || page.view.read_u32(0).unwrap() == 77);
        assert_eq!(page.view.read_u64(64), Ok(0x6655_4433_2211), "{chip:?}");
        assert_eq!(page.view.read_u32(4), Ok(0));
        // REPORT_SEMAPHORE: payload, address, 64 bits with time.
        channel.submit(&[0x2005_2056, 9, 8, lo + 32, hi, 0x1000]);
        if matches!(chip, Chip::Sm75 | Chip::Sm80) {
            assert_eq!(channel.wait_error(), 11, "{chip:?}");
        } else {
            page.wait_u64(32, 8 << 32 | 9);
            assert_ne!(page.view.read_u64(40), Ok(0));
        }
    }
}

#[test]
fn extended_base_reaches_push_buffers_above_40_bits_from_hopper_on() {
    for (chip, code) in [(Chip::Sm90, 0), (Chip::Sm80, 69)] {
        let device = Device::new(chip);
        let mut channel = device.compute();
        let page = device.system(PAGE);
        let high = 0x123_0000_0000_u64 << 4;
        device.create_range(high, PAGE).unwrap();
        device.map_range(page.handle, high, PAGE, 1).unwrap();
        for (n, word) in release(page.va + 1024, 1).into_iter().enumerate() {
            page.view.write_u32(n as u64 * 4, word).unwrap();
        }
        channel.entry([((high >> 40) as u32) << 8, 4]);
        channel.entry([high as u32, (high >> 32) as u32 & 0xff | 6 << 10]);
        channel.ring();
        if code == 0 {
            page.wait_u64(1024, 1);
        } else {
            assert_eq!(channel.wait_error(), code);
        }
    }
}

#[test]
fn channels_of_one_group_share_the_engine_and_keep_their_own_objects() {
    let device = Device::new(Chip::Sm90);
    let group = device.group(1, 0);
    let share = device.share(group);
    let mut compute = device.channel_in(group, share, device.facts().compute_class);
    let mut copies = device.channel_in(group, share, device.facts().copy_class);
    device.schedule(group).unwrap();
    let page = device.system(PAGE);
    page.view.write_u32(512, 0xfeed).unwrap();
    copies.submit(&[0x2001_8000, device.facts().copy_class]);
    copies.submit(&copy(page.va + 512, page.va + 600, 4));
    copies.submit(&release(page.va, 1));
    page.wait_u64(0, 1);
    assert_eq!(page.view.read_u32(600), Ok(0xfeed));
    // The compute channel has no copy object.
    compute.submit(&[0x2001_8000, device.facts().copy_class]);
    assert_eq!(compute.wait_error(), 13);
    assert_eq!(copies.error(), (13, 0xffff), "the notifiers of all channels of the group are filled");
}
