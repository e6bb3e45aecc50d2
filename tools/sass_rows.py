#!/usr/bin/env python3
"""Rows of the SASS instruction table from a table of probed encodings (one field of one form a line).

usage: sass_rows.py SASS_SM90.TSV OUT_FOLDER [ILLEGAL_80.TSV ...]

The input is of sm_90; sass_chips.py beside this tool tells what differs on other chips. Without lists of values that do not go together, those of the
table in OUT_FOLDER are kept.

Writes fields.rs, lists.rs, mods.rs, rows.rs, legal.rs and op.rs. The input's lines are: mnemonic, form, 13-bit opcode, field, low bit,
high bit, encoding; its head explains the encodings. A field that many forms have is one constant.
"""
import collections, copy, re, sys
import sass_chips

ALU = set('IADD3 LOP3 SHF LEA ISETP FSETP SEL FSEL FMNMX PRMT VIMNMX VIMNMX3 VIADDMNMX MOV I2FP F2FP IABS SGXT BMSK PLOP3 VOTE FSET I2I I2IP F2IP P2R R2P CS2R VABSDIFF VABSDIFF4 IMNMX IADD'.split())
FMA = set('FFMA FMUL FADD VIADD IDP'.split())
HALF = set('HADD2 HFMA2 HMUL2 HMNMX2 HSET2 HSETP2 VHMNMX'.split())
DOUBLE = set('DADD DMUL DFMA DSETP'.split())
BRANCH = set('BRA EXIT KILL BSSY BSYNC CALL RET BRX BRXU WARPSYNC YIELD NANOSLEEP BREAK BMOV BPT PREEXIT ACQBULK ENDCOLLECTIVE RPCMOV'.split())
XU = set('MUFU F2F I2F F2I FRND POPC BREV FLO FCHK'.split())
SHARED = set('LDS LDSM MOVM STS STSM ATOMS STAS'.split())
GLOBAL = set('LDG STG LD ST LDL STL ATOM ATOMG RED REDG LDGSTS LDGMC LDGDEPBAR CCTL CCTLL CCTLT ARRIVES QSPC'.split())
MMA = set('HMMA IMMA BMMA QMMA'.split())
GMMA = set('HGMMA IGMMA QGMMA BGMMA WARPGROUP'.split())


def pipe(mn, tag):
    if mn == 'HFMA2' and tag.startswith('MMA'): return 'HalfMma'
    if mn in ('HADD2', 'HMUL2') and tag.startswith('MMA'): return 'HalfMma'
    if mn == 'IMAD': return 'ImadWide' if tag.startswith('WIDE') else 'Imad'
    for names, name in ((ALU, 'Alu'), (FMA, 'Fma'), (HALF, 'Half'), (DOUBLE, 'Double'), (BRANCH, 'Branch'), (XU, 'Xu'),
                        (SHARED, 'Shared'), (GLOBAL, 'Global'), (MMA, 'Mma'), (GMMA, 'Gmma')):
        if mn in names: return name
    if mn in ('UMOV', 'ULDC', 'VOTEU'): return 'UniformMove'
    if mn == 'R2UR': return 'RegToUniform'
    if mn.startswith(('UTMA', 'UBLK')): return 'Bulk'
    if mn in ('LDC', 'LDCU'): return 'Constant'
    if mn == 'DMMA': return 'DoubleMma'
    if mn == 'ELECT': return 'Elect'
    if mn == 'NOP': return 'Nop'
    if mn.startswith('U') and not mn.startswith(('USETMAXREG', 'USETSHMSZ', 'UCGABAR', 'UGETNEXTWORKID')): return 'Uniform'
    return 'Misc'


KEYWORDS = {'fn', 'in', 'as', 'if', 'dyn'}


def constant(text):
    """The name of a constant for a modifier's text."""
    name = re.sub(r'\W+', '_', text).strip('_').upper() or ('DOT' if text else 'NONE')
    return '_' + name if name[0].isdigit() else name


def rust(s): return '"' + s.replace('\\', '\\\\').replace('"', '\\"') + '"'


ROLE = {'neg': 'Neg', 'abs': 'Abs', 'not': 'Not', 'inv': 'Inv', 'reuse': 'Reuse', 'sfx': 'Suffix', 'in': 'Inner', 'r': 'Register',
        'rs': 'RegisterSuffix', 'u': 'Uniform', 'o': 'Offset', 'b': 'Bank'}
SIMPLE = {'R': 'R', 'UR': 'UR', 'URn': 'URNext', 'P': 'P', 'UP': 'UP', 'Pi': 'PInverted', 'UPi': 'UPInverted', 'PU': 'EitherP', 's': 'Signed', 'u': 'Unsigned', 'dec': 'Decimal',
          'f32': 'F32', 'f64h': 'F64High', 'h2': 'Half', 'rel': 'Relative', 'brx': 'RegisterRelative', 'B': 'Barrier', 'SB': 'Scoreboard', 'bits': 'Set', 'cx': 'Bindless',
          'neg': 'Bits', 'abs': 'Bits', 'not': 'Bits', 'inv': 'Bits', 'off': 'Bits', 'bank': 'Bits', 'reg': 'Bits', 'ureg': 'Bits'}
CONST = {'': 'Constant(Index::None)', 'sp': 'Constant(Index::Spaced)', 'r': 'Constant(Index::Register)', 'ur': 'Constant(Index::Uniform)'}
STYLE = {'r': 'Base', 'rn': 'SignedBase', 'ru': 'BaseAndUniform', 'd': 'Described', 'u': 'UniformBase'}


