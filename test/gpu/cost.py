# SPDX-License-Identifier: Apache-2.0
"""What allocations and launches cost, in microseconds, best of five rounds, straight through the driver API."""

import ctypes
import sys
import time

cuda = ctypes.CDLL("libcuda.so.1")


def must(result):
    if result:
        sys.exit(f"CUDA error {result}")


must(cuda.cuInit(0))
context = ctypes.c_void_p()
must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
must(cuda.cuCtxSetCurrent(context))
pointer = ctypes.c_uint64()


def pair(size):
    must(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)))
    must(cuda.cuMemFree_v2(pointer))


def async_pair(size):
    must(cuda.cuMemAllocAsync(ctypes.byref(pointer), ctypes.c_size_t(size), None))
    must(cuda.cuMemFreeAsync(pointer, None))


def best(call, count):
    rounds = []
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(count):
            call()
        must(cuda.cuCtxSynchronize())
        rounds.append((time.perf_counter() - begin) / count * 1e6)
    return min(rounds)


figures = {
    "alloc+free 4 MiB": best(lambda: pair(4 << 20), 1000),
    "alloc+free 4 KiB": best(lambda: pair(4 << 10), 1000),
    "async pair 4 MiB": best(lambda: async_pair(4 << 20), 5000),
}
try:
    import torch

    x = torch.zeros(1, device="cuda")
    figures["PyTorch launch"] = best(lambda: x.add_(1), 50000)
except ImportError:
    pass
print(f"{sys.argv[1]:8}", "  ".join(f"{name}: {us:.2f} us" for name, us in figures.items()), flush=True)
