#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares what the library exports with the checked-in list, and what it needs with what the C library 2.17 has.
#   symbols.sh LIBRARY EXPORTED GLIBC
set -eu
library=$1 exported=$2 glibc=$3
export LC_ALL=C
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

nm -D --defined-only "$library" | awk '{print $3}' | sort > "$work/exports"
sort "$exported" | diff -u - "$work/exports" || { echo "FAIL  exports differ from $exported"; exit 1; }
echo "ok    exports are the checked-in list"

needed=$(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
[ "$needed" = libc.so.6 ] || { echo "FAIL  needs $needed"; exit 1; }
echo "ok    needs libc.so.6 alone"

nm -D --undefined-only "$library" | awk '$1 == "U" {print $2}' | sort > "$work/undefined"
sort "$glibc" | comm -13 - "$work/undefined" > "$work/newer"
[ ! -s "$work/newer" ] || { echo "FAIL  not in the C library 2.17's libc.so.6:"; cat "$work/newer"; exit 1; }
echo "ok    every undefined symbol is one of the C library 2.17"

if readelf -lW "$library" | grep -q ' TLS '; then
  readelf -rW "$library" | grep -E 'DTPMOD|TLSDESC' && { echo "FAIL  thread-local storage is not initial-exec"; exit 1; }
fi
echo "ok    no dynamic thread-local storage"
