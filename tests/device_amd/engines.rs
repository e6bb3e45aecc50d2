//! Copies by chosen engines, of any device that has some.

use doorbell::device::{Command, Device, QueueKind};

/// Each engine copies two halves to memory of zeros; a number that no engine has is refused.
pub fn each_engine_copies(d: &dyn Device) {
    const BYTES: usize = 16384;
    let data: Vec<u8> = (0..BYTES).map(|n| (n * 7 % 251) as u8).collect();
    let from = d.alloc(BYTES as u64).unwrap();
    d.copy_in(&from, 0, &data).unwrap();
    for engine in d.copy_engines().unwrap() {
        let to = d.alloc(BYTES as u64).unwrap();
        d.copy_in(&to, 0, &[0; BYTES]).unwrap();
        for half in [0, BYTES as u64 / 2] {
            let copy = Command::copy(to.at(half), from.at(half), BYTES as u64 / 2);
            d.submit(QueueKind::CopyEngine(engine.number), &[copy]).unwrap();
        }
        let mut have = vec![0; BYTES];
        d.copy_out(&to, 0, &mut have).unwrap();
        assert!(have == data, "{}: {}", d.tag(), engine.name);
    }
    let copy = Command::copy(from.at(0), from.at(BYTES as u64 / 2), 64);
    let refused = d.submit(QueueKind::CopyEngine(99), &[copy]).unwrap_err();
    assert_eq!(refused.to_string(), format!("device {} cannot copy by an engine 99", d.tag()));
}
