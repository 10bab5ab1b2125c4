// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers/quota/sight"
)

// Path is where the webhook is served; config/webhook names it too.
const Path = "/mutate-pods"

// +kubebuilder:rbac:groups=sluice.dev,resources=gpupools;gpunodes,verbs=get;list;watch

// Options are what admission needs.
type Options struct {
	// ExtendedResources says whether MIG profiles can be asked for by their nvidia.com/... names.
	ExtendedResources bool
	// Counter counts refusals.
	Counter Counter
	// Clock tells the time.
	Clock clock.PassiveClock
}

// Setup serves the webhooks from the manager's server. Every replica serves them, leader or not, so what they read is
// cached from the start.
func Setup(ctx context.Context, mgr manager.Manager, o Options) error {
	for _, object := range []client.Object{
		&v1alpha1.GPUPool{}, &v1alpha1.GPUNode{}, &v1alpha1.GPUQuota{}, &v1alpha1.GPULedger{}, sight.NamespaceMetadata(),
		&resourceapi.DeviceClass{}, &resourceapi.ResourceClaim{},
	} {
		if _, err := mgr.GetCache().GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("caching %T for admission: %w", object, err)
		}
	}
	facts := FactsOf(mgr)
	facts.ExtendedResources = o.ExtendedResources
	quotas := sight.Reader{Cache: mgr.GetClient(), Live: mgr.GetAPIReader()}
	early := &Early{
		Cache: mgr.GetClient(), Live: mgr.GetAPIReader(), Facts: facts, Quotas: quotas, Counter: o.Counter, Clock: o.Clock,
	}
	decoder := admission.NewDecoder(mgr.GetScheme())
	server := mgr.GetWebhookServer()
	server.Register(Path, finish(&webhook.Admission{Handler: &Handler{Facts: facts, Quotas: quotas, Early: early, Decoder: decoder}}))
	server.Register(ClaimsPath, finish(&webhook.Admission{Handler: &Claims{Early: early, Decoder: decoder}}))
	return nil
}
