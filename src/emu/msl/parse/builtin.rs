//! The functions of `metal_stdlib` that compute: names, argument types, result types.

use super::Parser;
use crate::error::{Pos, Res, fail};
use crate::tree::{Expr, Kind};
use crate::types::{Scalar, Tid, Ty, Types};
use std::rc::Rc;

/// What a function takes and returns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Floats of one type to the same type.
    Float(u8),
    /// Any arithmetic type.
    Any(u8),
    Int(u8),
    /// A float to bool.
    Test,
    /// Float vectors to their scalar.
    Fold(u8),
    /// Float vectors to a vector.
    Vector(u8),
    /// A bool vector to bool.
    Bools,
    /// Two values and a bool.
    Select,
    /// A float and an int.
    Ldexp,
    /// A float and a place for a float.
    Split,
    /// A float and a place for an int.
    Frexp,
    Ilogb,
    /// Integer, then unsigned positions.
    Bits(u8),
}

#[rustfmt::skip]
const FUNCTIONS: &[(&str, Form)] = &[
    ("sin", Form::Float(1)), ("cos", Form::Float(1)), ("tan", Form::Float(1)),
    ("asin", Form::Float(1)), ("acos", Form::Float(1)), ("atan", Form::Float(1)),
    ("sinh", Form::Float(1)), ("cosh", Form::Float(1)), ("tanh", Form::Float(1)),
    ("asinh", Form::Float(1)), ("acosh", Form::Float(1)), ("atanh", Form::Float(1)),
    ("sinpi", Form::Float(1)), ("cospi", Form::Float(1)), ("tanpi", Form::Float(1)),
    ("exp", Form::Float(1)), ("exp2", Form::Float(1)), ("exp10", Form::Float(1)),
    ("log", Form::Float(1)), ("log2", Form::Float(1)), ("log10", Form::Float(1)),
    ("sqrt", Form::Float(1)), ("rsqrt", Form::Float(1)), ("fabs", Form::Float(1)),
    ("floor", Form::Float(1)), ("ceil", Form::Float(1)), ("round", Form::Float(1)), ("rint", Form::Float(1)),
    ("trunc", Form::Float(1)), ("fract", Form::Float(1)), ("sign", Form::Float(1)), ("saturate", Form::Float(1)),
    ("pow", Form::Float(2)), ("powr", Form::Float(2)), ("atan2", Form::Float(2)), ("fmod", Form::Float(2)),
    ("fmin", Form::Float(2)), ("fmax", Form::Float(2)), ("copysign", Form::Float(2)), ("fdim", Form::Float(2)),
    ("step", Form::Float(2)), ("nextafter", Form::Float(2)), ("divide", Form::Float(2)),
    ("fma", Form::Float(3)), ("mix", Form::Float(3)), ("smoothstep", Form::Float(3)),
    ("fmin3", Form::Float(3)), ("fmax3", Form::Float(3)), ("fmedian3", Form::Float(3)),
    ("min", Form::Any(2)), ("max", Form::Any(2)), ("clamp", Form::Any(3)), ("abs", Form::Any(1)),
    ("min3", Form::Any(3)), ("max3", Form::Any(3)), ("median3", Form::Any(3)),
    ("isnan", Form::Test), ("isinf", Form::Test), ("isfinite", Form::Test), ("isnormal", Form::Test),
    ("signbit", Form::Test),
    ("dot", Form::Fold(2)), ("distance", Form::Fold(2)), ("distance_squared", Form::Fold(2)),
    ("length", Form::Fold(1)), ("length_squared", Form::Fold(1)),
    ("normalize", Form::Vector(1)), ("cross", Form::Vector(2)), ("reflect", Form::Vector(2)),
    ("any", Form::Bools), ("all", Form::Bools), ("select", Form::Select),
    ("popcount", Form::Int(1)), ("clz", Form::Int(1)), ("ctz", Form::Int(1)), ("reverse_bits", Form::Int(1)),
    ("rotate", Form::Int(2)), ("mulhi", Form::Int(2)), ("absdiff", Form::Int(2)), ("hadd", Form::Int(2)),
    ("rhadd", Form::Int(2)), ("addsat", Form::Int(2)), ("subsat", Form::Int(2)), ("mul24", Form::Int(2)),
    ("madhi", Form::Int(3)), ("mad24", Form::Int(3)), ("madsat", Form::Int(3)),
    ("extract_bits", Form::Bits(1)), ("insert_bits", Form::Bits(2)),
    ("ldexp", Form::Ldexp), ("modf", Form::Split), ("sincos", Form::Split), ("frexp", Form::Frexp),
    ("ilogb", Form::Ilogb),
];

