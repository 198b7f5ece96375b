#!/usr/bin/env bash
# README.md's sections "Use it" and "Networks" as a reader would follow them: beside the daemon of
# `make run`, block after block as it stands, but for the port and the conversion of a checkpoint that
# is not here: tests/readme.sh BUILD. The README's own environment takes packages of PyPI.
set -euo pipefail
cd "$(dirname "$0")/.."

build=$(cd "${1:?the build folder}" && pwd)
readonly build work=$build/readme
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
readonly port
daemon='' ran=0

on_exit() {
    local status=$?
    trap - EXIT
    if [[ -n $daemon ]]; then
        kill -TERM "$daemon" 2>/dev/null || true
        wait "$daemon" || status=$?
    fi
    if ((status != 0)); then
        echo "readme: FAILED" >&2
    fi
    exit "$status"
}
trap on_exit EXIT

rm -rf "$work"
mkdir -p "$work"
ln -s "$PWD/deploy" "$build" "$work"
[[ -e $work/build ]] || ln -s "$build" "$work/build"

# Each block in a file of its own, named by its order and language.
awk -v folder="$work" '
    /^## /  { wanted = /^## (Use it|Networks)$/ }
    wanted && /^```(sh|python)$/ { out = sprintf("%s/%02d.%s", folder, ++n, substr($0, 4)); next }
    /^```/  { out = ""; next }
    out     { print >out }' README.md
sed -i "s/127\.0\.0\.1:8080/127.0.0.1:$port/g" "$work"/*.sh "$work"/*.python

deploy/demo/run.sh "$build/xnord" "$port" >"$work/run.log" 2>&1 &
daemon=$!
for ((i = 0; i < 600; i++)); do
    if grep -q '^Ready' "$work/run.log"; then
        break
    fi
    sleep 0.1
done
# What make run says to copy, first.
grep '^curl' "$work/run.log" >"$work/00.sh"
[[ $(wc -l <"$work/00.sh") == 3 ]] || { cat "$work/run.log" && exit 1; }

cd "$work"
for block in [0-9]*; do
    if grep -q 'checkpoint' "$block"; then
        continue
    fi
    echo "readme: $block: $(head -n 1 "$block" | cut -c1-80)"
    case $block in
    *.sh) bash -euo pipefail "$block" >"$block.out" ;;
    *.python) venv/bin/python "$block" >"$block.out" ;;
    esac
    if grep -a -n '"error"' "$block.out"; then
        exit 1
    fi
    ran=$((ran + 1))
done
[[ $(stat -c %s output.f32) == 65536 ]] || { echo "readme: output.f32 is not 128 x 128 floats" && exit 1; }
grep -qx '0\.97[0-9]*\|0\.98[0-9]*' ./*.python.out || { echo "readme: the digits are not recognised" && exit 1; }
echo "readme: $ran blocks passed"
