#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Checks that C code compiles without a warning: the fake GPU and the library through their own Makefiles, headers each by itself, so that
# none depends on what was included before it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

cc=${CC:-gcc}

make --no-print-directory -s -C test/fakegpu
make --no-print-directory -s -C interceptor
while read -r header; do
  "$cc" -std=gnu11 -Wall -Wextra -Werror -fsyntax-only -Iinterceptor/include -x c - <<<"#include \"$PWD/$header\""
done < <(git ls-files --cached --others --exclude-standard -- 'interceptor/include/*.h')
