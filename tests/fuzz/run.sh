#!/usr/bin/env bash
# Runs fuzz targets one after the other: run.sh FOLDER fuzz|replay SECONDS TARGET...
# fuzz: libFuzzer, for that time each; what it learns stays in FOLDER/found, so a later run goes on.
# replay: the corpus and FUZZ_ROUNDS mutations of it, from FUZZ_SEED.
# What fails is left in FOLDER, and the command that shows it again is printed.
set -euo pipefail

readonly folder=$1 program=$2 seconds=$3
shift 3
readonly corpus=tests/fuzz/corpus
if [[ $program == replay ]]; then
    echo "fuzz: this clang has no libFuzzer: mutating the corpus without coverage instead"
fi

run_target() { # target
    local target=$1 found=$folder/found/$1
    if [[ $program == replay ]]; then
        "$folder/replay-$target" "$target" "$FUZZ_ROUNDS" "$FUZZ_SEED" "$corpus/$target"/*
        return
    fi
    mkdir -p "$found"
    "$folder/fuzz-$target" -max_total_time="$seconds" -max_len=4096 -timeout=20 -rss_limit_mb=3000 \
        -dict=tests/fuzz/fuzz.dict -verbosity=0 -print_final_stats=1 \
        -artifact_prefix="$folder/$target-" "$found" "$corpus/$target" 2>"$folder/$target.log" || {
        cat "$folder/$target.log"
        echo "fuzz: $target failed; its input is $folder/$target-*; see it again with"
        echo "    $folder/fuzz-$target FILE"
        echo "and keep it in $corpus/$target once it passes"
        return 1
    }
    grep -E 'number_of_executed_units' "$folder/$target.log" |
        sed "s/^stat::number_of_executed_units: */fuzz: $target: nothing found; runs: /"
}

for target in "$@"; do
    run_target "$target"
done
