// SPDX-License-Identifier: Apache-2.0

// Package integration tests the lab command as its users run it.
package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sluice-gpu/sluice/test/lab/cluster"
)

// timeout is how long anything may take that is waited for.
const timeout = time.Minute

// binary is the lab command under test.
var binary string

func TestMain(m *testing.M) {
	if config := os.Getenv(driverVariable); config != "" {
		if err := runDriver(config); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	dir, err := os.MkdirTemp("", "lab-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	binary = filepath.Join(dir, "lab")
	if output, err := exec.Command("go", "build", "-o", binary, "../cmd/lab").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the lab command: %v\n%s", err, output)
		return 1
	}
	return m.Run()
}

// lab runs the command and returns what it prints; progress and errors go to the test's log.
func lab(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("lab %v: %w\n%s", args, err, stderr.String())
	}
	return stdout.String(), err
}

func mustLab(t *testing.T, args ...string) string {
	t.Helper()
	output, err := lab(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return output
}

// running is a lab that the test has brought up.
type running struct {
	dir    cluster.Dir
	state  *cluster.State
	client kubernetes.Interface
}

// up brings a lab up that the end of the test brings down.
func up(t *testing.T) running {
	t.Helper()
	if testing.Short() {
		t.Skip("a control plane is not for short runs")
	}
	dir := cluster.Dir(filepath.Join(t.TempDir(), "lab"))
	var result struct {
		Kubeconfig string  `json:"kubeconfig"`
		Seconds    float64 `json:"seconds"`
	}
	if err := json.Unmarshal([]byte(mustLab(t, "up", "--dir", string(dir), "-o", "json")), &result); err != nil {
		t.Fatal(err)
	}
	t.Logf("up after %.1f s", result.Seconds)
	t.Cleanup(func() {
		if output, err := exec.Command(binary, "down", "--dir", string(dir)).CombinedOutput(); err != nil {
			t.Errorf("down: %v\n%s", err, output)
		}
	})
	state, err := dir.Load()
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", result.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst = 100, 200
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return running{dir: dir, state: state, client: client}
}

// kubectl runs kubectl on the lab.
func (r running) kubectl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(r.state.Binaries, "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+r.state.Kubeconfig)
	output, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("kubectl %v: %w\n%s", args, err, output)
	}
	return string(output), err
}

// eventually waits until check has nothing to say against.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	limit := time.NewTimer(timeout)
	defer limit.Stop()
	retry := time.NewTicker(50 * time.Millisecond)
	defer retry.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-limit.C:
			t.Fatalf("%s: %v", what, err)
		case <-retry.C:
		}
	}
}
