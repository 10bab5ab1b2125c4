// SPDX-License-Identifier: Apache-2.0

package storm

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/test/framework/otherhook"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// Disturbance is what happens to a cluster in a storm.
type Disturbance struct {
	// Name says what.
	Name string
	// Before is done before the storm; nil for nothing.
	Before func(context.Context) error
	// Amid is done while the scheduler allocates; nil for nothing.
	Amid func(context.Context) error
	// After puts everything back; nil for nothing.
	After func(context.Context) error
}

// Disturbances are all that a quota has to hold through.
func Disturbances(s *stack.Stack, c client.Client) []Disturbance {
	return []Disturbance{
		{Name: "nothing"},
		killed(s, "the leading manager is killed", func(ctx context.Context) string { return s.Leader(ctx) }),
		killed(s, "the other manager is killed", func(ctx context.Context) string {
			if s.Leader(ctx) == stack.ManagerName(0) {
				return stack.ManagerName(1)
			}
			return stack.ManagerName(0)
		}),
		{Name: "the API server is restarted", Amid: func(ctx context.Context) error {
			return errors.Join(s.Stop(ctx, apiServer), s.Start(ctx, apiServer))
		}},
		hooked(c, "another webhook is slow", "slow", slow),
		hooked(c, "another webhook denies half", "moody", moody),
	}
}

const apiServer = "kube-apiserver"

// killed kills a manager. Afterwards it starts it again, and has one lead without waiting for a dead one's lease to end.
func killed(s *stack.Stack, name string, which func(context.Context) string) Disturbance {
	victim := ""
	return Disturbance{
		Name: name,
		Amid: func(ctx context.Context) error {
			victim = which(ctx)
			if victim == "" {
				return errors.New("no manager leads")
			}
			return s.Kill(ctx, victim)
		},
		After: func(ctx context.Context) error {
			if victim == "" {
				return nil
			}
			if err := s.Start(ctx, victim); err != nil {
				return err
			}
			return s.Elect(ctx)
		},
	}
}

func hooked(c client.Client, name, hookName string, answer otherhook.Answer) Disturbance {
	var hook *otherhook.Hook
	return Disturbance{
		Name: name,
		Before: func(ctx context.Context) error {
			var err error
			hook, err = otherhook.Status(ctx, c, hookName, answer)
			return err
		},
		After: func(ctx context.Context) error {
			if hook == nil {
				return nil
			}
			return hook.Stop(ctx)
		},
	}
}

// slow takes 8 seconds over each write of a claim's status: the verdict is old when the allocation is stored.
func slow(ctx context.Context, _ *admissionv1.AdmissionRequest) error {
	const delay = 8 * time.Second
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return nil
}

// moody denies every other write of a claim's status, after the quota has been charged.
func moody(context.Context, *admissionv1.AdmissionRequest) error {
	if rand.IntN(2) == 0 { //nolint:gosec // a mood
		return errors.New("not today")
	}
	return nil
}
