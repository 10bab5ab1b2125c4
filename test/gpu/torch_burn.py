# SPDX-License-Identifier: Apache-2.0
"""PyTorch's bf16 matrix product of 4096, one by one and as a replayed CUDA graph: products a second, in one line of JSON that the
programs burn and pace could have printed. torch_burn.py SECONDS plain|graph, or SECONDS both for two lines.

Products of this size draw so much power that the board lowers its clock: who works a part of the time completes more than that part
of what is completed all the time. With a percentage behind it the program works that part of the time by itself, in bursts of
20 ms, and prints products a second of the bursts: what a share of the time is worth. Even numbers draw less than "random" ones."""

import json
import sys
import time

import torch

SIZE, DEPTH, IN_GRAPH = 4096, 8, 8

seconds = int(sys.argv[1])
if "random" in sys.argv[3:]:
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


BURST = 0.02


def bursts(call, each, percent):
    events = [torch.cuda.Event(blocking=True) for _ in range(DEPTH)]
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    busy, done, start = 0.0, 0, time.monotonic()
    while time.monotonic() - start < seconds:
        began, i = time.monotonic(), 0
        while time.monotonic() - began < BURST:
            if i >= DEPTH:
                events[i % DEPTH].synchronize()
            call()
            events[i % DEPTH].record()
            i += 1
        torch.cuda.synchronize()
        took = time.monotonic() - began
        busy, done = busy + took, done + i * each
        time.sleep(took * (100 / percent - 1))
    print(json.dumps({"error": 0, "done": done, "perSecond": [round(done / busy)] * 2}, separators=(",", ":")), flush=True)


def run(call, each):
    percent = [int(word) for word in sys.argv[3:] if word.isdigit()]
    if percent:
        bursts(call, each, percent[0])
    else:
        burn(call, each)


if sys.argv[2] in ("plain", "both"):
    run(plain, 1)
if sys.argv[2] in ("graph", "both"):
    run(graph(), IN_GRAPH)
# The product is right, whatever was done to the launches.
torch.mm(a, b, out=c)
if not torch.allclose(c[0].float(), a[0].float() @ b.float(), rtol=0.05, atol=2.0):
    sys.exit("the product is wrong")
