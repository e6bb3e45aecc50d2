//! The policy for code that runs out of registers: it is compiled again with other choices, each of which costs some
//! speed.
//!
//! There are two lists of attempts. Each is tried in order; [`Attempt::is_due`] decides whether an attempt is made:
//!
//! * [`Attempt::BODIES`] compile the whole body in different ways. Each is selected, arranged and allocated.
//! * [`Attempt::REGISTERS`] follow the allocation of each of those: the same body selected again, in an order that
//!   needs fewer registers at once.
//!
//! | attempt   | when                                    | gives up                            | is taken if        |
//! |-----------|-----------------------------------------|-------------------------------------|--------------------|
//! | `Full`    | always, first                           | nothing                             | no other is better |
//! | `OnTime`  | loads an iteration ahead cost blocks    | loads an iteration ahead            | more blocks fit    |
//! | `OnePool` | code needs more than `setmaxnreg` gave  | `setmaxnreg`                        | always             |
//! | `Rolled`  | unrolled loops spill                    | unrolling, all moves of code        | fewer spills       |
//! | `Apart`   | spills, or no registers for shared code | one copy of code for all places     | fewer spills       |
//! | `Hoisted` | values are spilled                      | loop-invariant code motion, sinking | fewer spills       |
//! | `InPlace` | values are still spilled                | also early loads                    | fewer spills       |
//! | `Serial`  | wgmma instructions lack registers       | overlapping wgmma instructions      | always             |
//!
//! Code with calls must spill the values that are live over a call, so its spills are no reason for another attempt.

use super::allocate::place::AllocatedCode;
use super::allocate::pool;
use super::arrange::flight;
use super::context::Unit;
use super::lower::link::Routine;
use super::read::directives::resident;
use super::select::Selected;
use super::{AsmError, Phase, blame, passes};

/// How wgmma instructions, which run asynchronously, are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Multiplies {
    /// As in the text; their registers are not reserved.
    AsWritten,
    /// Their registers are reserved until they are waited for.
    Held,
    /// Each is waited for immediately.
    Serial,
}

/// Optimisations of the order of code on virtual registers. Each costs registers and makes code faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choices {
    /// Loop-invariant code motion.
    pub invariants: bool,
    /// Loads are issued one iteration ahead.
    pub loads_ahead: bool,
    /// Addresses are computed just before their first use. That saves registers, unless something else keeps their
    /// sources live.
    pub sinks: bool,
    /// Loads are issued before code waits for earlier ones.
    pub hoists: bool,
    /// Places that need the same long code call one copy of it, which needs registers that are free at all of them.
    pub shares: bool,
    pub multiplies: Multiplies,
}

/// One way to compile a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    Full,
    OnTime,
    OnePool,
    Rolled,
    Apart,
    Hoisted,
    InPlace,
    Serial,
}

/// The result of an attempt, as far as the policy depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Outcome {
    /// There is code.
    pub allocated: bool,
    /// Values that are spilled to the frame.
    pub spills: usize,
    /// The code contains calls.
    pub calls: bool,
    /// Several places call one copy of the code that they need.
    pub shared: bool,
    /// It has wgmma instructions, and their registers are written while they run, or there are too few registers for
    /// them.
    pub disturbed: bool,
    /// The body has unrolled loops.
    pub unrolled: bool,
    /// With `setmaxnreg`: whether the code stays within the registers that it has at each point.
    pub pool: Option<bool>,
    /// Resident blocks of a multiprocessor, and the number without loads one iteration ahead.
    pub resident: u64,
    pub resident_on_time: u64,
}

impl Attempt {
    /// Attempts for the whole body, in order. The first is always made.
    const BODIES: [Attempt; 4] = [Attempt::Full, Attempt::OnTime, Attempt::OnePool, Attempt::Rolled];
    /// Attempts for one body whose registers do not suffice, in order.
    pub(super) const REGISTERS: [Attempt; 4] = [Attempt::Apart, Attempt::Hoisted, Attempt::InPlace, Attempt::Serial];

