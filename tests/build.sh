#!/usr/bin/env bash
# What make makes again: everything that the flags of this call concern, and nothing else. Builds
# for real in a folder of its own, without optimisation; .ci/run runs it.
#
#   tests/build.sh FOLDER
#
# CUDA comes and goes with a stand-in for nvcc, which makes a backend without devices of backend.cu
# and an empty object of any other file: nothing here takes minutes, nor needs the toolkit.
set -euo pipefail
cd "$(dirname "$0")/.."
unset CC CFLAGS LDFLAGS OPT SANITIZE WERROR OPENMP CUDA PROFILE V MAKEFLAGS MAKELEVEL

rm -rf "$1"
folder=$(mkdir -p "$1" && cd "$1" && pwd)
readonly folder build=$folder/build
failures=0

cat >"$folder/stub.c" <<'END'
#include "xn_backends.h"
static xn_status none(int *count, xn_error *error) {
    *count = 0;
    return xn_fail(error, XN_ERR_NO_DEVICE, NULL, "a stand-in has none");
}
const xn_backend xn_backend_cuda = {.name = "cuda", .device_count = none};
END
cat >"$folder/nvcc" <<END
#!/usr/bin/env bash
if [[ \$1 == --list-gpu-arch ]]; then
    echo compute_80
    exit
elif [[ \$1 == --version ]]; then
    echo "release \${STAND_IN_RELEASE:-13.0}, V0"
    exit
fi
while [[ \$1 != -o ]]; do shift; done
source=/dev/null
if [[ \$3 == */backend.cu ]]; then source=$folder/stub.c; fi
exec cc -DXN_HAVE_CUDA=1 -Icompute/include -Icompute/core -c -o "\$2" -x c "\$source"
END
chmod +x "$folder/nvcc"

run_make() { # with the folder's settings; others may be added
    make --no-print-directory -j"$(nproc)" V=1 BUILD="$build" OPT=-O0 NVCC="$folder/nvcc" \
        CUDA_LIBS= "$@"
}

fail() {
    echo "build: $*"
    failures=$((failures + 1))
}

# The files that a command line with "-o FILE" or "ar rcs FILE" in what make printed makes, in short.
made() {
    sed -nE "s:^.*( -o |ar rcs )$build/([^ ]+) .*:\2:p" | sed 's:^obj/::' | sort
}

expect_made() { # what is to be made as a pattern for each line, what was, when
    local others
    others=$(grep -vxE "$1" <<<"$2" || true)
    if [[ -z $2 ]]; then
        fail "$3: nothing is made"
    elif [[ -n $others ]]; then
        fail "$3: also makes $(head -n 5 <<<"$others" | paste -sd' ')"
    fi
}

expect_all() { # pattern, what was made, when: every object of the pattern that there is
    local missing
    missing=$(cd "$build/obj" && find . -name '*.o' | sed 's:^\./::' | grep -xE "$1" | sort |
        comm -23 - <(cat <<<"$2"))
    if [[ -n $missing ]]; then
        fail "$3: does not make $(head -n 5 <<<"$missing" | paste -sd' ')"
    fi
}

expect_nothing() { # when, make's arguments
    local output
    output=$(run_make -n "${@:2}" | made)
    if [[ -n $output ]]; then
        fail "$1: makes $(head -n 5 <<<"$output" | paste -sd' ')"
    fi
}

expect_cuda() { # 1 or 0, when
    local devices has=0
    devices=$("$build/xnord" --list-devices)
    if grep -q '^cuda' <<<"$devices"; then has=1; fi
    if ((has != $1)); then
        fail "$2: the daemon's devices are: $(paste -sd';' <<<"$devices")"
    fi
}

readonly linked='xnord|libxn_compute.a'
readonly gpu='compute/core/registry.c.o|compute/cuda/.*'

run_make CUDA=0 build >"$folder/log"
expect_cuda 0 "first CUDA=0"
expect_nothing "CUDA=0 again" CUDA=0 build

output=$(run_make CUDA=1 build | tee -a "$folder/log" | made)
expect_cuda 1 "CUDA=1 after CUDA=0"
expect_made "$linked|$gpu" "$output" "CUDA=1 after CUDA=0"
expect_nothing "CUDA=1 again" CUDA=1 build
expect_nothing "CUDA=auto with nvcc" build

output=$(run_make CUDA=0 build | tee -a "$folder/log" | made)
expect_cuda 0 "CUDA=0 after CUDA=1"
expect_made "$linked|$gpu" "$output" "CUDA=0 after CUDA=1"
expect_nothing "CUDA=0 the last time" CUDA=0 build
if nm "$build/libxn_compute.a" 2>/dev/null | grep -q xn_backend_cuda; then
    fail "the archive of a build without CUDA has the GPU backend's objects"