pub(super) fn is_builtin(name: &str) -> bool {
    FUNCTIONS.iter().any(|(n, _)| *n == name) || super::builtin_sync::name_of(name).is_some()
}

impl Parser {
    pub(crate) fn builtin(&mut self, word: &Rc<str>, args: Vec<Expr>, at: Pos) -> Res<Expr> {
        if let Some(name) = super::builtin_sync::name_of(word) {
            return self.sync_builtin(name, args, at);
        }
        let Some(&(name, form)) = FUNCTIONS.iter().find(|(n, _)| **n == **word) else {
            return fail(at, format!("use of undeclared identifier '{word}'"));
        };
        let counts = match form {
            Form::Float(n) | Form::Any(n) | Form::Int(n) | Form::Fold(n) | Form::Vector(n) => n,
            Form::Test | Form::Bools | Form::Ilogb => 1,
            Form::Select => 3,
            Form::Ldexp | Form::Split | Form::Frexp => 2,
            Form::Bits(n) => n + 2,
        };
        if args.len() != counts as usize {
            return self.no_match(name, &args, at);
        }
        match form {
            Form::Float(_) | Form::Any(_) | Form::Int(_) | Form::Vector(_) => self.plain(name, form, args, at),
            Form::Test | Form::Fold(_) | Form::Ilogb => self.folded(name, form, args, at),
            Form::Bools => self.bools(name, args, at),
            Form::Select => self.select(name, args, at),
            Form::Ldexp | Form::Split | Form::Frexp => self.two_parts(name, form, args, at),
            Form::Bits(values) => self.bit_field(name, values as usize, args, at),
        }
    }

    pub(crate) fn no_match<T>(&self, name: &str, args: &[Expr], at: Pos) -> Res<T> {
        let shown: Vec<String> = args.iter().map(|a| self.types.name(a.ty)).collect();
        fail(at, format!("no matching function for call to '{name}' with ({})", shown.join(", ")))
    }

    /// The one type that all arguments have in common, as overload resolution would find it.
    fn general(&mut self, name: &str, floats: bool, args: &[Expr], at: Pos) -> Res<Tid> {
        let mut lanes = 1;
        let mut kinds: Vec<Scalar> = Vec::new();
        for arg in args {
            let Some((scalar, n)) = self.types.arith(arg.ty) else { return self.no_match(name, args, at) };
            if n > 1 && lanes > 1 && n != lanes {
                return self.no_match(name, args, at);
            }
            lanes = lanes.max(n);
            let scalar = match scalar {
                // There are no overloads for these; they promote to what there is.
                Scalar::BFloat => Scalar::Float,
                Scalar::Bool => Scalar::Int,
                other => other,
            };
            let follows = floats && scalar.is_int() && n == 1;
            if !follows && !kinds.contains(&scalar) {
                kinds.push(scalar);
            }
        }
        match kinds[..] {
            [scalar] if !floats || scalar.is_float() => Ok(self.types.vec(scalar, lanes)),
            [_] => self.no_match(name, args, at),
            _ => {
                let shown: Vec<String> = args.iter().map(|a| self.types.name(a.ty)).collect();
                fail(at, format!("call to '{name}' is ambiguous: ({})", shown.join(", ")))
            }
        }
    }

    fn all_to(&mut self, args: Vec<Expr>, ty: Tid, name: &str) -> Res<Vec<Expr>> {
        let mut made = Vec::new();
        for arg in args {
            let Some((_, lanes)) = self.types.arith(arg.ty) else { return self.no_match(name, &[arg], Pos::default()) };
            let vector_up = lanes > 1 && matches!(self.types.arith(arg.ty), Some((Scalar::BFloat, _)));
            made.push(if vector_up { self.explicit(arg, ty, Pos::default())? } else { self.implicit(arg, ty, name)? });
        }
        Ok(made)
    }

