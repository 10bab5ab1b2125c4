#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Prints the path of promtool, which holds rules against their tests. Where none is installed, it is taken out of Debian's package
# of Prometheus into $XDG_CACHE_HOME/sluice-tools (default ~/.cache/sluice-tools): installing that would start a server.
set -euo pipefail

if installed=$(command -v promtool); then
  echo "$installed"
  exit
fi
cache=${XDG_CACHE_HOME:-$HOME/.cache}/sluice-tools
if [[ ! -x $cache/promtool ]]; then
  if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
    echo "promtool is not installed, and there is no Debian to take it from: https://prometheus.io/download/" >&2
    exit 1
  fi
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  cd "$work"
  if ! apt-get download -qq prometheus >/dev/null 2>&1; then
    if [[ $(id -u) == 0 ]]; then apt-get update -qq >&2; else sudo -n apt-get update -qq >&2; fi
    apt-get download -qq prometheus >&2
  fi
  dpkg-deb -x prometheus_*.deb .
  mkdir -p "$cache"
  # Renamed into place, so that a script beside this one never runs half of it.
  cp usr/bin/promtool "$cache/promtool.$$"
  mv "$cache/promtool.$$" "$cache/promtool"
fi
echo "$cache/promtool"
