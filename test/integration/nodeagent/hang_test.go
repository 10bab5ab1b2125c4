// SPDX-License-Identifier: Apache-2.0

package nodeagent_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-gpu/sluice/test/framework/agentproc"
	"github.com/sluice-gpu/sluice/test/framework/fakenode"
)

// kubeletPatience is how long kubelet waits for an answer.
const kubeletPatience = 45 * time.Second

// TestPrepareOnAGPUThatHangs: kubelet gets an answer that says so before it stops waiting, at once when it asks again, and
// the claim when the GPU answers.
func TestPrepareOnAGPUThatHangs(t *testing.T) {
	rig := agentproc.New(t, fakenode.New(t, fakenode.Boards{Board: "h100-80gb", Count: 1, MIG: true}))
	rig.Publish(t, divided())
	agent := rig.Start(t)
	claim := rig.Allocate("claim", device("gpu-0-mig-1g10gb-0"))
	rig.Node.CLI(t, "fault", "--hang", "--gpu", "0")
	for _, tc := range []struct {
		name   string
		within time.Duration
	}{
		{name: "the first time", within: kubeletPatience},
		{name: "again", within: 5 * time.Second},
	} {
		start := time.Now()
		_, err := agent.Prepare(t.Context(), claim)
		if err == nil || !strings.Contains(err.Error(), "does not return") {
			t.Errorf("Prepare %s: %v", tc.name, err)
		}
		if took := time.Since(start); took > tc.within {
			t.Errorf("Prepare took %v %s, want less than %v", took, tc.name, tc.within)
		}
	}
	rig.Node.CLI(t, "fault", "--clear")
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(kubeletPatience); ; <-tick.C {
		_, err := agent.Prepare(t.Context(), claim)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("Prepare when the GPU answers: %v", err)
		}
	}
}
