//! Code objects: clang's and ours, read by us and by LLVM's tools; malformed ones refused.

use doorbell::elf::amdgpu::{
    Arg, ArgKind, CodeObject, KernelCode, KernelDescriptor, KernelSpec, machine_name, rsrc1, rsrc2, write,
};
use doorbell::isa::amdgpu::{Chip, Target, assemble, listing};
use std::path::{Path, PathBuf};
use std::process::Command;

const BIN: &str = "/usr/lib/llvm-19/bin";

fn tool(name: &str, args: &[&str]) -> String {
    let output =
        Command::new(format!("{BIN}/{name}")).args(args).output().expect("LLVM 19 (cargo xtask setup installs it)");
    assert!(output.status.success(), "{name} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{name} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const SOURCE: &str = "
#define GID (__builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x())
__kernel void twice(__global float *a, int n) { int i = GID; if (i < n) a[i] = a[i] * 2.0f; }
__constant float tab[4] = {1, 2, 3, 4};
__global int counter = 7;
__global int *where = &counter;
__kernel void mirror(__global float *a) {
  __local float t[64];
  int i = __builtin_amdgcn_workitem_id_x();
  t[i] = a[i];
  __builtin_amdgcn_s_barrier();
  a[i] = t[63 - i] + tab[i & 3] + counter + *where;
}
";

/// Compiles the source above; linked, or with `-c`.
fn compiled(dir: &Path, chip: &str, linked: bool) -> PathBuf {
    let (source, out) = (dir.join("k.cl"), dir.join(format!("{chip}.{linked}")));
    std::fs::write(&source, SOURCE).expect("a temporary file");
    let cpu = format!("-mcpu={chip}");
    let mut args = vec![
        "--target=amdgcn-amd-amdhsa",
        &cpu,
        "-nogpulib",
        "-x",
        "cl",
        "-cl-std=CL2.0",
        "-O2",
        "-mcode-object-version=5",
    ];
    if !linked {
        args.push("-c");
    }
    let paths = [source.to_string_lossy().into_owned(), out.to_string_lossy().into_owned()];
    args.extend([paths[0].as_str(), "-o", paths[1].as_str()]);
    tool("clang", &args);
    out
}

#[test]
fn kernels_of_clang_load_with_their_descriptors_and_code() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    for gpu in Chip::ALL {
        for linked in [true, false] {
            let path = compiled(dir.path(), gpu.name(), linked);
            let bytes = std::fs::read(&path).expect("the object");
            let object = CodeObject::parse(&bytes).expect("a code object");
            assert_eq!(object.gpu, Ok(gpu));
            let names: Vec<&str> = object.kernels.iter().map(|k| k.name.as_str()).collect();
            assert_eq!(names, ["mirror", "twice"]);
            let (mirror, twice) = (&object.kernels[0], &object.kernels[1]);
            assert_eq!((mirror.descriptor.group_segment_bytes, twice.descriptor.group_segment_bytes), (256, 0));
            assert_eq!(twice.descriptor.wave32(), gpu != Chip::Gfx942);
            assert!(mirror.entry_offset.is_multiple_of(256) && twice.entry_offset.is_multiple_of(256));
            // Of an unlinked file LLVM cannot find the entry.
            if linked {
                assert_descriptor_as_llvm_dumps_it(&path, &object, "mirror");
                assert_descriptor_as_llvm_dumps_it(&path, &object, "twice");
            }
        }
    }
}

/// llvm-objdump writes a descriptor as `.amdhsa_` directives, or as bytes where it takes exception to clang's own (the
/// SGPR count that clang writes for gfx11 and gfx12).
fn assert_descriptor_as_llvm_dumps_it(path: &Path, object: &CodeObject, kernel: &str) {
    let symbol = format!("--disassemble-symbols={kernel}.kd");
    let dump = tool("llvm-objdump", &["-D", "-j", ".rodata", &symbol, &path.to_string_lossy()]);
    let found = object.kernel(kernel).expect("the kernel").descriptor;
    let byte = |l: &str| u8::from_str_radix(l.trim().strip_prefix(".byte")?.trim().strip_prefix("0x")?, 16).ok();
    let bytes: Vec<u8> = dump.lines().filter_map(byte).collect();
    if !bytes.is_empty() {
        assert_eq!(bytes, found.emit(), "{dump}");
        return;
    }
    let value = |key: &str| {
        let line = dump.lines().find_map(|l| l.trim().strip_prefix(&format!(".amdhsa_{key} ")));
        line.unwrap_or_else(|| panic!("{key} in {dump}")).parse::<u32>().expect("a number")
    };
    assert_eq!(found.group_segment_bytes, value("group_segment_fixed_size"));
    assert_eq!(found.private_segment_bytes, value("private_segment_fixed_size"));
    assert_eq!(found.kernarg_bytes, value("kernarg_size"));
    assert_eq!(found.vgprs(object.gpu.expect("a known chip")), value("next_free_vgpr"));
    assert_eq!(rsrc1::DENORM_32.get(found.rsrc1), value("float_denorm_mode_32"));
    assert_eq!(rsrc1::ROUND_16_64.get(found.rsrc1), value("float_round_mode_16_64"));
    assert_eq!(rsrc2::WORKGROUP_X.get(found.rsrc2), value("system_sgpr_workgroup_id_x"));
    assert_eq!(rsrc2::WORKGROUP_Z.get(found.rsrc2), value("system_sgpr_workgroup_id_z"));
    assert_eq!(rsrc2::WORKITEM_ID.get(found.rsrc2), value("system_vgpr_workitem_id"));
}

#[test]
fn pointers_in_data_are_relocated_to_the_base() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let bytes = std::fs::read(compiled(dir.path(), "gfx1100", true)).expect("the object");
    let object = CodeObject::parse(&bytes).expect("a code object");
    let (low, high) = (object.image(0).expect("an image"), object.image(0x7000_0000_1000).expect("an image"));
    let moved: Vec<usize> = (0..low.len() / 8).filter(|i| low[8 * i..8 * i + 8] != high[8 * i..8 * i + 8]).collect();
    assert_eq!(moved.len(), 1, "one pointer: where");
    let at = 8 * moved[0];
    let word = |image: &[u8]| u64::from_le_bytes(image[at..at + 8].try_into().expect("eight bytes"));
    assert_eq!(word(&high) - word(&low), 0x7000_0000_1000);
    let counter = usize::try_from(word(&low)).expect("an offset");
    assert_eq!(low[counter..counter + 4], 7u32.to_le_bytes());
    assert!(object.image(0x123).is_err(), "a base that is no multiple of a page");
}

