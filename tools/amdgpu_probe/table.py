#!/usr/bin/env python3
"""rows_CHIP.json -> isa.tsv: one line a row, merged over chips"""
import json,re,sys,os
CHIPS=["gfx1100","gfx942","gfx1201"]
SKIP=re.compile(r"^(v_mov_b16|v_illegal|s_version|s_set_gpr_idx|image_|tbuffer|ds_nop$|ds_gws|ds_ordered|ds_bvh|s_atc_probe|exp)")
def words(k): return int(k[1:].split(".")[0])
def src(r,f,k):
    a={x.split(".",1)[1] for x in r["acc"] if x.startswith(f+".")}
    n=words(k)
    fmt=r["fmt"]
    acc=""
    if "v" in a or (k[0]=="v" and fmt in("VOP1","VOP2","VOPC")): acc+="v"
    if k[0]=="a": acc+="a"
    if "s" in a: acc+="s"
    if "i" in a: acc+="i"
    if "f" in a or ("L16" in a): pass
    f_=("f" in a)
    L,L16,Lh,Lf=("L" in a),("L16" in a),("Lh" in a),("Lf" in a)
    cls="b32"
    if n>=2: cls="b64"
    if L:
        acc+="L"
        if n>=2: cls="b64"
        elif Lh and Lf: cls="pbf16"
        elif Lf: cls="p16"
        else: cls="b32"
    elif L16:
        acc+="L"
        cls="bf16" if (Lh and f_) else ("f16" if f_ else "i16")
    elif "i" in a and not f_: cls="i16"
    elif "2pi" in a:
        cls="b64" if "0.15915494309189532" in r["acc"][f+".2pi"] else "b32"
    if "s" in a and "e" not in a: acc+="x"   # exec refused
    lo = "h" if (fmt in("VOP1","VOP2","VOPC") and k[0]=="v" and n==1 and f+".hi" not in r["acc"] and "v" in acc) else ""
    if fmt in("VOP1","VOP2","VOPC") and k[0]=="v" and "v" not in a and not lo: pass
    if k[0]=="a": acc="a"
    return f"{cls}:{n}:{acc}{lo}"
def slots(r,chip):
    o=[];fmt=r["fmt"]
    name=r["name"]
    t64=r.get("t64")
    tk=re.split(r",\s*(?![^\[(]*[\])])",r["t"].split(None,1)[1]) if " " in r["t"] else []
    tk64=re.split(r",\s*(?![^\[(]*[\])])",t64.split(None,1)[1]) if t64 and " " in t64 else tk
    for i,(f,k) in enumerate(r["slots"]):
        mask=chip!="gfx942" and k=="s1" and len(tk64)==len(tk) and tk64[i]!=tk[i]
        if chip=="gfx942" and k=="s2" and (f=="sdst" and fmt=="VOP3SD" or f=="vdst" and name.startswith("v_cmp") or f=="src2"and fmt in("VOP3","VOP3SD")): mask=True
        if f=="-": o.append("=exec" if k.startswith("exec") else "=vcc")
        elif f=="off": o.append("saddr=off")
        elif f=="imm":
            if fmt=="SMEM": o.append("soffset=smem")
            elif k.startswith("hwreg"): o.append("simm16=hwreg")
            elif k.startswith("sendmsg") and fmt=="SOP1": o.append("ssrc0=msg")
            elif fmt in("SOPK","SOPP"):
                kind="imm16"
                if "call" in name or "branch" in name or "subvector" in name: kind="label"
                elif name in("s_waitcnt",): kind="waitcnt"
                elif name=="s_delay_alu": kind="delay"
                elif name in("s_waitcnt_depctr","s_wait_alu"): kind="depctr"
                elif name in("s_sendmsg","s_sendmsghalt"): kind="msg"
                elif name=="s_endpgm": kind="opt16"
                elif name in("s_set_gpr_idx_mode",): kind="gpridx"
                elif not k.startswith("0x"): kind="dec16"
                if name=="s_setreg_imm32_b32" and not k.startswith("hwreg"): o.append("lit=K"); continue
                if k=="null": o.append("sdst=s1"); continue
                o.append("simm16="+kind)
            elif fmt in("VOP2",): o.append("lit=K16" if "f16" in name else "lit=K")
            else: o.append("?"+k)
        elif mask: o.append(f"{f}=mask:{'x' if f.startswith('src') and f+'.e' not in r['acc'] else ''}")
        elif f.startswith(("src","ssrc")):
            o.append(f"{f}={src(r,f,k)}")
        elif fmt in("GLOBAL",) and f=="addr": o.append("addr=gaddr" if any(x=="saddr" or x=="off" for x,_ in r["slots"]) else "addr="+k)
        elif fmt=="SCRATCH" and f=="addr": o.append("addr=saddr")
        elif f=="saddr": o.append("saddr=sbase" if fmt=="GLOBAL" else "saddr=s1")
        elif fmt=="MUBUF" and f=="vaddr": o.append("vaddr=bufaddr")
        elif f=="soffset": o.append("soffset=smem" if fmt=="SMEM" else "soffset=s1" if chip=="gfx1201" else "soffset=i16:1:si")
        elif k[0]=="v" and fmt in("VOP1","VOP2","VOPC") and k=="v1" and f+".hi" not in r["acc"]: o.append(f"{f}=h1")
        else: o.append(f"{f}={k}")
    if chip=="gfx942":
        acc={k[4:] for k in r["acc"] if k.startswith("mod.")}
        def up(t):
            f,_,k=t.partition("=")
            if "acc" in acc and f in("vdst","data","data0","data1","vdata") and re.fullmatch(r"v\d+",k): return f+"=w"+k[1:]
            if fmt=="MAI" and f=="vdst" and "acc_cd" in acc: return f+"=w"+k[1:]
            if fmt=="MAI" and f in("src0","src1") and ("acca" if f=="src0" else "accb") in acc: return t.replace(":v",":va")
            if fmt=="MAI" and f=="src2" and "acc_cd" in acc and ":vi" in t: return t.replace(":v",":va")
            return t
        o=[up(t) for t in o]
    return " ".join(o) or "-"
