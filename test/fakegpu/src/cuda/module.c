// SPDX-License-Identifier: Apache-2.0
// Modules. Code is not read: every image offers the kernels of module.h.
#include "module.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const kernel_names[KERNELS] = {[KERNEL_SPIN] = "fakegpu_spin", [KERNEL_EMPTY] = "fakegpu_empty"};

void core_drop_modules(cu_context context) {
    for (cu_module m = context->modules; m != NULL;) {
        cu_module next = m->next;
        free(m);
        m = next;
    }
    context->modules = NULL;
}

static int loaded(cu_context context, cu_module module) {
    for (cu_module m = context->modules; m != NULL; m = m->next) {
        if (m == module) return 1;
    }
    return 0;
}

int module_owns(cu_context context, cu_function function) {
    for (cu_module m = context->modules; m != NULL; m = m->next) {
        for (int k = 0; k < KERNELS; k++) {
            if (&m->functions[k] == function) return m->functions[k].made;
        }
    }
    return 0;
}

CU_API cu_result cuModuleLoadData(cu_module *module, const void *image) {
    struct core *core;
    cu_context context;
    if (module == NULL || image == NULL) return CU_INVALID_VALUE;
    cu_result result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    cu_module made = calloc(1, sizeof *made);
    if (made != NULL) {
        for (int k = 0; k < KERNELS; k++) made->functions[k] = (struct cu_function_st){.kernel = (enum kernel)k, .module = made};
        made->next = context->modules;
        context->modules = made;
        *module = made;
    }
    core_leave(core);
    return made == NULL ? CU_OUT_OF_MEMORY : CU_SUCCESS;
}

CU_API cu_result cuModuleLoadDataEx(cu_module *module, const void *image, unsigned count, int *options, void **values) {
    (void)count, (void)options, (void)values; // of the just-in-time compiler
    return cuModuleLoadData(module, image);
}

CU_API cu_result cuModuleLoadFatBinary(cu_module *module, const void *image) { return cuModuleLoadData(module, image); }

CU_API cu_result cuModuleLoad(cu_module *module, const char *path) {
    if (module == NULL || path == NULL) return CU_INVALID_VALUE;
    return access(path, R_OK) == 0 ? cuModuleLoadData(module, path) : 301; // CUDA_ERROR_FILE_NOT_FOUND
}

CU_API cu_result cuModuleUnload(cu_module module) {
    struct core *core;
    cu_context context;
    cu_result result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    if (!loaded(context, module)) {
        core_leave(core);
        return CU_INVALID_HANDLE;
    }
    for (cu_module *link = &context->modules; *link != NULL; link = &(*link)->next) {
        if (*link != module) continue;
        *link = module->next;
        break;
    }
    free(module);
    core_leave(core);
    return CU_SUCCESS;
}

CU_API cu_result cuModuleGetFunction(cu_function *function, cu_module module, const char *name) {
    struct core *core;
    cu_context context;
    if (function == NULL || name == NULL) return CU_INVALID_VALUE;
    cu_result result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    result = loaded(context, module) ? CU_NOT_FOUND : CU_INVALID_HANDLE;
    for (int k = 0; result == CU_NOT_FOUND && k < KERNELS; k++) {
        if (strcmp(kernel_names[k], name) != 0) continue;
        module->functions[k].made = 1;
        *function = &module->functions[k];
        result = CU_SUCCESS;
    }
    core_leave(core);
    return result;
}
