//! Bytes to values: every byte is accounted for, every length is checked before it is used.

use crate::layout::{ALIGN_BYTES, DATA, HEADER_BYTES, Head, PROGRAM, ROW_BYTES, Row, TARGET};
use crate::{
    Argument, Block, BlockKind, Contents, DataFile, Element, Kernel, Launch, PackageError, Place, Port, Size, Step,
    Target, Term, Variable, check,
};
use std::ops::Range;

/// A package that has been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// What it says.
    pub contents: Contents,
    /// Where its constants are in the file; empty if they are in another file, or there are none.
    pub data: Range<u64>,
    /// CRC-32 of the constants, wherever they are.
    pub data_checksum: u32,
}

/// CRC-32, as packages have it.
#[must_use]
pub fn checksum_of(pieces: impl IntoIterator<Item = impl AsRef<[u8]>>) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    pieces.into_iter().for_each(|piece| hasher.update(piece.as_ref()));
    hasher.finalize()
}

impl Package {
    /// Checks a whole file.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn parse(bytes: &[u8]) -> Result<Package, PackageError> {
        let head = Head::parse(bytes, bytes.len() as u64)?;
        let (before, data) = bytes.split_at(usize::try_from(head.head_bytes).unwrap_or(bytes.len()).min(bytes.len()));
        let package = Package::parse_head(before, bytes.len() as u64)?;
        if !data.is_empty() {
            package.check_data(crc32fast::hash(data))?;
        }
        Ok(package)
    }

    /// Checks all of a file of `file_bytes` but the constants, which are not needed for it: `bytes` are the first
    /// [`Head::head_bytes`].
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn parse_head(bytes: &[u8], file_bytes: u64) -> Result<Package, PackageError> {
        let head = Head::parse(bytes, file_bytes)?;
        let rows = table(&head, bytes)?;
        let mut contents = Contents::default();
        let (mut data, mut data_checksum) = (0..0, 0);
        for (index, row) in rows.iter().enumerate() {
            let name = row.name(index);
            if row.kind == DATA {
                (data, data_checksum) = (row.at..row.at + row.len_bytes, row.checksum);
                continue;
            }
            let mut s = Section::new(bytes, row, name)?;
            match row.kind {
                PROGRAM => program(&mut s, &mut contents)?,
                _ => contents.targets.push(target(&mut s)?),
            }
            s.end()?;
        }
        if let Some(file) = &contents.data_file {
            data_checksum = file.checksum;
        }
        let inside = data.end - data.start;
        let expected = if contents.data_file.is_some() { 0 } else { contents.data_bytes };
        if inside != expected {
            let why = format!("{inside} bytes are inside, the program has {expected}");
            return Err(PackageError::Inconsistent { what: "the constants".into(), why });
        }
        check::contents(&contents)?;
        Ok(Package { contents, data, data_checksum })
    }

    /// Compares the checksum of the constants with the one in the file.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn check_data(&self, checksum: u32) -> Result<(), PackageError> {
        if checksum == self.data_checksum {
            return Ok(());
        }
        let (what, range) = match &self.contents.data_file {
            Some(file) => (format!("the file of constants {}", file.name), 0..self.contents.data_bytes),
            None => ("the block of constants".into(), self.data.clone()),
        };
        Err(PackageError::Damaged { what, from: range.start, to: range.end })
    }
}

