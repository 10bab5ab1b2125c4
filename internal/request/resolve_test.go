// SPDX-License-Identifier: Apache-2.0

package request

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// admit is what the webhook does with a pod.
func admit(pod *corev1.Pod, pools []Pool) (Resolution, error) {
	asks, err := Parse(pod)
	if err != nil {
		return Resolution{}, err
	}
	return Resolve(asks, pools)
}

func TestAdmitted(t *testing.T) {
	shared, mig, exclusive := sharedPool("shared", 4), migPool("mig", a100), exclusivePool("whole", 2)
	withDefaults := sharedPool("shared", 4)
	withDefaults.DefaultMemory, withDefaults.DefaultCompute = 8*gibi, 20

	for _, tc := range []struct {
		name     string
		pod      *corev1.Pod
		pools    []Pool
		want     string
		uses     map[string]string
		warnings []string
	}{
		{
			name:  "memory and compute of the only pool become one request named after the container",
			pod:   makePod(main("trainer", "gpu-memory", "10Gi", "gpu-compute", "30")),
			pools: []Pool{shared},
			want:  `{"version":1,"pool":"shared","form":"Shared","requests":[{"name":"trainer","count":1,"memoryMi":10240,"compute":30}]}`,
			uses:  map[string]string{"trainer": "trainer"},
		},
		{
			name:  "memory is rounded up to whole Mi",
			pod:   makePod(main("a", "gpu-memory", "1048577")),
			pools: []Pool{shared},
			want:  `{"version":1,"pool":"shared","form":"Shared","requests":[{"name":"a","count":1,"memoryMi":2}]}`,
			uses:  map[string]string{"a": "a"},
		},
		{
			name:     "bytes without a unit are admitted with a warning",
			pod:      makePod(main("a", "gpu-memory", "10")),
			pools:    []Pool{shared},
			want:     `{"version":1,"pool":"shared","form":"Shared","requests":[{"name":"a","count":1,"memoryMi":1}]}`,
			uses:     map[string]string{"a": "a"},
			warnings: []string{`container "a": sluice.dev/gpu-memory: 10 means 10 bytes and is rounded up to 1Mi: write 10Gi for 10 GiB`},
		},
		{
			name:  "several GPUs take the amounts of each",
			pod:   makePod(main("a", "gpu", "2", "gpu-memory", "40Gi")),
			pools: []Pool{shared},
			want:  `{"version":1,"pool":"shared","form":"Shared","requests":[{"name":"a","count":2,"memoryMi":40960}]}`,
			uses:  map[string]string{"a": "a"},
		},
		{
			name:     "more GPUs than any node has are admitted with a warning",
			pod:      makePod(main("a", "gpu", "8", "gpu-memory", "40Gi")),
			pools:    []Pool{shared},
			want:     `{"version":1,"pool":"shared","form":"Shared","requests":[{"name":"a","count":8,"memoryMi":40960}]}`,
			uses:     map[string]string{"a": "a"},
			warnings: []string{`container "a": sluice.dev/gpu: 8, but no node has more than 4 such GPUs in pool shared: the pod waits for a larger node`},
		},
		{
			name:     "a GPU without an amount is a whole GPU's memory, said in a warning",
			pod:      makePod(main("a", "gpu", "1")),
			pools:    []Pool{shared},
			want:     `{"version":1,"pool":"shared","form":"Shared","requests":[{"name":"a","count":1}]}`,
			uses:     map[string]string{"a": "a"},
			warnings: []string{`container "a": without sluice.dev/gpu-memory it takes all memory of a GPU of pool shared: add what it needs, such as 10Gi`},
		},
		{
			name:  "a GPU without an amount where the pool has a default needs no warning",
			pod:   makePod(main("a", "gpu", "1")),
			pools: []Pool{withDefaults},
			want:  `{"version":1,"pool":"shared","form":"Shared","requests":[{"name":"a","count":1}]}`,
			uses:  map[string]string{"a": "a"},
		},
		{
			name:  "the pool that the label names is taken, whichever is the default",
			pod:   makePod(inPool("whole"), main("a", "gpu", "2")),
			pools: []Pool{asDefault(shared), exclusive},
			want:  `{"version":1,"pool":"whole","form":"Exclusive","requests":[{"name":"a","count":2}]}`,
			uses:  map[string]string{"a": "a"},
		},
		{
			name:  "without a label the default pool is taken",
			pod:   makePod(main("a", "gpu", "1", "gpu-memory", "1Gi")),
			pools: []Pool{exclusive, asDefault(shared)},
			want:  `{"version":1,"pool":"shared","form":"Shared","requests":[{"name":"a","count":1,"memoryMi":1024}]}`,
			uses:  map[string]string{"a": "a"},
		},
		{
			name:  "a pool being deleted does not make the other one ambiguous",
			pod:   makePod(main("a", "gpu", "1")),
			pools: []Pool{exclusive, deleting(shared)},
			want:  `{"version":1,"pool":"whole","form":"Exclusive","requests":[{"name":"a","count":1}]}`,
			uses:  map[string]string{"a": "a"},
		},
		{
			name:     "a pool without a GPU yet takes any amount: the pod waits",
			pod:      makePod(main("a", "gpu-memory", "500Gi")),
			pools:    []Pool{sharedPool("empty", 0)},
			want:     `{"version":1,"pool":"empty","form":"Shared","requests":[{"name":"a","count":1,"memoryMi":512000}]}`,
			uses:     map[string]string{"a": "a"},
			warnings: []string{`container "a": pool empty has no GPU yet: the pod waits until it has`},
		},
		{
			name: "each asking container has a request of its own, ordered by name",
			pod: makePod(main("web"), main("b", "gpu-memory", "2Gi"), main("a", "gpu-memory", "1Gi"),
				sidecar("cache", "gpu-memory", "3Gi")),
			pools: []Pool{shared},
			want: `{"version":1,"pool":"shared","form":"Shared","requests":[{"name":"a","count":1,"memoryMi":1024},` +
				`{"name":"b","count":1,"memoryMi":2048},{"name":"cache","count":1,"memoryMi":3072}]}`,
			uses: map[string]string{"a": "a", "b": "b", "cache": "cache"},
		},
		{
			name: "an init container shares the first asking main container's request",
			pod: makePod(initial("load", "gpu-memory", "2Gi"), main("web"), main("b", "gpu-memory", "2Gi"),
				main("a", "gpu-memory", "9Gi")),
			pools: []Pool{shared},
			want: `{"version":1,"pool":"shared","form":"Shared","requests":[{"name":"a","count":1,"memoryMi":9216},` +
				`{"name":"b","count":1,"memoryMi":2048}]}`,
			uses: map[string]string{"load": "b", "a": "a", "b": "b"},
		},
		{
			name:  "an init container shares a sidecar's request where only that asks",
			pod:   makePod(initial("load", "gpu-memory", "2Gi"), sidecar("cache", "gpu-memory", "3Gi"), main("web")),
			pools: []Pool{shared},
			want:  `{"version":1,"pool":"shared","form":"Shared","requests":[{"name":"cache","count":1,"memoryMi":3072}]}`,
			uses:  map[string]string{"load": "cache", "cache": "cache"},
		},
		{
			name:  "an init container may ask for any memory of a container that takes the whole GPU",
			pod:   makePod(initial("load", "gpu-memory", "70Gi"), main("a", "gpu", "1", "gpu-compute", "50")),
			pools: []Pool{shared},
			want:  `{"version":1,"pool":"shared","form":"Shared","requests":[{"name":"a","count":1,"compute":50}]}`,
			uses:  map[string]string{"load": "a", "a": "a"},
			warnings: []string{
				`container "a": without sluice.dev/gpu-memory it takes all memory of a GPU of pool shared: add what it needs, such as 10Gi`,
			},
		},
		{
			name: "init containers alone share one request with the largest amounts",
			pod: makePod(initial("one", "gpu-memory", "2Gi", "gpu-compute", "50"), initial("two", "gpu", "2", "gpu-memory", "4Gi"),
				main("web")),
			pools: []Pool{shared},
			want:  `{"version":1,"pool":"shared","form":"Shared","requests":[{"name":"one","count":2,"memoryMi":4096,"compute":50}]}`,
			uses:  map[string]string{"one": "one", "two": "one"},
		},
		{
			name:  "an init container without an amount counts with the pool's default",
			pod:   makePod(initial("one", "gpu-memory", "2Gi"), initial("two", "gpu", "1"), main("web")),
			pools: []Pool{withDefaults},
			want:  `{"version":1,"pool":"shared","form":"Shared","requests":[{"name":"one","count":1}]}`,
			uses:  map[string]string{"one": "one", "two": "one"},
		},
		{
			name:  "9Gi in a MIG pool is a 1g.10gb, else one larger profile of each size, the one with the least compute",
			pod:   makePod(main("a", "gpu-memory", "9Gi")),
			pools: []Pool{mig},
			want: `{"version":1,"pool":"mig","form":"MIG","requests":[{"name":"a","count":1,"memoryMi":9216,` +
				`"profiles":["1g.10gb","1g.20gb","3g.40gb","7g.80gb"]}]}`,
			uses: map[string]string{"a": "a"},
		},
		{
			name:  "10Gi does not fit a 1g.10gb, and the tenant hears of it",
			pod:   makePod(main("a", "gpu-memory", "10Gi")),
			pools: []Pool{mig},
			want: `{"version":1,"pool":"mig","form":"MIG","requests":[{"name":"a","count":1,"memoryMi":10240,` +
				`"profiles":["1g.20gb","3g.40gb","7g.80gb"]}]}`,
			uses:     map[string]string{"a": "a"},
			warnings: []string{`container "a": 10Gi does not fit 1g.10gb (9.5Gi): takes 1g.20gb (19.5Gi) or larger`},
		},
		{
			name:  "compute chooses among profiles of equal memory",
			pod:   makePod(main("a", "gpu-memory", "15Gi", "gpu-compute", "25")),
			pools: []Pool{mig},
			want: `{"version":1,"pool":"mig","form":"MIG","requests":[{"name":"a","count":1,"memoryMi":15360,"compute":25,` +
				`"profiles":["2g.20gb","3g.40gb","7g.80gb"]}]}`,
			uses: map[string]string{"a": "a"},
		},
		{
			name:  "compute alone is enough in a MIG pool",
			pod:   makePod(main("a", "gpu-compute", "50")),
			pools: []Pool{mig},
			want: `{"version":1,"pool":"mig","form":"MIG","requests":[{"name":"a","count":1,"compute":50,` +
				`"profiles":["4g.40gb","7g.80gb"]}]}`,
			uses: map[string]string{"a": "a"},
		},
		{
			name:  "alternatives go over all boards of a mixed pool, the smallest first",
			pod:   makePod(main("a", "gpu-memory", "5Gi")),
			pools: []Pool{migPool("mig", a100, a30)},
			want: `{"version":1,"pool":"mig","form":"MIG","requests":[{"name":"a","count":1,"memoryMi":5120,` +
				`"profiles":["1g.6gb","1g.10gb","2g.12gb","1g.20gb","4g.24gb","3g.40gb","7g.80gb"]}]}`,
			uses: map[string]string{"a": "a"},
		},
		{
			name:  "a profile of two boards is one alternative, even if only one of them holds the amount",
			pod:   makePod(main("a", "gpu-memory", "9900Mi")),
			pools: []Pool{migPool("mig", a100, h100)},
			want: `{"version":1,"pool":"mig","form":"MIG","requests":[{"name":"a","count":1,"memoryMi":9900,` +
				`"profiles":["1g.10gb","1g.20gb","3g.40gb","7g.80gb"]}]}`,
			uses: map[string]string{"a": "a"},
		},
		{
			name:  "several MIG instances in one container come with a warning",
			pod:   makePod(main("a", "gpu", "2", "gpu-memory", "60Gi")),
			pools: []Pool{mig},
			want:  `{"version":1,"pool":"mig","form":"MIG","requests":[{"name":"a","count":2,"memoryMi":61440,"profiles":["7g.80gb"]}]}`,
			uses:  map[string]string{"a": "a"},
			warnings: []string{
				`container "a": sluice.dev/gpu: 2 gives 2 MIG instances, but one CUDA process sees only one of them`,
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := admit(tc.pod, tc.pools)
			if err != nil {
				t.Fatalf("refused: %v", err)
			}
			encoded, err := got.Canonical.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, encoded); diff != "" {
				t.Errorf("canonical request (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.uses, got.RequestOf); diff != "" {
				t.Errorf("requests by container (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.warnings, got.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if _, err := Decode(encoded); err != nil {
				t.Errorf("the canonical request cannot be read back: %v", err)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	shared, mig, exclusive := sharedPool("shared", 4), migPool("mig", a100), exclusivePool("whole", 2)
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
				`sluice.dev/gpu: 2, or name a pool that shares its GPUs in the label sluice.dev/pool`,
		},
		{
			name: "a GPU without an amount in a MIG pool", pod: makePod(main("a", "gpu", "1")), pools: []Pool{mig},
			want: `container "a": pool mig gives MIG instances, so sluice.dev/gpu alone does not say how large: add ` +
				`sluice.dev/gpu-memory, such as 10Gi, or write nvidia.com/mig-1g.10gb: 1 in place of it`,
		},
		{
			name: "more memory than any profile", pod: makePod(main("a", "gpu-memory", "79.5Gi")), pools: []Pool{mig},
			want: `container "a": no MIG instance of pool mig holds sluice.dev/gpu: 1, sluice.dev/gpu-memory: 81408Mi; the largest, ` +
				`7g.80gb, has 79Gi and 100 % of the compute: ask for at most 79Gi, or name a pool of larger GPUs in the label sluice.dev/pool`,
		},
		{
			name: "a MIG pool without a GPU yet", pod: makePod(main("a", "gpu-memory", "1Gi")), pools: []Pool{migPool("mig")},
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
				`(sluice.dev/gpu: 1, sluice.dev/gpu-memory: 2Gi), whose GPUs it uses before that starts: write the larger amounts at container "a"`,
		},
		{
			name: "a claim of the name that admission uses", pools: []Pool{shared},
			pod: makePod(claim("sluice", "mine"), main("a", "gpu-memory", "2Gi")),
			want: `the pod has a claim named "sluice" of its own, the name under which its sluice.dev/* limits become a claim: ` +
				`give spec.resourceClaims another name`,
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
