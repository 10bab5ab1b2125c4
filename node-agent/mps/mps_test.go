// SPDX-License-Identifier: Apache-2.0

package mps_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	testclock "k8s.io/utils/clock/testing"

	"github.com/sluice-gpu/sluice/node-agent/mps"
	"github.com/sluice-gpu/sluice/test/framework/fakemps"
	"github.com/sluice-gpu/sluice/test/framework/fakenode"
)

// TestMain runs the tests in a mount namespace of their own, in which the shared memory of daemons may be mounted.
func TestMain(m *testing.M) { fakenode.Main(m) }

const device = "GPU-00000000-1111-2222-3333-444444444444"

type rig struct {
	door    *mps.Door
	options mps.Options
	program string
}

func newRig(t *testing.T) rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "mps") //nolint:usetesting // a test's own directory is too long for a socket, and closed to other users
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	r := rig{options: mps.Options{Dir: filepath.Join(dir, "d"), DriverRoot: filepath.Join(dir, "root"), Proc: "/proc"}}
	r.program = fakemps.Install(t, r.options.DriverRoot)
	r.again(t)
	t.Cleanup(func() {
		if err := r.door.Keep(context.WithoutCancel(t.Context()), nil); err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(dir)
	})
	return r
}

// again makes a door that knows nothing, as a new agent has it.
func (r *rig) again(t *testing.T) {
	t.Helper()
	r.door = mps.New(r.options, testclock.NewFakePassiveClock(time.Unix(1000, 0)), testr.New(t))
}

func (r *rig) pipe() string { return filepath.Join(r.options.Dir, device, "pipe") }

