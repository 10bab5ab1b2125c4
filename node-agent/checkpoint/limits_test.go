// SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
)

func wantLimits() checkpoint.Limits {
	const pod = "/kubepods/pod11111111-2222-3333-4444-555555555555"
	return checkpoint.Limits{
		Version: 1,
		Containers: []checkpoint.Container{{
			Cgroup: pod + "/c1", Inode: 42,
			Shares: []checkpoint.ShareRef{{ClaimUID: "11111111-0000-4000-8000-000000000002"}},
		}},
		Set: []checkpoint.SetLimit{
			{GPU: "GPU-0", Cgroup: pod + "/c1", Inode: 42, Hard: 10737418240},
			{GPU: "GPU-0", Cgroup: pod, Inode: 41, Soft: 7158628352, Hard: 10737418240, Pending: true},
		},
		FellBack: map[string]string{"11111111-0000-4000-8000-000000000003": "the driver refuses the limit"},
		Told:     []string{"11111111-0000-4000-8000-000000000003"},
	}
}

func TestLimits(t *testing.T) {
	dir := t.TempDir()
	store, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if limits, err := store.Limits(); err != nil || len(limits.Containers) > 0 {
		t.Errorf("before the first write: %v, %v", limits, err)
	}
	if err := store.SaveLimits(wantLimits()); err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile("testdata/v1/limits.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, write := range []func() error{
		func() error { return nil },
		func() error { return os.WriteFile(filepath.Join(dir, checkpoint.LimitsFile), old, 0o600) }, //nolint:gosec // G703: the path is the test's own
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
		got, err := store.Limits()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(wantLimits(), got); diff != "" {
			t.Errorf("read (-want +got):\n%s", diff)
		}
	}
}

func TestADamagedRecordOfLimitsIsAnError(t *testing.T) {
	for name, data := range map[string]string{
		"half a record": `{"version": 1, "cont`, "a record without its list": `{"version": 1}`, "a later version": `{"version": 2, "containers": []}`,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, checkpoint.LimitsFile), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := checkpoint.Open(dir); !errors.Is(err, checkpoint.ErrUnreadable) {
			t.Errorf("%s: Open() = %v, want ErrUnreadable", name, err)
		}
	}
}

// TestTheLocksAreApart has a container start while claims are prepared.
func TestTheLocksAreApart(t *testing.T) {
	store, err := checkpoint.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	unlock, err := store.Lock()
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	unlockLimits, err := store.LockLimits()
	if err != nil {
		t.Fatal(err)
	}
	unlockLimits()
}
