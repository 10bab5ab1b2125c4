// SPDX-License-Identifier: Apache-2.0

package interceptor

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

var totals = regexp.MustCompile(`(?m)^totals: (\d+)`)

// mainThread counts the instructions of the launching thread alone: the library's helper works by the clock.
func (n *node) mainThread(t *testing.T, environment []string, times int) int {
	t.Helper()
	out := filepath.Join(t.TempDir(), "counts")
	command := exec.CommandContext(t.Context(), "valgrind", "--tool=callgrind", "--separate-threads=yes", "--callgrind-out-file="+out,
		built(t, "interceptor/build/tests/tools/calls"), "launch", strconv.Itoa(times))
	command.Env = environment
	if text, err := command.CombinedOutput(); err != nil {
		t.Fatalf("valgrind: %v\n%.2000s", err, text)
	}
	counts, err := os.ReadFile(out + "-01")
	if err != nil {
		t.Fatalf("reading valgrind's counts: %v", err)
	}
	found := totals.FindSubmatch(counts)
	if found == nil {
		t.Fatalf("valgrind wrote no count:\n%.2000s", counts)
	}
	count, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatalf("reading valgrind's count: %v", err)
	}
	return count
}

// What a launch costs that is paced and for which no event is due.
func TestCostOfAPacedLaunch(t *testing.T) {
	if _, err := exec.LookPath("valgrind"); err != nil {
		t.Skip("valgrind is not installed: nothing is counted")
	}
	// Between so many launches none needs an event: the first ones are over, and the batch is not full.
	const few, many, rounds = 500, 1500, 5
	n := newNode(t, 1)
	native := n.environment(t, "")
	paced := append(n.environment(t, limitText), "SLUICE_COMPUTE_LIMIT=100")
	// The least of some, since the driver does more for some launches than for others.
	least := func(environment []string, times int) int {
		count := n.mainThread(t, environment, times)
		for range rounds - 1 {
			count = min(count, n.mainThread(t, environment, times))
		}
		return count
	}
	each := func(environment []string) float64 {
		return float64(least(environment, many)-least(environment, few)) / (many - few)
	}
	const most = 65 // sixty, and what of the slow path falls into the time
	if added := each(paced) - each(native); added > most {
		t.Errorf("pacing adds %.1f instructions to each launch, want at most %d", added, most)
	} else {
		t.Logf("%.1f added to each launch", added)
	}
}
