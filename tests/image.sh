#!/usr/bin/env bash
# The Dockerfile's CPU variant for real, without a container engine: buildah runs its stages in
# chroots on a base that debootstrap makes (as debian:13-slim is made: minbase without manuals and
# translations), then the image's own entry point, as its user and with its environment, and its
# health check beside it: tests/image.sh FOLDER
#
# Needs root, Debian's packages and nothing else from elsewhere. DEBIAN_MIRROR says where they come
# from, else debootstrap knows. The image with CUDA is not built here: its build stage is NVIDIA's.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$(mkdir -p "$1" && cd "$1" && pwd)
readonly folder mirror=${DEBIAN_MIRROR:-}
readonly base=$folder/base-trixie.tar image=localhost/xnord:cpu
readonly megabytes_at_most=100 seconds=60
runner='' container=''

say() { printf 'image: %s\n' "$*"; }
fail() {
    say "$*" >&2
    exit 1
}

in_storage() { # a command of buildah, arguments
    buildah --root "$folder/storage" --runroot "$folder/run" --storage-driver vfs "$@"
}

descendants() { # of a process
    local child children
    read -r -a children < <(cat "/proc/$1"/task/*/children 2>/dev/null | tr '\n' ' ') || true
    for child in "${children[@]}"; do
        echo "$child"
        descendants "$child"
    done
}

daemon() { # its process id, which is some levels below what we started
    local pid
    for pid in $(descendants "$runner"); do
        if [[ $(cat "/proc/$pid/comm" 2>/dev/null) == xnord ]]; then
            echo "$pid"
            return
        fi
    done
    return 1
}

on_exit() {
    local status=$? pid
    trap - EXIT
    if [[ -n $runner ]] && pid=$(daemon); then
        kill -KILL "$pid" || true
    fi
    if [[ -n $container ]]; then
        in_storage rm "$container" >/dev/null 2>&1 || true
    fi
    rm -rf "$folder/storage" "$folder/run" # vfs: each layer is a copy of all below it
    if ((status != 0)); then
        say "FAILED" >&2
    fi
    exit "$status"
}
trap on_exit EXIT

((EUID == 0)) || fail "this needs root, for debootstrap and chroots"

if [[ ! -e $base ]]; then
    say "a base of Debian 13"
    rm -rf "$folder/rootfs"
    debootstrap --variant=minbase trixie "$folder/rootfs" ${mirror:+"$mirror"} >"$folder/debootstrap.log" 2>&1 ||
        fail "debootstrap failed: $folder/debootstrap.log"
    rm -rf "$folder"/rootfs/usr/share/{doc,man,info,locale,groff,lintian} \
        "$folder"/rootfs/var/{cache,log}/* "$folder"/rootfs/var/lib/apt/lists/*
    mkdir -p "$folder/rootfs/var/cache/apt/archives/partial"
    tar -C "$folder/rootfs" -cf "$base.new" --one-file-system .
    rm -rf "$folder/rootfs"
    mv "$base.new" "$base"
fi

say "its stages, one after another (a few minutes; what they say: $folder/build.log)"
container=$(in_storage from scratch)
in_storage add "$container" "$base" / >/dev/null
in_storage commit --quiet --rm "$container" docker.io/library/debian:13-slim >/dev/null
container=''
in_storage build --isolation chroot --format docker --pull=never \
    --build-arg VARIANT=cpu --tag "$image" . >"$folder/build.log" 2>&1 || {
    tail -n 30 "$folder/build.log" >&2
    fail "the build failed"
}

fact() { in_storage inspect --type image --format "$1" "$image"; } # a template of Go
expect() { # what, of the image, wanted
    [[ $2 == "$3" ]] || fail "$1 is '$2' instead of '$3'"
}
expect "the user" "$(fact '{{.Docker.Config.User}}')" 65532:65532
expect "the entry point" "$(fact '{{.Docker.Config.Entrypoint}}')" '[/usr/local/bin/xnord]'
expect "the stop signal" "$(fact '{{.Docker.Config.StopSignal}}')" SIGTERM
[[ $(fact '{{.Docker.Config.Env}}') == *XNORD_BACKEND=cpu* ]] || fail "XNORD_BACKEND is not cpu"
check=$(fact '{{index .Docker.Config.Healthcheck.Test 3}}')
[[ -n $check ]] || fail "it has no health check"

container=$(in_storage from "$image")
mount=$(in_storage mount "$container")
bytes=$(du -sb --apparent-size "$mount" | cut -f1)
megabytes=$(((bytes + 999999) / 1000000))
base_bytes=$(tar -tvf "$base" | awk '{ sum += $3 } END { printf "%.0f", sum }')
say "$megabytes MB unpacked, of which $((base_bytes / 1000000)) the base and" \
    "$(du -b --apparent-size "$mount/usr/local/bin/xnord" | awk '{ printf "%.1f", $1 / 1e6 }') the daemon"
((megabytes < megabytes_at_most)) || fail "that is over $megabytes_at_most MB"

in_image() { in_storage run --isolation chroot "$container" -- "$@"; }
# chroots share the network, so the port must be a free one. The health check reads it too.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
in_storage config --env "XNORD_PORT=$port" "$container"
if in_image /bin/sh -c "$check" 2>/dev/null; then
    fail "the health check passes although nothing runs"
fi
say "the entry point, on port $port"
in_image /usr/local/bin/xnord >"$folder/daemon.log" 2>&1 &
runner=$!
for ((i = 0; i < seconds * 5; i++)); do
    if in_image /bin/sh -c "$check" 2>/dev/null; then
        break
    fi
    kill -0 "$runner" 2>/dev/null || fail "it ended: $(tail -n 5 "$folder/daemon.log")"
    sleep 0.2
done
((i < seconds * 5)) || fail "the health check did not pass in $seconds s: $(tail -n 5 "$folder/daemon.log")"
say "the health check passes"

answer=$(curl -qsS --noproxy '*' "http://127.0.0.1:$port/conv" -H 'Content-Type: application/json' -d '{
  "input":   {"shape": [1,1,1,3], "datatype": "FP32", "data": [1,-2,3]},
  "weights": {"shape": [1,1,1,3], "datatype": "FP32", "data": [1,-1,1]}, "scaling": "none"}')
[[ $answer == *'"data":[3]'* && $answer == *'"backend":"cpu"'* ]] || fail "it answers $answer"
pid=$(daemon)
user=$(awk '$1 == "Uid:" { print $2 }' "/proc/$pid/status")
expect "the daemon's user" "$user" 65532
kill -TERM "$pid"
status=0
wait "$runner" || status=$?
runner=''
((status == 0)) || fail "it left with exit status $status: $(tail -n 5 "$folder/daemon.log")"
say "convolves, and drains on SIGTERM; passed"
