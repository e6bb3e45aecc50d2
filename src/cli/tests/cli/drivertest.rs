//! `doorbell drivertest` from its users' side, and what any command does with a reader that leaves and a file without
//! an end.

use super::{code, doorbell, err, json, run, temp};
use std::process::Stdio;

const KFD: [&str; 3] = ["--device", "AMD:emu=gfx1100", "drivertest"];

fn with(more: &[&str]) -> Vec<String> {
    KFD.iter().chain(more).map(|word| (*word).to_owned()).collect()
}

fn drivertest(more: &[&str]) -> std::process::Output {
    let words = with(more);
    run(temp().path(), &words.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn cases_run_in_processes_and_a_fault_is_a_failure() {
    let o = drivertest(&["run", "kfd.bind.*", "--json"]);
    assert_eq!(code(&o), 0, "{}", err(&o));
    let reported = json(&o, &["ok", "counts", "records"]);
    assert_eq!(reported["counts"]["pass"].as_u64(), reported["records"].as_array().map(|all| all.len() as u64));
    let o = drivertest(&["run", "kfd.bind.again", "--ktap", "--fault", "ACQUIRE_VM:1:EIO"]);
    let text = String::from_utf8_lossy(&o.stdout).into_owned();
    assert_eq!(code(&o), 1, "{text}");
    assert!(text.starts_with("KTAP version 1\n1..1\n") && text.contains("    not ok 1 again\n"), "{text}");
}

#[test]
fn wrong_usage_and_nothing_to_do_have_their_codes() {
    assert_eq!(code(&drivertest(&["run", "kfd.none"])), 2);
    assert_eq!(code(&drivertest(&["run", "--shard", "3/2"])), 3);
    assert_eq!(code(&drivertest(&["explain", "kfd.none"])), 3);
    assert_eq!(code(&run(temp().path(), &["--device", "CPU", "drivertest", "run"])), 3);
    let o = drivertest(&["run", "kfd.bind.again", "--require", "kfd.bind.no-file"]);
    assert_eq!(code(&o), 1);
    assert!(err(&o).contains("kfd.bind.no-file is required and was not run"), "{}", err(&o));
}

#[test]
fn a_reader_that_leaves_ends_the_program_quietly() {
    let t = temp();
    let words = with(&["list"]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut child = doorbell(t.path(), &words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let o = child.wait_with_output().unwrap();
    assert_eq!((code(&o), err(&o)), (0, String::new()));
}

#[test]
fn a_file_without_an_end_is_an_error_with_its_limit() {
    let o = run(temp().path(), &["elf", "/dev/zero"]);
    assert_eq!(code(&o), 2, "{}", err(&o));
    assert!(err(&o).contains("/dev/zero: longer than 67108864 bytes"), "{}", err(&o));
}
