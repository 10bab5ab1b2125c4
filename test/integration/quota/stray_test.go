// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	registration "k8s.io/api/admissionregistration/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/quota"
	"github.com/sluice-gpu/sluice/test/builders"
)

// TestAStrayCaller reaches the judge's address, as anything in a cluster may. It must not fill a ledger with inventions.
func TestAStrayCaller(t *testing.T) {
	s := newScene(t)
	q := builders.MakeQuota(s.namespace, "tenant").Hard(v1alpha1.QuotaGPUs, "4").Obj()
	s.quota(q)
	held := share("held", "1Gi")
	pod := uses("pod", "held")
	s.create(held, pod)
	s.scheduled(pod)
	s.used(q, quota.Amounts{"gpus": 1})
	stray := s.strayCaller()
	invented := share("invented", "1Gi")
	invented.Namespace, invented.UID, invented.ResourceVersion = s.namespace, uuid.NewUUID(), "1"
	another := held.DeepCopy()
	another.UID = uuid.NewUUID()
	for _, tc := range []struct {
		name  string
		claim *resourceapi.ResourceClaim
	}{
		{name: "a claim that there is not", claim: invented},
		{name: "a claim of a name that there is, with another UID", claim: another},
		{name: "a claim that is allocated already", claim: held},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if stray.judge(t, tc.claim) {
				t.Error("it was allowed")
			}
		})
	}
	if status, body := stray.post(t, "/charge", []byte(`{"ledger":"namespace-`+s.namespace+`"}`)); status != http.StatusForbidden {
		t.Errorf("charging without a certificate: got %d %s, want %d", status, body, http.StatusForbidden)
	}
	s.used(q, quota.Amounts{"gpus": 1})
	ledger := &v1alpha1.GPULedger{}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: v1alpha1.LedgerNamespacePrefix + s.namespace}, ledger); err != nil {
		t.Fatal(err)
	}
	for _, r := range ledger.Spec.Reservations {
		if r.UID != string(held.UID) {
			t.Errorf("claim %s with UID %s has a reservation", r.Name, r.UID)
		}
	}
}

// strayCaller speaks to the managers' webhook server without being the API server.
type strayCaller struct {
	http    *http.Client
	address string
}

func (s scene) strayCaller() strayCaller {
	s.Helper()
	config := &registration.ValidatingWebhookConfiguration{}
	if err := admin.Get(s.Context(), client.ObjectKey{Name: "sluice-quota"}, config); err != nil {
		s.Fatal(err)
	}
	to := config.Webhooks[0].ClientConfig
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(to.CABundle)
	address, _, _ := strings.Cut(strings.TrimPrefix(*to.URL, "https://"), "/")
	return strayCaller{address: "https://" + address, http: &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool},
	}}}
}

// judge asks for a verdict on an allocation of a claim.
func (c strayCaller) judge(t *testing.T, claim *resourceapi.ResourceClaim) bool {
	t.Helper()
	before, after := claim.DeepCopy(), claim.DeepCopy()
	before.Status = resourceapi.ResourceClaimStatus{}
	after.Status.Allocation = allocationOf("2Gi")
	review := admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: types.UID("1"), Operation: admissionv1.Update, SubResource: "status", Namespace: claim.Namespace, Name: claim.Name,
			Resource: metav1.GroupVersionResource{Group: "resource.k8s.io", Version: "v1", Resource: "resourceclaims"},
			Object:   raw(t, after), OldObject: raw(t, before),
		},
	}
	body, err := json.Marshal(review)
	if err != nil {
		t.Fatal(err)
	}
	status, answer := c.post(t, "/judge-claims", body)
	var answered admissionv1.AdmissionReview
	if err := json.Unmarshal(answer, &answered); err != nil || answered.Response == nil {
		t.Fatalf("got %d %s (%v)", status, answer, err)
	}
	return answered.Response.Allowed
}

func raw(t *testing.T, claim *resourceapi.ResourceClaim) runtime.RawExtension {
	t.Helper()
	claim.TypeMeta = metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim"}
	data, err := json.Marshal(claim)
	if err != nil {
		t.Fatal(err)
	}
	return runtime.RawExtension{Raw: data}
}

func (c strayCaller) post(t *testing.T, path string, body []byte) (int, []byte) {
	t.Helper()
	request, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodPost, c.address+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, answer
}