    /// The optimisations that it applies.
    pub(super) const fn choices(self) -> Choices {
        let none = Choices {
            invariants: false,
            loads_ahead: false,
            sinks: false,
            hoists: false,
            shares: false,
            multiplies: Multiplies::AsWritten,
        };
        let held = Choices { multiplies: Multiplies::Held, ..none };
        match self {
            Attempt::Full => {
                Choices { invariants: true, loads_ahead: true, sinks: true, hoists: true, shares: true, ..held }
            }
            Attempt::OnTime => Choices { loads_ahead: false, ..Attempt::Full.choices() },
            Attempt::Apart => Choices { shares: false, ..Attempt::Full.choices() },
            Attempt::OnePool => Choices { shares: true, ..held },
            Attempt::InPlace => held,
            Attempt::Rolled => Choices { shares: true, ..none },
            Attempt::Hoisted => Choices { hoists: true, ..held },
            Attempt::Serial => Choices { multiplies: Multiplies::Serial, ..none },
        }
    }

    /// Whether it should be tried, given the best attempt so far.
    const fn is_due(self, best: &Outcome) -> bool {
        let spills = best.allocated && best.spills > 0 && !best.calls;
        match self {
            Attempt::Full => true,
            Attempt::OnTime => best.pool.is_none() && best.resident < best.resident_on_time,
            Attempt::OnePool => matches!(best.pool, Some(false)),
            Attempt::Rolled => spills && best.unrolled && best.pool.is_none(),
            Attempt::Apart => best.shared && (spills || !best.allocated),
            Attempt::Hoisted | Attempt::InPlace => spills,
            Attempt::Serial => best.disturbed,
        }
    }

    /// Whether its code is better than the best so far.
    const fn is_better(self, new: &Outcome, best: &Outcome) -> bool {
        match self {
            Attempt::Full | Attempt::OnePool | Attempt::Serial => true,
            Attempt::OnTime => new.resident > best.resident,
            Attempt::Apart => !best.allocated || new.spills < best.spills,
            Attempt::Rolled | Attempt::Hoisted | Attempt::InPlace => new.spills < best.spills,
        }
    }

    /// Changes the body for this attempt. The change is never undone: later attempts need it too.
    fn prepare(self, unit: &mut Unit) {
        match self {
            Attempt::OnePool => unit.body.pool = None,
            Attempt::Rolled => {
                if let Some(rolled) = unit.rolled.take() {
                    rolled.restore(&mut unit.body);
                    unit.facts = passes::facts(&mut unit.body, unit.ctx.store);
                }
            }
            _ => {}
        }
    }
}

/// The best code of a body according to the policy, with its registers.
///
/// # Errors
/// Something has no machine code, or more registers are needed than there are.
pub(super) fn registers_for(unit: &mut Unit) -> Result<Routine, AsmError> {
    let mut first = passes::select(unit, Attempt::Full.choices())?;
    (unit.ctx.done)(Phase::Select);
    if unit.ctx.blame {
        blame::known_on_chip(unit, &first.code)?;
    }
    let ahead = passes::arrange(&mut first, Attempt::Full.choices());
    let mut best = allocated(&mut first, unit)?;
    for attempt in Attempt::BODIES.into_iter().skip(1) {
        let before = of_body(unit, &best, ahead, &first);
        if attempt.is_due(&before) {
            attempt.prepare(unit);
            let mut again = passes::select(unit, attempt.choices())?;
            passes::arrange(&mut again, attempt.choices());
            let new = allocated(&mut again, unit)?;
            if attempt.is_better(&of_body(unit, &new, 0, &again), &before) {
                best = new;
            }
        }
    }
    let start = unit.body.pool.map(|_| u32::from(unit.registers) + 2);
    Ok(Routine {
        pos: unit.pos,
        placed: best,
        calls: first.calls,
        barriers: first.barriers,
        source_instructions: unit.source_instructions,
        start,
    })
}

/// Allocates registers for selected code, or for the same body selected again if that is better.
fn allocated(first: &mut Selected, unit: &Unit) -> Result<AllocatedCode, AsmError> {
    let mut best = passes::allocate(first, unit);
    let mut before = of_registers(&best, first);
    for attempt in Attempt::REGISTERS {
        if attempt.is_due(&before) {
            let mut again = passes::select(unit, attempt.choices())?;
            passes::arrange(&mut again, attempt.choices());
            let new = passes::allocate(&mut again, unit);
            if new.is_err() && best.is_ok() {
                continue;
            }
            let after = of_registers(&new, first);
            if attempt.is_better(&after, &before) {
                (best, before) = (new, after);
            }
        }
    }
    best
}

