#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Checks what the Go tools check by themselves: format, vet, and that each go.mod says what the code imports.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

go=${GO:-go}

unformatted=$(git ls-files --cached --others --exclude-standard -- '*.go' | while read -r file; do
  if [[ -f $file ]]; then gofmt -l "$file"; fi
done)
if [[ -n $unformatted ]]; then
  printf 'not formatted (make fmt):\n%s\n' "$unformatted" >&2
  exit 1
fi

"$go" vet ./...
for module in . test/lab hack/images; do
  (cd "$module" && "$go" mod tidy -diff) || { echo "$module/go.mod is not tidy" >&2; exit 1; }
done
