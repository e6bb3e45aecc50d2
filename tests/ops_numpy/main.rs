//! Every operator against references that numpy made (`tools/references`, `tests/data/ops`): values over dtypes,
//! shapes, limits and NaN, and gradients.

mod compare;
mod interpreter;
mod reader;
mod runs;
mod scalars;
mod tensors;

/// All groups of references.
const GROUPS: &[&str] = &[
    "unary", "binary", "casts", "reduce", "linear", "movement", "loss", "creation", "conv", "index", "order", "select",
    "dtypes", "names", "losses", "linalg",
];

#[test]
fn every_reference_can_be_read_and_names_are_unique() {
    let mut names = std::collections::HashSet::new();
    for group in GROUPS {
        let cases = reader::cases(group);
        assert!(!cases.is_empty(), "{group} has no cases");
        for case in cases {
            assert!(names.insert(case.name.clone()), "{} stands twice", case.name);
        }
    }
}

#[test]
fn every_reference_agrees_with_itself() {
    for group in GROUPS {
        for case in reader::cases(group) {
            for output in &case.outputs {
                assert_eq!(compare::compare(output, output, &case.tolerance), Ok(()), "{}", case.name);
            }
            assert!(case.params.is_object(), "{}: params", case.name);
            if let Some(grad) = &case.grad {
                assert_eq!(grad.of.shape, case.outputs[0].shape, "{}: the cotangent has the output's shape", case.name);
                assert_eq!(grad.inputs.len(), case.inputs.len(), "{}: one gradient, or none, an input", case.name);
            }
            for gradient in case.grad.iter().flat_map(|g| g.inputs.iter().flatten().map(move |a| (a, &g.tolerance))) {
                assert_eq!(compare::compare(gradient.0, gradient.0, gradient.1), Ok(()), "{}", case.name);
            }
        }
    }
}
