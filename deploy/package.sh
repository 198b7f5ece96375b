#!/usr/bin/env bash
# What is handed to others: `make dist` and `make deb` call it.
#
#   deploy/package.sh dist FOLDER    FOLDER/xnord-VERSION.tar.xz, of what is committed
#   deploy/package.sh deb FOLDER     FOLDER/xnord_VERSION_ARCH.deb, of the working tree; lintian's
#                                    warnings are failures
#
# VERSION is that of deploy/changelog. A package has the GPU's code in it where nvcc is found
# (CUDA=0 in the environment: never).
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -n '1s/.*(\(.*\)).*/\1/p' deploy/changelog)
readonly version name=xnord-$version
readonly what=${1:?dist or deb} folder=${2:?the folder to write to}
mkdir -p "$folder"

say() { printf 'package: %s\n' "$*"; }

files() { # NUL between them: tracked and new ones; of an unpacked `make dist`, all
    if git rev-parse --git-dir >/dev/null 2>&1; then
        git ls-files -z --cached --others --exclude-standard
    else
        find . -path './build*' -prune -o -type f -printf '%P\0'
    fi
}

existing() { # of NUL-terminated names
    while IFS= read -r -d '' file; do
        if [[ -e $file ]]; then
            printf '%s\0' "$file"
        fi
    done
}

make_dist() {
    local out=$folder/$name.tar.xz
    if [[ -n $(git status --porcelain) ]]; then
        say "there are uncommitted changes, which are left out"
    fi
    git archive --format=tar --prefix="$name/" HEAD | xz -9e >"$out"
    say "$out: $(du -h "$out" | cut -f1)"
}

make_deb() {
    local stage=$folder/$name log=$folder/build.log
    rm -rf "$stage" "$folder"/xnord*_"$version"_*
    mkdir -p "$stage"
    files | existing | tar --null -T - -cf - | tar -xf - -C "$stage"
    cp -a deploy/debian "$stage/debian"
    cp deploy/changelog "$stage/debian/changelog"
    say "building in $stage (a few minutes; what it says: $log)"
    if ! (cd "$stage" && env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS \
        DEB_BUILD_OPTIONS="${DEB_BUILD_OPTIONS:-parallel=$(nproc)}" \
        dpkg-buildpackage --build=binary --no-sign) >"$log" 2>&1; then
        tail -n 40 "$log" >&2
        say "that failed"
        exit 1
    fi
    say "lintian"
    lintian --allow-root --fail-on error,warning --tag-display-limit 0 "$folder"/xnord_"$version"_*.changes
    for package in "$folder"/xnord_"$version"_*.deb; do
        say "$package: $(du -h "$package" | cut -f1); to install it: apt-get install ./$package"
    done
}

case $what in
dist | deb) "make_$what" ;;
*)
    say "unknown: $what (dist, deb)" >&2
    exit 2
    ;;
esac
