"""Makes the emulator's own instruction tables, src/emu/units/amdgpu/table_<chip>.rs.

    python3 tools/emu_amdgpu_rows.py AMD_ISA.TSV      rewrites the three tables

Two sources: the project's table of facts (columns target, mnemonic, format, opcode, operands, example, encoding), and for
instructions that compilers emit and that table leaves out, LLVM's assembler: every candidate of `extras` is assembled
with llvm-mc-19, and its opcode is read from the bytes. The tables say how a word is taken apart and how wide operands
are; what an instruction does is written by hand in src/emu/units/amdgpu, and no table of the compiler is used for either.
"""
import re
import subprocess
import sys

TARGETS = ["gfx1100", "gfx942", "gfx1201"]
FLOATS = "lt eq le gt lg ge o u nge nlg ngt nle neq nlt".split()
INTS = "lt eq le gt ne ge".split()
SIZE = {"8": 1, "32": 1, "64": 2, "96": 3, "128": 4, "256": 8, "512": 16, "1024": 32}


def op_bits(target, fmt):
    """First bit and width of a format's op field."""
    gfx9, gfx12 = target == "gfx942", target == "gfx1201"
    return {
        "SOP1": (8, 8), "SOP2": (23, 7), "SOPC": (16, 7), "SOPK": (23, 5), "SOPP": (16, 7),
        "VOP1": (9, 8), "VOP2": (25, 6), "VOPC": (17, 8), "VOP3": (16, 10), "VOP3SD": (16, 10), "VOP3P": (16, 7),
        "VOP3P-MAI": (16, 7), "SMEM": (13, 6) if gfx12 else (18, 8), "DS": (17, 8) if gfx9 else (18, 8),
        "GLOBAL": (14, 8) if gfx12 else (18, 7), "SCRATCH": (14, 8) if gfx12 else (18, 7),
        "FLAT": (14, 8) if gfx12 else (18, 7), "MUBUF": (14, 8) if gfx12 else ((18, 7) if gfx9 else (18, 8)),
    }[fmt]


def operand(spec, slot):
    """Assembly text of one operand: kind, dwords."""
    kind, words = spec[0], int(spec[1:] or 1)
    first = {"d": 10, "0": 100, "1": 120, "2": 180}[slot]
    if kind == "s":
        first = {"d": 20, "0": 40, "1": 60, "2": 80}[slot]
    letter = "s" if kind == "s" else "v"
    return f"{letter}{first}" if words == 1 else f"{letter}[{first}:{first + words - 1}]"


