"""What differs from sm_90 in the instructions of other chips: read by sass_rows.py.

Found by compiling for each chip with ptxas 13.5.37 and reading its words, and those of the sm_90 table, with nvdisasm -b SMxx.
"""

import re

CHIPS = ['80', '86', '89', '90', '120']
OLD = '80 86 89'

# Mnemonics, or mnemonic/form, that a chip has not.
OLD_ABSENT = """ LDGMC QSPC/U USETSHMSZ WARPSYNC/ALL WARPSYNC/CALL WARPSYNC/CR ACQBULK ATOM/FD ATOM/FR ATOM/FU ATOMG/FD ATOMG/FR ATOMG/FU BGMMA CGAERRBAR ELECT ENDCOLLECTIVE FENCE HGMMA IGMMA PREEXIT QGMMA
REDAS REDG/FD REDG/FR STAS STSM SYNCS UBLKCP UBLKPF UBLKRED UCGABAR_ARV UCGABAR_WAIT USETMAXREG UTMACCTL UTMACMDFLUSH UTMALDG UTMAPF UTMAREDG UTMASTG
VHMNMX VIADD VIADDMNMX VIMNMX VIMNMX3 WARPGROUP"""
NEW_ABSENT = """USETSHMSZ BGMMA BMMA BMSK/C BREV/C DADD/C3 DFMA/C DFMA/C3 DMUL/C DSETP/C F2F/C F2F/C_10 F2FP/MERGE_C_C F2FP/PACK_AB_C F2FP/PACK_AB_MERGE_C_C
F2FP/PACK_B_C F2FP/UNPACK_B_MERGE_C_C F2I/C F2I/C_11 FADD/C3 FADD/CX3 FFMA/C FFMA/C3 FFMA/CX FFMA/CX3 FLO/C FMNMX/C FMNMX/CX FMUL/C FMUL/CX FRND/C
FRND/C_13 FSEL/C FSEL/CX FSET/C FSET/CX FSETP/C FSETP/CX FCHK/C HADD2/C HFMA2/C HFMA2/C3 HFMA2/MMAC HFMA2/MMAC3 HFMA2/MMAI HFMA2/MMAI3 HFMA2/MMAR HFMA2/MMAU
HFMA2/MMAU3 HGMMA HMNMX2/C HMUL2/C HSET2/C HSETP2/C I2F/C I2F/C_12 I2FP/C I2I/C I2IP/C IABS/C IADD3/C IADD3/CX IDP/C IDP/C2A IGMMA IMAD/HIC IMAD/HIC3 IMAD/HICX
IMAD/HICX3 IMAD/LOC IMAD/LOC3 IMAD/LOCX IMAD/LOCX3 IMAD/WIDEC IMAD/WIDEC3 IMAD/WIDECX IMAD/WIDECX3 ISETP/C ISETP/CX LEA/C LOP3/C MOV/C MUFU/C PLOP3/C POPC/C
PRMT/C PRMT/C3 QGMMA SEL/C SGXT/C SHF/C SHF/C3 ULDC VABSDIFF VABSDIFF4 VHMNMX VIADD/C VIADDMNMX VIMNMX/C VIMNMX3 WARPGROUP"""
ABSENT = {'80': OLD_ABSENT + ' I2FP F2IP', '86': OLD_ABSENT, '89': OLD_ABSENT + ' F2FP/PACK_B_R F2FP/PACK_B_U', '120': NEW_ABSENT}


def absent(chip, mn, tag):
    names = ABSENT.get(chip, '').split()
    return mn in names or '%s/%s' % (mn, tag) in names


def widen(form):
    """Uniform registers have eight bits from sm_100 on."""
    for name, (enc, bits) in form['fields'].items():
        kind, _, value = enc.partition(';')[0].partition(':')
        six = len(bits) == 1 and bits[0] and bits[0][1] - bits[0][0] == 5
        if six and (kind in ('UR', 'ureg') or kind == 'reg' or kind == 'const' and value == '63' and name != 'pz'):
            enc = enc.replace('const:63', 'const:255')
            form['fields'][name] = (enc, [(bits[0][0], bits[0][0] + 7)])


def narrow(form):
    """Before sm_90 bit 101 says whether the descriptor of an address is written."""
    text = re.sub(r'desc\[<u>\]\[<(.)>\]', r'(ds:desc[<u>][)(!ds:[)<\1>]', form['asm'])
    if text == form['asm']: return
    form['asm'] = text
    form['fields']['ds'] = ('u', [(101, 101)])


