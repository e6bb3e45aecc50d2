#!/bin/sh
# Runs the commands of docs/guide/embed.md in their order. Needs the program: DOORBELL names it, else it is built.
set -eu
cd "$(dirname "$0")/../.."
mkdir -p target/embed
if [ -z "${DOORBELL:-}" ]; then
    cargo build --quiet --package doorbell-cli --features emu
    DOORBELL=target/debug/doorbell
fi
case $DOORBELL in /*) ;; *) DOORBELL=$PWD/$DOORBELL ;; esac
doorbell() { "$DOORBELL" "$@"; }
# Where the kernel gives no user namespaces, root can change the root folder without one.
if [ "$(id -u)" = 0 ] && ! unshare --map-root-user true 2>/dev/null; then
    unshare() { shift; "$@"; }
fi
commands=target/embed/commands.sh
awk '/^```sh$/ { inside = 1; next } /^```/ { inside = 0 } inside' docs/guide/embed.md >"$commands"
[ "$(wc -l <"$commands")" -ge 12 ] || { echo "guide: no commands found" >&2; exit 1; }
set -x
. "./$commands"
