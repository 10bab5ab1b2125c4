// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/quota"
	"github.com/sluice-gpu/sluice/internal/request"
)

func noon() time.Time { return time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC) }

// fakeQuotas are a queue of namespace team and a refusing quota of namespace strict, of one cohort.
type fakeQuotas struct{ none bool }

var _ QuotaReader = fakeQuotas{}

func (f fakeQuotas) Domain(_ context.Context, ledger string) (*quota.Domain, error) {
	if f.none {
		return nil, nil //nolint:nilnil // no quota is an answer
	}
	return &quota.Domain{Ledger: ledger, Quotas: []quota.Quota{{Namespace: "strict", Name: "q"}, {Namespace: "team", Name: "q", Queue: true}}}, nil
}

func (f fakeQuotas) LedgerOf(context.Context, string) (string, error) {
	if f.none {
		return "", nil
	}
	return "cohort-c", nil
}

// fakePools are one shared pool.
type fakePools struct{}

func (fakePools) Pools(context.Context) ([]request.Pool, error) {
	return []request.Pool{
		{Name: "shared", Form: request.Shared, GPUs: []request.GPU{{Node: "n", Product: "P", Memory: 80 << 30}}},
		{Name: "whole", Form: request.Exclusive, GPUs: []request.GPU{{Node: "m", Product: "P", Memory: 80 << 30}}},
	}, nil
}

type podOption func(*corev1.Pod)

func pod(namespace, name string, options ...podOption) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(noon().Add(-10 * time.Second)),
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}}},
	}
	for _, option := range options {
		option(p)
	}
	return p
}

func gates(names ...string) podOption {
	return func(p *corev1.Pod) {
		for _, name := range names {
			p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: name})
		}
	}
}

// uses is a pod with the claim c.
func uses() podOption {
	return func(p *corev1.Pod) {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "c", ResourceClaimName: ptr.To("c")})
	}
}

func usesTemplate(template string) podOption {
	return func(p *corev1.Pod) {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "c", ResourceClaimTemplateName: &template})
	}
}

// claim asks for a whole GPU.
func claim(name string, options ...func(*resourceapi.ResourceClaim)) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name)},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "r", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "whole.sluice.dev", Count: 1},
		}}}},
	}
	for _, option := range options {
		option(c)
	}
	return c
}

func allocated(c *resourceapi.ResourceClaim) {
	c.Status.Allocation = &resourceapi.AllocationResult{}
}

// encoded is the request of a share of the pool "shared".
const encoded = `{"version":1,"pool":"shared","form":"Shared","requests":[{"name":"a","count":1,"memoryMi":1024,"compute":30}]}`

