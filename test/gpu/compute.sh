#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Compute shares on the real GPU of this machine: what tenants under libsluice.so and the node agent's arbiter complete, against
# what one completes natively. Every workload is measured natively once; all runs do the same work on the same grid. Root, because
# every tenant gets a mount namespace; nvcc, and for the last parts PyTorch and a second GPU, where there are. No setting of a GPU
# is changed. Beforehand, where Go is:
#
#   make -C interceptor && make -C interceptor/tests/programs
#   CGO_ENABLED=0 go build -o bin/gpu/arbiter ./test/gpu/arbiter
#
# Results go to standard output and to $OUT/compute.txt as they come; the exit status says whether all are within bounds. PARTS
# names the parts to run, all of them by default. With FAKEGPU_STATE it runs on the fake driver, for trying the script.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

OUT=${OUT:-$(mktemp -d)}
exec > >(tee -a "$OUT/compute.txt") 2>&1
PARTS=${PARTS:-caps together many alone requests torch mps nccl}
seconds=${CELL_SECONDS:-5}
tools=interceptor/build/tests/tools
arbiter=bin/gpu/arbiter
failures=0
work=$(mktemp -d)
shares=$work/shares
declare -A native=()
children=()

# shellcheck disable=SC2317 # the trap calls it
finish() {
  for pid in "${children[@]}"; do
    kill "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
  done
  rm -rf "$work"
}
trap finish EXIT

fail() {
  echo "FAIL: $*"
  failures=$((failures + 1))
}

part() { [[ " $PARTS " == *" $1 "* ]]; }

if [[ -n ${FAKEGPU_STATE:-} ]]; then
  show=$(test/fakegpu/build/fakegpu show --state "$FAKEGPU_STATE" --json)
  mapfile -t uuids < <(grep -oE '"uuid":"GPU-[^"]*"' <<<"$show" | cut -d'"' -f4)
else
  mapfile -t uuids < <(nvidia-smi --query-gpu=uuid --format=csv,noheader)
fi

# burn SECONDS MICROSECONDS [OPTIONS] is what every tenant runs.
if [[ -n ${FAKEGPU_STATE:-} ]]; then
  burn=("$tools/pace")
  burn_options() { if (($1 < 100)); then echo --block --depth 64; else echo --block; fi; }
else
  nvcc -O3 -std=c++17 -arch=native -o "$work/burn" test/gpu/burn.cu || exit 1
  burn=("$work/burn")
  burn_options() { :; }
  export BURN_TABLE=$work/table
  "$work/burn" calibrate "$BURN_TABLE" || exit 1
fi

# word NAME JSON prints a number of a line that a program told.
word() { grep -oE "\"$1\":-?[0-9]+" <<<"$2" | head -1 | cut -d: -f2; }

