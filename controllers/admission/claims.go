// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// ClaimsPath is where claims are looked at when they are made; config/webhook names it too.
const ClaimsPath = "/check-claims"

// Claims answers admission reviews of claims that people write. Claims that Kubernetes makes for pods are not sent here:
// those pods were looked at themselves.
type Claims struct {
	// Early refuses what would be refused later anyway.
	Early *Early
	// Decoder reads the reviewed claim.
	Decoder admission.Decoder
}

var _ admission.Handler = &Claims{}

// Handle refuses a claim that no quota or pool would give. Where that cannot be decided, the claim is admitted.
func (h *Claims) Handle(ctx context.Context, review admission.Request) admission.Response {
	if review.Operation != admissionv1.Create {
		return admission.Allowed("")
	}
	claim := &resourceapi.ResourceClaim{}
	if err := h.Decoder.Decode(review, claim); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("reading the claim: %w", err))
	}
	claim.Namespace = review.Namespace
	refusal, err := h.Early.Claim(ctx, claim)
	if err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "A claim is admitted without an early look at its quotas")
	}
	if refusal != nil {
		return admission.Denied(refusal.Sentence)
	}
	return admission.Allowed("")
}
