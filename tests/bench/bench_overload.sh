#!/usr/bin/env bash
# bench_overload.sh: `make bench-overload`: what xnord still answers when more comes than it can do.
# For each workload and round: its capacity (closed loop), then an open loop (Poisson arrivals) at
# 1x, 2x, 5x and 10x of it. Medians of the rounds; goodput as a share of the same round's capacity.
# Daemon and generator have half of the cores each. A generator that could not keep up shows in
# "late" (its own lateness) and "unsent" (no connection was free): see tests/README.md.
#   bench_overload.sh BUILD [xnord flags ...]
# environment: WORKLOADS ROUNDS SECONDS_EACH LOADS CONNECTIONS SOURCES DAEMON_CPUS GENERATOR_CPUS
#              CHECK=1: fail where a target is missed
set -euo pipefail

build=${1:?usage: bench_overload.sh BUILD [xnord flags ...]}
shift
workloads=${WORKLOADS:-4k 64k slow}
rounds=${ROUNDS:-3}
seconds=${SECONDS_EACH:-3}
loads=${LOADS:-1 2 5 10}
connections=${CONNECTIONS:-1000}
sources=${SOURCES:-8} # addresses: one alone has a share of the queue, and of the connections
cores=$(nproc)
half=$(((cores + 1) / 2))
daemon_cpus=${DAEMON_CPUS:-$(seq -s, 0 $((half - 1)))}
generator_cpus=${GENERATOR_CPUS:-$(seq -s, $((cores > 1 ? half : 0)) $((cores - 1)))}
threads=$(tr ',' '\n' <<<"$generator_cpus" | grep -c .)
out=$build/bench
mkdir -p "$out"
ulimit -n 16384 2>/dev/null || true

daemon=
# shellcheck disable=SC2317 # called by the trap
finish() {
    if [ -n "$daemon" ]; then
        kill "$daemon" 2>/dev/null || true
        wait "$daemon" 2>/dev/null || true
    fi
    rm -f "$out"/overload.*
}
trap finish EXIT

