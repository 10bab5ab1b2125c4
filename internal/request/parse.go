// SPDX-License-Identifier: Apache-2.0

package request

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

const (
	// ClaimName is the name of the claim in a pod's spec.resourceClaims.
	ClaimName = "sluice"

	resourcePrefix = "sluice.dev/"
)

// Asks are all that a pod asks for.
type Asks struct {
	// Pool is the pool that the pod names; "" where it names none.
	Pool string
	// Containers are those that ask: main containers in the pod's order, then sidecars, then init containers.
	Containers []Ask
	// Warnings are what the tenant should hear although the pod is admitted.
	Warnings []string
	// Kept is true where nothing asks, but the pod carries a whole, matching set of annotation and claim, as a copy of a
	// rewritten pod does.
	Kept bool
}

// Ask is what one container asks for.
type Ask struct {
	// Container is the container's name.
	Container string
	// Init is true for an init container that ends before the main containers start. A sidecar, an init container that
	// is always restarted, lives as long as they do and counts as one of them.
	Init bool
	// Amounts are what it asks for.
	Amounts Amounts
}

// describe names the asking container in a sentence.
func (a Ask) describe() string {
	if a.Init {
		return fmt.Sprintf("init container %q", a.Container)
	}
	return fmt.Sprintf("container %q", a.Container)
}

// Parse reads what a pod asks for. A container that admission has rewritten before still counts: its amounts are read
// back from the canonical request that the pod carries, so that a second pass over a pod comes to the same result, and a
// container added in between is merged as if it had been there from the start.
func Parse(pod *corev1.Pod) (Asks, error) {
	rewritten, claimed, err := rewriteOf(pod)
	if err != nil {
		return Asks{}, err
	}
	asks := Asks{Pool: pod.Labels[v1alpha1.PoolLabel]}
	if asks.Pool == "" && rewritten != nil {
		asks.Pool = rewritten.Pool
	}
	var failures []error
	for _, container := range inOrder(pod) {
		ask := Ask{Container: container.spec.Name, Init: container.init}
		found, warnings, err := ask.fill(&container.spec.Resources, rewritten)
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", ask.describe(), err))
			continue
		}
		for _, warning := range warnings {
			asks.Warnings = append(asks.Warnings, ask.describe()+": "+warning)
		}
		if found {
			asks.Containers = append(asks.Containers, ask)
		}
	}
	if claimed && rewritten == nil && len(asks.Containers)+len(failures) > 0 {
		failures = append(failures, fmt.Errorf("the pod has a claim named %q of its own, the name under which its %s* limits "+
			"become a claim: give spec.resourceClaims another name", ClaimName, resourcePrefix))
	}
	if err := errors.Join(failures...); err != nil {
		return Asks{}, oneLine(err)
	}
	asks.Kept = len(asks.Containers) == 0 && rewritten != nil
	return asks, asks.checkNames()
}

// fill reads what a container asks for, if it does. Of a container that is bound to a request that request counts: limits
// in it came later, and are not the tenant's word.
func (a *Ask) fill(resources *corev1.ResourceRequirements, rewritten *Canonical) (found bool, warnings []string, err error) {
	bound, isBound := rewritten.requestOf(resources)
	switch {
	case isBound:
		a.Amounts = bound.amounts()
		if warning := leftOut(resources, a.Amounts); warning != "" {
			warnings = []string{warning}
		}
		return true, warnings, nil
	case hasAmounts(resources):
		warnings, err = a.read(resources)
		return true, warnings, err
	default:
		return false, nil, rewritten.missing(resources)
	}
}

// checkNames refuses names that could not name a request; the API server would refuse the pod for them too, but later.
func (a Asks) checkNames() error {
	seen := map[string]bool{}
	for _, ask := range a.Containers {
		if !isDNSLabel(ask.Container, maxRequestName) {
			return fmt.Errorf("%s: a container's name is a DNS label of at most 63 characters", ask.describe())
		}
		if seen[ask.Container] {
			return fmt.Errorf("two containers are named %q: give each a name of its own", ask.Container)
		}
		seen[ask.Container] = true
	}
	return nil
}

// read fills in the amounts. Kubernetes copies limits to requests, so only requests that say otherwise are wrong.
func (a *Ask) read(resources *corev1.ResourceRequirements) ([]string, error) {
	limits := ours(resources.Limits)
	for name, requested := range ours(resources.Requests) {
		limit, limited := limits[name]
		if !limited {
			return nil, fmt.Errorf("%s is only in resources.requests: write it in resources.limits", name)
		}
		if limit.Cmp(requested) != 0 {
			return nil, fmt.Errorf("%s is %s in resources.requests but %s in resources.limits: write it in resources.limits only",
				name, requested.String(), limit.String())
		}
	}
	amounts, warnings, err := parseAmounts(limits)
	if err != nil {
		return nil, err
	}
	a.Amounts = amounts
	return warnings, nil
}

// listed is a container and whether it is an init container that ends.
type listed struct {
	spec *corev1.Container
	init bool
}

// inOrder lists main containers, then sidecars, then init containers. Ephemeral containers cannot ask for resources.
func inOrder(pod *corev1.Pod) []listed {
	var mains, sidecars, inits []listed
	for i := range pod.Spec.Containers {
		mains = append(mains, listed{spec: &pod.Spec.Containers[i]})
	}
	for i := range pod.Spec.InitContainers {
		container := &pod.Spec.InitContainers[i]
		if container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars = append(sidecars, listed{spec: container})
			continue
		}
		inits = append(inits, listed{spec: container, init: true})
	}
	return slices.Concat(mains, sidecars, inits)
}

func hasAmounts(resources *corev1.ResourceRequirements) bool {
	return len(ours(resources.Limits)) > 0 || len(ours(resources.Requests)) > 0
}

// ours are the entries of a list that belong to Sluice.
func ours(list corev1.ResourceList) corev1.ResourceList {
	found := corev1.ResourceList{}
	for name, quantity := range list {
		if strings.HasPrefix(string(name), resourcePrefix) {
			found[name] = quantity
		}
	}
	return found
}

func sortedNames(list corev1.ResourceList) []corev1.ResourceName {
	names := make([]corev1.ResourceName, 0, len(list))
	for name := range list {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// oneLine joins several sentences by semicolons: a refusal is shown on one line.
func oneLine(err error) error {
	return errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
}
