// SPDX-License-Identifier: Apache-2.0

package limits_test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gpu/sluice/internal/claimuid"
	"github.com/sluice-gpu/sluice/node-agent/limits"
)

const (
	claim    = "0c5c7c0e-5b8f-4c53-9c7d-3a6f1d2b9e01"
	gpuUUID  = "GPU-00112233-4455-6677-8899-aabbccddeeff"
	migUUID  = "MIG-ffeeddcc-bbaa-9988-7766-554433221100"
	pageSize = 4096
)

// makeShare is a valid share of a whole GPU, changed by the given functions.
func makeShare(change ...func(*limits.Share)) limits.Share {
	share := limits.Share{
		ClaimUID: claim, Index: 0, UUID: gpuUUID, MemoryLimit: 59 << 30, Context: 640 << 20, Overhead: 7,
		ComputeShare: 2500, Policy: limits.PolicyCap, Enforce: limits.EnforceMemory | limits.EnforceCompute,
	}
	for _, c := range change {
		c(&share)
	}
	return share
}

// words are a page's words as a reader of the contract finds them.
type words struct {
	Magic, Version, MinReader     uint32
	UUID, ParentUUID              [16]byte
	Memory, Context, Overhead     uint64
	ComputeShare, Policy, Enforce uint32
	RestIsZero                    bool
}

func readPage(t *testing.T, dir string) words {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "limits"))
	if err != nil {
		t.Fatal(err)
	}
	if len(data) != pageSize {
		t.Fatalf("page has %d bytes, want %d", len(data), pageSize)
	}
	u32 := func(at int) uint32 { return binary.NativeEndian.Uint32(data[at:]) }
	u64 := func(at int) uint64 { return binary.NativeEndian.Uint64(data[at:]) }
	w := words{
		Magic: u32(0), Version: u32(4), MinReader: u32(8),
		UUID: [16]byte(data[16:32]), ParentUUID: [16]byte(data[32:48]),
		Memory: u64(48), Context: u64(56), Overhead: u64(64),
		ComputeShare: u32(72), Policy: u32(76), Enforce: u32(80), RestIsZero: true,
	}
	for _, b := range data[84:] {
		w.RestIsZero = w.RestIsZero && b == 0
	}
	return w
}

func newDoor(t *testing.T) (*limits.Door, string) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "run", "sluice")
	door, err := limits.New(root)
	if err != nil {
		t.Fatal(err)
	}
	return door, root
}

