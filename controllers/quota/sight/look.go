// SPDX-License-Identifier: Apache-2.0

package sight

import (
	"context"
	"errors"
	"fmt"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/internal/assign"
	"github.com/sluice-gpu/sluice/internal/quota"
)

// Progress follows how far the cache of claims has come: the highest version of a claim that its events were told of.
// A cache tells of a change after it shows it, so it shows all changes up to there.
type Progress struct {
	mu      sync.Mutex
	version string
}

var _ cache.ResourceEventHandler = &Progress{}

// OnAdd takes a claim's version.
func (p *Progress) OnAdd(object any, _ bool) { p.reach(object) }

// OnUpdate takes a claim's version.
func (p *Progress) OnUpdate(_, object any) { p.reach(object) }

// OnDelete takes the version of a claim that is gone.
func (p *Progress) OnDelete(object any) { p.reach(object) }

func (p *Progress) reach(object any) {
	claim, ok := object.(*resourceapi.ResourceClaim)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.version == "" {
		p.version = claim.ResourceVersion
		return
	}
	if order, err := resourceversion.CompareResourceVersion(claim.ResourceVersion, p.version); err == nil && order > 0 {
		p.version = claim.ResourceVersion
	}
}

// Version is the version that the cache has certainly reached; "" where nothing is known.
func (p *Progress) Version() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.version
}

// LookLive looks at the claims of a namespace as the API server has them.
func (r Reader) LookLive(ctx context.Context, namespace string) (quota.Seen, error) {
	claims := &resourceapi.ResourceClaimList{}
	if err := r.Live.List(ctx, claims, client.InNamespace(namespace)); err != nil {
		return quota.Seen{}, fmt.Errorf("listing the claims of namespace %s: %w", namespace, err)
	}
	seen := quota.Seen{Version: claims.ResourceVersion, Live: true, Namespaces: []string{namespace}}
	return seen, r.see(ctx, &seen, claims.Items)
}

// LookCached looks at the claims of a namespace as the cache has them. version is one that the cache had reached before.
func (r Reader) LookCached(ctx context.Context, version, namespace string) (quota.Seen, error) {
	claims := &resourceapi.ResourceClaimList{}
	if err := r.Cache.List(ctx, claims, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return quota.Seen{}, fmt.Errorf("listing the claims of namespace %s: %w", namespace, err)
	}
	seen := quota.Seen{Version: version, Namespaces: []string{namespace}}
	return seen, r.see(ctx, &seen, claims.Items)
}

// see adds claims to a look.
func (r Reader) see(ctx context.Context, seen *quota.Seen, claims []resourceapi.ResourceClaim) error {
	var nodes []string
	known := map[string]bool{}
	for i := range claims {
		for _, node := range assign.AllocatedNodes(&claims[i]) {
			if !known[node] {
				known[node] = true
				nodes = append(nodes, node)
			}
		}
	}
	facts, err := r.facts(ctx, nodes)
	if err != nil {
		return err
	}
	for i := range claims {
		claim := &claims[i]
		shown := quota.SeenClaim{UID: string(claim.UID), Namespace: claim.Namespace, Version: claim.ResourceVersion}
		var unknown *quota.UnknownDeviceError
		if shown.Charges, err = quota.CostOf(claim, facts); errors.As(err, &unknown) {
			shown.Unknown = int32(min(len(unknown.Devices), 1<<20))
		}
		seen.Claims = append(seen.Claims, shown)
	}
	return nil
}
