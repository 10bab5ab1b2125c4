// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-gpu/sluice/node-agent/limits"
)

func TestAShareMayGoBetweenItsBellAndTheAnswer(t *testing.T) {
	door, err := limits.New(filepath.Join(t.TempDir(), "shares"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := door.Write(limits.Share{
		ClaimUID: "a", UUID: "GPU-00000000-0000-0000-0000-000000000000", ComputeShare: 5000, Enforce: limits.EnforceCompute | limits.EnforceMemory,
	}); err != nil {
		t.Fatal(err)
	}
	metrics, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	a, err := Begin(Options{Shares: door, Metrics: metrics, Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.end(); err != nil {
			t.Error(err)
		}
	})
	s := a.seats[0]
	a.ring(s, a.clock.now())
	a.post(change{remove: s.turn})
	a.work() // its page is not mapped any more
	if len(a.Snapshot()) != 0 {
		t.Error("the share is still there")
	}
}
