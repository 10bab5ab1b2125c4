// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"fmt"
	"sync/atomic"
	"time"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/sluice-gpu/sluice/node-agent/nvml"
)

// patience is how long nvcdi may take, which asks NVML many things. With the deadline of a call it stays within kubelet's 45 s.
const patience = 15 * time.Second

// description is what nvcdi said.
type description struct {
	common  *specs.ContainerEdits
	devices []*specs.ContainerEdits
	err     error
}

// bounded describes devices, but does not wait for ever: NVML can hang, and kubelet is to be told. While it does, others are
// told at once.
func bounded(hangs *atomic.Bool, patience time.Duration, describe func() description) description {
	stuck := description{err: fmt.Errorf("%w: %w", ErrDriver, nvml.ErrHangs)}
	if hangs.Load() {
		return stuck
	}
	done := make(chan description, 1)
	go func() { done <- describe() }()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case d := <-done:
		return d
	case <-timer.C:
	}
	hangs.Store(true)
	go func() {
		<-done
		hangs.Store(false)
	}()
	return stuck
}
