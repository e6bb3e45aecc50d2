//! Statements that random programs are made of.
//!
//! `$R` is a result of class r, `$r` a source (register or constant), `$=r` a register, `$s` a distance of a shift;
//! `#r1` a register that only this statement sets; `&0` the statement's first source once more, `<a|b>` one of these,
//! `~8` a number below 8, `^8` one from 1 to 8. Only arithmetic that PTX defines to the last bit; which NaN a result
//! is, it does not say, so that floats become words only by `LEAVE`, and signs are read of numbers only.
//!
//! Where ptxas 13.5 itself deviates from the PTX specification, statements avoid that, and only those:
//!
//! - `testp` under a guard writes its result whatever the guard is; `set` to f32, and `set` of 16-bit sources, convert
//!   what stands in their destination also where the guard is false: these three have no guard.
//! - A signed byte or half from the middle of a word (`bfe.s32`, elements of a vector of s8) becomes a float by its
//!   sign also where it is converted as u32 (I2F.S8): such registers are not sources of these conversions
//!   (`make::Maker::signed`). At -O1 ptxas saturates them by their sign as well where they are saturated as u32: of -1,
//!   `cvt.sat.u8.u32` gives 255 by PTX, and 0 by `ISETP.LT.AND P0, PT, R0, RZ, PT; SEL R0, R0, RZ, !P0`.
//! - `abs.s16` of -32768 is 0x8000, which is 32768 where it becomes a float as u16, and -32768 by ptxas's I2F.S16: so
//!   is such a register.
//! - What `set` gives (0, -1 or 1.0), made a float, its sign changed and made an integer again is for ptxas from -O1 on
//!   the integer that it was, whatever the last type has room for: of `set.ne.s32.s32 r, a, 5; cvt.rn.f32.s32 f, r;
//!   cvt.rzi.u64.f32 d, f`, which is 0, it makes -1 (`ISETP.NE; SEL R4, RZ, 0xffffffff, !P0; SHF.R.S32.HI R5, RZ, 0x1f,
//!   R4`, no F2I.U64). Such registers do not become floats, and change no sign (`make::Maker::truths`).
//! - Of `szext` before sm_90 a number of bits that is a parameter becomes another constant (of that at 0x174 `SGXT.U32
//!   R5, R0, c[0x1d][0x164]`), and with one that is known `szext.u32` extends the sign: it is not there.
//! - Of a 64-bit insertion's place and length PTX takes the low eight bits, ptxas all of a register: these are
//!   constants, or below 256.

/// Parts of statements that not all chips have, and the first chip that has them. Source: the PTX ISA's notes on
/// targets.
const FROM: &[(&str, u32)] = &[
    (".xorsign", 86),
    ("e4m3", 89),
    ("e5m2", 89),
    ("16x2 $R", 90),
    (".relu.s32", 90),
    ("u32.bf16", 90),
    ("s32.bf16", 90),
    (".bf16.u32", 90),
    (".bf16.s32", 90),
    ("add.rn.bf16", 90),
    ("sub.rn.bf16", 90),
    ("mul.rn.bf16", 90),
    (".bf16 $P", 90),
    ("szext", 90),
];

/// Whether the chip of that number has a statement.
pub fn is_there(statement: &str, sm: u32) -> bool {
    FROM.iter().all(|(part, from)| sm >= *from || !statement.contains(part))
}

