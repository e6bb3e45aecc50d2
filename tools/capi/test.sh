#!/bin/sh
# Installs libdoorbell below target/capi, builds the examples from the installed files alone, and holds what they do to
# the promises of the header: results, system calls, allocations. usage: test.sh [RUNS]
set -eu
cd "$(dirname "$0")/../.."
runs=${1:-1000000}
out=$PWD/target/capi
mkdir -p "$out"
BESIDE="doorbell-cli --features doorbell-cli/emu" sh tools/capi/install.sh --prefix "$out" --profile dev
package=$out/mlp.dbp
"${CARGO_TARGET_DIR:-target}/debug/doorbell" compile mlp --target x86_64-avx2,x86_64-avx512 -o "$package"
export PKG_CONFIG_PATH="$out/lib/pkgconfig"
flags="$(pkg-config --cflags doorbell) -Wall -Wextra -Werror"
shared="$(pkg-config --libs doorbell) -Wl,-rpath,$out/lib"
static="$out/lib/libdoorbell.a -lpthread -lm -ldl -lgcc_s -lc"
cd "$out"
examples=$OLDPWD/src/capi/examples
fail() { echo "capi: $1" >&2; exit 1; }

# shellcheck disable=SC2086
{
    cc -std=c11 $flags -o run "$examples/run.c" $shared
    cc -std=c11 $flags -o run-static "$examples/run.c" $static
    cc -std=gnu11 $flags -o many "$examples/many.c" $shared
    cc -std=gnu11 $flags -o fork "$examples/fork.c" $shared
    cc -std=c11 $flags -o tensor "$examples/tensor.c" $shared
    c++ -std=c++17 $flags -o run-cpp "$examples/run.cpp" $shared
}
./run "$package" >want.txt
[ "$(wc -l <want.txt)" = 3 ] || fail "three outputs are expected, $(cat want.txt)"
for other in ./run-static ./run-cpp "python3 $examples/run.py lib/libdoorbell.so"; do
    $other "$package" >have.txt || fail "$other failed"
    cmp -s want.txt have.txt || fail "$other printed other results: $(cat have.txt)"
done
./many "$package" "$runs"
./fork "$package"
if [ "$(id -u)" = 0 ]; then
    # A user without rights, whose folder it is not.
    elsewhere=$(mktemp -d)
    chmod 755 "$elsewhere"
    cp run-static "$package" "$elsewhere"
    (cd "$elsewhere" && setpriv --reuid 65534 --regid 65534 --clear-groups ./run-static mlp.dbp) >have.txt &&
        cmp -s want.txt have.txt || fail "as another user: $(cat have.txt)"
    rm -r "$elsewhere"
fi
[ "$(DEV=CPU ./tensor)" = "2 x 2: 0.1192 0.8808 0.1192 0.8808" ] || fail "Tensors compute something else: $(DEV=CPU ./tensor)"

# Under the address sanitizer, which also tells what was not freed.
# shellcheck disable=SC2086
for name in run many tensor; do
    cc -std=gnu11 -g -fsanitize=address $flags -o "$name-asan" "$examples/$name.c" $static
done
{ ./run-asan "$package" && ./many-asan "$package" 1000 && DEV=CPU ./tensor-asan; } >asan.txt 2>&1 ||
    fail "the address sanitizer: $(cat asan.txt)"

# The runtime alone, with musl's libc.
musl=x86_64-unknown-linux-musl
if [ -d "$(rustc --print target-libdir --target $musl)" ]; then
    (cd "$OLDPWD" && CC=musl-gcc sh tools/capi/install.sh --prefix "$out/musl" --target $musl \
        --features runtime,cpu --profile dev)
    musl-gcc -static -std=c11 -I"$out/musl/include" -o run-musl "$examples/run.c" "$out/musl/lib/libdoorbell.a"
    ./run-musl "$package" >have.txt && cmp -s want.txt have.txt || fail "with musl: $(cat have.txt)"
else
    echo "capi: not tested with musl: rustup target add $musl"
fi

# The names are those of the header, under one version, and nothing else.
nm -D --defined-only lib/libdoorbell.so | sed -n 's/.* [TD] \(doorbell_[a-z_]*\)@@DOORBELL_0$/\1/p' | sort >names.txt
sed -n 's/.*[ *]\(doorbell_[a-z_]*\)(.*/\1/p' include/doorbell.h | grep -v '_fn$' | sort -u >header.txt
cmp names.txt header.txt || fail "the library's functions are not the header's"
[ "$(nm -D --defined-only lib/libdoorbell.so | grep -vc -e @@DOORBELL_0 -e ' A DOORBELL_0')" = 0 ] || fail "more is exported"
objdump -p lib/libdoorbell.so | grep -q 'SONAME *libdoorbell.so.0' || fail "no SONAME"

# No thread, no output but the example's, no file but those that were named; counted from the package's opening on.
strace -f -o trace.txt ./run "$package" >/dev/null
sed -n '/openat(.*mlp\.dbp/,$p' trace.txt | sed 1d >after.txt
if grep -E ' (open|openat|clone|clone3|fork|vfork|socket|execve|rt_sigaction|kill|tgkill)\(' after.txt; then
    fail "these calls were not asked for"
fi
[ "$(grep -c ' write(' after.txt)" = "$(grep -c ' write(1,' after.txt)" ] || fail "something else was written"
echo "capi: $(wc -l <after.txt) system calls after the package was opened, none of them unasked"
