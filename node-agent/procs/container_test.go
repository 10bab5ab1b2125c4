// SPDX-License-Identifier: Apache-2.0

package procs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sluice-gpu/sluice/node-agent/procs"
)

// file writes one of a process's files.
func file(t *testing.T, name, text string) string {
	t.Helper()
	proc := t.TempDir()
	if err := os.Mkdir(filepath.Join(proc, "7"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(proc, "7", name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return proc
}

func TestContainerOf(t *testing.T) {
	const uid = "11111111-2222-3333-4444-555555555555"
	want := procs.Container{Pod: uid, Name: "cri-containerd-c.scope"}
	for _, tc := range []struct {
		name, cgroup string
		want         procs.Container
	}{
		{"version 2, by systemd", "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod11111111_2222_3333_4444_555555555555.slice/cri-containerd-c.scope\n", want},
		{"seen from another cgroup namespace", "0::/../../kubepods-pod11111111_2222_3333_4444_555555555555.slice/cri-containerd-c.scope\n", want},
		{"by paths", "0::/kubepods/burstable/pod" + uid + "/c\n", procs.Container{Pod: uid, Name: "c"}},
		{"a cgroup of the container's own below it", "0::/kubepods/pod" + uid + "/c/init/x\n", procs.Container{Pod: uid, Name: "c"}},
		{"version 1", "3:cpu,cpuacct:/\n2:memory:/kubepods/burstable/pod" + uid + "/c\n1:name=systemd:/\n", procs.Container{Pod: uid, Name: "c"}},
		{"a static pod", "0::/kubepods/pod0123456789abcdef0123456789abcdef/c\n", procs.Container{Pod: "0123456789abcdef0123456789abcdef", Name: "c"}},
		{"the pod's own cgroup", "0::/kubepods/pod" + uid + "\n", procs.Container{}},
		{"a service of the node", "0::/system.slice/podman.service\n", procs.Container{}},
		{"a name that looks like a pod's", "0::/user.slice/mypod" + uid + "/c\n", procs.Container{}},
		{"nonsense", "::::\nx\n0::pod/\n", procs.Container{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, ok := procs.ContainerOf(file(t, "cgroup", tc.cgroup), 7)
			if got != tc.want || ok != (tc.want != procs.Container{}) {
				t.Errorf("got %+v, %v, want %+v", got, ok, tc.want)
			}
		})
	}
	if _, ok := procs.ContainerOf(t.TempDir(), 7); ok {
		t.Error("a process that has ended is in a container")
	}
}

func TestStart(t *testing.T) {
	const tail = " 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 0 0\n"
	for _, tc := range []struct {
		name, stat string
		want       uint64
	}{
		{"a process", "7 (a) S" + tail, 4242},
		{"a name that looks like the rest", "7 (a) R 1 (b) ) S" + tail, 4242},
		{"one that has ended", "7 (a) Z" + tail, 0},
		{"a line that is cut short", "7 (a) S 1 1", 0},
		{"nothing", "", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := procs.Start(file(t, "stat", tc.stat), 7)
			if got != tc.want || (err != nil) != (tc.want == 0) {
				t.Errorf("got %d, %v, want %d", got, err, tc.want)
			}
		})
	}
}

// TestARealProcess has a mount of a file system in a namespace of its own.
func TestARealProcess(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("shares", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("mounting: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if err := os.MkdirAll(filepath.Join(dir, "claim", "0"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "claim", "0", "limits"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	place := filepath.Join(t.TempDir(), "place")
	if err := os.WriteFile(place, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	script := `mount --bind "$0" "$1" && echo there && read _`
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c", script, filepath.Join(dir, "claim", "0", "limits"), place)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	var stat unix.Stat_t
	if err := unix.Stat(dir, &stat); err != nil {
		t.Fatal(err)
	}
	roots, err := procs.Mounted("/proc", cmd.Process.Pid, stat.Dev)
	if err != nil || !slices.Contains(roots, "/claim/0/limits") {
		t.Errorf("its mounts are %v, %v", roots, err)
	}
	own, err := procs.Mounted("/proc", os.Getpid(), stat.Dev)
	if diff := cmp.Diff([]string{"/"}, own); err != nil || diff != "" {
		t.Errorf("this process's mounts (-want +got):\n%s%v", diff, err)
	}
	if start, err := procs.Start("/proc", cmd.Process.Pid); err != nil || start == 0 {
		t.Errorf("it was started at %d, %v", start, err)
	}
}
