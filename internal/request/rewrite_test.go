// SPDX-License-Identifier: Apache-2.0

package request

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// rewritten passes a pod through admission, which must succeed.
func rewritten(t *testing.T, pod *corev1.Pod, pools ...Pool) *corev1.Pod {
	t.Helper()
	asks, err := Parse(pod)
	if err != nil {
		t.Fatalf("parsing: %v", err)
	}
	made := pod.DeepCopy()
	if len(asks.Containers) == 0 {
		Tidy(made, &asks)
		return made
	}
	resolution, err := Resolve(asks, pools)
	if err != nil {
		t.Fatalf("resolving: %v", err)
	}
	if err := Rewrite(made, &resolution); err != nil {
		t.Fatalf("rewriting: %v", err)
	}
	return made
}

func claims(c corev1.Container) []corev1.ResourceClaim { return c.Resources.Claims }

func TestRewrite(t *testing.T) {
	pod := makePod(initial("load", "gpu-memory", "1Gi"), main("web", "cpu", "1"), main("a", "gpu-memory", "1Gi", "cpu", "2"))
	own := corev1.ResourceClaim{Name: "nic"}
	pod.Spec.Containers[1].Resources.Claims = []corev1.ResourceClaim{own}
	claim("nic", "nic-template")(pod)
	got := rewritten(t, pod, sharedPool("shared", 1))

	encoded := `{"version":1,"pool":"shared","form":"Shared","requests":[{"name":"a","count":1,"memoryMi":1024}]}`
	want := pod.DeepCopy()
	annotated(encoded)(want)
	want.Labels = map[string]string{v1alpha1.RequestLabel: Hash(encoded)}
	claim("sluice", "sluice-"+Hash(encoded))(want)
	ours := corev1.ResourceClaim{Name: "sluice", Request: "a"}
	want.Spec.InitContainers[0].Resources = corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{ours}}
	want.Spec.Containers[1].Resources = corev1.ResourceRequirements{
		Limits: list("cpu", "2"), Requests: list("cpu", "2"), Claims: []corev1.ResourceClaim{own, ours},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rewritten pod (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(got, rewritten(t, got, sharedPool("shared", 1))); diff != "" {
		t.Errorf("a second pass changed the pod (-first +second):\n%s", diff)
	}
}

func TestSecondPassMergesWhatCameIn(t *testing.T) {
	pools := []Pool{asDefault(sharedPool("shared", 2)), migPool(a100)}
	for _, tc := range []struct {
		name  string
		first *corev1.Pod
		added podOption
		whole *corev1.Pod
	}{
		{
			name:  "a main container injected after the first pass has a request of its own",
			first: makePod(main("a", "gpu-memory", "2Gi")), added: main("b", "gpu-memory", "1Gi"),
			whole: makePod(main("a", "gpu-memory", "2Gi"), main("b", "gpu-memory", "1Gi")),
		},
		{
			name:  "an init container injected after the first pass shares the first main container's",
			first: makePod(main("a", "gpu-memory", "2Gi")), added: initial("i", "gpu-memory", "1Gi"),
			whole: makePod(main("a", "gpu-memory", "2Gi"), initial("i", "gpu-memory", "1Gi")),
		},
		{
			name:  "a main container injected beside asking init containers takes their request over",
			first: makePod(initial("i", "gpu-memory", "1Gi")), added: main("a", "gpu-memory", "2Gi"),
			whole: makePod(initial("i", "gpu-memory", "1Gi"), main("a", "gpu-memory", "2Gi")),
		},
		{
			name:  "the pool of the first pass holds for a container that comes later",
			first: makePod(inPool("mig"), main("a", "gpu-memory", "2Gi")), added: sidecar("s", "gpu-memory", "10Gi"),
			whole: makePod(inPool("mig"), main("a", "gpu-memory", "2Gi"), sidecar("s", "gpu-memory", "10Gi")),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			first := rewritten(t, tc.first, pools...)
			tc.added(first)
			got := rewritten(t, first, pools...)
			want := rewritten(t, tc.whole, pools...)
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("merged pod, in two passes against one (-one +two):\n%s", diff)
			}
		})
	}
}

