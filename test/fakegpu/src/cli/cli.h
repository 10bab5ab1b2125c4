// SPDX-License-Identifier: Apache-2.0
// What the commands of fakegpu share.
#ifndef FAKEGPU_CLI_H
#define FAKEGPU_CLI_H

#include "state/board.h"
#include "state/state.h"

// The options a command line can hold; NULL or the default where one is absent.
struct options {
    const char *state, *board, *mig, *seed, *driver, *root, *libs, *call, *result, *instance, *name, *timing, *blind;
    const char *recovery, *remap, *brake, *is_virtual, *cgroups, *limits, *proc, *make, *destroy;
    long gpu, gpus, count, pid, memory_mib, delay_ms, xid, linger_ms, ecc; // -1: absent
    int force, json, lost, found, clear, stay, hang, once, anywhere;
};

// Prints "fakegpu: ..." to standard error and returns 1, for a command to return.
int fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Opens the state that the options name. Says why when it cannot.
int open_state(const struct options *options, struct fg_db *db);
// The GPU that --gpu names, or -1 after saying what is wrong.
int chosen_gpu(const struct options *options, const struct fg_db *db);
// "-", or "PROFILE:START gi/ci" of an instance, into ids; FG_NO_INSTANCE without --instance.
int chosen_instance(const struct options *options, const struct fg_db *db, int gpu, unsigned *gi, unsigned *ci);

int command_create(const struct options *options);
int command_add(const struct options *options);
int command_boards(const struct options *options);
int command_show(const struct options *options);
int command_count(const struct options *options);
int command_fault(const struct options *options);
int command_xid(const struct options *options);
int command_health(const struct options *options);
int command_attach(const struct options *options);
int command_detach(const struct options *options);
int command_reset(const struct options *options);
int command_reboot(const struct options *options);
int command_mig(const struct options *options);
int command_behave(const struct options *options);
int command_locate(const struct options *options);
int command_root(const struct options *options);

#endif