def vector_extras(target):
    """(format, mnemonic, 'dst src src src') of vector arithmetic that the table of facts leaves out."""
    gfx9 = target == "gfx942"
    rows = []
    for name in "v_frexp_mant_f16 v_frexp_exp_i16_f16 v_cvt_norm_i16_f16 v_cvt_norm_u16_f16 v_sat_pk_u8_i16 v_not_b16 v_mov_b16 v_cvt_off_f32_i4 v_exp_legacy_f32 v_log_legacy_f32 v_movrelsd_b32 v_movrelsd_2_b32 v_swap_b16 v_screen_partition_4se_b32".split():
        rows.append(("VOP1", name, "v1 v1"))
    for name in "v_add_f16 v_sub_u16 v_subrev_u16 v_max_i16 v_min_u16 v_mul_legacy_f32 v_dot8c_i32_i4 v_dot2c_f32_bf16 v_mac_f32 v_mac_f16 v_ashrrev_i16 v_fmac_dx9_zero_f32".split():
        rows.append(("VOP2", name, "v1 v1 v1"))
    rows += [("VOP2", "v_sub_co_u32", "v1 vcc v1 v1"), ("VOP2", "v_subrev_co_u32", "v1 vcc v1 v1")]
    for size, words in (("16", 1), ("32", 1), ("64", 2)):
        for op in FLOATS + ["f", "t", "tru", "class"]:
            s1 = 1 if op == "class" else words
            for c in ("v_cmp", "v_cmpx"):
                rows.append(("VOPC", f"{c}_{op}_f{size}", f"{'vcc ' if c == 'v_cmp' or gfx9 else ''}v{words} v{s1}"))
        for op in INTS + ["f", "t"]:
            for kind in "iu":
                for c in ("v_cmp", "v_cmpx"):
                    rows.append(("VOPC", f"{c}_{op}_{kind}{size}", f"{'vcc ' if c == 'v_cmp' or gfx9 else ''}v{words} v{words}"))
    three = "min3_f16 max3_f16 med3_f16 min3_i16 max3_i16 med3_i16 min3_u16 max3_u16 med3_u16 sad_u8 sad_hi_u8 sad_u16 msad_u8 lerp_u8 mullit_f32 maxmin_f16 minmax_f16 dot2_f16_f16 dot2_bf16_bf16 mad_i16 cubeid_f32 cubesc_f32 cubetc_f32 cubema_f32 min3_num_f16 max3_num_f16 med3_num_f16 minmax_num_f16 maxmin_num_f16 minimum3_f16 maximum3_f16 minimummaximum_f16 maximumminimum_f16 maximumminimum_f32 mad_legacy_f32 fma_legacy_f32 mad_mix_f32 xor3_b32 mad_u32_u16 mad_legacy_u16 mad_legacy_i16".split()
    rows += [("VOP3", "v_" + n, "v1 v1 v1 v1") for n in three]
    two = "cvt_pk_norm_u16_f32 cvt_pk_norm_i16_f16 cvt_pk_norm_u16_f16 cvt_pk_u16_f32 cvt_pknorm_u16_f32 cvt_pknorm_i16_f16 cvt_pknorm_u16_f16 cvt_pk_i16_f32 xor_b16 add_nc_i16 sub_nc_i16 add_i16 sub_i16 mul_lo_i32 cvt_sr_fp8_f32 cvt_sr_bf8_f32".split()
    rows += [("VOP3", "v_" + n, "v1 v1 v1") for n in two]
    rows += [("VOP3", n, "v2 v2 v2") for n in ("v_minimum_f64", "v_maximum_f64")]
    rows += [("VOP3", n, "v2 v2 v1 v2") for n in ("v_qsad_pk_u16_u8", "v_mqsad_pk_u16_u8")] + [("VOP3", "v_mqsad_u32_u8", "v4 v2 v1 v4")]
    rows += [("VOP3", "v_trig_preop_f64", "v2 v2 v1"), ("VOP3", "v_fmac_f64", "v2 v2 v2"), ("VOP3", "v_lshl_add_u64", "v2 v2 v1 v2")]
    rows += [("VOP3", n, "s1 s1") for n in ("v_s_exp_f32", "v_s_exp_f16", "v_s_log_f32", "v_s_log_f16", "v_s_rcp_f32", "v_s_rcp_f16", "v_s_rsq_f32", "v_s_rsq_f16", "v_s_sqrt_f32", "v_s_sqrt_f16")]
    for name in "pk_add_i16 pk_sub_u16 pk_max_u16 pk_min_u16".split():
        rows.append(("VOP3P", "v_" + name, "v1 v1 v1"))
    for name in "pk_mad_i16 dot8_u32_u4 dot2_i32_i16 dot2_u32_u16 dot8_i32_i4 dot4_f32_fp8_bf8 dot4_f32_bf8_fp8 dot4_f32_bf8_bf8 mad_mix_f32 mad_mixlo_f16 mad_mixhi_f16 fma_mix_f32 fma_mixlo_f16 fma_mixhi_f16".split():
        rows.append(("VOP3P", "v_" + name, "v1 v1 v1 v1"))
    if gfx9:
        for shape, d in (("16x16x32", 4), ("32x32x16", 16)):
            for a in ("fp8", "bf8"):
                for b in ("fp8", "bf8"):
                    rows.append(("VOP3P-MAI", f"v_mfma_f32_{shape}_{a}_{b}", f"v{d} v2 v2 v{d}"))
        for name, d, a in (("f32_32x32x4_2b_bf16", 32, 2), ("f32_16x16x4_4b_bf16", 16, 2), ("f32_4x4x4_16b_bf16", 4, 2), ("i32_32x32x4_2b_i8", 32, 1), ("i32_16x16x4_4b_i8", 16, 1), ("i32_4x4x4_16b_i8", 4, 1)):
            rows.append(("VOP3P-MAI", "v_mfma_" + name, f"v{d} v{a} v{a} v{d}"))
    return rows


