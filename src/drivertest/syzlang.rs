//! The tables of calls as syzlang, the language in which syzkaller knows system calls.
//!
//! Source: syzkaller's "Syscall descriptions syntax". Numbers are written out, since no kernel's headers have
//! NVIDIA's. Handles, ids and files are resources: what a call answers, another takes. RM's allocations and commands
//! are a call each, by class and by command, as its struct is known only then. Left out: what the tables do not
//! describe (commands by their number alone), and releases before the newest.

use crate::target::Driver;
use doorbell_ioctl::abi::{self, Count, Desc, Dir, Element, FieldDesc, Kind, Layout, kfd, nvrm, uvm};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Definitions, by name: each is written once.
#[derive(Default)]
struct Page {
    calls: String,
    names: BTreeSet<String>,
    structs: BTreeMap<String, String>,
    flags: BTreeMap<String, String>,
}

/// A file's resource, the call that opens it, and its path.
const FILES: &[(Driver, &str, &str)] = &[
    (Driver::Kfd, "fd_kfd", "/dev/kfd"),
    (Driver::Kfd, "fd_render", "/dev/dri/renderD128"),
    (Driver::Nv, "fd_nvctl", "/dev/nvidiactl"),
    (Driver::Nv, "fd_nvcard", "/dev/nvidia0"),
    (Driver::Nv, "fd_nvuvm", "/dev/nvidia-uvm"),
];

/// A driver's description.
#[must_use]
pub fn emit(driver: Driver) -> String {
    let mut page = Page::default();
    match driver {
        Driver::Kfd => {
            kfd::TABLE.iter().filter(|d| d.until.is_none()).for_each(|d| page.call(d, "fd_kfd"));
            abi::drm::TABLE.iter().for_each(|d| page.call(d, "fd_render"));
        }
        Driver::Nv => {
            for desc in nvrm::TABLE.iter().filter(|d| d.until.is_none()) {
                page.rm(desc);
            }
            uvm::TABLE.iter().filter(|d| d.until.is_none()).for_each(|d| page.call(d, "fd_nvuvm"));
        }
    }
    page.finish(driver)
}

/// A name of syzlang: letters, digits and underscores.
fn word(text: &str) -> String {
    text.trim_start_matches("struct ").chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// A field's name: C's where it is a word of its own, which no keyword of syzlang is.
fn field_name(field: &FieldDesc) -> String {
    const KEYWORDS: &[&str] = &["parent", "type", "resource", "include", "define", "incdir", "in", "out", "inout"];
    let name = field.name.to_owned();
    if KEYWORDS.contains(&&*name) { format!("{name}_") } else { name }
}

fn int(bytes: u32) -> String {
    format!("int{}", bytes * 8)
}

fn dir(dir: Dir) -> &'static str {
    match dir {
        Dir::In => "in",
        Dir::Out => "out",
        Dir::InOut => "inout",
    }
}

impl Page {
    fn finish(self, driver: Driver) -> String {
        let mut text = String::from("# Written by `doorbell drivertest syzlang` from the tables of calls.\n\n");
        for (_, resource, path) in FILES.iter().filter(|(of, _, _)| *of == driver) {
            // Writing to a string does not fail.
            let _ = writeln!(text, "resource {resource}[fd]");
            let _ = writeln!(
                text,
                "openat${resource}(fd const[0xffffffffffffff9c], file ptr[in, string[\"{path}\"]], flags const[0x2], \
                 mode const[0x0]) {resource}"
            );
        }
        for resource in resources(driver) {
            let _ = writeln!(text, "{resource}");
        }
        let _ = write!(text, "\n{}\n", self.calls);
        for (name, body) in &self.structs {
            let _ = write!(text, "{name} {{\n{body}}} [packed]\n\n");
        }
        for (name, values) in &self.flags {
            let _ = writeln!(text, "{name} = {values}");
        }
        text
    }

    fn call(&mut self, desc: &Desc, file: &str) {
        let name = word(desc.layout.name);
        self.layout(desc.layout, desc, &name, None);
        let direction = match desc.request >> 30 {
            1 => "in",
            2 => "out",
            _ => "inout",
        };
        self.line(&word(desc.name), desc, file, &format!("ptr[{direction}, {name}]"));
    }

