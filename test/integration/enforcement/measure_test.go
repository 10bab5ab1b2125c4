// SPDX-License-Identifier: Apache-2.0

package enforcement_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-gpu/sluice/internal/shares"
	"github.com/sluice-gpu/sluice/node-agent/limits"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// measured is what a context costs on the fake's H200.
const measured = 518 * mebi

func (n *node) words(t *testing.T, claim string) limits.Words {
	t.Helper()
	door, err := limits.New(filepath.Join(n.Dir, "shares"))
	if err != nil {
		t.Fatal(err)
	}
	words, err := door.Words("uid-"+claim, 0)
	if err != nil {
		t.Fatal(err)
	}
	return words
}

// TestNewSharesAreChargedWhatAContextCosts has two containers of one share be measured from outside, by PIDs that are not
// those they see themselves, and another share be charged the figure.
func TestNewSharesAreChargedWhatAContextCosts(t *testing.T) {
	n := newNode(t, shared())
	plan := n.prepare(t, n.Allocate("first", share("gpu-0")))
	for _, pieces := range []string{"3", "5"} {
		p := run(t, plan, pieces)
		p.arrives(t, "ready")
		p.next(t, "full")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := stack.Poll(ctx, "a figure is recorded", func(context.Context) (bool, error) {
		record, err := n.Records.Contexts()
		return len(record.Figures) > 0, err
	})
	if err != nil {
		t.Fatal(err)
	}
	plan = n.prepare(t, n.Allocate("second", share("gpu-0")))
	for claim, want := range map[string]uint64{"first": shares.ContextBytes, "second": measured} {
		if got := n.words(t, claim); got.Context != want || got.Overhead != 0 {
			t.Errorf("the %s share is charged %d and %d bytes a context, want %d and 0", claim, got.Context, got.Overhead, want)
		}
	}
	p := run(t, plan)
	p.arrives(t, "ready")
	const want = (limit - measured) / piece
	if s := p.next(t, "full"); s.Pieces != want || s.Error != outOfMemory {
		t.Errorf("a process of the second had %d pieces before error %d, want %d", s.Pieces, s.Error, want)
	}
	n.agent.Kill()
	n.agent = n.Start(t)
	n.prepare(t, n.Allocate("third", share("gpu-0")))
	if got := n.words(t, "third").Context; got != measured {
		t.Errorf("under another agent a share is charged %d bytes a context, want %d", got, measured)
	}
}
