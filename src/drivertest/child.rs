//! A second process of a case: on the running kernel a process of this program, on a software machine another process
//! of that machine, run by a thread.
//!
//! Both ends say lines to each other. A child of a software machine that is killed is what it is to a driver: its waits
//! end, its calls are refused, and the machine gives back what it had.

use crate::bench::{Bench, Setting};
use crate::case::{Problem, Step, Verdict};
use crate::run::Said;
use crate::target::Machine;
use doorbell_ioctl::port::{Signal, send_signal};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What a case does in its second process.
pub(crate) type Role = Arc<dyn Fn(&Bench, &Cue) -> Step + Send + Sync>;

/// How a process of this program is started for a part of a case.
pub(crate) type Start = fn(&Setting, case: &str, part: &str) -> Command;

/// What a child's process says begins so; its last line begins as any case's.
const SAYS: &str = "says ";
/// See above.
pub(crate) const END: &str = "end ";
/// SIGKILL.
const KILLED: i32 = 9;

/// The child's end of the line.
pub struct Cue {
    part: String,
    line: Line,
}

enum Line {
    Thread { heard: Mutex<Receiver<String>>, output: Sender<String> },
    Process,
}

fn gone() -> Problem {
    Problem::failed("the case's first process is gone")
}

impl Cue {
    /// The end of a process that was started for a part.
    #[must_use]
    pub fn of_process(part: &str) -> Self {
        Self { part: part.to_owned(), line: Line::Process }
    }

    /// Which part it plays: the first word.
    #[must_use]
    pub fn part(&self) -> &str {
        self.part.split(' ').next().unwrap_or_default()
    }

    /// A number after the part's name.
    ///
    /// # Errors
    /// There is none.
    pub fn number(&self, nth: usize) -> Step<u64> {
        let word = self.part.split(' ').nth(nth + 1).and_then(|word| word.parse().ok());
        word.ok_or_else(|| Problem::failed(format!("part `{}` has too few numbers", self.part)))
    }

    /// Says a line.
    ///
    /// # Errors
    /// Nobody hears it.
    pub fn tell(&self, text: &str) -> Step {
        match &self.line {
            Line::Thread { output, .. } => output.send(text.to_owned()).map_err(|_| gone()),
            Line::Process => {
                let mut out = std::io::stdout().lock();
                writeln!(out, "{SAYS}{text}").and_then(|()| out.flush()).map_err(|_| gone())
            }
        }
    }

    /// Waits for a line, for as long as there is somebody to say it.
    ///
    /// # Errors
    /// There is nobody.
    pub fn hear(&self) -> Step<String> {
        match &self.line {
            Line::Thread { heard, .. } => {
                heard.lock().unwrap_or_else(PoisonError::into_inner).recv().map_err(|_| gone())
            }
            Line::Process => {
                let mut line = String::new();
                match std::io::stdin().lock().read_line(&mut line) {
                    Ok(bytes) if bytes > 0 => Ok(line.trim_end().to_owned()),
                    _ => Err(gone()),
                }
            }
        }
    }
}

/// The second process, as the first one has it.
pub struct Child<'b> {
    bench: &'b Bench,
    heard: Receiver<String>,
    link: Option<Link>,
    pid: u32,
}

enum Link {
    Thread { machine: Machine, input: Sender<String>, thread: JoinHandle<Step> },
    Process { process: std::process::Child, input: ChildStdin },
}

/// How a child can be interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interruption {
    /// It is stopped and goes on: no system call fails.
    Stop,
    /// A signal with a handler: a wait ends with `EINTR`.
    Handler,
}

impl<'b> Child<'b> {
    /// A child of a software machine.
    pub(crate) fn thread(bench: &'b Bench, beside: Bench, role: Role, part: &str) -> Self {
        let ((input, own_heard), (own_output, heard)) = (channel(), channel());
        let cue =
            Cue { part: part.to_owned(), line: Line::Thread { heard: Mutex::new(own_heard), output: own_output } };
        let machine = beside.machine().clone();
        let pid = machine.pid();
        let run = move || {
            // A fault of the driver may make a role's own assumptions wrong.
            let body = || role(&beside, &cue).and_then(|()| beside.left_by_a_child());
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            done.unwrap_or_else(|_| Err(Problem::failed("the second process panicked")))
        };
        let thread = std::thread::spawn(run);
        Self { bench, heard, link: Some(Link::Thread { machine, input, thread }), pid }
    }

