// SPDX-License-Identifier: Apache-2.0

package limits_test

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gpu/sluice/node-agent/limits"
)

// gate are a gate's words as a reader of the contract finds them.
type gate struct {
	Word, Flags   uint32
	Until, Finish uint64
}

func readGate(t *testing.T, dir string) gate {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "limits"))
	if err != nil {
		t.Fatal(err)
	}
	return gate{
		Word: binary.NativeEndian.Uint32(data[128:]), Flags: binary.NativeEndian.Uint32(data[132:]),
		Until: binary.NativeEndian.Uint64(data[136:]), Finish: binary.NativeEndian.Uint64(data[144:]),
	}
}

func newTurn(t *testing.T) (turn *limits.Turn, dir string) {
	t.Helper()
	door, _ := newDoor(t)
	dir, err := door.Write(makeShare())
	if err != nil {
		t.Fatal(err)
	}
	if turn, err = door.Turn(claim, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := turn.Close(); err != nil {
			t.Error(err)
		}
	})
	return turn, dir
}

func TestTheGateIsWrittenInPlace(t *testing.T) {
	turn, dir := newTurn(t)
	for _, tc := range []struct {
		name string
		do   func()
		want gate
	}{
		{name: "a new gate has no arbiter", do: func() {}, want: gate{}},
		{name: "a shut gate keeps its sequence", do: func() { turn.Set(limits.GateClosed) }, want: gate{Word: 1}},
		{name: "opening counts", do: func() { turn.Open(77, true) }, want: gate{Word: 1<<3 | 2, Flags: 1, Until: 77}},
		{name: "prolonging does not count", do: func() { turn.Prolong(math.MaxUint64, false) }, want: gate{Word: 1<<3 | 2, Until: math.MaxUint64}},
		{name: "closing keeps the sequence", do: func() { turn.Set(limits.GateClosing) }, want: gate{Word: 1<<3 | 3, Until: math.MaxUint64}},
		{name: "launches are of this sequence", do: func() { turn.Finish(9) }, want: gate{Word: 1<<3 | 3, Until: math.MaxUint64, Finish: 1<<32 | 9}},
		{name: "an overrun keeps the sequence", do: func() { turn.Set(limits.GateOverrun) }, want: gate{Word: 1<<3 | 4, Until: math.MaxUint64, Finish: 1<<32 | 9}},
		{name: "the next opening forgets the launches", do: func() { turn.Open(88, false) }, want: gate{Word: 2<<3 | 2, Until: 88}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.do()
			if diff := cmp.Diff(tc.want, readGate(t, dir)); diff != "" {
				t.Errorf("gate (-want +got):\n%s", diff)
			}
			if err := turn.Wake(); err != nil {
				t.Error(err)
			}
		})
	}
	if share, policy := turn.Compute(); share != 2500 || policy != limits.PolicyCap {
		t.Errorf("the share is %d with policy %d", share, policy)
	}
}

func TestReadBelievesTheLivingOnly(t *testing.T) {
	turn, dir := newTurn(t)
	path := filepath.Join(dir, "usage")
	page := ledger()
	binary.NativeEndian.PutUint64(page[88:], 12345)
	pace := func(slot int, launches, sequence uint64, bits uint64) {
		binary.NativeEndian.PutUint64(page[4096+64*slot+56:], launches<<32|sequence<<3|bits)
	}
	write := func() {
		// In place: the lock stays with its inode.
		if err := os.WriteFile(path, page, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pace(0, 1, 1, 7) // nobody's
	pace(1, 4, 6, 3) // a dead process'
	pace(2, 5, 7, 2) // the holder's
	pace(3, 0, 7, 4) // of a dead one that had drained
	write()
	hold(t, path)
	dead := limits.Pace{Sequence: 6, Bits: 3, Launches: 4}
	alive := limits.Pace{Sequence: 7, Bits: 2, Launches: 5}
	drained := limits.Pace{Sequence: 7, Bits: 4}
	for _, tc := range []struct {
		name   string
		change func()
		now    int64
		live   bool
		want   []limits.Pace
	}{
		{name: "unasked all count", want: []limits.Pace{dead, alive, drained}},
		{name: "asked only the living do that want or run", live: true, want: []limits.Pace{alive, drained}},
		{name: "who was found dead stays so", want: []limits.Pace{alive, drained}},
		{name: "and is asked again later", now: 1e9, want: []limits.Pace{alive, drained}},
		{name: "who says something else counts", change: func() { pace(1, 4, 6, 1) }, want: []limits.Pace{{Sequence: 6, Bits: 1, Launches: 4}, alive, drained}},
		{name: "slots beyond the last are none", change: func() { binary.NativeEndian.PutUint32(page[12:], math.MaxUint32) }, live: true, want: []limits.Pace{alive, drained}},
		{name: "a ledger that was cut short says what is left", change: func() { page = page[:4096+3*64] }, live: true, want: []limits.Pace{alive}},
		{name: "one that is empty says nothing", change: func() { page = nil }, live: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.change != nil {
				tc.change()
				write()
			}
			got, err := turn.Read(tc.now, tc.live)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.List) != len(tc.want) || (len(tc.want) > 0 && cmp.Diff(tc.want, got.List) != "") {
				t.Errorf("paces (-want +got):\n%s", cmp.Diff(tc.want, got.List))
			}
			if len(page) > 0 && got.GPUTime != 12345 {
				t.Errorf("GPU time is %d", got.GPUTime)
			}
		})
	}
}