# Forms that the probed table lacks, found later in compiled kernels.
EXTRA = """BRA	DIV	0x1947	asm			{bd}{dv} <pp?><u>, <t>
BRA	DIV	0x1947	pp	87	89	P
BRA	DIV	0x1947	pp.not	90	90	not
BRA	DIV	0x1947	dv	32	33	enum:2=.DIV|3=.CONV
BRA	DIV	0x1947	bd	85	86	enum:0=|1=.INC|2=.DEC
BRA	DIV	0x1947	u	24	29	UR
BRA	DIV	0x1947	t	16	23	rel
BRA	DIV	0x1947	t	34	81	rel
VABSDIFF4	R	0x215	asm			{sg}{acc} <d>, <pu?><a>, <b>, <c>
VABSDIFF4	R	0x215	d	16	23	R
VABSDIFF4	R	0x215	pu	81	83	P
VABSDIFF4	R	0x215	a	24	31	R
VABSDIFF4	R	0x215	a.reuse	122	122	enum:0=|1=.reuse
VABSDIFF4	R	0x215	b	32	39	R
VABSDIFF4	R	0x215	b.reuse	123	123	enum:0=|1=.reuse
VABSDIFF4	R	0x215	c	64	71	R
VABSDIFF4	R	0x215	c.reuse	124	124	enum:0=|1=.reuse
VABSDIFF4	R	0x215	sg	73	73	enum:0=.U8|1=
VABSDIFF4	R	0x215	acc	75	75	enum:0=|1=.ACC
VABSDIFF	I3	0x414	asm			{sg} <d>, <pu?><a>, <b>, <c>
VABSDIFF	I3	0x414	d	16	23	R
VABSDIFF	I3	0x414	pu	81	83	P
VABSDIFF	I3	0x414	a	24	31	R
VABSDIFF	I3	0x414	a.reuse	122	122	enum:0=|1=.reuse
VABSDIFF	I3	0x414	b	64	71	R
VABSDIFF	I3	0x414	b.reuse	123	123	enum:0=|1=.reuse
VABSDIFF	I3	0x414	c	32	63	s
VABSDIFF	I3	0x414	sg	73	73	enum:0=.U32|1=
QSPC	R	0x3aa	asm			{e}{sp} <pu>, <d>, [<m>]
QSPC	R	0x3aa	d	16	23	R
QSPC	R	0x3aa	m			addr:r
QSPC	R	0x3aa	m.r	24	31	reg
QSPC	R	0x3aa	m.o	40	63	off
QSPC	R	0x3aa	e	72	72	enum:0=|1=.E
QSPC	R	0x3aa	sp	73	74	enum:0=.G|1=.L|2=.S|3=.D
QSPC	R	0x3aa	pu	81	83	P
I2F	RH	0x306	asm			{dt}{st}{rnd} <d>, <b>
I2F	RH	0x306	d	16	23	R
I2F	RH	0x306	b	32	39	R
I2F	RH	0x306	dt	75	77	enum:1=.F16|2=|4=.BF16
I2F	RH	0x306	rnd	78	79	enum:0=|1=.RM|2=.RP|3=.RZ
I2F	RH	0x306	st	74	74	enum:2=.U16|3=.S16
I2F	RH	0x306	st	84	85	enum:2=.U16|3=.S16
I2F	RH	0x306	b.in	60	61	enum:1=.H1
I2F	RQ	0x306	asm			{dt}{st}{rnd} <d>, <b>
I2F	RQ	0x306	d	16	23	R
I2F	RQ	0x306	b	32	39	R
I2F	RQ	0x306	dt	75	77	enum:1=.F16|2=|4=.BF16
I2F	RQ	0x306	rnd	78	79	enum:0=|1=.RM|2=.RP|3=.RZ
I2F	RQ	0x306	st	74	74	enum:0=.U8|1=.S8
I2F	RQ	0x306	st	84	85	enum:0=.U8|1=.S8
I2F	RQ	0x306	b.in	60	61	enum:1=.B1|2=.B2|3=.B3
I2F	RH_12	0x312	asm			{dt}{st}{rnd} <d>, <b>
I2F	RH_12	0x312	d	16	23	R
I2F	RH_12	0x312	b	32	39	R
I2F	RH_12	0x312	dt	75	77	enum:1=.F16|2=|3=.F64|4=.BF16
I2F	RH_12	0x312	rnd	78	79	enum:0=|1=.RM|2=.RP|3=.RZ
I2F	RH_12	0x312	st	74	74	enum:2=.U16|3=.S16
I2F	RH_12	0x312	st	84	85	enum:2=.U16|3=.S16
I2F	RH_12	0x312	b.in	60	61	enum:1=.H1
I2F	RB_12	0x312	asm			{dt}{st}{rnd} <d>, <b>
I2F	RB_12	0x312	d	16	23	R
I2F	RB_12	0x312	b	32	39	R
I2F	RB_12	0x312	dt	75	77	enum:1=.F16|2=|3=.F64|4=.BF16
I2F	RB_12	0x312	rnd	78	79	enum:0=|1=.RM|2=.RP|3=.RZ
I2F	RB_12	0x312	st	74	74	enum:0=.U8|1=.S8
I2F	RB_12	0x312	st	84	85	enum:0=.U8|1=.S8
I2F	RB_12	0x312	b.in	60	61	enum:1=.B1|2=.B2|3=.B3
F2F	RH_10	0x310	asm			{ftz}{dt}{st}{rnd} <d>, <b>
F2F	RH_10	0x310	d	16	23	R
F2F	RH_10	0x310	b	32	39	R
F2F	RH_10	0x310	b.neg	63	63	neg:
F2F	RH_10	0x310	b.abs	62	62	abs
F2F	RH_10	0x310	ftz	80	80	flag:.FTZ
F2F	RH_10	0x310	dt	75	77	enum:1=.F16|2=.F32|3=.F64|4=.BF16
F2F	RH_10	0x310	rnd	78	79	enum:0=|1=.RM|2=.RP|3=.RZ
F2F	RH_10	0x310	st	84	86	enum:1=.F16|4=.BF16
F2F	RH_10	0x310	b.in	60	61	enum:1=.H1
F2I	RH_11	0x311	asm			{ftz}{dt}{st}{rnd}{ntz} <d>, <b>
F2I	RH_11	0x311	d	16	23	R
F2I	RH_11	0x311	b	32	39	R
F2I	RH_11	0x311	b.neg	63	63	neg:
F2I	RH_11	0x311	b.abs	62	62	abs
F2I	RH_11	0x311	ftz	80	80	flag:.FTZ
F2I	RH_11	0x311	dt	72	72	enum:0=.U8|1=.S8|2=.U16|3=.S16|4=.U32|5=|6=.U64|7=.S64
F2I	RH_11	0x311	dt	75	76	enum:0=.U8|1=.S8|2=.U16|3=.S16|4=.U32|5=|6=.U64|7=.S64
F2I	RH_11	0x311	rnd	78	79	enum:0=|1=.FLOOR|2=.CEIL|3=.TRUNC
F2I	RH_11	0x311	ntz	77	77	flag:.NTZ
F2I	RH_11	0x311	st	84	86	enum:1=.F16|4=.BF16
F2I	RH_11	0x311	b.in	60	61	enum:1=.H1
FRND	RH	0x307	asm			{ftz}{st}{rnd} <d>, <b>
FRND	RH	0x307	d	16	23	R
FRND	RH	0x307	b	32	39	R
FRND	RH	0x307	b.neg	63	63	neg:
FRND	RH	0x307	b.abs	62	62	abs
FRND	RH	0x307	ftz	80	80	flag:.FTZ
FRND	RH	0x307	rnd	78	79	enum:0=|1=.FLOOR|2=.CEIL|3=.TRUNC
FRND	RH	0x307	st	75	77	enum:9=.F16|36=.BF16
FRND	RH	0x307	st	84	86	enum:9=.F16|36=.BF16
FRND	RH	0x307	b.in	60	61	enum:1=.H1
F2I	I_11	0x911	asm			{ftz}{dt}{st}{rnd}{ntz} <d>, <b>
F2I	I_11	0x911	d	16	23	R
F2I	I_11	0x911	ftz	80	80	flag:.FTZ
F2I	I_11	0x911	dt	72	72	enum:0=.U8|1=.S8|2=.U16|3=.S16|4=.U32|5=|6=.U64|7=.S64
F2I	I_11	0x911	dt	75	76	enum:0=.U8|1=.S8|2=.U16|3=.S16|4=.U32|5=|6=.U64|7=.S64
F2I	I_11	0x911	rnd	78	79	enum:0=|1=.FLOOR|2=.CEIL|3=.TRUNC
F2I	I_11	0x911	ntz	77	77	flag:.NTZ
F2I	I_11	0x911	b	32	63	f64h
F2I	I_11	0x911	st	84	86	enum:3=.F64
I2F	I_12	0x912	asm			{dt}{st}{rnd} <d>, <b>
I2F	I_12	0x912	d	16	23	R
I2F	I_12	0x912	dt	75	77	enum:1=.F16|2=|3=.F64|4=.BF16
I2F	I_12	0x912	rnd	78	79	enum:0=|1=.RM|2=.RP|3=.RZ
I2F	I_12	0x912	b	32	63	u
I2F	I_12	0x912	st	74	74	enum:4=.U32|5=
I2F	I_12	0x912	st	84	85	enum:4=.U32|5=
I2FP	I	0x845	asm			.F32{st}{rnd} <d>, <b>
I2FP	I	0x845	d	16	23	R
I2FP	I	0x845	b.reuse	123	123	enum:0=|1=.reuse
I2FP	I	0x845	dt	75	77	const:2
I2FP	I	0x845	st	74	74	enum:4=.U32|5=.S32
I2FP	I	0x845	st	84	85	enum:4=.U32|5=.S32
I2FP	I	0x845	rnd	78	79	enum:0=|3=.RZ
I2FP	I	0x845	b	32	63	u
F2FP	MERGE_C_I	0x83e	asm			{sat}{relu}{dt}{st}.MERGE_C{rnd} <d>, <b>, <c>
F2FP	MERGE_C_I	0x83e	d	16	23	R
F2FP	MERGE_C_I	0x83e	c	64	71	R
F2FP	MERGE_C_I	0x83e	c.reuse	124	124	enum:0=|1=.reuse
F2FP	MERGE_C_I	0x83e	sat	77	77	flag:.SATFINITE
F2FP	MERGE_C_I	0x83e	relu	75	75	flag:.RELU
F2FP	MERGE_C_I	0x83e	dt	76	76	enum:0=.F16|1=.BF16|3=.TF32|4=.E5M2|5=.E4M3
F2FP	MERGE_C_I	0x83e	dt	86	86	enum:0=.F16|1=.BF16|3=.TF32|4=.E5M2|5=.E4M3
F2FP	MERGE_C_I	0x83e	dt	87	87	enum:0=.F16|1=.BF16|3=.TF32|4=.E5M2|5=.E4M3
F2FP	MERGE_C_I	0x83e	st	73	74	enum:0=.F32|1=.F16|2=.E5M2|3=.E4M3
F2FP	MERGE_C_I	0x83e	rnd	79	80	enum:0=|3=.RZ
F2FP	MERGE_C_I	0x83e	sel	78	78	const:1
F2FP	MERGE_C_I	0x83e	sel	89	90	const:1
F2FP	MERGE_C_I	0x83e	hid24	24	31	const:255
F2FP	MERGE_C_I	0x83e	b	32	63	f32
PLOP3	U	0x1c1f	asm			.LUT <pu>, <pv>, <a>, <b>, <c>, <lut>, <lut2>
PLOP3	U	0x1c1f	pu	81	83	P
PLOP3	U	0x1c1f	pv	84	86	P
PLOP3	U	0x1c1f	a	24	31	R
PLOP3	U	0x1c1f	a.reuse	122	122	enum:0=|1=.reuse
PLOP3	U	0x1c1f	c	64	71	R
PLOP3	U	0x1c1f	c.reuse	124	124	enum:0=|1=.reuse
PLOP3	U	0x1c1f	a.sfx	127	127	enum:0=.SIGN
PLOP3	U	0x1c1f	b.sfx	127	127	enum:0=.SIGN
PLOP3	U	0x1c1f	c.sfx	127	127	enum:0=.SIGN
PLOP3	U	0x1c1f	lut	72	79	u
PLOP3	U	0x1c1f	lut2	16	23	u
PLOP3	U	0x1c1f	b	32	37	UR
UPLOP3	R	0x129f	asm			.LUT <pu>, <pv>, <a>, <b>, <c>, <lut>, <lut2>
UPLOP3	R	0x129f	a.sfx	127	127	enum:0=.SIGN
UPLOP3	R	0x129f	b.sfx	127	127	enum:0=.SIGN
UPLOP3	R	0x129f	c.sfx	127	127	enum:0=.SIGN
UPLOP3	R	0x129f	lut	72	79	u
UPLOP3	R	0x129f	lut2	16	23	u
UPLOP3	R	0x129f	pu	81	83	UP
UPLOP3	R	0x129f	pv	84	86	UP
UPLOP3	R	0x129f	a	24	29	UR
UPLOP3	R	0x129f	b	32	37	UR
UPLOP3	R	0x129f	c	64	69	UR
UPLOP3	R	0x129f	guard			UP
BRXU	R	0x1958	asm			{bd} <pp?><a> <t>
BRXU	R	0x1958	pp	87	89	P
BRXU	R	0x1958	pp.not	90	90	not
BRXU	R	0x1958	t	16	23	brx
BRXU	R	0x1958	t	34	81	brx
BRXU	R	0x1958	bd	85	86	enum:0=|1=.INC|2=.DEC
BRXU	R	0x1958	a	24	29	UR
VABSDIFF	I	0x814	asm			{sg} <d>, <pu?><a>, <b>, <c>
VABSDIFF	I	0x814	d	16	23	R
VABSDIFF	I	0x814	pu	81	83	P
VABSDIFF	I	0x814	a	24	31	R
VABSDIFF	I	0x814	a.reuse	122	122	enum:0=|1=.reuse
VABSDIFF	I	0x814	sg	73	73	enum:0=.U32|1=
VABSDIFF	I	0x814	b	32	63	u
VABSDIFF	I	0x814	c	64	71	R
VABSDIFF	I	0x814	c.reuse	124	124	enum:0=|1=.reuse
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
VABSDIFF	U3	0x1e14	asm			{sg} <d>, <pu?><a>, <b>, <c>
VABSDIFF	U3	0x1e14	d	16	23	R
VABSDIFF	U3	0x1e14	pu	81	83	P
VABSDIFF	U3	0x1e14	a	24	31	R
VABSDIFF	U3	0x1e14	a.reuse	122	122	enum:0=|1=.reuse
VABSDIFF	U3	0x1e14	b	64	71	R
VABSDIFF	U3	0x1e14	b.reuse	123	123	enum:0=|1=.reuse
VABSDIFF	U3	0x1e14	sg	73	73	enum:0=.U32|1=
VABSDIFF	U3	0x1e14	c	32	37	UR
F2FP	MERGE_C_U	0x1c3e	hid24	24	31	const:255
F2FP	UNPACK_B_U	0x1c3e	hid24	24	31	const:255
ATOMS	U	0x198c	asm			{op}{sz} <d>, [<m>], <b>
ATOMS	U	0x198c	d	16	23	R
ATOMS	U	0x198c	m			addr:ru
ATOMS	U	0x198c	m.r	24	31	reg
ATOMS	U	0x198c	m.u	64	69	ureg
ATOMS	U	0x198c	m.rs	78	79	enum:0=|1=.X4|2=.X8|3=.X16
ATOMS	U	0x198c	m.o	40	63	off
ATOMS	U	0x198c	b	32	39	R
ATOMS	U	0x198c	op	87	90	enum:0=.ADD|1=.MIN|2=.MAX|3=.INC|4=.DEC|5=.AND|6=.OR|7=.XOR|8=.EXCH
ATOMS	U	0x198c	sz	73	75	enum:0=|1=.S32|2=.64|4=.128
F2I	RH	0x305	asm			{ftz}{dt}{st}{rnd}{ntz} <d>, <b>
F2I	RH	0x305	d	16	23	R
F2I	RH	0x305	b	32	39	R
F2I	RH	0x305	b.neg	63	63	neg:
F2I	RH	0x305	b.abs	62	62	abs
F2I	RH	0x305	ftz	80	80	flag:.FTZ
F2I	RH	0x305	dt	72	72	enum:0=.U8|1=.S8|2=.U16|3=.S16|4=.U32|5=
F2I	RH	0x305	dt	75	76	enum:0=.U8|1=.S8|2=.U16|3=.S16|4=.U32|5=
F2I	RH	0x305	st	84	86	enum:1=.F16|4=.BF16
F2I	RH	0x305	selh	60	61	const:1
F2I	RH	0x305	rnd	78	79	enum:0=|1=.FLOOR|2=.CEIL|3=.TRUNC
F2I	RH	0x305	ntz	77	77	flag:.NTZ
F2I	RH	0x305	b.in	60	61	enum:1=.H1
F2IP	I	0x843	asm			{dt}.F32{rnd}{ntz}{relu} <d>, <a>, <b>, <c>
F2IP	I	0x843	d	16	23	R
F2IP	I	0x843	a	24	31	R
F2IP	I	0x843	a.reuse	122	122	enum:0=|1=.reuse
F2IP	I	0x843	b	32	63	f32
F2IP	I	0x843	c	64	71	R
F2IP	I	0x843	c.reuse	124	124	enum:0=|1=.reuse
F2IP	I	0x843	c.sfx	72	72	enum:0=|1=.H1
F2IP	I	0x843	dt	76	77	enum:0=.U8|1=.S8
F2IP	I	0x843	rnd	78	79	enum:0=|3=.TRUNC
F2IP	I	0x843	ntz	74	74	flag:.NTZ
F2IP	I	0x843	relu	75	75	flag:.RELU
ATOMS	INC	0x1f8c	asm			.POPC.INC.32 <d>, [<m>]
ATOMS	INC	0x1f8c	d	16	23	R
ATOMS	INC	0x1f8c	m			addr:ru
ATOMS	INC	0x1f8c	m.r	24	31	reg
ATOMS	INC	0x1f8c	m.u	64	69	ureg
ATOMS	INC	0x1f8c	m.o	40	63	off
ATOMS	INC	0x1f8c	md	87	90	const:11
ATOM	CAS	0x38b	op	87	88	enum:0=.CAS|1=.CAST|3=.CAST.SPIN
ATOMS	INC	0x1f8c	m.rs	78	79	enum:0=|1=.X4|2=.X8|3=.X16
YIELD	N	0x946	pp	87	89	P
YIELD	N	0x946	pp.not	90	90	not
NANOSLEEP	I	0x95d	pp	87	89	P
NANOSLEEP	I	0x95d	pp.not	90	90	not
NANOSLEEP	R	0x35d	pp	87	89	P
NANOSLEEP	R	0x35d	pp.not	90	90	not
WARPSYNC	ALL	0x948	pp	87	89	P
WARPSYNC	ALL	0x948	pp.not	90	90	not
WARPSYNC	CALL	0x948	pp	87	89	P
WARPSYNC	CALL	0x948	pp.not	90	90	not
KILL	N	0x95b	asm			 <pp~>
KILL	N	0x95b	pp	87	89	P
KILL	N	0x95b	pp.not	90	90	not
EXIT	N	0x94d	pp	87	89	P
EXIT	N	0x94d	pp.not	90	90	not
I2IP	R	0x239	asm			{dt}.S32{sat} <d>, <a>, <b>, <c>
I2IP	R	0x239	d	16	23	R
I2IP	R	0x239	dt	76	78	enum:0=.U8|1=.S8|2=.U16|3=.S16|4=.U2|5=.S2|6=.U4|7=.S4
I2IP	R	0x239	c	64	71	R
I2IP	R	0x239	c.sfx	72	73	enum:0=|1=.H1|2=.24|3=.28
I2IP	R	0x239	sat	74	75	enum:0=|1=.SAT|2=.SATRELU
I2IP	R	0x239	a	24	31	R
I2IP	R	0x239	b	32	39	R
USHF	I3	0x1499	asm			{dir}{w}{ty}{hi} <d>, <a>, <b>, <c>
USHF	I3	0x1499	guard			UP
USHF	I3	0x1499	d	16	21	UR
USHF	I3	0x1499	a	24	29	UR
USHF	I3	0x1499	b	64	69	UR
USHF	I3	0x1499	c	32	63	u
USHF	I3	0x1499	dir	76	76	enum:0=.L|1=.R
USHF	I3	0x1499	w	75	75	flag:.W
USHF	I3	0x1499	ty	73	74	enum:0=.S64|1=.U64|2=.S32|3=.U32
USHF	I3	0x1499	hi	80	80	flag:.HI
MUFU	I64	0x908	asm			{fn} <d>, <b>
MUFU	I64	0x908	d	16	23	R
MUFU	I64	0x908	b	32	63	f64h
MUFU	I64	0x908	fn	74	77	enum:6=.RCP64H|7=.RSQ64H
LEPC	I	0x94e	asm			 <d>, <t>
LEPC	I	0x94e	d	16	23	R
LEPC	I	0x94e	t	26	31	rel
LEPC	I	0x94e	t	34	81	rel
USETSHMSZ	I	0x19c9	asm			{fl}(!fl: <n>)
USETSHMSZ	I	0x19c9	fl	72	72	flag:.FLUSH
USETSHMSZ	I	0x19c9	n	32	50	u
R2P	I	0x804	a.reuse	122	122	enum:0=|1=.reuse
SYNCS	CCTLALL	0x9b1	asm			.CCTL{op}
SYNCS	CCTLALL	0x9b1	op	72	72	enum:0=.IVALL|1=.WBALL
SYNCS	CCTLALL	0x9b1	md	73	73	const:0
DEPBAR	LE	0x91a	ru	122	122	u
DEPBAR	LE	0x91a	ru	124	124	u
LDGMC	D	0x19a4	asm			{e}{op}{sz}{sem} <d>, desc[<u>][<m>]
LDGMC	D	0x19a4	d	16	23	R
LDGMC	D	0x19a4	u	64	69	UR
LDGMC	D	0x19a4	m			addr:d
LDGMC	D	0x19a4	m.r	24	31	reg
LDGMC	D	0x19a4	m.o	40	63	off
LDGMC	D	0x19a4	m.rs	70	70	enum:1=.64
LDGMC	D	0x19a4	e	72	72	enum:1=.E
LDGMC	D	0x19a4	op	87	90	enum:0=.ADD|1=.MIN|2=.MAX|5=.AND|6=.OR|7=.XOR
LDGMC	D	0x19a4	sz	73	75	enum:0=.32|1=.S32|2=.64|3=.S64
LDGMC	D	0x19a4	sem	77	80	enum:10=.STRONG.SYS
LDGMC	D	0x19a4	sel	71	71	const:1
LDGMC	U	0x19a4	asm			{e}{op}{sz}{sem} <d>, [<m>]
LDGMC	U	0x19a4	d	16	23	R
LDGMC	U	0x19a4	m			addr:ru
LDGMC	U	0x19a4	m.r	24	31	reg
LDGMC	U	0x19a4	m.u	64	69	ureg
LDGMC	U	0x19a4	m.o	40	63	off
LDGMC	U	0x19a4	m.rs	70	70	enum:0=.U32|1=.64
LDGMC	U	0x19a4	e	72	72	enum:1=.E
LDGMC	U	0x19a4	op	87	90	enum:0=.ADD|1=.MIN|2=.MAX|5=.AND|6=.OR|7=.XOR
LDGMC	U	0x19a4	sz	73	75	enum:0=.32|1=.S32|2=.64|3=.S64
LDGMC	U	0x19a4	sem	77	80	enum:10=.STRONG.SYS
LDGMC	U	0x19a4	sel	71	71	const:0
LDGMC	FD	0x19a5	asm			{e}{op}{sz}{sem} <d>, desc[<u>][<m>]
LDGMC	FD	0x19a5	d	16	23	R
LDGMC	FD	0x19a5	u	64	69	UR
LDGMC	FD	0x19a5	m			addr:d
LDGMC	FD	0x19a5	m.r	24	31	reg
LDGMC	FD	0x19a5	m.o	40	63	off
LDGMC	FD	0x19a5	m.rs	70	70	enum:1=.64
LDGMC	FD	0x19a5	e	72	72	enum:1=.E
LDGMC	FD	0x19a5	op	88	89	enum:0=.ADD|1=.MIN|2=.MAX|3=.F32ADD
LDGMC	FD	0x19a5	sz	73	76	enum:0=.F16x2.RN|1=.F16x4.RN|2=.F16x8.RN|3=.BF16x2.RN|4=.BF16x4.RN|5=.BF16x8.RN|12=.F32.RN|13=.F32x2.RN|14=.F32x4.RN|15=.F64.RN
LDGMC	FD	0x19a5	sem	77	80	enum:10=.STRONG.SYS
LDGMC	FD	0x19a5	sel	71	71	const:1
LDGMC	FU	0x19a5	asm			{e}{op}{sz}{sem} <d>, [<m>]
LDGMC	FU	0x19a5	d	16	23	R
LDGMC	FU	0x19a5	m			addr:ru
LDGMC	FU	0x19a5	m.r	24	31	reg
LDGMC	FU	0x19a5	m.u	64	69	ureg
LDGMC	FU	0x19a5	m.o	40	63	off
LDGMC	FU	0x19a5	m.rs	70	70	enum:0=.U32|1=.64
LDGMC	FU	0x19a5	e	72	72	enum:1=.E
LDGMC	FU	0x19a5	op	88	89	enum:0=.ADD|1=.MIN|2=.MAX|3=.F32ADD
LDGMC	FU	0x19a5	sz	73	76	enum:0=.F16x2.RN|1=.F16x4.RN|2=.F16x8.RN|3=.BF16x2.RN|4=.BF16x4.RN|5=.BF16x8.RN|12=.F32.RN|13=.F32x2.RN|14=.F32x4.RN|15=.F64.RN
LDGMC	FU	0x19a5	sem	77	80	enum:10=.STRONG.SYS
LDGMC	FU	0x19a5	sel	71	71	const:0
"""
# Fields that EXTRA has in another way.
GONE = [('EXIT', 'N', 'pz'), ('YIELD', 'N', 'pz'), ('NANOSLEEP', 'I', 'pz'), ('NANOSLEEP', 'R', 'pz'), ('WARPSYNC', 'ALL', 'pz'), ('WARPSYNC', 'CALL', 'pz')]

