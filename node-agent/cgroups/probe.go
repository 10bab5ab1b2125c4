// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/memlimits"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
)

// probeName is the cgroup on which limits are tried.
const probeName = "sluice-limits"

// probeAgain is how long a finding counts that the driver cannot: somebody may have changed that.
const probeAgain = 10 * time.Minute

// HeldBy says what holds the memory limits of shares on a GPU in a form. Where that depends on the driver it is tried, once
// for an agent.
func (k *Keeper) HeldBy(ctx context.Context, form v1alpha1.GPUDecision, facts checkpoint.Facts) v1alpha1.GPUMemoryLimits {
	if !memlimits.Depends(form) {
		return memlimits.Decide(form, facts.DriverVersion, memlimits.Probe{})
	}
	return memlimits.Decide(form, facts.DriverVersion, k.Probe(ctx, facts))
}

// Probe is what is known of a GPU, after finding it out. The zero value says that the driver has not answered.
func (k *Keeper) Probe(ctx context.Context, facts checkpoint.Facts) memlimits.Probe {
	k.mu.Lock()
	before, known := k.probes[facts.UUID]
	k.mu.Unlock()
	now := k.Clock.Now()
	if known && before.driver == facts.DriverVersion && (before.Answer == memlimits.Works || now.Sub(before.at) < probeAgain) {
		return before.Probe
	}
	found, err := k.try(ctx, facts)
	if err != nil {
		k.Log.Info("The driver did not say whether it holds memory limits by cgroup", "gpu", facts.UUID, "err", err.Error())
		return memlimits.Probe{}
	}
	if before.Answer != found.Answer {
		k.Log.Info("Tried memory limits by cgroup", "gpu", facts.UUID, "answer", found.Answer, "backend", found.Backend, "message", found.Message)
	}
	k.learn(facts.UUID, probed{Probe: found, driver: facts.DriverVersion, at: now})
	return found
}

func (k *Keeper) learn(uuid string, found probed) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.probes[uuid] = found
}

// try limits an empty cgroup and looks what comes of it. An error says that nothing was found out.
func (k *Keeper) try(ctx context.Context, facts checkpoint.Facts) (memlimits.Probe, error) {
	if _, err := os.Stat(filepath.Join(k.Root, "cgroup.controllers")); err != nil {
		return memlimits.Probe{Answer: memlimits.NoCgroupV2, Message: fmt.Sprintf("the node has no cgroup v2 at %s", k.Root)}, nil
	}
	unlock, err := k.Records.LockLimits()
	if err != nil {
		return memlimits.Probe{}, fmt.Errorf("locking the record of limits: %w", err)
	}
	defer unlock()
	dir := filepath.Join(k.Root, probeName)
	// A new one has no limits, whatever became of the last.
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return memlimits.Probe{Answer: memlimits.Refused, Message: "removing an old cgroup: " + err.Error()}, nil
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return k.withoutCgroup(ctx, facts.UUID, dir, err), nil
	}
	defer func() { _ = os.Remove(dir) }()
	return k.tryOn(ctx, facts, dir)
}

// withoutCgroup tells a driver that has no limits from a node on which they cannot be tried.
func (k *Keeper) withoutCgroup(ctx context.Context, uuid, dir string, failed error) memlimits.Probe {
	if err := k.Hardware.SetMemoryLimits(ctx, uuid, dir, 0, nvml.NoLimit); errors.Is(err, nvml.ErrLimitsUnsupported) {
		return memlimits.Probe{Answer: memlimits.Unsupported, Message: err.Error()}
	}
	return memlimits.Probe{Answer: memlimits.Refused, Message: "making a cgroup to try a limit on: " + failed.Error()}
}

// tryOn reads the limits of a new cgroup, which only the driver's own map knows nothing of, and sets one.
func (k *Keeper) tryOn(ctx context.Context, facts checkpoint.Facts, dir string) (memlimits.Probe, error) {
	backend := v1alpha1.LimitsBackendDmem
	_, err := k.Hardware.MemoryLimits(ctx, facts.UUID, dir)
	if errors.Is(err, nvml.ErrLimitsUnsupported) {
		backend, err = v1alpha1.LimitsBackendMisc, nil
	}
	hard := uint64(facts.MemoryBytes)
	if err == nil {
		err = k.Hardware.SetMemoryLimits(ctx, facts.UUID, dir, 0, hard)
	}
	switch {
	case errors.Is(err, nvml.ErrLimitsUnsupported):
		return memlimits.Probe{Answer: memlimits.Unsupported, Message: err.Error()}, nil
	case conclusive(err):
		return memlimits.Probe{Answer: memlimits.Refused, Message: explain(err)}, nil
	case err != nil:
		return memlimits.Probe{}, err
	}
	told, err := k.Hardware.MemoryLimits(ctx, facts.UUID, dir)
	if err != nil {
		return memlimits.Probe{}, fmt.Errorf("reading the limit that was set: %w", err)
	}
	if told.Hard != hard || told.Soft != 0 {
		return memlimits.Probe{Answer: memlimits.Refused, Message: fmt.Sprintf(
			"the driver was given a limit of %d bytes and tells %d", hard, told.Hard)}, nil
	}
	if err := k.Hardware.SetMemoryLimits(ctx, facts.UUID, dir, 0, nvml.NoLimit); err != nil {
		return memlimits.Probe{}, fmt.Errorf("taking the limit back: %w", err)
	}
	return memlimits.Probe{Answer: memlimits.Works, Backend: backend}, nil
}

// conclusive is true where the driver has answered, and would answer the same again.
func conclusive(err error) bool {
	return errors.Is(err, nvml.ErrLimitsRefused) || errors.Is(err, nvml.ErrNoController) || errors.Is(err, nvml.ErrNoSuchCgroup) ||
		errors.Is(err, nvml.ErrLimitsUnsupported)
}

// explain adds what the node lacks.
func explain(err error) string {
	if errors.Is(err, nvml.ErrNoController) {
		return err.Error() + "; enable it with +dmem in cgroup.subtree_control from the root down to the pods"
	}
	return err.Error()
}
