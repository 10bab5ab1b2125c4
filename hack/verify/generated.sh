#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Regenerates, and fails if that changed anything. It compares with the files as they were, not with the last commit, so
# it also serves while work is in progress.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

before=$(mktemp)
after=$(mktemp)
trap 'rm -f "$before" "$after"' EXIT

snapshot() {
  git ls-files --cached --others --exclude-standard -- api config charts | sort -u | while read -r file; do
    if [[ -f $file ]]; then sha256sum "$file"; fi
  done
}

snapshot >"$before"
"${MAKE:-make}" --no-print-directory -s generate
snapshot >"$after"
if ! diff "$before" "$after"; then
  echo "generated files were out of date (make generate)" >&2
  exit 1
fi
