//! `doorbell launch`: runs kernels of any object file on any device, and prints their times.
//!
//! A GPU kernel reads its arguments from its argument block, each at its natural alignment; a CPU kernel is
//! `void kernel(const uint64_t *args, uint64_t tid)`, called once for each tid below the grid's size.

mod contents;
mod expect;
pub(crate) mod job;
pub(crate) mod object;
pub(crate) mod spec;

use super::{CliError, Output};
use clap::Args;
use doorbell::engine::session;
use expect::Expect;
use job::{Job, file_error};
use object::{CallArgs, Object, Printed};
use serde::Deserialize;
use spec::{Spec, extent};
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(crate) struct LaunchArgs {
    /// Object file for the device's machine: x86-64 ELF, AMD code object, cubin, metallib; text for NVIDIA's (.ptx) and
    /// Apple's (.metal)
    #[arg(value_name = "OBJECT", required_unless_present = "jobs")]
    object: Option<PathBuf>,
    /// Kernel of the object file
    #[arg(long, value_name = "K", required_unless_present = "jobs")]
    kernel: Option<String>,
    /// Workgroups
    #[arg(long, value_name = "X,Y,Z", default_value = "1", value_parser = extent)]
    grid: [u32; 3],
    /// Work-items of a workgroup
    #[arg(long, value_name = "X,Y,Z", default_value = "1", value_parser = extent)]
    block: [u32; 3],
    /// Shared memory of a workgroup in addition to the kernel's own
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    lds: u32,
    /// Workgroups of a cluster, on chips with clusters, if the kernel does not declare it: up to 8 on all of them, 16
    /// on some
    #[arg(long, value_name = "X,Y,Z", value_parser = extent)]
    cluster: Option<[u32; 3]>,
    /// Arguments in order: in:FILE, inout:FILE:OUT, out:BYTES:OUT, null, u8: i8: ... f64:VALUE, hex:BYTES
    #[arg(long = "arg", value_name = "SPEC")]
    args: Vec<Spec>,
    /// Number of launches; each is timed
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    repeat: u32,
    /// Many launches in one process: a JSON list of {object, kernel, grid, block, lds, cluster, args,
    /// repeat, expect: [{out, want, dtype}]}
    #[arg(long, value_name = "FILE", conflicts_with_all = ["object", "kernel"])]
    jobs: Option<PathBuf>,
    #[command(flatten)]
    calls: CallArgs,
}

/// A launch in a jobs file.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Entry {
    object: PathBuf,
    kernel: String,
    #[serde(default = "one")]
    grid: Vec<u32>,
    #[serde(default = "one")]
    block: Vec<u32>,
    #[serde(default)]
    lds: u32,
    #[serde(default)]
    cluster: Option<Vec<u32>>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default = "once")]
    repeat: u32,
    #[serde(default)]
    expect: Vec<Expect>,
}

fn one() -> Vec<u32> {
    vec![1]
}

fn once() -> u32 {
    1
}

impl Entry {
    fn job(self) -> Result<Job, String> {
        let sizes = |list: &[u32]| extent(&list.iter().map(u32::to_string).collect::<Vec<_>>().join(","));
        Ok(Job {
            grid: sizes(&self.grid)?,
            block: sizes(&self.block)?,
            args: self.args.iter().map(|a| a.parse()).collect::<Result<_, _>>()?,
            object: self.object,
            kernel: self.kernel,
            lds_bytes: self.lds,
            cluster: self.cluster.as_deref().map(sizes).transpose()?,
            repeat: self.repeat.max(1),
            expect: self.expect,
        })
    }
}

impl LaunchArgs {
    fn jobs(&self) -> Result<Vec<Job>, CliError> {
        if let Some(path) = &self.jobs {
            let text = crate::files::read(path).map_err(|e| file_error(path, &e))?;
            let wrong = |at: usize, e: &str| CliError::Usage(format!("{}: job {at}: {e}", path.display()));
            let list: Vec<Entry> =
                serde_json::from_slice(&text).map_err(|e| CliError::Usage(format!("{}: {e}", path.display())))?;
            return list.into_iter().enumerate().map(|(k, e)| e.job().map_err(|e| wrong(k, &e))).collect();
        }
        let (Some(object), Some(kernel)) = (&self.object, &self.kernel) else {
            return Err(CliError::Usage("an object and a kernel, or --jobs, are needed".into()));
        };
        let (object, kernel, args) = (object.clone(), kernel.clone(), self.args.clone());
        Ok(vec![Job {
            object,
            kernel,
            grid: self.grid,
            block: self.block,
            lds_bytes: self.lds,
            cluster: self.cluster,
            args,
            repeat: self.repeat,
            expect: Vec::new(),
        }])
    }
}

impl Printed {
    fn say(&self, output: Output) {
        self.lines.iter().for_each(|line| output.say(line));
        if self.lost_calls > 0 {
            let why = "there was no room for their text (--print-buffer BYTES)";
            output.say(&format!("{} calls of printf are lost: {why}", self.lost_calls));
        }
    }
}

pub(crate) fn run(args: &LaunchArgs, output: Output) -> Result<(), CliError> {
    let jobs = args.jobs()?;
    let s = session()?;
    let device = s.device(&s.options.device)?;
    let mut results = Vec::new();
    let (mut as_wanted, mut different) = (0, Vec::new());
    for job in &jobs {
        let object = Object::read(&job.object, &job.kernel, &device, &args.calls, s.options.ptxas.is_none())?;
        let ran = job.run(&object, &device);
        let (printed, failed) = object.report(&device.name);
        printed.say(output);
        failed?;
        let times = ran?;
        let best = times.iter().copied().min().unwrap_or(0);
        output.say(&format!(
            "{} on {}: {:.3} us, the best of {}",
            job.kernel,
            device.name,
            best as f64 / 1e3,
            times.len()
        ));
        for expect in &job.expect {
            match expect.check()? {
                None => as_wanted += 1,
                Some(what) => different.push(what),
            }
        }
        results.push(serde_json::json!({
            "object": job.object, "kernel": job.kernel, "grid": job.grid, "block": job.block, "cluster": job.cluster,
            "times_ns": times, "printed": printed.lines, "lost_calls": printed.lost_calls,
        }));
    }
    different.iter().for_each(|what| output.say(what));
    if as_wanted + different.len() > 0 {
        output.say(&format!("{as_wanted} outputs as expected, {} different", different.len()));
    }
    output.result(&serde_json::json!({
        "device": &*device.name, "arch": device.device.info().arch, "launches": results,
        "as_wanted": as_wanted, "different": different,
    }));
    if different.is_empty() { Ok(()) } else { Err(CliError::Reported) }
}