# Forms that sm_90 has not: chips, rows as in the table's source.
MORE = [(OLD, """ATOMS	ARRIVE	0x1f8c	asm			.ARRIVE.64 <d>, [<m>]
ATOMS	ARRIVE	0x1f8c	d	16	23	R
ATOMS	ARRIVE	0x1f8c	m			addr:ru
ATOMS	ARRIVE	0x1f8c	m.r	24	31	reg
ATOMS	ARRIVE	0x1f8c	m.u	64	69	ureg
ATOMS	ARRIVE	0x1f8c	m.o	40	63	off
ATOMS	ARRIVE	0x1f8c	m.rs	78	79	enum:0=|1=.X4|2=.X8|3=.X16
ATOMS	ARRIVE	0x1f8c	sz	73	74	const:2
ATOMS	ARRIVE	0x1f8c	md	87	90	const:9
VABSDIFF	C3	0x614	asm			{sg} <d>, <pu?><a>, <b>, <c>
VABSDIFF	C3	0x614	d	16	23	R
VABSDIFF	C3	0x614	pu	81	83	P
VABSDIFF	C3	0x614	a	24	31	R
VABSDIFF	C3	0x614	a.reuse	122	122	enum:0=|1=.reuse
VABSDIFF	C3	0x614	b	64	71	R
VABSDIFF	C3	0x614	b.reuse	123	123	enum:0=|1=.reuse
VABSDIFF	C3	0x614	c			c:
VABSDIFF	C3	0x614	c.b	54	58	bank
VABSDIFF	C3	0x614	c.o	38	53	off
VABSDIFF	C3	0x614	sg	73	73	enum:0=.U32|1=
IMNMX	R	0x217	asm			{sg} <d>, <a>, <b>, <pp>
IMNMX	R	0x217	d	16	23	R
IMNMX	R	0x217	a	24	31	R
IMNMX	R	0x217	a.reuse	122	122	enum:0=|1=.reuse
IMNMX	R	0x217	b	32	39	R
IMNMX	R	0x217	b.reuse	123	123	enum:0=|1=.reuse
IMNMX	R	0x217	sg	73	73	enum:0=.U32|1=
IMNMX	R	0x217	pp	87	89	P
IMNMX	R	0x217	pp.not	90	90	not
IMNMX	I	0x817	asm			{sg} <d>, <a>, <b>, <pp>
IMNMX	I	0x817	d	16	23	R
IMNMX	I	0x817	a	24	31	R
IMNMX	I	0x817	a.reuse	122	122	enum:0=|1=.reuse
IMNMX	I	0x817	b	32	63	s
IMNMX	I	0x817	sg	73	73	enum:0=.U32|1=
IMNMX	I	0x817	pp	87	89	P
IMNMX	I	0x817	pp.not	90	90	not
IMNMX	C	0xa17	asm			{sg} <d>, <a>, <b>, <pp>
IMNMX	C	0xa17	d	16	23	R
IMNMX	C	0xa17	a	24	31	R
IMNMX	C	0xa17	a.reuse	122	122	enum:0=|1=.reuse
IMNMX	C	0xa17	b			c:
IMNMX	C	0xa17	b.b	54	58	bank
IMNMX	C	0xa17	b.o	38	53	off
IMNMX	C	0xa17	sg	73	73	enum:0=.U32|1=
IMNMX	C	0xa17	pp	87	89	P
IMNMX	C	0xa17	pp.not	90	90	not
IMNMX	U	0x1c17	asm			{sg} <d>, <a>, <b>, <pp>
IMNMX	U	0x1c17	d	16	23	R
IMNMX	U	0x1c17	a	24	31	R
IMNMX	U	0x1c17	a.reuse	122	122	enum:0=|1=.reuse
IMNMX	U	0x1c17	b	32	37	UR
IMNMX	U	0x1c17	sg	73	73	enum:0=.U32|1=
IMNMX	U	0x1c17	pp	87	89	P
IMNMX	U	0x1c17	pp.not	90	90	not
WARPSYNC	I	0x948	asm			{ex} <pp?><m>
WARPSYNC	I	0x948	pp	87	89	P
WARPSYNC	I	0x948	pp.not	90	90	not
WARPSYNC	I	0x948	m	32	63	u
WARPSYNC	I	0x948	ex	86	86	flag:.EXCLUSIVE
"""), ('89', """QMMA	D	0x27a	asm			{sh}{dt}{at}{bt} <d>, <a>, <b>, <c><?pp>
QMMA	D	0x27a	d	16	23	R
QMMA	D	0x27a	a	24	31	R
QMMA	D	0x27a	a.reuse	122	122	enum:0=|1=.reuse
QMMA	D	0x27a	a.sfx	73	73	enum:0=.ROW
QMMA	D	0x27a	b	32	39	R
QMMA	D	0x27a	b.reuse	123	123	enum:0=|1=.reuse
QMMA	D	0x27a	b.sfx	74	74	enum:1=.COL
QMMA	D	0x27a	c	64	71	R
QMMA	D	0x27a	c.reuse	124	124	enum:0=|1=.reuse
QMMA	D	0x27a	sh	75	75	enum:1=.16832
QMMA	D	0x27a	dt	77	77	enum:1=.F32
QMMA	D	0x27a	at	78	78	enum:0=.E4M3|1=.E5M2
QMMA	D	0x27a	bt	79	79	enum:0=.E4M3|1=.E5M2
QMMA	D	0x27a	pp	87	89	UPi
QMMA	D	0x27a	pp.not	90	90	not
"""), ('120', """QMMA	D	0x27a	asm			{sh}{dt}{at}{bt} <d>, <a>, <b>, <c><?pp>
QMMA	D	0x27a	d	16	23	R
QMMA	D	0x27a	a	24	31	R
QMMA	D	0x27a	a.reuse	122	122	enum:0=|1=.reuse
QMMA	D	0x27a	a.sfx	73	73	enum:0=
QMMA	D	0x27a	b	32	39	R
QMMA	D	0x27a	b.reuse	123	123	enum:0=|1=.reuse
QMMA	D	0x27a	b.sfx	74	74	enum:1=
QMMA	D	0x27a	c	64	71	R
QMMA	D	0x27a	c.reuse	124	124	enum:0=|1=.reuse
QMMA	D	0x27a	sh	75	75	enum:1=.16832
QMMA	D	0x27a	dt	77	77	enum:1=.F32
QMMA	D	0x27a	at	78	78	enum:0=.E4M3|1=.E5M2
QMMA	D	0x27a	bt	79	79	enum:0=.E4M3|1=.E5M2
QMMA	D	0x27a	pp	87	89	UPi
QMMA	D	0x27a	pp.not	90	90	not
IADD	R	0x235	asm			{w}{x} <d>, <pu?><a>, <b>(x:, <pp>)
IADD	R	0x235	d	16	23	R
IADD	R	0x235	pu	81	83	P
IADD	R	0x235	a	24	31	R
IADD	R	0x235	a.reuse	122	122	enum:0=|1=.reuse
IADD	R	0x235	a.neg	72	72	neg:x
IADD	R	0x235	b	32	39	R
IADD	R	0x235	b.reuse	123	123	enum:0=|1=.reuse
IADD	R	0x235	b.neg	63	63	neg:x
IADD	R	0x235	w	73	73	flag:.64
IADD	R	0x235	x	74	74	flag:.X
IADD	R	0x235	pp	87	89	P;def=7
IADD	R	0x235	pp.not	90	90	not;def=1
IADD	I	0x835	asm			{w}{x} <d>, <pu?><a>, <b>(x:, <pp>)
IADD	I	0x835	d	16	23	R
IADD	I	0x835	pu	81	83	P
IADD	I	0x835	a	24	31	R
IADD	I	0x835	a.reuse	122	122	enum:0=|1=.reuse
IADD	I	0x835	a.neg	72	72	neg:x
IADD	I	0x835	b	32	63	s
IADD	I	0x835	w	73	73	flag:.64
IADD	I	0x835	x	74	74	flag:.X
IADD	I	0x835	pp	87	89	P;def=7
IADD	I	0x835	pp.not	90	90	not;def=1
IADD	U	0x1c35	asm			{w}{x} <d>, <pu?><a>, <b>(x:, <pp>)
IADD	U	0x1c35	d	16	23	R
IADD	U	0x1c35	pu	81	83	P
IADD	U	0x1c35	a	24	31	R
IADD	U	0x1c35	a.reuse	122	122	enum:0=|1=.reuse
IADD	U	0x1c35	a.neg	72	72	neg:x
IADD	U	0x1c35	b	32	39	UR
IADD	U	0x1c35	b.neg	63	63	neg:x
IADD	U	0x1c35	w	73	73	flag:.64
IADD	U	0x1c35	x	74	74	flag:.X
IADD	U	0x1c35	pp	87	89	P;def=7
IADD	U	0x1c35	pp.not	90	90	not;def=1
LDCU	C	0x17ac	asm			{sz} <d>, <c>
LDCU	C	0x17ac	guard			UP
LDCU	C	0x17ac	d	16	23	UR
LDCU	C	0x17ac	c			c:ur
LDCU	C	0x17ac	c.b	54	58	bank
LDCU	C	0x17ac	c.o	37	53	off
LDCU	C	0x17ac	c.r	24	31	reg
LDCU	C	0x17ac	sz	73	75	enum:0=.U8|1=.S8|2=.U16|3=.S16|4=|5=.64|6=.128
UVIMNMX	R	0x124a	asm			{ty}{relu} <d>, <a>, <b>, <pp>
UVIMNMX	R	0x124a	guard			UP
UVIMNMX	R	0x124a	d	16	23	UR
UVIMNMX	R	0x124a	a	24	31	UR
UVIMNMX	R	0x124a	b	32	39	UR
UVIMNMX	R	0x124a	ty	72	74	enum:0=.U32|1=.S32|2=.U16x2|3=.S16x2|4=.U8x4|5=.S8x4
UVIMNMX	R	0x124a	relu	76	76	flag:.RELU
UVIMNMX	R	0x124a	pp	87	89	UP
UVIMNMX	R	0x124a	pp.not	90	90	not
UVIMNMX	R	0x124a	pz	81	86	const:63
UVIMNMX	I	0x184a	asm			{ty}{relu} <d>, <a>, <b>, <pp>
UVIMNMX	I	0x184a	guard			UP
UVIMNMX	I	0x184a	d	16	23	UR
UVIMNMX	I	0x184a	a	24	31	UR
UVIMNMX	I	0x184a	b	32	63	s
UVIMNMX	I	0x184a	ty	72	74	enum:0=.U32|1=.S32|2=.U16x2|3=.S16x2|4=.U8x4|5=.S8x4
UVIMNMX	I	0x184a	relu	76	76	flag:.RELU
UVIMNMX	I	0x184a	pp	87	89	UP
UVIMNMX	I	0x184a	pp.not	90	90	not
UVIMNMX	I	0x184a	pz	81	86	const:63
IMNMX	R64	0x217	asm			{ty} <pu>, <pv>, <d>, <a>, <b>, <pp>, <pq>
IMNMX	R64	0x217	d	16	23	R
IMNMX	R64	0x217	pu	81	83	P
IMNMX	R64	0x217	pv	84	86	P
IMNMX	R64	0x217	a	24	31	R
IMNMX	R64	0x217	a.reuse	122	122	enum:0=|1=.reuse
IMNMX	R64	0x217	b	32	39	R
IMNMX	R64	0x217	b.reuse	123	123	enum:0=|1=.reuse
IMNMX	R64	0x217	ty	73	74	enum:2=.U64|3=.S64
IMNMX	R64	0x217	pp	87	89	P
IMNMX	R64	0x217	pp.not	90	90	not
IMNMX	R64	0x217	pq	77	79	P
IMNMX	R64	0x217	pq.not	80	80	not
IMNMX	I64	0x817	asm			{ty} <pu>, <pv>, <d>, <a>, <b>, <pp>, <pq>
IMNMX	I64	0x817	d	16	23	R
IMNMX	I64	0x817	pu	81	83	P
IMNMX	I64	0x817	pv	84	86	P
IMNMX	I64	0x817	a	24	31	R
IMNMX	I64	0x817	a.reuse	122	122	enum:0=|1=.reuse
IMNMX	I64	0x817	b	32	63	s
IMNMX	I64	0x817	ty	73	74	enum:2=.U64|3=.S64
IMNMX	I64	0x817	pp	87	89	P
IMNMX	I64	0x817	pp.not	90	90	not
IMNMX	I64	0x817	pq	77	79	P
IMNMX	I64	0x817	pq.not	80	80	not
IMNMX	U64	0x1c17	asm			{ty} <pu>, <pv>, <d>, <a>, <b>, <pp>, <pq>
IMNMX	U64	0x1c17	d	16	23	R
IMNMX	U64	0x1c17	pu	81	83	P
IMNMX	U64	0x1c17	pv	84	86	P
IMNMX	U64	0x1c17	a	24	31	R
IMNMX	U64	0x1c17	a.reuse	122	122	enum:0=|1=.reuse
IMNMX	U64	0x1c17	b	32	39	UR
IMNMX	U64	0x1c17	ty	73	74	enum:2=.U64|3=.S64
IMNMX	U64	0x1c17	pp	87	89	P
IMNMX	U64	0x1c17	pp.not	90	90	not
IMNMX	U64	0x1c17	pq	77	79	P
IMNMX	U64	0x1c17	pq.not	80	80	not
UIMNMX	I64	0x1885	asm			{ty} <pu>, <pv>, <d>, <a>, <b>, <pp>, <pq>
UIMNMX	I64	0x1885	guard			UP
UIMNMX	I64	0x1885	d	16	23	UR
UIMNMX	I64	0x1885	pu	81	83	UP
UIMNMX	I64	0x1885	pv	84	86	UP
UIMNMX	I64	0x1885	a	24	31	UR
UIMNMX	I64	0x1885	b	32	63	s
UIMNMX	I64	0x1885	ty	73	74	enum:2=.U64|3=.S64
UIMNMX	I64	0x1885	pp	87	89	UP
UIMNMX	I64	0x1885	pp.not	90	90	not
UIMNMX	I64	0x1885	pq	77	79	UP
UIMNMX	I64	0x1885	pq.not	80	80	not
SEL	R64	0x607	asm			.64 <d>, <a>, <b>, <pp>
SEL	R64	0x607	d	16	23	R
SEL	R64	0x607	a	24	31	R
SEL	R64	0x607	a.reuse	122	122	enum:0=|1=.reuse
SEL	R64	0x607	b	32	39	R
SEL	R64	0x607	b.reuse	123	123	enum:0=|1=.reuse
SEL	R64	0x607	pp	87	89	P
SEL	R64	0x607	pp.not	90	90	not
SEL	U64	0x1e07	asm			.64 <d>, <a>, <b>, <pp>
SEL	U64	0x1e07	d	16	23	R
SEL	U64	0x1e07	a	24	31	R
SEL	U64	0x1e07	a.reuse	122	122	enum:0=|1=.reuse
SEL	U64	0x1e07	b	32	39	UR
SEL	U64	0x1e07	pp	87	89	P
SEL	U64	0x1e07	pp.not	90	90	not
SEL	I64	0x407	asm			.64 <d>, <a>, <b>, <pp>
SEL	I64	0x407	d	16	23	R
SEL	I64	0x407	a	24	31	R
SEL	I64	0x407	a.reuse	122	122	enum:0=|1=.reuse
SEL	I64	0x407	b	32	64	s
SEL	I64	0x407	pp	87	89	P
SEL	I64	0x407	pp.not	90	90	not
MOV	I64	0x402	asm			.64 <d>, <b>
MOV	I64	0x402	d	16	23	R
MOV	I64	0x402	b	24	87	u
UMOV	I64	0x1482	asm			.64 <d>, <b>
UMOV	I64	0x1482	guard			UP
UMOV	I64	0x1482	d	16	23	UR
UMOV	I64	0x1482	b	24	87	u
CS2UR	S	0x8cb	asm			{w} <d>, <s>
CS2UR	S	0x8cb	guard			UP
CS2UR	S	0x8cb	d	16	23	UR
CS2UR	S	0x8cb	s	72	79	SPECIAL
CS2UR	S	0x8cb	w	80	80	enum:0=.32|1=
UI2F	I	0x185a	asm			{dt}{st}{rnd} <d>, <b>
UI2F	I	0x185a	guard			UP
UI2F	I	0x185a	d	16	23	UR
UI2F	I	0x185a	b	32	63	u
UI2F	I	0x185a	dt	75	77	enum:1=.F16|2=|4=.BF16
UI2F	I	0x185a	st	74	74	enum:4=.U32|5=
UI2F	I	0x185a	st	84	85	enum:4=.U32|5=
UI2F	I	0x185a	rnd	78	79	enum:0=|1=.RM|2=.RP|3=.RZ
UF2FP	PACK_AB_MERGE_C_R	0x12ba	asm			{sat}{relu}{dt}.F32.PACK_AB_MERGE_C <d>, <a>, <b>, <c>
UF2FP	PACK_AB_MERGE_C_R	0x12ba	guard			UP
UF2FP	PACK_AB_MERGE_C_R	0x12ba	d	16	23	UR
UF2FP	PACK_AB_MERGE_C_R	0x12ba	a	24	31	UR
UF2FP	PACK_AB_MERGE_C_R	0x12ba	b	32	39	UR
UF2FP	PACK_AB_MERGE_C_R	0x12ba	c	64	71	UR
UF2FP	PACK_AB_MERGE_C_R	0x12ba	c.sfx	72	72	enum:0=|1=.H1
UF2FP	PACK_AB_MERGE_C_R	0x12ba	dt	75	77	enum:0=.BF16|1=.F16|3=.TF32|4=.E5M2|5=.E4M3
UF2FP	PACK_AB_MERGE_C_R	0x12ba	relu	74	74	flag:.RELU
UF2FP	PACK_AB_MERGE_C_R	0x12ba	sat	82	82	flag:.SATFINITE
UF2FP	PACK_AB_MERGE_C_R	0x12ba	st	84	86	const:2
UF2FP	PACK_AB_MERGE_C_R	0x12ba	sel	78	78	const:1
UF2FP	PACK_AB_MERGE_C_R	0x12ba	selm	89	90	const:2
UF2FP	PACK_AB_MERGE_C_I	0x18ba	asm			{sat}{relu}{dt}.F32.PACK_AB_MERGE_C <d>, <a>, <b>, <c>
UF2FP	PACK_AB_MERGE_C_I	0x18ba	guard			UP
UF2FP	PACK_AB_MERGE_C_I	0x18ba	d	16	23	UR
UF2FP	PACK_AB_MERGE_C_I	0x18ba	a	24	31	UR
UF2FP	PACK_AB_MERGE_C_I	0x18ba	b	32	63	f32
UF2FP	PACK_AB_MERGE_C_I	0x18ba	c	64	71	UR
UF2FP	PACK_AB_MERGE_C_I	0x18ba	c.sfx	72	72	enum:0=|1=.H1
UF2FP	PACK_AB_MERGE_C_I	0x18ba	dt	75	77	enum:0=.BF16|1=.F16|3=.TF32|4=.E5M2|5=.E4M3
UF2FP	PACK_AB_MERGE_C_I	0x18ba	relu	74	74	flag:.RELU
UF2FP	PACK_AB_MERGE_C_I	0x18ba	sat	82	82	flag:.SATFINITE
UF2FP	PACK_AB_MERGE_C_I	0x18ba	st	84	86	const:2
UF2FP	PACK_AB_MERGE_C_I	0x18ba	sel	78	78	const:1
UF2FP	PACK_AB_MERGE_C_I	0x18ba	selm	89	90	const:2
UF2FP	UNPACK_B_MERGE_C_R	0x12ba	asm			{sat}{relu}{dt}{st}.UNPACK_B_MERGE_C <d>, <b>, <c>
UF2FP	UNPACK_B_MERGE_C_R	0x12ba	guard			UP
UF2FP	UNPACK_B_MERGE_C_R	0x12ba	d	16	23	UR
UF2FP	UNPACK_B_MERGE_C_R	0x12ba	b	32	39	UR
UF2FP	UNPACK_B_MERGE_C_R	0x12ba	c	64	71	UR
UF2FP	UNPACK_B_MERGE_C_R	0x12ba	c.sfx	72	72	enum:0=|1=.H1
UF2FP	UNPACK_B_MERGE_C_R	0x12ba	dt	75	77	enum:0=.BF16|1=.F16|3=.TF32|4=.E5M2|5=.E4M3
UF2FP	UNPACK_B_MERGE_C_R	0x12ba	relu	74	74	flag:.RELU
UF2FP	UNPACK_B_MERGE_C_R	0x12ba	sat	82	82	flag:.SATFINITE
UF2FP	UNPACK_B_MERGE_C_R	0x12ba	st	84	86	enum:3=.F16
UF2FP	UNPACK_B_MERGE_C_R	0x12ba	sel	78	78	const:0
UF2FP	UNPACK_B_MERGE_C_R	0x12ba	selm	89	90	const:2
UF2FP	UNPACK_B_MERGE_C_R	0x12ba	hid24	24	31	const:255
UF2FP	PACK_B_R	0x12ba	asm			{relu}{dt}.F32.PACK_B{rnd} <d>, <b>
UF2FP	PACK_B_R	0x12ba	guard			UP
UF2FP	PACK_B_R	0x12ba	d	16	23	UR
UF2FP	PACK_B_R	0x12ba	b	32	39	UR
UF2FP	PACK_B_R	0x12ba	dt	75	77	enum:3=.TF32
UF2FP	PACK_B_R	0x12ba	relu	74	74	flag:.RELU
UF2FP	PACK_B_R	0x12ba	rnd	79	81	enum:0=|3=.RZ
UF2FP	PACK_B_R	0x12ba	st	84	86	const:2
UF2FP	PACK_B_R	0x12ba	sel	78	78	const:1
UF2FP	PACK_B_R	0x12ba	selm	89	90	const:1
UF2FP	PACK_B_R	0x12ba	c0	64	71	const:255
UF2FP	PACK_B_R	0x12ba	hid24	24	31	const:255
UF2F	R	0x125b	asm			{ftz}{dt}.F32{rnd} <d>, <b>
UF2F	R	0x125b	guard			UP
UF2F	R	0x125b	d	16	23	UR
UF2F	R	0x125b	b	32	39	UR
UF2F	R	0x125b	b.neg	63	63	neg:
UF2F	R	0x125b	b.abs	62	62	abs
UF2F	R	0x125b	ftz	80	80	flag:.FTZ
UF2F	R	0x125b	dt	75	77	enum:1=.F16|4=.BF16
UF2F	R	0x125b	st	84	86	const:2
UF2F	R	0x125b	rnd	78	79	enum:0=|1=.RM|2=.RP|3=.RZ
UF2F	I	0x185b	asm			{ftz}{dt}.F32{rnd} <d>, <b>
UF2F	I	0x185b	guard			UP
UF2F	I	0x185b	d	16	23	UR
UF2F	I	0x185b	b	32	63	f32
UF2F	I	0x185b	ftz	80	80	flag:.FTZ
UF2F	I	0x185b	dt	75	77	enum:1=.F16|4=.BF16
UF2F	I	0x185b	st	84	86	const:2
UF2F	I	0x185b	rnd	78	79	enum:0=|1=.RM|2=.RP|3=.RZ
UI2I	I	0x184e	asm			{dt}.S32.SAT <d>, <b>
UI2I	I	0x184e	guard			UP
UI2I	I	0x184e	d	16	23	UR
UI2I	I	0x184e	b	32	63	s
UI2I	I	0x184e	dt	76	77	enum:0=.U8|1=.S8|2=.U16|3=.S16
UI2FP	R	0x125e	asm			.F32{st}{rnd} <d>, <b>
UI2FP	R	0x125e	guard			UP
UI2FP	R	0x125e	d	16	23	UR
UI2FP	R	0x125e	b	32	39	UR
UI2FP	R	0x125e	dt	75	77	const:2
UI2FP	R	0x125e	st	74	74	enum:4=.U32|5=.S32
UI2FP	R	0x125e	st	84	85	enum:4=.U32|5=.S32
UI2FP	R	0x125e	rnd	78	79	enum:0=|3=.RZ
UF2I	R	0x125c	asm			{ftz}{dt}{st}{rnd}{ntz} <d>, <b>
UF2I	R	0x125c	guard			UP
UF2I	R	0x125c	d	16	23	UR
UF2I	R	0x125c	b	32	39	UR
UF2I	R	0x125c	b.neg	63	63	neg:
UF2I	R	0x125c	b.abs	62	62	abs
UF2I	R	0x125c	ftz	80	80	flag:.FTZ
UF2I	R	0x125c	dt	72	72	enum:0=.U8|1=.S8|2=.U16|3=.S16|4=.U32|5=
UF2I	R	0x125c	dt	75	76	enum:0=.U8|1=.S8|2=.U16|3=.S16|4=.U32|5=
UF2I	R	0x125c	st	84	86	enum:1=.F16|2=|4=.BF16
UF2I	R	0x125c	rnd	78	79	enum:0=|1=.FLOOR|2=.CEIL|3=.TRUNC
UF2I	R	0x125c	ntz	77	77	flag:.NTZ
UF2I	I	0x185c	asm			{ftz}{dt}{rnd}{ntz} <d>, <b>
UF2I	I	0x185c	guard			UP
UF2I	I	0x185c	d	16	23	UR
UF2I	I	0x185c	b	32	63	f32
UF2I	I	0x185c	ftz	80	80	flag:.FTZ
UF2I	I	0x185c	dt	72	72	enum:0=.U8|1=.S8|2=.U16|3=.S16|4=.U32|5=
UF2I	I	0x185c	dt	75	76	enum:0=.U8|1=.S8|2=.U16|3=.S16|4=.U32|5=
UF2I	I	0x185c	st	84	86	const:2
UF2I	I	0x185c	rnd	78	79	enum:0=|1=.FLOOR|2=.CEIL|3=.TRUNC
UF2I	I	0x185c	ntz	77	77	flag:.NTZ
UFADD	R	0x1254	asm			{ftz}{rnd}{sat} <d>, <a>, <c>
UFADD	R	0x1254	guard			UP
UFADD	R	0x1254	d	16	23	UR
UFADD	R	0x1254	a	24	31	UR
UFADD	R	0x1254	a.neg	72	72	neg:
UFADD	R	0x1254	a.abs	73	73	abs
UFADD	R	0x1254	c	64	71	UR
UFADD	R	0x1254	c.neg	75	75	neg:
UFADD	R	0x1254	c.abs	74	74	abs
UFADD	R	0x1254	ftz	80	80	flag:.FTZ
UFADD	R	0x1254	sat	77	77	flag:.SAT
UFADD	R	0x1254	rnd	78	79	enum:0=|1=.RM|2=.RP|3=.RZ
UFMUL	R	0x1256	asm			{fz}{scale}{rnd}{sat} <d>, <a>, <b>
UFMUL	R	0x1256	guard			UP
UFMUL	R	0x1256	d	16	23	UR
UFMUL	R	0x1256	a	24	31	UR
UFMUL	R	0x1256	a.neg	72	72	neg:
UFMUL	R	0x1256	a.abs	73	73	abs
UFMUL	R	0x1256	b	32	39	UR
UFMUL	R	0x1256	b.neg	63	63	neg:
UFMUL	R	0x1256	b.abs	62	62	abs
UFMUL	R	0x1256	fz	76	76	enum:0=|1=.FMZ|2=.FTZ
UFMUL	R	0x1256	fz	80	80	enum:0=|1=.FMZ|2=.FTZ
UFMUL	R	0x1256	sat	77	77	flag:.SAT
UFMUL	R	0x1256	rnd	78	79	enum:0=|1=.RM|2=.RP|3=.RZ
UFMUL	R	0x1256	scale	84	86	enum:1=.D8|2=.D4|3=.D2|4=|5=.M2|6=.M4|7=.M8;def=4
UFFMA	R	0x1255	asm			{fz}{rnd}{sat} <d>, <a>, <b>, <c>
UFFMA	R	0x1255	guard			UP
UFFMA	R	0x1255	d	16	23	UR
UFFMA	R	0x1255	a	24	31	UR
UFFMA	R	0x1255	a.neg	72	72	neg:
UFFMA	R	0x1255	a.abs	73	73	abs
UFFMA	R	0x1255	fz	76	76	enum:0=|1=.FMZ|2=.FTZ
UFFMA	R	0x1255	fz	80	80	enum:0=|1=.FMZ|2=.FTZ
UFFMA	R	0x1255	sat	77	77	flag:.SAT
UFFMA	R	0x1255	rnd	78	79	enum:0=|1=.RM|2=.RP|3=.RZ
UFFMA	R	0x1255	b	32	39	UR
UFFMA	R	0x1255	b.neg	63	63	neg:
UFFMA	R	0x1255	b.abs	62	62	abs
UFFMA	R	0x1255	c	64	71	UR
UFFMA	R	0x1255	c.neg	75	75	neg:
UFFMA	R	0x1255	c.abs	74	74	abs
UFFMA	I	0x1855	asm			{fz}{rnd}{sat} <d>, <a>, <b>, <c>
UFFMA	I	0x1855	guard			UP
UFFMA	I	0x1855	d	16	23	UR
UFFMA	I	0x1855	a	24	31	UR
UFFMA	I	0x1855	a.neg	72	72	neg:
UFFMA	I	0x1855	a.abs	73	73	abs
UFFMA	I	0x1855	fz	76	76	enum:0=|1=.FMZ|2=.FTZ
UFFMA	I	0x1855	fz	80	80	enum:0=|1=.FMZ|2=.FTZ
UFFMA	I	0x1855	sat	77	77	flag:.SAT
UFFMA	I	0x1855	rnd	78	79	enum:0=|1=.RM|2=.RP|3=.RZ
UFFMA	I	0x1855	b	32	63	f32
UFFMA	I	0x1855	c	64	71	UR
UFFMA	I	0x1855	c.neg	75	75	neg:
UFFMA	I	0x1855	c.abs	74	74	abs
UFFMA	I3	0x1455	asm			{fz}{rnd}{sat} <d>, <a>, <b>, <c>
UFFMA	I3	0x1455	guard			UP
UFFMA	I3	0x1455	d	16	23	UR
UFFMA	I3	0x1455	a	24	31	UR
UFFMA	I3	0x1455	a.neg	72	72	neg:
UFFMA	I3	0x1455	a.abs	73	73	abs
UFFMA	I3	0x1455	fz	76	76	enum:0=|1=.FMZ|2=.FTZ
UFFMA	I3	0x1455	fz	80	80	enum:0=|1=.FMZ|2=.FTZ
UFFMA	I3	0x1455	sat	77	77	flag:.SAT
UFFMA	I3	0x1455	rnd	78	79	enum:0=|1=.RM|2=.RP|3=.RZ
UFFMA	I3	0x1455	c	32	63	f32
UFFMA	I3	0x1455	b	64	71	UR
UFFMA	I3	0x1455	b.neg	75	75	neg:
UFFMA	I3	0x1455	b.abs	74	74	abs
UI2F	R	0x125a	asm			{dt}{st}{rnd} <d>, <b>
UI2F	R	0x125a	guard			UP
UI2F	R	0x125a	d	16	23	UR
UI2F	R	0x125a	b	32	39	UR
UI2F	R	0x125a	dt	75	77	enum:1=.F16|2=|4=.BF16
UI2F	R	0x125a	st	74	74	enum:0=.U8|1=.S8|2=.U16|3=.S16|4=.U32|5=
UI2F	R	0x125a	st	84	85	enum:0=.U8|1=.S8|2=.U16|3=.S16|4=.U32|5=
UI2F	R	0x125a	rnd	78	79	enum:0=|1=.RM|2=.RP|3=.RZ
UIMAD	HIR	0x12a6	asm			.HI{sg}{x} <d>, <pu?><a>, <b>, <c>(x:, <pp>)
UIMAD	HIR	0x12a6	guard			UP
UIMAD	HIR	0x12a6	d	16	23	UR
UIMAD	HIR	0x12a6	a	24	31	UR
UIMAD	HIR	0x12a6	b	32	39	UR
UIMAD	HIR	0x12a6	c	64	71	UR
UIMAD	HIR	0x12a6	c.neg	75	75	neg:x
UIMAD	HIR	0x12a6	sg	73	73	enum:0=.U32|1=
UIMAD	HIR	0x12a6	x	74	74	flag:.X
UIMAD	HIR	0x12a6	pp	87	89	UP;def=7
UIMAD	HIR	0x12a6	pp.not	90	90	not;def=1
UIMAD	HIR	0x12a6	pu	81	83	UP;def=7
UIMAD	HII	0x18a6	asm			.HI{sg}{x} <d>, <pu?><a>, <b>, <c>(x:, <pp>)
UIMAD	HII	0x18a6	guard			UP
UIMAD	HII	0x18a6	d	16	23	UR
UIMAD	HII	0x18a6	a	24	31	UR
UIMAD	HII	0x18a6	b	32	63	s
UIMAD	HII	0x18a6	c	64	71	UR
UIMAD	HII	0x18a6	c.neg	75	75	neg:x
UIMAD	HII	0x18a6	sg	73	73	enum:0=.U32|1=
UIMAD	HII	0x18a6	x	74	74	flag:.X
UIMAD	HII	0x18a6	pp	87	89	UP;def=7
UIMAD	HII	0x18a6	pp.not	90	90	not;def=1
UIMAD	HII	0x18a6	pu	81	83	UP;def=7
UIMAD	LOI3	0x14a4	asm			{sg}{x} <d>, <a>, <b>, <c>(x:, <pp>)
UIMAD	LOI3	0x14a4	guard			UP
UIMAD	LOI3	0x14a4	d	16	23	UR
UIMAD	LOI3	0x14a4	a	24	31	UR
UIMAD	LOI3	0x14a4	b	64	71	UR
UIMAD	LOI3	0x14a4	c	32	63	s
UIMAD	LOI3	0x14a4	sg	73	73	enum:0=.U32|1=
UIMAD	LOI3	0x14a4	x	74	74	flag:.X
UIMAD	LOI3	0x14a4	pp	87	89	UP;def=7
UIMAD	LOI3	0x14a4	pp.not	90	90	not;def=1
UIMAD	LOI3	0x14a4	hid81	81	83	const:7
ATOMS	U	0x198c	asm			{op}{sz} <d>, [<m>], <b>
ATOMS	U	0x198c	d	16	23	R
ATOMS	U	0x198c	m			addr:ru
ATOMS	U	0x198c	m.r	24	31	reg
ATOMS	U	0x198c	m.u	64	71	ureg
ATOMS	U	0x198c	m.rs	78	79	enum:0=|1=.X4|2=.X8|3=.X16
ATOMS	U	0x198c	m.o	40	63	off
ATOMS	U	0x198c	b	32	39	R
ATOMS	U	0x198c	op	87	90	enum:0=.ADD|1=.MIN|2=.MAX|3=.INC|4=.DEC|5=.AND|6=.OR|7=.XOR|8=.EXCH
ATOMS	U	0x198c	sz	73	75	enum:0=|1=.S32|2=.64|4=.128
ATOMS	CASP	0x58d	asm			{op}{sz} <pu>, [<m>], <b>, <c>
ATOMS	CASP	0x58d	pu	81	83	P
ATOMS	CASP	0x58d	m			addr:r
ATOMS	CASP	0x58d	m.r	24	31	reg
ATOMS	CASP	0x58d	m.rs	78	79	enum:0=|1=.X4|2=.X8|3=.X16
ATOMS	CASP	0x58d	m.o	40	63	off
ATOMS	CASP	0x58d	b	32	39	R
ATOMS	CASP	0x58d	c	64	71	R
ATOMS	CASP	0x58d	op	87	88	enum:1=.CAST|3=.CAST.SPIN
ATOMS	CASP	0x58d	sz	73	75	enum:0=|1=.S32|2=.64
MOV	SPILL	0x1c02	asm			.SPILL <d>, <b>
MOV	SPILL	0x1c02	d	16	23	R
MOV	SPILL	0x1c02	b	32	39	UR
MOV	SPILL	0x1c02	hid72	72	75	const:15
MOV	SPILL	0x1c02	sp	88	88	const:1
LDG	X2D	0x197e	asm			.E{ev}.ENL2{ltc}.256{sem} <d>, <d2>, desc[<u>][<m>]<?pp>
LDG	X2D	0x197e	d	64	71	R
LDG	X2D	0x197e	d2	16	23	R
LDG	X2D	0x197e	u	32	39	UR
LDG	X2D	0x197e	m			addr:d
LDG	X2D	0x197e	m.r	24	31	reg
LDG	X2D	0x197e	m.rs	91	91	enum:1=.64
LDG	X2D	0x197e	m.o	92	96	off
LDG	X2D	0x197e	m.o	40	56	off
LDG	X2D	0x197e	low	92	96	const:0
LDG	X2D	0x197e	e	75	75	const:1
LDG	X2D	0x197e	ev	84	86	enum:0=.EF|1=|2=.EL|3=.LU|4=.EU|5=.NA
LDG	X2D	0x197e	l2	81	83	const:1
LDG	X2D	0x197e	ltc	73	74	enum:0=|1=.LTC64B|2=.LTC128B|3=.LTC256B
LDG	X2D	0x197e	sem	77	80	enum:0=|1=.CONSTANT.PRIVATE|2=.CONSTANT.CTA|3=.CONSTANT.CTA.PRIVATE|4=.CONSTANT|5=.STRONG.SM|6=.STRONG.GPU.PRIVATE|7=.STRONG.GPU|8=.MMIO.GPU|9=.CONSTANT.SM|10=.STRONG.SYS|11=.CONSTANT.SM.PRIVATE|12=.MMIO.SYS|13=.CONSTANT.VC|14=.CONSTANT.VC.PRIVATE|15=.CONSTANT.GPU
LDG	X2D	0x197e	all	57	63	const:255
LDG	X2D	0x197e	all	72	72	const:255
LDG	X2D	0x197e	pp	87	89	Pi
LDG	X2D	0x197e	pp.not	90	90	not
LDG	X2D	0x197e	sel	76	76	const:1
STG	X2D	0x197f	asm			.E{ev}.ENL2.256{sem} desc[<u>][<m>], <b>, <b2>
STG	X2D	0x197f	u	64	71	UR
STG	X2D	0x197f	m			addr:d
STG	X2D	0x197f	m.r	24	31	reg
STG	X2D	0x197f	m.rs	91	91	enum:1=.64
STG	X2D	0x197f	m.o	92	96	off
STG	X2D	0x197f	m.o	40	58	off
STG	X2D	0x197f	low	92	96	const:0
STG	X2D	0x197f	b	32	39	R
STG	X2D	0x197f	b2	16	23	R
STG	X2D	0x197f	e	75	75	const:1
STG	X2D	0x197f	ev	84	86	enum:0=.EF|1=|2=.EL|3=.LU|4=.EU|5=.NA
STG	X2D	0x197f	l2	81	83	const:1
STG	X2D	0x197f	sem	77	80	enum:0=|1=.CONSTANT.PRIVATE|2=.CONSTANT.CTA|3=.CONSTANT.CTA.PRIVATE|4=.STRONG.SM.PRIVATE|5=.STRONG.SM|6=.STRONG.GPU.PRIVATE|7=.STRONG.GPU|8=.MMIO.GPU|9=.CONSTANT.SM|10=.STRONG.SYS|11=.CONSTANT.SM.PRIVATE|12=.MMIO.SYS|13=.CONSTANT.VC|14=.CONSTANT.VC.PRIVATE|15=.CONSTANT.GPU
STG	X2D	0x197f	all	59	63	const:255
STG	X2D	0x197f	all	88	90	const:255
STG	X2D	0x197f	sel	76	76	const:1
LDG	X2M	0x197e	asm			.E{ev}.ENL2{ltc}.256{sem} <d>, <d2>, desc[<u>][<m>], <mask><?pp>
LDG	X2M	0x197e	d	64	71	R
LDG	X2M	0x197e	d2	16	23	R
LDG	X2M	0x197e	u	32	39	UR
LDG	X2M	0x197e	m			addr:d
LDG	X2M	0x197e	m.r	24	31	reg
LDG	X2M	0x197e	m.rs	91	91	enum:1=.64
LDG	X2M	0x197e	m.o	92	96	off
LDG	X2M	0x197e	m.o	40	56	off
LDG	X2M	0x197e	low	92	96	const:0
LDG	X2M	0x197e	e	75	75	const:1
LDG	X2M	0x197e	ev	84	86	enum:0=.EF|1=|2=.EL|3=.LU|4=.EU|5=.NA
LDG	X2M	0x197e	l2	81	83	const:1
LDG	X2M	0x197e	ltc	73	74	enum:0=|1=.LTC64B|2=.LTC128B|3=.LTC256B
LDG	X2M	0x197e	sem	77	80	enum:0=|1=.CONSTANT.PRIVATE|2=.CONSTANT.CTA|3=.CONSTANT.CTA.PRIVATE|4=.CONSTANT|5=.STRONG.SM|6=.STRONG.GPU.PRIVATE|7=.STRONG.GPU|8=.MMIO.GPU|9=.CONSTANT.SM|10=.STRONG.SYS|11=.CONSTANT.SM.PRIVATE|12=.MMIO.SYS|13=.CONSTANT.VC|14=.CONSTANT.VC.PRIVATE|15=.CONSTANT.GPU
LDG	X2M	0x197e	mask	57	63	u
LDG	X2M	0x197e	mask	72	72	u
LDG	X2M	0x197e	pp	87	89	Pi
LDG	X2M	0x197e	pp.not	90	90	not
LDG	X2M	0x197e	sel	76	76	const:1
STG	X2M	0x197f	asm			.E{ev}.ENL2.256{sem} desc[<u>][<m>], <b>, <b2>, <mask>
STG	X2M	0x197f	u	64	71	UR
STG	X2M	0x197f	m			addr:d
STG	X2M	0x197f	m.r	24	31	reg
STG	X2M	0x197f	m.rs	91	91	enum:1=.64
STG	X2M	0x197f	m.o	92	96	off
STG	X2M	0x197f	m.o	40	58	off
STG	X2M	0x197f	low	92	96	const:0
STG	X2M	0x197f	b	32	39	R
STG	X2M	0x197f	b2	16	23	R
STG	X2M	0x197f	e	75	75	const:1
STG	X2M	0x197f	ev	84	86	enum:0=.EF|1=|2=.EL|3=.LU|4=.EU|5=.NA
STG	X2M	0x197f	l2	81	83	const:1
STG	X2M	0x197f	sem	77	80	enum:0=|1=.CONSTANT.PRIVATE|2=.CONSTANT.CTA|3=.CONSTANT.CTA.PRIVATE|4=.STRONG.SM.PRIVATE|5=.STRONG.SM|6=.STRONG.GPU.PRIVATE|7=.STRONG.GPU|8=.MMIO.GPU|9=.CONSTANT.SM|10=.STRONG.SYS|11=.CONSTANT.SM.PRIVATE|12=.MMIO.SYS|13=.CONSTANT.VC|14=.CONSTANT.VC.PRIVATE|15=.CONSTANT.GPU
STG	X2M	0x197f	mask	59	63	u
STG	X2M	0x197f	mask	88	90	u
STG	X2M	0x197f	sel	76	76	const:1
UGETNEXTWORKID	U	0x13ca	asm			{cast} [<a>], [<b>]
UGETNEXTWORKID	U	0x13ca	guard			UP
UGETNEXTWORKID	U	0x13ca	a	24	31	UR
UGETNEXTWORKID	U	0x13ca	b	24	31	URn
UGETNEXTWORKID	U	0x13ca	cast	72	72	enum:0=.SELFCAST|1=.BROADCAST
""")]

