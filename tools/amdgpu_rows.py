#!/usr/bin/env python3
"""Writes src/isa/amdgpu/table/{op,rows}.rs from isa.tsv: names of operations, and one row an operation and encoding.

usage: tools/amdgpu_rows.py src/isa/amdgpu/table
The table holds what tools/amdgpu_probe found by asking LLVM's assembler and disassembler about every opcode of every format;
the lists below add what an encoding does not show: which operands are read and written, which registers besides, which unit runs it.
"""
import re, sys

here = sys.argv[1]
CHIPS = ["gfx1100", "gfx942", "gfx1201"]
lines = open(f"{here}/isa.tsv").read().splitlines()[1:]

FORMAT = dict(SOP1="Sop1", SOP2="Sop2", SOPC="Sopc", SOPK="Sopk", SOPP="Sopp", SMEM="Smem", VOP1="Vop1", VOP2="Vop2", VOPC="Vopc",
              VOP3="Vop3", VOP3SD="Vop3Sd", VOP3P="Vop3p", MAI="Mai", VOPDX="VopdX", VOPDY="VopdY", DS="Ds", FLAT="Flat", GLOBAL="Global", SCRATCH="Scratch", MUBUF="Buffer")
FIELD = {f.lower(): f for f in "Vdst Sdst Src0 Src1 Src2 Vsrc1 Ssrc0 Ssrc1 Simm16 Sdata Sbase Soffset Addr Data Data0 Data1 Saddr Vaddr Vdata Srsrc".split()}
FIELD["lit"] = "Literal"
CLASS = dict(b32="B32", b64="B64", f16="F16", bf16="Bf16", i16="I16", p16="P16", pbf16="Pbf16")
ACCEPT = dict(v=1, s=2, i=4, L=8, a=32, h=64)
IMM = dict(imm16="Hex", inl16="Small", dec16="Decimal", opt16="Optional", label="Label", waitcnt="Waitcnt", delay="DelayAlu", depctr="Depctr", msg="Message", hwreg="HwReg", gpridx="GprIdx")
MOD = {}
for i, n in enumerate("neg0 neg1 neg2 abs0 abs1 abs2 opsel0 opsel1 opsel2 opsel3 opselhi0 opselhi1 opselhi2 nhi0 nhi1 nhi2 clamp omod dpp16 dpp8 dppabs dppneg1 "
                      "glc dlc slc sc0 sc1 nt tfe lds gds offen idxen offset offsets scope th nv cbsz abid blgp acc_cd acc sdwa fmt".split()):
    MOD[n] = 1 << i
MOD.update(suffix=1 << 48, ret=1 << 49, hi1=1 << 50, hi2=1 << 51, hi3=3 << 50, hi4=1 << 52, hi7=7 << 50, hi0=0, acca=1 << 53, accb=1 << 54, dppneg=MOD["dppabs"], sve=0)

# The old destination takes part in the result.
RMW = re.compile(r"v_(fmac|mac|dot\w*acc|dot\d+c|pk_fmac|writelane|fma_mixlo|fma_mixhi|mad_mixlo|mad_mixhi|cvt_sr|cvt_pk_(fp8|bf8)_f32)|s_(cmov|cmovk|addk|mulk|bitset|subvector)|v_dual_(fmac|dot2acc)")
D16 = re.compile(r"_d16(_hi)?(_|$)|_d16$")


def access(name, fmt, field, index, slots):
    if name in ("v_swap_b32", "v_swap_b16", "v_swaprel_b32"): return "ReadWrite"
    if fmt == "SOPK" and (name.startswith(("s_cmpk", "s_setreg", "s_waitcnt", "s_version"))): return "Read"
    if field in ("vdst", "sdst"):
        if RMW.match(name) and field == "vdst" or RMW.match(name) and name[0] == "s": return "ReadWrite"
        if D16.search(name) and "load" in name: return "ReadWrite"
        return "Write"
    if field == "sdata": return "Read" if "store" in name or "atomic" in name else "Write"
    if field == "vdata":
        if "load" in name: return "ReadWrite" if D16.search(name) else "Write"
        return "ReadWrite" if "atomic" in name else "Read"
    if name.startswith("s_call") and field == "sdst": return "Write"
    return "Read"


