// SPDX-License-Identifier: Apache-2.0

// Package violation judges whether shares keep to their memory limits: it compares what the driver says that processes hold
// with the limits that were in force. The library cannot be asked, since what gets past it does not tell it.
package violation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// residue is what one context may cost beyond what the library charges for it: figures are rounded and measured once,
	// and modules are loaded late.
	residue = 64 << 20
	// partOfLimit is what else may be beyond a limit, as one part in so many of it: the driver hands out pages.
	partOfLimit = 50
	// mostOfLimit bounds the residues of many processes, as one part in so many of the limit.
	mostOfLimit = 4
	// Looks is at how many looks in a row something must be seen before it is said, and not be seen before it is over.
	Looks = 2
	// churn is at how many looks in a row some process must be past the library, where none is seen at two.
	churn = 3
)

// Share names a share.
type Share struct {
	ClaimUID string
	Index    int
}

func (s Share) compare(o Share) int {
	return cmp.Or(cmp.Compare(s.ClaimUID, o.ClaimUID), cmp.Compare(s.Index, o.Index))
}

// Grant is a share as it is in force now.
type Grant struct {
	Share Share
	// Device is the UUID of the GPU or MIG instance that the share is of.
	Device string
	// Limit and Overhead are the words of its page.
	Limit, Overhead uint64
}

// PID names a process: a PID is used again, with another start.
type PID struct {
	PID   int
	Start uint64
}

// Process is a process on a device.
type Process struct {
	ID     PID
	Device string
	// Name is what people know it by.
	Name string
	// Bytes is what it holds of the device's memory; Figure is false where the driver does not say.
	Bytes  uint64
	Figure bool
	// Shares are those of the device that its container has; none where it belongs to no share.
	Shares []Share
	// Registered is true where the library knows it, in any of these shares' ledgers; Unclear where nobody can say.
	Registered, Unclear bool
	// Pod is the UID of its pod, "" where that is not known.
	Pod string
}

// Look is one look at all devices that have shares.
type Look struct {
	Grants    []Grant
	Processes []Process
	// Blind are the devices about which the driver did not answer, with what it said instead.
	Blind map[string]string
}

// Reason is what is wrong with a share.
type Reason string

const (
	// OverLimit says that the processes of a share hold more than its limit.
	OverLimit Reason = "OverLimit"
	// UnregisteredProcess says that a process of the share is past the library.
	UnregisteredProcess Reason = "UnregisteredProcess"
)

// Finding is a share, or several that a container has of one device, that are not kept to.
type Finding struct {
	// Share names it: the first of those that add up.
	Share  Share
	Device string
	Reason Reason
	// Held is what its processes hold together, Limit the highest limit since they were last within one.
	Held, Limit uint64
	// Unregistered are the processes that the library does not know, the largest first.
	Unregistered []Process
	// Offenders are the processes that end the violation by ending; none where this look does not show it any more.
	Offenders []Process
	// Pods are the UIDs of the pods of its processes, those that were seen first.
	Pods []string
	// Since is when it was found.
	Since time.Time
}

// Unverified is something that nobody can judge.
type Unverified struct {
	Share  Share
	Device string
	// Process has no figure; zero where Why says what is wrong with the whole device.
	Process Process
	Why     string
}

// Findings are what a look leads to.
type Findings struct {
	// Violations are those that are found, the longest first.
	Violations []Finding
	// Unverified are the processes and devices without figures.
	Unverified []Unverified
}

// group are shares of one device that some container has together. What is held with a part of them is within the group too.
type group struct {
	device string
	shares []Share
}

func (g group) key() string {
	parts := []string{g.device}
	for _, s := range g.shares {
		parts = append(parts, fmt.Sprintf("%s/%d", s.ClaimUID, s.Index))
	}
	return strings.Join(parts, " ")
}

// within is true where all of a process's shares are of the group.
func (g group) within(p Process) bool {
	if p.Device != g.device || len(p.Shares) == 0 {
		return false
	}
	return !slices.ContainsFunc(p.Shares, func(s Share) bool { return !slices.Contains(g.shares, s) })
}

// same is true where a process that is within the group has all of its shares.
func (g group) same(p Process) bool {
	return !slices.ContainsFunc(g.shares, func(s Share) bool { return !slices.Contains(p.Shares, s) })
}

// groups are the shares by themselves, the sets that containers have, and those of them together that have a share in common:
// limits hold for the processes of every set only where they hold for all of these.
func groups(l Look) []group {
	found := map[string]group{}
	add := func(device string, shares []Share) {
		shares = slices.Clone(shares)
		slices.SortFunc(shares, Share.compare)
		g := group{device: device, shares: slices.Compact(shares)}
		found[g.key()] = g
	}
	for _, grant := range l.Grants {
		add(grant.Device, []Share{grant.Share})
	}
	joined := map[string][][]Share{}
	for _, p := range l.Processes {
		if len(p.Shares) > 1 {
			add(p.Device, p.Shares)
			joined[p.Device] = join(joined[p.Device], p.Shares)
		}
	}
	for device, sets := range joined {
		for _, set := range sets {
			add(device, set)
		}
	}
	list := make([]group, 0, len(found))
	for _, g := range found {
		list = append(list, g)
	}
	// The smallest first: what is wrong with a share is said of that share, not of all that some container has beside it.
	slices.SortFunc(list, func(a, b group) int {
		return cmp.Or(cmp.Compare(len(a.shares), len(b.shares)), cmp.Compare(a.key(), b.key()))
	})
	return list
}

// join adds a set to disjoint sets.
func join(sets [][]Share, set []Share) [][]Share {
	joined := slices.Clone(set)
	var apart [][]Share
	for _, other := range sets {
		if slices.ContainsFunc(other, func(s Share) bool { return slices.Contains(set, s) }) {
			joined = append(joined, other...)
		} else {
			apart = append(apart, other)
		}
	}
	return append(apart, joined)
}

// margin is how far above a limit is nothing to tell of, for so many contexts that the library has charged. What it does
// not know it has not charged too little for.
func margin(limit, overhead uint64, registered int) uint64 {
	each := residue + overhead
	return limit/partOfLimit + min(uint64(registered)*each, max(limit/mostOfLimit, each))
}
