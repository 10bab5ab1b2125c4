// SPDX-License-Identifier: Apache-2.0

package limits_test

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sluice-gpu/sluice/node-agent/limits"
)

const (
	// holdVariable names a ledger to the process that is to hold slots of it.
	holdVariable = "HOLD_LEDGER"
	lifeOfSlot2  = 4096 + 2*64
)

// TestHoldALedger is no test of its own: it is the process that TestHolders starts, which holds slot 2 until its input ends.
func TestHoldALedger(t *testing.T) {
	path := os.Getenv(holdVariable)
	if path == "" {
		t.Skip("it is started by another test")
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0) //nolint:gosec // G703: the path is the test's own
	if err != nil {
		t.Fatal(err)
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: lifeOfSlot2, Len: 1}
	if err := unix.FcntlFlock(file.Fd(), unix.F_SETLK, &lock); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stdout.WriteString("held"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stdin.Read(make([]byte, 1)); err == nil {
		t.Error("the input did not end")
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
}

// hold starts a process that holds slot 2 of a ledger.
func hold(t *testing.T, path string) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestHoldALedger$")
	cmd.Env = append(os.Environ(), holdVariable+"="+path)
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
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

// ledger is one of four slots: 0 is nobody's, 1 a dead process's, 2 and 3 of living ones as they say.
func ledger() []byte {
	page := make([]byte, usageSize)
	put32 := func(at int, v uint32) { binary.NativeEndian.PutUint32(page[at:], v) }
	put32(0, 0x55434c53)
	put32(4, 1)
	put32(8, 1)
	put32(12, 4)
	for slot := 1; slot < 4; slot++ {
		at := 4096 + 64*slot
		binary.NativeEndian.PutUint64(page[at:], 9000<<32|300)
		binary.NativeEndian.PutUint64(page[at+8:], uint64(70+slot))
		binary.NativeEndian.PutUint64(page[at+16:], 5)
		binary.NativeEndian.PutUint64(page[at+24:], 6)
	}
	return page
}

func TestHolders(t *testing.T) {
	door, _ := newDoor(t)
	dir, err := door.Write(makeShare())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, limits.UsageFile)
	pid := hold(t, path)
	held := []limits.Holder{{PID: pid, Stamp: 72, Held: 300 * 4096, Exported: 5, Imported: 6}}
	for _, tc := range []struct {
		name   string
		change func([]byte)
		want   []limits.Holder
	}{
		{name: "who holds no lock is dead, whatever it left", change: func([]byte) {}, want: held},
		{name: "a number of slots beyond all bounds is bounded", change: func(b []byte) { binary.NativeEndian.PutUint32(b[12:], 1<<31) }, want: held},
		{name: "a slot that says to be nobody's is", change: func(b []byte) { binary.NativeEndian.PutUint64(b[lifeOfSlot2+8:], 0) }},
		{name: "a ledger that nobody has begun is empty", change: func(b []byte) { binary.NativeEndian.PutUint32(b, 0) }},
		{name: "one of a later contract is not understood", change: func(b []byte) { binary.NativeEndian.PutUint32(b[8:], 3) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			page := ledger()
			tc.change(page)
			// By one call on one descriptor, and in place: the lock stays with its inode.
			if err := os.WriteFile(path, page, 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := door.Holders(claim, 0)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("holders (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHoldersOfWhatIsNoLedger(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(path string) error
		failed bool
	}{
		{name: "a share without one has no holders", change: os.Remove},
		{name: "one that its processes cut short is an error", change: func(path string) error { return os.Truncate(path, 100) }, failed: true},
		{name: "a link is not followed", change: func(path string) error {
			return errors.Join(os.Rename(path, path+".old"), os.Symlink(path+".old", path))
		}, failed: true},
		{name: "a FIFO neither blocks nor counts", change: func(path string) error {
			return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600))
		}, failed: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			door, _ := newDoor(t)
			dir, err := door.Write(makeShare())
			if err != nil {
				t.Fatal(err)
			}
			if err := tc.change(filepath.Join(dir, limits.UsageFile)); err != nil {
				t.Fatal(err)
			}
			got, err := door.Holders(claim, 0)
			if len(got) != 0 || (err != nil) != tc.failed {
				t.Errorf("holders are %v (%v)", got, err)
			}
		})
	}
}

func TestTheOverheadChangesAlone(t *testing.T) {
	door, _ := newDoor(t)
	dir, err := door.Write(makeShare())
	if err != nil {
		t.Fatal(err)
	}
	want := readPage(t, dir)
	want.Overhead = 60 << 20
	if err := door.SetOverhead(claim, 0, 60<<20); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, readPage(t, dir)); diff != "" {
		t.Errorf("page (-want +got):\n%s", diff)
	}
	got, err := door.Words(claim, 0)
	if err != nil {
		t.Fatal(err)
	}
	words := limits.Words{MemoryLimit: want.Memory, Context: want.Context, Overhead: want.Overhead, ComputeShare: want.ComputeShare}
	if diff := cmp.Diff(words, got); diff != "" {
		t.Errorf("words (-want +got):\n%s", diff)
	}
	if err := door.Remove(claim); err != nil {
		t.Fatal(err)
	}
	if err := door.SetOverhead(claim, 0, 1); !errors.Is(err, limits.ErrNoShare) {
		t.Errorf("a share that is gone: %v, want ErrNoShare", err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the share is there again")
	}
}
