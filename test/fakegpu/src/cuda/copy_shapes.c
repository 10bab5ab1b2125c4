// SPDX-License-Identifier: Apache-2.0
// Copies of rows and boxes, and of arrays, which have no contents here.
#include <string.h>

#include "copy.h"

enum { MEMORY_HOST = 1, MEMORY_DEVICE, MEMORY_ARRAY, MEMORY_UNIFIED };

static int is_host(const cu_copy_side *side) {
    return side->memory == MEMORY_HOST || (side->memory == MEMORY_UNIFIED && space_holding(side->device) == NULL);
}

// Where a row of the side begins.
static cu_result row_at(struct core *core, const cu_copy_side *side, size_t x, size_t y, size_t width, struct place *place) {
    size_t offset = y * side->pitch + x;
    if (side->memory == MEMORY_ARRAY) {
        *place = (struct place){0};
        return side->array == NULL ? CU_INVALID_HANDLE : CU_SUCCESS;
    }
    if (is_host(side)) {
        unsigned char *base = side->memory == MEMORY_HOST ? side->host : (unsigned char *)(uintptr_t)side->device;
        *place = (struct place){.at = base + offset, .real = width};
        return base == NULL ? CU_INVALID_VALUE : CU_SUCCESS;
    }
    return copy_place(core, side->device + offset, width, place);
}

struct box {
    const cu_copy_side *from, *to;
    size_t from_x, from_y, from_z, from_height, to_x, to_y, to_z, to_height;
    size_t width, height, depth;
};

static cu_result box_copy(const struct box *b, cu_stream stream) {
    struct copy c;
    if (b->from->memory < MEMORY_HOST || b->from->memory > MEMORY_UNIFIED || b->to->memory < MEMORY_HOST || b->to->memory > MEMORY_UNIFIED) {
        return CU_INVALID_VALUE;
    }
    int by_engine = is_host(b->from) || is_host(b->to);
    cu_result result = copy_begin(&c, stream, by_engine);
    if (result != CU_SUCCESS) return result;
    for (size_t i = 0; result == CU_SUCCESS && i < b->height * b->depth; i++) {
        size_t y = i % b->height, z = i / b->height;
        struct place from, to;
        result = row_at(c.core, b->from, b->from_x, b->from_y + y + (b->from_z + z) * b->from_height, b->width, &from);
        if (result == CU_SUCCESS) result = row_at(c.core, b->to, b->to_x, b->to_y + y + (b->to_z + z) * b->to_height, b->width, &to);
        if (result == CU_SUCCESS && c.stream->capture == NULL && to.at != NULL && from.at != NULL) copy_move(to, from, b->width);
    }
    return copy_end(&c, result, by_engine ? 0 : b->width * b->height * b->depth);
}

CU_API cu_result cuMemcpy2DAsync_v2(const cu_copy_2d *p, cu_stream stream) {
    if (p == NULL) return CU_INVALID_VALUE;
    struct box b = {.from = &p->from, .to = &p->to, .from_x = p->from_x, .from_y = p->from_y, .to_x = p->to_x, .to_y = p->to_y,
                    .width = p->width, .height = p->height, .depth = 1};
    return box_copy(&b, stream);
}

CU_API cu_result cuMemcpy2D_v2(const cu_copy_2d *p) { return cuMemcpy2DAsync_v2(p, CU_STREAM_LEGACY); }
CU_API cu_result cuMemcpy2DUnaligned_v2(const cu_copy_2d *p) { return cuMemcpy2DAsync_v2(p, CU_STREAM_LEGACY); }

static cu_copy_side side_of(const cu_copy_side_3d *s) {
    return (cu_copy_side){.memory = s->memory, .host = s->host, .device = s->device, .array = s->array, .pitch = s->pitch};
}

