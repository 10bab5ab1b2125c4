// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/quota"
	"github.com/sluice-gpu/sluice/test/builders"
)

const gibi = 1 << 30

// fakeSight shows what a test gives it.
type fakeSight struct {
	quotas []v1alpha1.GPUQuota
	pools  map[string]*v1alpha1.GPUPool
	ledger *quota.Ledger
	err    error
}

var _ Sight = &fakeSight{}

func (f *fakeSight) Grants(_ context.Context, claim *resourceapi.ResourceClaim) ([]quota.Grant, error) {
	facts := quota.Facts{quota.DeviceID{Pool: "n", Device: "gpu-0"}: {Pool: "p", Shared: true, Memory: 80 * gibi, Compute: 100}}
	if f.err != nil {
		return nil, f.err
	}
	return quota.Grants(claim, facts)
}

func (f *fakeSight) DomainOf(_ context.Context, namespace string) (*quota.Domain, error) {
	return quota.Domains(f.quotas, nil, nil)[v1alpha1.LedgerNamespacePrefix+namespace], nil
}

func (f *fakeSight) Pool(_ context.Context, name string) (*v1alpha1.GPUPool, error) {
	return f.pools[name], nil
}

func (f *fakeSight) LabelsOf(context.Context, string) (map[string]string, error) {
	return map[string]string{"tier": "silver"}, nil
}

func (f *fakeSight) Ledger(_ context.Context, name string) (*quota.Ledger, error) {
	if f.ledger == nil {
		return quota.NewLedger(name), nil
	}
	return f.ledger, nil
}

type fakeCharger struct {
	answer error
	asked  []quota.Ask
	ledger string
}

func (f *fakeCharger) Charge(_ context.Context, ledger string, ask quota.Ask) error {
	f.ledger, f.asked = ledger, append(f.asked, ask)
	return f.answer
}

// recorder keeps events as "kind/name reason".
type recorder struct{ events []string }

func (r *recorder) Eventf(regarding, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	reference, ok := regarding.(*corev1.ObjectReference)
	if !ok {
		reference = &corev1.ObjectReference{Kind: "unknown"}
	}
	r.events = append(r.events, reference.Kind+"/"+reference.Name+" "+reason)
}

func testScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// claimOf is a claim of team-a that waits.
func claimOf() *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "c", UID: "uid-c", ResourceVersion: "41"},
	}
}

// versioned is the same claim in a version that somebody made up.
func versioned(version string) *resourceapi.ResourceClaim {
	claim := claimOf()
	claim.ResourceVersion = version
	return claim
}

func result(driver string, admin bool) resourceapi.DeviceRequestAllocationResult {
	r := resourceapi.DeviceRequestAllocationResult{
		Request: "r", Driver: driver, Pool: "n", Device: "gpu-0",
		ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{
			v1alpha1.CapacityMemory: resource.MustParse("10Gi"), v1alpha1.CapacityCompute: resource.MustParse("20"),
		},
	}
	if admin {
		r.AdminAccess = ptr.To(true)
	}
	return r
}

func allocated(results ...resourceapi.DeviceRequestAllocationResult) *resourceapi.ResourceClaim {
	claim := claimOf()
	claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: results}}
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "pod", UID: "uid-pod"}}
	return claim
}

func raw(t *testing.T, object any) runtime.RawExtension {
	t.Helper()
	encoded, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return runtime.RawExtension{Raw: encoded}
}