const KERNEL: &str = "
store:
  s_load_b64 s[0:1], s[0:1], null
  v_mov_b32 v1, 0x2a
  v_lshlrev_b32 v0, 2, v0
  s_waitcnt lgkmcnt(0)
  s_cbranch_execz done
  global_store_b32 v0, v1, s[0:1]
done:
  s_endpgm
";

fn ours() -> (Vec<u8>, KernelSpec) {
    let spec = KernelSpec {
        gpu: Chip::Gfx1100,
        wave32: true,
        vgprs: 2,
        acc_vgprs: 0,
        sgprs: 16,
        lds_bytes: 512,
        scratch_bytes: 0,
        kernarg_bytes: 8,
        user_sgprs: 15,
        workgroup_ids: [true, true, false],
        workitem_dims: 2,
    };
    let words = assemble(Target::of(Chip::Gfx1100), KERNEL).expect("code").words;
    let kernel = |name: &str| KernelCode {
        name: name.to_owned(),
        code: words.iter().flat_map(|w| w.to_le_bytes()).collect(),
        descriptor: spec.descriptor(),
        args: vec![Arg { offset_bytes: 0, size_bytes: 8, kind: ArgKind::GlobalBuffer }],
        sgprs: 16,
        vgprs: 2,
        acc_vgprs: 0,
        max_workgroup: 256,
    };
    (write(Chip::Gfx1100, &[kernel("store"), kernel("again")]).expect("a code object"), spec)
}

