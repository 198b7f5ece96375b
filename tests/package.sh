#!/usr/bin/env bash
# What is handed to others: tests/package.sh BUILD, whose daemon and manual are built.
#  - one version: of the changelog, --version, /v2, openapi.yaml, the manual page, the package
#  - the manual page and bash's completion have every flag of --help, and its values
#  - links of documents lead somewhere
#  - make install, and a daemon that runs from there; make uninstall leaves nothing
#  - make deb, clean by lintian, with what belongs into it; make dist, from which make builds
#  - the tests' runner: quiet when all pass, shows what was written when not, totals last
set -euo pipefail
cd "$(dirname "$0")/.."

readonly build=${1:?the build folder}
work=$(mkdir -p "$build/package" && cd "$build/package" && pwd)
readonly work
failures=0 daemon=''

fail() {
    echo "package: $*"
    failures=$((failures + 1))
}
same() { # what, is, wanted
    [[ $2 == "$3" ]] || fail "$1 is '$2' instead of '$3'"
}
end_daemon() {
    if [[ -n $daemon ]]; then
        kill -TERM "$daemon" 2>/dev/null || true
        wait "$daemon" || fail "the daemon's exit status is $?"
        daemon=''
    fi
}
trap end_daemon EXIT

# ---- one version ----
version=$(sed -n '1s/^xnord (\([0-9.]*\)) .*/\1/p' deploy/changelog)
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "deploy/changelog begins with: $(head -n 1 deploy/changelog)"
same "--version" "$("$build/xnord" --version)" "xnord $version"
same "openapi.yaml's version" "$(sed -n 's/^  version: //p' proto/openapi.yaml)" "$version"
same "the manual page's version" "$(sed -n '1s/.*"xnord \(.*\)" .*/\1/p' "$build/xnord.1")" "$version"

