#!/usr/bin/env bash
# What pages say of the code: tests/walks.sh.
#  - the walks of CONTRIBUTING.md: each file of a row is there and holds the names in backticks
#    behind the row's last colon, and a walk names no more files than it may
#  - every source file and folder in backticks of any page exists: from the root, from the page's
#    folder, or as the end of a path
set -euo pipefail
cd "$(dirname "$0")/.."

readonly page=.github/CONTRIBUTING.md
# How many files outside tests and pages a walk may name. A walk gets shorter, never longer.
declare -A most=(
    ['A layer op']=6
    ['A layer op in the converter']=4
    ['A datatype']=6
    ['A path: another way to run a convolution on the CPU']=9
    ['A route']=6
    ['A flag']=4
)

failures=0
fail() {
    echo "walks: error: $*"
    failures=$((failures + 1))
}

# ---- the walks ----

# "WALK|FILE|NAME" of each name that a file of a row must hold.
rows() {
    awk '
        /^## / { walk = substr($0, 4) }
        /^\| \[/ {
            split($0, cell, / \| /)
            names = cell[2]
            sub(/.*: /, "", names)
            files = cell[1]
            while (match(files, /\]\([^)]*\)/)) {
                file = substr(files, RSTART + 2, RLENGTH - 3)
                files = substr(files, RSTART + RLENGTH)
                rest = names
                found = 0
                while (match(rest, /`[^`]*`/)) {
                    print walk "|" file "|" substr(rest, RSTART + 1, RLENGTH - 2)
                    rest = substr(rest, RSTART + RLENGTH)
                    found = 1
                }
                if (!found)
                    print walk "|" file "|"
            }
        }' "$page"
}

declare -A named counted
while IFS='|' read -r walk link name; do
    file=$(realpath --relative-to=. -m "$(dirname "$page")/$link")
    if [[ -z ${most[$walk]:-} ]]; then
        fail "$page: \"$walk\" has a table of files, and this test no limit for it"
    elif [[ ! -f $file ]]; then
        fail "$page: \"$walk\" names $file, which is not there"
    elif [[ -z $name ]]; then
        fail "$page: \"$walk\" says of $file no name that is in it"
    elif ! grep -qF -- "$name" "$file"; then
        fail "$page: \"$walk\" says that $file has $name"
    fi
    if [[ $file != tests/* && $file != *.md && -z ${named[$walk:$file]:-} ]]; then
        named[$walk:$file]=1
        counted[$walk]=$((${counted[$walk]:-0} + 1))
    fi
done < <(rows)
for walk in "${!most[@]}"; do
    count=${counted[$walk]:-0}
    if ((count == 0)); then
        fail "$page: no walk \"$walk\""
    elif ((count > ${most[$walk]})); then
        fail "$page: \"$walk\" names $count files outside tests and pages, at most ${most[$walk]}"
    elif ((count < ${most[$walk]})); then
        fail "$page: \"$walk\" names $count files: the limit in this test may be that, not ${most[$walk]}"
    fi
done

# ---- paths in pages ----

mapfile -t files < <(git ls-files --cached --others --exclude-standard | while read -r file; do
    if [[ -e $file ]]; then
        echo "$file"
    fi
done)
all=$(printf '/%s\n' "${files[@]}")

exists() { # folder of the page, path
    [[ -e $2 || -e $1/$2 ]] && return
    local end=${2%/}
    if [[ $2 == */ ]]; then
        grep -qF "/$end/" <<<"$all"
    else
        grep -q "/${end//./\\.}\$" <<<"$all"
    fi
}
# Placeholders (X_path.cu, NAME/), what a build or a user makes, and names of other programs' files.
is_ours() {
    [[ $1 =~ ^[A-Za-z0-9_./-]+\.(c|h|cu|cuh|py|sh)$ || $1 =~ ^(compute|proto|server|tests|deploy|\.ci|\.github)/[A-Za-z0-9_./-]+$ ||
        $1 =~ ^[a-z_/-]+/$ ]] && [[ ! $1 =~ (^|/)(X_|X\.|NAME) && $1 != /* ]]
}
readonly code_span=$'`[^` ]+`'
while IFS=: read -r from token; do
    token=${token//\`/}
    if is_ours "$token" && ! exists "$(dirname "$from")" "$token"; then
        fail "$from names $token, which is not there"
    fi
done < <(printf '%s\n' "${files[@]}" | grep '\.md$' | xargs grep -oE "$code_span" | sort -u)

if ((failures > 0)); then
    echo "walks: $failures failures"
    exit 1
fi
for walk in "${!counted[@]}"; do
    echo "walks: $walk: ${counted[$walk]} files"
done | sort
echo "walks: passed"