def scalar_extras():
    rows = []
    for op in "and or xor and_not1 and_not0 or_not1 or_not0 nand nor xnor andn1 andn2 orn1 orn2".split():
        for size, words in (("32", 1), ("64", 2)):
            rows.append(("SOP1", f"s_{op}_saveexec_b{size}", f"s{words} s{words}"))
            rows.append(("SOP1", f"s_{op}_wrexec_b{size}", f"s{words} s{words}"))
            rows.append(("SOP2", f"s_{op}_b{size}", f"s{words} s{words} s{words}"))
    for name, spec in (
        ("s_bcnt0_i32_b64", "s1 s2"), ("s_cls_i32_i64", "s1 s2"), ("s_bitset0_b64", "s2 s1"), ("s_bitset1_b64", "s2 s1"),
        ("s_bitreplicate_b64_b32", "s2 s1"), ("s_movrels_b64", "s2 s2"), ("s_movreld_b64", "s2 s2"), ("s_wqm_b32", "s1 s1"),
        ("s_wqm_b64", "s2 s2"), ("s_quadmask_b32", "s1 s1"), ("s_quadmask_b64", "s2 s2"), ("s_ff0_i32_b32", "s1 s1"),
        ("s_ff0_i32_b64", "s1 s2"), ("s_flbit_i32_i64", "s1 s2"), ("s_ctz_i32_b64", "s1 s2"), ("s_cvt_hi_f32_f16", "s1 s1"),
        ("s_ceil_f16", "s1 s1"), ("s_floor_f16", "s1 s1"), ("s_trunc_f16", "s1 s1"), ("s_rndne_f16", "s1 s1"),
    ):
        rows.append(("SOP1", name, spec))
    for name, spec in (
        ("s_bfe_i64", "s2 s2 s1"), ("s_bfm_b64", "s2 s1 s1"), ("s_pack_hl_b32_b16", "s1 s1 s1"), ("s_cvt_pk_rtz_f16_f32", "s1 s1 s1"),
        ("s_fmac_f16", "s1 s1 s1"), ("s_minimum_f32", "s1 s1 s1"), ("s_maximum_f32", "s1 s1 s1"), ("s_minimum_f16", "s1 s1 s1"), ("s_maximum_f16", "s1 s1 s1"),
    ):
        rows.append(("SOP2", name, spec))
    rows += [("SOP2", "s_fmaak_f32", "s1 s1 s1 K"), ("SOP2", "s_fmamk_f32", "s1 s1 K s1")]
    for size in ("f32", "f16"):
        rows += [("SOPC", f"s_cmp_{op}_{size}", "- s1 s1") for op in FLOATS]
    rows += [("SOPC", "s_bitcmp0_b64", "- s2 s1"), ("SOPC", "s_bitcmp1_b64", "- s2 s1")]
    rows += [("SOPC", "s_set_gpr_idx_on", "- s1 gpr_idx(SRC0)"), ("SOP1", "s_set_gpr_idx_idx", "!s1")]
    rows += [("SOPP", n, "#") for n in "s_denorm_mode s_round_mode s_setkill s_incperflevel s_decperflevel s_sendmsghalt s_set_gpr_idx_mode s_cbranch_cdbgsys s_cbranch_cdbguser".split()]
    rows += [("SOPP", n, "") for n in "s_wakeup s_set_gpr_idx_off s_barrier_leave".split()]
    rows += [("SOPK", "s_version", "#"), ("SOPK", "s_cmovk_i32", "s1 #")]
    return rows


