// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	judged "github.com/sluice-gpu/sluice/internal/health"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/dra"
	"github.com/sluice-gpu/sluice/node-agent/health"
	"github.com/sluice-gpu/sluice/node-agent/publish"
)

// Events are written of pods and of this node's GPUNode, and name this node as their source, which an admission policy sees to.
// +kubebuilder:rbac:groups="",resources=events,verbs=create,roleName=sluice-node-agent

// Health says how GPUs are.
type Health interface {
	// Run watches until the context ends.
	Run(ctx context.Context)
	Resume(reported []v1alpha1.GPUStatus)
	Looked(look gpu.Node, err error, known []string)
	Forget(known []string)
	Verdicts() map[string]judged.Verdict
}

// HealthReports are what kubelet is told about the devices that are offered.
type HealthReports interface {
	Report(devices []dra.DeviceHealth)
}

// Teller tells people what happened: in events on the pods of a GPU, and on the GPUNode.
type Teller interface {
	Tell(ctx context.Context, namespace string, pod checkpoint.Pod, eventType, reason, message string) error
	TellNode(ctx context.Context, node *v1alpha1.GPUNode, eventType, reason, message string) error
}

// health is what is known of each GPU after a look. Those that were published or seen before are known too, until they are
// forgotten.
func (a *Agent) health(w world, record checkpoint.Published) map[string]judged.Verdict {
	if a.memory.seen == nil {
		a.memory.seen = map[string]checkpoint.Facts{}
	}
	for _, g := range record.GPUs {
		a.memory.seen[g.Facts.UUID] = g.Facts
	}
	for _, g := range w.look.GPUs {
		a.memory.seen[g.UUID] = checkpoint.FactsOf(g, w.look.DriverVersion)
	}
	known := slices.Collect(maps.Keys(a.memory.seen))
	a.Health.Resume(w.gpuNode.Status.GPUs)
	a.Health.Looked(w.look, w.lookErr, known)
	verdicts := a.Health.Verdicts()
	maps.DeleteFunc(a.memory.seen, func(uuid string, _ checkpoint.Facts) bool {
		return verdicts[uuid].Forget && record.ByUUID(uuid) == nil
	})
	a.Health.Forget(slices.Collect(maps.Keys(a.memory.seen)))
	return verdicts
}

// tell reports to kubelet, to the metrics and to the pods that sit on a GPU how it is. Pods are told when that changes;
// what was told is only remembered, so a new agent tells those of sick GPUs again.
func (a *Agent) tell(ctx context.Context, p plan) {
	a.HealthReports.Report(healthReports(p.outcomes, publish.Slices(p.record)))
	told := map[string]v1alpha1.HealthState{}
	for _, o := range p.outcomes {
		uuid := o.Facts.UUID
		a.Metrics.health(uuid, o.Health.State)
		before := cmp.Or(a.memory.told[uuid], v1alpha1.HealthHealthy)
		told[uuid] = cmp.Or(o.Health.State, before)
		if told[uuid] != before {
			a.Log.Info("The health of a GPU has changed", "gpu", uuid, "state", o.Health.State, "reason", o.Health.Reason, "message", o.Health.Message)
			a.tellPods(ctx, p, o)
		}
	}
	a.memory.told = told
}

// tellPods writes one event on each pod that sits on the GPU. An event that cannot be written is not tried again: the
// status says the same.
func (a *Agent) tellPods(ctx context.Context, p plan, o publish.Outcome) {
	kind, reason := corev1.EventTypeWarning, "GPU"+string(o.Health.State)
	message := "GPU " + o.Facts.UUID + ": " + o.Health.Message
	if !o.Health.Sick() {
		kind, message = corev1.EventTypeNormal, "GPU "+o.Facts.UUID+" is well again"
	}
	for _, claim := range p.claims.Sorted() {
		if !slices.Contains(claim.GPUs(), o.Facts.UUID) {
			continue
		}
		for _, pod := range claim.Pods {
			if err := a.Teller.Tell(ctx, claim.Namespace, pod, kind, reason, message); err != nil {
				a.Log.Info("A pod is not told about its GPU", "pod", claim.Namespace+"/"+pod.Name, "err", err.Error())
			}
		}
	}
}

// healthReports say of each device that is offered how its GPU is.
func healthReports(outcomes []publish.Outcome, slices []resourceslice.Slice) []dra.DeviceHealth {
	health := map[string]judged.Verdict{}
	for _, o := range outcomes {
		health[o.Facts.UUID] = o.Health
	}
	var reports []dra.DeviceHealth
	for _, s := range slices {
		for _, d := range s.Devices {
			uuid := d.Attributes[v1alpha1.AttributeParentUUID].StringValue
			if uuid == nil || health[*uuid].State == "" {
				continue // nobody has looked yet: unknown
			}
			v := health[*uuid]
			reports = append(reports, dra.DeviceHealth{Device: d.Name, Healthy: !v.Sick(), Message: v.Message})
		}
	}
	return reports
}

// Vitals are what the driver says of a GPU's health.
func (d *Driver) Vitals(ctx context.Context, gpuUUID string) (judged.Vitals, error) {
	door, err := d.open()
	if err != nil {
		return judged.Vitals{}, err
	}
	return door.Vitals(ctx, gpuUUID) //nolint:wrapcheck // the door's errors say what was being done
}

// Events starts to listen to the error reports about GPUs.
func (d *Driver) Events(ctx context.Context, uuids []string) (health.Events, error) {
	door, err := d.open()
	if err != nil {
		return nil, err
	}
	events, err := door.Events(ctx, uuids)
	if err != nil {
		return nil, err //nolint:wrapcheck // the door's errors say what was being done
	}
	return events, nil
}

var _ health.Hardware = &Driver{}
