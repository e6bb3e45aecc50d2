//! Register banks: renumbers registers so that the operands of an instruction are in different banks.
//!
//! General registers are in two banks, by parity, and each delivers two operands at a time: an instruction whose three
//! sources are all even or all odd takes an additional cycle. Single registers are exchanged to minimise such cases,
//! with those in loops weighted higher. Source: published measurements of Volta and Turing. ptxas 13.5.37 does so for
//! sm_90: of 2,827 such FFMA, IMAD, LOP3 and IADD3 in its code, 20 have three sources of one parity that no reuse flag
//! avoids, while a random assignment would give a quarter (of HFMA2 one in eight).

use super::list::{Listing, Node};
use crate::sass::compile::allocate::place::STACK;
use crate::sass::effects::general_fields;
use crate::sass::{Pipe, RegFile};
use smallvec::SmallVec;

const REGISTERS: usize = 256;
/// Reads as zero, from no bank.
const ZERO: u8 = 255;
/// Weight of a loop level: an instruction in a loop counts this many times.
const LOOP_WEIGHT: u32 = 8;
const DEEPEST: u32 = 3;

/// An instruction with three different general registers as its sources.
struct Site {
    registers: [u8; 3],
    weight: u32,
}

/// Renumbers registers so that fewer instructions have all sources in one bank. Registers of tuples and the stack
/// pointer keep their numbers.
pub(crate) fn spread(code: &mut Listing, labels: usize) {
    let sites = sites(code, labels);
    if sites.is_empty() {
        return;
    }
    let mut names = Names::new(sites);
    if !names.sites.iter().any(|s| names.collides(s)) {
        return;
    }
    names.bind(&code.nodes);
    if names.improve() {
        code.nodes.iter_mut().for_each(|n| names.rename(n));
    }
}

fn sites(code: &Listing, labels: usize) -> Vec<Site> {
    let mut out = vec![];
    for (at, n) in code.nodes.iter().enumerate() {
        let form = n.inst.form();
        if n.effects.reads.len() < 3 || !matches!(form.pipe, Pipe::Alu | Pipe::Fma | Pipe::Imad | Pipe::Half) {
            continue;
        }
        let mut general =
            n.effects.reads.iter().filter(|a| a.file == RegFile::General && a.count == 1).map(|a| a.first);
        if let (Some(a), Some(b), Some(c), None) = (general.next(), general.next(), general.next(), general.next())
            && a != b
            && b != c
            && a != c
            // At least four with its result, not counting constants.
            && general_fields(form).nth(3).is_some()
        {
            out.push((at, [a, b, c]));
        }
    }
    if out.is_empty() {
        return vec![];
    }
    let depth = depths(code, labels);
    out.into_iter().map(|(at, registers)| Site { registers, weight: LOOP_WEIGHT.pow(depth[at].min(DEEPEST)) }).collect()
}

/// Loop depth of each node: a loop is the code between a label and a jump back to it.
fn depths(code: &Listing, labels: usize) -> Vec<u32> {
    let (mut places, mut changes) = (vec![usize::MAX; labels], vec![0i32; code.nodes.len() + 1]);
    code.pieces.iter().for_each(|p| p.labels.iter().for_each(|l| places[*l] = p.range.start));
    for (at, n) in code.nodes.iter().enumerate().filter(|(_, n)| n.jumps) {
        if let Some(from) = n.target.map(|to| places[to]).filter(|from| *from <= at) {
            changes[from] += 1;
            changes[at + 1] -= 1;
        }
    }
    let mut depth = 0;
    changes
        .iter()
        .map(|c| {
            depth += c;
            depth.unsigned_abs()
        })
        .collect()
}

struct Names {
    sites: Vec<Site>,
    /// The sites of each register, grouped by register, and where each group begins.
    of: Vec<u32>,
    first: [u32; REGISTERS + 1],
    /// Each register's new number.
    now: [u8; REGISTERS],
    /// Registers that may be renumbered, in order.
    free: Vec<u8>,
}

impl Names {
    fn new(sites: Vec<Site>) -> Names {
        #[allow(clippy::cast_possible_truncation)] // below 256
        Names { sites, of: vec![], first: [0; REGISTERS + 1], now: std::array::from_fn(|r| r as u8), free: vec![] }
    }