fi

# Flags of every kind. A dry run must say what a real one would do, and leave no trace.
readonly c='(compute|proto|server)/.*\.c\.o' everything='(compute|proto|server)/.*\.o|[^/]*'
for change in OPT=-O1 'SANITIZE=-fsanitize=undefined' 'CC=cc -DOTHER' CFLAGS= WERROR=1; do
    output=$(run_make -n CUDA=0 "$change" build | made)
    expect_made "$everything" "$output" "$change"
    expect_all "$c" "$output" "$change"
done
output=$(run_make -n CUDA=0 LDFLAGS=-s build | made)
expect_made 'xnord' "$output" LDFLAGS
output=$(run_make -n CUDA=0 VERSION=9 build | made)
expect_made 'server/.*|xnord|libxn_server.a' "$output" VERSION
expect_all 'server/.*' "$output" VERSION
output=$(run_make -n CUDA=0 AR=other-ar build | grep -c '^other-ar rcs') || true
if ((output != 3)); then
    fail "AR: makes $output archives"
fi
output=$(run_make -n CUDA=0 -W proto/include/xn_proto.h build | made)
expect_made '(proto|server)/.*|xnord|libxn_(proto|server).a' "$output" "a header of proto"
expect_nothing "after dry runs" CUDA=0 build

# The GPU code: compressed in the way that this nvcc's drivers can read; line information when asked.
expect_flag() { # pattern, 1 or 0: whether the GPU's files are made with it, make's arguments
    local output has=0
    output=$(run_make -nB CUDA=1 "${@:3}" "$build/obj/compute/cuda/host/backend.cu.o")
    if grep -qE -e "$1" <<<"$output"; then has=1; fi
    if ((has != $2)); then
        fail "$1 is $has with: ${*:3}"
    fi
}
expect_flag --compress-mode=size 1
STAND_IN_RELEASE=12.8 expect_flag --compress-mode 0
STAND_IN_RELEASE=12.8 expect_flag -compress-all 1
expect_flag -lineinfo 0
expect_flag -lineinfo 1 PROFILE=1

# On how many cores, and what is said of it.
expect_jobs() { # -jN or nothing, make's arguments
    local jobs
    jobs=$(make -n "${@:2}" CUDA=0 BUILD="$build" all |
        sed -nE 's/^make --no-print-directory *(-j[0-9]+)? *build$/\1/p')
    if [[ $jobs != "$1" ]]; then
        fail "make ${*:2} builds with '$jobs' instead of '$1'"
    fi
}
expect_jobs "-j$(nproc)"
expect_jobs "" -j3
output=$(run_make -B V=0 CUDA=0 proto-lib | tee "$folder/steps" |
    grep -vE '^  CC +[0-9]+/[0-9]+ proto/src/[a-z_0-9/]*\.c$') || true
if [[ ! $output =~ ^"  AR "\ +([0-9]+)/([0-9]+)\ "$build/libxn_proto.a"$ ||
    ${BASH_REMATCH[1]} != "${BASH_REMATCH[2]}" ||
    ${BASH_REMATCH[1]} != $(wc -l <"$folder/steps") ]]; then
    fail "without V=1 it says: $(head -n 3 <<<"$output")"
fi

# Without nvcc CUDA=1 is one line, before anything is made.
output=$(run_make CUDA=1 NVCC= build 2>&1) && fail "CUDA=1 builds without nvcc"
[[ $output == *"CUDA=1, but there is no nvcc"* && $(wc -l <<<"$output") == 1 ]] ||
    fail "CUDA=1 without nvcc says: $output"

# Once for real, there and back: another optimisation, and a source file that goes.
readonly object=$build/obj/proto/src/json/text.c.o
cp "$object" "$folder/before.o"
run_make CUDA=0 OPT=-O2 proto-lib >>"$folder/log"
if cmp -s "$object" "$folder/before.o"; then
    fail "OPT: the object is the old one"
fi
run_make CUDA=0 proto-lib >>"$folder/log"
if ! cmp -s "$object" "$folder/before.o"; then
    fail "OPT and back: the object is another one"
fi
run_make CUDA=0 PROTO_SRC=proto/src/json/text.c proto-lib >>"$folder/log"
if [[ $(ar t "$build/libxn_proto.a") != text.c.o ]]; then
    fail "an archive keeps members of files that are gone: $(ar t "$build/libxn_proto.a")"
fi
run_make CUDA=0 build >>"$folder/log"
expect_cuda 0 "at the end"

if ((failures > 0)); then
    echo "build: $failures failures (what make printed: $folder/log)"
    exit 1
fi
echo "build: what changed is made again, and nothing else"
