// SPDX-License-Identifier: Apache-2.0
//
// The contract between the node agent and whatever runs inside a tenant's container: which bytes lie where in the files
// of a share, who owns each word and how it is changed. The Go half is node-agent/limits; a test compiles this header
// and compares every offset with it, so neither side can move a field alone.
//
// A share is what one allocation result of a claim grants. Inside a container its files are
// /run/sluice/<claim uid>/<result index>/limits (and, from the version that adds it, usage). Several shares of one device
// in one container add up, ordered by (claim uid, result index).
//
// Rules for every version:
//   - The layout only grows: a field never moves, shrinks or changes its meaning. New words take reserved space.
//   - A reader compares min_reader with the newest version it knows and gives up where min_reader is larger. It never
//     asks for an equal version.
//   - `version` is fixed when the share is made and stays for its life.
//   - Every word is naturally aligned, at most 8 bytes and meaningful by itself. The writer stores it with release, the
//     reader loads it with acquire. There is no lock, no sequence counter and no wider load: a writer killed at any
//     point must not stall a reader, and wider atomic loads may write, which a read-only page answers with SIGSEGV.
//   - Byte order is the machine's.

#ifndef SLUICE_ABI_H
#define SLUICE_ABI_H

#include <stddef.h>
#include <stdint.h>

// The version this header describes, and the oldest reader that understands a page written by it. Version 2 gave the gate its
// words and the ledger the words of pacing; a library of version 1 takes no part in the gate.
#define SLUICE_ABI_VERSION 2u
#define SLUICE_ABI_MIN_READER 1u

// The first word of a complete limits page: "SLCE" in the byte order of x86-64 and arm64.
#define SLUICE_LIMITS_MAGIC 0x45434c53u

// A limits file is exactly this long: one page, mapped whole.
#define SLUICE_LIMITS_SIZE 4096u

// Where the gate's words will lie: cache lines of their own, because they change at every slice and all else hardly ever.
#define SLUICE_LIMITS_GATE_OFFSET 128u
#define SLUICE_LIMITS_GATE_SIZE 128u

// Bits of sluice_limits.enforce. Without a bit the amount is only counted, by the scheduler and by the agent.
enum sluice_enforce {
  SLUICE_ENFORCE_MEMORY = 1u << 0,   // memory_limit is held inside the processes
  SLUICE_ENFORCE_COMPUTE = 1u << 1,  // compute_share is held inside the processes
};

// Values of sluice_limits.policy.
enum sluice_policy {
  SLUICE_POLICY_SHARE = 0,  // at least compute_share of the GPU while others want it; idle time may be used
  SLUICE_POLICY_CAP = 1,    // never more than compute_share, even where the GPU is idle
};

// States of a gate, the lowest three bits of sluice_gate.word.
enum sluice_gate_state {
  SLUICE_GATE_NONE = 0,     // nobody arbitrates: processes pace themselves
  SLUICE_GATE_CLOSED = 1,   // others have the GPU, or nobody here wanted it
  SLUICE_GATE_OPEN = 2,     // work may be launched until open_until
  SLUICE_GATE_CLOSING = 3,  // the slice is over before open_until: launch nothing more, say when all is drained
  SLUICE_GATE_OVERRUN = 4,  // what was launched did not drain in time; others go on beside it
};

#define SLUICE_GATE_STATE(word) ((word) & 7u)
#define SLUICE_GATE_SEQUENCE(word) ((word) >> 3)
#define SLUICE_FINISH_SEQUENCE(finish) ((uint32_t)((finish) >> 32))
#define SLUICE_FINISH_LAUNCHES(finish) ((uint32_t)(finish))

// Bits of sluice_gate.flags.
enum sluice_gate_flag {
  SLUICE_GATE_CONTENDED = 1u << 0,  // others want the GPU: say at once when there is nothing to run
};

