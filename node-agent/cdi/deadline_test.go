// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-gpu/sluice/node-agent/nvml"
)

func TestADriverThatDoesNotAnswerIsNotWaitedFor(t *testing.T) {
	var hangs atomic.Bool
	release := make(chan struct{})
	stuck := func() description {
		<-release
		return description{}
	}
	if got := bounded(&hangs, time.Millisecond, stuck); !errors.Is(got.err, nvml.ErrHangs) || !errors.Is(got.err, ErrDriver) {
		t.Errorf("the driver that hangs says %v", got.err)
	}
	called := func() description {
		t.Error("nvcdi is asked again while it hangs")
		return description{}
	}
	if got := bounded(&hangs, time.Hour, called); !errors.Is(got.err, nvml.ErrHangs) {
		t.Errorf("the next one is told %v", got.err)
	}
	close(release)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(10 * time.Second); hangs.Load(); <-tick.C {
		if time.Now().After(end) {
			t.Fatal("the driver answers, but is still taken for one that hangs")
		}
	}
	if got := bounded(&hangs, time.Hour, func() description { return description{} }); got.err != nil {
		t.Errorf("once it answers: %v", got.err)
	}
}
