// SPDX-License-Identifier: Apache-2.0

package memlimits_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/memlimits"
)

func software(mode v1alpha1.MemoryLimits) v1alpha1.GPUDecision {
	return v1alpha1.GPUDecision{Sharing: v1alpha1.SharingSoftware, Partitioning: v1alpha1.PartitioningNone, MemoryLimits: mode}
}

func TestDecide(t *testing.T) {
	works := memlimits.Probe{Answer: memlimits.Works, Backend: v1alpha1.LimitsBackendMisc}
	static := software("")
	static.Partitioning = v1alpha1.PartitioningMIG
	for _, tc := range []struct {
		name   string
		form   v1alpha1.GPUDecision
		driver string
		probe  memlimits.Probe
		held   v1alpha1.MemoryLimits
		reason string
	}{
		{name: "where the driver takes limits it holds them", form: software(""), probe: works, held: v1alpha1.MemoryLimitsDriver},
		{name: "Auto is the default", form: software(v1alpha1.MemoryLimitsAuto), probe: works, held: v1alpha1.MemoryLimitsDriver},
		{name: "a pool can leave them to the library", form: software(v1alpha1.MemoryLimitsInterceptor), probe: works,
			held: v1alpha1.MemoryLimitsInterceptor, reason: v1alpha1.ReasonPoolDecides},
		{name: "other sharing has none", form: v1alpha1.GPUDecision{Sharing: v1alpha1.SharingExclusive}, probe: works,
			held: v1alpha1.MemoryLimitsInterceptor, reason: v1alpha1.ReasonPoolDecides},
		{name: "MIG instances have none", form: static, probe: works, held: v1alpha1.MemoryLimitsInterceptor, reason: v1alpha1.ReasonMIGInstances},
		{name: "an old driver has none", form: software(""), driver: "580.159.04", probe: memlimits.Probe{Answer: memlimits.Unsupported},
			held: v1alpha1.MemoryLimitsInterceptor, reason: v1alpha1.ReasonDriverTooOld},
		{name: "a new driver that says so refuses", form: software(""), driver: "615.71.09", probe: memlimits.Probe{Answer: memlimits.Unsupported},
			held: v1alpha1.MemoryLimitsInterceptor, reason: v1alpha1.ReasonLimitsRefused},
		{name: "a refusal is one", form: software(v1alpha1.MemoryLimitsDriver), driver: "615.71.09", probe: memlimits.Probe{Answer: memlimits.Refused},
			held: v1alpha1.MemoryLimitsInterceptor, reason: v1alpha1.ReasonLimitsRefused},
		{name: "cgroup v1 has none", form: software(""), driver: "615.71.09", probe: memlimits.Probe{Answer: memlimits.NoCgroupV2},
			held: v1alpha1.MemoryLimitsInterceptor, reason: v1alpha1.ReasonCgroupV1},
		{name: "before anybody has asked nobody knows", form: software(""), driver: "615.71.09"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := memlimits.Decide(tc.form, tc.driver, tc.probe)
			if got.HeldBy != tc.held || got.Reason != tc.reason {
				t.Errorf("held by %q with reason %q, want %q and %q", got.HeldBy, got.Reason, tc.held, tc.reason)
			}
			if len(got.Message) > 512 {
				t.Errorf("the message has %d characters", len(got.Message))
			}
			if said := memlimits.Unheld(got); !strings.Contains(said, "or set sharing.memoryLimits to Auto") {
				t.Errorf("nobody is told what to do: %s", said)
			}
		})
	}
}

const (
	pod1   = "/kubepods.slice/kubepods-pod11111111_2222_3333_4444_555555555555.slice"
	pod2   = "/kubepods/burstable/pod21111111-2222-3333-4444-555555555555"
	first  = pod1 + "/cri-containerd-a.scope"
	second = pod1 + "/cri-containerd-b.scope"
	other  = pod2 + "/c"
	gib    = 1 << 30
)

func id(claim string) memlimits.ShareID { return memlimits.ShareID{ClaimUID: claim} }

