//! Wait states between two instructions, as rows of docs/amd-isa.md 5.7: which instructions leave something open, and
//! how many states each later instruction needs in between. An instruction is one state, `s_nop n` is n + 1.

use super::super::Unit;
use super::CheckError;
use super::flow::{At, Bank, Code, Touch};

/// A row of the table.
pub(crate) struct Rule {
    name: &'static str,
    /// The registers that an instruction leaves open under this rule.
    first: fn(&At) -> Vec<Touch>,
    /// States that another instruction needs after the first; 0: none.
    then: fn(&At, &Touch, &At) -> u32,
    /// Only vector instructions count as states.
    vector_only: bool,
}

const fn rule(name: &'static str, first: fn(&At) -> Vec<Touch>, then: fn(&At, &Touch, &At) -> u32) -> Rule {
    Rule { name, first, then, vector_only: false }
}

/// More than any rule requires.
const FAR: u32 = 20;

/// gfx942.
pub(crate) const CDNA3: &[Rule] = &[
    rule("a vector instruction wrote the scalar that a memory access reads", vector_scalars, |_, t, n| {
        5 * u32::from(n.is_memory() && n.reads_any(t))
    }),
    rule("a vector instruction wrote the scalar that a vector one reads", vector_scalars, |_, t, n| match t.first {
        126.. => 0,
        _ => 2 * u32::from(n.is_vector() && n.reads_any(t)),
    }),
    rule("a vector instruction wrote VCC before v_div_fmas", vector_scalars, |_, t, n| {
        4 * u32::from(n.name.starts_with("v_div_fmas") && t.first < 108 && t.first + t.count > 106)
    }),
    rule("a vector instruction wrote the lane number", vector_scalars, |_, t, n| {
        let lane = n.reads.iter().any(|r| r.operand == Some(2) && r.overlaps(t));
        4 * u32::from(lane && matches!(n.name, "v_readlane_b32" | "v_writelane_b32"))
    }),
    rule("a vector instruction wrote EXEC", vector_scalars, |_, t, n| match t.first {
        126 if n.inst.mods.dpp.is_some() => 5,
        126 if n.unit == Unit::Matrix || n.name.contains("lane") && n.is_vector() => 4,
        _ => 0,
    }),
    rule("a vector result is read by a lane read", plain_results, |_, t, n| {
        u32::from(matches!(n.name, "v_readlane_b32" | "v_readfirstlane_b32") && n.reads_any(t))
    }),
    rule("a vector result is read through DPP", plain_results, |_, t, n| {
        2 * u32::from(n.inst.mods.dpp.is_some() && n.reads_any(t))
    }),
    rule("a vector result is read by a matrix instruction", plain_results, |_, t, n| {
        2 * u32::from(n.unit == Unit::Matrix && n.reads_any(t))
    }),
    rule(
        "a transcendental result is read",
        |a| if a.unit == Unit::Trans { results(a) } else { vec![] },
        |_, t, n| u32::from(matches!(n.unit, Unit::Valu | Unit::Matrix) && n.reads_any(t)),
    ),
    rule(
        "a register written in part is read",
        |a| if is_half(a) { results(a) } else { vec![] },
        |_, t, n| u32::from(n.is_vector() && n.reads_any(t)),
    ),
    rule(
        "a dot product's result meets another unit",
        |a| if is_dot(a) { results(a) } else { vec![] },
        |_, t, n| 3 * u32::from(n.is_vector() && !is_dot(n) && (n.reads_any(t) || n.writes_any(t))),
    ),
    rule("the data of a wide store is overwritten", wide_data, |_, t, n| {
        2 * u32::from(n.is_vector() && n.writes_any(t))
    }),
    rule(
        "M0 is used too early",
        |a| if a.unit == Unit::Salu { named(&a.writes, 124) } else { vec![] },
        |_, t, n| u32::from(!matches!(n.unit, Unit::Salu | Unit::Branch | Unit::Control) && n.reads_any(t)),
    ),
    rule(
        "the mode was written",
        |a| if a.name.starts_with("s_setreg") { vec![NOTHING] } else { vec![] },
        |_, _, n| 2 * u32::from(n.is_vector() || n.name.starts_with("s_getreg") || n.name.starts_with("s_setreg")),
    ),
    rule(
        "a matrix result is read or overwritten",
        |a| if a.unit == Unit::Matrix { results(a) } else { vec![] },
        matrix_result,
    ),
    rule("a matrix addend is overwritten", addend, |a, t, n| {
        let over = n.is_vector() && n.unit != Unit::Matrix && n.writes_any(t);
        if over { passes(a.name) - 1 } else { 0 }
    }),
];