# Forms that differ from another in some fields only: mnemonic, form, opcode, model, fields.
LIKE = [('LD', 'U', '0x1980', 'D', [('asm', '', '', '{e}{ev}{ltc}{sz}{sem} <d>, [<m>]<?pp>'), ('u', '', '', None), ('m', '', '', 'addr:ru'), ('m.u', '32', '37', 'ureg'), ('sel', '76', '76', 'const:0')]),
        ('ST', 'U', '0x1985', 'D', [('asm', '', '', '{e}{ev}{sz}{sem} [<m>], <b>'), ('u', '', '', None), ('m', '', '', 'addr:ru'), ('m.u', '64', '69', 'ureg'), ('sel', '76', '76', 'const:0')]),
        ('VIADDMNMX', 'U3', '0x1e46', 'I3', [('c', '32', '37', 'UR'), ('c.reuse', '', '', None)]),
        ('VIMNMX3', 'U', '0x1c0f', 'R', [('b', '32', '37', 'UR'), ('b.reuse', '', '', None)]),
        ('IDP', 'U', '0x1c26', 'R', [('b', '32', '37', 'UR'), ('b.reuse', '', '', None)]),
        ('IDP', 'C', '0xa26', 'R', [('b', '', '', 'c:'), ('b.b', '54', '58', 'bank'), ('b.o', '38', '53', 'off'), ('b.reuse', '', '', None)]),
        ('F2I', 'UH', '0x1d05', 'RH', [('b', '32', '37', 'UR')]),
        ('VABSDIFF', 'U', '0x1c14', 'R', [('b', '32', '37', 'UR'), ('b.reuse', '', '', None)]),
        ('VABSDIFF', 'C', '0xa14', 'R', [('b', '', '', 'c:'), ('b.b', '54', '58', 'bank'), ('b.o', '38', '53', 'off'), ('b.reuse', '', '', None)]),
        ('IDP', 'C2A', '0xa26', 'R2A', [('b', '', '', 'c:'), ('b.b', '54', '58', 'bank'), ('b.o', '38', '53', 'off'), ('b.reuse', '', '', None)]),
        ('PLOP3', 'C', '0xa1f', 'R', [('b', '', '', 'c:sp'), ('b.b', '54', '58', 'bank'), ('b.o', '38', '53', 'off'), ('b.reuse', '', '', None)]),
        ('FCHK', 'C', '0xb02', 'R', [('b', '', '', 'c:'), ('b.b', '54', '58', 'bank'), ('b.o', '38', '53', 'off'), ('b.reuse', '', '', None)]),
        ('IDP', 'U2A', '0x1c26', 'R2A', [('b', '32', '37', 'UR'), ('b.reuse', '', '', None)]),
        ('F2F', 'I_10', '0x910', 'R_10', [('b', '32', '63', 'f64h'), ('b.neg', '', '', None), ('b.abs', '', '', None), ('dt', '75', '77', 'enum:1=.F16|2=.F32|4=.BF16'), ('st', '84', '86', 'enum:3=.F64')]),
        ('LDGSTS', 'U', '0x1fae', 'D', [('asm', '', '', '{e}{byp}{ev}{ltc}{sz}{zf}{sem} [<m>], [<n>]<?pp>'), ('u', '', '', None), ('n', '', '', 'addr:r'), ('hid64', '64', '69', 'const:63'), ('sel', '76', '76', 'const:0')]),
        ('LDGSTS', 'UU', '0x1fae', 'D', [('asm', '', '', '{e}{byp}{ev}{ltc}{sz}{zf}{sem} [<m>], [<n>]<?pp>'), ('u', '', '', None), ('n', '', '', 'addr:ru'), ('n.u', '64', '69', 'ureg'), ('sel', '76', '76', 'const:0')]),
        ('LDGSTS', 'UD', '0x1dae', 'D', [('asm', '', '', '{e}{byp}{ev}{ltc}{sz}{zf}{sem} [<m>], [<n>]<?pp>'), ('u', '', '', None), ('m', '', '', 'addr:ru'), ('m.u', '64', '69', 'ureg'), ('n', '', '', 'addr:r'), ('sel', '76', '76', 'const:0')]),
        ('QSPC', 'U', '0x19aa', 'R', [('m', '', '', 'addr:ru'), ('m.u', '32', '37', 'ureg'), ('m.rs', '90', '90', 'enum:0=.U32|1=.64')]),
        ('FCHK', 'U', '0x1d02', 'R', [('b', '32', '37', 'UR'), ('b.reuse', '', '', None)]),
        ('VABSDIFF4', 'I', '0x815', 'R', [('b', '32', '63', 'u'), ('b.reuse', '', '', None)]),
        ('VABSDIFF4', 'I3', '0x415', 'R', [('b', '64', '71', 'R'), ('c', '32', '63', 'u'), ('c.reuse', '', '', None)]),
        ('VABSDIFF4', 'U', '0x1c15', 'R', [('b', '32', '37', 'UR'), ('b.reuse', '', '', None)]),
        ('VABSDIFF4', 'C', '0xa15', 'R', [('b', '', '', 'c:'), ('b.b', '54', '58', 'bank'), ('b.o', '38', '53', 'off'), ('b.reuse', '', '', None)]),
        ('I2IP', 'I', '0x839', 'R', [('b', '32', '63', 's')]), ('I2IP', 'U', '0x1c39', 'R', [('b', '32', '37', 'UR')]),
        ('I2IP', 'C', '0xa39', 'R', [('b', '', '', 'c:'), ('b.b', '54', '58', 'bank'), ('b.o', '38', '53', 'off')])]