# rate JSON prints what was completed a second, without the first second; deviation JSON NATIVE the standard deviation of the
# seconds in points. With trim, of tenants that start and end one after another, two are left out at both ends.
trim=
windows() { grep -oE '"perSecond":\[[^]]*' <<<"$1" | cut -d[ -f2 | tr ',' '\n' | if [[ -n $trim ]]; then tail -n +3 | head -n -2; else tail -n +2; fi; }
rate() { windows "$1" | awk '{s += $1} END {print (NR > 0 ? s / NR : 0)}'; }
deviation() {
  windows "$1" | awk -v n="$2" '{s += $1; q += $1 * $1} END {v = NR > 0 ? q / NR - (s / NR) ^ 2 : 0; printf "%.2f", (v > 0 ? sqrt(v) : 0) / n * 100}'
}
calc() { awk "BEGIN {printf \"%.2f\", $1}"; }
holds() { awk "BEGIN {exit !($1)}"; }

grant() { # CLAIM PERCENT [OPTIONS]: on GPU 0, or as the options say
  local claim=$1 percent=$2
  shift 2
  "$arbiter" grant --shares "$shares" --claim "$claim" --gpu "${uuids[0]}" --compute "$percent" --memory 49152 "$@" || fail "granting $claim"
}
revoke() { for claim; do rm -rf "${shares:?}/$claim"; done; }
tenant() { # CLAIM PROGRAM [ARGUMENTS]
  timeout 120 "$tools/claim" "$shares" "$@"
}
burning() { # SECONDS MICROSECONDS [OPTIONS], natively
  # shellcheck disable=SC2046 # options are words
  timeout 120 "${burn[@]}" "$@" $(burn_options "$2")
}
tenant_burning() { # CLAIM SECONDS MICROSECONDS [OPTIONS]
  local claim=$1
  shift
  # shellcheck disable=SC2046 # options are words
  tenant "$claim" "${burn[@]}" "$@" $(burn_options "$2")
}

measure_native() { # MICROSECONDS
  [[ -n ${native[$1]:-} ]] && return
  native[$1]=$(rate "$(burning "$seconds" "$1")")
  echo "native, kernels of $1 us: ${native[$1]} a second"
}

# row WHAT ASKED RATE NATIVE DEVIATION prints a cell and its verdict: within two points.
row() {
  local achieved error verdict=ok
  achieved=$(calc "$3 * 100 / $4") error=$(calc "$3 * 100 / $4 - $2")
  holds "$error <= 2 && $error >= -2" || verdict=MISSED
  holds "$5 <= 3" || verdict="MISSED (uneven)"
  printf '%-44s asked %6.2f %%  achieved %6.2f %%  error %6.2f  deviation %5s  %s\n' "$1" "$2" "$achieved" "$error" "$5" "$verdict"
  [[ $verdict == ok ]] || failures=$((failures + 1))
}

echo "== $(date -u +%FT%TZ) on $(uname -sr), $(nproc) cores"
[[ -r /proc/version ]] && cat /proc/version
dmesg 2>/dev/null | grep -iE 'gvisor|hypervisor' | head -3
if [[ -z ${FAKEGPU_STATE:-} ]]; then nvidia-smi --query-gpu=index,name,driver_version,mig.mode.current,clocks.sm --format=csv,noheader; fi
"$arbiter" library --shares "$shares" --file interceptor/build/libsluice.so || exit 1
mkfifo "$work/began"
"$arbiter" run --shares "$shares" >"$work/began" 2>"$OUT/arbiter.log" &
arbiter_pid=$!
children+=("$arbiter_pid")
if ! read -r -t 20 line <"$work/began"; then
  fail "the arbiter did not start: $(cat "$OUT/arbiter.log")"
  exit 1
fi
echo "the arbiter is $line"
arbiter_cpu() { awk '{print $14 + $15}' "/proc/$arbiter_pid/stat"; }
for us in 500 20 20000; do measure_native "$us"; done

# pair NAME US PERCENT PERCENT [--cap]: two tenants at once, for twice as long. Leaves both rates in first and second.
pair() {
  local name=$1 us=$2 a=$3 b=$4
  shift 4
  grant one "$a" "$@" && grant two "$b" "$@"
  tenant_burning one $((2 * seconds)) "$us" >"$work/one" &
  local pid=$!
  tenant_burning two $((2 * seconds)) "$us" >"$work/two"
  wait "$pid"
  revoke one two
  trim=yes
  first=$(rate "$(<"$work/one")") second=$(rate "$(<"$work/two")")
  row "$name, the first" "$a" "$first" "${native[$us]}" "$(deviation "$(<"$work/one")" "${native[$us]}")"
  row "$name, the second" "$b" "$second" "${native[$us]}" "$(deviation "$(<"$work/two")" "${native[$us]}")"
  trim=
}

together() { # NAME LEAST: what both had of native
  local sum verdict=ok
  sum=$(calc "($first + $second) * 100 / ${native[500]}")
  holds "$sum >= $2" || { verdict=MISSED; failures=$((failures + 1)); }
  printf '%-44s together %6.2f %% of native, want %s  %s\n' "$1" "$sum" "$2" "$verdict"
}

if part caps; then
  echo "== caps, one tenant"
  for us in 20 500 20000; do
    for percent in 10 25 30 50 60 75; do
      grant cell "$percent" --cap
      got=$(tenant_burning cell "$seconds" "$us") || fail "a tenant with a cap of $percent: $got"
      revoke cell
      row "cap, kernels of $us us" "$percent" "$(rate "$got")" "${native[$us]}" "$(deviation "$got" "${native[$us]}")"
    done
  done
  for percent in 30 60; do
    grant cell "$percent" --cap
    got=$(tenant_burning cell "$seconds" 500 --graph) || fail "a tenant with graphs: $got"
    revoke cell
    row "cap, graphs of four kernels of 500 us" "$percent" "$(rate "$got")" "${native[500]}" "$(deviation "$got" "${native[500]}")"
  done
fi

if part together; then
  echo "== two tenants"
  pair "caps at once, kernels of 500 us" 500 30 60 --cap
  before=$(arbiter_cpu)
  pair "shares at once, kernels of 500 us" 500 50 50
  echo "the arbiter used $(calc "($(arbiter_cpu) - $before) * 100 / $(getconf CLK_TCK) / (2 * $seconds)") % of a core"
  together "two halves" 97
  burning $((seconds + 2)) 500 >"$work/one" &
  pid=$!
  burning $((seconds + 2)) 500 >"$work/two"
  wait "$pid"
  trim=yes
  echo "the driver's own sharing: together $(calc "($(rate "$(<"$work/one")") + $(rate "$(<"$work/two")")) * 100 / ${native[500]}") % of native"
  trim=
fi

if part many; then
  echo "== eight tenants"
  pids=()
  for i in 1 2 3 4 5 6 7 8; do grant "many-$i" 12.5; done
  for i in 1 2 3 4 5 6 7 8; do
    tenant_burning "many-$i" $((2 * seconds)) 500 >"$work/many-$i" &
    pids+=($!)
  done
  wait "${pids[@]}"
  first=0 second=0 trim=yes
  for i in 1 2 3 4 5 6 7 8; do
    got=$(<"$work/many-$i")
    first=$(calc "$first + $(rate "$got")")
    row "tenant $i of eight" 12.5 "$(rate "$got")" "${native[500]}" "$(deviation "$got" "${native[500]}")"
    revoke "many-$i"
  done
  trim=
  together "eight tenants" 96
fi

if part alone; then
  echo "== one tenant alone, without a cap, and natively in turn"
  with=0 without=0
  for _ in 1 2; do
    without=$(calc "$without + $(rate "$(burning "$seconds" 500)")")
    grant alone 30
    with=$(calc "$with + $(rate "$(tenant_burning alone "$seconds" 500)")")
    revoke alone
  done
  share=$(calc "$with * 100 / $without")
  verdict=ok
  holds "$share >= 99" || { verdict=MISSED; failures=$((failures + 1)); }
  echo "a share of 30 % alone on the GPU: $share % of native, want 99  $verdict"
fi

waits() { echo "$1: requests $(word requests "$2"), wait p50 $(word waitP50Us "$2") us, p90 $(word waitP90Us "$2") us, p99 $(word waitP99Us "$2") us, longest $(word waitMaxUs "$2") us"; }
if part requests; then
  echo "== requests of 1 ms, every 10 ms, beside a tenant that is never idle, kernels of 500 us"
  grant asks 30 && grant burns 70
  tenant_burning burns $((2 * seconds + 3)) 500 >"$work/one" &
  pid=$!
  got=$(tenant_burning asks $((2 * seconds)) 1000 --request 10)
  wait "$pid"
  revoke asks burns
  waits "under Sluice, 30 and 70 %" "$got"
  p99=$(word waitP99Us "$got")
  holds "${p99:-999999} <= 5500" || fail "the 99th percentile of waits is ${p99:-unknown} us, want at most 5500"
  burning $((2 * seconds + 3)) 500 >"$work/two" &
  pid=$!
  waits "the driver's own sharing" "$(burning $((2 * seconds)) 1000 --request 10)"
  wait "$pid"
fi

python=$(command -v python3 || true)
have_torch() { [[ -n $python && -z ${FAKEGPU_STATE:-} ]] && "$python" -c 'import torch' 2>/dev/null; }
if part torch && have_torch; then
  echo "== PyTorch, bf16 products of 4096, launched and as a CUDA graph"
  products() { sed -n "${1}p" "$2"; }
  timeout 120 "$python" test/gpu/torch_burn.py "$seconds" both >"$work/torch" || fail "PyTorch natively"
  plain=$(rate "$(products 1 "$work/torch")") graph=$(rate "$(products 2 "$work/torch")")
  timeout 120 "$python" test/gpu/torch_burn.py 3 both 40 >"$work/torch" || fail "PyTorch natively, in bursts"
  plain_bursts=$(rate "$(products 1 "$work/torch")") graph_bursts=$(rate "$(products 2 "$work/torch")")
  echo "native: $plain products a second, in graphs $graph; in bursts of 40 % of the time, when the board clocks higher, $plain_bursts and $graph_bursts"
  grant torch 40 --cap
  tenant torch "$python" test/gpu/torch_burn.py "$seconds" both >"$work/torch" || fail "PyTorch with a cap"
  revoke torch
  row "cap, PyTorch, of native in bursts" 40 "$(rate "$(products 1 "$work/torch")")" "$plain_bursts" "$(deviation "$(products 1 "$work/torch")" "$plain")"
  row "cap, PyTorch's graph, of native in bursts" 40 "$(rate "$(products 2 "$work/torch")")" "$graph_bursts" "$(deviation "$(products 2 "$work/torch")" "$graph")"
  # Not judged: the clock is higher where the board rests between slices.
  echo "the same of native without rest: $(calc "$(rate "$(products 1 "$work/torch")") * 100 / $plain") % and $(calc "$(rate "$(products 2 "$work/torch")") * 100 / $graph") %"
  hot=$(rate "$(timeout 120 "$python" test/gpu/torch_burn.py 3 plain random)")
  grant torch 40 --cap
  got=$(tenant torch "$python" test/gpu/torch_burn.py 3 plain random)
  revoke torch
  echo "random numbers, at the board's power limit natively: $hot products a second; with a cap of 40 %: $(calc "$(rate "$got") * 100 / $hot") %"
  grant one 30 --cap && grant two 60 --cap
  tenant one "$python" test/gpu/torch_burn.py $((seconds + 4)) plain >"$work/one" &
  pid=$!
  tenant two "$python" test/gpu/torch_burn.py $((seconds + 4)) graph >"$work/two" || fail "PyTorch beside PyTorch"
  wait "$pid" || fail "PyTorch beside PyTorch"
  revoke one two
  trim=yes
  row "caps at once, PyTorch" 30 "$(rate "$(<"$work/one")")" "$plain" "$(deviation "$(<"$work/one")" "$plain")"
  row "caps at once, PyTorch's graph" 60 "$(rate "$(<"$work/two")")" "$graph" "$(deviation "$(<"$work/two")" "$graph")"
  trim=
fi

if part mps && [[ -z ${FAKEGPU_STATE:-} ]] && command -v nvidia-cuda-mps-control >/dev/null; then
  echo "== for comparison: MPS, active thread percentage, kernels of 500 us"
  export CUDA_MPS_PIPE_DIRECTORY=$work/pipe CUDA_MPS_LOG_DIRECTORY=$work/log
  mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
  if nvidia-cuda-mps-control -d; then
    for percent in 10 25 30 50 60 75; do
      got=$(CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=$percent burning 3 500)
      echo "MPS $percent %: $(calc "$(rate "$got") * 100 / ${native[500]}") %"
    done
    echo quit | nvidia-cuda-mps-control
  else
    echo "no MPS daemon could be started here"
  fi
  unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
fi

if part nccl && have_torch && ((${#uuids[@]} > 1)); then
  echo "== two tenants on two GPUs: all-reduces through NCCL"
  reduces() { timeout 120 "$@" "$python" test/gpu/torch_allreduce.py $((2 * seconds)) "$port"; }
  port=29511
  free=$(reduces) || fail "NCCL natively"
  echo "native, alone: $(word "done" "$free") all-reduces, longest gap $(word longestGapUs "$free") us"
  for claim in one two; do
    grant "$claim" 50 --index 0
    grant "$claim" 50 --index 1 --gpu "${uuids[1]}"
  done
  port=29512
  reduces "$tools/claim" "$shares" one >"$work/one" &
  pid=$!
  port=29513
  reduces "$tools/claim" "$shares" two >"$work/two" || fail "the second tenant's NCCL"
  wait "$pid" || fail "the first tenant's NCCL"
  revoke one two
  for claim in one two; do
    got=$(<"$work/$claim")
    echo "tenant $claim at 50 %: $(calc "$(word "done" "$got") * 100 / $(word "done" "$free")") % of native, longest gap $(word longestGapUs "$got") us"
    holds "$(word "done" "$got") * 100 / $(word "done" "$free") >= 40" || fail "the all-reduces of tenant $claim did not go on"
  done
fi

echo "== $failures failures, $SECONDS seconds"
exit $((failures > 0))