start_daemon() { # flags ...
    local i line
    : >"$out/overload.log"
    taskset -c "$daemon_cpus" "$build/xnord" --port 0 "$@" 2>"$out/overload.log" &
    daemon=$!
    for ((i = 0; i < 600; i++)); do
        if line=$(grep -m1 'listening on' "$out/overload.log"); then
            line=${line#*://}
            line=${line##*:}
            port=${line%%[!0-9]*}
            return 0
        fi
        kill -0 "$daemon" 2>/dev/null || break
        sleep 0.1
    done
    cat "$out/overload.log" >&2
    return 1
}

stop_daemon() {
    kill "$daemon"
    wait "$daemon"
    daemon=
}

faults=0
# load WORKLOAD FLAGS ...: one run of the generator; its JSON in overload.run
load() {
    local workload=$1
    shift
    "$build/bench-open-loop" --port "$port" --workload "$workload" --threads "$threads" \
        --cpus "$generator_cpus" --seconds "$((seconds + 1))" --warmup 1 \
        --json "$out/overload.run" "$@" >"$out/overload.table" || {
        cat "$out/overload.table"
        faults=1
    }
}
# field NAME, field OBJECT NAME: a number of that JSON
field() {
    local text
    text=$(cat "$out/overload.run")
    if (($# == 2)); then
        text=${text#*\""$1"\": \{}
        shift
    fi
    text=${text#*\""$1"\": }
    printf '%s\n' "${text%%[,\}]*}"
}
memory() { awk -v name="$1:" '$1 == name {print int($2 / 1024)}' "/proc/$daemon/status"; }
compute() { awk "BEGIN {printf \"%.${2:-1}f\", $1}"; }
median() { sort -g | awk '{a[NR] = $1} END {print a[int((NR + 1) / 2)]}'; }
spread() { sort -g | awk 'NR == 1 {lo = $1} {hi = $1} END {printf "%.0f..%.0f", lo, hi}'; }
column() { awk -v n="$2" '{print $n}' "$1"; }

one_round() { # WORKLOAD: a line for each load: offered good share p50 p99 refused unsent late hwm
    local capacity rate
    load "$1" --connections 64
    capacity=$(field good_per_s)
    echo "$capacity" >>"$out/overload.capacity"
    for multiple in $loads; do
        rate=$(compute "$capacity * $multiple")
        echo 5 >"/proc/$daemon/clear_refs" 2>/dev/null || true # VmHWM counts from here
        load "$1" --rate "$rate" --connections "$connections" --sources "$sources"
        printf '%s %s %s %s %s %s %s %s %s %s\n' "$(field offered_per_s)" "$(field good_per_s)" \
            "$(compute "100 * $(field good_per_s) / $capacity")" "$(field good_ms p50)" \
            "$(field good_ms p99)" "$(field refused_per_s)" "$(field unsent_per_s)" \
            "$(field late_ms p99)" "$(memory VmHWM)" "$(memory VmRSS)" >>"$out/overload.$multiple"
    done
}

target_of() {
    case $1 in
    2) echo 95 ;;
    5) echo 93 ;;
    10) echo 90 ;;
    *) echo 0 ;;
    esac
}

missed=0
json=$out/bench_overload.json
separator='['
: >"$json"

report() { # WORKLOAD
    local file share p99 base_p99=0 verdict
    printf '%-5s capacity %8.0f/s (%s)\n' "$1" "$(median <"$out/overload.capacity")" \
        "$(spread <"$out/overload.capacity")"
    for multiple in $loads; do
        file=$out/overload.$multiple
        share=$(column "$file" 3 | median)
        p99=$(column "$file" 5 | median)
        if [ "$multiple" = 1 ]; then base_p99=$p99; fi
        verdict=$(awk -v share="$share" -v target="$(target_of "$multiple")" -v p99="$p99" \
            -v base="$base_p99" 'BEGIN {
                if (share < target) printf "goodput below %d%% ", target
                if (base > 0 && p99 > 2 * base) printf "p99 over twice that at 1x"}')
        if [ -n "$verdict" ]; then missed=1; fi
        printf '%8sx %9.0f %9.0f %6.1f%% %9s %9.1f %9.1f %9.0f %9.0f %8.2f %6.0f %6.0f  %s\n' \
            "$multiple" "$(column "$file" 1 | median)" "$(column "$file" 2 | median)" "$share" \
            "$(column "$file" 3 | spread)" "$(column "$file" 4 | median)" "$p99" \
            "$(column "$file" 6 | median)" "$(column "$file" 7 | median)" \
            "$(column "$file" 8 | median)" "$(column "$file" 9 | median)" \
            "$(column "$file" 10 | median)" "${verdict:-reached}"
        printf '%s\n {"workload": "%s", "load": %s, "goodput_percent": %s, "p99_ms": %s, "capacity_per_s": %s, "offered_per_s": %s, "refused_per_s": %s, "unsent_per_s": %s, "late_p99_ms": %s, "hwm_mib": %s}' \
            "$separator" "$1" "$multiple" "$share" "$p99" "$(median <"$out/overload.capacity")" \
            "$(column "$file" 1 | median)" "$(column "$file" 6 | median)" \
            "$(column "$file" 7 | median)" "$(column "$file" 8 | median)" \
            "$(column "$file" 9 | median)" >>"$json"
        separator=,
    done
}

echo "open loop, $connections connections from $sources addresses, ${seconds}s x $rounds rounds, medians;" \
    "daemon on cores $daemon_cpus, generator on $generator_cpus"
echo "$(grep -m1 'model name' /proc/cpuinfo | sed 's/.*: //'), $cores cores; load average $(cut -d' ' -f1 /proc/loadavg) at the start"
printf '%9s %9s %9s %7s %9s %9s %9s %9s %9s %8s %6s %6s\n' load offered/s good/s share spread \
    'p50 ms' 'p99 ms' refused/s unsent/s 'late p99' 'HWM M' 'RSS M'
for workload in $workloads; do
    rm -f "$out"/overload.[0-9]* "$out/overload.capacity"
    start_daemon "$@"
    for ((round = 0; round < rounds; round++)); do
        one_round "$workload"
    done
    stop_daemon
    report "$workload"
done
printf '\n]\n' >>"$json"
echo "queue-bytes: $("$build/xnord" "$@" --check-config | sed -n 's/^queue-bytes = //p'); JSON: $json"
if ((faults)); then
    echo "answers were wrong, lost, or refused without Retry-After" >&2
    exit 1
fi
if [ "${CHECK:-0}" = 1 ] && ((missed)); then
    exit 1
fi
