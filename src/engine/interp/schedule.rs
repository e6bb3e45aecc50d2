//! Runs a whole schedule on host memory: every kernel by its graph, or by the program that codegen made of it. Devices
//! are tested against it.

use super::{InterpError, Value, Vars, run_kernel, run_program};
use crate::codegen::{self, OptChoice, Target};
use crate::engine::dense_view;
use crate::schedule::{Schedule, ScheduleItem};
use crate::tensor::{FileRange, HostBytes};
use crate::uop::{BufferRef, UOp};
use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

/// How kernels are executed.
#[derive(Clone, Debug)]
pub enum Mode {
    /// The scheduler's kernel graph.
    Graph,
    /// The linear program that codegen made for this target with these opts.
    Program(Target, OptChoice),
}

/// Host memory by buffer identity.
#[derive(Default)]
pub struct HostMemory {
    bytes: HashMap<u64, Vec<u8>>,
}

impl HostMemory {
    /// Contents of a buffer: attached host data or file contents, otherwise filler bytes that no test expects.
    fn take(&mut self, b: &BufferRef, elem_bytes: usize) -> Vec<u8> {
        let data = |m: &Arc<dyn Any + Send + Sync>| match m.downcast_ref::<FileRange>() {
            Some(file) => file.read_all().ok(),
            None => m.downcast_ref::<HostBytes>().map(|h| h.0.clone()),
        };
        let given = || b.memory.get().and_then(data).unwrap_or_else(|| vec![0xa5; b.len * elem_bytes]);
        self.bytes.remove(&b.id).unwrap_or_else(given)
    }

    /// The value of a dense view of a buffer after a schedule has run.
    pub fn value(&self, view: &UOp) -> Option<Value> {
        let (buffer, offset) = dense_view(view)?;
        let t = buffer.dtype().scalar;
        let shape: Vec<usize> = view.shape().iter().map(crate::engine::size_of).collect::<Option<_>>()?;
        let bytes = self.bytes.get(&buffer.buffer_ref()?.id);
        let n: usize = shape.iter().product();
        if n == 0 {
            return Some(Value { shape, dtype: t, data: vec![] });
        }
        let at = offset * t.size_bytes();
        Some(Value::from_bytes(shape, t, bytes?.get(at..at + n * t.size_bytes())?))
    }

    /// Runs a schedule.
    ///
    /// # Errors
    /// The interpreter's errors; codegen's errors as `Malformed`.
    pub fn run(&mut self, s: &Schedule, mode: &Mode) -> Result<(), InterpError> {
        let vars: Vars = s.var_vals.iter().map(|(n, v)| (n.to_string(), *v)).collect();
        for item in &s.items {
            match item {
                ScheduleItem::Kernel { ast, bufs, .. } => self.kernel(ast, bufs, &vars, mode)?,
                ScheduleItem::Copy { dst, src, src_offset, len } => {
                    let (d, s) = (buffer(dst)?, buffer(src)?);
                    let n = dst.dtype().scalar.size_bytes();
                    let from = self.take(s, n);
                    let part = from.get(src_offset * n..(src_offset + len) * n).map(<[u8]>::to_vec);
                    let part = part.ok_or_else(|| InterpError::Malformed(format!("{item:?} leaves its source")))?;
                    self.bytes.insert(s.id, from);
                    self.bytes.insert(d.id, part);
                }
            }
        }
        Ok(())
    }

    fn kernel(&mut self, ast: &UOp, bufs: &[UOp], vars: &Vars, mode: &Mode) -> Result<(), InterpError> {
        let mut memory = Vec::with_capacity(bufs.len());
        for b in bufs {
            memory.push(self.take(buffer(b)?, b.dtype().scalar.size_bytes()));
        }
        match mode {
            Mode::Graph => run_kernel(ast, &mut memory, vars)?,
            Mode::Program(target, choice) => {
                let p = codegen::compile(ast, target, choice, false);
                let p = p.map_err(|e| InterpError::Malformed(format!("codegen: {e}")))?;
                run_program(&p, &mut memory, vars)?;
            }
        }
        for (b, m) in bufs.iter().zip(memory) {
            self.bytes.insert(buffer(b)?.id, m);
        }
        Ok(())
    }
}

fn buffer(u: &UOp) -> Result<&BufferRef, InterpError> {
    u.buffer_ref().map(|b| &**b).ok_or_else(|| InterpError::Malformed(format!("{u:?} is no buffer")))
}
