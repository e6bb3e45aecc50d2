//! A compiled program, run by the interpreter of linear programs, against the kernel graph it was made of.

use doorbell::codegen::{self, CodegenError, OptChoice, Target, check};
use doorbell::engine::interp::{Vars, run_kernel, run_program};
use doorbell::uop::{Arg, Scalar, UOp, from_bits, to_bits};

/// Buffers of the kernel's parameters with small values that most sums keep exact.
pub fn buffers(ast: &UOp, seed: u64) -> Vec<Vec<u8>> {
    let mut out: Vec<Vec<u8>> = vec![];
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for u in ast.toposort() {
        let Arg::Param(slot, len) = *u.arg() else { continue };
        let slot = slot as usize;
        if out.len() <= slot {
            out.resize(slot + 1, vec![]);
        }
        let t = u.dtype().scalar;
        out[slot] = (0..len)
            .flat_map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let v = (state >> 33) as i64 % 9 - if t.is_unsigned() { 0 } else { 4 };
                to_bits(doorbell::uop::cast_const(v.into(), t), t).to_le_bytes().into_iter().take(t.size_bytes())
            })
            .collect();
    }
    out
}

pub fn same(t: Scalar, a: &[u8], b: &[u8]) -> Result<(), String> {
    let n = t.size_bytes();
    for (k, (x, y)) in a.chunks(n).zip(b.chunks(n)).enumerate() {
        let read = |c: &[u8]| {
            let mut w = [0u8; 8];
            w[..n].copy_from_slice(c);
            from_bits(u64::from_le_bytes(w), t).as_f64()
        };
        let (x, y) = (read(x), read(y));
        if x != y && !(x.is_nan() && y.is_nan()) && (x - y).abs() > 1e-5 * x.abs().max(y.abs()).max(1.0) {
            return Err(format!("element {k}: {x} and {y}"));
        }
    }
    Ok(())
}

pub fn dtype_of(ast: &UOp, slot: u32) -> Scalar {
    let found = ast.toposort().into_iter().find(|u| matches!(u.arg(), Arg::Param(s, _) if *s == slot));
    found.map_or(Scalar::U8, |u| u.dtype().scalar)
}

pub fn vars(ast: &UOp, value: i64) -> Vars {
    let names = ast.toposort().into_iter().filter_map(|u| match u.arg() {
        Arg::Var(n, lo, hi) => Some((n.to_string(), value.clamp(*lo, *hi))),
        _ => None,
    });
    names.collect()
}

/// Compiles and compares; `Ok(false)`: the opts do not apply.
pub fn agrees(ast: &UOp, target: &Target, choice: &OptChoice) -> Result<bool, String> {
    let p = match codegen::compile(ast, target, choice, false) {
        Ok(p) => p,
        Err(CodegenError::Opt { .. } | CodegenError::NoLanes(_) | CodegenError::TwoVectorAxes(_))
            if matches!(choice, OptChoice::Given(_)) =>
        {
            return Ok(false);
        }
        Err(e) => return Err(format!("{choice:?}: {e}\n{ast}")),
    };
    check::verify(&p.uops)?;
    for (seed, value) in [(1, 5), (2, i64::MAX)] {
        let mut want = buffers(ast, seed);
        let mut got = want.clone();
        let vars = vars(ast, value);
        run_kernel(ast, &mut want, &vars).map_err(|e| format!("kernel graph: {e}"))?;
        run_program(&p, &mut got, &vars).map_err(|e| format!("{choice:?} {}: {e}\n{}", p.name, text(&p.uops)))?;
        for (slot, (a, b)) in want.iter().zip(&got).enumerate() {
            same(dtype_of(ast, slot as u32), a, b)
                .map_err(|e| format!("{choice:?} {} slot {slot}: {e}\n{}", p.name, text(&p.uops)))?;
        }
    }
    Ok(true)
}

pub fn text(list: &[UOp]) -> String {
    let mut out = String::new();
    for (k, u) in list.iter().enumerate() {
        let src: Vec<String> =
            u.src().iter().map(|s| list.iter().position(|x| x == s).map_or("?".into(), |p| p.to_string())).collect();
        out += &format!("{k:4} {:?} {} {:?} [{}]\n", u.op(), u.dtype(), u.arg(), src.join(", "));
    }
    out
}
