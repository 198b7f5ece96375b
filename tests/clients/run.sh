#!/usr/bin/env bash
# The Open Inference Protocol's clients against a running daemon: tritonclient, sync and asyncio,
# its perf_analyzer, KServe's client, and OpenTelemetry's: tests/clients/run.sh BUILD [TEST ...]. Makes
# BUILD/clients-venv on first use (PyPI, pinned). CLIENTS_SECONDS bounds the run (400). The last line
# is "N passed, M failed".
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly build=${1:?the build folder}
shift
readonly venv=$build/clients-venv work=$build/clients
readonly requirements=tests/clients/requirements.txt
readonly triton_with_perf_analyzer=2.51.0 cuda_runtime=12.9.79

if ! cmp -s "$requirements" "$venv/made-of"; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" --quiet install -r "$requirements"
    cp "$requirements" "$venv/made-of"
fi

fetch() { # the wheel of PACKAGE==VERSION, into the current folder
    pip --quiet download --no-deps --only-binary=:all: --platform "$2" --dest . "$1"
}

# The last wheel with the program for this glibc, and the two libraries that it wants. libb64 is only
# unpacked, so that nobody has to be root.
fetch_perf_analyzer() {
    local PATH=$PWD/$venv/bin:$PATH folder=$work/perf_analyzer
    rm -rf "$folder.new"
    mkdir -p "$folder.new"
    (
        cd "$folder.new"
        fetch "tritonclient==$triton_with_perf_analyzer" manylinux1_x86_64
        fetch "nvidia-cuda-runtime-cu12==$cuda_runtime" manylinux2014_x86_64
        python3 - <<'END'
import glob, zipfile
for wheel in glob.glob("*.whl"):
    with zipfile.ZipFile(wheel) as files:
        for name in files.namelist():
            if name.endswith(("/bin/perf_analyzer", "/libcudart.so.12")):
                with open(name.rsplit("/", 1)[1], "wb") as out:
                    out.write(files.read(name))
END
        chmod +x perf_analyzer
        if ! ldconfig -p | grep -q 'libb64\.so\.0d'; then
            apt-get -qq download libb64-0d
            dpkg-deb -x libb64-0d_*.deb libb64
            cp -P libb64/usr/lib/*/libb64.so.0d* .
        fi
        rm -rf ./*.whl ./*.deb libb64
    )
    rm -rf "$folder"
    mv "$folder.new" "$folder"
}

mkdir -p "$work"
if [[ $(uname -m) == x86_64 && ! -x $work/perf_analyzer/perf_analyzer ]]; then
    fetch_perf_analyzer
fi

PYTHONDONTWRITEBYTECODE=1 timeout --kill-after=10 "${CLIENTS_SECONDS:-400}" \
    "$venv/bin/python3" tests/clients/run.py "$build" "$@"
