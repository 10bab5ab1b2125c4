// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/quota"
	"github.com/sluice-gpu/sluice/internal/request"
	"github.com/sluice-gpu/sluice/test/builders"
)

// counter counts refusals.
type counter int

func (c *counter) Count(*quota.Refusal) { *c++ }

// early looks at a cluster with the pools shared and paid, and what a test adds.
func early(t *testing.T, quotas []v1alpha1.GPUQuota, objects ...client.Object) (*Early, *counter) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	objects = append(objects, builders.MakePool("shared").Obj(), builders.MakePool("paid").RequireQuota().Obj())
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	counted := new(counter)
	return &Early{
		Cache: c, Live: c, Facts: &fakeFacts{cached: []request.Pool{shared("shared"), shared("paid")}}, Quotas: fakeQuotas(quotas),
		Counter: counted, Clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0)),
	}, counted
}

// asksFor is a claim of a share.
func asksFor(class, memory string) resourceapi.ResourceClaimSpec {
	return resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
		Name: "r", Exactly: &resourceapi.ExactDeviceRequest{
			DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
			Capacity: &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
				v1alpha1.CapacityMemory: resource.MustParse(memory),
			}},
		},
	}}}}
}

func claimNamed(name, class, memory string) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name}, Spec: asksFor(class, memory)}
}

// using is a pod with claims.
func using(claims ...corev1.PodResourceClaim) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod"}, Spec: corev1.PodSpec{ResourceClaims: claims}}
}