func TestWritePutsEveryWordInItsPlace(t *testing.T) {
	gpu := [16]byte{0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}
	mig := [16]byte{0xff, 0xee, 0xdd, 0xcc, 0xbb, 0xaa, 0x99, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x00}
	for _, tc := range []struct {
		name  string
		share limits.Share
		want  words
	}{
		{
			name:  "a share of a whole GPU names the GPU twice",
			share: makeShare(),
			want: words{
				Magic: 0x45434c53, Version: 2, MinReader: 1, UUID: gpu, ParentUUID: gpu,
				Memory: 59 << 30, Context: 640 << 20, Overhead: 7, ComputeShare: 2500, Policy: 1, Enforce: 3, RestIsZero: true,
			},
		},
		{
			name: "a MIG instance names itself and its GPU",
			share: makeShare(func(s *limits.Share) {
				s.UUID, s.ParentUUID, s.Index, s.Enforce, s.Policy = migUUID, gpuUUID, 3, 0, limits.PolicyShare
			}),
			want: words{
				Magic: 0x45434c53, Version: 2, MinReader: 1, UUID: mig, ParentUUID: gpu,
				Memory: 59 << 30, Context: 640 << 20, Overhead: 7, ComputeShare: 2500, RestIsZero: true,
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			door, _ := newDoor(t)
			dir, err := door.Write(tc.share)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, readPage(t, dir)); diff != "" {
				t.Errorf("page differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWriteChangesAPageInPlace(t *testing.T) {
	door, _ := newDoor(t)
	dir, err := door.Write(makeShare())
	if err != nil {
		t.Fatal(err)
	}
	before := inode(t, filepath.Join(dir, "limits"))
	again, err := door.Write(makeShare(func(s *limits.Share) { s.MemoryLimit, s.ComputeShare = 1<<30, 100 }))
	if err != nil {
		t.Fatal(err)
	}
	if again != dir {
		t.Errorf("second Write answers %s, the first %s", again, dir)
	}
	if after := inode(t, filepath.Join(dir, "limits")); after != before {
		t.Errorf("page is another file now (inode %d, was %d): containers keep the old one", after, before)
	}
	got := readPage(t, dir)
	if got.Memory != 1<<30 || got.ComputeShare != 100 {
		t.Errorf("page holds memory %d and compute %d, want the new figures", got.Memory, got.ComputeShare)
	}
}

func TestWriteFinishesWhatACrashLeft(t *testing.T) {
	for _, tc := range []struct {
		name string
		left []byte
	}{
		{name: "an empty file", left: nil},
		{name: "half a page", left: make([]byte, 2048)},
		{name: "a page without its magic", left: make([]byte, pageSize)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			door, root := newDoor(t)
			dir := filepath.Join(root, claim, "0")
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "limits"), tc.left, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := door.Write(makeShare()); err != nil {
				t.Fatal(err)
			}
			if got := readPage(t, dir); got.Magic != 0x45434c53 || got.Memory != 59<<30 || !got.RestIsZero {
				t.Errorf("page is not complete: %+v", got)
			}
			wantMode(t, filepath.Join(dir, "limits"), 0o644)
			wantMode(t, dir, 0o711)
		})
	}
}

func TestWriteRefuses(t *testing.T) {
	for _, tc := range []struct {
		name  string
		share limits.Share
		want  error
	}{
		{name: "a way up as UID", share: makeShare(func(s *limits.Share) { s.ClaimUID = "../x" }), want: claimuid.ErrInvalid},
		{name: "an empty UID", share: makeShare(func(s *limits.Share) { s.ClaimUID = "" }), want: claimuid.ErrInvalid},
		{name: "the library's directory as UID", share: makeShare(func(s *limits.Share) { s.ClaimUID = "lib" }), want: claimuid.ErrInvalid},
		{name: "a negative index", share: makeShare(func(s *limits.Share) { s.Index = -1 }), want: limits.ErrBadShare},
		{name: "more than all of the compute", share: makeShare(func(s *limits.Share) { s.ComputeShare = 10001 }), want: limits.ErrBadShare},
		{name: "an unknown policy", share: makeShare(func(s *limits.Share) { s.Policy = 2 }), want: limits.ErrBadShare},
		{name: "an unknown enforce bit", share: makeShare(func(s *limits.Share) { s.Enforce = 4 }), want: limits.ErrBadShare},
		{name: "a UUID without its prefix", share: makeShare(func(s *limits.Share) { s.UUID = gpuUUID[4:] }), want: limits.ErrBadShare},
		{name: "a UUID with a letter that is no digit", share: makeShare(func(s *limits.Share) { s.UUID = gpuUUID[:39] + "x" }), want: limits.ErrBadShare},
		{name: "an old MIG name in place of a UUID", share: makeShare(func(s *limits.Share) { s.UUID = "MIG-" + gpuUUID + "/1/0" }), want: limits.ErrBadShare},
		{name: "a parent that is no UUID", share: makeShare(func(s *limits.Share) { s.ParentUUID = "0" }), want: limits.ErrBadShare},
	} {
		t.Run(tc.name, func(t *testing.T) {
			door, root := newDoor(t)
			if _, err := door.Write(tc.share); !errors.Is(err, tc.want) {
				t.Errorf("Write answers %v, want %v", err, tc.want)
			}
			if entries, err := os.ReadDir(root); err != nil || len(entries) != 0 {
				t.Errorf("something was written: %v, %v", entries, err)
			}
		})
	}
}

func TestWriteRefusesAnotherDevice(t *testing.T) {
	door, _ := newDoor(t)
	dir, err := door.Write(makeShare())
	if err != nil {
		t.Fatal(err)
	}
	want := readPage(t, dir)
	if _, err := door.Write(makeShare(func(s *limits.Share) { s.UUID, s.MemoryLimit = migUUID, 1 })); !errors.Is(err, limits.ErrOtherDevice) {
		t.Errorf("Write answers %v, want %v", err, limits.ErrOtherDevice)
	}
	if diff := cmp.Diff(want, readPage(t, dir)); diff != "" {
		t.Errorf("page was changed (-want +got):\n%s", diff)
	}
}

func TestWriteFollowsNoLink(t *testing.T) {
	door, root := newDoor(t)
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(root, claim)); err != nil {
		t.Fatal(err)
	}
	if _, err := door.Write(makeShare()); err == nil {
		t.Error("Write followed a link out of its directory")
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 0 {
		t.Errorf("something was written outside: %v, %v", entries, err)
	}
}

func TestRemoveAndList(t *testing.T) {
	door, root := newDoor(t)
	for _, uid := range []string{"claim-b", "claim-a"} {
		for index := range 2 {
			if _, err := door.Write(makeShare(func(s *limits.Share) { s.ClaimUID, s.Index = uid, index })); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The library's directory and a stray file are not claims.
	if err := os.MkdirAll(filepath.Join(root, "lib", "1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "heartbeat"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantList(t, door, "claim-a", "claim-b")
	for range 2 { // The second time there is nothing left.
		if err := door.Remove("claim-a"); err != nil {
			t.Fatal(err)
		}
		wantList(t, door, "claim-b")
	}
	if err := door.Remove(".."); !errors.Is(err, claimuid.ErrInvalid) {
		t.Errorf("Remove(\"..\") = %v, want %v", err, claimuid.ErrInvalid)
	}
}

func TestNewChecksTheRoot(t *testing.T) {
	for _, tc := range []struct {
		name string
		make func(t *testing.T, root string)
		want error
	}{
		{name: "a missing directory is made", make: func(*testing.T, string) {}},
		{name: "an open directory is closed to others", make: func(t *testing.T, root string) {
			t.Helper()
			if err := errors.Join(os.Mkdir(root, 0o777), os.Chmod(root, 0o777)); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "a file is refused", want: limits.ErrBadRoot, make: func(t *testing.T, root string) {
			t.Helper()
			if err := os.WriteFile(root, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "a link to a directory is refused", want: limits.ErrBadRoot, make: func(t *testing.T, root string) {
			t.Helper()
			if err := os.Symlink(t.TempDir(), root); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "shares")
			tc.make(t, root)
			if _, err := limits.New(root); !errors.Is(err, tc.want) {
				t.Fatalf("New answers %v, want %v", err, tc.want)
			}
			if tc.want == nil {
				wantMode(t, root, 0o711)
			}
		})
	}
}

func TestContainerDir(t *testing.T) {
	want := "/run/sluice/" + claim + "/2"
	if got := limits.ContainerDir(claim, 2); got != want {
		t.Errorf("ContainerDir = %s, want %s", got, want)
	}
}

// BenchmarkWrite makes one share and removes it.
func BenchmarkWrite(b *testing.B) {
	door, err := limits.New(filepath.Join(b.TempDir(), "shares"))
	if err != nil {
		b.Fatal(err)
	}
	share := makeShare()
	for b.Loop() {
		if _, err := door.Write(share); err != nil {
			b.Fatal(err)
		}
		if err := door.Remove(share.ClaimUID); err != nil {
			b.Fatal(err)
		}
	}
}

func wantList(t *testing.T, door *limits.Door, want ...string) {
	t.Helper()
	got, err := door.List()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("List differs (-want +got):\n%s", diff)
	}
}

func wantMode(t *testing.T, name string, want os.FileMode) {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != want {
		t.Errorf("%s has mode %o, want %o", name, got, want)
	}
}

func inode(t *testing.T, name string) uint64 {
	t.Helper()
	var stat syscall.Stat_t
	if err := syscall.Stat(name, &stat); err != nil {
		t.Fatal(err)
	}
	return stat.Ino
}
