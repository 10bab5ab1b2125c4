// SPDX-License-Identifier: Apache-2.0

package poolstatus

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/assign"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/internal/layout"
)

// maxGains is how many profiles the report lists.
const maxGains = 64

// repacking sums up how many more instances the pool's GPUs could give.
type repacking struct {
	now, after map[string]int
	// seen are the answers about GPUs that are alike: to ask takes a search.
	seen map[string][]layout.Room
}

// add counts a GPU of strategy Dynamic.
func (r *repacking) add(node assign.Node, reported *v1alpha1.GPUStatus, d *v1alpha1.GPUDecision) {
	if assign.StrategyOf(*d) != v1alpha1.MIGDynamic || d.Taint != "" {
		return
	}
	var allocated []gpu.Placement
	for _, i := range assign.Instances(node, reported) {
		if i.InUse {
			allocated = append(allocated, i.Placement)
		}
	}
	board := assign.Board(node.GPUNode, reported.Product)
	key := fmt.Sprint(board, allocated)
	rooms, known := r.seen[key]
	if !known {
		rooms = layout.Rooms(board, allocated)
	}
	if r.now == nil {
		r.now, r.after, r.seen = map[string]int{}, map[string]int{}, map[string][]layout.Room{}
	}
	r.seen[key] = rooms
	for _, room := range rooms {
		r.now[room.Profile] += room.Now
		r.after[room.Profile] += room.AfterDrain
	}
}

// gains are the profiles of which more instances would fit after a drain, ordered by name.
func (r *repacking) gains() []v1alpha1.RepackingGain {
	var gains []v1alpha1.RepackingGain
	for _, profile := range slices.Sorted(maps.Keys(r.now)) {
		if r.after[profile] > r.now[profile] && len(gains) < maxGains {
			gains = append(gains, v1alpha1.RepackingGain{
				Profile: profile, Now: ptr.To(int32(r.now[profile])), AfterDrain: ptr.To(int32(r.after[profile])),
			})
		}
	}
	return gains
}
