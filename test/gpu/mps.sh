#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# MPS on the real GPU of this machine, through the node agent's own door: the daemon's start and stop, the limits of clients,
# clients of two users, a client that does not reach its server, a daemon that ends by itself, and a read-only pipe directory.
# Needs root, bin/gpu-mps (go build -o bin/gpu-mps ./test/gpu/mps), `make -C interceptor` and
# `make -C interceptor/tests/programs`. No setting of the GPU is changed. Results go to standard output as they come.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

linear=$PWD/interceptor/build/tests/lookup/linear
library=$PWD/interceptor/build/libsluice.so
dir=$(mktemp -d /run/mpsXXXX)
chmod 711 "$dir"
door=("$PWD/bin/gpu-mps" --dir "$dir/d")
inside=/run/mps-test/mps
failures=0
pids=()

say() { printf '%s\n' "$*"; }
fail() {
  say "FAIL: $*"
  failures=$((failures + 1))
}
check() { # check WHAT COMMAND...
  local what=$1
  shift
  if "$@"; then say "PASS: $what"; else fail "$what"; fi
}
# shellcheck disable=SC2317 # called by trap
finish() {
  for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null; done
  "${door[@]}" stop
  rm -rf "$dir"
}
trap finish EXIT

# serve NAME MIB PERCENT tells the daemon of a client, and sets variables, pipe and shm to what its container would get.
serve() {
  local out
  out=$("${door[@]}" serve "$@") || return 1
  mapfile -t variables < <(sed -n 's/^env //p' <<<"$out")
  pipe=$(awk '$1 == "mount" && $3 != "/dev/shm" {print $2}' <<<"$out")
  shm=$(awk '$1 == "mount" && $3 == "/dev/shm" {print $2}' <<<"$out")
}

# client NAME MODE USER [ENV...] starts a program with the mounts of a container, MODE being rw, ro or none for the pipe
# directory, and waits until it has taken memory until it is refused. It sets pid, held and error.
client() {
  local name=$1 mode=$2 user=$3 line
  shift 3
  mkdir -p "$inside"
  mkfifo "$dir/$name.in"
  # shellcheck disable=SC2016 # the inner shell expands it
  unshare -m --propagation private bash -c '
    mount --bind "$1" /dev/shm || exit 1
    if [[ $2 != none ]]; then
      mount --bind "$3" "$4" || exit 1
      [[ $2 != ro ]] || mount -o remount,bind,ro "$4" || exit 1
    fi
    shift 4
    exec "$@"' - "$shm" "$mode" "$pipe" "$inside" \
    setpriv --reuid "$user" --clear-groups env "${variables[@]}" "$@" "$linear" <"$dir/$name.in" >"$dir/$name.out" 2>"$dir/$name.err" &
  pid=$!
  pids+=("$pid")
  disown "$pid"
  exec {input}>"$dir/$name.in"
  held='' error=''
  waitfor "$dir/$name.out" '"ready"' || { cat "$dir/$name.err"; return 1; }
  echo >&"$input"
  waitfor "$dir/$name.out" '"full"' || return 1
  line=$(grep '"full"' "$dir/$name.out")
  held=$(($(grep -oE '"bytes":[0-9]+' <<<"$line" | cut -d: -f2) >> 20))
  error=$(grep -oE '"error":-?[0-9]+' <<<"$line" | cut -d: -f2)
  say "$name (pid $pid): held $held MiB, then error $error, $(grep -oE '"total":[0-9]+' <<<"$line") bytes in its view"
}

waitfor() { # waitfor FILE TEXT
  for _ in $(seq 600); do
    grep -q -- "$2" "$1" 2>/dev/null && return 0
    sleep 0.1
  done
  say "no $2 in $1: $(head -c 300 "$1")"
  return 1
}
# shellcheck disable=SC2009,SC2317 # called by check; pgrep does not tell those that have ended apart
nothing_left() { ! ps -eo stat,args | grep -v '^Z' | grep -q '[n]vidia-cuda-mps'; }
listed() { grep -qE "^$1 .*\b$2\b" <<<"$("${door[@]}" state)"; }

[[ $EUID == 0 ]] || { say "SKIP: needs root"; exit 1; }
unshare -m true || { say "SKIP: mount namespaces are not allowed here"; exit 1; }
say "== $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader -i 0), $(date +%F)"

started=$(date +%s%N)
if ! serve first 10240 30; then fail "the daemon does not start"; exit 1; fi
say "the daemon answered after $((($(date +%s%N) - started) / 1000000)) ms; for several users: $("${door[@]}" state | grep multiuser)"

client first rw 0
first=$pid
check "a client is refused at its limit with error 2" test "$error" = 2 -a "${held:-0}" -le 10240 -a "${held:-0}" -gt 8192
check "the daemon lists the client by its PID on the node" listed clients "$first"
check "NVML lists the client" listed nvml "$first"
say "state:"; "${door[@]}" state

serve second 4096 50
client second ro 0
check "a read-only pipe directory serves too" listed clients "$pid"
check "the second client has a limit of its own" test "${held:-9999}" -le 4096

serve third 2048 0
client third rw 1000
check "a client of another user is served beside the first" listed clients "$pid"

SLUICE_MEMORY_LIMIT=1Gi
client library rw 0 SLUICE_MEMORY_LIMIT=$SLUICE_MEMORY_LIMIT LD_PRELOAD="$library"
check "the library holds a smaller limit in a client" test "${held:-9999}" -le 1024

client stray none 0
check "a client that does not reach its server runs without MPS's limit" test "${held:-0}" -gt 10240
check "NVML lists it" listed nvml "$pid"
if listed clients "$pid"; then fail "the daemon lists a stray process"; else say "PASS: the daemon does not list it, which tells it apart"; fi
kill -9 "$pid"

daemon=$(grep -oE '"pid":[0-9]+' "$dir"/d/*/daemon.json | cut -d: -f2)
kill -9 "$daemon"
for _ in $(seq 50); do kill -0 "$daemon" 2>/dev/null || break; sleep 0.1; done
if kill -0 "$first" 2>/dev/null; then say "a running client lives on when its control daemon is killed"; else say "a running client dies with its control daemon"; fi
"${door[@]}" keep first 10240 30
check "the daemon is started again" listed marked first
serve first 2048 30
client again rw 0
check "a client of the new daemon has its limit" test "${held:-9999}" -le 2048
say "state:"; "${door[@]}" state

for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null; done
started=$(date +%s%N)
"${door[@]}" stop
say "stopped in $((($(date +%s%N) - started) / 1000000)) ms"
check "nothing of MPS is left" nothing_left
say "== $failures failures"
exit "$((failures > 0))"
