//! SPEC=2: every node that a rule makes is checked, and a violation is reported with the name of the rule.
//!
//! The caller wraps a phase in [`checked`]; meanwhile the driver reports every rule that it applies on that thread (see
//! `observe`). Passes that are not rules are not observed: their output is checked at the boundary (level 1).

use super::observe::{Observed, Observers};
use super::spec::{SpecLevel, Stage, verify_node};
use super::{Order, RewriteError, UOp};
use std::cell::RefCell;

thread_local! {
    /// The first violation found by a rewrite that cannot fail itself (`simplify`).
    static FAULT: RefCell<Option<RewriteError>> = const { RefCell::new(None) };
}

/// Checks what `rule` made of `before`: the node, and all new nodes below it.
#[cold]
pub(super) fn made(stage: Stage, rule: &'static str, before: &UOp, made: &UOp) -> Result<(), RewriteError> {
    // Ids increase in the order of construction.
    let new = Order::many(std::slice::from_ref(made), |u| u.id() > before.id());
    let check = |u: &&UOp| verify_node(stage, u);
    let fault = new.nodes().iter().filter(|u| u.id() > before.id()).map(check).find_map(Result::err);
    fault.map_or(Ok(()), |e| Err(RewriteError::Malformed { rule, error: e.to_string() }))
}

/// Stores a violation until the phase ends; the first one counts.
pub(super) fn note(fault: RewriteError) {
    FAULT.with_borrow_mut(|f| {
        f.get_or_insert(fault);
    });
}

/// Runs one phase. At [`SpecLevel::Nodes`] every node that a rule makes meanwhile on this thread has to pass the checks
/// of `stage`.
///
/// # Errors
/// What `phase` fails with; the first node that did not pass, with its rule.
pub fn checked<T, E: From<RewriteError>>(
    level: SpecLevel,
    stage: Stage,
    phase: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    if level < SpecLevel::Nodes {
        return phase();
    }
    let observed = Observed::by(Observers { stage: Some(stage), ..Observers::now() });
    let result = phase();
    drop(observed);
    match FAULT.take() {
        // The violation explains more than the error that it led to.
        Some(fault) => Err(fault.into()),
        None => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arg, AxisKind, DType, Op, Pat, PatternMatcher, Rule, spec};

    /// A kernel that stores `x * 2`, and a rule that forgets to convert the replacement of the product.
    fn kernel_and_wrong_rule() -> (UOp, PatternMatcher) {
        let r = UOp::range(8, 0, AxisKind::Loop);
        let x = UOp::param(1, DType::F32, 8).index(&r).load();
        let sink = UOp::sink([UOp::param(0, DType::F32, 8).index(&r).store(&(&x * 2), &[r])]);
        let wrong = Rule::new("forgets-the-cast", Pat::op(Op::Mul).any_order([Pat::var("x"), Pat::cvar("c")]), |m| {
            Some(UOp::new(Op::Add, DType::F32, [m["x"].clone(), UOp::constant(DType::F64, 1.0)], Arg::None))
        });
        (sink, PatternMatcher::new([wrong]))
    }

    #[test]
    fn a_wrong_rule_is_named_at_level_2_and_found_at_the_boundary_at_level_1() {
        let (sink, rules) = kernel_and_wrong_rule();
        let run = |level| checked(level, Stage::Kernel, || sink.simplify_with(&rules));
        let e = run(SpecLevel::Nodes).unwrap_err();
        assert!(matches!(e, RewriteError::Malformed { rule: "forgets-the-cast", .. }), "{e}");
        assert!(e.to_string().contains("operands of different types"), "{e}");
        let passed = run(SpecLevel::Boundaries).unwrap();
        assert_eq!(spec::verify(Stage::Kernel, &passed).unwrap_err().rule, "operands of different types");
    }

    #[test]
    fn a_fault_of_a_rewrite_that_cannot_fail_is_reported_when_the_phase_ends() {
        let (sink, _) = kernel_and_wrong_rule();
        let bad = UOp::new(Op::Add, DType::F32, [sink.src()[0].src()[1].clone(), UOp::int(1)], Arg::None);
        let e = checked(SpecLevel::Nodes, Stage::Kernel, || {
            if let Some(stage) = Observers::now().stage {
                made(stage, "index-sum", &sink, &bad).unwrap_or_else(note);
            }
            Ok::<_, RewriteError>(())
        });
        assert!(matches!(e, Err(RewriteError::Malformed { rule: "index-sum", .. })), "{e:?}");
        assert!(Observers::now().stage.is_none(), "the phase has ended");
        assert_eq!(checked(SpecLevel::Nodes, Stage::Kernel, || Ok::<_, RewriteError>(())), Ok(()));
    }

    #[test]
    fn what_sound_rules_make_passes() {
        let (sink, _) = kernel_and_wrong_rule();
        let simple = checked(SpecLevel::Nodes, Stage::Kernel, || Ok::<_, RewriteError>(sink.simplify()));
        spec::verify(Stage::Kernel, &simple.unwrap()).unwrap();
    }
}
