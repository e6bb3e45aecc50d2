#!/usr/bin/env python3
import re,itertools,sys,json
from mc import both
# field: (lo, width) over the whole instruction as a little-endian integer
def fmts(chip):
    g9=chip=="gfx942"; g12=chip=="gfx1201"
    F={}
    F["SOP2"]=dict(n=1,base=0x80000000,op=(23,7),ops=range(0x60),f=dict(sdst=(16,7),ssrc0=(0,8),ssrc1=(8,8)))
    F["SOPK"]=dict(n=1,base=0xb0000000,op=(23,5),ops=range(0x1d),f=dict(sdst=(16,7),simm16=(0,16)))
    F["SOP1"]=dict(n=1,base=0xbe800000,op=(8,8),ops=range(256),f=dict(sdst=(16,7),ssrc0=(0,8)))
    F["SOPC"]=dict(n=1,base=0xbf000000,op=(16,7),ops=range(128),f=dict(ssrc0=(0,8),ssrc1=(8,8)))
    F["SOPP"]=dict(n=1,base=0xbf800000,op=(16,7),ops=range(128),f=dict(simm16=(0,16)))
    F["VOP2"]=dict(n=1,base=0,op=(25,6),ops=range(0x3e),f=dict(vdst=(17,8),src0=(0,9),vsrc1=(9,8)))
    F["VOP1"]=dict(n=1,base=0x7e000000,op=(9,8),ops=range(256),f=dict(vdst=(17,8),src0=(0,9)))
    F["VOPC"]=dict(n=1,base=0x7c000000,op=(17,8),ops=range(256),f=dict(src0=(0,9),vsrc1=(9,8)))
    v3=0xd0000000 if g9 else 0xd4000000
    mods=dict(abs0=(8,1),abs1=(9,1),abs2=(10,1),opsel0=(11,1),opsel1=(12,1),opsel2=(13,1),opsel3=(14,1),clamp=(15,1),omod=(59,2),neg0=(61,1),neg1=(62,1),neg2=(63,1))
    F["VOP3"]=dict(n=2,base=v3,op=(16,10),ops=range(1024),f=dict(vdst=(0,8),src0=(32,9),src1=(41,9),src2=(50,9)),m=mods)
    F["VOP3SD"]=dict(n=2,base=v3,op=(16,10),ops=range(1024),f=dict(vdst=(0,8),sdst=(8,7),src0=(32,9),src1=(41,9),src2=(50,9)),m=dict(clamp=(15,1),omod=(59,2),neg0=(61,1),neg1=(62,1),neg2=(63,1)))
    pm=dict(nhi0=(8,1),nhi1=(9,1),nhi2=(10,1),opsel0=(11,1),opsel1=(12,1),opsel2=(13,1),opselhi0=(59,1),opselhi1=(60,1),opselhi2=(14,1),clamp=(15,1),neg0=(61,1),neg1=(62,1),neg2=(63,1))
    F["VOP3P"]=dict(n=2,base=0xd3800000 if g9 else 0xcc000000,op=(16,7),ops=range(128),f=dict(vdst=(0,8),src0=(32,9),src1=(41,9),src2=(50,9)),m=pm)
    if g9:
        F["MAI"]=dict(n=2,base=0xd3800000,op=(16,7),ops=range(128),f=dict(vdst=(0,8),src0=(32,9),src1=(41,9),src2=(50,9)),m=dict(cbsz=(8,3),abid=(11,4),acc_cd=(15,1),acca=(59,1),accb=(60,1),blgp=(61,3)))
        F["SMEM"]=dict(n=2,base=0xc0000000,op=(18,8),ops=range(256),f=dict(sdata=(6,7),sbase=(0,6),offset=(32,21),soffset=(57,7)),m=dict(glc=(16,1)))
        F["DS"]=dict(n=2,base=0xd8000000,op=(17,8),ops=range(256),f=dict(addr=(32,8),data0=(40,8),data1=(48,8),vdst=(56,8),offset0=(0,8),offset1=(8,8)),m=dict(gds=(16,1),acc=(25,1)))
        for s,seg in (("FLAT",0),("SCRATCH",1),("GLOBAL",2)):
            F[s]=dict(n=2,base=0xdc000000|seg<<14,op=(18,7),ops=range(128),f=dict(addr=(32,8),data=(40,8),saddr=(48,7),vdst=(56,8),offset=(0,12 if s=="FLAT" else 13)),m=dict(sc0=(16,1),nt=(17,1),sc1=(25,1),sve=(13,1),acc=(55,1)))
        F["MUBUF"]=dict(n=2,base=0xe0000000,op=(18,7),ops=range(128),f=dict(vaddr=(32,8),vdata=(40,8),srsrc=(48,5),soffset=(56,8),offset=(0,12)),m=dict(offen=(12,1),idxen=(13,1),sc0=(14,1),sc1=(15,1),lds=(16,1),nt=(17,1),acc=(55,1)))
    else:
        F["DS"]=dict(n=2,base=0xd8000000,op=(18,8),ops=range(256),f=dict(addr=(32,8),data0=(40,8),data1=(48,8),vdst=(56,8),offset0=(0,8),offset1=(8,8)),m=dict(gds=(17,1)))
    if chip=="gfx1100":
        F["SMEM"]=dict(n=2,base=0xf4000000,op=(18,8),ops=range(256),f=dict(sdata=(6,7),sbase=(0,6),offset=(32,21),soffset=(57,7)),m=dict(glc=(14,1),dlc=(13,1)))
        for s,seg in (("FLAT",0),("SCRATCH",1),("GLOBAL",2)):
            F[s]=dict(n=2,base=0xdc000000|seg<<16,op=(18,7),ops=range(128),f=dict(addr=(32,8),data=(40,8),saddr=(48,7),vdst=(56,8),offset=(0,13)),m=dict(glc=(14,1),dlc=(13,1),slc=(15,1),sve=(55,1)))
        F["MUBUF"]=dict(n=2,base=0xe0000000,op=(18,8),ops=range(256),f=dict(vaddr=(32,8),vdata=(40,8),srsrc=(48,5),soffset=(56,8),offset=(0,12)),m=dict(offen=(54,1),idxen=(55,1),glc=(14,1),dlc=(13,1),slc=(12,1),tfe=(53,1)))
    if g12:
        F["SMEM"]=dict(n=2,base=0xf4000000,op=(13,6),ops=range(64),f=dict(sdata=(6,7),sbase=(0,6),offset=(32,24),soffset=(57,7)),m=dict(scope=(21,2),th=(23,2)))
        for s,b in (("FLAT",0xec),("SCRATCH",0xed),("GLOBAL",0xee)):
            F[s]=dict(n=3,base=b<<24,op=(14,8),ops=range(256),f=dict(saddr=(0,7),vdst=(32,8),data=(55,8),addr=(64,8),offset=(72,24)),m=dict(sve=(49,1),scope=(50,2),th=(52,3),nv=(7,1)))
        F["MUBUF"]=dict(n=3,base=0xc4000000,op=(14,8),ops=range(256),f=dict(soffset=(0,7),vdata=(32,8),srsrc=(41,9),vaddr=(64,8),offset=(72,24)),m=dict(scope=(50,2),th=(52,3),offen=(62,1),idxen=(63,1),tfe=(22,1),fmt=(55,7)))
    return F
