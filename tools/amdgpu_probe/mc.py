import subprocess,re
MC="/usr/lib/llvm-19/bin/llvm-mc"
SENT=0xbf800000
def disasm(chip, cases, extra=()):
    """list of word lists -> list of (text or None)"""
    out=[]
    for base in range(0,len(cases),60000):
        part=cases[base:base+60000]
        lines=[]
        for i,ws in enumerate(part):
            lines.append(" ".join("0x%02x"%b for w in ws for b in w.to_bytes(4,"little")))
            lines.append("0xff 0xff 0x80 0xbf")
            lines.append(" ".join("0x%02x"%b for b in (SENT|i).to_bytes(4,"little")))
        p=subprocess.run([MC,"-triple=amdgcn","-mcpu="+chip,"--disassemble","--show-encoding",*extra],input="\n".join(lines)+"\n",capture_output=True,text=True)
        cur=[];k=0
        res=[None]*len(part)
        for l in p.stdout.splitlines():
            m=re.match(r"\t(.*?)\s*; encoding: \[(.*)\]",l)
            if not m: continue
            enc=bytes(int(x,16) for x in m[2].split(","))
            if enc==b"\xff\xff\x80\xbf": continue
            if len(enc)==4 and m[1].startswith("s_nop") and int.from_bytes(enc,"little")!=(SENT|k) and k<(int.from_bytes(enc,"little")&0xffff)<len(part):
                k=int.from_bytes(enc,"little")&0xffff; cur=[];k+=1; continue
            if len(enc)==4 and int.from_bytes(enc,"little")==(SENT|k) and m[1].startswith("s_nop"):
                if len(cur)==1 and len(cur[0][1])==4*len(part[k]): res[k]=re.sub(r"\s*/\*.*?\*/","/**/",cur[0][0]) if "/*" in cur[0][0] else cur[0][0]
                cur=[];k+=1
            else: cur.append((m[1],enc))
        if "libc_start" in p.stderr:
            if len(part)==1: out.append(None); continue
            n=max(1,len(part)//8)
            for i in range(0,len(part),n): out+=disasm(chip,part[i:i+n],extra)
            continue
        if k!=len(part): print("LOST",k,len(part),[hex(x) for x in part[k]],cur[:4],p.stderr[-300:])
        assert k==len(part),(k,len(part))
        out+=res
    return out
def asm(chip, texts, extra=()):
    """texts (None allowed) -> list of words or None"""
    res=[None]*len(texts)
    for base in range(0,len(texts),60000):
        part=texts[base:base+60000]
        lines=[]
        for i,t in enumerate(part):
            lines.append(t if t and "/*" not in t else "bad_line")
            lines.append("s_nop %d"%i)
        p=subprocess.run([MC,"-triple=amdgcn","-mcpu="+chip,"--show-encoding",*extra],input="\n".join(lines)+"\n",capture_output=True,text=True)
        cur=[];k=0
        for l in p.stdout.splitlines():
            m=re.match(r"\t(.*?)\s*; encoding: \[(.*)\]",l)
            if not m: continue
            if not re.fullmatch(r"(0x[0-9a-f]{2},?)+",m[2]): cur.append(None); continue
            enc=bytes(int(x,16) for x in m[2].split(","))
            if len(enc)==4 and int.from_bytes(enc,"little")==(SENT|k) and m[1].startswith("s_nop"):
                if len(cur)==1 and cur[0] is not None: res[base+k]=[int.from_bytes(cur[0][i:i+4],"little") for i in range(0,len(cur[0]),4)]
                cur=[];k+=1
            else: cur.append(enc)
        assert k==len(part),(k,len(part),p.stderr[:500])
    return res
def both(chip,cases,extra=()):
    t=disasm(chip,cases,extra); a=asm(chip,t,extra)
    return [(x if y==list(c) else None, x) for x,y,c in zip(t,a,cases)]
