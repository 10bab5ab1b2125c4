#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Searches the sources for what must not be there and no linter sees.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

failed=0

# sources PATTERN... lists tracked and new files that match, without the files that spell out what they forbid.
sources() {
  git ls-files --cached --others --exclude-standard -- "$@" ':!hack/verify' ':!.golangci.yaml' ':!LICENSE' | while read -r file; do
    if [[ -f $file ]]; then echo "$file"; fi
  done
}

# forbid WHY REGEXP PATTERN... reports each line of the matching files that the regular expression finds.
forbid() {
  local why=$1 regexp=$2 found
  shift 2
  found=$(sources "$@" | xargs -r -d '\n' grep -nHE -e "$regexp" || true)
  if [[ -n $found ]]; then
    printf '%s\n\n%s\n\n' "$why" "$found" >&2
    failed=1
  fi
}

forbid "Unfinished work belongs into an issue, not into the source:" \
  '\b(TODO|FIXME|XXX)\b' '*.go' '*.c' '*.h' '*.def' '*.sh' '*.yaml' '*.md' Makefile '*/Makefile' .ci/run
forbid "Decisions in internal/ are given the time, they do not read it:" \
  '\btime\.(Now|Since|Until|After|Sleep|NewTimer|NewTicker)\(' 'internal/*.go' ':!*_test.go'
forbid "Tests wait for a condition with a deadline, never for a while:" \
  '\btime\.Sleep\(' '*_test.go' ':!test/lab'
forbid "Product code has no simulation mode, so it cannot name the fake GPU:" \
  '[Ff][Aa][Kk][Ee]_?-?[Gg][Pp][Uu]' api cmd controllers internal node-agent interceptor/src interceptor/include config ':!*_test.go'
forbid "The API reports conditions, not phases:" \
  '\bPhase\b' 'api/*.go'
forbid "Paths of one developer's machine do not belong here:" \
  '(^|[^[:alnum:]_.-])(/work|/root|/home/[a-z]+)/' .

# Each source file says its licence in one line at the top (after #! or a build constraint).
while read -r file; do
  if ! head -n 4 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0'; then
    echo "$file: no SPDX line at the top" >&2
    failed=1
  fi
done < <(sources '*.go' '*.c' '*.h' '*.def' '*.sh' '*.awk' Makefile '*/Makefile' .ci/run)

exit "$failed"
