// SPDX-License-Identifier: Apache-2.0

package cdi_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/sluice-gpu/sluice/internal/claimuid"
	doors "github.com/sluice-gpu/sluice/node-agent/cdi"
	"github.com/sluice-gpu/sluice/test/framework/fakenode"
)

func TestWriteWholeGPUs(t *testing.T) {
	s := newSetup(t, fakenode.Boards{Board: "h100-80gb", Count: 2})
	ids, err := s.cdi.Write(claim, []doors.Grant{
		{
			Name: "0", UUID: s.gpus[1].UUID, Env: []string{"SLUICE_EXAMPLE=1"},
			Mounts: []doors.Mount{
				{HostPath: "/run/x/limits", ContainerPath: "/run/sluice/x/0/limits", ReadOnly: true},
				{HostPath: "/run/x/usage", ContainerPath: "/run/sluice/x/0/usage"},
				{HostPath: "/run/lib.so", ContainerPath: "/run/sluice/lib.so", ReadOnly: true, Executable: true},
			},
		},
		{Name: "1", UUID: s.gpus[0].UUID},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"k8s.gpu.sluice.dev/claim=" + claim + "-0", "k8s.gpu.sluice.dev/claim=" + claim + "-1"}
	if diff := cmp.Diff(want, ids); diff != "" {
		t.Errorf("ids differ (-want +got):\n%s", diff)
	}

	spec := s.read(t)
	if diff := cmp.Diff([]string{"/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidiactl"}, nodes(spec.ContainerEdits)); diff != "" {
		t.Errorf("nodes of all devices differ (-want +got):\n%s", diff)
	}
	first, second := spec.Devices[0].ContainerEdits, spec.Devices[1].ContainerEdits
	if diff := cmp.Diff([]string{"/dev/nvidia1"}, nodes(first)); diff != "" {
		t.Errorf("nodes of the first device differ (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"/dev/nvidia0"}, nodes(second)); diff != "" {
		t.Errorf("nodes of the second device differ (-want +got):\n%s", diff)
	}
	wantMounts := []*specs.Mount{
		{HostPath: "/run/x/limits", ContainerPath: "/run/sluice/x/0/limits", Options: []string{"ro", "nosuid", "nodev", "bind"}},
		{HostPath: "/run/x/usage", ContainerPath: "/run/sluice/x/0/usage", Options: []string{"rw", "nosuid", "nodev", "bind"}},
		{HostPath: "/run/lib.so", ContainerPath: "/run/sluice/lib.so", Options: []string{"ro", "nosuid", "nodev", "bind", "exec"}},
	}
	if diff := cmp.Diff(wantMounts, first.Mounts); diff != "" {
		t.Errorf("mounts of the first device differ (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"SLUICE_EXAMPLE=1"}, first.Env); diff != "" {
		t.Errorf("environment of the first device differs (-want +got):\n%s", diff)
	}
	if len(second.Mounts) != 0 || len(second.Env) != 0 {
		t.Errorf("the second device has the first one's additions: %+v", second)
	}
	wantDriverFiles(t, s, spec.ContainerEdits)
}

// wantDriverFiles checks that the driver's libraries are mounted and its hooks are run from the configured path.
func wantDriverFiles(t *testing.T, s setup, edits specs.ContainerEdits) {
	t.Helper()
	libraries := map[string]bool{}
	for _, mount := range edits.Mounts {
		name, _, _ := strings.Cut(filepath.Base(mount.HostPath), ".so.")
		libraries[name] = libraries[name] || strings.HasPrefix(mount.HostPath, s.node.Root)
	}
	if !libraries["libcuda"] || !libraries["libnvidia-ml"] {
		t.Errorf("driver libraries are not mounted: %v", libraries)
	}
	if len(edits.Hooks) == 0 {
		t.Error("no hooks")
	}
	for _, hook := range edits.Hooks {
		if hook.Path != "/opt/sluice/nvidia-cdi-hook" {
			t.Errorf("hook %v is run from %s", hook.Args, hook.Path)
		}
	}
}

func TestWriteLeavesOutNVIDIAsMemoryLimits(t *testing.T) {
	s := newSetup(t, fakenode.Boards{Board: "h100-80gb", Count: 1})
	if _, err := s.cdi.Write(claim, []doors.Grant{{Name: "0", UUID: s.gpus[0].UUID}}); err != nil {
		t.Fatal(err)
	}
	spec := s.read(t)
	for _, hook := range append(spec.ContainerEdits.Hooks, spec.Devices[0].ContainerEdits.Hooks...) {
		if slices.Contains(hook.Args, "apply-cuda-memory-limits") {
			t.Errorf("the spec runs %v", hook.Args)
		}
	}
}

func TestWriteMIGDevices(t *testing.T) {
	s := newSetup(t, fakenode.Boards{Board: "h100-80gb", Count: 1}, fakenode.Boards{Board: "a100-80gb", Count: 1, MIG: true})
	small, half := s.instance(t, 1, "1g.10gb", 6), s.instance(t, 1, "3g.40gb", 0)
	if _, err := s.cdi.Write(claim, []doors.Grant{{Name: "0", UUID: small}, {Name: "1", UUID: half}}); err != nil {
		t.Fatal(err)
	}
	spec := s.read(t)
	var all []string
	for _, device := range spec.Devices {
		got := nodes(device.ContainerEdits)
		if len(got) != 3 || got[2] != "/dev/nvidia1" ||
			!strings.HasPrefix(got[0], "/dev/nvidia-caps/nvidia-cap") || !strings.HasPrefix(got[1], "/dev/nvidia-caps/nvidia-cap") {
			t.Errorf("device %s has nodes %v, want the GPU's and two capabilities", device.Name, got)
		}
		all = append(all, got[:2]...)
	}
	slices.Sort(all)
	if got := slices.Compact(slices.Clone(all)); len(got) != len(all) {
		t.Errorf("two instances share a capability: %v", all)
	}
}

func TestWriteFailsWhereANodeIsMissing(t *testing.T) {
	for _, tc := range []struct {
		name    string
		missing string
		mig     bool
		want    string
	}{
		{name: "the GPU's node", missing: "dev/nvidia0", want: "/dev/nvidia<minor>"},
		{name: "the control node", missing: "dev/nvidiactl", want: "/dev/nvidiactl"},
		{name: "the memory manager's node", missing: "dev/nvidia-uvm", want: "/dev/nvidia-uvm"},
		{name: "the parent's node of a MIG device", missing: "dev/nvidia0", mig: true, want: "/dev/nvidia<minor>"},
		{name: "the capabilities of a MIG device", missing: "dev/nvidia-caps", mig: true, want: "/dev/nvidia-caps/nvidia-cap<minor>"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSetup(t, fakenode.Boards{Board: "h100-80gb", Count: 1, MIG: tc.mig})
			grant := []doors.Grant{{Name: "0", UUID: s.gpus[0].UUID}}
			if tc.mig {
				grant[0].UUID = s.instance(t, 0, "1g.10gb", 0)
			}
			// It was there when the door first looked.
			if _, err := s.cdi.Write(claim, grant); err != nil {
				t.Fatal(err)
			}
			if err := s.cdi.Remove(claim); err != nil {
				t.Fatal(err)
			}
			back := s.node.Hide(t, tc.missing)
			_, err := s.cdi.Write(claim, grant)
			if !errors.Is(err, doors.ErrMissingNode) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Write answers %v, want %v that names %s", err, doors.ErrMissingNode, tc.want)
			}
			wantFiles(t, s.dir)
			back()
			if _, err := s.cdi.Write(claim, grant); err != nil {
				t.Errorf("the door does not recover: %v", err)
			}
		})
	}
}

func TestWriteRefuses(t *testing.T) {
	s := newSetup(t, fakenode.Boards{Board: "h100-80gb", Count: 1})
	uuid := s.gpus[0].UUID
	for _, tc := range []struct {
		name   string
		uid    string
		grants []doors.Grant
		want   error
	}{
		{name: "a way up as UID", uid: "../x", grants: []doors.Grant{{Name: "0", UUID: uuid}}, want: claimuid.ErrInvalid},
		{name: "an empty UID", uid: "", grants: []doors.Grant{{Name: "0", UUID: uuid}}, want: claimuid.ErrInvalid},
		{name: "no grants", uid: claim, want: doors.ErrBadGrant},
		{name: "two grants of one name", uid: claim, grants: []doors.Grant{{Name: "0", UUID: uuid}, {Name: "0", UUID: uuid}}, want: doors.ErrBadGrant},
		{name: "a name with a slash", uid: claim, grants: []doors.Grant{{Name: "a/b", UUID: uuid}}, want: doors.ErrBadGrant},
		{name: "an index in place of a UUID", uid: claim, grants: []doors.Grant{{Name: "0", UUID: "0"}}, want: doors.ErrBadGrant},
		{name: "all GPUs in place of a UUID", uid: claim, grants: []doors.Grant{{Name: "0", UUID: "all"}}, want: doors.ErrBadGrant},
		{name: "a GPU that is not there", uid: claim, grants: []doors.Grant{{Name: "0", UUID: "GPU-00000000-0000-0000-0000-000000000000"}}, want: doors.ErrDriver},
		{name: "a relative mount", uid: claim, grants: []doors.Grant{{Name: "0", UUID: uuid, Mounts: []doors.Mount{{HostPath: "a", ContainerPath: "/a"}}}}, want: doors.ErrBadGrant},
		{name: "an environment variable without a value", uid: claim, grants: []doors.Grant{{Name: "0", UUID: uuid, Env: []string{"X"}}}, want: doors.ErrBadGrant},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := s.cdi.Write(tc.uid, tc.grants); !errors.Is(err, tc.want) {
				t.Errorf("Write answers %v, want %v", err, tc.want)
			}
			wantFiles(t, s.dir)
		})
	}
}

