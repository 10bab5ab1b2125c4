// SPDX-License-Identifier: Apache-2.0
// The launches of CUDA's first versions, whose arguments are set at the function beforehand.
#include <string.h>

#include "module.h"

cu_result cuLaunchKernel(cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                         unsigned block_z, unsigned shared_bytes, cu_stream stream, void **parameters, void **extra);

CU_API cu_result cuFuncSetBlockShape(cu_function function, int x, int y, int z) {
    if (function == NULL || x < 1 || y < 1 || z < 1) return CU_INVALID_VALUE;
    function->block[0] = (unsigned)x;
    function->block[1] = (unsigned)y;
    function->block[2] = (unsigned)z;
    return CU_SUCCESS;
}

CU_API cu_result cuParamSetSize(cu_function function, unsigned bytes) {
    if (function == NULL || bytes > sizeof function->arguments) return CU_INVALID_VALUE;
    function->argument_bytes = bytes;
    return CU_SUCCESS;
}

CU_API cu_result cuParamSetv(cu_function function, int offset, const void *value, unsigned bytes) {
    if (function == NULL || value == NULL || offset < 0 || bytes > sizeof function->arguments) return CU_INVALID_VALUE;
    if ((unsigned)offset > sizeof function->arguments - bytes) return CU_INVALID_VALUE;
    memcpy(function->arguments + offset, value, bytes);
    return CU_SUCCESS;
}

CU_API cu_result cuParamSeti(cu_function function, int offset, unsigned value) { return cuParamSetv(function, offset, &value, sizeof value); }

CU_API cu_result cuLaunchGridAsync(cu_function function, int width, int height, cu_stream stream) {
    if (function == NULL || width < 1 || height < 1) return CU_INVALID_VALUE;
    size_t bytes = function->argument_bytes;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER, function->arguments, CU_LAUNCH_PARAM_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    return cuLaunchKernel(function, (unsigned)width, (unsigned)height, 1, function->block[0], function->block[1], function->block[2], 0,
                          stream, NULL, extra);
}

CU_API cu_result cuLaunchGrid(cu_function function, int width, int height) {
    return cuLaunchGridAsync(function, width, height, CU_STREAM_LEGACY);
}

CU_API cu_result cuLaunch(cu_function function) { return cuLaunchGridAsync(function, 1, 1, CU_STREAM_LEGACY); }