func TestWanted(t *testing.T) {
	shares := map[memlimits.ShareID]memlimits.Share{
		id("a"): {ID: id("a"), GPU: "GPU-0", Guaranteed: 4 * gib, Limit: 8 * gib},
		id("b"): {ID: id("b"), GPU: "GPU-0", Guaranteed: 2 * gib, Limit: 4 * gib},
		id("c"): {ID: id("c"), GPU: "GPU-1", Guaranteed: gib, Limit: 2 * gib},
	}
	at := func(gpu, cgroup string) memlimits.Target { return memlimits.Target{GPU: gpu, Cgroup: cgroup} }
	for _, tc := range []struct {
		name       string
		backend    v1alpha1.LimitsBackend
		containers []memlimits.Container
		want       map[memlimits.Target]memlimits.Limits
	}{
		{
			name: "a container and its pod have the share's limit", backend: v1alpha1.LimitsBackendDmem,
			containers: []memlimits.Container{{Cgroup: first, Shares: []memlimits.ShareID{id("a")}}},
			want:       map[memlimits.Target]memlimits.Limits{at("GPU-0", first): {Hard: 8 * gib}, at("GPU-0", pod1): {Soft: 4 * gib, Hard: 8 * gib}},
		},
		{
			name: "two containers of a share have its limit each, and once together", backend: v1alpha1.LimitsBackendDmem,
			containers: []memlimits.Container{{Cgroup: first, Shares: []memlimits.ShareID{id("a")}}, {Cgroup: second, Shares: []memlimits.ShareID{id("a")}}},
			want: map[memlimits.Target]memlimits.Limits{
				at("GPU-0", first): {Hard: 8 * gib}, at("GPU-0", second): {Hard: 8 * gib}, at("GPU-0", pod1): {Soft: 4 * gib, Hard: 8 * gib},
			},
		},
		{
			name: "shares of a pod add up, by GPU", backend: v1alpha1.LimitsBackendDmem,
			containers: []memlimits.Container{
				{Cgroup: first, Shares: []memlimits.ShareID{id("a"), id("c")}}, {Cgroup: second, Shares: []memlimits.ShareID{id("b")}},
			},
			want: map[memlimits.Target]memlimits.Limits{
				at("GPU-0", first): {Hard: 8 * gib}, at("GPU-1", first): {Hard: 2 * gib}, at("GPU-0", second): {Hard: 4 * gib},
				at("GPU-0", pod1): {Soft: 6 * gib, Hard: 12 * gib}, at("GPU-1", pod1): {Soft: gib, Hard: 2 * gib},
			},
		},
		{
			name: "shares of a container add up, a share twice does not", backend: v1alpha1.LimitsBackendMisc,
			containers: []memlimits.Container{{Cgroup: first, Shares: []memlimits.ShareID{id("a"), id("b"), id("a")}}},
			want:       map[memlimits.Target]memlimits.Limits{at("GPU-0", first): {Soft: 6 * gib, Hard: 12 * gib}},
		},
		{
			name: "where limits do not nest the containers of a share divide its guarantee", backend: v1alpha1.LimitsBackendMisc,
			containers: []memlimits.Container{{Cgroup: first, Shares: []memlimits.ShareID{id("a")}}, {Cgroup: other, Shares: []memlimits.ShareID{id("a")}}},
			want:       map[memlimits.Target]memlimits.Limits{at("GPU-0", first): {Soft: 2 * gib, Hard: 8 * gib}, at("GPU-0", other): {Soft: 2 * gib, Hard: 8 * gib}},
		},
		{
			name: "two pods of a share have its limit each", backend: v1alpha1.LimitsBackendDmem,
			containers: []memlimits.Container{{Cgroup: first, Shares: []memlimits.ShareID{id("b")}}, {Cgroup: other, Shares: []memlimits.ShareID{id("b")}}},
			want: map[memlimits.Target]memlimits.Limits{
				at("GPU-0", first): {Hard: 4 * gib}, at("GPU-0", pod1): {Soft: 2 * gib, Hard: 4 * gib},
				at("GPU-0", other): {Hard: 4 * gib}, at("GPU-0", pod2): {Soft: 2 * gib, Hard: 4 * gib},
			},
		},
		{
			name: "no limit is above what the GPU has", backend: v1alpha1.LimitsBackendDmem,
			containers: []memlimits.Container{{Cgroup: "/elsewhere/c", Shares: []memlimits.ShareID{id("a"), id("b"), id("unknown")}}},
			want:       map[memlimits.Target]memlimits.Limits{at("GPU-0", "/elsewhere/c"): {Hard: 12 * gib}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			gpu := memlimits.GPU{Backend: tc.backend, Bytes: 12 * gib}
			got := memlimits.Wanted(tc.containers, shares, map[string]memlimits.GPU{"GPU-0": gpu, "GPU-1": gpu})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("limits (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGuaranteesOfAGPUFitIntoIt(t *testing.T) {
	for _, percent := range []int32{100, 130, 150, 400} {
		const shares = 7
		physical := uint64(141) * gib
		limit := physical / (1 << 20) * uint64(percent) / 100 / shares * (1 << 20)
		if sum := shares * memlimits.Guaranteed(limit, percent); sum > physical || sum < physical/100*99 {
			t.Errorf("at %d %% %d shares are guaranteed %d bytes of %d", percent, shares, sum, physical)
		}
	}
}

func TestPod(t *testing.T) {
	for cgroup, want := range map[string]string{
		first: pod1, other: pod2, first + "/container": pod1, pod1: "", "/system.slice/x": "", "/": "", "": "",
		"/kubepods/podnot-a-uid/c": "",
	} {
		if got := memlimits.Pod(cgroup); got != want {
			t.Errorf("the pod of %q is %q, want %q", cgroup, got, want)
		}
	}
}
