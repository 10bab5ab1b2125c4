#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs the node agent's doors (NVML, CDI) on the real GPU of this machine and checks them against nvidia-smi. Reads
# only. Needs bin/gpu-look: go build -o bin/gpu-look ./test/gpu/look
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

seen=$(bin/gpu-look)
echo "$seen"

# Every GPU, by UUID, and every profile and start that nvidia-smi knows must have been seen.
while read -r uuid; do
  grep -qF "$uuid" <<<"$seen" || { echo "FAIL: GPU $uuid was not seen"; exit 1; }
done < <(nvidia-smi --query-gpu=uuid --format=csv,noheader)
profiles=$(nvidia-smi mig -lgip -i 0 | grep -oE '[0-9]+g\.[0-9]+gb([+-][a-z.]+)?' | sort -u || true)
for profile in $profiles; do
  grep -qF "  $profile " <<<"$seen" || { echo "FAIL: profile $profile was not seen"; exit 1; }
done
echo "PASS: $(nvidia-smi -L | wc -l) GPUs and $(wc -w <<<"$profiles") profiles are as nvidia-smi says"
