#!/usr/bin/env bash
# What a machine with a GPU owes a change, in one call: builds for its chip, runs the suites on both
# backends, then the CUDA suites under compute-sanitizer, then times networks and layers and prints
# their tables.
#
#   tests/gpu.sh FOLDER [build|suites|sanitizers|times ...]
#
# Without names all four run, in that order, and what fails does not stop the rest. Logs and JSON lie
# in FOLDER. SM (default: the first GPU's) is the chip, such as 90a. BEFORE: an older FOLDER, with
# whose single layers the tables compare. PYTHON: one that has PyTorch, for the peer.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

readonly folder=${1:?the folder for logs}
mkdir -p "$folder"
shift
parts=("$@")
((${#parts[@]} > 0)) || parts=(build suites sanitizers times)
chip=${SM:-$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)}
[[ $chip != 90 ]] || chip=90a # wgmma's
readonly chip build=build/gpu-$chip
failed=()

part() { # name, command...
    local name=$1 started=$SECONDS status=0
    shift
    timeout --kill-after=30 "${PART_SECONDS:-540}" "$@" >"$folder/$name.log" 2>&1 || status=$?
    echo "$name: exit status $status, $((SECONDS - started)) s; $(tail -n 1 "$folder/$name.log" | cut -c1-120)"
    ((status == 0)) || failed+=("$name")
}
suites() { # name, suites...
    local name=$1
    shift
    part "$name" env XNORD_BIN="$PWD/$build/xnord" XNORD_TEST_REQUIRE=cuda \
        XNORD_TEST_LOG="$folder/$name.output" "$build/xnord-tests" "$@"
}
of_kind() { "$build/xnord-tests" --list | grep -E "$1"; }

for name in "${parts[@]}"; do
    case $name in
    build)
        part build make "-j$(nproc)" --no-print-directory build test-binary "$build"/bench-{conv,http} \
            BUILD="$build" CUDA=1 CUDA_GENCODE="-gencode=arch=compute_$chip,code=sm_$chip"
        ;;
    suites)
        export XNORD_TEST_EVERY=${XNORD_TEST_EVERY:-29}
        mapfile -t names < <(of_kind '^(backends|cuda|networks|engine|cpu)')
        suites suites "${names[@]}"
        mapfile -t names < <(of_kind '^http_(conv|infer|models?|device|drain|pinned|programs|shm)$')
        XNORD_TEST_FLAGS='--backend cuda' suites http-on-cuda "${names[@]}"
        ;;
    sanitizers)
        for tool in memcheck racecheck initcheck; do
            part "$tool" env CK_FORK=no XNORD_TEST_EVERY=211 XNORD_TEST_RANDOM=20 XNORD_TEST_CHAINS=8 \
                compute-sanitizer --tool "$tool" --error-exitcode 9 \
                "$build/xnord-tests" backends cuda_packed networks_{dense,stages,strided,stem}
        done
        ;;
    times)
        python=${PYTHON:-python3}
        for precision in fp32 fp16; do
            "$python" tests/bench/networks.py "$folder/networks/$precision" "$precision"
        done
        models=("$folder"/networks/fp32/*)
        part network "$build/bench-conv" time --of network --backend cuda "${models[@]/#/--model=}" \
            --rounds 1 --json "$folder/network.json"
        part network-cpu "$build/bench-conv" time --of network --backend cpu --threads 2 --batch 1 \
            "${models[@]/#/--model=}" --rounds 2 --json "$folder/network_cpu.json"
        part peer "$python" tests/bench/conv/peers/peer_torch_network.py cuda
        part http "$build/bench-http" compare --workloads network --xnord "$build/xnord" \
            --model "$folder/networks/fp16/birealnet18" --images 8 --connections 32 --seconds 1.5 \
            --json "$folder/http.json" -- --backend cuda --max-batch-images 512
        part one-channel "$build/bench-conv" time --backend cuda --shapes few --peer none \
            --only 1x1x --json "$folder/one_channel.json"
        part shapes "$build/bench-conv" paths --backend cuda --shapes networks --chosen --rounds 3 \
            --json "$folder/shapes.json"
        "$python" tests/bench/tables.py "$folder" ${BEFORE:+"$BEFORE"} | tee "$folder/tables.md"
        ;;
    *)
        echo "gpu.sh: there is no part '$name' (build, suites, sanitizers, times)" >&2
        exit 2
        ;;
    esac
done
if ((${#failed[@]} > 0)); then
    echo "FAILED: ${failed[*]}"
    exit 1
fi