func (r *rig) serve(t *testing.T, clients ...mps.Client) {
	t.Helper()
	for _, c := range clients {
		if err := r.door.Serve(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
}

func (r *rig) keep(t *testing.T, clients ...mps.Client) {
	t.Helper()
	if err := r.door.Keep(t.Context(), clients); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) state(t *testing.T) mps.State {
	t.Helper()
	s, err := r.door.State(t.Context(), device)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// pid is the daemon's, from its record.
func (r *rig) pid(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(r.options.Dir, device, "daemon.json"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(data), `"pid":`)
	text, _, _ = strings.Cut(text, ",")
	pid, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func client(uid string, change ...func(*mps.Client)) mps.Client {
	c := mps.Client{ClaimUID: uid, Device: device, Driver: "580.159.04", MemoryMiB: 10240, Percent: 30}
	for _, f := range change {
		f(&c)
	}
	return c
}

func newDriver(c *mps.Client) { c.Driver = "615.71.09" }

func TestFromTheFirstClientToTheLast(t *testing.T) {
	r := newRig(t)
	r.serve(t, client("a"), client("b"))
	first := r.pid(t)
	if got := r.state(t); len(got.Servers) != 0 || !got.MultiUser {
		t.Errorf("state %+v before a client has come, want no server, and several users", got)
	}
	shm := filepath.Join("/proc", strconv.Itoa(first), "root", "dev", "shm")
	var inside, outside unix.Stat_t
	if err := errors.Join(unix.Stat(shm, &inside), unix.Stat(filepath.Join(r.options.Dir, device, "shm"), &outside)); err != nil {
		t.Fatal(err)
	}
	if inside.Dev != outside.Dev || inside.Ino != outside.Ino {
		t.Error("the daemon's /dev/shm is not the one that its clients are given")
	}

	c := fakemps.Connect(t, r.program, r.pipe(), 0)
	server := c.Server(t)
	r.again(t)
	r.serve(t, client("c"))
	got := r.state(t)
	if r.pid(t) != first || !slices.Equal(got.Clients, []int{c.PID}) || strconv.Itoa(got.Servers[0]) != server {
		t.Errorf("state %+v and daemon %d for a new agent, want client %d of server %s, and daemon %d", got, r.pid(t), c.PID, server, first)
	}

	r.keep(t, client("a"))
	if !r.door.Running(device) {
		t.Error("the daemon was stopped before its last client")
	}
	r.keep(t)
	if r.door.Running(device) {
		t.Error("the daemon runs on after its last client")
	}
	if left, err := os.ReadDir(r.options.Dir); err != nil || len(left) != 0 {
		t.Errorf("left %v (%v), want nothing", left, err)
	}
	if _, err := r.door.State(t.Context(), device); !errors.Is(err, mps.ErrNoDaemon) {
		t.Errorf("got %v, want ErrNoDaemon", err)
	}
}

func TestADaemonThatEndsByItself(t *testing.T) {
	r := newRig(t)
	r.serve(t, client("a"), client("b"))
	if err := unix.Kill(r.pid(t), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return !r.door.Running(device) })
	// This is what must not last: a client finds no daemon, and runs without a limit.
	eventually(t, func() bool { return fakemps.Connect(t, r.program, r.pipe(), 0).Server(t) == "plain" })
	r.again(t)
	r.keep(t, client("a"), client("b"))
	if diff := cmp.Diff([]string{"a", "b"}, r.state(t).Marked); diff != "" {
		t.Errorf("marked claims differ (-want +got):\n%s", diff)
	}
	if got := fakemps.Connect(t, r.program, r.pipe(), 0).Server(t); got == "plain" {
		t.Error("a client does not find the new daemon")
	}
	r.keep(t, client("b"), client("c"))
	if diff := cmp.Diff([]string{"b"}, r.state(t).Marked); diff != "" {
		t.Errorf("marked claims differ after one is gone (-want +got):\n%s", diff)
	}
}

func TestADaemonIsBornOutsideOfTheAgentsCgroup(t *testing.T) {
	r := newRig(t)
	cgroups := filepath.Join(filepath.Dir(r.options.Dir), "cgroup")
	if err := os.Mkdir(cgroups, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("cgroup", cgroups, "cgroup2", 0, ""); err != nil {
		t.Skipf("cgroup v2 cannot be mounted here: %v", err)
	}
	defer unix.Unmount(cgroups, unix.MNT_DETACH) //nolint:errcheck // it is the test's own namespace
	r.options.Cgroup, r.options.Namespace = filepath.Join(cgroups, "sluice-mps-test"), "/proc/self/ns/mnt"
	r.again(t)
	r.serve(t, client("a"))
	fakemps.Connect(t, r.program, r.pipe(), 0).Server(t)
	for _, pid := range []int{r.pid(t), r.state(t).Servers[0]} {
		got, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
		if err != nil || !strings.Contains(string(got), "/sluice-mps-test/"+device) {
			t.Errorf("process %d is in %s (%v), want a cgroup of the device", pid, got, err)
		}
	}
	server := r.state(t).Servers[0]
	if err := unix.Kill(r.pid(t), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// A daemon that does not answer is ended, and all that it had with it.
	r.keep(t)
	eventually(t, func() bool { return unix.Kill(server, 0) != nil })
	eventually(t, func() bool { return r.door.Serve(t.Context(), client("b")) == nil })
	r.keep(t)
	for _, dir := range []string{filepath.Join(r.options.Cgroup, device), r.options.Cgroup} {
		eventually(t, func() bool { err := os.Remove(dir); return err == nil || os.IsNotExist(err) })
	}
}

func TestADaemonThatNobodyRecorded(t *testing.T) {
	r := newRig(t)
	r.serve(t, client("a"))
	lost := r.pid(t)
	if err := os.Remove(filepath.Join(r.options.Dir, device, "daemon.json")); err != nil {
		t.Fatal(err)
	}
	r.again(t)
	r.serve(t, client("a"))
	eventually(t, func() bool { return unix.Kill(lost, 0) != nil })
	if got := fakemps.Connect(t, r.program, r.pipe(), 0).Server(t); got == "plain" || r.pid(t) == lost {
		t.Errorf("got server %s of daemon %d, want one of a new daemon", got, r.pid(t))
	}
	lost = r.pid(t)
	if err := os.Remove(filepath.Join(r.options.Dir, device, "daemon.json")); err != nil {
		t.Fatal(err)
	}
	r.keep(t)
	eventually(t, func() bool { return unix.Kill(lost, 0) != nil })
}

func TestAnOldDriverServesOneUserAtATime(t *testing.T) {
	if users, err := os.ReadFile("/proc/self/uid_map"); err != nil || !strings.Contains(string(users), "4294967295") {
		t.Skip("there is one user only in this user namespace")
	}
	r := newRig(t)
	if err := os.MkdirAll(filepath.Dir(r.pipe()), 0o711); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(r.pipe()), "refuse-multiuser"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.serve(t, client("a"))
	if r.state(t).MultiUser {
		t.Fatal("the daemon is said to serve several users")
	}
	first := fakemps.Connect(t, r.program, r.pipe(), 1000)
	first.Server(t)
	second := fakemps.Connect(t, r.program, r.pipe(), 1001)
	eventually(t, func() bool { return len(r.state(t).Clients) == 1 })
	if !second.Waits() {
		t.Error("a second user got a server beside the first one's")
	}
	first.End()
	if got := second.Server(t); got == "plain" {
		t.Error("the second user got no server")
	}
}

func TestTheFaultOfAClient(t *testing.T) {
	r := newRig(t)
	r.serve(t, client("a"))
	fakemps.Connect(t, r.program, r.pipe(), 0).Server(t)
	if got := r.state(t).Faulty; len(got) != 0 {
		t.Fatalf("servers %v are faulty", got)
	}
	fakemps.Command(t, r.program, r.pipe(), "fault")
	if diff := cmp.Diff(r.state(t).Servers, r.state(t).Faulty); diff != "" {
		t.Errorf("faulty servers differ (-want +got):\n%s", diff)
	}
}

func TestProtocol3(t *testing.T) {
	r := newRig(t)
	a, b := client("AB-1", newDriver), client("cd-2", newDriver, func(c *mps.Client) { c.Percent = 0 })
	r.serve(t, a, b)
	want := "ab_1_0,sluice,Ready,10240M,30,0," + r.pipe() + "/sluice/ab_1_0\n" +
		"cd_2_0,sluice,Ready,10240M,100,1," + r.pipe() + "/sluice/cd_2_0"
	if diff := cmp.Diff(want, r.namespaces(t)); diff != "" {
		t.Errorf("namespaces differ (-want +got):\n%s", diff)
	}
	access, err := r.door.Access(a, "/share")
	if err != nil {
		t.Fatal(err)
	}
	c := fakemps.Connect(t, r.program, access.Mounts[0].HostPath, 0)
	c.Server(t)
	if diff := cmp.Diff([]int{c.PID}, r.state(t).Clients); diff != "" {
		t.Errorf("clients differ (-want +got):\n%s", diff)
	}

	// A new daemon knows nothing of the old one's namespaces.
	if err := unix.Kill(r.pid(t), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return !r.door.Running(device) })
	r.keep(t, a, b)
	if diff := cmp.Diff(want, r.namespaces(t)); diff != "" {
		t.Errorf("namespaces of the new daemon differ (-want +got):\n%s", diff)
	}
	r.keep(t, b)
	if got := r.namespaces(t); strings.Contains(got, "ab_1_0") {
		t.Errorf("the namespace of a client that is gone is left: %s", got)
	}
}

func (r *rig) namespaces(t *testing.T) string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(fakemps.Command(t, r.program, r.pipe(), "namespace list")), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestAccess(t *testing.T) {
	r := newRig(t)
	r.serve(t, client("a"))
	shm := mps.Mount{HostPath: filepath.Join(r.options.Dir, device, "shm"), ContainerPath: "/dev/shm"}
	for _, tc := range []struct {
		name   string
		client mps.Client
		want   []string
	}{
		{
			name: "a share of memory and threads", client: client("a"),
			want: []string{
				"CUDA_MPS_PIPE_DIRECTORY=/share/mps", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=10240M",
				"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30", "CUDA_MPS_CLIENT_PRIORITY=0",
			},
		},
		{
			name: "a share without compute comes after the others", client: client("a", func(c *mps.Client) { c.Percent = 0 }),
			want: []string{
				"CUDA_MPS_PIPE_DIRECTORY=/share/mps", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=10240M",
				"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100", "CUDA_MPS_CLIENT_PRIORITY=1",
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := r.door.Access(tc.client, "/share")
			if err != nil {
				t.Fatal(err)
			}
			want := mps.Access{Env: tc.want, Mounts: []mps.Mount{{HostPath: r.pipe(), ContainerPath: "/share/mps", ReadOnly: true}, shm}}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("access differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatCannotBeServed(t *testing.T) {
	for _, tc := range []struct {
		name   string
		client mps.Client
		want   error
	}{
		{name: "a name that leads elsewhere is refused", client: client("a", func(c *mps.Client) { c.Device = "GPU-/../.." }), want: mps.ErrBadClient},
		{name: "a share without memory is refused", client: client("a", func(c *mps.Client) { c.MemoryMiB = 0 }), want: mps.ErrBadClient},
		{name: "a part of more than all threads is refused", client: client("a", func(c *mps.Client) { c.Percent = 101 }), want: mps.ErrBadClient},
		{name: "a driver without the program is said", client: client("a"), want: mps.ErrNoProgram},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			if err := r.door.Program(); err != nil {
				t.Errorf("the program is there, got %v", err)
			}
			if err := os.Remove(r.program); err != nil {
				t.Fatal(err)
			}
			if err := r.door.Program(); !errors.Is(err, mps.ErrNoProgram) {
				t.Errorf("the program is not there, got %v", err)
			}
			if err := r.door.Serve(t.Context(), tc.client); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

func TestADirectoryThatDaemonsCannotSeeIsRefused(t *testing.T) {
	r := newRig(t)
	for _, dir := range []string{"/dev/shm", "/dev/shm/mps/"} {
		r.options.Dir = dir
		r.again(t)
		if err := r.door.Serve(t.Context(), client("a")); !errors.Is(err, mps.ErrBadDir) {
			t.Errorf("%s: got %v, want %v", dir, err, mps.ErrBadDir)
		}
	}
	if _, err := os.Stat("/dev/shm/" + device); err == nil {
		t.Error("a directory was made in what is refused")
	}
	r.options.Dir = filepath.Join(t.TempDir(), "d")
	r.again(t)
}

// eventually waits for a condition.
func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	deadline, tick := time.After(20*time.Second), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatal("it does not come to that")
		case <-tick.C:
		}
	}
}