func TestReadingDoesNotAllocate(t *testing.T) {
	turn, dir := newTurn(t)
	if err := os.WriteFile(filepath.Join(dir, "usage"), ledger(), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := testing.AllocsPerRun(100, func() {
		if _, err := turn.Read(0, true); err != nil {
			t.Error(err)
		}
		turn.Open(1, true)
		if err := turn.Wake(); err != nil {
			t.Error(err)
		}
	}); got > 0 {
		t.Errorf("a slice allocates %v times", got)
	}
}

func TestTurnWants(t *testing.T) {
	for _, tc := range []struct {
		name string
		make func(t *testing.T, door *limits.Door) (dir string)
		want error
	}{
		{name: "a share", want: limits.ErrNoShare, make: func(*testing.T, *limits.Door) string { return "" }},
		{name: "one that is held", want: limits.ErrNoShare, make: func(t *testing.T, door *limits.Door) string {
			t.Helper()
			dir, err := door.Write(makeShare(func(s *limits.Share) { s.Enforce = limits.EnforceMemory }))
			if err != nil {
				t.Fatal(err)
			}
			return dir
		}},
		{name: "a page that is complete", want: limits.ErrNoShare, make: func(t *testing.T, door *limits.Door) string {
			t.Helper()
			dir, err := door.Write(makeShare())
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, "limits"), make([]byte, pageSize), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			return dir
		}},
		{name: "a page of a version that has a gate", want: limits.ErrNoShare, make: func(t *testing.T, door *limits.Door) string {
			t.Helper()
			dir, err := door.Write(makeShare())
			if err != nil {
				t.Fatal(err)
			}
			page, err := os.ReadFile(filepath.Join(dir, "limits"))
			if err == nil {
				binary.NativeEndian.PutUint32(page[4:], 1)
				err = os.WriteFile(filepath.Join(dir, "limits"), page, 0o600) //nolint:gosec // G703: the path is the test's own
			}
			if err != nil {
				t.Fatal(err)
			}
			return dir
		}},
		{name: "a bell that is a FIFO", want: limits.ErrBadShare, make: func(t *testing.T, door *limits.Door) string {
			t.Helper()
			dir, err := door.Write(makeShare())
			if err == nil {
				err = errors.Join(os.Remove(filepath.Join(dir, "bell")), os.WriteFile(filepath.Join(dir, "bell"), nil, 0o600))
			}
			if err != nil {
				t.Fatal(err)
			}
			return dir
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			door, _ := newDoor(t)
			tc.make(t, door)
			if _, err := door.Turn(claim, 0); !errors.Is(err, tc.want) {
				t.Errorf("Turn() = %v, want %v", err, tc.want)
			}
		})
	}
}

func TestFind(t *testing.T) {
	door, root := newDoor(t)
	for _, index := range []int{10, 2} {
		if _, err := door.Write(makeShare(func(s *limits.Share) { s.Index = index })); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(root, "begun", "0"), 0o700); err != nil {
		t.Fatal(err)
	}
	found, err := door.Find()
	if err != nil {
		t.Fatal(err)
	}
	for i := range found {
		if (found[i].Inode == 0) != (found[i].ClaimUID == "begun") {
			t.Errorf("share %+v", found[i])
		}
		found[i].Inode = 0
	}
	want := []limits.Found{{ClaimUID: claim, Index: 2}, {ClaimUID: claim, Index: 10}, {ClaimUID: "begun"}}
	if claim > "begun" {
		want = []limits.Found{want[2], want[0], want[1]}
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("shares (-want +got):\n%s", diff)
	}
}
