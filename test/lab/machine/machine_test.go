// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-gpu/sluice/test/lab/binaries"
	"github.com/sluice-gpu/sluice/test/lab/cluster"
)

// written makes the states of machines in a lab's directory.
func written(t *testing.T, specs ...Spec) cluster.Dir {
	t.Helper()
	lab := cluster.Dir(t.TempDir())
	for _, spec := range specs {
		s := &State{Spec: spec, Dir: dirOf(lab, spec.Name)}
		if err := os.MkdirAll(string(s.Dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := s.save(); err != nil {
			t.Fatal(err)
		}
	}
	return lab
}

func TestNumbersAreGivenOnce(t *testing.T) {
	for _, tc := range []struct {
		name  string
		taken []Spec
		want  int
	}{
		{name: "the first machine is number 1", want: 1},
		{name: "the next has the next number", taken: []Spec{{Name: "a", Number: 1}}, want: 2},
		{name: "a number that was given back is given again", taken: []Spec{{Name: "a", Number: 1}, {Name: "c", Number: 3}}, want: 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			list, err := List(written(t, tc.taken...))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := freeNumber(list); err != nil || got != tc.want {
				t.Errorf("freeNumber = %d, %v; want %d", got, err, tc.want)
			}
		})
	}
}

func TestAnAddressLeadsToItsMachine(t *testing.T) {
	lab := written(t, Spec{Name: "a", Number: 1, NodeIP: "10.245.0.1"}, Spec{Name: "b", Number: 2, NodeIP: "10.245.0.2"})
	for _, tc := range []struct {
		name, address, want string
	}{
		{name: "a node's own address", address: "10.245.0.2", want: "b"},
		{name: "a pod's address", address: "10.244.1.7", want: "a"},
		{name: "an address of nobody", address: "10.244.9.7"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Find(lab, netip.MustParseAddr(tc.address))
			want := ""
			if tc.want != "" {
				want = dirOf(lab, tc.want).dial()
			}
			if got != want || (err != nil) != (want == "") {
				t.Errorf("Find = %q, %v; want %q", got, err, want)
			}
		})
	}
}

func TestTheHookFindsTheContainer(t *testing.T) {
	script := hookScript(Dir("/m"))
	// What it would mount, and where.
	script = strings.ReplaceAll(script, "mount --bind -o ro", "echo")
	for _, state := range []string{
		`{"ociVersion":"1.2","id":"x","status":"created","pid":7,"bundle":"/run/b/x","annotations":{"a":"b"}}`,
		`{ "bundle": "/run/b/x", "id": "x" }`,
	} {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
		cmd.Stdin = strings.NewReader(state)
		out, err := cmd.CombinedOutput()
		if want := "/m/boot_id /run/b/x/rootfs/proc/sys/kernel/random/boot_id\n"; err != nil || string(out) != want {
			t.Errorf("of the state %s it makes %q, %v; want %q", state, out, err, want)
		}
	}
}

func TestConfigurationsNameTheMachinesOwn(t *testing.T) {
	s := &State{Dir: "/l/machines/a", Spec: Spec{Name: "a", Number: 4, Host: binaries.HostPrograms{Runc: "/r/runc", CNI: "/r/cni"}}}
	for _, want := range []string{`bin_dirs = ["/r/cni"]`, `BinaryName = "/r/runc"`, `sandbox = "` + PauseImage + `"`, `conf_dir = "/l/machines/a/cni"`} {
		if got := containerdConfig(s); !strings.Contains(got, want) {
			t.Errorf("containerd's configuration lacks %s:\n%s", want, got)
		}
	}
	other := &State{Dir: "/l/machines/b"}
	if s.cgroup() == other.cgroup() {
		t.Errorf("two machines have the cgroup %s", s.cgroup())
	}
}

func TestCgroupsAreTheMachines(t *testing.T) {
	root := t.TempDir() // looks like version 1, with one controller
	if err := os.MkdirAll(filepath.Join(root, "cpuset"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "cpuset", "cpuset.cpus"), []byte("0-1"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := &State{Dir: "/l/machines/a"}
	if err := makeCgroups(root, s); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, "cpuset", s.podsCgroup(), "cpuset.cpus"))
	if err != nil || string(got) != "0-1" {
		t.Errorf("the pods' processors are %q, %v", got, err)
	}
}
