// SPDX-License-Identifier: Apache-2.0

// Package uninstall takes Sluice out of a cluster, before its own objects are deleted: nothing is left behind that only Sluice
// could remove. It is run once, by `manager uninstall`, while manager and agents still run, and can be run again.
package uninstall

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrTenants says that claims hold devices of Sluice.
var ErrTenants = errors.New("GPUs are in use")

// Options are what uninstalling needs to know.
type Options struct {
	// Client reads from the API server itself.
	Client client.Client
	// Namespace is the manager's and the agents'.
	Namespace string
	// PoolTime and NodeTime bound how long pools and nodes are waited for. The rest is over in no time.
	PoolTime, NodeTime time.Duration
	Clock              clock.Clock
	Log                logr.Logger
}

// pollTime is how often it is looked whether something is gone.
const pollTime = time.Second

// Run uninstalls. Where GPUs are in use, or pools do not go, it stops before anything is lost; a node whose agent does not
// answer is named and left.
func Run(ctx context.Context, o Options) error {
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"looking for tenants", o.refuseTenants},
		{"deleting the pools", o.deletePools},
		{"having the agents leave their nodes", o.leaveNodes},
		{"deleting the programs", o.deletePrograms},
		{"deleting what Sluice made", o.deleteMade},
	}
	for _, step := range steps {
		o.Log.Info("Uninstalling", "step", step.name)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	o.Log.Info("Uninstalled")
	return nil
}

// wait looks again and again until nothing is left. Once the time is over it returns what is.
func (o Options) wait(ctx context.Context, bound time.Duration, look func(context.Context) ([]string, error)) ([]string, error) {
	deadline := o.Clock.Now().Add(bound)
	told := ""
	for {
		left, err := look(ctx)
		if err != nil || len(left) == 0 || !o.Clock.Now().Before(deadline) {
			return left, err
		}
		if text := enumerate(left); text != told {
			o.Log.Info("Waiting", "for", text)
			told = text
		}
		select {
		case <-ctx.Done():
			return left, fmt.Errorf("waiting for %s: %w", enumerate(left), context.Cause(ctx))
		case <-o.Clock.After(pollTime):
		}
	}
}

// shown is how many names a message has.
const shown = 10

// enumerate names the first of many.
func enumerate(names []string) string {
	names = slices.Sorted(slices.Values(names))
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}
