//! [`Module`] → PTX text, one statement per line. Parsing the text gives the same module again.

use super::module::{
    Function, Guard, Imm, Init, Inst, Item, Linkage, Loc, Modifier, Module, Operand, Registers, Statement, Tuning,
    Variable,
};
use super::names::Type;
use std::fmt::{self, Display, Formatter, Write};

/// Comma-separated items.
struct List<'a, T>(&'a [T]);

impl<T: Display> Display for List<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (k, x) in self.0.iter().enumerate() {
            if k > 0 {
                f.write_str(", ")?;
            }
            x.fmt(f)?;
        }
        Ok(())
    }
}

/// `"a", "b"`.
struct Quoted<'a>(&'a [String]);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (k, x) in self.0.iter().enumerate() {
            write!(f, "{}\"{x}\"", if k > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

/// `+4`, `-4`, nothing for 0.
struct Offset(i64);

impl Display for Offset {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { Ok(()) } else { write!(f, "{:+}", self.0) }
    }
}

impl Display for Module {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, ".version {}.{}", self.version.0, self.version.1)?;
        if !self.target.is_empty() {
            writeln!(f, ".target {}", List(&self.target))?;
        }
        writeln!(f, ".address_size {}", self.address_bits)?;
        self.items.iter().try_for_each(|i| write!(f, "\n{i}"))
    }
}

impl Display for Item {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Item::Variable(v) => writeln!(f, "{v};"),
            Item::Function(x) => x.fmt(f),
            Item::File { number, path, facts } => {
                write!(f, ".file {number} \"{path}\"")?;
                facts.iter().try_for_each(|n| write!(f, ", {n}"))?;
                f.write_char('\n')
            }
            Item::Pragma(words) => writeln!(f, ".pragma {};", Quoted(words)),
            Item::Alias { name, of } => writeln!(f, ".alias {name}, {of};"),
            Item::Section { name, words } => {
                writeln!(f, ".section {name}\n{{")?;
                // Start a new line before a directive or a label.
                for (k, w) in words.iter().enumerate() {
                    let starts = w.starts_with('.') || words.get(k + 1).is_some_and(|n| n == ":");
                    let lead = if k > 0 && starts { "\n" } else { " " };
                    write!(f, "{lead}{w}")?;
                }
                f.write_str("\n}\n")
            }
        }
    }
}

impl Display for Linkage {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Linkage::Module => "",
            Linkage::Visible => ".visible ",
            Linkage::Extern => ".extern ",
            Linkage::Weak => ".weak ",
            Linkage::Common => ".common ",
        })
    }
}

impl Display for Variable {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.linkage, self.space.word())?;
        if !self.attributes.is_empty() {
            write!(f, " .attribute({})", List(&self.attributes))?;
        }
        if let Some(n) = self.align {
            write!(f, " .align {n}")?;
        }
        if self.vector > 1 {
            write!(f, " .v{}", self.vector)?;
        }
        write!(f, " .{}", self.ty.word())?;
        if let Some(p) = self.ptr {
            f.write_str(" .ptr")?;
            if let Some(s) = p.space {
                write!(f, " .{}", s.word())?;
            }
            if let Some(n) = p.align {
                write!(f, " .align {n}")?;
            }
        }
        write!(f, " {}", self.name)?;
        for d in &self.dims {
            match d {
                Some(n) => write!(f, "[{n}]")?,
                None => f.write_str("[]")?,
            }
        }
        match &self.init {
            Some(i) => write!(f, " = {i}"),
            None => Ok(()),
        }
    }
}

impl Display for Init {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Init::Value(v) => v.fmt(f),
            Init::List(l) => write!(f, "{{{}}}", List(l)),
            Init::Generic(name, offset) => write!(f, "generic({name}){}", Offset(*offset)),
            Init::Masked(mask, of) => write!(f, "{mask:#x}({of})"),
        }
    }
}

impl Display for Tuning {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Tuning::Numbers(name, n) if n.is_empty() => write!(f, ".{name}"),
            Tuning::Numbers(name, n) => write!(f, ".{name} {}", List(n)),
            Tuning::Pragma(words) => write!(f, ".pragma {};", Quoted(words)),
        }
    }
}

impl Display for Function {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}{} ", self.linkage, if self.entry { ".entry" } else { ".func" })?;
        if !self.returns.is_empty() {
            write!(f, "({}) ", List(&self.returns))?;
        }
        write!(f, "{}({})", self.name, List(&self.params))?;
        for t in &self.tuning {
            write!(f, "\n{t}")?;
        }
        match &self.body {
            None => f.write_str("\n;\n"),
            Some(body) => {
                f.write_str("\n{\n")?;
                statements(f, body, 1)?;
                f.write_str("}\n")
            }
        }
    }
}