func TestGather(t *testing.T) {
	whole := "gpus 1, memory 85899345920, compute 100"
	for _, tc := range []struct {
		name     string
		objects  []client.Object
		reserved string
		none     bool
		want     map[string]string
	}{
		{
			name:    "a gated pod waits with what its claim costs at least",
			objects: []client.Object{pod("team", "p", gates(v1alpha1.QuotaGate), uses()), claim("c")},
			want:    map[string]string{"p": "waiting " + whole},
		},
		{
			name:    "one without a gate is under way",
			objects: []client.Object{pod("team", "p", uses()), claim("c")},
			want:    map[string]string{"p": "under way " + whole},
		},
		{
			name: "one that was let go a minute ago is stuck",
			objects: []client.Object{
				pod("team", "p", uses(), func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(noon().Add(-time.Minute)) }),
				claim("c"),
			},
			want: map[string]string{"p": "under way, stuck " + whole},
		},
		{
			name: "what counts is when it was let go, not when it was made",
			objects: []client.Object{
				pod("team", "p", uses(), func(p *corev1.Pod) {
					p.CreationTimestamp = metav1.NewTime(noon().Add(-time.Hour))
					p.Status.Conditions = []corev1.PodCondition{{
						Type: v1alpha1.PodQuotaReserved, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon().Add(-time.Second)),
					}}
				}),
				claim("c"),
			},
			want: map[string]string{"p": "under way " + whole},
		},
		{
			name:    "a pod whose claims are allocated waits for nothing",
			objects: []client.Object{pod("team", "p", uses()), claim("c", allocated)},
		},
		{
			name: "nor does one whose allocation is under way", reserved: "c",
			objects: []client.Object{pod("team", "p", uses()), claim("c")},
		},
		{
			name: "a claim that two pods wait for counts once",
			objects: []client.Object{
				pod("team", "p", uses()), pod("team", "q", gates(v1alpha1.QuotaGate), uses()), claim("c"),
			},
			want: map[string]string{"p": "under way " + whole, "q": "waiting "},
		},
		{
			name:    "a pod with other gates is not in line",
			objects: []client.Object{pod("team", "p", gates("z", v1alpha1.QuotaGate, "a"), uses()), claim("c")},
			want:    map[string]string{"p": "apart: other scheduling gates come first: a, z"},
		},
		{
			name:    "nor is one whose claim is missing",
			objects: []client.Object{pod("team", "p", gates(v1alpha1.QuotaGate), uses())},
			want:    map[string]string{"p": "apart: its claim c is not there"},
		},
		{
			name:    "or not yet made",
			objects: []client.Object{pod("team", "p", gates(v1alpha1.QuotaGate), usesTemplate("own"))},
			want:    map[string]string{"p": "apart: its claim of template own is not there yet"},
		},
		{
			name: "a claim of Sluice's own template is known before it is made",
			objects: []client.Object{pod("team", "p", gates(v1alpha1.QuotaGate), usesTemplate(request.TemplateName(request.Hash(encoded))), func(p *corev1.Pod) {
				p.Annotations = map[string]string{v1alpha1.RequestAnnotation: encoded}
			})},
			want: map[string]string{"p": "waiting gpus 1, memory 1073741824, compute 30"},
		},
		{
			name: "a claim that was made of a template is found by the pod's status",
			objects: []client.Object{
				pod("team", "p", gates(v1alpha1.QuotaGate), usesTemplate("own"), func(p *corev1.Pod) {
					p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "c", ResourceClaimName: ptr.To("made")}}
				}),
				claim("made"),
			},
			want: map[string]string{"p": "waiting " + whole},
		},
		{
			name: "extended resources count",
			objects: []client.Object{pod("team", "p", gates(v1alpha1.QuotaGate), func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}
			})},
			want: map[string]string{"p": "waiting " + whole},
		},
		{
			name: "a class of somebody else with a pool's name may mean anything",
			objects: []client.Object{
				pod("team", "p", gates(v1alpha1.QuotaGate), uses()), claim("c"),
				&resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "whole.sluice.dev"}},
			},
			want: map[string]string{"p": "waiting "},
		},
		{
			name:    "where what does not fit is refused nobody queues",
			objects: []client.Object{pod("strict", "p", gates(v1alpha1.QuotaGate), uses())},
			want:    map[string]string{"p": "unqueued"},
		},
		{
			name: "nor where the quota is gone", none: true,
			objects: []client.Object{pod("team", "p", gates(v1alpha1.QuotaGate), uses()), pod("team", "q", uses())},
			want:    map[string]string{"p": "unqueued"},
		},
		{
			name: "pods that end, and pods that need no GPU, are nobody's business",
			objects: []client.Object{
				pod("team", "p", uses(), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), pod("team", "q"), claim("c"),
				pod("team", "r", uses(), func(p *corev1.Pod) {
					p.DeletionTimestamp, p.Finalizers = ptr.To(metav1.NewTime(noon())), []string{"example.com/keep"}
				}),
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			reader := readerOf(t, tc.objects, tc.reserved)
			reader.Quotas = fakeQuotas{none: tc.none}
			ledger := "cohort-c"
			if tc.none {
				ledger = "namespace-team"
			}
			state, err := reader.Gather(t.Context(), ledger, noon())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, described(state)); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
		})
	}
}

func readerOf(t *testing.T, objects []client.Object, reserved string) *Reader {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	ledger := quota.NewLedger("cohort-c")
	if reserved != "" {
		ledger.Reservations[reserved] = quota.Reservation{Namespace: "team", Name: reserved, Version: "1", Expiry: noon()}
	}
	written := &v1alpha1.GPULedger{ObjectMeta: metav1.ObjectMeta{Name: ledger.Name}, Spec: ledger.Spec()}
	for i, object := range objects {
		if p, isPod := object.(*corev1.Pod); isPod {
			kept, err := slim(p)
			if err != nil {
				t.Fatal(err)
			}
			slimmed, ok := kept.(*corev1.Pod)
			if !ok {
				t.Fatalf("a pod became %T", kept)
			}
			slimmed.ResourceVersion, slimmed.Finalizers = "", p.Finalizers // the fake client wants these
			objects[i] = slimmed
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithObjects(written).Build()
	return &Reader{Cache: c, Pods: c, Pools: fakePools{}}
}

// described says of each pod where it is.
func described(state State) map[string]string {
	var found map[string]string
	put := func(pods []Pod, where string) {
		for _, p := range pods {
			if found == nil {
				found = map[string]string{}
			}
			text := where
			switch {
			case p.Apart != "":
				text += ": " + p.Apart
			case p.Line.Cost != nil:
				if p.Line.Stuck {
					text += ", stuck"
				}
				text += " " + costOf(p.Line.Cost)
			}
			found[p.Object.Name] = text
		}
	}
	put(state.Waiting, "waiting")
	put(state.UnderWay, "under way")
	put(state.Apart, "apart")
	for i := range state.Unqueued {
		state.Unqueued[i].Line.Cost, state.Unqueued[i].Apart = nil, ""
	}
	put(state.Unqueued, "unqueued")
	return found
}

func costOf(cost quota.Cost) string {
	amounts := cost.In(nil)
	text := ""
	for _, name := range []string{"gpus", "memory", "compute"} {
		if amounts[name] > 0 {
			if text != "" {
				text += ", "
			}
			text += name + " " + resource.NewQuantity(amounts[name], resource.DecimalSI).AsDec().String()
		}
	}
	return text
}
