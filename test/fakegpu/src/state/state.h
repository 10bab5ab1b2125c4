// SPDX-License-Identifier: Apache-2.0
// The state file: one node's GPUs, shared by every process that maps it.
//
// The layout is fixed and versioned. Every change is made under one kernel-held
// lock and prepared in full before a single word makes it visible, so a process
// killed anywhere leaves either the old or the new state and no lock behind.
#ifndef FAKEGPU_STATE_H
#define FAKEGPU_STATE_H

#include <pthread.h>
#include <stdint.h>
#include <sys/types.h>

#include "board.h"

#define FG_MAGIC 0x31555047454b4146ull // "FAKEGPU1"
#define FG_VERSION 4u

#define FG_MAX_GPUS 64
#define FG_MAX_GIS 16
#define FG_MAX_CIS 8
#define FG_LANES 256
#define FG_MAX_PROCS 1024
#define FG_MAX_FAULTS 32
#define FG_MAX_EVENTS 64
#define FG_MAX_CALLS 512
#define FG_MAX_OBJECTS 1024
#define FG_MAX_HOLDERS 16
#define FG_MAX_LIMITS 512
#define FG_CGROUP 256

#define FG_NO_INSTANCE 0xFFFFFFFFu

struct fg_ci {
    uint32_t used; // the word that makes the rest count
    uint32_t generation;
    uint32_t profile; // NVML_COMPUTE_INSTANCE_PROFILE_*
    uint32_t start;
    uint32_t size;
    uint32_t id;
};

struct fg_gi {
    uint32_t used;
    uint32_t generation;
    uint32_t profile; // index into the board's profiles
    uint32_t start;
    uint32_t id;
    uint32_t reserved;
    struct fg_ci cis[FG_MAX_CIS];
};

#define FG_MIG_CURRENT 1u
#define FG_MIG_PENDING 2u

// What can be wrong with a GPU, and what it can be.
#define FG_SIGN_REMAP_PENDING 1u
#define FG_SIGN_REMAP_FAILED 2u
#define FG_SIGN_THERMAL 4u
#define FG_SIGN_POWER 8u
#define FG_SIGN_VIRTUAL 16u
#define FG_SIGN_LICENSED 32u

struct fg_gpu {
    char board[32];
    char uuid[48];
    uint32_t minor;
    uint32_t bus;
    uint32_t numa;
    uint32_t mig; // FG_MIG_CURRENT | FG_MIG_PENDING
    uint32_t lost;
    uint32_t recovery;    // what the driver wants done, NVML's number
    uint32_t signs;       // FG_SIGN_*
    uint32_t uncorrected; // memory errors since the last reset
    struct fg_gi gis[FG_MAX_GIS];
};

enum fg_proc_kind {
    FG_PROC_FREE = 0,
    FG_PROC_ATTACHED = 1, // by the CLI; alive while its process is
    FG_PROC_STAYING = 2,  // by the CLI; until detached
    FG_PROC_CUDA = 3,     // a context; alive while its owner holds its lock byte
    FG_PROC_ASKING = 4,   // only asks NVML about memory; alive as a context's owner is
};

// Whether somebody has said in which cgroup a process is.
enum fg_located {
    FG_UNLOCATED = 0,
    FG_LOCATED = 1,
    FG_NOT_LOCATED = 2, // nobody came to say it in time: no limit binds it
};

struct fg_proc {
    uint32_t kind; // fg_proc_kind, the word that makes the rest count
    uint32_t pid;
    uint64_t start_time; // of the process, in clock ticks since boot
    uint64_t pid_ns;     // inode of the PID namespace that pid belongs to
    uint64_t bytes;   // held, contexts included
    uint64_t managed; // resident managed memory: the GPU shows it, the process's figure does not
    uint64_t until;   // CLOCK_MONOTONIC ns to which the memory of a dead process stays; 0 while it lives
    uint32_t gpu;
    uint32_t gi; // ids, FG_NO_INSTANCE for the whole GPU
    uint32_t ci;
    uint32_t lane;     // in which its work is queued; FG_LANES for none
    uint32_t contexts; // NVML lists a process that has at least one
    uint32_t located;  // fg_located, the word that makes the path count
    char cgroup[FG_CGROUP]; // below the root of the node's cgroup v2 file system: "/a/b", "" for the root
};

// Memory that processes can hand to each other. It stays while a process holds it or a descriptor of it is open; of the
// holders the first pays, and the next when that one is gone.
struct fg_object {
    uint32_t used; // the word that makes the rest count
    uint32_t generation;
    uint32_t gpu;
    uint32_t gi; // as in fg_proc
    uint64_t bytes;
    uint32_t exported; // there may be descriptors
    uint32_t reserved;
    uint32_t holders[FG_MAX_HOLDERS]; // process slots plus one, 0: none
};

struct fg_fault {
    uint32_t used;
    int32_t result; // the NVML return code; 0 with a delay only slows the call
    int32_t gpu;    // -1: any
    int32_t left;   // how often still; negative: for ever
    uint32_t delay_ms;
    uint32_t hangs; // the call returns when the fault is cleared
    char call[72];  // "*": every call
};

