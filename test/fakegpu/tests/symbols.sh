#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The libraries export what they should and nothing else: NVML every function of
# its header, since a missing one ends a process without an error to catch.
set -eu
build=$1
exported() { nm -D --defined-only "$1" | awk '{print $3}' | grep -v '^_' | LC_ALL=C sort; }
trap 'rm -f "$build/want" "$build/got"' EXIT

LC_ALL=C sort src/nvml/symbols.txt > "$build/want"
exported "$build/libnvidia-ml.so.1" > "$build/got"
diff "$build/want" "$build/got" && echo "ok    NVML exports the $(wc -l < "$build/want") functions of its header and no more"

sed -n 's/^ENTRY([^,]*, [^,]*, [^,]*, \([^)]*\))/\1/p' src/cuda/entry_points.def | LC_ALL=C sort -u > "$build/want"
exported "$build/libcuda.so.1" > "$build/got"
diff "$build/want" "$build/got" && echo "ok    CUDA exports the $(wc -l < "$build/want") functions of its table and no more"

# The list itself is held against the vendor's header where Go's module cache has it.
if [ -n "${NVML_H:-}" ] && [ -f "$NVML_H" ]; then
    ${CC:-cc} -E -P -DNVML_NO_UNVERSIONED_FUNC_DEFS "$NVML_H" | tr '\n' ' ' | tr ';' '\n' |
        grep -oE '\bnvml[A-Z][A-Za-z0-9_]* *\(' | tr -d ' (' | LC_ALL=C sort -u > "$build/want"
    LC_ALL=C sort src/nvml/symbols.txt > "$build/got"
    diff "$build/want" "$build/got" && echo "ok    the list of functions is that of $(basename "$NVML_H")"
else
    echo "skip  the vendor's header is not at hand: the list of functions was not compared with it"
fi
