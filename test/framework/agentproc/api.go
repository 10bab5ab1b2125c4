// SPDX-License-Identifier: Apache-2.0

package agentproc

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// api is an API server that knows claims and is otherwise away.
type api struct {
	tb     testing.TB
	server *httptest.Server

	mu     sync.Mutex
	claims map[string]*resourceapi.ResourceClaim
}

const claimsPath = "/apis/resource.k8s.io/v1/namespaces/"

func newAPI(tb testing.TB) *api {
	tb.Helper()
	a := &api{tb: tb, claims: map[string]*resourceapi.ResourceClaim{}}
	a.server = httptest.NewServer(a)
	tb.Cleanup(a.server.Close)
	return a
}

// ServeHTTP answers a GET of a claim.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	rest, ours := strings.CutPrefix(r.URL.Path, claimsPath)
	if !ours || r.Method != http.MethodGet {
		a.status(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
		return
	}
	namespace, name, _ := strings.Cut(rest, "/resourceclaims/")
	a.mu.Lock()
	claim := a.claims[namespace+"/"+name]
	a.mu.Unlock()
	if claim == nil {
		a.status(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	a.answer(w, claim)
}

func (a *api) answer(w http.ResponseWriter, object any) {
	data, err := json.Marshal(object)
	if err != nil {
		a.tb.Errorf("encoding an answer: %v", err)
	}
	// A client that has gone does not matter.
	_, _ = w.Write(data)
}

func (a *api) status(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.WriteHeader(code)
	a.answer(w, metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason,
	})
}

func (a *api) put(claim *resourceapi.ResourceClaim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	claim.TypeMeta = metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim"}
	a.claims[claim.Namespace+"/"+claim.Name] = claim
}

func (a *api) remove(claim *resourceapi.ResourceClaim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.claims, claim.Namespace+"/"+claim.Name)
}