/// Words of 32 bits.
pub const WORD: &[&str] = &[
    "<add|sub>.<s32|u32> $R,$r,$r",
    "<add|sub>.<s32|u32> $R,$r,$r",
    "<add|sub>.sat.s32 $R,$r,$r",
    "mul.<lo|hi>.<s32|u32> $R,$r,$r",
    "mad.<lo|hi>.<s32|u32> $R,$r,$r,$r",
    "mul24.<lo|hi>.<s32|u32> $R,$=r,$r",
    "mad24.<lo|hi>.<s32|u32> $R,$=r,$r,$r",
    "<min|max>.<s32|u32> $R,$r,$r",
    "<min|max>.relu.s32 $R,$r,$r",
    "<abs|neg>.s32 $R,$=r",
    "sad.<s32|u32> $R,$r,$r,$r",
    "or.b32 #r1,$=r,1; <div|rem>.u32 $R,$r,#r1",
    "and.b32 #r2,$=r,65535; or.b32 #r1,#r2,1; <div|rem>.s32 $R,$r,#r1",
    "<div|rem>.<u32|s32> $R,$=r,^70000",
    "<and|or|xor>.b32 $R,$r,$r",
    "<not|cnot>.b32 $R,$=r",
    "<shl.b32|shr.u32|shr.s32|shr.b32> $R,$r,$s",
    "shf.<l|r>.<wrap|clamp>.b32 $R,$r,$r,$s",
    "bfe.<u32|s32> $R,$r,$s,$s",
    "bfi.b32 $R,$r,$r,$s,$s",
    "prmt.b32 $R,$r,$r,$r",
    "prmt.b32 $R,$r,$r,~65536",
    "prmt.b32.<f4e|b4e|rc8|ecl|ecr|rc16> $R,$r,$r,$r",
    "lop3.b32 $R,$r,$r,$r,~256",
    "dp4a.<u32|s32>.<u32|s32> $R,$r,$r,$r",
    "dp2a.<lo|hi>.<u32|s32>.<u32|s32> $R,$r,$r,$r",
    "<popc|clz|brev>.b32 $R,$=r",
    "bfind<|.shiftamt>.<u32|s32> $R,$=r",
    "bmsk.<clamp|wrap>.b32 $R,$s,$s",
    "szext.<clamp|wrap>.<u32|s32> $R,$r,$s",
    "<add|min|max>.<u16x2|s16x2> $R,$=r,$=r",
    "vabsdiff4.u32.u32.u32.add $R,$=r,$=r,$=r",
    "slct.<b32|u32|s32>.s32 $R,$r,$r,$=r",
    "slct.<b32|u32|s32>.f32 $R,$r,$r,$=f",
    "slct.ftz.<b32|u32>.f32 $R,$r,$r,$=f",
    "selp.<b32|s32> $R,$r,$r,$=p",
    "set.<eq|ne|lt|le|gt|ge>.<u32|s32>.<s32|u32> $R,$r,$r",
    "set.<lo|ls|hi|hs>.<u32|s32>.u32 $R,$r,$r",
    "set.<eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan><|.ftz>.<u32|s32>.f32 $R,$f,$f",
    "set.<lt|ge>.<and|or|xor>.u32.s32 $R,$r,$r,$=p",
    "add.cc.u32 #r1,$r,$r; addc.cc.u32 #r2,$r,$r; addc.u32 $R,#r1,#r2",
    "sub.cc.u32 #r1,$r,$r; subc.cc.u32 #r2,$r,$r; subc.u32 $R,#r1,#r2",
    "mad.lo.cc.u32 #r1,$r,$r,$r; madc.hi.cc.u32 #r2,$r,$r,#r1; addc.u32 $R,#r2,0",
    "mad.<lo|hi>.cc.<u32|s32> #r1,$r,$r,$r; madc.<lo|hi>.<u32|s32> $R,$r,$r,#r1",
    // What the assembler makes one instruction of.
    "mul.lo.s32 #r1,$=r,$r; add.s32 $R,#r1,$r",
    "shl.b32 #r1,$=r,~34; add.s32 $R,#r1,$r",
    "shl.b32 #r1,$=r,~34; sub.s32 $R,$r,#r1",
    "<and|or|xor>.b32 #r1,$r,$r; <and|or|xor>.b32 $R,#r1,$r",
    "<and|or|xor>.b32 #r1,$=r,$=r; not.b32 #r2,#r1; <and|or|xor>.b32 $R,#r2,$r",
    "add.s32 #r1,$=r,$r; add.s32 $R,#r1,$r",
    "shl.b32 #r1,$=r,13; shr.u32 #r2,$=r,19; <or.b32|xor.b32|add.s32> $R,#r1,#r2",
    "shl.b32 #r1,$=r,7; shr.u32 #r2,&0,25; or.b32 $R,#r2,#r1",
    "mov.b32 $R,$r",
    "mov.b32 $R,{$=h,$=h}",
    "cvt.<u8|s8|u16|s16|u32|s32>.<u8|s8|u32|s32> $R,$=r",
    "cvt.sat.<u8|s8|u16|s16>.<u32|s32> $R,$=r",
    "cvt.sat.<u8.s8|s8.u8|u16.s8|u32.s32|s32.u32|u32.s8> $R,$=r",
    "cvt.<u8|s8|u16|s16|u32|s32>.<u16|s16> $R,$=h",
    "cvt.sat.<u8.u16|u8.s16|s8.u16|s8.s16|u32.s16> $R,$=h",
    "cvt.<u8|s8|u16|s16|u32|s32>.<u64|s64> $R,$=d",
    "cvt.sat.<u8|s8|u16|s16|u32|s32>.<u64|s64> $R,$=d",
    "cvt.<rni|rzi|rmi|rpi><|.ftz>.<u8|s8|u16|s16|u32|s32>.f32 $R,$f",
    "cvt.<rni|rzi|rmi|rpi>.<u8|s8|u16|s16|u32|s32>.f64 $R,$=e",
    "cvt.<rni|rzi|rmi|rpi>.<u8|s8|u16|s16|u32|s32>.f16 $R,$=g",
    "cvt.<rni|rzi|rmi|rpi>.<u32|s32>.bf16 $R,$=k",
    "mul.wide.<u16|s16> $R,$=h,$h",
    "mad.wide.<u16|s16> $R,$=h,$h,$r",
    "ld.const.b32 $R,[tab+0]",
    "and.b32 #r1,$=r,15; shl.b32 #r2,#r1,2; mov.u32 #r3,tab; add.u32 #r4,#r3,#r2; ld.const.b32 $R,[#r4]",
    "and.b32 #r1,$=r,7; mul.wide.u32 #d1,#r1,8; mov.u64 #d2,tab; add.u64 #d3,#d2,#d1; ld.const.b64 $D,[#d3]",
];

