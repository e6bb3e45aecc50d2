//! Reads the source of bindings that were generated from Apple's headers: methods with their types, supertypes, structs
//! and constants.
//!
//! Rust's compiler is not needed for it, so the bindings need not compile for this system. Only what generated text
//! looks like is understood; anything else is a type that equals no code.

use std::collections::HashMap;
use std::path::Path;

/// A method of a class or a protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Method {
    pub of_class: bool,
    /// Codes of result, receiver and selector, and arguments.
    pub encoding: String,
    /// `+1` for a result that the caller owns, `+0` for another object, else empty.
    pub ownership: &'static str,
    /// Whether Rust's types do not tell which pointers are to constants.
    pub hides_const: bool,
}

/// A method as it is written.
#[derive(Debug)]
struct Written {
    /// It has an error as its last argument, which Rust's function returns.
    gives_error: bool,
    /// The function, to its body.
    head: String,
    /// The caller owns the result.
    gives: bool,
}

/// What the sources say.
#[derive(Debug, Default)]
pub(crate) struct Headers {
    /// By class or protocol, and selector.
    methods: HashMap<(String, String), Vec<Written>>,
    parents: HashMap<String, Vec<String>>,
    /// What named types stand for: another type, or a description of a struct.
    types: HashMap<String, String>,
    /// Types of the fields of structs.
    pub fields: HashMap<String, Vec<String>>,
    /// Right sides of constants, by type and name.
    constants: HashMap<(String, String), String>,
    /// Functions in C.
    pub functions: Vec<String>,
}

/// Where the reader stands in a file.
#[derive(Default)]
struct Reader {
    class: String,
    /// Of the next function; whether the generator wrote it.
    selector: Option<(String, bool)>,
    family: String,
}

