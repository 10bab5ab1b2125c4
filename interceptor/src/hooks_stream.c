// SPDX-License-Identifier: Apache-2.0
//
// The end of streams: another may get the same handle.

#include "export.h"
#include "pacer.h"
#include "topics.h"

// A capture ends with its stream.
static cu_result destroy(cu_result (*real)(cu_stream), cu_stream stream) {
    struct process *process = process_limited();
    if (process == NULL || stream == NULL) return real(stream);
    bool captured = stream_captures(process, stream, false);
    pacer_stream_ends(process, stream);
    cu_result result = real(stream);
    if (captured && result == CU_OK) capture_counted(process, -1);
    return result;
}

EXPORT cu_result cuStreamDestroy_v2(cu_stream stream) {
    DRIVER(cuStreamDestroy_v2);
    return destroy(real, stream);
}

EXPORT cu_result cuStreamDestroy(cu_stream stream) {
    DRIVER(cuStreamDestroy);
    return destroy(real, stream);
}