def suffix(name,fmt):
    m=re.fullmatch(r"(.*?)(_e32|_e64)?",name)
    return m[1],bool(m[2])
out={};order=[]
for chip in CHIPS:
    if not os.path.exists(f"rows_{chip}.json"): continue
    one={int(op):next((t for v,t in l if v.get("simm16")==1),None) for op,l in json.load(open(f"probe_{chip}.json"))["SOPP"].items()}
    for r in json.load(open(f"rows_{chip}.json")):
        if chip=="gfx942" and r["fmt"]=="VOP3" and r["op"]>=0x380: continue
        base,suf=suffix(r["name"],r["fmt"])
        if SKIP.match(base): continue
        fmt=r["fmt"]
        try: sl=slots(r,chip)
        except Exception as e: print("ERR",chip,r["name"],r["slots"],e,file=sys.stderr); continue
        if "?" in sl or "None" in sl: print("odd",chip,r["t"],sl,file=sys.stderr); continue
        if fmt=="SOPP" and sl=="simm16=imm16" and one.get(r["op"]) and one[r["op"]].endswith(" 1"): sl="simm16=inl16"
        mods=sorted(re.sub(r"^(omod|th|scope|cbsz|blgp|abid|fmt)\d$",r"\1",k[4:]) for k in r["acc"] if k.startswith("mod.") and "sext(" not in r["acc"][k] and "byte_sel" not in r["acc"][k] and "index_key" not in r["acc"][k])
        mods=list(dict.fromkeys(mods))
        if base.startswith("v_mfma_f64"): mods=[m for m in mods if m!="blgp"]
        if "prefetch" in base and fmt=="SMEM": print("prefetch",r["t"],r["slots"],file=sys.stderr); continue
        if not r.get("ret") and fmt in("GLOBAL","FLAT") and "atomic" in base: mods=[m for m in mods if m not in("glc","sc0")]
        if base=="v_cvt_pk_u8_f32": mods=[m for m in mods if m not in("neg1","neg2")]
        if fmt=="SOPK" and base.startswith("s_waitcnt_"): sl=sl.replace("sdst=s1","sdst=null")
        if fmt=="DS":
            if "offset0:" in r["t"]: mods.append("offsets")
            elif "offset:" in r["t"]: mods.append("offset")
        if fmt in("GLOBAL","FLAT","SCRATCH","MUBUF") and "offset:" in r["t"]: mods.append("offset")
        if fmt=="MUBUF" and any(f=="vaddr" or f=="off" for f,_ in r["slots"]): mods.append("offen")
        if fmt=="MUBUF" and "idxen" in mods: pass
        if suf: mods.append("suffix")
        if r.get("ret"): mods.append("ret")
        if fmt=="VOP3P" and (r["v"].get("opselhi0") or r["v"].get("opselhi2")) and "op_sel_hi" not in r["t"]:
            mods.append("hi%d"%(r["v"].get("opselhi0",0)|r["v"].get("opselhi1",0)<<1|r["v"].get("opselhi2",0)<<2))
        key=(base,fmt,sl," ".join(mods))
        if key not in out: out[key]={}; order.append(key)
        out[key][chip]=(r["op"],r["w"],r["t"])
for l in open("tests/amdgpu/examples.tsv"):
    c=l.rstrip("\n").split("\t")
    if not c[2].startswith("VOPD"): continue
    half=c[1].split(" ")[0]
    sl={"srcX0":"src0","srcY0":"src0","vsrcX1":"vsrc1","srcX1":"vsrc1","srcY1":"vsrc1","vsrcY1":"vsrc1","vdstX":"vdst","vdstY":"vdst"}
    o=[]
    for t in c[4].replace("(vcc implicit)","").split():
        f,k=t.split(":")
        o.append("lit=K" if f=="K" else f"{sl[f]}="+("v1" if f.startswith(("vdst","vsrc")) or f in("srcX1","srcY1") else ("p16:1:vsiL" if "f16" in c[1] else "b32:1:vsiL")))
    key=(half,c[2].replace(".",""),' '.join(o),"")
    if key not in out: out[key]={}; order.append(key)
    out[key][c[0]]=(int(c[3],16),None,None)
# every first-half operation can be a second half too, but dot2acc
for key in [k for k in order if k[1]=="VOPDX"]:
    y=(key[0],"VOPDY",key[2],"")
    if y not in out: out[y]={c:v for c,v in out[key].items()}; order.append(y)
for n,c,sl in (("s_fmaak_f32",69,"sdst=s1 ssrc0=b32:1:siL ssrc1=b32:1:siL lit=K"),("s_fmamk_f32",70,"sdst=s1 ssrc0=b32:1:siL lit=K ssrc1=b32:1:siL")):
    out[(n,"SOP2",sl,"")]={"gfx1201":(c,None,None)}; order.append((n,"SOP2",sl,""))
names=sorted({k[0] for k in order})
with open("isa.tsv","w") as f:
    f.write("mnemonic\tformat\t"+"\t".join(CHIPS)+"\toperands\tmodifiers\n")
    for k in order:
        f.write("\t".join([k[0],k[1]]+[str(out[k][c][0]) if c in out[k] else "-" for c in CHIPS]+[k[2],k[3] or "-"])+"\n")
print(len(order),"rows",len(names),"names",file=sys.stderr)