def memory_extras(target):
    """(format, mnemonic, returned dwords, data dwords, text after the mnemonic)."""
    gfx9 = target == "gfx942"
    names = []
    loads = {"u8": 1, "i8": 1, "u16": 1, "i16": 1, "b32": 1, "b64": 2, "b96": 3, "b128": 4, "d16_u8": 1, "d16_hi_u8": 1, "d16_i8": 1, "d16_hi_i8": 1, "d16_b16": 1, "d16_hi_b16": 1}
    stores = {"b8": 1, "b16": 1, "b32": 1, "b64": 2, "b96": 3, "b128": 4, "d16_hi_b8": 1, "d16_hi_b16": 1}
    if gfx9:
        loads = {"ubyte": 1, "sbyte": 1, "ushort": 1, "sshort": 1, "dword": 1, "dwordx2": 2, "dwordx3": 3, "dwordx4": 4, "ubyte_d16": 1, "ubyte_d16_hi": 1, "sbyte_d16": 1, "sbyte_d16_hi": 1, "short_d16": 1, "short_d16_hi": 1}
        stores = {"byte": 1, "short": 1, "dword": 1, "dwordx2": 2, "dwordx3": 3, "dwordx4": 4, "byte_d16_hi": 1, "short_d16_hi": 1}
        one = "swap cmpswap add sub smin smax umin umax and or xor inc dec".split()
        atomics = {n: (1, 2 if n == "cmpswap" else 1) for n in one} | {n + "_x2": (2, 4 if n == "cmpswap" else 2) for n in one}
        atomics |= {"add_f32": (1, 1), "pk_add_f16": (1, 1), "pk_add_bf16": (1, 1), "add_f64": (2, 2), "min_f64": (2, 2), "max_f64": (2, 2)}
    else:
        atomics = {}
        for n in "swap_b add_u sub_u min_i max_i min_u max_u and_b or_b xor_b inc_u dec_u cmpswap_b".split():
            for size, w in (("32", 1), ("64", 2)):
                atomics[n + size] = (w, 2 * w if n.startswith("cmp") else w)
        atomics |= {n: (1, 1) for n in "add_f32 min_f32 max_f32 min_num_f32 max_num_f32 pk_add_f16 pk_add_bf16 csub_u32 sub_clamp_u32 cond_sub_u32".split()} | {"cmpswap_f32": (1, 2)}
    for space, text in (("global", "{}, off"), ("flat", "{}"), ("scratch", "off"), ("buffer", "off, s[64:67], s4")):
        fmt = {"global": "GLOBAL", "flat": "FLAT", "scratch": "SCRATCH", "buffer": "MUBUF"}[space]
        def reg(base, words):
            return f"v{base}" if words == 1 else f"v[{base}:{base + words - 1}]"
        for n, w in loads.items():
            body = f"{reg(10, w)}, " + {"scratch": "off, off"}.get(space, text.format("v[60:61]"))
            names.append((fmt, f"{space}_load_{n}", w, 0, body))
        for n, w in stores.items():
            data = reg(70, w)
            body = {"global": f"v[60:61], {data}, off", "flat": f"v[60:61], {data}", "scratch": f"off, {data}, off", "buffer": f"{data}, {text}"}[space]
            names.append((fmt, f"{space}_store_{n}", 0, w, body))
        if space == "scratch":
            continue
        for n, (r, d) in atomics.items():
            data = reg(70, d)
            body = {"global": f"v[60:61], {data}, off", "flat": f"v[60:61], {data}", "buffer": f"{data}, {text}"}[space]
            names.append((fmt, f"{space}_atomic_{n}", r, d, body))
    ops = {}
    for n in "add_u sub_u rsub_u inc_u dec_u min_i max_i min_u max_u and_b or_b xor_b".split():
        for size, w in (("32", 1), ("64", 2)):
            ops[n + size] = (w, w)
    ops |= {n: (1, 1) for n in "add_f32 min_f32 max_f32 min_num_f32 max_num_f32 pk_add_f16 pk_add_bf16".split()} | {n: (2, 2) for n in "add_f64 min_f64 max_f64 min_num_f64 max_num_f64".split()}
    for n, (r, d) in ops.items():
        stem, _, kind = n.rpartition("_")
        names.append(("DS", f"ds_{n}", 0, d, f"v60, {reg(70, d)}"))
        names.append(("DS", f"ds_{stem}_rtn_{kind}", r, d, f"v10, v60, v70" if r == 1 else f"v[10:11], v60, v[70:71]"))
    for size, w in (("32", 1), ("64", 2)):
        r, a, b = reg(10, w), reg(70, w), reg(80, w)
        names += [("DS", f"ds_{n}_rtn_b{size}", w, w, f"{r}, v60, {a}") for n in ("storexchg", "wrxchg")]
        names += [("DS", f"ds_{n}_rtn_b{size}", w, w, f"{r}, v60, {a}, {b}") for n in ("cmpstore", "cmpst", "mskor")]
        names += [("DS", f"ds_{n}_b{size}", 0, w, f"v60, {a}, {b}") for n in ("cmpstore", "cmpst", "mskor")]
        names += [("DS", f"ds_{n}_rtn_b{size}", 2 * w, w, f"{reg(10, 2 * w)}, v60, {a}, {b}") for n in ("storexchg_2addr", "wrxchg2", "storexchg_2addr_stride64", "wrxchg2st64")]
        names += [("DS", f"ds_{n}_b{size}", 0, w, f"v60, {a}, {b}") for n in ("store_2addr", "write2", "store_2addr_stride64", "write2st64")]
    for n in "load_i8_d16 load_i8_d16_hi load_u8_d16 load_u8_d16_hi load_u16_d16 load_u16_d16_hi read_i8_d16 read_i8_d16_hi read_u8_d16 read_u8_d16_hi".split():
        names.append(("DS", "ds_" + n, 1, 0, "v10, v60"))
    for n in "store_b8_d16_hi store_b16_d16_hi write_b8_d16_hi write_b16_d16_hi".split():
        names.append(("DS", "ds_" + n, 0, 1, "v60, v70"))
    names += [("DS", "ds_" + n, 1, 0, "v10") for n in "consume append load_addtid_b32 read_addtid_b32".split()]
    names += [("DS", "ds_" + n, 0, 1, "v70") for n in "store_addtid_b32 write_addtid_b32".split()] + [("DS", "ds_nop", 0, 0, "")]
    names += [("DS", "ds_bpermute_fi_b32", 1, 1, "v10, v60, v70")]
    names += [("SMEM", f"s_buffer_load_{n}", w, 0, f"s[20:{19 + w}], s[64:67], 0" if w > 1 else "s20, s[64:67], 0") for n, w in (("b96", 3), ("u8", 1), ("i8", 1), ("u16", 1), ("i16", 1))]
    names += [("SMEM", f"s_prefetch_{n}", 0, 0, "s[60:61], 0, s4, 3") for n in ("data", "inst")] + [("SMEM", n, 0, 0, "") for n in ("s_dcache_inv_vol", "s_dcache_wb_vol")]
    names += [("SMEM", f"s_store_dword{n}", 0, w, f"{s}, s[60:61], 0x0") for n, w, s in (("", 1, "s20"), ("x2", 2, "s[20:21]"), ("x4", 4, "s[20:23]"))]
    return names


