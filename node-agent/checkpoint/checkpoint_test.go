// SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
)

func TestOldRecordsDecode(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/v1")); err != nil {
		t.Fatal(err)
	}
	store, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	claims, err := store.Claims()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantClaims(), claims); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
	published, err := store.Published()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantPublished(), published); diff != "" {
		t.Errorf("published (-want +got):\n%s", diff)
	}
}

func wantClaims() checkpoint.Claims {
	return checkpoint.Claims{
		Version: 1, BootID: "b1a5e9f0-0000-4000-8000-000000000001", MIGModeFoundOff: []string{"GPU-2"},
		Claims: map[string]checkpoint.Claim{
			"11111111-0000-4000-8000-000000000001": {
				UID: "11111111-0000-4000-8000-000000000001", Namespace: "team-a", Name: "train-gpu", State: checkpoint.Prepared,
				Results: []checkpoint.Result{{
					Index: 1, Request: "gpu/small", Pool: "node-1", Device: "gpu-2-mig-1g10gb-6", GPU: "GPU-2",
					Memory: 10200547328, Compute: 14,
					Placement:  &checkpoint.Placement{Profile: "1g.10gb", Start: 6, Size: 1},
					Instance:   &checkpoint.Instance{GIID: 13, UUID: "MIG-1"},
					CDIDevices: []string{"k8s.gpu.sluice.dev/claim=11111111-0000-4000-8000-000000000001-1"},
				}},
			},
			"11111111-0000-4000-8000-000000000002": {
				UID: "11111111-0000-4000-8000-000000000002", Namespace: "team-b", Name: "serve-gpu",
				State: checkpoint.Preparing, WasLost: true,
				Results: []checkpoint.Result{{
					Request: "gpu", Pool: "node-1", Device: "gpu-0", ShareID: "5a5a5a5a-0000-4000-8000-000000000001",
					GPU: "GPU-0", Shared: true, Memory: 10737418240, Compute: 30, Enforced: true,
				}},
			},
		},
	}
}

func wantPublished() checkpoint.Published {
	return checkpoint.Published{Version: 1, GPUs: []checkpoint.PublishedGPU{{
		Minor: 2,
		Form: v1alpha1.GPUDecision{
			UUID: "GPU-2", Pool: "mig", Partitioning: v1alpha1.PartitioningMIG, Sharing: v1alpha1.SharingExclusive,
			MemoryPercent: 100, ComputePercent: 100,
		},
		Facts: checkpoint.FactsOf(h100(), "580.159.04"),
	}}}
}

func h100() gpu.GPU {
	return gpu.GPU{
		UUID: "GPU-2", Minor: 3, Product: "NVIDIA H100 80GB HBM3", Architecture: "Hopper", PCIBusID: "0000:0a:00.0",
		PCIeRoot: "pci0000:00", NUMANode: 1, MemoryBytes: 85094039552, MIGModeSwitchable: true,
		MemorySlices: 8, ComputeSlices: 7,
		Profiles: []gpu.Profile{{
			Name: "1g.10gb", MemoryBytes: 10200547328, ComputeSlices: 1, MemorySlices: 1,
			Starts: []int{0, 1, 2, 3, 4, 5, 6}, Max: 7, Decoders: 1, JPEG: 1,
		}},
	}
}

func TestWhatIsSavedIsRead(t *testing.T) {
	dir := t.TempDir()
	store, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.SaveClaims(wantClaims()); err != nil {
		t.Fatal(err)
	}
	if err := store.SavePublished(wantPublished()); err != nil {
		t.Fatal(err)
	}
	// What a writer left that was killed before its rename is nobody's state.
	for _, file := range []string{checkpoint.ClaimsFile, checkpoint.PublishedFile} {
		if err := os.WriteFile(filepath.Join(dir, file+".new"), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	again, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	claims, err := again.Claims()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantClaims(), claims); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
	published, err := again.Published()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantPublished(), published); diff != "" {
		t.Errorf("published (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(h100(), published.GPUs[0].Facts.GPU()); diff != "" {
		t.Errorf("facts of the GPU (-want +got):\n%s", diff)
	}
}

func TestUnreadableRecordsAreErrors(t *testing.T) {
	for _, tc := range []struct {
		name string
		data string
	}{
		{name: "an empty file is an error", data: ""},
		{name: "half a record is an error", data: `{"version": 1, "claims": {"a": {"uid": "a"`},
		{name: "a record followed by more is an error", data: `{"version": 1}{"version": 1}`},
		{name: "null is an error", data: `null`},
		{name: "a record without a version is an error", data: `{"claims": {}}`},
		{name: "a later version is an error", data: `{"version": 2, "claims": {}}`},
		{name: "a field of another type is an error", data: `{"version": 1, "claims": [], "gpus": {}}`},
		{name: "zeroes, as a crash may leave them, are an error", data: "\x00\x00\x00\x00"},
	} {
		for _, file := range []string{checkpoint.ClaimsFile, checkpoint.PublishedFile} {
			t.Run(tc.name+": "+file, func(t *testing.T) {
				dir := t.TempDir()
				if err := os.WriteFile(filepath.Join(dir, file), []byte(tc.data), 0o600); err != nil {
					t.Fatal(err)
				}
				_, err := checkpoint.Open(dir)
				if !errors.Is(err, checkpoint.ErrUnreadable) {
					t.Fatalf("Open() = %v, want ErrUnreadable", err)
				}
				if !strings.Contains(err.Error(), filepath.Join(dir, file)) {
					t.Errorf("the error does not name the file: %v", err)
				}
				got, err := os.ReadFile(filepath.Join(dir, file))
				if err != nil || string(got) != tc.data {
					t.Errorf("the file was changed to %q (%v)", got, err)
				}
			})
		}
	}
}

func TestLockKeepsWritersApart(t *testing.T) {
	dir := t.TempDir()
	var group sync.WaitGroup
	const writers, rounds = 4, 10
	for range writers {
		// A store of its own stands for another process.
		store, err := checkpoint.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		group.Go(func() {
			for range rounds {
				unlock, err := store.Lock()
				if err != nil {
					t.Error(err)
					return
				}
				claims, err := store.Claims()
				if err != nil {
					t.Error(err)
				}
				claims.MIGModeFoundOff = append(claims.MIGModeFoundOff, "x")
				if err := store.SaveClaims(claims); err != nil {
					t.Error(err)
				}
				unlock()
			}
		})
	}
	group.Wait()
	store, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	claims, err := store.Claims()
	if err != nil {
		t.Fatal(err)
	}
	if got := len(claims.MIGModeFoundOff); got != writers*rounds {
		t.Errorf("%d writes survived, want %d", got, writers*rounds)
	}
}

func TestDamagedRecordsOfClaimsAreErrors(t *testing.T) {
	for _, tc := range []struct {
		name string
		data string
	}{
		{name: "a record without the list of claims is an error", data: `{"version": 1}`},
		{name: "a claim in a state that nobody knows is an error", data: `{"version": 1, "claims": {"a": {"uid": "a", "state": "Bogus"}}}`},
		{name: "a claim under another's UID is an error", data: `{"version": 1, "claims": {"a": {"uid": "b", "state": "Prepared"}}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), checkpoint.ClaimsFile)
			if err := os.WriteFile(path, []byte(tc.data), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := checkpoint.Open(filepath.Dir(path))
			if !errors.Is(err, checkpoint.ErrUnreadable) || !strings.Contains(err.Error(), path) {
				t.Fatalf("Open() = %v, want ErrUnreadable and the file's name", err)
			}
		})
	}
}
