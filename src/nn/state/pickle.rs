//! Python's pickles as data: a list of nodes, nothing else. Source: CPython's `pickletools`, protocols 0 to 5.
//!
//! Nothing is executed or imported. A pickle that names a class or function outside of the caller's list is refused;
//! calls of those in the list stay nodes that the caller interprets.

/// One value of a pickle; numbers are indices in the list of nodes.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
    /// Lists and sets.
    List(Vec<usize>),
    Tuple(Vec<usize>),
    Dict(Vec<(usize, usize)>),
    /// A class or function of the list.
    Global(String),
    /// A thing that is kept elsewhere, by its name.
    Persistent(usize),
    /// A call of a function of the list, and the index of the tuple of its arguments.
    Call(String, usize),
}

/// A pickle's values: `nodes[root]` is the whole.
#[derive(Debug)]
pub(super) struct Pickle {
    pub nodes: Vec<Node>,
    pub root: usize,
    /// Bytes that it takes.
    pub len_bytes: usize,
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    nodes: Vec<Node>,
    stack: Vec<usize>,
    marks: Vec<usize>,
    memo: std::collections::BTreeMap<u64, usize>,
    allowed: &'a dyn Fn(&str) -> bool,
}

type Result<T> = std::result::Result<T, String>;

/// Reads the pickle that bytes begin with; `allowed` says which `module.name` it may name.
pub(super) fn parse(bytes: &[u8], allowed: &dyn Fn(&str) -> bool) -> Result<Pickle> {
    let (nodes, stack, marks) = (Vec::new(), Vec::new(), Vec::new());
    let mut m = Machine { bytes, at: 0, nodes, stack, marks, memo: Default::default(), allowed };
    loop {
        let op = m.take(1)?[0];
        if op == b'.' {
            let root = m.pop()?;
            return Ok(Pickle { nodes: m.nodes, root, len_bytes: m.at });
        }
        m.step(op).map_err(|e| format!("pickle: {e}, before byte {}", m.at))?;
    }
}

