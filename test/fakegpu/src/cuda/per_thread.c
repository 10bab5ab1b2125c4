// SPDX-License-Identifier: Apache-2.0
// The variants for programs whose default stream is each thread's own: _ptsz where a stream is named, _ptds where not.
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
VARIANT(cuMemcpyAsync, _ptsz, (cu_pointer to, cu_pointer from, size_t size, cu_stream s),
        (to, from, size, own(s)))
VARIANT(cuMemcpyPeerAsync, _ptsz, (cu_pointer to, cu_context there, cu_pointer from, cu_context here, size_t size, cu_stream s),
        (to, there, from, here, size, own(s)))
VARIANT(cuMemcpy2DAsync_v2, _ptsz, (const cu_copy_2d *p, cu_stream s),
        (p, own(s)))
VARIANT(cuMemcpy3DAsync_v2, _ptsz, (const cu_copy_3d *p, cu_stream s),
        (p, own(s)))
VARIANT(cuMemcpy3DPeerAsync, _ptsz, (const cu_copy_3d *p, cu_stream s),
        (p, own(s)))
VARIANT(cuMemcpyHtoAAsync_v2, _ptsz, (cu_array to, size_t to_x, const void *from, size_t size, cu_stream s),
        (to, to_x, from, size, own(s)))
VARIANT(cuMemcpyAtoHAsync_v2, _ptsz, (void *to, cu_array from, size_t from_x, size_t size, cu_stream s),
        (to, from, from_x, size, own(s)))
VARIANT(cuMemsetD8Async, _ptsz, (cu_pointer to, unsigned char value, size_t count, cu_stream s),
        (to, value, count, own(s)))
VARIANT(cuMemsetD2D8Async, _ptsz, (cu_pointer to, size_t pitch, unsigned char value, size_t width, size_t height, cu_stream s),
        (to, pitch, value, width, height, own(s)))
VARIANT(cuMemsetD16Async, _ptsz, (cu_pointer to, unsigned short value, size_t count, cu_stream s),
        (to, value, count, own(s)))
VARIANT(cuMemsetD2D16Async, _ptsz, (cu_pointer to, size_t pitch, unsigned short value, size_t width, size_t height, cu_stream s),
        (to, pitch, value, width, height, own(s)))
VARIANT(cuMemsetD32Async, _ptsz, (cu_pointer to, unsigned value, size_t count, cu_stream s),
        (to, value, count, own(s)))
VARIANT(cuMemsetD2D32Async, _ptsz, (cu_pointer to, size_t pitch, unsigned value, size_t width, size_t height, cu_stream s),
        (to, pitch, value, width, height, own(s)))

// Where no stream is named, it is the thread's own all the same.
#define IMPLICIT(name, like, parameters, arguments) CU_API cu_result name##_ptds parameters { return like arguments; }

IMPLICIT(cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2, (cu_pointer to, const void *from, size_t size),
         (to, from, size, CU_STREAM_PER_THREAD))
IMPLICIT(cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2, (void *to, cu_pointer from, size_t size),
         (to, from, size, CU_STREAM_PER_THREAD))
IMPLICIT(cuMemcpyDtoD_v2, cuMemcpyDtoDAsync_v2, (cu_pointer to, cu_pointer from, size_t size),
         (to, from, size, CU_STREAM_PER_THREAD))
IMPLICIT(cuMemcpy, cuMemcpyAsync, (cu_pointer to, cu_pointer from, size_t size),
         (to, from, size, CU_STREAM_PER_THREAD))
IMPLICIT(cuMemcpyPeer, cuMemcpyPeerAsync, (cu_pointer to, cu_context there, cu_pointer from, cu_context here, size_t size),
         (to, there, from, here, size, CU_STREAM_PER_THREAD))
IMPLICIT(cuMemcpy2D_v2, cuMemcpy2DAsync_v2, (const cu_copy_2d *p), (p, CU_STREAM_PER_THREAD))
IMPLICIT(cuMemcpy2DUnaligned_v2, cuMemcpy2DAsync_v2, (const cu_copy_2d *p), (p, CU_STREAM_PER_THREAD))
IMPLICIT(cuMemcpy3D_v2, cuMemcpy3DAsync_v2, (const cu_copy_3d *p), (p, CU_STREAM_PER_THREAD))
IMPLICIT(cuMemcpy3DPeer, cuMemcpy3DPeerAsync, (const cu_copy_3d *p), (p, CU_STREAM_PER_THREAD))
IMPLICIT(cuMemcpyHtoA_v2, cuMemcpyHtoAAsync_v2, (cu_array to, size_t to_x, const void *from, size_t size),
         (to, to_x, from, size, CU_STREAM_PER_THREAD))
IMPLICIT(cuMemcpyAtoH_v2, cuMemcpyAtoHAsync_v2, (void *to, cu_array from, size_t from_x, size_t size),
         (to, from, from_x, size, CU_STREAM_PER_THREAD))
IMPLICIT(cuMemsetD8_v2, cuMemsetD8Async, (cu_pointer to, unsigned char value, size_t count),
         (to, value, count, CU_STREAM_PER_THREAD))
IMPLICIT(cuMemsetD2D8_v2, cuMemsetD2D8Async, (cu_pointer to, size_t pitch, unsigned char value, size_t width, size_t height),
         (to, pitch, value, width, height, CU_STREAM_PER_THREAD))
IMPLICIT(cuMemsetD16_v2, cuMemsetD16Async, (cu_pointer to, unsigned short value, size_t count),
         (to, value, count, CU_STREAM_PER_THREAD))
IMPLICIT(cuMemsetD2D16_v2, cuMemsetD2D16Async, (cu_pointer to, size_t pitch, unsigned short value, size_t width, size_t height),
         (to, pitch, value, width, height, CU_STREAM_PER_THREAD))
IMPLICIT(cuMemsetD32_v2, cuMemsetD32Async, (cu_pointer to, unsigned value, size_t count),
         (to, value, count, CU_STREAM_PER_THREAD))
IMPLICIT(cuMemsetD2D32_v2, cuMemsetD2D32Async, (cu_pointer to, size_t pitch, unsigned value, size_t width, size_t height),
         (to, pitch, value, width, height, CU_STREAM_PER_THREAD))

// The per-thread stream of a launch with attributes lies in a structure.
cu_result cuLaunchKernelEx(const cu_launch_config *config, cu_function function, void **parameters, void **extra);

CU_API cu_result cuLaunchKernelEx_ptsz(const cu_launch_config *config, cu_function function, void **parameters, void **extra) {
    if (config == NULL) return CU_INVALID_VALUE;
    cu_launch_config changed = *config;
    changed.stream = own(changed.stream);
    return cuLaunchKernelEx(&changed, function, parameters, extra);
}
