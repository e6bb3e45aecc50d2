//! Names of types, literals, and the file around the statements.

use super::{Lane, Render, RenderError, Res};
use doorbell_uop::{ConstVal, Scalar, UOp, to_bits};
use std::fmt;

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lane::Value(n) => write!(f, "v{n}"),
            Lane::Variable(n) => write!(f, "r{n}"),
            Lane::Text(text) => f.write_str(text),
        }
    }
}

/// Functions for bfloat values where the language lacks the type: they are kept as their bits.
const BFLOAT_BITS: &str = "\
static inline float bfloat_to_float(ushort x) { return as_type<float>(uint(x) << 16); }
static inline ushort float_to_bfloat(float x) {
    const uint bits = as_type<uint>(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return ushort((bits >> 16) | 0x40u);
    return ushort((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
";

impl Render<'_> {
    /// The type of a value.
    pub(super) fn type_name(&self, t: Scalar) -> &'static str {
        match t {
            Scalar::Bool => "bool",
            Scalar::I8 => "char",
            Scalar::I16 => "short",
            Scalar::U16 => "ushort",
            Scalar::I32 => "int",
            Scalar::U32 => "uint",
            Scalar::I64 => "long",
            Scalar::U64 => "ulong",
            Scalar::F16 => "half",
            Scalar::BF16 if self.family.has_bfloat() => "bfloat",
            Scalar::BF16 => "ushort",
            Scalar::F32 => "float",
            // Bytes; f64 and weak types are refused where they come in.
            _ => "uchar",
        }
    }

    /// The type of an element in memory: a truth value is a byte there.
    pub(super) fn memory_type(&self, t: Scalar) -> &'static str {
        if t == Scalar::Bool { "uchar" } else { self.type_name(t) }
    }

    /// Refuses what the language has no type for.
    pub(super) fn has_type(&self, u: &UOp, t: Scalar) -> Res<()> {
        if t == Scalar::F64 || t.is_weak() { Err(self.unsupported(u)) } else { Ok(()) }
    }

    pub(super) fn literal(&self, u: &UOp, c: ConstVal) -> Res<String> {
        let t = u.dtype().scalar;
        self.has_type(u, t)?;
        let bits = to_bits(c, t);
        let signed = (bits << (64 - 8 * t.size_bytes())).cast_signed() >> (64 - 8 * t.size_bytes());
        Ok(match t {
            Scalar::Bool => (if bits == 0 { "false" } else { "true" }).into(),
            Scalar::F32 => float(f32::from_bits(bits as u32)),
            Scalar::F16 => format!("as_type<half>(ushort({bits:#x}))"),
            Scalar::BF16 if self.family.has_bfloat() => format!("as_type<bfloat>(ushort({bits:#x}))"),
            Scalar::BF16 => format!("ushort({bits:#x})"),
            Scalar::I32 if signed == i64::from(i32::MIN) => "(-2147483647 - 1)".into(),
            Scalar::I32 if signed < 0 => format!("({signed})"),
            Scalar::I32 => signed.to_string(),
            Scalar::U32 => format!("{bits}u"),
            Scalar::I64 if signed == i64::MIN => "(-9223372036854775807l - 1)".into(),
            Scalar::I64 => format!("({signed}l)"),
            Scalar::U64 => format!("{bits}ul"),
            t if t.is_signed() => format!("{}({signed})", self.type_name(t)),
            t => format!("{}({bits})", self.type_name(t)),
        })
    }

    /// The whole text.
    pub(super) fn file(self) -> Result<String, RenderError> {
        let p = self.program;
        let mut out = String::from("#include <metal_stdlib>\nusing namespace metal;\n");
        if !p.fast_math {
            out += "#pragma METAL fp math_mode(safe)\n#pragma METAL fp contract(off)\n";
        }
        if self.uses_bfloat_bits {
            out += BFLOAT_BITS;
        }
        let mut arguments = Vec::new();
        for (k, param) in p.params.iter().enumerate() {
            if param.dtype.scalar == Scalar::F64 {
                let (kernel, dtype) = (p.name.clone(), param.dtype);
                return Err(RenderError::Unsupported { kernel, op: doorbell_uop::Op::Param, dtype });
            }
            let (t, constant) = (self.memory_type(param.dtype.scalar), if param.written { "" } else { "const " });
            arguments.push(format!("device {constant}{t}* data{k} [[buffer({k})]]"));
        }
        for (k, var) in p.vars.iter().enumerate() {
            let slot = p.params.len() + k;
            arguments.push(format!("constant {}& n{k} [[buffer({slot})]]", self.type_name(var.dtype().scalar)));
        }
        arguments.push("uint3 gid [[threadgroup_position_in_grid]]".into());
        arguments.push("uint3 lid [[thread_position_in_threadgroup]]".into());
        let threads: u32 = p.local.iter().product();
        out += &format!("[[max_total_threads_per_threadgroup({threads})]]\nkernel void {}(\n    ", p.name);
        out += &arguments.join(",\n    ");
        out += ") {\n";
        out += &self.body;
        out += "}\n";
        Ok(out)
    }
}

/// A literal of type float: exact, by bits where it is not finite.
fn float(x: f32) -> String {
    match x {
        x if !x.is_finite() => format!("as_type<float>({:#x}u)", x.to_bits()),
        x if x.is_sign_negative() => format!("({x:?}f)"),
        x => format!("{x:?}f"),
    }
}
