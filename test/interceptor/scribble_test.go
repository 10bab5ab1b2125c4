// SPDX-License-Identifier: Apache-2.0

package interceptor

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// scribbler ruins a usage file once, in its round's own way.
type scribbler func(file *os.File, round uint64) error

func garbage(file *os.File, round uint64) error {
	var page bytes.Buffer
	for at := uint64(0); page.Len() < usageSize; at++ {
		sum := sha256.Sum256(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, round), at))
		page.Write(sum[:])
	}
	_, err := file.WriteAt(page.Bytes()[:usageSize], 0)
	return err
}

func zeros(file *os.File, _ uint64) error {
	_, err := file.WriteAt(make([]byte, usageSize), 0)
	return err
}

func ones(file *os.File, _ uint64) error {
	_, err := file.WriteAt(bytes.Repeat([]byte{0xff}, usageSize), 0)
	return err
}

func truncate(file *os.File, round uint64) error {
	if round%2 == 1 {
		return file.Truncate(usageSize)
	}
	return file.Truncate(int64(round * 100 % usageSize))
}

// Whoever ruins a share's usage file ruins that share alone: its processes crash or have no limit, but they end, and another
// share on the same device keeps its limit and its figures.
func TestRuinedUsageHarmsNobodyElse(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		ruin    scribbler
		crashes bool
		healed  bool // afterwards the file is a ledger again
	}{
		{name: "garbage", ruin: garbage},
		{name: "zeros", ruin: zeros, healed: true},
		{name: "ones", ruin: ones},
		{name: "truncation", ruin: truncate, crashes: true},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, 1)
			ruined, other := newShare(t, n, 4*limit), newShare(t, n, limit)
			victims := []*program{
				ruined.enter(t, n, "lu", "tools/drift", "4000", "4"),
				ruined.enter(t, n, "lu", "tools/drift", "4000", "1"),
			}
			bystander := other.enter(t, n, "lu", "tools/drift", "4000", "4")
			all := append([]*program{bystander}, victims...)
			for _, p := range all {
				if s, _ := p.next(t); s.Step != "ready" {
					t.Fatalf("a program is at %q: %s", s.Step, p.stderr.String())
				}
			}
			before := other.ledger(t)
			for _, p := range all {
				p.resume(t)
			}
			failed := ruined.ruinUntil(t, tc.ruin, endings(victims), len(victims))
			if failed > 0 && !tc.crashes {
				t.Errorf("%d of %d processes of the ruined share ended badly: %s%s", failed, len(victims), victims[0].stderr.String(), victims[1].stderr.String())
			}
			if s, _ := bystander.next(t); s.Error != 0 {
				t.Errorf("the other share's program has error %d", s.Error)
			}
			if after := other.ledger(t); after.Held != before.Held || after.Held != contextBytes || after.Slots != 1 {
				t.Errorf("the other share's ledger was %+v, is %+v", before, after)
			}
			bystander.resume(t)
			bystander.end(t)
			if tc.healed {
				last := ruined.enter(t, n, "lu", "link/linear", "1")
				if s, _ := last.next(t); s.Step != "ready" {
					t.Errorf("a later process of the ruined share is at %q", s.Step)
				}
				last.stop(t)
			}
		})
	}
}

// endings tells how each program ends; what they print is theirs.
func endings(programs []*program) <-chan error {
	ended := make(chan error, len(programs))
	for _, p := range programs {
		go func() {
			err := p.in.Close()
			for p.out.Scan() {
				continue
			}
			ended <- errors.Join(err, p.command.Wait())
		}()
	}
	return ended
}

// ruinUntil ruins the usage file again and again until so many processes have ended, and says how many did badly.
func (s *share) ruinUntil(t *testing.T, ruin scribbler, ended <-chan error, processes int) int {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(s.dir, "usage"), os.O_RDWR, 0)
	if err != nil {
		t.Fatalf("opening the usage file: %v", err)
	}
	defer func(c io.Closer) {
		if err := c.Close(); err != nil {
			t.Errorf("closing the usage file: %v", err)
		}
	}(file)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(60 * time.Second)
	failed := 0
	for round, left := uint64(0), processes; left > 0; round++ {
		select {
		case err := <-ended:
			left--
			if err != nil {
				failed++
			}
		case <-deadline:
			t.Fatalf("%d processes of the ruined share still run after 60 s", left)
		case <-tick.C:
			if err := ruin(file, round); err != nil {
				t.Fatalf("ruining the usage file: %v", err)
			}
		}
	}
	return failed
}
