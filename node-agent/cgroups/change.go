// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/sluice-gpu/sluice/internal/memlimits"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
)

// outcome says which limits the driver did not take.
type outcome map[memlimits.Target]error

// of is what went wrong with some cgroups on a GPU.
func (o outcome) of(gpu string, cgroups ...string) []error {
	var failed []error
	for _, c := range cgroups {
		if err := o[memlimits.Target{GPU: gpu, Cgroup: c}]; err != nil {
			failed = append(failed, err)
		}
	}
	return failed
}

// all is everything that went wrong.
func (o outcome) all() error {
	var failed []error
	for _, err := range o {
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// change changes the record and brings the driver's limits in line with it. What is to be set is recorded first, and that it
// is set afterwards.
func (k *Keeper) change(ctx context.Context, claims checkpoint.Claims, edit func(*checkpoint.Limits)) (outcome, error) {
	unlock, err := k.Records.LockLimits()
	if err != nil {
		return nil, fmt.Errorf("locking the record of limits: %w", err)
	}
	defer unlock()
	before, err := k.Records.Limits()
	if err != nil {
		return nil, fmt.Errorf("reading the record of limits: %w", err)
	}
	published, err := k.Records.Published()
	if err != nil {
		return nil, fmt.Errorf("reading the published devices: %w", err)
	}
	record := before
	record.Containers, record.Set = slices.Clone(before.Containers), slices.Clone(before.Set)
	record.Told, record.FellBack = slices.Clone(before.Told), maps.Clone(before.FellBack)
	k.sweep(&record, claims)
	edit(&record)
	record.Set = k.intend(record, k.wanted(record, claims, published))
	if !equality.Semantic.DeepEqual(before, record) {
		if err := k.Records.SaveLimits(record); err != nil {
			return nil, fmt.Errorf("recording the limits that are to be set: %w", err)
		}
	}
	failed, changed := k.set(ctx, record.Set)
	if changed {
		if err := k.Records.SaveLimits(record); err != nil {
			return nil, fmt.Errorf("recording the limits that are set: %w", err)
		}
	}
	return failed, nil
}

// sweep forgets the containers whose cgroups are gone, and the shares that are not prepared any more.
func (k *Keeper) sweep(record *checkpoint.Limits, claims checkpoint.Claims) {
	record.Containers = slices.DeleteFunc(record.Containers, func(c checkpoint.Container) bool { return !k.same(c.Cgroup, c.Inode) })
	leave(record, "", func(r checkpoint.ShareRef) bool { return claims.Claims[r.ClaimUID].State != checkpoint.Prepared })
}

// wanted are the limits for the containers of the record.
func (k *Keeper) wanted(
	record checkpoint.Limits, claims checkpoint.Claims, published checkpoint.Published,
) map[memlimits.Target]memlimits.Limits {
	var containers []memlimits.Container
	for _, c := range record.Containers {
		container := memlimits.Container{Cgroup: c.Cgroup}
		for _, s := range c.Shares {
			container.Shares = append(container.Shares, memlimits.ShareID(s))
		}
		containers = append(containers, container)
	}
	shares := map[memlimits.ShareID]memlimits.Share{}
	gpus := map[string]memlimits.GPU{}
	for _, claim := range claims.Claims {
		for _, r := range claim.Results {
			if r.LimitsBackend == "" {
				continue
			}
			share := k.share(claim.UID, r, published)
			shares[share.ID] = share
			gpus[r.GPU] = memlimits.GPU{Backend: r.LimitsBackend, Bytes: gpuBytes(r.GPU, published)}
		}
	}
	return memlimits.Wanted(containers, shares, gpus)
}

// share is what a share may hold now: its page is what the library goes by, too.
func (k *Keeper) share(claimUID string, r checkpoint.Result, published checkpoint.Published) memlimits.Share {
	limit := uint64(r.Memory)
	if words, err := k.Shares.Words(claimUID, r.Index); err == nil {
		limit = words.MemoryLimit
	}
	s := memlimits.Share{ID: memlimits.ShareID{ClaimUID: claimUID, Result: r.Index}, GPU: r.GPU, Limit: limit}
	if offered := published.ByUUID(r.GPU); offered != nil {
		s.Guaranteed = memlimits.Guaranteed(limit, offered.Form.MemoryPercent)
	}
	return s
}

// gpuBytes is what a GPU has; a GPU that is not published bounds nothing.
func gpuBytes(uuid string, published checkpoint.Published) uint64 {
	if offered := published.ByUUID(uuid); offered != nil {
		return uint64(offered.Facts.MemoryBytes)
	}
	return ^uint64(0) >> 1
}

// intend is the record of limits with all that is wanted. What is not wanted any more goes with its cgroup; until then its
// processes keep their limit, and nothing is guaranteed to them.
func (k *Keeper) intend(record checkpoint.Limits, wanted map[memlimits.Target]memlimits.Limits) []checkpoint.SetLimit {
	var set []checkpoint.SetLimit
	for _, s := range record.Set {
		t := memlimits.Target{GPU: s.GPU, Cgroup: s.Cgroup}
		if !k.same(s.Cgroup, s.Inode) {
			continue
		}
		want, still := wanted[t]
		if !still {
			want = memlimits.Limits{Hard: s.Hard}
		}
		delete(wanted, t)
		if s.Soft != want.Soft || s.Hard != want.Hard || !k.isSure() {
			s.Soft, s.Hard, s.Pending = want.Soft, want.Hard, true
		}
		set = append(set, s)
	}
	for t, l := range wanted {
		if inode, there := k.inode(t.Cgroup); there {
			set = append(set, checkpoint.SetLimit{GPU: t.GPU, Cgroup: t.Cgroup, Inode: inode, Soft: l.Soft, Hard: l.Hard, Pending: true})
		}
	}
	// A pod comes before its containers: its path is the beginning of theirs.
	slices.SortFunc(set, func(a, b checkpoint.SetLimit) int {
		return cmp.Or(cmp.Compare(a.Cgroup, b.Cgroup), cmp.Compare(a.GPU, b.GPU))
	})
	return set
}

// set gives the driver what is pending.
func (k *Keeper) set(ctx context.Context, set []checkpoint.SetLimit) (failed outcome, changed bool) {
	failed = outcome{}
	for i := range set {
		s := &set[i]
		if !s.Pending {
			continue
		}
		if err := k.Hardware.SetMemoryLimits(ctx, s.GPU, k.path(s.Cgroup), s.Soft, s.Hard); err != nil {
			failed[memlimits.Target{GPU: s.GPU, Cgroup: s.Cgroup}] = err
			continue
		}
		s.Pending, changed = false, true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sure = true
	return failed, changed
}

func (k *Keeper) isSure() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.sure
}
