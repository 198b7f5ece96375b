#!/usr/bin/env bash
# Holds proto/openapi.yaml against a running daemon with schemathesis (PyPI), all checks, a fixed
# seed: tests/openapi/run.sh BUILD. Makes BUILD/openapi-venv on first use. OPENAPI_SECONDS bounds the
# run (120), OPENAPI_SEED is its seed. Exit status 0: nothing was found.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly build=${1:?the build folder}
readonly venv=$build/openapi-venv
readonly log=$build/openapi.log
readonly schemathesis_version=4.32.5

if [[ ! -x $venv/bin/schemathesis ]]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" --quiet install "schemathesis==$schemathesis_version"
fi

"$build/xnord" --listen 127.0.0.1 --port 0 --backend cpu 2>"$log" &
daemon=$!
trap 'kill "$daemon" 2>/dev/null; wait "$daemon" || true' EXIT
url=
for _ in $(seq 200); do
    url=$(sed -nE 's/.*listening on (http[^ ]*)$/\1/p' "$log")
    if [[ -n $url ]]; then
        break
    fi
    sleep 0.05
done
if [[ -z $url ]]; then
    echo "$build/xnord did not start:" >&2
    cat "$log" >&2
    exit 1
fi

# It keeps what it found from one run to the next, in the folder it runs in: here each run is the
# same.
readonly work=$build/openapi
rm -rf "$work"
mkdir -p "$work"
root=$PWD
venv_bin=$(cd "$venv/bin" && pwd)
cd "$work"
readonly seconds=${OPENAPI_SECONDS:-120}
PYTHONDONTWRITEBYTECODE=1 SCHEMATHESIS_HOOKS="$root/tests/openapi/hooks.py" \
    timeout --kill-after=10 "$((seconds + 120))" \
    "$venv_bin/schemathesis" --config-file "$root/tests/openapi/schemathesis.toml" \
    run "$root/proto/openapi.yaml" --url "$url" --checks all --seed "${OPENAPI_SEED:-20200728}" \
    --max-time "$seconds" --continue-on-failure --no-color
