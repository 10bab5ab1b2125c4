// SPDX-License-Identifier: Apache-2.0
#include "object.h"

static int held(const struct fg_object *o) {
    for (int i = 0; i < FG_MAX_HOLDERS; i++) {
        if (o->holders[i] != 0) return 1;
    }
    return 0;
}

int fg_object_add(struct fg_db *db, int slot, uint64_t bytes) {
    const struct fg_proc *p = &db->state->procs[slot];
    for (int i = 0; i < FG_MAX_OBJECTS; i++) {
        struct fg_object *o = &db->state->objects[i];
        if (fg_read(&o->used)) continue;
        *o = (struct fg_object){.generation = ++db->state->object_count, .gpu = p->gpu, .gi = p->gi, .bytes = bytes};
        o->holders[0] = (uint32_t)slot + 1;
        fg_publish(&o->used, 1);
        return i;
    }
    return -1;
}

int fg_object_hold(struct fg_db *db, int object, int slot) {
    struct fg_object *o = &db->state->objects[object];
    for (int i = 0; i < FG_MAX_HOLDERS; i++) {
        if (o->holders[i] != 0) continue;
        fg_publish(&o->holders[i], (uint32_t)slot + 1);
        return 0;
    }
    return -1;
}

// The one after the leaver moves up, so that the order in which they came stays.
static void leave(struct fg_object *o, int slot) {
    int to = 0;
    for (int i = 0; i < FG_MAX_HOLDERS; i++) {
        uint32_t holder = o->holders[i];
        if (holder == (uint32_t)slot + 1) continue;
        fg_publish(&o->holders[to++], holder);
    }
    while (to < FG_MAX_HOLDERS) fg_publish(&o->holders[to++], 0);
}

static void collect(struct fg_db *db, int object) {
    struct fg_object *o = &db->state->objects[object];
    if (held(o) || (fg_read(&o->exported) && fg_object_open(db, object))) return;
    fg_publish(&o->used, 0);
}

void fg_object_drop(struct fg_db *db, int object, int slot) {
    leave(&db->state->objects[object], slot);
    collect(db, object);
}

int fg_object_held(struct fg_db *db, int slot) {
    int count = 0;
    for (int i = 0; i < FG_MAX_OBJECTS; i++) {
        const struct fg_object *o = &db->state->objects[i];
        for (int h = 0; fg_read(&o->used) && h < FG_MAX_HOLDERS; h++) count += o->holders[h] == (uint32_t)slot + 1;
    }
    return count;
}

void fg_object_forget(struct fg_db *db, int slot) {
    for (int i = 0; i < FG_MAX_OBJECTS; i++) {
        struct fg_object *o = &db->state->objects[i];
        if (fg_read(&o->used)) leave(o, slot);
    }
}

uint64_t fg_object_bytes(struct fg_db *db, unsigned gpu, unsigned gi) {
    uint64_t sum = 0;
    for (int i = 0; i < FG_MAX_OBJECTS; i++) {
        struct fg_object *o = &db->state->objects[i];
        if (!fg_read(&o->used)) continue;
        collect(db, i);
        if (!fg_read(&o->used) || o->gpu != gpu || (gi != FG_NO_INSTANCE && o->gi != gi)) continue;
        sum += o->bytes;
    }
    return sum;
}

uint64_t fg_object_paid(struct fg_db *db, int slot) {
    uint64_t sum = 0;
    for (int i = 0; i < FG_MAX_OBJECTS; i++) {
        const struct fg_object *o = &db->state->objects[i];
        if (fg_read(&o->used) && o->holders[0] == (uint32_t)slot + 1) sum += o->bytes;
    }
    return sum;
}