def extras(target):
    """Rows of every candidate that LLVM knows for the target."""
    lines, rows = [], []
    for fmt, name, spec in vector_extras(target) + scalar_extras():
        slots = iter(["d", "0", "1", "2"] if fmt not in ("VOPC",) else ["0", "1"])
        text, widths = [], []
        for part in spec.split():
            if part == "vcc":
                text.append("vcc" if target == "gfx942" else "vcc_lo")
            elif part == "K":
                text.append("0x12345678")
            elif part == "#":
                text.append("3")
            elif part.startswith("gpr_idx"):
                text.append(part)
            elif part.startswith("!"):
                # A source without a destination.
                text.append(operand(part[1:], "0"))
                widths += [0, int(part[2:] or 1)]
            elif part == "-":
                next(slots)
                widths.append(0)
            else:
                text.append(operand(part, next(slots)))
                widths.append(int(part[1:] or 1))
        if fmt == "VOPC":
            widths.insert(0, 255)
        suffix = "_e32" if fmt in ("VOP1", "VOP2", "VOPC") else ""
        lines.append(f"{name}{suffix} " + ", ".join(text))
        rows.append([fmt, name + suffix, widths])
    for fmt, name, ret, data, body in memory_extras(target):
        lines.append(f"{name} {body}")
        rows.append([fmt, name, [ret, data]])
    found = []
    for line, (fmt, name, widths) in zip(lines, rows):
        word = assemble(target, lines).get(line)
        if word is None:
            continue
        first, bits = op_bits(target, fmt)
        if fmt == "MUBUF" and target == "gfx1201":
            fmt = "VBUFFER"
        elif fmt in ("GLOBAL", "FLAT", "SCRATCH") and target == "gfx1201":
            fmt = "V" + fmt
        found.append((fmt, word >> first & ((1 << bits) - 1), name, widths))
    if target != "gfx942":
        # Halves of registers only, which LLVM 19 does not assemble; opcodes are LLVM 22's.
        found += [("VOP1", 0x1C, "v_mov_b16_e32", [1, 1]), ("VOP1", 0x66, "v_swap_b16", [1, 1])]
    return found


