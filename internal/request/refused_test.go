// SPDX-License-Identifier: Apache-2.0

package request

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// ourTemplate is the template of encodedShared.
const ourTemplate = "sluice-d33df5e8eb55234c25ef"

func TestRefused(t *testing.T) {
	shared, mig, exclusive := sharedPool("shared", 4), migPool(a100), exclusivePool("whole", 2)
	requestsOnly := makePod(main("a"))
	requestsOnly.Spec.Containers[0].Resources.Requests = list("gpu-memory", "1Gi")
	differing := makePod(main("a", "gpu-memory", "2Gi"))
	differing.Spec.Containers[0].Resources.Requests = list("gpu-memory", "1Gi")
	many := makePod()
	for i := range 33 {
		main(strings.Repeat("a", i+1), "gpu-memory", "1Gi")(many)
	}

	for _, tc := range []struct {
		name  string
		pod   *corev1.Pod
		pools []Pool
		want  string
	}{
		{
			name: "no pool at all", pod: makePod(main("a", "gpu", "1")),
			want: "there is no GPUPool yet: the platform team has to create one",
		},
		{
			name: "only pools being deleted", pod: makePod(main("a", "gpu", "1")), pools: []Pool{deleting(shared)},
			want: "the only pools are being deleted (shared): the platform team has to create another one",
		},
		{
			name: "several pools and no default", pod: makePod(main("a", "gpu", "1")), pools: []Pool{shared, exclusive},
			want: "the pod names no pool, and of the pools shared, whole none says default: true: " +
				"add the label sluice.dev/pool: shared, or another one of them, to the pod",
		},
		{
			name: "two defaults", pod: makePod(main("a", "gpu", "1")), pools: []Pool{asDefault(shared), asDefault(exclusive)},
			want: "the pod names no pool, and more than one says default: true (shared, whole): " +
				"add the label sluice.dev/pool: shared, or another one, to the pod",
		},
		{
			name: "an unknown pool", pod: makePod(inPool("nope"), main("a", "gpu", "1")), pools: []Pool{shared, exclusive},
			want: `pool "nope" does not exist: write one of these in the label sluice.dev/pool: shared, whole`,
		},
		{
			name: "an unknown pool where there is none", pod: makePod(inPool("nope"), main("a", "gpu", "1")),
			want: `pool "nope" does not exist: there is no other pool`,
		},
		{
			name: "a pool being deleted", pod: makePod(inPool("shared"), main("a", "gpu", "1")), pools: []Pool{deleting(shared), exclusive},
			want: `pool "shared" is being deleted and takes no new pods: write one of these in the label sluice.dev/pool: whole`,
		},
		{
			name: "less memory than a process needs to start", pod: makePod(main("a", "gpu-memory", "703Mi")), pools: []Pool{shared},
			want: `container "a": sluice.dev/gpu-memory: 703Mi is too small to start in: a process that uses CUDA takes up to 640Mi of ` +
				`GPU memory for itself: ask for at least 704Mi, with its unit (an amount that you did not write comes from a LimitRange of the namespace)`,
		},
		{
			name: "more memory than any GPU says how many GPUs would hold it",
			pod:  makePod(main("a", "gpu-memory", "100Gi")), pools: []Pool{shared},
			want: `container "a": sluice.dev/gpu-memory: 100Gi is more than any GPU of pool shared has; the largest has 79.25Gi: ` +
				`amounts are per GPU, so write sluice.dev/gpu: 2 with sluice.dev/gpu-memory: 50Gi, or ask for at most 79.25Gi`,
		},
		{
			name: "a suggestion that does not divide into whole Gi is in Mi",
			pod:  makePod(main("a", "gpu-memory", "162303Mi")), pools: []Pool{shared},
			want: `container "a": sluice.dev/gpu-memory: 162303Mi is more than any GPU of pool shared has; the largest has 79.25Gi: ` +
				`amounts are per GPU, so write sluice.dev/gpu: 2 with sluice.dev/gpu-memory: 81152Mi, or ask for at most 79.25Gi`,
		},
		{
			name: "more memory than sixteen GPUs have", pod: makePod(main("a", "gpu-memory", "2Ti")), pools: []Pool{shared},
			want: `container "a": sluice.dev/gpu-memory: 2Ti is more than any GPU of pool shared has; the largest has 79.25Gi: ` +
				`ask for at most 79.25Gi of each GPU`,
		},
		{
			name: "an amount in an exclusive pool", pod: makePod(main("a", "gpu", "2", "gpu-memory", "1Gi")), pools: []Pool{exclusive},
			want: `container "a": pool whole gives whole GPUs: leave out sluice.dev/gpu-memory and sluice.dev/gpu-compute and ask for ` +
				`sluice.dev/gpu: 2, or name a pool that shares its GPUs in the label sluice.dev/pool ` +
				`(an amount that you did not write comes from a LimitRange of the namespace)`,
		},
		{
			name: "a GPU without an amount in a MIG pool", pod: makePod(main("a", "gpu", "1")), pools: []Pool{mig},
			want: `container "a": pool mig gives MIG instances, so sluice.dev/gpu alone does not say how large: add ` +
				`sluice.dev/gpu-memory, such as 10Gi, or write nvidia.com/mig-1g.10gb: 1 in place of it`,
		},
		{
			name: "a GPU without an amount in a MIG pool whose profiles have no names in the API",
			pod:  makePod(main("a", "gpu", "1")), pools: []Pool{withoutNames(mig)},
			want: `container "a": pool mig gives MIG instances, so sluice.dev/gpu alone does not say how large: add ` +
				`sluice.dev/gpu-memory, such as 10Gi`,
		},
		{
			name: "a MIG pool whose boards have only profiles with a suffix", pod: makePod(main("a", "gpu-memory", "1Gi")),
			pools: []Pool{{Name: "mig", Form: MIG, NamedProfiles: true, Profiles: []Profile{{Product: a100, Name: "1g.10gb+me", Memory: mi(9728)}}}},
			want: `container "a": pool mig has no MIG profile that an amount may become: name another pool in the label sluice.dev/pool, ` +
				`or write nvidia.com/mig-1g.10gb+me: 1 in place of it`,
		},
		{
			name: "a MIG pool whose GPUs are still being changed", pod: makePod(main("a", "gpu-memory", "1Gi")),
			pools: []Pool{changing(migPool(), 3)},
			want: `container "a": no GPU of pool mig is divided by MIG yet (3 are being changed, see kubectl get gpupool mig), so it cannot ` +
				`be said which MIG instance holds that: try again when they are, or name another pool in the label sluice.dev/pool`,
		},
		{
			name: "more memory than any profile", pod: makePod(main("a", "gpu-memory", "79.5Gi")), pools: []Pool{mig},
			want: `container "a": no MIG instance of pool mig holds sluice.dev/gpu: 1, sluice.dev/gpu-memory: 81408Mi; the largest, ` +
				`7g.80gb, has 79Gi and 100 % of the compute: ask for at most 79Gi, or name a pool of larger GPUs in the label sluice.dev/pool`,
		},
		{
			name: "a MIG pool without a GPU yet", pod: makePod(main("a", "gpu-memory", "1Gi")), pools: []Pool{migPool()},
			want: `container "a": pool mig has no GPU yet, so it cannot be said which MIG instance holds that: try again when ` +
				`kubectl get gpupool mig shows GPUs, or name another pool in the label sluice.dev/pool`,
		},
		{
			name: "compute above 100", pod: makePod(main("a", "gpu-compute", "150")), pools: []Pool{shared},
			want: `container "a": sluice.dev/gpu-compute: 150 is refused: write percent of one GPU, a whole number from 1 to 100, ` +
				`such as 30; for more than one GPU add sluice.dev/gpu`,
		},
		{
			name: "no GPU", pod: makePod(main("a", "gpu", "0")), pools: []Pool{shared},
			want: `container "a": sluice.dev/gpu: 0 is refused: write a whole number of GPUs from 1 to 16, such as 1`,
		},
		{
			name: "half a GPU", pod: makePod(main("a", "gpu", "500m")), pools: []Pool{shared},
			want: `container "a": sluice.dev/gpu: 500m is refused: write a whole number of GPUs from 1 to 16, such as 1`,
		},
		{
			name: "seventeen GPUs", pod: makePod(main("a", "gpu", "17")), pools: []Pool{shared},
			want: `container "a": sluice.dev/gpu: 17 is refused: write a whole number of GPUs from 1 to 16, such as 1`,
		},
		{
			name: "no memory", pod: makePod(main("a", "gpu-memory", "0")), pools: []Pool{shared},
			want: `container "a": sluice.dev/gpu-memory: 0 is refused: write GPU memory in whole bytes with a unit, such as 10Gi or 512Mi`,
		},
		{
			name: "negative memory", pod: makePod(main("a", "gpu-memory", "-1Gi")), pools: []Pool{shared},
			want: `container "a": sluice.dev/gpu-memory: -1Gi is refused: write GPU memory in whole bytes with a unit, such as 10Gi or 512Mi`,
		},
		{
			name: "thousandths of a byte, m written for Mi", pod: makePod(main("a", "gpu-memory", "512m")), pools: []Pool{shared},
			want: `container "a": sluice.dev/gpu-memory: 512m is refused: write GPU memory in whole bytes with a unit, such as 10Gi or 512Mi`,
		},
		{
			name: "memory beyond any number", pod: makePod(main("a", "gpu-memory", "100Ei")), pools: []Pool{shared},
			want: `container "a": sluice.dev/gpu-memory: 9223372036854775807 is refused: no GPU has that much; write what one GPU is to give, such as 10Gi`,
		},
		{
			name: "memory beyond any GPU", pod: makePod(main("a", "gpu-memory", "1Ei")), pools: []Pool{sharedPool("empty", 0)},
			want: `container "a": sluice.dev/gpu-memory: 1Ei is refused: no GPU has that much; write what one GPU is to give, such as 10Gi`,
		},
		{
			name: "a misspelt resource", pod: makePod(main("a", "gpu-mem", "1Gi")), pools: []Pool{shared},
			want: `container "a": sluice.dev/gpu-mem is no resource of Sluice: write sluice.dev/gpu, sluice.dev/gpu-memory or sluice.dev/gpu-compute`,
		},
		{
			name: "only requests", pod: requestsOnly, pools: []Pool{shared},
			want: `container "a": sluice.dev/gpu-memory is only in resources.requests: write it in resources.limits`,
		},
		{
			name: "requests that differ from limits", pod: differing, pools: []Pool{shared},
			want: `container "a": sluice.dev/gpu-memory is 1Gi in resources.requests but 2Gi in resources.limits: write it in resources.limits only`,
		},
		{
			name: "every container's mistake is named", pools: []Pool{shared},
			pod: makePod(main("a", "gpu", "0"), main("b", "gpu-compute", "0")),
			want: `container "a": sluice.dev/gpu: 0 is refused: write a whole number of GPUs from 1 to 16, such as 1; ` +
				`container "b": sluice.dev/gpu-compute: 0 is refused: write percent of one GPU, a whole number from 1 to 100, such as 30; ` +
				`for more than one GPU add sluice.dev/gpu`,
		},
		{
			name: "an init container that asks for more than the main container", pools: []Pool{shared},
			pod: makePod(initial("load", "gpu-memory", "4Gi"), main("a", "gpu-memory", "2Gi")),
			want: `init container "load" asks for more (sluice.dev/gpu: 1, sluice.dev/gpu-memory: 4Gi) than container "a" ` +
				`(sluice.dev/gpu: 1, sluice.dev/gpu-memory: 2Gi), whose GPUs it uses before that starts: write the larger amounts at container "a" ` +
				`(an amount that you did not write comes from a LimitRange of the namespace)`,
		},
		{
			name: "a claim of the name that admission uses", pools: []Pool{shared},
			pod: makePod(claim("sluice", "mine"), main("a", "gpu-memory", "2Gi")),
			want: `the pod has a claim named "sluice" of its own, the name under which its sluice.dev/* limits become a claim: ` +
				`give spec.resourceClaims another name`,
		},
		{
			name: "a copied claim whose annotation is missing", pools: []Pool{shared}, pod: makePod(main("web"), claim("sluice", ourTemplate)),
			want: `the claim "sluice" does not match the annotation sluice.dev/request (the annotation is missing): ` +
				`create the pod with sluice.dev/* limits instead of a copied claim`,
		},
		{
			name: "a copied claim beside the pod's own limits", pools: []Pool{shared},
			pod: makePod(main("a", "gpu-memory", "2Gi"), claim("sluice", ourTemplate)),
			want: `the claim "sluice" does not match the annotation sluice.dev/request (the annotation is missing): ` +
				`create the pod with sluice.dev/* limits instead of a copied claim`,
		},
		{
			name: "an annotation edited after its claim was copied", pools: []Pool{shared},
			pod: makePod(main("a"), claim("sluice", ourTemplate), annotated(strings.Replace(encodedShared, "1024", "2048", 1))),
			want: `the claim "sluice" does not match the annotation sluice.dev/request (it asks for something else): ` +
				`create the pod with sluice.dev/* limits instead of a copied claim`,
		},
		{
			name: "an annotation that cannot be read", pools: []Pool{shared},
			pod: makePod(main("a"), claim("sluice", TemplateName(Hash("hello"))), annotated("hello")),
			want: `the claim "sluice" does not match the annotation sluice.dev/request (reading the canonical request: invalid character 'h' ` +
				`looking for beginning of value): create the pod with sluice.dev/* limits instead of a copied claim`,
		},
		{
			name: "a template of ours under another claim's name", pools: []Pool{shared},
			pod: makePod(main("a"), claim("mine", ourTemplate), annotated(encodedShared)),
			want: `the claim "mine" is of template ` + ourTemplate + `, which Sluice keeps for the claim "sluice" alone: ` +
				`create the pod with sluice.dev/* limits instead of a copied claim`,
		},
		{
			name: "a container that refers to a request which the copied claim does not have", pools: []Pool{shared},
			pod:  makePod(bound("b", "b"), claim("sluice", ourTemplate), annotated(encodedShared)),
			want: `container "b": the claim "sluice" has no request "b": create the pod with sluice.dev/* limits instead of a copied claim`,
		},
		{
			name: "two containers of one name", pools: []Pool{shared},
			pod:  makePod(main("a", "gpu-memory", "2Gi"), main("a", "gpu-memory", "2Gi")),
			want: `two containers are named "a": give each a name of its own`,
		},
		{
			name: "a container without a name", pools: []Pool{shared}, pod: makePod(main("", "gpu-memory", "2Gi")),
			want: `container "": a container's name is a DNS label of at most 63 characters`,
		},
		{
			name: "more containers than a claim has requests", pools: []Pool{shared}, pod: many,
			want: "33 containers ask for GPUs, more than the 32 that one pod may have: leave out the limits of containers that need none",
		},
		{
			name: "more GPUs than a claim has results", pools: []Pool{shared},
			pod:  makePod(main("a", "gpu", "16", "gpu-memory", "1Gi"), main("b", "gpu", "16", "gpu-memory", "1Gi"), main("c", "gpu-memory", "1Gi")),
			want: "the pod asks for 33 GPUs in all, more than the 32 that one pod may have: divide it into several pods",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := admit(tc.pod, tc.pools)
			if err == nil {
				t.Fatal("admitted")
			}
			if diff := cmp.Diff(tc.want, err.Error()); diff != "" {
				t.Errorf("sentence (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOnlyPoolsThatMayBeNewAreLookedUpAgain(t *testing.T) {
	shared := sharedPool("shared", 1)
	for _, tc := range []struct {
		name  string
		pod   *corev1.Pod
		pools []Pool
		want  bool
	}{
		{"no pool", makePod(main("a", "gpu", "1")), nil, true},
		{"an unknown pool", makePod(inPool("x"), main("a", "gpu", "1")), []Pool{shared}, true},
		{"a pool being deleted, which may have been created anew", makePod(inPool("shared"), main("a", "gpu", "1")), []Pool{deleting(shared)}, true},
		{"an amount above any GPU", makePod(main("a", "gpu-memory", "100Gi")), []Pool{shared}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := admit(tc.pod, tc.pools)
			var unknown *UnknownPoolError
			if got := errors.As(err, &unknown); got != tc.want {
				t.Errorf("unknown pool: got %v, want %v (%v)", got, tc.want, err)
			}
		})
	}
}
