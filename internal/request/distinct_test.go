// SPDX-License-Identifier: Apache-2.0

package request

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestOneClaimNeverHoldsMoreOfAGPUThanThereIs(t *testing.T) {
	withDefaults := sharedPool("shared", 2)
	withDefaults.DefaultMemory, withDefaults.DefaultCompute = 30*gibi, 60
	mixed := sharedPool("shared", 2)
	mixed.GPUs[1].Memory = mi(24002)
	apart := sharedPool("shared", 2)
	apart.GPUs[1].Node = "n2"
	needs := func(gpus, most string) []string {
		return []string{"the containers ask for more than one GPU has, so they need " + gpus + " different GPUs, but no node has more than " +
			most + " such GPUs in pool shared: the pod waits for a larger node"}
	}
	whole := `container "b": without sluice.dev/gpu-memory it takes all memory of a GPU of pool shared: add what it needs, such as 10Gi`

	for _, tc := range []struct {
		name     string
		pod      *corev1.Pod
		pool     Pool
		want     bool
		warnings []string
	}{
		{name: "memory that one GPU has in all", pod: makePod(main("a", "gpu-memory", "40Gi"), main("b", "gpu-memory", "39.25Gi")), pool: sharedPool("shared", 2)},
		{name: "a Mi more than one GPU has", pod: makePod(main("a", "gpu-memory", "40Gi"), main("b", "gpu-memory", "40193Mi")), pool: sharedPool("shared", 2), want: true},
		{name: "compute that one GPU has in all", pod: makePod(main("a", "gpu-memory", "1Gi", "gpu-compute", "50"), main("b", "gpu-memory", "1Gi", "gpu-compute", "50")), pool: sharedPool("shared", 2)},
		{name: "more compute than one GPU has", pod: makePod(main("a", "gpu-memory", "1Gi", "gpu-compute", "50"), main("b", "gpu-memory", "1Gi", "gpu-compute", "51")), pool: sharedPool("shared", 2), want: true},
		{name: "memory that the pool's smallest GPU does not have", pod: makePod(main("a", "gpu-memory", "12Gi"), main("b", "gpu-memory", "12Gi")), pool: mixed, want: true},
		{name: "the whole memory of a GPU beside some", pod: makePod(main("a", "gpu-memory", "1Gi"), main("b", "gpu", "1")), pool: sharedPool("shared", 2), want: true, warnings: []string{whole}},
		{name: "default memory counts", pod: makePod(main("a", "gpu-memory", "50Gi"), main("b", "gpu-compute", "1")), pool: withDefaults, want: true},
		{name: "default compute counts", pod: makePod(main("a", "gpu-memory", "1Gi", "gpu-compute", "41"), main("b", "gpu-memory", "1Gi")), pool: withDefaults, want: true},
		{name: "a sidecar counts", pod: makePod(main("a", "gpu-memory", "59Gi"), sidecar("s", "gpu-memory", "59Gi")), pool: sharedPool("shared", 2), want: true},
		{name: "an init container shares the main container's", pod: makePod(main("a", "gpu-memory", "59Gi"), initial("i", "gpu-memory", "59Gi")), pool: sharedPool("shared", 2)},
		{name: "the GPUs of one container are different anyway", pod: makePod(main("a", "gpu", "2", "gpu-memory", "59Gi")), pool: sharedPool("shared", 2)},
		{name: "what the GPUs have is not known yet", pod: makePod(main("a", "gpu-memory", "1Gi"), main("b", "gpu-memory", "1Gi")), pool: sharedPool("shared", 0), want: true, warnings: []string{
			`container "a": pool shared has no GPU yet: the pod waits until it has`, `container "b": pool shared has no GPU yet: the pod waits until it has`,
		}},
		{name: "more GPUs than a node has come with a warning", pod: makePod(main("a", "gpu", "2", "gpu-memory", "59Gi"), main("b", "gpu-memory", "59Gi")), pool: sharedPool("shared", 2), want: true, warnings: needs("3", "2")},
		{name: "GPUs of different nodes do not help", pod: makePod(main("a", "gpu-memory", "59Gi"), main("b", "gpu-memory", "59Gi")), pool: apart, want: true, warnings: needs("2", "1")},
		{name: "GPUs that are too small do not help", pod: makePod(main("a", "gpu-memory", "59Gi"), main("b", "gpu-memory", "59Gi")), pool: mixed, want: true, warnings: needs("2", "1")},
		{name: "whole GPUs are different anyway", pod: makePod(main("a", "gpu", "1"), main("b", "gpu", "1")), pool: exclusivePool("whole", 2)},
		{name: "MIG instances are different anyway", pod: makePod(main("a", "gpu-memory", "60Gi"), main("b", "gpu-memory", "60Gi")), pool: migPool(a100)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := admit(tc.pod, []Pool{tc.pool})
			if err != nil {
				t.Fatalf("refused: %v", err)
			}
			if got.Canonical.Distinct != tc.want {
				t.Errorf("distinct: got %v, want %v", got.Canonical.Distinct, tc.want)
			}
			if diff := cmp.Diff(tc.warnings, got.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			encoded, err := got.Canonical.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Decode(encoded); err != nil {
				t.Errorf("the canonical request cannot be read back: %v", err)
			}
		})
	}
}

func TestAPoolWhoseGPUsAreBeingChangedSaysSo(t *testing.T) {
	got, err := admit(makePod(main("a", "gpu", "1")), []Pool{changing(exclusivePool("training", 0), 2)})
	if err != nil {
		t.Fatalf("refused: %v", err)
	}
	want := []string{`container "a": pool training has no GPU in the form it wants yet (2 are being changed, see kubectl get gpupool training): ` +
		`the pod waits until it has`}
	if diff := cmp.Diff(want, got.Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}
