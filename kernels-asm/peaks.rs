//! Peak-rate kernels for NVIDIA's chips whose text follows from a row of a table: chains of multiply-adds in a type,
//! and multiplies on a warp's matrix unit.
//!
//! A chain is x -> b - x with the factor -1 in a register: after an even number of steps it is where it began, so that
//! every result is known exactly and the registers' bits change with each step. `out[thread]` is the sum of the chains,
//! `8 * (thread mod 32) + 28`, as f32 (i8: a sum that grows, as the row says).
//! A matrix unit multiplies A of ones by B of halves (integers: ones), and adds to sums of its own.

use std::fmt::Write;

/// What a peak kernel computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peak {
    /// Multiply-adds of a type: eight chains of `STEPS` steps a round.
    Chain(&'static Chain),
    /// Multiplies of a warp: eight a round.
    Matrix(&'static Matrix),
}

/// Chains of a kernel.
pub const CHAINS: u32 = 8;
/// Steps of each chain in a round.
pub const STEPS: u32 = 4;

/// A row of the table of multiply-adds.
#[derive(Debug, PartialEq, Eq)]
pub struct Chain {
    pub name: &'static str,
    instruction: &'static str,
    /// Register's type.
    register: &'static str,
    /// From an f32 `%s` to a chain's register `%x`.
    put: &'static [&'static str],
    /// From a chain's register `%x` to an f32 `%s`.
    get: &'static [&'static str],
    /// Operations of one instruction in one thread.
    pub operations: u32,
}

/// A row of the table of matrix units.
#[derive(Debug, PartialEq, Eq)]
pub struct Matrix {
    pub name: &'static str,
    instruction: &'static str,
    /// Registers of A and B.
    operands: [usize; 2],
    /// Registers of the sum, and their type.
    sum: (usize, &'static str),
    /// Type of the operands' registers.
    register: &'static str,
    /// Bits of a register of A and of B: ones and halves, or ones.
    bits: [&'static str; 2],
    /// What a sum grows by with each multiply.
    pub step: u32,
    /// Operations of one multiply of a warp.
    pub operations: u32,
}

#[rustfmt::skip]
const CHAINS_TABLE: &[Chain] = &[
    Chain { name: "peak_f64", instruction: "fma.rn.f64", register: "f64", operations: 2,
        put: &["cvt.f64.f32 %x, %s;"], get: &["cvt.rn.f32.f64 %s, %x;"] },
    Chain { name: "peak_f32", instruction: "fma.rn.f32", register: "f32", operations: 2,
        put: &["mov.f32 %x, %s;"], get: &["mov.f32 %s, %x;"] },
    Chain { name: "peak_f16", instruction: "fma.rn.f16x2", register: "b32", operations: 4,
        put: &["cvt.rn.f16.f32 %h, %s;", "mov.b32 %x, {%h, %h};"], get: &["mov.b32 {%h, %g}, %x;", "cvt.f32.f16 %s, %h;"] },
    Chain { name: "peak_bf16", instruction: "fma.rn.bf16x2", register: "b32", operations: 4,
        put: &["mov.b32 %w, %s;", "shr.u32 %w, %w, 16;", "shl.b32 %x, %w, 16;", "or.b32 %x, %x, %w;"],
        get: &["shl.b32 %w, %x, 16;", "mov.b32 %s, %w;"] },
    Chain { name: "peak_i32", instruction: "mad.lo.s32", register: "b32", operations: 2,
        put: &["cvt.rzi.s32.f32 %x, %s;"], get: &["cvt.rn.f32.s32 %s, %x;"] },
];

#[rustfmt::skip]
const MATRIX_TABLE: &[Matrix] = &[
    Matrix { name: "mma_f64", instruction: "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", operands: [1, 1], sum: (2, "f64"),
        register: "f64", bits: ["0d3FF0000000000000", "0d3FE0000000000000"], step: 2, operations: 512 },
    Matrix { name: "mma_tf32", instruction: "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", operands: [4, 2], sum: (4, "f32"),
        register: "b32", bits: ["0x3f800000", "0x3f000000"], step: 4, operations: 2048 },
    Matrix { name: "mma_f16", instruction: "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", operands: [4, 2], sum: (4, "f32"),
        register: "b32", bits: ["0x3c003c00", "0x38003800"], step: 8, operations: 4096 },
    Matrix { name: "mma_bf16", instruction: "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", operands: [4, 2], sum: (4, "f32"),
        register: "b32", bits: ["0x3f803f80", "0x3f003f00"], step: 8, operations: 4096 },
    Matrix { name: "mma_f8", instruction: "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", operands: [4, 2], sum: (4, "f32"),
        register: "b32", bits: ["0x38383838", "0x30303030"], step: 16, operations: 8192 },
    Matrix { name: "mma_i8", instruction: "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", operands: [4, 2], sum: (4, "s32"),
        register: "b32", bits: ["0x01010101", "0x01010101"], step: 32, operations: 8192 },
];

impl Peak {
    /// The kernel of that name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        let chain = CHAINS_TABLE.iter().find(|row| row.name == name).map(Self::Chain);
        chain.or_else(|| MATRIX_TABLE.iter().find(|row| row.name == name).map(Self::Matrix))
    }

    /// All kernels.
    pub fn all() -> impl Iterator<Item = Self> {
        CHAINS_TABLE.iter().map(Self::Chain).chain(MATRIX_TABLE.iter().map(Self::Matrix))
    }

    /// Its entry point.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Chain(row) => row.name,
            Self::Matrix(row) => row.name,
        }
    }

    /// Operations of a block of so many threads in a round.
    #[must_use]
    pub fn operations(self, threads: u32) -> u64 {
        match self {
            Self::Chain(row) => u64::from(CHAINS * STEPS * row.operations) * u64::from(threads),
            Self::Matrix(row) => u64::from(CHAINS * row.operations) * u64::from(threads / 32),
        }
    }

    /// What a thread stores after so many rounds.
    #[must_use]
    pub fn result(self, thread: u32, rounds: u32) -> f32 {
        match self {
            Self::Chain(_) => (CHAINS * (thread % 32) + CHAINS * (CHAINS - 1) / 2) as f32,
            Self::Matrix(row) => (f64::from(row.step) * f64::from(rounds) * f64::from(CHAINS)) as f32,
        }
    }

    /// Its text; parameters: u64 out (one f32 a thread), u64 rounds (at least 1).
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Self::Chain(row) => chain(row),
            Self::Matrix(row) => matrix(row),
        }
    }
}

