// SPDX-License-Identifier: Apache-2.0

package memlimits

import (
	"cmp"
	"path"
	"regexp"
	"slices"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

const mebibyte = 1 << 20

// ShareID names a share: a result of a claim's allocation.
type ShareID struct {
	ClaimUID string `json:"claimUID"`
	Result   int    `json:"result"`
}

// Share is what a share may hold.
type Share struct {
	ID ShareID
	// GPU is the UUID of its GPU.
	GPU string
	// Guaranteed and Limit are bytes.
	Guaranteed, Limit uint64
}

// Container is the cgroup of a container, with the shares that it was given.
type Container struct {
	// Cgroup is its path below the root of the cgroup file system, such as /kubepods/pod1/c1.
	Cgroup string
	Shares []ShareID
}

// Target is a cgroup whose memory on a GPU is to be limited.
type Target struct {
	GPU, Cgroup string
}

// Limits are those of a target, in bytes.
type Limits struct {
	Soft, Hard uint64
}

// GPU is what the limits on a GPU depend on.
type GPU struct {
	Backend v1alpha1.LimitsBackend
	// Bytes is what the GPU has: no limit is above it.
	Bytes uint64
}

// Guaranteed is what a share of so much memory can count on, where the GPU is sold to so many percent: its part of what is
// there, in whole MiB. All shares of a GPU together are guaranteed no more than the GPU has.
func Guaranteed(limit uint64, memoryPercent int32) uint64 {
	if memoryPercent <= 100 {
		return limit
	}
	return limit / mebibyte * 100 / uint64(memoryPercent) * mebibyte
}

// Wanted are the limits for containers of which shares are known. What a container's processes hold is limited at its own
// cgroup, where they see it too; what the containers of a pod hold together at the pod's, where limits nest.
//
// A guarantee is given where it can be taken back: a container's cgroup is removed by the runtime at any time, and with the
// kernel's controller what it had reserved of its ancestors' memory stays behind. So it is given to the pod there. The
// driver's own map forgets a cgroup as a whole; there each container of a share has an equal part of its guarantee.
func Wanted(containers []Container, shares map[ShareID]Share, gpus map[string]GPU) map[Target]Limits {
	users := map[ShareID]uint64{}
	for _, c := range containers {
		for _, id := range distinct(c.Shares) {
			users[id]++
		}
	}
	wanted := sums{}
	pods := map[string][]ShareID{}
	for _, c := range containers {
		for _, id := range distinct(c.Shares) {
			if s, known := shares[id]; known {
				wanted.add(Target{GPU: s.GPU, Cgroup: c.Cgroup}, part(s, users[id], gpus), s.Limit)
			}
		}
		if pod := Pod(c.Cgroup); pod != "" {
			pods[pod] = append(pods[pod], c.Shares...)
		}
	}
	for pod, ids := range pods {
		for _, id := range distinct(ids) {
			s, known := shares[id]
			if known && gpus[s.GPU].Backend == v1alpha1.LimitsBackendDmem {
				wanted.add(Target{GPU: s.GPU, Cgroup: pod}, s.Guaranteed, s.Limit)
			}
		}
	}
	for t, l := range wanted {
		hard := min(l.Hard, gpus[t.GPU].Bytes)
		wanted[t] = Limits{Soft: min(l.Soft, hard), Hard: hard}
	}
	return wanted
}

// part is what one of a share's containers is guaranteed at its own cgroup.
func part(s Share, containers uint64, gpus map[string]GPU) uint64 {
	if gpus[s.GPU].Backend != v1alpha1.LimitsBackendMisc {
		return 0
	}
	return s.Guaranteed / containers / mebibyte * mebibyte
}

// sums are limits that add up.
type sums map[Target]Limits

func (s sums) add(t Target, soft, hard uint64) {
	l := s[t]
	s[t] = Limits{Soft: l.Soft + soft, Hard: l.Hard + hard}
}

func distinct(ids []ShareID) []ShareID {
	sorted := slices.SortedFunc(slices.Values(ids), func(a, b ShareID) int {
		return cmp.Or(cmp.Compare(a.ClaimUID, b.ClaimUID), cmp.Compare(a.Result, b.Result))
	})
	return slices.Compact(sorted)
}

// podName is how kubelet names a pod's cgroup, for both cgroup drivers.
var podName = regexp.MustCompile(`(^|-)pod[0-9a-f]{8}([-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}(\.slice)?$`)

// Pod is the cgroup of the pod that a container's cgroup belongs to; "" where that is not to be seen from the path.
func Pod(cgroup string) string {
	for dir := path.Dir(cgroup); dir != "/" && dir != "."; dir = path.Dir(dir) {
		if podName.MatchString(path.Base(dir)) {
			return dir
		}
	}
	return ""
}
