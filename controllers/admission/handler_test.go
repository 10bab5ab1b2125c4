// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/quota"
	"github.com/sluice-gpu/sluice/internal/request"
)

// fakeFacts answers with what it is given, and remembers what was asked.
type fakeFacts struct {
	cached, fresh []request.Pool
	err           error
	askedFresh    bool
}

var _ Facts = &fakeFacts{}

func (f *fakeFacts) Pools(context.Context) ([]request.Pool, error) { return f.cached, f.err }

func (f *fakeFacts) Fresh(context.Context) ([]request.Pool, error) {
	f.askedFresh = true
	return f.fresh, f.err
}

// fakeQuotas are the quotas of every namespace.
type fakeQuotas []v1alpha1.GPUQuota

var _ Quotas = fakeQuotas{}

func (f fakeQuotas) DomainOf(_ context.Context, namespace string) (*quota.Domain, error) {
	return quota.Domains(f, nil, nil)[v1alpha1.LedgerNamespacePrefix+namespace], nil
}

func (f fakeQuotas) LabelsOf(context.Context, string) (map[string]string, error) { return nil, nil }

// fakeCheck refuses with what it is given, and remembers the pod.
type fakeCheck struct {
	refusal *quota.Refusal
	err     error
	asked   *corev1.Pod
}

var _ PodCheck = &fakeCheck{}

func (f *fakeCheck) MayReach(context.Context, *corev1.Pod, string) bool { return true }

func (f *fakeCheck) Pod(_ context.Context, pod *corev1.Pod, _ string, _ *quota.Domain) (*quota.Refusal, error) {
	f.asked = pod
	return f.refusal, f.err
}

func shared(name string) request.Pool {
	return request.Pool{Name: name, Form: request.Shared, GPUs: []request.GPU{{Node: "n", Product: "P", Memory: 80 << 30}}}
}

// review sends a pod, as an API server does, and returns the answer.
func review(t *testing.T, facts Facts, pod []byte, operation admissionv1.Operation, quotas ...v1alpha1.GPUQuota) *admissionv1.AdmissionResponse {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	server := &webhook.Admission{Handler: &Handler{Facts: facts, Quotas: fakeQuotas(quotas), Early: &fakeCheck{}, Decoder: admission.NewDecoder(scheme)}}
	dry := true
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "r1", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
			Namespace: "team-a", Operation: operation, Object: runtime.RawExtension{Raw: pod}, DryRun: &dry,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	httpRequest := httptest.NewRequestWithContext(t.Context(), http.MethodPost, Path, bytes.NewReader(body))
	httpRequest.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	server.ServeHTTP(recorder, httpRequest)
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil {
		t.Fatalf("reading the answer %q: %v", recorder.Body, err)
	}
	if answer.Response.UID != "r1" {
		t.Errorf("the answer is for %q", answer.Response.UID)
	}
	return answer.Response
}

