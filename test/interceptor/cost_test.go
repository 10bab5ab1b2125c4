// SPDX-License-Identifier: Apache-2.0

package interceptor

import (
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var collected = regexp.MustCompile(`Collected : (\d+)`)

// counted runs a call that many times under valgrind and returns what the tool counted: instructions or system calls.
func (n *node) counted(t *testing.T, limit, tool, call string, times int) int {
	t.Helper()
	arguments := []string{"--tool=callgrind", "--callgrind-out-file=/dev/null"}
	if tool == "syscalls" {
		arguments = []string{"--tool=none", "--trace-syscalls=yes"}
	}
	arguments = append(arguments, built(t, "interceptor/build/tests/tools/calls"), call, strconv.Itoa(times))
	command := exec.CommandContext(t.Context(), "valgrind", arguments...)
	command.Env = n.environment(t, limit)
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("valgrind: %v\n%.2000s", err, out)
	}
	if tool == "syscalls" {
		return strings.Count(string(out), "SYSCALL[")
	}
	found := collected.FindSubmatch(out)
	if found == nil {
		t.Fatalf("valgrind printed no count:\n%.2000s", out)
	}
	count, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatalf("reading valgrind's count: %v", err)
	}
	return count
}

// each is what one call more costs, in steady state.
func (n *node) each(t *testing.T, limit, tool, call string) float64 {
	t.Helper()
	const few, many = 500, 1500
	return float64(n.counted(t, limit, tool, call, many)-n.counted(t, limit, tool, call, few)) / (many - few)
}

// What the library adds to a call, counted, since times drown in the noise of the machine.
func TestCostOfCalls(t *testing.T) {
	if _, err := exec.LookPath("valgrind"); err != nil {
		t.Skip("valgrind is not installed: nothing is counted")
	}
	tests := []struct {
		call         string
		instructions float64
	}{
		{call: "launch", instructions: 10},
		{call: "alloc", instructions: 2000},
		{call: "async", instructions: 2000},
	}
	for _, tc := range tests {
		t.Run(tc.call, func(t *testing.T) {
			n := newNode(t, 1)
			for tool, most := range map[string]float64{"callgrind": tc.instructions, "syscalls": 0.01} {
				added := n.each(t, limitText, tool, tc.call) - n.each(t, "", tool, tc.call)
				t.Logf("%s: %.1f added to each %s", tool, added, tc.call)
				if added > most {
					t.Errorf("%s: the library adds %.1f to each %s, want at most %.1f", tool, added, tc.call, most)
				}
			}
		})
	}
}
