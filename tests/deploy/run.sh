#!/usr/bin/env bash
# What deploy/ has for Prometheus, Grafana, Kubernetes, KServe and HAProxy, with those programs and
# schemas: tests/deploy/run.sh BUILD [TEST ...]; a test is monitoring_test, manifests_test.Pods, ...
#
# Makes BUILD/deploy-venv on first use (PyPI, pinned). Programs that are not installed are taken from
# Debian's packages and only unpacked, into BUILD/deploy-tools: nothing starts by itself, and nobody
# has to be root. DEPLOY_SECONDS bounds the run (400). DEPLOY_PROGRAM=bench_cluster.py runs that.
set -euo pipefail
cd "$(dirname "$0")/../.."

build=$(cd "${1:?the build folder}" && pwd)
shift
readonly build venv=$build/deploy-venv tools=$build/deploy-tools
readonly requirements=tests/deploy/requirements.txt

if ! cmp -s "$requirements" "$venv/made-of"; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" --quiet --disable-pip-version-check install -r "$requirements"
    cp "$requirements" "$venv/made-of"
fi

unpack() { # packages
    local folder
    if ! command -v apt-get >/dev/null; then
        echo "deploy: this system has no apt-get: install the programs of $* by its own means" >&2
        exit 1
    fi
    mkdir -p "$tools"
    folder=$(mktemp -d)
    # The download is not that user's who fetches for apt: not a trouble.
    (cd "$folder" && apt-get -qq -o APT::Sandbox::User=root download "$@")
    for package in "$folder"/*.deb; do
        dpkg-deb -x "$package" "$tools"
    done
    rm -rf "$folder"
}

# Behind what is installed.
export PATH=$PATH:$tools/usr/bin:$tools/usr/sbin:/usr/sbin
if ! command -v promtool >/dev/null || ! command -v prometheus >/dev/null; then
    unpack prometheus
fi
if ! command -v haproxy >/dev/null; then
    unpack haproxy liblua5.3-0 libopentracing-c-wrapper0 libopentracing1
fi
if [[ $(command -v haproxy) == "$tools"/* ]]; then
    HAPROXY_LIBRARIES=$(dirname "$(find "$tools" -name 'liblua5.3.so.0' | head -n 1)")
    export HAPROXY_LIBRARIES
fi
if ! command -v kubectl >/dev/null; then
    unpack kubernetes-client
fi

export DEPLOY_BUILD=$build PYTHONDONTWRITEBYTECODE=1
cd tests/deploy
if [[ -n ${DEPLOY_PROGRAM:-} ]]; then
    exec "$venv/bin/python3" "$DEPLOY_PROGRAM" "$@"
elif (($# == 0)); then
    set -- manifests_test monitoring_test cluster_test
fi
timeout --kill-after=10 "${DEPLOY_SECONDS:-400}" "$venv/bin/python3" -m unittest -v "$@"
