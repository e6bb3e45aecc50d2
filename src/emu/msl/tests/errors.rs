//! Mistakes in sources: each is found, at its place, with a text that says what it is.

use crate::{Library, Options};

fn message(source: &str) -> String {
    match Library::compile(source, &Options::default()) {
        Ok(_) => "accepted".into(),
        Err(error) => error.to_string(),
    }
}

/// A body of a kernel with a buffer `x`, a constant `c`, threadgroup memory `t`; line 3 of the source.
fn in_kernel(body: &str) -> String {
    format!(
        "#include <metal_stdlib>\nusing namespace metal; struct S {{ int a; float b; }}; kernel void k(device float* x, const device float* r, constant int& c, threadgroup float* t, uint i [[thread_position_in_grid]]) {{\n{body}\n}}"
    )
}

#[test]
fn an_error_has_clangs_form() {
    let text = message("kernel void k(device float* x) {\n  x[0] = y;\n}");
    assert_eq!(text, "program_source:2:10: error: use of undeclared identifier 'y'\n  x[0] = y;\n         ^");
}

#[test]
fn mistakes_inside_a_kernel_are_found() {
    let cases = [
        ("x[0] = 1.0f", "expected ';'"),
        ("float y = z;", "undeclared identifier 'z'"),
        ("double y = 1.0;", "'double' is not supported"),
        ("r[0] = 1;", "const"),
        ("c = 2;", "const"),
        ("const int n = 1; n = 2;", "const"),
        ("5 = i;", "not assignable"),
        ("device float* p = t;", "address space"),
        ("device float* p = (device float*)t;", "mismatching address spaces"),
        ("thread float* p = x;", "address space"),
        ("float y; device float* p = &y;", "address space"),
        ("float* p = x;", "address space"),
        ("device int* p = x;", "no implicit conversion"),
        ("device float* p = r;", "no implicit conversion"),
        ("float4 v = float4(1, 2, 3);", "too few elements"),
        ("float2 v = float2(1, 2, 3);", "excess elements"),
        ("float4 v = float3(0);", "no implicit conversion"),
        ("int4 v = float4(0);", "no implicit conversion"),
        ("float4 v; v.q = 1;", "illegal vector component"),
        ("float2 v = float2(0); v.z = 1;", "illegal vector component"),
        ("float4 v = float4(0); v.xx = float2(1);", "const"),
        ("float4 v = float4(0) + float3(0);", "invalid operands"),
        ("float y = 1.0f % 2.0f;", "invalid operands"),
        ("float y = 1.0f & 1;", "invalid operands"),
        ("bfloat b = 1.0f;", "no implicit conversion"),
        ("bfloat b = (half)1;", "no implicit conversion"),
        ("bfloat b = bfloat(1.0f); b = trunc(b);", "no implicit conversion"),
        ("bfloat b = bfloat(1.0f); half h = b;", "no implicit conversion"),
        ("bfloat b = bfloat(1.0f); float y = b + (half)1;", "invalid operands"),
        ("float y = max(1.0f, 1);", "ambiguous"),
        ("float y = max((half)1, 1.0f);", "ambiguous"),
        ("float y = sqrt(2);", "ambiguous"),
        ("float y = sin(1.0f, 2.0f);", "no matching function"),
        ("float y = nothing(1.0f);", "undeclared identifier 'nothing'"),
        ("int y = dot(1.0f, 2.0f);", "no matching function"),
        ("float y = as_type<float>((short)1);", "as_type"),
        ("break;", "not in a loop"),
        ("continue;", "not in a loop"),
        ("return 1;", "should not return a value"),
        ("if (float4(1) > 0.5f) {}", "not contextually convertible"),
        ("switch (1.0f) {}", "integer type"),
        ("switch (i) { case 1: break; case 1: break; }", "duplicate case"),
        ("switch (i) { case c: break; }", "constant expression"),
        ("int a[c];", "constant expression"),
        ("int a[0];", "array of 0 elements"),
        ("int a[2] = {1, 2, 3};", "excess elements"),
        ("S s = {1, 2, 3};", "excess elements"),
        ("S s; s.c = 1;", "no member named 'c'"),
        ("float y = x.a;", "not a structure"),
        ("float y = i[0];", "not an array, pointer, or vector"),
        ("float y = *i;", "indirection requires pointer"),
        ("device float* p = &1;", "address of an rvalue"),
        ("int i = 1; int i = 2;", "redefinition of 'i'"),
        ("threadgroup float a[4] = {1};", "cannot be initialized"),
        ("threadgroup float a[10000];", "does not fit"),
        ("static int n = 1;", "constant address space"),
        ("threadgroup_barrier();", "no matching function"),
        ("threadgroup_barrier(1);", "no matching function"),
        ("float y = simd_sum(true);", "no matching function"),
        ("long y = simd_sum((long)1);", "no matching function"),
        ("atomic_fetch_add_explicit((device atomic_uint*)x, 1u);", "no matching function"),
        ("atomic_fetch_add_explicit(x, 1u, memory_order_relaxed);", "no matching function"),
        ("atomic_fetch_and_explicit((device atomic_float*)x, 1.0f, memory_order_relaxed);", "no matching function"),
        ("simdgroup_float8x8 m; simdgroup_load(m, (device half*)x);", "no matching function"),
        ("simdgroup_float8x8 m; simdgroup_store(m, r);", "no matching function"),
        ("goto end;", "not supported"),
        ("auto y;", "requires an initializer"),
        ("constexpr int n = c;", "constant expression"),
        ("int y = i ? x : 1;", "incompatible operand types"),
        ("float y = float4(1);", "no implicit conversion"),
        ("S s; float y = s;", "no implicit conversion"),
        ("x = 1;", "no implicit conversion"),
        ("uint y = i++ ++;", "not assignable"),
        ("int y = 09;", "invalid number"),
        ("float y = 1.0q;", "invalid number"),
        ("x[0] = (1 + 2;", "expected ')'"),
        ("if (i) {", "expected '}'"),
        ("x[0] = \"text\";", "strings"),
        ("vec<float, 5> v;", "1 to 4 elements"),
        ("thread float& y = x[0];", "address space"),
        ("float4 v; thread float& y = v.x;", "vector element"),
    ];
    let mut wrong = String::new();
    for (body, expected) in cases {
        let text = message(&in_kernel(body));
        if !text.contains(expected) {
            wrong += &format!("{body}\n  wanted: {expected}\n  got: {text}\n");
        }
        assert!(
            text == "accepted" || text.starts_with("program_source:3:") || text.starts_with("program_source:4:"),
            "{body}: {text}"
        );
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn mistakes_of_declarations_are_found() {
    let cases = [
        ("kernel int k() { return 1; }", "must return void"),
        ("kernel void k(float x) {}", "invalid type"),
        ("kernel void k(float* x) {}", "invalid type"),
        ("kernel void k(device float* x [[buffer(31)]]) {}", "out of bounds"),
        ("kernel void k(device float* x [[buffer(1)]], device float* y [[buffer(1)]]) {}", "same slot"),
        ("kernel void k(device float* x [[nothing]]) {}", "unknown attribute"),
        ("kernel void k(float i [[thread_position_in_grid]]) {}", "not valid for this attribute"),
        ("kernel void k(uint2 i [[thread_index_in_threadgroup]]) {}", "not valid for this attribute"),
        ("kernel void k(texture2d<float> t) {}", "unknown type name"),
        ("int n = 1;", "constant address space"),
        ("constant int n;", "must be initialized"),
        ("static int f(int x) { return f(x); } kernel void k() {}", "recursion"),
        (
            "int g(int); int f(int x) { return g(x); } int g(int x) { return f(x); } kernel void k() { f(1); }",
            "recursion",
        ),
        ("int g(int); kernel void k() { g(1); }", "no body"),
        ("int f(int x) { }", "does not return a value"),
        ("int f(int x) { return 1; } int f(int x) { return 2; }", "redefinition"),
        ("int f(int x) { return 1; } int f(uint x) { return 2; } kernel void k() { f(1.0f); }", "ambiguous"),
        ("int f(int x) { return 1; } kernel void k() { f(1, 2); }", "no matching function"),
        ("kernel void k() {} kernel void k() {}", "redefinition"),
        ("struct S { int a; int a; };", "duplicate member"),
        ("struct S; kernel void k() { S s; }", "incomplete type"),
        ("static_assert(sizeof(int) == 5, \"four bytes\");", "static assertion failed: four bytes"),
        ("template <typename T> T f(T a, T b) { return a; } kernel void k() { f(1, 2.0f); }", "no matching function"),
        ("template <typename T> T f(T a) { return a.x; } kernel void k() { f(1); }", "not a structure"),
        ("template void nothing<int>(int);", "does not refer to a function template"),
        ("#include <vector>", "file not found"),
        ("#if 1", "unterminated conditional"),
        ("#error stop here", "stop here"),
        ("#endif", "without #if"),
        ("/* open", "unterminated /* comment"),
        ("class C { C() {} };", "unknown type name"),
        ("kernel void k() { threadgroup_barrier(mem_flags::mem_none); }", "did you mean 'metal::"),
        ("kernel void k(device float* x) { x[0] = sin(1.0f); }", "did you mean 'metal::sin'"),
        ("void f() { threadgroup int a; }", "outside of a kernel"),
        ("vertex void v() {}", "only compute kernels"),
        ("$", "unexpected character"),
    ];
    let mut wrong = String::new();
    for (source, expected) in cases {
        let text = message(source);
        if !text.contains(expected) {
            wrong += &format!("{source}\n  wanted: {expected}\n  got: {text}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn bfloat_needs_version_3_1() {
    let source = "kernel void k(device bfloat* x) { x[0] = bfloat(1.0f); }";
    assert!(Library::compile(source, &Options::default()).is_ok());
    let error = Library::compile(source, &Options { version: (3, 0), fast_math: false }).unwrap_err();
    assert!(error.text.contains("bfloat"), "{error}");
}
