#!/usr/bin/env python3
"""Writes src/isa/x86_64/rows.rs: one row an operation, with iced-x86's codes for AVX (xmm, ymm) and AVX-512 (xmm, ymm, zmm).

usage: tools/x86_rows.py PATH/TO/iced-x86/src/code.rs src/isa/x86_64
The list below is the source; the codes' own names say operand kinds, memory operands and broadcasts. Only rows that the room's other
files name are written.
"""
import glob, os, re, sys

codes = re.findall(r"^\s+((?:VEX|EVEX)_(\w+?)_(\w+)) =", open(sys.argv[1]).read(), re.M)
bym = {}
for full, mnem, ops in codes:
    m = re.match(r"(VEX|EVEX)_([A-Za-z0-9]+)_(.*)$", full)
    bym.setdefault((m[1], m[2]), []).append((full, m[3].split("_")))

def alike(*names): return [(n.upper(), n, n, None) for n in names]
def typed(stem, types): return [(f"{stem}{t}".upper(), f"{stem}{t}", f"{stem}{t}", None) for t in types.split()]

# NAME, VEX mnemonic, EVEX mnemonic, filter
ROWS = []
for op in "vadd vsub vmul vdiv vmin vmax vsqrt".split(): ROWS += typed(op, "ps pd ss sd")
for op in "vand vandn vor vxor".split(): ROWS += typed(op, "ps pd")
for t in "ps pd ss sd".split(): ROWS += [(f"vscalef{t}".upper(), None, f"vscalef{t}", None)]
ROWS += typed("vfmadd231", "ps pd ss sd") + typed("vfmadd213", "ps pd ss sd")
for op in "vpadd vpsub".split(): ROWS += typed(op, "b w d q")
ROWS += alike("vpmullw", "vpmulld", "vpmullq", "vpmuludq")
for op in "vpmins vpmaxs vpminu vpmaxu".split(): ROWS += typed(op, "b w d q")
ROWS += [("VPAND", "vpand", "vpandd", None), ("VPOR", "vpor", "vpord", None), ("VPXOR", "vpxor", "vpxord", None), ("VPANDN", "vpandn", "vpandnd", None)]
ROWS += [("VPTERNLOGD", None, "vpternlogd", None)]
for op in "vpsll vpsrl vpsra".split():
    ROWS += [(f"{op}{t}i".upper(), f"{op}{t}", f"{op}{t}", "imm") for t in "wdq"]
    ROWS += typed(op + "v", "w d q")
ROWS += [("VPSLLDQ", "vpslldq", "vpslldq", "imm"), ("VPSRLDQ", "vpsrldq", "vpsrldq", "imm")]
for op in "vpcmpeq vpcmpgt".split(): ROWS += [(f"{op}{t}".upper(), f"{op}{t}", None, None) for t in "bwdq"]
for t in "b ub w uw d ud q uq".split(): ROWS += [(f"vpcmp{t}".upper(), None, f"vpcmp{t}", None)]
ROWS += typed("vcmp", "ps pd ss sd")
ROWS += [(f"vptestm{t}".upper(), None, f"vptestm{t}", None) for t in "bwdq"]
for t in "bwdq": ROWS += [(f"vpmovm2{t}".upper(), None, f"vpmovm2{t}", None), (f"vpmov{t}2m".upper(), None, f"vpmov{t}2m", None)]
ROWS += [("VBLENDVPS", "vblendvps", None, None), ("VBLENDVPD", "vblendvpd", None, None), ("VPBLENDVB", "vpblendvb", None, None)]
ROWS += [(f"vpblendm{t}".upper(), None, f"vpblendm{t}", None) for t in "bwdq"]
for a, b in [("b","w"),("b","d"),("b","q"),("w","d"),("w","q"),("d","q")]:
    ROWS += alike(f"vpmovsx{a}{b}", f"vpmovzx{a}{b}")
    ROWS += [(f"vpmov{b}{a}".upper(), None, f"vpmov{b}{a}", None)]
ROWS += alike("vpacksswb", "vpackssdw", "vpackuswb", "vpackusdw", "vpshufb", "vpermd", "vpermq", "vpunpcklbw", "vpunpckhbw", "vpunpcklwd", "vpunpckhwd",
              "vpunpckldq", "vpunpckhdq", "vpunpcklqdq", "vpunpckhqdq", "vunpcklps", "vunpcklpd", "vshufps", "vshufpd")
