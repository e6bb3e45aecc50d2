//! Accesses that release and acquire: what orders them is what ptxas's code has around its access.

use crate::nvidia::ptxas_for;
use doorbell::elf::cubin::Cubin;
use doorbell::isa::sass::check::{Trust, check_for};
use doorbell::isa::sass::compile::assemble;
use doorbell::isa::sass::{SmArch, decode_for, print};

const ACCESSES: [&str; 9] = [
    "st.release.SCOPE.SPACE.u32 [ADDRESS], %r1;",
    "ld.acquire.SCOPE.SPACE.u32 %r2, [ADDRESS];",
    "st.relaxed.SCOPE.SPACE.u32 [ADDRESS], %r1;",
    "red.release.SCOPE.SPACE.add.u32 [ADDRESS], %r1;",
    "atom.acquire.SCOPE.SPACE.add.u32 %r2, [ADDRESS], %r1;",
    "atom.release.SCOPE.SPACE.exch.b32 %r2, [ADDRESS], %r1;",
    "atom.acq_rel.SCOPE.SPACE.cas.b32 %r2, [ADDRESS], %r1, 5;",
    "atom.relaxed.SCOPE.SPACE.max.u32 %r2, [ADDRESS], %r1;",
    "atom.SPACE.add.u32 %r2, [ADDRESS], %r1;",
];
const SCOPES: [&str; 4] = ["cta", "cluster", "gpu", "sys"];
const SPACES: [(&str, &str); 3] = [(".global", "%d1"), ("", "%d3"), (".shared", "%r4")];

fn statements(chip: SmArch) -> Vec<String> {
    let scopes = SCOPES.into_iter().filter(|s| *s != "cluster" || chip >= SmArch::Sm90);
    let of = |scope: &str| {
        let one = |access: &str, (space, address): (&str, &str)| {
            access.replace(".SPACE", space).replace("SCOPE", scope).replace("ADDRESS", address)
        };
        SPACES.into_iter().flat_map(|space| ACCESSES.map(|access| one(access, space))).collect::<Vec<_>>()
    };
    scopes.flat_map(of).collect()
}

fn module(statement: &str, chip: SmArch) -> String {
    let version = if chip == SmArch::Sm120 { "8.7" } else { "8.0" };
    format!(
        ".version {version}\n.target {chip}\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u64 b)\n{{\n\
        .reg .b64 %d<4>; .reg .b32 %r<6>; .shared .align 8 .b8 memory[64];\n\
        ld.param.u64 %d3, [a]; ld.param.u64 %d2, [b]; cvta.to.global.u64 %d1, %d3; mov.u32 %r4, memory;\n\
        mov.u32 %r1, %tid.x; mov.u32 %r2, 7; {statement} st.global.u32 [%d2+64], %r2; ret;\n}}\n"
    )
}

/// What orders memory in a kernel's code, in order, with `ACCESS` for accesses; in our code what empties the cache
/// waits for the access before it.
fn order(cubin: &[u8], chip: SmArch, ours: bool) -> Vec<String> {
    let file = Cubin::parse(cubin).expect("a cubin");
    let code = file.code(file.kernel("k").expect("the kernel"));
    let code: Vec<u128> = code.as_chunks::<16>().0.iter().map(|w| u128::from_le_bytes(*w)).collect();
    let faults = check_for(&code, chip, Trust::Seen).unwrap_or_else(|e| panic!("{e}"));
    assert!(faults.is_empty(), "{chip}: {}", faults[0]);
    let mut loaded = None;
    let mut order = Vec::new();
    for inst in code.iter().map(|w| decode_for(*w, chip).unwrap_or_else(|e| panic!("{w:032x}: {e}"))) {
        let text = print(&inst);
        match inst.form().mnemonic {
            "MEMBAR" => order.push(text.rsplit('.').next().unwrap_or_default().to_owned()),
            "CCTL" => {
                let waits = loaded.is_none_or(|board: u8| inst.control.wait >> board & 1 == 1);
                assert!(waits || !ours, "{chip}: {text} does not wait for the load");
                order.push("CCTL".into());
            }
            other @ ("ERRBAR" | "CGAERRBAR") => order.push(other.into()),
            "LDG" | "LD" | "LDS" | "STS" | "ATOM" | "ATOMG" | "ATOMS" | "RED" | "REDG" | "ST" | "STG"
                if !text.contains("+0x40]") =>
            {
                loaded = inst.control.write;
                order.push("ACCESS".into());
            }
            _ => {}
        }
    }
    order.dedup();
    order
}

#[test]
fn accesses_that_release_and_acquire_are_ordered_as_ptxas_orders_them() {
    for chip in [SmArch::Sm80, SmArch::Sm90, SmArch::Sm120] {
        let all = statements(chip);
        assert_eq!(all.len(), ACCESSES.len() * SPACES.len() * if chip < SmArch::Sm90 { 3 } else { 4 });
        for statement in all {
            let text = module(&statement, chip);
            let ours = assemble(&text, chip.arch()).unwrap_or_else(|e| panic!("{chip} {statement}: {e}"));
            let theirs = ptxas_for(&text, &chip.to_string(), "-O3");
            let (ours, theirs) = (order(&ours, chip, true), order(&theirs, chip, false));
            // ptxas adds within the warp first, with one access for the warp or another.
            let same = theirs.len().is_multiple_of(ours.len()) && theirs.chunks(ours.len()).all(|one| one == ours);
            assert!(same, "{chip} {statement}: {ours:?}, ptxas {theirs:?}");
        }
    }
}
