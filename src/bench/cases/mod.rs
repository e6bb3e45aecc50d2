//! The table of cases: one file a family, one entry a case. To add a case, add its entry to the list of its family; to
//! add a family, its file and its line in [`ALL`].

pub(crate) mod arithmetic;
pub(crate) mod compile;
pub(crate) mod copies;
pub(crate) mod inputs;
pub(crate) mod latency;
pub(crate) mod launch;
pub(crate) mod matrix;
pub(crate) mod memory;
pub(crate) mod product;
pub(crate) mod program;

use crate::case::Case;

/// All families, in the order in which they run.
pub const ALL: &[&[Case]] = &[
    launch::CASES,
    arithmetic::CASES,
    matrix::CASES,
    memory::CASES,
    latency::CASES,
    copies::CASES,
    product::CASES,
    program::CASES,
    compile::CASES,
];

/// The case of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Case> {
    ALL.iter().flat_map(|family| family.iter()).find(|case| case.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_family_and_case_and_each_stands_once() {
        let mut seen = HashSet::new();
        for family in ALL {
            for case in *family {
                assert!(seen.insert(case.name), "{} stands twice", case.name);
                assert_eq!(case.family(), family[0].family(), "{} is in the file of another family", case.name);
                assert!(case.name.split('/').count() == 2 && !case.about.is_empty(), "{}", case.name);
            }
        }
    }
}
