// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers"
	"github.com/sluice-gpu/sluice/controllers/certs"
	"github.com/sluice-gpu/sluice/controllers/queue"
	"github.com/sluice-gpu/sluice/controllers/quota"
	"github.com/sluice-gpu/sluice/controllers/reclaim"
	"github.com/sluice-gpu/sluice/controllers/uninstall"
)

// A leader keeps its lease for a minute without the API server; after that it ends, and is started again.
const (
	leaseDuration = 60 * time.Second
	renewDeadline = 45 * time.Second
	retryPeriod   = 5 * time.Second
)

func newManager(c config) (ctrl.Manager, error) {
	kubeconfig, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the API server: %w", err)
	}
	kubeconfig.QPS, kubeconfig.Burst = float32(c.qps), c.burst
	kubeconfig.UserAgent = "sluice-manager"
	scheme, err := controllers.Scheme()
	if err != nil {
		return nil, err
	}
	cached, err := controllers.CacheOptions(c.namespace)
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(kubeconfig, ctrl.Options{
		Scheme:                        scheme,
		Cache:                         cached,
		Metrics:                       metricsserver.Options{BindAddress: c.metricsAddress},
		HealthProbeBindAddress:        c.healthAddress,
		WebhookServer:                 webhookServer(c),
		LeaderElection:                c.leaderElect,
		LeaderElectionID:              uninstall.LeaderLease,
		LeaderElectionNamespace:       c.namespace,
		LeaderElectionReleaseOnCancel: true, // main ends when the manager does
		LeaseDuration:                 ptr.To(leaseDuration),
		RenewDeadline:                 ptr.To(renewDeadline),
		RetryPeriod:                   ptr.To(retryPeriod),
	})
	if err != nil {
		return nil, fmt.Errorf("building the manager: %w", err)
	}
	if err := mgr.AddHealthzCheck("alive", healthz.Ping); err != nil {
		return nil, fmt.Errorf("adding the health check: %w", err)
	}
	return mgr, nil
}

// webhookServer asks its callers for a certificate, which only other replicas have to show.
func webhookServer(c config) webhook.Server {
	return webhook.NewServer(webhook.Options{
		Port: c.webhookPort, CertDir: c.webhookCertDir,
		TLSOpts: []func(*tls.Config){func(config *tls.Config) { config.ClientAuth = tls.RequestClientCert }},
	})
}

// lengthsAtOnce is how many changed queues may wait to be shown in the status of quotas.
const lengthsAtOnce = 1024

func optionsOf(mgr ctrl.Manager, c config) (controllers.Options, error) {
	changed := make(chan event.GenericEvent, lengthsAtOnce)
	show := func(ledger string) {
		select {
		case changed <- event.GenericEvent{Object: &v1alpha1.GPULedger{ObjectMeta: metav1.ObjectMeta{Name: ledger}}}:
		default: // shown with the ledger's next change
		}
	}
	queues, blocked := queue.NewCounts(show), reclaim.NewBlocked(show)
	parts, err := quota.New(mgr, quota.Options{
		Namespace: c.namespace, CertDir: c.webhookCertDir, DNSName: certs.DNSName(c.namespace), Address: c.advertised(),
		Waiting: queues, Blocked: blocked.Why, Changed: changed, Clock: clock.RealClock{}, Metrics: metrics.Registry,
	})
	if err != nil {
		return controllers.Options{}, fmt.Errorf("setting up quotas: %w", err)
	}
	return controllers.Options{
		ExtendedResources: c.extendedResources,
		DrainSettle:       c.drainSettle,
		ScheduleJitter:    c.scheduleJitter,
		Quota:             parts,
		Queues:            queues,
		Blocked:           blocked,
		Clock:             clock.RealClock{},
		Metrics:           metrics.Registry,
	}, nil
}

// serveWebhooks registers the webhooks as soon as there is a certificate to serve them with. Controllers do not wait.
func serveWebhooks(ctx context.Context, mgr ctrl.Manager, c config, options controllers.Options) error {
	ready := closed()
	if c.certRotation {
		var err error
		ready, err = certs.Setup(ctx, mgr, certs.Options{Namespace: c.namespace, Dir: c.webhookCertDir, DNSNames: c.dnsNames()})
		if err != nil {
			return fmt.Errorf("setting up certificates: %w", err)
		}
	}
	serving := make(chan struct{})
	if err := mgr.AddReadyzCheck("webhook", webhookStarted(mgr, serving)); err != nil {
		return fmt.Errorf("adding the readiness check: %w", err)
	}
	err := mgr.Add(everyReplica(func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-ready:
		}
		if err := controllers.SetupWebhooks(ctx, mgr, options); err != nil {
			return fmt.Errorf("setting up the webhooks: %w", err)
		}
		close(serving)
		<-ctx.Done()
		return nil
	}))
	if err != nil {
		return fmt.Errorf("adding the webhooks: %w", err)
	}
	return nil
}

// webhookStarted is ready once the webhook answers. Asking for the webhook server starts it, so it is not asked before.
func webhookStarted(mgr ctrl.Manager, serving <-chan struct{}) healthz.Checker {
	return func(request *http.Request) error {
		select {
		case <-serving:
			return mgr.GetWebhookServer().StartedChecker()(request)
		default:
			return errors.New("the webhook's certificate is not ready")
		}
	}
}

// everyReplica runs on all replicas, leader or not.
type everyReplica func(context.Context) error

var (
	_ manager.Runnable               = everyReplica(nil)
	_ manager.LeaderElectionRunnable = everyReplica(nil)
)

// Start runs the function.
func (f everyReplica) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection says that followers run it too.
func (everyReplica) NeedLeaderElection() bool { return false }

func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}
