//! Conversions. Floats outside an integer type's range give what the hardware gives.

use super::{Lane, Render, Res};
use doorbell_uop::{Scalar, UOp};

impl Render<'_> {
    pub(super) fn cast(&mut self, u: &UOp, from: Scalar, to: Scalar, x: &Lane) -> Res<Lane> {
        use Scalar::{BF16, Bool};
        self.has_type(u, from)?;
        self.has_type(u, to)?;
        let name = self.type_name(to);
        let text = match (from, to) {
            (a, b) if a == b => return Ok(x.clone()),
            (BF16, to) => {
                let wide = self.bfloat_to_float(x);
                match to {
                    Scalar::F32 => wide,
                    Bool => format!("{wide} != 0.0f"),
                    _ => format!("{name}({wide})"),
                }
            }
            (from, BF16) => {
                let wide = if from == Scalar::F32 { x.to_string() } else { format!("float({x})") };
                self.float_to_bfloat(&wide)
            }
            (_, Bool) => format!("{x} != {}(0)", self.type_name(from)),
            // Through int, which wraps around as the other targets do.
            (from, to) if from.is_float() && to.is_int() && to.size_bytes() < 4 => format!("{name}(int({x}))"),
            _ => format!("{name}({x})"),
        };
        Ok(self.named(to, &text))
    }

    /// The bits as another type of the same size.
    pub(super) fn bitcast(&mut self, u: &UOp, from: Scalar, to: Scalar, x: &Lane) -> Res<Lane> {
        self.has_type(u, from)?;
        self.has_type(u, to)?;
        if from.size_bytes() != to.size_bytes() {
            return Err(self.unsupported(u));
        }
        let text = match (from, to) {
            (Scalar::Bool, Scalar::Bool) => x.to_string(),
            (Scalar::Bool, _) => format!("{}({x})", self.type_name(to)),
            (_, Scalar::Bool) => format!("{x} != {}(0)", self.type_name(from)),
            _ if self.type_name(from) == self.type_name(to) => x.to_string(),
            _ => format!("as_type<{}>({x})", self.type_name(to)),
        };
        Ok(self.named(to, &text))
    }

    /// Exact.
    pub(super) fn bfloat_to_float(&mut self, x: &Lane) -> String {
        if self.family.has_bfloat() {
            return format!("float({x})");
        }
        self.uses_bfloat_bits = true;
        format!("bfloat_to_float({x})")
    }

    /// To the nearest, halves to even.
    fn float_to_bfloat(&mut self, x: &str) -> String {
        if self.family.has_bfloat() {
            return format!("bfloat({x})");
        }
        self.uses_bfloat_bits = true;
        format!("float_to_bfloat({x})")
    }
}
