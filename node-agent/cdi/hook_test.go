// SPDX-License-Identifier: Apache-2.0

package cdi_test

import (
	"errors"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"tags.cncf.io/container-device-interface/specs-go"

	doors "github.com/sluice-gpu/sluice/node-agent/cdi"
	"github.com/sluice-gpu/sluice/test/framework/fakenode"
)

func TestTheAgentIsAskedBeforeAStart(t *testing.T) {
	s := newSetup(t, fakenode.Boards{Board: "h100-80gb", Count: 2})
	options := doors.Options{
		DriverRoot: s.node.Root, SpecDir: s.dir, HookPath: "/opt/sluice/nvidia-cdi-hook", NVML: s.nvml.Library,
		StartHook: "/opt/sluice/sluice-cdi-hook", AskSocket: "/run/sluice/hook.sock",
	}
	grants := []doors.Grant{{Name: "0", UUID: s.gpus[0].UUID, Ask: true}, {Name: "3", UUID: s.gpus[1].UUID}}
	door, err := doors.New(options, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := door.Write(claim, grants); err != nil {
		t.Fatal(err)
	}
	spec := s.read(t)
	want := []*specs.Hook{{
		HookName: "createRuntime", Path: "/opt/sluice/sluice-cdi-hook",
		Args: []string{"sluice-cdi-hook", "--socket", "/run/sluice/hook.sock", "--claim", claim, "--result", "0"},
	}}
	if diff := cmp.Diff(want, spec.Devices[0].ContainerEdits.Hooks); diff != "" {
		t.Errorf("hooks of the first device (-want +got):\n%s", diff)
	}
	if hooks := spec.Devices[1].ContainerEdits.Hooks; len(hooks) > 0 {
		t.Errorf("the second device has hooks: %v", hooks)
	}

	options.StartHook = "sluice-cdi-hook"
	if door, err = doors.New(options, logr.Discard()); err != nil {
		t.Fatal(err)
	}
	if _, err := door.Write(claim, grants); !errors.Is(err, doors.ErrBadGrant) {
		t.Errorf("without the hook's whole path: %v", err)
	}
}
