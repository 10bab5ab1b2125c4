// SPDX-License-Identifier: Apache-2.0

package hook_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/sluice-gpu/sluice/node-agent/hook"
)

// judge remembers the questions, and refuses where it is told to.
type judge struct {
	refusal error

	mu    sync.Mutex
	asked []hook.Question
}

func (j *judge) Admit(_ context.Context, q hook.Question) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.asked = append(j.asked, q)
	return j.refusal
}

func (j *judge) questions() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.asked)
}

// serve starts a server; it ends when stop is called.
func serve(t *testing.T, path string, j *judge) (stop func()) {
	t.Helper()
	s, err := hook.Listen(path, j, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

func socket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hook") //nolint:usetesting // a test's own directory is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, hook.SocketFile)
}

func ask(t *testing.T, path string, within time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	return hook.Ask(ctx, path, hook.Question{PID: 7, Claim: "a-claim", Result: 1})
}

func TestAQuestionIsAnswered(t *testing.T) {
	path, j := socket(t), &judge{}
	serve(t, path, j)
	if err := ask(t, path, time.Minute); err != nil {
		t.Error(err)
	}
	if len(j.asked) != 1 || j.asked[0] != (hook.Question{PID: 7, Claim: "a-claim", Result: 1}) {
		t.Errorf("the agent was asked %+v", j.asked)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others than root reach the socket: %v, %v", info.Mode(), err)
	}
}

func TestARefusalIsTold(t *testing.T) {
	path := socket(t)
	serve(t, path, &judge{refusal: errors.New("the driver says no" + strings.Repeat(".", 9000))})
	if err := ask(t, path, time.Minute); !errors.Is(err, hook.ErrRefused) || !strings.Contains(err.Error(), "the driver says no") {
		t.Errorf("asked: %v", err)
	}
}

func TestNoAgentIsNoAnswer(t *testing.T) {
	if err := ask(t, socket(t), 200*time.Millisecond); !errors.Is(err, hook.ErrNoAnswer) {
		t.Errorf("asked: %v", err)
	}
}

// TestTheNextAgentTakesOver has one begin while another serves, and be asked once that has ended.
func TestTheNextAgentTakesOver(t *testing.T) {
	path := socket(t)
	old, next := &judge{}, &judge{}
	stopOld := serve(t, path, old)
	stopNext := serve(t, path, next)
	for range 3 {
		if err := ask(t, path, time.Minute); err != nil {
			t.Error(err)
		}
	}
	stopOld()
	if err := ask(t, path, time.Minute); err != nil {
		t.Error(err)
	}
	if old.questions() != 0 || next.questions() != 4 {
		t.Errorf("the old agent was asked %d times, the next %d times", old.questions(), next.questions())
	}
	// Between two agents the question waits.
	stopNext()
	late := &judge{}
	asked := make(chan error, 1)
	go func() { asked <- ask(t, path, time.Minute) }()
	serve(t, path, late)
	if err := <-asked; err != nil || late.questions() != 1 {
		t.Errorf("asked between two agents: %v, %d questions", err, late.questions())
	}
}

func TestBadQuestionsAreRefused(t *testing.T) {
	path, j := socket(t), &judge{}
	serve(t, path, j)
	for name, line := range map[string]string{
		"no JSON":        "hello\n",
		"too long":       `{"claim":"` + strings.Repeat("a", 5000) + "\"}\n",
		"no PID":         `{"claim":"a","result":0}` + "\n",
		"a path":         `{"pid":1,"claim":"../a","result":0}` + "\n",
		"a large result": `{"pid":1,"claim":"a","result":256}` + "\n",
	} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(line)); err != nil && !errors.Is(err, syscall.EPIPE) {
			t.Errorf("%s: %v", name, err)
		}
		answer := make([]byte, 4096)
		n, err := conn.Read(answer)
		if err == nil && !strings.Contains(string(answer[:n]), `"refusal":"`) {
			t.Errorf("%s: %s", name, answer[:n])
		}
		_ = conn.Close()
	}
	if j.questions() != 0 {
		t.Errorf("the judge was asked %+v", j.asked)
	}
	for _, q := range []hook.Question{{Claim: "a"}, {PID: 1, Claim: "a/b"}, {PID: 1, Claim: "a", Result: -1}} {
		if err := hook.Ask(t.Context(), path, q); !errors.Is(err, hook.ErrBadQuestion) {
			t.Errorf("%+v is asked: %v", q, err)
		}
	}
}