// limited is a pod whose limits were rewritten.
func limited(t *testing.T, pool string, memoryMi int64) *corev1.Pod {
	t.Helper()
	pod := using()
	err := request.Rewrite(pod, &request.Resolution{Canonical: request.Canonical{
		Version: 1, Pool: pool, Form: request.Shared, Requests: []request.Request{{Name: "a", Count: 1, MemoryMi: memoryMi}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// full is a ledger that holds all of 8Gi.
func full() *v1alpha1.GPULedger {
	l := quota.NewLedger(v1alpha1.LedgerNamespacePrefix + "team-a")
	l.Namespaces["team-a"] = quota.Entry{Version: "1", Counted: quota.Charges{"shared": {v1alpha1.QuotaMemory: 8 << 30}}}
	object := &v1alpha1.GPULedger{Spec: l.Spec()}
	object.Name = l.Name
	return object
}

const (
	tooMuch  = "memory: 9Gi asked, but GPUQuota team-a/q allows 8Gi in all: ask for less"
	noRoom   = "memory: 1Gi asked, 8Gi used, and GPUQuota team-a/q allows 8Gi: 0 left"
	tooSmall = "memory: 1Gi of one GPU asked, but GPUQuota team-a/q (perClaim) allows at least 2Gi of each GPU"
	noQuota  = "GPUPool paid gives nothing to a namespace without a GPUQuota that counts it, and team-a has none: " +
		"the platform team has to create one"
)

func TestEarlyAnswersOnPods(t *testing.T) {
	rejecting := builders.MakeQuota("team-a", "q").Hard(v1alpha1.QuotaMemory, "8Gi")
	queueing := *builders.MakeQuota("team-a", "q").Hard(v1alpha1.QuotaMemory, "8Gi").Queue().Obj()
	bounded := *builders.MakeQuota("team-a", "q").PerClaim(v1alpha1.QuotaMemory, "", "2Gi", "").Obj()
	elsewhere := *builders.MakeQuota("team-a", "q").Hard(v1alpha1.QuotaMemory, "8Gi").Pools("shared").Obj()
	byName := corev1.PodResourceClaim{Name: "c", ResourceClaimName: ptr.To("mine")}
	byTemplate := corev1.PodResourceClaim{Name: "c", ResourceClaimTemplateName: ptr.To("mine")}
	held := claimNamed("mine", "shared.sluice.dev", "9Gi")
	held.Status.Allocation = &resourceapi.AllocationResult{}
	for _, tc := range []struct {
		name    string
		quotas  []v1alpha1.GPUQuota
		objects []client.Object
		pod     *corev1.Pod
		want    string
	}{
		{name: "what fits is admitted", quotas: []v1alpha1.GPUQuota{*rejecting.Obj()}, pod: limited(t, "shared", 1<<10)},
		{name: "what could never fit is refused", quotas: []v1alpha1.GPUQuota{*rejecting.Obj()}, pod: limited(t, "shared", 9<<10), want: tooMuch},
		{
			name: "what does not fit now is refused", quotas: []v1alpha1.GPUQuota{*rejecting.Obj()}, objects: []client.Object{full()},
			pod: limited(t, "shared", 1<<10), want: noRoom,
		},
		{
			name: "where pods queue it waits instead", quotas: []v1alpha1.GPUQuota{queueing}, objects: []client.Object{full()},
			pod: limited(t, "shared", 1<<10),
		},
		{name: "but not for ever", quotas: []v1alpha1.GPUQuota{queueing}, pod: limited(t, "shared", 9<<10), want: tooMuch},
		{name: "what is out of bounds is refused", quotas: []v1alpha1.GPUQuota{bounded}, pod: limited(t, "shared", 1<<10), want: tooSmall},
		{name: "a pool that requires a quota is closed without one", pod: limited(t, "paid", 1<<10), want: noQuota},
		{name: "also where the quota counts another", quotas: []v1alpha1.GPUQuota{elsewhere}, pod: limited(t, "paid", 1<<10), want: noQuota},
		{name: "a pool that does not is open", pod: limited(t, "shared", 1<<10)},
		{
			name: "a template by hand counts", quotas: []v1alpha1.GPUQuota{*rejecting.Obj()}, pod: using(byTemplate), want: tooMuch,
			objects: []client.Object{&resourceapi.ResourceClaimTemplate{
				ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "mine"},
				Spec:       resourceapi.ResourceClaimTemplateSpec{Spec: asksFor("shared.sluice.dev", "9Gi")},
			}},
		},
		{name: "one that is not there yet is judged later", quotas: []v1alpha1.GPUQuota{*rejecting.Obj()}, pod: using(byTemplate)},
		{
			name: "a claim by hand counts", quotas: []v1alpha1.GPUQuota{*rejecting.Obj()}, pod: using(byName), want: tooMuch,
			objects: []client.Object{claimNamed("mine", "shared.sluice.dev", "9Gi")},
		},
		{
			name: "what is allocated already does not", quotas: []v1alpha1.GPUQuota{*rejecting.Obj()}, pod: using(byName),
			objects: []client.Object{held},
		},
		{
			name: "another driver's class is no concern", quotas: []v1alpha1.GPUQuota{*rejecting.Obj()}, pod: using(byName),
			objects: []client.Object{claimNamed("mine", "nic.example.com", "9Gi")},
		},
		{
			name: "a class that somebody else made under a pool's name may mean anything", quotas: []v1alpha1.GPUQuota{*rejecting.Obj()},
			pod: using(byName), objects: []client.Object{
				claimNamed("mine", "shared.sluice.dev", "9Gi"), &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "shared.sluice.dev"}},
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e, counted := early(t, tc.quotas, tc.objects...)
			domain, err := e.Quotas.DomainOf(t.Context(), "team-a")
			if err != nil {
				t.Fatal(err)
			}
			refusal, err := e.Pod(t.Context(), tc.pod, "team-a", domain)
			if err != nil {
				t.Fatal(err)
			}
			wantRefusal(t, refusal, tc.want)
			if (*counted > 0) != (tc.want != "") {
				t.Errorf("counted %d refusals", *counted)
			}
		})
	}
}

func wantRefusal(t *testing.T, refusal *quota.Refusal, want string) {
	t.Helper()
	var got string
	if refusal != nil {
		got = refusal.Sentence
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("refusal (-want +got):\n%s", diff)
	}
}

func TestEarlyAnswersOnClaims(t *testing.T) {
	bounded := *builders.MakeQuota("team-a", "q").Hard(v1alpha1.QuotaMemory, "8Gi").Obj()
	for _, tc := range []struct {
		name      string
		quotas    []v1alpha1.GPUQuota
		claim     *resourceapi.ResourceClaim
		operation admissionv1.Operation
		want      string
	}{
		{name: "what fits is admitted", quotas: []v1alpha1.GPUQuota{bounded}, claim: claimNamed("c", "shared.sluice.dev", "1Gi")},
		{name: "what could never fit is refused", quotas: []v1alpha1.GPUQuota{bounded}, claim: claimNamed("c", "shared.sluice.dev", "9Gi"), want: tooMuch},
		{name: "what no pool gives is refused", claim: claimNamed("c", "paid.sluice.dev", "1Gi"), want: noQuota},
		{name: "an update is no concern", claim: claimNamed("c", "paid.sluice.dev", "1Gi"), operation: admissionv1.Update},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e, _ := early(t, tc.quotas)
			tc.claim.TypeMeta = metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim"}
			encoded, err := json.Marshal(tc.claim)
			if err != nil {
				t.Fatal(err)
			}
			if tc.operation == "" {
				tc.operation = admissionv1.Create
			}
			handler := &Claims{Early: e, Decoder: admission.NewDecoder(clientgoscheme.Scheme)}
			answer := handler.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: tc.operation, Namespace: "team-a", Object: runtime.RawExtension{Raw: encoded},
			}})
			if answer.Allowed != (tc.want == "") || !answer.Allowed && answer.Result.Message != tc.want {
				t.Errorf("answered %v %+v, want %q", answer.Allowed, answer.Result, tc.want)
			}
		})
	}
}