    /// A child of the running kernel.
    pub(crate) fn process(bench: &'b Bench, mut command: Command) -> Step<Self> {
        let failed = |e| Problem::Failed(format!("a second process of this program: {e}"));
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let (Some(input), Some(said)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(Problem::failed("a second process without pipes"));
        };
        let (sender, heard) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(said).lines() {
                let Ok(line) = line else { return };
                // What others print between is not for the case.
                let is_word = line.starts_with(SAYS) || line.starts_with(END);
                if is_word && sender.send(line.strip_prefix(SAYS).map(str::to_owned).unwrap_or(line)).is_err() {
                    return;
                }
            }
        });
        let pid = process.id();
        Ok(Self { bench, heard, link: Some(Link::Process { process, input }), pid })
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Says a line to it.
    ///
    /// # Errors
    /// It has ended.
    pub fn tell(&mut self, text: &str) -> Step {
        let sent = match &mut self.link {
            Some(Link::Thread { input, .. }) => input.send(text.to_owned()).is_ok(),
            Some(Link::Process { input, .. }) => writeln!(input, "{text}").and_then(|()| input.flush()).is_ok(),
            None => false,
        };
        if sent { Ok(()) } else { self.why_it_ended() }
    }

    /// The next line that it says.
    ///
    /// # Errors
    /// What it failed with; silence as long as patience lasts.
    pub fn hear(&mut self) -> Step<String> {
        match self.heard.recv_timeout(self.bench.patience * 2) {
            Ok(line) => match line.strip_prefix(END) {
                None => Ok(line),
                Some(end) => Err(self.ended_with(end)),
            },
            Err(RecvTimeoutError::Timeout) => Err(Problem::failed("the second process says nothing")),
            Err(RecvTimeoutError::Disconnected) => match self.why_it_ended() {
                Ok(()) => Err(Problem::failed("the second process ended too early")),
                Err(problem) => Err(problem),
            },
        }
    }

    /// Fails unless the next line is this one.
    ///
    /// # Errors
    /// As [`Child::hear`].
    pub fn says(&mut self, text: &str) -> Step {
        crate::case::same("what the second process says", self.hear()?.as_str(), text)
    }

    fn ended_with(&mut self, end: &str) -> Problem {
        let said: Option<Said> = serde_json::from_str(end).ok();
        self.stop();
        match said {
            Some(Said { verdict: Verdict::Skip, why, .. }) => Problem::Skipped { key: "second-process", why },
            Some(said) => Problem::Failed(format!("the second process: {}: {}", said.verdict.word(), said.why)),
            None => Problem::failed("the second process ended with a line that is none"),
        }
    }

    /// Waits for its end; an end that is no pass is this case's failure.
    fn why_it_ended(&mut self) -> Step {
        match self.link.take() {
            None => Err(Problem::failed("the second process has ended")),
            Some(Link::Thread { machine, input, thread }) => {
                drop(input);
                let done = thread.join().map_err(|_| Problem::failed("the second process panicked"))?;
                machine.end_process();
                done
            }
            Some(Link::Process { mut process, input }) => {
                drop(input);
                let status = process.wait().map_err(|e| Problem::Failed(format!("the second process: {e}")))?;
                if status.success() {
                    return Ok(());
                }
                Err(Problem::Failed(format!("the second process ended with {status}")))
            }
        }
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// It did not pass, or left something behind.
    pub fn end(mut self) -> Step {
        if let Some(Link::Process { .. }) = &self.link {
            let end = self.heard.recv_timeout(self.bench.patience * 2);
            let said = end.ok().and_then(|line| serde_json::from_str::<Said>(line.strip_prefix(END)?).ok());
            let said = said.ok_or_else(|| Problem::failed("the second process does not say how it ended"))?;
            if said.verdict != Verdict::Pass {
                return Err(Problem::Failed(format!("the second process: {}: {}", said.verdict.word(), said.why)));
            }
        }
        self.why_it_ended()
    }

    /// Kills it, as with kill -9, and waits until it is gone.
    ///
    /// # Errors
    /// It had ended before.
    pub fn kill(mut self) -> Step {
        match self.link.take() {
            None => Err(Problem::failed("the second process ended before it was killed")),
            Some(Link::Thread { machine, input, thread }) => {
                let early = thread.is_finished();
                machine.end_process();
                drop(input);
                let ended = thread.join();
                if early {
                    let why = ended.unwrap_or_else(|_| Err(Problem::failed("it panicked")));
                    return why.and_then(|()| Err(Problem::failed("the second process ended before it was killed")));
                }
                Ok(())
            }
            Some(Link::Process { mut process, input }) => {
                let failed = |e| Problem::Failed(format!("the second process: {e}"));
                process.kill().map_err(failed)?;
                let status = process.wait().map_err(failed)?;
                drop(input);
                crate::case::same("the signal that ended the second process", status.signal(), Some(KILLED))
            }
        }
    }

    /// Interrupts it, once it waits in a system call.
    ///
    /// # Errors
    /// The kernel's.
    pub fn interrupt(&self, how: Interruption) -> Step {
        match &self.link {
            Some(Link::Thread { machine, .. }) => machine.interrupt(how),
            Some(Link::Process { .. }) if how == Interruption::Stop => {
                send_signal(self.pid, Signal::Stop)?;
                self.bench.pause();
                send_signal(self.pid, Signal::Continue)?;
            }
            Some(Link::Process { .. }) => send_signal(self.pid, Signal::Interrupt)?,
            None => {}
        }
        Ok(())
    }

    /// Interrupts it again and again, since a signal may come before it waits, until it says so.
    ///
    /// # Errors
    /// The kernel's; it does not say so.
    pub(crate) fn interrupt_until_it_says(&mut self, text: &str, how: Interruption) -> Step {
        const BETWEEN: Duration = Duration::from_millis(20);
        // TIMEOUT: the setting's.
        let end = Instant::now() + self.bench.patience;
        while Instant::now() < end {
            self.bench.pause();
            self.interrupt(how)?;
            match self.heard.recv_timeout(BETWEEN) {
                Ok(line) if line == text => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(line) => return Err(Problem::Failed(format!("the second process: {line}"))),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.says(text)
    }

    fn stop(&mut self) {
        match self.link.take() {
            None => {}
            Some(Link::Thread { machine, input, thread }) => {
                machine.end_process();
                drop(input);
                let _its_end_counts_no_more = thread.join();
            }
            Some(Link::Process { mut process, input }) => {
                drop(input);
                let _it_may_be_gone = process.kill();
                let _its_end_counts_no_more = process.wait();
            }
        }
    }
}

impl Drop for Child<'_> {
    fn drop(&mut self) {
        self.stop();
    }
}
