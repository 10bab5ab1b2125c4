// SPDX-License-Identifier: Apache-2.0

package limits_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-gpu/sluice/node-agent/limits"
)

const usageSize = 4096 + 1024*64

func TestAShareThatIsHeldHasALedgerAndABell(t *testing.T) {
	for _, umask := range []int{0o022, 0o077} {
		door, _ := newDoor(t)
		old := syscall.Umask(umask)
		dir, err := door.Write(makeShare())
		syscall.Umask(old)
		if err != nil {
			t.Fatal(err)
		}
		usage, err := os.ReadFile(filepath.Join(dir, "usage"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(usage, make([]byte, usageSize)) {
			t.Errorf("the ledger has %d bytes, want %d zeros", len(usage), usageSize)
		}
		var stat unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, "usage"), &stat); err != nil || stat.Mode != unix.S_IFREG|0o666 || stat.Blocks*512 < usageSize {
			t.Errorf("the ledger has mode %o and %d bytes of room (%v)", stat.Mode, stat.Blocks*512, err)
		}
		if err := unix.Lstat(filepath.Join(dir, "bell"), &stat); err != nil || stat.Mode != unix.S_IFIFO|0o622 {
			t.Errorf("the bell has mode %o (%v)", stat.Mode, err)
		}
	}
}

func TestAShareThatIsOnlyCountedHasNeither(t *testing.T) {
	door, _ := newDoor(t)
	dir, err := door.Write(makeShare(func(s *limits.Share) { s.Enforce = 0 }))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the share has %v (%v), want its page alone", entries, err)
	}
}

func TestTheLedgerBelongsToItsProcesses(t *testing.T) {
	for _, tc := range []struct {
		name string
		size int64
	}{
		{name: "what is in it stays", size: usageSize},
		{name: "one that was cut short gets its length back", size: 100},
		{name: "one that was made longer is shortened", size: 3 * usageSize},
	} {
		t.Run(tc.name, func(t *testing.T) {
			door, _ := newDoor(t)
			dir, err := door.Write(makeShare())
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "usage")
			before := inode(t, path)
			data := bytes.Repeat([]byte{7}, int(tc.size))
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := door.Write(makeShare()); err != nil {
				t.Fatal(err)
			}
			want := append(data, make([]byte, usageSize)...)[:usageSize]
			copy(want[min(int(tc.size), usageSize):], make([]byte, usageSize))
			got, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(got, want) || inode(t, path) != before {
				t.Errorf("the ledger has %d bytes (%v) of other content, or is another file", len(got), err)
			}
		})
	}
}

func TestAFileOfAnotherKindIsRefused(t *testing.T) {
	for _, name := range []string{"usage", "bell"} {
		door, root := newDoor(t)
		dir := filepath.Join(root, claim, "0")
		if err := os.MkdirAll(dir, 0o711); err != nil {
			t.Fatal(err)
		}
		var err error
		if name == "bell" {
			err = os.WriteFile(filepath.Join(dir, name), nil, 0o600)
		} else {
			err = unix.Mkfifo(filepath.Join(dir, name), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := door.Write(makeShare()); !errors.Is(err, limits.ErrBadShare) {
			t.Errorf("Write with another %s: %v", name, err)
		}
	}
}

// TestAFullFileSystemIsAnError has the ledger's room taken before the page is there: nothing grants memory then.
func TestAFullFileSystemIsAnError(t *testing.T) {
	root := filepath.Join(t.TempDir(), "full")
	if err := os.Mkdir(root, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("sluice", root, "tmpfs", 0, "size=40k"); err != nil {
		t.Skipf("mounting a small file system: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
	door, err := limits.New(root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := door.Write(makeShare()); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("Write on a full file system: %v", err)
	}
	if _, err := os.Stat(filepath.Join(root, claim, "0", "limits")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is a page: %v", err)
	}
	if err := door.Remove(claim); err != nil {
		t.Error(err)
	}
}

// TestATenantCannotFillTheFileSystem has one make its ledger as long as there is room.
func TestATenantCannotFillTheFileSystem(t *testing.T) {
	root := filepath.Join(t.TempDir(), "small")
	if err := os.Mkdir(root, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("sluice", root, "tmpfs", 0, "size=400k"); err != nil {
		t.Skipf("mounting a small file system: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
	door, err := limits.New(root)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := door.Write(makeShare())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "usage"), make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("filling the file system: %v", err)
	}
	if _, err := door.Write(makeShare(func(s *limits.Share) { s.ClaimUID = "other" })); err != nil {
		t.Errorf("Write of another tenant's share: %v", err)
	}
}

func TestHeartbeat(t *testing.T) {
	door, root := newDoor(t)
	path := filepath.Join(root, "heartbeat")
	first, err := door.Heartbeat()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeHeartbeat(t, first) })
	beatsAt(t, first, path, 1)
	// Another agent that opens it writes nothing.
	second, err := door.Heartbeat()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeHeartbeat(t, second) })
	if got := heartbeatIn(t, path); got != 1 {
		t.Errorf("opening changed the page to %d", got)
	}
	beatsAt(t, first, path, 2)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	beatsAt(t, first, path, 3)
	wantMode(t, path, 0o644)
	now, err := limits.Monotonic()
	if later, err2 := limits.Monotonic(); err != nil || err2 != nil || now == 0 || later < now {
		t.Errorf("the clock says %d and then %d (%v, %v)", now, later, err, err2)
	}
}

func closeHeartbeat(t *testing.T, heartbeat *limits.Heartbeat) {
	t.Helper()
	if err := heartbeat.Close(); err != nil {
		t.Error(err)
	}
}

func beatsAt(t *testing.T, heartbeat *limits.Heartbeat, path string, now uint64) {
	t.Helper()
	if err := heartbeat.Beat(now); err != nil {
		t.Fatal(err)
	}
	if got := heartbeatIn(t, path); got != now {
		t.Errorf("the page says %d, want %d", got, now)
	}
}

func heartbeatIn(t *testing.T, path string) uint64 {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil || len(data) != pageSize {
		t.Fatalf("the page has %d bytes (%v)", len(data), err)
	}
	return binary.NativeEndian.Uint64(data)
}