// Something that runs between two passes, such as a LimitRange, fills in the limits that the first one took away.
func TestBoundContainersKeepWhatTheyWereBoundWith(t *testing.T) {
	pools := []Pool{asDefault(sharedPool("shared", 2)), exclusivePool("whole", 1), migPool(a100)}
	kept := `container "a": keeps sluice.dev/gpu: 2, sluice.dev/gpu-memory: 2Gi, sluice.dev/gpu-compute: 30; `
	for _, tc := range []struct {
		name     string
		first    *corev1.Pod
		later    corev1.ResourceList
		warnings []string
	}{
		{
			"another memory", makePod(main("a", "gpu", "2", "gpu-memory", "2Gi", "gpu-compute", "30")), list("gpu-memory", "20Gi"),
			[]string{kept + "sluice.dev/gpu-memory: 20Gi, added later (by a LimitRange?), is left out"},
		},
		{
			"all amounts, each another", makePod(main("a", "gpu", "2", "gpu-memory", "2Gi", "gpu-compute", "30")),
			list("gpu", "1", "gpu-memory", "1Gi", "gpu-compute", "10"),
			[]string{kept + "sluice.dev/gpu: 1, sluice.dev/gpu-compute: 10, sluice.dev/gpu-memory: 1Gi, added later (by a LimitRange?), is left out"},
		},
		{
			"what could not be asked for at all", makePod(main("a", "gpu", "2", "gpu-memory", "2Gi", "gpu-compute", "30")),
			list("gpu", "500m", "gpu-mem", "1"),
			[]string{kept + "sluice.dev/gpu: 500m, sluice.dev/gpu-mem: 1, added later (by a LimitRange?), is left out"},
		},
		{
			"the same amounts", makePod(main("a", "gpu", "2", "gpu-memory", "2047.5Mi", "gpu-compute", "30")),
			list("gpu", "2", "gpu-memory", "2Gi", "gpu-compute", "30"), nil,
		},
		{
			"an amount of a whole GPU", makePod(inPool("whole"), main("a", "gpu", "1")), list("gpu-memory", "20Gi"),
			[]string{`container "a": keeps sluice.dev/gpu: 1; sluice.dev/gpu-memory: 20Gi, added later (by a LimitRange?), is left out`},
		},
		{
			"a larger amount than any MIG instance has", makePod(inPool("mig"), main("a", "gpu-memory", "9Gi")), list("gpu-memory", "1Ti"),
			[]string{`container "a": keeps sluice.dev/gpu: 1, sluice.dev/gpu-memory: 9Gi; sluice.dev/gpu-memory: 1Ti, added later (by a LimitRange?), is left out`},
		},
	} {
		for _, where := range []string{"limits", "requests", "both"} {
			t.Run(tc.name+" in "+where, func(t *testing.T) {
				first := rewritten(t, tc.first, pools...)
				changed := first.DeepCopy()
				resources := &changed.Spec.Containers[0].Resources
				if where != "requests" {
					resources.Limits = tc.later
				}
				if where != "limits" {
					resources.Requests = tc.later
				}
				resolution, err := admit(changed, pools)
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				if diff := cmp.Diff(tc.warnings, resolution.Warnings); diff != "" {
					t.Errorf("warnings (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(first, rewritten(t, changed, pools...)); diff != "" {
					t.Errorf("pod (-first +second):\n%s", diff)
				}
			})
		}
	}
}

func TestSecondPassKeepsThePoolWithoutALabel(t *testing.T) {
	first := rewritten(t, makePod(main("a", "gpu-memory", "2Gi")), asDefault(sharedPool("one", 1)), sharedPool("two", 1))
	got := rewritten(t, first, sharedPool("one", 1), asDefault(sharedPool("two", 1)))
	if diff := cmp.Diff(first, got); diff != "" {
		t.Errorf("the pod moved to another pool (-first +second):\n%s", diff)
	}
}

func TestWhatTheUserWroteInOurPlace(t *testing.T) {
	pools := []Pool{sharedPool("shared", 1)}
	copied := rewritten(t, makePod(main("a", "gpu-memory", "1Gi")), pools...)
	unreferenced := copied.DeepCopy()
	unreferenced.Spec.Containers[0].Resources.Claims = nil

	forged := makePod(main("web"), annotated(encodedShared), claim("sluice", "mine"))
	forged.Labels = map[string]string{v1alpha1.RequestLabel: "00000000000000000000"}
	forgedTidy := makePod(main("web"), claim("sluice", "mine"))
	forgedTidy.Labels = map[string]string{}

	lost := copied.DeepCopy()
	delete(lost.Labels, v1alpha1.RequestLabel)

	for _, tc := range []struct {
		name      string
		pod, want *corev1.Pod
	}{
		{"a copy of a rewritten pod is as good as the original", copied, copied},
		{"a copy that lost its label gets it back", lost, copied},
		{"a claim that no container refers to is left alone", unreferenced, unreferenced},
		{"an annotation without a claim is removed", makePod(main("web"), annotated(encodedShared)), makePod(main("web"))},
		{"an annotation beside a claim of the tenant's own is removed", forged, forgedTidy},
		{
			"an annotation is overwritten where limits ask for something else",
			makePod(main("a", "gpu-memory", "1Gi"), annotated("{}")), copied,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := rewritten(t, tc.pod, pools...)
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("pod (-want +got):\n%s", diff)
			}
		})
	}
}

func TestForgedRequestIsJudgedAgain(t *testing.T) {
	pod := rewritten(t, makePod(main("a", "gpu-memory", "500Gi")), sharedPool("shared", 0))
	_, err := admit(pod, []Pool{sharedPool("shared", 1)})
	if err == nil {
		t.Error("a copied request above any GPU was admitted")
	}
	if got := claims(pod.Spec.Containers[0]); len(got) != 1 {
		t.Errorf("claims: got %v, want one", got)
	}
}