# What later comparisons with nvdisasm corrected: mnemonic, form (None: all), field, encoding.
MENDED = [('S2UR', None, 'guard', 'UP'), ('ATOM', 'CAS', 'asm', '{e}{op}{ev}{sz}{sem} <pu>, <d>, [<m>], <b>, <c>'), ('BAR', 'IR', 'asm', '{md}{df} <b>(md==0:<?c>)(md==1:, <c>)'),
          ('HFMA2', 'MMAC', 'b', 'c:'), ('HFMA2', 'MMAC3', 'c', 'c:'), ('EXIT', 'N', 'asm', '{k}{na} <pp~>'),
          ('YIELD', 'N', 'asm', ' <pp~>'), ('NANOSLEEP', 'I', 'asm', '{r}{w}{sy} <pp?><m>'), ('NANOSLEEP', 'R', 'asm', '{r}{w}{sy} <pp?><b>'),
          ('WARPSYNC', 'ALL', 'asm', '{ex}.ALL <pp~>'), ('WARPSYNC', 'CALL', 'asm', '.COLLECTIVE.ALL <pp?><t>'),
          ('BAR', 'RR', 'asm', '{md}{df} <b>(md==0:<?c>)(md==1:, <c>)')]


def added(lines):
    """The table's lines with those of EXTRA, LIKE and MENDED."""
    rows = [l.rstrip('\n').split('\t') for l in lines if l.strip() and not l.startswith(('#', 'mnemonic\t'))]
    rows = [r for r in rows if (r[0], r[1], r[3]) not in GONE] + [l.split('\t') for l in EXTRA.splitlines()]
    for mn, tag, op, model, changes in LIKE:
        changed = {c[0]: c for c in changes}
        mine = [r for r in rows if r[:2] == [mn, model]]
        rows += [[mn, tag, op] + r[3:] for r in mine if r[3] not in changed]
        rows += [[mn, tag, op] + list(c) for c in changes if c[3] is not None]
    for mn, tag, name, enc in MENDED:
        there = [r for r in rows if r[0] == mn and tag in (None, r[1]) and r[3] == name]
        for r in there: r[6] = enc
        if not there: rows += [[mn, t, op, name, '', '', enc] for t, op in {(r[1], r[2]) for r in rows if r[0] == mn and tag in (None, r[1])}]
    for mn, tag, op in sorted({(r[0], r[1], r[2]) for r in rows}):  # bits that no text shows, as the forms have them that ptxas uses on sm_90
        names = {r[3] for r in rows if r[:2] == [mn, tag]}
        if mn == 'IMAD' and not names & {'hid81', 'pu'}: rows.append([mn, tag, op, 'hid81', '81', '83', 'const:7'])
        if mn == 'F2FP' and not names & {'a', 'hid24'}: rows.append([mn, tag, op, 'hid24', '24', '31', 'const:255'])
        if (mn, tag) == ('BRA', 'DIV'): rows.append([mn, tag, op, 'u.inv', '30', '30', 'inv'])
    usual = {(r[0], r[3], r[4], r[5]): r[6] for r in rows if ';def=' in r[6] and r[1] in ('R', 'LOR', 'WIDER', 'HIR')}
    told = {(r[0], r[1]) for r in rows if ';def=' in r[6]}
    for r in rows:  # forms that ptxas does not use on sm_90 have the usual values of those it does use
        like = usual.get((r[0], r[3], r[4], r[5]), '')
        if (r[0], r[1]) not in told and like.split(';')[0] == r[6]: r[6] = like
    for r in rows:
        if r[0] == 'MOV' and r[3] == 'mask' and ';def' not in r[6]: r[6] += ';def=15'
    for r in rows:  # only HFMA2 takes the selector .F32
        if r[0] != 'HFMA2' and r[6] == 'enum:0=|1=.F32|2=.H0_H0|3=.H1_H1': r[6] = 'enum:0=|2=.H0_H0|3=.H1_H1'
    return rows


