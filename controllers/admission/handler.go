// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/quota"
	"github.com/sluice-gpu/sluice/internal/request"
)

// Handler answers admission reviews of pods.
type Handler struct {
	// Facts tells what is known of the pools.
	Facts Facts
	// Quotas tells what holds for a namespace.
	Quotas Quotas
	// Early refuses what would be refused later anyway.
	Early PodCheck
	// Decoder reads the reviewed pod.
	Decoder admission.Decoder
}

// PodCheck decides about a pod as it is about to be stored.
type PodCheck interface {
	// MayReach says whether a pod may get devices of Sluice.
	MayReach(ctx context.Context, pod *corev1.Pod, namespace string) bool
	// Pod refuses a pod that would be refused later; nil where it may be stored.
	Pod(ctx context.Context, pod *corev1.Pod, namespace string, domain *quota.Domain) (*quota.Refusal, error)
}

var _ admission.Handler = &Handler{}

// Handle admits a pod, changed where it asks for GPUs, or refuses it with a sentence that says what to write instead.
func (h *Handler) Handle(ctx context.Context, review admission.Request) admission.Response {
	if review.Operation != admissionv1.Create {
		return admission.Allowed("")
	}
	pod := &corev1.Pod{}
	if err := h.Decoder.Decode(review, pod); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("reading the pod: %w", err))
	}
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		// It only shows a static pod, which kubelet runs from a file and which can have no claim.
		return admission.Allowed("")
	}
	before, err := json.Marshal(pod)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("encoding the pod: %w", err))
	}
	warnings, refusal := h.admit(ctx, pod, review.Namespace)
	if refusal != nil {
		return *refusal
	}
	return changed(before, pod, warnings)
}

// admit changes a pod that asks for GPUs, or says why not.
func (h *Handler) admit(ctx context.Context, pod *corev1.Pod, namespace string) ([]string, *admission.Response) {
	asks, err := request.Parse(pod)
	if err != nil {
		return nil, refused(ctx, err)
	}
	if len(asks.Containers) == 0 {
		request.Tidy(pod, &asks)
		if !quota.MayAsk(pod) {
			return asks.Warnings, nil
		}
	}
	domain, err := h.Quotas.DomainOf(ctx, namespace)
	if err != nil {
		return nil, refused(ctx, &factsError{err})
	}
	warnings := asks.Warnings
	if len(asks.Containers) > 0 {
		resolution, err := h.resolve(ctx, asks, domain, namespace)
		if err != nil {
			return nil, refused(ctx, err)
		}
		if err := request.Rewrite(pod, &resolution); err != nil {
			failed := admission.Errored(http.StatusInternalServerError, err)
			return nil, &failed
		}
		warnings = resolution.Warnings
	}
	if domain.Queues(namespace) && h.Early.MayReach(ctx, pod, namespace) {
		domain.Gate(pod, namespace)
	}
	return warnings, h.early(ctx, pod, namespace, domain)
}

// early refuses what no quota or pool would give, once it is known what the pod asks for. Where that cannot be decided the
// pod is admitted: what it gets is judged later.
func (h *Handler) early(ctx context.Context, pod *corev1.Pod, namespace string, domain *quota.Domain) *admission.Response {
	refusal, err := h.Early.Pod(ctx, pod, namespace, domain)
	if err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "A pod is admitted without an early look at its quotas")
	}
	if refusal == nil {
		return nil
	}
	denied := admission.Denied(refusal.Sentence)
	return &denied
}

// factsError is a failure to look at the pools, which is no fault of the pod.
type factsError struct{ err error }

func (e *factsError) Error() string {
	return "Sluice cannot read its pools and quotas at the moment, try again: " + e.err.Error()
}

func (e *factsError) Unwrap() error { return e.err }

// resolve decides with what the cache knows. Before a pod is refused because of a pool that the cache lacks, the API
// server is asked: a pool and its pods are often created together.
func (h *Handler) resolve(ctx context.Context, asks request.Asks, domain *quota.Domain, namespace string) (request.Resolution, error) {
	defaults := func(pool string) (memory, compute int64) {
		if domain == nil {
			return 0, 0
		}
		amounts := domain.Defaults(namespace, pool)
		return amounts[v1alpha1.QuotaMemory], amounts[v1alpha1.QuotaCompute]
	}
	pools, err := h.Facts.Pools(ctx)
	if err != nil {
		return request.Resolution{}, &factsError{err}
	}
	resolution, err := request.Resolve(request.WithDefaults(asks, pools, defaults), pools)
	var unknown *request.UnknownPoolError
	if !errors.As(err, &unknown) {
		return resolution, err
	}
	pools, err = h.Facts.Fresh(ctx)
	if err != nil {
		return request.Resolution{}, &factsError{err}
	}
	return request.Resolve(request.WithDefaults(asks, pools, defaults), pools)
}

// refused says no. Where the pools could not be read the answer is a server error, so that clients try again.
func refused(ctx context.Context, err error) *admission.Response {
	var facts *factsError
	answer := admission.Denied(err.Error())
	if errors.As(err, &facts) {
		logr.FromContextOrDiscard(ctx).Error(facts.err, "Refusing a pod because the pools cannot be read")
		answer = admission.Errored(http.StatusServiceUnavailable, err)
	}
	return &answer
}

// changed admits with what was changed since before. The difference is taken between two encodings by the same types, so
// fields of the pod that these types do not know are never touched.
func changed(before []byte, pod *corev1.Pod, warnings []string) admission.Response {
	after, err := json.Marshal(pod)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("encoding the changed pod: %w", err))
	}
	return admission.PatchResponseFromRaw(before, after).WithWarnings(warnings...)
}
