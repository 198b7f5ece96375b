#!/usr/bin/env bash
# bench_http.sh: `make bench-http`: wrk against xnord, against the echo ceiling and, where python3 has
# torch and aiohttp, against the PyTorch peer; all in one run, in turns, ROUNDS times.
#   bench_http.sh BUILD [xnord flags ...]      environment: SECONDS_EACH CONNECTIONS SIDES ROUNDS
set -euo pipefail

build=${1:?usage: bench_http.sh BUILD [xnord flags ...]}
shift
here=$(dirname "$0")
seconds=${SECONDS_EACH:-3}
connections=${CONNECTIONS:-32}
sides=${SIDES:-32 128 512}
rounds=${ROUNDS:-3}
out=$build/bench
cores=$(nproc)
wrk_threads=$((cores > 4 ? 4 : 1))
echo_threads=$((cores > 8 ? 8 : cores))
mkdir -p "$out"
command -v wrk >/dev/null || { echo "bench-http needs wrk: deploy/install-deps.sh --with-bench" >&2; exit 1; }

pids=()
# shellcheck disable=SC2317 # called by the trap
finish() {
    local pid
    for pid in "${pids[@]}"; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
}
trap finish EXIT

# wait_line FILE PATTERN PID: the first line that matches, or failure after 60 s.
wait_line() {
    local i line
    for ((i = 0; i < 600; i++)); do
        if line=$(grep -m1 -E "$2" "$1" 2>/dev/null); then
            printf '%s\n' "$line"
            return 0
        fi
        kill -0 "$3" 2>/dev/null || break
        sleep 0.1
    done
    return 1
}

"$build/xnord" --port 0 "$@" 2>"$out/xnord.log" &
pids+=($!)
line=$(wait_line "$out/xnord.log" 'listening on' $!) || { cat "$out/xnord.log" >&2; exit 1; }
xnord=${line##*listening on }
xnord=${xnord%% *}
"$build/bench-http_echo" "$echo_threads" >"$out/echo.port" &
pids+=($!)
echo_url=http://127.0.0.1:$(wait_line "$out/echo.port" '^[0-9]+$' $!)
peer_url=
if python3 -c 'import torch, aiohttp' 2>/dev/null; then
    python3 "$here/peer_torch_server.py" >"$out/peer.port" 2>"$out/peer.log" &
    pids+=($!)
    peer_url=http://127.0.0.1:$(wait_line "$out/peer.port" '^[0-9]+$' $!) || { cat "$out/peer.log" >&2; exit 1; }
fi

curl -fsS -X PUT "$xnord/weights/bench" -H 'Content-Type: application/json' -d '{"weights": {
  "shape": [1, 1, 3, 3], "datatype": "FP32", "data": [1, -1, 1, -1, 1, -1, 1, -1, 1]}}' >/dev/null
backend=$(curl -fsS "$xnord/v2/health/ready" | sed 's/.*"backend": "\([a-z]*\)".*/\1/')

# load URL FORM SIDE: requests/s, p50, p90, p99 in microseconds, errors
load() {
    FORM=$2 SIDE=$3 wrk -t"$wrk_threads" -c"$connections" -d"${seconds}s" -s "$here/post.lua" "$1" |
        sed -n 's/^RESULT //p'
}

median() { sort -g | awk '{a[NR] = $1} END {print a[int((NR + 1) / 2)]}'; }
# column FILE N: the median of a column; spread FILE: smallest and largest of the first.
column() { awk -v n="$2" '{print $n}' "$1" | median; }
spread() { awk '{print $1}' "$1" | sort -g | awk 'NR == 1 {lo = $1} {hi = $1} END {printf "%.0f..%.0f", lo, hi}'; }

echo "xnord backend $backend; wrk $wrk_threads threads, $connections connections, ${seconds}s x $rounds rounds; medians; $cores cores"
printf '%10s %8s | %12s %19s %9s %9s %9s %7s\n' 'body bytes' server 'requests/s' spread 'p50 us' 'p90 us' 'p99 us' errors
json=$out/bench_http.json
printf '[' >"$json"
first=1
status=0
for side in $sides; do
    rm -f "$out"/rows.*
    for ((round = 0; round < rounds; round++)); do
        load "$xnord/conv" oip "$side" >>"$out/rows.xnord"
        load "$echo_url/" raw "$side" >>"$out/rows.echo"
        [ -z "$peer_url" ] || load "$peer_url/conv?side=$side" raw "$side" >>"$out/rows.peer"
    done
    for server in xnord echo peer; do
        rows=$out/rows.$server
        [ -s "$rows" ] || continue
        errors=$(awk '{s += $5} END {print s}' "$rows")
        [ "$errors" = 0 ] || status=1
        printf '%10d %8s | %12.0f %19s %9.0f %9.0f %9.0f %7d\n' $((side * side * 4)) "$server" \
            "$(column "$rows" 1)" "$(spread "$rows")" "$(column "$rows" 2)" "$(column "$rows" 3)" \
            "$(column "$rows" 4)" "$errors"
        [ "$first" = 1 ] || printf ',' >>"$json"
        first=0
        printf '\n {"body_bytes": %d, "server": "%s", "backend": "%s", "requests_per_second": %s, "p50_us": %s, "p90_us": %s, "p99_us": %s, "errors": %s}' \
            $((side * side * 4)) "$server" "$backend" "$(column "$rows" 1)" "$(column "$rows" 2)" \
            "$(column "$rows" 3)" "$(column "$rows" 4)" "$errors" >>"$json"
    done
    awk -v a="$(column "$out/rows.xnord" 1)" -v b="$(column "$out/rows.echo" 1)" \
        'BEGIN {printf "%10s %8s   xnord / echo %.2f", "", "", a / b}'
    [ ! -s "$out/rows.peer" ] || awk -v a="$(column "$out/rows.xnord" 1)" -v b="$(column "$out/rows.peer" 1)" \
        'BEGIN {printf ", xnord / peer %.1f", a / b}'
    echo
done
printf '\n]\n' >>"$json"
rm -f "$out"/rows.*
echo "JSON: $json"
exit $status
