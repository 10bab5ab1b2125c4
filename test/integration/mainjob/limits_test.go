// SPDX-License-Identifier: Apache-2.0

package mainjob

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// Offsets of version 1 of the limits page, as interceptor/include/sluice_abi.h gives them.
const (
	offsetMagic, offsetVersion        = 0, 4
	offsetMemoryLimit                 = 48
	offsetComputeShare, offsetEnforce = 72, 80
	magicOfLimits, versionOfLimits    = 0x45434c53, 2
	enforceMemoryAndCompute           = 3
)

// What the scheduler granted is what the library will read: one page a result, on the node, from the first day.
func TestAShareSaysWhatWasGranted(t *testing.T) {
	s := newScene(t)
	s.node(stack.Node{Name: "limits", Pool: "limits", Board: "h100-80gb", GPUs: 1})
	s.pool(builders.MakePool("limits").Overcommit(150, 100).Obj())
	pod := s.pod(builders.MakePod("two").Pool("limits").Memory("10Gi").Compute("30").
		Container("second").Memory("3000Mi").Obj())
	s.running(pod)

	var claim resourceapi.ResourceClaim
	key := client.ObjectKey{Namespace: pod.Namespace, Name: *pod.Status.ResourceClaimStatuses[0].ResourceClaimName}
	if err := cluster.Client.Get(s.Context(), key, &claim); err != nil {
		t.Fatal(err)
	}
	shares := filepath.Join(cluster.Dir, "nodes", "limits", "shares", string(claim.UID))
	for i, want := range []struct{ memory, compute uint64 }{{10 << 30, 3000}, {3000 << 20, 0}} {
		page, err := os.ReadFile(filepath.Join(shares, strconv.Itoa(i), "limits"))
		if err != nil {
			t.Fatal(err)
		}
		word := func(offset int) uint64 { return uint64(binary.LittleEndian.Uint32(page[offset:])) }
		if word(offsetMagic) != magicOfLimits || word(offsetVersion) != versionOfLimits {
			t.Errorf("share %d: magic %#x, version %d", i, word(offsetMagic), word(offsetVersion))
		}
		if got := binary.LittleEndian.Uint64(page[offsetMemoryLimit:]); got != want.memory {
			t.Errorf("share %d: %d bytes of memory, want %d", i, got, want.memory)
		}
		if got := word(offsetComputeShare); got != want.compute {
			t.Errorf("share %d: compute %d hundredths of a percent, want %d", i, got, want.compute)
		}
		if got := word(offsetEnforce); got != enforceMemoryAndCompute {
			t.Errorf("share %d: enforce bits %d, want %d", i, got, enforceMemoryAndCompute)
		}
	}

	s.remove(pod)
	if _, err := os.Stat(shares); !os.IsNotExist(err) {
		t.Errorf("the pod is gone, its shares are not: %v", err)
	}
}

func TestANodeMayHaveMoreThanEightGPUs(t *testing.T) {
	s := newScene(t)
	const gpus = 11
	s.node(stack.Node{Name: "many", Pool: "many", Board: "h200-141gb", GPUs: gpus, MIG: true})
	s.pool(builders.MakePool("many").MIG().Obj())
	var list resourceapi.ResourceSliceList
	if err := cluster.Client.List(s.Context(), &list); err != nil {
		t.Fatal(err)
	}
	sets := 0
	for _, slice := range list.Items {
		if slice.Spec.Pool.Name == "many" {
			sets += len(slice.Spec.SharedCounters)
		}
	}
	const placements = 7 + 7 + 4 + 3 + 2 + 1 + 1 // of 1g, 1g+me, 1g of double memory, 2g, 3g, 4g and 7g
	if got := len(s.published("many")); sets != gpus || got != gpus*placements {
		t.Errorf("%d counter sets and %d devices are published, want %d and %d", sets, got, gpus, gpus*placements)
	}
	var pods []*corev1.Pod
	for i := range gpus { // each takes a GPU of 140 GiB whole
		pods = append(pods, s.pod(builders.MakePod("whole-"+strconv.Itoa(i)).Pool("many").Memory("139Gi").Obj()))
	}
	s.running(pods...)
}