    /// A call; one whose name is taken (another form of the same call) has its struct's size in its name.
    fn line(&mut self, name: &str, desc: &Desc, file: &str, arg: &str) {
        let taken = self.names.contains(name);
        let name = if taken { format!("{name}_{}", desc.layout.len_bytes) } else { name.to_owned() };
        let _ = writeln!(self.calls, "ioctl${name}(fd {file}, cmd const[{:#x}], arg {arg})", desc.request);
        self.names.insert(name);
    }

    /// RM's calls: one for each class or command whose struct is known.
    fn rm(&mut self, desc: &'static Desc) {
        let chooses = desc.layout.fields.iter().find_map(|f| match f.kind {
            Kind::Choice(among) => Some((f, among)),
            _ => None,
        });
        let on_card = [&nvrm::ALLOC_MEMORY.desc, &nvrm::NUMA_INFO.desc, &nvrm::WAIT_OPEN_COMPLETE.desc];
        let file = if on_card.contains(&desc) { "fd_nvcard" } else { "fd_nvctl" };
        let Some((field, among)) = chooses else { return self.call(desc, file) };
        for choice in among.iter().filter(|choice| choice.layout.is_some()) {
            let name = format!("{}_{}", word(desc.layout.name), word(choice.name));
            self.layout(desc.layout, desc, &name, Some((field, choice.value, choice.layout)));
            let call = format!("{}_{}", word(desc.name), word(choice.name));
            self.line(&call, desc, file, &format!("ptr[inout, {name}]"));
        }
    }

    /// A struct, and those inside it.
    fn layout(&mut self, layout: &Layout, desc: &Desc, name: &str, chosen: Option<Chosen>) {
        if self.structs.contains_key(name) {
            return;
        }
        let mut body = String::new();
        for field in layout.fields {
            let kind = self.field(field, layout, desc, chosen);
            let attribute = if field.dir == Dir::Out { "\t(out)" } else { "" };
            let _ = writeln!(body, "\t{}\t{kind}{attribute}", field_name(field));
        }
        self.structs.insert(name.to_owned(), body);
    }

    /// A plain struct without pointers of its own call.
    fn nested(&mut self, layout: &'static Layout, desc: &Desc) -> String {
        let name = word(layout.name);
        self.layout(layout, desc, &name, None);
        name
    }

    fn field(&mut self, field: &FieldDesc, layout: &Layout, desc: &Desc, chosen: Option<Chosen>) -> String {
        let plain = int(field.len_bytes);
        let whole = matches!(field.len_bytes, 1 | 2 | 4 | 8);
        if let Some((own, value, _)) = chosen
            && own == field
        {
            return format!("const[{value:#x}, {plain}]");
        }
        if let Some(counted) = counted(field, layout, desc, chosen) {
            return counted;
        }
        match field.kind {
            Kind::Pointer => self.pointer(field, desc, chosen),
            Kind::Nested(inner) => {
                let name = self.nested(inner, desc);
                let count = field.len_bytes / inner.len_bytes;
                if count == 1 { name } else { format!("array[{name}, {count}]") }
            }
            Kind::Reserved if whole => format!("const[0x0, {plain}]"),
            Kind::Flags(values) | Kind::Enum(values) if whole && values.len() < 200 => {
                let name = format!("{}_{}", word(layout.name), field.name);
                let list: Vec<String> = values.iter().map(|(value, _)| format!("{value:#x}")).collect();
                self.flags.insert(name.clone(), list.join(", "));
                format!("flags[{name}, {plain}]")
            }
            Kind::Words => format!("array[int32, {}]", field.len_bytes / 4),
            _ if !whole => format!("array[int8, {}]", field.len_bytes),
            Kind::Address if field.len_bytes == 8 => "vma64".to_owned(),
            _ => resource(field, desc).unwrap_or(plain),
        }
    }

