//! Strict mode's shadow state of a warp: when each register's value is complete, which reads are pending, which lanes
//! were ever written.
//!
//! Distances are the smallest that ptxas leaves ([`sass::distance`]); results of variable latency are complete when
//! their scoreboard, or a later result of the same in-order queue, has been waited for. A warp's clock counts the
//! stalls of the instructions it issues, of any path: a distance that only another path's instructions fill is not
//! found. A stall of 0 that yields is taken as a wait for everything: ptxas gives it to all code that it does not
//! optimise, which has neither stalls nor scoreboards.

use super::fault::{FaultKind, R, fail};
use super::operand::PSrc;
use super::program::{Code, Decoded};
use super::unwritten::{Depends, spreads};
use super::warp::Warp;
use doorbell_ptx::sass::{self, Access, Completion, Control, Effects, Instruction, Pipe, RegFile, Slot};
use smallvec::SmallVec;

/// Results come in order within one: the pipe, and where a pipe has several, the mnemonic's first eight letters.
type Queue = (Pipe, u64);

/// A register that is read or written.
struct Touch {
    place: u16,
    /// Which of the reads or writes of the instruction's effects it is of.
    access: u8,
    /// Not of lanes: of a uniform file.
    scalar: bool,
    /// The guard, which all lanes of the path read.
    guard: bool,
    /// It may be unwritten.
    spreads: bool,
    /// An addend, which is read up to two cycles after the factors.
    addend: bool,
    /// Read after the instruction has issued.
    late: bool,
}

/// What an instruction does to registers, and when.
pub(super) struct Timing {
    effects: Effects,
    reads: SmallVec<[Touch; 6]>,
    writes: SmallVec<[Touch; 4]>,
    control: Control,
    /// Results come with a scoreboard.
    variable: bool,
    /// It is noted as in flight.
    flies: bool,
    reads_late: bool,
    queue: Queue,
    depbar: Option<(u8, usize)>,
    /// Shared memory has read its sources when it is passed.
    ends_shared_reads: bool,
    group: Group,
    depends: Depends,
}

/// What an instruction does to the groups of a warpgroup's multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    /// Nothing.
    None,
    /// What was written before may be multiplied.
    Arrive,
    /// Multiplies; `true`: the last of its group.
    Multiply(bool),
    /// Waits until so many groups are left.
    Wait(u32),
}

impl Group {
    fn of(inst: &Instruction) -> Group {
        match (inst.form().pipe, inst.form().mnemonic, inst.form().name) {
            (Pipe::Gmma, "WARPGROUP", "ARV") => Group::Arrive,
            (Pipe::Gmma, "WARPGROUP", "DEPBAR") => Group::Wait(inst.get("n", sass::Role::Value).unwrap_or(0) as u32),
            (Pipe::Gmma, "WARPGROUP", _) => Group::Wait(0),
            (Pipe::Gmma, ..) => Group::Multiply(!inst.modifier("gsb").is_empty()),
            _ => Group::None,
        }
    }
}

/// Whether the second reads its sources, and so delivers, after the first has read its own: a pipe's instructions, and
/// all of memory's with the shuffles, which are in shared memory's queue.
fn reads_in_order(first: Queue, second: Queue) -> bool {
    let memory = |q: Queue| matches!(q.0, Pipe::Shared | Pipe::Global);
    first.0 == second.0 || memory(first) && memory(second)
}

fn letters(mnemonic: &str) -> u64 {
    mnemonic.bytes().take(8).fold(0, |all, letter| all << 8 | u64::from(letter))
}

impl Timing {
    /// The predicates whose values the checks of an instruction read, besides its guard.
    pub(crate) fn predicates(&self) -> impl Iterator<Item = PSrc> {
        self.depends.predicates()
    }