impl Headers {
    /// Reads all files of a folder, and of those in it.
    pub(crate) fn read(&mut self, folder: &Path) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                self.read(&path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                self.text(&std::fs::read_to_string(&path).unwrap_or_default());
            }
        }
    }

    fn text(&mut self, text: &str) {
        // However a declaration was broken into lines.
        let lines = text.lines().map(str::trim).filter(|l| !l.starts_with("//"));
        let text: String = lines.flat_map(|l| [l, " "]).collect();
        let mut reader = Reader::default();
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            if !self.attribute(&mut reader, rest) && !self.block(&mut reader, rest) {
                self.item(&mut reader, rest);
            }
            rest = rest.split_once(' ').map_or("", |(_, rest)| rest).trim_start();
        }
    }

    fn attribute(&mut self, reader: &mut Reader, rest: &str) -> bool {
        if let Some(name) = between(rest, "#[unsafe(method(", "))]") {
            reader.selector = Some((without_blanks(name), true));
        } else if let Some(name) = between(rest, "#[doc(alias = \"", "\")]").filter(|n| n.ends_with(':')) {
            reader.selector = Some((name.into(), false));
        } else if let Some(name) = between(rest, "#[unsafe(method_family = ", ")]") {
            reader.family = name.trim().into();
        } else if let Some(list) = between(rest, "#[unsafe(super(", "))]") {
            // Of the class that follows.
            self.parents.insert(String::new(), words(list));
        } else {
            return false;
        }
        true
    }

    /// What methods and constants are of.
    fn block(&mut self, reader: &mut Reader, rest: &str) -> bool {
        if let Some(head) = between(rest, "trait ", "{") {
            let (name, parents) = head.split_once(':').unwrap_or((head, ""));
            reader.class = first_word(name);
            self.parents.entry(reader.class.clone()).or_default().extend(words(parents));
        } else if let Some(head) = between(rest, "impl", "{").filter(|h| h.starts_with([' ', '<']) && !h.contains(';'))
        {
            reader.class = subject(head);
        } else {
            return false;
        }
        true
    }

    fn item(&mut self, reader: &mut Reader, rest: &str) {
        if let Some((name, of)) = between(rest, "type ", ";").and_then(|body| body.split_once('=')) {
            self.types.insert(name.trim().into(), of.trim().into());
        } else if let Some(body) = between(rest, "struct ", "}").filter(|b| b.contains('{') && !b.contains([';', '(']))
        {
            let (name, fields) = body.split_once('{').unwrap_or_default();
            let types = fields.split(',').filter_map(|f| f.split_once(": ")).map(|(_, t)| t.trim().to_owned());
            self.fields.insert(name.trim().into(), types.collect());
        } else if let Some(body) = between(rest, "struct ", ";") {
            self.new_type(body);
        } else if let Some(body) = between(rest, "const ENCODING: Encoding =", ";").map(str::trim) {
            // That of a type around another is the other's.
            if body.starts_with("Encoding::Struct") {
                self.types.insert(reader.class.clone(), body.into());
            }
        } else if let Some((name, value)) = between(rest, "const ", ";").and_then(|body| body.split_once('=')) {
            let name = name.split(':').next().unwrap_or_default().trim();
            self.constants.insert((reader.class.clone(), name.into()), value.trim().into());
        } else if let Some(name) = between(rest, "\"C-unwind\" fn ", "(") {
            self.functions.push(name.trim().into());
        } else if rest.starts_with("fn ") {
            self.function(reader, rest);
        }
    }

    /// A type around another, or a class.
    fn new_type(&mut self, body: &str) {
        if let Some((name, of)) = body.split_once('(') {
            let of = of.trim_end_matches(')').trim().trim_start_matches("pub ");
            self.types.insert(name.trim().into(), of.trim().into());
        } else if let Some(parents) = self.parents.remove("") {
            self.parents.entry(first_word(body)).or_default().extend(parents);
        }
    }

    fn function(&mut self, reader: &mut Reader, rest: &str) {
        let Some((selector, is_generated)) = reader.selector.take() else { return };
        let end = rest.find([';', '{']).unwrap_or(rest.len());
        let head = rest[..end].split(" where ").next().unwrap_or_default().into();
        let family = if is_generated { std::mem::take(&mut reader.family) } else { String::new() };
        // The families of methods whose results the caller owns.
        let gives = ["new", "alloc", "copy", "mutableCopy"].contains(&family.as_str());
        let written = Written { gives_error: selector.ends_with(":_"), head, gives };
        let name = selector.strip_suffix('_').filter(|s| s.ends_with(':')).unwrap_or(&selector).to_owned();
        self.methods.entry((reader.class.clone(), name)).or_default().push(written);
    }

    /// A method of a class, or of what it inherits from.
    pub(crate) fn method(&self, class: &str, selector: &str, of_class: bool) -> Option<Method> {
        let own = self.methods.get(&(class.to_owned(), selector.to_owned()));
        let own = own.into_iter().flatten().map(|m| self.signature(m)).find(|m| m.of_class == of_class);
        own.or_else(|| {
            let parents = self.parents.get(class).map_or(&[][..], Vec::as_slice);
            parents.iter().find_map(|parent| self.method(parent, selector, of_class))
        })
    }

    fn signature(&self, written: &Written) -> Method {
        let (arguments, result) = written.head.split_once("->").unwrap_or((&written.head, "()"));
        let inside = arguments.split_once('(').map_or("", |(_, rest)| rest).trim();
        let arguments = split(inside.strip_suffix(')').unwrap_or(inside));
        let of_class = !arguments.iter().any(|a| a.trim() == "&self");
        let result = result.trim();
        let result = match between(result, "Result<", ",") {
            Some("()") => "B".into(),
            Some(object) => self.code(object),
            None => self.code(result),
        };
        let typed = arguments.iter().filter_map(|a| a.split_once(": ")).map(|(_, t)| self.code(t.trim()));
        let mut encoding = format!("{result}@:");
        encoding.extend(typed);
        if written.gives_error {
            encoding.push_str("^@");
        }
        let ownership = match (result.as_str(), written.gives) {
            ("@", true) => "+1",
            ("@", false) => "+0",
            _ => "",
        };
        Method { of_class, encoding, ownership, hides_const: written.head.contains("NonNull<") }
    }

    /// The code of a Rust type.
    pub(crate) fn code(&self, t: &str) -> String {
        let t = without_blanks(t);
        let inner = |outer: &str| t.strip_prefix(outer).and_then(|rest| rest.strip_suffix('>')).map(str::to_owned);
        if t.contains("block2::") {
            return "@?".into();
        }
        if let Some(inner) = inner("Option<") {
            return self.code(&inner);
        }
        if let Some(to) = inner("NonNull<").or_else(|| t.strip_prefix("*mut").map(str::to_owned)) {
            return pointer("", &self.code(&to));
        }
        if let Some(to) = t.strip_prefix("*const") {
            return pointer("r", &self.code(to));
        }
        if t.starts_with("&mutOption<Retained<") {
            return "^@".into();
        }
        if t.starts_with('&') || t.starts_with("Retained<") || t.starts_with("ProtocolObject<") {
            return "@".into();
        }
        let plain = match t.as_str() {
            "()" | "c_void" => "v",
            "NSUInteger" | "usize" | "u64" => "Q",
            "NSInteger" | "isize" | "i64" => "q",
            "u32" => "I",
            "i32" | "c_int" => "i",
            "u8" => "C",
            "c_char" => "c",
            "bool" => "B",
            "f64" | "c_double" | "CFTimeInterval" => "d",
            "f32" | "c_float" => "f",
            "Sel" => ":",
            _ => "",
        };
        match (plain, self.types.get(&t)) {
            ("", Some(of)) if of.starts_with("Encoding::Struct") => self.described(of),
            ("", Some(of)) if *of != t => self.code(of),
            ("", _) => format!("<{t}>"),
            (plain, _) => plain.into(),
        }
    }

    /// The code of a struct by its own description.
    fn described(&self, text: &str) -> String {
        let (name, rest) = text.split_once('"').and_then(|(_, rest)| rest.split_once('"')).unwrap_or(("?", text));
        let list = rest.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or("", |(list, _)| list);
        let fields = list.split(',').map(|f| f.trim().trim_end_matches("::ENCODING")).filter(|f| !f.is_empty());
        let codes: String = fields.map(|f| self.code(f.trim_start_matches('<').trim_end_matches('>'))).collect();
        format!("{{{name}={codes}}}")
    }

    /// The value of a constant of a type.
    pub(crate) fn constant(&self, of: &str, name: &str) -> Option<i128> {
        let text = self.constants.get(&(of.to_owned(), name.to_owned()))?;
        self.value(text.strip_prefix("Self(").and_then(|t| t.strip_suffix(')')).unwrap_or(text))
    }

    /// The value of numbers, names, shifts and sums.
    fn value(&self, text: &str) -> Option<i128> {
        let text = text.trim();
        let inside = text.strip_prefix('(').and_then(|t| t.strip_suffix(')')).filter(|t| !t.contains(['(', ')']));
        let text = inside.unwrap_or(text);
        if let Some((a, b)) = text.rsplit_once(" + ") {
            return Some(self.value(a)? + self.value(b)?);
        }
        if let Some((a, b)) = text.split_once("<<") {
            return Some(self.value(a)? << self.value(b)?);
        }
        if let Some((of, name)) = text.trim_end_matches(".0").split_once("::") {
            return self.constant(of, name);
        }
        if let Some(hex) = text.strip_prefix("0x") {
            return i128::from_str_radix(hex, 16).ok();
        }
        // A constant of no type has the type of whatever stands before it here.
        let named = || self.constants.iter().find(|((_, name), value)| name == text && *value != text);
        text.parse().ok().or_else(|| self.value(named()?.1))
    }
}

