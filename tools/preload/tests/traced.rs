//! Foreign programs under the preload library: they behave as without it, and the trace holds their calls on traced
//! files, nothing else.
//!
//! Witness: C programs on the kernel's header, compiled by gcc, and programs of the system. A regular file stands in
//! for a device: it answers KFD's ioctls with ENOTTY.

use doorbell_ioctl::port::Errno;
use doorbell_ioctl::trace::{Event, What, read_trace};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// The library is next to this test: cargo builds both into one folder.
fn library() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let found = exe.parent().unwrap().join("libdoorbell_preload.so");
    assert!(found.exists(), "{} is not built", found.display());
    found
}

fn built(dir: &Path, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/foreign/{name}.c"));
    let program = dir.join(name);
    // KFD's header includes <drm/drm.h>, which Debian has in libdrm's folder.
    std::os::unix::fs::symlink("/usr/include/libdrm", dir.join("drm")).unwrap();
    // Without PIE the addresses of the program's data are the same in each run. Fortified calls have names of their
    // own.
    let flags = ["-O2", "-D_FORTIFY_SOURCE=2", "-no-pie", "-Wall", "-Werror", "-pthread"];
    let gcc = Command::new("gcc").args(flags).arg("-I").arg(dir).arg(&source).arg("-o").arg(&program).output().unwrap();
    assert!(gcc.status.success(), "{}", String::from_utf8_lossy(&gcc.stderr));
    program
}

/// A folder with a stand-in of 12 KiB in it.
fn stand_in() -> (TempDir, String) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().canonicalize().unwrap().join("stand-in");
    std::fs::write(&path, vec![0; 12 << 10]).unwrap();
    (dir, path.into_os_string().into_string().unwrap())
}

fn run(command: &mut Command, preload: bool) -> Output {
    if preload {
        command.env("LD_PRELOAD", library());
    }
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Lines without time and length: `t0 call = result`.
fn calls(trace: &str) -> Vec<String> {
    let call = |line: &str| {
        let start = line.find(" t").expect("a line has its thread") + 1;
        line[start..].split(" <").next().unwrap().to_string()
    };
    trace.lines().map(call).collect()
}

fn events(path: impl AsRef<Path>) -> Vec<Event> {
    read_trace(std::fs::File::open(path).unwrap()).unwrap()
}

/// The traces that children have written: `name.NUMBER`.
fn children(dir: &Path, name: &str) -> Vec<PathBuf> {
    let is_childs = |p: &PathBuf| {
        let file = p.file_name().unwrap().to_string_lossy();
        file.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'))
    };
    std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).filter(is_childs).collect()
}

/// The calls of `calls.c` on its stand-in, except for the addresses that mmap returns.
fn expected(path: &str, gpus: &str) -> Vec<String> {
    let version = |fd: i32| format!("t0 fd {fd} AMDKFD_IOC_GET_VERSION()");
    let map = format!(
        "t0 fd 3 AMDKFD_IOC_MAP_MEMORY_TO_GPU(handle=0x51, device_ids_array_ptr={gpus}, n_devices=2, n_success=0, \
         *device_ids_array_ptr=[0x7, 0x9]) = -ENOTTY"
    );
    vec![
        format!("t0 open({path}, READ|WRITE|CLOEXEC) = fd 3"),
        "t0 open(/dev/dri/no such card, READ) = -ENOENT".into(),
        version(3) + " = -ENOTTY",
        map,
        version(3) + " = -ENOTTY",
        "t0 mmap(anywhere, 0x2000, READ|WRITE, SHARED, fd 3 at 0x1000) = AT".into(),
        "t0 mmap(anywhere, 0x1000, READ, SHARED, fd 3 at 0x5) = -EINVAL".into(),
        "t0 munmap(AT+1, 0x1000) = -EINVAL".into(),
        "t0 munmap(AT, 0x1000) = 0".into(),
        "t0 munmap(AT+1000, 0x1000) = 0".into(),
        version(40) + " = -ENOTTY",
        "t0 close(fd 40) = 0".into(),
        "t0 close(fd 3) = 0".into(),
        format!("t0 open({path}, READ) = fd 4"),
        version(4) + " = -ENOTTY",
        "t0 close(fd 4) = 0".into(),
    ]
}

