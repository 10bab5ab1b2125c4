// SPDX-License-Identifier: Apache-2.0
//
// The end of streams: another may get the same handle.

#include "export.h"
#include "pacer.h"

EXPORT cu_result cuStreamDestroy_v2(cu_stream stream) {
    DRIVER(cuStreamDestroy_v2);
    if (stream != NULL) pacer_stream_ends(sluice_process, stream);
    return real(stream);
}

EXPORT cu_result cuStreamDestroy(cu_stream stream) {
    DRIVER(cuStreamDestroy);
    if (stream != NULL) pacer_stream_ends(sluice_process, stream);
    return real(stream);
}
