// SPDX-License-Identifier: Apache-2.0

package cdi_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"

	doors "github.com/sluice-gpu/sluice/node-agent/cdi"
	"github.com/sluice-gpu/sluice/test/framework/fakenode"
)

func TestSpecsNameWhatTheRuntimeSees(t *testing.T) {
	s := newSetup(t, fakenode.Boards{Board: "h100-80gb", Count: 1})
	host := filepath.Dir(s.node.Root)
	door, err := doors.New(doors.Options{
		HostRoot: host, DriverRoot: s.node.Root, SpecDir: s.dir, HookPath: "/opt/sluice/nvidia-cdi-hook", NVML: s.nvml.Library,
	}, testr.New(t))
	if err != nil {
		t.Fatal(err)
	}
	// The second claim is made of what the door remembers from the first one.
	for range 2 {
		if _, err := door.Write(claim, []doors.Grant{{
			Name: "0", UUID: s.gpus[0].UUID, Mounts: []doors.Mount{{HostPath: "/run/x/limits", ContainerPath: "/run/sluice/x/0/limits"}},
		}}); err != nil {
			t.Fatal(err)
		}
		spec := s.read(t)
		driver := "/" + filepath.Base(s.node.Root)
		seen := map[string]bool{}
		for _, edits := range []int{0, 1} {
			all := spec.ContainerEdits
			if edits == 1 {
				all = spec.Devices[0].ContainerEdits
			}
			for _, node := range all.DeviceNodes {
				seen[node.HostPath] = true
			}
			for _, mount := range all.Mounts {
				seen[mount.HostPath] = true
			}
		}
		for path := range seen {
			if path != "/run/x/limits" && path != "/dev/null" && !strings.HasPrefix(path, driver+"/") {
				t.Errorf("the spec names %s, which is not below %s", path, driver)
			}
		}
		for _, want := range []string{driver + "/dev/nvidia0", driver + "/dev/nvidiactl", "/run/x/limits"} {
			if !seen[want] {
				t.Errorf("the spec does not name %s", want)
			}
		}
	}
}

func TestProgramsAreThoseOfAllSpecs(t *testing.T) {
	s := newSetup(t, fakenode.Boards{Board: "h100-80gb", Count: 1})
	programs, err := s.cdi.Programs()
	if err != nil || len(programs) != 0 {
		t.Fatalf("without a spec: %v, %v, want none", programs, err)
	}
	if _, err := s.cdi.Write(claim, []doors.Grant{{Name: "0", UUID: s.gpus[0].UUID}}); err != nil {
		t.Fatal(err)
	}
	if programs, err = s.cdi.Programs(); err != nil || len(programs) == 0 {
		t.Fatalf("of one spec: %v, %v, want some", programs, err)
	}
	for _, program := range programs {
		if diff := cmp.Diff("/opt/sluice/nvidia-cdi-hook", program); diff != "" {
			t.Errorf("a hook (-want +got):\n%s", diff)
		}
	}
}
