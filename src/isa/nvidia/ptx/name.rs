//! Names in a module: registers, labels, variables, words of instructions. Short strings are stored inline, so parsing
//! does not allocate for nearly any name.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// Maximum length of a name that is stored inline.
const SHORT: usize = 22;

/// A name: a string that is cheap to make and to copy.
#[derive(Clone)]
pub struct Name(Text);

#[derive(Clone)]
enum Text {
    /// Length and bytes of a valid string.
    Short(u8, [u8; SHORT]),
    /// A word of the language.
    Known(&'static str),
    Long(Arc<str>),
}

impl Name {
    /// A word of the language as a name.
    pub(super) const fn known(word: &'static str) -> Name {
        Name(Text::Known(word))
    }

    /// The name as a string.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Text::Short(..) => std::str::from_utf8(self.as_bytes()).unwrap_or_default(),
            Text::Known(text) => text,
            Text::Long(text) => text,
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Text::Short(len, bytes) => bytes.get(..usize::from(*len)).unwrap_or_default(),
            Text::Known(text) => text.as_bytes(),
            Text::Long(text) => text.as_bytes(),
        }
    }
}

impl From<&str> for Name {
    #[inline]
    fn from(text: &str) -> Name {
        if text.len() > SHORT {
            return Name(Text::Long(text.into()));
        }
        let mut bytes = [0; SHORT];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        #[allow(clippy::cast_possible_truncation)] // at most 22
        Name(Text::Short(text.len() as u8, bytes))
    }
}

impl From<String> for Name {
    fn from(text: String) -> Name {
        Name::from(text.as_str())
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        self
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        self
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Name) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Name) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_length_are_their_strings() {
        for text in ["", "%r12", "ctaid", "exactly_22_bytes_here_", "a name of more than twenty-two bytes", "größer"]
        {
            let name = Name::from(text);
            assert_eq!((&*name, name.to_string()), (text, text.to_owned()));
            assert_eq!(name, Name::from(text.to_owned()));
        }
        assert!(Name::from("a") < Name::from("b"));
        assert_ne!(Name::from("%r1"), Name::from("%r11"));
    }

    #[test]
    fn a_map_finds_a_name_by_its_string() {
        let map: std::collections::HashMap<Name, u32> = [(Name::from("%r1"), 1), (Name::from("%r2"), 2)].into();
        assert_eq!(map.get("%r2"), Some(&2));
    }
}
