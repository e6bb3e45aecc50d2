//! Values to bytes: the same contents always give the same bytes.

use crate::layout::{ALIGN_BYTES, DATA, HEADER_BYTES, Head, PROGRAM, ROW_BYTES, Row, TARGET};
use crate::{Argument, Contents, Launch, PackageError, Place, Port, Size, Step, Target, Term, check};

/// The bytes of a package. `data`: the constants; those of a file of their own are not written.
///
/// # Errors
/// `Inconsistent`: what [`Package::parse`](crate::Package::parse) would refuse. `TooLong`.
pub fn write(contents: &Contents, data: &[u8]) -> Result<Vec<u8>, PackageError> {
    check::contents(contents)?;
    if data.len() as u64 != contents.data_bytes {
        let why = format!("{} bytes were given, the program has {}", data.len(), contents.data_bytes);
        return Err(PackageError::Inconsistent { what: "the constants".into(), why });
    }
    let mut sections = vec![(PROGRAM, program(contents)?)];
    for t in &contents.targets {
        sections.push((TARGET, target(t)?));
    }
    let is_inside = contents.data_file.is_none() && !data.is_empty();
    let count = sections.len() + usize::from(is_inside);
    let mut out = vec![0; HEADER_BYTES + count * ROW_BYTES];
    let mut rows = Vec::with_capacity(count);
    for (kind, bytes) in &sections {
        rows.push(append(&mut out, *kind, bytes));
    }
    let mut head_bytes = out.len() as u64;
    if is_inside {
        let row = append(&mut out, DATA, data);
        head_bytes = row.at;
        rows.push(row);
    }
    let table: Vec<u8> = rows.iter().flat_map(Row::bytes).collect();
    let head = Head {
        sections: length("the table of sections", count)?,
        file_bytes: out.len() as u64,
        head_bytes,
        table_checksum: crc32fast::hash(&table),
    };
    let start = head.bytes().into_iter().chain(table);
    out.iter_mut().zip(start).for_each(|(to, byte)| *to = byte);
    Ok(out)
}

/// Adds a section at the next aligned byte.
fn append(out: &mut Vec<u8>, kind: u32, bytes: &[u8]) -> Row {
    out.resize(out.len().next_multiple_of(ALIGN_BYTES as usize), 0);
    let at = out.len() as u64;
    out.extend_from_slice(bytes);
    Row { kind, checksum: crc32fast::hash(bytes), at, len_bytes: bytes.len() as u64 }
}

/// Lengths are u32.
fn length(what: &str, len: usize) -> Result<u32, PackageError> {
    u32::try_from(len).map_err(|_| PackageError::TooLong { what: what.into(), len: len as u64, max: u32::MAX.into() })
}

/// The bytes of a section.
#[derive(Default)]
struct Section(Vec<u8>);

impl Section {
    fn u8(&mut self, n: u8) {
        self.0.push(n);
    }
    fn u32(&mut self, n: u32) {
        self.0.extend(n.to_le_bytes());
    }
    fn u64(&mut self, n: u64) {
        self.0.extend(n.to_le_bytes());
    }
    fn i64(&mut self, n: i64) {
        self.0.extend(n.to_le_bytes());
    }
    fn bytes(&mut self, what: &str, bytes: &[u8]) -> Result<(), PackageError> {
        self.u32(length(what, bytes.len())?);
        self.0.extend_from_slice(bytes);
        Ok(())
    }
    fn text(&mut self, text: &str) -> Result<(), PackageError> {
        self.bytes("a name", text.as_bytes())
    }
    fn list<T>(
        &mut self,
        what: &str,
        items: &[T],
        put: impl Fn(&mut Section, &T) -> Result<(), PackageError>,
    ) -> Result<(), PackageError> {
        self.u32(length(what, items.len())?);
        items.iter().try_for_each(|item| put(self, item))
    }
    fn place(&mut self, p: &Place) {
        self.u32(p.block);
        self.u64(p.offset);
    }
}

fn program(c: &Contents) -> Result<Vec<u8>, PackageError> {
    let mut s = Section::default();
    s.text(&c.name)?;
    s.list("variables", &c.variables, |s, v| {
        s.text(&v.name)?;
        s.i64(v.min);
        s.i64(v.max);
        Ok(())
    })?;
    s.list("blocks", &c.blocks, |s, b| {
        s.u8(b.kind as u8);
        [b.len_bytes, b.at, b.data_at].into_iter().for_each(|n| s.u64(n));
        Ok(())
    })?;
    s.u64(c.arena_bytes);
    s.u64(c.data_bytes);
    s.list("files of constants", c.data_file.as_slice(), |s, f| {
        s.text(&f.name)?;
        s.u32(f.checksum);
        Ok(())
    })?;
    s.list("inputs", &c.inputs, port)?;
    s.list("outputs", &c.outputs, port)?;
    Ok(s.0)
}

fn port(s: &mut Section, p: &Port) -> Result<(), PackageError> {
    s.text(&p.name)?;
    s.u8(p.element.code());
    s.list("a shape", &p.shape, size)?;
    s.u32(p.block);
    s.u64(p.offset);
    s.u64(p.len_bytes);
    Ok(())
}

fn size(s: &mut Section, size: &Size) -> Result<(), PackageError> {
    match size {
        Size::Fixed(n) => {
            s.u8(0);
            s.u64(*n);
            Ok(())
        }
        Size::Expression(terms) => {
            s.u8(1);
            s.list("an expression", terms, |s, t| {
                term(s, *t);
                Ok(())
            })
        }
    }
}

fn term(s: &mut Section, t: Term) {
    match t {
        Term::Number(n) => {
            s.u8(0);
            s.i64(n);
        }
        Term::Variable(v) => {
            s.u8(1);
            s.u32(v);
        }
        Term::Add => s.u8(2),
        Term::Sub => s.u8(3),
        Term::Mul => s.u8(4),
        Term::Div => s.u8(5),
        Term::Mod => s.u8(6),
        Term::Max => s.u8(7),
        Term::Min => s.u8(8),
    }
}

fn target(t: &Target) -> Result<Vec<u8>, PackageError> {
    let mut s = Section::default();
    s.text(&t.arch)?;
    s.list("kernels", &t.kernels, |s, k| {
        s.text(&k.name)?;
        s.text(&k.entry)?;
        s.bytes("a kernel's code", &k.code)
    })?;
    s.list("commands", &t.steps, |s, step| match step {
        Step::Launch(l) => launch(s, l),
        Step::Copy { to, from, len_bytes } => {
            s.u8(1);
            s.place(to);
            s.place(from);
            s.u64(*len_bytes);
            Ok(())
        }
    })?;
    Ok(s.0)
}

fn launch(s: &mut Section, l: &Launch) -> Result<(), PackageError> {
    s.u8(0);
    s.u32(l.kernel);
    s.u32(l.threads);
    l.groups.into_iter().chain(l.local).for_each(|n| s.u32(n));
    s.u32(l.local_bytes);
    s.list("arguments", &l.arguments, |s, a| {
        match a {
            Argument::Buffer(p) => {
                s.u8(0);
                s.place(p);
            }
            Argument::Variable(v) => {
                s.u8(1);
                s.u32(*v);
            }
            Argument::Word(w) => {
                s.u8(2);
                s.u64(*w);
            }
        }
        Ok(())
    })
}
