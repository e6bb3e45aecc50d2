//! What must hold between the parts of a program; writer and reader refuse the same.

use crate::{ALIGN_BYTES, Argument, Block, BlockKind, Contents, Launch, PackageError, Place, Port, Step, Target};

fn refuse<T>(what: impl Into<String>, why: impl Into<String>) -> Result<T, PackageError> {
    Err(PackageError::Inconsistent { what: what.into(), why: why.into() })
}

/// Bytes between sections are zero.
pub(crate) fn zeros(bytes: &[u8], from: u64, to: u64) -> Result<(), PackageError> {
    let range = usize::try_from(from).ok().zip(usize::try_from(to).ok());
    let between = range.and_then(|(from, to)| bytes.get(from..to.min(bytes.len()))).unwrap_or_default();
    match between.iter().position(|b| *b != 0) {
        None => Ok(()),
        Some(n) => {
            let (at, why) = (from + n as u64, "is not zero".into());
            Err(PackageError::Invalid { what: "a byte between sections".into(), at, why })
        }
    }
}

/// The whole program.
pub(crate) fn contents(c: &Contents) -> Result<(), PackageError> {
    unique("variable", c.variables.iter().map(|v| v.name.as_str()))?;
    unique("input", c.inputs.iter().map(|p| p.name.as_str()))?;
    unique("output", c.outputs.iter().map(|p| p.name.as_str()))?;
    unique("target", c.targets.iter().map(|t| t.arch.as_str()))?;
    if let Some(v) = c.variables.iter().find(|v| v.min > v.max) {
        return refuse(format!("variable {}", v.name), format!("from {} to {}", v.min, v.max));
    }
    c.blocks.iter().enumerate().try_for_each(|(n, b)| block(c, n, b))?;
    c.inputs.iter().try_for_each(|p| port(c, "input", p))?;
    inputs(c)?;
    c.outputs.iter().try_for_each(|p| port(c, "output", p))?;
    if let Some(file) = &c.data_file {
        let is_plain = !file.name.is_empty() && !file.name.starts_with('.') && !file.name.contains(['/', '\\', '\0']);
        if !is_plain || c.data_bytes == 0 {
            return refuse("the file of constants", format!("{:?} with {} bytes", file.name, c.data_bytes));
        }
    }
    c.targets.iter().try_for_each(|t| target(c, t))
}

/// Every input is a block, and every block of inputs is one.
fn inputs(c: &Contents) -> Result<(), PackageError> {
    let mut blocks: Vec<u32> = c.inputs.iter().map(|p| p.block).collect();
    blocks.sort_unstable();
    let are_blocks = (0..).zip(&c.blocks).filter(|(_, b)| b.kind == BlockKind::Input).map(|(n, _)| n);
    if are_blocks.collect::<Vec<u32>>() != blocks {
        return refuse("the inputs", "they are not the blocks that inputs are in");
    }
    let whole = |p: &&Port| c.blocks.get(p.block as usize).is_some_and(|b| p.offset == 0 && b.len_bytes == p.len_bytes);
    match c.inputs.iter().find(|p| !whole(p)) {
        Some(p) => refuse(format!("input {}", p.name), "it is not its whole block"),
        None => Ok(()),
    }
}

fn unique<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> Result<(), PackageError> {
    let mut all: Vec<&str> = names.collect();
    all.sort_unstable();
    if all.first().is_some_and(|n| n.is_empty()) {
        return refuse(what, "a name is empty");
    }
    match all.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => refuse(format!("{what} {}", pair[0]), "there are two of them"),
        None => Ok(()),
    }
}

