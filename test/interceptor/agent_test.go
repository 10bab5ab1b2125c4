// SPDX-License-Identifier: Apache-2.0

package interceptor

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Offsets and values of the limits page, as sluice_abi.h has them; node-agent/limits tests them against the header.
const (
	limitsSize    = 4096
	limitsMagic   = 0x45434c53
	usageSize     = 4096 + 1024*64
	atVersion     = 4
	atMinReader   = 8
	atUUID        = 16
	atParent      = 32
	atMemoryLimit = 48
	atContext     = 56
	atEnforce     = 80
	enforceMemory = 1
)

// share is the files of one share on the host.
type share struct {
	dir string
}

func newShare(t *testing.T, n *node, bytes uint64) *share {
	t.Helper()
	s := &share{dir: t.TempDir()}
	content, err := os.ReadFile(library)
	if err != nil {
		t.Fatalf("reading the library: %v", err)
	}
	s.write(t, "libsluice.so", content, 0o755)
	for _, suffix := range []string{"", "2"} {
		s.write(t, "limits"+suffix, limitsPage(t, n.seen(t, 0).UUID, bytes), 0o644)
		s.write(t, "usage"+suffix, make([]byte, usageSize), 0o666)
	}
	return s
}

func (s *share) write(t *testing.T, name string, content []byte, mode os.FileMode) {
	t.Helper()
	dir, err := os.OpenRoot(s.dir)
	if err != nil {
		t.Fatalf("opening the share: %v", err)
	}
	if err := dir.WriteFile(name, content, mode); err != nil {
		t.Fatalf("writing %s: %v", name, err)
	}
	// Tenants of any user read these, whatever the umask is.
	if err := dir.Chmod(name, mode); err != nil {
		t.Fatalf("opening %s: %v", name, err)
	}
	if err := dir.Close(); err != nil {
		t.Fatalf("closing the share: %v", err)
	}
}

func limitsPage(t *testing.T, uuid string, bytes uint64) []byte {
	t.Helper()
	id, err := hex.DecodeString(strings.ReplaceAll(strings.TrimPrefix(uuid, "GPU-"), "-", ""))
	if err != nil || len(id) != 16 {
		t.Fatalf("reading the UUID %q: %v", uuid, err)
	}
	page := make([]byte, limitsSize)
	binary.LittleEndian.PutUint32(page, limitsMagic)
	binary.LittleEndian.PutUint32(page[atVersion:], 1)
	binary.LittleEndian.PutUint32(page[atMinReader:], 1)
	copy(page[atUUID:], id)
	copy(page[atParent:], id)
	binary.LittleEndian.PutUint64(page[atMemoryLimit:], bytes)
	binary.LittleEndian.PutUint64(page[atContext:], contextBytes)
	binary.LittleEndian.PutUint32(page[atEnforce:], enforceMemory)
	return page
}

// set changes one word of the limits in place, as the agent does.
func (s *share) set(t *testing.T, bytes uint64) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(s.dir, "limits"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatalf("opening the limits: %v", err)
	}
	word := binary.LittleEndian.AppendUint64(nil, bytes)
	if _, err := file.WriteAt(word, atMemoryLimit); err != nil {
		t.Fatalf("changing the limit: %v", err)
	}
	if err := file.Close(); err != nil {
		t.Fatalf("closing the limits: %v", err)
	}
}

func (s *share) ledger(t *testing.T) ledger {
	t.Helper()
	return readLedger(t, filepath.Join(s.dir, "usage"))
}

// enter starts a program as a tenant of the share.
func (s *share) enter(t *testing.T, n *node, how, name string, arguments ...string) *program {
	t.Helper()
	all := append([]string{s.dir, how, built(t, "interceptor/build/tests", name)}, arguments...)
	return n.start(t, "", "tools/tenant", all...)
}

// Through the agent's mounts the limit is the page's, whatever the environment says.
func TestShareHoldsTheLimit(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"linear", "vmm_released", "pool", "array"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, 1)
			s := newShare(t, n, limit)
			p := s.enter(t, n, "lu", "lookup/"+way)
			for at, more := p.next(t); more; at, more = p.next(t) {
				expectation{piece: 256 * mib, slack: 32 * mib}.check(t, at, n.seen(t, 0), s.ledger(t))
				p.resume(t)
			}
			p.end(t)
		})
	}
}

// However the library's path is spelled, and however short its version is, it is the agent's library.
func TestTheAgentsLibraryIsKnown(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, how string }{
		{name: "a version of one character", how: "lu1"},
		{name: "another spelling of the path", how: "lus"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, 1)
			s := newShare(t, n, limit)
			p := s.enter(t, n, tc.how, "dlsym/linear")
			for at, more := p.next(t); more; at, more = p.next(t) {
				expectation{piece: 256 * mib}.check(t, at, n.seen(t, 0), s.ledger(t))
				p.resume(t)
			}
			p.end(t)
		})
	}
}

// A limit that is raised holds at once; one that is lowered holds for the next allocation.
func TestLimitChangesWhileRunning(t *testing.T) {
	t.Parallel()
	n := newNode(t, 1)
	s := newShare(t, n, limit)
	p := s.enter(t, n, "lu", "link/linear")
	limits := []uint64{limit, 2 * limit, limit / 2}
	var full int
	for at, more := p.next(t); more; at, more = p.next(t) {
		if at.Step == "full" {
			want := int((limits[full] - contextBytes) / (256 * mib))
			if at.Pieces != want || at.Total != limits[full] || at.Error != outOfMemory {
				t.Errorf("with a limit of %d: %d pieces, a total of %d, error %d; want %d pieces", limits[full], at.Pieces, at.Total, at.Error, want)
			}
			if full++; full < len(limits) {
				s.set(t, limits[full])
			}
		}
		p.resume(t)
	}
	p.end(t)
	if full != 2 {
		t.Errorf("the program was full %d times, want 2", full)
	}
}

