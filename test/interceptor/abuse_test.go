// SPDX-License-Identifier: Apache-2.0

package interceptor

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Misuse leaves the ledger as it was: what is held stays charged, and nothing else.
func TestMisuseLeavesTheLedgerRight(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"frees", "sizes", "nofile", "closes", "forks", "hidden", "resets", "destroys"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, 1)
			p := n.start(t, limitText, "tools/abuse", kind)
			for s, more := p.next(t); more; s, more = p.next(t) {
				const want = contextBytes + 1024*mib
				if s.Error != 0 {
					t.Errorf("at %q: error %d", s.Step, s.Error)
				}
				// The life of a process whose descriptor is gone cannot be seen; its bytes are there all the same.
				l, seen := n.ledger(t), n.seen(t, 0).UsedBytes
				if held := l.Held + l.Dead; held != want || seen != want {
					t.Errorf("at %q the ledger has %d, NVML sees %d, want %d", s.Step, held, seen, want)
				}
				p.resume(t)
			}
			p.end(t)
		})
	}
}

// refused is a program that gets no memory and one line that says why.
func (p *program) refused(t *testing.T, reason string) {
	t.Helper()
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
	if err := p.in.Close(); err != nil {
		t.Errorf("closing the program's input: %v", err)
	}
	if err := p.command.Wait(); err == nil {
		t.Error("the program ended well")
	}
	text := p.stderr.String()
	if !strings.Contains(text, reason) || (reason != "") != (strings.Count(text, "\n") == 1) {
		t.Errorf("on standard error %q, want one line with %q", text, reason)
	}
}

// An environment that cannot be obeyed gives no memory, and one line says why.
func TestBadEnvironmentFailsClosed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, limit, group string
		reason             string // none where the limit alone refuses
	}{
		{name: "a limit that is no amount", limit: "lots", reason: "it is not an amount"},
		{name: "an empty limit", limit: "0Gi,", reason: "it is not an amount"},
		{name: "a negative limit", limit: "-1Gi", reason: "it is not an amount"},
		{name: "a limit with a space", limit: "2 Gi", reason: "it is not an amount"},
		{name: "a limit beyond all numbers", limit: "99999999999999999999Ti", reason: "it is not an amount"},
		{name: "a limit for a device of no such name", limit: "GPU-1234=2Gi", reason: "it is not an amount"},
		{name: "a limit of nothing", limit: "0"},
		{name: "a limit smaller than a context", limit: "517Mi"},
		{name: "a group that leads elsewhere", limit: limitText, group: "../../tmp/x", reason: "SLUICE_GROUP is not a plain name"},
		{name: "a group of dots", limit: limitText, group: "..", reason: "SLUICE_GROUP is not a plain name"},
		{name: "an endless group", limit: limitText, group: strings.Repeat("a", 70), reason: "SLUICE_GROUP is not a plain name"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, 1)
			var extra []string
			if tc.group != "" {
				extra = append(extra, "SLUICE_GROUP="+tc.group)
			}
			n.startWith(t, n.environment(t, tc.limit), extra, "link/linear", "1").refused(t, tc.reason)
			if seen := n.seen(t, 0).UsedBytes; seen != 0 {
				t.Errorf("NVML sees %d bytes", seen)
			}
		})
	}
}