impl<'a> Machine<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let part = self.at.checked_add(n).and_then(|end| self.bytes.get(self.at..end));
        let part = part.ok_or("pickle: it ends early")?;
        self.at += n;
        Ok(part)
    }
    /// A little-endian number of `n` bytes, 8 at most.
    fn number(&mut self, n: usize) -> Result<u64> {
        Ok(self.take(n)?.iter().rev().fold(0, |w, b| w << 8 | u64::from(*b)))
    }
    fn run(&mut self, width: usize) -> Result<&'a [u8]> {
        let n = self.number(width)?;
        self.take(usize::try_from(n).map_err(|_| "a text is too long")?)
    }
    fn line(&mut self) -> Result<String> {
        let rest = self.bytes.get(self.at..).unwrap_or(&[]);
        let len = rest.iter().position(|b| *b == b'\n').ok_or("it ends early")?;
        let text = String::from_utf8_lossy(&rest[..len]).into_owned();
        self.at += len + 1;
        Ok(text)
    }
    fn push(&mut self, node: Node) -> Result<()> {
        self.nodes.push(node);
        self.stack.push(self.nodes.len() - 1);
        Ok(())
    }
    fn pop(&mut self) -> Result<usize> {
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() <= floor {
            return Err("pickle: a value is missing".into());
        }
        self.stack.pop().ok_or_else(|| "pickle: a value is missing".into())
    }
    fn top(&self) -> Result<usize> {
        self.stack.last().copied().ok_or_else(|| "a value is missing".into())
    }
    /// What stands above the last mark, which goes.
    fn marked(&mut self) -> Result<Vec<usize>> {
        let floor = self.marks.pop().ok_or("a mark is missing")?;
        if floor > self.stack.len() {
            return Err("a value is missing".into());
        }
        Ok(self.stack.split_off(floor))
    }
    fn text(&mut self, bytes: &[u8]) -> Result<()> {
        self.push(Node::Text(String::from_utf8_lossy(bytes).into_owned()))
    }
    fn remember(&mut self, key: u64) -> Result<()> {
        let top = self.top()?;
        self.memo.insert(key, top);
        Ok(())
    }
    fn recall(&mut self, key: u64) -> Result<()> {
        let at = *self.memo.get(&key).ok_or_else(|| format!("nothing was remembered as {key}"))?;
        self.stack.push(at);
        Ok(())
    }
    fn key(&mut self) -> Result<u64> {
        let line = self.line()?;
        line.trim().parse().map_err(|_| format!("'{line}' is no number"))
    }
    fn tuple(&mut self, n: usize) -> Result<()> {
        let mut list = (0..n).map(|_| self.pop()).collect::<Result<Vec<_>>>()?;
        list.reverse();
        self.push(Node::Tuple(list))
    }

    fn step(&mut self, op: u8) -> Result<()> {
        match op {
            // Protocol and frame: nothing to do.
            0x80 => self.take(1).map(drop),
            0x95 => self.take(8).map(drop),
            b'(' => {
                self.marks.push(self.stack.len());
                Ok(())
            }
            b'0' => self.pop().map(drop),
            b'1' => self.marked().map(drop),
            b'2' => {
                let top = self.top()?;
                self.stack.push(top);
                Ok(())
            }
            b'p' => self.key().and_then(|k| self.remember(k)),
            b'q' => self.number(1).and_then(|k| self.remember(k)),
            b'r' => self.number(4).and_then(|k| self.remember(k)),
            0x94 => self.remember(self.memo.len() as u64),
            b'g' => self.key().and_then(|k| self.recall(k)),
            b'h' => self.number(1).and_then(|k| self.recall(k)),
            b'j' => self.number(4).and_then(|k| self.recall(k)),
            _ => self.value(op),
        }
    }

    /// Plain values.
    fn value(&mut self, op: u8) -> Result<()> {
        match op {
            b'N' => self.push(Node::None),
            0x88 => self.push(Node::Bool(true)),
            0x89 => self.push(Node::Bool(false)),
            b'J' => {
                let n = self.number(4)? as u32 as i32;
                self.push(Node::Int(n.into()))
            }
            b'K' => {
                let n = self.number(1)?;
                self.push(Node::Int(n as i64))
            }
            b'M' => {
                let n = self.number(2)?;
                self.push(Node::Int(n as i64))
            }
            b'I' | b'L' => {
                let line = self.line()?;
                match line.trim().trim_end_matches('L') {
                    "00" if op == b'I' => self.push(Node::Bool(false)),
                    "01" if op == b'I' => self.push(Node::Bool(true)),
                    digits => match digits.parse() {
                        Ok(n) => self.push(Node::Int(n)),
                        Err(_) => Err(format!("'{line}' is no number of 64 bits")),
                    },
                }
            }
            0x8a => {
                let bytes = self.run(1)?;
                self.push(long(bytes))
            }
            0x8b => {
                let bytes = self.run(4)?;
                self.push(long(bytes))
            }
            b'F' => {
                let line = self.line()?;
                let x = line.trim().parse().map_err(|_| format!("'{line}' is no number"))?;
                self.push(Node::Float(x))
            }
            b'G' => {
                let bits = self.take(8)?.iter().fold(0, |w, b| w << 8 | u64::from(*b));
                self.push(Node::Float(f64::from_bits(bits)))
            }
            b'S' | b'V' => {
                let line = self.line()?;
                let quoted = line.trim();
                let inner = quoted.strip_prefix(['\'', '"']).and_then(|s| s.strip_suffix(['\'', '"']));
                let text = inner.filter(|_| op == b'S').unwrap_or(&line).to_string();
                self.push(Node::Text(text))
            }
            b'T' | b'X' => self.run(4).and_then(|t| self.text(t)),
            b'U' | 0x8c => self.run(1).and_then(|t| self.text(t)),
            0x8d => self.run(8).and_then(|t| self.text(t)),
            b'C' | b'B' | 0x8e | 0x96 => {
                let width = match op {
                    b'C' => 1,
                    b'B' => 4,
                    _ => 8,
                };
                let bytes = self.run(width)?.to_vec();
                self.push(Node::Bytes(bytes))
            }
            _ => self.container(op),
        }
    }

    /// Lists, tuples, dictionaries.
    fn container(&mut self, op: u8) -> Result<()> {
        match op {
            b']' | 0x8f => self.push(Node::List(Vec::new())),
            b'}' => self.push(Node::Dict(Vec::new())),
            b')' => self.push(Node::Tuple(Vec::new())),
            0x85..=0x87 => self.tuple(usize::from(op - 0x84)),
            b't' => {
                let list = self.marked()?;
                self.push(Node::Tuple(list))
            }
            b'l' | 0x91 => {
                let list = self.marked()?;
                self.push(Node::List(list))
            }
            b'd' => {
                let list = pairs(self.marked()?)?;
                self.push(Node::Dict(list))
            }
            b'a' => {
                let item = self.pop()?;
                self.extend(&[item])
            }
            b'e' | 0x90 => {
                let items = self.marked()?;
                self.extend(&items)
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set(vec![(key, value)])
            }
            b'u' => {
                let items = pairs(self.marked()?)?;
                self.set(items)
            }
            _ => self.class(op),
        }
    }
    fn extend(&mut self, items: &[usize]) -> Result<()> {
        let top = self.top()?;
        match &mut self.nodes[top] {
            Node::List(list) => list.extend(items),
            other => return Err(format!("{other:?} is no list")),
        }
        Ok(())
    }
    fn set(&mut self, items: Vec<(usize, usize)>) -> Result<()> {
        let top = self.top()?;
        match &mut self.nodes[top] {
            Node::Dict(list) => list.extend(items),
            other => return Err(format!("{other:?} is no dictionary")),
        }
        Ok(())
    }

    /// Names, calls, and things that are kept elsewhere.
    fn class(&mut self, op: u8) -> Result<()> {
        match op {
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.global(&module, &name)
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                match (self.nodes[module].clone(), self.nodes[name].clone()) {
                    (Node::Text(module), Node::Text(name)) => self.global(&module, &name),
                    _ => Err("a name is no text".into()),
                }
            }
            b'P' => {
                let name = self.line()?;
                self.nodes.push(Node::Text(name));
                self.push(Node::Persistent(self.nodes.len() - 1))
            }
            b'Q' => {
                let name = self.pop()?;
                self.push(Node::Persistent(name))
            }
            b'R' | 0x81 => {
                let (arguments, function) = (self.pop()?, self.pop()?);
                let Node::Tuple(list) = &self.nodes[arguments] else {
                    return Err("the arguments of a call are no tuple".into());
                };
                let is_empty = list.is_empty();
                let Node::Global(name) = self.nodes[function].clone() else {
                    return Err("what is called has no name".into());
                };
                // An ordered dictionary is made empty and filled.
                let is_dict = name == "collections.OrderedDict" && is_empty;
                self.push(if is_dict { Node::Dict(Vec::new()) } else { Node::Call(name, arguments) })
            }
            // Attributes of what is below: none of them is used.
            b'b' => self.pop().map(drop),
            other => Err(format!("operation {other:#04x} is not read")),
        }
    }
    fn global(&mut self, module: &str, name: &str) -> Result<()> {
        let name = format!("{module}.{name}");
        if !(self.allowed)(&name) {
            return Err(format!("it names '{name}', which is not in the list of what may be loaded"));
        }
        self.push(Node::Global(name))
    }
}

fn pairs(list: Vec<usize>) -> Result<Vec<(usize, usize)>> {
    if !list.len().is_multiple_of(2) {
        return Err("a key has no value".into());
    }
    Ok(list.chunks_exact(2).map(|p| (p[0], p[1])).collect())
}

/// A little-endian two's complement number; one of more than 64 bits stays bytes.
fn long(bytes: &[u8]) -> Node {
    if bytes.len() > 8 {
        return Node::Bytes(bytes.to_vec());
    }
    let fill = if bytes.last().is_some_and(|b| b & 0x80 != 0) { u8::MAX } else { 0 };
    let mut all = [fill; 8];
    all[..bytes.len()].copy_from_slice(bytes);
    Node::Int(i64::from_le_bytes(all))
}