/// gfx1100 and gfx1201.
pub(crate) const RDNA: &[Rule] = &[
    Rule {
        name: "a matrix instruction reads the result of the one before as A or B",
        first: |a| if a.unit == Unit::Matrix { results(a) } else { vec![] },
        then: |_, t, n| {
            let sources = n.reads.iter().filter(|r| matches!(r.operand, Some(1 | 2)));
            u32::from(n.unit == Unit::Matrix && sources.into_iter().any(|r| r.overlaps(t)))
        },
        vector_only: true,
    },
    Rule {
        name: "v_cmpx before v_permlane",
        first: |a| if a.name.starts_with("v_cmpx") { vec![NOTHING] } else { vec![] },
        then: |_, _, n| u32::from(n.name.starts_with("v_permlane")),
        vector_only: true,
    },
];

const NOTHING: Touch = Touch { bank: Bank::Scalar, first: 0, count: 0, operand: None };

pub(super) fn check(code: &Code, rules: &[Rule]) -> Result<(), CheckError> {
    for (k, first) in code.all.iter().enumerate() {
        for rule in rules {
            for open in (rule.first)(first) {
                follow(code, rule, k, &open)?;
            }
        }
    }
    Ok(())
}

fn follow(code: &Code, rule: &Rule, k: usize, open: &Touch) -> Result<(), CheckError> {
    let first = &code.all[k];
    code.walk(k, 0, |n, next, have| {
        let want = (rule.then)(first, open, next);
        if have < want {
            return Err(CheckError::TooEarly {
                offset: next.offset,
                text: code.text(n),
                rule: rule.name,
                first: first.offset,
                first_text: code.text(k),
                have,
                want,
            });
        }
        let states = match (rule.vector_only, next.name) {
            (true, _) => u32::from(next.is_vector()),
            (false, "s_nop") => (next.immediate() & 15) + 1,
            _ => 1,
        };
        let most = if rule.vector_only { 1 } else { FAR };
        Ok(Some(have + states).filter(|s| *s < most))
    })
}

/// gfx1100: six vector or two transcendental instructions, or a wait for the vector unit, before a transcendental
/// result is read on the vector unit.
pub(super) fn transcendental(code: &Code) -> Result<(), CheckError> {
    for (k, first) in code.all.iter().enumerate().filter(|(_, a)| a.unit == Unit::Trans) {
        for t in results(first) {
            code.walk(k, (0u32, 0u32), |n, next, (vector, trans)| {
                let waits = next.name == "s_waitcnt_depctr" && next.immediate() >> 12 == 0;
                if waits || vector >= 6 || trans >= 2 {
                    return Ok(None);
                }
                if !next.is_vector() {
                    return Ok(Some((vector, trans)));
                }
                if next.reads_any(&t) {
                    return Err(CheckError::TooEarly {
                        offset: next.offset,
                        text: code.text(n),
                        rule: "a vector instruction reads a transcendental result",
                        first: first.offset,
                        first_text: code.text(k),
                        have: vector,
                        want: 6,
                    });
                }
                let replaced = next.writes.iter().any(|w| w.same_registers(&t));
                Ok((!replaced).then_some((vector + 1, trans + u32::from(next.unit == Unit::Trans))))
            })?;
        }
    }
    Ok(())
}