func TestWriteAgainReplacesTheSpec(t *testing.T) {
	s := newSetup(t, fakenode.Boards{Board: "h100-80gb", Count: 2})
	path := filepath.Join(s.dir, "k8s.gpu.sluice.dev-claim_"+claim+".json")
	// What a kill between two writes leaves.
	if err := os.WriteFile(path+".tmp", []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	write := func(gpuIndex int) os.FileInfo {
		t.Helper()
		if _, err := s.cdi.Write(claim, []doors.Grant{{Name: "0", UUID: s.gpus[gpuIndex].UUID}}); err != nil {
			t.Fatal(err)
		}
		wantFiles(t, s.dir, filepath.Base(path))
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	first, same := write(0), write(0)
	if !os.SameFile(first, same) || !first.ModTime().Equal(same.ModTime()) {
		t.Error("writing the same again touched the file")
	}
	if other := write(1); os.SameFile(first, other) {
		t.Error("a new spec was written into the old file")
	}
	if got := nodes(s.read(t).Devices[0].ContainerEdits); !slices.Equal(got, []string{"/dev/nvidia1"}) {
		t.Errorf("the spec names %v, want the second GPU", got)
	}
}

func TestWriteIsReadByOldRuntimes(t *testing.T) {
	s := newSetup(t, fakenode.Boards{Board: "h100-80gb", Count: 1})
	if _, err := s.cdi.Write(claim, []doors.Grant{{Name: "0", UUID: s.gpus[0].UUID}}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(s.dir, "k8s.gpu.sluice.dev-claim_"+claim+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var spec struct {
		Version string `json:"cdiVersion"`
		Kind    string `json:"kind"`
	}
	if err := json.Unmarshal(data, &spec); err != nil {
		t.Fatal(err)
	}
	// hostPath of device nodes came with 0.5.0; containerd 1.7 reads up to 0.6.0.
	if spec.Version != "0.5.0" || spec.Kind != "k8s.gpu.sluice.dev/claim" {
		t.Errorf("spec is %+v, want version 0.5.0 of our kind", spec)
	}
}

func TestRemoveAndList(t *testing.T) {
	s := newSetup(t, fakenode.Boards{Board: "h100-80gb", Count: 1})
	for _, uid := range []string{"claim-b", "claim-a"} {
		if _, err := s.cdi.Write(uid, []doors.Grant{{Name: "0", UUID: s.gpus[0].UUID}}); err != nil {
			t.Fatal(err)
		}
	}
	// Somebody else's spec stays theirs.
	if err := os.WriteFile(filepath.Join(s.dir, "nvidia.com-gpu.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantList(t, s.cdi, "claim-a", "claim-b")
	for range 2 { // The second time there is nothing left.
		if err := s.cdi.Remove("claim-a"); err != nil {
			t.Fatal(err)
		}
		wantList(t, s.cdi, "claim-b")
	}
	if err := s.cdi.Remove("../x"); !errors.Is(err, claimuid.ErrInvalid) {
		t.Errorf("Remove answers %v, want %v", err, claimuid.ErrInvalid)
	}
}

func TestTheDriverMayComeLater(t *testing.T) {
	s := newSetup(t, fakenode.Boards{Board: "h100-80gb", Count: 1})
	away := s.node.Root + ".away"
	if err := os.Rename(s.node.Root, away); err != nil {
		t.Fatal(err)
	}
	grants := []doors.Grant{{Name: "0", UUID: s.gpus[0].UUID}}
	if _, err := s.cdi.Write(claim, grants); err == nil {
		t.Error("Write succeeds without a driver")
	}
	if err := os.Rename(away, s.node.Root); err != nil {
		t.Fatal(err)
	}
	if _, err := s.cdi.Write(claim, grants); err != nil {
		t.Errorf("the door does not recover: %v", err)
	}
}

func TestRefreshFindsWhatWasInstalledSince(t *testing.T) {
	s := newSetup(t, fakenode.Boards{Board: "h100-80gb", Count: 1})
	grants := []doors.Grant{{Name: "0", UUID: s.gpus[0].UUID}}
	if _, err := s.cdi.Write(claim, grants); err != nil {
		t.Fatal(err)
	}
	tool := filepath.Join(s.node.Root, "usr", "bin", "nvidia-smi")
	if err := os.MkdirAll(filepath.Dir(tool), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(tool, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := s.cdi.Refresh(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.cdi.Write(claim, grants); err != nil {
		t.Fatal(err)
	}
	found := slices.ContainsFunc(s.read(t).ContainerEdits.Mounts, func(m *specs.Mount) bool { return m.HostPath == tool })
	if !found {
		t.Error("nvidia-smi is not mounted")
	}
}

// TestWritesAndLooksAtTheSameTime is for the race detector: nvcdi and the door share one library.
func TestWritesAndLooksAtTheSameTime(t *testing.T) {
	s := newSetup(t, fakenode.Boards{Board: "h100-80gb", Count: 2})
	var group errgroup.Group
	for worker := range 4 {
		group.Go(func() error {
			for range 10 {
				if _, err := s.nvml.Look(t.Context()); err != nil {
					return fmt.Errorf("looking: %w", err)
				}
				if err := s.cdi.Refresh(); err != nil {
					return fmt.Errorf("refreshing: %w", err)
				}
				uid := fmt.Sprintf("claim-%d", worker)
				if _, err := s.cdi.Write(uid, []doors.Grant{{Name: "0", UUID: s.gpus[worker%2].UUID}}); err != nil {
					return fmt.Errorf("writing: %w", err)
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

func TestItsOwnLibraryServesToo(t *testing.T) {
	s := newSetup(t, fakenode.Boards{Board: "h100-80gb", Count: 1})
	door, err := doors.New(doors.Options{DriverRoot: s.node.Root, SpecDir: s.dir}, testr.New(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := door.Write(claim, []doors.Grant{{Name: "0", UUID: s.gpus[0].UUID}}); err != nil {
		t.Error(err)
	}
}
