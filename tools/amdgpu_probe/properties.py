#!/usr/bin/env python3
"""probe_CHIP.json -> rows_CHIP.json : slots, classes, modifiers of every operation"""
import json,re,sys
from mc import *
from probe import P,word,V,toks
chip=sys.argv[1]; p=P(chip); d=json.load(open(f"probe_{chip}.json"))
g9=chip=="gfx942"
START={10:"vdst",20:"sdst",14:"sdst",40:"ssrc0",60:"x60",100:"src0",120:"x120",180:"src2",16:"src2",70:"x70",80:"data1",44:"saddr",50:"soffset",64:"srsrc",106:"sdst"}
def tokinfo(t):
    m=re.fullmatch(r"([vsa])(\d+)(\.l)?",t)
    if m: return m[1],int(m[2]),1
    m=re.fullmatch(r"([vsa])\[(\d+):(\d+)\]",t)
    if m: return m[1],int(m[2]),int(m[3])-int(m[2])+1
    return None
rows=[]
def smem_fix(fmt,v,ws):
    if fmt=="SMEM" and g9:
        ws=list(ws); ws[0]|=(1<<17 if "offset" in v else 0)|(1<<14 if "soffset" in v else 0)
    return ws
def fieldof(fmt,vals,kind,n):
    """which field holds register n"""
    for f,x in vals.items():
        if f in("lit","offset","offset0","offset1","simm16"): continue
        if kind in "va" and (f.startswith("src") and x==256+n or f in("vdst","vsrc1","addr","data0","data1","data","vaddr","vdata") and x==n): return f
        if kind=="s" and (f in("sdst","ssrc0","ssrc1","sdata","soffset","saddr") and x==n or f.startswith("src") and x==n or f=="sbase" and x*2==n or f=="srsrc" and (x==n if chip=="gfx1201" else x*4==n) or f=="vdst" and x==n): return f
    return None
WANT={"VOP3SD":"s14"}
for fmt in d:
    for op,l in d[fmt].items():
        op=int(op)
        cands=[]
        for v,t in l:
            name,tk=toks(t)
            slots=[];bad=False;used=set()
            # last token may carry modifiers
            words=[]
            for i,x in enumerate(tk):
                parts=x.split(" ")
                words.append((parts[0] if not x.startswith(("hwreg","sendmsg")) else "simm" if x[0]=="h" and fmt=="SOPK" else "msg", parts[1:]))
            for x,ex in words:
                inf=tokinfo(x)
                if inf:
                    f=fieldof(fmt,v,inf[0],inf[1])
                    if f is None or f in used and fmt!="x": bad=True
                    used.add(f); slots.append((f,inf[0]+str(inf[2])+(".l" if x.endswith(".l") else "")))
                elif x in("vcc_lo","vcc","exec_lo","exec"):
                    if fmt=="VOP3SD": bad=True
                    slots.append(("-",x))
                elif x=="simm": slots.append(("imm","hwreg"))
                elif x=="msg": slots.append(("imm","sendmsg"))
                elif x=="off": slots.append(("off","off"))
                else: slots.append(("imm",x))
            extra=[f for f in v if f in("vdst","sdst","src0","src1","src2","ssrc0","ssrc1","vsrc1","addr","data","data0","data1","sdata","vdata","vaddr","saddr","soffset","srsrc","sbase") and f not in used and v[f] not in (p.none,)]
            if fmt in("FLAT","SCRATCH","GLOBAL"): extra=[]
            score=(not bad, -len(extra), len(used))
            cands.append((score,v,t,name,slots,bad))
        best=max(cands,key=lambda c:c[0])
        if best[5]:
            print("skip",fmt,op,best[2],file=sys.stderr); continue
        if fmt=="VOP3SD" and not any(f=="sdst" for f,_ in best[4]): continue
        mai=best[3].startswith(("v_mfma","v_smfmac","v_accvgpr"))
        if fmt=="VOP3P" and mai or fmt=="MAI" and not mai: continue
        rows.append(dict(fmt=fmt,op=op,v=best[1],t=best[2],name=best[3],slots=best[4]))
        # atomics with return: a second row
        if fmt in("GLOBAL","FLAT") and not any(f=="vdst" for f,_ in best[4]):
            c2=[c for c in cands if not c[5] and any(f=="vdst" for f,_ in c[4])]
            if c2:
                b=max(c2,key=lambda c:c[0]); rows.append(dict(fmt=fmt,op=op,v=b[1],t=b[2],name=b[3],slots=b[4],ret=True))
        elif fmt in("GLOBAL","FLAT"):
            c2=[c for c in cands if not c[5] and not any(f=="vdst" for f,_ in c[4]) and c[0][2]>=2]
            if c2 and "atomic" in best[3]:
                b=max(c2,key=lambda c:c[0]); rows[-1]["ret"]=True; rows.append(dict(fmt=fmt,op=op,v=b[1],t=b[2],name=b[3],slots=b[4]))