fn block(c: &Contents, number: usize, b: &Block) -> Result<(), PackageError> {
    let what = || format!("block {number}");
    let within = |at: u64, all: u64| at.checked_add(b.len_bytes).is_some_and(|end| end <= all);
    if !b.at.is_multiple_of(ALIGN_BYTES) || !b.data_at.is_multiple_of(ALIGN_BYTES) {
        return refuse(what(), format!("it lies at {} and {}, no multiples of {ALIGN_BYTES}", b.at, b.data_at));
    }
    if !b.kind.is_in_arena() && b.at != 0 || !b.kind.has_data() && b.data_at != 0 {
        return refuse(what(), "it has a place that its kind has not");
    }
    if b.kind.is_in_arena() && !within(b.at, c.arena_bytes) {
        return refuse(what(), format!("{} bytes at {} of an arena of {}", b.len_bytes, b.at, c.arena_bytes));
    }
    if b.kind.has_data() && !within(b.data_at, c.data_bytes) {
        return refuse(
            what(),
            format!("{} bytes at {} of {} bytes of constants", b.len_bytes, b.data_at, c.data_bytes),
        );
    }
    Ok(())
}

fn port(c: &Contents, kind: &str, p: &Port) -> Result<(), PackageError> {
    let what = || format!("{kind} {}", p.name);
    range(c, &what(), Place { block: p.block, offset: p.offset }, p.len_bytes)?;
    for v in p.shape.iter().flat_map(|s| s.variables()) {
        variable(c, &what(), v)?;
    }
    if p.shape.iter().any(|s| s.variables().next().is_some()) {
        return Ok(());
    }
    let mut sizes = p.shape.iter().map(|s| s.value(|_| None));
    let len = sizes.try_fold(p.element.size_bytes(), |all, size| all.checked_mul(size?));
    if len == Some(p.len_bytes) {
        return Ok(());
    }
    let len = len.map_or_else(|| "no length".into(), |n| format!("{n} bytes"));
    refuse(what(), format!("its shape has {len}, its memory {}", p.len_bytes))
}

fn variable(c: &Contents, what: &str, number: u32) -> Result<(), PackageError> {
    if (number as usize) < c.variables.len() {
        return Ok(());
    }
    refuse(what, format!("variable {number} of {}", c.variables.len()))
}

/// Whether the bytes at a place are in its block.
fn range(c: &Contents, what: &str, place: Place, len_bytes: u64) -> Result<(), PackageError> {
    let Some(block) = c.blocks.get(place.block as usize) else {
        return refuse(what, format!("block {} of {}", place.block, c.blocks.len()));
    };
    if place.offset.checked_add(len_bytes).is_some_and(|end| end <= block.len_bytes) {
        return Ok(());
    }
    refuse(what, format!("{len_bytes} bytes at {} of a block of {}", place.offset, block.len_bytes))
}

fn target(c: &Contents, t: &Target) -> Result<(), PackageError> {
    for k in &t.kernels {
        if k.entry.is_empty() || k.code.is_empty() {
            return refuse(format!("{}: kernel {}", t.arch, k.name), "it has no entry or no code");
        }
    }
    for (n, step) in t.steps.iter().enumerate() {
        let what = format!("{}: command {n}", t.arch);
        match step {
            Step::Launch(l) => launch(c, t, &what, l)?,
            Step::Copy { to, from, len_bytes } => {
                range(c, &what, *to, *len_bytes)?;
                range(c, &what, *from, *len_bytes)?;
            }
        }
    }
    Ok(())
}

fn launch(c: &Contents, t: &Target, what: &str, l: &Launch) -> Result<(), PackageError> {
    if l.kernel as usize >= t.kernels.len() {
        return refuse(what, format!("kernel {} of {}", l.kernel, t.kernels.len()));
    }
    if l.groups.contains(&0) || l.local.contains(&0) || l.threads == 0 {
        return refuse(what, "an empty launch");
    }
    l.arguments.iter().try_for_each(|a| match a {
        Argument::Buffer(p) => range(c, what, *p, 0),
        Argument::Variable(v) => variable(c, what, *v),
        Argument::Word(_) => Ok(()),
    })
}
