//! Invariants of every linear program (see `program`): order, scopes, types. Checked in tests and debug builds.

use doorbell_uop::{Op, Scalar, UMap, UOp, USet};

/// # Errors
/// The first node that breaks a rule, and the rule.
pub fn verify(list: &[UOp]) -> Result<(), String> {
    let mut listed: USet = USet::default();
    // Loop bodies (and Ifs) that are open, and the one in which each node was listed.
    let mut open: Vec<UOp> = vec![];
    let mut closed: USet = USet::default();
    let mut home: UMap<Option<UOp>> = UMap::default();
    for (k, u) in list.iter().enumerate() {
        let fail = |why: &str| Err(format!("node {k} {u:?}: {why}"));
        if !listed.insert(u.clone()) {
            return fail("listed twice");
        }
        for s in u.src() {
            if !listed.contains(s) {
                return fail(&format!("source {s:?} is not listed before it"));
            }
            let visible =
                matches!(u.op(), Op::After | Op::EndIf) || home[s].as_ref().is_none_or(|h| !closed.contains(h));
            if !visible {
                return fail(&format!("source {s:?} stands in a loop that has ended"));
            }
        }
        if matches!(u.dtype().scalar, Scalar::WeakInt | Scalar::WeakFloat) {
            return fail("weak type");
        }
        types(u).or_else(|why| fail(&why))?;
        home.insert(u.clone(), open.last().cloned());
        match u.op() {
            Op::Range | Op::If => {
                open.push(u.clone());
                home.insert(u.clone(), Some(u.clone()));
            }
            Op::End | Op::EndIf => {
                if open.pop().as_ref() != u.src().first() {
                    return fail("ends another loop than the innermost");
                }
                closed.extend(u.src().first().cloned());
                home.insert(u.clone(), open.last().cloned());
            }
            _ => {}
        }
    }
    match open.last() {
        Some(u) => Err(format!("{u:?} has no end")),
        None => Ok(()),
    }
}

fn types(u: &UOp) -> Result<(), String> {
    let lanes = |k: usize| u.src().get(k).map_or(1, |s| s.dtype().lanes);
    let need = |ok: bool, why: &str| if ok { Ok(()) } else { Err(why.to_string()) };
    let d = u.dtype();
    match u.op() {
        Op::Reduce | Op::Stage | Op::Bind | Op::Buffer | Op::Sink => Err("may not stand in a list".into()),
        Op::Splat => need(lanes(0) == 1 && u.src()[0].dtype().scalar == d.scalar, "Splat takes a scalar of its type"),
        Op::Stack => need(u.src().len() == d.lanes as usize, "Stack has one source a lane"),
        Op::Load => {
            let i = u.src()[0].src()[1].dtype().lanes;
            let gate = u.src()[0].src().get(2).map(|g| g.dtype().lanes);
            need(i == 1 || i == d.lanes, "lanes of index and value differ")?;
            need(gate.is_none_or(|g| g == 1 || g == d.lanes), "lanes of gate and value differ")?;
            need(gate.is_some() == (u.src().len() == 2), "gate and alternative come together")?;
            need(u.src().get(1).is_none_or(|a| a.dtype() == d), "the alternative has the type of the value")?;
            need(u.src()[0].dtype().scalar == d.scalar, "value and memory differ in type")
        }
        Op::Store => {
            let v = u.src()[1].dtype();
            let i = u.src()[0].src()[1].dtype().lanes;
            let gate = u.src()[0].src().get(2).map(|g| g.dtype().lanes);
            need(i == 1 || i == v.lanes, "lanes of index and value differ")?;
            need(gate.is_none_or(|g| g == 1 || g == v.lanes), "lanes of gate and value differ")?;
            need(u.src().len() == 2, "a Store in the list has no ranges")?;
            need(u.src()[0].dtype().scalar == v.scalar, "value and memory differ in type")
        }
        Op::LoadMatrix => {
            need(u.src().len() == 1 && u.src()[0].src().len() == 2, "a LoadMatrix takes one address")?;
            need(d.size_bytes().is_multiple_of(4), "a LoadMatrix gives words")?;
            need(u.src()[0].dtype().scalar == d.scalar, "value and memory differ in type")
        }
        Op::Wmma => doorbell_uop::spec::wmma(u).map_err(str::to_string),
        Op::WaveReduce => {
            need(u.src().len() == 1, "a WaveReduce in the list has no range")?;
            doorbell_uop::spec::wave_reduce(u).map_err(str::to_string)
        }
        Op::SetAcc => need(u.src()[0].dtype() == u.src()[1].dtype(), "register and value differ in type"),
        op if op.is_elementwise() => {
            need((0..u.src().len()).all(|k| lanes(k) == d.lanes), "sources differ in lanes")?;
            let same = |a: usize, b: usize| u.src()[a].dtype().scalar == u.src()[b].dtype().scalar;
            match op {
                Op::Cast | Op::Bitcast | Op::Threefry => Ok(()),
                Op::Shl | Op::Shr => need(u.src()[0].dtype().scalar == d.scalar, "type of result"),
                Op::Where => need(same(1, 2) && u.src()[1].dtype() == d, "arms differ in type"),
                _ if op.is_comparison() => need(same(0, 1) && d.scalar == Scalar::Bool, "sides differ in type"),
                _ => need(u.src().iter().all(|s| s.dtype() == d), "sources differ in type"),
            }
        }
        _ => Ok(()),
    }
}