// struct sluice_gate is how the node's arbiter hands out the GPU's time. It holds only while the heartbeat is fresh and the state
// is not NONE; without that every process paces itself to compute_share, divided by the processes of the share that have work.
// Of several shares of one device in a container, one open gate is enough.
struct sluice_gate {
  // {sequence, state}: a futex. The sequence goes up by one whenever the gate opens, and nowhere else; it wraps at 2^29.
  // open_until, flags and finish are stored before it.
  uint32_t word;
  // Bits of enum sluice_gate_flag; may change while the gate is open.
  uint32_t flags;
  // CLOCK_MONOTONIC in ns at which an open gate shuts by itself, so that a late arbiter cannot stretch a slice; UINT64_MAX where
  // nobody else wants the GPU. May be moved later while the gate is open.
  uint64_t open_until;
  // Of a tenant on several GPUs: how many launches of the slice each process may complete, also after its end, in a slice that
  // is over, so that a kernel that waits for its peer on another GPU gets it. {sequence, launches}, 32 bits each from above; holds
  // for that sequence only, also after DRAINED. Zero for a tenant on one GPU.
  uint64_t finish;
  uint8_t reserved[SLUICE_LIMITS_GATE_SIZE - 24];
};

_Static_assert(sizeof(struct sluice_gate) == SLUICE_LIMITS_GATE_SIZE, "the gate fills its place");
_Static_assert(offsetof(struct sluice_gate, word) == 0, "gate word moved");
_Static_assert(offsetof(struct sluice_gate, flags) == 4, "gate flags moved");
_Static_assert(offsetof(struct sluice_gate, open_until) == 8, "open_until moved");
_Static_assert(offsetof(struct sluice_gate, finish) == 16, "finish moved");

// struct sluice_limits is the file `limits`. The agent alone writes it; containers have it as a read-only bind mount of the
// file. It is changed in place, never replaced, since a running container keeps the page it has mapped.
//
// A reader trusts it only where it is a regular file owned by the host's root, on a read-only mount and on the same
// device (st_dev) as the library that the agent mounted; root inside a container can make a directory that looks alike.
//
// Owner of every word: the agent. "Constant" words are written before the magic and never again; the others may be
// stored at any time, each by itself.
struct sluice_limits {
  // Constant. SLUICE_LIMITS_MAGIC, stored last: a page without it is not complete and grants nothing.
  uint32_t magic;
  // Constant. The version whose words this page carries.
  uint32_t version;
  // Constant. The oldest version whose reader may act on this page.
  uint32_t min_reader;
  uint32_t reserved0;

  // Constant. The device as cuDeviceGetUuid_v2 gives it: the GPU's, or the MIG instance's.
  uint8_t uuid[16];
  // Constant. The physical GPU under the device; equal to uuid where the device is a whole GPU.
  uint8_t parent_uuid[16];

  // Bytes of device memory that all processes of the share may hold together, contexts included.
  uint64_t memory_limit;
  // Bytes one process's context costs on this device, as the agent measured it, or its safe figure until it has.
  uint64_t context;
  // Bytes to charge beyond what the processes asked for, such as modules: the agent's correction, 0 until it has one. It is
  // charged with each context that is made from then on, beyond `context`.
  uint64_t overhead;

  // Hundredths of a percent of the device's time, 10000 being all of it; 0 means best effort.
  uint32_t compute_share;
  // An enum sluice_policy.
  uint32_t policy;
  // Bits of enum sluice_enforce.
  uint32_t enforce;
  uint32_t reserved1;

  // For words that are read as seldom as those above. Zero.
  uint8_t reserved2[40];
  // How the agent opens and closes the share's turn on the GPU. Zero in version 1.
  struct sluice_gate gate;
  // For later versions. Zero.
  uint8_t reserved3[SLUICE_LIMITS_SIZE - SLUICE_LIMITS_GATE_OFFSET - SLUICE_LIMITS_GATE_SIZE];
};