/// 64 bits.
pub const WIDE: &[&str] = &[
    "<add|sub>.<s64|u64> $D,$d,$d",
    "mul.<lo|hi>.<s64|u64> $D,$d,$d",
    "mad.<lo|hi>.<s64|u64> $D,$d,$d,$d",
    "mul.wide.<s32|u32> $D,$r,$r",
    "mad.wide.<s32|u32> $D,$r,$r,$d",
    "<min|max>.<s64|u64> $D,$d,$d",
    "<abs|neg>.s64 $D,$=d",
    "or.b64 #d1,$=d,1; <div|rem>.u64 $D,$d,#d1",
    "shr.u64 #d2,$=d,~60; or.b64 #d1,#d2,1; <div|rem>.u64 $D,$d,#d1",
    "shr.s64 #d2,$=d,20; or.b64 #d1,#d2,2; <div|rem>.s64 $D,$d,#d1",
    "<div|rem>.<u64|s64> $D,$=d,^70000",
    "<and|or|xor>.b64 $D,$d,$d",
    "<not|cnot>.b64 $D,$=d",
    "<shl.b64|shr.u64|shr.s64> $D,$d,$s",
    "<shl.b64|shr.u64|shr.s64> $D,$d,~66",
    "bfe.<u64|s64> $D,$d,$s,$s",
    "bfi.b64 $D,$d,$d,~64,~64",
    "and.b32 #r1,$=r,255; and.b32 #r2,$=r,255; bfi.b64 $D,$d,$d,#r1,#r2",
    "<popc|clz>.b64 $R,$=d",
    "brev.b64 $D,$=d",
    "bfind<|.shiftamt>.<u64|s64> $R,$=d",
    "selp.b64 $D,$d,$d,$=p",
    "slct.<b64|u64|s64>.s32 $D,$d,$d,$=r",
    "slct.b64.f32 $D,$d,$d,$=f",
    "sad.<s64|u64> $D,$d,$d,$d",
    "set.<eq|ne|lt|le|gt|ge>.<u32|s32>.<s64|u64> $R,$d,$d",
    "add.cc.u64 #d1,$d,$d; addc.u64 $D,#d1,$d",
    "sub.cc.u64 #d1,$d,$d; subc.cc.u64 #d2,$d,#d1; subc.u64 $D,#d2,$d",
    "mov.b64 $D,{$=r,$=r}",
    "mov.b64 {$R,#r1},$=d",
    "mov.b64 $D,$d",
    "cvt.<u64|s64>.<u8|s8|u32|s32> $D,$=r",
    "cvt.sat.u64.<s8|s32> $D,$=r",
    "cvt.<u64|s64>.<u16|s16> $D,$=h",
    "cvt.sat.<u64.s64|s64.u64> $D,$=d",
    "cvt.<rni|rzi|rmi|rpi><|.ftz>.<u64|s64>.f32 $D,$=f",
    "cvt.<rni|rzi|rmi|rpi>.<u64|s64>.f64 $D,$=e",
    "cvt.<rni|rzi|rmi|rpi>.<u64|s64>.f16 $D,$=g",
    "cvt.u64.u32 #d1,$=r; shl.b64 #d2,#d1,~40; add.s64 $D,$d,#d2",
    "cvt.s64.s32 #d1,$=r; add.s64 $D,$d,#d1",
    "cvt.u64.u32 #d1,$=r; cvt.u64.u32 #d2,$=r; <mul.lo.u64|mul.hi.s64> $D,#d1,#d2",
];

