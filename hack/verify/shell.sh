#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Checks every shell script: its syntax always, and with shellcheck where that is installed (.ci/run installs it).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

mapfile -t scripts < <(git ls-files --cached --others --exclude-standard -- '*.sh' .ci/run)
for script in "${scripts[@]}"; do
  if [[ -f $script ]]; then bash -n "$script"; fi
done
if command -v shellcheck >/dev/null; then
  shellcheck -- "${scripts[@]}"
fi
