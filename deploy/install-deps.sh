#!/usr/bin/env bash
# Installs the system packages that building xnord needs. `make` runs it first, so it is silent and
# fast when everything is there. What counts is what works, not which package brought it: libraries
# of your own, found through PKG_CONFIG_PATH, pass too.
#
#   deploy/install-deps.sh [--with-checks] [--with-bench] [--with-arm64] [--with-mhd1] \
#                          [--with-deb] [--with-image] [--with-page] [--check]
#
# --with-checks  also clang with libFuzzer, clang-format, clang-tidy, cppcheck and shellcheck (what
#                .ci/run uses)
# --with-bench   also wrk (what `make bench-http` uses)
# --with-arm64   also a cross-compiler and qemu-user (what `make test-arm64` uses)
# --with-mhd1    also what builds libmicrohttpd 1.0 (what `make test-mhd1` uses)
# --with-deb     also build-essential, debhelper and lintian (what `make deb` uses)
# --with-image   also buildah and debootstrap (what `make test-image` uses)
# --with-page    also a browser (what `make test-page` uses)
# --check        only say what is there and what is missing
#
# Exit status: 0 all is there, 1 something is missing and could not be installed, 2 wrong use.
set -euo pipefail

readonly CC=${CC:-cc} PKG_CONFIG=${PKG_CONFIG:-pkg-config}
readonly MODULES=(libmicrohttpd gnutls jansson libxxhash zlib libjpeg libpng check)

with_checks=0 with_bench=0 with_arm64=0 with_mhd1=0 with_deb=0 with_image=0 with_page=0 only_check=0
missing=() # capabilities: compiler, headers, make, pkg-config, curl, c++, modules, tools

say() { printf 'install-deps: %s\n' "$*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }

find_nvcc() {
    if have "${NVCC:-nvcc}"; then
        command -v "${NVCC:-nvcc}"
    elif [[ -x /usr/local/cuda/bin/nvcc ]]; then
        echo /usr/local/cuda/bin/nvcc
    fi
}

# $CC may be a command with options ("ccache gcc", "gcc -m64"): its first word must exist.
have_compiler() { have "${CC%% *}"; }
# A compiler without the C library's headers is what `apt-get install --no-install-recommends gcc`
# leaves behind.
# shellcheck disable=SC2086 # CC is split into words on purpose
have_headers() { echo '#include <stdio.h>' | $CC -E -x c - >/dev/null 2>&1; }

# --exists and --cflags also ask for the private dependencies of a static library (gnutls's .pc file
# for libmicrohttpd), which a build does not need; --libs does not.
have_modules() { "$PKG_CONFIG" --libs "$@" >/dev/null 2>&1; }

# Its library is a package of its own.
have_libfuzzer() {
    echo 'int LLVMFuzzerTestOneInput(void); int LLVMFuzzerTestOneInput(void) { return 0; }' |
        clang -fsanitize=fuzzer,address,undefined -x c -o /dev/null - >/dev/null 2>&1
}

find_missing() {
    local module tool
    missing=()
    if ! have_compiler; then
        missing+=(compiler headers)
    elif ! have_headers; then
        missing+=(headers)
    fi
    have make || missing+=(make)
    have curl || missing+=(curl)
    have gzip || missing+=(gzip) # what the binary holds, it holds compressed too
    if ! have "$PKG_CONFIG"; then
        missing+=(pkg-config "${MODULES[@]}")
    elif ! have_modules "${MODULES[@]}"; then
        for module in "${MODULES[@]}"; do
            have_modules "$module" || missing+=("$module")
        done
    fi
    # nvcc compiles the host's half of a .cu file with a C++ compiler.
    if [[ ${CUDA:-auto} != 0 && -n $(find_nvcc) ]]; then
        have g++ || have c++ || missing+=(c++)
    fi
    if ((with_checks)); then
        for tool in clang clang-format clang-tidy cppcheck shellcheck; do
            have "$tool" || missing+=("$tool")
        done
        have_libfuzzer || missing+=(libfuzzer)
    fi
    if ((with_bench)); then
        have wrk || missing+=(wrk)
    fi
    if ((with_arm64)); then
        have aarch64-linux-gnu-gcc || missing+=(arm64-compiler)
        have qemu-aarch64 || missing+=(qemu-user)
    fi
    if ((with_mhd1)); then
        have_modules gnutls || missing+=(gnutls)
        if have apt-get && [[ ! -e /usr/share/keyrings/debian-archive-keyring.gpg ]]; then
            missing+=(debian-archive-keyring)
        fi
    fi
    if ((with_deb)); then
        # dpkg-buildpackage asks for the package, whatever there is of what it brings.
        [[ $(dpkg-query -W -f '${db:Status-Status}' build-essential 2>/dev/null) == installed ]] ||
            missing+=(build-essential)
        have dh || missing+=(debhelper)
        have lintian || missing+=(lintian)
    fi
    if ((with_image)); then
        have buildah || missing+=(buildah)
        have debootstrap || missing+=(debootstrap)
    fi
    if ((with_page)); then
        have chromium || have chromium-browser || have google-chrome || missing+=(chromium)
        python3 -c 'import yaml' 2>/dev/null || missing+=(python3-yaml)
    fi
}

apt_package() {
    case $1 in
    compiler) echo gcc ;;
    headers) echo libc6-dev ;;
    c++) echo g++ ;;
    libmicrohttpd) echo libmicrohttpd-dev ;;
    gnutls) echo libgnutls28-dev ;;
    jansson) echo libjansson-dev ;;
    libxxhash) echo libxxhash-dev ;;
    zlib) echo zlib1g-dev ;;
    libjpeg) echo libjpeg-dev ;; # of libjpeg-turbo, whatever the distribution calls it
    libpng) echo libpng-dev ;;
    curl) echo curl ca-certificates ;;
    libfuzzer) echo clang libclang-rt-dev ;;
    arm64-compiler) echo gcc-aarch64-linux-gnu libc6-dev-arm64-cross ;;
    *) echo "$1" ;; # check, make, pkg-config and the tools are named like what they bring
    esac
}

