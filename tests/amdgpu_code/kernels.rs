//! Compiled kernel graphs under opts, run as the grids that codegen makes of them for each chip.

use super::machine::{check_on, chips, execute_by, listing};
use crate::codegen_agree::{buffers, vars};
use crate::codegen_kernels::kernels;
use doorbell::codegen::{self, OptChoice};
use doorbell::emu::amdgpu::{HotCode, Strict};
use doorbell::engine::software::translation;
use doorbell::isa::amdgpu::{Amdgpu, Target, compile};
use doorbell::uop::{Arg, UOp};

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

/// Launches of each kernel: what is executed often is translated after some of them.
const LAUNCHES: usize = 26;

#[test]
fn kernels_without_checks_leave_the_same_bytes_translated_as_interpreted() {
    let mut instructions = 0;
    for chip in chips() {
        let isa = Amdgpu::new(chip);
        for (name, ast) in kernels() {
            let p = codegen::compile(&ast, isa.target(), &OptChoice::Heuristic, false).unwrap();
            let code = compile(&p, Target::of(chip)).unwrap_or_else(|e| panic!("{name} on {}: {e}", chip.name()));
            let named = vars(&ast, 5);
            let value = |v: &UOp| if let Arg::Var(n, ..) = v.arg() { named[&**n] } else { 0 };
            let values: Vec<i64> = p.vars.iter().map(value).collect();
            let hot = HotCode::new(translation());
            for launch in 0..LAUNCHES {
                let input = buffers(&ast, 3 + launch as u64);
                let (mut want, mut got) = (input.clone(), input);
                let interpreted = execute_by(Strict::off(), &HotCode::default(), &code, &p, &mut want, &values);
                let translated = execute_by(Strict::off(), &hot, &code, &p, &mut got, &values);
                assert_eq!(interpreted, translated, "{name} on {}", chip.name());
                assert!(want == got, "{name} on {}, launch {launch}\n{}", chip.name(), listing(&code));
                instructions += translated.map_or(0, |stats| stats.instructions);
            }
        }
    }
    assert!(instructions > 0);
}
