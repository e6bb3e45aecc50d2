"""extra: v_cmpx e64 (vdst=126), 16-bit fmaak, setreg_imm32, sendmsg/hwreg slots"""
import json,sys
from probe import P,word,V,toks
from mc import both
chip=sys.argv[1]
p=P(chip); d=json.load(open(f"probe_{chip}.json"))
if chip!="gfx942":
    f=p.F["VOP3"];cases=[];meta=[]
    for op in range(128,256):
        for s1 in (V(120),):
            v=dict(vdst=126,src0=V(100),src1=s1); cases.append(word(f,op,v)); meta.append((op,v))
    for (op,v),(ok,t) in zip(meta,both(chip,cases)):
        if ok and ok.startswith("v_cmpx"): d["VOP3"][str(op)]=[(v,ok)]
f=p.F["VOP2"];cases=[];meta=[]
for op in f["ops"]:
    v=dict(vdst=10,src0=V(100),vsrc1=120,lit=0x1234); cases.append(word(f,op,v)); meta.append((op,v))
for (op,v),(ok,t) in zip(meta,both(chip,cases)):
    if ok and "0x1234" in ok and str(op) not in d["VOP2"]: d["VOP2"][str(op)]=[(v,ok)]; print(ok)
f=p.F["SOPK"];cases=[];meta=[]
for op in f["ops"]:
    v=dict(simm16=0x1234,lit=0x12345678); cases.append(word(f,op,v)); meta.append((op,v))
for (op,v),(ok,t) in zip(meta,both(chip,cases)):
    if ok and str(op) not in d["SOPK"]: d["SOPK"][str(op)]=[(v,ok)]; print(ok)
json.dump(d,open(f"probe_{chip}.json","w"))
