// SPDX-License-Identifier: Apache-2.0

// Package apply_test applies a directory that has everything at once, Sluice, its API, a pool, a quota and tenants, in any order,
// as GitOps does: it converges.
package apply_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/machine"
	"github.com/sluice-gpu/sluice/test/framework/stack"
	"github.com/sluice-gpu/sluice/test/framework/tenants"
)

// users is what its users add to Sluice.
const users = `apiVersion: sluice.dev/v1alpha1
kind: GPUPool
metadata: {name: one}
spec:
  nodeSelector: {matchLabels: {node-restriction.kubernetes.io/gpu-pool: one}}
  partitioning: {type: None}
  sharing: {maxTenantsPerDevice: 8}
---
apiVersion: sluice.dev/v1alpha1
kind: GPUQuota
metadata: {name: gpus, namespace: default}
spec:
  pools: [one]
  hard: {memory: 20Gi}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: tenant, namespace: default}
spec:
  replicas: 3
  selector: {matchLabels: {app: tenant}}
  template:
    metadata: {labels: {app: tenant, sluice.dev/pool: one}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: ` + tenants.CUDAImage + `
        imagePullPolicy: Never
        command: [/bin/tenant, --most, "4"]
        resources: {limits: {sluice.dev/gpu-memory: 2Gi}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: claimed, namespace: default}
spec:
  devices:
    requests:
    - name: gpu
      exactly:
        deviceClassName: one.sluice.dev
        capacity: {requests: {memory: 3Gi}}
---
apiVersion: v1
kind: Pod
metadata: {name: claimed, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  resourceClaims: [{name: gpu, resourceClaimName: claimed}]
  containers:
  - name: main
    image: ` + tenants.CUDAImage + `
    imagePullPolicy: Never
    command: [/bin/tenant, --most, "4"]
    resources: {claims: [{name: gpu}]}
`

// yet is what kubectl says of an object whose kind, or webhook's service, is on its way: the user applies again.
var yet = []string{"ensure CRDs are installed first", "no matches for kind", "could not find the requested resource"}

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // the client's warnings are the tenants' to read
	os.Exit(m.Run())
}

func TestADirectoryIsAppliedInAnyOrder(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { applied(t, seed) })
	}
}

// applied makes a cluster with one machine, applies a directory to it whose files the seed has ordered, and waits until all runs.
func applied(t *testing.T, seed uint64) {
	t.Helper()
	lab := cluster(t)
	dir := directory(t, lab, rand.New(rand.NewPCG(seed, 0))) //nolint:gosec // an order that a seed gives again
	ctx, cancel := context.WithTimeout(t.Context(), tenants.Patience)
	defer cancel()
	times := 0
	err := stack.Poll(ctx, "the directory is applied", func(ctx context.Context) (bool, error) {
		times++
		_, err := lab.Kubectl(ctx, "apply", "--filename", dir)
		if err == nil {
			return true, nil
		}
		return false, unexpected(err)
	})
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := lab.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	for _, wait := range [][]string{
		{"rollout", "status", "deployment/tenant", "--timeout=150s"}, {"wait", "pod/claimed", "--for=condition=Ready", "--timeout=60s"},
		{"wait", "gpupool/one", "--for=condition=Ready", "--timeout=60s"},
	} {
		if _, err := lab.Kubectl(t.Context(), wait...); err != nil {
			pods, _ := lab.Kubectl(t.Context(), "describe", "pods")
			t.Fatalf("%v\n%s", err, pods)
		}
	}
	t.Logf("applied %d times; all runs %.1f s after", times, time.Since(begin).Seconds())
}

// unexpected is what kubectl says besides that a kind is not there yet.
func unexpected(err error) error {
	for line := range strings.Lines(err.Error()) {
		known := false
		for _, text := range yet {
			known = known || strings.Contains(line, text)
		}
		if strings.Contains(strings.ToLower(line), "error") && !known {
			return fmt.Errorf("kubectl apply says more than that a kind is not there yet: %w", err)
		}
	}
	return nil
}

func cluster(t *testing.T) *machine.Lab {
	t.Helper()
	images, err := machine.Images()
	if err != nil {
		t.Fatal(err)
	}
	parent, err := os.MkdirTemp("/tmp", "sluice-e2e-") //nolint:usetesting // a socket's path has 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	lab, err := machine.Up(t.Context(), filepath.Join(parent, "lab"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Down(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		if !t.Failed() {
			_ = os.RemoveAll(parent)
		}
	})
	err = lab.Add(t.Context(), machine.Machine{
		Name: "one", Board: "h100-80gb", GPUs: 1, Images: images,
		Labels: map[string]string{machine.PresentLabel: "true", builders.PoolNodeLabel: "one"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lab.Kubectl(t.Context(), "create", "namespace", stack.Namespace); err != nil {
		t.Fatal(err)
	}
	return lab
}

// directory writes each object of chart and users into a file of its own. kubectl takes files by their names.
func directory(t *testing.T, lab *machine.Lab, random *rand.Rand) string {
	t.Helper()
	chart, err := lab.Render(t.Context(), stack.Path("charts", "sluice"))
	if err != nil {
		t.Fatal(err)
	}
	var objects []string
	for object := range strings.SplitSeq(chart+"\n---\n"+users, "\n---\n") {
		if strings.Contains(object, "kind: ") {
			objects = append(objects, object)
		}
	}
	dir := t.TempDir()
	for i, at := range random.Perm(len(objects)) {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%03d.yaml", i)), []byte(objects[at]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