ROWS += [("VPSHUFD", "vpshufd", "vpshufd", "imm"), ("VPERMQI", "vpermq", "vpermq", "imm")]
ROWS += [("VPERM2I128", "vperm2i128", None, None)]
for t in "bwdq": ROWS += [(f"vpermi2{t}".upper(), None, f"vpermi2{t}", None), (f"vpermt2{t}".upper(), None, f"vpermt2{t}", None)]
ROWS += [("VPERMB", None, "vpermb", None), ("VPERMW", None, "vpermw", None)]
ROWS += [("VINSERT128", "vinserti128", "vinserti32x4", None), ("VEXTRACT128", "vextracti128", "vextracti32x4", None)]
ROWS += [("VINSERT256", None, "vinserti64x4", None), ("VEXTRACT256", None, "vextracti64x4", None)]
ROWS += alike("vcvtdq2ps", "vcvtdq2pd", "vcvtps2pd", "vcvtpd2ps", "vcvttps2dq", "vcvttpd2dq", "vcvtph2ps", "vcvtps2ph", "vcvtss2sd", "vcvtsd2ss")
ROWS += [(n.upper(), None, n, None) for n in "vcvtudq2ps vcvtudq2pd vcvtqq2ps vcvtuqq2ps vcvtqq2pd vcvtuqq2pd vcvttps2udq vcvttpd2udq vcvttpd2qq vcvttpd2uqq vcvttps2qq vcvttps2uqq".split()]
for t in "ps pd ss sd".split(): ROWS += [(f"vround{t}".upper(), f"vround{t}", f"vrndscale{t}", None)]
ROWS += [("VMOVUPS", "vmovups", "vmovups", "load"), ("VMOVUPS_ST", "vmovups", "vmovups", "store"), ("VMOVUPD", "vmovupd", "vmovupd", "load"), ("VMOVUPD_ST", "vmovupd", "vmovupd", "store")]
ROWS += [(f"vmovdqu{n}".upper(), "vmovdqu", f"vmovdqu{n}", "load") for n in (8, 16, 32, 64)]
ROWS += [(f"vmovdqu{n}_st".upper(), "vmovdqu", f"vmovdqu{n}", "store") for n in (8, 16, 32, 64)]
ROWS += [("VMOVAPS", "vmovaps", "vmovaps", "load")]
ROWS += [("VMOVNTPS", "vmovntps", "vmovntps", None)]
ROWS += [("VMOVSS_LD", "vmovss", "vmovss", "mload"), ("VMOVSS_ST", "vmovss", "vmovss", "store"), ("VMOVSD_LD", "vmovsd", "vmovsd", "mload"), ("VMOVSD_ST", "vmovsd", "vmovsd", "store"),
         ("VMOVSS", "vmovss", "vmovss", "rrr"), ("VMOVSD", "vmovsd", "vmovsd", "rrr")]
ROWS += [("VMOVQ_ST", "vmovq", "vmovq", "xmmm64_xmm"), ("VMOVQ_LD", "vmovq", "vmovq", "xmm_xmmm64"), ("VMOVD_ST", "vmovd", "vmovd", "rm32_xmm"), ("VMOVD_LD", "vmovd", "vmovd", "xmm_rm32"),
         ("VMOVQ_GX", "vmovq", "vmovq", "rm64_xmm"), ("VMOVQ_XG", "vmovq", "vmovq", "xmm_rm64")]
ROWS += [("VPBROADCASTB", "vpbroadcastb", "vpbroadcastb", "mem"), ("VPBROADCASTW", "vpbroadcastw", "vpbroadcastw", "mem"), ("VPBROADCASTD", "vpbroadcastd", "vpbroadcastd", "mem"), ("VPBROADCASTQ", "vpbroadcastq", "vpbroadcastq", "mem"),
         ("VPBROADCASTB_G", None, "vpbroadcastb", "r32"), ("VPBROADCASTW_G", None, "vpbroadcastw", "r32"), ("VPBROADCASTD_G", None, "vpbroadcastd", "r32"), ("VPBROADCASTQ_G", None, "vpbroadcastq", "r64"),
         ("VBROADCASTSS_M", "vbroadcastss", "vbroadcastss", "mem"), ("VBROADCASTSD_M", "vbroadcastsd", "vbroadcastsd", "mem")]