fn results(a: &At) -> Vec<Touch> {
    a.writes.iter().filter(|t| t.bank != Bank::Scalar).copied().collect()
}

/// Results of vector instructions that are neither matrix ones nor dot products.
fn plain_results(a: &At) -> Vec<Touch> {
    if matches!(a.unit, Unit::Valu | Unit::Trans) && !is_dot(a) { results(a) } else { vec![] }
}

fn vector_scalars(a: &At) -> Vec<Touch> {
    if !a.is_vector() {
        return vec![];
    }
    a.writes.iter().filter(|t| t.bank == Bank::Scalar).copied().collect()
}

fn named(list: &[Touch], code: u16) -> Vec<Touch> {
    list.iter().filter(|t| t.bank == Bank::Scalar && t.first == code).copied().collect()
}

fn is_dot(a: &At) -> bool {
    a.name.starts_with("v_dot")
}

fn is_half(a: &At) -> bool {
    a.unit == Unit::Valu && a.inst.mods.op_sel & 8 != 0
}

fn wide_data(a: &At) -> Vec<Touch> {
    let data = |t: &&Touch| t.bank != Bank::Scalar && t.count > 2;
    if a.is_memory() { a.reads.iter().filter(data).copied().collect() } else { vec![] }
}

/// The operand that a matrix instruction adds to.
fn addend(a: &At) -> Vec<Touch> {
    let which = if a.name.starts_with("v_smfmac") { 0 } else { 3 };
    let is = |t: &&Touch| a.unit == Unit::Matrix && t.operand == Some(which) && t.bank != Bank::Scalar;
    a.reads.iter().filter(is).copied().collect()
}

fn matrix_result(first: &At, t: &Touch, next: &At) -> u32 {
    let n = passes(first.name);
    let double = first.name.contains("_f64");
    let exact = first.name.ends_with("_f32"); // f32 arithmetic; a result in f32 of halves ends otherwise
    let others = match (double, n) {
        (true, 8) => 11,
        (true, _) => 6,
        (false, n) => n + 3 - u32::from(exact),
    };
    let mut want = 0;
    for r in next.reads.iter().filter(|r| r.overlaps(t)) {
        let as_c = addend(next).contains(r);
        want = want.max(match (as_c, r.same_registers(t), double) {
            (true, true, false) => {
                if n == 2 {
                    2
                } else {
                    0
                }
            }
            (true, true, true) => {
                if n == 4 {
                    4
                } else {
                    0
                }
            }
            (true, false, true) => {
                if n == 8 {
                    9
                } else {
                    4
                }
            }
            (true, false, false) => n + 1 - u32::from(exact),
            (false, _, true) if !next.is_vector() => {
                if n == 8 {
                    18
                } else {
                    9
                }
            }
            (false, ..) => others,
        });
    }
    let over = next.is_vector() && next.unit != Unit::Matrix && next.writes_any(t);
    if over { want.max(others) } else { want }
}

/// A quarter of the cycles that a matrix instruction takes, from its shape: `..._MxNxK..` and the number of blocks.
fn passes(name: &str) -> u32 {
    let shape = name.split('_').find(|part| part.contains('x') && part.starts_with(|c: char| c.is_ascii_digit()));
    let mut sides = shape.unwrap_or("16x16x16").split('x').map(|n| n.parse().unwrap_or(16));
    let (m, k): (u32, u32) = (sides.next().unwrap_or(16), sides.nth(1).unwrap_or(16));
    let double = name.contains("_f64");
    match (m, double) {
        (4, true) => 4,
        (_, true) => 8,
        (4, false) => 2,
        (16, false) if name.contains("_4b_") => 8,
        (16, false) if name.ends_with("x4_f32") => 8,
        (16, false) => 4,
        (_, false) if name.contains("_2b_") || k == 2 => 16,
        (_, false) => 8,
    }
}