/// 16 bits.
pub const SHORT: &[&str] = &[
    "<add|sub>.<s16|u16> $H,$h,$h",
    "mul.<lo|hi>.<s16|u16> $H,$h,$h",
    "mad.lo.<s16|u16> $H,$h,$h,$h",
    "<min|max>.<s16|u16> $H,$h,$h",
    "<abs|neg>.s16 $H,$=h",
    "or.b16 #h1,$=h,1; <div|rem>.u16 $H,$h,#h1",
    "and.b16 #h2,$=h,255; or.b16 #h1,#h2,1; <div|rem>.s16 $H,$h,#h1",
    "<and|or|xor>.b16 $H,$h,$h",
    "<not|cnot>.b16 $H,$=h",
    "<shl.b16|shr.u16|shr.s16> $H,$h,$s",
    "sad.<s16|u16> $H,$h,$h,$h",
    "selp.b16 $H,$h,$h,$=p",
    "slct.b16.s32 $H,$h,$h,$=r",
    "mov.b32 {$H,#h1},$=r",
    "mov.b64 {#h1,#h2,$H,#h3},$=d",
    "mov.b64 $D,{$=h,$=h,$=h,$=h}",
    "mov.b16 $H,$h",
    "cvt.<u8|s8|u16|s16>.<u8|s8|u32|s32> $H,$=r",
    "cvt.sat.<u8|s8|u16|s16>.<u32|s32> $H,$=r",
    "cvt.sat.<u8.s8|s8.u8|u16.s8> $H,$=r",
    "cvt.<u16|s16>.<u64|s64> $H,$=d",
    "cvt.sat.<u16|s16>.<u64|s64> $H,$=d",
    "cvt.<rni|rzi|rmi|rpi>.<u16|s16>.f32 $H,$=f",
    "cvt.<rni|rzi|rmi|rpi>.<u16|s16>.f16 $H,$=g",
    "set.<lt|ge>.<u32|s32>.<s16|u16> #r1,$h,$h; mov.b32 $R,#r1",
];

