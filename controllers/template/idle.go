// SPDX-License-Identifier: Apache-2.0

package template

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// idle remembers since when no pod has referred to a template. It lives in memory: after a restart the time starts again,
// which only keeps a template a little longer.
type idle struct {
	mu    sync.Mutex
	since map[types.NamespacedName]time.Time
}

// start is when the template was first seen without a pod: now, unless it was before.
func (i *idle) start(key types.NamespacedName, now time.Time) time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.since == nil {
		i.since = map[types.NamespacedName]time.Time{}
	}
	if since, known := i.since[key]; known {
		return since
	}
	i.since[key] = now
	return now
}

// forget is for a template that is in use again, or gone.
func (i *idle) forget(key types.NamespacedName) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.since, key)
}
