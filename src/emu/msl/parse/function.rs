//! Functions and kernels: attributes, parameters, bodies.

use super::types::Declared;
use super::{Candidate, Context, Entry, Parser};
use crate::error::{Pos, Res, fail};
use crate::lex::Tok;
use crate::tree::{Attribute, FnId, Function, Position, Var};
use crate::types::{Scalar, Space, Tid, Ty, Types};
use std::collections::HashMap;
use std::rc::Rc;

/// What stands before a function's type.
#[derive(Default)]
pub(crate) struct Traits {
    pub kernel: bool,
    pub host_name: Option<Rc<str>>,
    pub max_threads: Option<u32>,
}

fn position(word: &str) -> Option<Position> {
    Some(match word {
        "thread_position_in_grid" => Position::ThreadInGrid,
        "thread_position_in_threadgroup" => Position::ThreadInGroup,
        "threadgroup_position_in_grid" => Position::GroupInGrid,
        "threads_per_threadgroup" | "dispatch_threads_per_threadgroup" => Position::ThreadsPerGroup,
        "threadgroups_per_grid" => Position::GroupsPerGrid,
        "threads_per_grid" => Position::ThreadsPerGrid,
        "thread_index_in_threadgroup" => Position::IndexInGroup,
        "thread_index_in_simdgroup" => Position::Lane,
        "simdgroup_index_in_threadgroup" => Position::Simdgroup,
        "simdgroups_per_threadgroup" | "dispatch_simdgroups_per_threadgroup" => Position::Simdgroups,
        "threads_per_simdgroup" | "thread_execution_width" => Position::Width,
        "thread_index_in_quadgroup" => Position::IndexInQuad,
        "quadgroup_index_in_threadgroup" => Position::Quad,
        "quadgroups_per_threadgroup" => Position::QuadsPerGroup,
        _ => return None,
    })
}

impl Position {
    /// One number, not three.
    pub(crate) fn is_scalar(self) -> bool {
        !matches!(
            self,
            Self::ThreadInGrid
                | Self::ThreadInGroup
                | Self::GroupInGrid
                | Self::ThreadsPerGroup
                | Self::GroupsPerGrid
                | Self::ThreadsPerGrid
        )
    }
}

/// Most slots of a kind.
const SLOTS: i64 = 31;

impl Parser {
    /// `kernel`, `[[host_name("x")]]`, `static inline` and so on.
    pub(crate) fn function_attributes(&mut self) -> Res<Traits> {
        let mut traits = Traits::default();
        loop {
            if self.eat_word("kernel") || self.eat_word("__kernel") {
                traits.kernel = true;
            } else if self.is_word("vertex") || self.is_word("fragment") {
                return fail(self.at(), "only compute kernels are supported");
            } else if self.is_word("__attribute__") {
                self.p += 1;
                self.skip_balanced()?;
            } else if self.is("[") && self.peek_at(1).is("[") {
                self.p += 2;
                while !self.is("]") {
                    self.function_attribute(&mut traits)?;
                    if !self.eat(",") {
                        break;
                    }
                }
                self.require("]")?;
                self.require("]")?;
            } else {
                return Ok(traits);
            }
        }
    }

    fn function_attribute(&mut self, traits: &mut Traits) -> Res<()> {
        let (word, at) = self.word()?;
        match &*word {
            "kernel" => traits.kernel = true,
            "host_name" => {
                self.require("(")?;
                let mut name = String::new();
                while let Tok::Str(part) = &self.peek().tok {
                    name.push_str(part);
                    self.p += 1;
                }
                traits.host_name = Some(name.into());
                self.require(")")?;
            }
            "max_total_threads_per_threadgroup" => {
                self.require("(")?;
                let count = self.constant_int()?;
                if !(1..=1024).contains(&count) {
                    return fail(at, "max_total_threads_per_threadgroup is 1 to 1024");
                }
                traits.max_threads = Some(count as u32);
                self.require(")")?;
            }
            "always_inline" | "noinline" | "clang" | "gnu" | "maybe_unused" | "nodiscard" | "visible" => {
                while self.eat("::") {
                    self.word()?;
                }
            }
            _ => return fail(at, format!("unknown attribute '{word}'")),
        }
        Ok(())
    }