/// f32.
pub const FLOAT: &[&str] = &[
    "<add|sub|mul>.<rn|rz|rm|rp><|.ftz><|.sat>.f32 $F,$f,$f",
    "<add|sub|mul>.rn.f32 $F,$f,$f",
    "fma.<rn|rz|rm|rp><|.ftz><|.sat>.f32 $F,$f,$f,$f",
    "fma.rn.f32 $F,$f,$f,$f",
    "<min|max><|.ftz><|.NaN>.f32 $F,$f,$f",
    "<abs|neg><|.ftz>.f32 $F,$=f",
    "div.rn<|.ftz>.f32 $F,$f,$f",
    "rcp.rn<|.ftz>.f32 $F,$=f",
    "sqrt.rn<|.ftz>.f32 $F,$=f",
    "cvt.rn.f32.s32 #f1,$=r; copysign.f32 $F,#f1,$f",
    "cvt.rn.f32.s32 #f1,$=r; cvt.rn.f32.s32 #f2,$=r; <min|max>.xorsign.abs.f32 $F,#f1,#f2",
    "selp.f32 $F,$f,$f,$=p",
    "slct.f32.<s32 $F,$f,$f,$=r|f32 $F,$f,$f,$=f>",
    "mov.f32 $F,$f",
    "mov.b32 $F,$=r",
    "cvt.<rni|rzi|rmi|rpi><|.ftz><|.sat>.f32.f32 $F,$=f",
    "cvt<|.ftz><|.sat>.f32.f32 $F,$=f",
    "cvt.<rn|rz|rm|rp>.f32.<u8|s8|u32|s32> $F,$=r",
    "cvt.<rn|rz|rm|rp>.f32.<u16|s16> $F,$=h",
    "cvt.<rn|rz|rm|rp>.f32.<u64|s64> $F,$=d",
    "cvt.<rn|rz|rm|rp>.f32.f64 $F,$=e",
    "cvt.f32.f16 $F,$=g",
    "cvt.f32.bf16 $F,$=k",
    "set.<lt|ge|equ|num>.f32.f32 #f1,$f,$f; mov.f32 $F,#f1",
    "set.<lt|ge|ne>.f32.<s32|u32> #f1,$r,$r; mov.f32 $F,#f1",
];

/// f64.
pub const DOUBLE: &[&str] = &[
    "<add|sub|mul>.<rn|rz|rm|rp>.f64 $E,$e,$e",
    "fma.<rn|rz|rm|rp>.f64 $E,$e,$e,$e",
    "<min|max>.f64 $E,$e,$e",
    "<abs|neg>.f64 $E,$=e",
    "or.b32 #r1,$=r,1; cvt.rn.f64.s32 #e1,#r1; cvt.rn.f64.u32 #e2,$=r; div.rn.f64 $E,#e2,#e1",
    "or.b32 #r1,$=r,1; cvt.rn.f64.s32 #e1,#r1; rcp.rn.f64 $E,#e1",
    "cvt.rn.f64.u32 #e1,$=r; sqrt.rn.f64 $E,#e1",
    "selp.f64 $E,$e,$e,$=p",
    "slct.f64.s32 $E,$e,$e,$=r",
    "mov.b64 $E,$=d",
    "mov.f64 $E,$e",
    "cvt.rn.f64.<u8|s8|u32|s32> $E,$=r",
    "cvt.rn.f64.<u16|s16> $E,$=h",
    "cvt.<rn|rz|rm|rp>.f64.<u64|s64> $E,$=d",
    "cvt<|.ftz>.f64.f32 $E,$=f",
    "cvt.f64.f16 $E,$=g",
    "cvt.<rni|rzi|rmi|rpi>.f64.f64 $E,$=e",
    "set.<lt|ge|neu|nan>.<u32|s32>.f64 $R,$e,$e",
];

