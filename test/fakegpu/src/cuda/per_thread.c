// SPDX-License-Identifier: Apache-2.0
// The variants for programs whose default stream is each thread's own. Where the stream is implicit (_ptds) nothing is
// queued, so that they do what the others do.
#include "core.h"

struct instantiate_parameters;

static cu_stream own(cu_stream stream) { return stream == NULL ? CU_STREAM_PER_THREAD : stream; }

#define VARIANT(name, suffix, parameters, arguments) \
    cu_result name parameters;                       \
    CU_API cu_result name##suffix parameters { return name arguments; }

VARIANT(cuMemAllocAsync, _ptsz, (cu_pointer *pointer, size_t size, cu_stream s),
        (pointer, size, own(s)))
VARIANT(cuMemAllocFromPoolAsync, _ptsz, (cu_pointer *pointer, size_t size, cu_pool pool, cu_stream s),
        (pointer, size, pool, own(s)))
VARIANT(cuMemFreeAsync, _ptsz, (cu_pointer pointer, cu_stream s),
        (pointer, own(s)))
VARIANT(cuMemPrefetchAsync, _ptsz, (cu_pointer pointer, size_t size, cu_device device, cu_stream s),
        (pointer, size, device, own(s)))
VARIANT(cuMemPrefetchAsync_v2, _ptsz, (cu_pointer pointer, size_t size, cu_location location, unsigned flags, cu_stream s),
        (pointer, size, location, flags, own(s)))
VARIANT(cuMemcpyHtoDAsync_v2, _ptsz, (cu_pointer to, const void *from, size_t size, cu_stream s),
        (to, from, size, own(s)))
VARIANT(cuMemcpyDtoHAsync_v2, _ptsz, (void *to, cu_pointer from, size_t size, cu_stream s),
        (to, from, size, own(s)))
VARIANT(cuMemcpyDtoDAsync_v2, _ptsz, (cu_pointer to, cu_pointer from, size_t size, cu_stream s),
        (to, from, size, own(s)))
VARIANT(cuStreamSynchronize, _ptsz, (cu_stream s),
        (own(s)))
VARIANT(cuStreamQuery, _ptsz, (cu_stream s),
        (own(s)))
VARIANT(cuStreamGetCtx, _ptsz, (cu_stream s, cu_context *context),
        (own(s), context))
VARIANT(cuStreamGetCtx_v2, _ptsz, (cu_stream s, cu_context *context, cu_green *green),
        (own(s), context, green))
VARIANT(cuStreamGetFlags, _ptsz, (cu_stream s, unsigned *flags),
        (own(s), flags))
VARIANT(cuStreamGetPriority, _ptsz, (cu_stream s, int *priority),
        (own(s), priority))
VARIANT(cuStreamWaitEvent, _ptsz, (cu_stream s, cu_event event, unsigned flags),
        (own(s), event, flags))
VARIANT(cuStreamBeginCapture, _ptsz, (cu_stream s),
        (own(s)))
VARIANT(cuStreamBeginCapture_v2, _ptsz, (cu_stream s, int mode),
        (own(s), mode))
VARIANT(cuStreamBeginCaptureToGraph, _ptsz, (cu_stream s, cu_graph graph, const cu_node *after, const void *edges, size_t count, int mode),
        (own(s), graph, after, edges, count, mode))
VARIANT(cuStreamEndCapture, _ptsz, (cu_stream s, cu_graph *graph),
        (own(s), graph))
VARIANT(cuStreamIsCapturing, _ptsz, (cu_stream s, int *status),
        (own(s), status))
VARIANT(cuStreamGetCaptureInfo, _ptsz, (cu_stream s, int *status, uint64_t *id),
        (own(s), status, id))
VARIANT(cuStreamGetCaptureInfo_v2, _ptsz, (cu_stream s, int *status, uint64_t *id, cu_graph *graph, const cu_node **after, size_t *count),
        (own(s), status, id, graph, after, count))
VARIANT(cuStreamGetCaptureInfo_v3, _ptsz, (cu_stream s, int *status, uint64_t *id, cu_graph *graph, const cu_node **after, const void **edges, size_t *count),
        (own(s), status, id, graph, after, edges, count))
VARIANT(cuEventRecord, _ptsz, (cu_event event, cu_stream s),
        (event, own(s)))
VARIANT(cuEventRecordWithFlags, _ptsz, (cu_event event, cu_stream s, unsigned flags),
        (event, own(s), flags))
VARIANT(cuGraphUpload, _ptsz, (cu_exec exec, cu_stream s),
        (exec, own(s)))
VARIANT(cuGraphLaunch, _ptsz, (cu_exec exec, cu_stream s),
        (exec, own(s)))
VARIANT(cuGraphInstantiateWithParams, _ptsz, (cu_exec *exec, cu_graph graph, struct instantiate_parameters *parameters),
        (exec, graph, parameters))
VARIANT(cuLaunchKernel, _ptsz, (cu_function f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, cu_stream s, void **parameters, void **extra),
        (f, gx, gy, gz, bx, by, bz, shared, own(s), parameters, extra))
VARIANT(cuLaunchCooperativeKernel, _ptsz, (cu_function f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, cu_stream s, void **parameters),
        (f, gx, gy, gz, bx, by, bz, shared, own(s), parameters))
VARIANT(cuMemcpyHtoD_v2, _ptds, (cu_pointer to, const void *from, size_t size),
        (to, from, size))
VARIANT(cuMemcpyDtoH_v2, _ptds, (void *to, cu_pointer from, size_t size),
        (to, from, size))
VARIANT(cuMemcpyDtoD_v2, _ptds, (cu_pointer to, cu_pointer from, size_t size),
        (to, from, size))
VARIANT(cuMemsetD8_v2, _ptds, (cu_pointer to, unsigned char value, size_t count),
        (to, value, count))
VARIANT(cuMemsetD16_v2, _ptds, (cu_pointer to, unsigned short value, size_t count),
        (to, value, count))
VARIANT(cuMemsetD32_v2, _ptds, (cu_pointer to, unsigned value, size_t count),
        (to, value, count))

// The per-thread stream of a launch with attributes lies in a structure.
cu_result cuLaunchKernelEx(const cu_launch_config *config, cu_function function, void **parameters, void **extra);

CU_API cu_result cuLaunchKernelEx_ptsz(const cu_launch_config *config, cu_function function, void **parameters, void **extra) {
    if (config == NULL) return CU_INVALID_VALUE;
    cu_launch_config changed = *config;
    changed.stream = own(changed.stream);
    return cuLaunchKernelEx(&changed, function, parameters, extra);
}
