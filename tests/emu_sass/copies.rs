//! Asynchronous copies to shared memory that read fewer bytes than they write, at both levels, on every chip, against a
//! loop in plain Rust.

use crate::harness::{Size, address, launch};
use crate::kit::nvcc::{Level, assemble_for};
use doorbell::elf::cubin::Cubin;
use doorbell::emu::sass::Options;

const THREADS: usize = 64;

/// Each thread copies `len` bytes to its part of shared memory, of which it reads as many as the third buffer gives,
/// and stores them.
fn kernel(arch: &str, kind: &str, len: usize) -> String {
    let words: String =
        (0..len / 4).map(|k| format!("ld.shared.b32 %v,[%s+{}]; st.global.b32 [%po+{}],%v;\n", 4 * k, 4 * k)).collect();
    format!(
        ".version 8.8\n.target {arch}\n.address_size 64\n\
         .visible .entry k(.param .u64 pa,.param .u64 po,.param .u64 pn)\n{{\n.shared .align 16 .b8 sm[1024];\n\
         .reg .b32 %t,%s,%n,%v; .reg .b64 %pa,%po,%pn,%x,%y;\n\
         ld.param.u64 %pa,[pa]; ld.param.u64 %po,[po]; ld.param.u64 %pn,[pn]; mov.u32 %t,%tid.x; mov.u32 %s,sm;\n\
         mad.lo.u32 %s,%t,{len},%s; mul.wide.u32 %x,%t,{len}; mul.wide.u32 %y,%t,4; add.s64 %pa,%pa,%x; add.s64 %po,%po,%x; add.s64 %pn,%pn,%y;\n\
         ld.global.b32 %n,[%pn];\n\
         cp.async.{kind}.shared.global [%s],[%pa],{len},%n; cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;\n\
         {words}ret;\n}}\n"
    )
}

#[test]
fn copies_of_fewer_bytes_leave_zeros_behind_them_on_every_chip() {
    let bytes: Vec<u8> = (0..16 * THREADS).map(|i| (i * 37 + 11) as u8 | 1).collect();
    for arch in ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_120"] {
        for (kind, len) in [("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)] {
            let counts: Vec<usize> = (0..THREADS).map(|t| t % (len + 1)).collect();
            let reported: Vec<u8> = counts.iter().flat_map(|n| (*n as u32).to_le_bytes()).collect();
            for level in Level::ALL {
                let cubin = Cubin::parse(&assemble_for(&kernel(arch, kind, len), arch, level)).unwrap();
                let size = Size { block: [THREADS as u32, 1, 1], ..Size::default() };
                let buffers = [bytes[..len * THREADS].to_vec(), vec![0xff; len * THREADS], reported.clone()];
                let parameters = [0, 1, 2].map(|k| address(k).to_le_bytes().to_vec());
                let (after, _) = launch(&cubin, "k", size, &buffers, &parameters, &Options::default())
                    .unwrap_or_else(|e| panic!("{arch} {kind} {len} {level:?}: {e}"));
                for (t, count) in counts.iter().enumerate() {
                    let read = |k: usize| if k < *count { buffers[0][len * t + k] } else { 0 };
                    let wanted: Vec<u8> = (0..len).map(read).collect();
                    let seen = &after[1][len * t..][..len];
                    assert_eq!(seen, wanted, "{arch} {kind} {len} {level:?}: {count} bytes");
                }
            }
        }
    }
}