/// What stands between a beginning and the next end.
fn between<'t>(text: &'t str, begin: &str, end: &str) -> Option<&'t str> {
    text.strip_prefix(begin)?.split_once(end).map(|(inner, _)| inner)
}

fn without_blanks(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

fn words(text: &str) -> Vec<String> {
    let all = text.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    all.filter(|w| !w.is_empty()).map(str::to_owned).collect()
}

fn first_word(text: &str) -> String {
    words(text).into_iter().next().unwrap_or_default()
}

/// The type that an `impl` is of.
fn subject(head: &str) -> String {
    let head = head.trim();
    // Without the parameters of the block.
    let head = head.strip_prefix('<').and_then(|rest| rest.split_once("> ")).map_or(head, |(_, rest)| rest);
    first_word(head.split(" for ").last().unwrap_or(head))
}

/// Splits arguments at the commas between them.
fn split(list: &str) -> Vec<&str> {
    let (mut all, mut depth, mut from) = (Vec::new(), 0, 0);
    for (at, c) in list.char_indices() {
        match c {
            '<' | '(' | '[' => depth += 1,
            '>' | ')' | ']' => depth -= 1,
            ',' if depth == 0 => {
                all.push(&list[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    all.push(&list[from..]);
    all.into_iter().filter(|a| !a.trim().is_empty()).collect()
}

fn pointer(constant: &str, to: &str) -> String {
    if to == "c" { format!("{constant}*") } else { format!("{constant}^{to}") }
}