def slot(name, fmt, text, index, slots):
    if text.startswith("="):
        w = "Write" if index < 2 and (fmt == "VOPC" or index == 1) and not (fmt == "VOP2" and index > 1) else "Read"
        return f"sl(Field::None, Kind::{'Exec' if text == '=exec' else 'Vcc'}, 0, {w})"
    field, kind = text.split("=")
    acc = access(name, fmt, field, index, slots)
    f = FIELD[field]
    words = 0
    if kind in ("gaddr", "sbase", "saddr", "bufaddr", "smem"):
        k = dict(gaddr="GlobalAddr", sbase="GlobalBase", saddr="ScratchAddr", bufaddr="BufferAddr", smem="ScalarOffset")[kind]
    elif field == "saddr" and kind == "s1" and fmt == "SCRATCH":
        k, words = "ScratchBase", 1
    elif kind in ("K", "K16"): k = "Literal" if kind == "K" else "Literal16"
    elif kind in IMM: k = f"Imm(Imm::{IMM[kind]})"
    elif kind.startswith("mask"): k = "Mask { exec: %s }" % ("false" if "x" in kind[4:] else "true")
    elif ":" in kind:
        cls, n, a = kind.split(":")
        words = int(n)
        bits = sum(ACCEPT[c] for c in a if c != "x") | (0 if "x" in a or "s" not in a else 16)
        k = f"src(Class::{CLASS[cls]}, {bits})"
        if not k.startswith("src"): raise ValueError
    elif kind == "null": k, words = "Null", 1
    elif kind[0] == "h": k, words = "VgprLow", 1
    elif kind[0] in "vsaw":
        k, words = dict(v="Vgpr", s="Sgpr", a="Agpr", w="VgprOrAgpr")[kind[0]], int(kind[1:])
    else: raise ValueError(text)
    k = k if k.startswith("src") else "Kind::" + k
    return f"sl(Field::{f}, {k}, {words}, {acc})"


TRANS = re.compile(r"v_(exp|log|rcp|rsq|sqrt|sin|cos|rcp_iflag)_|v_s_(exp|log|rcp|rsq|sqrt)_")


def unit(n, fmt):
    if fmt in ("GLOBAL", "FLAT", "SCRATCH", "DS", "SMEM", "MUBUF"):
        if re.search(r"_(inv|wb|wbl2|wbinv|wbinv_vol|wbinvl1|wbinvl1_vol)$", n): return "Cache"
        return dict(GLOBAL="Global", FLAT="Flat", SCRATCH="Scratch", DS="Lds", SMEM="Smem", MUBUF="Buffer")[fmt]
    if n.startswith(("s_branch", "s_cbranch", "s_setpc", "s_swappc", "s_call", "s_rfe", "s_subvector")): return "Branch"
    if n.startswith("s_sendmsg"): return "Message"
    if fmt == "SOPP" or n.startswith(("s_waitcnt", "s_barrier", "s_sleep")): return "Control"
    if fmt[0] == "S": return "Salu"
    if fmt == "MAI" and n.startswith("v_accvgpr"): return "Valu"
    if re.match(r"v_(wmma|swmmac|mfma|smfmac)", n): return "Matrix"
    return "Trans" if TRANS.match(n) else "Valu"


NO_SCC = re.compile(r"s_(cselect|mul_|bfm|pack|cvt|add_f|sub_f|mul_f|min_f|max_f|fmac|fmamk|fmaak|minimum|maximum|rfe|movrel|mov_|cmov|brev|ff|flbit|sext|bitset|getpc|setpc|swappc|cbranch|"
                    r"ceil|floor|trunc|rndne|bitreplicate|ctz|clz|cls|sendmsg|set_gpr|barrier|get_barrier|sleep|alloc|nop|add_nc|sub_nc|add_u64|sub_u64|mul_u64|call|movk|cmovk|getreg|setreg|version|waitcnt|mulk|subvector|prefetch|quadmask_$)")


def implicit(n, fmt, slots, mods):
    r, w = [], []
    if "lds" in mods.split(): r.append("M0")  # where in the LDS a load writes
    if fmt[0] == "V" or fmt in ("MAI", "GLOBAL", "FLAT", "SCRATCH", "DS", "MUBUF"):
        if not re.match(r"v_(readlane|writelane|mfma|nop|pipeflush)", n): r.append("EXEC")
    if n.startswith("v_cmpx"): w.append("EXEC")
    if fmt == "VOPC" and not n.startswith("v_cmpx") or fmt == "VOPC" and "=vcc" in slots: w.append("VCC")
    if "=vcc" in slots and fmt in ("VOP2",):
        r.append("VCC") if slots.split()[-1] == "=vcc" else None
        if len(slots.split()) > 1 and slots.split()[1] == "=vcc": w.append("VCC")
    if n.startswith("v_div_fmas") or n == "v_dual_cndmask_b32": r.append("VCC")
    if fmt in ("SOP1", "SOP2") and not NO_SCC.match(n): w.append("SCC")
    if n.startswith("s_set_gpr_idx"): w.append("M0")
    elif fmt == "SOPC" or n.startswith(("s_cmpk", "s_addk")): w.append("SCC")
    if re.match(r"s_(addc|subb|add_co_ci|sub_co_ci|cselect|cmov|cbranch_scc)", n): r.append("SCC")
    if re.match(r"s_cbranch_vcc", n): r.append("VCC")
    if re.match(r"s_cbranch_exec", n): r.append("EXEC")
    if "saveexec" in n or "wrexec" in n: r.append("EXEC"); w.append("EXEC")
    if "movrel" in n or n.startswith(("s_sendmsg", "ds_gws", "ds_append", "ds_consume")) or "_lds_" in n or "addtid" in n: r.append("M0")
    bits = dict(VCC=1, EXEC=2, SCC=4, M0=8)
    return sum(bits[x] for x in set(r)), sum(bits[x] for x in set(w))


