// SPDX-License-Identifier: Apache-2.0
// Executable graphs. Their memory is the device's graph memory: it grows in chunks when a graph is uploaded or launched, is
// used again by the next, and stays until it is trimmed (as measured on an H200).
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "graph.h"

#define FLAG_AUTO_FREE 1ull

struct step {
    int type;
    struct graph_memory *memory;
    cu_pointer freed;
    struct fg_piece piece;
};

struct cu_exec_st {
    struct cu_exec_st *next;
    unsigned long long flags;
    size_t count;
    struct step *steps;
};

static int known(const struct core *core, cu_exec exec) {
    for (cu_exec e = core->execs; e != NULL; e = e->next) {
        if (e == exec) return 1;
    }
    return 0;
}

static cu_result take_steps(cu_exec exec, const struct cu_graph_st *graph) {
    struct step *steps = calloc(graph->count + 1, sizeof *steps);
    if (steps == NULL) return CU_OUT_OF_MEMORY;
    size_t at = 0;
    for (const struct cu_node_st *n = graph->first; n != NULL; n = n->next) {
        steps[at++] = (struct step){.type = n->type, .memory = n->memory, .freed = n->freed, .piece = n->piece};
        if (n->memory != NULL) n->memory->references++;
    }
    exec->steps = steps;
    exec->count = at;
    return CU_SUCCESS;
}

static void drop_steps(struct core *core, cu_exec exec) {
    for (size_t i = 0; i < exec->count; i++) {
        if (exec->steps[i].memory != NULL) graph_memory_put(core, exec->steps[i].memory);
    }
    free(exec->steps);
    exec->steps = NULL;
    exec->count = 0;
}

static cu_result instantiate(cu_exec *out, cu_graph graph, unsigned long long flags) {
    struct core *core;
    if (out == NULL) return CU_INVALID_VALUE;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    cu_exec made = graph_known(core, graph) ? calloc(1, sizeof *made) : NULL;
    result = !graph_known(core, graph) ? CU_INVALID_VALUE : made == NULL ? CU_OUT_OF_MEMORY : take_steps(made, graph);
    if (result == CU_SUCCESS) {
        made->flags = flags;
        made->next = core->execs;
        core->execs = made;
        *out = made;
    } else {
        free(made);
    }
    core_leave(core);
    return result;
}

CU_API cu_result cuGraphInstantiate(cu_exec *exec, cu_graph graph, cu_node *wrong, char *log, size_t room) {
    if (wrong != NULL) *wrong = NULL;
    if (log != NULL && room > 0) log[0] = '\0';
    return instantiate(exec, graph, 0);
}

CU_API cu_result cuGraphInstantiate_v2(cu_exec *exec, cu_graph graph, cu_node *wrong, char *log, size_t room) {
    return cuGraphInstantiate(exec, graph, wrong, log, room);
}

CU_API cu_result cuGraphInstantiateWithFlags(cu_exec *exec, cu_graph graph, unsigned long long flags) {
    return instantiate(exec, graph, flags);
}

struct instantiate_parameters {
    unsigned long long flags;
    cu_stream upload;
    cu_node wrong;
    int result;
};

CU_API cu_result cuGraphInstantiateWithParams(cu_exec *exec, cu_graph graph, struct instantiate_parameters *parameters) {
    if (parameters == NULL) return CU_INVALID_VALUE;
    parameters->wrong = NULL;
    cu_result result = instantiate(exec, graph, parameters->flags);
    parameters->result = result != CU_SUCCESS;
    return result;
}

CU_API cu_result cuGraphExecDestroy(cu_exec exec) {
    struct core *core;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    if (known(core, exec)) {
        for (cu_exec *link = &core->execs; *link != NULL; link = &(*link)->next) {
            if (*link != exec) continue;
            *link = exec->next;
            break;
        }
        drop_steps(core, exec);
        free(exec);
    } else {
        result = CU_INVALID_VALUE;
    }
    core_leave(core);
    return result;
}

CU_API cu_result cuGraphExecUpdate_v2(cu_exec exec, cu_graph graph, void *information) {
    struct core *core;
    (void)information;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    result = known(core, exec) && graph_known(core, graph) ? CU_SUCCESS : CU_INVALID_VALUE;
    if (result == CU_SUCCESS && graph->count != exec->count) result = 910; // CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE
    if (result == CU_SUCCESS) {
        drop_steps(core, exec);
        result = take_steps(exec, graph);
    }
    core_leave(core);
    return result;
}

CU_API cu_result cuGraphExecUpdate(cu_exec exec, cu_graph graph, cu_node *wrong, int *outcome) {
    if (wrong != NULL) *wrong = NULL;
    cu_result result = cuGraphExecUpdate_v2(exec, graph, NULL);
    if (outcome != NULL) *outcome = result == CU_SUCCESS ? 0 : 1;
    return result;
}

static struct graph_memory *memory_at(cu_pointer pointer) {
    const struct allocation *found = space_at(pointer);
    return found != NULL && found->range->kind == SPACE_GRAPH ? found->range->owner : NULL;
}

