// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
)

// limited makes a namespace whose LimitRange gives 20Gi of GPU memory to every container that names none, and waits until
// the API server goes by it.
func limited(t *testing.T) scene {
	t.Helper()
	s := newScene(t)
	amounts := corev1.ResourceList{v1alpha1.ResourceMemory: resource.MustParse("20Gi")}
	s.create(&corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Name: "defaults"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
			{Type: corev1.LimitTypeContainer, Default: amounts, DefaultRequest: amounts},
		}},
	})
	s.wait("a container without limits gets those of the LimitRange", func(ctx context.Context) (bool, error) {
		probe := builders.MakePod("probe").Namespace(s.namespace).Obj()
		err := cluster.Client.Create(ctx, probe, client.DryRunAll)
		return strings.Contains(probe.Annotations[v1alpha1.RequestAnnotation], `"memoryMi":20480`), err
	})
	return s
}

// heard are the warnings that the API server sends along with an answer.
type heard struct {
	mu       sync.Mutex
	warnings []string
}

// HandleWarningHeader remembers a warning.
func (h *heard) HandleWarningHeader(_ int, _, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.warnings = append(h.warnings, text)
}

// listening is a client that remembers warnings.
func listening(t *testing.T) (client.Client, *heard) {
	t.Helper()
	warnings := &heard{}
	config := rest.CopyConfig(cluster.Config)
	config.WarningHandler = warnings
	made, err := client.New(config, client.Options{Scheme: cluster.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return made, warnings
}

// The API server applies the LimitRange again after admission has taken the limits away.
func TestALimitRangeDoesNotReplaceWhatThePodSays(t *testing.T) {
	s := limited(t)
	writer, warnings := listening(t)
	pod := builders.MakePod("p").Namespace(s.namespace).Memory("2Gi").Compute("30").Limit(v1alpha1.ResourceGPU, "2").
		Container("web").Obj()
	pod = initial(pod, "load", "1Gi", false)
	pod.Spec.Containers[1].Resources.Limits = corev1.ResourceList{v1alpha1.ResourceCompute: resource.MustParse("10")}
	if err := writer.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	const want = `{"version":1,"pool":"shared","form":"Shared","requests":[{"name":"main","count":2,"memoryMi":2048,"compute":30},` +
		`{"name":"web","count":1,"memoryMi":20480,"compute":10}]}`
	if diff := cmp.Diff(want, s.canonical(pod)); diff != "" {
		t.Errorf("canonical request (-want +got):\n%s", diff)
	}
	if left := sluiceLimits(pod); len(left) > 0 {
		t.Errorf("limits that admission left: %v", left)
	}
	wantWarnings := []string{
		`container "main": keeps sluice.dev/gpu: 2, sluice.dev/gpu-memory: 2Gi, sluice.dev/gpu-compute: 30; ` +
			`sluice.dev/gpu-memory: 20Gi, added later (by a LimitRange?), is left out`,
		`init container "load": keeps sluice.dev/gpu: 2, sluice.dev/gpu-memory: 2Gi, sluice.dev/gpu-compute: 30; ` +
			`sluice.dev/gpu-memory: 20Gi, added later (by a LimitRange?), is left out`,
	}
	if diff := cmp.Diff(wantWarnings, warnings.warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	s.claim(pod)
}

func TestALimitRangeOfAmountsDoesNotGoWithWholeGPUs(t *testing.T) {
	s := limited(t)
	const want = `container "main": pool whole gives whole GPUs: leave out sluice.dev/gpu-memory and sluice.dev/gpu-compute and ask for ` +
		`sluice.dev/gpu: 1, or name a pool that shares its GPUs in the label sluice.dev/pool ` +
		`(an amount that you did not write comes from a LimitRange of the namespace)`
	got := s.refusal(builders.MakePod("p").Pool("whole").Limit(v1alpha1.ResourceGPU, "1").Obj())
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sentence (-want +got):\n%s", diff)
	}
}

// The documentation says so: bounds are checked after admission has taken the limits away.
func TestALimitRangeOfBoundsRefusesEveryPodThatAsks(t *testing.T) {
	s := newScene(t)
	s.create(&corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Name: "bounds"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{v1alpha1.ResourceMemory: resource.MustParse("20Gi")},
		}}},
	})
	s.wait("a pod that asks is refused by the LimitRange", func(ctx context.Context) (bool, error) {
		err := cluster.Client.Create(ctx, builders.MakePod("p").Namespace(s.namespace).Memory("2Gi").Obj(), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "No limit is specified"), nil
	})
}
