// SPDX-License-Identifier: Apache-2.0

package devices_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/devices"
	"github.com/sluice-gpu/sluice/test/builders"
)

func TestStartOrder(t *testing.T) {
	cases := []struct {
		name, board, profile string
		want                 []int
	}{
		{"seven slices, 1g leaves 4g and a 3g for last", "h100-80gb", "1g.10gb", []int{6, 4, 5, 0, 1, 2, 3}},
		{"the suffix does not change the order", "h100-80gb", "1g.10gb+me", []int{6, 4, 5, 0, 1, 2, 3}},
		{"1g of double memory", "h100-80gb", "1g.20gb", []int{6, 4, 0, 2}},
		{"2g", "a100-80gb", "2g.20gb", []int{4, 0, 2}},
		{"3g keeps 4g placeable", "a100-80gb", "3g.40gb", []int{4, 0}},
		{"the whole GPU", "a100-80gb", "7g.80gb", []int{0}},
		{"four slices ascend", "a30-24gb", "1g.6gb", []int{0, 1, 2, 3}},
		{"four slices, 2g", "a30-24gb", "2g.12gb", []int{0, 2}},
		{"twelve memory slices", "rtxpro6000-96gb", "1g.24gb", []int{0, 3, 6, 9}},
	}
	boards := builders.Boards(t)
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			g := boards[tc.board]
			profile, ok := g.Profile(tc.profile)
			if !ok {
				t.Fatalf("board %s has no profile %s", tc.board, tc.profile)
			}
			if diff := cmp.Diff(tc.want, devices.StartOrder(g, profile)); diff != "" {
				t.Errorf("start order (-want +got):\n%s", diff)
			}
		})
	}
}

// firstFit is the scheduler's allocator reduced to what decides about one GPU: the first device of the profile whose
// counters are all free.
func firstFit(published []resourceapi.Device, set *resourceapi.CounterSet) func(profile string) string {
	free := map[string]int64{}
	for name, c := range set.Counters {
		free[name] = c.Value.Value()
	}
	return func(profile string) string {
	next:
		for _, d := range published {
			if *d.Attributes[v1alpha1.AttributeProfile].StringValue != profile {
				continue
			}
			for name, c := range d.ConsumesCounters[0].Counters {
				if free[name] < c.Value.Value() {
					continue next
				}
			}
			for name, c := range d.ConsumesCounters[0].Counters {
				free[name] -= c.Value.Value()
			}
			return d.Name
		}
		return ""
	}
}

func TestFirstFitPacks(t *testing.T) {
	cases := []struct {
		name, board string
		ask         []string
		fit         int
	}{
		{"seven small ones and no eighth", "a100-80gb",
			[]string{"1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb"}, 7},
		{"three small, then a 3g", "a100-80gb", []string{"1g.10gb", "1g.10gb", "1g.10gb", "3g.40gb"}, 4},
		{"three small, then a 4g", "a100-80gb", []string{"1g.10gb", "1g.10gb", "1g.10gb", "4g.40gb"}, 4},
		{"a 3g, then four small, no fifth", "a100-80gb",
			[]string{"3g.40gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb"}, 5},
		{"a 3g and a 4g fill the GPU", "h200-141gb", []string{"3g.71gb", "4g.71gb", "1g.18gb"}, 2},
		{"one instance with media engines", "h100-80gb", []string{"1g.10gb+me", "1g.10gb+me"}, 1},
		{"all media engines leave none for a plain instance", "rtxpro6000-96gb", []string{"1g.24gb+me.all", "1g.24gb"}, 1},
		{"all media engines beside an instance without any", "rtxpro6000-96gb", []string{"1g.24gb+me.all", "1g.24gb-me"}, 2},
	}
	boards := builders.Boards(t)
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			allocate := firstFit(devices.Build(devices.Offer{GPU: boards[tc.board], Decision: migDecision()}))
			got := 0
			for _, profile := range tc.ask {
				if allocate(profile) != "" {
					got++
				}
			}
			if got != tc.fit {
				t.Errorf("%v: %d fit, want %d", tc.ask, got, tc.fit)
			}
		})
	}
}

// A counter too many blocks layouts that the hardware takes: every set of placements that do not overlap of one
// profile must be allocatable on every board, unless the board itself allows fewer instances than it has starts for.
func TestCountersBlockNoLayoutOfPlainInstances(t *testing.T) {
	for key, g := range builders.Boards(t) {
		t.Run(key, func(t *testing.T) {
			_, set := devices.Build(devices.Offer{GPU: g, Decision: migDecision()})
			for _, profile := range g.Profiles {
				if profile.Max < len(profile.Starts) {
					continue
				}
				published, _ := devices.Build(devices.Offer{GPU: g, Decision: migDecision()})
				allocate := firstFit(published, set)
				got := 0
				for allocate(profile.Name) != "" {
					got++
				}
				if want := profile.Max; got != want {
					t.Errorf("%s: %d instances fit, want %d", profile.Name, got, want)
				}
			}
		})
	}
}

func TestEveryBoardKeepsTheLimitsOfOneSlice(t *testing.T) {
	for key, g := range builders.Boards(t) {
		published, set := devices.Build(devices.Offer{GPU: g, Decision: migDecision()})
		if len(published) > 64 {
			t.Errorf("%s: %d devices in one slice, the API server takes 64 that consume counters", key, len(published))
		}
		if len(set.Counters) > 32 {
			t.Errorf("%s: %d counters in one set, the API server takes 32", key, len(set.Counters))
		}
		names := map[string]bool{}
		for _, d := range published {
			if names[d.Name] {
				t.Errorf("%s: two devices named %s", key, d.Name)
			}
			names[d.Name] = true
			if _, p, ok := devices.FindPlacement(g, 0, d.Name); !ok || devices.PlacementName(0, p) != d.Name {
				t.Errorf("%s: %s does not lead back to its placement", key, d.Name)
			}
		}
	}
}

func migDecision() v1alpha1.GPUDecision {
	return v1alpha1.GPUDecision{
		Pool: "mig", Partitioning: v1alpha1.PartitioningMIG, Sharing: v1alpha1.SharingExclusive,
		MemoryPercent: 100, ComputePercent: 100,
	}
}
