#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes what an upgrade comes from: programs and chart of the commit before this one, in DIR/build and DIR/chart. Where that commit is
# not there, in a shallow clone or outside of one, it says so, and this tree's stand in for them.
#   hack/previous.sh DIR PROGRAMS    PROGRAMS is the directory with this tree's programs; the architecture is its name
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mkdir -p "$1"
dir=$(cd "$1" && pwd)
here=$(cd "$2" && pwd)
arch=$(basename "$here")
programs=$dir/build/$arch
# Root may test in a clone that another user owns.
git=(git -c "safe.directory=*" -C "$root")

commit=$("${git[@]}" rev-parse --quiet --verify 'HEAD~1^{commit}' || true)
if [[ -n $commit && -e $dir/commit && $(<"$dir/commit") == "$commit" ]]; then
  exit
fi
rm -rf "$dir/commit" "$dir/chart" "$dir/tree" "$programs"
mkdir -p "$programs"
if [[ -z $commit ]]; then
  echo "previous: the commit before this one is not here; an upgrade comes from this tree's own chart and programs" >&2
  cp -r "$root/charts/sluice" "$dir/chart"
  cp "$here"/{manager,node-agent,nvidia-cdi-hook,sluice-cdi-hook,libsluice.so} "$programs/"
else
  mkdir "$dir/tree"
  "${git[@]}" archive "$commit" | tar -x -C "$dir/tree"
  mv "$dir/tree/charts/sluice" "$dir/chart"
  ${MAKE:-make} --no-print-directory -C "$dir/tree" "image-programs-$arch" IMAGE_DIR="$programs"
  rm -rf "$dir/tree"
fi
# Its library is another file in any case: new pods are to get the new one.
objcopy --add-section ".previous=$root/hack/images/go.mod" "$programs/libsluice.so"
if [[ -n $commit ]]; then
  echo "$commit" >"$dir/commit"
fi
