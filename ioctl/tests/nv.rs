//! RM's and UVM's descriptions against numbers that C programs printed (`nv_layout.tsv`): every struct's size, every
//! field's offset and size, every request, command, class and status.
//!
//! The headers are not installed on any system, so the table replaces them.

use doorbell_ioctl::abi::{self, Kind, Layout, nvrm, uvm};
use std::collections::BTreeMap;

const TABLE: &str = include_str!("nv_layout.tsv");

struct Facts {
    /// Struct → field → offset, bytes.
    structs: BTreeMap<&'static str, BTreeMap<&'static str, (u32, u32)>>,
    consts: BTreeMap<&'static str, u64>,
}

fn number(text: &str) -> u64 {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
        None => text.parse().unwrap(),
    }
}

fn facts() -> Facts {
    let (mut structs, mut consts) = (BTreeMap::new(), BTreeMap::new());
    for line in TABLE.lines().filter(|l| !l.starts_with('#')) {
        let parts: Vec<&'static str> = line.split('\t').collect();
        if parts[0] == "const" {
            consts.insert(parts[1], number(parts[2]));
        } else {
            let fields: &mut BTreeMap<_, _> = structs.entry(parts[0]).or_default();
            fields.insert(parts[1], (number(parts[2]) as u32, number(parts[3]) as u32));
        }
    }
    Facts { structs, consts }
}

/// Fields at other offsets than in the release of the table: forms of other releases.
fn is_of_another_release(layout: &Layout) -> bool {
    [
        &nvrm::RmMapMemoryDmaV535::LAYOUT,
        &uvm::MapExternalAllocationV535::LAYOUT,
        &uvm::UnregisterChannelV595::LAYOUT,
        &uvm::FreeV595::LAYOUT,
    ]
    .contains(&layout)
}

fn layouts() -> Vec<&'static Layout> {
    let mut open: Vec<&'static Layout> = nvrm::TABLE.iter().chain(uvm::TABLE).map(|d| d.layout).collect();
    open.extend(nvrm::CLASSES.iter().chain(nvrm::CONTROLS).filter_map(|c| c.layout));
    let mut found: Vec<&'static Layout> = Vec::new();
    while let Some(layout) = open.pop() {
        if !found.contains(&layout) {
            found.push(layout);
            open.extend(layout.fields.iter().filter_map(|f| match f.kind {
                Kind::Nested(inner) => Some(inner),
                _ => None,
            }));
        }
    }
    found
}

#[test]
fn sizes_and_offsets_are_those_of_the_compiled_headers() {
    let facts = facts();
    let (mut structs, mut fields) = (0, 0);
    for layout in layouts().into_iter().filter(|l| !is_of_another_release(l)) {
        let name = layout.name.split('[').next().unwrap();
        let known = facts.structs.get(name).unwrap_or_else(|| panic!("{name} is not in the table"));
        if name == layout.name {
            assert_eq!(known["sizeof"].1, layout.len_bytes, "sizeof {name}");
        }
        structs += 1;
        for f in layout.fields.iter().filter(|f| !f.c_name.is_empty()) {
            let (offset, len) = *known.get(f.c_name).unwrap_or_else(|| panic!("{name}.{} is not there", f.c_name));
            assert_eq!((f.offset, f.len_bytes), (offset, len), "{name}.{}", f.c_name);
            fields += 1;
        }
    }
    assert!(structs > 120 && fields > 600, "{structs} structs, {fields} fields");
}

#[test]
fn every_byte_of_a_struct_is_described_and_gaps_are_padding() {
    for layout in layouts() {
        let mut at = 0;
        for f in layout.fields {
            assert_eq!(f.offset, at, "{}.{}", layout.name, f.name);
            at += f.len_bytes;
            assert!(
                !f.c_name.is_empty() || matches!(f.kind, Kind::Reserved | Kind::Nested(_)),
                "{}.{}",
                layout.name,
                f.name
            );
        }
        assert_eq!(at, layout.len_bytes, "{}", layout.name);
    }
}

#[test]
fn requests_are_the_drivers() {
    let consts = facts().consts;
    for d in nvrm::TABLE.iter().filter(|d| d.until.is_none()) {
        let name = match (d.name, d.layout.len_bytes) {
            ("NV_ESC_RM_ALLOC", 32) => "NV_ESC_RM_ALLOC_NVOS21",
            ("NV_ESC_RM_ALLOC", _) => "NV_ESC_RM_ALLOC_NVOS64",
            ("NV_ESC_CARD_INFO", _) => "NV_ESC_CARD_INFO_x32",
            (name, _) => name,
        };
        let known = consts.get(format!("IOCTL_{name}").as_str()).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(u64::from(d.request), *known, "{name}");
    }
    for d in uvm::TABLE {
        assert_eq!(u64::from(d.request), consts[d.name], "{}", d.name);
    }
}