def read(lines):
    forms = {}
    for mn, tag, op, name, lo, hi, enc in lines:
        form = forms.setdefault((mn, tag), {'op': int(op, 16), 'guard': 'P', 'fields': {}})
        if name == 'asm': form['asm'] = enc.rstrip()
        elif name == 'guard': form['guard'] = enc
        else: form['fields'].setdefault(name, (enc, []))[1].append((int(lo), int(hi)) if lo else None)
    return forms


def edit(form, edits):
    """Applies {field: None (gone) or [(low, high, encoding), ...] or '=asm', '=op', '=guard': what it is}."""
    for name, new in edits.items():
        if name.startswith('='): form[name[1:]] = new
        elif new is None: form['fields'].pop(name, None)
        else: form['fields'][name] = (new[0][2], [(lo, hi) if lo is not None else None for lo, hi, _ in new])


def of_chip(chip, base):
    """The forms of a chip, from those of sm_90."""
    forms = {}
    for (mn, tag), form in base.items():
        if chip != '90' and sass_chips.absent(chip, mn, tag): continue
        form = copy.deepcopy(form)
        if chip == '120': sass_chips.widen(form)
        if chip in sass_chips.OLD: sass_chips.narrow(form)
        forms[mn, tag] = form
    rows = [line.split('\t') for chips, text in sass_chips.MORE if chip in chips.split() for line in text.strip('\n').split('\n')]
    forms.update(read(rows))
    if chip in sass_chips.NEW:
        for mn, tag, op, model in sass_chips.UNIFORM: forms[mn, tag] = sass_chips.uniform(forms[tuple(model.split('/'))], op)
    special = base['S2R', 'S']['fields']['s'][0]
    if 'CS2UR' in {k[0] for k in forms}: forms['CS2UR', 'S']['fields']['s'] = (special, [(72, 79)])
    for chips, mn, tags, edits in sass_chips.EDITS:
        if chip not in chips.split(): continue
        for key in [k for k in forms if k[0] == mn and (tags is None or k[1] in tags.split())]:
            rest = dict(edits)
            name = rest.pop('=mnemonic', None)
            edit(forms[key], rest)
            if name: forms[name, key[1]] = forms.pop(key)
    for (mn, tag), form in forms.items():
        sass_chips.retext(chip, mn, tag, form)
        enc, bits = form['fields'].get('s', ('', []))
        if chip == '120' and '138=SR138' in enc: form['fields']['s'] = (enc.replace('138=SR138', '138=SR_CgaSize'), bits)
    return forms


