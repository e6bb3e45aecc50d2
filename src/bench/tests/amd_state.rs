//! What an AMD card says of itself, served by the software KFD: each revision of `gpu_metrics`, damaged ones, the link.

use doorbell::device::Device;
use doorbell::device::amd::metrics::table;
use doorbell::device::amd::{AmdDevice, AmdOptions, Driver, Selector};
use doorbell::emu::kfd::{Chip, Config, SoftKfd};
use serde_json::{Value, json};

/// The state of a card with this table and link.
fn state(metrics: Option<Vec<u8>>, link: (&'static str, u32)) -> (String, Value) {
    let port = SoftKfd::new(Config { metrics, link, ..Config::new(Chip::Gfx942) }).unwrap();
    let driver = Driver::open("AMD", port as _).unwrap();
    let device = AmdDevice::open("AMD", &driver, &Selector::Index(0), &AmdOptions::default()).unwrap();
    let state = device.state().unwrap();
    device.close().unwrap();
    (state.line, state.values)
}

const FULL: (&str, u32) = ("32.0 GT/s PCIe", 16);

#[test]
fn every_revision_is_told_in_degrees_watts_and_megahertz() {
    let values = [
        ("temperature_hotspot", 65),
        ("temperature_gfx", 6500),
        ("average_socket_power", 300),
        ("curr_socket_power", 300),
    ];
    let revisions = (0..=8).map(|c| (1, c)).chain((0..=4).map(|c| (2, c))).chain([(3, 0)]);
    for (format, content) in revisions {
        let (line, values) = state(table(format, content, &values), FULL);
        let metrics = &values["metrics"];
        assert_eq!(metrics["revision"], format!("{format}.{content}"));
        let hottest = if format == 1 { "hotspot" } else { "gfx" };
        assert_eq!(metrics["temperature_c"][hottest], 65.0, "{metrics}");
        assert_eq!(metrics["power_w"], if format == 1 { 300.0 } else { 0.3 }, "{metrics}");
        assert!(line.contains("65 C") && line.contains("PCIe 32 GT/s x16"), "{line}");
    }
}

#[test]
fn unknown_and_damaged_tables_are_told_and_nothing_is_made_up() {
    let good = table(1, 3, &[]).unwrap();
    let mut unknown = good.clone();
    unknown[3] = 77;
    for (bytes, why) in [
        (unknown, "gpu_metrics revision 1.77 is unknown"),
        (good[..50].to_vec(), "gpu_metrics of 50 bytes is cut off"),
        (vec![1], "gpu_metrics of 1 bytes is cut off"),
    ] {
        let (_, values) = state(Some(bytes), FULL);
        assert_eq!((&values["metrics"], &values["metrics_refused"]), (&Value::Null, &json!(why)));
    }
    let (_, values) = state(None, FULL);
    assert_eq!((&values["metrics"], &values["metrics_refused"]), (&Value::Null, &Value::Null));
}

#[test]
fn a_link_that_came_up_narrow_is_told_beside_what_it_could_be() {
    let (_, values) = state(None, ("8.0 GT/s PCIe", 4));
    assert_eq!(values["link"], json!({"gt_per_s": 8.0, "lanes": 4, "most_gt_per_s": 32.0, "most_lanes": 16}));
}