/// The rows of the table, with sections in order, one after the other, and nothing between them.
fn table(head: &Head, bytes: &[u8]) -> Result<Vec<Row>, PackageError> {
    let what = || "the table of sections".to_string();
    let end = head.table_end();
    let Some(table) = bytes.get(HEADER_BYTES..end) else {
        return Err(PackageError::Length { have: bytes.len() as u64, want: end as u64 });
    };
    if crc32fast::hash(table) != head.table_checksum {
        return Err(PackageError::Damaged { what: what(), from: HEADER_BYTES as u64, to: end as u64 });
    }
    let mut rows = Vec::with_capacity(table.len() / ROW_BYTES);
    let mut next = end as u64;
    for (index, bytes_of_row) in table.as_chunks::<ROW_BYTES>().0.iter().enumerate() {
        let invalid = |why: String| {
            Err(PackageError::Invalid { what: what(), at: (HEADER_BYTES + index * ROW_BYTES) as u64, why })
        };
        let Some(row) = Row::parse(bytes_of_row) else { return invalid("reserved bytes are not zero".into()) };
        let is_last = index + 1 == head.sections as usize;
        let fits = match (index, row.kind) {
            (0, kind) => kind == PROGRAM,
            (_, TARGET) => true,
            (_, DATA) => is_last && row.len_bytes > 0,
            _ => false,
        };
        if !fits {
            return invalid(format!("section {index} is of kind {}", row.kind));
        }
        let at = next.next_multiple_of(ALIGN_BYTES);
        if row.at != at {
            return invalid(format!("section {index} is at byte {}, expected at {at}", row.at));
        }
        check::zeros(bytes, next, at)?;
        let bound = if row.kind == DATA { head.file_bytes } else { head.head_bytes };
        next = match row.end() {
            Some(end) if end <= bound => end,
            _ => return invalid(format!("section {index} of {} bytes goes beyond byte {bound}", row.len_bytes)),
        };
        if row.kind == DATA && row.at != head.head_bytes {
            return invalid(format!("the header says that constants begin at byte {}", head.head_bytes));
        }
        rows.push(row);
    }
    if next != head.file_bytes {
        let at = HEADER_BYTES as u64;
        let why = format!("the sections end at byte {next}, the file at {}", head.file_bytes);
        return Err(PackageError::Invalid { what: what(), at, why });
    }
    if rows.last().is_some_and(|r| r.kind != DATA) && head.head_bytes != head.file_bytes {
        let why = "constants are announced and there are none".into();
        return Err(PackageError::Invalid { what: "the header".into(), at: 24, why });
    }
    Ok(rows)
}

/// A section as it is read.
struct Section<'a> {
    rest: &'a [u8],
    end: u64,
    name: String,
}

impl<'a> Section<'a> {
    fn new(bytes: &'a [u8], row: &Row, name: String) -> Result<Self, PackageError> {
        let end = row.at + row.len_bytes;
        let range = usize::try_from(row.at).ok().zip(usize::try_from(end).ok());
        let Some(rest) = range.and_then(|(from, to)| bytes.get(from..to)) else {
            return Err(PackageError::Length { have: bytes.len() as u64, want: end });
        };
        if crc32fast::hash(rest) != row.checksum {
            return Err(PackageError::Damaged { what: name, from: row.at, to: end });
        }
        Ok(Self { rest, end, name })
    }

    fn invalid<T>(&self, why: impl Into<String>) -> Result<T, PackageError> {
        let at = self.end - self.rest.len() as u64;
        Err(PackageError::Invalid { what: self.name.clone(), at, why: why.into() })
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], PackageError> {
        match self.rest.split_at_checked(len) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => self.invalid(format!("{len} bytes are expected, {} are left", self.rest.len())),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], PackageError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    fn u8(&mut self) -> Result<u8, PackageError> {
        Ok(self.array::<1>()?[0])
    }
    fn u32(&mut self) -> Result<u32, PackageError> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    fn u64(&mut self) -> Result<u64, PackageError> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    fn i64(&mut self) -> Result<i64, PackageError> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    fn bytes(&mut self) -> Result<&'a [u8], PackageError> {
        let len = self.u32()?;
        self.take(len as usize)
    }

    fn text(&mut self) -> Result<String, PackageError> {
        let bytes = self.bytes()?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.into()),
            Err(_) => self.invalid("a name is not UTF-8"),
        }
    }

    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T, PackageError>) -> Result<Vec<T>, PackageError> {
        let len = self.u32()? as usize;
        // Every item has a byte.
        if len > self.rest.len() {
            return self.invalid(format!("a list of {len} items, {} bytes are left", self.rest.len()));
        }
        (0..len).map(|_| item(self)).collect()
    }

    fn place(&mut self) -> Result<Place, PackageError> {
        Ok(Place { block: self.u32()?, offset: self.u64()? })
    }

    fn end(&self) -> Result<(), PackageError> {
        if self.rest.is_empty() { Ok(()) } else { self.invalid(format!("{} bytes too many", self.rest.len())) }
    }
}

