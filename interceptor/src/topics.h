// SPDX-License-Identifier: Apache-2.0
//
// What topics tell each other: memory may end through another topic's call than it began with.

#ifndef SLUICE_TOPICS_H
#define SLUICE_TOPICS_H

#include "process.h"

// hooks_linear.c: what an entry held is given back.
void linear_forget(struct process *process, const struct track_entry *entry);

// hooks_pool.c: memory of a pool was freed, in the order of a stream or at once; pools that may have shrunk are looked at.
void pool_freed(struct process *process, const struct track_entry *entry, bool at_once);
void pool_settle_dirty(struct process *process);

// hooks_graph.c: memory of a graph may have been freed; the same look; whether a stream is being captured.
void graph_freed(struct process *process);
void graph_settle_dirty(struct process *process);
bool stream_captures(struct process *process, cu_stream stream, bool per_thread);
// A capture more, or one less.
void capture_counted(struct process *process, int change);

// hooks_vmm.c: an array, or a multicast object, lets go of the memory that was mapped into it.
void vmm_unbind_all(struct process *process, const void *object);

// hooks_context.c: an entry was put for what the context of that number owns. Where another thread has destroyed the context
// meanwhile, what was charged for it is given back.
void context_has(struct process *process, const struct track_entry *put, uint32_t number);

// The same: looks at all that may have shrunk, where something may.
void settle_dirty(struct process *process);

// hooks_shared.c: memory that was exported ends.
void export_ended(struct process *process, cu_ptr pointer);
// Imports end by frees too.
void import_freed(struct process *process, cu_ptr pointer);

#endif // SLUICE_TOPICS_H