func TestAllocations(t *testing.T) {
	bounded := *builders.MakeQuota("team-a", "q").Hard(v1alpha1.QuotaMemory, "40Gi").Obj()
	small := *builders.MakeQuota("team-a", "q").Hard(v1alpha1.QuotaMemory, "40Gi").PerClaim(v1alpha1.QuotaMemory, "", "", "8Gi").Obj()
	full := &quota.Refusal{Reason: quota.RefusedHard, Namespace: "team-a", Quota: "q", Resource: "memory", Sentence: "full"}
	charged := []quota.Ask{{UID: "uid-c", Namespace: "team-a", Name: "c", Version: "41", Charges: quota.Charges{
		"p": {v1alpha1.QuotaGPUs: 1, v1alpha1.QuotaMemory: 10 * gibi, v1alpha1.QuotaCompute: 20},
	}}}
	ours := allocated(result(v1alpha1.DriverName, false))
	for _, tc := range []struct {
		name       string
		quotas     []v1alpha1.GPUQuota
		pool       *v1alpha1.GPUPool
		claim, old *resourceapi.ResourceClaim
		stored     *resourceapi.ResourceClaim
		missing    bool // there is no such claim
		ending     bool // the namespace is being deleted
		dryRun     bool
		answer     error
		sightErr   error
		code       int32 // 0: allowed
		message    string
		charged    []quota.Ask
		events     []string
	}{
		{name: "an allocation that fits is charged", quotas: []v1alpha1.GPUQuota{bounded}, claim: ours, charged: charged},
		{
			name: "one that does not is refused, and its pod told", quotas: []v1alpha1.GPUQuota{bounded}, claim: ours, answer: full,
			code: http.StatusForbidden, message: "full", charged: charged, events: []string{"Pod/pod RefusedByQuota"},
		},
		{
			name: "what cannot be decided is tried again", quotas: []v1alpha1.GPUQuota{bounded}, claim: ours, answer: errors.New("busy"),
			code: http.StatusServiceUnavailable, message: "this allocation is tried again: busy", charged: charged,
		},
		{
			name: "a device that nothing describes is never free", quotas: []v1alpha1.GPUQuota{bounded}, claim: ours,
			sightErr: &quota.UnknownDeviceError{Devices: []quota.DeviceID{{Pool: "n", Device: "gpu-9"}}}, code: http.StatusServiceUnavailable,
			message: "this allocation is tried again: nothing describes device gpu-9 of node n, so its cost is not known",
		},
		{name: "a namespace without a quota pays nothing", claim: ours},
		{
			name: "and gets nothing while it is being deleted: its quota may have gone first", claim: ours, ending: true,
			code: http.StatusForbidden, message: "namespace team-a is being deleted: nothing is allocated in it any more",
			events: []string{"Pod/pod RefusedByQuota"},
		},
		{
			name: "but gets nothing of a pool that requires one", claim: ours, pool: builders.MakePool("p").RequireQuota().Obj(),
			code: http.StatusForbidden, message: "GPUPool p gives nothing to a namespace without a GPUQuota that counts it, and team-a has none: " +
				"the platform team has to create one", events: []string{"Pod/pod RefusedByQuota"},
		},
		{
			name: "a quota opens no pool that is for others", quotas: []v1alpha1.GPUQuota{bounded}, claim: ours,
			pool: builders.MakePool("p").For("tier", "gold").Obj(), code: http.StatusForbidden,
			message: "GPUPool p is not for namespace team-a: its tenancy.namespaceSelector does not choose it", events: []string{"Pod/pod RefusedByQuota"},
		},
		{
			name: "a claim out of bounds is refused", quotas: []v1alpha1.GPUQuota{small}, claim: ours, code: http.StatusForbidden,
			message: "memory: 10Gi of one GPU asked, but GPUQuota team-a/q (perClaim) allows at most 8Gi of each GPU",
			events:  []string{"Pod/pod RefusedByQuota"},
		},
		{name: "another driver's device is no concern", quotas: []v1alpha1.GPUQuota{bounded}, claim: allocated(result("other", false))},
		{name: "access for monitoring costs nothing", quotas: []v1alpha1.GPUQuota{bounded}, claim: allocated(result(v1alpha1.DriverName, true))},
		{name: "what was allocated before was charged before", quotas: []v1alpha1.GPUQuota{bounded}, claim: ours, old: ours},
		{name: "what is freed is not charged", quotas: []v1alpha1.GPUQuota{bounded}, claim: claimOf(), old: ours},
		{
			name: "a dry run decides and does not charge", quotas: []v1alpha1.GPUQuota{bounded}, claim: ours, dryRun: true,
			code: http.StatusForbidden, message: "what namespace team-a holds of its GPUQuota is being counted: this is tried again in a moment",
		},
		{
			name: "an invented claim is not charged", quotas: []v1alpha1.GPUQuota{bounded}, claim: ours, missing: true,
			code: http.StatusServiceUnavailable, message: `this allocation is tried again: Operation cannot be fulfilled on resourceclaims.resource.k8s.io "c": ` +
				"the claim is not there, or is allocated already",
		},
		{
			name: "of an invented claim nothing is told", quotas: []v1alpha1.GPUQuota{small}, claim: ours, missing: true, dryRun: true,
			code: http.StatusServiceUnavailable, message: `this allocation is tried again: Operation cannot be fulfilled on resourceclaims.resource.k8s.io "c": ` +
				"the claim is not there, or is allocated already",
		},
		{
			name: "what no ledger can hold is not written", quotas: []v1alpha1.GPUQuota{bounded}, claim: ours, old: versioned(""),
			code: http.StatusBadRequest, message: "the claim as it was has no resourceVersion",
		},
		{
			name: "nor what it has no room for", quotas: []v1alpha1.GPUQuota{bounded}, claim: ours, old: versioned(strings.Repeat("9", 65)),
			code: http.StatusBadRequest, message: "the claim as it was has no resourceVersion",
		},
		{
			name: "nor one that is allocated already", quotas: []v1alpha1.GPUQuota{bounded}, claim: ours, stored: ours,
			code: http.StatusServiceUnavailable, message: `this allocation is tried again: Operation cannot be fulfilled on resourceclaims.resource.k8s.io "c": ` +
				"the claim is not there, or is allocated already",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			scheme := testScheme(t)
			builder := fake.NewClientBuilder().WithScheme(scheme)
			if tc.stored == nil {
				tc.stored = claimOf()
			}
			if !tc.missing {
				builder = builder.WithObjects(tc.stored.DeepCopy())
			}
			if tc.ending {
				builder = builder.WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
					Name: "team-a", DeletionTimestamp: ptr.To(metav1.Unix(0, 0)), Finalizers: []string{"example.com/keep"},
				}})
			}
			if tc.pool == nil {
				tc.pool = builders.MakePool("p").Obj()
			}
			if tc.old == nil {
				tc.old = claimOf()
			}
			events := &recorder{}
			now := clocktesting.NewFakeClock(time.Unix(0, 0))
			notes, err := NewNotes(events, prometheus.NewRegistry(), now)
			if err != nil {
				t.Fatal(err)
			}
			c := builder.Build()
			charger := &fakeCharger{answer: tc.answer}
			handler := &Claims{
				Cache: c, Live: c, Charger: charger, Decoder: admission.NewDecoder(scheme), Notes: notes, Clock: now,
				Sight: &fakeSight{quotas: tc.quotas, pools: map[string]*v1alpha1.GPUPool{"p": tc.pool}, err: tc.sightErr},
			}
			answer := handler.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: admissionv1.Update, SubResource: "status", Namespace: "team-a", Name: "c", DryRun: &tc.dryRun,
				Object: raw(t, tc.claim), OldObject: raw(t, tc.old),
			}})
			if answer.Allowed != (tc.code == 0) || !answer.Allowed && (answer.Result.Code != tc.code || answer.Result.Message != tc.message) {
				t.Errorf("answered %v %+v, want code %d and %q", answer.Allowed, answer.Result, tc.code, tc.message)
			}
			if diff := cmp.Diff(tc.charged, charger.asked); diff != "" {
				t.Errorf("charged (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.events, events.events); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRepeatedRefusalsAreToldOnceAMinute(t *testing.T) {
	events := &recorder{}
	now := clocktesting.NewFakeClock(time.Unix(1000, 0))
	registry := prometheus.NewRegistry()
	notes, err := NewNotes(events, registry, now)
	if err != nil {
		t.Fatal(err)
	}
	refusal := &quota.Refusal{Namespace: "team-a", Quota: "q", Resource: "memory", Sentence: "full"}
	for range 3 {
		notes.refused(allocated(), refusal)
		now.Step(quiet - time.Second)
	}
	if diff := cmp.Diff([]string{"Pod/pod RefusedByQuota", "Pod/pod RefusedByQuota"}, events.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	notes.Count(&quota.Refusal{Namespace: "team-b", Sentence: "no quota, no metric"})
	if got := refusals(t, registry); got != 3 {
		t.Errorf("%v refusals are counted, want 3", got)
	}
	notes.Forget("team-a")
	if got := refusals(t, registry); got != 0 {
		t.Errorf("%v refusals are counted of a namespace whose quota is gone", got)
	}
}

func refusals(t *testing.T, registry *prometheus.Registry) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var sum float64
	for _, family := range families {
		if family.GetName() == "sluice_quota_refusals_total" {
			for _, m := range family.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func TestDeletions(t *testing.T) {
	object := builders.MakeQuota("team-a", "q").Hard(v1alpha1.QuotaGPUs, "4").Pools("p").Obj()
	object.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "GPUQuota"}
	holds := func(pool string) *quota.Ledger {
		l := quota.NewLedger("namespace-team-a")
		l.Namespaces["team-a"] = quota.Entry{Version: "1", Counted: quota.Charges{pool: {v1alpha1.QuotaGPUs: 2}}}
		return l
	}
	for _, tc := range []struct {
		name    string
		ledger  *quota.Ledger
		ending  bool
		gone    bool
		message string
	}{
		{
			name: "one that counts something is kept", ledger: holds("p"), message: "GPUQuota team-a/q is in use (gpus 2): end what holds it first, " +
				"or have somebody delete it who has the verb delete-in-use on gpuquotas (ClusterRole sluice-admin)",
		},
		{name: "what is held in pools that it does not count is no matter", ledger: holds("other")},
		{
			name: "one that is not counted yet may count something", message: "GPUQuota team-a/q is in use (what the namespace holds is being counted): " +
				"end what holds it first, or have somebody delete it who has the verb delete-in-use on gpuquotas (ClusterRole sluice-admin)",
		},
		{name: "it goes with its namespace", ledger: holds("p"), ending: true},
		{name: "it goes after its namespace", ledger: holds("p"), gone: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			scheme := testScheme(t)
			var objects []client.Object
			namespace := &metav1.PartialObjectMetadata{
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
				ObjectMeta: metav1.ObjectMeta{Name: "team-a", UID: types.UID("n")},
			}
			if tc.ending {
				namespace.DeletionTimestamp, namespace.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"kubernetes"}
			}
			if !tc.gone {
				objects = append(objects, namespace)
			}
			handler := &Deletion{
				Live:    fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(),
				Sight:   &fakeSight{quotas: []v1alpha1.GPUQuota{*object}, ledger: tc.ledger},
				Decoder: admission.NewDecoder(scheme),
			}
			answer := handler.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: admissionv1.Delete, Namespace: "team-a", Name: "q", OldObject: raw(t, object),
			}})
			if answer.Allowed != (tc.message == "") || !answer.Allowed && answer.Result.Message != tc.message {
				t.Errorf("answered %v %+v, want %q", answer.Allowed, answer.Result, tc.message)
			}
		})
	}
}
