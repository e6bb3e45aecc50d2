//! PyTorch's files (`torch.save`): a zip archive with a pickle and the storages, or, before version 1.6, pickles with
//! the storages that follow them. Source: `torch/serialization.py`, `torch/_utils.py`.
//!
//! The pickle is read as data: functions that rebuild Tensors, ordered dictionaries, sizes and devices are known, any
//! other name is refused as by `weights_only=True`.

use super::file::Source;
use super::pickle::{self, Node, Pickle};
use super::zip::{Archive, u64_at};
use super::{StateDict, StateError};
use crate::nn::module::named;
use crate::tensor::{Movement, Tensor, default_device};
use crate::uop::Scalar;
use std::collections::BTreeMap;
use std::path::Path;

/// What a PyTorch file holds: a checkpoint's dictionaries, numbers and Tensors.
#[derive(Clone, Debug)]
pub enum Item {
    /// `None`
    None,
    /// `True`, `False`
    Bool(bool),
    /// An int of 64 bits.
    Int(i64),
    /// A float.
    Float(f64),
    /// A str.
    Text(String),
    /// A bytes.
    Bytes(Vec<u8>),
    /// A list, tuple, set or `torch.Size`.
    List(Vec<Item>),
    /// A dict, in its order.
    Map(Vec<(Item, Item)>),
    /// A Tensor or Parameter; its elements stay in the file until they are needed.
    Tensor(Tensor),
}