// What others laid where the ledger has to be is not used.
func TestForeignLedgersAreNotUsed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		lay    func(n *node, uuid string) error
		reason string
	}{
		{name: "a symbolic link to a directory", reason: "its directory in /dev/shm cannot be made", lay: func(n *node, _ string) error {
			return os.Symlink(filepath.Dir(n.state), n.ledgerDir())
		}},
		{name: "a link of the ledger's own name", reason: "its file in /dev/shm cannot be made", lay: func(n *node, uuid string) error {
			if err := os.Mkdir(n.ledgerDir(), 0o700); err != nil {
				return err
			}
			return os.Symlink(filepath.Join(filepath.Dir(n.state), "victim"), filepath.Join(n.ledgerDir(), strings.TrimPrefix(uuid, "GPU-")))
		}},
		{name: "a directory that others may write", reason: "its directory in /dev/shm belongs to others", lay: func(n *node, _ string) error {
			if err := os.Mkdir(n.ledgerDir(), 0o700); err != nil {
				return err
			}
			return os.Chmod(n.ledgerDir(), 0o777)
		}},
		{name: "another user's directory", reason: "its directory in /dev/shm belongs to others", lay: func(n *node, _ string) error {
			if err := os.Mkdir(n.ledgerDir(), 0o700); err != nil {
				return err
			}
			return os.Chown(n.ledgerDir(), 65534, 65534)
		}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, 1)
			if os.Geteuid() != 0 && strings.HasPrefix(tc.name, "another user") {
				t.Skip("only root can make another user's directory")
			}
			if err := tc.lay(n, n.seen(t, 0).UUID); err != nil {
				t.Fatalf("laying it: %v", err)
			}
			n.start(t, limitText, "link/linear", "1").refused(t, tc.reason)
			if _, err := os.Stat(filepath.Join(filepath.Dir(n.state), "victim")); !os.IsNotExist(err) {
				t.Errorf("the link was followed: %v", err)
			}
		})
	}
}

// Without room in /dev/shm there is no ledger, and no memory.
func TestNoRoomForTheLedger(t *testing.T) {
	t.Parallel()
	n := newNode(t, 1)
	const mounts = `mount -t tmpfs -o size=8k none /dev/shm && exec env LD_PRELOAD="$1" "$2" 1`
	command := exec.CommandContext(t.Context(), "unshare", "--map-root-user", "--mount", "sh", "-c", mounts, "sh", library, built(t, "interceptor/build/tests/link/linear"))
	for _, variable := range n.environment(t, limitText) {
		if !strings.HasPrefix(variable, "LD_PRELOAD=") {
			command.Env = append(command.Env, variable)
		}
	}
	out, err := command.CombinedOutput()
	if err == nil || !strings.Contains(string(out), fmt.Sprintf(`"error":%d`, outOfMemory)) || !strings.Contains(string(out), "its file in /dev/shm cannot be made") {
		t.Errorf("the program ended with %v and printed %q", err, out)
	}
}

// One process more than there are slots gets no memory and is counted; with a free slot the next one does.
func TestOneProcessTooMany(t *testing.T) {
	t.Parallel()
	const slots, slotSize, header, stamp = 1024, 64, 4096, 8
	n := newNode(t, 1)
	s := newShare(t, n, limit)
	content := make([]byte, usageSize)
	for i := range slots {
		content[header+i*slotSize+stamp] = 1
	}
	content[12], content[13] = slots&0xff, slots>>8
	s.write(t, "usage", content, 0o666)
	file, err := os.OpenFile(filepath.Join(s.dir, "usage"), os.O_RDWR, 0)
	if err != nil {
		t.Fatalf("opening the usage file: %v", err)
	}
	// The locks that living processes would have.
	all := syscall.Flock_t{Type: syscall.F_WRLCK, Start: header, Len: slots * slotSize}
	if err := syscall.FcntlFlock(file.Fd(), syscall.F_SETLK, &all); err != nil {
		t.Fatalf("locking all slots: %v", err)
	}
	s.enter(t, n, "lu", "link/linear", "1").refused(t, "all its slots are taken")
	all.Type, all.Len = syscall.F_UNLCK, slotSize
	if err := syscall.FcntlFlock(file.Fd(), syscall.F_SETLK, &all); err != nil {
		t.Fatalf("freeing one slot: %v", err)
	}
	p := s.enter(t, n, "lu", "link/linear", "1")
	if at, _ := p.next(t); at.Step != "ready" {
		t.Errorf("with a free slot the program is at %q", at.Step)
	}
	p.stop(t)
	if err := file.Close(); err != nil {
		t.Errorf("closing the usage file: %v", err)
	}
}
