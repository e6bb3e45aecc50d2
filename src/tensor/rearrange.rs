//! `rearrange`: a change of axes written as in einops, `"b (h w) c -> b c h w"`.
//!
//! Left and right of the arrow stand the same axis names, in the order of the axes; names in parentheses are one axis
//! of the Tensor, the first name outermost. `1` is an axis of size 1, `...` any number of axes.

use super::error::{Problem, Shown};
use super::graph;
use super::movement::Movement;
use super::value::{Expr, lift};
use super::{Tensor, Value};
use crate::uop::{Dim, numel};

/// More movements, written as text or made of several.
pub trait Rearrange: Value {
    /// The axes split, joined and reordered as an einops pattern says; `sizes` has those of names in parentheses that
    /// cannot be inferred (of each parenthesis, one can).
    ///
    /// ```
    /// use doorbell::tensor::prelude::*;
    /// let heads = Tensor::zeros([2, 5, 12]).rearrange("b t (h d) -> b h t d", &[("h", 3)]);
    /// assert_eq!(heads.max_shape()?, [2, 3, 5, 4]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    fn rearrange(&self, pattern: &str, sizes: &[(&str, usize)]) -> Self {
        lift("rearrange", [self.node()], |[x]| rearranged(&x, pattern, sizes))
    }
    /// Every slice along an axis, without that axis.
    #[track_caller]
    fn unbind(&self, axis: i64) -> Vec<Self> {
        let count = self.node().ok().and_then(|u| {
            let at = super::args::axis(axis, u.shape().len()).ok()?;
            u.shape()[at].as_int().filter(|n| *n <= super::args::PIECES as i64)
        });
        let Some(count) = count else {
            return vec![lift("unbind", [self.node()], |[x]| {
                super::args::axis(axis, x.rank())?;
                Err(Problem::shape(format!("axis {axis} of {} is not known, or too long", Shown(x.shape()))))
            })];
        };
        let mut list = Vec::new();
        for k in 0..count {
            list.push(lift("unbind", [self.node()], |[x]| Ok(x.narrow(axis, k, 1).squeeze(axis))));
        }
        list
    }
    /// Axis `from` moved to position `to`, the others in their order.
    #[track_caller]
    fn movedim(&self, from: i64, to: i64) -> Self {
        lift("movedim", [self.node()], |[x]| {
            let (from, to) = (super::args::axis(from, x.rank())?, super::args::axis(to, x.rank())?);
            let mut order: Vec<i64> = (0..x.rank() as i64).filter(|k| *k != from as i64).collect();
            order.insert(to, from as i64);
            Ok(x.permute(order))
        })
    }
    /// [`Rearrange::movedim`]
    #[track_caller]
    fn moveaxis(&self, from: i64, to: i64) -> Self {
        self.movedim(from, to)
    }
    /// [`Movement::meshgrid`] with `xy` indexing: the first vector varies along axis 1, the second along axis 0.
    #[track_caller]
    fn meshgrid_xy(list: &[&Self]) -> Vec<Self> {
        let grids = Self::meshgrid(list);
        if list.len() < 2 {
            return grids;
        }
        let mut swapped: Vec<&Self> = list.to_vec();
        swapped.swap(0, 1);
        let mut grids = Self::meshgrid(&swapped);
        grids.swap(0, 1);
        grids
    }
}

impl<V: Value> Rearrange for V {}

/// An axis of a pattern.
#[derive(Clone, PartialEq)]
enum Item {
    Name(String),
    One,
    Rest,
}

/// One axis of a Tensor: the names it is made of.
type Group = Vec<Item>;

fn refused<T>(text: String) -> Result<T, Problem> {
    Err(Problem::argument(text))
}

fn item(word: &str) -> Result<Item, Problem> {
    let is_name =
        |w: &str| w.chars().all(|c| c.is_alphanumeric() || c == '_') && !w.starts_with(|c: char| c.is_numeric());
    match word {
        "..." | "…" => Ok(Item::Rest),
        "1" => Ok(Item::One),
        w if is_name(w) => Ok(Item::Name(w.into())),
        w if w.parse::<usize>().is_ok() => refused(format!("an axis without a name can only be 1, not {w}")),
        w => refused(format!("`{w}` is no axis name")),
    }
}

/// One side of a pattern.
fn side(text: &str) -> Result<Vec<Group>, Problem> {
    let spaced = text.replace("...", " … ").replace('(', " ( ").replace(')', " ) ");
    let mut groups: Vec<Group> = Vec::new();
    let mut open: Option<Group> = None;
    for word in spaced.split_whitespace() {
        match (word, &mut open) {
            ("(", None) => open = Some(Vec::new()),
            ("(", Some(_)) => return refused(format!("a parenthesis within a parenthesis in `{}`", text.trim())),
            (")", _) => match open.take() {
                Some(group) => groups.push(group),
                None => return refused(format!("`)` without `(` in `{}`", text.trim())),
            },
            (word, Some(group)) => group.push(item(word)?),
            (word, None) => groups.push(vec![item(word)?]),
        }
    }
    if open.is_some() {
        return refused(format!("`(` without `)` in `{}`", text.trim()));
    }
    let flat: Vec<&Item> = groups.iter().flatten().collect();
    for (k, i) in flat.iter().enumerate() {
        match i {
            Item::Name(name) if flat[..k].contains(i) => return refused(format!("`{name}` stands twice on one side")),
            Item::Rest if flat[..k].contains(i) => return refused("`...` stands twice on one side".into()),
            _ => {}
        }
    }
    Ok(groups)
}

