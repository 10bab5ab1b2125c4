// SPDX-License-Identifier: Apache-2.0
// Modules. Code is not read: every image offers the kernels of module.h.
#include "module.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "space.h"

static const char *const kernel_names[KERNELS] = {[KERNEL_SPIN] = "fakegpu_spin", [KERNEL_EMPTY] = "fakegpu_empty",
                                                 [KERNEL_PEER] = "fakegpu_peer", [KERNEL_ENDLESS] = "fakegpu_endless"};

// A context's own memory has room for that much code.
#define CODE_ROOM PAGE_BYTES

static uint64_t charge_for(uint64_t code) { return code > CODE_ROOM ? round_up(code - CODE_ROOM, PAGE_BYTES) : 0; }

static cu_result set_code(struct core *core, cu_context context, uint64_t code) {
    struct device *device = &core->devices[context->device];
    uint64_t wanted = charge_for(code);
    if (wanted > context->code_charged) {
        cu_result result = core_charge(core, device, wanted - context->code_charged);
        if (result != CU_SUCCESS) return result;
    } else if (wanted < context->code_charged) {
        core_refund(core, device, context->code_charged - wanted);
    }
    context->code_charged = wanted;
    context->code_bytes = code;
    return CU_SUCCESS;
}

static cu_result make_resident(struct core *core, cu_context context, cu_module module) {
    if (module->resident) return CU_SUCCESS;
    cu_result result = set_code(core, context, context->code_bytes + module->bytes);
    if (result == CU_SUCCESS) module->resident = 1;
    return result;
}

cu_result module_resident(struct core *core, cu_context context, cu_function function) {
    return make_resident(core, context, function->module);
}

static int lazy(void) {
    const char *mode = getenv("CUDA_MODULE_LOADING");
    return mode == NULL || strcmp(mode, "EAGER") != 0;
}

// The size of an image: of an ELF file and a fat binary by their headers, else of a text.
static uint64_t image_bytes(const void *image) {
    const struct {
        uint32_t magic;
        uint16_t version, header;
        uint64_t size;
    } *fat = image;
    if (strncmp(image, ELFMAG, SELFMAG) == 0) {
        const Elf64_Ehdr *elf = image;
        return elf->e_shoff + (uint64_t)elf->e_shnum * elf->e_shentsize;
    }
    if (strncmp(image, "\x50\xed\x55\xba", 4) == 0) return fat->header + fat->size;
    return strlen(image);
}

void core_drop_modules(struct core *core, cu_context context) {
    set_code(core, context, 0);
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

static cu_result load(cu_module *module, uint64_t bytes) {
    struct core *core;
    cu_context context;
    cu_result result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    cu_module made = calloc(1, sizeof *made);
    if (made == NULL) {
        core_leave(core);
        return CU_OUT_OF_MEMORY;
    }
    for (int k = 0; k < KERNELS; k++) made->functions[k] = (struct cu_function_st){.kernel = (enum kernel)k, .module = made};
    made->bytes = bytes;
    if (!lazy()) result = make_resident(core, context, made);
    if (result == CU_SUCCESS) {
        made->next = context->modules;
        context->modules = made;
        *module = made;
    } else {
        free(made);
    }
    core_leave(core);
    return result;
}

CU_API cu_result cuModuleLoadData(cu_module *module, const void *image) {
    return module == NULL || image == NULL ? CU_INVALID_VALUE : load(module, image_bytes(image));
}

CU_API cu_result cuModuleGetLoadingMode(int *mode) {
    enum { EAGER = 1, LAZY = 2 };
    if (mode == NULL) return CU_INVALID_VALUE;
    *mode = lazy() ? LAZY : EAGER;
    return CU_SUCCESS;
}

CU_API cu_result cuModuleLoadDataEx(cu_module *module, const void *image, unsigned count, int *options, void **values) {
    (void)count, (void)options, (void)values; // of the just-in-time compiler
    return cuModuleLoadData(module, image);
}

CU_API cu_result cuModuleLoadFatBinary(cu_module *module, const void *image) { return cuModuleLoadData(module, image); }

CU_API cu_result cuModuleLoad(cu_module *module, const char *path) {
    struct stat info;
    if (module == NULL || path == NULL) return CU_INVALID_VALUE;
    return stat(path, &info) != 0 || access(path, R_OK) != 0 ? CU_FILE_NOT_FOUND : load(module, (uint64_t)info.st_size);
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
    if (module->resident) set_code(core, context, context->code_bytes - module->bytes);
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