    /// One function or its prototype. Of a template: its instance, which is not declared.
    pub(crate) fn function(&mut self, instance: Option<&Traits>) -> Res<FnId> {
        let mut traits = self.function_attributes()?;
        let spec = self.spec()?;
        let late = self.function_attributes()?;
        traits.kernel |= late.kernel;
        let kernel_at = self.at();
        let (ret, name, at) = self.function_name(&spec)?;
        if let Some(instance) = instance {
            traits.host_name.clone_from(&instance.host_name);
            traits.max_threads = instance.max_threads.or(traits.max_threads);
        }
        if traits.kernel && (ret != Types::VOID || spec.auto) {
            return fail(kernel_at, format!("kernel '{name}' must return void"));
        }
        let outer = std::mem::take(&mut self.now);
        self.now = Context { kernel: traits.kernel, ..Context::default() };
        self.now.ret = (!spec.auto).then_some(ret);
        self.scopes.push(HashMap::new());
        let made = self.rest_of_function(&name, at, traits, ret, instance.is_some());
        self.scopes.pop();
        self.now = outer;
        made
    }

    fn function_name(&mut self, spec: &super::types::Spec) -> Res<(Tid, Rc<str>, Pos)> {
        let mut ret = spec.ty;
        let mut space = spec.space;
        let mut constant = spec.constant;
        while self.eat("*") {
            ret = self.types.ptr(ret, space.unwrap_or(Space::Thread), constant);
            (space, constant) = (None, self.eat_word("const"));
        }
        if self.is("&") {
            return fail(self.at(), "functions that return references are not supported");
        }
        if self.is_word("operator") {
            let at = self.next().at;
            let mut name = String::from("operator");
            while !self.is("(") || (name == "operator" && self.peek_at(1).is(")")) {
                let Tok::Sign(sign) = self.next().tok else { return fail(at, "invalid operator name") };
                name.push_str(sign);
            }
            return Ok((ret, name.into(), at));
        }
        let (name, at) = self.word()?;
        Ok((ret, name, at))
    }

    fn rest_of_function(&mut self, name: &Rc<str>, at: Pos, traits: Traits, ret: Tid, instance: bool) -> Res<FnId> {
        let this = self.this.take().map(|this| self.this_parameter(this));
        let (mut params, mut attributes) = self.parameters()?;
        if let Some(this) = this {
            params.insert(0, this);
            attributes.insert(0, Attribute::None);
        }
        self.function_attributes()?;
        // The space that a member function is for; it is made for the space that it is called in.
        while ["const", "thread", "device", "constant", "threadgroup"].iter().any(|word| self.eat_word(word)) {}
        let id = self.announce(name, at, &params, ret, instance)?;
        let function = &mut self.functions[id];
        function.attributes = attributes;
        function.kernel = traits.kernel;
        function.host_name = traits.host_name;
        function.max_threads = traits.max_threads;
        if self.eat(";") {
            self.functions[id].vars.clone_from(&self.now.vars);
            return Ok(id);
        }
        if self.functions[id].body.is_some() {
            return fail(at, format!("redefinition of '{name}'"));
        }
        if traits.kernel {
            self.assign_slots(id)?;
        }
        self.function_body(id)?;
        Ok(id)
    }

    /// Parses a body in braces for a function whose parameters are declared in the innermost scope.
    pub(crate) fn function_body(&mut self, id: FnId) -> Res<()> {
        let body = self.block()?;
        let now = std::mem::take(&mut self.now);
        let function = &mut self.functions[id];
        let declared = now.ret.unwrap_or(Types::VOID);
        if declared != Types::VOID && !now.returns {
            return fail(function.at, "non-void function does not return a value");
        }
        function.ret = declared;
        function.vars = now.vars;
        function.body = Some(body);
        function.threadgroup_bytes = now.threadgroup_bytes;
        function.calls = now.calls;
        Ok(())
    }

