// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/machine"
	"github.com/sluice-gpu/sluice/test/framework/stack"
	"github.com/sluice-gpu/sluice/test/framework/tenants"
)

// passing is the label of the pods of a load.
const passing = "example.org/load"

// load are pods that come and go.
type load struct {
	name            string
	shared, divided int
	started         int
}

// pods are those of one round: some have shares of GPUs and take some memory, the others a MIG instance each.
func (l *load) pods(round int) []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range l.shared + l.divided {
		name := fmt.Sprintf("%s-%d-%d", l.name, round, i)
		p := tenants.Pod(name, large, "2Gi")
		p.Spec.Containers[0].Command = []string{"/bin/tenant", "--most", "4"}
		if i >= l.shared {
			p = builders.MakePod(name).Pool(divided).Limit("nvidia.com/mig-1g.10gb", "1").Obj()
			p.Spec.Containers[0].Image, p.Spec.Containers[0].Command = tenants.BusyboxImage, tenants.Idle()
		}
		p.Labels[passing] = l.name
		p.Spec.NodeName = ""
		pods = append(pods, tenants.Unpulled(p))
	}
	return pods
}

// round creates pods, waits until all run, deletes them, and waits until they and their claims are gone. A pod that does not
// start, or that is started twice, is an error.
func (l *load) round(ctx context.Context, round int) error {
	for _, p := range l.pods(round) {
		if err := lab.Client.Create(ctx, p); err != nil {
			return fmt.Errorf("creating the pod %s: %w", p.Name, err)
		}
	}
	mine := []client.ListOption{client.InNamespace(metav1.NamespaceDefault), client.MatchingLabels{passing: l.name}}
	var last string
	ctx, cancel := context.WithTimeout(ctx, tenants.Patience)
	defer cancel()
	err := stack.Poll(ctx, "all pods of a round run", func(ctx context.Context) (bool, error) {
		var pods corev1.PodList
		if err := lab.Client.List(ctx, &pods, mine...); err != nil {
			return false, fmt.Errorf("listing the pods: %w", err)
		}
		running := 0
		for _, p := range pods.Items {
			if tenants.Restarts(&p) != 0 || p.Status.Phase == corev1.PodFailed {
				return false, fmt.Errorf("the pod %s failed", p.Name)
			}
			if machine.Running(&p) {
				running++
			} else {
				last = p.Name
			}
		}
		return running == l.shared+l.divided, nil
	})
	if err != nil {
		described, _ := lab.Kubectl(context.WithoutCancel(ctx), "describe", "pod", last)
		return fmt.Errorf("%w\n%s", err, described)
	}
	l.started += l.shared + l.divided
	if err := lab.Client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(metav1.NamespaceDefault), client.MatchingLabels{passing: l.name}); err != nil {
		return fmt.Errorf("deleting the pods: %w", err)
	}
	return l.gone(ctx, mine)
}

// gone waits until the pods and their claims are gone.
func (l *load) gone(ctx context.Context, mine []client.ListOption) error {
	err := stack.Poll(ctx, "all pods of a round are gone", func(ctx context.Context) (bool, error) {
		var pods corev1.PodList
		if err := lab.Client.List(ctx, &pods, mine...); err != nil || len(pods.Items) > 0 {
			return false, client.IgnoreNotFound(err)
		}
		var claims resourceapi.ResourceClaimList
		if err := lab.Client.List(ctx, &claims, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		for _, claim := range claims.Items {
			for _, owner := range claim.OwnerReferences {
				err := lab.Client.Get(ctx, client.ObjectKey{Namespace: claim.Namespace, Name: owner.Name}, &corev1.Pod{})
				if apierrors.IsNotFound(err) {
					return false, nil
				}
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("after the pods were deleted: %w", err)
	}
	return nil
}

// during runs rounds until act, which runs beside them, has returned and a further round has passed; it returns how many pods
// there were. No round fails.
func (l *load) during(t *testing.T, act func()) int {
	t.Helper()
	acted := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		for round := 0; ; round++ {
			last := false
			select {
			case <-acted:
				last = true
			default:
			}
			if err := l.round(context.WithoutCancel(t.Context()), round); err != nil || last {
				ended <- err
				return
			}
		}
	}()
	func() {
		defer close(acted)
		act()
	}()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return l.started
}