// Several shares of one device in one container add up.
func TestSharesOfOneDeviceAddUp(t *testing.T) {
	t.Parallel()
	n := newNode(t, 1)
	s := newShare(t, n, limit/2)
	p := s.enter(t, n, "lu2", "link/linear")
	for at, more := p.next(t); more; at, more = p.next(t) {
		if used := n.seen(t, 0).UsedBytes; at.Total != limit || used > limit {
			t.Errorf("at %q two halves make a total of %d, NVML sees %d", at.Step, at.Total, used)
		}
		if want := int((limit - contextBytes) / (256 * mib)); at.Step == "full" && at.Pieces != want {
			t.Errorf("%d pieces, want %d", at.Pieces, want)
		}
		p.resume(t)
	}
	p.end(t)
}

// What is no genuine share grants nothing, and the process is told why in one line.
func TestBadSharesFailClosed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		how  string
		edit func(page []byte) []byte
	}{
		{name: "limits are missing", how: "u"},
		{name: "limits are on a writable mount", how: "wu"},
		{name: "limits are a copy on another file system", how: "cu"},
		{name: "limits are truncated", how: "lu", edit: func(page []byte) []byte { return page[:100] }},
		{name: "limits are empty", how: "lu", edit: func([]byte) []byte { return nil }},
		{name: "the magic is another", how: "lu", edit: func(page []byte) []byte { page[0]++; return page }},
		{name: "the page is for newer readers", how: "lu", edit: func(page []byte) []byte { page[atMinReader] = 99; return page }},
		{name: "the device is another", how: "lu", edit: func(page []byte) []byte { page[atUUID]++; return page }},
		{name: "usage is missing", how: "l"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, 1)
			s := newShare(t, n, limit)
			if tc.edit != nil {
				s.write(t, "limits", tc.edit(limitsPage(t, n.seen(t, 0).UUID, limit)), 0o644)
			}
			p := s.enter(t, n, tc.how, "link/linear", "1")
			if !p.out.Scan() {
				t.Fatalf("the program said nothing: %s", p.stderr.String())
			}
			var got step
			if err := json.Unmarshal(p.out.Bytes(), &got); err != nil {
				t.Fatalf("the program printed %q: %v", p.out.Text(), err)
			}
			if got.Step != "failed" || got.Error != outOfMemory {
				t.Errorf("the first that costs memory ended in %+v, want error %d", got, outOfMemory)
			}
			if seen := n.seen(t, 0).UsedBytes; seen != 0 {
				t.Errorf("NVML sees %d bytes", seen)
			}
			if err := p.in.Close(); err != nil {
				t.Errorf("closing the program's input: %v", err)
			}
			if err := p.command.Wait(); err == nil {
				t.Error("the program ended well")
			}
			if lines := strings.Count(p.stderr.String(), "\n"); lines != 1 {
				t.Errorf("%d lines on standard error, want 1: %q", lines, p.stderr.String())
			}
		})
	}
}

// A share without the memory bit is only counted.
func TestNothingIsHeldWithoutTheBit(t *testing.T) {
	t.Parallel()
	n := newNode(t, 1)
	s := newShare(t, n, limit)
	page := limitsPage(t, n.seen(t, 0).UUID, limit)
	page[atEnforce] = 0
	s.write(t, "limits", page, 0o644)
	p := s.enter(t, n, "lu", "link/linear")
	for at, more := p.next(t); more; at, more = p.next(t) {
		if at.Step == "full" && at.Bytes < 100*1024*mib {
			t.Errorf("refused after %d bytes", at.Bytes)
		}
		p.resume(t)
	}
	p.end(t)
}

// Two containers, each with its process 1, share one ledger; what one leaves when it is killed the other gets.
func TestContainersShareALedger(t *testing.T) {
	t.Parallel()
	const pieces = 20
	n := newNode(t, 1)
	s := newShare(t, n, limit)
	first := s.enter(t, n, "lup", "link/linear", fmt.Sprint(pieces))
	second := s.enter(t, n, "lup", "link/linear")
	for at, more := first.next(t); more && at.Step != "full"; at, more = first.next(t) {
		first.resume(t)
	}
	var full int
	for at, more := second.next(t); more; at, more = second.next(t) {
		if used := n.seen(t, 0).UsedBytes; used > limit || s.ledger(t).Held != used {
			t.Errorf("at %q NVML sees %d, the ledger has %d, the limit is %d", at.Step, used, s.ledger(t).Held, limit)
		}
		want := int((limit-2*contextBytes)/(256*mib)) - pieces
		if full > 0 {
			want = int((limit - contextBytes) / (256 * mib))
		}
		if at.Step == "full" {
			if at.Pieces != want || at.Error != outOfMemory {
				t.Errorf("the second got %d pieces and error %d, want %d pieces", at.Pieces, at.Error, want)
			}
			if full++; full == 1 {
				if err := first.command.Process.Kill(); err != nil {
					t.Fatalf("killing the first: %v", err)
				}
				if err := first.command.Wait(); err == nil {
					t.Error("the first ended well")
				}
				waitUntil(t, "the first's memory is gone", func() bool { return n.seen(t, 0).UsedBytes < limit-pieces*256*mib })
			}
		}
		second.resume(t)
	}
	second.end(t)
}

// waitUntil asks until it holds.
func waitUntil(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("not so after 10 s: %s", what)
		}
		runtime.Gosched()
	}
}