def all_forms(path):
    """Rows of all chips: mnemonic, name, form, bits of its chips; chips that agree share one."""
    base = read(added(open(path)))
    rows = []
    for i, chip in enumerate(sass_chips.CHIPS):
        for (mn, tag), form in of_chip(chip, base).items():
            for row in rows:
                if row[0] == mn and row[1] == tag and row[2] == form:
                    row[3] |= 1 << i
                    break
            else: rows.append([mn, tag, form, 1 << i])
    order = {key: i for i, key in enumerate(base)}
    # Within a mnemonic the table's order, sm_90's row first.
    rows.sort(key=lambda r: (r[0], order.get((r[0], r[1]), 9999), r[1], not r[3] & 8, r[3]))
    return rows


# Rules that were learnt without a field that belongs to them: (chips, mnemonic, form): what is refused alone, and with what it really is.
NARROWED = [('90 120', 'MUFU', 'U', [('fn', 'Value', [6, 7])], ('fmt', 'Value', [1, 2]))]

# Of forms that are added here: (mnemonics, or mnemonic/form, [what does not go together, ...]).
APART = [('LDGMC/U LDGMC/FU', [[('m', 'Register', [3]), ('m', 'RegisterSuffix', [1])]]),
         ('I2IP UI2IP', [[('dt', 'Value', [0, 1, 2, 3]), ('c', 'Suffix', [2, 3])], [('dt', 'Value', [4, 5]), ('c', 'Suffix', [0, 1, 2])],
                         [('dt', 'Value', [6, 7]), ('c', 'Suffix', [0, 1, 3])]])]


