// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

// TestLayoutEqualsTheHeader compiles a program from the contract's header and compares what it says of every field and
// constant with this package.
func TestLayoutEqualsTheHeader(t *testing.T) {
	interceptor := filepath.Join("..", "..", "interceptor")
	program := filepath.Join(t.TempDir(), "abi_layout")
	compile := exec.CommandContext(t.Context(), "cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror",
		"-I", filepath.Join(interceptor, "include"), "-o", program, filepath.Join(interceptor, "tests", "abi_layout.c"))
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("compiling the layout program: %v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), program).Output()
	if err != nil {
		t.Fatalf("running the layout program: %v", err)
	}
	var want []string
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "field reserved") {
			want = append(want, strings.TrimSpace(line))
		}
	}

	var p page
	field := func(name string, offset, size uintptr) string {
		return fmt.Sprintf("field %s %d %d", name, offset, size)
	}
	constant := func(name string, value any) string { return fmt.Sprintf("const %s %d", name, value) }
	got := []string{
		field("magic", unsafe.Offsetof(p.magic), unsafe.Sizeof(p.magic)),
		field("version", unsafe.Offsetof(p.version), unsafe.Sizeof(p.version)),
		field("min_reader", unsafe.Offsetof(p.minReader), unsafe.Sizeof(p.minReader)),
		field("uuid", unsafe.Offsetof(p.uuid), unsafe.Sizeof(p.uuid)),
		field("parent_uuid", unsafe.Offsetof(p.parentUUID), unsafe.Sizeof(p.parentUUID)),
		field("memory_limit", unsafe.Offsetof(p.memoryLimit), unsafe.Sizeof(p.memoryLimit)),
		field("context", unsafe.Offsetof(p.context), unsafe.Sizeof(p.context)),
		field("overhead", unsafe.Offsetof(p.overhead), unsafe.Sizeof(p.overhead)),
		field("compute_share", unsafe.Offsetof(p.computeShare), unsafe.Sizeof(p.computeShare)),
		field("policy", unsafe.Offsetof(p.policy), unsafe.Sizeof(p.policy)),
		field("enforce", unsafe.Offsetof(p.enforce), unsafe.Sizeof(p.enforce)),
		field("gate", unsafe.Offsetof(p.gate), unsafe.Sizeof(p.gate)),
		constant("size", unsafe.Sizeof(p)),
		constant("SLUICE_ABI_VERSION", version),
		constant("SLUICE_ABI_MIN_READER", minReader),
		constant("SLUICE_LIMITS_MAGIC", magic),
		constant("SLUICE_LIMITS_SIZE", pageSize),
		constant("SLUICE_ENFORCE_MEMORY", EnforceMemory),
		constant("SLUICE_ENFORCE_COMPUTE", EnforceCompute),
		constant("SLUICE_POLICY_SHARE", PolicyShare),
		constant("SLUICE_POLICY_CAP", PolicyCap),
		constant("SLUICE_GATE_NONE", GateNone),
		constant("SLUICE_GATE_CLOSED", GateClosed),
		constant("SLUICE_GATE_OPEN", gateOpen),
		constant("SLUICE_GATE_CLOSING", GateClosing),
		constant("SLUICE_GATE_OVERRUN", GateOverrun),
		constant("SLUICE_GATE_CONTENDED", gateContended),
		constant("SLUICE_PACE_WANTS", PaceWants),
		constant("SLUICE_PACE_RUNS", PaceRuns),
		constant("SLUICE_PACE_DRAINED", PaceDrained),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("layout of the Go half differs from the header (-header +Go):\n%s", diff)
	}
}

// TestSizesEqualTheHeader has the compiler compare what this package knows of the other files.
func TestSizesEqualTheHeader(t *testing.T) {
	program := fmt.Sprintf(`#include "sluice_abi.h"
_Static_assert(SLUICE_USAGE_SIZE == %d, "size of usage");
_Static_assert(SLUICE_USAGE_MAGIC == %d, "magic of usage");
_Static_assert(SLUICE_USAGE_SLOTS == %d, "slots of usage");
_Static_assert(SLUICE_USAGE_UNIT == %d, "unit of usage");
_Static_assert(SLUICE_USAGE_LIFE_BYTE(1) == %d + %d, "slots lie elsewhere");
_Static_assert(offsetof(struct sluice_usage, min_reader) == %d, "min_reader of usage");
_Static_assert(offsetof(struct sluice_usage, slots_used) == %d, "slots_used");
_Static_assert(offsetof(struct sluice_usage_slot, word) == 0, "word");
_Static_assert(offsetof(struct sluice_usage_slot, stamp) == %d, "stamp");
_Static_assert(offsetof(struct sluice_usage_slot, exported) == %d, "exported");
_Static_assert(offsetof(struct sluice_usage_slot, imported) == %d, "imported");
_Static_assert(offsetof(struct sluice_usage_slot, pace) == %d, "pace");
_Static_assert(offsetof(struct sluice_usage, gpu_time) == %d, "gpu_time");
_Static_assert(offsetof(struct sluice_usage, orphan) == %d, "orphan");
_Static_assert(offsetof(struct sluice_usage, refused) == %d, "refused");
_Static_assert(offsetof(struct sluice_usage, refused_by_driver) == %d, "refused_by_driver");
_Static_assert(offsetof(struct sluice_usage, gate_wait) == %d, "gate_wait");
_Static_assert(offsetof(struct sluice_gate, word) == %d, "gate word");
_Static_assert(offsetof(struct sluice_gate, flags) == %d, "gate flags");
_Static_assert(offsetof(struct sluice_gate, open_until) == %d, "open_until");
_Static_assert(offsetof(struct sluice_gate, finish) == %d, "finish");
_Static_assert(SLUICE_GATE_SEQUENCE(1u << %d) == 1, "sequence of a gate");
_Static_assert(SLUICE_PACE_SEQUENCE(1u << %d) == 1, "sequence of a pace");
_Static_assert(SLUICE_PACE_LAUNCHES(1ull << %d) == 1, "launches");
_Static_assert(sizeof(struct sluice_heartbeat) == %d, "size of the heartbeat");
_Static_assert(SLUICE_HEARTBEAT_PERIOD_NS == %d, "time between two beats");
`, usageSize, usageMagic, usageSlots, usageUnit, slotsOffset, slotSize, minReaderOffset, slotsUsedOffset, stampOffset, exportedOffset,
		importedOffset, paceOffset, gpuTimeOffset, orphanOffset, refusedOffset, refusedByDriverOffset, waitTimeOffset, unsafe.Offsetof(gateWords{}.word), unsafe.Offsetof(gateWords{}.flags),
		unsafe.Offsetof(gateWords{}.openUntil), unsafe.Offsetof(gateWords{}.finish), sequenceShift, sequenceShift, launchesShift, pageSize, HeartbeatPeriod.Nanoseconds())
	compile := exec.CommandContext(t.Context(), "cc", "-std=gnu11", "-fsyntax-only", "-x", "c",
		"-I", filepath.Join("..", "..", "interceptor", "include"), "-")
	compile.Stdin = strings.NewReader(program)
	if out, err := compile.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
