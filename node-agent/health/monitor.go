// SPDX-License-Identifier: Apache-2.0

// Package health watches how the node's GPUs are: it listens to the driver's error reports, reads the GPUs' vitals again and
// again, and keeps for each what has been seen. What that means is decided in internal/health; whatever changes makes the
// agent's loop look sooner, which taints, reports and tells.
package health

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/internal/health"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
)

// Hardware is what the monitor asks.
type Hardware interface {
	// Vitals are a GPU's; the error is nvml.ErrHangs or nvml.ErrLost where it is about the GPU's reach.
	Vitals(ctx context.Context, gpuUUID string) (health.Vitals, error)
	// Events starts to listen to GPUs.
	Events(ctx context.Context, uuids []string) (Events, error)
}

// Events are error reports as they come.
type Events interface {
	Wait(atMost time.Duration) (event nvml.Event, came bool, err error)
	Close()
}

// Counter counts error reports.
type Counter interface {
	XID(uuid string, number uint64, class health.Class)
}

// Times are the monitor's.
type Times struct {
	// Poll is the time between two readings of vitals, Listen the longest single wait for a report, and Retry the time until
	// listening is tried again.
	Poll, Listen, Retry time.Duration
}

// DefaultTimes are those of a node in production.
func DefaultTimes() Times {
	return Times{Poll: 5 * time.Second, Listen: time.Second, Retry: 5 * time.Second}
}

// Monitor keeps what has been seen of each GPU. It is safe for concurrent use.
type Monitor struct {
	Hardware Hardware
	Counter  Counter
	Rules    health.Rules
	Times    Times
	Clock    clock.WithTicker
	Log      logr.Logger
	// Changed is called when a verdict has changed. It must not block.
	Changed func()

	mu      sync.Mutex
	courses map[string]health.Course
	told    map[string]health.Verdict
	// answering are the GPUs of the last look that answered.
	answering []string
	resumed   bool
}

// Resume takes up the verdicts that the agent reported before it was started. Only the first call counts.
func (m *Monitor) Resume(reported []v1alpha1.GPUStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.resumed {
		return
	}
	m.resumed = true
	for _, g := range reported {
		if _, known := m.courses[g.UUID]; !known {
			m.keep(g.UUID, health.Resume(g.Health))
		}
	}
}

// keep stores a course. The caller has the lock.
func (m *Monitor) keep(uuid string, c health.Course) {
	if m.courses == nil {
		m.courses = map[string]health.Course{}
	}
	m.courses[uuid] = c
}

// Looked notes which GPUs a look at the hardware showed, of those that the node is known to have.
func (m *Monitor) Looked(look gpu.Node, err error, known []string) {
	now := m.Clock.Now()
	hanging, whole := unreached(err)
	m.mu.Lock()
	defer m.mu.Unlock()
	if whole && !errors.Is(err, nvml.ErrHangs) {
		return // the driver is away, which says nothing of its GPUs
	}
	m.answering = nil
	for _, g := range look.GPUs {
		m.answering = append(m.answering, g.UUID)
		known = append(known, g.UUID)
	}
	for _, uuid := range slices.Compact(slices.Sorted(slices.Values(known))) {
		reach := health.Gone
		switch {
		case look.ByUUID(uuid) != nil && !whole:
			reach = health.Answers
		case whole || slices.Contains(hanging, uuid):
			reach = health.Hangs
		}
		m.keep(uuid, m.courses[uuid].Reached(reach, now))
	}
}

// unreached are the GPUs about which a look hung; whole is true where it failed for all of them. A GPU that answers with an
// error of another kind than being lost is taken for one that hangs: it is there, but cannot be asked.
func unreached(err error) (hanging []string, whole bool) {
	if err == nil {
		return nil, false
	}
	if !errors.Is(err, nvml.ErrSick) {
		return nil, true
	}
	each := []error{err}
	for len(each) > 0 {
		var sick *nvml.SickGPUError
		switch e := each[0].(type) { //nolint:errorlint // it is taken apart by hand, since errors.As finds the first only
		case *nvml.SickGPUError:
			sick = e
		case interface{ Unwrap() []error }:
			each = append(each, e.Unwrap()...)
		case interface{ Unwrap() error }:
			each = append(each, e.Unwrap())
		}
		each = each[1:]
		if sick != nil && !errors.Is(sick.Err, nvml.ErrLost) {
			hanging = append(hanging, sick.UUID)
		}
	}
	return hanging, false
}

// Verdicts say how each GPU is now.
func (m *Monitor) Verdicts() map[string]health.Verdict {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.verdicts()
}

func (m *Monitor) verdicts() map[string]health.Verdict {
	now := m.Clock.Now()
	verdicts := make(map[string]health.Verdict, len(m.courses))
	for uuid, course := range m.courses {
		verdicts[uuid] = course.Judge(uuid, now, m.Rules)
	}
	m.told = verdicts
	return verdicts
}

// Forget drops GPUs that the node is not known to have any more.
func (m *Monitor) Forget(known []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.courses, func(uuid string, _ health.Course) bool { return !slices.Contains(known, uuid) })
}

// Run watches until the context ends.
func (m *Monitor) Run(ctx context.Context) {
	var listening sync.WaitGroup
	defer listening.Wait()
	listening.Go(func() { m.listen(ctx) })
	ticker := m.Clock.NewTicker(m.Times.Poll)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			m.poll(ctx)
		}
	}
}

// poll reads the vitals of every known GPU, and calls the loop where that, or time alone, has changed a verdict.
func (m *Monitor) poll(ctx context.Context) {
	m.mu.Lock()
	uuids := slices.Sorted(maps.Keys(m.courses))
	answering := slices.Clone(m.answering)
	m.mu.Unlock()
	again := false
	for _, uuid := range uuids {
		vitals, err := m.Hardware.Vitals(ctx, uuid)
		if ctx.Err() != nil {
			return
		}
		m.mu.Lock()
		again = m.read(uuid, vitals, err, slices.Contains(answering, uuid)) || again
		m.mu.Unlock()
	}
	m.mu.Lock()
	before := m.told
	changed := !maps.Equal(before, m.verdicts())
	m.mu.Unlock()
	if changed || again {
		m.Changed()
	}
}

// read notes vitals, and says whether the GPU answers although the last look did not show it: then it is to be looked at
// again. The caller has the lock.
func (m *Monitor) read(uuid string, vitals health.Vitals, err error, answered bool) (again bool) {
	now := m.Clock.Now()
	course, known := m.courses[uuid]
	if !known {
		return false
	}
	switch {
	case err == nil && !answered:
		return true
	case err == nil:
		course = course.Reached(health.Answers, now).Read(vitals, now, m.Rules)
	case errors.Is(err, nvml.ErrHangs):
		course = course.Reached(health.Hangs, now)
	case errors.Is(err, nvml.ErrLost):
		course = course.Reached(health.Gone, now)
	default:
		m.Log.V(1).Info("The vitals of a GPU cannot be read", "gpu", uuid, "err", err.Error())
	}
	m.keep(uuid, course)
	return false
}
