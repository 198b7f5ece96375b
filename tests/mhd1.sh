#!/usr/bin/env bash
# The HTTP suites with libmicrohttpd 1.0, whatever the system's own is: builds the library, the
# daemon and the tests against it in the folder given, and runs them. What make test-mhd1 runs.
#
#   tests/mhd1.sh FOLDER [SUITE ...]
#
# The source is Debian 13's, through apt with lists and a cache of its own, signed as always: the
# system is left as it is, and root is not needed. DEBIAN_MIRROR says where from; by default it is
# where this Debian's own packages come from. Where the system's library is 1.0 or later, that one is
# taken.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$(mkdir -p "$1" && cd "$1" && pwd)
readonly folder keyring=/usr/share/keyrings/debian-archive-keyring.gpg
readonly release=trixie
shift
suites=("$@")
mirror=${DEBIAN_MIRROR:-}

fail() {
    printf 'mhd1: %s\n' "$*" >&2
    exit 1
}

# Where the packages of the running release come from, not its security updates.
own_mirror() {
    local codename
    # shellcheck source=/dev/null
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    # shellcheck disable=SC2016 # it is apt's to expand
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' \
        "Release: $codename" | head -n 1
}

fetch() {
    local apt=(apt-get -qq -o "Dir::Etc::SourceList=$folder/apt/sources.list"
        -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$folder/apt/lists"
        -o "Dir::Cache=$folder/apt/cache" -o APT::Sandbox::User= -o Acquire::Retries=3)
    mirror=${mirror:-$(own_mirror)}
    [[ -n $mirror ]] || fail "apt names no source of this system's packages: give DEBIAN_MIRROR"
    [[ -e $keyring ]] || fail "there is no $keyring: install debian-archive-keyring"
    mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial"
    echo "deb-src [signed-by=$keyring] $mirror $release main" >"$folder/apt/sources.list"
    # Error-Mode: a list that could not be fetched is a warning otherwise.
    "${apt[@]}" -o APT::Update::Error-Mode=any update ||
        fail "no lists of $release from $mirror (see above); DEBIAN_MIRROR names another one"
    (cd "$folder/apt" && "${apt[@]}" source --download-only libmicrohttpd) ||
        fail "no source of libmicrohttpd from $mirror (see above)"
}

build_library() {
    local archive
    archive=("$folder"/apt/libmicrohttpd_1.*.orig.tar.*[!c])
    [[ -e ${archive[0]} ]] || fail "$mirror has no libmicrohttpd 1.x in $release"
    rm -rf "$folder/source" "$folder/objects"
    mkdir -p "$folder/source" "$folder/objects"
    tar -xf "${archive[0]}" -C "$folder/source" --strip-components=1
    # As Ubuntu links its libraries: the library calls its own functions, whatever a program defines.
    if ! (cd "$folder/objects" && LDFLAGS="${LDFLAGS:-} -Wl,-Bsymbolic-functions" \
        ../source/configure --prefix="$folder/root" --quiet \
        --enable-https --disable-static --disable-doc --disable-examples --disable-tools \
        --disable-curl && make --no-print-directory -s install) >"$folder/library.log" 2>&1; then
        fail "libmicrohttpd did not build: see $folder/library.log"
    fi
}

if pkg-config --libs libmicrohttpd >/dev/null 2>&1 &&
    [[ $(pkg-config --modversion libmicrohttpd) != 0.* ]]; then
    echo "mhd1: the system's library is $(pkg-config --modversion libmicrohttpd)"
else
    if [[ ! -e $folder/root/lib/pkgconfig/libmicrohttpd.pc ]]; then
        fetch
        build_library
    fi
    export PKG_CONFIG_PATH=$folder/root/lib/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
    export LDFLAGS="-Wl,-rpath,$folder/root/lib ${LDFLAGS:-}"
fi

make --no-print-directory BUILD="$folder/build" CUDA=0 build test-binary
if ((${#suites[@]} == 0)); then
    mapfile -t suites < <("$folder/build/xnord-tests" --list | grep '^http_')
fi
XNORD_BIN=$folder/build/xnord "$folder/build/xnord-tests" "${suites[@]}"
