// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	tail := " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21"
	for _, tc := range []struct {
		name, line string
		want       stat
		wantErr    bool
	}{
		{name: "a plain name is skipped", line: "12 (etcd)" + tail, want: stat{state: 'S', startTicks: 4711}},
		{name: "a name with spaces and parentheses is skipped", line: "12 (a) b (c))" + tail, want: stat{state: 'S', startTicks: 4711}},
		{name: "a line without a name is refused", line: "12 etcd" + tail, wantErr: true},
		{name: "a short line is refused", line: "12 (etcd) S 1 2", wantErr: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parseStat(tc.line)
			if (err != nil) != tc.wantErr || got != tc.want {
				t.Errorf("parseStat = %v, %v; want %v, error %v", got, err, tc.want, tc.wantErr)
			}
		})
	}
}

func TestStopEndsExactlyTheProcessMeant(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	p, err := Start(Spec{Path: "/bin/sh", Args: []string{"-c", "echo started; exec tail -f /dev/null"}, Env: os.Environ(), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	other := p.Identity
	other.StartTicks++
	if other.Alive() {
		t.Error("a process with another start time is taken for ours")
	}
	if err := other.Signal(syscall.SIGKILL); !errors.Is(err, ErrGone) {
		t.Errorf("signalling a process with another start time = %v, want ErrGone", err)
	}
	if !p.Alive() {
		t.Fatal("the process does not run")
	}
	if err := p.Stop(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if p.Alive() {
		t.Error("the stopped process is called alive")
	}
	if err := p.Stop(time.Second); err != nil {
		t.Errorf("stopping it again: %v", err)
	}
}

func TestStopKillsWhatDoesNotListen(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	p, err := Start(Spec{Path: "/bin/sh", Args: []string{"-c", "trap '' TERM; echo deaf; while :; do read x < " + fifo(t, dir) + "; done"}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(Tail(log, 5), "deaf") {
		select {
		case <-p.Done():
			t.Fatalf("ended early: %s", Tail(log, 5))
		default:
		}
	}
	if err := p.Stop(50 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
}

func fifo(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFreePortsAreDistinct(t *testing.T) {
	ports, err := FreePorts(20)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, port := range ports {
		if seen[port] {
			t.Errorf("port %d was given twice", port)
		}
		seen[port] = true
	}
}
