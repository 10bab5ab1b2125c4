// SPDX-License-Identifier: Apache-2.0

package poolstatus

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/assign"
	"github.com/sluice-gpu/sluice/internal/classes"
	"github.com/sluice-gpu/sluice/internal/rollouts"
	"github.com/sluice-gpu/sluice/internal/timetable"
)

// Input is everything that a pool's status is made from.
type Input struct {
	// Pool is the pool.
	Pool *v1alpha1.GPUPool
	// Pools are all pools, this one among them.
	Pools []v1alpha1.GPUPool
	// Nodes are all nodes that have an agent.
	Nodes []assign.Node
	// Needs are the classes that the pools need, Classes those that exist.
	Needs   []classes.Need
	Classes []resourceapi.DeviceClass
	// OverGuaranteed says how far what quotas guarantee is above what the pool has; "" where it is not.
	OverGuaranteed string
	// Plan is that of the pool's rollout.
	Plan rollouts.Plan
	// Now is the time.
	Now time.Time
}

// Result is a pool's status, and whether the pool may go.
type Result struct {
	// Status is complete but for the conditions' transition times.
	Status v1alpha1.GPUPoolStatus
	// Use is what metrics say beyond the status.
	Use Use
	// Released is true when the pool is being deleted, no GPU is decided for it or used as its own, and its class is gone.
	Released bool
	// Again is when to look again although nothing has changed; zero: never.
	Again time.Time
}

// Compute says what a pool's status is.
func Compute(in Input) Result {
	f := gather(in)
	table := timetable.Of(in.Pool, 0)
	schedule, again := table.Status(in.Now)
	status := v1alpha1.GPUPoolStatus{
		ObservedGeneration: in.Pool.Generation,
		SharingMode:        in.Pool.SharingMode(),
		Summary:            summary(f),
		Nodes:              ptr.To(int32(f.nodes)),
		GPUs: v1alpha1.PoolGPUCount{
			Held: count(f.held), Published: count(f.published), Allocated: count(f.allocated),
			Unhealthy: countAny(len(f.unhealthy)), Excluded: countAny(f.excluded.gpus),
		},
		Memory: v1alpha1.PoolMemory{
			Physical: bytes(f.physical), Published: bytes(f.offeredMem), Allocated: bytes(f.usedMem),
		},
		Rollout:   in.Plan.Counts,
		Schedule:  schedule,
		Repacking: f.repacking.gains(),
	}
	for _, c := range []metav1.Condition{
		ready(in, f), contested(f), resourceNameConflict(in), draining(f), overGuaranteed(in),
		layoutInvalid(in.Plan), rollingOut(in.Plan), scheduleConflict(table), excluding(f), unhealthy(f),
	} {
		c.ObservedGeneration, c.Message = in.Pool.Generation, shorten(c.Message)
		status.Conditions = append(status.Conditions, c)
	}
	return Result{Status: status, Use: f.use, Released: released(in, f), Again: again}
}

// released says whether nothing of a deleted pool is left.
func released(in Input, f facts) bool {
	if in.Pool.DeletionTimestamp.IsZero() || f.held > 0 || f.lingering > 0 {
		return false
	}
	for i := range in.Classes {
		if in.Classes[i].Name == classes.ForPool(in.Pool.Name) && classes.Managed(&in.Classes[i]) {
			return false
		}
	}
	return true
}

// maxMessage bounds the message of every condition in bytes: what an event's note takes, and short enough to read. A pool
// can name as much as an object may hold, and a status that grew with it could not be written.
const maxMessage = 1024

// shorten cuts a message at a character's edge.
func shorten(message string) string {
	const dots = "…"
	if len(message) <= maxMessage {
		return message
	}
	cut := maxMessage - len(dots)
	for cut > 0 && !utf8.RuneStart(message[cut]) {
		cut--
	}
	return message[:cut] + dots
}

// summary is the line a person wants: GPUs with a tenant / held · memory allocated / published.
func summary(f facts) string {
	return strconv.Itoa(f.allocated) + "/" + strconv.Itoa(f.held) + " GPUs · " +
		gib(f.usedMem) + "/" + gib(f.offeredMem) + " GiB"
}

// gib writes bytes as GiB with one decimal where there is one.
func gib(n int64) string {
	return strings.TrimSuffix(strconv.FormatFloat(float64(n)/(1<<30), 'f', 1, 64), ".0")
}

func count(n int) *int32 { return ptr.To(int32(n)) }

// countAny leaves a count of nothing out.
func countAny(n int) *int32 {
	if n == 0 {
		return nil
	}
	return count(n)
}

func bytes(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.BinarySI) }
