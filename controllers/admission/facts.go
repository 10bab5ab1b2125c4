// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sluice-gpu/sluice/controllers/view"
	"github.com/sluice-gpu/sluice/internal/quota"
	"github.com/sluice-gpu/sluice/internal/request"
	"github.com/sluice-gpu/sluice/internal/timetable"
)

// Facts tells what is known of the pools.
type Facts interface {
	// Pools are the pools as the manager's cache has them.
	Pools(ctx context.Context) ([]request.Pool, error)
	// Fresh are the pools as the API server has them now. It is asked only before a pod is refused because of a pool that
	// the cache does not have.
	Fresh(ctx context.Context) ([]request.Pool, error)
}

// Quotas tells which quotas hold.
type Quotas interface {
	// DomainOf is the domain of a namespace; nil where it has no quota.
	DomainOf(ctx context.Context, namespace string) (*quota.Domain, error)
	// LabelsOf are the labels of a namespace.
	LabelsOf(ctx context.Context, namespace string) (map[string]string, error)
}

// Cluster reads facts from the cluster.
type Cluster struct {
	// Cache is the manager's cache.
	Cache client.Reader
	// Live asks the API server.
	Live client.Reader
	// ExtendedResources says whether the classes of MIG profiles carry their nvidia.com/... names.
	ExtendedResources bool
	// Clock tells the time: a pool is what its schedule makes it.
	Clock clock.PassiveClock
}

var _ Facts = Cluster{}

// FactsOf reads facts through a manager.
func FactsOf(mgr manager.Manager) Cluster {
	return Cluster{Cache: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: clock.RealClock{}}
}

// Pools are the pools as the manager's cache has them.
func (c Cluster) Pools(ctx context.Context) ([]request.Pool, error) { return c.gather(ctx, c.Cache) }

// Fresh are the pools as the API server has them now, with the GPUs that the cache knows of.
func (c Cluster) Fresh(ctx context.Context) ([]request.Pool, error) { return c.gather(ctx, c.Live) }

func (c Cluster) gather(ctx context.Context, pools client.Reader) ([]request.Pool, error) {
	objects, err := view.Pools(ctx, pools)
	if err != nil {
		return nil, err
	}
	nodes, err := view.GPUNodes(ctx, c.Cache)
	if err != nil {
		return nil, err
	}
	current, _ := timetable.On(timetable.All(objects, 0), "", c.Clock.Now())
	gathered := request.Gather(current, nodes)
	for i := range gathered {
		gathered[i].NamedProfiles = c.ExtendedResources
	}
	return gathered, nil
}
