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

	"github.com/sluice-gpu/sluice/internal/quota"
	"github.com/sluice-gpu/sluice/internal/request"
)

// Handler answers admission reviews of pods.
type Handler struct {
	// Facts tells what is known of the pools.
	Facts Facts
	// Quotas tells what holds for a namespace.
	Quotas Quotas
	// Decoder reads the reviewed pod.
	Decoder admission.Decoder
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
	asks, err := request.Parse(pod)
	if err != nil {
		return refused(ctx, err)
	}
	if len(asks.Containers) == 0 {
		request.Tidy(pod, &asks)
		return h.queued(ctx, before, pod, review.Namespace, asks.Warnings)
	}
	resolution, err := h.resolve(ctx, asks)
	if err != nil {
		return refused(ctx, err)
	}
	if err := request.Rewrite(pod, &resolution); err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return h.queued(ctx, before, pod, review.Namespace, resolution.Warnings)
}

// queued admits a pod behind a gate, where pods of its namespace wait for room.
func (h *Handler) queued(ctx context.Context, before []byte, pod *corev1.Pod, namespace string, warnings []string) admission.Response {
	if quota.MayAsk(pod) {
		domain, err := h.Quotas.DomainOf(ctx, namespace)
		if err != nil {
			return refused(ctx, &factsError{err})
		}
		domain.Gate(pod, namespace)
	}
	return changed(before, pod, warnings)
}

// factsError is a failure to look at the pools, which is no fault of the pod.
type factsError struct{ err error }

func (e *factsError) Error() string {
	return "Sluice cannot read its pools and quotas at the moment, try again: " + e.err.Error()
}

func (e *factsError) Unwrap() error { return e.err }

// resolve decides with what the cache knows. Before a pod is refused because of a pool that the cache lacks, the API
// server is asked: a pool and its pods are often created together.
func (h *Handler) resolve(ctx context.Context, asks request.Asks) (request.Resolution, error) {
	pools, err := h.Facts.Pools(ctx)
	if err != nil {
		return request.Resolution{}, &factsError{err}
	}
	resolution, err := request.Resolve(asks, pools)
	var unknown *request.UnknownPoolError
	if !errors.As(err, &unknown) {
		return resolution, err
	}
	pools, err = h.Facts.Fresh(ctx)
	if err != nil {
		return request.Resolution{}, &factsError{err}
	}
	return request.Resolve(asks, pools)
}

// refused says no. Where the pools could not be read the answer is a server error, so that clients try again.
func refused(ctx context.Context, err error) admission.Response {
	var facts *factsError
	if errors.As(err, &facts) {
		logr.FromContextOrDiscard(ctx).Error(facts.err, "Refusing a pod because the pools cannot be read")
		return admission.Errored(http.StatusServiceUnavailable, err)
	}
	return admission.Denied(err.Error())
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