fn statements(f: &mut Formatter<'_>, list: &[Statement], depth: usize) -> fmt::Result {
    for s in list {
        let tab = if matches!(s, Statement::Label(..)) { 0 } else { depth };
        for _ in 0..tab {
            f.write_char('\t')?;
        }
        match s {
            Statement::Registers(r) => writeln!(f, "{r}")?,
            Statement::Variable(v) => writeln!(f, "{v};")?,
            Statement::Label(l, _) => writeln!(f, "{l}:")?,
            Statement::Inst(i) => writeln!(f, "{i}")?,
            Statement::Block(b) => {
                f.write_str("{\n")?;
                statements(f, b, depth + 1)?;
                for _ in 0..depth {
                    f.write_char('\t')?;
                }
                f.write_str("}\n")?;
            }
            Statement::Loc(l) => writeln!(f, "{l}")?,
            Statement::Pragma(words) => writeln!(f, ".pragma {};", Quoted(words))?,
            Statement::Targets { calls, names } => {
                writeln!(f, "{} {};", if *calls { ".calltargets" } else { ".branchtargets" }, List(names))?;
            }
            Statement::Prototype { returns, params, tuning } => {
                f.write_str(".callprototype ")?;
                if !returns.is_empty() {
                    write!(f, "({}) ", List(returns))?;
                }
                write!(f, "_ ({})", List(params))?;
                tuning.iter().try_for_each(|t| write!(f, " {t}"))?;
                f.write_str(";\n")?;
            }
        }
    }
    Ok(())
}

impl Display for Registers {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(".reg ")?;
        if self.vector > 1 {
            write!(f, ".v{} ", self.vector)?;
        }
        write!(f, ".{} ", Type::word(self.ty))?;
        for (k, (name, count)) in self.names.iter().enumerate() {
            write!(f, "{}{name}", if k > 0 { ", " } else { "" })?;
            if let Some(n) = count {
                write!(f, "<{n}>")?;
            }
        }
        f.write_char(';')
    }
}

impl Display for Loc {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, ".loc {} {} {}", self.file, self.line, self.column)?;
        match &self.inlined {
            None => Ok(()),
            Some(i) => {
                let [file, line, column] = i.at;
                write!(f, ", function_name {}{}, inlined_at {file} {line} {column}", i.function, Offset(i.offset))
            }
        }
    }
}

impl Display for Guard {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "@{}{} ", if self.negated { "!" } else { "" }, self.pred)
    }
}

impl Display for Inst {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(g) = &self.guard {
            g.fmt(f)?;
        }
        f.write_str(self.op.word())?;
        for m in self.mods.iter() {
            match m {
                Modifier::Type(t) => write!(f, ".{}", t.word())?,
                Modifier::Space(s) => write!(f, ".{}", s.word())?,
                Modifier::Vector(n) => write!(f, ".v{n}")?,
                Modifier::Word(w) => write!(f, ".{w}")?,
            }
        }
        if !self.operands.is_empty() {
            write!(f, " {}", List(&self.operands))?;
        }
        f.write_char(';')
    }
}

impl Display for Operand {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Reg(r) | Operand::Special(r) => f.write_str(r),
            Operand::Lane(r, n) => write!(f, "{r}.{}", ["x", "y", "z", "w"][usize::from(n & 3)]),
            Operand::Symbol(s, offset) => write!(f, "{s}{}", Offset(*offset)),
            Operand::Not(p) => write!(f, "!{p}"),
            Operand::Imm(i) => i.fmt(f),
            Operand::Vector(v) => write!(f, "{{{}}}", List(v)),
            Operand::Pair(a, b) => write!(f, "{a}|{b}"),
            Operand::Address { base, offset, rest } => {
                // In an address, a negative offset is written as the addition of a negative number.
                write!(f, "[{base}{}{}", if *offset < 0 { "+" } else { "" }, Offset(*offset))?;
                rest.iter().try_for_each(|r| write!(f, ", {r}"))?;
                f.write_char(']')
            }
            Operand::List(l) => write!(f, "({})", List(l)),
            Operand::Nothing => f.write_char('_'),
        }
    }
}

impl Display for Imm {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Imm::Int(i) => i.fmt(f),
            Imm::F32(b) => write!(f, "0f{b:08x}"),
            Imm::F64(b) => write!(f, "0d{b:016x}"),
        }
    }
}
