// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-gpu/sluice/internal/memlimits"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/hook"
)

// ErrNotPrepared says that the node does not know the share as prepared.
var ErrNotPrepared = errors.New("the claim is not prepared on this node")

var _ hook.Judge = &Keeper{}

// Admit gives the driver the limits of a container that is about to start, and of its pod. Where the pool demands the
// driver's limits the container may not start without them; elsewhere the library holds it alone where the driver refuses.
func (k *Keeper) Admit(ctx context.Context, q hook.Question) error {
	claims, err := k.Records.Claims()
	if err != nil {
		return fmt.Errorf("reading the prepared claims: %w", err)
	}
	result, err := resultOf(claims, q)
	if err != nil {
		return err
	}
	if result.LimitsBackend == "" {
		return nil // it was prepared anew since, and is the library's
	}
	cgroup, inode, err := k.cgroupOf(q.PID)
	if err != nil {
		return err
	}
	ref := checkpoint.ShareRef{ClaimUID: q.Claim, Result: q.Result}
	outcome, err := k.change(ctx, claims, func(l *checkpoint.Limits) { enter(l, cgroup, inode, ref) })
	if err != nil {
		return err
	}
	failed := outcome.of(result.GPU, cgroup, memlimits.Pod(cgroup))
	refusal := errors.Join(failed...)
	if result.MustHold || slices.ContainsFunc(failed, func(err error) bool { return !conclusive(err) }) || refusal == nil {
		return refusal
	}
	if err := k.fallBack(result, ref, refusal); err != nil {
		return err
	}
	return k.leaveOut(ctx, claims, cgroup, ref, outcome, explain(refusal))
}

// resultOf finds what the container is to have.
func resultOf(claims checkpoint.Claims, q hook.Question) (checkpoint.Result, error) {
	claim, known := claims.Claims[q.Claim]
	if !known || claim.State != checkpoint.Prepared {
		return checkpoint.Result{}, fmt.Errorf("claim %s: %w", q.Claim, ErrNotPrepared)
	}
	i := slices.IndexFunc(claim.Results, func(r checkpoint.Result) bool { return r.Index == q.Result })
	if i < 0 {
		return checkpoint.Result{}, fmt.Errorf("result %d of claim %s: %w", q.Result, q.Claim, ErrNotPrepared)
	}
	return claim.Results[i], nil
}

// enter records that a container has a share. Another container that had the same path is gone.
func enter(l *checkpoint.Limits, cgroup string, inode uint64, ref checkpoint.ShareRef) {
	l.Containers = slices.DeleteFunc(l.Containers, func(c checkpoint.Container) bool { return c.Cgroup == cgroup && c.Inode != inode })
	i := slices.IndexFunc(l.Containers, func(c checkpoint.Container) bool { return c.Cgroup == cgroup })
	if i < 0 {
		l.Containers = append(l.Containers, checkpoint.Container{Cgroup: cgroup, Inode: inode})
		i = len(l.Containers) - 1
	}
	if c := &l.Containers[i]; !slices.Contains(c.Shares, ref) {
		c.Shares = append(slices.Clone(c.Shares), ref)
	}
}

// leave records that a container does not have a share, or none does where cgroup is "".
func leave(l *checkpoint.Limits, cgroup string, which func(checkpoint.ShareRef) bool) {
	for i := range l.Containers {
		if c := &l.Containers[i]; cgroup == "" || c.Cgroup == cgroup {
			c.Shares = slices.DeleteFunc(slices.Clone(c.Shares), which)
		}
	}
	l.Containers = slices.DeleteFunc(l.Containers, func(c checkpoint.Container) bool { return len(c.Shares) == 0 })
}

// fallBack has new shares on a GPU be the library's for a while.
func (k *Keeper) fallBack(result checkpoint.Result, ref checkpoint.ShareRef, refusal error) error {
	k.Log.Info("The driver refuses the limit of a container; the library holds it", "claim", ref.ClaimUID, "result", ref.Result, "err", refusal.Error())
	published, err := k.Records.Published()
	if err != nil {
		return fmt.Errorf("reading the published devices: %w", err)
	}
	if offered := published.ByUUID(result.GPU); offered != nil {
		k.learn(result.GPU, probed{
			Probe:  memlimits.Probe{Answer: memlimits.Refused, Message: explain(refusal)},
			driver: offered.Facts.DriverVersion, at: k.Clock.Now(),
		})
	}
	return nil
}

// leaveOut leaves a container's share to the library, and records why.
func (k *Keeper) leaveOut(
	ctx context.Context, claims checkpoint.Claims, cgroup string, ref checkpoint.ShareRef, refused outcome, why string,
) error {
	_, err := k.change(ctx, claims, func(l *checkpoint.Limits) {
		leave(l, cgroup, func(r checkpoint.ShareRef) bool { return r == ref })
		l.Set = slices.DeleteFunc(l.Set, func(s checkpoint.SetLimit) bool {
			return refused[memlimits.Target{GPU: s.GPU, Cgroup: s.Cgroup}] != nil
		})
		if l.FellBack == nil {
			l.FellBack = map[string]string{}
		}
		l.FellBack[ref.ClaimUID] = why
	})
	return err
}

// Release takes back what a claim's shares are guaranteed. Processes that are left keep their limits until their cgroup goes.
func (k *Keeper) Release(ctx context.Context, claimUID string) error {
	claims, err := k.Records.Claims()
	if err != nil {
		return fmt.Errorf("reading the prepared claims: %w", err)
	}
	outcome, err := k.change(ctx, claims, func(l *checkpoint.Limits) {
		leave(l, "", func(r checkpoint.ShareRef) bool { return r.ClaimUID == claimUID })
		delete(l.FellBack, claimUID)
		l.Told = slices.DeleteFunc(l.Told, func(uid string) bool { return uid == claimUID })
	})
	if err != nil {
		return err
	}
	return outcome.all()
}
