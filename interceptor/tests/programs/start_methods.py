# SPDX-License-Identifier: Apache-2.0
"""Four workers, started by the method that the first argument names, allocate 1 GiB each and are refused 10 GiB."""

import ctypes
import multiprocessing
import sys

GIB = 1 << 30
OUT_OF_MEMORY = 2


def work(index):
    """Returns what the two allocations gave, or the call that failed before."""
    driver = ctypes.CDLL("libcuda.so.1")
    context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
    for call in (
        lambda: driver.cuInit(0),
        lambda: driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
        lambda: driver.cuCtxSetCurrent(context),
    ):
        error = call()
        if error:
            return index, error, None
    fits = driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(GIB))
    not_fits = driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(10 * GIB))
    return index, fits, not_fits


def main():
    """Runs the workers and says whether all got what they should."""
    with multiprocessing.get_context(sys.argv[1]).Pool(4) as pool:
        results = pool.map(work, range(4), chunksize=1)
    good = all(fits == 0 and not_fits == OUT_OF_MEMORY for _, fits, not_fits in results)
    print("good" if good else results)


if __name__ == "__main__":
    main()
