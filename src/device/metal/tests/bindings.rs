//! The list of messages, the structs and the constants against bindings that others generated from Apple's headers: the
//! crates `objc2-metal` and `objc2-foundation`, whose source lies where cargo keeps what it has fetched.

use super::headers::Headers;
use crate::metal::memory::{PRIVATE, SHARED};
use crate::metal::messages::{ROWS, Row};
use crate::metal::ns::{Range, Size};
use crate::metal::{FAMILIES, indirect, program, queue};
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

/// The packages with the bindings, and with the protocol of all objects.
const PACKAGES: [(&str, &str); 3] = [("objc2-metal", "src"), ("objc2-foundation", "src"), ("objc2", "src/runtime")];

static HEADERS: LazyLock<Headers> = LazyLock::new(|| {
    let mut headers = Headers::default();
    for folder in folders() {
        headers.read(&folder);
    }
    headers
});

/// Where cargo has the source of the packages; it fetches what it lacks.
fn folders() -> Vec<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command.args(["metadata", "--format-version", "1", "--filter-platform", "aarch64-apple-darwin"]);
    let out = command.output().expect("cargo");
    assert!(out.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&out.stderr));
    let all: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let path = |(name, part): (&str, &str)| {
        let mut all = all["packages"].as_array().into_iter().flatten();
        let manifest = all.find(|p| p["name"] == name).and_then(|p| p["manifest_path"].as_str());
        let manifest = PathBuf::from(manifest.unwrap_or_else(|| panic!("{name} is no dependency")));
        manifest.parent().expect("a folder").join(part)
    };
    PACKAGES.map(path).into()
}

/// What is wrong with a row, in words.
fn wrong(row: &Row) -> Option<String> {
    let (of_class, encoding) = (row.of_class, row.encoding());
    let name = format!("{}[{} {}]", if of_class { '+' } else { '-' }, row.class, row.selector);
    let of_all = || if of_class { None } else { HEADERS.method("NSObjectProtocol", row.selector, false) };
    let found = HEADERS.method(row.class, row.selector, of_class).or_else(of_all);
    let Some(found) = found else { return Some(format!("{name} is no method")) };
    // No name of a struct has an `r`.
    let plain = |codes: &str| if found.hides_const { codes.replace('r', "") } else { codes.into() };
    if plain(&encoding) != plain(&found.encoding) {
        return Some(format!("{name} is of type {}, not {encoding}", found.encoding));
    }
    (row.ownership != found.ownership).then(|| format!("{name} returns {}, not {}", found.ownership, row.ownership))
}

#[test]
fn every_message_is_apple_s_with_its_types_and_owner() {
    let all: Vec<String> = ROWS.iter().filter_map(wrong).collect();
    assert_eq!(all, Vec::<String>::new());
    assert!(ROWS.len() > 50);
}

/// A row of the list, changed.
fn changed(selector: &str, change: impl Fn(&mut Row)) -> Option<String> {
    let mut row = *ROWS.iter().find(|row| row.selector == selector).expect("a row of the list");
    assert_eq!(wrong(&row), None);
    change(&mut row);
    wrong(&row)
}

