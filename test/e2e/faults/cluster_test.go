// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/test/framework/machine"
	"github.com/sluice-gpu/sluice/test/framework/stack"
	"github.com/sluice-gpu/sluice/test/framework/tenants"
)

// workFor has workers work for so long.
func workFor(t *testing.T, duration time.Duration, workers ...*tenants.Worker) {
	t.Helper()
	for end := time.Now().Add(duration); time.Now().Before(end); {
		for _, w := range workers {
			w.Progress(t)
		}
	}
}

func TestTheAPIServerGoes(t *testing.T) {
	workers := []*tenants.Worker{tenants.Work(t, lab, "away-large", large, 3), tenants.Work(t, lab, "away-small", small, 4)}
	const api = "kube-apiserver"
	must(t, lab.Stop(t.Context(), api))
	t.Cleanup(func() { _ = lab.Start(context.WithoutCancel(t.Context()), api) })
	outage := either(20*time.Second, 5*time.Minute)
	workFor(t, outage/2, workers...)
	// An agent that starts now knows its tenants from its checkpoint alone.
	must(t, lab.KillAgent(t.Context(), small))
	workFor(t, outage/2, workers...)
	must(t, lab.Start(t.Context(), api))
	// Scheduler and controller manager come back by themselves, within a minute: both pods wait for that together.
	onLarge, onSmall := tenants.Pod("back-large", large, "2Gi"), tenants.Pod("back-small", small, "2Gi")
	for _, p := range []*corev1.Pod{onLarge, onSmall} {
		admitted(t, p)
	}
	for _, p := range []*corev1.Pod{onLarge, onSmall} {
		held(t, tenants.Await(t, lab, p, "runs", machine.Running), 2)
	}
	for _, w := range workers {
		w.Check(t)
	}
	nothingTwice(t)
}

func TestTheManagerGoes(t *testing.T) {
	worker := tenants.Work(t, lab, "managed", large, 3)
	scale := func(replicas string) {
		_, err := lab.Kubectl(t.Context(), "scale", "deployment/sluice-manager", "--namespace", stack.Namespace, "--replicas", replicas)
		must(t, err)
	}
	scale("0")
	t.Cleanup(func() {
		_, _ = lab.Kubectl(context.WithoutCancel(t.Context()), "scale", "deployment/sluice-manager", "--namespace", stack.Namespace, "--replicas=2")
	})
	await(t, "the manager is gone", func(ctx context.Context) (bool, error) {
		var pods corev1.PodList
		err := lab.Client.List(ctx, &pods, client.InNamespace(stack.Namespace), client.MatchingLabels{"app.kubernetes.io/component": "manager"})
		return len(pods.Items) == 0, err
	})
	// A claim's allocation waits for the manager, which judges it.
	tenants.Claim(t, lab, "unjudged", large, "2Gi")
	waits := tenants.Holding("unjudged", "unjudged")
	tenants.Create(t, lab, waits)
	// A workload's pod is created all the same, as nobody has seen it, and can have no GPU.
	deployed(t, "late")
	workFor(t, either(5*time.Second, time.Minute), worker)
	var claim resourceapi.ResourceClaim
	must(t, lab.Client.Get(t.Context(), client.ObjectKey{Namespace: waits.Namespace, Name: "unjudged"}, &claim))
	if claim.Status.Allocation != nil {
		t.Error("a claim was allocated that nobody has judged")
	}
	scale("2")
	waits = tenants.Await(t, lab, waits, "runs", machine.Running)
	held(t, waits, 2)
	must(t, lab.Ready(t.Context()))
	aNewOneStarts(t, "managed-again", large)
	_, err := lab.Kubectl(t.Context(), "rollout", "status", "deployment/late", "--timeout=120s")
	must(t, err)
	worker.Check(t)
	nothingTwice(t)
}

// deployed makes a Deployment of one tenant, which goes with the test, and waits until its pod is there.
func deployed(t *testing.T, name string) {
	t.Helper()
	must(t, lab.Apply(t.Context(), fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, namespace: default}
spec:
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s, sluice.dev/pool: %[2]s}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: %[3]s
        imagePullPolicy: Never
        command: [/bin/tenant]
        resources: {limits: {sluice.dev/gpu-memory: 2Gi}}
`, name, large, tenants.CUDAImage)))
	t.Cleanup(func() {
		_, _ = lab.Kubectl(context.WithoutCancel(t.Context()), "delete", "deployment", name, "--cascade=foreground")
	})
	await(t, "the pod of "+name+" is there", func(ctx context.Context) (bool, error) {
		var pods corev1.PodList
		err := lab.Client.List(ctx, &pods, client.MatchingLabels{"app": name})
		return len(pods.Items) > 0, err
	})
}
