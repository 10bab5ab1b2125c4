// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/devices"
	"github.com/sluice-gpu/sluice/node-agent/claims"
	"github.com/sluice-gpu/sluice/node-agent/publish"
)

// eventRepaired is the reason of events about MIG instances that somebody else changed and that are as wanted again.
const eventRepaired = "ForeignInstancesRepaired"

// foreign is what somebody else did to a GPU's instances, and when that was repaired.
type foreign struct {
	text string
	at   time.Time
}

// foreignShown is how long the status speaks of a repair.
const foreignShown = 10 * time.Minute

// Repaired notes what was repaired outside the loop, by the GPU's UUID; the next pass tells it.
func (a *Agent) Repaired(found map[string]string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.repaired == nil {
		a.repaired = map[string]string{}
	}
	maps.Copy(a.repaired, found)
}

// repairs are those of this pass and of outside the loop.
func (a *Agent) repairs(found map[string]string) map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := map[string]string{}
	maps.Copy(all, a.repaired)
	maps.Copy(all, found)
	a.repaired = nil
	return all
}

func (a *Agent) rememberForeign(now time.Time, repaired map[string]string) {
	shown := map[string]foreign{}
	for uuid, f := range a.memory.foreign {
		if now.Sub(f.at) < foreignShown {
			shown[uuid] = f
		}
	}
	for uuid, text := range repaired {
		shown[uuid] = foreign{text: text, at: now}
	}
	a.memory.foreign = shown
}

// foreignInUse are the troubles of GPUs whose instances come and go with claims, and on which somebody uses an instance that
// is no claim's. It cannot be destroyed, and nobody knows when it goes: a tenant must not be sent to its place.
func (a *Agent) foreignInUse(ctx context.Context, w world, p plan) map[string]publish.Trouble {
	found := map[string]publish.Trouble{}
	for uuid, orphans := range claims.Orphans(w.look, p.claims, p.record) {
		processes, err := a.Holders.On(ctx, uuid, p.claims)
		if err != nil {
			a.Log.Info("It is not known who uses a MIG instance that is no claim's", "gpu", uuid, "err", err.Error())
			if before := a.memory.troubles[uuid]; before.Reason == v1alpha1.ReasonForeignInstances {
				found[uuid] = before
			}
			continue
		}
		for _, i := range orphans {
			var users []string
			for _, process := range processes {
				if process.GIID == i.GIID {
					users = append(users, process.Name)
				}
			}
			if len(users) > 0 && found[uuid].Reason == "" {
				found[uuid] = publish.Trouble{Reason: v1alpha1.ReasonForeignInstances, Message: fmt.Sprintf(
					"%s at %d is no claim's and is used by %s; it is destroyed when it is not", i.Profile, i.Start, strings.Join(users, ", "))}
			}
		}
	}
	return found
}

// tellForeign has the status speak of what was repaired.
func (a *Agent) tellForeign(p plan) {
	for uuid, f := range a.memory.foreign {
		p.remark(uuid, fmt.Sprintf("%s; it was repaired at %s", f.text, f.at.UTC().Format(time.TimeOnly)))
	}
}

// tellOfForeign writes events about what somebody else did to MIG instances: once when it is found and cannot be repaired,
// since it is in use, and once when it was repaired.
func (a *Agent) tellOfForeign(ctx context.Context, w world, troubles map[string]publish.Trouble, repaired map[string]string) {
	for _, uuid := range slices.Sorted(maps.Keys(troubles)) {
		if found := v1alpha1.ReasonForeignInstances; troubles[uuid].Reason == found && a.memory.troubles[uuid].Reason != found {
			a.tellNode(ctx, w, uuid, found, troubles[uuid].Message)
		}
	}
	for _, uuid := range slices.Sorted(maps.Keys(repaired)) {
		a.tellNode(ctx, w, uuid, eventRepaired, repaired[uuid]+"; it was repaired")
	}
}

// tellForeignEnded writes an event where an instance that somebody else made was in use, and is not any more, without a repair
// that tells of it: its user has put it right, or the GPU's instances come and go with claims, and what is left is destroyed.
func (a *Agent) tellForeignEnded(ctx context.Context, w world, troubles map[string]publish.Trouble, repaired map[string]string) {
	for _, uuid := range slices.Sorted(maps.Keys(a.memory.troubles)) {
		found := v1alpha1.ReasonForeignInstances
		if a.memory.troubles[uuid].Reason == found && troubles[uuid].Reason != found && repaired[uuid] == "" {
			a.tellNode(ctx, w, uuid, eventRepaired, "nobody uses what somebody else made any more; it does not stay")
		}
	}
}

// tellNode writes an event on the GPUNode. One that cannot be written is not tried again: the status says the same.
func (a *Agent) tellNode(ctx context.Context, w world, uuid, reason, message string) {
	name := "GPU " + uuid
	if g := w.look.ByUUID(uuid); g != nil {
		name = fmt.Sprintf("%s (%s)", devices.Name(g.Minor), uuid)
	}
	if err := a.Teller.TellNode(ctx, w.gpuNode, corev1.EventTypeWarning, reason, name+": "+message); err != nil {
		a.Log.Info("There is no event about MIG instances that somebody else changed", "gpu", uuid, "err", err.Error())
	}
}
