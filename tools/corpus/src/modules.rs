//! A text of PTX, taken apart into its kernels and what they share.

use doorbell_ptx::sass::SmArch;

/// The text in pieces: each is of one kernel, or of none.
pub struct Module<'a> {
    pieces: Vec<(Option<&'a str>, &'a str)>,
}

impl<'a> Module<'a> {
    pub fn of(text: &'a str) -> Module<'a> {
        let (mut pieces, mut begin, mut at) = (vec![], 0, 0);
        let (mut name, mut depth) = (None, 0);
        for line in text.split_inclusive('\n') {
            if let Some(started) = head(line) {
                pieces.push((name, &text[begin..at]));
                (name, begin) = (Some(started), at);
            }
            let before = depth;
            for byte in line.bytes() {
                match byte {
                    b'{' => depth += 1,
                    b'}' if depth > 0 => depth -= 1,
                    _ => {}
                }
            }
            at += line.len();
            if name.is_some() && before > 0 && depth == 0 {
                pieces.push((name, &text[begin..at]));
                (name, begin) = (None, at);
            }
        }
        pieces.push((name, &text[begin..]));
        Module { pieces }
    }

    /// The names of its kernels.
    pub fn names(&self) -> impl Iterator<Item = &'a str> {
        self.pieces.iter().filter_map(|p| p.0)
    }

    /// A text for the chip with one of the kernels.
    pub fn alone(&self, name: &str, chip: SmArch) -> String {
        let kept = self.pieces.iter().filter(|(of, _)| of.is_none_or(|of| of == name));
        let text: String = kept.map(|p| p.1).collect();
        let target = text.lines().find(|l| l.starts_with(".target")).unwrap_or(".target");
        text.replacen(target, &format!(".target {}", full_name(chip)), 1)
    }
}

/// The chip with all that it has.
pub fn full_name(chip: SmArch) -> String {
    let specific = if chip == SmArch::Sm90 { "a" } else { "" };
    format!("{chip}{specific}")
}

/// The name in the line that begins a kernel.
fn head(line: &str) -> Option<&str> {
    let at = if line.starts_with('.') { line.find(".entry ")? } else { return None };
    line[at + 7..].split('(').next().map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = ".version 8.0\n.target sm_120\n.func f()\n{\nret;\n}\n\n.visible .entry a(\n.param .u64 p\n)\n{\n\
        { mov.u32 %r1, 1;\n}\nret;\n}\n.global .b32 g;\n.weak .entry b()\n{\nret;\n}\n";

    #[test]
    fn a_kernel_alone_keeps_what_kernels_share() {
        let module = Module::of(TEXT);
        assert_eq!(module.names().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(module.pieces.iter().map(|p| p.1).collect::<String>(), TEXT);
        let b = module.alone("b", SmArch::Sm90);
        assert_eq!(
            b,
            ".version 8.0\n.target sm_90a\n.func f()\n{\nret;\n}\n\n.global .b32 g;\n.weak .entry b()\n{\nret;\n}\n"
        );
        assert!(module.alone("a", SmArch::Sm80).contains("mov.u32 %r1, 1;\n}\nret;\n}\n.global"));
    }
}
