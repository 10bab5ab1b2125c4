# SPDX-License-Identifier: Apache-2.0
"""PyTorch's bf16 matrix product of 4096, one by one and as a replayed CUDA graph: products a second, in one line of JSON that the
programs burn and pace could have printed. torch_burn.py SECONDS plain|graph, or SECONDS both for two lines; with "random" behind it
of random numbers, which draw so much power that the board lowers its clock: who works a part of the time then completes more than
that part. The even numbers of the default leave the clock alone."""

import json
import sys
import time

import torch

SIZE, DEPTH, IN_GRAPH = 4096, 8, 8

seconds = int(sys.argv[1])
if sys.argv[3:] == ["random"]:
    a = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
else:
    a = torch.full((SIZE, SIZE), 0.5, device="cuda", dtype=torch.bfloat16)
    b = torch.full((SIZE, SIZE), 0.25, device="cuda", dtype=torch.bfloat16)
c = torch.empty_like(a)


def plain():
    torch.mm(a, b, out=c)


def graph():
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        plain()
    torch.cuda.synchronize()
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made):
        for _ in range(IN_GRAPH):
            plain()
    return made.replay


def burn(call, each):
    events = [torch.cuda.Event(blocking=True) for _ in range(DEPTH)]
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    windows, done, i, start = [0] * seconds, 0, 0, time.monotonic()
    while (now := time.monotonic() - start) < seconds:
        if i >= DEPTH:
            events[i % DEPTH].synchronize()
            done += each
            windows[min(seconds - 1, int(time.monotonic() - start))] += each
        call()
        events[i % DEPTH].record()
        i += 1
    torch.cuda.synchronize()
    print(json.dumps({"error": 0, "done": done, "perSecond": windows}, separators=(",", ":")), flush=True)


if sys.argv[2] in ("plain", "both"):
    burn(plain, 1)
if sys.argv[2] in ("graph", "both"):
    burn(graph(), IN_GRAPH)
# The product is right, whatever was done to the launches.
torch.mm(a, b, out=c)
if not torch.allclose(c[0].float(), a[0].float() @ b.float(), rtol=0.05, atol=2.0):
    sys.exit("the product is wrong")