/// Halves, pairs of them, eights.
pub const HALF: &[&str] = &[
    "<add|sub|mul>.rn<|.ftz><|.sat>.f16x2 $X,$=x,$=x",
    "fma.rn<|.ftz><|.sat|.relu>.f16x2 $X,$=x,$=x,$=x",
    "<min|max><|.ftz><|.NaN>.f16x2 $X,$=x,$=x",
    "<abs|neg><|.ftz>.f16x2 $X,$=x",
    "<add|sub|mul>.rn<|.ftz><|.sat>.f16 $G,$=g,$=g",
    "fma.rn<|.ftz><|.sat|.relu>.f16 $G,$=g,$=g,$=g",
    "<min|max><|.ftz><|.NaN>.f16 $G,$=g,$=g",
    "<abs|neg>.f16 $G,$=g",
    "<add|sub|mul>.rn.bf16x2 $Y,$=y,$=y",
    "fma.rn<|.relu>.bf16x2 $Y,$=y,$=y,$=y",
    "<min|max><|.NaN>.bf16x2 $Y,$=y,$=y",
    "<abs|neg>.bf16x2 $Y,$=y",
    "<add|sub|mul>.rn.bf16 $K,$=k,$=k",
    "fma.rn<|.relu>.bf16 $K,$=k,$=k,$=k",
    "<min|max><|.NaN>.bf16 $K,$=k,$=k",
    "mov.b32 $X,{$=g,$=g}",
    "mov.b32 {$G,#g1},$=x",
    "mov.b32 {#g1,$G},$=x",
    "mov.b32 $Y,{$=k,$=k}",
    "mov.b32 {#k1,$K},$=y",
    "mov.b32 $X,$=r",
    "mov.b32 $Y,$=r",
    "mov.b16 $G,$=h",
    "mov.b16 $K,$=h",
    "cvt.<rn|rz><|.relu>.f16x2.f32 $X,$=f,$=f",
    "cvt.<rn|rz><|.relu>.bf16x2.f32 $Y,$=f,$=f",
    "cvt.<rn|rz|rm|rp>.f16.f32 $G,$=f",
    "cvt.rn.relu.f16.f32 $G,$=f",
    "cvt.<rn|rz>.bf16.f32 $K,$=f",
    "cvt.rn.f16.f64 $G,$=e",
    "cvt.<rn|rz|rm|rp>.f16.<u8|s8|u32|s32> $G,$=r",
    "cvt.<rn|rz>.f16.<u16|s16> $G,$=h",
    "cvt.rn.f16.<u64|s64> $G,$=d",
    "cvt.rn.bf16.<u32|s32> $K,$=r",
    "cvt.<rni|rzi|rmi|rpi>.f16.f16 $G,$=g",
    "cvt.rn.f32.s32 #f1,$=r; cvt.rn.f32.s32 #f2,$=r; cvt.rn.satfinite<|.relu>.<e4m3x2|e5m2x2>.f32 $H,#f1,#f2",
    "cvt.rn<|.relu>.f16x2.<e4m3x2|e5m2x2> $X,$=h",
    "selp.b32 $X,$=x,$=x,$=p",
    "selp.b16 $G,$=g,$=g,$=p",
    "cvt.rn.f32.s32 #f1,$=r; cvt.rna.tf32.f32 $R,#f1",
];

