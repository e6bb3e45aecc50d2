#!/bin/sh
# Builds libdoorbell and installs header, static and shared library and pkg-config file below a prefix.
# usage: install.sh [--prefix DIR] [--target TRIPLE] [--features LIST] [--profile NAME] [--build-std]
#   --features LIST  instead of all: runtime (packages alone), cpu, amd, nv, compiler, emu; separated by commas
#   --build-std      builds Rust's standard library for size and without backtraces, a quarter of a MB less; needs --target
#                    and rustup's component rust-src. Cargo's switches for it are unstable: they may change with Rust
#   CC               the C compiler that links the shared library (musl-gcc for *-linux-musl)
#   BESIDE           another package that is built with it, where both are wanted, and cargo's options for it: cargo then
#                    builds what they share once
set -eu
cd "$(dirname "$0")/../.."
prefix=/usr/local target= features= profile=dist std=
while [ $# -gt 0 ]; do
    case $1 in
    --build-std) std=yes; shift; continue ;;
    --prefix) prefix=$2 ;;
    --target) target=$2 ;;
    --features) features=$2 ;;
    --profile) profile=$2 ;;
    *) echo "unknown option $1; valid: --prefix, --target, --features, --profile, --build-std" >&2; exit 3 ;;
    esac
    shift 2
done
case $prefix in /*) ;; *) prefix=$PWD/$prefix ;; esac
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
soname=libdoorbell.so.0

if [ -n "$std" ]; then
    [ -n "$target" ] || { echo "--build-std needs --target" >&2; exit 3; }
    [ -d "$(rustc --print sysroot)/lib/rustlib/src/rust/library" ] ||
        { echo "--build-std needs the standard library's source: rustup component add rust-src" >&2; exit 2; }
    export RUSTC_BOOTSTRAP=1
    # In a folder of its own: cargo would build what has the other standard library anew each time.
    export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/build-std"
    std="-Zbuild-std=std,panic_unwind -Zbuild-std-features=optimize_for_size,panic-unwind"
fi
# shellcheck disable=SC2086
cargo build --quiet --package doorbell-capi ${BESIDE:+--package $BESIDE} --profile "$profile" ${target:+--target "$target"} \
    ${features:+--no-default-features --features "$features"} $std
folder=$profile
[ "$profile" != dev ] || folder=debug
archive=${CARGO_TARGET_DIR:-target}/${target:+$target/}$folder/libdoorbell.a

mkdir -p "$prefix/include" "$prefix/lib/pkgconfig"
cp src/capi/doorbell.h "$prefix/include/"
cp "$archive" "$prefix/lib/"
# The shared library has the functions of the map, and what they need of the static one.
kept=$(sed -n 's/^ *\(doorbell_[a-z_]*\);/-Wl,-u,\1/p' src/capi/doorbell.map)
map=src/capi/doorbell.map
case ,${features:-compiler}, in
*,compiler,* | *,emu,*) ;;
*)  # Without the compiler there are no tensors.
    map=$prefix/lib/doorbell.map
    grep -v doorbell_tensor_ src/capi/doorbell.map >"$map"
    kept=$(sed -n 's/^ *\(doorbell_[a-z_]*\);/-Wl,-u,\1/p' "$map")
    ;;
esac
case $target in *-musl) system=-lc ;; *) system="-lgcc_s -lpthread -lm -ldl -lc" ;; esac
# shellcheck disable=SC2086
${CC:-cc} -shared -o "$prefix/lib/libdoorbell.so.$version" $kept "$archive" \
    -Wl,-soname,$soname -Wl,--version-script="$map" -Wl,--gc-sections -Wl,-z,defs -Wl,-z,relro,-z,now \
    $system
[ "$map" = src/capi/doorbell.map ] || rm "$map"
[ "$profile" = dev ] || ${STRIP:-strip} "$prefix/lib/libdoorbell.so.$version"
ln -sf "libdoorbell.so.$version" "$prefix/lib/$soname"
ln -sf $soname "$prefix/lib/libdoorbell.so"
sed "s|@prefix@|$prefix|; s|@version@|$version|" src/capi/doorbell.pc.in >"$prefix/lib/pkgconfig/doorbell.pc"
echo "installed libdoorbell $version below $prefix"