sd={(r["op"]) for r in rows if r["fmt"]=="VOP3SD"}
rows=[r for r in rows if not(r["fmt"]=="VOP3" and r["op"] in sd)]
print(len(rows),file=sys.stderr)
# --- round 2: properties of sources
cases=[];meta=[]
def add(r,key,changes,extra=()):
    v={**r["v"],**changes}
    ws=smem_fix(r["fmt"],v,word(p.F[r["fmt"]],r["op"],v))
    cases.append(ws); meta.append((r,key))
SRC=("src0","src1","src2","ssrc0","ssrc1")
for r in rows:
    r["acc"]={}
    fmt=r["fmt"]
    for f,k in r["slots"]:
        if f in SRC:
            hi=fmt not in("SOP1","SOP2","SOPC")
            if hi: add(r,(f,"v"),{f:V(130)})
            add(r,(f,"s"),{f:32}); add(r,(f,"i"),{f:193}); add(r,(f,"f"),{f:240}); add(r,(f,"2pi"),{f:248})
            add(r,(f,"m"),{f:124 if g9 else 125}); add(r,(f,"e"),{f:126}); add(r,(f,"c"),{f:253}); add(r,(f,"n"),{f:124})
            for nm,lit in (("L",0x12345678),("Lh",0x3c00),("Lf",0x3f800000),("L16",0x1234)):
                add(r,(f,nm),{f:255,"lit":lit})
        if k[0]=="v" and f!="-" and fmt in("VOP1","VOP2","VOPC"):
            fld=f
            add(r,(f,"hi"),{f:(256 if f.startswith("src") else 0)+200})
        if k[0]=="v" and f in("vdst","vsrc1","addr","data","data0","vdata","vaddr") : add(r,(f,"odd"),{f:11})
    for m,(lo,w) in p.F[fmt].get("m",{}).items():
        if m in r["v"] and r["v"][m] and w==1: add(r,("mod",m),{m:0})
        else:
            for val in (range(1,1<<w) if w<=3 else (1,)): add(r,("mod",m+(str(val) if w>1 else "")),{m:val})
    if fmt in("VOP1","VOP2","VOPC","VOP3","VOP3P","VOP3SD") and "src0" in r["v"]:
        add(r,("mod","dpp16"),{"src0":250,"dpp":0xff000000|0x1b<<8|100})
        add(r,("mod","dppabs"),{"src0":250,"dpp":0xff000000|0x2<<20|0x1b<<8|100})
        add(r,("mod","dppneg"),{"src0":250,"dpp":0xff000000|0x1<<20|0x1b<<8|100})
        add(r,("mod","dppneg1"),{"src0":250,"dpp":0xff000000|0x4<<20|0x1b<<8|100})
        if not g9: add(r,("mod","dpp8"),{"src0":233,"dpp":0x1234500|100}); 
        if g9: add(r,("mod","sdwa"),{"src0":249,"dpp":0x06060600|100})
res=both(chip,cases)
for (r,k),(ok,t) in zip(meta,res):
    if ok: r["acc"]["%s.%s"%k]=ok
    elif t and k[1] in("L16",): r["acc"]["%s.%s!"%k]=t
# wave64 text
if not g9:
    ws=[smem_fix(r["fmt"],r["v"],word(p.F[r["fmt"]],r["op"],r["v"])) for r in rows]
    t64=disasm(chip,ws,("-mattr=+wavefrontsize64,-wavefrontsize32",))
    for r,t in zip(rows,t64): r["t64"]=t
for r in rows: r["w"]=smem_fix(r["fmt"],r["v"],word(p.F[r["fmt"]],r["op"],r["v"]))
json.dump(rows,open(f"rows_{chip}.json","w"))
print(len(cases),file=sys.stderr)
