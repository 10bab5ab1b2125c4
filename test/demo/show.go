// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// show runs the tenants and prints the tables.
func show(ctx context.Context, s *stack.Stack) error {
	ctx, cancel := context.WithTimeout(ctx, settle)
	defer cancel()
	var refused []string
	for _, samples := range []struct{ what, dir string }{{"tenants", "tenants"}, {"teams with quotas", "quotas"}} {
		say("Starting the %s of config/samples/%s", samples.what, samples.dir)
		sentences, err := startTenants(ctx, s, samples.dir)
		if err != nil {
			return err
		}
		refused = append(refused, sentences...)
	}
	if err := waitForStatus(ctx, s); err != nil {
		return err
	}
	for _, table := range []struct{ title, kind string }{{"Pools", "gpupools"}, {"Nodes", "gpunodes"}, {"Quotas", "gpuquotas"}} {
		out, err := s.Kubectl(ctx, "get", table.kind, "--all-namespaces")
		if err != nil {
			return err
		}
		fmt.Printf("\n%s\n%s", table.title, indent(out))
	}
	v, err := look(ctx, s.Client)
	if err != nil {
		return err
	}
	fmt.Println("\nTenants")
	printTable([]string{"POD", "STATE", "NODE", "DEVICE", "MEMORY", "COMPUTE", "WHY IT WAITS"}, tenantRows(v))
	if len(refused) > 0 {
		fmt.Println("\nRefused, with a sentence that says what to write instead")
		for _, sentence := range refused {
			fmt.Println("  " + sentence)
		}
	}
	return nil
}

// startTenants applies the tenants file by file, each when those before it have found their place, so that the outcome
// is the same every time. One that admission refuses is not a failure: it is shown.
func startTenants(ctx context.Context, s *stack.Stack, dir string) (refused []string, err error) {
	files, err := filepath.Glob(stack.Path("config", "samples", dir, "*.yaml"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no tenants in config/samples/%s: %w", dir, err)
	}
	for _, file := range files {
		_, err := s.Kubectl(ctx, "apply", "-f", file)
		switch {
		case err == nil:
			if err := waitForTenants(ctx, s); err != nil {
				return nil, err
			}
		case strings.Contains(err.Error(), "admission webhook"):
			_, sentence, _ := strings.Cut(err.Error(), "denied the request: ")
			refused = append(refused, filepath.Base(file)+": "+sentence)
		default:
			return nil, err
		}
	}
	return refused, nil
}

// waitForTenants waits until every pod is there and runs, or the scheduler or its quota has said why it does not.
func waitForTenants(ctx context.Context, s *stack.Stack) error {
	return stack.Poll(ctx, "every tenant runs or is known to wait", func(ctx context.Context) (bool, error) {
		var (
			pods        corev1.PodList
			deployments appsv1.DeploymentList
		)
		for _, list := range []client.ObjectList{&deployments, &pods} {
			if err := s.Client.List(ctx, list); err != nil {
				return false, err
			}
		}
		incomplete := func(d appsv1.Deployment) bool { return d.Status.Replicas != *d.Spec.Replicas }
		waits := func(p corev1.Pod) bool { return p.Status.Phase != corev1.PodRunning && whyWaiting(&p) == "" }
		return !slices.ContainsFunc(deployments.Items, incomplete) && !slices.ContainsFunc(pods.Items, waits), nil
	})
}

// waitForStatus waits until the status of pools and quotas has stood still for two seconds: the manager writes it at most
// twice a second.
func waitForStatus(ctx context.Context, s *stack.Stack) error {
	var last string
	since := time.Now()
	return stack.Poll(ctx, "the status of pools and quotas stands still", func(ctx context.Context) (bool, error) {
		now, err := s.Kubectl(ctx, "get", "gpupools,gpuquotas", "--all-namespaces", "-o", "jsonpath={.items[*].status.summary}")
		if now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > 2*time.Second, err
	})
}

// look reads what the tenants' table is made from.
func look(ctx context.Context, c client.Client) (view, error) {
	var (
		pods   corev1.PodList
		claims resourceapi.ResourceClaimList
		slices resourceapi.ResourceSliceList
	)
	for _, list := range []client.ObjectList{&pods, &claims, &slices} {
		if err := c.List(ctx, list); err != nil {
			return view{}, fmt.Errorf("listing what the tenants hold: %w", err)
		}
	}
	v := view{
		pods:    pods.Items,
		claims:  map[types.NamespacedName]resourceapi.ResourceClaim{},
		devices: map[string]map[string]resourceapi.Device{},
	}
	for _, claim := range claims.Items {
		v.claims[client.ObjectKeyFromObject(&claim)] = claim
	}
	for _, slice := range slices.Items {
		for _, device := range slice.Spec.Devices {
			pool := slice.Spec.Pool.Name
			if v.devices[pool] == nil {
				v.devices[pool] = map[string]resourceapi.Device{}
			}
			v.devices[pool][device.Name] = device
		}
	}
	return v, nil
}

func printTable(header []string, rows [][]string) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		_, _ = fmt.Fprintln(w, "  "+strings.TrimRight(strings.Join(row, "\t"), "\t"))
	}
	_ = w.Flush()
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ") + "\n"
}
