// SPDX-License-Identifier: Apache-2.0
// fakegpu makes, shows and disturbs the GPUs of a simulated node.
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "state/mig.h"

static const char usage[] =
    "usage: fakegpu COMMAND --state FILE [options]\n"
    "\n"
    "  create  --board B --gpus N [--mig on|off] [--seed S] [--driver V] [--root DIR [--libs DIR]] [--force]\n"
    "          [--cgroups DIR] [--limits dmem|misc] [--dmem-anywhere]\n"
    "          makes a node's GPUs; UUIDs follow from the seed (default: the file's path); drivers from 615 on have\n"
    "          memory limits for the cgroups below DIR (default: /sys/fs/cgroup), by the backend dmem (default) or misc;\n"
    "          --dmem-anywhere takes each to have the controller of dmem, where the kernel lacks it\n"
    "  add     --board B --gpus N [--mig on|off]    more GPUs for the same node\n"
    "  boards                                       the boards there are\n"
    "  show    [--json]                             GPUs, instances, processes, faults\n"
    "  count                                        how often each library call was made\n"
    "  fault   --call NAME [--return CODE] [--delay-ms MS] [--gpu N] [--count K]\n"
    "          the next K calls (default 1; 0: every one) answer CODE, or come late\n"
    "  fault   --hang [--call NAME] [--gpu N]       calls do not return until --clear\n"
    "  fault   --lost --gpu N | --found --gpu N | --clear\n"
    "  xid     --gpu N --xid X [--instance PROFILE:START]\n"
    "  health  --gpu N [--recovery none|reset|reboot|drain-p2p|drain-reset] [--ecc COUNT]\n"
    "          [--remap none|pending|failed] [--brake none|thermal|power] [--virtual off|licensed|unlicensed]\n"
    "  attach  --gpu N --pid P --memory MIB [--instance PROFILE:START] [--stay]\n"
    "          a process on the GPU until it ends; with --stay until detached\n"
    "  detach  --pid P [--gpu N]\n"
    "  behave  [--timing on|off] [--linger-ms MS] [--blind on|off]\n"
    "          allocations take their real time; a dead process's memory stays that long;\n"
    "          in other PID namespaces NVML tells 0 for every process\n"
    "  locate  [--proc DIR] [--once]                tells CUDA programs their cgroups, from DIR/<pid>/cgroup (default: /proc)\n"
    "  mig     --gpu N --make PROFILE:START | --destroy PROFILE:START    as somebody does by hand\n"
    "  reset   --gpu N                              instances go, a pending MIG mode becomes current\n"
    "  reboot                                       resets all; Hopper and later forget the MIG mode\n"
    "  root    --root DIR [--libs DIR]              a driver root: libraries, device nodes, MIG minors\n";

int fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("fakegpu: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return 1;
}

int open_state(const struct options *options, struct fg_db *db) {
    if (options->state == NULL) return fail("--state FILE is missing");
    int err = fg_open(db, options->state);
    if (err == -EPROTO) return fail("%s is no state file of this version", options->state);
    if (err != 0) return fail("cannot open %s: %s", options->state, strerror(-err));
    return 0;
}

int chosen_gpu(const struct options *options, const struct fg_db *db) {
    long count = (long)fg_read(&db->state->gpu_count);
    if (options->gpu >= 0 && options->gpu < count) return (int)options->gpu;
    fail(options->gpu < 0 ? "--gpu N is missing" : "there is no GPU %ld; the node has %ld", options->gpu, count);
    return -1;
}

int chosen_instance(const struct options *options, const struct fg_db *db, int index, unsigned *gi, unsigned *ci) {
    *gi = *ci = FG_NO_INSTANCE;
    if (options->instance == NULL) return 0;
    const struct fg_gpu *gpu = &db->state->gpus[index];
    const char *colon = strrchr(options->instance, ':');
    struct fg_board board;
    fg_board_find(gpu->board, &board);
    for (int i = 0; colon != NULL && i < FG_MAX_GIS; i++) {
        const struct fg_gi *made = &gpu->gis[i];
        if (!fg_read(&made->used) || made->start != strtoul(colon + 1, NULL, 10)) continue;
        const char *name = board.profiles[made->profile].name;
        if (strlen(name) != (size_t)(colon - options->instance)) continue;
        if (strncmp(name, options->instance, strlen(name)) != 0) continue;
        *gi = made->id;
        for (unsigned id = 0; id < FG_MAX_CIS && *ci == FG_NO_INSTANCE; id++) {
            if (fg_ci_by_id(made, id) >= 0) *ci = id;
        }
        return 0;
    }
    return fail("GPU %d has no instance %s (write PROFILE:START)", index, options->instance);
}