/// Our object with other bytes in `store`'s descriptor.
fn with_kernarg_size(bytes: u32) -> Vec<u8> {
    let (mut file, _) = ours();
    // The first segment is at offset 0 of file and image.
    let at = CodeObject::parse(&file).expect("our own object").kernel("store").expect("the kernel").descriptor_offset;
    file[usize::try_from(at).expect("an offset") + 8..][..4].copy_from_slice(&bytes.to_le_bytes());
    file
}

#[test]
fn what_descriptor_or_metadata_leaves_out_the_other_gives() {
    let of = |file: &[u8]| CodeObject::parse(file).expect("a code object").kernel("store").expect("the kernel").clone();
    let (file, _) = ours();
    let plain = of(&file);
    assert_eq!((plain.descriptor.kernarg_bytes, plain.remarks.len()), (8, 0));
    // Hand-written objects leave the size of the arguments to the metadata.
    let completed = of(&with_kernarg_size(0));
    assert_eq!((completed.descriptor.kernarg_bytes, &completed.args), (8, &plain.args));
    assert_eq!(completed.remarks, ["kernarg size: 0 bytes in the descriptor, 8 in the metadata, 8 are used"]);
    let larger = of(&with_kernarg_size(24));
    assert_eq!((larger.descriptor.kernarg_bytes, larger.remarks.len()), (24, 1));
    let at = file.windows(7).position(|w| w == b"AMDGPU\0").expect("the note's owner");
    let mut without = file.clone();
    without[at] = b'X';
    let alone = of(&without);
    assert_eq!((alone.descriptor.kernarg_bytes, alone.args, alone.remarks.len()), (8, None, 0));
}

#[test]
fn a_chip_without_tables_is_named() {
    let (mut file, _) = ours();
    file[48] = 0x4f;
    let object = CodeObject::parse(&file).expect("a code object");
    assert_eq!(object.gpu.map_err(machine_name), Err("gfx950".to_owned()));
    let error = listing(&object).unwrap_err();
    assert_eq!(error, "code for gfx950: there are tables of instructions for gfx1100, gfx942, gfx1201");
    assert_eq!(machine_name(0xfe), "chip 0xfe");
}

#[test]
fn a_listing_assembles_to_the_same_code_and_descriptors() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    for gpu in Chip::ALL {
        let bytes = std::fs::read(compiled(dir.path(), gpu.name(), true)).expect("the object");
        let object = CodeObject::parse(&bytes).expect("a code object");
        let text = listing(&object).expect("a known chip");
        // Literals that the linker has filled, where the assembler would take a shorter form: the dwords and the text.
        let exact = |l: &str| !l.contains(".long") || l.contains(": s_add");
        assert!(text.lines().all(exact), "{text}");
        let again = assemble(Target::of(gpu), &text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(again.kernels.len(), 2);
        for kernel in &again.kernels {
            let code = again.kernel_code(gpu, kernel).expect("its code");
            let theirs = object.kernel(&kernel.name).expect("the same names");
            assert!(code.code.starts_with(object.code(theirs)), "{} for {}", kernel.name, gpu.name());
            let entry_offset_bytes = theirs.descriptor.entry_offset_bytes;
            let ours = KernelDescriptor { entry_offset_bytes, ..code.descriptor };
            // LLVM counts SGPRs where the hardware ignores the field, and sizes prefetches, which no directive does.
            let reported = |d: KernelDescriptor| match gpu {
                Chip::Gfx942 => d,
                _ => KernelDescriptor { rsrc1: rsrc1::SGPRS.set(d.rsrc1, 0), rsrc3: 0, ..d },
            };
            assert_eq!(reported(ours), reported(theirs.descriptor), "{} for {}", kernel.name, gpu.name());
        }
    }
}