ROWS += [("VPEXTRB", "vpextrb", "vpextrb", "r32m8"), ("VPEXTRW", "vpextrw", "vpextrw", "r32m16"), ("VPEXTRD", "vpextrd", "vpextrd", None), ("VPEXTRQ", "vpextrq", "vpextrq", None)]
ROWS += [("VPINSRB", "vpinsrb", "vpinsrb", "r32m8"), ("VPINSRW", "vpinsrw", "vpinsrw", "r32m16"), ("VPINSRD", "vpinsrd", "vpinsrd", None), ("VPINSRQ", "vpinsrq", "vpinsrq", None), ("VINSERTPS", "vinsertps", "vinsertps", None)]
ROWS += [("VMASKMOVPS", "vmaskmovps", None, "load"), ("VMASKMOVPD", "vmaskmovpd", None, "load"), ("VMASKMOVPS_ST", "vmaskmovps", None, "store"), ("VMASKMOVPD_ST", "vmaskmovpd", None, "store")]
ROWS += [("VPMOVMSKB", "vpmovmskb", None, "r32"), ("VMOVMSKPS", "vmovmskps", None, "r32"), ("VMOVMSKPD", "vmovmskpd", None, "r32")]
ROWS += [("VPGATHERDD", "vpgatherdd", "vpgatherdd", None), ("VPGATHERDQ", "vpgatherdq", "vpgatherdq", None), ("VPGATHERQD", "vpgatherqd", "vpgatherqd", None), ("VPGATHERQQ", "vpgatherqq", "vpgatherqq", None)]
for g, r in (("SI", "r32"), ("SI64", "r64")):
    for s in "ss sd".split():
        ROWS += [(f"VCVT{g}_2{s}".upper(), f"vcvtsi2{s}", f"vcvtsi2{s}", "rm32" if r == "r32" else "rm64"), (f"VCVTT{s}_2{g}".upper(), f"vcvtt{s}2si", f"vcvtt{s}2si", r)]
ROWS += [("VCVTU64_2SS", None, "vcvtusi2ss", "rm64"), ("VCVTU64_2SD", None, "vcvtusi2sd", "rm64"), ("VCVTTSS_2U64", None, "vcvttss2usi", "r64"), ("VCVTTSD_2U64", None, "vcvttsd2usi", "r64")]
ROWS += [("VUCOMISS", "vucomiss", "vucomiss", None), ("VUCOMISD", "vucomisd", "vucomisd", None)]
for k in "and or xor xnor add andn".split(): ROWS += [(f"K{k}{t}".upper(), f"k{k}{t}", None, None) for t in "bwdq"]
ROWS += [(f"KNOT{t}".upper(), f"knot{t}", None, None) for t in "bwdq"]
ROWS += [(f"KSHIFTR{t}".upper(), f"kshiftr{t}", None, None) for t in "bwdq"] + [(f"KSHIFTL{t}".upper(), f"kshiftl{t}", None, None) for t in "bwdq"]
ROWS += [("KUNPCKBW", "kunpckbw", None, None), ("KUNPCKWD", "kunpckwd", None, None), ("KUNPCKDQ", "kunpckdq", None, None)]
for t, r in (("b", "r32"), ("w", "r32"), ("d", "r32"), ("q", "r64")):
    ROWS += [(f"KMOV{t}_KG".upper(), f"kmov{t}", None, f"kr_{r}"), (f"KMOV{t}_GK".upper(), f"kmov{t}", None, f"{r}_kr"),
             (f"KMOV{t}".upper(), f"kmov{t}", None, "kr_km"), (f"KMOV{t}_ST".upper(), f"kmov{t}", None, "_m")]
ROWS += [(f"KORTEST{t}".upper(), f"kortest{t}", None, None) for t in "bwdq"]
for op in "shlx shrx sarx".split(): ROWS += [(f"{op}32".upper(), op, None, "r32"), (f"{op}64".upper(), op, None, "r64")]

KIND = {"xmm": "x", "ymm": "y", "zmm": "z", "kr": "k", "kp1": "k", "r32": "d", "r64": "q", "rm32": "d", "rm64": "q"}