    pub(crate) fn of(inst: &Instruction, mut effects: Effects) -> Timing {
        let form = inst.form();
        let file = match form.mnemonic {
            "R2P" => Some(RegFile::Predicate),
            "UR2UP" => Some(RegFile::UniformPredicate),
            _ => None,
        };
        if let Some(file) = file {
            let mask = inst.get("b", sass::Role::Value).unwrap_or(0);
            let written = (0..7).filter(|p| mask >> p & 1 == 1);
            effects.writes.extend(written.map(|first| Access { slot: Slot::PU, file, first, count: 1 }));
        }
        let completion = sass::completion(inst);
        // A scoreboard makes also of an instruction of fixed latency one that is waited for.
        let scoreboarded = completion == Completion::Fixed && inst.control.write.is_some();
        let variable = completion == Completion::Scoreboard || scoreboarded;
        let reads_late = sass::reads_late(inst) || scoreboarded && inst.control.read.is_some();
        let ordered = matches!(form.pipe, Pipe::Xu | Pipe::Shared | Pipe::Double);
        // Shuffles deliver in order with shared memory.
        let queue = match form.mnemonic {
            "SHFL" => (Pipe::Shared, 0),
            _ if ordered => (form.pipe, 0),
            mnemonic => (form.pipe, letters(mnemonic)),
        };
        let get = |slot| inst.get(slot, sass::Role::Value).unwrap_or(0);
        let depbar = (form.mnemonic == "DEPBAR" && form.name == "LE").then(|| (get("s") as u8, get("n") as usize));
        let writes: SmallVec<[Touch; 4]> = touches(inst, &effects.writes);
        let depends = Depends::of(inst, &effects);
        let mut control = inst.control;
        if form.mnemonic == "DEPBAR" {
            // Those of its list are waited for as those of the control field.
            control.wait |= get("l") as u8 & 0x3f;
        }
        if sass::delivers_with_reads(inst, &effects) {
            control.write = control.read.take();
        }
        // Groups, which strict mode does not track here, and instructions that neither deliver nor report that they
        // have read.
        let has_scoreboard = inst.control.read.is_some() || inst.control.write.is_some();
        let flies = completion != Completion::Group && (variable && !writes.is_empty() || reads_late && has_scoreboard);
        Timing {
            reads: touches(inst, &effects.reads),
            writes,
            effects,
            control,
            variable,
            flies,
            reads_late,
            queue,
            depbar,
            ends_shared_reads: sass::ends_shared_reads(inst),
            group: Group::of(inst),
            depends,
        }
    }
}

fn touches<A: smallvec::Array<Item = Touch>>(inst: &Instruction, accesses: &[Access]) -> SmallVec<A> {
    let pipe = inst.form().pipe;
    let uniform = inst.form().guard == sass::File::UniformPredicate;
    let mut all = SmallVec::new();
    for (number, access) in accesses.iter().enumerate() {
        let scalar = matches!(access.file, RegFile::Uniform | RegFile::UniformPredicate);
        for index in access.first..access.first.saturating_add(access.count) {
            all.push(Touch {
                place: place(access.file, index) as u16,
                access: number as u8,
                scalar: scalar || uniform && matches!(access.slot, Slot::D | Slot::PU | Slot::PV),
                guard: access.slot == Slot::GUARD,
                spreads: spreads(inst, access),
                addend: access.slot == Slot::C && matches!(pipe, Pipe::Imad | Pipe::ImadWide | Pipe::Fma),
                // Uniform sources and predicates are read at issue, except by bulk copies.
                late: access.file == RegFile::General || pipe == Pipe::Bulk && access.slot != Slot::GUARD,
            });
        }
    }
    all
}

/// An instruction whose results or sources are still in flight.
struct Flight {
    id: u32,
    write: Option<u8>,
    read: Option<u8>,
    queue: Queue,
    /// A result is in flight, not only a read of sources.
    delivers: bool,
    /// Sources have been read.
    has_read: bool,
}

/// No flight, or one that is over.
const NO_FLIGHT: u32 = 0;
/// A flight that is over: the result came with a scoreboard.
const LANDED: u32 = u32::MAX;
/// No instruction.
const NOBODY: u32 = u32::MAX;

/// A register's state.
#[derive(Clone)]
struct Register {
    /// Lanes that were ever written.
    written: u32,
    /// Lanes and clock of the last write.
    lanes: u32,
    at: u64,
    /// The writer: the instruction's number in the program and the access.
    by: u32,
    access: u8,
    /// The flight that writes it, and the last that reads it late.
    flight: u32,
    reader: u32,
    reading: u32,
    reading_lanes: u32,
    /// The groups of multiplies that write it and that read it; 0: none.
    sums: u32,
    factors: u32,
}

