//! Tests of the harness as a whole: its cases on the software machines, under faults, and through the runner.

mod cases;
mod processes;
mod runner;
