// SPDX-License-Identifier: Apache-2.0

// Package cgroupfs gives a test directories that look like a node's cgroup v2 file system, and a procfs that says which
// process is in which cgroup, so that what goes by cgroups is tested on every machine.
package cgroupfs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/sluice-gpu/sluice/test/framework/fakenode"
)

// Pods that tests use, by the names that kubelet gives to their cgroups.
const (
	Pod   = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod11111111_2222_3333_4444_555555555555.slice"
	Other = "/kubepods.slice/kubepods-pod21111111_2222_3333_4444_555555555555.slice"
)

// FS is a cgroup file system.
type FS struct {
	// Root is where it is mounted, Proc the procfs.
	Root, Proc string

	dmem bool
}

// New makes one. With dmem each cgroup has the kernel's controller for device memory.
func New(tb testing.TB, dmem bool) *FS {
	tb.Helper()
	dir := tb.TempDir()
	f := &FS{Root: filepath.Join(dir, "cgroup"), Proc: filepath.Join(dir, "proc"), dmem: dmem}
	for _, d := range []string{f.Root, f.Proc} {
		if err := os.Mkdir(d, 0o755); err != nil {
			tb.Fatal(err)
		}
	}
	f.write(tb, filepath.Join(f.Root, "cgroup.controllers"), "cpu memory dmem\n")
	f.control(tb, f.Root)
	return f
}

// Make makes a cgroup, and those above it.
func (f *FS) Make(tb testing.TB, cgroup string) {
	tb.Helper()
	for dir := f.Root; cgroup != ""; {
		var name string
		name, cgroup = first(cgroup)
		dir = filepath.Join(dir, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
			tb.Fatal(err)
		}
		f.control(tb, dir)
	}
}

// control has the cgroups below one have the controller.
func (f *FS) control(tb testing.TB, dir string) {
	tb.Helper()
	if f.dmem {
		f.write(tb, filepath.Join(dir, "cgroup.subtree_control"), "cpu memory dmem\n")
	}
}

// first parts the first name from a path that begins with a slash.
func first(path string) (name, rest string) {
	for i := 1; i < len(path); i++ {
		if path[i] == '/' {
			return path[1:i], path[i:]
		}
	}
	return path[1:], ""
}

// Remove removes a cgroup and those below it, as the container runtime does.
func (f *FS) Remove(tb testing.TB, cgroup string) {
	tb.Helper()
	if err := os.RemoveAll(filepath.Join(f.Root, cgroup)); err != nil {
		tb.Fatal(err)
	}
}

// Put puts a process and its children into a cgroup, which is made.
func (f *FS) Put(tb testing.TB, pid int, cgroup string) {
	tb.Helper()
	f.Make(tb, cgroup)
	dir := filepath.Join(f.Proc, strconv.Itoa(pid))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	f.write(tb, filepath.Join(dir, "cgroup"), "0::"+cgroup+"\n")
}

// Locate has the CUDA programs of a node be told their cgroups until the test ends.
func (f *FS) Locate(tb testing.TB, node *fakenode.Node) {
	tb.Helper()
	cmd := exec.Command(filepath.Join(fakenode.Build(tb), "fakegpu"), "locate", "--state", node.State, "--proc", f.Proc) //nolint:noctx // ended below
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

func (*FS) write(tb testing.TB, path, text string) {
	tb.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
}