const UNTOUCHED: Register = Register {
    written: 0,
    lanes: 0,
    at: 0,
    by: NOBODY,
    access: 0,
    flight: NO_FLIGHT,
    reader: NO_FLIGHT,
    reading: NOBODY,
    reading_lanes: 0,
    sums: 0,
    factors: 0,
};

/// Notes of a warp.
pub(super) struct WarpShadow {
    registers: Vec<Register>,
    flights: Vec<Flight>,
    next: u32,
    /// The group of multiplies that is open, and the last that is done.
    open: u32,
    done: u32,
    /// When the warp last declared that its registers may be multiplied.
    arrived: Option<u64>,
}

/// A distance that was looked up: the writer, which access of it, cycles. One for each read of an instruction, as most
/// have one producer.
#[derive(Clone, Copy)]
pub(super) struct Need {
    by: u32,
    access: u8,
    cycles: u8,
}

/// RZ's entry, which tells whether any multiply is open.
const GROUPED: usize = 255;

/// No fixed latency is longer.
const LONGEST: u64 = 32;

/// Flights that are not waited for are forgotten after so many others.
const REMEMBERED: u32 = 4096;

pub(super) fn place(file: RegFile, index: u8) -> usize {
    usize::from(index)
        + match file {
            RegFile::General => 0,
            RegFile::Uniform => 256,
            RegFile::Predicate => 512,
            RegFile::UniformPredicate => 520,
        }
}

fn name(place: u16) -> String {
    match place {
        0..256 => format!("R{place}"),
        256..512 => format!("UR{}", place - 256),
        512..520 => format!("P{}", place - 512),
        _ => format!("UP{}", place - 520),
    }
}

impl WarpShadow {
    pub(crate) fn new() -> WarpShadow {
        WarpShadow { registers: vec![UNTOUCHED; 528], flights: Vec::new(), next: 1, open: 1, done: 0, arrived: None }
    }

    /// Checks the instruction of that number, which is about to issue, and notes what it does.
    pub(crate) fn before(
        &mut self,
        warp: &mut Warp,
        code: &Code,
        needs: &mut Vec<Need>,
        index: u32,
        (lanes, path): (u32, u32),
    ) -> R<()> {
        let d = code.at(index);
        let t = &d.timing;
        if t.control.wait != 0 || t.depbar.is_some() {
            self.wait(t);
        }
        match t.group {
            Group::Wait(left) => self.done = self.done.max((self.open - 1).saturating_sub(left)),
            Group::Arrive => self.arrived = Some(warp.clock),
            Group::Multiply(_) => self.check_factors(t, code)?,
            Group::None => self.check_groups(t, code)?,
        }
        self.check_reads(d, code, needs, (lanes, path), warp)?;
        if lanes != 0 {
            self.check_writes(t, code, lanes)?;
            if t.ends_shared_reads {
                let shared = |f: &&mut Flight| f.queue.0 == Pipe::Shared;
                self.flights.iter_mut().filter(shared).for_each(|f| f.has_read = true);
                self.flights.retain(|f| f.delivers || !f.has_read);
            }
            self.note(t, index, lanes, warp);
        } else {
            self.fly(t);
        }
        if t.control.stall == 0 && t.control.yields {
            self.flights.clear();
            warp.clock += LONGEST;
        }
        warp.clock += u64::from(t.control.stall.max(1));
        Ok(())
    }

    /// From here on these general registers are unwritten.
    pub(crate) fn forget(&mut self, first: u8, count: usize) {
        self.registers.iter_mut().take(255).skip(usize::from(first)).take(count).for_each(|r| r.written = 0);
    }

    fn in_flight(&self, id: u32) -> Option<&Flight> {
        self.flights.binary_search_by_key(&id, |f| f.id).ok().map(|at| &self.flights[at])
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
        let ended: SmallVec<[(u32, Queue, bool); 8]> =
            self.flights.iter().filter(set).take(count).map(|f| (f.id, f.queue, f.write == Some(board))).collect();
        for (id, queue, whole) in ended {
            // A pipe reads its sources in order, whatever it delivers.
            for flight in self.flights.iter_mut().filter(|f| reads_in_order(f.queue, queue) && f.id <= id) {
                flight.has_read = true;
            }
            if whole {
                self.flights.retain(|f| f.queue != queue || f.id > id);
            }
        }
        self.flights.retain(|f| f.delivers || !f.has_read);
    }