_Static_assert(sizeof(struct sluice_limits) == SLUICE_LIMITS_SIZE, "limits is one page");
_Static_assert(_Alignof(struct sluice_limits) == 8, "limits holds 8-byte words");
_Static_assert(offsetof(struct sluice_limits, magic) == 0, "magic moved");
_Static_assert(offsetof(struct sluice_limits, version) == 4, "version moved");
_Static_assert(offsetof(struct sluice_limits, min_reader) == 8, "min_reader moved");
_Static_assert(offsetof(struct sluice_limits, uuid) == 16, "uuid moved");
_Static_assert(offsetof(struct sluice_limits, parent_uuid) == 32, "parent_uuid moved");
_Static_assert(offsetof(struct sluice_limits, memory_limit) == 48, "memory_limit moved");
_Static_assert(offsetof(struct sluice_limits, context) == 56, "context moved");
_Static_assert(offsetof(struct sluice_limits, overhead) == 64, "overhead moved");
_Static_assert(offsetof(struct sluice_limits, compute_share) == 72, "compute_share moved");
_Static_assert(offsetof(struct sluice_limits, policy) == 76, "policy moved");
_Static_assert(offsetof(struct sluice_limits, enforce) == 80, "enforce moved");
_Static_assert(offsetof(struct sluice_limits, gate) == SLUICE_LIMITS_GATE_OFFSET, "the gate moved");
_Static_assert(SLUICE_LIMITS_GATE_OFFSET % 64 == 0, "the gate begins a cache line");

// The first word of a usage page that a library has begun: "SLCU".
#define SLUICE_USAGE_MAGIC 0x55434c53u

// Processes that can share a ledger. One more is refused all memory and counted.
#define SLUICE_USAGE_SLOTS 1024u

// A usage file is exactly this long.
#define SLUICE_USAGE_SIZE (4096u + SLUICE_USAGE_SLOTS * 64u)

// What a slot's word counts in.
#define SLUICE_USAGE_UNIT 4096u

// Locks are classic POSIX byte-range locks on the usage file: the kernel drops them with their process, however it ends, and
// no child inherits them. Whoever holds the growth byte may raise credits, take back unused credit and clear dead slots. A
// process holds the life byte of its slot, the slot's first byte, for as long as it lives.
#define SLUICE_USAGE_GROWTH_BYTE 0u
#define SLUICE_USAGE_LIFE_BYTE(slot) (4096u + (slot) * 64u)

// struct sluice_usage_slot is what one process holds. Its process alone writes it; once the life byte is free, whoever holds
// the growth byte does.
struct sluice_usage_slot {
  // {credit, held}: what the process may hold in the high 32 bits, what it holds in the low 32, in units. held moves by
  // compare-and-swap within credit; credit grows under the growth byte only, so the sum of credits never passes the limit.
  uint64_t word;
  // Who has the slot: never twice the same, 0 where nobody has.
  uint64_t stamp;
  // Bytes of held that other processes may map, and bytes of others' that this process has mapped without paying.
  uint64_t exported;
  uint64_t imported;
  // The process as its own PID namespace numbers it, and the inode of that namespace. Only for showing.
  uint32_t pid;
  uint32_t pid_namespace;
  // What the library cost the process so far: thread CPU time of its start, and time waited for the growth byte, in ns.
  uint64_t start_cpu;
  uint64_t lock_wait;
  // {launches in the slice of that sequence, sequence of the gate that it speaks of, bits of enum sluice_pace}: 32, 29 and 3 bits
  // from above. 0 until it launched something on a paced device.
  uint64_t pace;
};

// Bits of sluice_usage_slot.pace. A process rings the bell when WANTS comes while its gate is shut, and when DRAINED comes.
// DRAINED ends its part in the slice of that sequence: before the slice is over, it says that there is nothing to run.
enum sluice_pace {
  SLUICE_PACE_WANTS = 1u << 0,    // somebody waits at the gate
  SLUICE_PACE_RUNS = 1u << 1,     // work was launched in the slice of that sequence and may not be done
  SLUICE_PACE_DRAINED = 1u << 2,  // all that was launched up to the end of the slice of that sequence is done
};

#define SLUICE_PACE_BITS(pace) ((uint32_t)(pace) & 7u)
#define SLUICE_PACE_SEQUENCE(pace) ((uint32_t)(pace) >> 3)
#define SLUICE_PACE_LAUNCHES(pace) ((uint32_t)((pace) >> 32))

