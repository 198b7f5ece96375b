#!/usr/bin/env bash
# The mathematics on arm64: cross-compiles compute/ with its tests and runs them under qemu-user, in
# the folder given. What make test-arm64 runs.
#
#   tests/arm64.sh FOLDER [SUITE ...]
#
# libcheck for arm64 comes from the distribution's own archive into the folder, through apt with
# lists of its own: the system is left as it is, and root is not needed. XNORD_TEST_EVERY (default
# 8: an eighth of the case table) and XNORD_TEST_RANDOM (default 60) say how much is run; 1 and 300
# are what the other machines run.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly triplet=aarch64-linux-gnu
folder=$(mkdir -p "$1" && cd "$1" && pwd)
readonly folder
shift
suites=("$@")
if ((${#suites[@]} == 0)); then
    suites=(arith backends backends_contract backends_literal backends_precision backends_random
        backends_ready conv cpu_packed cpus half mem parallel tensor weights)
fi

fetch_check() {
    local apt=(apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64
        -o "Dir::State::Lists=$folder/apt/lists" -o "Dir::Cache=$folder/apt/cache"
        -o APT::Sandbox::User=)
    mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial" "$folder/root"
    "${apt[@]}" update
    (cd "$folder/apt" && "${apt[@]}" download check libsubunit-dev)
    for package in "$folder"/apt/*.deb; do
        dpkg-deb -x "$package" "$folder/root"
    done
}

if [[ ! -e $folder/root/usr/lib/$triplet/libcheck_pic.a ]]; then
    fetch_check || {
        echo "arm64: this system's archive gave no libcheck for arm64 (Ubuntu has arm64 on" \
            "ports.ubuntu.com only; Debian works)" >&2
        exit 1
    }
fi

make --no-print-directory BUILD="$folder/build" CUDA=0 CC="$triplet-gcc" AR="$triplet-ar" \
    CHECK_CFLAGS="-I$folder/root/usr/include" \
    CHECK_LIBS="-L$folder/root/usr/lib/$triplet -lcheck_pic -lsubunit -lrt" \
    "$folder/build/compute-tests"
XNORD_TEST_EVERY=${XNORD_TEST_EVERY:-7} XNORD_TEST_RANDOM=${XNORD_TEST_RANDOM:-60} \
    qemu-aarch64 -L "/usr/$triplet" "$folder/build/compute-tests" "${suites[@]}"
