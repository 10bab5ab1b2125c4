// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
)

// leaves asks the rig's agent to leave.
func (r *rig) leaves() {
	r.gpuNode.Spec.Leave = ptr.To(true)
	r.gpuNode.Generation++
}

// until passes until the loop ends, or nothing more happens.
func (r *rig) until(t *testing.T) error {
	t.Helper()
	for range 10 {
		publishes, statuses := r.publishes, r.statuses
		if _, err := r.agent.pass(t.Context()); err != nil {
			return err
		}
		if publishes == r.publishes && statuses == r.statuses {
			return nil
		}
	}
	return errors.New("the loop does not come to rest")
}

func TestAnAgentLeavesOnceNothingIsLeft(t *testing.T) {
	r := newRig(t, h100(0))
	r.decide(decided("GPU-0", "p"))
	r.passes(t)
	r.prepare(t, "GPU-0", "tenant")
	r.leaves()
	if err := r.until(t); err != nil {
		t.Fatalf("with a pool and a tenant: %v, want it to stay", err)
	}
	r.gpuNode.Spec.GPUs = nil
	r.gpuNode.Generation++
	if err := r.until(t); err != nil {
		t.Fatalf("with a tenant: %v, want it to stay", err)
	}
	if err := r.store.SaveClaims(checkpoint.Claims{Claims: map[string]checkpoint.Claim{}}); err != nil {
		t.Fatal(err)
	}
	if err := r.store.SaveMade(checkpoint.Made{GPUs: map[string][]checkpoint.Placement{"GPU-0": {{Profile: "1g.10gb", Size: 1}}}}); err != nil {
		t.Fatal(err)
	}
	if err := r.until(t); err != nil {
		t.Fatalf("with an instance of a layout: %v, want it to stay", err)
	}
	if err := r.store.SaveMade(checkpoint.Made{}); err != nil {
		t.Fatal(err)
	}
	if err := r.until(t); !errors.Is(err, ErrLeft) {
		t.Errorf("with nothing left: %v, want %v", err, ErrLeft)
	}
	r.expectDevices(t, "after leaving")
}

func TestAnAgentThatIsNotAskedStays(t *testing.T) {
	r := newRig(t, h100(0))
	r.decide()
	r.passes(t)
}

func TestRemoveFilesEmptiesItsDirectoriesOnly(t *testing.T) {
	root := t.TempDir()
	at := func(parts ...string) string { return filepath.Join(append([]string{root}, parts...)...) }
	c := Config{
		ShareDir: at("shares"), MPSDir: at("mps"), StateDir: at("state"), HostBinDir: at("state", "bin"), PluginsDir: at("plugins"),
		MPSCgroup: at("cgroup"),
	}
	mine := []string{at("shares", "lib", "1"), at("state", "bin", "hook", "1"), at("plugins", v1alpha1.DriverName), at("cgroup")}
	theirs := at("plugins", "example.com")
	for _, dir := range append(mine, theirs) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{at("shares", "heartbeat"), at("state", "claims.json"), at("shares", "lib", "1", "libsluice.so")} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // it is tried again and again
		if err := removeFiles(c); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{c.ShareDir, c.StateDir, mine[2], c.MPSCgroup} {
		if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
			t.Errorf("%s still has %v", dir, entries)
		}
	}
	if _, err := os.Stat(theirs); err != nil {
		t.Errorf("another driver's directory: %v", err)
	}
}