# Forms with the rules of another form of the mnemonic.
RULED = [('LDGSTS', 'U', 'D'), ('LDGSTS', 'UU', 'D'), ('LDGSTS', 'UD', 'D')]


def apart(rules, found):
    """The rules with those of APART and RULED."""
    for mn, tag, model in RULED:
        for chip in sass_chips.CHIPS: rules[chip, mn, tag] = rules.get((chip, mn, model), [])
    for names, tests in APART:
        for mn, tag, _, chips in found:
            for bit, chip in enumerate(sass_chips.CHIPS):
                if {mn, '%s/%s' % (mn, tag)} & set(names.split()) and chips >> bit & 1: rules[chip, mn, tag] = tests
    return rules


def narrowed(rules):
    for chips, mn, tag, wide, with_ in NARROWED:
        for chip in chips.split():
            rules[chip, mn, tag] = [tests + [with_] if tests == wide else tests for tests in rules[chip, mn, tag]]
    return rules


def illegal(paths):
    """Rules by chip, mnemonic and form: slot:Role=class|class, all of a line together."""
    rules = collections.defaultdict(list)
    for path in paths:
        chip = re.search(r'(\d+)\.tsv$', path).group(1)
        for line in open(path):
            if line.startswith('#'): continue
            mn, tag, tests = line.rstrip('\n').split('\t')
            parsed = [re.match(r'(\w+):(\w+)=(.*)', t).groups() for t in tests.split(' ')]
            rules[chip, mn, tag].append([(slot, role, sorted(int(v) for v in values.split('|'))) for slot, role, values in parsed])
    return rules


def kept(folder):
    """The rules of a table that stands, as `illegal` gives them."""
    text = {name: open('%s/%s.rs' % (folder, name)).read() for name in ('fields', 'rows', 'legal')}
    slots = {m[0]: (m[1], m[2]) for m in re.findall(r'pub const (\w+): Field = (?:usual\( ?)?field\( ?"(\w+)", Role::(\w+)', re.sub(r'\s+', ' ', text['fields']))}
    text = {name: re.sub(r'\s+', ' ', t) for name, t in text.items()}  # formatted or not
    lists = dict(re.findall(r'pub const (\w+): &\[Rule\] = &\[(.*?)\];', text['legal']))
    rules = collections.defaultdict(list)
    row = r'form\( ?"(\w+)", "(\w+)", \w+, [\w:]+, [\w:]+, 0b([01]{5}), "[^"]*", &\[ ?([^]]*?),? ?\], (RULES_\d+),? ?\)'
    for mn, tag, chips, fields, name in re.findall(row, text['rows']):
        places = fields.split(', ')
        for mask, tests in re.findall(r'rule\(0b([01]{5}), &\[(.*?)\]\)', lists[name]):
            parsed = []
            for place, classes in re.findall(r'\((\d+), (0x[0-9a-f]+)\)', tests):
                slot, role = slots[places[int(place)]]
                parsed.append((slot, role, [v for v in range(64) if int(classes, 16) >> v & 1]))
            for bit, chip in enumerate(sass_chips.CHIPS):
                if int(mask, 2) & int(chips, 2) & 1 << bit: rules[chip, mn, tag].append(parsed)
    return rules


