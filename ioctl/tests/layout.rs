//! The descriptions in `abi` against the installed kernel headers: a C program generated from the descriptions prints
//! every size, offset and number as the C compiler sees them, and this test compares.
//!
//! Needs gcc, `linux/kfd_ioctl.h` (Debian: linux-libc-dev) and `libdrm/amdgpu_drm.h` (libdrm-dev); `cargo xtask setup`
//! installs them. Calls that the installed header is too old for are compared with the table of numbers in `abi::kfd`;
//! the test prints which.

use doorbell_ioctl::abi::{self, Element, Kind, Layout, drm, kfd};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

const HEAD: &str = "#include <stddef.h>\n#include <stdio.h>\n#include <stdint.h>\n#include <linux/kfd_ioctl.h>\n#include <amdgpu_drm.h>\n\
    int main(void) {\nprintf(\"minor %u\\n\", KFD_IOCTL_MINOR_VERSION);\n";
const FOLDER: &str = "/usr/include/libdrm";

/// Structs, and calls by the end of their name, that came after KFD 1.11: the minor that brought them.
const NEWER: &[(&str, u32)] = &[
    ("struct kfd_ioctl_export_dmabuf_args", 12),
    ("struct kfd_ioctl_runtime_enable_args", 13),
    ("struct kfd_ioctl_dbg_trap_args", 13),
    ("struct kfd_context_save_area_header", 13),
    ("struct kfd_hsa_signal_event_data", 14),
];
/// Described only as far as it is used: the C struct is longer.
const HEADS: &[&str] = &["struct drm_amdgpu_info_device"];

/// The calls whose headers a system has; NVIDIA's are compared in `nv.rs`.
fn described() -> impl Iterator<Item = &'static abi::Desc> {
    kfd::TABLE.iter().chain(drm::TABLE).copied()
}

fn newer(name: &str) -> u32 {
    NEWER.iter().find(|(known, _)| *known == name).map_or(0, |(_, minor)| *minor)
}

/// All layouts reachable from the calls, and those that only answers have.
fn layouts() -> Vec<&'static Layout> {
    let mut open: Vec<&'static Layout> = vec![
        &kfd::ContextSaveAreaHeader::LAYOUT,
        &drm::InfoFirmware::LAYOUT,
        &drm::MemoryInfo::LAYOUT,
        &drm::DeviceInfo::LAYOUT,
    ];
    for d in described() {
        open.push(d.layout);
        open.extend(d.out);
        open.extend(d.embedded.iter().filter_map(|e| if let Element::Struct(l) = e.element { Some(l) } else { None }));
    }
    let mut found: Vec<&'static Layout> = Vec::new();
    while let Some(layout) = open.pop() {
        if found.contains(&layout) {
            continue;
        }
        found.push(layout);
        for f in layout.fields {
            match f.kind {
                Kind::Nested(inner) => open.push(inner),
                Kind::Union(forms) => open.extend(forms.iter().map(|(_, l)| *l)),
                _ => {}
            }
        }
    }
    found
}