CU_API cu_result cuMemcpy3DAsync_v2(const cu_copy_3d *p, cu_stream stream) {
    if (p == NULL) return CU_INVALID_VALUE;
    cu_copy_side from = side_of(&p->from), to = side_of(&p->to);
    struct box b = {.from = &from, .to = &to, .from_x = p->from.x, .from_y = p->from.y, .from_z = p->from.z,
                    .from_height = p->from.height, .to_x = p->to.x, .to_y = p->to.y, .to_z = p->to.z, .to_height = p->to.height,
                    .width = p->width, .height = p->height, .depth = p->depth};
    return box_copy(&b, stream);
}

CU_API cu_result cuMemcpy3D_v2(const cu_copy_3d *p) { return cuMemcpy3DAsync_v2(p, CU_STREAM_LEGACY); }
CU_API cu_result cuMemcpy3DPeerAsync(const cu_copy_3d *p, cu_stream stream) { return cuMemcpy3DAsync_v2(p, stream); }
CU_API cu_result cuMemcpy3DPeer(const cu_copy_3d *p) { return cuMemcpy3DAsync_v2(p, CU_STREAM_LEGACY); }

// A row of an array's bytes and one of another side's.
static cu_result line(cu_copy_side to, size_t to_x, cu_copy_side from, size_t from_x, size_t size, cu_stream stream) {
    struct box b = {.from = &from, .to = &to, .from_x = from_x, .to_x = to_x, .width = size, .height = 1, .depth = 1};
    return box_copy(&b, stream);
}

static cu_copy_side array(cu_array a) { return (cu_copy_side){.memory = MEMORY_ARRAY, .array = a}; }
static cu_copy_side device(cu_pointer at) { return (cu_copy_side){.memory = MEMORY_DEVICE, .device = at}; }
static cu_copy_side host(const void *at) { return (cu_copy_side){.memory = MEMORY_HOST, .host = (void *)(uintptr_t)at}; }

CU_API cu_result cuMemcpyAtoA_v2(cu_array to, size_t to_x, cu_array from, size_t from_x, size_t size) {
    return line(array(to), to_x, array(from), from_x, size, CU_STREAM_LEGACY);
}
CU_API cu_result cuMemcpyAtoD_v2(cu_pointer to, cu_array from, size_t from_x, size_t size) {
    return line(device(to), 0, array(from), from_x, size, CU_STREAM_LEGACY);
}
CU_API cu_result cuMemcpyDtoA_v2(cu_array to, size_t to_x, cu_pointer from, size_t size) {
    return line(array(to), to_x, device(from), 0, size, CU_STREAM_LEGACY);
}
// As those, on the threads' own streams.
CU_API cu_result cuMemcpyAtoA_v2_ptds(cu_array to, size_t to_x, cu_array from, size_t from_x, size_t size) {
    return line(array(to), to_x, array(from), from_x, size, CU_STREAM_PER_THREAD);
}
CU_API cu_result cuMemcpyAtoD_v2_ptds(cu_pointer to, cu_array from, size_t from_x, size_t size) {
    return line(device(to), 0, array(from), from_x, size, CU_STREAM_PER_THREAD);
}
CU_API cu_result cuMemcpyDtoA_v2_ptds(cu_array to, size_t to_x, cu_pointer from, size_t size) {
    return line(array(to), to_x, device(from), 0, size, CU_STREAM_PER_THREAD);
}
CU_API cu_result cuMemcpyHtoAAsync_v2(cu_array to, size_t to_x, const void *from, size_t size, cu_stream stream) {
    return line(array(to), to_x, host(from), 0, size, stream);
}
CU_API cu_result cuMemcpyAtoHAsync_v2(void *to, cu_array from, size_t from_x, size_t size, cu_stream stream) {
    return line(host(to), 0, array(from), from_x, size, stream);
}
CU_API cu_result cuMemcpyHtoA_v2(cu_array to, size_t to_x, const void *from, size_t size) {
    return cuMemcpyHtoAAsync_v2(to, to_x, from, size, CU_STREAM_LEGACY);
}
CU_API cu_result cuMemcpyAtoH_v2(void *to, cu_array from, size_t from_x, size_t size) {
    return cuMemcpyAtoHAsync_v2(to, from, from_x, size, CU_STREAM_LEGACY);
}