def main(source, out, *paths):
    found = all_forms(source)
    lists, fields = {}, {}
    taken = set()

    def list_name(hint, text):
        if text not in lists:
            base = re.sub(r'\W', '_', hint).upper(); name, n = base, 1
            while name in taken: n += 1; name = '%s_%d' % (base, n)
            taken.add(name); lists[text] = name
        return lists[text]

    def kind(name, enc):
        k, _, a = enc.partition(':')
        if k == 'flag': return 'List(lists::%s)' % list_name('flag' + a.replace('.', '_'), '0=|1=' + a)
        if k == 'enum': return 'List(lists::%s)' % list_name('l_' + name.split('.')[-1], a)
        if k == 'const': return 'Must(%d)' % int(a, 0)
        if k == 'c': return CONST[a]
        if k == 'addr': return 'Address(Style::%s)' % STYLE[a]
        return SIMPLE[k]

    def field(name, enc, bits):
        enc, _, default = enc.partition(';def=')
        key = (name, enc, default, tuple(bits))
        if key not in fields:
            slot, _, sub = name.partition('.')
            role = ROLE[sub] if sub else 'Value'
            if role == 'Neg' and enc == 'neg:x': role = 'NegOrInv'
            base = re.sub(r'\W', '_', name).upper(); cand = base; i = 0
            tries = [base, '%s_AT%d' % (base, bits[0][0] if bits[0] else 0)]
            while cand in taken: i += 1; cand = tries[1] if i == 1 else '%s_%d' % (tries[1], i)
            taken.add(cand)
            parts = ', '.join('(%d, %d)' % b for b in bits if b)
            text = 'field(%s, Role::%s, &[%s], K::%s)' % (rust(slot), role, parts, kind(name, enc))
            if default: text = 'usual(%s, %s)' % (text, default)
            fields[key] = (cand, text)
        return fields[key][0]

    rows = []
    for mn, tag, f, chips in found:
        names = [field(n, enc, bits) for n, (enc, bits) in f['fields'].items()]
        rows.append((mn, tag, f, names, chips))
    learnt, rule_lists = apart(narrowed(illegal(paths) if paths else kept(out)), found), {}

    def rules(row):
        """The name of the list of a row's rules."""
        mn, tag, f, names, chips = row
        places = {}
        for i, name in enumerate(f['fields']):
            slot, _, sub = name.partition('.')
            role = ROLE[sub] if sub else 'Value'
            places[slot, 'NegOrInv' if role == 'Neg' and f['fields'][name][0] == 'neg:x' else role] = i
        merged = {}
        for bit, chip in enumerate(sass_chips.CHIPS):
            for tests in learnt.get((chip, mn, tag), []) if chips >> bit & 1 else []:
                if any((slot, role) not in places for slot, role, _ in tests): continue  # the chip has no such field
                key = ', '.join('(%d, %#x)' % (places[slot, role], sum(1 << v for v in values)) for slot, role, values in tests)
                merged[key] = merged.get(key, 0) | 1 << bit
        if not merged: return '&[]'
        text = ', '.join('rule(0b%s, &[%s])' % (format(mask, '05b'), key) for key, mask in merged.items())
        return rule_lists.setdefault(text, 'RULES_%d' % len(rule_lists))

    ruled = [rules(row) for row in rows]
    head = '//! %s: generated by tools/sass_rows.py from a table of probed encodings (ptxas and nvdisasm 13.5.37), not edited by hand.\n'
    with open(out + '/lists.rs', 'w') as o:
        o.write(head % 'Values that a field may have, with their text')
        o.write('\nuse super::super::row::{Named, named};\n\n')
        for text, name in lists.items():
            items = [i.split('=', 1) for i in text.split('|')]
            o.write('pub const %s: &[Named] = &[%s];\n' % (name, ', '.join('named(%s, %s)' % (v, rust(t)) for v, t in items)))
    with open(out + '/fields.rs', 'w') as o:
        o.write(head % 'Fields, each once')
        o.write('\nuse super::super::row::{Field, Index, Kind as K, Role, Style, field, usual};\nuse super::lists;\n\n')
        for name, text in fields.values(): o.write('pub const %s: Field = %s;\n' % (name, text))
    with open(out + '/mods.rs', 'w') as o:
        o.write(head % 'Values of modifiers by the name of their field, for code that names them')
        o.write('//!\n//! `cmp::EQ` is the text `.EQ` of a field `cmp`; `NONE` is the value that is not written, `VALUES` are all of a field.\n')
        slots = collections.defaultdict(dict)
        for (name, enc, _, _) in fields:
            k, _, a = enc.partition(':')
            if '.' not in name and k in ('flag', 'enum'):
                for text in ['', a] if k == 'flag' else [i.split('=', 1)[1] for i in a.split('|')]:
                    slots[name].setdefault(constant(text), text)
                    assert slots[name][constant(text)] == text, (name, text)
        o.write('\nuse super::super::row::Modifier;\n\n/// All fields\' values.\npub const EVERY: &[&[Modifier]] = &[%s];\n' % ', '.join('%s::VALUES' % (s if s not in KEYWORDS else s + '_') for s in sorted(slots)))
        for slot in sorted(slots):
            o.write('\npub mod %s {\n    use super::super::super::row::Modifier;\n' % (slot if slot not in KEYWORDS else slot + '_'))
            for name, text in slots[slot].items():
                o.write('    pub const %s: Modifier = Modifier::of(%s, %s);\n' % (name, rust(slot), rust(text)))
            o.write('    pub const VALUES: &[Modifier] = &[%s];\n}\n' % ', '.join(slots[slot]))
    with open(out + '/legal.rs', 'w') as o:
        o.write(head % 'Values that do not go together')
        o.write('//!\n//! A rule: chips, and for each field (its place in the form) the classes of values that contradict (see `isa::sass::legal`).\n')
        o.write('\nuse super::super::row::{Rule, rule};\n\n')
        for text, name in rule_lists.items(): o.write('pub const %s: &[Rule] = &[%s];\n' % (name, text))
    with open(out + '/rows.rs', 'w') as o:
        o.write(head % 'Forms of the instructions')
        o.write('//!\n//! A row: mnemonic, name of the form, opcode, file of the guard, pipe, chips (bit 0 sm_80, then 86, 89, 90, 120), template of the text, fields.\n')
        o.write('\nuse super::super::row::{File, Form, Pipe, form};\nuse super::fields::*;\nuse super::legal::*;\n\npub static FORMS: [Form; %d] = [\n' % len(rows))
        for (mn, tag, f, names, chips), law in zip(rows, ruled):
            o.write('    form(%s, %s, 0x%x, File::%s, Pipe::%s, 0b%s, %s,\n        &[%s], %s),\n' % (rust(mn), rust(tag), f['op'], 'Predicate' if f['guard'] == 'P' else 'UniformPredicate',
                    pipe(mn, tag), format(chips, '05b'), rust(f['asm']), ', '.join(names), law))
        o.write('];\n')
    with open(out + '/op.rs', 'w') as o:
        o.write(head % 'Names of the forms')
        o.write('\nuse super::super::row::Form;\nuse super::rows::FORMS;\n\n')
        for i, (mn, tag, f, names, chips) in enumerate(rows):
            first = next(c for n, c in enumerate(sass_chips.CHIPS) if chips >> n & 1)
            o.write('pub static %s_%s%s: &Form = &FORMS[%d];\n' % (mn, tag, '' if chips & 8 else '_SM' + first, i))
    print(len(rows), 'forms', len(fields), 'fields', len(lists), 'lists')
    print(collections.Counter(pipe(mn, tag) for mn, tag, _, _, _ in rows))
    print(sorted({mn for mn, tag, _, _, _ in rows if pipe(mn, tag) == 'Misc'}))


main(*sys.argv[1:])