/// The outcome of register allocation.
fn of_registers(placed: &Result<AllocatedCode, AsmError>, selected: &Selected) -> Outcome {
    let (calls, shared) = (!selected.calls.is_empty(), !selected.beside.is_empty());
    match placed {
        Ok(p) => {
            let disturbed = p.multiplies && !flight::is_undisturbed(&p.lines);
            Outcome { allocated: true, spills: p.spills, calls, shared, disturbed, ..Outcome::default() }
        }
        Err(_) => Outcome { calls, shared, disturbed: flight::multiplies(&selected.code), ..Outcome::default() },
    }
}

/// The outcome of a whole attempt whose loops take `ahead` additional registers for loads one iteration ahead.
fn of_body(unit: &Unit, placed: &AllocatedCode, ahead: u32, selected: &Selected) -> Outcome {
    let pool = unit.body.pool.map(|_| pool::keeps_within(&placed.lines, unit.registers + 2));
    Outcome {
        allocated: true,
        spills: placed.spills,
        calls: !selected.calls.is_empty(),
        shared: !selected.beside.is_empty(),
        disturbed: false,
        unrolled: unit.rolled.is_some(),
        pool,
        resident: resident(unit.block_warps, placed.registers),
        resident_on_time: resident(unit.block_warps, placed.registers.saturating_sub(ahead)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Outcome = Outcome {
        allocated: true,
        spills: 0,
        calls: false,
        shared: false,
        disturbed: false,
        unrolled: true,
        pool: None,
        resident: 8,
        resident_on_time: 8,
    };

    /// The attempts that would follow an outcome, of all but the first.
    fn due(after: Outcome) -> Vec<Attempt> {
        let all = Attempt::BODIES.into_iter().skip(1).chain(Attempt::REGISTERS);
        all.filter(|a| a.is_due(&after)).collect()
    }

    #[test]
    fn good_code_is_compiled_once() {
        assert_eq!(due(GOOD), []);
        assert_eq!(due(Outcome { pool: Some(true), ..GOOD }), []);
    }

    #[test]
    fn each_shortage_has_its_attempts() {
        use Attempt::*;
        assert_eq!(due(Outcome { spills: 1, ..GOOD }), [Rolled, Hoisted, InPlace]);
        assert_eq!(due(Outcome { spills: 1, unrolled: false, ..GOOD }), [Hoisted, InPlace]);
        assert_eq!(due(Outcome { spills: 1, calls: true, ..GOOD }), []);
        assert_eq!(due(Outcome { resident: 7, ..GOOD }), [OnTime]);
        assert_eq!(due(Outcome { pool: Some(false), ..GOOD }), [OnePool]);
        assert_eq!(due(Outcome { disturbed: true, ..GOOD }), [Serial]);
        assert_eq!(due(Outcome { allocated: false, disturbed: true, ..GOOD }), [Serial]);
        assert_eq!(due(Outcome { allocated: false, ..GOOD }), []);
        assert_eq!(due(Outcome { shared: true, ..GOOD }), []);
        assert_eq!(due(Outcome { allocated: false, shared: true, ..GOOD }), [Apart]);
        assert_eq!(due(Outcome { spills: 1, shared: true, ..GOOD }), [Rolled, Apart, Hoisted, InPlace]);
    }

    #[test]
    fn an_attempt_that_gives_up_speed_for_nothing_is_not_taken() {
        let spills = |spills| Outcome { spills, ..GOOD };
        for a in [Attempt::Rolled, Attempt::Apart, Attempt::Hoisted, Attempt::InPlace] {
            assert!(a.is_better(&spills(1), &spills(2)) && !a.is_better(&spills(2), &spills(2)), "{a:?}");
        }
        let blocks = |resident| Outcome { resident, ..GOOD };
        assert!(
            Attempt::OnTime.is_better(&blocks(3), &blocks(2)) && !Attempt::OnTime.is_better(&blocks(2), &blocks(2))
        );
    }

    #[test]
    fn later_attempts_do_no_more_than_the_first() {
        let count = |a: Attempt| {
            let c = a.choices();
            [c.invariants, c.loads_ahead, c.sinks, c.hoists, c.shares].into_iter().filter(|on| *on).count()
        };
        assert_eq!(Attempt::BODIES.map(count), [5, 4, 1, 1]);
        assert_eq!(Attempt::REGISTERS.map(count), [4, 1, 0, 0]);
        assert_eq!(Attempt::Full.choices().multiplies, Multiplies::Held);
        assert_eq!(Attempt::Serial.choices().multiplies, Multiplies::Serial);
    }
}