def word(f,op,vals):
    x=f["base"]|op<<f["op"][0]
    allf={**f["f"],**f.get("m",{})}
    for k,v in vals.items():
        if k in("lit","dpp"): continue
        lo,w=allf[k]; assert v<1<<w,(k,v)
        x=x&~(((1<<w)-1)<<lo)|v<<lo
    n=f["n"]; ws=[x>>32*i&0xffffffff for i in range(n)]
    for k in("lit","dpp"):
        if k in vals: ws.append(vals[k])
    return ws
def V(n): return 256+n
REG={}
class P:
    def __init__(s,chip): s.chip=chip; s.F=fmts(chip); s.none=0x7f if chip=="gfx942" else 0x7c
    def variants(s,fmt):
        """base field assignments to try: list of (vals, tokmap)"""
        o=[]
        S=lambda **k:o.append(k)
        if fmt=="SOP2": S(sdst=20,ssrc0=40,ssrc1=60); S(ssrc0=40,ssrc1=60)
        elif fmt=="SOPK": S(sdst=20,simm16=0x1234); S(simm16=0x1234);S(sdst=124 if s.chip!="gfx942" else 0,simm16=0x12)
        elif fmt=="SOP1":
            S(sdst=20,ssrc0=40); S(sdst=20); S(ssrc0=40);S(); S(ssrc0=0xc1); S(sdst=20,ssrc0=0x83)
        elif fmt=="SOPC": S(ssrc0=40,ssrc1=60);S(ssrc0=40,ssrc1=0)
        elif fmt=="SOPP": S(simm16=0x1234);S(simm16=1);S()
        elif fmt=="VOP2":
            S(vdst=10,src0=V(100),vsrc1=120); S(vdst=10,src0=V(100),vsrc1=120,lit=0x12345678); S(vdst=20,src0=V(100),vsrc1=120)
        elif fmt=="VOP1": S(vdst=10,src0=V(100)); S(vdst=20,src0=V(100)); S(); 
        elif fmt=="VOPC": S(src0=V(100),vsrc1=120)
        elif fmt in("VOP3","VOP3SD","VOP3P","MAI"):
            n=[]
            for d in (10,20,None):
              for s2 in (V(180),16,None):
                for s1 in (V(120),60,None):
                  for s0 in (V(100),40,None):
                    k={}
                    if d is not None:k["vdst"]=d
                    if s0 is not None:k["src0"]=s0
                    if s1 is not None:k["src1"]=s1
                    if s2 is not None:k["src2"]=s2
                    if fmt=="VOP3SD":
                        S(**{**k,"sdst":14}); S(**{**k,"sdst":106})
                    elif fmt=="VOP3P":
                        S(**{**k,"opselhi0":1,"opselhi1":1,"opselhi2":1}); S(**{**k,"opselhi0":1,"opselhi1":1}); S(**{**k,"opselhi2":1}); S(**k)
                    else: S(**k)
        elif fmt=="DS":
            for off in (dict(offset0=8,offset1=9),dict(offset0=8),{}):
              for r in range(4,-1,-1):
                for c in itertools.combinations([("vdst",10),("addr",60),("data0",70),("data1",80)],r):
                    S(**dict(c),**off)
        elif fmt in("FLAT","SCRATCH","GLOBAL"):
            ret=[{}]
            g=dict(gfx1100=dict(glc=1),gfx942=dict(sc0=1),gfx1201=dict(th=1))[s.chip]
            noneS=dict(saddr=s.none)
            if s.chip=="gfx942" and fmt=="FLAT": noneS={}
            for m in ({},g):
              for sa in (dict(saddr=44),noneS,dict(saddr=0)):
                for r in (3,2,1,0):
                  for c in itertools.combinations([("vdst",10),("addr",60),("data",70)],r):
                    S(**dict(c),**sa,**m,offset=16)
                    if fmt=="SCRATCH": S(**dict(c),**sa,**m,offset=16,sve=1)
              S(**noneS,**m);S(**m); S(addr=60,**noneS,**m);S(data=70,**noneS,**m); S(vdst=10,**noneS,**m);
        elif fmt=="SMEM":
            no=dict(gfx1100=dict(soffset=0x7c),gfx942={"offset":0},gfx1201=dict(soffset=0x7c))[s.chip]
            for sd in (dict(sdata=20),{},dict(sdata=5)):
              for sb in (dict(sbase=60//2),{}):
                for so in ((dict(soffset=s.none) if s.chip!="gfx942" else {}),{},dict(soffset=50)):
                  for of in (dict(offset=16),{}):
                    S(**sd,**sb,**so,**of)
        elif fmt=="MUBUF":
            for m in ({},):
              for so in (dict(soffset=40),{}):
                for rs in (dict(srsrc=64//4 if s.chip!="gfx1201" else 64),{}):
                  for d in (dict(vdata=10),{}):
                    for a in (dict(vaddr=60,offen=1),{}):
                      for of in (dict(offset=16),{}):
                        for gl in ({},dict(gfx1100=dict(glc=1),gfx942=dict(sc0=1),gfx1201=dict(th=1))[s.chip]):
                          for fm in (({},) if s.chip!="gfx1201" else (dict(fmt=1),{})):
                            S(**so,**rs,**d,**a,**of,**gl,**fm)
        return o
def toks(t):
    m=re.match(r"(\S+)\s*(.*)",t)
    return m[1],[x.strip() for x in re.split(r",\s*(?![^\[(]*[\])])",m[2])] if m[2] else []
if __name__=="__main__":
    chip=sys.argv[1]
    p=P(chip)
    out={}
    for fmt,f in p.F.items():
        vs=p.variants(fmt)
        cases=[];meta=[]
        for op in f["ops"]:
            for v in vs:
                if fmt=="SMEM" and chip=="gfx942":
                    ws=word(f,op,v)
                    so="soffset" in v
                    x=ws[0]|(1<<17 if "offset" in v else 0)|(1<<14 if so else 0)
                    cases.append([x,ws[1]])
                else: cases.append(word(f,op,v))
                meta.append((op,v))
        r=both(chip,cases)
        for (op,v),(ok,t) in zip(meta,r):
            if ok: out.setdefault(fmt,{}).setdefault(op,[]).append((v,ok))
        print(fmt,len(cases),len(out.get(fmt,{})),file=sys.stderr)
    json.dump(out,open(f"probe_{chip}.json","w"))