rows, names = [], set()
for l in lines:
    n, fmt, *rest = l.split("\t")
    codes, slots, mods = rest[:3], rest[3], rest[4]
    names.add(n)
    rows.append((n, fmt, codes, slots, mods))
names = sorted(names)
index = {n: i for i, n in enumerate(names)}
order = {f: i for i, f in enumerate("SOP1 SOP2 SOPC SOPK SOPP SMEM VOP1 VOP2 VOPC VOP3 VOP3SD VOP3P MAI VOPDX VOPDY DS FLAT GLOBAL SCRATCH MUBUF".split())}
rows.sort(key=lambda r: (index[r[0]], order[r[1]], r[3], r[4]))

with open(f"{here}/op.rs", "w") as f:
    f.write("//! Names of the operations: generated by tools/amdgpu_rows.py, not edited by hand.\n\nuse super::super::row::Op;\n\n#[rustfmt::skip]\nmod consts {\n    use super::Op;\n")
    for i, n in enumerate(names): f.write(f"    pub const {n.upper()}: Op = Op({i});\n")
    f.write("}\npub use consts::*;\n\n/// Mnemonics, sorted: an [`Op`] is an index.\n#[rustfmt::skip]\npub(in super::super) static NAMES: &[&str] = &[\n")
    for i in range(0, len(names), 5): f.write("    " + " ".join(f'"{n}",' for n in names[i:i + 5]) + "\n")
    f.write("];\n")

pool, out = {}, []
for n, fmt, codes, slots, mods in rows:
    sl = [] if slots == "-" else slots.split()
    text = ", ".join(slot(n, fmt, t, i, sl) for i, t in enumerate(sl))
    sid = pool.setdefault(text, len(pool))
    m = 0
    for x in ([] if mods == "-" else mods.split()): m |= MOD[x]
    rd, wr = implicit(n, fmt, slots, mods)
    c = ", ".join("N" if x == "-" else x for x in codes)
    out.append(f"    r({index[n]}, Format::{FORMAT[fmt]}, [{c}], S{sid}, {m:#x}, Unit::{unit(n, fmt)}, {rd}, {wr}), // {n}")
with open(f"{here}/rows.rs", "w") as f:
    f.write("""//! Rows of the instruction table: generated by tools/amdgpu_rows.py from isa.tsv, not edited by hand.
//!
//! A row: operation, format, its number there on gfx1100, gfx942 and gfx1201 (N: the chip lacks it), operands, allowed modifiers,
//! unit, registers read and written without being named. Rows of the chips that agree in all else are one row.

use super::super::format::{Field, Format};
use super::super::row::Access::{Read, ReadWrite, Write};
use super::super::row::{Accepts, Access, Allows, Class, Imm, Implicit, Kind, NONE as N, Op, Row, Slot, Unit};

const fn sl(field: Field, kind: Kind, words: u8, access: Access) -> Slot {
    Slot { field, kind, words, access }
}

const fn src(class: Class, accepts: u8) -> Kind {
    Kind::Source { class, accepts: Accepts::from_bits_retain(accepts) }
}

#[allow(clippy::too_many_arguments)] // columns of the table
const fn r(op: u16, format: Format, codes: [u16; 3], slots: &'static [Slot], allows: u64, unit: Unit, reads: u8, writes: u8) -> Row {
    let allows = Allows::from_bits_retain(allows);
    let (reads, writes) = (Implicit::from_bits_retain(reads), Implicit::from_bits_retain(writes));
    Row { op: Op(op), format, codes, slots, allows, unit, reads, writes }
}

#[rustfmt::skip]
mod operands {
    use super::*;
""")
    for t, i in pool.items(): f.write(f"    pub const S{i}: &[Slot] = &[{t}];\n")
    f.write("}\nuse operands::*;\n\n/// All rows, sorted by operation, short encodings first.\n#[rustfmt::skip]\npub(in super::super) static ROWS: &[Row] = &[\n")
    f.write("\n".join(out) + "\n];\n")
    f.write("""
/// Rows of each chip by format and number: what a decoder looks up.
#[rustfmt::skip]
pub(in super::super) static BY_CODE: [&[u16]; 3] = [
""")
    for chip in range(3):
        mine = sorted((order[r[1]], int(r[2][chip]), i) for i, r in enumerate(rows) if r[2][chip] != "-")
        f.write("    &[" + ", ".join(str(i) for _, _, i in mine) + "],\n")
    f.write("];\n")
print(len(out), "rows,", len(names), "names,", len(pool), "operand lists", file=sys.stderr)
