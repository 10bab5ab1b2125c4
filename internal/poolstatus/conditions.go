// SPDX-License-Identifier: Apache-2.0

package poolstatus

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/assign"
	"github.com/sluice-gpu/sluice/internal/classes"
)

// maxNames is how many names a message lists before it only counts.
const maxNames = 5

func condition(kind string, status bool, reason, message string) metav1.Condition {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	if status {
		c.Status = metav1.ConditionTrue
	}
	return c
}

// ready is True when every GPU that the pool is to hold can be scheduled.
func ready(in Input, f facts) metav1.Condition {
	reason, message := notReady(in, f)
	if reason == "" {
		message = fmt.Sprintf("%s on %s published", plural(f.published, "GPU"), plural(f.nodes, "node"))
		return condition(v1alpha1.PoolReady, true, v1alpha1.ReasonAllPublished, message+ambiguousDefault(in))
	}
	return condition(v1alpha1.PoolReady, false, reason, message+ambiguousDefault(in))
}

// notReady gives the first reason why a pool is not served, in the order in which a person would remove them.
func notReady(in Input, f facts) (reason, message string) {
	_, unreadable := assign.NodeSelector(in.Pool)
	switch missing := classes.Missing(in.Pool.Name, in.Needs, in.Classes); {
	case !in.Pool.DeletionTimestamp.IsZero():
		return v1alpha1.ReasonDeleting, "the pool is being deleted; condition Draining says who still holds its GPUs"
	case unreadable != nil:
		return v1alpha1.ReasonInvalidNodeSelector, fmt.Sprintf(
			"the pool keeps the %s that it holds and gets no others until nodeSelector can be read: use operator In or NotIn with values, "+
				"Exists or DoesNotExist without, and keys and values that a label can have; %v", plural(f.held, "GPU"), unreadable)
	case f.held == 0 && f.matchingNodes == 0:
		return v1alpha1.ReasonNoMatchingNodes, noMatchingNodes(in, f)
	case f.held == 0 && f.selected == len(f.contested):
		return v1alpha1.ReasonNoMatchingGPUs, noMatchingGPUs(f)
	case f.held == 0:
		return v1alpha1.ReasonGPUsNotPublished, fmt.Sprintf("%s selected and about to be given to the pool", plural(f.selected, "GPU"))
	case len(missing) > 0:
		return v1alpha1.ReasonDeviceClassMissing, "no DeviceClass of Sluice's making: " + list(missing)
	case len(f.unpublished) > 0:
		return v1alpha1.ReasonGPUsNotPublished, unpublished(f)
	case f.changing > 0:
		return v1alpha1.ReasonGPUsNotPublished, fmt.Sprintf(
			"%s of %d in change to the form that the pool wants; condition RollingOut says who is waited for", plural(f.changing, "GPU"), f.held)
	case f.published == 0:
		return v1alpha1.ReasonGPUsNotPublished, fmt.Sprintf("the pool's last %s about to leave it", plural(f.held, "GPU"))
	default:
		return "", ""
	}
}

// noMatchingNodes says what the GPU nodes offer for the labels that the selector asks for.
func noMatchingNodes(in Input, f facts) string {
	if f.gpuNodes == 0 {
		return "no node runs a node agent yet"
	}
	offers := map[string]map[string]bool{}
	for _, key := range selectorKeys(in.Pool) {
		offers[key] = map[string]bool{}
		for _, node := range in.Nodes {
			if value, found := node.Labels[key]; found {
				offers[key][value] = true
			}
		}
	}
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(offers)) {
		values := slices.Sorted(maps.Keys(offers[key]))
		if len(values) == 0 {
			parts = append(parts, "none has the label "+key)
			continue
		}
		parts = append(parts, fmt.Sprintf("label %s is %s there", key, list(values)))
	}
	message := fmt.Sprintf("nodeSelector matches none of %s with GPUs", plural(f.gpuNodes, "node"))
	if len(parts) > 0 {
		message += ": " + list(parts)
	}
	return message
}

func selectorKeys(pool *v1alpha1.GPUPool) []string {
	if pool.Spec.NodeSelector == nil {
		return nil
	}
	keys := slices.Collect(maps.Keys(pool.Spec.NodeSelector.MatchLabels))
	for _, e := range pool.Spec.NodeSelector.MatchExpressions {
		keys = append(keys, e.Key)
	}
	return keys
}

// noMatchingGPUs says what the matching nodes offer instead.
func noMatchingGPUs(f facts) string {
	nodes := plural(f.matchingNodes, "node") + " match"
	if f.matchingNodes == 1 {
		nodes += "es"
	}
	switch {
	case len(f.offered) == 0:
		return nodes + ", but no GPU is reported there"
	case len(f.contested) > 0:
		return fmt.Sprintf("%s, but other pools hold all %s that this pool selects: %s", nodes, plural(len(f.contested), "GPU"), contestants(f))
	default:
		var products []string
		for _, product := range slices.Sorted(maps.Keys(f.offered)) {
			products = append(products, fmt.Sprintf("%d × %s", f.offered[product], product))
		}
		return fmt.Sprintf("%s, but gpuSelector matches none of their GPUs: %s", nodes, list(products))
	}
}

