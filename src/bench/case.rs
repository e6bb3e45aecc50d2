//! What a case is: a name, what it measures, its parameters, and how it is made on a device.

use crate::error::BenchError;
use crate::machine::{Kind, Machine};
use doorbell::device::{Command, QueueKind};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a case's value is, and which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Bytes a nanosecond: more is better.
    #[serde(rename = "GB/s")]
    GigabytesPerSecond,
    /// Operations a nanosecond: more is better.
    #[serde(rename = "Gop/s")]
    GigaOperations,
    /// Nanoseconds for one: less is better.
    #[serde(rename = "ns")]
    Nanoseconds,
}

impl Unit {
    /// Its symbol.
    #[must_use]
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::GigabytesPerSecond => "GB/s",
            Self::GigaOperations => "Gop/s",
            Self::Nanoseconds => "ns",
        }
    }

    /// The value of a run of `work` that took `ns`.
    #[must_use]
    pub fn value(self, work: f64, ns: f64) -> f64 {
        match self {
            Self::Nanoseconds => ns / work,
            _ => work / ns,
        }
    }

    /// Whether a larger value is better.
    #[must_use]
    pub(crate) const fn more_is_better(self) -> bool {
        !matches!(self, Self::Nanoseconds)
    }
}

/// A case of the table.
#[derive(Clone, Copy)]
pub struct Case {
    /// `family/name`, the same on every device.
    pub name: &'static str,
    /// One line for `list`.
    pub about: &'static str,
    pub unit: Unit,
    pub axes: &'static [Axis],
    /// Makes it for a point of its axes. `LeftOut` says why the device has none.
    pub make: fn(&Machine, &Point) -> Result<Subject, BenchError>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A parameter of a case and its values.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    pub name: &'static str,
    pub values: Values,
}

/// The values of a parameter.
#[derive(Clone, Copy, Debug)]
pub enum Values {
    Words(&'static [&'static str]),
    /// By the kind of device: GPUs, CPUs, software GPUs (and `--quick`).
    Sizes {
        gpu: &'static [u64],
        cpu: &'static [u64],
        small: &'static [u64],
    },
    /// The names of the device's copy engines; `none` without one.
    CopyEngines,
}

/// `a, b`, or the sizes by kind of device.
impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |sizes: &[u64]| sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        match self {
            Self::Words(words) => f.write_str(&words.join(", ")),
            Self::Sizes { gpu, cpu, small } if gpu == cpu && cpu == small => f.write_str(&list(gpu)),
            Self::CopyEngines => f.write_str("those that the driver names"),
            Self::Sizes { gpu, cpu, .. } => write!(f, "{} on a GPU, {} on a CPU", list(gpu), list(cpu)),
        }
    }
}

impl Values {
    /// The same as data.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        match self {
            Self::Words(words) => serde_json::json!(words),
            Self::CopyEngines => serde_json::json!({"of the device": "copy engines"}),
            Self::Sizes { gpu, cpu, small } => serde_json::json!({"gpu": gpu, "cpu": cpu, "small": small}),
        }
    }
}

/// A parameter of words.
#[must_use]
pub(crate) const fn words(name: &'static str, values: &'static [&'static str]) -> Axis {
    Axis { name, values: Values::Words(values) }
}

/// A parameter of sizes: for GPUs, CPUs, and where all is to be small.
#[must_use]
pub(crate) const fn sizes(name: &'static str, gpu: &'static [u64], cpu: &'static [u64], small: &'static [u64]) -> Axis {
    Axis { name, values: Values::Sizes { gpu, cpu, small } }
}

/// One value of a parameter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    Number(u64),
    Word(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(n) => write!(f, "{n}"),
            Self::Word(word) => f.write_str(word),
        }
    }
}

/// A value for each parameter of a case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Point(pub Vec<(&'static str, Value)>);

impl Point {
    fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(own, _)| *own == name).map(|(_, value)| value)
    }

    /// The number of that name; 0 if there is none.
    #[must_use]
    pub fn number(&self, name: &str) -> u64 {
        if let Some(Value::Number(n)) = self.get(name) { *n } else { 0 }
    }

    /// The same as a size.
    #[must_use]
    pub fn size(&self, name: &str) -> usize {
        usize::try_from(self.number(name)).unwrap_or(usize::MAX)
    }

    /// The word of that name; empty if there is none.
    #[must_use]
    pub fn word(&self, name: &str) -> &str {
        if let Some(Value::Word(word)) = self.get(name) { word } else { "" }
    }
}

