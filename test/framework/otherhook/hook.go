// SPDX-License-Identifier: Apache-2.0

// Package otherhook is somebody else's admission webhook: slow, or in the habit of refusing what others have allowed.
package otherhook

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"

	admissionv1 "k8s.io/api/admission/v1"
	registration "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Hook is a webhook that is asked about claims and pods.
type Hook struct {
	server *httptest.Server
	client client.Client
	object client.Object
}

// Answer decides; it may take its time. An error refuses.
type Answer func(ctx context.Context, request *admissionv1.AdmissionRequest) error

// Status asks about every write of a claim's status.
func Status(ctx context.Context, c client.Client, name string, answer Answer) (*Hook, error) {
	return start(ctx, c, name, answer, func(config registration.WebhookClientConfig) client.Object {
		return &registration.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Webhooks: []registration.ValidatingWebhook{{
				Name: name + ".example.com", ClientConfig: config, AdmissionReviewVersions: []string{"v1"},
				SideEffects: ptr.To(registration.SideEffectClassNone), TimeoutSeconds: ptr.To[int32](30),
				FailurePolicy: ptr.To(registration.Ignore),
				Rules: []registration.RuleWithOperations{{
					Operations: []registration.OperationType{registration.Update},
					Rule:       registration.Rule{APIGroups: []string{"resource.k8s.io"}, APIVersions: []string{"v1"}, Resources: []string{"resourceclaims/status"}},
				}},
			}},
		}
	})
}

// Creation is asked about every new pod and claim, and changes nothing: what any webhook costs.
func Creation(ctx context.Context, c client.Client, name string, answer Answer) (*Hook, error) {
	return start(ctx, c, name, answer, func(config registration.WebhookClientConfig) client.Object {
		return &registration.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Webhooks: []registration.MutatingWebhook{{
				Name: name + ".example.com", ClientConfig: config, AdmissionReviewVersions: []string{"v1"},
				SideEffects: ptr.To(registration.SideEffectClassNone), FailurePolicy: ptr.To(registration.Fail),
				Rules: []registration.RuleWithOperations{{
					Operations: []registration.OperationType{registration.Create},
					Rule:       registration.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				}, {
					Operations: []registration.OperationType{registration.Create},
					Rule:       registration.Rule{APIGroups: []string{"resource.k8s.io"}, APIVersions: []string{"v1"}, Resources: []string{"resourceclaims"}},
				}},
			}},
		}
	})
}

func start(ctx context.Context, c client.Client, name string, answer Answer,
	object func(registration.WebhookClientConfig) client.Object,
) (*Hook, error) {
	server := httptest.NewTLSServer(handler(answer))
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	h := &Hook{server: server, client: c, object: object(registration.WebhookClientConfig{URL: ptr.To(server.URL + "/"), CABundle: ca})}
	if err := c.Create(ctx, h.object); err != nil {
		server.Close()
		return nil, fmt.Errorf("registering webhook %s: %w", name, err)
	}
	return h, nil
}

// Stop takes the webhook away.
func (h *Hook) Stop(ctx context.Context) error {
	err := h.client.Delete(ctx, h.object)
	h.server.CloseClientConnections()
	h.server.Close()
	if err != nil {
		return fmt.Errorf("removing a webhook: %w", err)
	}
	return nil
}

func handler(answer Answer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(w, "no admission review", http.StatusBadRequest)
			return
		}
		response := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		if err := answer(r.Context(), review.Request); err != nil {
			response.Allowed, response.Result = false, &metav1.Status{Message: err.Error(), Code: http.StatusForbidden}
		}
		review.Request, review.Response = nil, response
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review) // a client that has gone does not matter
	})
}