    fn plain(&mut self, name: &'static str, form: Form, args: Vec<Expr>, at: Pos) -> Res<Expr> {
        let floats = matches!(form, Form::Float(_) | Form::Vector(_));
        let ty = self.general(name, floats, &args, at)?;
        let (scalar, lanes) = self.types.arith(ty).unwrap_or((Scalar::Int, 1));
        let vector = matches!(form, Form::Vector(_));
        let fits = match form {
            Form::Int(_) => scalar.is_int(),
            _ if name == "cross" => lanes == 3,
            _ if vector => lanes > 1,
            _ => true,
        };
        if !fits {
            return self.no_match(name, &args, at);
        }
        let args = self.all_to(args, ty, name)?;
        self.value(Kind::Builtin(name, args), ty, at)
    }

    fn folded(&mut self, name: &'static str, form: Form, args: Vec<Expr>, at: Pos) -> Res<Expr> {
        let ty = self.general(name, true, &args, at)?;
        let (scalar, lanes) = self.types.arith(ty).unwrap_or((Scalar::Float, 1));
        if matches!(form, Form::Fold(_)) && lanes == 1 {
            return self.no_match(name, &args, at);
        }
        let args = self.all_to(args, ty, name)?;
        let made = match form {
            Form::Test => self.types.vec(Scalar::Bool, lanes),
            Form::Ilogb => self.types.vec(Scalar::Int, lanes),
            _ => Types::scalar_id(scalar),
        };
        self.value(Kind::Builtin(name, args), made, at)
    }

    fn bools(&mut self, name: &'static str, args: Vec<Expr>, at: Pos) -> Res<Expr> {
        match self.types.get(args[0].ty) {
            Ty::Vec(Scalar::Bool, _) | Ty::Scalar(Scalar::Bool) => {
                self.value(Kind::Builtin(name, args), Types::scalar_id(Scalar::Bool), at)
            }
            _ => self.no_match(name, &args, at),
        }
    }

    /// `select(a, b, c)`: b where c.
    fn select(&mut self, name: &'static str, mut args: Vec<Expr>, at: Pos) -> Res<Expr> {
        let Some((scalar, lanes)) = self.types.arith(args[2].ty) else { return self.no_match(name, &args, at) };
        if scalar.is_float() {
            return self.no_match(name, &args, at);
        }
        let test = args.remove(2);
        let values = if args[0].ty == args[1].ty { args[0].ty } else { self.general(name, false, &args, at)? };
        let (kind, own) = self.types.arith(values).unwrap_or((Scalar::Int, 0));
        if own != lanes && own != 1 {
            args.push(test);
            return self.no_match(name, &args, at);
        }
        let ty = self.types.vec(kind, lanes);
        let mut args = self.all_to(args, ty, name)?;
        let bools = self.types.vec(Scalar::Bool, lanes);
        let test = self.explicit(test, bools, at)?;
        args.push(test);
        self.value(Kind::Builtin(name, args), ty, at)
    }

    /// Functions with a second argument, or a second result, of another type.
    fn two_parts(&mut self, name: &'static str, form: Form, mut args: Vec<Expr>, at: Pos) -> Res<Expr> {
        let second = args.remove(1);
        let ty = self.general(name, true, &args, at)?;
        let (_, lanes) = self.types.arith(ty).unwrap_or((Scalar::Float, 1));
        let other = if form == Form::Split { ty } else { self.types.vec(Scalar::Int, lanes) };
        let mut args = self.all_to(args, ty, name)?;
        let second = if form == Form::Ldexp {
            self.implicit(second, other, name)?
        } else {
            let lv = self.assignable(&second, at)?;
            if second.ty != other || lv.space != crate::types::Space::Thread {
                args.push(second);
                return self.no_match(name, &args, at);
            }
            second
        };
        args.push(second);
        self.value(Kind::Builtin(name, args), ty, at)
    }

    fn bit_field(&mut self, name: &'static str, values: usize, mut args: Vec<Expr>, at: Pos) -> Res<Expr> {
        let tail = args.split_off(values);
        let ty = self.general(name, false, &args, at)?;
        if !matches!(
            self.types.arith(ty),
            Some((Scalar::Int | Scalar::UInt | Scalar::Short | Scalar::UShort | Scalar::Char | Scalar::UChar, _))
        ) {
            return self.no_match(name, &args, at);
        }
        let mut args = self.all_to(args, ty, name)?;
        for arg in tail {
            args.push(self.implicit(arg, Types::scalar_id(Scalar::UInt), name)?);
        }
        self.value(Kind::Builtin(name, args), ty, at)
    }
}
