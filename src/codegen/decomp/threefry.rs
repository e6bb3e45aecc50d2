//! Threefry-2x32 with 20 rounds, unrolled into 32-bit operations. The definition is `uop::threefry2x32`.

use super::float::ilit;
use doorbell_uop::{Op, Scalar, UOp};

const ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];

pub(crate) fn lower(u: &UOp) -> Option<UOp> {
    let (counter, key) = (&u.src()[0], &u.src()[1]);
    let (wide, t) = (u.dtype(), u.dtype().with_scalar(Scalar::U32));
    let low = |x: &UOp| x.cast(t);
    let high = |x: &UOp| x.binary(Op::Shr, &ilit(wide, 32)).cast(t);
    let (k0, k1) = (low(key), high(key));
    let k2 = &(&k0 ^ &k1) ^ &ilit(t, 0x1BD1_1BDA);
    let ks = [k0, k1, k2];
    let (mut x0, mut x1) = (&low(counter) + &ks[0], &high(counter) + &ks[1]);
    for group in 0..5usize {
        for r in ROTATIONS[group % 2] {
            x0 = &x0 + &x1;
            let left = x1.binary(Op::Shl, &ilit(t, r.into()));
            let right = x1.binary(Op::Shr, &ilit(t, (32 - r).into()));
            x1 = &(&left | &right) ^ &x0;
        }
        x0 = &x0 + &ks[(group + 1) % 3];
        x1 = &(&x1 + &ks[(group + 2) % 3]) + &ilit(t, group as i128 + 1);
    }
    Some(&x1.cast(wide).binary(Op::Shl, &ilit(wide, 32)) | &x0.cast(wide))
}
