// SPDX-License-Identifier: Apache-2.0

package interceptor

import (
	"os"
	"os/exec"
	"testing"
)

// A program that never uses CUDA makes no file and pays next to nothing.
func TestNothingIsTouchedWithoutCUDA(t *testing.T) {
	n := newNode(t, 1)
	command := exec.CommandContext(t.Context(), "/bin/sh", "-c", "exec /bin/true")
	command.Env = n.environment(t, limitText)
	if out, err := command.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("a shell under the library: %v, %q", err, out)
	}
	if _, err := os.Stat(n.ledgerDir()); !os.IsNotExist(err) {
		t.Errorf("a program that does not use CUDA made %s (%v)", n.ledgerDir(), err)
	}
	var cost struct {
		LeastWithout, LeastWith, MedianWithout, MedianWith float64
	}
	n.output(t, "", &cost, "tools/startup", built(t, "interceptor/build/libsluice.so"), "300", "/bin/true")
	t.Logf("in microseconds: %+v", cost)
	// The least of many is what the program costs on a machine that has other work too.
	if added := cost.LeastWith - cost.LeastWithout; added >= 200 {
		t.Errorf("the library adds %.0f µs to /bin/true, want less than 200", added)
	}
}
