// Compiled twice: into this test, and by `rustc --emit=obj` into the object that our linker places.

static TABLE: [u32; 16] = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3];
static NAMES: [&str; 3] = ["one", "twenty-two", "three hundred"];
pub static COUNTER: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(0);

trait Shape {
    fn area(&self) -> u64;
}

struct Square(u64);
struct Rectangle(u64, u64);

impl Shape for Square {
    #[inline(never)]
    fn area(&self) -> u64 {
        self.0.wrapping_mul(self.0)
    }
}

impl Shape for Rectangle {
    #[inline(never)]
    fn area(&self) -> u64 {
        self.0.wrapping_mul(self.1)
    }
}

#[inline(never)]
fn shape(which: u64, square: &Square, rectangle: &Rectangle) -> u64 {
    let chosen: &dyn Shape = if which.is_multiple_of(2) { square } else { rectangle };
    core::hint::black_box(chosen).area()
}

#[inline(never)]
fn step(state: u64, op: u64) -> u64 {
    match op % 9 {
        0 => state.rotate_left(7),
        1 => state / 3,
        2 => state ^ u64::from(TABLE[(state % 16) as usize]),
        3 => NAMES[(state % 3) as usize].bytes().fold(state, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())),
        4 => COUNTER.fetch_add(state & 0xff, core::sync::atomic::Ordering::Relaxed),
        5 => shape(state, &Square(state), &Rectangle(state, op)),
        6 => (state as f64).sqrt().to_bits(),
        7 => state.count_ones().into(),
        _ => state.wrapping_sub(op),
    }
}

/// args: u64 out, u64 steps.
///
/// # Safety
/// `args` points at two words, the first of which is the address of a writable word.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rust_kernel(args: *const u64, tid: u64) {
    // SAFETY: the caller's promise.
    let (out, steps) = unsafe { (*args as *mut u64, *args.add(1)) };
    let value = (0..steps).fold(tid.wrapping_mul(0x9e37_79b9_7f4a_7c15), step);
    // SAFETY: the caller's promise.
    unsafe { *out = value };
}