static int number(const char *option, const char *text, long *value) {
    char *end;
    errno = 0;
    *value = strtol(text, &end, 10);
    if (errno != 0 || *end != '\0' || end == text || *value < 0) {
        return fail("%s wants a whole number, not \"%s\"", option, text);
    }
    return 0;
}

enum { OPTION_TEXT, OPTION_NUMBER, OPTION_FLAG };

struct known {
    const char *name;
    int kind;
    void *value;
};

static int parse(int argc, char **argv, struct options *o) {
    struct known known[] = {
        {"state", OPTION_TEXT, &o->state},       {"board", OPTION_TEXT, &o->board},
        {"mig", OPTION_TEXT, &o->mig},           {"seed", OPTION_TEXT, &o->seed},
        {"driver", OPTION_TEXT, &o->driver},     {"root", OPTION_TEXT, &o->root},
        {"libs", OPTION_TEXT, &o->libs},         {"call", OPTION_TEXT, &o->call},
        {"return", OPTION_TEXT, &o->result},     {"instance", OPTION_TEXT, &o->instance},
        {"gpu", OPTION_NUMBER, &o->gpu},         {"gpus", OPTION_NUMBER, &o->gpus},
        {"count", OPTION_NUMBER, &o->count},     {"pid", OPTION_NUMBER, &o->pid},
        {"memory", OPTION_NUMBER, &o->memory_mib}, {"delay-ms", OPTION_NUMBER, &o->delay_ms},
        {"xid", OPTION_NUMBER, &o->xid},         {"force", OPTION_FLAG, &o->force},
        {"json", OPTION_FLAG, &o->json},         {"lost", OPTION_FLAG, &o->lost},
        {"found", OPTION_FLAG, &o->found},       {"clear", OPTION_FLAG, &o->clear},
        {"stay", OPTION_FLAG, &o->stay},         {"timing", OPTION_TEXT, &o->timing},
        {"blind", OPTION_TEXT, &o->blind},       {"linger-ms", OPTION_NUMBER, &o->linger_ms},
        {"hang", OPTION_FLAG, &o->hang},         {"ecc", OPTION_NUMBER, &o->ecc},
        {"recovery", OPTION_TEXT, &o->recovery}, {"remap", OPTION_TEXT, &o->remap},
        {"brake", OPTION_TEXT, &o->brake},       {"virtual", OPTION_TEXT, &o->is_virtual},
        {"cgroups", OPTION_TEXT, &o->cgroups},   {"limits", OPTION_TEXT, &o->limits},
        {"proc", OPTION_TEXT, &o->proc},         {"once", OPTION_FLAG, &o->once},
        {"dmem-anywhere", OPTION_FLAG, &o->anywhere},
        {"make", OPTION_TEXT, &o->make},         {"destroy", OPTION_TEXT, &o->destroy},
    };
    enum { KNOWN = sizeof known / sizeof known[0] };
    struct option long_options[KNOWN + 1] = {{0}};
    for (int i = 0; i < KNOWN; i++) {
        int has = known[i].kind == OPTION_FLAG ? no_argument : required_argument;
        long_options[i] = (struct option){.name = known[i].name, .has_arg = has, .val = i + 256};
    }
    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        if (c < 256) return 1; // getopt has said why
        const struct known *k = &known[c - 256];
        if (k->kind == OPTION_TEXT) *(const char **)k->value = optarg;
        if (k->kind == OPTION_FLAG) *(int *)k->value = 1;
        if (k->kind == OPTION_NUMBER && number(k->name, optarg, k->value) != 0) return 1;
    }
    return optind < argc ? fail("do not know what to do with \"%s\"", argv[optind]) : 0;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int (*run)(const struct options *);
    } commands[] = {
        {"create", command_create}, {"add", command_add},       {"boards", command_boards}, {"show", command_show},
        {"count", command_count},   {"fault", command_fault},   {"xid", command_xid},       {"attach", command_attach},
        {"detach", command_detach}, {"reset", command_reset},   {"reboot", command_reboot}, {"root", command_root},
        {"behave", command_behave}, {"health", command_health}, {"locate", command_locate},
        {"mig", command_mig},
    };
    struct options options = {
        .gpu = -1, .gpus = -1, .count = -1, .pid = -1, .memory_mib = -1, .delay_ms = -1, .xid = -1, .linger_ms = -1,
        .ecc = -1};
    if (argc < 2 || strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0) {
        fputs(usage, argc < 2 ? stderr : stdout);
        return argc < 2 ? 2 : 0;
    }
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(commands[i].name, argv[1]) != 0) continue;
        if (parse(argc - 1, argv + 1, &options) != 0) return 2;
        if (options.state == NULL) options.state = getenv("FAKEGPU_STATE");
        return commands[i].run(&options);
    }
    fail("there is no command \"%s\"", argv[1]);
    fputs(usage, stderr);
    return 2;
}
