// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers/quota/sight"
	"github.com/sluice-gpu/sluice/internal/quota"
)

// DeletionPath is where deletions of quotas are judged; config/webhook names it too.
const DeletionPath = "/judge-quota-deletions"

// Deletion keeps quotas that hold something. Callers who may delete them all the same are not sent here: the
// webhook's matchConditions ask the API server's own authorizer for the verb delete-in-use.
type Deletion struct {
	// Live asks the API server.
	Live client.Reader
	// Sight sees quotas.
	Sight Sight
	// Decoder reads quotas.
	Decoder admission.Decoder
}

var _ admission.Handler = &Deletion{}

// Handle refuses to delete a quota in use, unless its namespace goes too.
func (d *Deletion) Handle(ctx context.Context, review admission.Request) admission.Response {
	if review.Operation != admissionv1.Delete {
		return admission.Allowed("")
	}
	object := &v1alpha1.GPUQuota{}
	if err := d.Decoder.DecodeRaw(review.OldObject, object); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("reading the quota: %w", err))
	}
	namespace := sight.NamespaceMetadata()
	err := d.Live.Get(ctx, client.ObjectKey{Name: object.Namespace}, namespace)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return admission.Errored(http.StatusServiceUnavailable, fmt.Errorf("reading namespace %s: %w", object.Namespace, err))
	case err != nil || !namespace.DeletionTimestamp.IsZero():
		return admission.Allowed("")
	}
	held, err := d.held(ctx, object)
	switch {
	case err != nil:
		return admission.Errored(http.StatusServiceUnavailable, err)
	case held == "":
		return admission.Allowed("")
	default:
		return admission.Denied(fmt.Sprintf("GPUQuota %s/%s is in use (%s): end what holds it first, or have somebody delete it "+
			"who has the verb delete-in-use on gpuquotas (ClusterRole sluice-admin)", object.Namespace, object.Name, held))
	}
}

// held says what a quota counts at the moment; "" where that is nothing. What is not counted yet may be anything.
func (d *Deletion) held(ctx context.Context, object *v1alpha1.GPUQuota) (string, error) {
	domain, err := d.Sight.DomainOf(ctx, object.Namespace)
	if err != nil || domain == nil {
		return "", err //nolint:wrapcheck // it says what was done
	}
	ledger, err := d.Sight.Ledger(ctx, domain.Ledger)
	if err != nil {
		return "", err //nolint:wrapcheck // it says what was done
	}
	if len(ledger.Missing(&quota.Domain{Quotas: domain.Of(object.Namespace)})) > 0 {
		return "what the namespace holds is being counted", nil
	}
	for _, q := range domain.Of(object.Namespace) {
		if (types.NamespacedName{Namespace: q.Namespace, Name: q.Name}) == client.ObjectKeyFromObject(object) {
			return amounts(ledger.Used(object.Namespace, q.Pools)), nil
		}
	}
	return "", nil
}

func amounts(used quota.Amounts) string {
	var parts []string
	for _, name := range used.Names() {
		if used[name] > 0 {
			parts = append(parts, name+" "+quota.Format(name, used[name]))
		}
	}
	return strings.Join(parts, ", ")
}
