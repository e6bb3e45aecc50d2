//! Strict mode's notes of a warp: when each register's value is there, who still reads it, which lanes were ever written.
//!
//! Distances are the smallest that ptxas leaves ([`sass::distance`]); results of variable latency are there when their scoreboard, or
//! a later result of the same in-order queue, has been waited for. A warp's clock counts the stalls of what it issues, whichever
//! path it belongs to: a distance that only another path's instructions fill is not found. A stall of 0 that yields is taken as a wait for
//! everything: ptxas gives it to all code that it does not optimise, which has neither stalls nor scoreboards.

use super::fault::{FaultKind, R, fail};
use super::program::Decoded;
use super::warp::Warp;
use crate::isa::sass::{self, Access, Completion, Control, Effects, Instruction, Pipe, RegFile};
use std::rc::Rc;

/// An instruction as a producer or reader of registers.
#[derive(Debug)]
struct Issued {
    inst: Instruction,
}

/// What an instruction does to registers, and when.
pub(super) struct Timing {
    effects: Effects,
    control: Control,
    /// Results come with a scoreboard.
    variable: bool,
    reads_late: bool,
    /// Results of a group, which strict mode does not follow.
    grouped: bool,
    queue: (Pipe, &'static str),
    uniform: bool,
    issued: Rc<Issued>,
    depbar: Option<(u8, usize)>,
}

impl Timing {
    /// Functions save registers that their caller may never have written, shuffles read lanes that nobody asks for, and
    /// PRMT puts halves into registers that have nothing yet.
    fn spreads_unwritten(&self, access: &Access) -> bool {
        matches!((self.issued.inst.form().mnemonic, access.slot), ("STL", "b") | ("SHFL", "a") | ("PRMT", _))
    }

    pub fn of(inst: &Instruction, mut effects: Effects) -> Timing {
        let form = inst.form();
        let file = match form.mnemonic {
            "R2P" => Some(RegFile::Predicate),
            "UR2UP" => Some(RegFile::UniformPredicate),
            _ => None,
        };
        if let Some(file) = file {
            let mask = inst.get("b", sass::Role::Value).unwrap_or(0);
            let written = (0..7).filter(|p| mask >> p & 1 == 1);
            effects.writes.extend(written.map(|first| Access { slot: "pu", file, first, count: 1 }));
        }
        let completion = sass::completion(inst);
        let ordered = matches!(form.pipe, Pipe::Xu | Pipe::Shared);
        let depbar = (form.mnemonic == "DEPBAR" && form.name == "LE").then(|| {
            let get = |slot| inst.get(slot, sass::Role::Value).unwrap_or(0);
            (get("s") as u8, get("n") as usize)
        });
        Timing {
            effects,
            control: inst.control,
            variable: completion == Completion::Scoreboard,
            reads_late: sass::reads_late(inst),
            grouped: completion == Completion::Group,
            queue: (form.pipe, if ordered { "" } else { form.mnemonic }),
            uniform: form.guard == sass::File::UniformPredicate,
            issued: Rc::new(Issued { inst: *inst }),
            depbar,
        }
    }
}

/// An instruction whose results or sources are still on their way.
struct Flight {
    id: u32,
    write: Option<u8>,
    read: Option<u8>,
    queue: (Pipe, &'static str),
    /// Sources have been read.
    has_read: bool,
}

/// A register's state.
#[derive(Clone, Default)]
struct Register {
    /// Lanes that were ever written.
    written: u32,
    /// Lanes and clock of the last write, and who wrote.
    lanes: u32,
    at: u64,
    by: Option<(Rc<Issued>, Access, u64)>,
    /// The flight that writes it, and the last that reads it late; 0: none.
    flight: u32,
    reader: u32,
    reading: Option<(Rc<Issued>, u64, u32)>,
}

/// Notes of a warp.
pub(super) struct Book {
    registers: Vec<Register>,
    flights: Vec<Flight>,
    next: u32,
}

/// No fixed latency is longer.
const LONGEST: u64 = 32;

fn place(file: RegFile, index: u8) -> usize {
    usize::from(index)
        + match file {
            RegFile::General => 0,
            RegFile::Uniform => 256,
            RegFile::Predicate => 320,
            RegFile::UniformPredicate => 328,
        }
}

fn name(file: RegFile, index: u8) -> String {
    let letters = match file {
        RegFile::General => "R",
        RegFile::Uniform => "UR",
        RegFile::Predicate => "P",
        RegFile::UniformPredicate => "UP",
    };
    format!("{letters}{index}")
}

fn text(issued: &Issued) -> String {
    sass::print(&issued.inst)
}

impl Book {
    pub fn new() -> Book {
        Book { registers: vec![Register::default(); 336], flights: Vec::new(), next: 1 }
    }

    /// Checks an instruction that is about to issue, and notes what it does.
    pub fn before(&mut self, warp: &mut Warp, d: &Decoded, lanes: u32, path: u32) -> R<()> {
        let t = &d.timing;
        self.wait(t);
        for access in &t.effects.reads {
            let lanes = if access.slot == "guard" { path } else { lanes };
            if lanes != 0 {
                self.check_read(access, lanes, t, warp.clock)?;
            }
        }
        if lanes != 0 {
            for access in &t.effects.writes {
                self.check_write(access, lanes, t)?;
            }
            self.note(t, d.pc, lanes, warp.clock);
        }
        if t.control.stall == 0 && t.control.yields {
            self.flights.clear();
            warp.clock += LONGEST;
        }
        warp.clock += u64::from(t.control.stall.max(1));
        Ok(())
    }

