// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// LeaseName is the Lease whose holder is the address of the replica that writes the ledgers.
const LeaseName = "sluice-ledger-writer"

// retryIn is how soon publishing is tried again.
const retryIn = time.Second

// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=sluice-system,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=sluice-system,resources=leases,resourceNames=sluice-ledger-writer,verbs=get;list;watch;update

var errNoLeader = errors.New("no leader has published its address")

// Address reads the leader's address.
func Address(reader client.Reader, namespace string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		lease := &coordinationv1.Lease{}
		err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: LeaseName}, lease)
		if client.IgnoreNotFound(err) != nil {
			return "", fmt.Errorf("reading the leader's address: %w", err)
		}
		if address := ptr.Deref(lease.Spec.HolderIdentity, ""); address != "" {
			return address, nil
		}
		return "", errNoLeader
	}
}

// Publisher publishes the leader's address: it runs on the leader only. A leader without an address takes the last
// leader's away.
type Publisher struct {
	// Client writes the Lease.
	Client client.Client
	// Live reads it.
	Live client.Reader
	// Namespace is the manager's.
	Namespace string
	// Address is this replica's; "" for none.
	Address string
	// Clock tells the time.
	Clock clock.WithTicker
}

var (
	_ manager.Runnable               = &Publisher{}
	_ manager.LeaderElectionRunnable = &Publisher{}
)

// NeedLeaderElection says that only the leader runs it.
func (*Publisher) NeedLeaderElection() bool { return true }

// Start publishes the address once.
func (p *Publisher) Start(ctx context.Context) error {
	for {
		err := p.publish(ctx)
		if err == nil {
			return nil
		}
		logr.FromContextOrDiscard(ctx).Error(err, "The other replicas do not know this one yet")
		timer := p.Clock.NewTimer(retryIn)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
	}
}

func (p *Publisher) publish(ctx context.Context) error {
	lease := &coordinationv1.Lease{}
	err := p.Live.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: LeaseName}, lease)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading lease %s: %w", LeaseName, err)
	}
	lease.Spec.HolderIdentity = nil
	if p.Address != "" {
		lease.Spec.HolderIdentity = &p.Address
	}
	lease.Spec.AcquireTime = &metav1.MicroTime{Time: p.Clock.Now()}
	if apierrors.IsNotFound(err) {
		lease.Namespace, lease.Name = p.Namespace, LeaseName
		lease.Labels = map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue}
		err = p.Client.Create(ctx, lease)
	} else {
		err = p.Client.Update(ctx, lease)
	}
	if err != nil {
		return fmt.Errorf("writing lease %s: %w", LeaseName, err)
	}
	return nil
}