// unpublished groups the GPUs that are not published by reason, with one example each.
func unpublished(f facts) string {
	counts := map[string]int{}
	examples := map[string]place{}
	for _, p := range f.unpublished {
		if p.reason == "" {
			p.reason = v1alpha1.ReasonPublishing
		}
		if counts[p.reason] == 0 {
			examples[p.reason] = p
		}
		counts[p.reason]++
	}
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		example := examples[reason]
		part := fmt.Sprintf("%d %s, such as %s of node %s", counts[reason], reason, example.device, example.node)
		if example.message != "" {
			part += " (" + example.message + ")"
		}
		parts = append(parts, part)
	}
	return fmt.Sprintf("%s of %d not published: %s", plural(len(f.unpublished), "GPU"), f.held, strings.Join(parts, "; "))
}

// ambiguousDefault warns where more than one pool wants the pods that name none.
func ambiguousDefault(in Input) string {
	defaults := Defaults(in.Pools)
	if len(defaults) < 2 || !in.Pool.IsDefault() {
		return ""
	}
	return fmt.Sprintf("; pools %s all say default: true, so pods that name no pool are refused", list(defaults))
}

// Defaults are the pools that want the pods that name none, in order.
func Defaults(pools []v1alpha1.GPUPool) []string {
	var names []string
	for i := range pools {
		if pools[i].IsDefault() && pools[i].DeletionTimestamp.IsZero() {
			names = append(names, pools[i].Name)
		}
	}
	slices.Sort(names)
	return names
}

// contested is True when another pool holds GPUs that this one selects.
func contested(f facts) metav1.Condition {
	if len(f.contested) == 0 || !f.pool.DeletionTimestamp.IsZero() {
		return condition(v1alpha1.PoolContested, false, v1alpha1.ReasonNotContested, "no other pool holds a GPU that this pool selects")
	}
	return condition(v1alpha1.PoolContested, true, v1alpha1.ReasonHeldByOtherPool,
		fmt.Sprintf("other pools hold %s that this pool selects: %s", plural(len(f.contested), "GPU"), contestants(f)))
}

// contestants names each other pool with one GPU that it holds.
func contestants(f facts) string {
	var parts, seen []string
	for _, p := range f.contested {
		if !slices.Contains(seen, p.pool) {
			seen = append(seen, p.pool)
			parts = append(parts, fmt.Sprintf("pool %s holds %s of node %s", p.pool, p.device, p.node))
		}
	}
	return list(parts)
}

// resourceNameConflict is True when a class of somebody else uses a name that the pool needs.
func resourceNameConflict(in Input) metav1.Condition {
	var messages []string
	for _, c := range classes.Conflicts(in.Needs, in.Classes) {
		if slices.Contains(c.Pools, in.Pool.Name) {
			messages = append(messages, c.Message())
		}
	}
	if len(messages) == 0 {
		return condition(v1alpha1.PoolResourceNameConflict, false, v1alpha1.ReasonNoConflict, "the names that the pool needs are its own")
	}
	return condition(v1alpha1.PoolResourceNameConflict, true, v1alpha1.ReasonForeignClass, strings.Join(messages, "; "))
}

// draining is True while GPUs that must leave, or change their form, wait.
func draining(f facts) metav1.Condition {
	d := f.draining
	switch {
	case d.gpus == 0:
		return condition(v1alpha1.PoolDraining, false, v1alpha1.ReasonNothingToDrain, "no GPU has to leave the pool or change its form")
	case len(d.tenants) > 0:
		return condition(v1alpha1.PoolDraining, true, v1alpha1.ReasonTenantsRemain,
			fmt.Sprintf("%s to be freed, held by %s", plural(d.gpus, "GPU"), list(d.tenants)))
	case len(d.behind) > 0:
		return condition(v1alpha1.PoolDraining, true, v1alpha1.ReasonSettling,
			fmt.Sprintf("nobody holds %s to be freed; the node agent must still take them from the scheduler on %s", plural(d.gpus, "GPU"), list(d.behind)))
	default:
		return condition(v1alpha1.PoolDraining, true, v1alpha1.ReasonSettling,
			fmt.Sprintf("nobody holds %s to be freed; they leave once no allocation can be on its way", plural(d.gpus, "GPU")))
	}
}

// overGuaranteed is True when the quotas of the pool's cohorts guarantee more than there is.
func overGuaranteed(in Input) metav1.Condition {
	if in.OverGuaranteed == "" {
		return condition(v1alpha1.PoolOverGuaranteed, false, v1alpha1.ReasonGuaranteesCovered, "the pool has all that quotas guarantee of it")
	}
	return condition(v1alpha1.PoolOverGuaranteed, true, v1alpha1.ReasonGuaranteesAboveCapacity, in.OverGuaranteed)
}

// list joins names, up to maxNames.
func list(names []string) string {
	if len(names) > maxNames {
		return strings.Join(names[:maxNames], ", ") + fmt.Sprintf(" and %d more", len(names)-maxNames)
	}
	return strings.Join(names, ", ")
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
