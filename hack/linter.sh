#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Prints the path of the linter (golangci-lint with kube-api-linter), building it first if needed. It is kept outside
# the clone, keyed by what it is built from, since a cold build takes minutes.
set -euo pipefail

go=${GO:-go}
cd "$(dirname "${BASH_SOURCE[0]}")/lint"

key=$({ cat go.mod go.sum; "$go" version; } | sha256sum | cut -c1-16)
dir=${XDG_CACHE_HOME:-$HOME/.cache}/sluice-tools/$key
bin=$dir/golangci-lint

if [[ ! -x $bin ]]; then
  echo "building the linter into $dir" >&2
  mkdir -p "$dir"
  # Built beside and renamed: a second caller never sees half a binary.
  tmp=$(mktemp "$dir/.golangci-lint.XXXXXX")
  trap 'rm -f "$tmp"' EXIT
  "$go" build -trimpath -ldflags '-s -w' -o "$tmp" sigs.k8s.io/kube-api-linter/cmd/golangci-lint-kube-api-linter
  chmod 755 "$tmp"
  mv "$tmp" "$bin"
fi
echo "$bin"