def parse(ops):
    """letters of the operands, index of the one that may be memory, broadcast element bits, imm"""
    letters, mem, bc, imm = "", 9, 0, False
    for o in ops:
        if o in ("k1z", "k1", "er", "sae"): continue
        if o.startswith("imm"): imm = True; continue
        m = re.match(r"([xyz])mmm(\d+)(?:b(\d+))?$", o)
        if m: letters += m[1]; mem = len(letters) - 1; bc = int(m[3] or 0); continue
        m = re.match(r"vm(32|64)([xyz])$", o)
        if m: letters += m[2].upper(); mem = len(letters) - 1; continue
        m = re.match(r"m(\d+)(?:b(\d+))?$", o)
        if m: letters += "m"; mem = len(letters) - 1; continue
        m = re.match(r"km(\d+)$", o)
        if m: letters += "k"; mem = len(letters) - 1; continue
        m = re.match(r"r(32|64)m(\d+)$", o)
        if m: letters += "d" if m[1] == "32" else "q"; mem = len(letters) - 1; continue
        if o not in KIND: return None
        if o.startswith("rm"): mem = len(letters)
        letters += KIND[o]
    return letters, mem, bc, imm

def fits(ops, f):
    first = ops[0]
    store = bool(re.match(r"(([xyz]mm)?m\d+|rm\d+)", first))
    hasimm = any(o.startswith("imm") for o in ops)
    s = "_".join(ops)
    if f is None: return not (store and False)
    if f == "imm": return hasimm
    if f == "load": return not store
    if f == "store": return store
    if f == "mload": return not store and re.search(r"_m\d+$", s)
    if f == "rrr": return re.match(r"xmm_(k1z_)?xmm_xmm$", s)
    if f == "mem": return re.search(r"[xyz]mmm\d+$|_m\d+$", s)
    return f in s

def width(letters):
    l = letters.lower()
    return "z" if "z" in l else "y" if "y" in l else "x"

def pick(enc, mnem, f, imm_ok):
    found = {}
    if not mnem: return found
    for full, ops in bym.get((enc, mnem[0].upper() + mnem[1:]), []):
        p = parse(ops)
        if p is None or not fits(ops, f): continue
        w = width(p[0])
        # registers with memory forms first; r64 twins of r32 forms come later in the list and lose
        if w not in found: found[w] = (full, p)
    return found

out = []
for name, vex, evex, f in ROWS:
    if name.endswith("PERMQ"):  # by register, not by immediate
        sel = lambda enc: {w: v for w, v in ((width(parse(o)[0]), (full, parse(o))) for full, o in bym.get((enc, "Vpermq"), []) if parse(o) and not parse(o)[3])}
        v, e = {}, sel("EVEX")
    else:
        v, e = pick("VEX", vex, f, True), pick("EVEX", evex, f, True)
    cols = [v.get("x"), v.get("y"), e.get("x"), e.get("y"), e.get("z")]
    if not any(cols): print("no codes for", name, file=sys.stderr); continue
    def cell(c):
        if not c: return "NO"
        full, (letters, mem, bc, imm) = c
        return f'f({full}, b"{letters}", {mem})'
    out.append((name, [cell(c) for c in cols]))

room = sys.argv[2]
used = set(re.findall(r"\b[A-Z][A-Z0-9_]+\b", "".join(open(f).read() for f in glob.glob(room + "/**/*.rs", recursive=True) if not f.endswith("/rows.rs"))))
out = [row for row in out if row[0] in used]
sys.stdout = open(os.path.join(room, "rows.rs"), "w")
print("""//! Rows of AVX and AVX-512 codes: generated by tools/x86_rows.py, not edited by hand.
//!
//! A row is one operation; its cells are VEX xmm, VEX ymm, EVEX xmm, EVEX ymm, EVEX zmm. A cell names iced-x86's code, the kinds
//! of its register operands (x y z vector, X Y Z vector index, k mask, d q general, m memory only), and which operand may be memory
//! (9: none). Source: the names of iced-x86's `Code`.

use super::form::{Form, Row};
use iced_x86::Code::*;

const fn f(code: iced_x86::Code, kinds: &'static [u8], mem: u8) -> Form {
    Form { code, kinds, mem }
}
const NO: Form = Form::NONE;

""")
print("#[rustfmt::skip]\nmod table {\n    use super::*;")
for name, cells in out:
    print(f"    pub const {name}: Row = Row([{', '.join(cells)}]);")
print("""}
pub use table::*;

/// All rows, for the tests.
#[cfg(test)]
#[rustfmt::skip]
pub const ALL: &[(&str, Row)] = &[""")
for name, _ in out:
    print(f'    ("{name}", {name}),')
print("];")
