// SPDX-License-Identifier: Apache-2.0
//
// Memory that other processes made or may open. The exporter pays while it lives; an importer pays what no living exporter
// of its share does. How much an import is shows only once it is open: one that does not fit is closed again.

#include "charge.h"
#include "export.h"
#include "quota.h"
#include "topics.h"

EXPORT cu_result cuIpcGetMemHandle(cu_ipc_handle *handle, cu_ptr pointer) {
    DRIVER(cuIpcGetMemHandle);
    struct process *process = process_limited();
    struct track_entry entry, known;
    cu_result result = real(handle, pointer);
    if (result != CU_OK || process == NULL) return result;
    // The handle is that of the whole allocation, wherever in it the address points.
    cu_ptr base = pointer;
    if (HAVE(cuMemGetAddressRange_v2)) REAL(cuMemGetAddressRange_v2)(&base, NULL, pointer);
    if (!track_get(&process->track, TRACK_POINTER, base, &entry)) return result;
    if (track_get(&process->track, TRACK_EXPORT, base, &known)) return result;
    struct track_entry export = {.key = base, .kind = TRACK_EXPORT, .bytes = quota_round(entry.bytes, QUOTA_PAGE),
                                 .device = entry.device};
    if (track_put(&process->track, &export)) charge_export(&process->devices[entry.device], export.bytes);
    __atomic_store_n(&process->exports, 1, __ATOMIC_RELEASE);
    return result;
}

void export_ended(struct process *process, cu_ptr pointer) {
    struct track_entry entry;
    if (__atomic_load_n(&process->exports, __ATOMIC_ACQUIRE) == 0) return;
    if (!track_take(&process->track, TRACK_EXPORT, pointer, &entry)) return;
    charge_unexport(&process->devices[entry.device], entry.bytes);
}

// Charges memory that was opened. False where it does not fit.
static bool opened(const struct here *here, cu_ptr pointer) {
    struct process *process = process_limited();
    cu_ptr base = pointer;
    size_t size = 0;
    uint64_t paid;
    if (HAVE(cuMemGetAddressRange_v2)) REAL(cuMemGetAddressRange_v2)(&base, &size, pointer);
    struct track_entry entry = {.key = pointer, .kind = TRACK_IMPORT, .owner = NULL, .bytes = quota_round(size, QUOTA_PAGE),
                                .device = (int16_t)here->device->ordinal}, known;
    // The driver opens one handle several times as one mapping.
    if (track_get(&process->track, TRACK_IMPORT, pointer, &known)) {
        known.owner = (void *)((uintptr_t)known.owner + 1);
        track_put(&process->track, &known);
        return true;
    }
    if (!charge_import(here->device, entry.bytes, &paid)) return false;
    entry.flags = paid > 0;
    __atomic_store_n(&process->imports, 1, __ATOMIC_RELEASE);
    track_put(&process->track, &entry);
    return true;
}

static cu_result closed(cu_ptr pointer, cu_result result) {
    struct process *process = process_limited();
    struct track_entry entry;
    if (result != CU_OK || process == NULL || !track_take(&process->track, TRACK_IMPORT, pointer, &entry)) return result;
    if (entry.owner != NULL) {
        entry.owner = (void *)((uintptr_t)entry.owner - 1);
        track_put(&process->track, &entry);
        return result;
    }
    charge_unimport(&process->devices[entry.device], entry.bytes, entry.flags ? entry.bytes : 0);
    return result;
}

void import_freed(struct process *process, cu_ptr pointer) {
    if (__atomic_load_n(&process->imports, __ATOMIC_ACQUIRE) != 0) closed(pointer, CU_OK);
}

#define OPEN(symbol)                                                                        \
    DRIVER(symbol);                                                                         \
    struct here here;                                                                       \
    cu_result result = real(pointer, handle, flags);                                        \
    if (result != CU_OK || !device_here(&here) || opened(&here, *pointer)) return result;   \
    if (HAVE(cuIpcCloseMemHandle)) REAL(cuIpcCloseMemHandle)(*pointer);                     \
    *pointer = 0;                                                                           \
    return CU_OUT_OF_MEMORY

EXPORT cu_result cuIpcOpenMemHandle_v2(cu_ptr *pointer, cu_ipc_handle handle, unsigned flags) {
    OPEN(cuIpcOpenMemHandle_v2);
}

EXPORT cu_result cuIpcOpenMemHandle(cu_ptr *pointer, cu_ipc_handle handle, unsigned flags) { OPEN(cuIpcOpenMemHandle); }

EXPORT cu_result cuIpcCloseMemHandle(cu_ptr pointer) {
    DRIVER(cuIpcCloseMemHandle);
    return closed(pointer, real(pointer));
}

// Memory of another programming interface, which is not watched: whoever imports it pays.
EXPORT cu_result cuImportExternalMemory(cu_external *external, const cu_external_description *description) {
    DRIVER(cuImportExternalMemory);
    struct here here;
    if (external == NULL || description == NULL || !device_here(&here)) return real(external, description);
    uint64_t bytes = quota_round(description->size, QUOTA_PAGE);
    if (!charge_take(here.device, bytes)) return CU_OUT_OF_MEMORY;
    cu_result result = real(external, description);
    if (result != CU_OK) {
        charge_give(here.device, bytes);
        return result;
    }
    struct track_entry entry = {.key = (uintptr_t)*external, .kind = TRACK_EXTERNAL, .bytes = bytes,
                                .device = (int16_t)here.device->ordinal};
    track_put(&process_limited()->track, &entry);
    return result;
}

EXPORT cu_result cuDestroyExternalMemory(cu_external external) {
    DRIVER(cuDestroyExternalMemory);
    struct process *process = process_limited();
    struct track_entry entry;
    bool known = process != NULL && track_take(&process->track, TRACK_EXTERNAL, (uintptr_t)external, &entry);
    cu_result result = real(external);
    if (known && result == CU_OK) charge_give(&process->devices[entry.device], entry.bytes);
    if (known && result != CU_OK) track_put(&process->track, &entry);
    return result;
}

// One's own memory in a pool that others import from.
EXPORT cu_result cuMemPoolExportPointer(cu_pool_pointer *exported, cu_ptr pointer) {
    DRIVER(cuMemPoolExportPointer);
    struct process *process = process_limited();
    struct track_entry entry, known;
    cu_result result = real(exported, pointer);
    if (result != CU_OK || process == NULL || !track_get(&process->track, TRACK_ASYNC, pointer, &entry)) return result;
    if (track_get(&process->track, TRACK_EXPORT, pointer, &known)) return result;
    struct track_entry export = {.key = pointer, .kind = TRACK_EXPORT, .bytes = entry.bytes, .device = entry.device};
    if (track_put(&process->track, &export)) charge_export(&process->devices[entry.device], export.bytes);
    __atomic_store_n(&process->exports, 1, __ATOMIC_RELEASE);
    return result;
}

EXPORT cu_result cuMemPoolImportPointer(cu_ptr *pointer, cu_pool pool, cu_pool_pointer *exported) {
    DRIVER(cuMemPoolImportPointer);
    struct here here;
    cu_result result = real(pointer, pool, exported);
    if (result != CU_OK || !device_here(&here) || opened(&here, *pointer)) return result;
    if (HAVE(cuMemFree_v2)) REAL(cuMemFree_v2)(*pointer);
    *pointer = 0;
    return CU_OUT_OF_MEMORY;
}
