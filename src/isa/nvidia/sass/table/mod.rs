//! The table: forms of all chips, their fields, the values of those and what contradicts each other, a name for each
//! form and for each value of a modifier.

#[rustfmt::skip]
#[allow(unreachable_pub, reason = "generated")]
mod fields;
#[rustfmt::skip]
#[allow(unreachable_pub, reason = "generated")]
mod legal;
#[rustfmt::skip]
#[allow(unreachable_pub, reason = "generated")]
mod lists;
#[rustfmt::skip]
pub mod mods;
#[rustfmt::skip]
pub mod op;
#[rustfmt::skip]
mod rows;

pub(super) use rows::FORMS;

#[cfg(test)]
mod tests {
    use super::super::row::{Kind, Role};
    use super::{FORMS, mods};

    #[test]
    fn names_of_modifiers_are_those_of_the_table() {
        let mut texts: Vec<(&str, &str)> = vec![];
        for field in FORMS.iter().flat_map(|f| f.fields).filter(|f| f.role == Role::Value) {
            if let Kind::List(list) = field.kind {
                texts.extend(list.iter().map(|n| (field.slot, n.text)));
            }
        }
        texts.sort_unstable();
        texts.dedup();
        let named = mods::EVERY.iter().flat_map(|m| m.iter());
        let mut names: Vec<(String, &str)> = named.map(|m| (m.slot(), m.text())).collect();
        names.sort_unstable();
        assert_eq!(names, texts.into_iter().map(|(slot, text)| (slot.to_owned(), text)).collect::<Vec<_>>());
    }
}
