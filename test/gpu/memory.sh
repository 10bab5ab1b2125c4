#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Memory limits on the real GPU of this machine: every way to hold device memory is taken until it is refused, under
# libsluice.so, and what the process holds is read from outside by nvidia-smi, which the library is not loaded into. Then
# PyTorch, where the machine has it, and what the library costs. Needs `make -C interceptor` and
# `make -C interceptor/tests/programs`. No setting of the GPU is changed. Results go to standard output as they come.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

library=$PWD/interceptor/build/libsluice.so
programs=$PWD/interceptor/build/tests
limit_mib=10240
failures=0
export SLUICE_MEMORY_LIMIT=${limit_mib}Mi SLUICE_CONTEXT_MEMORY=518Mi

fail() {
  echo "FAIL: $*"
  failures=$((failures + 1))
}

# word NAME JSON prints a number of a line that a program told.
word() { grep -oE "\"$1\":-?[0-9]+" <<<"$2" | head -1 | cut -d: -f2; }

# outside PID prints what NVML says that the process holds, in MiB.
outside() {
  nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader,nounits | awk -F', ' -v pid="$1" '$1 == pid {print $2; found = 1} END {if (!found) print "-"}'
}

# device prints what all of the GPU's memory in use is, in MiB.
device() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -i 0; }

# way NAME ROUTE takes one way to its limit by one route to the driver, and prints a row.
way() {
  local name=$1 route=$2 line before seen in_use held error
  before=$(device)
  coproc PROGRAM { SLUICE_GROUP="way-$$-$name-$route" LD_PRELOAD=$library exec "$programs/$route/$name" 2>/dev/null; }
  local pid=$PROGRAM_PID in=${PROGRAM[0]} out=${PROGRAM[1]}
  if ! read -r -t 60 line <&"$in" || [[ $line != *'"ready"'* ]]; then
    fail "$name by $route did not start: ${line:-no answer}"
    kill "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
    return
  fi
  echo >&"$out"
  read -r -t 120 line <&"$in" || line=
  seen=$(outside "$pid") in_use=$(($(device) - before))
  held=$(word bytes "$line") error=$(word error "$line")
  kill -9 "$pid" 2>/dev/null
  wait "$pid" 2>/dev/null
  if [[ -z $held ]]; then
    fail "$name by $route: $line"
    return
  fi
  printf '%-14s %-9s %8d MiB held  error %-3s  NVML: process %6s MiB, device %6d MiB\n' \
    "$name" "$route" $((held >> 20)) "$error" "$seen" "$in_use"
  [[ $error == 2 ]] || fail "$name by $route was refused with error $error, want 2"
  [[ $seen == - || $seen -le $limit_mib ]] || fail "$name by $route holds $seen MiB as NVML sees it, above $limit_mib"
  # The device's figure counts what belongs to no process, and the driver's own share of a context.
  ((in_use <= limit_mib + 64)) || fail "$name by $route: the device holds $in_use MiB more than before, above $limit_mib"
}

echo "== $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader), $(date +%F), limit $limit_mib MiB"
# Not here: external, whose memory another API (Vulkan, OpenGL) would have to make.
for name in linear pitch managed async pool setpool vmm vmm_released array array3d mipmap graph capture context; do
  [[ -x $programs/lookup/$name ]] || { fail "$name is not built"; continue; }
  way "$name" lookup
done
for route in link dlsym perthread; do way linear "$route"; done

if command -v nvidia-cuda-mps-control >/dev/null; then
  echo "== as a client of MPS, with a daemon of this script's own"
  export CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
  CUDA_MPS_PIPE_DIRECTORY=$(mktemp -d) CUDA_MPS_LOG_DIRECTORY=$(mktemp -d)
  if nvidia-cuda-mps-control -d; then
    for name in linear pool managed; do way "$name" lookup; done
    nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv,noheader
    echo quit | nvidia-cuda-mps-control
  else
    echo "no MPS daemon could be started here"
  fi
  rm -rf "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
  unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
fi

echo "== what the process is told"
LD_PRELOAD=$library nvidia-smi --query-gpu=memory.total,memory.used --format=csv,noheader | head -1

python=$(command -v python3)
if [[ -n $python ]] && "$python" -c 'import torch' 2>/dev/null; then
  echo "== PyTorch"
  for settings in "" "expandable_segments:True"; do
    SLUICE_GROUP="torch-$$" PYTORCH_CUDA_ALLOC_CONF=$settings PYTORCH_ALLOC_CONF=$settings LD_PRELOAD=$library \
      timeout 180 "$python" test/gpu/torch_limit.py "$limit_mib" || fail "PyTorch (${settings:-default allocator})"
    rm -rf /dev/shm/sluice-*-torch-$$
  done
fi
if [[ -n $python ]]; then
  echo "== cost, native and under the library in turn"
  for round in 1 2 3; do
    "$python" test/gpu/cost.py native
    SLUICE_GROUP="cost-$$-$round" LD_PRELOAD=$library "$python" test/gpu/cost.py limited
  done
fi
echo "== $failures failures"
exit $((failures > 0))