impl Item {
    /// The value of a key of a dictionary.
    pub fn get(&self, key: &str) -> Option<&Item> {
        match self {
            Item::Map(list) => list.iter().find(|(k, _)| matches!(k, Item::Text(t) if t == key)).map(|(_, v)| v),
            _ => None,
        }
    }
    /// All Tensors below, named by keys and indices with dots between; a lone Tensor has the empty name.
    pub fn state_dict(&self) -> StateDict {
        let mut out = StateDict::new();
        self.gather("", &mut out);
        out
    }
    fn gather(&self, prefix: &str, out: &mut StateDict) {
        match self {
            Item::Tensor(t) => {
                out.insert(prefix.to_string(), t.clone());
            }
            Item::List(list) => {
                for (k, item) in list.iter().enumerate() {
                    item.gather(&named(prefix, &k.to_string()), out);
                }
            }
            Item::Map(list) => {
                for (key, item) in list {
                    match key {
                        Item::Text(key) => item.gather(&named(prefix, key), out),
                        Item::Int(key) => item.gather(&named(prefix, &key.to_string()), out),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
}

/// The Tensors of a file of `torch.save`, by the keys that lead to them with dots between: a state dict has its own
/// names, a checkpoint `{"model": ..}` those below `model.`. Tensors are on the default device; their elements stay in
/// the file until they are needed.
///
/// ```no_run
/// # use doorbell::nn::{Linear, state};
/// let net = Linear::new(4, 2);
/// state::load_into(&net, &state::load_torch("linear.pt")?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The file cannot be read, is damaged, is a tar archive (before 0.1.10) or a TorchScript program, names something that
/// is no Tensor or plain value, or has an element type that we lack.
#[doc(alias = "torch_load")]
pub fn load_torch(path: impl AsRef<Path>) -> Result<StateDict, StateError> {
    Ok(load_torch_items(path)?.state_dict())
}

/// As [`load_torch`], with everything that the file holds in its own form.
///
/// # Errors
/// As [`load_torch`].
pub fn load_torch_items(path: impl AsRef<Path>) -> Result<Item, StateError> {
    let path = path.as_ref();
    let source = Source::open(path, "torch")?;
    let start = source.bytes(0, source.len_bytes().min(64))?;
    if start.starts_with(b"PK") {
        return zipped(path);
    }
    if start.starts_with(LEGACY) {
        return legacy(source);
    }
    let tar = source.len_bytes() > 262 && source.bytes(257, 5)? == *b"ustar";
    Err(source.damaged(if tar {
        "a tar archive, as PyTorch wrote before 0.1.10; save it again with a newer one"
    } else {
        "no file of torch.save: neither a zip archive nor its older pickle"
    }))
}

/// The older format begins with a pickle (protocol 2) of this number of 10 bytes.
const LEGACY: &[u8] = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";

const STORAGES: [(&str, Scalar); 10] = [
    ("torch.FloatStorage", Scalar::F32),
    ("torch.DoubleStorage", Scalar::F64),
    ("torch.HalfStorage", Scalar::F16),
    ("torch.BFloat16Storage", Scalar::BF16),
    ("torch.LongStorage", Scalar::I64),
    ("torch.IntStorage", Scalar::I32),
    ("torch.ShortStorage", Scalar::I16),
    ("torch.CharStorage", Scalar::I8),
    ("torch.ByteStorage", Scalar::U8),
    ("torch.BoolStorage", Scalar::Bool),
];

const DTYPES: [(&str, Scalar); 15] = [
    ("torch.float32", Scalar::F32),
    ("torch.float64", Scalar::F64),
    ("torch.float16", Scalar::F16),
    ("torch.bfloat16", Scalar::BF16),
    ("torch.float8_e4m3fn", Scalar::F8E4M3),
    ("torch.float8_e5m2", Scalar::F8E5M2),
    ("torch.int64", Scalar::I64),
    ("torch.int32", Scalar::I32),
    ("torch.int16", Scalar::I16),
    ("torch.int8", Scalar::I8),
    ("torch.uint64", Scalar::U64),
    ("torch.uint32", Scalar::U32),
    ("torch.uint16", Scalar::U16),
    ("torch.uint8", Scalar::U8),
    ("torch.bool", Scalar::Bool),
];

/// Elements of their own types have an untyped storage.
const UNTYPED: &str = "torch.storage.UntypedStorage";

const FUNCTIONS: [&str; 10] = [
    "collections.OrderedDict",
    "torch._utils._rebuild_tensor",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_tensor_v3",
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_parameter_with_state",
    "torch._tensor._rebuild_from_type_v2",
    "torch.Size",
    "torch.device",
    "torch.nn.parameter.Parameter",
];

fn allowed(name: &str) -> bool {
    // Types that we lack are named in the message about their Tensor.
    let is_type = name.starts_with("torch.") && (name.ends_with("Storage") || name.contains("complex"));
    FUNCTIONS.contains(&name) || is_type || name == "torch.Tensor" || DTYPES.iter().any(|(n, _)| *n == name)
}

/// A flat run of elements in a file.
struct Storage {
    /// Element type; `None` if untyped.
    dtype: Option<Scalar>,
    type_name: String,
    key: String,
    numel: i64,
}

/// Where storages are.
trait Place {
    fn source(&self) -> &Source;
    /// Elements of storage `key` from a byte on.
    fn tensor(&self, key: &str, dtype: Scalar, shape: &[usize], offset_bytes: u64) -> Result<Tensor, StateError>;
}

/// A pickle's nodes as items.
struct Reader<'a> {
    pickle: &'a Pickle,
    place: &'a dyn Place,
    /// Items that may still be made: a small file can name one list very often.
    left: usize,
}

/// Lists in lists: far beyond any checkpoint.
const DEEPEST: usize = 64;

/// Items that are made of a pickle at most: one value may stand at several places, but not at any number of them.
fn largest(pickle: &Pickle) -> usize {
    pickle.nodes.len().saturating_mul(16).saturating_add(1024)
}

impl Reader<'_> {
    fn damaged(&self, what: impl Into<String>) -> StateError {
        self.place.source().damaged(what)
    }
    fn node(&self, k: usize) -> &Node {
        &self.pickle.nodes[k]
    }
    fn item(&mut self, k: usize, name: &str, depth: usize) -> Result<Item, StateError> {
        if depth > DEEPEST || self.left == 0 {
            return Err(self.damaged("its values are too many, or too deep in each other"));
        }
        self.left -= 1;
        Ok(match self.node(k).clone() {
            Node::None => Item::None,
            Node::Bool(b) => Item::Bool(b),
            Node::Int(i) => Item::Int(i),
            Node::Float(x) => Item::Float(x),
            Node::Text(t) => Item::Text(t),
            Node::Bytes(b) => Item::Bytes(b),
            Node::Global(name) => Item::Text(name),
            Node::List(list) | Node::Tuple(list) => self.list(&list, name, depth)?,
            Node::Dict(list) => {
                let mut out = Vec::new();
                for (key, value) in list {
                    let key = self.item(key, name, depth + 1)?;
                    let part = match &key {
                        Item::Text(t) => t.clone(),
                        Item::Int(i) => i.to_string(),
                        _ => "?".into(),
                    };
                    out.push((key, self.item(value, &named(name, &part), depth + 1)?));
                }
                Item::Map(out)
            }
            Node::Persistent(_) => return Err(self.damaged(format!("'{name}' is a storage without a Tensor"))),
            Node::Call(function, arguments) => {
                let Node::Tuple(list) = self.node(arguments).clone() else { return Ok(Item::None) };
                self.call(&function, &list, name, depth)?
            }
        })
    }
    fn list(&mut self, list: &[usize], name: &str, depth: usize) -> Result<Item, StateError> {
        let items = list.iter().enumerate().map(|(n, k)| self.item(*k, &named(name, &n.to_string()), depth + 1));
        Ok(Item::List(items.collect::<Result<_, _>>()?))
    }
    fn call(&mut self, function: &str, arguments: &[usize], name: &str, depth: usize) -> Result<Item, StateError> {
        let first = arguments.first().copied();
        match (function.rsplit('.').next().unwrap_or(function), first) {
            ("_rebuild_tensor" | "_rebuild_tensor_v2" | "_rebuild_tensor_v3", Some(_)) => {
                self.tensor(arguments, name).map(Item::Tensor)
            }
            ("_rebuild_parameter" | "_rebuild_parameter_with_state" | "Parameter" | "Size", Some(data)) => {
                self.item(data, name, depth + 1)
            }
            // function, type, arguments, state
            ("_rebuild_from_type_v2", Some(inner)) => {
                let (Node::Global(inner), Some(Node::Tuple(list))) =
                    (self.node(inner).clone(), arguments.get(2).map(|k| self.node(*k).clone()))
                else {
                    return Err(self.damaged(format!("'{name}' is rebuilt by something else than a function")));
                };
                if depth > DEEPEST {
                    return Err(self.damaged("its values are too deep in each other"));
                }
                self.call(&inner, &list, name, depth + 1)
            }
            _ => self.list(arguments, name, depth),
        }
    }
    /// Whole numbers of a tuple, a list or a `torch.Size`.
    fn ints(&self, k: Option<&usize>) -> Option<Vec<i64>> {
        let mut node = self.node(*k?);
        if let Node::Call(name, arguments) = node
            && let Node::Tuple(arguments) = self.node(*arguments)
            && name == "torch.Size"
        {
            node = self.node(*arguments.first()?);
        }
        let (Node::Tuple(list) | Node::List(list)) = node else { return None };
        list.iter().map(|k| if let Node::Int(i) = self.node(*k) { Some(*i) } else { None }).collect()
    }
    /// storage, offset, sizes, strides, .. and the element type as the seventh of version 3.
    fn tensor(&self, arguments: &[usize], name: &str) -> Result<Tensor, StateError> {
        let bad = |what: &str| self.damaged(format!("Tensor '{name}': {what}"));
        let storage = arguments.first().and_then(|k| self.storage(*k)).ok_or_else(|| bad("it has no storage"))?;
        let Some(Node::Int(offset)) = arguments.get(1).map(|k| self.node(*k)) else { return Err(bad("no offset")) };
        let sizes = self.ints(arguments.get(2)).ok_or_else(|| bad("it has no sizes"))?;
        let strides = self.ints(arguments.get(3)).ok_or_else(|| bad("it has no strides"))?;
        let named = match arguments.get(6).map(|k| self.node(*k)) {
            Some(Node::Global(t)) => Some(t.clone()),
            _ => None,
        };
        let dtype = match &named {
            Some(t) => DTYPES.iter().find(|(n, _)| n == t).map(|(_, s)| *s),
            None => storage.dtype,
        };
        let what = || named.clone().unwrap_or_else(|| storage.type_name.clone());
        let dtype = dtype.ok_or_else(|| StateError::ElementType { name: name.into(), what: what() })?;
        let unit = if storage.dtype.is_some() { 1 } else { dtype.size_bytes() as i64 };
        let layout = Layout::new(*offset, &sizes, &strides, storage.numel / unit).map_err(|e| bad(&e))?;
        layout.tensor(dtype, |shape, at| self.place.tensor(&storage.key, dtype, shape, at))
    }
    fn storage(&self, k: usize) -> Option<Storage> {
        let Node::Persistent(id) = self.node(k) else { return None };
        storage_of(self.pickle, *id)
    }
}

/// ("storage", type, key, location, number of elements)
fn storage_of(pickle: &Pickle, id: usize) -> Option<Storage> {
    let Node::Tuple(list) = &pickle.nodes[id] else { return None };
    let [kind, ty, key, _, numel, ..] = list.as_slice() else { return None };
    let node = |k: &usize| &pickle.nodes[*k];
    match (node(kind), node(ty), node(key), node(numel)) {
        (Node::Text(kind), Node::Global(ty), Node::Text(key), Node::Int(numel)) if kind == "storage" => Some(Storage {
            dtype: STORAGES.iter().find(|(n, _)| n == ty).map(|(_, s)| *s),
            type_name: ty.clone(),
            key: key.clone(),
            numel: *numel,
        }),
        _ => None,
    }
}

/// How a Tensor lies in its storage: sizes and strides of its axes, in elements.
struct Layout {
    offset: usize,
    sizes: Vec<usize>,
    strides: Vec<usize>,
}

impl Layout {
    fn new(offset: i64, sizes: &[i64], strides: &[i64], numel: i64) -> Result<Layout, String> {
        if sizes.len() != strides.len() {
            return Err("it has not as many strides as sizes".into());
        }
        let plain = |list: &[i64]| list.iter().map(|n| usize::try_from(*n).ok()).collect::<Option<Vec<usize>>>();
        let all = usize::try_from(offset).ok().zip(plain(sizes)).zip(plain(strides));
        let ((offset, sizes), strides) = all.ok_or("a size, stride or offset is negative")?;
        let reach = sizes
            .iter()
            .zip(&strides)
            .try_fold(offset, |end, (n, s)| end.checked_add((n.max(&1) - 1).checked_mul(*s)?));
        let count = sizes.iter().try_fold(1usize, |n, s| n.checked_mul(*s));
        match (reach, count) {
            (_, Some(0)) => {}
            (Some(last), Some(_)) if (last as i64) < numel && last < i64::MAX as usize => {}
            _ => return Err(format!("it reaches beyond its storage of {numel} elements")),
        }
        Ok(Layout { offset, sizes, strides })
    }
    /// `part` makes a dense Tensor of a shape from a byte of the storage on.
    fn tensor(
        &self,
        dtype: Scalar,
        part: impl Fn(&[usize], u64) -> Result<Tensor, StateError>,
    ) -> Result<Tensor, StateError> {
        if self.sizes.contains(&0) {
            return Ok(Tensor::from_bytes(Vec::new(), dtype, self.sizes.as_slice(), &default_device()));
        }
        // Axes that repeat one element are sizes of 1, expanded.
        let axes = self.sizes.iter().zip(&self.strides);
        let own: Vec<(usize, usize)> = axes.map(|(n, s)| if *s == 0 { (1, 1) } else { (*n, *s) }).collect();
        let at = |k: usize| k as u64 * dtype.size_bytes() as u64;
        let mut order: Vec<usize> = (0..own.len()).collect();
        // The longest stride first, sizes of 1 before all.
        order.sort_by_key(|k| std::cmp::Reverse(if own[*k].0 > 1 { own[*k].1 } else { usize::MAX }));
        let shape: Vec<usize> = order.iter().map(|k| own[*k].0).collect();
        let inner = |n: usize| shape[n + 1..].iter().product::<usize>();
        let dense = order.iter().enumerate().all(|(n, k)| own[*k].0 == 1 || own[*k].1 == inner(n));
        let mut t = if dense {
            let mut back = vec![0i64; order.len()];
            order.iter().enumerate().for_each(|(n, k)| back[*k] = n as i64);
            let t = part(&shape, at(self.offset))?;
            if order.is_sorted() { t } else { t.permute(back) }
        } else {
            let reach: usize = own.iter().map(|(n, s)| (n - 1) * s).sum();
            self.gathered(dtype, &own, &part(&[reach + 1], at(self.offset))?)?
        };
        if own.iter().zip(&self.sizes).any(|((n, _), size)| n != size) {
            t = t.expand(self.sizes.as_slice());
        }
        Ok(t)
    }
    /// Any other strides: elements picked from the storage's bytes.
    fn gathered(&self, dtype: Scalar, own: &[(usize, usize)], run: &Tensor) -> Result<Tensor, StateError> {
        let bytes = super::read("", run)?;
        let (size, count) = (dtype.size_bytes(), own.iter().map(|(n, _)| n).product::<usize>());
        if count * size > bytes.len().saturating_mul(64) {
            return Err(StateError::ElementType { name: String::new(), what: "a view that repeats elements".into() });
        }
        let mut out = Vec::with_capacity(count * size);
        for k in 0..count {
            let (mut rest, mut at) = (k, 0);
            for (n, s) in own.iter().rev() {
                at += rest % n * s;
                rest /= n;
            }
            out.extend_from_slice(&bytes[at * size..(at + 1) * size]);
        }
        let shape: Vec<usize> = own.iter().map(|(n, _)| *n).collect();
        Ok(Tensor::from_bytes(out, dtype, shape, &default_device()))
    }
}

/// Storages as files of an archive, `data/KEY` beside the pickle.
struct Zipped {
    archive: Archive,
    folder: String,
}
impl Place for Zipped {
    fn source(&self) -> &Source {
        &self.archive.source
    }
    fn tensor(&self, key: &str, dtype: Scalar, shape: &[usize], offset_bytes: u64) -> Result<Tensor, StateError> {
        let name = format!("{}data/{key}", self.folder);
        let entry = self.archive.find(&name).ok_or_else(|| self.source().damaged(format!("it has no {name}")))?;
        self.archive.tensor(entry, dtype, shape, offset_bytes)
    }
}

fn zipped(path: &Path) -> Result<Item, StateError> {
    let archive = Archive::open(path, "torch")?;
    let pickle = archive.entries.iter().find(|e| e.name == "data.pkl" || e.name.ends_with("/data.pkl"));
    let pickle = pickle.ok_or_else(|| archive.source.damaged("a zip archive without data.pkl"))?.clone();
    let folder = pickle.name.trim_end_matches("data.pkl").to_string();
    if archive.find(&format!("{folder}constants.pkl")).is_some() {
        return Err(archive.source.damaged("a TorchScript program; save its state_dict() with torch.save"));
    }
    if let Some(order) = archive.find(&format!("{folder}byteorder"))
        && archive.bytes(order)? != *b"little"
    {
        return Err(archive.source.damaged("its numbers are big-endian"));
    }
    let bytes = archive.bytes(&pickle)?;
    let pickle = pickle::parse(&bytes, &allowed).map_err(|e| archive.source.damaged(e))?;
    let place = Zipped { archive, folder };
    Reader { pickle: &pickle, place: &place, left: largest(&pickle) }.item(pickle.root, "", 0)
}

/// Storages that follow the pickles: key to first byte and length.
struct Behind {
    source: Source,
    at: BTreeMap<String, (u64, u64)>,
}
impl Place for Behind {
    fn source(&self) -> &Source {
        &self.source
    }
    fn tensor(&self, key: &str, dtype: Scalar, shape: &[usize], offset_bytes: u64) -> Result<Tensor, StateError> {
        let (at, len) = self.at.get(key).ok_or_else(|| self.source.damaged(format!("it has no storage {key}")))?;
        let bytes = shape.iter().try_fold(dtype.size_bytes() as u64, |n, s| n.checked_mul(*s as u64));
        if bytes.and_then(|n| n.checked_add(offset_bytes)).is_none_or(|end| end > *len) {
            return Err(self.source.damaged(format!("a Tensor reaches beyond storage {key}")));
        }
        self.source.tensor(dtype, shape, at + offset_bytes)
    }
}

/// The longest run of pickles that is read of an older file, in bytes.
const PICKLES: u64 = 64 << 20;

/// Pickles of a number, the protocol, facts about the machine, the values, the storages' keys; then each storage.
fn legacy(source: Source) -> Result<Item, StateError> {
    let bytes = source.bytes(0, source.len_bytes().min(PICKLES))?;
    let mut at = 0;
    let mut list = Vec::new();
    for _ in 0..5 {
        let next = pickle::parse(&bytes[at..], &allowed).map_err(|e| source.damaged(e))?;
        at += next.len_bytes;
        list.push(next);
    }
    // PANIC: five were pushed.
    let (keys, values) = (&list[4], &list[3]);
    let Node::List(order) = &keys.nodes[keys.root] else {
        return Err(source.damaged("its list of storages is something else"));
    };
    let mut sizes = BTreeMap::new();
    for node in &values.nodes {
        if let Node::Persistent(id) = node
            && let Some(s) = storage_of(values, *id)
        {
            let size = s.dtype.map_or(1, Scalar::size_bytes);
            let Some(known) = s.dtype.or((s.type_name == UNTYPED).then_some(Scalar::U8)) else {
                return Err(StateError::ElementType { name: s.key, what: s.type_name });
            };
            sizes.insert(s.key, size.max(known.size_bytes()) as u64);
        }
    }
    let (mut places, mut at) = (BTreeMap::new(), at as u64);
    for k in order {
        let Node::Text(key) = &keys.nodes[*k] else { return Err(source.damaged("a storage's key is no text")) };
        let numel = u64_at(&source.bytes(at, 8)?, 0).unwrap_or(0);
        let size = sizes.get(key).ok_or_else(|| source.damaged(format!("nothing names storage {key}")))?;
        let len = numel.checked_mul(*size).filter(|n| *n <= source.len_bytes());
        let len = len.ok_or_else(|| source.damaged(format!("storage {key} reaches beyond its end")))?;
        places.insert(key.clone(), (at + 8, len));
        at += 8 + len;
    }
    let place = Behind { source, at: places };
    Reader { pickle: values, place: &place, left: largest(values) }.item(values.root, "", 0)
}
