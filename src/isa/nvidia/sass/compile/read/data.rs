//! Variables of a module: `.const` in bank 3, `.global` in memory with their addresses in bank 4, `.shared`.

use super::flat::{Names, Symbol, place, shared};
use super::source::Source;
use crate::ptx::{Function, Init, Item, Linkage, Module, Operand, Space, Type, Variable};
use crate::sass::compile::AsmError;
use crate::sass::compile::optimise::facts::bits_of;
use doorbell_elf::cubin::{Relocation, RelocationKind, Space as Section, Variable as NewVariable};
use std::collections::HashSet;

/// The module's variables, and whose address each slot of bank 4 holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Data {
    pub variables: Vec<NewVariable>,
    pub addresses: Vec<(String, i64)>,
    constant_bytes: u32,
    global_bytes: [u32; 2],
}

/// Assigns addresses to the variables of a module: its own, and those that function bodies declare with module
/// lifetime.
///
/// # Errors
/// A kind of variable or initial value that is not supported.
pub(crate) fn declare_all(module: &mut Module<Source>, names: &mut Names, data: &mut Data) -> Result<(), AsmError> {
    for item in &module.items {
        if let Item::Variable(v) = item {
            declare(v, names, data)?;
        }
    }
    for item in &mut module.items {
        if let Item::Function(f) = item {
            declare_inside(f, names, data)?;
        }
    }
    Ok(())
}

/// Assigns an address to a variable.
fn declare(v: &Variable, names: &mut Names, data: &mut Data) -> Result<(), AsmError> {
    let symbol = match v.space {
        Space::Shared | Space::SharedCta if v.dims == [None] => {
            names.dynamic.push(v.name.clone());
            Symbol::Shared(0)
        }
        Space::Shared | Space::SharedCta => {
            names.shared.push(v.clone());
            Symbol::Shared(place(v, &mut names.shared_bytes)?)
        }
        Space::Const | Space::Global if v.linkage != Linkage::Extern => stored(v, names, data)?,
        // Code that uses it gets an unknown-name error.
        Space::Const | Space::Global => return Ok(()),
        _ => {
            return Err(AsmError::new(
                v.pos,
                format!("{}: variables of this kind in .{} are not assembled", v.name, v.space.word()),
            ));
        }
    };
    names.symbols.insert(v.name.clone(), symbol);
    Ok(())
}

/// Assigns addresses to variables with module lifetime that are declared in a function's body, under unique names.
fn declare_inside(f: &mut Function<Source>, names: &mut Names, data: &mut Data) -> Result<(), AsmError> {
    let Some(body) = &mut f.body else { return Ok(()) };
    for (scope, v) in body.variables.iter().filter(|(_, v)| matches!(v.space, Space::Global | Space::Const)) {
        let own = Variable { name: format!("{}${}${scope}", f.name, v.name).into(), ..v.clone() };
        declare(&own, names, data)?;
        if let Some((scope, symbol)) = body.scopes.get_mut(*scope as usize).zip(names.symbols.get(&own.name)) {
            scope.symbols.insert(v.name.clone(), *symbol);
        }
    }
    Ok(())
}

/// Maximum bytes of an initialised variable; all of it is in the cubin.
const MOST_INITIALISED: u32 = 256 << 20;

fn stored(v: &Variable, names: &Names, data: &mut Data) -> Result<Symbol, AsmError> {
    let space = match (v.space, &v.init) {
        (Space::Const, _) => Section::Constant,
        (_, Some(_)) => Section::Initialised,
        (_, None) => Section::Zero,
    };
    let used = match space {
        Section::Constant => &mut data.constant_bytes,
        Section::Initialised => &mut data.global_bytes[0],
        Section::Zero => &mut data.global_bytes[1],
    };
    let offset = place(v, used)?;
    let len_bytes = *used - offset;
    let natural = (v.ty.bits().div_ceil(8) * u32::from(v.vector)).max(1);
    let mut image = Image { v, names, at: 0, bytes: vec![], relocations: vec![] };
    if space != Section::Zero {
        if len_bytes > MOST_INITIALISED {
            let what = format!("{}: {len_bytes} bytes with first values, of at most {MOST_INITIALISED}", v.name);
            return Err(AsmError::new(v.pos, what));
        }
        image.bytes = vec![0; len_bytes as usize];
        if let Some(init) = &v.init {
            image.fill(init)?;
        }
    }
    let Image { bytes, relocations, .. } = image;
    let align = v.align.unwrap_or(natural);
    data.variables.push(NewVariable { name: v.name.to_string(), space, offset, align, len_bytes, bytes, relocations });
    if space == Section::Constant {
        return Ok(Symbol::Constant(offset));
    }
    let slot = 8 * data.addresses.len() as u32;
    data.addresses.push((v.name.to_string(), 0));
    Ok(Symbol::Global(slot))
}

/// The first values of a variable, as bytes.
struct Image<'v> {
    v: &'v Variable,
    names: &'v Names,
    /// Bytes filled so far.
    at: usize,
    bytes: Vec<u8>,
    relocations: Vec<Relocation>,
}

