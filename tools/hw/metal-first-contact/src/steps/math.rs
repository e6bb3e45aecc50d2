//! What arithmetic gives.

use crate::seen::Seen;
use crate::work::Bench;
use hw_contact::Failure;

const PRODUCTS: &str = "
kernel void k(device float* out [[buffer(0)]], const device float* in [[buffer(1)]]) {
  float a = in[0], b = in[1], c = in[2];
  out[0] = a * b + c;
  out[1] = fma(a, b, c);
  out[2] = in[3] * 1.0f;
  out[3] = in[4] / in[5];
  out[4] = isnan(in[5] / in[5]) ? 1.0f : 0.0f;
  out[5] = in[3] > 0.0f ? 1.0f : 0.0f;
}";

const FUNCTIONS: &str = "
kernel void k(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
              uint i [[thread_position_in_threadgroup]]) {
  out[i] = precise::sin(in[i]);
  out[256 + i] = precise::exp2(in[i]);
  out[512 + i] = precise::log2(fabs(in[i]));
  out[768 + i] = precise::sqrt(fabs(in[i]));
}";

/// A function as the host computes it.
type Exact = fn(f64) -> f64;

/// Differences in units of the last place of the right value.
fn ulps(found: f32, right: f64) -> f64 {
    let near = right as f32;
    let step = f64::from(f32::from_bits(near.abs().to_bits() + 1)) - f64::from(near.abs());
    (f64::from(found) - right).abs() / step
}

pub fn math(bench: &Bench, seen: &mut Seen) -> Result<(), Failure> {
    // The product is 1 + 2^-11 + 2^-24: with two roundings nothing is left, with one 2^-24.
    let near = 1.0 + 2f32.powi(-12);
    let input = [near, near, -(1.0 + 2f32.powi(-11)), 1e-40, 1.0, 0.0];
    let out = bench.compute(PRODUCTS, "k", &input, 6, 1)?;
    seen.is("a * b + c without contraction", out[0], 0.0);
    seen.is("fma(a, b, c)", out[1], 2f32.powi(-24));
    seen.note(format!("a denormal times 1 is {:e}, and above zero: {}", out[2], out[5] != 0.0));
    seen.is("1 / 0", out[3], f32::INFINITY);
    seen.is("0 / 0 is not a number", out[4], 1.0);
    let kernel = PRODUCTS.replace("kernel", "#include <metal_stdlib>\nusing namespace metal;\nkernel");
    let (out, from) = (bench.memory(&[0.0; 6])?, bench.memory(&input)?);
    let kernel = bench.kernel(&kernel, "k")?;
    bench.run(&[crate::work::launch(&kernel, &[&out, &from], [1; 3], [1; 3])])?;
    let fast = bench.values(&out)?;
    seen.note(format!("with the compiler's fast mathematics a * b + c is {:e}, 1 / 0 is {}", fast[0], fast[3]));
    functions(bench, seen)
}

fn functions(bench: &Bench, seen: &mut Seen) -> Result<(), Failure> {
    let input: Vec<f32> = (0..=255_u8).map(|i| (f32::from(i) - 127.5) * 0.123).collect();
    let out = bench.compute(FUNCTIONS, "k", &input, 1024, 256)?;
    let right: [(&str, Exact); 4] =
        [("sin", f64::sin), ("exp2", f64::exp2), ("log2", |x| x.abs().log2()), ("sqrt", |x| x.abs().sqrt())];
    for (n, (name, f)) in right.into_iter().enumerate() {
        let worst = input.iter().zip(&out[n * 256..]).map(|(x, y)| ulps(*y, f(f64::from(*x)))).fold(0.0, f64::max);
        seen.holds(worst <= 4.0, &format!("{name} is off by {worst:.2} ulp at most"), "expected 4 or less");
    }
    Ok(())
}

/// Which element of an 8x8 matrix a lane's element is.
fn row_and_column(lane: usize, element: usize) -> (usize, usize) {
    ((lane / 2) % 4 + 4 * (lane / 16), 2 * (lane % 2) + 4 * ((lane / 8) % 2) + element)
}

pub fn lanes(bench: &Bench, seen: &mut Seen) -> Result<(), Failure> {
    let numbers: Vec<f32> = (0..64_u8).map(f32::from).collect();
    for kind in ["float", "half", "bfloat"] {
        let body = format!(
            "kernel void k(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
              uint lane [[thread_index_in_simdgroup]]) {{
  threadgroup {kind} tile[64];
  tile[lane * 2] = {kind}(in[lane * 2]);
  tile[lane * 2 + 1] = {kind}(in[lane * 2 + 1]);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_matrix<{kind}, 8, 8> a, b;
  simdgroup_float8x8 c = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  simdgroup_load(a, tile, 8);
  b.thread_elements()[0] = a.thread_elements()[0];
  b.thread_elements()[1] = a.thread_elements()[1];
  out[lane * 2] = float(a.thread_elements()[0]);
  out[lane * 2 + 1] = float(a.thread_elements()[1]);
  simdgroup_multiply_accumulate(c, a, b, c);
  out[64 + lane * 2] = c.thread_elements()[0];
  out[65 + lane * 2] = c.thread_elements()[1];
}}"
        );
        let out = match bench.compute(&body, "k", &numbers, 128, 32) {
            Ok(out) => out,
            Err(failure) if kind == "bfloat" => {
                seen.note(format!("bfloat: {}", failure.what));
                continue;
            }
            Err(failure) => return Err(failure),
        };
        let swapped = bench.pretends("lanes");
        let place = |lane: usize, element| {
            let (row, column) = row_and_column(lane, element);
            if swapped { (column, row) } else { (row, column) }
        };
        let at = |row: usize, column: usize| row * 8 + column;
        let all = || (0..32).flat_map(|lane| [(lane, 0), (lane, 1)]);
        let loaded = all().filter(|(lane, e)| {
            let (row, column) = place(*lane, *e);
            out[lane * 2 + e] == numbers[at(row, column)]
        });
        let product = all().filter(|(lane, e)| {
            let (row, column) = place(*lane, *e);
            let sum: f32 = (0..8).map(|k| numbers[at(row, k)] * numbers[at(k, column)]).sum();
            out[64 + lane * 2 + e] == sum
        });
        seen.is(&format!("{kind}: elements where the map has them"), (loaded.count(), product.count()), (64, 64));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_of_lanes_covers_the_matrix_once() {
        let mut all: Vec<_> = (0..32).flat_map(|lane| [row_and_column(lane, 0), row_and_column(lane, 1)]).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!((all.len(), row_and_column(31, 1)), (64, (7, 7)));
    }

    #[test]
    fn a_neighbour_is_one_ulp_away() {
        assert!((ulps(f32::from_bits(1.5f32.to_bits() + 1), 1.5) - 1.0).abs() < 1e-6);
    }
}