// Where the driver keeps the memory limits of cgroups.
enum fg_limits_backend {
    FG_LIMITS_DMEM = 0, // the kernel's controller: hierarchical
    FG_LIMITS_MISC = 1, // a map of the driver's own: flat
};

#define FG_NO_LIMIT UINT64_MAX // NVML_DEVICE_MEMORY_LIMIT_MAX

// The limits of a cgroup on a GPU. They go with the cgroup; what it had reserved of its ancestors' memory does not.
struct fg_limit {
    uint32_t used; // the word that makes the rest count
    uint32_t gpu;
    uint32_t gone; // the cgroup is no more: what is left is the reservation
    uint32_t reserved;
    uint64_t identity; // of the cgroup's directory
    uint64_t soft, hard; // bytes
    char cgroup[FG_CGROUP]; // as in fg_proc
};

struct fg_event {
    uint64_t type; // nvmlEventType*
    uint64_t data; // the XID of a critical error
    uint32_t gpu;
    uint32_t gi;
    uint32_t ci;
    uint32_t reserved;
};

struct fg_state {
    uint64_t magic;
    uint32_t version;
    uint32_t size;
    uint64_t seed;
    char driver[32];
    uint32_t gpu_count;
    uint32_t event_count; // events ever written; the newest lies at (count - 1) % FG_MAX_EVENTS
    uint64_t home_pid_ns; // the PID namespace that the node was made in
    uint32_t timing;      // an allocation takes the time that it takes on a real GPU
    uint32_t linger_ms;   // how long the memory of a dead process stays
    uint32_t blind;       // in another PID namespace than home NVML tells 0 for each process
    uint32_t object_count; // generations given to objects so far
    uint32_t limits_backend; // fg_limits_backend
    uint32_t limit_count;    // places of the table that were ever used
    uint32_t wanted;         // counts processes that want to be told their cgroup; who tells them waits on it
    uint32_t dmem_anywhere;  // every cgroup is taken to have the controller of the backend dmem
    char cgroup_root[FG_CGROUP]; // where the node's cgroup v2 file system is mounted
    struct fg_fault faults[FG_MAX_FAULTS];
    struct fg_event events[FG_MAX_EVENTS];
    uint64_t calls[FG_MAX_CALLS]; // by position in src/nvml/symbols.txt
    struct fg_proc procs[FG_MAX_PROCS];
    struct fg_object objects[FG_MAX_OBJECTS];
    struct fg_limit limits[FG_MAX_LIMITS];
    struct fg_gpu gpus[FG_MAX_GPUS];
};

struct fg_engine;

// One opening of a state file in this process.
struct fg_db {
    int fd;
    char path[512];
    struct fg_state *state;
    struct fg_engine *engine; // in the same mapping
    uint64_t owned[FG_MAX_PROCS / 64]; // a bit for each slot whose lock is held here
    uint64_t buried;                   // when the lanes of dead processes were last looked for
    pthread_mutex_t mutex; // threads of this process; the kernel's lock is for processes
};

// Where the state lies for programs whose environment names none in FAKEGPU_STATE: a real driver needs no variable either.
#define FG_STATE_PATH "/run/fakegpu/state"
const char *fg_state_path(void);

// All functions that can fail return 0, or a negative errno.
// -EPROTO: not a state file of this version.
int fg_open(struct fg_db *db, const char *path);
void fg_close(struct fg_db *db);
// Makes a new file, complete before it appears under its name.
int fg_create(const char *path, const struct fg_state *initial);

void fg_lock(struct fg_db *db);
void fg_unlock(struct fg_db *db);

// For pthread_atfork: a child must not share its parent's lock.
void fg_before_fork(struct fg_db *db);
void fg_after_fork_parent(struct fg_db *db);
void fg_after_fork_child(struct fg_db *db);   // opens the file for itself
void fg_after_fork_abandon(struct fg_db *db); // or will not use it again

// Takes, and tests, the lock byte that says a CUDA context's owner lives.
int fg_hold_slot(struct fg_db *db, int slot);
void fg_release_slot(struct fg_db *db, int slot);
int fg_slot_held(struct fg_db *db, int slot);
int fg_owned(const struct fg_db *db, uint32_t slot); // it is this opening that holds it
// A lock of the kind whose holder's PID can be asked for: it is this process's, and goes when the process closes any
// descriptor of the file.
int fg_show_pid(struct fg_db *db, int slot);
// The PID of the process that shows it, as this process would name it; 0 where nobody does.
unsigned fg_shown_pid(struct fg_db *db, int slot);
// A descriptor that keeps the object, and says which it is; a negative errno when it cannot be made.
int fg_object_descriptor(struct fg_db *db, int object);
int fg_object_described(struct fg_db *db, int descriptor); // the object, or -1
int fg_object_open(struct fg_db *db, int object);          // whether such a descriptor is open

// The word that makes a change visible is stored last and read first.
static inline void fg_publish(uint32_t *word, uint32_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }
static inline uint32_t fg_read(const uint32_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

#endif