impl Image<'_> {
    fn no<T>(&self, what: &str) -> Result<T, AsmError> {
        Err(AsmError::new(self.v.pos, format!("{}: {what}", self.v.name)))
    }

    fn fill(&mut self, init: &Init) -> Result<(), AsmError> {
        let value = match init {
            Init::List(list) => return list.iter().try_for_each(|i| self.fill(i)),
            init => self.value(init)?,
        };
        let size = self.element_bytes();
        let Some(to) = self.bytes.get_mut(self.at..self.at + size) else {
            return self.no("more first values than elements");
        };
        to.copy_from_slice(&value.to_le_bytes()[..size]);
        self.at += size;
        Ok(())
    }

    fn element_bytes(&self) -> usize {
        self.v.ty.bits().div_ceil(8) as usize
    }

    /// One value; an address is added to the relocations.
    fn value(&mut self, init: &Init) -> Result<u64, AsmError> {
        let (size, ty, names) = (self.element_bytes(), self.v.ty, self.names);
        Ok(match init {
            Init::Value(Operand::Imm(i)) if matches!(ty, Type::F16 | Type::Bf16) => {
                return self.no(&format!("a first value like {i:?} of a half type is not assembled"));
            }
            Init::Value(Operand::Imm(i)) => bits_of(*i, ty),
            Init::Value(Operand::Symbol(name, 0)) | Init::Generic(name, 0)
                if size == 8 && names.function(name).is_some() =>
            {
                super::call::address(names.function(name).unwrap_or(0))
            }
            // An offset in the bank, not a memory address.
            Init::Value(Operand::Symbol(name, addend))
                if let Some(Symbol::Constant(at)) = names.symbols.get(name).filter(|_| size >= 4) =>
            {
                (i64::from(*at) + addend).cast_unsigned()
            }
            Init::Value(Operand::Symbol(name, addend)) | Init::Generic(name, addend) if size == 8 => {
                let kind =
                    if matches!(init, Init::Generic(..)) { RelocationKind::Generic } else { RelocationKind::Address };
                let offset = u32::try_from(self.at).unwrap_or(u32::MAX);
                self.relocations.push(Relocation { offset, kind, symbol: name.to_string(), addend: *addend });
                0
            }
            _ => return self.no("such a first value is not assembled"),
        })
    }
}

impl Names {
    /// Places dynamic shared memory after all statically sized shared memory of any body, since functions refer to it
    /// too.
    ///
    /// # Errors
    /// More shared memory than can be addressed.
    pub(crate) fn place_dynamic(&mut self, module: &Module<Source>) -> Result<(), AsmError> {
        if self.dynamic.is_empty() || !module.functions().any(|f| !f.entry && f.body.is_some()) {
            return Ok(());
        }
        let mut all = self.clone();
        let mut most = 0;
        for f in module.functions().filter(|f| !f.entry) {
            all.count_shared(f)?;
        }
        for f in module.functions().filter(|f| f.entry) {
            let mut own = all.clone();
            own.count_shared(f)?;
            most = most.max(own.shared_bytes);
        }
        self.least_shared_bytes = most.next_multiple_of(16);
        self.place_dynamic_at(self.least_shared_bytes);
        Ok(())
    }

    /// Places the module's shared memory anew for a kernel of a module without functions: what only other kernels name
    /// takes none of its own.
    ///
    /// # Errors
    /// More shared memory than can be addressed.
    pub(crate) fn place_used(&mut self, f: &Function<Source>) -> Result<(), AsmError> {
        let all = std::mem::take(&mut self.shared);
        let Some(body) = f.body.as_ref().filter(|_| !all.is_empty()) else { return Ok(()) };
        let used: HashSet<&str> = body.names.iter().map(|(_, name)| *name).collect();
        self.shared_bytes = 0;
        for v in all.iter().filter(|v| used.contains(&*v.name)) {
            let at = place(v, &mut self.shared_bytes)?;
            self.symbols.insert(v.name.clone(), Symbol::Shared(at));
        }
        Ok(())
    }

    /// Places dynamic shared memory for a kernel of a module without functions: after what the kernel itself declares.
    ///
    /// # Errors
    /// More shared memory than can be addressed.
    pub(crate) fn place_own_dynamic(&mut self, f: &Function<Source>) -> Result<(), AsmError> {
        if self.dynamic.is_empty() {
            return Ok(());
        }
        let mut all = self.clone();
        all.count_shared(f)?;
        self.place_dynamic_at(all.shared_bytes.next_multiple_of(16));
        Ok(())
    }

    fn place_dynamic_at(&mut self, at: u32) {
        for name in std::mem::take(&mut self.dynamic) {
            self.symbols.insert(name, Symbol::Shared(at));
        }
    }

    fn count_shared(&mut self, f: &Function<Source>) -> Result<(), AsmError> {
        f.body.as_ref().map_or(Ok(()), |body| shared(body, self))
    }
}