    fn check_reads(
        &mut self,
        d: &Decoded,
        code: &Code,
        needs: &mut Vec<Need>,
        (lanes, path): (u32, u32),
        warp: &Warp,
    ) -> R<()> {
        let t = &d.timing;
        for (number, read) in t.reads.iter().enumerate() {
            let lanes = if read.guard { path } else { lanes };
            let r = &self.registers[usize::from(read.place)];
            if lanes == 0 {
                continue;
            }
            let mut missing = lanes & !r.written;
            if missing != 0 && !read.spreads {
                missing &= !t.depends.decided(t.effects.reads[usize::from(read.access)].slot, warp);
            }
            if missing != 0 && !(read.scalar && r.written != 0) && !read.spreads {
                return fail(FaultKind::Unwritten { register: name(read.place), lanes: missing });
            }
            if r.by == NOBODY || r.lanes & lanes == 0 && !read.scalar {
                continue;
            }
            if r.flight != NO_FLIGHT {
                let (flight, by) = (r.flight, r.by);
                self.check_flight(flight, read, t, code, by)?;
                continue;
            }
            let have = warp.clock - r.at;
            if have >= LONGEST {
                continue;
            }
            let need = need(needs, number, (r.by, r.access), code, d);
            // An addend is read up to two cycles after the factors.
            let need = if read.addend { need.saturating_sub(2) } else { need };
            if have < u64::from(need) {
                let (register, producer, at) = (name(read.place), code.text(r.by), code.pc(r.by));
                return fail(FaultKind::TooEarly { register, producer, at, have: have as u32, need: need.into() });
            }
        }
        Ok(())
    }

    /// What multiplies write and read is theirs until their group was waited for.
    fn check_groups(&self, t: &Timing, code: &Code) -> R<()> {
        if self.done + 1 == self.open && self.registers[GROUPED].sums <= self.done {
            return Ok(());
        }
        let busy = |place: u16| self.registers[usize::from(place)].sums > self.done;
        let late = |place: u16| self.registers[usize::from(place)].factors > self.done;
        let read = t.reads.iter().find(|r| busy(r.place)).map(|r| (r.place, "read"));
        let written = t.writes.iter().find(|w| busy(w.place) || late(w.place)).map(|w| (w.place, "overwritten"));
        let Some((place, used)) = read.or(written) else { return Ok(()) };
        let r = &self.registers[usize::from(place)];
        let by = if r.sums > self.done { r.by } else { r.reading };
        let (register, producer, at) = (name(place), code.text(by), code.pc(by));
        fail(FaultKind::NotWaited { register, used, producer, at })
    }

    /// Factors in registers must have been written before the warp's ARRIVE.
    fn check_factors(&self, t: &Timing, code: &Code) -> R<()> {
        for touch in t.reads.iter().chain(&t.writes).filter(|touch| touch.place < 255) {
            let r = &self.registers[usize::from(touch.place)];
            if r.by != NOBODY && r.sums == 0 && self.arrived.is_none_or(|arrived| r.at >= arrived) {
                let (register, producer, at) = (name(touch.place), code.text(r.by), code.pc(r.by));
                return fail(FaultKind::NotArrived { register, producer, at });
            }
        }
        Ok(())
    }

    fn check_flight(&mut self, id: u32, read: &Touch, t: &Timing, code: &Code, by: u32) -> R<()> {
        if id == LANDED {
            return Ok(());
        }
        match self.in_flight(id) {
            None => self.registers[usize::from(read.place)].flight = LANDED,
            Some(f) if f.queue == t.queue && t.queue.0 == Pipe::Gmma => {}
            Some(_) => {
                let (register, producer, at) = (name(read.place), code.text(by), code.pc(by));
                return fail(FaultKind::NotWaited { register, used: "read", producer, at });
            }
        }
        Ok(())
    }

