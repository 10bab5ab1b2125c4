// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"

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

// Setup serves the webhook from the manager's server. Every replica serves it, leader or not, so what it reads is cached
// from the start. extendedResources says whether MIG profiles can be asked for by their nvidia.com/... names.
func Setup(ctx context.Context, mgr manager.Manager, extendedResources bool) error {
	for _, object := range []client.Object{&v1alpha1.GPUPool{}, &v1alpha1.GPUNode{}, &v1alpha1.GPUQuota{}, sight.NamespaceMetadata()} {
		if _, err := mgr.GetCache().GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("caching %T for admission: %w", object, err)
		}
	}
	facts := FactsOf(mgr)
	facts.ExtendedResources = extendedResources
	mgr.GetWebhookServer().Register(Path, &webhook.Admission{Handler: &Handler{
		Facts:   facts,
		Quotas:  sight.Reader{Cache: mgr.GetClient(), Live: mgr.GetAPIReader()},
		Decoder: admission.NewDecoder(mgr.GetScheme()),
	}})
	return nil
}