    /// What a pointer leads to.
    fn pointer(&mut self, field: &FieldDesc, desc: &Desc, chosen: Option<Chosen>) -> String {
        if let Some((_, _, Some(layout))) = chosen {
            let is_params = ["p_alloc_parms", "params"].contains(&field.name);
            if is_params {
                let name = self.nested(layout, desc);
                return format!("ptr64[inout, {name}]");
            }
        }
        match desc.embedded.iter().find(|e| e.pointer == field.name) {
            None => "ptr64[inout, array[int8]]".to_owned(),
            Some(embedded) => {
                let element = match embedded.element {
                    Element::U32 => "int32".to_owned(),
                    Element::Struct(layout) => self.nested(layout, desc),
                    Element::Bytes | Element::Chosen(_) => "int8".to_owned(),
                };
                format!("ptr64[{}, array[{element}]]", dir(embedded.dir))
            }
        }
    }
}

/// The field that chooses, the value, and what it chooses.
type Chosen = (&'static FieldDesc, u32, Option<&'static Layout>);

/// The length of what a pointer leads to.
fn counted(field: &FieldDesc, layout: &Layout, desc: &Desc, chosen: Option<Chosen>) -> Option<String> {
    let plain = int(field.len_bytes);
    if chosen.is_some_and(|(_, _, inner)| inner.is_some()) && field.name == "params_size" {
        let pointer = layout.fields.iter().find(|f| ["p_alloc_parms", "params"].contains(&f.name))?;
        return Some(format!("bytesize[{}, {plain}]", pointer.name));
    }
    let of = desc.embedded.iter().find_map(|e| match e.count {
        Count::Field(name) if name == field.name && layout.field(e.pointer).is_some() => Some(e.pointer),
        _ => None,
    })?;
    Some(format!("len[{of}, {plain}]"))
}

/// Resources that are no files.
fn resources(driver: Driver) -> &'static [&'static str] {
    match driver {
        Driver::Kfd => &[
            "resource kfd_handle[int64]",
            "resource kfd_gpu_id[int32]",
            "resource kfd_queue_id[int32]",
            "resource kfd_event_id[int32]",
            "resource kfd_mmap_offset[int64]",
        ],
        Driver::Nv => &["resource nv_handle[int32]: 0x0", "resource nv_gpu_id[int32]", "resource nv_token[int32]"],
    }
}

