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

// The version this header describes, and the oldest reader that understands a page written by it.
#define SLUICE_ABI_VERSION 1u
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
  // Bytes to charge beyond what the processes asked for, such as modules: the agent's correction, 0 until it has one.
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
  // For the words by which the agent opens and closes the share's turn on the GPU. Zero in this version.
  uint8_t gate[SLUICE_LIMITS_GATE_SIZE];
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

#endif  // SLUICE_ABI_H
