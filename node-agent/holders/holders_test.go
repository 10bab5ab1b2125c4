// SPDX-License-Identifier: Apache-2.0

package holders_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/holders"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
)

type hardware []nvml.Holder

func (h hardware) Holders(context.Context, string) ([]nvml.Holder, error) { return h, nil }

// process writes what procfs says of one.
func process(t *testing.T, proc string, pid int, command, cgroup string) {
	t.Helper()
	dir := filepath.Join(proc, strconv.Itoa(pid))
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"comm": command, "cgroup": cgroup} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func claims(pods ...checkpoint.Pod) checkpoint.Claims {
	return checkpoint.Claims{Claims: map[string]checkpoint.Claim{"uid": {
		UID: "uid", Pods: pods, Results: []checkpoint.Result{{GPU: "GPU-0"}},
	}}}
}

func TestOn(t *testing.T) {
	const (
		uid     = "11111111-2222-3333-4444-555555555555"
		systemd = "0::/../../kubepods-besteffort-pod11111111_2222_3333_4444_555555555555.slice/cri-containerd-x.scope\n"
		plain   = "0::/kubepods/besteffort/pod" + uid + "/x\n"
		other   = "0::/kubepods/besteffort/pod99999999-2222-3333-4444-555555555555/x\n"
	)
	for _, tc := range []struct {
		name            string
		command, cgroup string
		claims          checkpoint.Claims
		want            holders.Process
	}{
		{name: "a process of the node", command: "python3\n", cgroup: "0::/user.slice\n", want: holders.Process{Name: "python3 (7)"}},
		{name: "a process of a claim's pod", command: "train\n", cgroup: plain, claims: claims(checkpoint.Pod{UID: uid}), want: holders.Process{Name: "train (7)", Tenant: true}},
		{name: "a process of a claim's pod, as systemd writes it", command: "train\n", cgroup: systemd, claims: claims(checkpoint.Pod{UID: uid}), want: holders.Process{Name: "train (7)", Tenant: true}},
		{name: "a process of another pod is foreign", command: "dcgm\n", cgroup: other, claims: claims(checkpoint.Pod{UID: uid}), want: holders.Process{Name: "dcgm (7)"}},
		{name: "where a claim's pods are not known, a pod's process is taken for theirs", command: "train\n", cgroup: other, claims: claims(), want: holders.Process{Name: "train (7)", Tenant: true}},
		{name: "a command that would spoil a status is cleaned", command: "a\x1b[31m\xff\n", cgroup: "0::/\n", want: holders.Process{Name: "a?[31m? (7)"}},
		{name: "a process without a command has its number", command: "", cgroup: "0::/\n", want: holders.Process{Name: "process (7)"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			proc := t.TempDir()
			process(t, proc, 7, tc.command, tc.cgroup)
			finder := &holders.Finder{Hardware: hardware{{PID: 7, GIID: 3}}, Proc: proc}
			got, err := finder.On(t.Context(), "GPU-0", tc.claims)
			if err != nil {
				t.Fatal(err)
			}
			tc.want.PID, tc.want.GIID = 7, 3
			if diff := cmp.Diff([]holders.Process{tc.want}, got); diff != "" {
				t.Errorf("processes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAProcessThatHasEndedHasItsNumber(t *testing.T) {
	finder := &holders.Finder{Hardware: hardware{{PID: 7, GIID: -1}}, Proc: t.TempDir()}
	got, err := finder.On(t.Context(), "GPU-0", checkpoint.Claims{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]holders.Process{{PID: 7, GIID: -1, Name: "process (7)"}}, got); diff != "" {
		t.Errorf("processes (-want +got):\n%s", diff)
	}
}
