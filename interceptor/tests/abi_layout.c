// SPDX-License-Identifier: Apache-2.0
//
// Prints the layout that the compiler gives sluice_abi.h, one "name value..." a line, for the Go half of the contract to
// be compared with: fields as "field <name> <offset> <size>", constants as "const <name> <value>".

#include <stdio.h>

#include "sluice_abi.h"

#define FIELD(name) \
  printf("field %s %zu %zu\n", #name, offsetof(struct sluice_limits, name), sizeof(((struct sluice_limits *)0)->name))
#define CONST(name) printf("const %s %lu\n", #name, (unsigned long)(name))

int main(void) {
  FIELD(magic);
  FIELD(version);
  FIELD(min_reader);
  FIELD(reserved0);
  FIELD(uuid);
  FIELD(parent_uuid);
  FIELD(memory_limit);
  FIELD(context);
  FIELD(overhead);
  FIELD(compute_share);
  FIELD(policy);
  FIELD(enforce);
  FIELD(reserved1);
  FIELD(reserved2);
  FIELD(gate);
  FIELD(reserved3);
  printf("const size %zu\n", sizeof(struct sluice_limits));
  CONST(SLUICE_ABI_VERSION);
  CONST(SLUICE_ABI_MIN_READER);
  CONST(SLUICE_LIMITS_MAGIC);
  CONST(SLUICE_LIMITS_SIZE);
  CONST(SLUICE_ENFORCE_MEMORY);
  CONST(SLUICE_ENFORCE_COMPUTE);
  CONST(SLUICE_POLICY_SHARE);
  CONST(SLUICE_POLICY_CAP);
  CONST(SLUICE_GATE_NONE);
  CONST(SLUICE_GATE_CLOSED);
  CONST(SLUICE_GATE_OPEN);
  CONST(SLUICE_GATE_CLOSING);
  CONST(SLUICE_GATE_OVERRUN);
  CONST(SLUICE_GATE_CONTENDED);
  CONST(SLUICE_PACE_WANTS);
  CONST(SLUICE_PACE_RUNS);
  CONST(SLUICE_PACE_DRAINED);
  return 0;
}
