// SPDX-License-Identifier: Apache-2.0

package request

import (
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
	shared, mig, exclusive := sharedPool("shared", 4), migPool(a100), exclusivePool("whole", 2)
	withDefaults := sharedPool("shared", 4)
	withDefaults.DefaultMemory, withDefaults.DefaultCompute = 8*gibi, 20
	counted := sharedPool("shared", 4)
	counted.LeastMemory = 0

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
			pools: []Pool{counted},
			want:  `{"version":1,"pool":"shared","form":"Shared","requests":[{"name":"a","count":1,"memoryMi":2}]}`,
			uses:  map[string]string{"a": "a"},
		},
		{
			name:     "bytes without a unit are admitted with a warning",
			pod:      makePod(main("a", "gpu-memory", "10")),
			pools:    []Pool{counted},
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
			pools: []Pool{migPool(a100, a30)},
			want: `{"version":1,"pool":"mig","form":"MIG","requests":[{"name":"a","count":1,"memoryMi":5120,` +
				`"profiles":["1g.6gb","1g.10gb","2g.12gb","1g.20gb","4g.24gb","3g.40gb","7g.80gb"]}]}`,
			uses: map[string]string{"a": "a"},
		},
		{
			name:  "a profile of two boards is one alternative, even if only one of them holds the amount",
			pod:   makePod(main("a", "gpu-memory", "9900Mi")),
			pools: []Pool{migPool(a100, h100)},
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