    /// Makes the function known to its own body and to what follows.
    fn announce(&mut self, name: &Rc<str>, at: Pos, params: &[u32], ret: Tid, instance: bool) -> Res<FnId> {
        let signature = |p: &Self, f: FnId| -> Vec<(Tid, bool, Space)> {
            let f = &p.functions[f];
            f.params.iter().map(|v| &f.vars[*v as usize]).map(|v| (v.ty, v.reference, v.space)).collect()
        };
        let own: Vec<(Tid, bool, Space)> =
            params.iter().map(|v| &self.now.vars[*v as usize]).map(|v| (v.ty, v.reference, v.space)).collect();
        let known: Vec<Candidate> = match self.scopes[0].get(name) {
            Some(Entry::Functions(list)) => list.clone(),
            Some(_) if !instance => return fail(at, format!("redefinition of '{name}' as a different kind of symbol")),
            _ => Vec::new(),
        };
        if !instance {
            let same = known.iter().find_map(|c| match c {
                Candidate::Function(f) if signature(self, *f) == own => Some(*f),
                _ => None,
            });
            if let Some(f) = same {
                if self.functions[f].ret != ret {
                    return fail(at, format!("functions that differ only in their return type: '{name}'"));
                }
                self.functions[f].params = params.to_vec();
                return Ok(f);
            }
        }
        let id = self.functions.len();
        self.functions.push(Function {
            name: name.clone(),
            at,
            params: params.to_vec(),
            attributes: Vec::new(),
            ret,
            vars: self.now.vars.clone(),
            body: None,
            kernel: false,
            host_name: None,
            max_threads: None,
            threadgroup_bytes: 0,
            calls: Vec::new(),
        });
        if !instance {
            let mut known = known;
            known.push(Candidate::Function(id));
            self.scopes[0].insert(name.clone(), Entry::Functions(known));
        }
        Ok(id)
    }

    /// `(device float* a [[buffer(0)]], ...)`, declared in the innermost scope.
    pub(crate) fn parameters(&mut self) -> Res<(Vec<u32>, Vec<Attribute>)> {
        self.require("(")?;
        let (mut params, mut attributes) = (Vec::new(), Vec::new());
        if self.is_word("void") && self.peek_at(1).is(")") {
            self.p += 1;
        }
        while !self.is(")") {
            let spec = self.spec()?;
            if spec.auto {
                return fail(self.at(), "'auto' is not allowed in a function's parameter");
            }
            let declared = self.declarator(&spec)?;
            let attribute = self.parameter_attribute()?;
            if self.is("=") {
                return fail(self.at(), "default arguments are not supported");
            }
            let var = self.parameter(declared, attribute)?;
            params.push(var);
            attributes.push(attribute);
            if !self.eat(",") {
                break;
            }
        }
        self.require(")")?;
        Ok((params, attributes))
    }

    fn parameter(&mut self, declared: Declared, attribute: Attribute) -> Res<u32> {
        let at = declared.at;
        let mut ty = declared.ty;
        if !declared.reference
            && let Ty::Array(of, _) = self.types.get(ty)
        {
            ty = self.types.ptr(of, declared.space.unwrap_or(Space::Thread), declared.constant);
        }
        if ty == Types::VOID || (!declared.reference && matches!(self.types.get(ty), Ty::Atomic(_))) {
            return fail(at, format!("parameter of type '{}'", self.types.name(ty)));
        }
        if !declared.reference {
            self.variable_type(ty, declared.name.as_deref().unwrap_or(""), at)?;
        }
        let space = declared.space.filter(|_| declared.reference).unwrap_or(Space::Thread);
        let name = declared.name.unwrap_or_else(|| "".into());
        if let Attribute::Position(position) = attribute {
            let plain = match self.types.get(ty) {
                Ty::Scalar(Scalar::UInt | Scalar::UShort) => true,
                Ty::Vec(Scalar::UInt | Scalar::UShort, 2 | 3) => !position.is_scalar(),
                _ => false,
            };
            if !plain || declared.reference {
                return fail(at, format!("type '{}' is not valid for this attribute", self.types.name(ty)));
            }
        }
        let in_memory = !declared.reference && self.types.is_aggregate(ty);
        let var = Var {
            name: name.clone(),
            ty,
            reference: declared.reference,
            space,
            constant: declared.constant,
            in_memory,
            value: None,
        };
        let var = self.new_var(var);
        if !name.is_empty() {
            self.declare(name, Entry::Var(var), at)?;
        }
        Ok(var)
    }