    fn check_writes(&mut self, t: &Timing, code: &Code, lanes: u32) -> R<()> {
        for write in &t.writes {
            let Register { flight, by, reader, reading, reading_lanes, lanes: written, .. } =
                self.registers[usize::from(write.place)];
            if flight != NO_FLIGHT && flight != LANDED && written & lanes != 0 {
                match self.in_flight(flight) {
                    Some(f) if f.queue != t.queue => {
                        let (register, producer, at) = (name(write.place), code.text(by), code.pc(by));
                        return fail(FaultKind::NotWaited { register, used: "overwritten", producer, at });
                    }
                    Some(_) => {}
                    None => self.registers[usize::from(write.place)].flight = LANDED,
                }
            }
            if reader != NO_FLIGHT && reading_lanes & lanes != 0 {
                match self.in_flight(reader) {
                    Some(f) if !reads_in_order(f.queue, t.queue) && !f.has_read => {
                        let (register, reader, at) = (name(write.place), code.text(reading), code.pc(reading));
                        return fail(FaultKind::ReadPending { register, reader, at });
                    }
                    Some(_) => {}
                    None => self.registers[usize::from(write.place)].reader = NO_FLIGHT,
                }
            }
        }
        Ok(())
    }

    /// Notes which registers a multiply writes and reads, of which group.
    fn note_group(&mut self, t: &Timing, index: u32, last: bool) {
        for write in &t.writes {
            let r = &mut self.registers[usize::from(write.place)];
            (r.sums, r.flight) = (self.open, LANDED);
        }
        for read in t.reads.iter().filter(|r| r.place < 255) {
            let r = &mut self.registers[usize::from(read.place)];
            (r.factors, r.reading) = (self.open, index);
        }
        self.registers[GROUPED].sums = self.open;
        self.open += u32::from(last);
    }

    /// The instruction goes through its queue and sets its scoreboards, also where its guard is false in all lanes: in
    /// the slow path of its divisions ptxas has a MUFU without a scoreboard before one that has one and the opposite
    /// guard.
    fn fly(&mut self, t: &Timing) -> u32 {
        if !t.flies {
            return NO_FLIGHT;
        }
        let id = self.next;
        self.next += 1;
        let (write, read) = (t.control.write, t.control.read);
        let delivers = t.variable && !t.writes.is_empty();
        self.flights.push(Flight { id, write, read, queue: t.queue, delivers, has_read: false });
        if self.flights[0].id + REMEMBERED <= id {
            self.flights.retain(|f| f.id + REMEMBERED > id);
        }
        id
    }

    fn note(&mut self, t: &Timing, index: u32, lanes: u32, warp: &Warp) {
        let id = self.fly(t);
        let known = t.depends.known(warp, |place| self.registers[place].written);
        for write in &t.writes {
            let r = &mut self.registers[usize::from(write.place)];
            let lanes = if write.scalar { u32::MAX } else { lanes };
            let known = known[usize::from(t.effects.writes[usize::from(write.access)].slot == Slot::PV)];
            (r.written, r.lanes, r.at) = (r.written & !lanes | lanes & known, lanes, warp.clock);
            (r.by, r.access) = (index, write.access);
            r.flight = if t.variable { id } else { NO_FLIGHT };
            r.sums = 0;
        }
        if let Group::Multiply(last) = t.group {
            self.note_group(t, index, last);
        }
        if t.reads_late && id != NO_FLIGHT {
            for read in t.reads.iter().filter(|r| r.late) {
                let r = &mut self.registers[usize::from(read.place)];
                (r.reader, r.reading, r.reading_lanes) = (id, index, lanes);
            }
        }
    }
}

/// The distance from a producer's access to a read of an instruction.
fn need(needs: &mut Vec<Need>, number: usize, (by, access): (u32, u8), code: &Code, d: &Decoded) -> u8 {
    if let Some(known) = needs.get(number)
        && known.by == by
        && known.access == access
    {
        return known.cycles;
    }
    let producer = code.at(by);
    let written = &producer.timing.effects.writes[usize::from(access)];
    let read = &d.timing.effects.reads[usize::from(d.timing.reads[number].access)];
    let cycles = sass::distance(&producer.inst, written, &d.inst, read).seen;
    if needs.len() <= number {
        needs.resize(d.timing.reads.len(), Need { by: NOBODY, access: 0, cycles: 0 });
    }
    needs[number] = Need { by, access, cycles };
    cycles
}