// The most that the graph has at one time on the device, above what is there before it.
static uint64_t peak(const struct cu_exec_st *exec, int device) {
    uint64_t most = 0;
    int64_t now = 0;
    for (size_t i = 0; i < exec->count; i++) {
        const struct step *s = &exec->steps[i];
        const struct graph_memory *freed = s->type == CU_NODE_FREE ? memory_at(s->freed) : NULL;
        if (s->memory != NULL && s->memory->device == device) now += (int64_t)s->memory->size;
        if (freed != NULL && freed->device == device) now -= (int64_t)freed->size;
        if (now > 0 && (uint64_t)now > most) most = (uint64_t)now;
    }
    return most;
}

// Makes room for a run on every device that it uses.
static cu_result reserve(struct core *core, const struct cu_exec_st *exec) {
    for (int i = 0; i < core->device_count; i++) {
        struct device *device = &core->devices[i];
        uint64_t most = peak(exec, i), wanted = round_up(device->graph_live + most, CHUNK_BYTES);
        if (most == 0 || wanted <= device->graph_reserved) continue;
        cu_result result = core_charge(core, device, wanted - device->graph_reserved);
        if (result != CU_SUCCESS) return result;
        device->graph_reserved = wanted;
        if (wanted > device->graph_reserved_high) device->graph_reserved_high = wanted;
    }
    return CU_SUCCESS;
}

// What an earlier launch allocated and nobody freed stands in the way of another.
static cu_result free_earlier(struct core *core, const struct cu_exec_st *exec) {
    for (size_t i = 0; i < exec->count; i++) {
        const struct graph_memory *memory = exec->steps[i].memory;
        if (memory == NULL || !memory->live) continue;
        if (!(exec->flags & FLAG_AUTO_FREE)) return CU_INVALID_VALUE;
        graph_memory_free(core, space_at(memory->at));
    }
    return CU_SUCCESS;
}

// Plain kernels one after another are one piece of work: a graph is launched at once.
static void run(struct core *core, const struct cu_exec_st *exec, cu_stream stream) {
    struct fg_piece together = {0};
    for (size_t i = 0; i < exec->count; i++) {
        const struct step *s = &exec->steps[i];
        struct graph_memory *freed = s->type == CU_NODE_FREE ? memory_at(s->freed) : NULL;
        if (s->memory != NULL) {
            s->memory->live = 1;
            core->devices[s->memory->device].graph_live += s->memory->size;
        }
        if (freed != NULL && freed->live) graph_memory_free(core, space_at(s->freed));
        if (s->piece.meeting == 0 && s->piece.ns != FG_ENDLESS) {
            together.ns += s->piece.ns;
            continue;
        }
        if (together.ns > 0) work_queue(core, stream, &together);
        together.ns = 0;
        work_queue(core, stream, &s->piece);
    }
    if (together.ns > 0) work_queue(core, stream, &together);
}

static cu_result start_on(struct core *core, cu_exec exec, cu_stream stream, int launch) {
    if (stream->capture != NULL) return launch ? capture_work(stream, NULL) : capture_break(stream);
    cu_result result = capture_implicit(core, stream);
    if (result == CU_SUCCESS && launch) result = free_earlier(core, exec);
    if (result == CU_SUCCESS) result = reserve(core, exec);
    if (result == CU_SUCCESS && launch) run(core, exec, stream);
    return result;
}

static cu_result start(cu_exec exec, cu_stream handle, int launch) {
    struct core *core;
    cu_context context;
    cu_result result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    cu_stream stream = core_stream(context, handle);
    if (stream == NULL || !known(core, exec)) {
        result = stream == NULL ? CU_INVALID_HANDLE : CU_INVALID_VALUE;
        core_leave(core);
    } else {
        result = start_on(core, exec, stream, launch);
        work_leave(core, context);
    }
    return result;
}

CU_API cu_result cuGraphUpload(cu_exec exec, cu_stream stream) { return start(exec, stream, 0); }
CU_API cu_result cuGraphLaunch(cu_exec exec, cu_stream stream) { return start(exec, stream, 1); }

CU_API cu_result cuDeviceGraphMemTrim(cu_device index) {
    struct core *core;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    struct device *device = core_device(core, index);
    if (device != NULL) {
        uint64_t needed = round_up(device->graph_live, CHUNK_BYTES);
        uint64_t less = device->graph_reserved > needed ? device->graph_reserved - needed : 0;
        device->graph_reserved -= less;
        if (less > 0) core_refund(core, device, less);
    }
    core_leave(core);
    return device == NULL ? CU_INVALID_DEVICE : CU_SUCCESS;
}

// The driver calls all that is reserved used.
CU_API cu_result cuDeviceGetGraphMemAttribute(cu_device index, int attribute, void *value) {
    struct core *core;
    if (value == NULL || attribute < 0 || attribute > 3) return CU_INVALID_VALUE;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    const struct device *device = core_device(core, index);
    if (device != NULL) {
        uint64_t answer = attribute % 2 == 0 ? device->graph_reserved : device->graph_reserved_high;
        memcpy(value, &answer, sizeof answer);
    }
    core_leave(core);
    return device == NULL ? CU_INVALID_DEVICE : CU_SUCCESS;
}

CU_API cu_result cuDeviceSetGraphMemAttribute(cu_device index, int attribute, void *value) {
    struct core *core;
    if (value == NULL || (attribute != 1 && attribute != 3)) return CU_INVALID_VALUE;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    struct device *device = core_device(core, index);
    if (device != NULL) device->graph_reserved_high = device->graph_reserved;
    core_leave(core);
    return device == NULL ? CU_INVALID_DEVICE : CU_SUCCESS;
}
