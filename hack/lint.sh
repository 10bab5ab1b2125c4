#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Lints everything, from the widest rules to the narrowest. Rules that hold for some directories only are separate
# runs over exactly these directories, so that the configuration needs no list of exclusions. Arguments (--fix) are
# passed to each run.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
linter=$(GO=${GO:-go} "$root/hack/linter.sh")
cd "$root"

failed=0

# run WHAT ARGUMENT... lints on and remembers a failure, so that one call shows all findings.
run() {
  echo "lint: $1" >&2
  shift
  "$linter" run --config "$root/.golangci.yaml" --allow-parallel-runners "$@" || failed=1
}

run "rules for all code" "$@" ./...
run "rules for product code: small functions, wrapped errors, nothing read from the outside" "$@" --tests=false \
  --enable-only=funlen,cyclop,forbidigo,wrapcheck ./api/... ./controllers/... ./internal/... ./node-agent/...
run "rules for internal/: no package state" "$@" --tests=false --enable-only=gochecknoglobals,gochecknoinits ./internal/...
run "rules for api/: Kubernetes API conventions" "$@" --enable-only=kubeapilinter ./api/...

# The lab's module has Kubernetes itself below it: the flags that it is built with make its compiled packages serve here.
cd test/lab
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -trimpath"
run "rules for all code, in test/lab" "$@" ./...

exit "$failed"
