//! `doorbell devices`: what this machine and this build offer.

use super::{CliError, Output};
use doorbell::device::Registry;
use doorbell::engine::session;

pub fn run(output: Output) -> Result<(), CliError> {
    let chosen = &session().options.device;
    let all = Registry::global().list(&session().device_options());
    for d in &all {
        let mark = if d.name == *chosen { "*" } else { " " };
        match &d.unavailable {
            None => output.say(&format!(
                "{mark} {:<6} {:<14} {:3} cores {:7.1} GiB",
                d.name,
                d.arch,
                d.cores,
                d.memory_bytes as f64 / (1u64 << 30) as f64
            )),
            Some(why) => output.say(&format!("{mark} {:<6} not available: {why}", d.name)),
        }
    }
    output.result(&serde_json::json!({"default": chosen, "devices": all}));
    Ok(())
}
