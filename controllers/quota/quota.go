// SPDX-License-Identifier: Apache-2.0

// Package quota holds quotas: it wires the webhooks that judge allocations, the one writer of ledgers, the count of what
// is allocated, and the quotas' status.
package quota

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	resourceapi "k8s.io/api/resource/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers/quota/count"
	"github.com/sluice-gpu/sluice/controllers/quota/judge"
	"github.com/sluice-gpu/sluice/controllers/quota/ledger"
	"github.com/sluice-gpu/sluice/controllers/quota/peer"
	"github.com/sluice-gpu/sluice/controllers/quota/sight"
	"github.com/sluice-gpu/sluice/controllers/quota/standing"
)

// reportedBy names the events' source.
const reportedBy = "sluice-manager"

// Options are what quotas need.
type Options struct {
	// Namespace is the manager's.
	Namespace string
	// CertDir and DNSName are the webhook's certificate, by which replicas know each other.
	CertDir, DNSName string
	// Address is where other replicas reach this one's webhook server; "" where they do not.
	Address string
	// Waiting tells how many pods of a namespace wait.
	Waiting standing.Waiting
	// Changed names ledgers whose queues became longer or shorter.
	Changed <-chan event.GenericEvent
	// Blocked says what keeps borrowed pods from being evicted for a namespace; "" for nothing.
	Blocked func(namespace string) string
	// Clock tells the time.
	Clock clock.WithTicker
	// Metrics is where metrics are registered.
	Metrics prometheus.Registerer
}

// Parts are what holds quotas in one replica.
type Parts struct {
	// Sight sees quotas, devices and claims.
	Sight sight.Reader
	// Ledgers writes ledgers.
	Ledgers *ledger.Writer
	// Notes tells people what was refused.
	Notes *judge.Notes

	options  Options
	identity peer.Identity
	leader   *peer.Client
}

// New makes the parts.
func New(mgr ctrl.Manager, o Options) (*Parts, error) {
	notes, err := judge.NewNotes(mgr.GetEventRecorder(reportedBy), o.Metrics, o.Clock)
	if err != nil {
		return nil, fmt.Errorf("setting up the notes on quotas: %w", err)
	}
	p := &Parts{Sight: sight.Reader{Cache: mgr.GetClient(), Live: mgr.GetAPIReader()}, Notes: notes, options: o}
	p.Ledgers = ledger.New(ledger.Options{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Sight: p.Sight, Clock: o.Clock, Leads: leads(mgr)})
	p.identity = peer.Identity{Dir: o.CertDir, Name: o.DNSName}
	p.leader = peer.NewClient(p.identity, peer.Address(mgr.GetClient(), o.Namespace))
	return p, nil
}

// Setup registers the controllers, which the leader runs.
func (p *Parts) Setup(ctx context.Context, mgr ctrl.Manager) error {
	if err := sight.Index(ctx, mgr.GetFieldIndexer()); err != nil {
		return fmt.Errorf("setting up quotas: %w", err)
	}
	if err := p.forget(ctx, mgr); err != nil {
		return err
	}
	reached, err := follow(ctx, mgr)
	if err != nil {
		return err
	}
	counting := &count.Reconciler{
		Cache: mgr.GetClient(), Live: mgr.GetAPIReader(), Ledgers: p.Ledgers, Sight: p.Sight, Reached: reached, Clock: p.options.Clock,
	}
	if err := counting.Setup(mgr); err != nil {
		return fmt.Errorf("setting up quotas: %w", err)
	}
	lead := leads(mgr)
	standIn := &count.StandIn{Count: counting, Covered: func(ctx context.Context) bool { return lead() || p.leader.There(ctx) }}
	if err := standIn.Setup(mgr); err != nil {
		return fmt.Errorf("setting up quotas: %w", err)
	}
	err = standing.Setup(mgr, standing.Options{
		Sight: p.Sight, Waiting: p.options.Waiting, Changed: p.options.Changed, Blocked: p.options.Blocked,
		Metrics: p.options.Metrics,
	})
	if err != nil {
		return fmt.Errorf("setting up quotas: %w", err)
	}
	err = mgr.Add(&peer.Publisher{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Namespace: p.options.Namespace, Address: p.options.Address, Clock: p.options.Clock,
	})
	if err != nil {
		return fmt.Errorf("adding the publisher of the leader's address: %w", err)
	}
	return nil
}

// leads says whether this replica is the leader.
func leads(mgr ctrl.Manager) func() bool {
	return func() bool {
		select {
		case <-mgr.Elected():
			return true
		default:
			return false
		}
	}
}

// forget drops what every replica has counted of a namespace, with its last quota.
func (p *Parts) forget(ctx context.Context, mgr ctrl.Manager) error {
	quotas, err := mgr.GetCache().GetInformer(ctx, &v1alpha1.GPUQuota{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("caching quotas: %w", err)
	}
	_, err = quotas.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(object any) {
		name, err := toolscache.DeletionHandlingObjectToName(object)
		if err != nil {
			return
		}
		if left, err := p.Sight.Quotas(ctx); err == nil && len(sight.ByNamespace(left)[name.Namespace]) == 0 {
			p.Notes.Forget(name.Namespace)
		}
	}})
	if err != nil {
		return fmt.Errorf("following the cache of quotas: %w", err)
	}
	return nil
}

// follow tells how far the cache of claims has come.
func follow(ctx context.Context, mgr ctrl.Manager) (func() string, error) {
	claims, err := mgr.GetCache().GetInformer(ctx, &resourceapi.ResourceClaim{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("caching claims: %w", err)
	}
	progress := &sight.Progress{}
	registration, err := claims.AddEventHandler(progress)
	if err != nil {
		return nil, fmt.Errorf("following the cache of claims: %w", err)
	}
	return reached(registration, progress), nil
}

func reached(registration toolscache.ResourceEventHandlerRegistration, progress *sight.Progress) func() string {
	return func() string {
		if !registration.HasSynced() {
			return ""
		}
		return progress.Version()
	}
}

// SetupWebhooks serves the webhooks, on every replica. What they read is cached from the start.
func (p *Parts) SetupWebhooks(ctx context.Context, mgr ctrl.Manager) error {
	for _, object := range []client.Object{
		&v1alpha1.GPUQuota{}, &v1alpha1.GPUPool{}, &v1alpha1.GPUNode{}, &v1alpha1.GPULedger{}, sight.NamespaceMetadata(),
		&resourceapi.ResourceClaim{}, &resourceapi.ResourceSlice{}, &resourceapi.DeviceClass{}, &coordinationv1.Lease{},
	} {
		if _, err := mgr.GetCache().GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("caching %T for quotas: %w", object, err)
		}
	}
	front := &peer.Front{Leads: leads(mgr), Own: p.Ledgers, Leader: p.leader, Clock: p.options.Clock}
	decoder := admission.NewDecoder(mgr.GetScheme())
	server := mgr.GetWebhookServer()
	server.Register(peer.Path, &peer.Handler{Identity: p.identity, Leads: front.Leads, Own: p.Ledgers})
	server.Register(judge.ClaimsPath, &webhook.Admission{Handler: &judge.Claims{
		Cache: mgr.GetClient(), Live: mgr.GetAPIReader(), Sight: p.Sight, Charger: front,
		Decoder: decoder, Notes: p.Notes, Clock: p.options.Clock,
	}})
	server.Register(judge.DeletionPath, &webhook.Admission{Handler: &judge.Deletion{
		Live: mgr.GetAPIReader(), Sight: p.Sight, Decoder: decoder,
	}})
	return nil
}
