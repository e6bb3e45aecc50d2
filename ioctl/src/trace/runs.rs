//! Where two states of memory differ.

/// Changes closer than this are recorded as one.
const GAP_BYTES: usize = 64;
/// Changes are whole words of this size: what is written as one word is recorded as one.
const WORD_BYTES: usize = 8;

/// Ranges of words that differ, with small gaps closed.
pub(super) fn runs<'a>(old: &'a [u8], now: &'a [u8]) -> impl Iterator<Item = (usize, usize)> + 'a {
    let words = old.len().div_ceil(WORD_BYTES);
    let end_of = move |w: usize| ((w + 1) * WORD_BYTES).min(old.len());
    let differs = move |w: usize| old[w * WORD_BYTES..end_of(w)] != now[w * WORD_BYTES..end_of(w)];
    let mut w = 0;
    std::iter::from_fn(move || {
        while w < words && !differs(w) {
            w += 1;
        }
        if w == words {
            return None;
        }
        let first = w;
        let mut last = w;
        while w < words && (w - last) * WORD_BYTES <= GAP_BYTES {
            if differs(w) {
                last = w;
            }
            w += 1;
        }
        w = last + 1;
        Some((first * WORD_BYTES, end_of(last)))
    })
}