/// `...` of the left side as names that no user can write; returns how many.
fn spread(groups: &mut Vec<Group>, rank: usize) -> Result<usize, Problem> {
    let at = groups.iter().position(|g| g.contains(&Item::Rest));
    let named = groups.len() - usize::from(at.is_some());
    match at {
        None if named != rank => refused(format!("{named} axes named for rank {rank}")),
        None => Ok(0),
        Some(k) if groups[k].len() > 1 => refused("`...` stands in a parenthesis on the left".into()),
        Some(_) if named > rank => refused(format!("{named} axes named for rank {rank}")),
        Some(k) => {
            let more = rank - named;
            groups.splice(k..=k, (0..more).map(|i| vec![hidden(i)]));
            Ok(more)
        }
    }
}

fn hidden(k: usize) -> Item {
    Item::Name(format!(".{k}"))
}

/// The size of every name of the left side.
fn measured(x: &Expr, left: &[Group], sizes: &[(&str, usize)]) -> Result<Vec<(Item, Dim)>, Problem> {
    let mut found = Vec::new();
    for (group, whole) in left.iter().zip(x.shape()) {
        let given = |i: &Item| match i {
            Item::Name(name) => sizes.iter().find(|s| s.0 == name).map(|s| Dim::from(s.1)),
            _ => Some(Dim::Int(1)),
        };
        let known: Vec<Dim> = group.iter().filter_map(given).collect();
        let open: Vec<&Item> = group.iter().filter(|i| given(i).is_none()).collect();
        let rest = match open[..] {
            [] => graph::same_numel(std::slice::from_ref(whole), &known).then_some(Dim::Int(1)),
            [_] => graph::quotient(std::slice::from_ref(whole), &known),
            _ => return refused(format!("an axis of size {whole} is split into several names without a size")),
        };
        let Some(rest) = rest else {
            let text: Vec<String> = known.iter().map(Dim::to_string).collect();
            return Err(Problem::shape(format!("an axis of size {whole} is no product of {}", text.join(" and "))));
        };
        found.extend(group.iter().map(|i| (i.clone(), given(i).unwrap_or_else(|| rest.clone()))));
    }
    Ok(found)
}

fn rearranged(x: &Expr, pattern: &str, sizes: &[(&str, usize)]) -> Result<Expr, Problem> {
    let Some((left, right)) = pattern.split_once("->") else {
        return refused(format!("`{pattern}` has no `->`"));
    };
    let (mut left, right) = (side(left)?, side(right)?);
    let had_rest = left.iter().flatten().any(|i| *i == Item::Rest);
    if had_rest != right.iter().flatten().any(|i| *i == Item::Rest) {
        return refused("`...` stands on one side only".into());
    }
    let more = spread(&mut left, x.rank())?;
    let right: Vec<Group> = right.into_iter().flat_map(|group| opened(group, more)).collect();
    let names =
        |groups: &[Group]| -> Vec<Item> { groups.iter().flatten().filter(|i| **i != Item::One).cloned().collect() };
    let (from, to) = (names(&left), names(&right));
    for (list, other, which) in [(&from, &to, "left"), (&to, &from, "right")] {
        if let Some(Item::Name(name)) = list.iter().find(|i| !other.contains(i)) {
            return refused(format!("`{name}` stands on the {which} only"));
        }
    }
    if let Some((name, _)) = sizes.iter().find(|s| !from.contains(&Item::Name(s.0.into()))) {
        return refused(format!("a size for `{name}`, which is no axis of `{pattern}`"));
    }
    let found: Vec<(Item, Dim)> = measured(x, &left, sizes)?.into_iter().filter(|f| f.0 != Item::One).collect();
    let place = |i: &Item| found.iter().position(|f| f.0 == *i);
    let order: Vec<i64> = to.iter().filter_map(place).map(|k| k as i64).collect();
    let size = |i: &Item| place(i).map_or(Dim::Int(1), |k| found[k].1.clone());
    let shape: Vec<Dim> = right.iter().map(|g| numel(&g.iter().map(size).collect::<Vec<_>>())).collect();
    Ok(x.reshape(found.iter().map(|f| f.1.clone()).collect::<Vec<_>>()).permute(order).reshape(shape))
}

/// `...` of the right side as the names of the left: axes of their own, or part of a parenthesis.
fn opened(group: Group, more: usize) -> Vec<Group> {
    if group == [Item::Rest] {
        return (0..more).map(|k| vec![hidden(k)]).collect();
    }
    let spread = |i: Item| match i {
        Item::Rest => (0..more).map(hidden).collect(),
        i => vec![i],
    };
    vec![group.into_iter().flat_map(spread).collect()]
}

impl Tensor {
    /// [`Tensor::from_bytes`] of a copy of memory that the caller keeps, on the default device: PyTorch's `frombuffer`.
    #[track_caller]
    pub fn from_blob(bytes: &[u8], dtype: crate::uop::Scalar, shape: impl super::IntoShape) -> Tensor {
        Tensor::from_bytes(bytes.to_vec(), dtype, shape, &super::default_device())
    }
}
