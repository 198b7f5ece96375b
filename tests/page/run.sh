#!/usr/bin/env bash
# The page in a headless Chromium: tests/page/run.sh BUILD [TEST ...], where TEST is as in
# page_test.PageTest.test_watching. Needs chromium and python3-yaml (deploy/install-deps.sh
# --with-page); CHROMIUM names another browser of the kind. Pictures to look at: BUILD/page.
set -euo pipefail
cd "$(dirname "$0")/../.."

build=$(cd "${1:?the build folder}" && pwd)
shift
for program in ${CHROMIUM:-} chromium chromium-browser google-chrome; do
    if command -v "$program" >/dev/null; then
        CHROMIUM=$program
        break
    fi
done
export CHROMIUM=${CHROMIUM:?no browser: install chromium} PAGE_BUILD=$build
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=tests/page
exec timeout --kill-after=10 "${PAGE_SECONDS:-600}" python3 -m unittest -v "${@:-page_test}"
