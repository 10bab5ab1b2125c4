# SPDX-License-Identifier: Apache-2.0
"""PyTorch at its limit: it is refused as out of memory, empties its cache, and goes on, CUDA graphs included."""

import os
import subprocess
import sys

import torch

limit = int(sys.argv[1])
chunk = 256
settings = os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or "default"


def outside():
    """What NVML says of this process, read by a program without the library."""
    clean = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    rows = subprocess.run(
        ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"],
        env=clean, capture_output=True, text=True, check=True).stdout.splitlines()
    return next((int(r.split(",")[1]) for r in rows if r.split(",")[0].strip() == str(os.getpid())), -1)


def fill():
    held = []
    while True:
        try:
            held.append(torch.empty(chunk << 20, dtype=torch.uint8, device="cuda"))
        except torch.cuda.OutOfMemoryError:
            return held


free, total = torch.cuda.mem_get_info()
assert total == limit << 20, f"told {total >> 20} MiB, want {limit}"
first = fill()
seen = outside()
assert len(first) * chunk < limit, "never refused"
assert seen <= limit, f"NVML sees {seen} MiB, above {limit}"
count = len(first)
del first
torch.cuda.empty_cache()
again = fill()
assert len(again) >= count - 1, f"after emptying the cache {len(again)} chunks fit, before {count}"
del again
torch.cuda.empty_cache()

x = torch.ones(4096, 4096, device="cuda")
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    for _ in range(3):
        y = x @ x
torch.cuda.current_stream().wait_stream(stream)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = x @ x
for _ in range(10):
    graph.replay()
torch.cuda.synchronize()
assert y[0, 0].item() == 4096.0
print(f"ok    {settings}: {count} chunks of {chunk} MiB, then out of memory; NVML {seen} MiB; "
      f"{count} again after empty_cache; a graph of a product replays", flush=True)