#[test]
fn our_object_is_read_by_llvm_and_by_us_alike() {
    let (bytes, _) = ours();
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("ours");
    std::fs::write(&path, &bytes).expect("a temporary file");
    let file = path.to_string_lossy().into_owned();
    let header = tool("llvm-readelf", &["-h", "-l", "-S", "-d", "--dyn-syms", "--hash-table", &file]);
    for part in
        ["gfx1100", "AMDGPU - HSA", "DYN (Shared object file)", "store.kd", "again.kd", "PROTECTED", "R E 0x1000"]
    {
        assert!(header.contains(part), "{part} in {header}");
    }
    let notes = tool("llvm-readelf", &["--notes", &file]);
    for part in [
        "NT_AMDGPU_METADATA",
        "amdgcn-amd-amdhsa--gfx1100",
        ".symbol:         store.kd",
        ".kernarg_segment_size: 8",
        ".wavefront_size: 32",
    ] {
        assert!(notes.contains(part), "{part} in {notes}");
    }
    let code = tool("llvm-objdump", &["-d", "--disassemble-symbols=again", &file]);
    for part in [
        "s_load_b64 s[0:1], s[0:1], null",
        "v_mov_b32_e32 v1, 42",
        "s_cbranch_execz 2",
        "global_store_b32 v0, v1, s[0:1]",
        "s_endpgm",
    ] {
        assert!(code.contains(part), "{part} in {code}");
    }
    let object = CodeObject::parse(&bytes).expect("our own object");
    assert_descriptor_as_llvm_dumps_it(&path, &object, "store");
    let store = object.kernel("store").expect("the kernel");
    assert_eq!(object.code(store), object.code(object.kernel("again").expect("the kernel")));
}

#[test]
fn every_truncation_is_refused_and_random_damage_does_not_panic() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let linked = std::fs::read(compiled(dir.path(), "gfx1100", true)).expect("the object");
    let relocatable = std::fs::read(compiled(dir.path(), "gfx942", false)).expect("the object");
    for bytes in [ours().0, linked, relocatable] {
        for len in 0..bytes.len() {
            assert!(CodeObject::parse(&bytes[..len]).is_err(), "{len} of {} bytes", bytes.len());
        }
        let mut state = 7u64;
        for _ in 0..4000 {
            let mut damaged = bytes.clone();
            for _ in 0..3 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let at = (state >> 33) as usize % damaged.len();
                damaged[at] = (state >> 24) as u8;
            }
            if let Ok(object) = CodeObject::parse(&damaged)
                && object.size() < 1 << 20
            {
                let _ = object.image(0x1000);
                let _ = object.kernels.iter().map(|k| object.code(k).len()).sum::<usize>();
            }
        }
    }
}

#[test]
fn kernels_that_no_object_can_hold_are_refused() {
    let (_, spec) = ours();
    let kernel = |name: &str, code: Vec<u8>| KernelCode {
        name: name.to_owned(),
        code,
        descriptor: spec.descriptor(),
        args: Vec::new(),
        sgprs: 0,
        vgprs: 1,
        acc_vgprs: 0,
        max_workgroup: 1,
    };
    let error = |kernels: &[KernelCode]| write(Chip::Gfx1100, kernels).expect_err("a refusal").to_string();
    assert_eq!(error(&[kernel("", vec![0; 4])]), "object: kernel 0: its name is empty or holds a NUL byte");
    assert_eq!(error(&[kernel("a", vec![0; 3])]), "object: kernel 0: its code is empty or no whole number of dwords");
    assert_eq!(error(&[kernel("a", vec![0; 4]), kernel("a", vec![0; 4])]), "object: kernel 1: its name is taken");
}