/// Puts in the address that mmap gave.
fn with_address(lines: Vec<String>, at: u64) -> Vec<String> {
    let (next, page) = (format!("{:#x}", at + 1), format!("{:#x}", at + 0x1000));
    let put = |l: String| l.replace("AT+1000", &page).replace("AT+1", &next).replace("AT", &format!("{at:#x}"));
    lines.into_iter().map(|l| if l.contains("map(") { put(l) } else { l }).collect()
}

#[test]
fn foreign_program_does_the_same_and_its_calls_are_the_trace() {
    let (dir, path) = stand_in();
    let program = built(dir.path(), "calls");
    let other = dir.path().join("other");
    let (binary, lines) = (dir.path().join("trace"), dir.path().join("lines"));
    let without = run(Command::new(&program).arg(&path).arg(&other), false);
    std::fs::remove_file(&other).unwrap();
    std::fs::write(&binary, "an old file is replaced").unwrap();
    let mut command = Command::new(&program);
    command.arg(&path).arg(&other).env("DOORBELL_TRACE_PATHS", format!("/nowhere:{path}"));
    command.env("DOORBELL_TRACE", &binary).env("DOORBELL_TRACE_TEXT", &lines);
    let with = run(&mut command, true);
    assert_eq!(text(&with.stdout), text(&without.stdout));
    assert_eq!((with.status.code(), text(&with.stderr)), (Some(5), String::new()));
    assert_eq!(without.status.code(), Some(5));

    let events = events(&binary);
    let at = events.iter().find_map(|e| match e.what {
        What::Mmap { result: Ok(at), .. } => Some(at.0),
        _ => None,
    });
    let said = text(&with.stdout);
    let gpus = said.lines().find_map(|l| l.strip_prefix("gpus at ")).unwrap();
    let expected = with_address(expected(&path, gpus), at.expect("a mapping"));
    assert_eq!(calls(&std::fs::read_to_string(&lines).unwrap()), expected);
    let in_file: Vec<String> = events.iter().map(|e| format!("t{} {}", e.moment.thread, e.what)).collect();
    assert_eq!(in_file, expected);
    assert!(events.is_sorted_by_key(|e| e.moment.start_ns));

    let childs = ["t0 fd 3 AMDKFD_IOC_GET_VERSION() = -ENOTTY", "t0 close(fd 3) = 0"];
    let (files, texts) = (children(dir.path(), "trace"), children(dir.path(), "lines"));
    assert_eq!((files.len(), texts.len()), (1, 1));
    assert_eq!(calls(&std::fs::read_to_string(&texts[0]).unwrap()), childs);
    let in_file: Vec<String> = self::events(&files[0]).iter().map(|e| format!("t0 {}", e.what)).collect();
    assert_eq!(in_file, childs);
}

#[test]
fn lines_go_to_standard_error_and_a_childs_have_its_number() {
    let (dir, path) = stand_in();
    let program = built(dir.path(), "calls");
    let mut command = Command::new(&program);
    command.arg(&path).arg(dir.path().join("other")).env("DOORBELL_TRACE_PATHS", &path);
    let with = text(&run(&mut command, true).stderr);
    let (childs, parents): (Vec<&str>, Vec<&str>) = with.lines().partition(|l| l.starts_with('['));
    assert_eq!((childs.len(), parents.len()), (2, 16), "{with}");
    assert!(childs[0].ends_with(" = -ENOTTY") || childs[0].contains(" = -ENOTTY <"), "{with}");
}

