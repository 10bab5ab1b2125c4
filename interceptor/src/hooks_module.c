// SPDX-License-Identifier: Apache-2.0
//
// Code. What it takes on the device is not told, and with lazy loading comes later; the image's size at load is the upper
// bound. Modules share pages, so the pages of their sum are charged, beyond a first one that a context has anyway.

#include "charge.h"
#include "export.h"
#include "image.h"
#include "pacer.h"
#include "quota.h"
#include "topics.h"

#define LOAD(made, bytes_of_image, call)                                                                               \
    struct here here;                                                                                                  \
    if ((made) == NULL || !device_here(&here)) return call;                                                            \
    uint64_t bytes = bytes_of_image;                                                                                   \
    if (!charge_pack(here.device, bytes)) return CU_OUT_OF_MEMORY;                                                     \
    cu_result result = call;                                                                                           \
    if (result != CU_OK) {                                                                                             \
        charge_unpack(here.device, bytes);                                                                             \
        return result;                                                                                                 \
    }                                                                                                                  \
    struct track_entry entry = {.key = (uintptr_t)*(made), .kind = TRACK_MODULE, .bytes = bytes, .owner = here.context, \
                                .device = (int16_t)here.device->ordinal};                                              \
    track_put(&process_limited()->track, &entry);                                                                      \
    context_has(process_limited(), &entry, here.number);                                                               \
    return result

#define UNLOAD(handle)                                                                                      \
    struct process *process = process_limited();                                                            \
    struct track_entry entry;                                                                               \
    bool known = process != NULL && track_take(&process->track, TRACK_MODULE, (uintptr_t)(handle), &entry); \
    cu_result result = real(handle);                                                                        \
    if (result == CU_OK) pacer_forget_keys(process);                                                        \
    if (known && result == CU_OK) charge_unpack(&process->devices[entry.device], entry.bytes);              \
    if (known && result != CU_OK) track_put(&process->track, &entry);                                       \
    return result

EXPORT cu_result cuModuleLoad(cu_module *module, const char *path) {
    DRIVER(cuModuleLoad);
    LOAD(module, image_file_bytes(path), real(module, path));
}

EXPORT cu_result cuModuleLoadData(cu_module *module, const void *image) {
    DRIVER(cuModuleLoadData);
    LOAD(module, image_bytes(image), real(module, image));
}

EXPORT cu_result cuModuleLoadDataEx(cu_module *module, const void *image, unsigned count, int *options, void **values) {
    DRIVER(cuModuleLoadDataEx);
    LOAD(module, image_bytes(image), real(module, image, count, options, values));
}

EXPORT cu_result cuModuleLoadFatBinary(cu_module *module, const void *image) {
    DRIVER(cuModuleLoadFatBinary);
    LOAD(module, image_bytes(image), real(module, image));
}

EXPORT cu_result cuModuleUnload(cu_module module) {
    DRIVER(cuModuleUnload);
    UNLOAD(module);
}

// A library is loaded into every context that uses it; it is charged where it was loaded.
EXPORT cu_result cuLibraryLoadData(cu_library *library, const void *image, void *jit, void **jit_values, unsigned jit_count,
                                   void *options, void **values, unsigned count) {
    DRIVER(cuLibraryLoadData);
    LOAD(library, image_bytes(image), real(library, image, jit, jit_values, jit_count, options, values, count));
}

EXPORT cu_result cuLibraryLoadFromFile(cu_library *library, const char *path, void *jit, void **jit_values,
                                       unsigned jit_count, void *options, void **values, unsigned count) {
    DRIVER(cuLibraryLoadFromFile);
    LOAD(library, image_file_bytes(path), real(library, path, jit, jit_values, jit_count, options, values, count));
}

EXPORT cu_result cuLibraryUnload(cu_library library) {
    DRIVER(cuLibraryUnload);
    UNLOAD(library);
}