BRANCH = {'t': [(34, 81, 'rel')]}
ATOMIC = {'sz': [(73, 75, 'enum:0=|1=.S32|2=.64|3=.F32.FTZ.RN|4=.F16x2.RN|5=.S64|6=.F64.RN')]}
BRX = {'t': [(34, 81, 'brx')]}
HALF_B = {'b.sfx': [(60, 61, 'enum:0=|2=.H0_H0|3=.H1_H1')]}
HALF_C = {'c.sfx': [(60, 61, 'enum:0=|2=.H0_H0|3=.H1_H1')]}
F2FP = {'dt': [(76, 76, 'enum:0=|1=.BF16|3=.TF32'), (86, 86, ''), (87, 87, '')], 'st': [(73, 74, 'enum:0=')]}

NEW = '120'
WIDE = [(63, 63, 'enum:0=.U32|1=.64')]
OFFSET = [(40, 62, 'off')]
SIGN = {'sg': [(73, 73, 'enum:0=.U32|1=|2=.U64|3=.S64'), (80, 80, '')]}
SUM = {'a.neg': [(72, 72, 'neg:')], 'h': [(73, 75, 'enum:0=.32|1=.16x2|2=.S32|3=.S16x2|4=.U8x4|5=.S8x4')], 'is': [(80, 80, 'flag:.ISAT')], '=asm': '{h}{is} <d>, <a>, <b>'}
RECONVERGE = [(72, 73, 'enum:0=|1=.RELIABLE|2=.RECONVERGENT')]

