# SPDX-License-Identifier: Apache-2.0
"""All-reduces over two GPUs through NCCL, a process for each: torch_allreduce.py SECONDS PORT. Prints one line of JSON: how many
completed, and the longest time between two."""

import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

RANKS, DEPTH = 2, 4


def rank_main(rank, seconds, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, NCCL_NVLS_ENABLE="0")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=RANKS)
    data = torch.ones(8 << 20, device="cuda")
    stop = torch.zeros(1, device="cuda")
    events = [torch.cuda.Event(blocking=True) for _ in range(DEPTH)]
    for _ in range(5):
        dist.all_reduce(data)
    torch.cuda.synchronize()
    start = before = time.monotonic()
    done, longest, i = 0, 0.0, 0
    while True:
        if i >= DEPTH:
            events[i % DEPTH].synchronize()
            now = time.monotonic()
            longest, before, done = max(longest, now - before), now, done + 1
        if i % 50 == 0:  # all ranks end after the same one
            stop.fill_(float(time.monotonic() - start > seconds))
            dist.all_reduce(stop, op=dist.ReduceOp.MAX)
            if stop.item() > 0:
                break
        data.fill_(1.0)
        dist.all_reduce(data)
        events[i % DEPTH].record()
        i += 1
    torch.cuda.synchronize()
    if rank == 0:
        right = bool((data == RANKS).all().item())
        print(json.dumps({"error": 0 if right else 1, "done": done, "longestGapUs": int(longest * 1e6)}, separators=(",", ":")), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(rank_main, args=(float(sys.argv[1]), sys.argv[2]), nprocs=RANKS)
