#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Demands a clean tree: everything committed, and nothing built that git does not ignore.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

git diff --exit-code HEAD
untracked=$(git ls-files --others --exclude-standard)
if [[ -n $untracked ]]; then
  printf 'files that are neither committed nor ignored:\n%s\n' "$untracked" >&2
  exit 1
fi
