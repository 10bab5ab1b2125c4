// SPDX-License-Identifier: Apache-2.0
//
// Stands for processes of shares that keep to the gate: a thread for each share, which always has work or has it now and
// then. It works on the real files, with nothing of a GPU behind.
//
//   tenant [--drain US] [--rest US] [--work US] [--deaf] SHARE_DIRECTORY...
//
// With --work and --rest a share has work for so long and then none for so long. With --deaf nothing ever drains. When
// standard input ends it prints a line for each share: its directory, the nanoseconds that it ran, how many slices that
// were, and the longest time that it waited.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "sluice_abi.h"

static uint64_t drain_ns = 300000, rest_ns, work_ns = UINT64_MAX;
static int deaf;

struct share {
  const char *dir;
  const struct sluice_limits *limits;
  struct sluice_usage *usage;
  int bell;
  pthread_t thread;
  uint64_t ran, slices, longest;
};

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void rest(uint64_t ns) {
  struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
  nanosleep(&t, NULL);
}

static void fail(const char *what, const char *dir) {
  fprintf(stderr, "tenant: %s of %s: %s\n", what, dir, strerror(errno));
  exit(1);
}

static int open_in(const char *dir, const char *name, int flags) {
  char path[4096];
  snprintf(path, sizeof(path), "%s/%s", dir, name);
  int fd = open(path, flags | O_CLOEXEC);
  if (fd < 0) fail(name, dir);
  return fd;
}

static void begin(struct share *s) {
  int limits = open_in(s->dir, "limits", O_RDONLY), usage = open_in(s->dir, "usage", O_RDWR);
  s->limits = mmap(NULL, sizeof(*s->limits), PROT_READ, MAP_SHARED, limits, 0);
  s->usage = mmap(NULL, sizeof(*s->usage), PROT_READ | PROT_WRITE, MAP_SHARED, usage, 0);
  if (s->limits == MAP_FAILED || s->usage == MAP_FAILED) fail("mapping", s->dir);
  s->bell = open_in(s->dir, "bell", O_RDWR | O_NONBLOCK);
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = SLUICE_USAGE_LIFE_BYTE(0), .l_len = 1};
  if (fcntl(usage, F_SETLK, &lock) != 0) fail("locking", s->dir);
  s->usage->version = SLUICE_ABI_VERSION;
  s->usage->min_reader = SLUICE_ABI_MIN_READER;
  s->usage->slots_used = 1;
  s->usage->slots[0].stamp = (uint64_t)getpid();
  atomic_store((_Atomic uint32_t *)&s->usage->magic, SLUICE_USAGE_MAGIC);
}

static uint32_t word(const struct share *s) { return atomic_load((const _Atomic uint32_t *)&s->limits->gate.word); }

static uint64_t open_until(const struct share *s) {
  return atomic_load((const _Atomic uint64_t *)&s->limits->gate.open_until);
}

static void say(struct share *s, uint32_t sequence, uint32_t bits) {
  atomic_store((_Atomic uint64_t *)&s->usage->slots[0].pace, ((uint64_t)sequence << 3) | bits);
}

static void ring(const struct share *s) {
  if (write(s->bell, "", 1) < 0 && errno != EAGAIN) fail("ringing the bell", s->dir);
}

// wait_for waits until the word is another, or a time has come.
static void wait_for(const struct share *s, uint32_t seen, uint64_t until) {
  struct timespec t = {.tv_sec = (time_t)(until / 1000000000u), .tv_nsec = (long)(until % 1000000000u)};
  syscall(SYS_futex, &s->limits->gate.word, FUTEX_WAIT_BITSET, seen, &t, NULL, FUTEX_BITSET_MATCH_ANY);
}

static uint64_t earlier(uint64_t a, uint64_t b) { return a < b ? a : b; }

// slice runs while the gate is open and there is work, and says whether any is left.
static int slice(struct share *s, uint32_t seen, uint64_t *left) {
  uint32_t sequence = SLUICE_GATE_SEQUENCE(seen);
  uint64_t start = now(), end = *left == UINT64_MAX ? UINT64_MAX : start + *left;
  say(s, sequence, SLUICE_PACE_RUNS);
  for (;;) {
    uint64_t t = now(), until = open_until(s);
    if (word(s) != seen || t >= until || t >= end) break;
    wait_for(s, seen, earlier(earlier(until, end), t + 50000000u));
  }
  uint64_t stopped = now();
  int more = *left == UINT64_MAX || stopped < end;
  if (more) {
    say(s, sequence, SLUICE_PACE_RUNS | SLUICE_PACE_WANTS);
    ring(s);
  }
  while (deaf) pause();
  rest(drain_ns);
  uint64_t ran = now() - start;
  if (*left != UINT64_MAX) *left -= earlier(*left, stopped - start);
  s->ran += ran;
  s->slices++;
  atomic_fetch_add((_Atomic uint64_t *)&s->usage->gpu_time, ran);
  say(s, sequence, SLUICE_PACE_DRAINED | (more ? SLUICE_PACE_WANTS : 0));
  ring(s);
  return more;
}

static void *run(void *argument) {
  struct share *s = argument;
  prctl(PR_SET_TIMERSLACK, 1000);
  uint32_t last = UINT32_MAX;
  int wants = 0;
  uint64_t left = work_ns, since = now();
  for (;;) {
    uint32_t seen = word(s);
    if (SLUICE_GATE_STATE(seen) == SLUICE_GATE_OPEN && now() < open_until(s) && SLUICE_GATE_SEQUENCE(seen) != last) {
      last = SLUICE_GATE_SEQUENCE(seen);
      uint64_t waited = now() - since;
      if (waited > s->longest) s->longest = waited;
      wants = slice(s, seen, &left);
      if (!wants) {
        rest(rest_ns);
        left = work_ns;
      }
      since = now();
      continue;
    }
    if (!wants) {
      wants = 1;
      uint64_t pace = atomic_load((_Atomic uint64_t *)&s->usage->slots[0].pace);
      atomic_store((_Atomic uint64_t *)&s->usage->slots[0].pace, pace | SLUICE_PACE_WANTS);
      ring(s);
    }
    wait_for(s, seen, now() + 50000000u);
  }
  return NULL;
}

int main(int argc, char **argv) {
  int first = 1;
  for (; first < argc && strncmp(argv[first], "--", 2) == 0; first++) {
    if (strcmp(argv[first], "--deaf") == 0) {
      deaf = 1;
      continue;
    }
    if (first + 1 == argc) return 2;
    uint64_t us = strtoull(argv[first + 1], NULL, 10) * 1000u;
    if (strcmp(argv[first], "--drain") == 0) drain_ns = us;
    else if (strcmp(argv[first], "--rest") == 0) rest_ns = us;
    else if (strcmp(argv[first], "--work") == 0) work_ns = us;
    else return 2;
    first++;
  }
  int count = argc - first;
  struct share *shares = calloc((size_t)count + 1, sizeof(*shares));
  for (int i = 0; i < count; i++) {
    shares[i].dir = argv[first + i];
    begin(&shares[i]);
  }
  for (int i = 0; i < count; i++)
    if (pthread_create(&shares[i].thread, NULL, run, &shares[i]) != 0) fail("starting a thread", shares[i].dir);
  char byte;
  while (read(0, &byte, 1) > 0) {
  }
  for (int i = 0; i < count; i++)
    printf("%s %llu %llu %llu\n", shares[i].dir, (unsigned long long)shares[i].ran, (unsigned long long)shares[i].slices,
           (unsigned long long)shares[i].longest);
  fflush(stdout);
  _exit(0);
}