fn chain(row: &Chain) -> String {
    let x = |n: u32| format!("%x{n}");
    let put = |to: &str| -> String {
        row.put.iter().fold(String::new(), |text, line| text + "    " + &line.replace("%x", to) + "\n")
    };
    let mut body = String::new();
    // The thread's number modulo 32, and the chain's.
    let _ = writeln!(body, "    and.b32 %r3, %r1, 31;\n    cvt.rn.f32.u32 %t, %r3;");
    for n in 0..CHAINS {
        let _ = write!(body, "    add.f32 %s, %t, 0f{:08X};\n{}", (n as f32).to_bits(), put(&x(n)));
    }
    for (value, to) in [(-1.0f32, "%m"), (64.0, "%b")] {
        let _ = write!(body, "    mov.f32 %s, 0f{:08X};\n{}", value.to_bits(), put(to));
    }
    body += "next:\n";
    for n in (0..STEPS).flat_map(|_| 0..CHAINS) {
        let _ = writeln!(body, "    {} {x}, {x}, %m, %b;", row.instruction, x = x(n));
    }
    body += NEXT;
    body += "    mov.f32 %t, 0f00000000;\n";
    for n in 0..CHAINS {
        row.get.iter().for_each(|line| {
            let _ = writeln!(body, "    {}", line.replace("%x", &x(n)));
        });
        body += "    add.f32 %t, %t, %s;\n";
    }
    let registers =
        format!("    .reg .{} %x<{CHAINS}>, %m, %b;\n    .reg .b16 %h, %g;\n    .reg .b32 %w;\n", row.register);
    kernel(row.name, &registers, &body)
}

fn matrix(row: &Matrix) -> String {
    let list = |name: &str, from: usize, count: usize| {
        let all: Vec<String> = (from..from + count).map(|n| format!("%{name}{n}")).collect();
        format!("{{{}}}", all.join(", "))
    };
    let (count, of) = row.sum;
    let mut body = String::new();
    for (name, (registers, bits)) in ["a", "b"].iter().zip(row.operands.iter().zip(row.bits)) {
        for n in 0..*registers {
            let _ = writeln!(body, "    mov.{} %{name}{n}, {bits};", row.register);
        }
    }
    let zero = match of {
        "f64" => "0d0000000000000000",
        "f32" => "0f00000000",
        _ => "0",
    };
    for n in 0..count * CHAINS as usize {
        let _ = writeln!(body, "    mov.{of} %c{n}, {zero};");
    }
    body += "next:\n";
    for n in 0..CHAINS as usize {
        let sum = list("c", n * count, count);
        let [a, b] = row.operands;
        let _ = writeln!(body, "    {} {sum}, {}, {}, {sum};", row.instruction, list("a", 0, a), list("b", 0, b));
    }
    body += NEXT;
    body += "    mov.f32 %t, 0f00000000;\n";
    for n in 0..CHAINS as usize {
        let first = n * count;
        let _ = match of {
            "f64" => writeln!(body, "    cvt.rn.f32.f64 %s, %c{first};"),
            "f32" => writeln!(body, "    mov.f32 %s, %c{first};"),
            _ => writeln!(body, "    cvt.rn.f32.s32 %s, %c{first};"),
        };
        body += "    add.f32 %t, %t, %s;\n";
    }
    let [a, b] = row.operands;
    let (register, sums) = (row.register, count * CHAINS as usize);
    let registers = format!("    .reg .{register} %a<{a}>, %b<{b}>;\n    .reg .{of} %c<{sums}>;\n");
    kernel(row.name, &registers, &body)
}

/// The end of a round.
const NEXT: &str = "    sub.u32 %r0, %r0, 1;\n    setp.ne.u32 %p, %r0, 0;\n    @%p bra next;\n";

/// A kernel that computes `%t` in `body`, in `%r0` rounds, and stores it.
fn kernel(name: &str, registers: &str, body: &str) -> String {
    format!(
        ".version 8.4
.target sm_90
.address_size 64

.visible .entry {name}(.param .u64 out, .param .u64 rounds)
{{
    .reg .pred %p;
    .reg .b32 %r<6>;
    .reg .b64 %d<2>;
    .reg .f32 %s, %t;
{registers}
    ld.param.u64 %d0, [out];
    ld.param.u32 %r0, [rounds];
    cvta.to.global.u64 %d0, %d0;
    mov.u32 %r1, %tid.x;
    mov.u32 %r4, %ctaid.x;
    mov.u32 %r5, %ntid.x;
    mad.lo.u32 %r2, %r4, %r5, %r1;
{body}    mul.wide.u32 %d1, %r2, 4;
    add.s64 %d0, %d0, %d1;
    st.global.f32 [%d0], %t;
    ret;
}}
"
    )
}