# Forms on uniform registers that are otherwise those on general ones: mnemonic, form, opcode, model.
UNIFORM = [
    ('UFSEL', 'R', 0x1251, 'FSEL/R'), ('UFSEL', 'I', 0x1851, 'FSEL/I'), ('UFSETP', 'R', 0x1253, 'FSETP/R'), ('UFSETP', 'I', 0x1853, 'FSETP/I'),
    ('UFMNMX', 'R', 0x1250, 'FMNMX/R'), ('UFMNMX', 'I', 0x1850, 'FMNMX/I'), ('UFSET', 'R', 0x1252, 'FSET/R'), ('UFSET', 'I', 0x1852, 'FSET/I'),
    ('UFADD', 'I3', 0x1454, 'FADD/I3'), ('UFMUL', 'I', 0x1856, 'FMUL/I'), ('UFRND', 'R', 0x125d, 'FRND/R'), ('UFRND', 'I', 0x185d, 'FRND/I'),
    ('UVIADD', 'R', 0x1249, 'VIADD/R'), ('UVIADD', 'I', 0x1849, 'VIADD/I'), ('USEL', 'R64', 0x1c87, 'SEL/R64'), ('USEL', 'I64', 0x1487, 'SEL/I64'),
    ('UIMNMX', 'R64', 0x1285, 'IMNMX/R64'), ('UI2I', 'R', 0x124e, 'I2I/R'), ('UI2IP', 'R', 0x124f, 'I2IP/R'), ('UI2IP', 'I', 0x184f, 'I2IP/I'),
    ('UF2IP', 'R', 0x1259, 'F2IP/R'),
]


