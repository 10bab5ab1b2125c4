// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
)

func TestRefusals(t *testing.T) {
	claimed := builders.MakePod("p").Memory("1Gi").Obj()
	claimed.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "sluice", ResourceClaimTemplateName: ptr.To("mine")}}
	const template = "sluice-0123456789abcdef0123"
	copied := builders.MakePod("p").Obj()
	copied.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "sluice", ResourceClaimTemplateName: ptr.To(template)}}
	renamed := builders.MakePod("p").Obj()
	renamed.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "mine", ResourceClaimTemplateName: ptr.To(template)}}
	edited := copied.DeepCopy()
	edited.Annotations = map[string]string{
		v1alpha1.RequestAnnotation: `{"version":1,"pool":"shared","form":"Shared","requests":[{"name":"main","count":1,"memoryMi":1024}]}`,
	}
	s := newScene(t)
	for _, tc := range []struct {
		name string
		pod  *corev1.Pod
		want string
	}{
		{
			name: "an unknown pool", pod: builders.MakePod("p").Pool("nope").Memory("1Gi").Obj(),
			want: `pool "nope" does not exist: write one of these in the label sluice.dev/pool: empty, emptymig, mig, shared, whole`,
		},
		{
			name: "more memory than any GPU", pod: builders.MakePod("p").Memory("100Gi").Obj(),
			want: `container "main": sluice.dev/gpu-memory: 100Gi is more than any GPU of pool shared has; the largest has 79.25Gi: ` +
				`amounts are per GPU, so write sluice.dev/gpu: 2 with sluice.dev/gpu-memory: 50Gi, or ask for at most 79.25Gi`,
		},
		{
			name: "an amount of an exclusive GPU", pod: builders.MakePod("p").Pool("whole").Memory("1Gi").Obj(),
			want: `container "main": pool whole gives whole GPUs: leave out sluice.dev/gpu-memory and sluice.dev/gpu-compute and ask for ` +
				`sluice.dev/gpu: 1, or name a pool that shares its GPUs in the label sluice.dev/pool ` +
				`(an amount that you did not write comes from a LimitRange of the namespace)`,
		},
		{
			name: "a MIG instance of no size", pod: builders.MakePod("p").Pool("mig").Limit(v1alpha1.ResourceGPU, "1").Obj(),
			want: `container "main": pool mig gives MIG instances, so sluice.dev/gpu alone does not say how large: add ` +
				`sluice.dev/gpu-memory, such as 10Gi, or write nvidia.com/mig-1g.10gb: 1 in place of it`,
		},
		{
			name: "more than any MIG instance", pod: builders.MakePod("p").Pool("mig").Memory("80Gi").Obj(),
			want: `container "main": no MIG instance of pool mig holds sluice.dev/gpu: 1, sluice.dev/gpu-memory: 80Gi; the largest, 7g.80gb, ` +
				`has 79Gi and 100 % of the compute: ask for at most 79Gi, or name a pool of larger GPUs in the label sluice.dev/pool`,
		},
		{
			name: "a MIG pool without a GPU", pod: builders.MakePod("p").Pool("emptymig").Memory("1Gi").Obj(),
			want: `container "main": pool emptymig has no GPU yet, so it cannot be said which MIG instance holds that: try again when ` +
				`kubectl get gpupool emptymig shows GPUs, or name another pool in the label sluice.dev/pool`,
		},
		{
			name: "compute above a whole GPU", pod: builders.MakePod("p").Compute("150").Obj(),
			want: `container "main": sluice.dev/gpu-compute: 150 is refused: write percent of one GPU, a whole number from 1 to 100, ` +
				`such as 30; for more than one GPU add sluice.dev/gpu`,
		},
		{
			name: "half a GPU", pod: builders.MakePod("p").Limit(v1alpha1.ResourceGPU, "500m").Obj(),
			want: `container "main": sluice.dev/gpu: 500m is refused: write a whole number of GPUs from 1 to 16, such as 1`,
		},
		{
			name: "an init container that asks for more", pod: initial(builders.MakePod("p").Memory("1Gi").Obj(), "load", "2Gi", false),
			want: `init container "load" asks for more (sluice.dev/gpu: 1, sluice.dev/gpu-memory: 2Gi) than container "main" ` +
				`(sluice.dev/gpu: 1, sluice.dev/gpu-memory: 1Gi), whose GPUs it uses before that starts: write the larger amounts at container "main" ` +
				`(an amount that you did not write comes from a LimitRange of the namespace)`,
		},
		{
			name: "a claim of the same name", pod: claimed,
			want: `the pod has a claim named "sluice" of its own, the name under which its sluice.dev/* limits become a claim: ` +
				`give spec.resourceClaims another name`,
		},
		{
			name: "a copied claim without anything else of ours", pod: copied,
			want: `the claim "sluice" does not match the annotation sluice.dev/request (the annotation is missing): ` +
				`create the pod with sluice.dev/* limits instead of a copied claim`,
		},
		{
			name: "an annotation that is not the copied claim's", pod: edited,
			want: `the claim "sluice" does not match the annotation sluice.dev/request (it asks for something else): ` +
				`create the pod with sluice.dev/* limits instead of a copied claim`,
		},
		{
			name: "a template of ours under another claim's name", pod: renamed,
			want: `the claim "mine" is of template ` + template + `, which Sluice keeps for the claim "sluice" alone: ` +
				`create the pod with sluice.dev/* limits instead of a copied claim`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := scene{T: t, namespace: s.namespace}
			if diff := cmp.Diff(tc.want, s.refusal(tc.pod)); diff != "" {
				t.Errorf("sentence (-want +got):\n%s", diff)
			}
		})
	}
	if got := s.templates(); len(got) > 0 {
		t.Errorf("refused pods left templates: %v", got)
	}
}

// A pool and its pods are often created together.
func TestAPoolOfTheSameMomentIsKnown(t *testing.T) {
	s := newScene(t)
	pool := builders.MakePool("brandnew").Obj()
	if err := cluster.Client.Create(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	pod := builders.MakePod("p").Pool("brandnew").Memory("1Gi").Obj()
	s.create(pod)
	if err := cluster.Client.Delete(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
}