# ---- the manual page and the completion ----
mapfile -t flags < <("$build/xnord" --help | sed -nE 's/^  (--[a-z0-9-]+).*/\1/p')
((${#flags[@]} > 40)) || fail "--help has ${#flags[@]} flags"
page=$(sed 's/\\-/-/g; s/\\f[A-Z]//g' "$build/xnord.1")
for flag in "${flags[@]}"; do
    grep -qE -e "^$flag( |$)" <<<"$page" || fail "the manual page has no $flag"
done
same "the manual page's flags" "$(grep -cE '^--[a-z0-9-]+( |$)' <<<"$page")" "${#flags[@]}"
if command -v groff >/dev/null; then
    warnings=$(groff -man -Tutf8 -ww "$build/xnord.1" 2>&1 >/dev/null)
    same "what groff says" "$warnings" ''
fi

complete_line() { # words of a command line, the last to be completed: what is offered, sorted
    bash -c 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); compopt() { :; }
        _xnord; printf "%s\n" "${COMPREPLY[@]}"' - "$build/xnord.bash" "$@" | sort | paste -sd' '
}
same "all flags, completed" "$(complete_line xnord --)" "$(printf '%s\n' "${flags[@]}" | sort | paste -sd' ')"
same "--backend, completed" "$(complete_line xnord --backend '')" "auto cpu cuda ref"
same "--backend=c, completed" "$(complete_line xnord --backend = c)" "cpu cuda"
same "--cpu-pin=, completed" "$(complete_line xnord --cpu-pin =)" "false true"
same "behind a flag without a value" "$(complete_line xnord --cpu-pin --backe)" "--backend"
same "a file, completed" "$(complete_line xnord --config deploy/xnord.conf)" deploy/xnord.conf.example
same "a folder, completed" "$(complete_line xnord --model deploy/demo/dig)" deploy/demo/digits
same "a number, completed" "$(complete_line xnord --port '')" ''

# ---- documents ----
while IFS=: read -r file link; do
    [[ -e $(dirname "$file")/$link ]] || fail "$file links to $link, which is not there"
done < <(git ls-files -co --exclude-standard '*.md' |
    xargs grep -oE '\]\([^):#]+[)#]' | sed 's/\](//; s/[)#]$//')

# ---- install, run, uninstall ----
rm -rf "$work/root"
make --no-print-directory BUILD="$build" DESTDIR="$work/root" install >"$work/install.log" ||
    fail "make install: $(tail -n 3 "$work/install.log")"
for file in bin/xnord lib/systemd/system/xnord.service share/man/man1/xnord.1 lib/sysusers.d/xnord.conf \
    share/bash-completion/completions/xnord share/doc/xnord/xnord.conf.example bin/xnord-convert \
    share/man/man1/xnord-convert.1 share/xnord/xnord_convert/families/nin.py; do
    [[ -f $work/root/usr/local/$file ]] || fail "make install does not install $file"
done
grep -q '^ExecStart=/usr/local/bin/xnord ' "$work/root/usr/local/lib/systemd/system/xnord.service" ||
    fail "the unit starts something else"
: >"$work/daemon.log"
"$work/root/usr/local/bin/xnord" --port 0 --backend cpu \
    --model digits="$work/root/usr/local/share/xnord/digits" 2>"$work/daemon.log" &
daemon=$!
for ((i = 0; i < 300; i++)); do
    url=$(sed -nE 's/.*listening on (http:[^ ]+).*/\1/p' "$work/daemon.log")
    [[ -z $url ]] || break
    sleep 0.1
done
same "the version of /v2" "$(curl -qs --noproxy '*' "$url/v2" | sed -n 's/.*"version": *"\([^"]*\)".*/\1/p')" "$version"
curl -qsf --noproxy '*' "$url/v2/models/digits/ready" >/dev/null || fail "the installed network is not ready"
end_daemon
if command -v python3 >/dev/null; then
    # Without numpy it says so in a line; with it, Python compiles it where it lies.
    wanted=$(python3 -c 'import numpy' 2>/dev/null && echo birealnet18 || echo 'xnord-convert: it needs the Python package numpy')
    output=$("$work/root/usr/local/bin/xnord-convert" --list-families 2>&1) || true
    [[ $output == *"$wanted"* ]] || fail "the installed xnord-convert says: $output"
fi
mkdir -p "$work/root/usr/local/share/xnord/xnord_convert/__pycache__"
touch "$work/root/usr/local/share/xnord/xnord_convert/__pycache__/cli.pyc"
make --no-print-directory BUILD="$build" DESTDIR="$work/root" uninstall >"$work/install.log"
same "what uninstall leaves" "$(find "$work/root" -type f)" ''

# ---- packages ----
if CUDA=0 deploy/package.sh deb "$work/deb" >"$work/deb.log" 2>&1; then
    deb=$(echo "$work"/deb/xnord_"$version"_*.deb)
    same "the package's version" "$(dpkg-deb -f "$deb" Version)" "$version"
    contents=$(dpkg-deb -c "$deb" | awk '{ print $6 }')
    for file in ./etc/xnord/xnord.conf ./usr/bin/xnord ./usr/lib/sysusers.d/xnord.conf \
        ./usr/share/bash-completion/completions/xnord ./usr/share/man/man1/xnord.1.gz \
        ./usr/bin/xnord-convert ./usr/share/man/man1/xnord-convert.1.gz \
        ./usr/share/xnord/xnord_convert/cli.py ./usr/share/xnord/digits/config.json; do
        grep -qxF "$file" <<<"$contents" || fail "the package has no $file"
    done
    grep -qE '/lib/systemd/system/xnord.service$' <<<"$contents" || fail "the package has no unit"
    same "its configuration files" "$(dpkg-deb -I "$deb" conffiles)" /etc/xnord/xnord.conf
    dpkg-deb --fsys-tarfile "$deb" | tar -xO ./usr/bin/xnord >"$work/xnord"
    chmod +x "$work/xnord"
    same "its --version" "$("$work/xnord" --version)" "xnord $version"
else
    fail "make deb: $(tail -n 20 "$work/deb.log")"
fi
if deploy/package.sh dist "$work" >"$work/dist.log" 2>&1; then
    rm -rf "$work/dist"
    mkdir "$work/dist"
    tar -xf "$work/xnord-$version.tar.xz" -C "$work/dist"
    make -n --no-print-directory -C "$work/dist/xnord-$version" build >/dev/null || fail "make dist: make fails there"
else
    fail "make dist: $(tail -n 3 "$work/dist.log")"
fi

# ---- the runner of the tests ----
run_tests() { # variables, suites
    env "${@:1:1}" XNORD_TEST_LOG="$work/output.log" "$build/xnord-tests" "${@:2}" 2>&1
}
output=$(run_tests XNORD_BIN="$build/xnord" address engine_device) || fail "the suites fail: $output"
grep -q ' error ' "$work/output.log" || fail "engine_device writes no errors any more: take another suite"
if grep -qE ' (error|warn|info) ' <<<"$output"; then
    fail "tests that pass show: $output"
fi
same "the last line" "$(tail -n 1 <<<"$output" | tr -s 0-9 N)" "N passed, N failed"
grep -qE '^\[ 1/2\] address +\.\.\.$' <<<"$output" || fail "no line of a pipe says which suite runs: $output"
if output=$(run_tests XNORD_BIN=/bin/false http_meta); then
    fail "http_meta passes with /bin/false"
fi
grep -q 'what http_meta wrote' <<<"$output" || fail "tests that fail do not show what they wrote: $output"
[[ $(tail -n 1 <<<"$output") =~ ^[0-9]+\ passed,\ [1-9][0-9]*\ failed$ ]] || fail "the last line is: $(tail -n 1 <<<"$output")"

if ((failures > 0)); then
    echo "package: $failures failures"
    exit 1
fi
echo "package: passed"
