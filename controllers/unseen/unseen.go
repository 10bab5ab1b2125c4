// SPDX-License-Identifier: Apache-2.0

// Package unseen finds pods that were created while no webhook answered: before Sluice was there, or while the manager was away.
// They keep their sluice.dev/* limits, which no node offers, and would wait for ever. One that a workload made is evicted, so
// that the workload makes it again and admission sees it; the owner of another one is told.
package unseen

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers/eviction"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reasons of events on pods.
const (
	// ReasonMadeAgain: the pod was created while no webhook answered, and was evicted for its workload to make it again.
	ReasonMadeAgain = "NotAdmittedEvicted"
	// ReasonNotAdmitted: the pod was created while no webhook answered, and must be created again.
	ReasonNotAdmitted = "NotAdmitted"

	actionAdmit = "Admit"
)

const (
	// every is how often pods are looked at.
	every = 15 * time.Second
	// youngest is how old a pod must be: what is created now is the webhook's.
	youngest = 10 * time.Second
	// page is how many pods are read at once.
	page = 500
	// limits is how the names of Sluice's resources begin.
	limits = "sluice.dev/"
)

// eventRecorder is what is asked of a recorder of events.
type eventRecorder interface {
	Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any)
}

// Looker looks for such pods while this replica leads.
type Looker struct {
	client client.Client
	live   client.Reader
	events eventRecorder
	clock  clock.WithTicker
	// told are the pods that were told about, until they are gone.
	told map[types.UID]bool
}

var (
	_ manager.Runnable               = &Looker{}
	_ manager.LeaderElectionRunnable = &Looker{}
)

// New makes one. The client evicts; live reads from the API server, since the cache has only pods that admission changed.
func New(c client.Client, live client.Reader, events eventRecorder, clock clock.WithTicker) *Looker {
	return &Looker{client: c, live: live, events: events, clock: clock, told: map[types.UID]bool{}}
}

// Setup adds one to the manager.
func Setup(mgr ctrl.Manager, clock clock.WithTicker) error {
	if err := mgr.Add(New(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder("sluice-manager"), clock)); err != nil {
		return fmt.Errorf("adding the search for pods that were not admitted: %w", err)
	}
	return nil
}

// NeedLeaderElection says that only the leader runs it.
func (*Looker) NeedLeaderElection() bool { return true }

// Start looks until the context ends. A look that fails is made up for by the next.
func (l *Looker) Start(ctx context.Context) error {
	ticker := l.clock.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
		if err := l.Look(ctx); err != nil {
			logr.FromContextOrDiscard(ctx).Error(err, "Looking for pods that no webhook has seen")
		}
	}
}

// Look looks at all pods that no node has.
func (l *Looker) Look(ctx context.Context) error {
	found := map[types.UID]bool{}
	pods := &corev1.PodList{}
	var failures []error
	for {
		options := []client.ListOption{
			client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.nodeName", "")}, client.Limit(page), client.Continue(pods.Continue),
		}
		if err := l.live.List(ctx, pods, options...); err != nil {
			return fmt.Errorf("listing the pods that no node has: %w", err)
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if !passed(pod) || l.clock.Since(pod.CreationTimestamp.Time) < youngest {
				continue
			}
			found[pod.UID] = true
			failures = append(failures, l.act(ctx, pod))
		}
		if pods.Continue == "" {
			break
		}
	}
	for uid := range l.told {
		if !found[uid] {
			delete(l.told, uid)
		}
	}
	return errors.Join(failures...)
}

// passed says whether a pod that waits for a node asks for GPUs and was not changed by admission, which takes the limits away.
func passed(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodPending || pod.Labels[v1alpha1.RequestLabel] != "" {
		return false
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			for name := range containers[i].Resources.Limits {
				if strings.HasPrefix(string(name), limits) {
					return true
				}
			}
		}
	}
	return false
}

// act evicts a pod that is made again, and tells the owner of one that is not.
func (l *Looker) act(ctx context.Context, pod *corev1.Pod) error {
	if metav1.GetControllerOf(pod) == nil {
		l.tell(pod, ReasonNotAdmitted, "the pod was created while Sluice's webhook did not answer, and waits for limits that no node offers: create it again")
		return nil
	}
	forbidden, err := eviction.Ask(ctx, l.client, pod, metav1.DeleteOptions{})
	switch {
	case err != nil:
		return fmt.Errorf("having a pod made again: %w", err)
	case forbidden != "":
		l.tell(pod, ReasonNotAdmitted, "the pod was created while Sluice's webhook did not answer, and may not be evicted: "+forbidden)
	default:
		l.tell(pod, ReasonMadeAgain, "the pod was created while Sluice's webhook did not answer, and is evicted to be made again")
	}
	return nil
}

// tell writes an event, once a pod.
func (l *Looker) tell(pod *corev1.Pod, reason, note string) {
	if !l.told[pod.UID] {
		l.told[pod.UID] = true
		l.events.Eventf(pod, nil, corev1.EventTypeWarning, reason, actionAdmit, "%s", note)
	}
}
