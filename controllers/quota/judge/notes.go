// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/sluice-gpu/sluice/internal/quota"
)

const (
	// ReasonRefused is the reason of events about what a quota refuses.
	ReasonRefused = "RefusedByQuota"

	actionAllocate = "Allocate"

	// quiet is how long a pod or claim that is refused again gets no further event: the scheduler tries every few seconds.
	quiet = time.Minute
	// remembered is how many are remembered at most.
	remembered = 4096
	// maxNote is the longest text of an event.
	maxNote = 1024
	// noResource is the label of refusals that no amount is the reason of.
	noResource = "none"
)

// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

// eventRecorder is what is asked of a recorder of events.
type eventRecorder interface {
	Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any)
}

// Notes tells people what was refused, and counts it.
type Notes struct {
	events   eventRecorder
	clock    clock.PassiveClock
	refusals *prometheus.CounterVec
	latency  prometheus.Histogram

	mu   sync.Mutex
	told map[types.UID]time.Time
}

// NewNotes registers the metrics.
func NewNotes(events eventRecorder, registerer prometheus.Registerer, now clock.PassiveClock) (*Notes, error) {
	n := &Notes{
		events: events, clock: now, told: map[types.UID]time.Time{},
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_quota_refusals_total", Help: "Allocations and requests refused because of a quota, by the amount that did not fit.",
		}, []string{"namespace", "resource"}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_quota_charge_seconds", Help: "Time from an allocation's arrival to its reservation or refusal.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
	}
	for _, c := range []prometheus.Collector{n.refusals, n.latency} {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("registering the metrics of quotas: %w", err)
		}
	}
	return n, nil
}

// Forget drops what was counted of a namespace that has no quota any more.
func (n *Notes) Forget(namespace string) {
	n.refusals.DeletePartialMatch(prometheus.Labels{"namespace": namespace})
}

// Count counts a refusal. A namespace without a quota is not counted: there may be any number of them.
func (n *Notes) Count(refusal *quota.Refusal) {
	if refusal.Quota != "" {
		n.refusals.WithLabelValues(refusal.Namespace, cmp.Or(refusal.Resource, noResource)).Inc()
	}
}

func (n *Notes) charged(took time.Duration) { n.latency.Observe(took.Seconds()) }

// refused counts a refused allocation, and says so on the pod that the claim is for, or on the claim.
func (n *Notes) refused(claim *resourceapi.ResourceClaim, refusal *quota.Refusal) {
	n.Count(refusal)
	if regarding := regardingOf(claim); n.first(regarding.UID) {
		n.events.Eventf(regarding, nil, corev1.EventTypeWarning, ReasonRefused, actionAllocate, "%s", cut(refusal.Sentence))
	}
}

// first says whether something may have an event now, and remembers it.
func (n *Notes) first(uid types.UID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.clock.Now()
	if last, told := n.told[uid]; told && now.Sub(last) < quiet {
		return false
	}
	if len(n.told) >= remembered {
		for other, last := range n.told {
			if now.Sub(last) >= quiet {
				delete(n.told, other)
			}
		}
	}
	if len(n.told) >= remembered {
		return false // more at once than anybody reads
	}
	n.told[uid] = now
	return true
}

// regardingOf is the pod that a claim is to be reserved for, or the claim.
func regardingOf(claim *resourceapi.ResourceClaim) *corev1.ObjectReference {
	for _, consumer := range claim.Status.ReservedFor {
		if consumer.APIGroup == "" && consumer.Resource == "pods" {
			return &corev1.ObjectReference{
				APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Pod",
				Namespace: claim.Namespace, Name: consumer.Name, UID: consumer.UID,
			}
		}
	}
	return &corev1.ObjectReference{
		APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceClaim",
		Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
	}
}

func cut(note string) string {
	if len(note) <= maxNote {
		return note
	}
	return note[:maxNote-3] + "..."
}