    fn in_flight(&self, id: u32) -> Option<&Flight> {
        if id == 0 { None } else { self.flights.iter().find(|f| f.id == id) }
    }

    /// The scoreboards waited for: what set them is done, and with it what its queue had before.
    fn wait(&mut self, t: &Timing) {
        for board in (0..6).filter(|b| t.control.wait >> b & 1 == 1) {
            self.done(board, usize::MAX);
        }
        if let Some((board, left)) = t.depbar {
            let count = self.flights.iter().filter(|f| f.write == Some(board) || f.read == Some(board)).count();
            self.done(board, count.saturating_sub(left));
        }
    }

    /// The first `count` that set the scoreboard are done.
    fn done(&mut self, board: u8, count: usize) {
        let set = |f: &&Flight| f.write == Some(board) || f.read == Some(board) && !f.has_read;
        let ended: Vec<_> =
            self.flights.iter().filter(set).take(count).map(|f| (f.id, f.queue, f.write == Some(board))).collect();
        for (id, queue, whole) in ended {
            // A pipe reads its sources in order, whatever it delivers.
            for flight in self.flights.iter_mut().filter(|f| f.queue.0 == queue.0 && f.id <= id) {
                flight.has_read = true;
            }
            if whole {
                self.flights.retain(|f| f.queue != queue || f.id > id);
            }
        }
    }

    fn check_read(&self, access: &Access, lanes: u32, t: &Timing, clock: u64) -> R<()> {
        let scalar = matches!(access.file, RegFile::Uniform | RegFile::UniformPredicate);
        for index in access.first..access.first.saturating_add(access.count) {
            let r = &self.registers[place(access.file, index)];
            let missing = lanes & !r.written;
            if missing != 0 && !(scalar && r.written != 0) && !t.spreads_unwritten(access) {
                return fail(FaultKind::Unwritten { register: name(access.file, index), lanes: missing });
            }
            let Some((by, written, at)) = &r.by else { continue };
            if r.lanes & lanes == 0 && !scalar {
                continue;
            }
            if let Some(flight) = self.in_flight(r.flight) {
                let same_queue = flight.queue == t.queue && t.queue.0 == Pipe::Gmma;
                if !same_queue {
                    let (register, producer) = (name(access.file, index), text(by));
                    return fail(FaultKind::NotWaited { register, used: "read", producer, at: *at });
                }
            }
            let have = clock - r.at;
            if r.flight != 0 || have >= LONGEST {
                continue;
            }
            let need = sass::distance(&by.inst, written, &t.issued.inst, access).seen;
            // An addend is read up to two cycles after the factors.
            let late = access.slot == "c" && matches!(t.queue.0, Pipe::Imad | Pipe::ImadWide | Pipe::Fma);
            let need = if late { need.saturating_sub(2) } else { need };
            if have < u64::from(need) {
                let (register, producer) = (name(access.file, index), text(by));
                let (have, need) = (have as u32, u32::from(need));
                return fail(FaultKind::TooEarly { register, producer, at: *at, have, need });
            }
        }
        Ok(())
    }

    fn check_write(&self, access: &Access, lanes: u32, t: &Timing) -> R<()> {
        for index in access.first..access.first.saturating_add(access.count) {
            let r = &self.registers[place(access.file, index)];
            if let (Some(flight), Some((by, _, at))) = (self.in_flight(r.flight), &r.by)
                && flight.queue != t.queue
                && r.lanes & lanes != 0
            {
                let (register, producer) = (name(access.file, index), text(by));
                return fail(FaultKind::NotWaited { register, used: "overwritten", producer, at: *at });
            }
            if let (Some(flight), Some((by, at, readers))) = (self.in_flight(r.reader), &r.reading)
                && flight.queue.0 != t.queue.0
                && readers & lanes != 0
                && !flight.has_read
            {
                let (register, reader) = (name(access.file, index), text(by));
                return fail(FaultKind::ReadPending { register, reader, at: *at });
            }
        }
        Ok(())
    }

    fn note(&mut self, t: &Timing, pc: u64, lanes: u32, clock: u64) {
        let mut id = 0;
        if !t.grouped && (t.variable && !t.effects.writes.is_empty() || t.reads_late) {
            id = self.next;
            self.next += 1;
            let (write, read) = (t.control.write, t.control.read);
            // Sources that no scoreboard guards have been read when the results are there.
            let has_read = read.is_none() && write.is_none() && t.effects.writes.is_empty();
            self.flights.push(Flight { id, write, read, queue: t.queue, has_read });
            self.flights.retain(|f| f.id + 4096 > id);
        }
        for access in &t.effects.writes {
            for index in access.first..access.first.saturating_add(access.count) {
                let r = &mut self.registers[place(access.file, index)];
                let lanes = if t.uniform || matches!(access.file, RegFile::Uniform) { u32::MAX } else { lanes };
                (r.written, r.lanes, r.at) = (r.written | lanes, lanes, clock);
                r.by = Some((Rc::clone(&t.issued), *access, pc));
                r.flight = if t.variable { id } else { 0 };
            }
        }
        if t.reads_late && id != 0 {
            // Uniform sources and predicates are read at issue, but for bulk copies.
            let late = |a: &&Access| a.file == RegFile::General || t.queue.0 == Pipe::Bulk && a.slot != "guard";
            for access in t.effects.reads.iter().filter(late) {
                for index in access.first..access.first.saturating_add(access.count) {
                    let r = &mut self.registers[place(access.file, index)];
                    (r.reader, r.reading) = (id, Some((Rc::clone(&t.issued), pc, lanes)));
                }
            }
        }
    }
}
