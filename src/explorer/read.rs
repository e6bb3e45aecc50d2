//! A record from the page that holds it.

use crate::{ExplorerError, Part, Record, VERSION};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// What comes before the name of a part in a page.
pub(crate) const BEFORE_NAME: &str = "<script type=\"application/octet-stream\" id=\"";
/// What comes between the name of a part and its bytes.
pub(crate) const AFTER_NAME: &str = "\">";
/// What comes after the bytes.
pub(crate) const AFTER_BYTES: &str = "</script>";

/// The record of a page.
///
/// # Errors
/// The text is no such page, of another release, or damaged.
pub fn record(page: &str) -> Result<Record, ExplorerError> {
    let mut parts = Vec::new();
    for piece in page.split(BEFORE_NAME).skip(1) {
        let Some((name, rest)) = piece.split_once(AFTER_NAME) else { continue };
        let Some((text, _)) = rest.split_once(AFTER_BYTES) else { continue };
        let why = |e: base64::DecodeError| ExplorerError::Part { part: name.into(), why: e.to_string() };
        parts.push(Part { name: name.into(), bytes: STANDARD.decode(text).map_err(why)? });
    }
    let at = parts.iter().position(|p| p.name == "head").ok_or(ExplorerError::NoHead)?;
    let mut record: Record = parts.remove(at).decode()?;
    if record.version != VERSION {
        return Err(ExplorerError::Version { have: record.version, want: VERSION });
    }
    // Parts of a second run belong to a comparison, not to this record.
    parts.retain(|p| !p.name.starts_with("b:"));
    record.parts = parts;
    Ok(record)
}

impl Record {
    /// A part by its name; `None`: it has none.
    ///
    /// # Errors
    /// The part is damaged.
    pub fn part<T: serde::de::DeserializeOwned>(&self, name: &str) -> Result<Option<T>, ExplorerError> {
        self.parts.iter().find(|p| p.name == name).map(Part::decode).transpose()
    }
}
