#!/usr/bin/env bash
# The converter's tests, and every network in PyTorch, converted, served and compared:
# tests/networks/run.sh BUILD [OPTIONS of test_networks.py]. Makes BUILD/networks-venv on first use
# (some 6 GB from PyPI, since PyTorch comes with CUDA). Exit status 0: everything holds.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly build=${1:?the build folder}
readonly venv=$build/networks-venv
readonly requirements=(deploy/convert/requirements.txt tests/networks/requirements.txt)
shift

if ! cat "${requirements[@]}" | cmp -s - "$venv/requirements.txt"; then
    python3 -m venv "$venv"
    "$venv/bin/pip" --quiet --disable-pip-version-check install -r "${requirements[0]}" \
        -r "${requirements[1]}"
    cat "${requirements[@]}" >"$venv/requirements.txt"
fi

# One thread in each of the processes that compute side by side.
export PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
for tests in test_convert test_faithful test_index; do
    XNORD_BIN=$build/xnord "$venv/bin/python" "tests/networks/convert/$tests.py"
done
"$venv/bin/python" tests/networks/convert/test_networks.py --xnord "$build/xnord" \
    --work "$build/test-networks" "$@"
