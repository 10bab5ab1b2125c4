// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-gpu/sluice/test/framework/cluster"
)

// clockTicks is how many ticks of /proc/<pid>/stat make a second, on every Linux that Go runs on.
const clockTicks = 100

// process is a running manager.
type process struct{ pid int }

// startManager runs the real manager beside the cluster, with its default limits.
func startManager(b *testing.B, c *cluster.Cluster, dir string) process {
	b.Helper()
	log, err := os.Create(filepath.Join(dir, "manager.log"))
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.CommandContext(b.Context(), managerPath(), "--kubeconfig="+c.Kubeconfig, "--namespace=default", "--leader-elect=false",
		"--webhook-port=0", "--webhook-cert-dir="+filepath.Join(dir, "certs"),
		"--metrics-bind-address=0", "--health-probe-bind-address=0")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		b.Fatalf("starting the manager (make build): %v", err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
		if b.Failed() {
			text, _ := os.ReadFile(log.Name())
			b.Logf("the manager's log ends:\n%s", text[max(0, len(text)-8000):])
		}
	})
	return process{pid: cmd.Process.Pid}
}

// memory reads a line of /proc/<pid>/status in MB.
func (p process) memory(b *testing.B, field string) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, field+":"); found {
			kib, err := strconv.ParseFloat(strings.Fields(value)[0], 64)
			if err != nil {
				b.Fatal(err)
			}
			return kib * 1024 / 1e6
		}
	}
	b.Fatalf("/proc has no %s", field)
	return 0
}

// cpuSeconds is what the manager has used since its start.
func (p process) cpuSeconds(b *testing.B) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name may hold anything but that
	fields := strings.Fields(rest)
	var ticks float64
	for _, field := range fields[11:13] { // utime, stime
		n, err := strconv.ParseFloat(field, 64)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return ticks / clockTicks
}