dnf_package() {
    case $1 in
    compiler) echo gcc ;;
    headers) echo glibc-devel ;;
    c++) echo gcc-c++ ;;
    pkg-config) echo pkgconf-pkg-config ;;
    libmicrohttpd | gnutls | jansson | zlib | libpng | check) echo "$1-devel" ;;
    libxxhash) echo xxhash-devel ;;
    libjpeg) echo libjpeg-turbo-devel ;;
    clang-format | clang-tidy) echo clang-tools-extra ;;
    libfuzzer) echo clang compiler-rt ;;
    python3-yaml) echo python3-pyyaml ;;
    shellcheck) echo ShellCheck ;;
    *) echo "$1" ;;
    esac
}

# The way to become root, as words: nothing for root itself. Fails when there is none. sudo may ask
# for a password only where somebody can type one.
root_command() {
    if ((EUID == 0)); then
        return 0
    elif have sudo && sudo -n true 2>/dev/null; then
        echo sudo -n
    elif have sudo && [[ -t 0 && -t 2 ]]; then
        echo sudo
    else
        return 1
    fi
}

quietly() { # what a command says, only where it fails
    local status=0 output
    output=$("$@" 2>&1) || status=$?
    if ((status != 0)); then
        printf '%s\n' "$output" >&2
    fi
    return "$status"
}

install_with_apt() { # root words in as_root, packages as arguments
    local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq
        -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)
    # The lists on the machine may still do when they cannot be renewed: let the install decide.
    quietly "${apt[@]}" update || say "apt-get update failed; trying with the package lists at hand"
    quietly "${apt[@]}" install -y --no-install-recommends "$@"
}

install_with_dnf() {
    # Of the RHEL family, check-devel and libmicrohttpd-devel are in the CRB repository,
    # xxhash-devel is in EPEL.
    quietly "${as_root[@]}" dnf -y -q install "$@"
}

report_nvcc() {
    local nvcc
    nvcc=$(find_nvcc)
    if [[ -n $nvcc ]]; then
        say "nvcc: $nvcc: the GPU backend is built too"
    else
        say "nvcc: not found: xnord is built with the CPU backend only" \
            "(for the GPU backend install the CUDA toolkit, 12.0 or later, and run make again)"
    fi
}

for argument in "$@"; do
    case $argument in
    --with-checks) with_checks=1 ;;
    --with-bench) with_bench=1 ;;
    --with-arm64) with_arm64=1 ;;
    --with-mhd1) with_mhd1=1 ;;
    --with-deb) with_deb=1 ;;
    --with-image) with_image=1 ;;
    --with-page) with_page=1 ;;
    --check) only_check=1 ;;
    *)
        say "unknown argument '$argument' (known: --with-checks, --with-bench," \
            "--with-arm64, --with-mhd1, --with-deb, --with-image, --with-page, --check)"
        exit 2
        ;;
    esac
done

find_missing
if ((only_check)); then
    report_nvcc
fi
if ((${#missing[@]} == 0)); then
    if ((only_check)); then
        say "nothing is missing"
    fi
    exit 0
fi
say "missing: ${missing[*]}"

manager='' packages=()
if have apt-get; then
    manager=apt
elif have dnf; then
    manager=dnf
else
    say "this system has neither apt-get nor dnf: install these by its own means:" \
        "a C11 compiler (gcc 12 or clang 14, or later), make, pkg-config, curl and the development files of" \
        "libmicrohttpd (0.9.75 or later), gnutls (3.6.3 or later), jansson (2.13 or later)," \
        "libxxhash (0.8 or later), zlib, libjpeg-turbo (2.1 or later), libpng (1.6 or later)" \
        "and check (0.15 or later)"
    exit 1
fi
for capability in "${missing[@]}"; do
    read -r -a names < <("${manager}_package" "$capability")
    packages+=("${names[@]}")
done
case $manager in
apt) by_hand="apt-get update && apt-get install -y --no-install-recommends ${packages[*]}" ;;
dnf) by_hand="dnf install -y ${packages[*]}" ;;
esac

if ((only_check)); then
    say "to install it, as root: $by_hand"
    exit 1
fi
if ! root_words=$(root_command); then
    say "installing needs root, and there is no sudo that works here. As root, run:"
    say "  $by_hand"
    exit 1
fi
read -r -a as_root <<<"$root_words"
say "installing with $manager${root_words:+ through sudo}: ${packages[*]}"
if ! "install_with_$manager" "${packages[@]}"; then
    say "that failed (see above). By hand, as root: $by_hand"
    exit 1
fi

find_missing
if ((${#missing[@]} > 0)); then
    say "still missing after the installation: ${missing[*]}"
    exit 1
fi
report_nvcc
say "all is there"