// struct sluice_usage is the file `usage`, written by the library in every process of the share, read by the agent, which
// never trusts it. A file of zeros is a valid empty ledger.
struct sluice_usage {
  // SLUICE_USAGE_MAGIC once a process has registered; version and min_reader as in limits.
  uint32_t magic;
  uint32_t version;
  uint32_t min_reader;
  // One more than the highest slot that was ever used.
  uint32_t slots_used;
  // Bytes whose exporting process is gone while others of the share still map them. They count as held.
  uint64_t orphan;
  // The limit in bytes that the first process fixed, where no agent gives one; 0 under an agent.
  uint64_t limit;
  // Counters, each added to by any process: refusals by the limit; refusals by the driver within the limit; processes
  // that found no slot; slots cleared after their process; processes that had to register again; functions of the driver
  // handed out in a variant that the library does not know; bytes given above the limit, because they were there already.
  uint64_t refused;
  uint64_t refused_by_driver;
  uint64_t slots_full;
  uint64_t reaped;
  uint64_t registered_again;
  uint64_t unknown_variants;
  uint64_t forced;
  // Of pacing, each added to by any process: GPU time of finished work, from the GPU's own events, in ns; time that launches
  // waited at the gate, in ns, and how many waited; slices that ran something; slices whose work did not drain in time.
  uint64_t gpu_time;
  uint64_t gate_wait;
  uint64_t gate_waits;
  uint64_t slices;
  uint64_t overruns;
  // The longest single launch seen lately, in ns; stored, not added to. Only for showing.
  uint64_t longest;
  uint8_t reserved[3960];
  struct sluice_usage_slot slots[SLUICE_USAGE_SLOTS];
};

_Static_assert(sizeof(struct sluice_usage_slot) == 64, "a slot is a cache line");
_Static_assert(sizeof(struct sluice_usage) == SLUICE_USAGE_SIZE, "usage is header and slots");
_Static_assert(offsetof(struct sluice_usage, magic) == 0, "usage magic moved");
_Static_assert(offsetof(struct sluice_usage, slots_used) == 12, "slots_used moved");
_Static_assert(offsetof(struct sluice_usage, orphan) == 16, "orphan moved");
_Static_assert(offsetof(struct sluice_usage, limit) == 24, "usage limit moved");
_Static_assert(offsetof(struct sluice_usage, refused) == 32, "counters moved");
_Static_assert(offsetof(struct sluice_usage, gpu_time) == 88, "pacing's counters moved");
_Static_assert(offsetof(struct sluice_usage, slots) == 4096, "slots moved");
_Static_assert(offsetof(struct sluice_usage_slot, word) == 0, "word moved");
_Static_assert(offsetof(struct sluice_usage_slot, stamp) == 8, "stamp moved");
_Static_assert(offsetof(struct sluice_usage_slot, exported) == 16, "exported moved");
_Static_assert(offsetof(struct sluice_usage_slot, imported) == 24, "imported moved");
_Static_assert(offsetof(struct sluice_usage_slot, pid) == 32, "pid moved");
_Static_assert(offsetof(struct sluice_usage_slot, start_cpu) == 40, "start_cpu moved");
_Static_assert(offsetof(struct sluice_usage_slot, pace) == 56, "pace moved");
_Static_assert(SLUICE_USAGE_LIFE_BYTE(0) == offsetof(struct sluice_usage, slots), "the life byte is the slot's first");

// The FIFO `bell` lies beside usage. A process that wants the agent's attention opens it with O_WRONLY | O_NONBLOCK and writes
// a byte: EAGAIN says that it has rung already, ENXIO that no agent listens. Only the agent can read it.

// The file `heartbeat`, one a node and one page long, which the active agent writes every SLUICE_HEARTBEAT_PERIOD_NS. Where its
// time is older than SLUICE_LEASE_NS, no agent is there to open and close gates.
struct sluice_heartbeat {
  // CLOCK_MONOTONIC in nanoseconds; 0 until an agent has been active.
  uint64_t now;
  uint8_t reserved[4088];
};

#define SLUICE_HEARTBEAT_PERIOD_NS 250000000ull
#define SLUICE_LEASE_NS 1000000000ull

_Static_assert(sizeof(struct sluice_heartbeat) == 4096, "the heartbeat is one page");
_Static_assert(offsetof(struct sluice_heartbeat, now) == 0, "now moved");

#endif  // SLUICE_ABI_H
