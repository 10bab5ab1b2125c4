// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/framework/machine"
	"github.com/sluice-gpu/sluice/test/framework/stack"
	"github.com/sluice-gpu/sluice/test/framework/tenants"
)

// await waits for a condition of the cluster.
func await(t *testing.T, what string, done func(ctx context.Context) (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), tenants.Patience)
	defer cancel()
	if err := stack.Poll(ctx, what, done); err != nil {
		t.Fatal(err)
	}
}

// held checks that a program in a pod can take what a share of so many GiB has, and no more.
func held(t *testing.T, p *corev1.Pod, gibi uint64) {
	t.Helper()
	if wrong := tenants.Within(tenants.Take(t, lab, p, "main", "/bin/tenant"), gibi*tenants.Gibi, 0, 0); wrong != "" {
		t.Errorf("%s: %s", p.Name, wrong)
	}
}

// admitted creates a bare pod, and again where no webhook has seen it, as its event says: until the control plane has followed
// the manager's pods, the API server asks those that are gone too.
func admitted(t *testing.T, p *corev1.Pod) {
	t.Helper()
	t.Cleanup(func() { tenants.Remove(t, lab, p) })
	await(t, "the pod "+p.Name+" is admitted", func(ctx context.Context) (bool, error) {
		try := tenants.Unpulled(p.DeepCopy())
		made := lab.Client.Create(ctx, try) == nil // an API server that has just come back refuses some
		if !made || try.Labels[v1alpha1.RequestLabel] != "" {
			return made, nil
		}
		return false, client.IgnoreNotFound(lab.Client.Delete(ctx, try, client.GracePeriodSeconds(0)))
	})
}

// runs creates a bare pod and waits until it runs.
func runs(t *testing.T, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	admitted(t, p)
	return tenants.Await(t, lab, p, "runs", machine.Running)
}

// aNewOneStarts checks that a pool serves new tenants, and holds them.
func aNewOneStarts(t *testing.T, name, pool string) {
	t.Helper()
	held(t, runs(t, tenants.Pod(name, pool, "2Gi")), 2)
}

// nothingTwice checks that no device has more tenants, and no more of its memory given away, than it has.
func nothingTwice(t *testing.T) {
	t.Helper()
	var claims resourceapi.ResourceClaimList
	if err := lab.Client.List(t.Context(), &claims); err != nil {
		t.Fatal(err)
	}
	var slices resourceapi.ResourceSliceList
	if err := lab.Client.List(t.Context(), &slices); err != nil {
		t.Fatal(err)
	}
	has := map[string]resourceapi.Device{}
	for _, slice := range slices.Items {
		for _, device := range slice.Spec.Devices {
			has[slice.Spec.Pool.Name+"/"+device.Name] = device
		}
	}
	given, users := map[string]*resource.Quantity{}, map[string]int{}
	for _, claim := range claims.Items {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			name := result.Pool + "/" + result.Device
			if given[name] == nil {
				given[name] = &resource.Quantity{}
			}
			given[name].Add(result.ConsumedCapacity[v1alpha1.CapacityMemory])
			users[name]++
		}
	}
	for name, amount := range given {
		device, published := has[name]
		capacity := device.Capacity[v1alpha1.CapacityMemory]
		shared := device.AllowMultipleAllocations != nil && *device.AllowMultipleAllocations
		if published && (amount.Cmp(capacity.Value) > 0 || users[name] > 1 && !shared) {
			t.Errorf("of %s, %s is given to %d claims, and it has %s", name, amount, users[name], capacity.Value.String())
		}
	}
}

// files are all of Sluice's on a machine that belong to a tenant, and the machine's MIG instances.
func files(ctx context.Context, on string) (string, error) {
	found, err := lab.On(ctx, on, "find", "/run/sluice", "/run/sluice-mps", "/var/run/cdi", "!", "-path", "/run/sluice/lib/*")
	if err != nil {
		return "", err
	}
	shown, err := lab.FakeGPU(ctx, on, "show")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(shown) {
		if strings.Contains(line, "instance") {
			found += line
		}
	}
	return found, nil
}

// nothingLeft waits until a machine has what it had before.
func nothingLeft(t *testing.T, on, before string) {
	t.Helper()
	var now string
	ctx, cancel := context.WithTimeout(t.Context(), tenants.Patience)
	defer cancel()
	err := stack.Poll(ctx, "nothing of past tenants is on "+on, func(ctx context.Context) (bool, error) {
		var err error
		now, err = files(ctx, on)
		return now == before, err
	})
	if err != nil {
		t.Errorf("%v (-want +got):\n%s", err, cmp.Diff(strings.Split(before, "\n"), strings.Split(now, "\n")))
	}
}

// noted waits for an event of a pod whose message says something.
func noted(t *testing.T, p *corev1.Pod, says string) string {
	t.Helper()
	var message string
	await(t, fmt.Sprintf("an event of %s says %q", p.Name, says), func(ctx context.Context) (bool, error) {
		var events corev1.EventList
		if err := lab.Client.List(ctx, &events); err != nil {
			return false, err
		}
		for _, event := range events.Items {
			if event.InvolvedObject.Name == p.Name && strings.Contains(event.Message, says) {
				message = event.Message
				return true, nil
			}
		}
		return false, nil
	})
	return message
}
