// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers/view"
	"github.com/sluice-gpu/sluice/internal/classes"
	"github.com/sluice-gpu/sluice/internal/quota"
	"github.com/sluice-gpu/sluice/internal/request"
)

// settled is how long a pod that may be scheduled usually takes to get its devices, with a wide margin. One that has
// none after it is stuck.
const settled = time.Minute

// PoolReader tells what is known of the pools.
type PoolReader interface {
	// Pools are the pools as the manager's cache has them.
	Pools(ctx context.Context) ([]request.Pool, error)
}

// QuotaReader tells which quotas there are.
type QuotaReader interface {
	// Domain is the domain of a ledger; nil where no quota belongs to it.
	Domain(ctx context.Context, ledger string) (*quota.Domain, error)
	// LedgerOf is the name of the ledger that judges a namespace; "" where it has no quota.
	LedgerOf(ctx context.Context, namespace string) (string, error)
}

// Reader gathers.
type Reader struct {
	// Quotas tells which quotas there are.
	Quotas QuotaReader
	// Cache is the manager's.
	Cache client.Reader
	// Pods has the pods without a node.
	Pods client.Reader
	// Pools tells what is known of the pools.
	Pools PoolReader
}

// State is what the pods of one ledger's namespaces wait for.
type State struct {
	// Domain is the ledger's; nil where no quota belongs to it.
	Domain *quota.Domain
	// Ledger is what it counts.
	Ledger *quota.Ledger
	// Waiting are the pods in line, behind their gates.
	Waiting []Pod
	// UnderWay are the pods without devices whose gate was lifted, or that never had it.
	UnderWay []Pod
	// Apart are gated pods that are not in line.
	Apart []Pod
	// Unqueued are gated pods of namespaces where nobody queues.
	Unqueued []Pod
}

// Pod is one pod.
type Pod struct {
	// Object is the pod, of which only what decisions read is known. It belongs to the cache.
	Object *corev1.Pod
	// Line is the pod as decisions see it.
	Line quota.Pod
	// Apart says why it is not in line; "" where it is.
	Apart string
}

// Lines are pods as decisions see them.
func Lines(pods []Pod) []quota.Pod {
	lines := make([]quota.Pod, 0, len(pods))
	for i := range pods {
		lines = append(lines, pods[i].Line)
	}
	return lines
}

// Gather reads what belongs to a ledger.
func (r *Reader) Gather(ctx context.Context, ledger string, now time.Time) (State, error) {
	domain, err := r.Quotas.Domain(ctx, ledger)
	if err != nil {
		return State{}, fmt.Errorf("reading the quotas of ledger %s: %w", ledger, err)
	}
	if domain == nil {
		return r.withoutQuota(ctx, ledger)
	}
	state := State{Domain: domain}
	if state.Ledger, err = r.ledger(ctx, ledger); err != nil {
		return State{}, err
	}
	var pods []*corev1.Pod
	for _, namespace := range state.Domain.Namespaces() {
		own, err := r.pods(ctx, namespace)
		if err != nil {
			return State{}, err
		}
		pods = append(pods, own...)
	}
	if len(pods) == 0 {
		return state, nil
	}
	costs, err := r.costs(ctx, state.Ledger)
	if err != nil {
		return State{}, err
	}
	return state, state.sort(ctx, pods, costs, now)
}

// withoutQuota lets the pods of a namespace go whose quota is gone.
func (r *Reader) withoutQuota(ctx context.Context, ledger string) (State, error) {
	namespace, single := strings.CutPrefix(ledger, v1alpha1.LedgerNamespacePrefix)
	if !single {
		return State{}, nil
	}
	now, err := r.Quotas.LedgerOf(ctx, namespace)
	if err != nil {
		return State{}, fmt.Errorf("reading the quotas of namespace %s: %w", namespace, err)
	}
	if now != "" {
		return State{}, nil
	}
	pods, err := r.pods(ctx, namespace)
	if err != nil {
		return State{}, err
	}
	var state State
	for _, pod := range pods {
		if quota.Gated(pod) {
			state.Unqueued = append(state.Unqueued, Pod{Object: pod})
		}
	}
	return state, nil
}

// ledger reads a ledger; one that is not there counts nothing yet.
func (r *Reader) ledger(ctx context.Context, name string) (*quota.Ledger, error) {
	object := &v1alpha1.GPULedger{}
	if err := r.Cache.Get(ctx, client.ObjectKey{Name: name}, object); err != nil {
		if apierrors.IsNotFound(err) {
			return quota.NewLedger(name), nil
		}
		return nil, fmt.Errorf("reading ledger %s: %w", name, err)
	}
	return quota.ReadLedger(object), nil
}

// pods are the pods of a namespace that have no node and may get devices of Sluice.
func (r *Reader) pods(ctx context.Context, namespace string) ([]*corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := r.Pods.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the pods of namespace %s that have no node: %w", namespace, err)
	}
	var pods []*corev1.Pod
	for i := range list.Items {
		pod := &list.Items[i]
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if pod.DeletionTimestamp.IsZero() && !ended && (quota.Gated(pod) || quota.MayAsk(pod)) {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

// costs prepares to tell what pods cost.
func (r *Reader) costs(ctx context.Context, ledger *quota.Ledger) (*costs, error) {
	pools, err := r.Pools.Pools(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the pools: %w", err)
	}
	existing, err := view.Classes(ctx, r.Cache)
	if err != nil {
		return nil, err
	}
	catalog := quota.Catalog{Pools: pools}
	for i := range existing {
		if !classes.Managed(&existing[i]) {
			catalog.Foreign = append(catalog.Foreign, existing[i].Name)
		}
	}
	return &costs{claims: r.Cache, catalog: catalog, ledger: ledger, counted: map[string]bool{}}, nil
}

// sort puts each pod where it belongs. Pods under way come first: what they wait for is not counted again for others that
// wait for the same claim.
func (s *State) sort(ctx context.Context, pods []*corev1.Pod, costs *costs, now time.Time) error {
	for _, gated := range []bool{false, true} {
		for _, pod := range pods {
			if quota.Gated(pod) != gated {
				continue
			}
			placed, err := costs.of(ctx, pod, now)
			if err != nil {
				return err
			}
			s.place(placed, gated)
		}
	}
	return nil
}

func (s *State) place(pod Pod, gated bool) {
	switch {
	case !gated && (pod.Apart != "" || pod.Line.Cost.In(nil).Zero()):
	case !gated:
		s.UnderWay = append(s.UnderWay, pod)
	case !s.Domain.Queues(pod.Object.Namespace):
		s.Unqueued = append(s.Unqueued, pod)
	case pod.Apart != "":
		s.Apart = append(s.Apart, pod)
	default:
		s.Waiting = append(s.Waiting, pod)
	}
}

// otherGates says which gates beside the quota's a pod has.
func otherGates(pod *corev1.Pod) []string {
	var names []string
	for _, gate := range pod.Spec.SchedulingGates {
		if gate.Name != v1alpha1.QuotaGate {
			names = append(names, gate.Name)
		}
	}
	slices.Sort(names)
	return names
}