/// Predicates.
pub const TRUTH: &[&str] = &[
    "setp.<eq|ne|lt|le|gt|ge>.<s32|u32> $P,$r,$r",
    "setp.<lo|ls|hi|hs>.u32 $P,$r,$r",
    "setp.<eq|ne>.b32 $P,$r,$r",
    "setp.<eq|ne|lt|le|gt|ge>.<s64|u64> $P,$d,$d",
    "setp.<eq|ne|lt|le|gt|ge>.<s16|u16> $P,$h,$h",
    "setp.<eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan><|.ftz>.f32 $P,$f,$f",
    "setp.<eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan>.f64 $P,$e,$e",
    "setp.<eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan>.f16 $P,$=g,$=g",
    "setp.<eq|ne|lt|ge|neu|ltu|nan>.bf16 $P,$=k,$=k",
    "setp.<eq|ne|lt|ge|neu|ltu|num>.f16x2 $P|#p1,$=x,$=x",
    "setp.<lt|ge|eq>.<and|or|xor>.<s32|u32> $P,$r,$r,<|!>$=p",
    "setp.<lt|ge|eq>.<and|or|xor>.<s64|u64> $P,$d,$d,<|!>$=p",
    "setp.<lt|ge|neu>.<and|or|xor>.f32 $P,$f,$f,<|!>$=p",
    "setp.<lt|ge>.<and|or>.<s16|u16> $P,$h,$h,<|!>$=p",
    "setp.<lt|ge|ne>.<s32|u32> $P|#p1,$r,$r",
    "setp.<lt|ge|ne>.<and|or|xor>.<s32|u32> $P|#p1,$r,$r,<|!>$=p",
    "setp.<lt|geu>.<and|or|xor>.f64 $P|#p1,$e,$e,<|!>$=p",
    "<and|or|xor>.pred $P,$=p,$=p",
    "not.pred $P,$=p",
    "mov.pred $P,$=p",
    "testp.<finite|infinite|number|notanumber|normal|subnormal>.f32 #p1,$=f; mov.pred $P,#p1",
    "testp.<finite|infinite|number|notanumber|normal|subnormal>.f64 #p1,$=e; mov.pred $P,#p1",
];

/// Floats become words.
pub const LEAVE: &[&str] = &[
    "mov.b32 #r1,$=f; setp.nan.f32 #p1,&0,&0; selp.b32 $R,0x7fffffff,#r1,#p1",
    "mov.b64 #d1,$=e; setp.nan.f64 #p1,&0,&0; selp.b64 $D,0x7fffffffffffffff,#d1,#p1",
    "cvt.f32.f16 #f1,$=g; setp.nan.f32 #p1,#f1,#f1; mov.b32 #r1,#f1; selp.b32 $R,0x7fffffff,#r1,#p1",
    "cvt.f32.bf16 #f1,$=k; setp.nan.f32 #p1,#f1,#f1; mov.b32 #r1,#f1; selp.b32 $R,0x7fffffff,#r1,#p1",
    "mov.b32 {#g1,#g2},$=x; cvt.f32.f16 #f1,#g2; setp.nan.f32 #p1,#f1,#f1; mov.b32 #r1,#f1; selp.b32 $R,0x7fffffff,#r1,#p1",
];

/// Where all threads are together: what they exchange. `MASK` is all of them, or those that took the same path.
pub const WARP: &[&str] = &[
    "vote.sync.<all|any|uni>.pred $P,<|!>$=p,MASK",
    "vote.sync.ballot.b32 $R,<|!>$=p,MASK",
    "match.any.sync.b32 $R,$=r,MASK",
    "match.any.sync.b64 $R,$=d,MASK",
    "match.all.sync.<b32> $R|#p1,$=r,MASK",
    "match.all.sync.b64 $R|#p1,$=d,MASK",
    "redux.sync.<add|min|max>.<s32|u32> $R,$=r,MASK",
    "redux.sync.<and|or|xor>.b32 $R,$=r,MASK",
];