#[test]
fn a_wrong_selector_type_owner_or_class_is_found() {
    let found = changed("newBufferWithLength:options:", |row| row.selector = "newBufferWithLength:option:");
    assert_eq!(found.as_deref(), Some("-[MTLDevice newBufferWithLength:option:] is no method"));
    let found = changed("setBytes:length:atIndex:", |row| row.codes = &["v", "@:", "r^v", "Q", "I"]);
    let bytes = "-[MTLComputeCommandEncoder setBytes:length:atIndex:]";
    assert_eq!(found, Some(format!("{bytes} is of type v@:^vQQ, not v@:r^vQI")));
    let threads = "dispatchThreadgroups:threadsPerThreadgroup:";
    let found = changed(threads, |row| row.codes = &["v", "@:", "{?=QQQ}", "{?=QQ}"]);
    assert!(found.is_some_and(|f| f.contains("is of type v@:{?=QQQ}{?=QQQ}, not")));
    let found = changed("GPUStartTime", |row| row.codes = &["f", "@:"]);
    assert!(found.is_some_and(|f| f.ends_with("is of type d@:, not f@:")));
    // A byte that is a number, and one that is yes or no.
    let found = changed("fillBuffer:range:value:", |row| row.codes = &["v", "@:", "@", "{_NSRange=QQ}", "B"]);
    assert!(found.is_some_and(|f| f.contains("is of type v@:@{_NSRange=QQ}C, not")));
    let found = changed("newSharedEvent", |row| row.ownership = "+0");
    assert_eq!(found.as_deref(), Some("-[MTLDevice newSharedEvent] returns +1, not +0"));
    let found = changed("commandBuffer", |row| row.ownership = "+1");
    assert_eq!(found.as_deref(), Some("-[MTLCommandQueue commandBuffer] returns +0, not +1"));
    let found = changed("contents", |row| row.class = "MTLTexture");
    assert_eq!(found.as_deref(), Some("-[MTLTexture contents] is no method"));
    let found = changed("stringWithUTF8String:", |row| row.of_class = false);
    assert_eq!(found.as_deref(), Some("-[NSString stringWithUTF8String:] is no method"));
    // The last argument of a method with an error is no argument of the bindings' function.
    let found = changed("newComputePipelineStateWithFunction:error:", |row| row.codes = &["@", "@:", "@"]);
    assert!(found.is_some_and(|f| f.contains("is of type @@:@^@")));
}

#[test]
fn structs_by_value_have_apple_s_fields() {
    let layout = |name: &str| {
        let fields = HEADERS.fields.get(name).unwrap_or_else(|| panic!("no struct {name}"));
        fields.iter().map(|t| HEADERS.code(t)).collect::<String>()
    };
    assert_eq!((layout("MTLSize").as_str(), size_of::<Size>()), ("QQQ", 24));
    assert_eq!((layout("NSRange").as_str(), size_of::<Range>()), ("QQ", 16));
    assert_eq!((HEADERS.code("MTLSize"), HEADERS.code("NSRange")), ("{?=QQQ}".into(), "{_NSRange=QQ}".into()));
    assert_ne!(layout("MTLRegion"), "QQQ");
}

#[test]
fn constants_are_apple_s() {
    let is = |of: &str, name: &str, ours: i128| assert_eq!(HEADERS.constant(of, name), Some(ours), "{of}::{name}");
    for (family, name) in FAMILIES.iter().map(|(family, _)| (family, format!("Apple{}", family - 1000))) {
        is("MTLGPUFamily", &name, (*family).into());
    }
    is("MTLResourceOptions", "StorageModeShared", SHARED.into());
    is("MTLResourceOptions", "StorageModePrivate", PRIVATE.into());
    is("MTLIndirectCommandType", "ConcurrentDispatch", indirect::CONCURRENT_DISPATCH.into());
    is("MTLPipelineOption", "FailOnBinaryArchiveMiss", program::FAIL_ON_MISS.into());
    is("MTLCommandBufferStatus", "Completed", queue::COMPLETED.into());
    is("MTLCommandBufferStatus", "Error", queue::FAILED.into());
    is("MTLLanguageVersion", "Version3_0", program::MSL_3_0.into());
    is("MTLLanguageVersion", "Version3_1", program::MSL_3_1.into());
    is("MTLMathMode", "Safe", program::MATH_SAFE.into());
    // What docs/metal.md says of errors and of memory without tracking.
    is("MTLLibraryError", "CompileFailure", 3);
    is("MTLLibraryError", "CompileWarning", 4);
    is("MTLResourceOptions", "HazardTrackingModeUntracked", 256);
    assert_ne!(HEADERS.constant("MTLCommandBufferStatus", "Scheduled"), Some(queue::COMPLETED.into()));
    assert_eq!(HEADERS.constant("MTLCommandBufferStatus", "Complete"), None);
}

#[test]
fn the_functions_that_are_linked_exist() {
    for name in ["MTLCreateSystemDefaultDevice", "MTLCopyAllDevices"] {
        assert!(HEADERS.functions.iter().any(|f| f == name), "{name}");
    }
    assert!(!HEADERS.functions.iter().any(|f| f == "MTLCopyAllDevice"));
}