#[test]
fn classes_commands_and_statuses_are_the_drivers_and_in_order() {
    let consts = facts().consts;
    for among in [nvrm::CLASSES, nvrm::CONTROLS] {
        assert!(among.windows(2).all(|w| w[0].value < w[1].value));
        for c in among {
            assert_eq!(consts.get(c.name), Some(&u64::from(c.value)), "{}", c.name);
        }
    }
    assert!(nvrm::STATUSES.windows(2).all(|w| w[0].0 < w[1].0));
    for (value, name) in nvrm::STATUSES {
        assert_eq!(consts.get(name), Some(value), "{name}");
    }
    let notifiers = [
        ("TIMER", nvrm::NV2080_NOTIFIERS_TIMER),
        ("GR0", nvrm::NV2080_NOTIFIERS_GR0),
        ("CE0", nvrm::NV2080_NOTIFIERS_CE0),
        ("FIFO_EVENT_MTHD", nvrm::NV2080_NOTIFIERS_FIFO_EVENT_MTHD),
        ("RC_ERROR", nvrm::NV2080_NOTIFIERS_RC_ERROR),
        ("MAXCOUNT", nvrm::Release { major: 580, minor: 142, patch: 0 }.notifiers()),
    ];
    for (name, value) in notifiers {
        assert_eq!(consts.get(format!("NV2080_NOTIFIERS_{name}").as_str()), Some(&u64::from(value)), "{name}");
    }
    assert!(nvrm::CLASSES.len() >= 50 && nvrm::CONTROLS.len() >= 550 && nvrm::STATUSES.len() >= 140);
}

#[test]
fn release_595_has_the_structs_that_its_headers_show() {
    let mut seen = 0;
    for line in TABLE.lines().filter_map(|l| l.strip_prefix("# diff595\t")) {
        let parts: Vec<&str> = line.split('\t').collect();
        let (layout, field) = match parts[0] {
            "UVM_FREE_PARAMS" => (&uvm::FreeV595::LAYOUT, parts[1]),
            "UVM_UNREGISTER_CHANNEL_PARAMS" => (&uvm::UnregisterChannelV595::LAYOUT, parts[1]),
            // The route's struct is two fields here.
            "NV2080_CTRL_GPU_QUERY_ECC_STATUS_PARAMS" if parts[1] != "grRouteInfo" => {
                (&nvrm::EccStatusV595::LAYOUT, parts[1])
            }
            "NV2080_CTRL_GR_GET_INFO_V2_PARAMS" if parts[1] != "grRouteInfo" => (&nvrm::GrInfoV595::LAYOUT, parts[1]),
            _ => continue,
        };
        let new = parts[3].strip_prefix("595=").unwrap();
        let ours = layout.fields.iter().find(|f| f.c_name == field);
        match (field, new) {
            ("sizeof", _) => assert_eq!(format!("-/{}", layout.len_bytes), new, "{}", parts[0]),
            (_, "absent") => assert!(ours.is_none(), "{}.{field}", parts[0]),
            _ => {
                let f = ours.unwrap_or_else(|| panic!("{}.{field}", parts[0]));
                assert_eq!(format!("{}/{}", f.offset, f.len_bytes), new, "{}.{field}", parts[0]);
            }
        }
        seen += 1;
    }
    assert!(seen >= 18, "{seen}");
}

#[test]
fn channels_of_release_610_have_one_handle_more_and_all_after_it_later() {
    // nvproxy's NV_CHANNEL_ALLOC_PARAMS_V610: hHandleVASpace after hVASpace, then C's alignment.
    let place = |name: &str| nvrm::ChannelAllocV610::LAYOUT.field(name).map(|f| (f.offset, f.len_bytes));
    let want = [
        ("h_va_space", (28, 4)),
        ("h_handle_va_space", (32, 4)),
        ("h_userd_memory", (36, 32)),
        ("userd_offset", (72, 64)),
        ("engine_type", (136, 4)),
        ("tpc_config_id", (368, 4)),
    ];
    for (name, place_of_it) in want {
        assert_eq!(place(name), Some(place_of_it), "{name}");
    }
    let old = nvrm::ChannelAlloc { gp_fifo_offset: 7, engine_type: 3, tpc_config_id: 9, ..Default::default() };
    assert_eq!(nvrm::ChannelAlloc::from(nvrm::ChannelAllocV610::from(old)), old);
}

#[test]
fn commands_take_structs_of_the_size_that_rm_demands() {
    assert_eq!(nvrm::GPU_GET_ID_INFO_V2.len_bytes(), 32);
    assert_eq!(nvrm::GR_GET_INFO_V2.len_bytes(), 488);
    for choice in nvrm::CONTROLS.iter().filter(|c| c.layout.is_some()) {
        // RM looks a command up by its class.
        assert!(choice.value >> 16 == 0 || choice.value >> 16 >= 0x80, "{}", choice.name);
    }
    assert_eq!(abi::find(nvrm::ALLOC_NVOS21.desc.request).map(|d| d.layout.len_bytes), Some(32));
    assert_eq!(abi::find(nvrm::ALLOC.desc.request).map(|d| d.layout.len_bytes), Some(48));
    assert_eq!(abi::find_form(34, 16).map(|d| d.since), Some(595));
    assert_eq!((abi::arg_len_bytes(33), abi::arg_len_bytes(34), abi::arg_len_bytes(0xc020_462a)), (9264, 24, 32));
}