/// The same where really all are there.
pub const BLOCK: &[&str] = &[
    "shfl.sync.<down|bfly|idx>.b32 $R,$=r,$s,<31|7199|4127|6175>,-1",
    "shfl.sync.up.b32 $R,$=r,$s,<0|7168|6144>,-1",
    "shfl.sync.<idx|bfly>.b32 $R|#p1,$=r,$=r,$=r,-1",
    "bar.sync 0; mov.u32 #r1,sm; mad.lo.u32 #r2,%t,4,#r1; st.shared.b32 [#r2],$=r; bar.sync 0; xor.b32 #r3,%t,~64; mad.lo.u32 #r4,#r3,4,#r1; ld.shared.b32 $R,[#r4]",
    "bar.sync 0; mov.u32 #r1,sm; shl.b32 #r5,%t,1; add.u32 #r2,#r5,#r1; st.shared.b16 [#r2],$=h; bar.sync 0; xor.b32 #r3,%t,~64; shl.b32 #r6,#r3,1; add.u32 #r4,#r6,#r1; ld.shared.<u16|s16> $R,[#r4]",
    "barrier.sync 1; mov.b32 $R,$=r",
    "bar.red.popc.u32 $R,0,<|!>$=p",
    "bar.red.<and|or>.pred $P,0,<|!>$=p",
];

/// Shared counters whose value at the end does not depend on the order, and words of a thread's own.
pub const ATOMIC: &[&str] = &[
    "<red|red|atom>.global.add.u32 ACC[%a],$=r",
    "red.global.and.b32 [%a+4],$=r",
    "red.global.or.b32 [%a+8],$=r",
    "red.global.xor.b32 [%a+12],$=r",
    "red.relaxed.gpu.global.min.s32 [%a+16],$=r",
    "red.global.max.u32 [%a+20],$=r",
    "red.global.add.u64 [%a+24],$=d",
    "red.global.max.s64 [%a+32],$=d",
    "red.global.min.u64 [%a+40],$=d",
    "red.global.or.b64 [%a+48],$=d",
    "red.shared.add.u32 [%v],$=r",
    "red.shared.xor.b32 [%v+4],$=r",
    "red.shared.min.s32 [%v+8],$=r",
    "red.shared.max.u32 [%v+12],$=r",
    "red.shared.or.b32 [%v+20],$=r",
    "red.shared.add.u64 [%v+24],$=d",
    "red.shared.max.s64 [%v+32],$=d",
    "red.shared.xor.b64 [%v+40],$=d",
    "atom.<global>.<add.u32|min.s32|max.u32|and.b32|or.b32|xor.b32|exch.b32|inc.u32|dec.u32> $R,[%o+~4*],$=r",
    "atom.shared.<add.u32|min.s32|max.u32|and.b32|or.b32|xor.b32|exch.b32|inc.u32|dec.u32> $R,[%s+~4*],$=r",
    "atom.<global.cas.b32 $R,[%o+~4*],$=r,$=r|shared.cas.b32 $R,[%s+~4*],$=r,$=r>",
    "atom.<global.cas.b64 $D,[%o+16],$=d,$=d|shared.cas.b64 $D,[%s+16],$=d,$=d>",
    "atom.<global.exch.b64 $D,[%o+24],$=d|shared.exch.b64 $D,[%s+24],$=d>",
    "atom.<global.add.u64 $D,[%o+32],$=d|shared.add.u64 $D,[%s+32],$=d>",
    "atom.<global.min.s64 $D,[%o+32],$=d|shared.max.u64 $D,[%s+32],$=d>",
    "cvt.rn.f32.s32 #f1,$=r; st.global.f32 [%o+48],#f1; cvt.rn.f32.s32 #f2,$=r; atom.global.add.f32 $F,[%o+48],#f2",
    "cvt.rn.f32.s32 #f1,$=r; st.shared.f32 [%s+48],#f1; cvt.rn.f32.s32 #f2,$=r; atom.shared.add.f32 $F,[%s+48],#f2",
    "cvt.rn.f64.s32 #e1,$=r; st.global.f64 [%o+56],#e1; cvt.rn.f64.s32 #e2,$=r; atom.global.add.f64 $E,[%o+56],#e2",
];
