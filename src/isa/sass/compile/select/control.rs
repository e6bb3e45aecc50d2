//! Branches, ends, barriers, fences; special registers.

use super::super::AsmError;
use super::super::build::Build;
use super::super::flat::{Flat, Opd, Symbol};
use super::super::mir::{Mach, Term, Val, Word};
use crate::isa::ptx::{Opcode, Type};
use crate::isa::sass::op;

impl Build<'_> {
    pub(super) fn control(&mut self, i: &Flat, labels: usize) -> Result<(), AsmError> {
        match i.op {
            Opcode::Bra => {
                let Some(Opd::Symbol(Symbol::Label(l), 0)) = i.opds.first() else {
                    return self.no(i, "a label is expected");
                };
                let to = labels + *l as usize;
                let next = self.fresh();
                self.code.blocks[self.block].term = match self.guard.take() {
                    None => Term::Jump(to),
                    Some(p) => {
                        let same = i.has("uni") || i.guard.is_some_and(|(r, _)| self.uniform[r as usize]);
                        Term::Branch(p, to, next, same)
                    }
                };
                self.start(next);
                Ok(())
            }
            Opcode::Ret if self.code.returns.is_some() => {
                self.return_from();
                Ok(())
            }
            Opcode::Ret | Opcode::Exit if self.guard.is_none() => {
                self.code.blocks[self.block].term = Term::Exit;
                let next = self.fresh();
                self.start(next);
                Ok(())
            }
            Opcode::Ret | Opcode::Exit => {
                self.push(Mach::new(op::EXIT_N).effect());
                Ok(())
            }
            Opcode::Trap | Opcode::Brkpt => {
                let kind = if i.op == Opcode::Trap { ".TRAP" } else { ".INT" };
                self.push(Mach::new(op::BPT_I).m("md", kind).n("m", if i.op == Opcode::Trap { 1 } else { 0 }).effect());
                Ok(())
            }
            Opcode::Nanosleep => {
                let v = self.src(i, &i.opds[0], Type::U32)?;
                let m = match v {
                    Val::Imm(n) => Mach::new(op::NANOSLEEP_I).n("m", u64::from(n)),
                    v => {
                        let w = self.in_word(v);
                        Mach::new(op::NANOSLEEP_R).r("b", w)
                    }
                };
                self.push(m.effect());
                Ok(())
            }
            Opcode::Bar | Opcode::Barrier => self.barrier(i),
            _ => self.fence(i),
        }
    }

    fn barrier(&mut self, i: &Flat) -> Result<(), AsmError> {
        if i.has("cluster") {
            return self.no(i, "cluster barriers are not assembled");
        }
        if i.has("warp") {
            self.push(Mach::new(op::WARPSYNC_ALL).effect());
            return Ok(());
        }
        let red = i.has("red");
        let first = usize::from(red);
        let Some(n) = self.constant_of(&i.opds[first]).filter(|n| *n < 16) else {
            self.barriers = 16;
            return self.no(i, "a barrier's number that is no constant is not assembled");
        };
        self.barriers = self.barriers.max(n as u32 + 1);
        let operands = i.opds.len() - first - usize::from(red);
        let count = match i.opds.get(first + 1).filter(|_| operands > 1) {
            None => 0,
            Some(o) => match self.constant_of(o) {
                Some(c) => c,
                None => return self.no(i, "a count of threads that is no constant is not assembled"),
            },
        };
        if red {
            let p = self.pred_src(i, &i.opds[i.opds.len() - 1])?;
            let op_text = if i.has("popc") {
                ".POPC"
            } else if i.has("and") {
                ".AND"
            } else {
                ".OR"
            };
            let m = Mach::new(op::BAR_RED).n("b", n).n("c", count).m("op", op_text).m("df", ".DEFER_BLOCKING");
            self.push(m.p("pp", p).effect());
            let mut m = Mach::new(op::B2R_RES);
            m = match &i.opds[0] {
                Opd::Reg(r) if self.types[*r as usize] == Type::Pred => {
                    let d = self.home(*r);
                    m.w("pu", d)
                }
                o => {
                    let d = self.dest(i, o)?;
                    m.w("d", d)
                }
            };
            self.push(m.effect());
            return Ok(());
        }
        let m = match i.has("arrive") || i.has("arv") {
            true => Mach::new(op::BAR_ARV).n("b", n).n("c", count),
            false => Mach::new(op::BAR_II).n("b", n).n("c", count).m("df", ".DEFER_BLOCKING"),
        };
        self.push(m.effect());
        Ok(())
    }

    fn fence(&mut self, i: &Flat) -> Result<(), AsmError> {
        let scope = match () {
            () if i.has("cta") => ".CTA",
            () if i.has("sys") => ".SYS",
            () if i.has("gl") || i.has("gpu") || i.has("cluster") => ".GPU",
            () => return self.no(i, "this fence is not assembled"),
        };
        if i.has("proxy") {
            return self.no(i, "fences between proxies are not assembled");
        }
        let strict = i.op == Opcode::Membar && scope != ".CTA" || i.has("sc");
        self.push(Mach::new(op::MEMBAR_S).m("k", if strict { ".SC" } else { ".ALL" }).m("sc", scope).effect());
        if scope != ".CTA" {
            self.push(Mach::new(op::ERRBAR_N).effect());
            self.push(Mach::new(op::CCTL_ALL).effect());
        }
        Ok(())
    }

    /// `mov d, %special`.
    pub(super) fn special(&mut self, i: &Flat, d: Word, name: &str) -> Result<(), AsmError> {
        let wide = i.ty().bits() == 64;
        let stem = name.trim_start_matches('%');
        let axis = |rest: &str| ["x", "y", "z"].iter().position(|a| *a == rest);
        let bank = |base: u32, at: Option<usize>| at.map(|k| Val::Const(0, base + 4 * k as u32));
        let constant = match stem.split_once('.') {
            Some(("ntid", a)) => bank(0, axis(a)),
            Some(("nctaid", a)) => bank(0xc, axis(a)),
            Some(("nclusterid", a)) => bank(0x15c, axis(a)),
            Some(("cluster_nctaid", a)) => bank(0x144, axis(a)),
            None if stem == "dynamic_smem_size" => Some(Val::Const(0, 0x2c)),
            None if stem == "nsmid" => Some(Val::Const(0, 0x10c)),
            None if stem == "gridid" => Some(Val::Const(0, 0x30)),
            _ => None,
        };
        if let Some(Val::Const(b, at)) = constant {
            match (wide, stem) {
                (true, "gridid") => self.mov64(d, super::super::mir::Wide::Const(b, at)),
                (true, _) => {
                    self.mov(d, Val::Const(b, at));
                    self.mov(d.plus(1), Val::Imm(0));
                }
                _ => self.mov(d, Val::Const(b, at)),
            }
            return Ok(());
        }
        match stem {
            "clock64" | "globaltimer" => {
                let s = if stem == "clock64" { "SR_CLOCKLO" } else { "SR_GLOBALTIMERLO" };
                self.push(Mach::new(op::CS2R_S).wn("d", d, 2).m("s", s).m("w", "").effect());
                return Ok(());
            }
            "clock" | "globaltimer_lo" => {
                let s = if stem == "clock" { "SR_CLOCKLO" } else { "SR_GLOBALTIMERLO" };
                self.push(Mach::new(op::CS2R_S).w("d", d).m("s", s).m("w", ".32").effect());
                return Ok(());
            }
            "warpid" => {
                let t = self.one();
                self.unguarded(|b| b.push(Mach::new(op::S2R_S).w("d", t).m("s", "SR_VIRTID")));
                let u = self.one();
                self.unguarded(|b| {
                    b.shift(u, [super::super::build::Src::ZERO, 8.into(), t.into()], ".R", ".U32", true)
                });
                self.lop(d, [u.into(), 0x7f.into(), super::super::build::Src::ZERO], 0xc0);
                return Ok(());
            }
            _ => {}
        }
        let register = match stem {
            "tid.x" => "SR_TID.X",
            "tid.y" => "SR_TID.Y",
            "tid.z" => "SR_TID.Z",
            "ctaid.x" => "SR_CTAID.X",
            "ctaid.y" => "SR_CTAID.Y",
            "ctaid.z" => "SR_CTAID.Z",
            "laneid" => "SR_LANEID",
            "smid" => "SR_VIRTUALSMID",
            "clock_hi" => "SR_CLOCKHI",
            "globaltimer_hi" => "SR_GLOBALTIMERHI",
            "lanemask_eq" => "SR_EQMASK",
            "lanemask_lt" => "SR_LTMASK",
            "lanemask_le" => "SR_LEMASK",
            "lanemask_gt" => "SR_GTMASK",
            "lanemask_ge" => "SR_GEMASK",
            _ => return self.no(i, &format!("{name} is not assembled")),
        };
        self.push(Mach::new(op::S2R_S).w("d", d).m("s", register));
        if wide {
            self.mov(d.plus(1), Val::Imm(0));
        }
        Ok(())
    }
}
