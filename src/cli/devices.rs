//! `doorbell devices`: what this machine and this build offer.

use super::{CliError, Output};
use doorbell::device::Registry;
use doorbell::engine::session;

pub fn run(output: Output) -> Result<(), CliError> {
    let chosen = &session().options.device;
    let options = session().device_options();
    let mut all = Registry::global().list(&options);
    for d in &mut all {
        let mark = if d.name == *chosen { "*" } else { " " };
        // A software GPU is made only for whoever asks for it.
        if d.name == *chosen && d.unavailable.is_none() && d.state.is_none() {
            d.state = Registry::global().open(chosen, &options).ok().and_then(|device| device.state());
        }
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
        if let Some(state) = &d.state {
            output.say(&format!("         {}", state.line));
        }
    }
    output.result(&serde_json::json!({"default": chosen, "devices": all}));
    Ok(())
}