/// Name → value as described here, and the C program that prints the same names.
fn program() -> (BTreeMap<String, u64>, String) {
    let mut ours = BTreeMap::new();
    let mut source = HEAD.to_string();
    let mut probe = |key: String, value: u64, since: u32, c: String| {
        // The same name may be described in two forms; each key says which.
        writeln!(
            source,
            "#if KFD_IOCTL_MINOR_VERSION >= {since}\nprintf(\"{key} = %llu\\n\", (unsigned long long)({c}));\n#endif"
        )
        .unwrap();
        ours.insert(key, value);
    };
    for layout in layouts() {
        let name = layout.name;
        // Both forms of CREATE_QUEUE have one name in C: the longer one came with 1.17, and then the shorter one is
        // gone.
        let since = if layout.len_bytes == 96 && name.contains("create_queue") { 17 } else { newer(name) };
        let until = if layout.len_bytes == 88 && name.contains("create_queue") { 1 } else { 0 };
        if !HEADS.contains(&name) {
            probe(
                format!("sizeof {name} [{since}-{until}]"),
                layout.len_bytes.into(),
                since,
                format!("sizeof({name})"),
            );
        }
        for f in layout.fields.iter().filter(|f| !f.c_name.is_empty()) {
            let key = format!("{name}.{} [{since}-{until}]", f.c_name);
            probe(key.clone(), f.offset.into(), since, format!("offsetof({name}, {})", f.c_name));
            if !matches!(f.kind, Kind::Union(_)) && f.name != "detail" {
                let size = format!("sizeof((({name} *)0)->{})", f.c_name);
                probe(format!("{key} size"), f.len_bytes.into(), since, size);
            }
        }
    }
    for d in described() {
        let since = if d.since > 11 { d.since } else { 0 };
        probe(format!("{} [{since}]", d.name), d.request.into(), since, format!("(unsigned){}", d.name));
    }
    source.push_str("return 0;\n}\n");
    (ours, source)
}

/// Compiles and runs the program.
fn run(source: &str) -> String {
    let dir = std::env::temp_dir().join(format!("doorbell-layout-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    // KFD's header includes <drm/drm.h>, which Debian has in libdrm's folder.
    let link = dir.join("drm");
    if !link.exists() {
        std::os::unix::fs::symlink(FOLDER, &link).unwrap();
    }
    let (file, binary) = (dir.join("probe.c"), dir.join("probe"));
    std::fs::write(&file, source).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.arg("-I").arg(&dir).args(["-I", FOLDER, "-Wall", "-Werror", "-o"]).arg(&binary).arg(&file);
    let out = gcc.output().expect("gcc");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let out = Command::new(&binary).output().unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    String::from_utf8(out.stdout).unwrap()
}

/// What the C program printed otherwise.
fn differences(ours: &BTreeMap<String, u64>, lines: &[&str]) -> Vec<String> {
    let differs = |line: &&str| {
        let (key, value) = line.rsplit_once(" = ").unwrap();
        let theirs: u64 = value.parse().unwrap();
        (ours[key] != theirs).then(|| format!("{key}: {} here, {theirs} in C", ours[key]))
    };
    lines.iter().filter_map(differs).collect()
}

#[test]
fn sizes_offsets_and_numbers_are_those_of_the_installed_headers() {
    assert!(Path::new("/usr/include/linux/kfd_ioctl.h").exists(), "linux/kfd_ioctl.h is missing: cargo xtask setup");
    assert!(Path::new(FOLDER).join("amdgpu_drm.h").exists(), "libdrm/amdgpu_drm.h is missing: cargo xtask setup");
    let (ours, source) = program();
    let text = run(&source);
    let (minor, text) = text.split_once('\n').unwrap();
    let minor: u32 = minor.strip_prefix("minor ").unwrap().parse().unwrap();
    assert!(minor >= 11, "KFD interface 1.{minor}");
    // The shorter form of CREATE_QUEUE is compared only with headers that still have it.
    let is_gone =
        |line: &&str| minor >= 17 && (line.contains("-1]") || line.starts_with("AMDKFD_IOC_CREATE_QUEUE [0]"));
    let lines: Vec<&str> = text.lines().filter(|line| !is_gone(line)).collect();
    let (compared, differ) = (lines.len(), differences(&ours, &lines));
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    assert!(compared >= 380, "only {compared} of {} compared", ours.len());
    println!("{compared} of {} compared with the headers of KFD 1.{minor}; the rest is newer", ours.len());
}

#[test]
fn description_that_differs_from_c_is_noticed() {
    let ours = BTreeMap::from([("sizeof struct a [0-0]".to_string(), 8), ("struct a.b [0-0]".to_string(), 4)]);
    let differ = differences(&ours, &["sizeof struct a [0-0] = 8", "struct a.b [0-0] = 0"]);
    assert_eq!(differ, ["struct a.b [0-0]: 4 here, 0 in C"]);
}