/// The resource that a field carries.
fn resource(field: &FieldDesc, desc: &Desc) -> Option<String> {
    let in_table = |table: &[&Desc]| table.iter().any(|known| known.request == desc.request);
    let (is_kfd, is_nv) = (in_table(kfd::TABLE), in_table(nvrm::TABLE) || in_table(uvm::TABLE));
    let name = match (field.kind, field.len_bytes) {
        (Kind::Handle, 8) if is_kfd => "kfd_handle",
        (Kind::Handle, 4) if is_nv => "nv_handle",
        (Kind::GpuId, 4) if is_kfd => "kfd_gpu_id",
        (Kind::GpuId, 4) if is_nv => "nv_gpu_id",
        (Kind::QueueId, 4) if is_kfd => "kfd_queue_id",
        (Kind::QueueId, 4) if is_nv => "nv_token",
        (Kind::EventId, 4) if is_kfd => "kfd_event_id",
        (Kind::MapOffset, 8) if is_kfd => "kfd_mmap_offset",
        (Kind::Fd, 4) => "fd",
        _ => return None,
    };
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a description defines, and what it names: a reader of the grammar's parts that are used here.
    #[derive(Default)]
    struct Read {
        defined: BTreeSet<String>,
        used: BTreeSet<String>,
        calls: usize,
    }

    /// `name` or `name[argument, ...]`; returns what is left.
    fn kind<'a>(text: &'a str, read: &mut Read) -> Result<&'a str, String> {
        let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
        let (name, mut rest) = text.split_at(end);
        if name.is_empty() {
            return Err(format!("no name at {text:?}"));
        }
        if !name.starts_with(|c: char| c.is_ascii_digit()) {
            read.used.insert(name.to_owned());
        }
        if let Some(inside) = rest.strip_prefix('[') {
            rest = inside;
            loop {
                rest = match rest.strip_prefix('"') {
                    Some(string) => string.split_once('"').ok_or("a string without an end")?.1,
                    None => kind(rest, read)?,
                };
                match rest.as_bytes().first() {
                    Some(b',') => rest = rest[1..].trim_start(),
                    Some(b']') => break rest = &rest[1..],
                    _ => return Err(format!("neither , nor ] at {rest:?}")),
                }
            }
        }
        Ok(rest)
    }

    fn define(read: &mut Read, name: &str) -> Result<(), String> {
        if read.defined.insert(name.to_owned()) { Ok(()) } else { Err(format!("{name} is defined twice")) }
    }

    fn parse(text: &str) -> Result<Read, String> {
        let mut read = Read::default();
        let mut inside = false;
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if inside && line.starts_with('}') {
                inside = false;
                continue;
            }
            let what = |error: String| format!("{error}: {line}");
            if let Some(field) = line.strip_prefix('\t').filter(|_| inside) {
                let (_, type_) = field.split_once('\t').ok_or("a field without a type".to_owned()).map_err(what)?;
                let rest = kind(type_, &mut read).map_err(what)?;
                if !matches!(rest, "" | "\t(out)") {
                    return Err(what(format!("{rest:?} behind a field")));
                }
            } else if let Some(resource) = line.strip_prefix("resource ") {
                let name = resource.split('[').next().unwrap_or("");
                define(&mut read, name).map_err(what)?;
            } else if let Some(name) = line.strip_suffix(" {") {
                define(&mut read, name).map_err(what)?;
                inside = true;
            } else if let Some((name, values)) = line.split_once(" = ") {
                define(&mut read, name).map_err(what)?;
                if values.split(", ").any(|v| u64::from_str_radix(v.trim_start_matches("0x"), 16).is_err()) {
                    return Err(what("a value that is no number".into()));
                }
            } else {
                call(line, &mut read).map_err(what)?;
            }
        }
        if inside { Err("a struct without an end".into()) } else { Ok(read) }
    }

    fn call(line: &str, read: &mut Read) -> Result<(), String> {
        let (name, rest) = line.split_once('(').ok_or("no call")?;
        define(read, name)?;
        read.calls += 1;
        let (arguments, answer) = rest.rsplit_once(')').ok_or("a call without an end")?;
        let mut rest = arguments;
        while !rest.is_empty() {
            let (_, type_) = rest.split_once(' ').ok_or("an argument without a type")?;
            rest = kind(type_, read)?.trim_start_matches([',', ' ']);
        }
        if !answer.is_empty() {
            read.used.insert(answer.trim().to_owned());
        }
        Ok(())
    }

    #[test]
    fn descriptions_are_whole_and_define_what_they_use_once() {
        const KNOWN: &[&str] = &[
            "const", "ptr", "ptr64", "in", "out", "inout", "string", "array", "flags", "len", "bytesize", "fd", "int8",
            "int16", "int32", "int64", "vma64",
        ];
        for (driver, least) in [(Driver::Kfd, 39), (Driver::Nv, 100)] {
            let text = emit(driver);
            let read = parse(&text).unwrap();
            assert!(read.calls >= least, "{driver:?}: {} calls", read.calls);
            let fields: BTreeSet<&str> =
                text.lines().filter_map(|line| line.strip_prefix('\t')?.split('\t').next()).collect();
            let known = |name: &&String| {
                !read.defined.contains(*name) && !KNOWN.contains(&&***name) && !fields.contains(&***name)
            };
            let unknown: Vec<_> = read.used.iter().filter(known).collect();
            assert_eq!(unknown, Vec::<&String>::new(), "{driver:?}");
        }
    }

    #[test]
    fn a_call_carries_its_number_and_its_resources() {
        let text = emit(Driver::Kfd);
        assert!(text.contains("ioctl$AMDKFD_IOC_DESTROY_QUEUE(fd fd_kfd, cmd const[0xc0084b03], arg ptr[inout, kfd_ioctl_destroy_queue_args])"));
        assert!(text.contains("\tqueue_id\tkfd_queue_id\n\tpad\tconst[0x0, int32]\n"), "{text}");
        assert!(
            text.contains("\tevents_ptr\tptr64[inout, array[kfd_event_data]]\n\tnum_events\tlen[events_ptr, int32]\n")
        );
        let text = emit(Driver::Nv);
        assert!(
            text.contains("\tp_alloc_parms\tptr64[inout, NV0080_ALLOC_PARAMETERS]\n"),
            "NV01_DEVICE_0's parameters"
        );
    }
}
