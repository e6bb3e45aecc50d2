//! Compiled kernel graphs under opts, run as the grids that codegen makes of them for each chip.

use super::machine::{check_on, chips};
use crate::codegen_agree::{buffers, vars};
use crate::codegen_kernels::kernels;
use doorbell::codegen::{self, OptChoice};
use doorbell::isa::amdgpu::Amdgpu;
use doorbell::uop::Arg;

#[test]
fn kernels_agree_with_the_interpreter_under_heuristic_and_no_opts() {
    assert!(!chips().is_empty());
    for chip in chips() {
        let isa = Amdgpu::new(chip);
        for (name, ast) in kernels() {
            for choice in [OptChoice::None, OptChoice::Heuristic] {
                let p = codegen::compile(&ast, isa.target(), &choice, false).unwrap_or_else(|e| panic!("{name}: {e}"));
                for value in [5, i64::MAX] {
                    let named = vars(&ast, value);
                    let list: Vec<(&str, i64)> = named.iter().map(|(n, v)| (n.as_str(), *v)).collect();
                    check_on(&[chip], &p, &[buffers(&ast, 1), buffers(&ast, 2)], &list, 1e-5);
                }
                assert!(p.uops.iter().all(|u| !matches!(u.arg(), Arg::Str(s) if s.as_ref() == "tid")));
            }
        }
    }
}