func TestTheHandlerAsksEarly(t *testing.T) {
	for _, tc := range []struct {
		name    string
		check   fakeCheck
		allowed bool
	}{
		{name: "a refusal refuses the pod", check: fakeCheck{refusal: &quota.Refusal{Sentence: "full"}}},
		{name: "an error admits it: what it gets is judged later", check: fakeCheck{err: errors.New("no connection")}, allowed: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := corev1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			handler := &Handler{
				Facts: &fakeFacts{cached: []request.Pool{shared("shared")}}, Quotas: fakeQuotas(nil), Early: &tc.check,
				Decoder: admission.NewDecoder(scheme),
			}
			answer := handler.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: admissionv1.Create, Namespace: "team-a", Object: runtime.RawExtension{Raw: podJSON(t, asking)},
			}})
			if answer.Allowed != tc.allowed || !tc.allowed && (answer.Result.Code != http.StatusForbidden || answer.Result.Message != "full") {
				t.Errorf("answered %v %+v", answer.Allowed, answer.Result)
			}
			if tc.check.asked == nil || tc.check.asked.Annotations[v1alpha1.RequestAnnotation] == "" {
				t.Error("it was not asked about the pod as it will be stored")
			}
		})
	}
}

func TestDefaultsOfTheQuotaAreWritten(t *testing.T) {
	withDefaults := builders.MakeQuota("team-a", "q").PerClaim(v1alpha1.QuotaMemory, "3Gi", "", "").PerClaim(v1alpha1.QuotaCompute, "10", "", "").Obj()
	for _, tc := range []struct {
		name   string
		limits string
		want   request.Request
	}{
		{name: "amounts that are left out", limits: `{sluice.dev/gpu: "1"}`, want: request.Request{Name: "a", Count: 1, MemoryMi: 3 << 10, Compute: 10}},
		{name: "what the tenant writes stays", limits: `{sluice.dev/gpu-memory: 1Gi}`, want: request.Request{Name: "a", Count: 1, MemoryMi: 1 << 10, Compute: 10}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := podJSON(t, `{metadata: {name: p}, spec: {containers: [{name: a, resources: {limits: `+tc.limits+`}}]}}`)
			answer := review(t, &fakeFacts{cached: []request.Pool{shared("shared")}}, pod, admissionv1.Create, *withDefaults)
			if !answer.Allowed {
				t.Fatalf("refused: %s", answer.Result.Message)
			}
			var got corev1.Pod
			if err := json.Unmarshal(patched(t, pod, answer), &got); err != nil {
				t.Fatal(err)
			}
			canonical, err := request.Decode(got.Annotations[v1alpha1.RequestAnnotation])
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]request.Request{tc.want}, canonical.Requests); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}
