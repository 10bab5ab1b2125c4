// SPDX-License-Identifier: Apache-2.0

// Package gpunode writes GPUNode.spec: the decision for each GPU of a node. It keeps a deleted GPUNode while somebody
// relies on its decisions, and never writes a GPUNode's status.
package gpunode

import (
	"context"
	"fmt"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers/orders"
	"github.com/sluice-gpu/sluice/controllers/view"
	"github.com/sluice-gpu/sluice/controllers/watch"
	"github.com/sluice-gpu/sluice/internal/assign"
	"github.com/sluice-gpu/sluice/internal/timetable"
)

// +kubebuilder:rbac:groups=sluice.dev,resources=gpunodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=sluice.dev,resources=gpupools,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=resource.k8s.io,resources=resourceclaims,verbs=get;list;watch

const (
	// concurrency is how many nodes are worked on at once: enough to keep the client's rate limit busy.
	concurrency = 16
	// conflictDelay is how soon to look again after somebody else, mostly the agent, wrote the object first.
	conflictDelay = 100 * time.Millisecond
)

// Reconciler decides the GPUs of one node.
type Reconciler struct {
	client client.Client
	live   client.Reader
	claims *freshClaims
	settle *settling
	book   *orders.Book
	jitter time.Duration
	clock  clock.PassiveClock
}

// Options are what the controller needs.
type Options struct {
	// DrainSettle is how long a published taint must stand before a GPU changes hands.
	DrainSettle time.Duration
	// Book has the orders of the pools' rollouts.
	Book *orders.Book
	// ScheduleJitter is the time over which nodes follow a schedule.
	ScheduleJitter time.Duration
	// Clock tells the time.
	Clock clock.PassiveClock
}

// New makes a reconciler. The client reads from the cache, live from the API server.
func New(c client.Client, live client.Reader, o Options) *Reconciler {
	return &Reconciler{
		client: c,
		live:   live,
		claims: &freshClaims{live: live, clock: o.Clock},
		settle: newSettling(o.DrainSettle, o.Clock),
		book:   o.Book,
		jitter: o.ScheduleJitter,
		clock:  o.Clock,
	}
}

// Setup registers the controller.
func Setup(mgr ctrl.Manager, o Options) error {
	r := New(mgr.GetClient(), mgr.GetAPIReader(), o)
	return ctrl.NewControllerManagedBy(mgr).
		Named("gpunode").
		For(&v1alpha1.GPUNode{}).
		Watches(&v1alpha1.GPUPool{}, watch.At(r.allNodes), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesMetadata(view.NodeMetadata(), &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&resourceapi.ResourceClaim{}, watch.At(allocatedNodes), builder.WithPredicates(watch.AllocationChanged())).
		WatchesRawSource(source.Channel(o.Book.Nodes(), &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency}).
		Complete(r)
}

// allNodes names every node: any of them may be concerned by a pool.
func (r *Reconciler) allNodes(ctx context.Context, pool client.Object) []string {
	nodes, err := view.GPUNodes(ctx, r.client)
	if err != nil {
		log.FromContext(ctx).Error(err, "A changed pool reaches the nodes only with their next change", "pool", pool.GetName())
		return nil
	}
	names := make([]string, 0, len(nodes))
	for i := range nodes {
		names = append(names, nodes[i].Name)
	}
	return names
}

func allocatedNodes(_ context.Context, object client.Object) []string {
	claim, ok := object.(*resourceapi.ResourceClaim)
	if !ok {
		return nil
	}
	return assign.AllocatedNodes(claim)
}

// Reconcile gathers, decides and writes the decisions of one node.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	node, err := view.Node(ctx, r.client, request.Name)
	if apierrors.IsNotFound(err) {
		r.settle.forget(request.Name)
		return ctrl.Result{}, r.withoutNode(ctx, request.Name)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	if !node.GPUNode.DeletionTimestamp.IsZero() && len(node.Allocations) == 0 {
		if node.Allocations, err = r.claims.on(ctx, request.Name); err != nil {
			return ctrl.Result{}, err
		}
		if len(node.Allocations) == 0 {
			r.settle.forget(request.Name)
			return ctrl.Result{}, r.release(ctx, node.GPUNode, "nothing is allocated on the node")
		}
	}
	return r.decide(ctx, node)
}

// decide decides on what is known of a node, and writes that.
func (r *Reconciler) decide(ctx context.Context, node assign.Node) (ctrl.Result, error) {
	name := node.GPUNode.Name
	written, err := view.Pools(ctx, r.client)
	if err != nil {
		return ctrl.Result{}, err
	}
	now := r.clock.Now()
	pools, change := timetable.On(timetable.All(written, r.jitter), name, now)
	orders := r.book.Orders(name)
	taints, wait := r.settle.observe(node.GPUNode)
	decided := assign.Decide(node, pools, taints, orders, now)
	replaces := assign.Replaces(node.GPUNode.Decisions(), decided.Decisions)
	if replaces {
		// The cache may lag behind an allocation: what cannot be taken back is decided on what the API server says.
		if node.Allocations, err = r.claims.on(ctx, name); err != nil {
			return ctrl.Result{}, err
		}
		decided = assign.Decide(node, pools, taints, orders, now)
	}

	conflict, err := r.write(ctx, node.GPUNode, decided.Decisions)
	again := untilChange(change, now)
	switch {
	case err != nil:
		return ctrl.Result{}, err
	case conflict:
		return ctrl.Result{RequeueAfter: conflictDelay}, nil
	case (replaces || !node.GPUNode.DeletionTimestamp.IsZero()) && len(node.Allocations) > 0:
		// A claim may have been released since the API server was asked, and its event may be over.
		return ctrl.Result{RequeueAfter: sooner(again, freshFor)}, nil
	case len(decided.Settling) > 0:
		return ctrl.Result{RequeueAfter: sooner(again, wait)}, nil
	default:
		return ctrl.Result{RequeueAfter: again}, nil
	}
}

// untilChange is how long until a schedule changes a pool on the node; 0: never.
func untilChange(change, now time.Time) time.Duration {
	if change.IsZero() {
		return 0
	}
	return max(change.Sub(now), time.Millisecond)
}

// sooner is the shorter of two waits; 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b < a {
		return b
	}
	return a
}

// leave is what a GPUNode says of leaving, which is not decided here.
func leave(node *v1alpha1.GPUNode) *bool {
	if node.Spec == nil {
		return nil
	}
	return node.Spec.Leave
}

// write changes the spec where the decisions differ, and has the finalizer stand before any decision does. It reports a
// conflict where the object is newer than what was decided on.
func (r *Reconciler) write(ctx context.Context, node *v1alpha1.GPUNode, decisions []v1alpha1.GPUDecision) (conflict bool, err error) {
	changed := node.DeepCopy()
	differs := !apiequality.Semantic.DeepEqual(node.Decisions(), decisions)
	if differs {
		changed.Spec = &v1alpha1.GPUNodeSpec{GPUs: decisions, Leave: leave(node)}
	}
	unprotected := len(decisions) > 0 && node.DeletionTimestamp.IsZero() &&
		controllerutil.AddFinalizer(changed, v1alpha1.NodeFinalizer)
	if !differs && !unprotected {
		return false, nil
	}
	err = r.client.Patch(ctx, changed, client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsConflict(err):
		return true, nil
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("writing the decisions of node %s: %w", node.Name, err)
	}
	for _, change := range assign.Changes(node.Decisions(), decisions) {
		log.FromContext(ctx).Info("Decided", "gpus", change.UUIDs, "from", change.From, "to", change.To)
	}
	return false, nil
}
