// SPDX-License-Identifier: Apache-2.0
// Libraries: modules that come to a context when they are first used there.
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "module.h"

cu_result cuModuleLoadData(cu_module *module, const void *image);
cu_result cuModuleUnload(cu_module module);
cu_result cuModuleGetFunction(cu_function *function, cu_module module, const char *name);
cu_result cuModuleLoad(cu_module *module, const char *path);

struct cu_library_st {
    char *path;        // of one that was loaded from a file
    const void *image; // of another; its owner keeps it
};

static int loaded_for(cu_context context, cu_library library, cu_module *module) {
    for (cu_module m = context->modules; m != NULL; m = m->next) {
        if (m->library != library) continue;
        *module = m;
        return 1;
    }
    return 0;
}

CU_API cu_result cuLibraryGetModule(cu_module *module, cu_library library) {
    struct core *core;
    cu_context context;
    if (module == NULL || library == NULL) return CU_INVALID_VALUE;
    cu_result result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    int found = loaded_for(context, library, module);
    core_leave(core);
    if (found) return CU_SUCCESS;
    result = library->path != NULL ? cuModuleLoad(module, library->path) : cuModuleLoadData(module, library->image);
    if (result == CU_SUCCESS) (*module)->library = library;
    return result;
}

CU_API cu_result cuLibraryLoadData(cu_library *library, const void *image, int *options, void **values, unsigned count,
                                   int *library_options, void **library_values, unsigned library_count) {
    (void)options, (void)values, (void)count, (void)library_options, (void)library_values, (void)library_count;
    struct core *core;
    if (library == NULL || image == NULL) return CU_INVALID_VALUE;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    core_leave(core);
    cu_library made = calloc(1, sizeof *made);
    if (made == NULL) return CU_OUT_OF_MEMORY;
    made->image = image;
    *library = made;
    return CU_SUCCESS;
}

CU_API cu_result cuLibraryLoadFromFile(cu_library *library, const char *path, int *options, void **values, unsigned count,
                                       int *library_options, void **library_values, unsigned library_count) {
    struct stat info;
    if (library == NULL || path == NULL) return CU_INVALID_VALUE;
    if (stat(path, &info) != 0) return CU_FILE_NOT_FOUND;
    cu_result result = cuLibraryLoadData(library, path, options, values, count, library_options, library_values, library_count);
    if (result == CU_SUCCESS) (*library)->path = strdup(path);
    return result;
}

CU_API cu_result cuLibraryUnload(cu_library library) {
    struct core *core;
    cu_context context;
    cu_module module;
    if (library == NULL) return CU_INVALID_HANDLE;
    int found = 0;
    if (core_enter_context(&core, &context) == CU_SUCCESS) {
        found = loaded_for(context, library, &module);
        core_leave(core);
    }
    if (found) cuModuleUnload(module);
    free(library->path);
    free(library);
    return CU_SUCCESS;
}

// A kernel is named by the function of the module in the context that first asks for it.
CU_API cu_result cuLibraryGetKernel(cu_function *kernel, cu_library library, const char *name) {
    cu_module module;
    cu_result result = cuLibraryGetModule(&module, library);
    return result == CU_SUCCESS ? cuModuleGetFunction(kernel, module, name) : result;
}

CU_API cu_result cuKernelGetFunction(cu_function *function, cu_function kernel) {
    if (function == NULL || kernel == NULL) return CU_INVALID_VALUE;
    *function = kernel;
    return CU_SUCCESS;
}
