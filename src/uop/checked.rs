//! SPEC=2: every node that a rule makes is checked, and a fault is reported with the name of the rule.
//!
//! [`checked`] is put around a phase by whoever runs it; the rewrites of that phase, on its thread, ask once each whether they are
//! watched ([`Watch::now`]), so that nothing is paid when they are not. Passes that are no rules are not watched: what they
//! make is checked at the boundary (level 1).

use super::spec::{SpecLevel, Stage, verify_node};
use super::{Order, RewriteError, UOp};
use std::cell::{Cell, RefCell};

thread_local! {
    static WATCHED: Cell<Option<Watch>> = const { Cell::new(None) };
    /// The first fault found by a rewrite that cannot fail itself (`simplify`).
    static FAULT: RefCell<Option<RewriteError>> = const { RefCell::new(None) };
}

/// What nodes have to be in the present phase of this thread.
#[derive(Clone, Copy)]
pub(super) struct Watch(Stage);

impl Watch {
    /// `None`: nobody asked for checks.
    pub fn now() -> Option<Watch> {
        WATCHED.get()
    }

    /// Checks what `rule` made of `before`: the node and all below it that were made with it.
    pub fn made(self, rule: &'static str, before: &UOp, made: &UOp) -> Result<(), RewriteError> {
        // Nodes are numbered as they are made.
        let new = Order::many(std::slice::from_ref(made), |u| u.id() > before.id());
        let check = |u: &&UOp| verify_node(self.0, u);
        let fault = new.nodes().iter().filter(|u| u.id() > before.id()).map(check).find_map(Result::err);
        fault.map_or(Ok(()), |e| Err(RewriteError::Malformed { rule, error: e.to_string() }))
    }

    /// As [`Watch::made`]; [`checked`] reports the first fault when the phase ends.
    pub fn note(self, rule: &'static str, before: &UOp, made: &UOp) {
        if let Err(e) = self.made(rule, before, made) {
            FAULT.with_borrow_mut(|f| {
                f.get_or_insert(e);
            });
        }
    }
}

/// Puts back what was watched before, also when the phase panics.
struct Restore(Option<Watch>);

impl Drop for Restore {
    fn drop(&mut self) {
        WATCHED.set(self.0);
    }
}

/// Runs one phase. At [`SpecLevel::Nodes`] every node that a rule makes meanwhile on this thread has to pass the checks of `stage`.
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
    let outer = Restore(WATCHED.replace(Some(Watch(stage))));
    let result = phase();
    drop(outer);
    match FAULT.take() {
        // What the fault led to says less than the fault.
        Some(fault) => Err(fault.into()),
        None => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arg, AxisKind, DType, Op, Pat, PatternMatcher, Rule, spec};

    /// A kernel that stores `x * 2`, and a rule that forgets to convert what it puts in place of the product.
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
            if let Some(w) = Watch::now() {
                w.note("index-sum", &sink, &bad);
            }
            Ok::<_, RewriteError>(())
        });
        assert!(matches!(e, Err(RewriteError::Malformed { rule: "index-sum", .. })), "{e:?}");
        assert!(Watch::now().is_none(), "the phase has ended");
        assert_eq!(checked(SpecLevel::Nodes, Stage::Kernel, || Ok::<_, RewriteError>(())), Ok(()));
    }

    #[test]
    fn what_sound_rules_make_passes() {
        let (sink, _) = kernel_and_wrong_rule();
        let simple = checked(SpecLevel::Nodes, Stage::Kernel, || Ok::<_, RewriteError>(sink.simplify()));
        spec::verify(Stage::Kernel, &simple.unwrap()).unwrap();
    }
}