impl Case {
    /// The family: what stands before the slash.
    #[must_use]
    pub fn family(&self) -> &'static str {
        self.name.split('/').next().unwrap_or(self.name)
    }

    /// All points of its axes on a device.
    #[must_use]
    pub fn points(&self, machine: &Machine) -> Vec<Point> {
        let mut all = vec![Point::default()];
        for axis in self.axes {
            let values = axis.on(machine);
            let extended = |point: &Point| -> Vec<Point> {
                let with = |value: &Value| Point(point.0.iter().cloned().chain([(axis.name, value.clone())]).collect());
                values.iter().map(with).collect()
            };
            all = all.iter().flat_map(extended).collect();
        }
        all
    }

    /// `name[parameter=value,...]`: a case of a device in files and filters.
    #[must_use]
    pub fn id(&self, point: &Point) -> String {
        let parameters: Vec<String> = point.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if parameters.is_empty() { self.name.into() } else { format!("{}[{}]", self.name, parameters.join(",")) }
    }
}

impl Axis {
    fn on(&self, machine: &Machine) -> Vec<Value> {
        match self.values {
            Values::Words(list) => list.iter().map(|word| Value::Word((*word).into())).collect(),
            Values::CopyEngines => {
                let engines = machine.device().copy_engines().unwrap_or_default();
                let names = engines.into_iter().map(|engine| Value::Word(engine.name)).collect::<Vec<_>>();
                if names.is_empty() { vec![Value::Word("none".into())] } else { names }
            }
            Values::Sizes { gpu, cpu, small } => {
                let list = match machine.kind {
                    _ if machine.is_small => small,
                    Kind::Cpu => cpu,
                    _ => gpu,
                };
                list.iter().map(|n| Value::Number(*n)).collect()
            }
        }
    }
}

/// Runs so many repetitions and returns the nanoseconds of all of them.
pub(crate) type HostTimer = Box<dyn FnMut(&Machine, u64) -> Result<f64, BenchError>>;

/// Compares what was computed with what should have been.
pub(crate) type Check = Box<dyn FnMut(&Machine) -> Result<(), BenchError>>;

/// What is timed.
pub enum How {
    /// Commands of one queue, by the device's clock from the start of the first to the end of the last.
    Commands { commands: Vec<Command>, queue: QueueKind },
    /// By the host's clock.
    Host(HostTimer),
}

/// A case made for a device.
pub struct Subject {
    /// Work of one run: bytes, operations, or how many things a latency is shared by.
    pub work: f64,
    pub how: How,
    /// Most runs that one sample is the mean of; `None`: as many as fill its time.
    pub most_runs: Option<u64>,
    /// Called after the first run.
    pub check: Check,
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Subject({} of work)", self.work)
    }
}

impl Subject {
    /// Of commands on the compute queue.
    #[must_use]
    pub fn commands(work: f64, commands: Vec<Command>) -> Self {
        Self::of(work, How::Commands { commands, queue: QueueKind::Compute })
    }

    /// Of commands on the copy queue.
    #[must_use]
    pub fn copies(work: f64, commands: Vec<Command>) -> Self {
        Self::of(work, How::Commands { commands, queue: QueueKind::Copy })
    }

    /// Of copies on the queue of a copy engine.
    #[must_use]
    pub(crate) fn copies_by(engine: u8, work: f64, commands: Vec<Command>) -> Self {
        Self::of(work, How::Commands { commands, queue: QueueKind::CopyEngine(engine) })
    }

    /// Of what the host does.
    #[must_use]
    pub fn host(work: f64, timer: impl FnMut(&Machine, u64) -> Result<f64, BenchError> + 'static) -> Self {
        Self::of(work, How::Host(Box::new(timer)))
    }

    fn of(work: f64, how: How) -> Self {
        Self { work, how, most_runs: None, check: Box::new(|_| Ok(())) }
    }

    /// With so many runs a sample at most: where a run takes much longer than what is measured of it.
    #[must_use]
    pub fn at_most(mut self, runs: u64) -> Self {
        self.most_runs = Some(runs);
        self
    }

    /// With a check of its values.
    #[must_use]
    pub fn checked(mut self, check: impl FnMut(&Machine) -> Result<(), BenchError> + 'static) -> Self {
        self.check = Box::new(check);
        self
    }
}
