//! A recorded list, as a `Jit` replays it.

use crate::seen::Seen;
use crate::work::{Bench, EXACT, launch};
use doorbell::device::{Arg, Device, Patch};
use hw_contact::Failure;
use std::time::Instant;

const TWO: &str = "
kernel void add(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                uint i [[thread_position_in_grid]]) { out[i] = in[i] + 1.0f; }
kernel void twice(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                  uint i [[thread_position_in_grid]]) { out[i] = in[i] * 2.0f; }";

pub fn lists(bench: &Bench, seen: &mut Seen) -> Result<(), Failure> {
    let source = format!("{EXACT}{TWO}");
    let (add, twice) = (bench.kernel(&source, "add")?, bench.kernel(&source, "twice")?);
    let (x, y, other) = (bench.memory(&[0.0; 64])?, bench.memory(&[0.0; 64])?, bench.memory(&[0.0; 64])?);
    let (groups, local) = ([2, 1, 1], [32, 1, 1]);
    // y = x + 1, x = 2 y: after n replays x = 2^(n + 1) - 2.
    let commands = [launch(&add, &[&y, &x], groups, local), launch(&twice, &[&x, &y], groups, local)];
    let device = bench.device()?;
    let mut list = device.record(&commands)?;
    for _ in 0..5 {
        list.replay(&[])?;
    }
    seen.is("five replays of two kernels", bench.values(&x)?[63], 62.0);
    let point = list.replay(&[Patch::Arg { command: 1, arg: 0, value: Arg::Buffer(other.at(0)) }])?;
    device.wait(&point, bench.patience())?;
    seen.is("another buffer in a replay", (bench.values(&other)?[63], bench.values(&x)?[63]), (126.0, 62.0));
    let count = if bench.is_quick() { 20 } else { 1000 };
    let many: Vec<_> = (0..50).flat_map(|_| commands.clone()).collect();
    let mut list = device.record(&many)?;
    device.wait(&list.replay(&[])?, bench.patience())?;
    let time = |what: &mut dyn FnMut() -> Result<(), Failure>| -> Result<f64, Failure> {
        let began = Instant::now();
        (0..count).try_for_each(|_| what())?;
        Ok(began.elapsed().as_secs_f64() * 1e6 / f64::from(count))
    };
    let replay = time(&mut || Ok(device.wait(&list.replay(&[])?, bench.patience())?))?;
    let submit = time(&mut || bench.run(&many))?;
    seen.note(format!("a list of 100 kernels: {replay:.1} us a replay, {submit:.1} us submitted anew, waited for"));
    Ok(())
}