// podJSON is a pod as the API server sends it.
func podJSON(t *testing.T, text string) []byte {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func patched(t *testing.T, pod []byte, answer *admissionv1.AdmissionResponse) []byte {
	t.Helper()
	if len(answer.Patch) == 0 {
		return pod
	}
	patch, err := jsonpatch.DecodePatch(answer.Patch)
	if err != nil {
		t.Fatal(err)
	}
	result, err := patch.Apply(pod)
	if err != nil {
		t.Fatalf("the patch %s cannot be applied: %v", answer.Patch, err)
	}
	return result
}

const asking = `
metadata: {generateName: job-, labels: {app: train}}
spec:
  unknownToUs: {kept: true}
  containers:
  - name: web
    image: web
    resources: {}
  - name: a
    image: a
    unknownToUs: 12345678901234567
    resources:
      limits: {cpu: "2", sluice.dev/gpu-memory: 10Gi, sluice.dev/gpu-compute: "30"}
      requests: {cpu: "2", sluice.dev/gpu-memory: 10Gi, sluice.dev/gpu-compute: "30"}
`

const rewritten = `
metadata:
  generateName: job-
  labels: {app: train, sluice.dev/request-hash: d38e86bcc4279e21d70e}
  annotations:
    sluice.dev/request: '{"version":1,"pool":"shared","form":"Shared","requests":[{"name":"a","count":1,"memoryMi":10240,"compute":30}]}'
spec:
  unknownToUs: {kept: true}
  resourceClaims: [{name: sluice, resourceClaimTemplateName: sluice-d38e86bcc4279e21d70e}]
  containers:
  - name: web
    image: web
    resources: {}
  - name: a
    image: a
    unknownToUs: 12345678901234567
    resources:
      limits: {cpu: "2"}
      requests: {cpu: "2"}
      claims: [{name: sluice, request: a}]
`

func TestPodThatAsks(t *testing.T) {
	facts := &fakeFacts{cached: []request.Pool{shared("shared")}}
	pod := podJSON(t, asking)
	answer := review(t, facts, pod, admissionv1.Create)
	if !answer.Allowed {
		t.Fatalf("refused: %s", answer.Result.Message)
	}
	got := patched(t, pod, answer)
	compareJSON(t, podJSON(t, rewritten), got)

	again := review(t, facts, got, admissionv1.Create)
	if !again.Allowed || len(again.Patch) > 0 {
		t.Errorf("a second pass was answered with %v and patch %s", again.Allowed, again.Patch)
	}
	if facts.askedFresh {
		t.Error("the API server was asked although the cache had the pool")
	}
}

func compareJSON(t *testing.T, want, got []byte) {
	t.Helper()
	var wantTree, gotTree any
	if err := json.Unmarshal(want, &wantTree); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(got, &gotTree); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantTree, gotTree); diff != "" {
		t.Errorf("pod (-want +got):\n%s", diff)
	}
}

func TestAnswers(t *testing.T) {
	const inNew = `
metadata: {name: p, labels: {sluice.dev/pool: new}}
spec: {containers: [{name: a, resources: {limits: {sluice.dev/gpu-memory: 1Gi}}}]}
`
	for _, tc := range []struct {
		name      string
		facts     *fakeFacts
		pod       string
		operation admissionv1.Operation
		allowed   bool
		patch     bool
		message   string
		code      int32
		warnings  []string
		fresh     bool
	}{
		{
			name: "a pod that asks for nothing is admitted as it is", facts: &fakeFacts{},
			pod: `{metadata: {name: p}, spec: {containers: [{name: a}]}}`, allowed: true,
		},
		{
			name: "an annotation without a claim is removed", facts: &fakeFacts{},
			pod:     `{metadata: {name: p, annotations: {sluice.dev/request: x}}, spec: {containers: [{name: a}]}}`,
			allowed: true, patch: true,
		},
		{
			name: "the mirror of a static pod is left as it is", facts: &fakeFacts{}, allowed: true,
			pod: `{metadata: {name: p, annotations: {kubernetes.io/config.mirror: x}},
				spec: {containers: [{name: a, resources: {limits: {sluice.dev/gpu-memory: 1Gi}}}]}}`,
		},
		{
			name: "an update is none of its business", facts: &fakeFacts{}, operation: admissionv1.Update, pod: asking, allowed: true,
		},
		{
			name: "a pool that the cache lacks is looked up before the pod is refused", fresh: true, allowed: true, patch: true,
			facts: &fakeFacts{cached: []request.Pool{shared("old")}, fresh: []request.Pool{shared("old"), shared("new")}}, pod: inNew,
		},
		{
			name: "a pool that does not exist is named in the refusal", fresh: true,
			facts: &fakeFacts{cached: []request.Pool{shared("old")}, fresh: []request.Pool{shared("old")}}, pod: inNew,
			message: `pool "new" does not exist: write one of these in the label sluice.dev/pool: old`, code: http.StatusForbidden,
		},
		{
			name: "what cannot be parsed is refused without a look at the pools", facts: &fakeFacts{err: errors.New("unused")},
			pod:     `{metadata: {name: p}, spec: {containers: [{name: a, resources: {limits: {sluice.dev/gpu: "0"}}}]}}`,
			message: `container "a": sluice.dev/gpu: 0 is refused: write a whole number of GPUs from 1 to 16, such as 1`,
			code:    http.StatusForbidden,
		},
		{
			name: "pools that cannot be read are a server error", facts: &fakeFacts{err: errors.New("no connection")}, pod: asking,
			message: "Sluice cannot read its pools and quotas at the moment, try again: no connection", code: http.StatusServiceUnavailable,
		},
		{
			name: "what the tenant should hear is a warning", facts: &fakeFacts{cached: []request.Pool{{Name: "empty", Form: request.Shared}}},
			pod:     `{metadata: {name: p}, spec: {containers: [{name: a, resources: {limits: {sluice.dev/gpu-memory: 1Gi}}}]}}`,
			allowed: true, patch: true, warnings: []string{`container "a": pool empty has no GPU yet: the pod waits until it has`},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			operation := tc.operation
			if operation == "" {
				operation = admissionv1.Create
			}
			got := review(t, tc.facts, podJSON(t, tc.pod), operation)
			if got.Allowed != tc.allowed || (len(got.Patch) > 0) != tc.patch {
				t.Errorf("allowed %v with patch %s; want allowed %v, a patch %v", got.Allowed, got.Patch, tc.allowed, tc.patch)
			}
			if !tc.allowed {
				if diff := cmp.Diff(tc.message, got.Result.Message); diff != "" {
					t.Errorf("message (-want +got):\n%s", diff)
				}
				if got.Result.Code != tc.code {
					t.Errorf("code: got %d, want %d", got.Result.Code, tc.code)
				}
			}
			if diff := cmp.Diff(tc.warnings, got.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if tc.facts.askedFresh != tc.fresh {
				t.Errorf("asked the API server: got %v, want %v", tc.facts.askedFresh, tc.fresh)
			}
		})
	}
}