fn program(s: &mut Section, c: &mut Contents) -> Result<(), PackageError> {
    c.name = s.text()?;
    c.variables = s.list(|s| Ok(Variable { name: s.text()?, min: s.i64()?, max: s.i64()? }))?;
    c.blocks = s.list(block)?;
    c.arena_bytes = s.u64()?;
    c.data_bytes = s.u64()?;
    let mut files = s.list(|s| Ok(DataFile { name: s.text()?, checksum: s.u32()? }))?;
    c.data_file = files.pop();
    if !files.is_empty() {
        return s.invalid("more than one file of constants");
    }
    c.inputs = s.list(port)?;
    c.outputs = s.list(port)?;
    Ok(())
}

fn block(s: &mut Section) -> Result<Block, PackageError> {
    let code = s.u8()?;
    let Some(kind) = BlockKind::from_code(code) else { return s.invalid(format!("no kind of block is {code}")) };
    Ok(Block { kind, len_bytes: s.u64()?, at: s.u64()?, data_at: s.u64()? })
}

fn port(s: &mut Section) -> Result<Port, PackageError> {
    let name = s.text()?;
    let code = s.u8()?;
    let Some(element) = Element::from_code(code) else { return s.invalid(format!("no element type is {code}")) };
    Ok(Port { name, element, shape: s.list(size)?, block: s.u32()?, offset: s.u64()?, len_bytes: s.u64()? })
}

fn size(s: &mut Section) -> Result<Size, PackageError> {
    match s.u8()? {
        0 => Ok(Size::Fixed(s.u64()?)),
        1 => Ok(Size::Expression(s.list(term)?)),
        code => s.invalid(format!("no size is {code}")),
    }
}

fn term(s: &mut Section) -> Result<Term, PackageError> {
    Ok(match s.u8()? {
        0 => Term::Number(s.i64()?),
        1 => Term::Variable(s.u32()?),
        2 => Term::Add,
        3 => Term::Sub,
        4 => Term::Mul,
        5 => Term::Div,
        6 => Term::Mod,
        7 => Term::Max,
        8 => Term::Min,
        code => return s.invalid(format!("no operation is {code}")),
    })
}

fn target(s: &mut Section) -> Result<Target, PackageError> {
    let arch = s.text()?;
    let kernels = s.list(|s| Ok(Kernel { name: s.text()?, entry: s.text()?, code: s.bytes()?.to_vec() }))?;
    let steps = s.list(|s| match s.u8()? {
        0 => Ok(Step::Launch(launch(s)?)),
        1 => Ok(Step::Copy { to: s.place()?, from: s.place()?, len_bytes: s.u64()? }),
        code => s.invalid(format!("no command is {code}")),
    })?;
    Ok(Target { arch, kernels, steps })
}

fn launch(s: &mut Section) -> Result<Launch, PackageError> {
    Ok(Launch {
        kernel: s.u32()?,
        threads: s.u32()?,
        groups: [s.u32()?, s.u32()?, s.u32()?],
        local: [s.u32()?, s.u32()?, s.u32()?],
        local_bytes: s.u32()?,
        arguments: s.list(argument)?,
    })
}

fn argument(s: &mut Section) -> Result<Argument, PackageError> {
    Ok(match s.u8()? {
        0 => Argument::Buffer(s.place()?),
        1 => Argument::Variable(s.u32()?),
        2 => Argument::Word(s.u64()?),
        code => return s.invalid(format!("no argument is {code}")),
    })
}
