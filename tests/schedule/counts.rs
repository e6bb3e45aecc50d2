//! Kernel counts, case by case, against what tinygrad schedules (n) and what its authors wish for (goal).
//! Inputs are realised; numbers are those of the research notes' table.

use crate::graphs::*;
use doorbell::uop::Op;

#[test]
fn reduce_doesnt_split() {
    let x = input(&[16, 16]);
    assert_eq!(count(&[reshape(&reshape(&sum(&x, &[1]), &[4, 4]), &[16])]), 1); // n 1
}