func TestGate(t *testing.T) {
	queueing := v1alpha1.GPUQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "q"}, Spec: v1alpha1.GPUQuotaSpec{Enforcement: v1alpha1.EnforcementQueue},
	}
	rejecting := queueing
	rejecting.Spec.Enforcement = v1alpha1.EnforcementReject
	elsewhere := queueing
	elsewhere.Namespace = "team-b"
	const claims = `{metadata: {name: p}, spec: {containers: [{name: a}], resourceClaims: [{name: c, resourceClaimName: c}]}}`
	for _, tc := range []struct {
		name  string
		quota v1alpha1.GPUQuota
		pod   string
		want  bool
	}{
		{name: "a share waits for its turn", quota: queueing, pod: asking, want: true},
		{name: "a claim written by hand does", quota: queueing, pod: claims, want: true},
		{
			name: "an extended resource of Sluice's classes does", quota: queueing, want: true,
			pod: `{metadata: {name: p}, spec: {containers: [{name: a, resources: {limits: {nvidia.com/gpu: "1"}}}]}}`,
		},
		{
			name: "so does one of an init container, by the class's own name", quota: queueing, want: true,
			pod: `{metadata: {name: p}, spec: {containers: [{name: a}],
				initContainers: [{name: i, resources: {limits: {deviceclass.resource.kubernetes.io/gpu.sluice.dev: "1"}}}]}}`,
		},
		{
			name: "a pod that asks for no GPU does not", quota: queueing,
			pod: `{metadata: {name: p}, spec: {containers: [{name: a, resources: {limits: {cpu: "1", nvidia.com/nic: "1"}}}]}}`,
		},
		{
			name: "a pod that names its node passes no scheduler", quota: queueing,
			pod: `{metadata: {name: p}, spec: {nodeName: node-1, containers: [{name: a}], resourceClaims: [{name: c, resourceClaimName: c}]}}`,
		},
		{name: "where what does not fit is refused nobody waits", quota: rejecting, pod: claims},
		{name: "another namespace's queue is no concern", quota: elsewhere, pod: claims},
	} {
		t.Run(tc.name, func(t *testing.T) {
			facts := &fakeFacts{cached: []request.Pool{shared("shared")}}
			pod := podJSON(t, tc.pod)
			answer := review(t, facts, pod, admissionv1.Create, tc.quota)
			if !answer.Allowed {
				t.Fatalf("refused: %s", answer.Result.Message)
			}
			var got corev1.Pod
			if err := json.Unmarshal(patched(t, pod, answer), &got); err != nil {
				t.Fatal(err)
			}
			if quota.Gated(&got) != tc.want {
				t.Errorf("gates %v, want the quota's: %v", got.Spec.SchedulingGates, tc.want)
			}
			again := review(t, facts, patched(t, pod, answer), admissionv1.Create, tc.quota)
			if !again.Allowed || len(again.Patch) > 0 {
				t.Errorf("a second pass was answered with %v and patch %s", again.Allowed, again.Patch)
			}
		})
	}
}