def uniform(model, opcode):
    """The form on uniform registers that is like one on general registers."""
    kinds = {'R': 'UR', 'P': 'UP'}
    fields = {name: (kinds.get(enc, enc), bits) for name, (enc, bits) in model['fields'].items() if not name.endswith('.reuse')}
    return {'op': opcode, 'guard': 'UP', 'asm': model['asm'], 'fields': fields}


# Chips, mnemonic, forms (None: all), what is otherwise: a field's places (None: gone), =asm, =op, =guard, =mnemonic.
EDITS = [
    (OLD, 'BRA', 'I U', BRANCH), (OLD, 'BRA', 'DIV', BRANCH), (OLD, 'CALL', 'RELI RELR', BRANCH), (OLD, 'RET', 'RELR', BRANCH), (OLD, 'RET', 'ABSR', BRX), (OLD, 'BRX', None, BRX), (OLD, 'BRXU', None, BRX),
    (OLD, 'WARPSYNC', 'R', {'a': [(32, 39, 'R')], 'sel': None, 'ex': [(86, 86, 'flag:.EXCLUSIVE')]}),
    (OLD, 'LEPC', 'I', {'=op': 0x34e, 't': None, '=asm': ' <d>'}),
    (OLD, 'R2UR', 'R', {'=op': 0x3c2, 'a.reuse': None}),
    ('90 120', 'R2UR', 'R', {'or': [(84, 84, 'flag:.OR')], '=asm': '{or} (or:<pu>, )(!or:<pu?>)<d>, <a>'}),
    (OLD, 'ATOMG', 'D U R', ATOMIC), (OLD, 'ATOM', 'D U R', ATOMIC), (OLD, 'REDG', 'D U R', ATOMIC),
    (OLD, 'REDG', None, {'=mnemonic': 'RED'}),
    (OLD, 'ATOMS', 'INC', {'md': [(87, 90, 'const:10')]}),
    (OLD, 'F2F', 'I_10', {'dt': [(75, 77, 'enum:1=.F16|2=.F32')]}),
    (OLD, 'MUFU', 'R16', {'fmt': [(72, 73, 'enum:2=.F16')]}), (OLD, 'MUFU', 'C U', {'fmt': [(72, 73, 'enum:0=|2=.F16')]}),
    (OLD, 'IMMA', 'D', {'sh': [(75, 75, 'enum:0=.8816|2=.8832|4=.16816|5=.16832|6=.16864'), (85, 86, '')]}),
    (OLD, 'I2IP', None, {'sat': [(74, 75, 'enum:0=.SAT')]}), (NEW, 'UI2IP', None, {'sat': [(74, 75, 'enum:0=|1=.SAT|2=.RELU')]}),
    (OLD, 'BMMA', 'D', {'op': [(77, 80, 'enum:8=.XOR.POPC|10=.AND.POPC')]}),
    (OLD, 'DMMA', 'D', {'sh': [(76, 77, 'enum:0=.884')]}),
    (OLD, 'HFMA2', 'C MMAC', HALF_B), (OLD, 'HFMA2', 'C3 MMAC3', HALF_C), (OLD, 'HMNMX2', 'C', HALF_B), (OLD, 'HADD2', 'C', HALF_C), (OLD, 'HMUL2', 'C', HALF_B),
    (OLD, 'HSETP2', 'C', HALF_B), (OLD, 'HSET2', 'C', HALF_B),
    (NEW, 'HFMA2', 'R', {'b.sfx': [(60, 61, 'enum:0=|2=.H0_H0|3=.H1_H1|4=.H0_NH1'), (86, 86, '')]}),
    ('86 89 90', 'HFMA2', 'R', {'b.sfx': [(60, 61, 'enum:0=|1=.F32|2=.H0_H0|3=.H1_H1|4=.H0_NH1'), (86, 86, '')]}),
    ('80 86', 'F2FP', None, F2FP),
    (NEW, 'VIMNMX', None, {'ty': [(72, 74, 'enum:0=.U32|1=.S32|2=.U16x2|3=.S16x2|4=.U8x4|5=.S8x4')]}),
    (NEW, 'ATOMG', 'D', {'sel': [(76, 76, 'const:1')], 'm.rs': WIDE, 'm.o': OFFSET}), (NEW, 'ATOMG', 'U', {'sel': [(76, 76, 'const:0')], 'm.rs': WIDE, 'm.o': OFFSET}),
    (NEW, 'ATOM', 'D', {'sel': [(76, 76, 'const:1')], 'm.rs': WIDE, 'm.o': OFFSET}), (NEW, 'ATOM', 'U', {'sel': [(76, 76, 'const:0')], 'm.rs': WIDE, 'm.o': OFFSET}),
    (NEW, 'ATOMG', 'FD', {'sel': [(90, 90, 'const:1')], 'm.rs': WIDE, 'm.o': OFFSET}), (NEW, 'ATOMG', 'FU', {'sel': [(90, 90, 'const:0')], 'm.rs': WIDE, 'm.o': OFFSET}),
    (NEW, 'ATOM', 'FD', {'sel': [(90, 90, 'const:1')], 'm.rs': WIDE, 'm.o': OFFSET}), (NEW, 'ATOM', 'FU', {'sel': [(90, 90, 'const:0')], 'm.rs': WIDE, 'm.o': OFFSET}),
    (NEW, 'REDG', 'D FD', {'sel': [(81, 81, 'const:1')]}), (NEW, 'REDG', 'U', {'sel': [(81, 81, 'const:0')]}),
    (NEW, 'LDGMC', 'D FD', {'sel': [(82, 82, 'const:1')], 'm.rs': [(81, 81, 'enum:1=.64')]}),
    (NEW, 'LDGMC', 'U FU', {'sel': [(82, 82, 'const:0')], 'm.rs': [(81, 81, 'enum:0=.U32|1=.64')]}),
    (NEW, 'LDGMC', 'FD FU', {'op': [(88, 89, 'enum:0=.ADD|1=.MIN|2=.MAX|3=.HPADD')],
                             'sz': [(73, 76, 'enum:0=.F16x2.RN|1=.F16x4.RN|2=.F16x8.RN|3=.BF16x2.RN|4=.BF16x4.RN|5=.BF16x8.RN|12=.F32.RN|13=.F32x2.RN|14=.F32x4.RN|15=.F64.RN|17=.E5M2x4.RN|18=.E5M2x8.RN|19=.E5M2x16.RN|20=.E4M3x4.RN|21=.E4M3x8.RN|22=.E4M3x16.RN'), (87, 87, '')]}),
    (NEW, 'LDGSTS', 'D', {'hid70': None, 'ltc': [(73, 73, 'flag:.LTC128B')], 'sz': [(74, 76, 'enum:4=|5=.64|6=.128')], 'sel': [(83, 83, 'const:1')]}),
    (NEW, 'LDGSTS', 'U UD UU', {'hid70': None, 'ltc': [(73, 73, 'flag:.LTC128B')], 'sz': [(74, 76, 'enum:0=|1=.64|2=.128')], 'sel': [(83, 83, 'const:1')]}),
    (NEW, 'R2UR', 'R', {'md': [(86, 87, 'enum:0=|1=.FILL|2=.BROADCAST')], '=asm': '{or}{md} (or:<pu>, )(!or:<pu?>)<d>, <a>'}),
    (NEW, 'MOVM', 'R', {'u4': [(75, 77, 'enum:0=.16|1=.U4TO8')], '=asm': '{u4}{md} <d>, <a>'}),
    (NEW, 'BSSY', None, {'t': [(34, 71, 'rel')], 'rc': RECONVERGE, '=asm': '{rc} <pp?><b>, <t>'}),
    (NEW, 'BSYNC', None, {'rc': RECONVERGE, '=asm': '{rc} <pp?><b>'}), (NEW, 'BREAK', None, {'rc': RECONVERGE, '=asm': '{rc} <pp?><b>'}),
    (NEW, 'ISETP', None, SIGN), (NEW, 'UISETP', None, SIGN),
    (NEW, 'SYNCS', 'PHASECHK', {'md': [(76, 77, 'const:1')]}), (NEW, 'SYNCS', 'ARRIVE', {'md': [(76, 77, 'const:0')]}),
    (NEW, 'ARRIVES', None, {'c': [(76, 77, 'enum:0=|1=.ARVCNT|2=.TRANSCNT')]}),
    (NEW, 'VIADD', None, SUM), (NEW, 'UVIADD', None, SUM),
    (NEW, 'MOV', 'R U', {'w': [(80, 80, 'flag:.64')]}), (NEW, 'UMOV', 'R', {'w': [(80, 80, 'flag:.64')]}),
]

# Outputs that are written although they are none; modifiers written before the operands.
PREFIX = {('120', 'MOV/R'): '{w}', ('120', 'MOV/U'): '{w}', ('120', 'UMOV/R'): '{w}'}


def retext(chip, mn, tag, form):
    """What a chip writes otherwise in all forms of a mnemonic."""
    if chip == '120' and mn in ('IADD3', 'UIADD3'): form['asm'] = form['asm'].replace('<pu?>', '<pu>, ').replace('<pv?>', '<pv>, ')
    if chip in OLD.split() and mn in ('HSET2', 'HSETP2'):  # they compare f16 whatever the bit of bf16 is
        form['asm'] = form['asm'].replace('{bf}', '')
        form['fields'].pop('bf', None)
    form['asm'] = PREFIX.get((chip, mn), PREFIX.get((chip, mn + '/' + tag), '')) + form['asm']
