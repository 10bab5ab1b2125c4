// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// ErrPools says that the manager does not release pools.
var ErrPools = errors.New("pools do not go")

// deletePools deletes all pools and waits until the manager has released them: their GPUs, MIG instances and classes.
func (o Options) deletePools(ctx context.Context) error {
	pools := &v1alpha1.GPUPoolList{}
	if err := o.Client.List(ctx, pools); err != nil {
		return fmt.Errorf("listing the pools: %w", err)
	}
	for i := range pools.Items {
		if err := client.IgnoreNotFound(o.Client.Delete(ctx, &pools.Items[i])); err != nil {
			return fmt.Errorf("deleting pool %s: %w", pools.Items[i].Name, err)
		}
	}
	left, err := o.wait(ctx, o.PoolTime, func(ctx context.Context) ([]string, error) {
		if err := o.Client.List(ctx, pools); err != nil {
			return nil, fmt.Errorf("listing the pools: %w", err)
		}
		return standing(pools.Items), nil
	})
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("%w within %s: %s; is the manager running?", ErrPools, o.PoolTime, enumerate(left))
	}
	return nil
}

// standing says of each pool what it waits for.
func standing(pools []v1alpha1.GPUPool) []string {
	var found []string
	for _, pool := range pools {
		at := slices.IndexFunc(pool.Status.Conditions, func(c metav1.Condition) bool {
			return c.Status == metav1.ConditionFalse && c.Message != ""
		})
		if at < 0 {
			found = append(found, pool.Name)
			continue
		}
		found = append(found, fmt.Sprintf("%s (%s)", pool.Name, pool.Status.Conditions[at].Message))
	}
	return found
}