#[test]
fn threads_lose_no_call_while_signals_and_forks_interrupt() {
    let (dir, path) = stand_in();
    let program = built(dir.path(), "threads");
    let (binary, lines) = (dir.path().join("trace"), dir.path().join("lines"));
    let mut command = Command::new(&program);
    command.arg(&path).env("DOORBELL_TRACE_PATHS", &path);
    command.env("DOORBELL_TRACE", &binary).env("DOORBELL_TRACE_TEXT", &lines);
    let with = run(&mut command, true);
    assert_eq!((text(&with.stdout), text(&with.stderr)), ("1620 good\n".into(), String::new()));
    let events = events(&binary);
    let count = |wanted: fn(&What) -> bool| events.iter().filter(|e| wanted(&e.what)).count();
    assert_eq!(count(|w| matches!(w, What::Mmap { result: Ok(_), .. })), 800);
    assert_eq!(count(|w| matches!(w, What::Munmap { result: Ok(()), .. })), 800);
    // The handler of the timer makes some more.
    assert!(count(|w| matches!(w, What::Ioctl(call) if call.result == Err(Errno::ENOTTY))) >= 800);
    assert!(events.iter().any(|e| e.moment.thread == 4), "the main thread and four more");
    assert_eq!(std::fs::read_to_string(&lines).unwrap().lines().count(), events.len());
    let childs: Vec<PathBuf> = children(dir.path(), "trace");
    assert_eq!(childs.len(), 20);
    assert!(childs.iter().all(|p| !self::events(p).is_empty()));
}

#[test]
fn number_of_the_process_can_be_put_into_the_names() {
    let (dir, path) = stand_in();
    let program = built(dir.path(), "calls");
    let mut command = Command::new(&program);
    command.arg(&path).arg(dir.path().join("other")).env("DOORBELL_TRACE_PATHS", &path);
    command.env("DOORBELL_TRACE", dir.path().join("trace.%p")).env("DOORBELL_TRACE_TEXT", "");
    let with = run(&mut command, true);
    assert!(with.stderr.is_empty());
    let mut lengths: Vec<usize> = children(dir.path(), "trace").iter().map(|p| events(p).len()).collect();
    lengths.sort_unstable();
    assert_eq!(lengths, [2, 16]);
}

#[test]
fn trace_that_cannot_be_written_is_said_once_and_harms_nothing() {
    let (dir, path) = stand_in();
    let program = built(dir.path(), "calls");
    let other = dir.path().join("other");
    let without = run(Command::new(&program).arg(&path).arg(&other), false);
    std::fs::remove_file(&other).unwrap();
    let mut command = Command::new(&program);
    command.arg(&path).arg(&other).env("DOORBELL_TRACE_PATHS", &path).env("DOORBELL_TRACE_TEXT", "");
    command.env("DOORBELL_TRACE", "/no such folder/trace");
    let with = run(&mut command, true);
    assert_eq!((text(&with.stdout), with.status), (text(&without.stdout), without.status));
    let said = text(&with.stderr);
    assert!(said.starts_with("doorbell-preload: /no such folder/trace: not written: ENOENT\n"), "{said}");
    assert_eq!(said.lines().count(), 2, "once a process");
}

#[test]
fn programs_of_the_system_run_unchanged_and_without_a_trace() {
    let (dir, _) = stand_in();
    let trace = dir.path().join("trace");
    let source = dir.path().join("a.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let source = source.to_str().unwrap();
    // The last one starts others, with vfork and pipes; the preloaded library is in all of them.
    let programs: [(&str, &[&str]); 5] = [
        ("/bin/ls", &["-l", "/usr/include", "/proc/self/exe"]),
        ("/bin/sh", &["-c", "for n in 1 2 3; do echo $n | cat; done; exit 7"]),
        ("gcc", &["--version"]),
        ("python3", &["-c", "import subprocess, threading; print(subprocess.run(['echo', 'a'], capture_output=True))"]),
        ("gcc", &["-pipe", "-O1", "-S", "-o", "-", source]),
    ];
    for (program, args) in programs {
        let without = run(Command::new(program).args(args), false);
        let mut command = Command::new(program);
        let with = run(command.args(args).env("DOORBELL_TRACE", &trace), true);
        assert_eq!(text(&with.stdout), text(&without.stdout), "{program}");
        assert_eq!((text(&with.stderr), with.status), (text(&without.stderr), without.status), "{program}");
        assert!(!without.stdout.is_empty() && !trace.exists(), "{program}");
    }
}