    fn parameter_attribute(&mut self) -> Res<Attribute> {
        let mut attribute = Attribute::None;
        while self.is("[") && self.peek_at(1).is("[") {
            self.p += 2;
            while !self.is("]") {
                let (word, at) = self.word()?;
                let made = match &*word {
                    "buffer" | "threadgroup" => {
                        self.require("(")?;
                        let slot = self.constant_int()?;
                        self.require(")")?;
                        if !(0..SLOTS).contains(&slot) {
                            return fail(at, format!("'{word}' attribute parameter is out of bounds: must be 0 to 30"));
                        }
                        if &*word == "buffer" {
                            Attribute::Buffer(slot as u32)
                        } else {
                            Attribute::Threadgroup(slot as u32)
                        }
                    }
                    "maybe_unused" => Attribute::None,
                    "function_constant" | "texture" | "sampler" | "stage_in" | "id" => {
                        return fail(at, format!("attribute '{word}' is not supported"));
                    }
                    other => match position(other) {
                        Some(position) => Attribute::Position(position),
                        None => return fail(at, format!("unknown attribute '{other}'")),
                    },
                };
                if made != Attribute::None {
                    if attribute != Attribute::None {
                        return fail(at, "a parameter has two attributes");
                    }
                    attribute = made;
                }
                if !self.eat(",") {
                    break;
                }
            }
            self.require("]")?;
            self.require("]")?;
        }
        Ok(attribute)
    }

    /// Gives slots to the parameters of a kernel that name none, in order.
    fn assign_slots(&mut self, id: FnId) -> Res<()> {
        let (mut buffers, mut groups) = (Vec::new(), Vec::new());
        for attribute in &self.functions[id].attributes {
            match attribute {
                Attribute::Buffer(slot) => buffers.push(*slot),
                Attribute::Threadgroup(slot) => groups.push(*slot),
                _ => {}
            }
        }
        let at = self.functions[id].at;
        for list in [&buffers, &groups] {
            if (1..list.len()).any(|n| list[..n].contains(&list[n])) {
                return fail(at, "two parameters use the same slot");
            }
        }
        for n in 0..self.functions[id].params.len() {
            let var = self.now.vars[self.functions[id].params[n] as usize].clone();
            let attribute = self.functions[id].attributes[n];
            let space = match self.types.get(var.ty) {
                _ if var.reference => Some(var.space),
                Ty::Ptr { space, .. } => Some(space),
                _ => None,
            };
            let made = match (space, attribute) {
                (None, Attribute::Position(_)) => attribute,
                (Some(Space::Device | Space::Constant), Attribute::Buffer(_)) => attribute,
                (Some(Space::Threadgroup), Attribute::Threadgroup(_)) => attribute,
                (Some(Space::Device | Space::Constant), Attribute::None) => Attribute::Buffer(free(&mut buffers)),
                (Some(Space::Threadgroup), Attribute::None) => Attribute::Threadgroup(free(&mut groups)),
                _ => {
                    let (name, ty) = (&var.name, self.types.name(var.ty));
                    return fail(
                        at,
                        format!("invalid type '{ty}' for input declaration '{name}' in a kernel function"),
                    );
                }
            };
            if matches!(made, Attribute::Buffer(slot) | Attribute::Threadgroup(slot) if i64::from(slot) >= SLOTS) {
                return fail(at, "a kernel has more than 31 buffers");
            }
            self.functions[id].attributes[n] = made;
        }
        Ok(())
    }

    /// Fails if functions call each other in a circle.
    pub(crate) fn check_recursion(&self) -> Res<()> {
        // 0: not seen, 1: open, 2: done.
        let mut state = vec![0_u8; self.functions.len()];
        for start in 0..self.functions.len() {
            let mut stack = vec![(start, 0)];
            while let Some((f, next)) = stack.pop() {
                if next == 0 && std::mem::replace(&mut state[f], 1) == 2 {
                    state[f] = 2;
                    continue;
                }
                let Some(&(callee, at)) = self.functions[f].calls.get(next) else {
                    state[f] = 2;
                    continue;
                };
                stack.push((f, next + 1));
                match state[callee] {
                    0 => stack.push((callee, 0)),
                    1 => {
                        let name = &self.functions[callee].name;
                        return fail(at, format!("recursion is not supported: '{name}' calls itself"));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// The first number that is not in a list; it is then.
fn free(used: &mut Vec<u32>) -> u32 {
    let found = (0..).find(|n| !used.contains(n)).unwrap_or(0);
    used.push(found);
    found
}
