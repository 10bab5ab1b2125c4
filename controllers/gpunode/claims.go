// SPDX-License-Identifier: Apache-2.0

package gpunode

import (
	"context"
	"fmt"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/controllers/view"
	"github.com/sluice-gpu/sluice/internal/assign"
)

// freshFor is how long one look at all claims serves: many nodes change hands at once, and it is far below the settle
// time that makes an allocation visible.
const freshFor = 2 * time.Second

// freshClaims reads claims from the API server, past the cache. Claims cannot be listed by node there, so one list
// serves every node that asks within a moment.
type freshClaims struct {
	live  client.Reader
	clock clock.PassiveClock

	mu     sync.Mutex
	asked  time.Time
	claims []resourceapi.ResourceClaim
}

// on is what claims hold on a node.
func (f *freshClaims) on(ctx context.Context, node string) ([]assign.Allocation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := f.clock.Now(); f.asked.IsZero() || now.Sub(f.asked) >= freshFor {
		claims := &resourceapi.ResourceClaimList{}
		if err := f.live.List(ctx, claims); err != nil {
			return nil, fmt.Errorf("listing resource claims before GPUs of node %s change hands: %w", node, err)
		}
		f.asked, f.claims = now, claims.Items
	}
	return view.Allocations(node, f.claims), nil
}