    fn collides(&self, s: &Site) -> bool {
        let [a, b, c] = s.registers.map(|r| self.now[usize::from(r)] & 1);
        a == b && b == c
    }

    /// Finds which registers may be renumbered.
    fn bind(&mut self, nodes: &[Node]) {
        let (mut bound, mut highest) = ([false; REGISTERS], 0);
        bound[STACK as usize] = true;
        // WARPGROUP instructions are skipped: they have the registers of wgmma instructions as operands.
        for n in nodes.iter().filter(|n| n.inst.form().mnemonic != "WARPGROUP") {
            for a in n.effects.reads.iter().chain(&n.effects.writes).filter(|a| a.file == RegFile::General) {
                let end = a.first.saturating_add(a.count);
                highest = highest.max(end - 1);
                if a.count > 1 {
                    bound[usize::from(a.first)..usize::from(end)].fill(true);
                }
            }
        }
        self.free = (0..=highest.min(ZERO - 1)).filter(|r| !bound[usize::from(*r)]).collect();
        let registers = || (0..).zip(&self.sites).flat_map(|(k, s)| s.registers.map(|r| (usize::from(r), k)));
        registers().for_each(|(r, _)| self.first[r + 1] += 1);
        for r in 0..REGISTERS {
            self.first[r + 1] += self.first[r];
        }
        let mut next = self.first;
        self.of = vec![0; 3 * self.sites.len()];
        for (r, k) in registers() {
            self.of[next[r] as usize] = k;
            next[r] += 1;
        }
    }

    fn of(&self, register: u8) -> &[u32] {
        let r = usize::from(register);
        &self.of[self.first[r] as usize..self.first[r + 1] as usize]
    }

    /// Cost of the sites of these registers.
    fn cost(&self, a: u8, b: u8) -> u32 {
        let all = self.of(a).iter();
        let others = self.of(b).iter().filter(|k| !self.sites[**k as usize].registers.contains(&a));
        all.chain(others).map(|k| &self.sites[*k as usize]).filter(|s| self.collides(s)).map(|s| s.weight).sum()
    }

    fn exchange(&mut self, a: u8, b: u8) {
        self.now.swap(a.into(), b.into());
    }

    /// Exchanges registers as long as that reduces the cost; returns whether any were.
    fn improve(&mut self) -> bool {
        let mut order: Vec<usize> = (0..self.sites.len()).filter(|k| self.collides(&self.sites[*k])).collect();
        order.sort_unstable_by_key(|k| (std::cmp::Reverse(self.sites[*k].weight), *k));
        let mut changed = false;
        for k in order {
            if !self.collides(&self.sites[k]) {
                continue;
            }
            if let Some((a, b)) = self.best(k) {
                self.exchange(a, b);
                changed = true;
            }
        }
        changed
    }

    /// The best exchange for an instruction.
    fn best(&mut self, site: usize) -> Option<(u8, u8)> {
        let mut best = (0, None);
        for a in self.sites[site]
            .registers
            .into_iter()
            .filter(|r| self.free.binary_search(r).is_ok())
            .collect::<SmallVec<[u8; 3]>>()
        {
            for k in 0..self.free.len() {
                let b = self.free[k];
                if self.now[usize::from(a)] & 1 == self.now[usize::from(b)] & 1 {
                    continue;
                }
                let before = self.cost(a, b);
                self.exchange(a, b);
                let spared = before.saturating_sub(self.cost(a, b));
                self.exchange(a, b);
                if spared > best.0 {
                    best = (spared, Some((a, b)));
                }
            }
        }
        best.1
    }

    fn rename(&self, n: &mut Node) {
        for field in general_fields(n.inst.form()) {
            let old = n.inst.at(field);
            if let Some(new) = usize::try_from(old).ok().and_then(|r| self.now.get(r)).filter(|n| u64::from(**n) != old)
            {
                // The new number has the same width.
                let _ = n.inst.set_at(field, u64::from(*new));
            }
        }
        let all = n.effects.reads.iter_mut().chain(&mut n.effects.writes);
        // Tuples keep their numbers.
        all.filter(|a| a.file == RegFile::General && a.count == 1)
            .for_each(|a| a.first = self.now[usize::from(a.first)]);
    }
}
