#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Prints the path of helm, building it first if needed. It is kept outside the clone, keyed by what it is built from,
# since a cold build takes minutes.
set -euo pipefail

go=${GO:-go}
cd "$(dirname "${BASH_SOURCE[0]}")/helm"

key=$({ cat go.mod go.sum; "$go" version; } | sha256sum | cut -c1-16)
dir=${XDG_CACHE_HOME:-$HOME/.cache}/sluice-tools/$key
bin=$dir/helm

if [[ ! -x $bin ]]; then
  echo "building helm into $dir" >&2
  mkdir -p "$dir"
  # Built beside and renamed: a second caller never sees half a binary.
  tmp=$(mktemp "$dir/.helm.XXXXXX")
  trap 'rm -f "$tmp"' EXIT
  # As the lab builds Kubernetes, most of whose packages are in it: what is compiled once serves both.
  CGO_ENABLED=0 "$go" build -buildvcs=false -trimpath -ldflags '-s -w' -o "$tmp" helm.sh/helm/v4/cmd/helm
  chmod 755 "$tmp"
  mv "$tmp" "$bin"
fi
echo "$bin"