CACHE = {}


def assemble(target, lines):
    """First dword of every line that llvm-mc accepts."""
    if target not in CACHE:
        mc = ["llvm-mc-19", "-triple=amdgcn", f"-mcpu={target}", "-show-encoding"]
        out = subprocess.run(mc, input="\n".join(lines), text=True, capture_output=True).stdout
        # One line out for one line in only when all are accepted: refused ones are found and left out first.
        err = subprocess.run(mc, input="\n".join(lines), text=True, capture_output=True).stderr
        bad = {int(m) - 1 for m in re.findall(r"<stdin>:(\d+):\d+: error", err)}
        good = [l for i, l in enumerate(lines) if i not in bad]
        codes = re.findall(r"encoding: \[([^\]]*)\]", out)
        assert len(codes) == len(good), (len(codes), len(good))
        CACHE[target] = {l: int.from_bytes(bytes(int(b, 16) for b in c.split(",")[:4]), "little") for l, c in zip(good, codes)}
    return CACHE[target]


def width(kind):
    """Dwords of an operand kind of the table of facts; 255 is a lane mask."""
    kind = kind.split("|")[0]
    if kind in ("mask", "vcc"):
        return 255
    m = re.search(r"(\d+)$", kind)
    return SIZE.get(m.group(1), 1) if m else 1


def fact(line):
    target, name, fmt, opcode, operands = line.rstrip("\n").split("\t")[:5]
    parts = dict(p.split(":", 1) for p in operands.split() if ":" in p)
    get = lambda *keys: next((width(parts[k]) for k in keys if k in parts), 0)
    if fmt in ("SMEM",):
        widths = [get("sdata"), 0]
    elif fmt in ("DS", "FLAT", "GLOBAL", "SCRATCH", "VFLAT", "VGLOBAL", "VSCRATCH"):
        ret, data = get("vdst"), get("data", "data0")
        if "atomic" in name:
            ret = data // 2 if "cmpswap" in name else data
        widths = [ret, data]
    elif fmt in ("MUBUF", "VBUFFER"):
        w = get("vdata")
        widths = [0, w] if "store" in name else [w, 0]
    else:
        dst = 255 if fmt == "VOPC" else get("sdst" if fmt.startswith("SOP") or "sdst" in parts and "vdst" not in parts else "vdst")
        srcs = [get("ssrc0", "src0"), get("ssrc1", "src1", "vsrc1"), get("ssrc2", "src2")]
        if name.startswith("v_accvgpr"):
            dst, srcs = 1, [1, 0, 0]
        widths = [dst] + srcs
    return target, (fmt, int(opcode, 16), name, widths)


def main():
    rows = {t: {} for t in TARGETS}
    for line in open(sys.argv[1]).readlines()[1:]:
        target, row = fact(line)
        rows[target][row[:2]] = row
    counts = {}
    for target in TARGETS:
        facts = len(rows[target])
        for row in extras(target):
            rows[target].setdefault(row[:2], row)
        counts[target] = (facts, len(rows[target]))
        with open(f"src/emu/units/amdgpu/table_{target}.rs", "w") as out:
            out.write(f"//! Generated by tools/emu_amdgpu_rows.py: the {target} rows of the emulator's decoder; do not edit.\n")
            out.write("//! Format, op field, name, dwords of destination and sources (255: a lane mask; memory: returned, data).\n\n")
            out.write("use super::rows::{Format as F, Row, row};\n\n#[rustfmt::skip]\npub(super) const ROWS: &[Row] = &[\n")
            for fmt, opcode, name, widths in sorted(rows[target].values(), key=lambda r: (r[0], r[1])):
                variant = {"VOP3P-MAI": "Mai", "VOPD.X": "VopdX", "VOPD.Y": "VopdY", "VOP3SD": "Vop3Sd"}.get(fmt, fmt.capitalize())
                w = (widths + [0, 0, 0, 0])[:4]
                out.write(f"    row(F::{variant}, {opcode:#x}, \"{name}\", {w}),\n")
            out.write("];\n")
    print(counts)


main()
