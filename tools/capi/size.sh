#!/bin/sh
# Prints the bytes of the smallest C program that runs a package: examples/run.c, linked statically with musl's libc and
# stripped. usage: size.sh FEATURES [--build-std], as for install.sh
set -eu
cd "$(dirname "$0")/../.."
out=${CARGO_TARGET_DIR:-target}/capi-size
CC=musl-gcc sh tools/capi/install.sh --prefix "$out" --target x86_64-unknown-linux-musl --features "$1" \
    --profile small ${2:+"$2"} >&2
musl-gcc -static -Os -Wl,--gc-sections src/capi/examples/run.c -I"$out/include" "$out/lib/libdoorbell.a" -o "$out/run"
strip "$out/run"
wc -c <"$out/run"
